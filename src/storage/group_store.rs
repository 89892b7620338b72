//! One group's part of the database: its log, its runs, its state.

use crate::{
    Checkpoint, Done, EntryId, LogEntry, LogWriter, Payload, ReceivedSnapshot, SnapshotDownload,
    SnapshotReader, StorageError,
    batch::{Append, CheckpointWork, Prepared, PreparedRun, Work, corrupt},
    checkpoint,
    codec::{
        self, DecodeError,
        key::{self, RaftRecord, RunKey},
    },
    engine::{Engine, Family},
    install::Install,
    installer::{Installer, Job},
    log_reader,
    memory::{GroupMemory, Log, content_bytes},
    message_reader::{self, Committed, MessageRef, StoredMessage},
};
use bytes::Bytes;
use quorate_queue::RunHead;
use quorate_types::{GroupId, Level, LogIndex, QueueId};
use std::sync::{Arc, atomic::Ordering};

/// First and last entry of a group's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Last entry that was purged.
    pub last_purged: Option<EntryId>,
    /// Last entry; the last purged one if the log is empty.
    pub last: Option<EntryId>,
}

/// A group's checkpoint, as a start reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Last entry that it contains; `None` if there is no checkpoint yet.
    pub applied: Option<EntryId>,
    /// The data that the raft crate stored with it (membership).
    pub meta: Bytes,
    /// Records: key and value, as [`codec::queue`] or [`codec::catalog`] encodes them.
    pub records: Vec<(Bytes, Bytes)>,
}

/// Runs of one queue and level, by index, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRange {
    /// Queue that the bodies belong to.
    pub queue: QueueId,
    /// Priority level of the bodies.
    pub level: Level,
    /// First log index of the range.
    pub first: LogIndex,
    /// Last log index of the range, included.
    pub last: LogIndex,
}

/// Handle of one group's log, runs and state. Cheap to clone.
#[derive(Clone)]
pub struct GroupStore {
    engine: Arc<Engine>,
    writer: LogWriter,
    installer: Arc<Installer>,
    memory: Arc<GroupMemory>,
}

impl GroupStore {
    /// Bytes of all groups that wait for this node's log writer.
    #[must_use]
    pub fn unwritten_bytes(&self) -> usize {
        self.writer.waiting_bytes()
    }

    pub(crate) fn new(
        engine: Arc<Engine>,
        writer: LogWriter,
        installer: Arc<Installer>,
        memory: Arc<GroupMemory>,
    ) -> Self {
        Self { engine, writer, installer, memory }
    }

    /// On a simulated disk: carries out all waiting work.
    #[cfg(test)]
    pub(crate) fn drive(&self) {
        while self.writer.step() || self.installer.step() {}
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn memory(&self) -> &GroupMemory {
        &self.memory
    }

    /// A log that ends below the checkpoint (after an install) counts as purged up to it (STO 6).
    pub(crate) fn purge_what_ends_below_the_checkpoint(&self) {
        let mut log = self.memory.log();
        let Some(checkpointed) = log.checkpointed else { return };
        if log.last.is_some_and(|last| last.index >= checkpointed.index) {
            return;
        }
        self.memory.install(&mut log, checkpointed);
        let (group, first) = (self.group(), LogIndex(0));
        let work = Work::Purge { group, first, through: checkpointed };
        self.push_ordered(log, work, None);
    }

    /// Id of the group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.memory.group
    }

    /// True on a simulated disk: no write is awaited, and there are no threads.
    #[must_use]
    pub fn is_stepped(&self) -> bool {
        self.engine.is_stepped()
    }

    /// First and last entry of the log, unwritten ones included.
    #[must_use]
    pub fn log_state(&self) -> LogState {
        self.memory.log().state()
    }

    /// Appends entries, which follow the log's last one. They can be read when this returns.
    ///
    /// Refused, with `done` called at once: `NotContiguous`, `Corrupt` (commands that do
    /// not fit their bodies), `Closed`.
    pub fn append<E: Into<Arc<LogEntry>>>(&self, entries: Vec<E>, done: Done) {
        if let Err((done, error)) = self.try_append(entries, done) {
            done(Err(error));
        }
    }

