//! Reads a group's log: recent entries from memory, others from disk, where the bodies are joined
//! with their entries again (STO 2).

use crate::{
    CommandEntry, EntryId, LogEntry, LogState, Payload, RunBodies, StorageError,
    batch::corrupt,
    codec::{
        self,
        key::{self, RaftRecord, RunKey},
    },
    engine::{Engine, Family},
    memory::{GroupMemory, content_bytes},
    message_reader,
};
use quorate_types::{GroupId, LogIndex};
use std::sync::Arc;

/// Entries from `first` to before `end`, approximately `bytes_max` bytes, at least one if there is
/// one.
pub(crate) fn read(
    engine: &Engine,
    memory: &GroupMemory,
    (first, end): (LogIndex, LogIndex),
    bytes_max: usize,
) -> Result<Vec<Arc<LogEntry>>, StorageError> {
    let mut reading = Reading { entries: Vec::new(), next: first, end, bytes_left: bytes_max };
    loop {
        let (tail_start, last) = {
            let log = memory.log();
            if reading.next >= log.tail_start() {
                reading.take_tail(log.tail_from(reading.next));
                return Ok(reading.entries);
            }
            (log.tail_start(), log.end())
        };
        reading.end = end.min(tail_start);
        reading.take_stored(engine, memory, last)?;
        // Meanwhile entries may have been written and left the tail: these are on disk now.
        if reading.next < tail_start || tail_start >= end {
            return Ok(reading.entries);
        }
        reading.end = end;
    }
}

struct Reading {
    entries: Vec<Arc<LogEntry>>,
    next: LogIndex,
    end: LogIndex,
    bytes_left: usize,
}

impl Reading {
    fn wants_more(&self) -> bool {
        self.next < self.end && (self.bytes_left > 0 || self.entries.is_empty())
    }

    /// Adds the entry if it is the next one.
    fn take(&mut self, entry: Arc<LogEntry>) -> bool {
        if entry.id.index != self.next || !self.wants_more() {
            return false;
        }
        self.bytes_left = self.bytes_left.saturating_sub(content_bytes(&entry.payload));
        self.next = self.next.next();
        self.entries.push(entry);
        true
    }

    fn take_tail<'a>(&mut self, mut tail: impl Iterator<Item = &'a Arc<LogEntry>>) {
        while let Some(entry) = tail.next()
            && self.take(entry.clone())
        {}
    }

    fn take_stored(
        &mut self,
        engine: &Engine,
        memory: &GroupMemory,
        end: LogIndex,
    ) -> Result<(), StorageError> {
        let group = memory.group;
        let mut stored = engine.scan(Family::Log, &key::log_key(group, self.end.min(end)))?;
        stored.seek(key::log_key(group, self.next));
        while self.wants_more()
            && let Some((key, record)) = stored.item()
            && key::log_index(group, key) == Some(self.next)
        {
            let mut entry =
                codec::log::record(self.next, record).map_err(corrupt("log record", self.next))?;
            if let Payload::Commands(commands) = &mut entry.payload {
                join(engine, memory, self.next, commands)?;
            }
            self.take(Arc::new(entry));
            stored.next();
        }
        stored.check()
    }
}

/// Joins the bodies with an entry; removed ones stay absent (STO 2).
fn join(
    engine: &Engine,
    memory: &GroupMemory,
    index: LogIndex,
    commands: &mut CommandEntry,
) -> Result<(), StorageError> {
    if memory.group == GroupId::CATALOG {
        return Ok(());
    }
    let (_, runs) =
        codec::queue::decode_heads(&commands.command).map_err(corrupt("log record", index))?;
    for run in runs {
        let key = RunKey { queue: run.queue, level: run.level, index };
        let stored = message_reader::bodies(engine, memory, key)?;
        let mut bodies = stored.unwrap_or_default();
        bodies.messages.resize(run.messages.len(), None);
        commands.bodies.push(RunBodies { messages: bodies.messages });
    }
    Ok(())
}

/// First and last entry of a group's log on disk, and the last checkpoint's entry.
pub(crate) fn ends(
    engine: &Engine,
    group: GroupId,
) -> Result<(LogState, Option<EntryId>), StorageError> {
    let last_purged = match engine.get(Family::Raft, &key::raft_key(group, RaftRecord::Purged))? {
        None => None,
        Some(bytes) => {
            Some(codec::log::decode_id(&bytes).map_err(corrupt("purge record", LogIndex(0)))?)
        }
    };
    let mut last = last_purged;
    let mut log = engine.scan(Family::Log, &key::group_end(group))?;
    log.seek_for_prev(key::log_key(group, LogIndex(u64::MAX)));
    if let Some((key, record)) = log.item()
        && let Some(index) = key::log_index(group, key)
    {
        last = Some(entry_id(index, record)?);
    }
    log.check()?;
    let checkpointed = crate::checkpoint::header(engine, group)?.map(|(applied, _)| applied);
    Ok((LogState { last_purged, last }, checkpointed))
}

/// Identity of the entry at `index`, if it is in the log.
pub(crate) fn id_at(
    engine: &Engine,
    group: GroupId,
    index: LogIndex,
) -> Result<Option<EntryId>, StorageError> {
    match engine.get(Family::Log, &key::log_key(group, index))? {
        Some(record) => Ok(Some(entry_id(index, &record)?)),
        None => Ok(None),
    }
}

fn entry_id(index: LogIndex, record: &[u8]) -> Result<EntryId, StorageError> {
    codec::log::record_id(index, record).map_err(corrupt("log record", index))
}
