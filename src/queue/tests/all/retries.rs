//! Delayed retry: returned messages wait for their time, then are ready at their old positions,
//! across any restarts (RQU-07, RQU-08).

use crate::{
    replay::Checkpoint,
    world::{Step, World, heads, name, session},
};
use proptest::prelude::*;
use quorate_queue::{
    Command, DelayedRetry, Got, Machine, QueueConfig, Reply, RequeueCause, RetryAfter,
};
use quorate_types::{
    DeliveryNumber, GroupId, Holder, Home, Level, QueueId, QueueType, Sequence, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

const MIN_MS: u64 = 10;
const MAX_MS: u64 = 35;

#[derive(Clone, Debug)]
enum Act {
    Publish,
    Get,
    /// One of the messages that are held is returned.
    Return(prop::sample::Index, bool),
    /// Time passes; true: the leader's timer tells the queue.
    Pass(u64, bool),
    Restart,
    Purge,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Publish),
        6 => Just(Act::Get),
        5 => (any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(which, reject)| Act::Return(which, reject)),
        4 => (1u64..20, any::<bool>()).prop_map(|(ms, told)| Act::Pass(ms, told)),
        1 => Just(Act::Restart),
        1 => Just(Act::Purge),
    ]
}

/// What the queue should hold. Messages are numbered by their sizes, in their order.
#[derive(Default)]
struct Model {
    published: u32,
    ready: BTreeSet<u32>,
    held: Vec<(Sequence, u32)>,
    waiting: BTreeSet<(u64, u32)>,
    deliveries: BTreeMap<u32, u64>,
}

impl Model {
    fn pass(&mut self, now: u64) {
        while let Some((until, message)) = self.waiting.first().copied()
            && until <= now
        {
            self.waiting.pop_first();
            self.ready.insert(message);
        }
    }

    fn put_back(&mut self, message: u32, waits: bool, now: u64) {
        let deliveries = self.deliveries.entry(message).or_default();
        *deliveries += 1;
        if waits {
            self.waiting.insert((now + (MIN_MS * *deliveries).min(MAX_MS), message));
        } else {
            self.ready.insert(message);
        }
    }
}

fn queue_with(world: &mut World, after: RetryAfter) -> QueueId {
    let retry = DelayedRetry { after, min_ms: MIN_MS, max_ms: MAX_MS, multiplier: None };
    let config = QueueConfig {
        delayed_retry: Some(retry),
        delivery_limit: None,
        ..QueueConfig::plain(QueueType::Quorum)
    };
    let create = Command::CreateQueue { name: name("q"), config, bound: None };
    let Reply::Created(queue) = world.one(session(9, 1), create) else { panic!("not created") };
    queue
}

fn publish(world: &mut World, queue: QueueId, size: u32) {
    let messages = heads(&[size]);
    world.run(session(9, 1), &[Step::Enqueue { queue, level: Level(4), messages }]);
}

/// The message that a get takes, by its size, and the number of the get.
fn get(world: &mut World, queue: QueueId) -> Option<(Sequence, u32)> {
    let sequence = Sequence(world.next.get(&session(9, 1)).copied().unwrap_or(1));
    let got = world.one(session(9, 1), Command::Get { queue, timeout_default_ms: None });
    let Reply::Got(Got { message: id, .. }) = got else { return None };
    let head = world.store.message(queue, id.level, id.index, id.position).unwrap();
    Some((sequence, head.body_bytes))
}

fn put_back(world: &mut World, sequence: Sequence, cause: RequeueCause) {
    let holder = Holder::Get(session(9, 1), sequence);
    let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
    world.one(session(9, 1), Command::Requeue { holder, numbers, cause });
}