    fn try_append<E: Into<Arc<LogEntry>>>(
        &self,
        entries: Vec<E>,
        done: Done,
    ) -> Result<(), (Done, StorageError)> {
        let mut prepared = Vec::with_capacity(entries.len());
        let mut bytes = 0;
        for entry in entries {
            match prepare(self.group(), entry.into()) {
                Ok(entry) => {
                    bytes += 64 + content_bytes(&entry.entry.payload);
                    prepared.push(entry);
                }
                Err(error) => return Err((done, error)),
            }
        }
        let mut log = self.memory.log();
        if let Err(error) = log.check_follows(&prepared) {
            return Err((done, error));
        }
        let ticket = self.memory.append(&mut log, &prepared);
        let (memory, entries) = (self.memory.clone(), prepared);
        // Still locked: the FIFO has appends in the order of the log.
        self.push_ordered(log, Work::Append(Append { memory, entries, ticket, bytes }), Some(done));
        Ok(())
    }

    /// Adds a write to the FIFO under the log's lock, or to the writes held by an install in
    /// progress; if the FIFO is closed, `done` is called without the lock.
    fn push_ordered(
        &self,
        mut log: parking_lot::MutexGuard<'_, Log>,
        work: Work,
        done: Option<Done>,
    ) {
        if let Some(held) = &mut log.held {
            held.push((work, done));
            return;
        }
        let refused = self.writer.push(work, done);
        drop(log);
        if let Some((done, error)) = refused {
            done(Err(error));
        }
    }

    /// Adds the write that removes the group's replica. An install in progress ends before it.
    pub(crate) fn push_last(&self, work: Work, done: Done) {
        self.push_ordered(self.memory.log(), work, Some(done));
    }

    /// Saves the vote.
    pub fn save_vote(&self, vote: Bytes, done: Done) {
        let mut log = self.memory.log();
        log.vote = Some(vote.clone());
        self.push_ordered(log, self.raft_record(RaftRecord::Vote, vote), Some(done));
    }

    /// The last saved vote, written or not.
    #[must_use]
    pub fn vote(&self) -> Option<Bytes> {
        self.memory.log().vote.clone()
    }

    /// Saves the committed index; it is written with the next write (STO 1).
    pub fn save_committed(&self, committed: Bytes) {
        let mut log = self.memory.log();
        log.committed = Some(committed.clone());
        let work = self.raft_record(RaftRecord::Committed, committed);
        match &mut log.held {
            Some(held) => held.push((work, None)),
            None => self.writer.ride_along(work),
        }
    }

    /// The last saved committed index.
    #[must_use]
    pub fn committed(&self) -> Option<Bytes> {
        self.memory.log().committed.clone()
    }

    fn raft_record(&self, record: RaftRecord, value: Bytes) -> Work {
        let key = Bytes::copy_from_slice(&key::raft_key(self.group(), record));
        Work::Put { family: Family::Raft, key, value }
    }

    /// Removes all entries above `after` (`None`: all) with their runs, from the disk and from all
    /// caches (STO 5).
    pub fn truncate_after(&self, after: Option<LogIndex>, done: Done) {
        let mut log = self.memory.log();
        let from = after.map_or(LogIndex(0), LogIndex::next);
        if from >= log.end() {
            return self.push_ordered(log, Work::Barrier, Some(done));
        }
        let last = match self.id_of_last_kept(&log, after) {
            Ok(last) => last,
            Err(error) => {
                drop(log);
                return done(Err(error));
            }
        };
        self.memory.truncate(&mut log, from, last);
        let work = Work::Truncate { group: self.group(), from };
        self.push_ordered(log, work, Some(done));
    }

    fn id_of_last_kept(
        &self,
        log: &Log,
        after: Option<LogIndex>,
    ) -> Result<Option<EntryId>, StorageError> {
        let Some(after) = after else { return Ok(log.last_purged) };
        if after >= log.tail_start() {
            return Ok(log.tail_from(after).next().map(|entry| entry.id));
        }
        let stored = log_reader::id_at(&self.engine, self.group(), after)?;
        Ok(stored.or(log.last_purged))
    }

