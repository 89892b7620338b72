//! The state of a group's one apply task: the run heads that its machine reads, and the changes
//! since the last checkpoint (STO 3, 4).

use crate::{
    Checkpoint, EntryId, GroupStore, RunRange, StorageError,
    batch::{RunChanges, corrupt},
    codec::{self, DecodeError, key::RunKey},
    message_reader,
    removals::Removals,
};
use bytes::Bytes;
use quorate_queue::{Change, MessageStore, Record, RecordKey, RunHead, StoreError};
use quorate_types::{Level, LogIndex, QueueId};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// Estimated bytes of a record before any was encoded.
const RECORD_BYTES: usize = 128;

/// Run heads for the machine of one group, and the changes since its last checkpoint.
pub struct ReplicaStore {
    group: GroupStore,
    records: BTreeSet<RecordKey>,
    removals: Removals,
    /// Ranges that do not wait: those of ended queues.
    ended: Vec<RunRange>,
    /// Entry of the last changes.
    taken: LogIndex,
    /// Numbers of the last checkpoint made, and of the last one written.
    made: u64,
    written: Arc<AtomicU64>,
    /// Average bytes of a record with its key, at the last checkpoint.
    record_bytes: usize,
}

impl ReplicaStore {
    /// The store of a group without changes.
    #[must_use]
    pub fn new(group: GroupStore) -> Self {
        Self {
            group,
            records: BTreeSet::new(),
            removals: Removals::default(),
            ended: Vec::new(),
            taken: LogIndex::default(),
            made: 0,
            written: Arc::default(),
            record_bytes: RECORD_BYTES,
        }
    }

    /// Records the changes of the apply at `applied`; from now on reads show them.
    ///
    /// # Errors
    /// A failed read, or a cut of a run that does not exist: a missing record above the applied
    /// index is fatal.
    pub fn take(&mut self, applied: LogIndex, changes: &[Change]) -> Result<(), StorageError> {
        let before = std::mem::replace(&mut self.taken, applied);
        assert!(before <= applied, "STO 3: changes come in the log's order: {before}, {applied}");
        for change in changes {
            match *change {
                Change::Record(key) => {
                    self.records.insert(key);
                }
                Change::Removed { queue, level, first, last } => {
                    self.remove((queue, level), (first, last.min(applied)));
                }
                Change::Cut { queue, level, index, first, last } => {
                    assert!(
                        index <= applied,
                        "STO 4: what is cut has been applied: {index}, {applied}"
                    );
                    self.cut(RunKey { queue, level, index }, first, last)?;
                }
                Change::QueueRemoved { queue } => self.end_queue(queue, applied)?,
            }
        }
        Ok(())
    }

    fn remove(&mut self, place: (QueueId, Level), (first, last): (LogIndex, LogIndex)) {
        if first > last {
            return;
        }
        let cache = self.group.memory().cache();
        let settled = cache.settle(self.group.group(), place, (first, last));
        self.removals.add(place, (first, last), settled);
    }

    fn cut(&mut self, run: RunKey, first: u32, last: u32) -> Result<(), StorageError> {
        let mut head = self.head(run)?;
        for (position, message) in (0u32..).zip(&mut head.messages) {
            if (first..=last).contains(&position) {
                *message = None;
            }
        }
        let cache = self.group.memory().cache();
        let head = if head.messages.iter().all(Option::is_none) {
            let place = (run.queue, run.level);
            cache.settle(self.group.group(), place, (run.index, run.index));
            None
        } else {
            let head = Arc::new(head);
            cache.replace_head(self.group.group(), run, head.clone());
            Some(head)
        };
        self.group.memory().cuts().insert(run, head);
        Ok(())
    }

    /// The run's head as reads show it; empty if the whole run was cut.
    fn head(&self, run: RunKey) -> Result<RunHead, StorageError> {
        match self.group.memory().cuts().get(run) {
            Some(Some(head)) => return Ok(RunHead::clone(&head)),
            Some(None) => {
                return Ok(RunHead {
                    index: run.index,
                    time: Default::default(),
                    messages: vec![],
                });
            }
            None => {}
        }
        let place = (run.queue, run.level);
        let (engine, memory) = (self.group.engine(), self.group.memory());
        let found = message_reader::heads(engine, memory, place, (run.index, run.index), 1)?;
        found.into_iter().next().map(Arc::unwrap_or_clone).ok_or_else(|| {
            corrupt("heads", run.index)(DecodeError::Invalid("run: it is not there"))
        })
    }

