//! A simple, slow model of a group's part of the disk.

use super::{APPLIED, GROUP, queue};
use crate::{
    EntryId, GroupStore, LogEntry, MessageRef, Payload, ReplicaStore, RunRange, StoredMessage,
};
use bytes::Bytes;
use quorate_queue::MessageStore;
use quorate_types::{GroupId, Level, LogIndex, MessageId};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const QUEUES: u64 = 3;
pub(super) const LEVELS: u8 = 2;

/// Queue, level, index.
pub(super) type Run = (u64, u8, u64);

/// The expected contents of one group's part of the disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Model {
    pub(super) log: BTreeMap<u64, LogEntry>,
    pub(super) purged: Option<EntryId>,
    /// Messages of each run, `None` where cut; runs above the applied index are as appended.
    pub(super) runs: BTreeMap<Run, Vec<Option<Bytes>>>,
    /// Runs whose messages are all settled: they may still be there until their removal.
    pub(super) settled: BTreeSet<Run>,
    /// The contents of the last checkpoint.
    pub(super) checkpoint: Option<(EntryId, Bytes)>,
    pub(super) state: BTreeMap<Bytes, Bytes>,
    pub(super) vote: Option<Bytes>,
}

impl Model {
    pub(super) fn last_index(&self) -> u64 {
        let purged = self.purged.map_or(0, |id| id.index.0);
        self.log.keys().last().copied().unwrap_or(purged)
    }

    pub(super) fn last(&self) -> Option<EntryId> {
        self.log.values().last().map(|entry| entry.id).or(self.purged)
    }

    pub(super) fn append(&mut self, entry: LogEntry) {
        let index = entry.id.index.0;
        if let Payload::Commands(commands) = &entry.payload {
            let (_, runs) = crate::codec::queue::decode_heads(&commands.command).unwrap();
            for (run, bodies) in runs.iter().zip(&commands.bodies) {
                let key = (run.queue.index, run.level.0, index);
                self.runs.insert(key, bodies.messages.clone());
            }
        }
        self.log.insert(index, entry);
    }

    pub(super) fn truncate(&mut self, after: u64) {
        self.log.retain(|index, _| *index <= after);
        self.runs.retain(|(_, _, index), _| *index <= after);
    }

    pub(super) fn purge(&mut self, through: EntryId) {
        self.log.retain(|index, _| *index > through.index.0);
        self.purged = Some(through);
    }

    /// Settles all messages of a queue and level up to `last`.
    pub(super) fn settle(&mut self, (number, level): (u64, u8), last: u64) {
        let runs = self.runs.keys().filter(|(q, l, i)| (*q, *l) == (number, level) && *i <= last);
        self.settled.extend(runs.copied().collect::<Vec<_>>());
    }

    /// Runs that must exist.
    pub(super) fn live(&self) -> impl Iterator<Item = (&Run, &Vec<Option<Bytes>>)> {
        self.runs.iter().filter(|(run, messages)| {
            !self.settled.contains(run) && messages.iter().any(Option::is_some)
        })
    }

    /// Compares log, votes and runs with the store; `None` if they are equal, else a description of
    /// the difference.
    pub(super) fn difference(&self, store: &GroupStore) -> Option<String> {
        let state = store.log_state();
        if (state.last_purged, state.last) != (self.purged, self.last()) {
            return Some(format!("{state:?}, not {:?} {:?}", self.purged, self.last()));
        }
        if store.vote() != self.vote {
            return Some(format!("vote {:?}, not {:?}", store.vote(), self.vote));
        }
        self.log_difference(store).or_else(|| self.runs_difference(store))
    }

    fn log_difference(&self, store: &GroupStore) -> Option<String> {
        let mut next = self.purged.map_or(1, |id| id.index.0 + 1);
        for entry in self.log.values() {
            // One at a time, and many at a time.
            let one = store.read(LogIndex(next), LogIndex(next + 1), 0).unwrap();
            if one.len() != 1 || !same(&one[0], entry, self) {
                return Some(format!("entry {next}: {one:?}, not {entry:?}"));
            }
            next += 1;
        }
        let first = next - self.log.len() as u64;
        let all = store.read(LogIndex(first), LogIndex(u64::MAX), usize::MAX).unwrap();
        let right = all.len() == self.log.len()
            && all.iter().zip(self.log.values()).all(|(found, entry)| same(found, entry, self));
        (!right).then(|| format!("{} entries, not {}", all.len(), self.log.len()))
    }

    fn runs_difference(&self, store: &GroupStore) -> Option<String> {
        for (&(number, level, index), messages) in self.live() {
            for (position, message) in (0u32..).zip(messages) {
                let Some(message) = message else { continue };
                let message_id =
                    MessageId { level: Level(level), index: LogIndex(index), position };
                let wanted = MessageRef { queue: queue(number), message: message_id };
                let found = store.message(wanted).unwrap();
                if found.as_ref() != Some(message) {
                    return Some(format!("{wanted:?}: {found:?}, not {message:?}"));
                }
                let twice = store.messages(&[wanted, wanted], APPLIED, usize::MAX).unwrap();
                let Some(found) = found.map(StoredMessage::Here) else { continue };
                if twice != [found.clone(), found] {
                    return Some(format!("{wanted:?}: not the same twice"));
                }
            }
        }
        None
    }