    /// Removes the log up to `entry`, or up to the last checkpoint passed on if that is lower: the
    /// log replays everything that no checkpoint contains (STO 3).
    pub fn purge_through(&self, entry: EntryId, done: Done) {
        let mut log = self.memory.log();
        let through = match log.checkpointed {
            Some(checkpointed) if checkpointed.index < entry.index => Some(checkpointed),
            Some(_) => Some(entry),
            None => None,
        };
        let through = through
            .filter(|through| log.last_purged.is_none_or(|purged| purged.index < through.index));
        let work = match through {
            None => Work::Barrier,
            Some(through) => {
                Work::Purge { group: self.group(), first: log.purge(through), through }
            }
        };
        self.push_ordered(log, work, Some(done));
    }

    /// Entries from `first` to before `last_exclusive`, about `bytes_max` bytes of them, at least
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
        let entries = self.read_shared(first, last_exclusive, bytes_max)?;
        Ok(entries.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    /// Like [`GroupStore::read`], without copying entries that are in memory.
    ///
    /// # Errors
    /// A failed read.
    pub fn read_shared(
        &self,
        first: LogIndex,
        last_exclusive: LogIndex,
        bytes_max: usize,
    ) -> Result<Vec<Arc<LogEntry>>, StorageError> {
        log_reader::read(&self.engine, &self.memory, (first, last_exclusive), bytes_max)
    }

    /// Bytes of `log` records appended since the start and not purged: what a purge would free.
    /// Keep it below the memtable's size, and purged records are never written to a table.
    #[must_use]
    pub fn log_bytes(&self) -> usize {
        self.memory.log_bytes()
    }

    /// The highest index up to which the log can be purged so that about `keep` of
    /// [`GroupStore::log_bytes`] stay. What was there before the start is not counted.
    #[must_use]
    pub fn log_index_keeping(&self, keep: usize) -> Option<LogIndex> {
        self.memory.index_keeping(keep)
    }

    /// Encoded messages ([`codec::message`]) in the order asked for: as many as have `bytes_max` bytes
    /// together, at least one if any is wanted. Each run is read once.
    ///
    /// # Errors
    /// The first one cannot be read. What is behind it is not tried; what can be read before one that
    /// cannot is given.
    pub fn messages(
        &self,
        wanted: &[MessageRef],
        committed: Committed,
        bytes_max: usize,
    ) -> Result<Vec<StoredMessage>, StorageError> {
        message_reader::messages(&self.engine, &self.memory, wanted, committed, bytes_max)
    }

    /// Writes a checkpoint: one batch (STO 3).
    pub fn checkpoint(&self, checkpoint: Checkpoint, done: Done) {
        let Checkpoint { applied, meta, records, runs, written } = checkpoint;
        let header = checkpoint::encode_header(applied, &meta);
        let work = CheckpointWork { group: self.group(), header, records, runs };
        let done: Done = Box::new(move |result| {
            if let (Ok(()), Some((counter, number))) = (&result, written) {
                counter.fetch_max(number, Ordering::Release);
            }
            done(result);
        });
        let mut log = self.memory.log();
        if let Some(before) = log.checkpointed.map(|it| it.index) {
            assert!(before <= applied.index, "STO 3: checkpoints ascend: {before}, {applied:?}");
        }
        log.checkpointed = Some(applied);
        self.push_ordered(log, Work::Checkpoint(Box::new(work)), Some(done));
    }

    /// Reads the last written checkpoint back, at a start or after an install.
    ///
    /// # Errors
    /// A failed read.
    pub fn load(&self) -> Result<Loaded, StorageError> {
        checkpoint::load(&self.engine, self.group())
    }

    /// At a start: removes runs that the state has settled but a crash has left (STO 3). An empty
    /// range costs one check.
    ///
    /// # Errors
    /// A failed read; `done` is then not called.
    pub fn remove_dead(&self, ranges: &[RunRange], done: Done) -> Result<(), StorageError> {
        let mut left = Vec::new();
        for range in ranges {
            let RunRange { queue, level, first, last } = *range;
            let from = RunKey { queue, level, index: first };
            let found = message_reader::first_run_from(&self.engine, self.group(), from)?;
            if found
                .is_some_and(|run| run.queue == queue && run.level == level && run.index <= last)
            {
                left.push(*range);
            }
        }
        let work = Work::RemoveRuns { group: self.group(), ranges: left };
        self.push_ordered(self.memory.log(), work, Some(done));
        Ok(())
    }

    /// The group as of its last written checkpoint, to be streamed. `None`: no checkpoint yet.
    ///
    /// # Errors
    /// A failed read.
    pub fn snapshot(&self) -> Result<Option<SnapshotReader>, StorageError> {
        SnapshotReader::open(self.engine.clone(), self.group())
    }

    /// Begins to receive a snapshot of the group, as of `applied`, of about this many bytes, with
    /// the data of the sender's raft crate. Several may be received at once.
    ///
    /// # Errors
    /// `NoRoom`; or the file cannot be made.
    pub fn download(
        &self,
        applied: EntryId,
        bytes: u64,
        meta: Bytes,
    ) -> Result<SnapshotDownload, StorageError> {
        SnapshotDownload::begin(self.engine.clone(), self.group(), applied, bytes, meta)
    }

    /// Replaces the group's state by a received snapshot (STO 6). The caller has discarded its
    /// changes ([`crate::ReplicaStore::clear`]), and reads runs and applies only after `done`.
    /// Entries above the snapshot stay, and so do their runs.
    pub fn install(&self, snapshot: ReceivedSnapshot, done: Done) {
        let mut log = self.memory.log();
        if log.held.is_some() {
            drop(log);
            let (action, reason) =
                ("cannot install a snapshot", "another snapshot is being installed");
            return done(Err(StorageError::Disk { action, reason: reason.into() }));
        }
        let keeps_tail = self.memory.install(&mut log, snapshot.applied());
        let mut install = Install::new(snapshot, keeps_tail);
        // A mark whose write has failed may be on disk all the same, and the next start needs the files.
        install.keep_files();
        let (mark, store) = (install.mark(), self.clone());
        let marked: Done = Box::new(move |result| match result {
            Ok(()) => store.installer.clone().take(Job { store, install, done }),
            Err(error) => {
                done(Err(error.clone()));
                store.release(Some(&error));
            }
        });
        // Earlier writes are written before the mark, later ones after the end.
        let refused = self.writer.push(mark, Some(marked));
        log.held = Some(Vec::new());
        drop(log);
        if let Some((marked, error)) = refused {
            marked(Err(error));
        }
    }

    /// Ends the group's install, with or without an error: so do then the writes that it held.
    pub(crate) fn release(&self, failed: Option<&StorageError>) {
        let mut log = self.memory.log();
        let group = self.group();
        assert!(log.held.is_some(), "STO 6: an install of {group} ends that has not begun");
        let held = log.held.take().unwrap_or_default();
        let mut refused = Vec::new();
        for (work, done) in held {
            match failed {
                Some(error) => refused.extend(done.map(|done| (done, error.clone()))),
                None => refused.extend(self.writer.push(work, done)),
            }
        }
        drop(log);
        for (done, error) in refused {
            done(Err(error));
        }
    }
}

/// Takes the heads out of an entry, and checks that they fit its bodies.
fn prepare(group: GroupId, entry: Arc<LogEntry>) -> Result<Prepared, StorageError> {
    let wrong = corrupt("entry to append", entry.id.index);
    let Payload::Commands(commands) = &entry.payload else {
        return Ok(Prepared { entry, runs: Arc::default() });
    };
    if group == GroupId::CATALOG {
        let fits = commands.bodies.is_empty();
        return if fits {
            Ok(Prepared { entry, runs: Arc::default() })
        } else {
            Err(wrong(DecodeError::Invalid("bodies in the catalog")))
        };
    }
    let (stamp, runs) = codec::queue::decode_heads(&commands.command).map_err(&wrong)?;
    let fit = runs.len() == commands.bodies.len()
        && runs
            .iter()
            .zip(&commands.bodies)
            .all(|(run, bodies)| run.messages.len() == bodies.messages.len());
    if !fit {
        return Err(wrong(DecodeError::Invalid("bodies")));
    }
    let mut places: Vec<_> = runs.iter().map(|run| (run.queue, run.level)).collect();
    places.sort_unstable();
    if places.windows(2).any(|pair| pair.first() == pair.last()) {
        // The two runs would have one key.
        return Err(wrong(DecodeError::Invalid("runs: two for one queue and level")));
    }
    let index = entry.id.index;
    let runs = runs
        .into_iter()
        .map(|run| PreparedRun {
            key: RunKey { queue: run.queue, level: run.level, index },
            head: Arc::new(RunHead {
                index,
                time: stamp.time,
                messages: run.messages.into_iter().map(Some).collect(),
            }),
        })
        .collect();
    Ok(Prepared { entry, runs })
}
