//! Messages that are looked at, part by part, are exactly those of the queue, each once, in the
//! order of delivery; whatever the length of the parts.

use crate::{
    ops::{Op, entries},
    ops_entries::Known,
    world::World,
};
use proptest::prelude::*;
use quorate_queue::{MessagePlace, MessageStore, RankPlace, Record, RecordKey, Standing, merge};
use quorate_types::{LetterNumber, Level, LogIndex, MessageId, QueueId};
use std::cmp::Reverse;

/// Where a look begins: before every message.
const START: MessageId = MessageId { level: Level(u8::MAX), index: LogIndex(0), position: 0 };

/// The order of delivery, and whether the message is ready.
type Seen = (Reverse<Level>, MessagePlace, bool);

/// All messages, in parts of `limit`.
fn looked_at(world: &World, queue: QueueId, limit: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut from = START;
    while let Some(look) = world.machine.look(queue, from, limit) {
        let start =
            if look.level == from.level { (from.index, from.position) } else { START_PLACE };
        let mut held = world.machine.held(queue, None, usize::MAX);
        held.retain(|(_, it)| {
            it.message.level == look.level && (it.message.index, it.message.position) >= start
        });
        held.sort_by_key(|(_, it)| it.message);
        let held_to = (held.len() > limit).then(|| {
            held.truncate(limit);
            let last = held[limit - 1].1.message;
            (last.index, last.position)
        });
        let (fresh, fresh_to) = fresh(world, queue, &look, limit);
        let part = merge(&look, (&held, held_to), (&fresh, fresh_to), limit);
        assert!(part.messages.len() <= limit);
        seen.extend(part.messages.iter().map(|it| {
            let id = it.queued.message;
            (Reverse(id.level), (id.index, id.position), it.standing == Standing::Ready)
        }));
        from = match (part.next, look.level.0.checked_sub(1)) {
            (Some((index, position)), _) => MessageId { level: look.level, index, position },
            (None, Some(below)) => MessageId { level: Level(below), ..START },
            (None, None) => break,
        };
    }
    seen
}

const START_PLACE: MessagePlace = (LogIndex(0), 0);

/// Fresh messages of a level, at least `limit` unless there are fewer, run by run.
fn fresh(
    world: &World,
    queue: QueueId,
    look: &quorate_queue::LevelLook,
    limit: usize,
) -> (Vec<quorate_queue::QueuedMessage>, Option<MessagePlace>) {
    let mut found = Vec::new();
    let Some((mut from, _)) = look.fresh_from else { return (found, None) };
    loop {
        if from > world.index {
            return (found, None);
        }
        let runs = world.store.runs(queue, look.level, from, world.index, 2).unwrap();
        for run in &runs {
            found.extend(look.fresh(run));
        }
        let Some(last) = runs.last().filter(|_| runs.len() == 2) else { return (found, None) };
        from = last.index.next();
        if found.len() >= limit {
            return (found, Some((last.index, u32::MAX)));
        }
    }
}

/// All messages, from the records and the store.
fn expected(world: &World, queue: QueueId) -> Vec<Seen> {
    let fresh = world.store.fresh(&world.machine, queue).into_iter();
    let mut all: Vec<Seen> = fresh
        .map(|(level, index, position, _)| (Reverse(level), (index, position), true))
        .collect();
    let mut add = |id: MessageId, ready| {
        all.push((Reverse(id.level), (id.index, id.position), ready));
    };
    for key in world.machine.keys() {
        match (key, world.machine.record(key).unwrap()) {
            (RecordKey::Consumer(of, _), Record::Consumer(it)) if of == queue => {
                it.unacked.values().for_each(|it| add(it.message, false));
            }
            (RecordKey::Gets(of, _), Record::Gets(it)) if of == queue => {
                it.unacked.values().for_each(|it| add(it.message, false));
            }
            (RecordKey::Requeued(of, _), Record::Requeued(it)) if of == queue => {
                it.messages.values().for_each(|it| add(it.message, true));
            }
            (RecordKey::Delayed(of, ..), Record::Delayed(it)) if of == queue => {
                it.messages.values().for_each(|(_, it)| add(it.message, false));
            }
            _ => {}
        }
    }
    all.sort();
    all
}

/// Every ready message has its rank.
fn check_ranks(world: &World, queue: QueueId, all: &[Seen]) {
    let ready = all.iter().filter(|(_, _, ready)| *ready);
    let fresh = world.store.fresh(&world.machine, queue);
    for (rank, (level, (index, position), _)) in (1u64..).zip(ready) {
        let id = MessageId { level: level.0, index: *index, position: *position };
        let found = match world.machine.rank_place(queue, rank).unwrap() {
            RankPlace::At(id) => id,
            RankPlace::Fresh { level, before } => {
                let mut of_level = fresh.iter().filter(|it| it.0 == level);
                let (_, index, position, _) = *of_level.nth(before as usize).unwrap();
                MessageId { level, index, position }
            }
        };
        assert_eq!(found, id);
        let before =
            fresh.iter().filter(|it| it.0 == id.level && (it.1, it.2) < (*index, *position));
        assert_eq!(world.machine.ready_before(queue, id) + before.count() as u64, rank - 1);
    }
}

/// All letters, in parts of `limit`.
fn check_letters(world: &World, queue: QueueId, limit: usize) {
    let (mut from, mut found) = (LetterNumber(0), Vec::new());
    loop {
        let letters = world.machine.letters_from(queue, from, limit);
        let Some((last, _)) = letters.last() else { break };
        from = LetterNumber(last.0 + 1);
        found.extend(letters);
    }
    let pages =
        world.machine.keys().into_iter().filter_map(|key| match world.machine.record(key)? {
            Record::Letters(page) if matches!(key, RecordKey::Letters(of, _) if of == queue) => {
                Some(page)
            }
            _ => None,
        });
    assert_eq!(found, pages.flatten().collect::<Vec<_>>());
}

/// Unacked messages, one after the other.
fn check_held(world: &World, queue: QueueId) {
    let all = world.machine.held(queue, None, usize::MAX);
    let (mut after, mut found) = (None, Vec::new());
    while let Some(next) = world.machine.held(queue, after, 1).pop() {
        after = Some(next.0);
        found.push(next);
    }
    assert_eq!(found, all);
}

fn check(ops: &[Vec<Op>], limit: usize) {
    let mut world = World::new();
    let mut known = Known::default();
    for ops in ops {
        let entry = known.entry(&world.machine, world.index.next(), ops);
        world.apply(&entry);
        for queue in world.machine.queues().collect::<Vec<_>>() {
            let all = expected(&world, queue);
            let view = world.machine.queue(queue).unwrap();
            assert_eq!(all.iter().filter(|it| it.2).count() as u64, view.ready);
            assert_eq!(looked_at(&world, queue, limit), all);
            check_ranks(&world, queue, &all);
            check_letters(&world, queue, limit);
            check_held(&world, queue);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_message_is_looked_at_once_in_order(ops in entries(1u32..40, 60), limit in 1usize..20) {
        check(&ops, limit);
    }
}
