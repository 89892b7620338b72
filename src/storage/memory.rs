//! A group's log as far as it is in memory: its ends, its recent entries (including all unwritten
//! ones), its vote. Replication and apply read it.

use crate::{
    Done, EntryId, LogEntry, LogState, Payload, StorageError,
    batch::{Prepared, Work},
    cuts::Cuts,
    run_cache::RunCache,
};
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_types::{GroupId, LogIndex};
use std::{collections::VecDeque, sync::Arc};

/// Approximate bytes of an entry in memory in addition to its contents.
const OVERHEAD_BYTES: usize = 128;

/// Appends are counted together up to this many bytes of `log` records.
const SIZE_STEP: usize = 16 << 10;

/// One group's log in memory.
pub(crate) struct GroupMemory {
    pub(crate) group: GroupId,
    cache: Arc<RunCache>,
    cuts: Cuts,
    tail_bytes_max: usize,
    log: Mutex<Log>,
}

/// Ends and tail of the log. Locked while a write is added to the FIFO, so that reads here and
/// writes there have the same order.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) last_purged: Option<EntryId>,
    pub(crate) last: Option<EntryId>,
    pub(crate) checkpointed: Option<EntryId>,
    pub(crate) vote: Option<Bytes>,
    pub(crate) committed: Option<Bytes>,
    /// Number of the last append.
    ticket: u64,
    /// Appends up to this number are written.
    written: u64,
    tail: VecDeque<TailEntry>,
    tail_bytes: usize,
    /// Index after the log's last entry; the tail ends before it.
    end: LogIndex,
    /// Last index and bytes of `log` records, for several appends together.
    sizes: VecDeque<(LogIndex, usize)>,
    /// Writes that wait for the end of an install; `None` if there is no install.
    pub(crate) held: Option<Vec<(Work, Option<Done>)>>,
}

struct TailEntry {
    entry: Arc<LogEntry>,
    bytes: usize,
    ticket: u64,
}

impl GroupMemory {
    /// The memory of a log with these ends on disk.
    pub(crate) fn new(
        group: GroupId,
        cache: Arc<RunCache>,
        tail_bytes_max: usize,
        log: Log,
    ) -> Self {
        cache.open_group(group, LogIndex(log.end.0.saturating_sub(1)));
        Self { group, cache, cuts: Cuts::default(), tail_bytes_max, log: Mutex::new(log) }
    }

    pub(crate) fn log(&self) -> parking_lot::MutexGuard<'_, Log> {
        self.log.lock()
    }

    pub(crate) fn cache(&self) -> &RunCache {
        &self.cache
    }

    pub(crate) fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// Adds entries that are about to be written; returns the number of the append. The caller has
    /// checked that they follow the last entry.
    pub(crate) fn append(&self, log: &mut Log, entries: &[Prepared]) -> u64 {
        log.ticket += 1;
        let ticket = log.ticket;
        let mut commands = 0;
        for prepared in entries {
            let entry = &prepared.entry;
            let (index, last) = (entry.id.index, log.last.map(|last| last.index));
            assert!(
                last.is_none_or(|last| last.next() == index),
                "STO 1: entries of a log follow each other: {last:?}, {index}"
            );
            self.cache.insert(self.group, ticket, prepared);
            let bytes = OVERHEAD_BYTES + content_bytes(&entry.payload);
            commands += OVERHEAD_BYTES + command_bytes(&entry.payload);
            log.tail_bytes += bytes;
            log.tail.push_back(TailEntry { entry: entry.clone(), bytes, ticket });
            log.last = Some(entry.id);
            log.end = entry.id.index.next();
        }
        log.note_size(commands);
        log.trim(self.tail_bytes_max);
        ticket
    }

    /// Records that the appends up to `ticket` are written.
    pub(crate) fn written(&self, ticket: u64) {
        let mut log = self.log.lock();
        let before = log.written;
        assert!(before < ticket, "STO 1: append {ticket} is written after append {before}");
        log.written = ticket;
        log.trim(self.tail_bytes_max);
        drop(log);
        self.cache.written(self.group, ticket);
    }

    /// Truncates the log at `from` (STO 5): no later entry can be read any more.
    pub(crate) fn truncate(&self, log: &mut Log, from: LogIndex, last: Option<EntryId>) {
        if let Some(checkpointed) = log.checkpointed.map(|it| it.index) {
            assert!(checkpointed < from, "STO 5: what is applied stays: {from}, {checkpointed}");
        }
        while let Some(gone) = log.tail.pop_back_if(|entry| entry.entry.id.index >= from) {
            log.tail_bytes -= gone.bytes;
        }
        while log.sizes.pop_back_if(|(index, _)| *index >= from).is_some() {}
        log.end = from;
        log.last = last;
        self.cache.truncate(self.group, from);
    }

    /// Records that a snapshot at `applied` replaces the log up to there (STO 6). True if later
    /// entries stay.
    pub(crate) fn install(&self, log: &mut Log, applied: EntryId) -> bool {
        if let Some(before) = log.checkpointed.map(|it| it.index) {
            let at = applied.index;
            assert!(before <= at, "STO 6: a snapshot is no older than the state: {before}, {at}");
        }
        self.cache.install(self.group, applied.index);
        log.checkpointed = Some(applied);
        let stays = log.last.is_some_and(|last| last.index > applied.index);
        if !stays {
            log.purge(applied);
            // Also if the log's own entry at this index was a different one.
            log.last = Some(applied);
        }
        stays
    }

    /// Bytes of `log` records that are not purged.
    pub(crate) fn log_bytes(&self) -> usize {
        self.log.lock().sizes.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The highest index up to which the log can be purged so that approximately `keep` of these
    /// bytes stay.
    pub(crate) fn index_keeping(&self, keep: usize) -> Option<LogIndex> {
        let log = self.log.lock();
        let mut kept = 0;
        for (index, bytes) in log.sizes.iter().rev() {
            if kept >= keep {
                return Some(*index);
            }
            kept += bytes;
        }
        None
    }
}

