//! Random commands against the model: answers, deliveries and counts are equal after every entry.

use crate::{
    model::Model,
    model_queue::Queue,
    ops::{Op, entries},
    ops_entries::Known,
    world::World,
};
use proptest::prelude::*;
use quorate_queue::{Effect, Machine, Record, RecordKey};
use quorate_types::{DeliveryNumber, LetterNumber, QueueId};
use std::collections::BTreeMap;

fn compare(ops: &[Vec<Op>]) {
    let mut world = World::new();
    let mut model = Model::default();
    let mut known = Known::default();
    for ops in ops {
        let index = world.index.next();
        let entry = known.entry(&world.machine, index, ops);
        world.apply(&entry);
        let answers = model.apply(index, &entry);
        assert_eq!(world.out.answers, answers, "answers to {entry:?}");
        // If one command touches several queues, the order in which they are stabilized does not
        // matter.
        assert_eq!(by_queue(&world.out.effects), by_queue(&model.effects), "effects of {entry:?}");
        compare_states(&world, &model);
    }
}

/// Effects by which the leader continues later.
fn hint(effect: &Effect) -> bool {
    matches!(effect, Effect::ContinueSoon | Effect::WakeAt { .. } | Effect::DeadLettersChanged)
}

fn by_queue(effects: &[Effect]) -> Vec<Effect> {
    let mut effects: Vec<Effect> = effects.iter().filter(|effect| !hint(effect)).cloned().collect();
    effects.sort_by_key(|effect| match effect {
        Effect::Deliver(delivery) => (0, Some(delivery.queue), None),
        Effect::QueueEnded { queue } => (1, Some(*queue), None),
        Effect::CancelConsumer { consumer } | Effect::ConsumerTimedOut { consumer, .. } => {
            (2, None, Some(*consumer))
        }
        _ => (3, None, None),
    });
    effects
}

fn compare_states(world: &World, model: &Model) {
    let machine = &world.machine;
    assert!(machine.queues().eq(model.queues.keys().copied()));
    let all = model.queues.iter().chain(&model.ended_queues);
    all.for_each(|(id, expected)| compare_letters(machine, *id, expected));
    let letters = |queues: &BTreeMap<QueueId, Queue>| {
        queues.values().map(|it| it.letters.len() as u64).sum::<u64>()
    };
    let ended = letters(&model.ended_queues);
    assert_eq!(machine.letter_counts(), (letters(&model.queues) + ended, ended));
    for (id, expected) in &model.queues {
        let view = machine.queue(*id).unwrap();
        assert_eq!(view.name, expected.name);
        let queued = expected.consumers.values().map(|it| it.unacked.len()).sum::<usize>();
        assert_eq!(view.ready, expected.ready.len() as u64);
        let bytes = expected.ready.iter().map(|it| u64::from(it.bytes)).sum::<u64>();
        assert_eq!(view.ready_bytes, bytes);
        assert_eq!(view.unacknowledged, (queued + expected.gets.len()) as u64);
        let out = expected.consumers.values().flat_map(|it| it.unacked.values());
        let bytes = out.chain(expected.gets.values()).map(|it| u64::from(it.bytes)).sum::<u64>();
        assert_eq!(view.unacknowledged_bytes, bytes);
        assert_eq!(view.consumers, expected.attached());
        assert_eq!(view.config, expected.config);
        for (consumer, expected) in &expected.consumers {
            let queued = machine.unacked_after(*consumer, DeliveryNumber(0)).unwrap();
            let queued: Vec<_> =
                queued.iter().map(|it| (it.number.0, it.message, it.counts)).collect();
            let expected: Vec<_> =
                expected.unacked.iter().map(|(number, it)| (*number, it.id, it.counts)).collect();
            assert_eq!(queued, expected);
        }
        let Some(Record::Queue(record)) = machine.record(RecordKey::Queue(*id)) else {
            panic!("no record of {id}")
        };
        let mut service_queue = expected.service_queue.clone();
        service_queue.sort_by_key(|id| std::cmp::Reverse(expected.consumers[id].terms.priority));
        assert_eq!(Vec::from(record.service_queue), service_queue, "turns");
    }
}

fn compare_letters(machine: &Machine, id: QueueId, expected: &Queue) {
    for kept in [false, true] {
        let letters = machine.unrouted(id, kept, LetterNumber(0), usize::MAX);
        let letters = letters.iter().map(|it| (it.number.0, it.message, it.reason));
        let expected = expected.letters.iter().filter(|it| it.1.kept == kept);
        let expected = expected.map(|(number, it)| (*number, it.message, it.reason));
        assert_eq!(letters.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "letters of {id}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn machine_equals_model(ops in entries(1u32..6, 120)) {
        compare(&ops);
    }

    #[test]
    fn machine_equals_model_with_backlogs(ops in entries(20u32..80, 80)) {
        compare(&ops);
    }
}
