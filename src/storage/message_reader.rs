//! Reading runs: from the cache first, else from disk, only where the disk may have them.
//!
//! A message is named by its index, and a log may have another entry there that was never
//! committed. So this replica's copy counts only if its entry is known to be committed
//! (`Committed`). This is known of applied entries. Before that it is known of entries of the term
//! whose leader named the message, which matters because a follower applies up to 10 ms later than
//! it delivers.
//!
//! Callers give a maximum of bytes, not a number of messages, and get a prefix of the messages that
//! they ask for, at least one.

use crate::{
    RunBodies, StorageError,
    batch::corrupt,
    codec::{
        self,
        key::{self, RunKey},
    },
    engine::{Engine, Family, Value},
    memory::GroupMemory,
    run_cache::Found,
};
use bytes::Bytes;
use quorate_queue::RunHead;
use quorate_types::{GroupId, Level, LogIndex, MessageId, PlantedBug, QueueId, Term};
use std::{collections::BTreeMap, sync::Arc};

/// Identifies a stored message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageRef {
    /// Queue that the message is in.
    pub queue: QueueId,
    /// Position of the message in its queue.
    pub message: MessageId,
}

/// Which entries of a replica's log are known to be committed. A message is named by its entry's
/// index: at an index that is not applied yet, this log may have an entry that was never committed,
/// in place of the one that is meant.
#[derive(Clone, Copy, Debug)]
pub struct Committed {
    /// Entries up to this one, which this replica has applied.
    pub applied: LogIndex,
    /// Also all entries made by the leader of this term, if that leader, or the leader of an
    /// earlier term, has named the message: a leader's log has one entry at an index, and committed
    /// entries are in the logs of all later leaders.
    pub term: Option<Term>,
}

/// A replica's answer for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredMessage {
    /// The encoded message.
    Here(Bytes),
    /// Its entry is known, but the message was removed or cut, perhaps already when the entry
    /// arrived here (STO 2).
    Absent,
    /// Its entry is not known yet.
    Unknown,
}

impl StoredMessage {
    /// Bytes of the message.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Here(message) => message.len(),
            Self::Absent | Self::Unknown => 0,
        }
    }
}

/// Messages in the order of the request: as many as have `bytes_max` bytes together, at least one.
/// A message that cannot be read ends the answer too; if it is the first one, its error is
/// returned.
pub(crate) fn messages(
    engine: &Engine,
    memory: &GroupMemory,
    wanted: &[MessageRef],
    committed: Committed,
    bytes_max: usize,
) -> Result<Vec<StoredMessage>, StorageError> {
    let mut found = Vec::with_capacity(wanted.len());
    let mut reader = Reader { engine, memory, committed, record: None, missed: 0 };
    let mut bytes = 0;
    for message in wanted {
        let room = if found.is_empty() { usize::MAX } else { bytes_max.saturating_sub(bytes) };
        match reader.read(*message, room) {
            Ok(Some(message)) => {
                bytes += message.bytes();
                found.push(message);
            }
            Ok(None) => break,
            Err(error) if found.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    if reader.missed > 0 {
        memory.cache().count_missed(reader.missed);
    }
    Ok(found)
}

/// Reads messages one after the other; consecutive ones of a run are taken from the same record.
struct Reader<'a> {
    engine: &'a Engine,
    memory: &'a GroupMemory,
    committed: Committed,
    /// The last record read; its value is `None` if the disk does not have the key.
    record: Option<(RunKey, Option<Value<'a>>)>,
    missed: usize,
}

impl Reader<'_> {
    /// One message; `None` if it has more than `room` bytes.
    fn read(
        &mut self,
        wanted: MessageRef,
        room: usize,
    ) -> Result<Option<StoredMessage>, StorageError> {
        let (run, position) = place(wanted);
        let applied =
            run.index <= self.committed.applied || PlantedBug::BodyFromUncommitted.is_in();
        let found = match self.memory.cache().message(self.memory.group, run, position) {
            Found::Here((term, body)) if applied || self.committed.term == Some(term) => body,
            Found::Nowhere if applied => None,
            Found::MayBeStored if applied => return self.read_stored(run, position, room),
            Found::Here(_) | Found::Nowhere | Found::MayBeStored => {
                return Ok(Some(StoredMessage::Unknown));
            }
        };
        Ok(match found {
            Some(body) if body.len() > room => None,
            Some(body) => Some(StoredMessage::Here(body)),
            None => Some(StoredMessage::Absent),
        })
    }

    fn read_stored(
        &mut self,
        run: RunKey,
        position: u32,
        room: usize,
    ) -> Result<Option<StoredMessage>, StorageError> {
        if self.record.as_ref().is_none_or(|(of, _)| *of != run) {
            self.record = None;
            self.record = Some((run, stored_bodies(self.engine, self.memory.group, run)?));
        }
        let Some((_, Some(bytes))) = &self.record else {
            return Ok(Some(StoredMessage::Absent));
        };
        let body = codec::run::body(bytes, position).map_err(corrupt("bodies", run.index))?;
        Ok(match body {
            Some(body) if body.len() > room => None,
            Some(body) => {
                self.missed += 1;
                Some(StoredMessage::Here(Bytes::copy_from_slice(body)))
            }
            None => Some(StoredMessage::Absent),
        })
    }
}

/// All messages of a run; `None` if the run does not exist.
pub(crate) fn bodies(
    engine: &Engine,
    memory: &GroupMemory,
    run: RunKey,
) -> Result<Option<RunBodies>, StorageError> {
    match memory.cache().bodies(memory.group, run) {
        Found::Here(bodies) => Ok(Some(bodies)),
        Found::Nowhere => Ok(None),
        Found::MayBeStored => stored_bodies(engine, memory.group, run)?
            .map(|bytes| codec::run::bodies(&bytes).map_err(corrupt("bodies", run.index)))
            .transpose(),
    }
}

fn stored_bodies(
    engine: &Engine,
    group: GroupId,
    run: RunKey,
) -> Result<Option<Value<'_>>, StorageError> {
    engine.get(Family::Bodies, &key::run_key(group, run))
}

