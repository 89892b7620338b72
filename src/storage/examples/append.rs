//! Measures the log writer: a number of entries in flight over a number of groups, each appended
//! again as soon as it is on disk. In the same run it measures a loop of plain writes with
//! fdatasync, of as many bytes as the writer's batches had.
//!
//! `cargo run --release -p quorate-storage --example append [directory [number of one load]]`

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a measurement, not a product")]

use bytes::Bytes;
use crossbeam_channel::unbounded;
use quorate_queue::{Batch, Command, Entry, MessageHead, Origin, Run};
use quorate_storage::{
    CommandEntry, Database, EntryId, GroupStore, LogEntry, Options, Payload, RunBodies, codec,
};
use quorate_types::{
    GroupId, Home, Incarnation, Level, LogIndex, Message, NodeId, QueueId, Stamp, Term,
};
use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const TIME: Duration = Duration::from_secs(4);

struct Load {
    groups: u16,
    in_flight: u64,
    messages: u32,
    body_bytes: usize,
}

fn main() {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = base.join(format!("quorate-append-{}", std::process::id()));
    let loads = [
        Load { groups: 1, in_flight: 1, messages: 1, body_bytes: 1024 },
        Load { groups: 1, in_flight: 64, messages: 1, body_bytes: 1024 },
        Load { groups: 12, in_flight: 64, messages: 1, body_bytes: 1024 },
        Load { groups: 12, in_flight: 64, messages: 64, body_bytes: 1024 },
        Load { groups: 12, in_flight: 48, messages: 256, body_bytes: 20 },
    ];
    let only: Option<usize> = std::env::args().nth(2).map(|number| number.parse().unwrap());
    for (number, load) in loads.into_iter().enumerate() {
        if only.is_some_and(|only| only != number) {
            continue;
        }
        println!(
            "{} groups, {} entries in flight of {} messages of {} bytes",
            load.groups, load.in_flight, load.messages, load.body_bytes
        );
        let batch_bytes = quorate(&dir, &load);
        raw(&dir, batch_bytes);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// Appends for a while; returns the bytes of an average batch.
fn quorate(dir: &Path, load: &Load) -> u64 {
    let database = Database::open(dir, Options::new(NodeId(1), Incarnation(1))).unwrap();
    let groups: Vec<GroupStore> =
        (1..=load.groups).map(|group| database.group(GroupId(group)).unwrap()).collect();
    let payloads: Vec<Payload> = (1..=load.groups).map(|group| payload(group, load)).collect();
    let mut next = vec![1u64; groups.len()];
    let (ended, end) = unbounded();
    let mut append = |place: usize| {
        let index = LogIndex(next[place]);
        next[place] += 1;
        let id = EntryId { term: Term(1), leader: NodeId(1), index };
        let entry = LogEntry { id, payload: payloads[place].clone() };
        let ended = ended.clone();
        groups[place].append(
            vec![entry],
            Box::new(move |result| {
                result.unwrap();
                // After the end of the time the receiver is gone.
                let _ = ended.send(place);
            }),
        );
    };
    let (began, cpu) = (Instant::now(), cpu_time());
    let places = groups.len();
    (0..load.in_flight).for_each(|number| append(number as usize % places));
    let mut entries = 0u64;
    while began.elapsed() < TIME {
        let place = end.recv().unwrap();
        entries += 1;
        append(place);
        // As a leader does: purges what a checkpoint covers.
        if entries.is_multiple_of(256) {
            tidy(&groups[place]);
        }
    }
    let (elapsed, cpu) = (began.elapsed().as_secs_f64(), cpu_time() - cpu);
    let stats = database.writer().stats();
    let messages = entries * u64::from(load.messages);
    println!(
        "  quorate: {:.0} entries/s, {:.0} messages/s, {:.0} MB/s of bodies, {:.0} syncs/s, \
         sync p50 {} µs p99 {} µs, {:.2} µs of CPU a message",
        entries as f64 / elapsed,
        messages as f64 / elapsed,
        messages as f64 * load.body_bytes as f64 / elapsed / 1e6,
        stats.sync_us.count as f64 / elapsed,
        stats.sync_us.quantile(500),
        stats.sync_us.quantile(990),
        cpu.as_secs_f64() * 1e6 / messages as f64,
    );
    stats.batch_bytes.sum / stats.batch_bytes.count.max(1)
}

fn tidy(store: &GroupStore) {
    if store.log_bytes() < 1 << 20 {
        return;
    }
    let Some(last) = store.log_state().last else { return };
    let checkpoint = quorate_storage::Checkpoint::new(last, Bytes::new(), Vec::new());
    store.checkpoint(checkpoint, Box::new(|result| result.unwrap()));
    store.purge_through(last, Box::new(|result| result.unwrap()));
}

fn payload(group: u16, load: &Load) -> Payload {
    let queue = QueueId { home: Home::Group(GroupId(group)), index: 1, position: 0 };
    let message = Message { body: Bytes::from(vec![7; load.body_bytes]), ..Message::default() };
    let head = MessageHead { body_bytes: load.body_bytes as u32, expiration_ms: None };
    let messages = vec![head; load.messages as usize];
    let commands = vec![Command::Enqueue { run: 0, first: 0, count: load.messages }];
    let entry = Entry {
        stamp: Stamp::default(),
        runs: vec![Run { queue, level: Level(0), messages }],
        batches: vec![Batch { origin: Origin::Leader, commands }],
    };
    let message = Some(codec::message::encode(&message));
    let bodies = vec![RunBodies { messages: vec![message; load.messages as usize] }];
    Payload::Commands(CommandEntry { command: codec::queue::encode_entry(&entry), bodies })
}

/// Plain writes of that many bytes, each synced.
fn raw(dir: &Path, bytes: u64) {
    let mut file = File::create(dir.join("raw")).unwrap();
    let content = vec![7; bytes as usize];
    let mut syncs = Vec::new();
    let began = Instant::now();
    while began.elapsed() < TIME / 2 {
        let sync = Instant::now();
        file.write_all(&content).unwrap();
        file.sync_data().unwrap();
        syncs.push(sync.elapsed().as_micros());
    }
    let elapsed = began.elapsed().as_secs_f64();
    syncs.sort_unstable();
    println!(
        "  raw:     {:.0} syncs/s of {bytes} bytes, {:.0} MB/s, p50 {} µs p99 {} µs",
        syncs.len() as f64 / elapsed,
        syncs.len() as f64 * bytes as f64 / elapsed / 1e6,
        syncs[syncs.len() / 2],
        syncs[syncs.len() * 99 / 100],
    );
}

/// CPU time of the process so far.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap();
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|t| t.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}
