//! The kinds of writes, and how each becomes part of a batch.

use crate::{
    Done, EntryId, LogEntry, Payload, RunRange, StorageError,
    codec::{
        self,
        key::{self, RaftRecord, RunKey},
    },
    engine::{Engine, Family, OpenBatch, WriteBatch},
    memory::GroupMemory,
    reclaim::one_run,
};
use bytes::{Bytes, BytesMut};
use quorate_queue::RunHead;
use quorate_types::{GroupId, LogIndex};
use std::sync::Arc;

/// Approximate bytes of a key with its length.
const KEY_BYTES: usize = 40;

/// A write in the FIFO.
pub(crate) struct Write {
    pub(crate) work: Work,
    pub(crate) bytes: usize,
    pub(crate) done: Option<Done>,
}

/// The kinds of writes.
pub(crate) enum Work {
    /// One record: vote, committed index, identity.
    Put {
        family: Family,
        key: Bytes,
        value: Bytes,
    },
    Append(Append),
    /// Removes the tail from this index on (STO 5).
    Truncate {
        group: GroupId,
        from: LogIndex,
    },
    /// Removes the log from `first` up to this entry (STO 3).
    Purge {
        group: GroupId,
        first: LogIndex,
        through: EntryId,
    },
    Checkpoint(Box<CheckpointWork>),
    /// Removes runs that a crash has left (STO 3).
    RemoveRuns {
        group: GroupId,
        ranges: Vec<RunRange>,
    },
    /// A batch made elsewhere: by an install.
    Batch(Box<WriteBatch>),
    /// Writes nothing; its end reports that all earlier writes are done.
    Barrier,
    /// A part beside the writer has failed, which counts like a failed write.
    Failed(StorageError),
}

/// Entries of one group.
pub(crate) struct Append {
    pub(crate) memory: Arc<GroupMemory>,
    pub(crate) entries: Vec<Prepared>,
    /// Number of this append in its group.
    pub(crate) ticket: u64,
    pub(crate) bytes: usize,
}

/// An entry with its runs' heads taken out.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) entry: Arc<LogEntry>,
    /// The runs, in the order of the entry's bodies.
    pub(crate) runs: Arc<[PreparedRun]>,
}

/// A run of an entry.
pub(crate) struct PreparedRun {
    pub(crate) key: RunKey,
    pub(crate) head: Arc<RunHead>,
}

/// A checkpoint, ready to be written (STO 3).
pub(crate) struct CheckpointWork {
    pub(crate) group: GroupId,
    pub(crate) header: Bytes,
    pub(crate) records: Vec<(Bytes, Option<Bytes>)>,
    pub(crate) runs: RunChanges,
}

/// The changes of runs in a checkpoint. Cuts come first, since a cut run may be removed too.
#[derive(Debug, Default)]
pub(crate) struct RunChanges {
    /// Runs with messages cut; `None`: all of them are cut (STO 4).
    pub(crate) cuts: Vec<(RunKey, Option<Arc<RunHead>>)>,
    /// Single runs to be removed.
    pub(crate) runs: Vec<RunKey>,
    /// Ranges of runs to be removed.
    pub(crate) ranges: Vec<RunRange>,
}

impl Work {
    /// Approximate bytes that it holds in memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Append(append) => append.bytes,
            Self::Checkpoint(checkpoint) => checkpoint.bytes(),
            Self::RemoveRuns { ranges, .. } => ranges.len() * 2 * KEY_BYTES,
            Self::Batch(batch) => batch.bytes(),
            Self::Truncate { .. } | Self::Purge { .. } | Self::Barrier | Self::Failed(_) => {
                KEY_BYTES
            }
        }
    }

    /// True if all earlier writes must be written before: it reads them, or is a batch of its own.
    pub(crate) fn begins_a_batch(&self) -> bool {
        match self {
            Self::Truncate { .. } | Self::Batch(_) | Self::Failed(_) => true,
            Self::Put { .. }
            | Self::Append(_)
            | Self::Purge { .. }
            | Self::Checkpoint(_)
            | Self::RemoveRuns { .. }
            | Self::Barrier => false,
        }
    }

    /// True if `next`, directly after this write, makes it superfluous.
    pub(crate) fn is_replaced_by(&self, next: &Work) -> bool {
        match (self, next) {
            (Self::Put { family, key, .. }, Self::Put { family: next_family, key: next, .. }) => {
                family == next_family && key == next
            }
            _ => false,
        }
    }
}

