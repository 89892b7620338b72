//! A message store for tests: it keeps run heads, carries out cuts and removals, and fails the test
//! if the machine reads a run that it should not.

use quorate_queue::{
    Change, Entry, LevelRecord, Machine, MessageHead, MessageStore, QueuedMessage, Record,
    RecordKey, RunHead, StoreError,
};
use quorate_types::{Level, LogIndex, MessageId, QueueId};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

#[derive(Clone, Debug, Default)]
pub struct TestStore {
    runs: BTreeMap<(QueueId, Level, LogIndex), RunHead>,
    removed: BTreeSet<(QueueId, Level, LogIndex)>,
    applied: LogIndex,
    pub reads: Cell<u64>,
}

impl TestStore {
    /// Appends an entry, before it is applied.
    pub fn append(&mut self, index: LogIndex, entry: &Entry) {
        for run in &entry.runs {
            let messages = run.messages.iter().copied().map(Some).collect();
            let head = RunHead { index, time: entry.stamp.time, messages };
            let earlier = self.runs.insert((run.queue, run.level, index), head);
            assert!(earlier.is_none(), "two runs for one queue and level in an entry");
        }
    }

    /// Carries out the changes of the entry at `index`, as every replica does after apply.
    pub fn change(&mut self, index: LogIndex, changes: &[Change]) {
        self.applied = index;
        for change in changes {
            match change {
                Change::Record(_) => {}
                Change::Removed { queue, level, first, last } => {
                    assert!(first <= last, "an empty removal: {change:?}");
                    assert!(*last <= index, "a removal above the applied index: {change:?}");
                    let dead = self.runs.range((*queue, *level, *first)..=(*queue, *level, *last));
                    self.removed.extend(dead.map(|(key, _)| *key));
                }
                Change::Cut { queue, level, index: run, first, last } => {
                    assert!(*run <= index, "a cut of a run that is not there yet");
                    let run = self.runs.get_mut(&(*queue, *level, *run)).expect("a cut of no run");
                    for position in *first..=*last {
                        let message = run.messages[position as usize].take();
                        assert!(message.is_some(), "a message was cut twice");
                    }
                }
                Change::QueueRemoved { queue } => {
                    self.runs.retain(|(of, _, _), _| of != queue);
                    self.removed.retain(|(of, _, _)| of != queue);
                }
            }
        }
    }

    /// The invariant of DESIGN §3: the stored messages that are not removed are exactly those of
    /// the queue, and every run below the head is stored if one of its messages is unacked or
    /// requeued.
    pub fn check(&self, machine: &Machine) {
        let State { out, letters, heads } = State::of(machine);
        for (key, head) in &out {
            let (queue, level, index, position) = *key;
            let stored = self.message(queue, level, index, position);
            let stored = stored.map(|head| head.body_bytes);
            assert_eq!(stored, Some(*head), "{key:?} is not as stored");
        }
        let mut fresh: BTreeMap<(QueueId, Level), (u64, u64)> = BTreeMap::new();
        for (key, run) in &self.runs {
            let (queue, level, index) = *key;
            let messages = (0u32..).zip(&run.messages);
            let messages = messages.filter_map(|(position, it)| Some((position, (*it)?)));
            let Some(head) = heads.get(&(queue, level)) else {
                assert_eq!(messages.count(), 0, "{key:?} has no level, and is left");
                continue;
            };
            let place = |position| (queue, level, index, position);
            if index < head.head_index {
                let used = messages.clone().filter(|it| out.contains_key(&place(it.0))).count();
                let removed = self.removed.contains(key);
                assert!(!removed || used == 0, "{key:?} was removed while needed");
                assert!(removed || used > 0 || messages.count() == 0, "{key:?} is left over");
                continue;
            }
            assert!(!self.removed.contains(key), "{key:?} was removed above the head");
            let from = (head.head_index, head.head_position);
            let from_head = messages.filter(|it| (index, it.0) >= from);
            for (position, message) in from_head.filter(|it| !letters.contains(&place(it.0))) {
                assert!(!out.contains_key(&place(position)), "fresh and held");
                let count = fresh.entry((queue, level)).or_default();
                count.0 += 1;
                count.1 += u64::from(message.body_bytes);
            }
        }
        for (place, head) in heads {
            let stored = fresh.get(&place).copied().unwrap_or_default();
            assert_eq!((head.fresh, head.fresh_bytes), stored, "fresh messages of {place:?}");
        }
    }

