//! Reading runs: the cache first, else the disk, only where it may have them.

use crate::{
    MessageRef, RunBodies, StorageError,
    batch::corrupt,
    codec::{
        self,
        key::{self, RunKey},
    },
    engine::{Engine, Family, scanned},
    memory::GroupMemory,
    run_cache::Found,
};
use bytes::Bytes;
use quorate_queue::RunHead;
use quorate_types::{GroupId, Level, LogIndex, QueueId};
use std::{collections::BTreeMap, sync::Arc};

/// One message.
pub(crate) fn message(
    engine: &Engine,
    memory: &GroupMemory,
    message: MessageRef,
) -> Result<Option<Bytes>, StorageError> {
    let (run, position) = place(message);
    match memory.cache().message(memory.group, run, position) {
        Found::Here(message) => Ok(message),
        Found::Nowhere => Ok(None),
        Found::MayBeStored => match stored_bodies(engine, memory.group, run)? {
            None => Ok(None),
            Some(octets) => {
                memory.cache().count_missed(1);
                codec::run::body(&octets, position).map_err(corrupt("bodies", run.index))
            }
        },
    }
}

/// Many messages; of each run that is on disk the record is read once.
pub(crate) fn messages(
    engine: &Engine,
    memory: &GroupMemory,
    wanted: &[MessageRef],
) -> Result<Vec<Option<Bytes>>, StorageError> {
    let mut found = Vec::with_capacity(wanted.len());
    let mut stored: BTreeMap<RunKey, Vec<(usize, u32)>> = BTreeMap::new();
    for (at, message) in wanted.iter().enumerate() {
        let (run, position) = place(*message);
        found.push(match memory.cache().message(memory.group, run, position) {
            Found::Here(message) => message,
            Found::Nowhere => None,
            Found::MayBeStored => {
                stored.entry(run).or_default().push((at, position));
                None
            }
        });
    }
    for (run, places) in stored {
        let Some(octets) = stored_bodies(engine, memory.group, run)? else { continue };
        memory.cache().count_missed(places.len());
        for (at, position) in places {
            let message =
                codec::run::body(&octets, position).map_err(corrupt("bodies", run.index))?;
            if let Some(slot) = found.get_mut(at) {
                *slot = message;
            }
        }
    }
    Ok(found)
}

/// All messages of a run; `None` if the run is gone.
pub(crate) fn bodies(
    engine: &Engine,
    memory: &GroupMemory,
    run: RunKey,
) -> Result<Option<RunBodies>, StorageError> {
    match memory.cache().bodies(memory.group, run) {
        Found::Here(bodies) => Ok(Some(bodies)),
        Found::Nowhere => Ok(None),
        Found::MayBeStored => stored_bodies(engine, memory.group, run)?
            .map(|octets| codec::run::bodies(&octets).map_err(corrupt("bodies", run.index)))
            .transpose(),
    }
}

fn stored_bodies(
    engine: &Engine,
    group: GroupId,
    run: RunKey,
) -> Result<Option<rocksdb::DBPinnableSlice<'_>>, StorageError> {
    engine.get(Family::Bodies, &key::run_key(group, run))
}

fn place(message: MessageRef) -> (RunKey, u32) {
    let MessageRef { queue, message } = message;
    (RunKey { queue, level: message.level, index: message.index }, message.position)
}

/// Heads of runs with `from` ≤ index ≤ `through`, ascending, at most `limit`; fewer only if there
/// are no more. The disk is asked for none above what it is known to have, so it cannot show a
/// run whose truncation is not yet written (STO 5).
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
    // Where both have a run, the cache is right: it knows what was cut.
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
    scanned(&stored)?;
    Ok(heads)
}

/// The first run on disk of that group at or behind `from`.
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
    scanned(&stored)?;
    Ok(found)
}