impl CheckpointWork {
    fn bytes(&self) -> usize {
        let records = self
            .records
            .iter()
            .map(|(key, value)| KEY_BYTES + key.len() + value.as_ref().map_or(0, Bytes::len));
        let cuts =
            self.runs.cuts.iter().map(|(_, head)| {
                KEY_BYTES + head.as_ref().map_or(0, |head| 8 * head.messages.len())
            });
        let removals = self.runs.runs.len() + 2 * self.runs.ranges.len();
        self.header.len() + records.sum::<usize>() + cuts.sum::<usize>() + removals * 2 * KEY_BYTES
    }
}

/// A batch under construction.
pub(crate) struct BatchBuilder<'a> {
    engine: &'a Engine,
    batch: OpenBatch<'a>,
    scratch: BytesMut,
    pub(crate) entries: usize,
    /// Runs that the batch removes.
    pub(crate) removed: Vec<(GroupId, RunRange)>,
}

impl<'a> BatchBuilder<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        capacity: usize,
        scratch: BytesMut,
    ) -> Result<Self, StorageError> {
        Ok(Self {
            engine,
            batch: engine.batch(capacity)?,
            scratch,
            entries: 0,
            removed: Vec::new(),
        })
    }

    /// The batch, and the buffer for reuse.
    pub(crate) fn finish(self) -> (WriteBatch, BytesMut) {
        (self.batch.finish(), self.scratch)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    /// Adds a write, unless its kind is not part of a batch.
    pub(crate) fn add(&mut self, work: &Work) -> Result<(), StorageError> {
        assert!(
            !matches!(work, Work::Batch(_) | Work::Failed(_)),
            "STO 1: a write that would not be in the batch would be told written"
        );
        match work {
            Work::Put { family, key, value } => {
                self.batch.put(*family, key, value);
            }
            Work::Append(append) => {
                for prepared in &append.entries {
                    self.append(append.memory.group, prepared);
                }
            }
            Work::Truncate { group, from } => {
                let entries = self.entries;
                assert!(
                    entries == 0,
                    "STO 5: a truncation reads what was appended before: {group} from {from}, \
                     {entries} entries are in its batch"
                );
                self.truncate(*group, *from)?;
            }
            Work::Purge { group, first, through } => self.purge(*group, *first, *through),
            Work::Checkpoint(checkpoint) => self.checkpoint(checkpoint),
            Work::RemoveRuns { group, ranges } => {
                for range in ranges {
                    self.remove_range(*group, range);
                }
            }
            Work::Batch(_) | Work::Barrier | Work::Failed(_) => {}
        }
        Ok(())
    }

    /// Splits an entry: command, heads and bodies in one batch (DESIGN §3).
    fn append(&mut self, group: GroupId, prepared: &Prepared) {
        let entry = &prepared.entry;
        self.entries += 1;
        self.scratch.clear();
        codec::log::put_record(entry, &mut self.scratch);
        self.batch.put(Family::Log, key::log_key(group, entry.id.index), &self.scratch);
        let Payload::Commands(commands) = &entry.payload else { return };
        let (index, heads, bodies) = (entry.id.index, prepared.runs.len(), commands.bodies.len());
        assert!(heads == bodies, "STO 2: entry {index} has {heads} heads and {bodies} bodies");
        for (run, bodies) in prepared.runs.iter().zip(&commands.bodies) {
            let key = key::run_key(group, run.key);
            self.scratch.clear();
            codec::run::put_heads(&run.head, &mut self.scratch);
            self.batch.put(Family::Heads, &key, &self.scratch);
            self.scratch.clear();
            codec::run::put_bodies(bodies, &mut self.scratch);
            self.batch.put(Family::Bodies, &key, &self.scratch);
        }
    }

    /// Removes log records and their runs together (STO 5). The records themselves name the runs.
    fn truncate(&mut self, group: GroupId, from: LogIndex) -> Result<(), StorageError> {
        let mut tail = self.engine.scan(Family::Log, &key::group_end(group))?;
        tail.seek(key::log_key(group, from));
        while let Some((key, record)) = tail.item() {
            let index = key::log_index(group, key).unwrap_or(from);
            let entry = codec::log::record(index, record).map_err(corrupt("log record", index))?;
            self.batch.delete(Family::Log, key);
            if let Payload::Commands(commands) = &entry.payload
                && group != GroupId::CATALOG
            {
                let (_, runs) = codec::queue::decode_heads(&commands.command)
                    .map_err(corrupt("log record", index))?;
                for run in runs {
                    self.remove_run(group, RunKey { queue: run.queue, level: run.level, index });
                }
            }
            tail.next();
        }
        tail.check()
    }

    fn purge(&mut self, group: GroupId, first: LogIndex, through: EntryId) {
        let purged = codec::log::encode_id(through);
        self.batch.put(Family::Raft, key::raft_key(group, RaftRecord::Purged), purged);
        if first <= through.index {
            self.batch.delete_range(
                Family::Log,
                key::log_key(group, first),
                key::log_key(group, through.index.next()),
            );
        }
    }

    fn checkpoint(&mut self, checkpoint: &CheckpointWork) {
        let group = checkpoint.group;
        let state = state_family(group);
        for (record, value) in &checkpoint.records {
            let key = key::state_key(group, record);
            match value {
                Some(value) => self.batch.put(state, key, value),
                None => self.batch.delete(state, key),
            }
        }
        for (run, head) in &checkpoint.runs.cuts {
            match head {
                Some(head) => {
                    self.scratch.clear();
                    codec::run::put_heads(head, &mut self.scratch);
                    self.batch.put(Family::Heads, key::run_key(group, *run), &self.scratch);
                }
                None => self.remove_run(group, *run),
            }
        }
        for run in &checkpoint.runs.runs {
            self.remove_run(group, *run);
        }
        for range in &checkpoint.runs.ranges {
            self.remove_range(group, range);
        }
        self.batch.put(state, key::checkpoint_key(group), &checkpoint.header);
    }

    fn remove_run(&mut self, group: GroupId, run: RunKey) {
        let key = key::run_key(group, run);
        self.batch.delete(Family::Heads, &key);
        self.batch.delete(Family::Bodies, &key);
        self.removed.push(one_run(group, run));
    }

    fn remove_range(&mut self, group: GroupId, range: &RunRange) {
        let (first, end) = range_keys(group, range);
        self.batch.delete_range(Family::Heads, &first, &end);
        self.batch.delete_range(Family::Bodies, &first, &end);
        self.removed.push((group, *range));
    }
}

/// First key of a range of runs, and the first key after it.
pub(crate) fn range_keys(group: GroupId, range: &RunRange) -> (BytesMut, BytesMut) {
    let RunRange { queue, level, first, last } = *range;
    let first = key::run_key(group, RunKey { queue, level, index: first });
    let mut end = key::run_key(group, RunKey { queue, level, index: last });
    // The shortest key after the last one.
    end.extend_from_slice(&[0]);
    (first, end)
}

/// The column family of a group's state.
pub(crate) fn state_family(group: GroupId) -> Family {
    if group == GroupId::CATALOG { Family::Catalog } else { Family::State }
}

/// The error for bytes that cannot be decoded.
pub(crate) fn corrupt(
    what: &'static str,
    index: LogIndex,
) -> impl Fn(codec::DecodeError) -> StorageError {
    move |source| StorageError::Corrupt { what: format!("{what} at {index}").into(), source }
}