    /// Removes every run of an ended queue up to the applied index at once, since no later state
    /// refers to them.
    fn end_queue(&mut self, queue: QueueId, applied: LogIndex) -> Result<(), StorageError> {
        self.removals.forget(queue);
        let group = self.group.group();
        // The cache first: runs that leave it meanwhile are then on disk.
        let mut levels = self.group.memory().cache().levels(group, queue);
        let mut from = RunKey { queue, level: Level(0), index: LogIndex(0) };
        while let Some(found) = message_reader::first_run_from(self.group.engine(), group, from)?
            && found.queue == queue
        {
            levels.insert(found.level);
            let Some(next) = found.level.0.checked_add(1) else { break };
            from = RunKey { queue, level: Level(next), index: LogIndex(0) };
        }
        for level in levels {
            let (first, last) = (LogIndex(0), applied);
            self.group.memory().cache().settle(group, (queue, level), (first, last));
            self.ended.push(RunRange { queue, level, first, last });
        }
        Ok(())
    }

    /// True if a checkpoint would write only the applied index.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.records.is_empty()
            && self.removals.is_empty()
            && self.ended.is_empty()
            && self.group.memory().cuts().are_taken()
    }

    /// Approximate number of bytes that a checkpoint would write (flush at 4 MiB, DESIGN §3).
    #[must_use]
    pub fn dirty_bytes(&self) -> usize {
        let ranges = self.group.memory().cuts().len() + self.ended.len();
        self.records.len() * self.record_bytes + ranges * 256
    }

    /// The checkpoint of the state after `applied`, whose records `record` returns (that is
    /// `Machine::record`). It contains all changes except removals that have not waited long enough
    /// at `now`. So it must be passed to [`GroupStore::checkpoint`], in the order in which
    /// checkpoints are made.
    #[must_use]
    pub fn checkpoint(
        &mut self,
        applied: EntryId,
        meta: Bytes,
        record: impl Fn(RecordKey) -> Option<Record>,
        now: Instant,
    ) -> Checkpoint {
        let encode = |key| {
            let value = record(key).map(|record| codec::queue::encode_record(&record));
            (codec::queue::encode_key(key), value)
        };
        let records: Vec<_> = std::mem::take(&mut self.records).into_iter().map(encode).collect();
        self.learn_record_bytes(&records);
        let written = self.written.load(Ordering::Acquire);
        self.made += 1;
        let mut runs = RunChanges {
            ranges: std::mem::take(&mut self.ended),
            cuts: self.group.memory().cuts().take(self.made, written),
            ..RunChanges::default()
        };
        self.removals.take_due(now, &mut runs);
        let taken = self.taken;
        assert!(
            taken <= applied.index,
            "STO 3: a checkpoint names the last entry in its state: {taken}, {applied:?}"
        );
        let last = runs.ranges.iter().map(|range| range.last).max();
        let (last, applied_to) = (last.unwrap_or_default(), applied.index);
        assert!(
            last <= applied_to,
            "STO 3: a removal ends at what is applied: {last}, {applied_to}"
        );
        let written = Some((self.written.clone(), self.made));
        Checkpoint { applied, meta, records, runs, written }
    }

    fn learn_record_bytes(&mut self, records: &[(Bytes, Option<Bytes>)]) {
        let bytes =
            records.iter().map(|(key, value)| 3 + key.len() + value.as_ref().map_or(0, Bytes::len));
        if let Some(average) = bytes.sum::<usize>().checked_div(records.len()) {
            self.record_bytes = average;
        }
    }

    /// Discards the changes: a snapshot is being installed (STO 6).
    pub fn clear(&mut self) {
        self.records.clear();
        self.group.memory().cuts().clear();
        self.removals.clear();
        self.ended.clear();
        self.taken = LogIndex::default();
    }
}

impl MessageStore for ReplicaStore {
    fn runs(
        &self,
        queue: QueueId,
        level: Level,
        from: LogIndex,
        through: LogIndex,
        limit: usize,
    ) -> Result<Vec<RunHead>, StoreError> {
        let mut shown = Vec::new();
        let mut from = from;
        // Runs that were cut completely are skipped; fewer than `limit` must mean that there are no
        // more.
        while shown.len() < limit && from <= through {
            let wanted = limit - shown.len();
            let (engine, memory) = (self.group.engine(), self.group.memory());
            let (place, range) = ((queue, level), (from, through));
            let forgotten = memory.cuts().forgotten();
            let heads = message_reader::heads(engine, memory, place, range, wanted)
                .map_err(|error| StoreError(error.to_string()))?;
            let Some(last) = heads.last().map(|last| last.index) else { break };
            let full = heads.len() == wanted;
            let Some(heads) = memory.cuts().show(place, heads, forgotten) else { continue };
            from = last.next();
            shown.extend(heads);
            if !full {
                break;
            }
        }
        Ok(shown)
    }
}
