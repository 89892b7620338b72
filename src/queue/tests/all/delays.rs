//! The queue of a delayed exchange: delayed messages are released when their time comes, in the
//! order of their times, across any restarts (EXC-17).

use crate::{
    letter_model::{stream, via, with_dlx},
    replay::Checkpoint,
    world::{EntryBuilder, Step, World, name, session},
};
use proptest::prelude::*;
use quorate_queue::{
    Command, Machine, MessageHead, Origin, QueueConfig, Reply, RoutedLetters, Routes,
};
use quorate_types::{
    CatalogIndex, GroupId, Home, LetterNumber, Level, QueueId, Sequence, Timestamp,
};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Act {
    /// Messages with these delays.
    Publish(Vec<u64>),
    /// This much time passes.
    Pass(u64),
    /// The first waiting letters are routed to no queue.
    Drop(u64),
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => prop::collection::vec(0u64..60, 1..5).prop_map(Act::Publish),
        4 => (1u64..40).prop_map(Act::Pass),
        1 => (1u64..4).prop_map(Act::Drop),
        1 => Just(Act::Restart),
    ]
}

fn delaying() -> (World, QueueId, Checkpoint) {
    let mut world = World::new();
    let config = QueueConfig { delays: true, ..with_dlx() };
    let create = Command::CreateQueue { name: name("q"), config, bound: None };
    let Reply::Created(queue) = world.one(session(9, 1), create) else { panic!("not created") };
    let mut checkpoint = Checkpoint::default();
    checkpoint.note(&world.out.changes);
    (world, queue, checkpoint)
}

fn publish(world: &mut World, queue: QueueId, delays: &[u64], first_bytes: u32) {
    let message =
        |(body_bytes, delay): (u32, &u64)| MessageHead { body_bytes, expiration_ms: Some(*delay) };
    let messages = (first_bytes..).zip(delays).map(message).collect();
    let steps = [Step::Enqueue { queue, level: Level(4), messages }];
    let first = world.number(session(9, 1), 1);
    let mut builder = EntryBuilder::default();
    builder.batch(Origin::Session { session: session(9, 1), first, mark: first }, &steps);
    world.apply(&builder.build(world.time));
}

/// Sizes of the bodies of letters that wait to be routed, in their order.
fn to_be_routed(world: &World, queue: QueueId) -> Vec<u32> {
    let letters = world.machine.unrouted(queue, false, LetterNumber(0), 10_000);
    let head = |id: quorate_types::MessageId| {
        world.store.message(queue, id.level, id.index, id.position).unwrap()
    };
    letters.iter().map(|letter| head(letter.message).body_bytes).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn exc_17_messages_go_at_their_times_and_in_the_order_of_those(
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let (mut world, queue, mut checkpoint) = delaying();
        // Delayed letters by (time, number), and ended ones; bodies are numbered by their sizes.
        let mut aside: BTreeMap<(u64, u32), ()> = BTreeMap::new();
        let mut gone: Vec<u32> = Vec::new();
        let mut next = 1u32;
        for act in acts {
            match act {
                Act::Publish(delays) => {
                    publish(&mut world, queue, &delays, next);
                    for delay in &delays {
                        aside.insert((world.time + delay, next), ());
                        next += 1;
                    }
                }
                Act::Pass(ms) => {
                    world.time += ms;
                    world.leader(Command::ExpireHead { queue });
                }
                Act::Drop(count) => {
                    let letters = world.machine.unrouted(queue, false, LetterNumber(0), count as usize);
                    for letter in &letters {
                        let (first, last) = (letter.number, letter.number);
                        let letters = vec![RoutedLetters { first, last, routes: Routes::Drop }];
                        let routed = Command::Routed { queue, at: CatalogIndex(1), via: via(), letters };
                        world.leader(routed);
                        checkpoint.note(&world.out.changes);
                    }
                    gone.drain(..letters.len());
                }
                Act::Restart => {
                    checkpoint.write(&world.machine);
                    let records = checkpoint.records.clone();
                    world.machine = Machine::load(Home::Group(GroupId(1)), records).unwrap();
                }
            }
            checkpoint.note(&world.out.changes);
            while let Some((&(until, number), ())) = aside.first_key_value() {
                if until > world.time {
                    break;
                }
                aside.pop_first();
                gone.push(number);
            }
            prop_assert_eq!(to_be_routed(&world, queue), gone.clone());
            let view = world.machine.queue(queue).unwrap();
            prop_assert_eq!(view.ready, 0, "nobody is given any of them");
            prop_assert_eq!(world.machine.letter_counts().0, (aside.len() + gone.len()) as u64);
            let due = aside.keys().next().map(|(until, _)| Timestamp(*until));
            prop_assert_eq!(world.machine.wake_at(queue), due);
        }
    }
}

#[test]
fn exc_17_a_deleted_exchange_takes_what_it_keeps_and_lets_go_what_is_due() {
    let (mut world, queue, _) = delaying();
    publish(&mut world, queue, &[0, 50, 60], 1);
    let routed = |routes| Command::Routed {
        queue,
        at: CatalogIndex(1),
        via: via(),
        letters: vec![RoutedLetters { first: LetterNumber(4), last: LetterNumber(4), routes }],
    };
    let target = QueueId { home: Home::Group(GroupId(2)), index: 7, position: 0 };
    world.leader(routed(Routes::To(vec![target])));
    let end = Command::EndQueue { queue, if_unused: false, if_empty: false };
    world.one(session(9, 1), end);
    assert_eq!(world.machine.letter_counts(), (1, 1), "one is on its way");
    let (first, last) = (Sequence(1), Sequence(1));
    world.leader(Command::DeadLettered { stream: stream(2), first, last, other: vec![] });
    assert_eq!(world.machine.letter_counts(), (0, 0));
}

#[test]
fn del_07_a_purge_takes_what_a_delayed_exchange_keeps() {
    let (mut world, queue, _) = delaying();
    publish(&mut world, queue, &[50, 60], 1);
    let purged = world.one(session(9, 1), Command::Purge { queue });
    assert_eq!(purged, Reply::Purged { messages: 2 });
    assert_eq!(world.machine.letter_counts(), (0, 0));
    assert_eq!(world.machine.wake_at(queue), None);
}