fn restart(world: &mut World, checkpoint: &mut Checkpoint) {
    checkpoint.write(&world.machine);
    let records = checkpoint.records.clone();
    world.machine = Machine::load(Home::Group(GroupId(1)), records).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn rqu_08_a_returned_message_waits_and_comes_back_to_its_place(
        acts in prop::collection::vec(act(), 1..80),
        after in prop::sample::select(vec![RetryAfter::All, RetryAfter::Failed, RetryAfter::Returned]),
    ) {
        let (mut world, mut checkpoint) = (World::new(), Checkpoint::default());
        let queue = queue_with(&mut world, after);
        checkpoint.note(&world.out.changes);
        let mut model = Model::default();
        for act in acts {
            // The next command, whichever it is, finds what is due.
            let is_command = match act {
                Act::Return(..) => !model.held.is_empty(),
                Act::Restart | Act::Pass(..) => false,
                Act::Publish | Act::Get | Act::Purge => true,
            };
            if is_command {
                model.pass(world.time);
            }
            match act {
                Act::Publish => {
                    model.published += 1;
                    model.ready.insert(model.published);
                    publish(&mut world, queue, model.published);
                }
                Act::Get => {
                    let got = get(&mut world, queue);
                    prop_assert_eq!(got.map(|(_, message)| message), model.ready.pop_first());
                    model.held.extend(got);
                }
                Act::Return(which, reject) => {
                    if !model.held.is_empty() {
                        let (sequence, message) = model.held.remove(which.index(model.held.len()));
                        let cause = if reject { RequeueCause::Reject } else { RequeueCause::Nack };
                        put_back(&mut world, sequence, cause);
                        let waits = match after {
                            RetryAfter::All => true,
                            RetryAfter::Failed => reject,
                            RetryAfter::Returned => !reject,
                        };
                        model.put_back(message, waits, world.time);
                    }
                }
                Act::Pass(ms, told) => {
                    world.time += ms;
                    if told {
                        world.leader(Command::ExpireHead { queue });
                        model.pass(world.time);
                    }
                }
                Act::Restart => restart(&mut world, &mut checkpoint),
                Act::Purge => {
                    let messages = (model.ready.len() + model.waiting.len()) as u64;
                    let purged = world.one(session(9, 1), Command::Purge { queue });
                    prop_assert_eq!(purged, Reply::Purged { messages });
                    model.ready.clear();
                    model.waiting.clear();
                }
            }
            checkpoint.note(&world.out.changes);
            let view = world.machine.queue(queue).unwrap();
            let counts = (view.ready, view.delayed, view.unacknowledged);
            let wanted = (model.ready.len(), model.waiting.len(), model.held.len());
            prop_assert_eq!(counts, (wanted.0 as u64, wanted.1 as u64, wanted.2 as u64));
            let due = model.waiting.first().map(|(until, _)| Timestamp(*until));
            if due.is_some() {
                prop_assert!(world.machine.wake_at(queue) <= due, "nobody wakes the queue");
                prop_assert!(world.machine.wake_at(queue).is_some());
            }
        }
    }
}

#[test]
fn rqu_07_new_settings_end_waits_that_are_longer() {
    let mut world = World::new();
    let queue = queue_with(&mut world, RetryAfter::All);
    publish(&mut world, queue, 1);
    let (sequence, _) = get(&mut world, queue).unwrap();
    put_back(&mut world, sequence, RequeueCause::Nack);
    let mut config = world.machine.queue(queue).unwrap().config.clone();
    let shorter = |retry: DelayedRetry| DelayedRetry { min_ms: 4, max_ms: 4, ..retry };
    config.delayed_retry = config.delayed_retry.map(shorter);
    world.one(session(9, 1), Command::Configure { queue, config: config.clone() });
    assert_eq!(world.machine.wake_at(queue), Some(Timestamp(world.time + 4)));
    assert_eq!(get(&mut world, queue), None);
    config.delayed_retry = None;
    world.one(session(9, 1), Command::Configure { queue, config });
    assert_eq!(get(&mut world, queue).map(|(_, message)| message), Some(1));
}

#[test]
fn rqu_08_a_message_that_was_not_shown_does_not_wait_and_one_that_waits_is_not_empty() {
    let mut world = World::new();
    let queue = queue_with(&mut world, RetryAfter::All);
    publish(&mut world, queue, 1);
    let (sequence, _) = get(&mut world, queue).unwrap();
    let holder = Holder::Get(session(9, 1), sequence);
    let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
    world.one(session(9, 1), Command::Release { holder, numbers });
    assert_eq!(world.machine.queue(queue).unwrap().ready, 1, "released unseen");
    let (sequence, _) = get(&mut world, queue).unwrap();
    put_back(&mut world, sequence, RequeueCause::Nack);
    assert_eq!(get(&mut world, queue), None);
    let end = Command::EndQueue { queue, if_unused: false, if_empty: true };
    assert_eq!(world.one(session(9, 1), end), Reply::NotEmpty);
    world.time += MIN_MS;
    world.leader(Command::ExpireHead { queue });
    assert_eq!(get(&mut world, queue).map(|(_, message)| message), Some(1));
}
