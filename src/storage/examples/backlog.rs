//! Measures a long queue: fills one queue with messages of 100 bytes, then reads and removes them
//! again as a machine and its front end do; prints the rate and the memory used.
//!
//! `cargo run --release -p quorate-storage --example backlog [directory [millions of messages]]`

#![expect(clippy::unwrap_used, clippy::panic, reason = "a measurement, not a product")]

use bytes::{Bytes, BytesMut};
use crossbeam_channel::bounded;
use quorate_queue::{Batch, Change, Command, Entry, MessageHead, MessageStore, Origin, Run};
use quorate_storage::{
    CommandEntry, Committed, Database, EntryId, GroupStore, LogEntry, MessageRef, Options, Payload,
    ReplicaStore, RunBodies, StoredMessage, codec,
};
use quorate_types::{
    GroupId, Home, Incarnation, Level, LogIndex, Message, MessageId, NodeId, QueueId, Stamp, Term,
};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

const GROUP: GroupId = GroupId(1);
const QUEUE: QueueId = QueueId { home: Home::Group(GROUP), index: 1, position: 0 };
const RUN_MESSAGES: u32 = 64;
const IN_FLIGHT: usize = 16;
const EVERY: Duration = Duration::from_millis(100);

fn main() {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let millions: u64 = std::env::args().nth(2).map_or(5, |number| number.parse().unwrap());
    let dir = base.join(format!("quorate-backlog-{}", std::process::id()));
    let database = Database::open(&dir, Options::new(NodeId(1), Incarnation(1))).unwrap();
    let store = database.group(GROUP).unwrap();
    let mut replica = ReplicaStore::new(store.clone());
    let entries = millions * 1_000_000 / u64::from(RUN_MESSAGES);

    let began = Instant::now();
    fill(&store, &mut replica, entries);
    report("filled", entries, began.elapsed());
    let began = Instant::now();
    let read = drain(&store, &mut replica, entries);
    assert_eq!(read, entries * u64::from(RUN_MESSAGES));
    report("drained", entries, began.elapsed());
    drop((replica, store, database));
    std::fs::remove_dir_all(&dir).unwrap();
}

fn fill(store: &GroupStore, replica: &mut ReplicaStore, entries: u64) {
    let (sender, ended) = bounded(IN_FLIGHT);
    let mut checkpointed = Instant::now();
    for index in 1..=entries {
        if index > IN_FLIGHT as u64 {
            ended.recv().unwrap();
        }
        let sender = sender.clone();
        let entry = entry(index);
        let id = entry.id;
        store.append(
            vec![entry],
            Box::new(move |result| {
                result.unwrap();
                sender.send(()).unwrap();
            }),
        );
        if checkpointed.elapsed() > EVERY {
            checkpointed = Instant::now();
            checkpoint(store, replica, id);
        }
    }
    (0..IN_FLIGHT).for_each(|_| ended.recv().unwrap());
}

/// As a consumer with a window of one run: heads, bodies, removal.
fn drain(store: &GroupStore, replica: &mut ReplicaStore, entries: u64) -> u64 {
    let (mut from, mut read) = (LogIndex(0), 0);
    let mut checkpointed = Instant::now();
    let applied = id(entries);
    let committed = Committed { applied: applied.index, term: None };
    loop {
        let runs = replica.runs(QUEUE, Level(0), from, applied.index, 16).unwrap();
        let Some(last) = runs.last() else { return read };
        for run in &runs {
            let wanted: Vec<MessageRef> = (0u32..)
                .zip(&run.messages)
                .map(|(position, _)| MessageRef {
                    queue: QUEUE,
                    message: MessageId { level: Level(0), index: run.index, position },
                })
                .collect();
            for stored in store.messages(&wanted, committed, usize::MAX).unwrap() {
                let StoredMessage::Here(bytes) = stored else { panic!("{stored:?}") };
                let message = codec::message::decode(&bytes).unwrap();
                assert_eq!(message.body.len(), 100);
                read += 1;
            }
        }
        let (first, end) = (from, last.index);
        let removed = Change::Removed { queue: QUEUE, level: Level(0), first, last: end };
        replica.take(applied.index, &[removed]).unwrap();
        from = end.next();
        if checkpointed.elapsed() > EVERY {
            checkpointed = Instant::now();
            checkpoint(store, replica, applied);
        }
    }
}

fn checkpoint(store: &GroupStore, replica: &mut ReplicaStore, applied: EntryId) {
    let checkpoint = replica.checkpoint(applied, Bytes::new(), |_| None, Instant::now());
    store.checkpoint(checkpoint, Box::new(|result| result.unwrap()));
    if store.log_bytes() > 4 << 20 {
        store.purge_through(applied, Box::new(|result| result.unwrap()));
    }
}

fn id(index: u64) -> EntryId {
    EntryId { term: Term(1), leader: NodeId(1), index: LogIndex(index) }
}

fn entry(index: u64) -> LogEntry {
    let message = Message { body: Bytes::from(vec![7; 100]), ..Message::default() };
    let mut buffer = BytesMut::new();
    let messages = (0..RUN_MESSAGES)
        .map(|_| {
            let length = codec::message::encode_into(&message, &mut buffer);
            Some(buffer.split_to(length).freeze())
        })
        .collect();
    let head = MessageHead { body_bytes: 100, expiration_ms: None };
    let entry = Entry {
        stamp: Stamp::default(),
        runs: vec![Run {
            queue: QUEUE,
            level: Level(0),
            messages: vec![head; RUN_MESSAGES as usize],
        }],
        batches: vec![Batch {
            origin: Origin::Leader,
            commands: vec![Command::Enqueue { run: 0, first: 0, count: RUN_MESSAGES }],
        }],
    };
    let (command, bodies) = (codec::queue::encode_entry(&entry), vec![RunBodies { messages }]);
    LogEntry { id: id(index), payload: Payload::Commands(CommandEntry { command, bodies }) }
}

fn report(what: &str, entries: u64, elapsed: Duration) {
    let messages = entries * u64::from(RUN_MESSAGES);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let memory = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
    };
    println!(
        "{what} {messages} messages: {:.0}/s, memory {} MiB, at most {} MiB",
        messages as f64 / elapsed.as_secs_f64(),
        memory("VmRSS:"),
        memory("VmHWM:"),
    );
}