    /// Compares the runs that a machine reads. Settled ones may or may not be among them.
    pub(super) fn heads_difference(&self, replica: &ReplicaStore) -> Option<String> {
        for number in 1..=QUEUES {
            for level in 0..LEVELS {
                for limit in [1, 2, 1000] {
                    let found = self.shown(replica, (number, level), limit);
                    let wanted: Vec<_> = self
                        .live()
                        .filter(|((q, l, _), _)| (*q, *l) == (number, level))
                        .map(|((_, _, index), messages)| (*index, present(messages)))
                        .collect();
                    if found != wanted {
                        return Some(format!(
                            "heads of {number}/{level}: {found:?}, not {wanted:?}"
                        ));
                    }
                }
            }
        }
        None
    }

    /// All runs of a queue and level, read `limit` at a time, without settled ones.
    fn shown(
        &self,
        replica: &ReplicaStore,
        (number, level): (u64, u8),
        limit: usize,
    ) -> Vec<(u64, Vec<bool>)> {
        let (mut from, mut found) = (LogIndex(0), Vec::new());
        loop {
            let (queue, through) = (queue(number), LogIndex(u64::MAX - 1));
            let runs = replica.runs(queue, Level(level), from, through, limit).unwrap();
            for run in &runs {
                let messages = run.messages.iter().map(Option::is_some).collect();
                if !self.settled.contains(&(number, level, run.index.0)) {
                    found.push((run.index.0, messages));
                }
            }
            match runs.last() {
                Some(last) if runs.len() == limit => from = last.index.next(),
                Some(_) | None => return found,
            }
        }
    }

    /// After a start: the state equals the checkpoint; and once settled runs are removed, exactly
    /// the required runs are on disk (STO, the invariant).
    pub(super) fn start_difference(&self, store: &GroupStore) -> Option<String> {
        let loaded = store.load().unwrap();
        let checkpoint = loaded.applied.map(|applied| (applied, loaded.meta));
        let state: BTreeMap<Bytes, Bytes> = loaded.records.into_iter().collect();
        if (&checkpoint, &state) != (&self.checkpoint, &self.state) {
            return Some(format!("checkpoint {checkpoint:?}, not {:?}", self.checkpoint));
        }
        let dead: Vec<RunRange> = self
            .settled
            .iter()
            .map(|&(number, level, index)| RunRange {
                queue: queue(number),
                level: Level(level),
                first: LogIndex(index),
                last: LogIndex(index),
            })
            .collect();
        super::written_to(store, |done| store.remove_dead(&dead, done).unwrap());
        let wanted: Vec<Run> = self.live().map(|(run, _)| *run).collect();
        for family in [crate::engine::Family::Heads, crate::engine::Family::Bodies] {
            let found = runs_on_disk(store, GROUP, family);
            if found != wanted {
                return Some(format!("{family:?} on disk: {found:?}, not {wanted:?}"));
            }
        }
        None
    }
}

fn present(messages: &[Option<Bytes>]) -> Vec<bool> {
    messages.iter().map(Option::is_some).collect()
}

/// A read entry is right if it equals the appended one, except for messages that are settled or
/// cut.
fn same(found: &LogEntry, appended: &LogEntry, model: &Model) -> bool {
    if found.id != appended.id {
        return false;
    }
    let (Payload::Commands(found), Payload::Commands(wanted)) = (&found.payload, &appended.payload)
    else {
        return found.payload == appended.payload;
    };
    let (_, runs) = crate::codec::queue::decode_heads(&wanted.command).unwrap();
    found.command == wanted.command
        && found.bodies.len() == wanted.bodies.len()
        && runs.iter().zip(&found.bodies).zip(&wanted.bodies).all(|((run, found), wanted)| {
            let key = (run.queue.index, run.level.0, appended.id.index.0);
            let live = !model.settled.contains(&key);
            let kept = model.runs.get(&key);
            found.messages.len() == wanted.messages.len()
                && found.messages.iter().zip(&wanted.messages).enumerate().all(
                    |(at, (found, wanted))| {
                        let must = live && kept.is_some_and(|kept| kept[at].is_some());
                        found == wanted || (found.is_none() && !must)
                    },
                )
        })
}

/// Every run of the group in that column family.
pub(super) fn runs_on_disk(
    store: &GroupStore,
    group: GroupId,
    family: crate::engine::Family,
) -> Vec<Run> {
    use crate::codec::key;
    let mut found = Vec::new();
    let mut runs = store.engine().scan(family, &key::group_end(group)).unwrap();
    runs.seek(key::group_start(group));
    while let Some(bytes) = runs.key() {
        let run = key::decode_run_key(group, bytes).unwrap();
        found.push((run.queue.index, run.level.0, run.index.0));
        runs.next();
    }
    found
}
