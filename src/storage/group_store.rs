//! One group's part of the database.

use crate::{
    Done, EntryId, LogEntry, ReceivedSnapshot, SnapshotDownload, SnapshotReader, StorageError,
};
use bytes::Bytes;
use quorate_types::{GroupId, Level, LogIndex, MessageId, QueueId};

/// Ends of a group's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Last entry that was purged.
    pub last_purged: Option<EntryId>,
    /// Last entry; the last purged one if there is none behind it.
    pub last: Option<EntryId>,
}

/// A group's checkpoint as a start finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Last entry applied to it; `None` if there is no checkpoint yet.
    pub applied: Option<EntryId>,
    /// What the raft floor wrote beside it (membership).
    pub meta: Bytes,
    /// Records: key and value, as `codec::queue` or `codec::catalog` encodes them.
    pub records: Vec<(Bytes, Bytes)>,
}

/// What is written in one batch (STO 3).
#[derive(Debug)]
pub struct Checkpoint {
    /// Last entry applied.
    pub applied: EntryId,
    /// What the raft floor wants beside it (membership).
    pub meta: Bytes,
    /// Records that changed; `None`: the record is no more.
    pub records: Vec<(Bytes, Option<Bytes>)>,
    /// Runs and heads that go or change; made by [`crate::ReplicaStore`].
    pub(crate) _runs: (),
}

/// Runs of one queue and level, by index, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRange {
    /// Queue.
    pub queue: QueueId,
    /// Level.
    pub level: Level,
    /// First index.
    pub first: LogIndex,
    /// Last index.
    pub last: LogIndex,
}

/// Names a stored message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageRef {
    /// Queue.
    pub queue: QueueId,
    /// Message.
    pub message: MessageId,
}

/// Handle of one group's log, runs and state. Cheap to clone.
#[derive(Clone)]
pub struct GroupStore {}

impl GroupStore {
    /// The group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        todo!()
    }
    /// Ends of the log, with what still waits to be written.
    #[must_use]
    pub fn log_state(&self) -> LogState {
        todo!()
    }
    /// Appends entries, which follow the log's last. They can be read when this returns.
    /// Refused (`done` is called at once): `Full`, `NotContiguous`, `Corrupt`, `Closed`.
    pub fn append(&self, entries: Vec<LogEntry>, done: Done) {
        let _ = (entries, done);
        todo!()
    }
    /// Saves the vote.
    pub fn save_vote(&self, vote: Bytes, done: Done) {
        let _ = (vote, done);
        todo!()
    }
    /// The vote saved last, written or not.
    #[must_use]
    pub fn vote(&self) -> Option<Bytes> {
        todo!()
    }
    /// Notes the committed index; it rides with the next write (STO 1).
    pub fn save_committed(&self, committed: Bytes) {
        let _ = committed;
        todo!()
    }
    /// The committed index noted last.
    #[must_use]
    pub fn committed(&self) -> Option<Bytes> {
        todo!()
    }
    /// Takes away all entries above `after` (`None`: all) with their runs (STO 5).
    pub fn truncate_after(&self, after: Option<LogIndex>, done: Done) {
        let _ = (after, done);
        todo!()
    }
    /// Takes away the log up to `entry`, or up to the last checkpoint if that is lower (STO 3).
    pub fn purge_through(&self, entry: EntryId, done: Done) {
        let _ = (entry, done);
        todo!()
    }
    /// Entries from `first` to before `last_exclusive`, about `bytes_max` octets of them, at least
    /// one if there is one. Bodies removed since are absent (STO 2).
    ///
    /// # Errors
    /// A failed read.
    pub fn read(
        &self,
        first: LogIndex,
        last_exclusive: LogIndex,
        bytes_max: usize,
    ) -> Result<Vec<LogEntry>, StorageError> {
        let _ = (first, last_exclusive, bytes_max);
        todo!()
    }
    /// Octets of the log that a purge could free (an estimate after a start).
    #[must_use]
    pub fn log_bytes(&self) -> usize {
        todo!()
    }
    /// The encoded message (`codec::message`); `None` if it is gone.
    ///
    /// # Errors
    /// A failed read.
    pub fn message(&self, message: MessageRef) -> Result<Option<Bytes>, StorageError> {
        let _ = message;
        todo!()
    }
    /// Many messages, run by run, in the order asked for.
    ///
    /// # Errors
    /// A failed read.
    pub fn messages(&self, messages: &[MessageRef]) -> Result<Vec<Option<Bytes>>, StorageError> {
        let _ = messages;
        todo!()
    }
    /// Writes a checkpoint: one batch (STO 3).
    pub fn checkpoint(&self, checkpoint: Checkpoint, done: Done) {
        let _ = (checkpoint, done);
        todo!()
    }
    /// Reads the checkpoint back.
    ///
    /// # Errors
    /// A failed read.
    pub fn load(&self) -> Result<Loaded, StorageError> {
        todo!()
    }
    /// At a start: takes away runs that the state has settled but a crash left (STO 3).
    ///
    /// # Errors
    /// A failed read.
    pub fn remove_dead(&self, ranges: &[RunRange], done: Done) -> Result<(), StorageError> {
        let _ = (ranges, done);
        todo!()
    }
    /// The group as of its last written checkpoint, to be streamed. `None`: no checkpoint yet.
    ///
    /// # Errors
    /// A failed read.
    pub fn snapshot(&self) -> Result<Option<SnapshotReader>, StorageError> {
        todo!()
    }
    /// Begins to receive a snapshot; drops one that was being received.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn download(
        &self,
        applied: EntryId,
        meta: Bytes,
    ) -> Result<SnapshotDownload, StorageError> {
        let _ = (applied, meta);
        todo!()
    }
    /// Makes a received snapshot the group's own (STO 6). The caller has dropped its dirty
    /// checkpoint, and reads and applies nothing of the group until `done`.
    pub fn install(&self, snapshot: ReceivedSnapshot, done: Done) {
        let _ = (snapshot, done);
        todo!()
    }
}