impl Log {
    /// A log with the ends found on disk.
    pub(crate) fn opened(state: LogState, checkpointed: Option<EntryId>) -> Self {
        let end = state.last.map_or(LogIndex(1), |last| last.index.next());
        let LogState { last_purged, last } = state;
        Self { last_purged, last, checkpointed, end, ..Self::default() }
    }

    pub(crate) fn state(&self) -> LogState {
        LogState { last_purged: self.last_purged, last: self.last }
    }

    /// Index after the last entry.
    pub(crate) fn end(&self) -> LogIndex {
        self.end
    }

    /// Checks that entries are consecutive; the first one of an empty log may have any index.
    pub(crate) fn check_follows(&self, entries: &[Prepared]) -> Result<(), StorageError> {
        let mut last = self.last.map(|last| last.index);
        for prepared in entries {
            let found = prepared.entry.id.index;
            if let Some(last) = last
                && found != last.next()
            {
                return Err(StorageError::NotContiguous { found: found.0, last: last.0 });
            }
            last = Some(found);
        }
        Ok(())
    }

    /// First index of the entries that are in memory.
    pub(crate) fn tail_start(&self) -> LogIndex {
        self.tail.front().map_or(self.end, |first| first.entry.id.index)
    }

    /// Entries from `first` on that are in memory.
    pub(crate) fn tail_from(&self, first: LogIndex) -> impl Iterator<Item = &Arc<LogEntry>> {
        let skip = first.0.saturating_sub(self.tail_start().0);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(self.tail.len());
        self.tail.range(skip..).map(|entry| &entry.entry)
    }

    /// Removes the log up to `through` from memory; returns the first index that was removed.
    pub(crate) fn purge(&mut self, through: EntryId) -> LogIndex {
        let (last, covered) = (through.index, self.checkpointed.map(|it| it.index));
        assert!(
            covered >= Some(last),
            "STO 3: a purge ends at the checkpoint: {last}, checkpoint {covered:?}"
        );
        let first = self.last_purged.map_or(LogIndex(0), |purged| purged.index.next());
        while let Some(gone) = self.tail.pop_front_if(|entry| entry.entry.id.index <= through.index)
        {
            self.tail_bytes -= gone.bytes;
        }
        while self.sizes.pop_front_if(|(index, _)| *index <= through.index).is_some() {}
        self.last_purged = Some(through);
        if self.last.is_none_or(|last| last.index < through.index) {
            // The log is empty: the next entry follows the purged one.
            self.last = Some(through);
            self.end = through.index.next();
        }
        first
    }

    fn note_size(&mut self, bytes: usize) {
        let last = LogIndex(self.end.0.saturating_sub(1));
        match self.sizes.back_mut() {
            Some(size) if size.1 < SIZE_STEP => *size = (last, size.1 + bytes),
            Some(_) | None => self.sizes.push_back((last, bytes)),
        }
    }

    /// Removes the oldest entries while there are too many bytes, as far as they are written.
    fn trim(&mut self, bytes_max: usize) {
        while self.tail_bytes > bytes_max
            && let Some(gone) = self.tail.pop_front_if(|entry| entry.ticket <= self.written)
        {
            self.tail_bytes -= gone.bytes;
        }
    }
}

/// Bytes of an entry's content.
pub(crate) fn content_bytes(payload: &Payload) -> usize {
    match payload {
        Payload::Blank => 0,
        Payload::Membership(membership) => membership.len(),
        Payload::Commands(commands) => commands.bytes(),
    }
}

fn command_bytes(payload: &Payload) -> usize {
    match payload {
        Payload::Blank => 0,
        Payload::Membership(membership) => membership.len(),
        Payload::Commands(commands) => commands.command.len(),
    }
}
