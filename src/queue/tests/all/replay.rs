//! Persistence without a disk: records are collected like a checkpoint's, a second machine is
//! loaded from them during the test, and continues with the same entries. Its output and state must
//! be the same, whatever its windows hold.

use crate::{
    ops::{Op, entries},
    ops_entries::Known,
    store::TestStore,
    world::World,
};
use proptest::prelude::*;
use quorate_queue::{Change, Entry, Machine, Output, Record, RecordKey};
use quorate_types::{GroupId, Home, LogIndex};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Checkpoint {
    pub records: BTreeMap<RecordKey, Record>,
    dirty: BTreeSet<RecordKey>,
}

impl Checkpoint {
    pub fn note(&mut self, changes: &[Change]) {
        self.dirty.extend(changes.iter().filter_map(|change| match change {
            Change::Record(key) => Some(*key),
            _ => None,
        }));
    }

    pub fn write(&mut self, machine: &Machine) {
        for key in std::mem::take(&mut self.dirty) {
            match machine.record(key) {
                Some(record) => self.records.insert(key, record),
                None => self.records.remove(&key),
            };
        }
    }
}

/// A replica that was started from a checkpoint.
struct Replica {
    machine: Machine,
    store: TestStore,
    out: Output,
}

impl Replica {
    fn start(records: &BTreeMap<RecordKey, Record>, store: &TestStore, index: LogIndex) -> Self {
        // The order of records does not matter.
        let records = records.iter().rev().map(|(key, record)| (*key, record.clone()));
        let mut machine = Machine::load(Home::Group(GroupId(1)), records).unwrap();
        let mut store = store.clone();
        store.change(index, &machine.dead_ranges());
        store.check(&machine);
        store.compact();
        machine.learn_oldest(&store, index, usize::MAX);
        Self { machine, store, out: Output::default() }
    }

    fn apply(&mut self, index: LogIndex, entry: &Entry) {
        self.store.append(index, entry);
        self.out.clear();
        self.machine.apply(index, entry, &self.store, &mut self.out).unwrap();
        self.store.change(index, &self.out.changes);
        self.store.compact();
    }
}

/// A replica knows after its start how old each queue's oldest ready message is. The one that it was copied
/// from may know only when the message before that was enqueued.
fn knows_ages(world: &World, replica: &Replica) {
    for queue in replica.machine.queues() {
        let [view, before] = [&replica.machine, &world.machine].map(|it| it.queue(queue).unwrap());
        assert_eq!(view.oldest.is_some(), view.ready > 0, "{queue}");
        let (was, is) = (before.oldest, view.oldest);
        assert!(was.is_none() || was <= is, "{queue}: {was:?} before the start, {is:?} after it");
    }
}

fn same(world: &World, replica: &Replica) {
    assert_eq!(world.out.answers, replica.out.answers);
    assert_eq!(world.out.effects, replica.out.effects);
    assert_eq!(world.out.changes, replica.out.changes);
    assert_eq!(world.machine.digest(), replica.machine.digest());
    let keys = world.machine.keys();
    assert_eq!(keys, replica.machine.keys());
    for key in keys {
        assert_eq!(world.machine.record(key), replica.machine.record(key), "{key:?}");
    }
    let obligations = |machine: &Machine| {
        let mut effects = Vec::new();
        machine.obligations(&mut effects);
        effects
    };
    assert_eq!(obligations(&world.machine), obligations(&replica.machine));
}

fn replay(ops: &[Vec<Op>], restarts: &[bool]) {
    let mut known = Known::default();
    let mut ops = ops.iter();
    replay_by(restarts, |world| Some(known.entry(&world.machine, world.index.next(), ops.next()?)));
}

/// Applies entries until there is no next one, also to replicas that are restarted in between.
pub fn replay_by(restarts: &[bool], mut next: impl FnMut(&World) -> Option<Entry>) {
    let mut world = World::new();
    let mut checkpoint = Checkpoint::default();
    let mut replicas: Vec<Replica> = Vec::new();
    for restart in restarts.iter().cycle() {
        let Some(entry) = next(&world) else { return };
        world.apply(&entry);
        checkpoint.note(&world.out.changes);
        for replica in &mut replicas {
            replica.apply(world.index, &entry);
            same(&world, replica);
        }
        if *restart {
            checkpoint.write(&world.machine);
            let keys = world.machine.keys();
            assert!(keys.iter().eq(checkpoint.records.keys()), "a record was not named as changed");
            for key in keys {
                assert_eq!(world.machine.record(key).as_ref(), checkpoint.records.get(&key));
            }
            let replica = Replica::start(&checkpoint.records, &world.store, world.index);
            knows_ages(&world, &replica);
            replicas.push(replica);
            if replicas.len() > 3 {
                replicas.remove(0);
            }
        }
    }
}

pub fn restarts() -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec(prop::bool::weighted(0.2), 10..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn a_restarted_replica_goes_on_the_same(ops in entries(1u32..60, 120), restarts in restarts()) {
        replay(&ops, &restarts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 300, ..ProptestConfig::default() })]

    /// Enough messages that applies leave work over and windows overflow.
    #[test]
    fn also_when_work_is_left_over(ops in entries(1_000u32..4_000, 60), restarts in restarts()) {
        replay(&ops, &restarts);
    }
}