fn place(message: MessageRef) -> (RunKey, u32) {
    let MessageRef { queue, message } = message;
    (RunKey { queue, level: message.level, index: message.index }, message.position)
}

/// Heads of runs with `from` ≤ index ≤ `through`, ascending, at most `limit`; fewer only if there
/// are no more. The disk is read only up to the index that it is known to have, so it cannot return
/// a run whose truncation is not written yet (STO 5).
pub(crate) fn heads(
    engine: &Engine,
    memory: &GroupMemory,
    place: (QueueId, Level),
    (from, through): (LogIndex, LogIndex),
    limit: usize,
) -> Result<Vec<Arc<RunHead>>, StorageError> {
    let (cached, stored_up_to) = memory.cache().heads(memory.group, place, (from, through), limit);
    let last = through.min(stored_up_to);
    if from > last {
        return Ok(cached);
    }
    let stored = stored_heads(engine, memory.group, place, (from, last), limit)?;
    // If both have a run, the cache is right, since it has the cuts.
    let mut all: BTreeMap<LogIndex, Arc<RunHead>> =
        stored.into_iter().map(|head| (head.index, Arc::new(head))).collect();
    all.extend(cached.into_iter().map(|head| (head.index, head)));
    Ok(all.into_values().take(limit).collect())
}

fn stored_heads(
    engine: &Engine,
    group: GroupId,
    (queue, level): (QueueId, Level),
    (first, last): (LogIndex, LogIndex),
    limit: usize,
) -> Result<Vec<RunHead>, StorageError> {
    let (first, end) =
        crate::batch::range_keys(group, &crate::RunRange { queue, level, first, last });
    let mut heads = Vec::new();
    let mut stored = engine.scan(Family::Heads, &end)?;
    stored.seek(first);
    while heads.len() < limit
        && let Some((key, record)) = stored.item()
    {
        let run = key::decode_run_key(group, key).map_err(corrupt("key of a run", last))?;
        heads.push(codec::run::heads(run.index, record).map_err(corrupt("heads", run.index))?);
        stored.next();
    }
    stored.check()?;
    Ok(heads)
}

/// The first run on disk of that group at or after `from`.
pub(crate) fn first_run_from(
    engine: &Engine,
    group: GroupId,
    from: RunKey,
) -> Result<Option<RunKey>, StorageError> {
    let mut stored = engine.scan(Family::Heads, &key::group_end(group))?;
    stored.seek(key::run_key(group, from));
    let found = match stored.key() {
        Some(key) => {
            Some(key::decode_run_key(group, key).map_err(corrupt("key of a run", from.index))?)
        }
        None => None,
    };
    stored.check()?;
    Ok(found)
}
