//! Tests of the whole crate, and their shared helpers.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod access;
mod arbitrary;
mod arbitrary_batch;
mod arbitrary_letters;
mod arbitrary_queue;
mod caches;
mod closed_logs;
mod codecs;
mod crash;
mod damage;
mod donor;
mod machine_version;
mod members;
mod model;
mod opening;
mod reading;
mod reclaim;
mod replica_record;
mod simulated;
mod snapshots;
mod tasks;
mod writer;

use crate::{
    CommandEntry, Committed, Database, Done, EntryId, GroupStore, LogEntry, MessageRef, Options,
    Payload, RunBodies, StorageError, StoredMessage, codec, simulated::Disk,
};
use bytes::Bytes;
use crossbeam_channel::{Receiver, bounded};
use quorate_queue::{Batch, Command, Entry, MessageHead, Origin, Run};
use quorate_types::{
    GroupId, Home, Incarnation, Level, LogIndex, NodeId, QueueId, Stamp, Term, Timestamp, WallTime,
};
use std::{path::Path, sync::Arc};

const GROUP: GroupId = GroupId(3);

fn queue(number: u64) -> QueueId {
    QueueId { home: Home::Group(GROUP), index: number, position: 0 }
}

fn id(term: u64, index: u64) -> EntryId {
    EntryId { term: Term(term), leader: NodeId(1), index: LogIndex(index) }
}

/// Contents that identify their run and position.
fn body(term: u64, queue: u64, level: u8, index: u64, position: u32, bytes: usize) -> Bytes {
    let mut text = format!("{term}/{queue}/{level}/{index}/{position}").into_bytes();
    text.resize(text.len().max(bytes), b'.');
    Bytes::from(text)
}

/// An entry with a run for each (queue, level, messages, bytes each).
fn entry(term: u64, index: u64, runs: &[(u64, u8, u32, usize)]) -> LogEntry {
    let stamp = Stamp { time: Timestamp(1000 + index), wall: WallTime(index) };
    let mut commands = Vec::new();
    let (mut heads, mut bodies) = (Vec::new(), Vec::new());
    for (run, &(number, level, count, bytes)) in (0u32..).zip(runs) {
        let messages: Vec<Bytes> =
            (0..count).map(|position| body(term, number, level, index, position, bytes)).collect();
        heads.push(Run {
            queue: queue(number),
            level: Level(level),
            messages: messages
                .iter()
                .map(|m| MessageHead { body_bytes: m.len() as u32, expiration_ms: None })
                .collect(),
        });
        bodies.push(RunBodies { messages: messages.into_iter().map(Some).collect() });
        commands.push(Command::Enqueue { run, first: 0, count });
    }
    let batches = vec![Batch { origin: Origin::Leader, commands }];
    let command = codec::queue::encode_entry(&Entry { stamp, runs: heads, batches });
    let payload = Payload::Commands(CommandEntry { command, bodies });
    LogEntry { id: id(term, index), payload }
}

/// A directory in memory if possible: these crashes lose no page cache, so that a sync to a real
/// disk would prove nothing and take time.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Options with which a failure fails the test that checks for it, not the process.
fn options() -> Options {
    let mut options = Options::new(NodeId(1), Incarnation(77));
    options.fatal = Arc::new(|_| {});
    options.write_buffer_bytes = 8 << 20;
    options
}

fn open(dir: &Path, options: Options) -> Arc<Database> {
    Database::open(dir, options).unwrap()
}

/// A `done` and the receiver of its result; nothing is received if the process "crashes" first.
fn done() -> (Done, Receiver<Result<(), StorageError>>) {
    let (sender, receiver) = bounded(1);
    (Box::new(move |result| drop(sender.send(result))), receiver)
}

/// All entries are applied.
const APPLIED: Committed = Committed { applied: LogIndex(u64::MAX), term: None };

impl GroupStore {
    /// One message of an applied entry.
    fn message(&self, wanted: MessageRef) -> Result<Option<Bytes>, StorageError> {
        Ok(match self.messages(&[wanted], APPLIED, 0)?.pop().unwrap() {
            StoredMessage::Here(message) => Some(message),
            StoredMessage::Absent => None,
            StoredMessage::Unknown => panic!("{wanted:?} is applied"),
        })
    }
}

/// Waits for a write.
fn written(write: impl FnOnce(Done)) {
    let (done, receiver) = done();
    write(done);
    receiver.recv().unwrap().unwrap();
}

/// Waits for a write of a group, whose database may be a stepped one.
fn written_to(store: &GroupStore, write: impl FnOnce(Done)) {
    let (done, receiver) = done();
    write(done);
    store.drive();
    receiver.recv().unwrap().unwrap();
}

fn append(store: &GroupStore, entries: Vec<LogEntry>) {
    written_to(store, |done| store.append(entries, done));
}

/// The location of a database.
enum Place {
    Directory(tempfile::TempDir),
    Simulated(Disk),
}

impl Place {
    /// On a disk simulated with that seed, or in a directory.
    fn new(seed: Option<u64>) -> Self {
        seed.map_or_else(|| Self::Directory(scratch()), |seed| Self::Simulated(Disk::new(seed)))
    }

    fn open(&self, options: Options) -> Arc<Database> {
        match self {
            Self::Directory(dir) => open(dir.path(), options),
            Self::Simulated(disk) => Database::open_simulated(disk, &options).unwrap(),
        }
    }
}