    /// A stored message, unless it was cut or its run removed.
    pub fn message(
        &self,
        queue: QueueId,
        level: Level,
        index: LogIndex,
        position: u32,
    ) -> Option<MessageHead> {
        let removed = self.removed.contains(&(queue, level, index));
        self.ever(queue, level, index, position).filter(|_| !removed)
    }

    /// A message, even if its run was removed since.
    pub fn ever(
        &self,
        queue: QueueId,
        level: Level,
        index: LogIndex,
        position: u32,
    ) -> Option<MessageHead> {
        self.runs.get(&(queue, level, index))?.messages.get(position as usize).copied().flatten()
    }

    /// Deletes the removed runs, as a compaction may at any time.
    pub fn compact(&mut self) {
        for key in std::mem::take(&mut self.removed) {
            self.runs.remove(&key);
        }
    }

    /// Ready messages of a queue in order, for tests to show: `(level, index, position, bytes)`.
    pub fn fresh(&self, machine: &Machine, queue: QueueId) -> Vec<(Level, LogIndex, u32, u32)> {
        let Some(Record::Queue(record)) = machine.record(RecordKey::Queue(queue)) else {
            return Vec::new();
        };
        let letters = State::of(machine).letters;
        let mut fresh = Vec::new();
        for (level, head) in record.levels.iter().rev() {
            let from = (queue, *level, head.head_index);
            let runs = self.runs.range(from..);
            for ((_, _, index), run) in runs.take_while(|it| (it.0.0, it.0.1) == (queue, *level)) {
                for (position, message) in (0u32..).zip(&run.messages) {
                    if let Some(message) = message
                        && (*index, position) >= (head.head_index, head.head_position)
                        && !letters.contains(&(queue, *level, *index, position))
                    {
                        fresh.push((*level, *index, position, message.body_bytes));
                    }
                }
            }
        }
        fresh
    }
}

type Place = (QueueId, Level, LogIndex, u32);

/// From the records: messages that are unacked, requeued or dead letters, with the bytes of their
/// bodies, and the heads of the levels.
struct State {
    out: BTreeMap<Place, u32>,
    letters: BTreeSet<Place>,
    heads: BTreeMap<(QueueId, Level), LevelRecord>,
}

impl State {
    fn of(machine: &Machine) -> Self {
        let (out, letters, heads) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let mut state = Self { out, letters, heads };
        for key in machine.keys() {
            match (key, machine.record(key).expect("a named record")) {
                (RecordKey::Consumer(queue, _), Record::Consumer(record)) => {
                    record.unacked.values().for_each(|queued| state.add(queue, queued));
                }
                (RecordKey::Gets(queue, _), Record::Gets(record)) => {
                    record.unacked.values().for_each(|queued| state.add(queue, queued));
                }
                (RecordKey::Requeued(queue, _), Record::Requeued(record)) => {
                    record.messages.values().for_each(|queued| state.add(queue, queued));
                }
                (RecordKey::Delayed(queue, ..), Record::Delayed(record)) => {
                    record.messages.values().for_each(|(_, queued)| state.add(queue, queued));
                }
                (RecordKey::Letters(queue, _), Record::Letters(letters)) => {
                    for letter in letters.values() {
                        let id = letter.message;
                        state.add_message(queue, id, letter.body_bytes);
                        state.letters.insert((queue, id.level, id.index, id.position));
                    }
                }
                (RecordKey::Queue(queue), Record::Queue(record)) => {
                    let levels = record.levels.iter();
                    state.heads.extend(levels.map(|(level, it)| ((queue, *level), *it)));
                }
                _ => {}
            }
        }
        state
    }

    fn add(&mut self, queue: QueueId, queued: &QueuedMessage) {
        self.add_message(queue, queued.message, queued.head.body_bytes);
    }

    fn add_message(&mut self, queue: QueueId, id: MessageId, bytes: u32) {
        let place = (queue, id.level, id.index, id.position);
        let earlier = self.out.insert(place, bytes);
        assert_eq!(earlier, None, "{place:?} is in the state twice");
    }
}

impl MessageStore for TestStore {
    fn runs(
        &self,
        queue: QueueId,
        level: Level,
        from: LogIndex,
        through: LogIndex,
        limit: usize,
    ) -> Result<Vec<RunHead>, StoreError> {
        self.reads.set(self.reads.get() + 1);
        assert!(through <= self.applied, "a read of the entry being applied");
        let range = self.runs.range((queue, level, from)..=(queue, level, through));
        let runs = range.take(limit).map(|(key, run)| {
            assert!(!self.removed.contains(key), "a removed run is read: {key:?}");
            run.clone()
        });
        Ok(runs.collect())
    }
}
