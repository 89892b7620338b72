//! Dead letters between homes, against their one guarantee: whatever is lost, repeated, delayed,
//! restarted or ended meanwhile, every letter arrives in each of its targets exactly once, in the
//! order of routing (LET 1 to 4, Q-40, Q-41, Q-45).

use crate::{
    letter_model::{Cluster, Parcel, stream, via, with_dlx},
    world::{Step, World, heads, name, session},
};
use proptest::prelude::*;
use quorate_queue::{
    Answer, Batch, Command, Entry, Origin, QueueConfig, Record, RecordKey, Reply, RoutedLetters,
    Routes, Run, TransferAnswer,
};
use quorate_types::{
    CatalogIndex, LetterHome, LetterNumber, Level, NodeId, QueueId, QueueType, Sequence, SessionId,
    StartNumber,
};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Act {
    Kill(u32),
    Redrive(u32, u8),
    Bind(u8),
    ReadCatalog,
    Route(usize),
    RouteKept(usize),
    Send { to: u16, limit: usize, has_room: bool, full: bool },
    Announce(u16),
    Arrive(usize),
    Answer(usize),
    Notice(usize),
    Retry,
    Commit(usize),
    Lose,
    Wait(u64),
    Consume(usize, usize),
    End(usize),
    EndSource,
    Restart(u16),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1u32..6).prop_map(Act::Kill),
        2 => (1u32..6, 1u8..16).prop_map(|(count, bits)| Act::Redrive(count, bits)),
        2 => (0u8..16).prop_map(Act::Bind),
        2 => Just(Act::ReadCatalog),
        6 => (1usize..6).prop_map(Act::Route),
        2 => (1usize..6).prop_map(Act::RouteKept),
        8 => (1u16..4, 1usize..6, any::<bool>(), 0..8).prop_map(|(to, limit, has_room, full)| {
            Act::Send { to, limit, has_room, full: full == 0 }
        }),
        1 => (1u16..4).prop_map(Act::Announce),
        8 => any::<usize>().prop_map(Act::Arrive),
        8 => any::<usize>().prop_map(Act::Answer),
        4 => any::<usize>().prop_map(Act::Notice),
        4 => Just(Act::Retry),
        12 => (1usize..6).prop_map(Act::Commit),
        1 => Just(Act::Lose),
        3 => (1u64..4_000).prop_map(Act::Wait),
        4 => (any::<usize>(), 1usize..5).prop_map(|(which, limit)| Act::Consume(which, limit)),
        1 => (any::<usize>()).prop_map(Act::End),
        1 => Just(Act::EndSource),
        2 => (1u16..4).prop_map(Act::Restart),
    ]
}

impl Act {
    /// Carries out the act; tasks and the ends of queues are left to tests that allow them.
    fn on(self, cluster: &mut Cluster) {
        match self {
            Self::Kill(count) => cluster.kill(count),
            Self::Bind(bound) => cluster.bind(bound),
            Self::ReadCatalog => cluster.read_catalog(),
            Self::Route(limit) => cluster.route(limit),
            Self::RouteKept(limit) => cluster.route_kept(limit),
            Self::Send { to, limit, has_room, full } => cluster.send(to, limit, has_room, full),
            Self::Announce(group) => cluster.announce(group),
            Self::Arrive(which) => cluster.arrive(which),
            Self::Answer(which) => cluster.answer(which),
            Self::Notice(which) => cluster.notice(which),
            Self::Retry => cluster.retry(),
            Self::Commit(count) => cluster.commit(count),
            Self::Lose => cluster.lose(),
            Self::Wait(ms) => cluster.wait(ms),
            Self::Consume(which, limit) => cluster.consume(which, limit),
            Self::End(_) | Self::EndSource | Self::Redrive(..) => {}
            Self::Restart(group) => cluster.restart(group),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn q_40_every_letter_gets_into_each_target_once(
        lengths in prop::collection::vec(1u64..5, 4),
        acts in prop::collection::vec(act(), 1..120),
        ends in any::<bool>(),
    ) {
        let mut cluster = Cluster::new(&lengths);
        let mut source_lives = true;
        for act in acts {
            match act {
                Act::Kill(_) | Act::Redrive(..) if !source_lives => {}
                Act::Redrive(count, bits) => cluster.redrive(count, bits),
                Act::End(which) if ends => cluster.end(which),
                Act::EndSource if ends && source_lives => {
                    // letters outlive their queue.
                    source_lives = false;
                    let queue = cluster.source;
                    let end = Command::EndQueue { queue, if_unused: false, if_empty: false };
                    cluster.source().leader(end);
                }
                other => other.on(&mut cluster),
            }
        }
        cluster.finish();
        cluster.check();
    }

    #[test]
    fn let_6_order_into_one_target_is_the_order_of_routing(
        length in 1u64..4,
        acts in prop::collection::vec(act(), 1..120),
    ) {
        let mut cluster = Cluster::new(&[length]);
        for act in acts {
            match act {
                // Letters that were kept are routed behind others.
                Act::Bind(_) => cluster.bind(1),
                other => other.on(&mut cluster),
            }
        }
        cluster.finish();
        let taken = cluster.taken.values().next().cloned().unwrap_or_default();
        let all: Vec<u32> = (1..=cluster.published).collect();
        prop_assert_eq!(taken, all);
    }
}

#[test]
fn q_46_a_purge_takes_the_letters_kept_as_unroutable_and_no_others() {
    let mut cluster = Cluster::new(&[9]);
    cluster.kill(5);
    cluster.route_to(2, 0);
    cluster.route_to(1, 1);
    let queue = cluster.source;
    let purged = cluster.source().one(session(9, 1), Command::Purge { queue });
    assert_eq!(purged, Reply::Purged { messages: 2 });
    assert_eq!(cluster.source().machine.letter_counts(), (3, 0));
}

#[test]
fn let_1_without_a_dlx_the_same_command_drops() {
    let mut cluster = Cluster::new(&[9]);
    let queue = cluster.source;
    let config =
        QueueConfig { resolved_at: CatalogIndex(5), ..QueueConfig::plain(QueueType::Quorum) };
    cluster.source().leader(Command::Configure { queue, config });
    cluster.kill(4);
    assert_eq!(cluster.source().machine.letter_counts(), (0, 0));
}

#[test]
fn let_2_an_answer_given_twice_counts_once() {
    let mut cluster = Cluster::new(&[9, 9]);
    cluster.kill(1);
    cluster.route_to(1, 0b11);
    let taken = || Command::DeadLettered {
        stream: stream(2),
        first: Sequence(1),
        last: Sequence(1),
        other: vec![],
    };
    cluster.source().leader(taken());
    cluster.source().leader(taken());
    assert_eq!(cluster.source().machine.letter_counts(), (1, 0), "one target has not answered");
    let gone = vec![(Sequence(1), TransferAnswer::Gone)];
    let (first, last) = (Sequence(1), Sequence(1));
    cluster.source().leader(Command::DeadLettered { stream: stream(3), first, last, other: gone });
    assert_eq!(cluster.source().machine.letter_counts(), (0, 0));
}

/// A start of a node, and the entry that fences it.
const START: SessionId = SessionId { node: NodeId(5), start: StartNumber(3) };
const DOWN: Command = Command::NodeDown { node: NodeId(5), start: StartNumber(3) };

/// Letters of that start arrive at a target.
fn from_start(cluster: &mut Cluster, first: u64, count: usize) -> Vec<Answer> {
    let queue = cluster.targets[0];
    let run = Run { queue, level: Level(0), messages: heads(&vec![1; count]) };
    let transfer = |place| Command::Transfer { run: 0, first: place, attempt: 1 };
    let commands = (0..count as u32).map(transfer).collect();
    let (from, first) = (LetterHome::Start(START), Sequence(first));
    let batches = vec![Batch { origin: Origin::Letters { from, first, mark: first }, commands }];
    let world = cluster.worlds.get_mut(&2).unwrap();
    world.apply(&Entry { runs: vec![run], batches, ..Entry::default() });
    world.out.answers.clone()
}

#[test]
fn ses_6_what_a_start_sent_is_forgotten_once_it_is_over_and_nothing_more_is_taken() {
    let mut cluster = Cluster::new(&[1]);
    let target = cluster.targets[0];
    // Two letters for a queue that has room for one: the second is refused.
    assert_eq!(from_start(&mut cluster, 1, 2).len(), 1);
    let source = RecordKey::Source(LetterHome::Start(START));
    let world = cluster.worlds.get_mut(&2).unwrap();
    assert!(world.machine.record(source).is_some());
    world.leader(DOWN);
    assert_eq!(world.machine.record(source), None);
    let Some(Record::Queue(queue)) = world.machine.record(RecordKey::Queue(target)) else {
        panic!("no queue")
    };
    assert_eq!(queue.refusals, BTreeMap::new());
    assert_eq!(from_start(&mut cluster, 1, 1), [], "what comes late has no effect and no answer");
    assert_eq!(cluster.worlds[&2].machine.queue(target).unwrap().ready, 1);
}

#[test]
fn let_4_the_stream_to_a_start_that_is_over_ends_with_its_last_answer_and_never_begins_again() {
    let mut cluster = Cluster::new(&[1]);
    let stream = LetterHome::Start(START);
    let streams = |cluster: &mut Cluster| match cluster.source().machine.record(RecordKey::Group) {
        Some(Record::Group(group)) => group.letters.streams.into_keys().collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    cluster.kill(2);
    let (queue, local) = (cluster.source, QueueId { home: stream.home(), index: 3, position: 0 });
    let route = |number| {
        let routes = Routes::To(vec![local]);
        let letters = vec![RoutedLetters { first: number, last: number, routes }];
        Command::Routed { queue, at: CatalogIndex(7), via: via(), letters }
    };
    cluster.source().leader(route(LetterNumber(1)));
    cluster.source().leader(DOWN);
    assert_eq!(streams(&mut cluster), [stream], "something is under way");
    let (first, last) = (Sequence(1), Sequence(1));
    let other = vec![(first, TransferAnswer::Gone)];
    cluster.source().leader(Command::DeadLettered { stream, first, last, other });
    assert_eq!(streams(&mut cluster), []);
    cluster.source().leader(route(LetterNumber(2)));
    assert_eq!(streams(&mut cluster), [], "the stream does not begin again");
    let unrouted = cluster.source().machine.unrouted(queue, false, LetterNumber(0), 9);
    let after: Vec<_> = unrouted.iter().map(|it| (it.number.0, it.after.0)).collect();
    assert_eq!(after, [(1, 7), (2, 7)], "both wait for a newer copy");
}

#[test]
fn q_45_a_queue_with_as_many_letters_as_its_bound_takes_no_more_messages() {
    let mut world = World::new();
    let by = session(9, 1);
    let config = QueueConfig { message_ttl_ms: Some(0), letters_max: 3, ..with_dlx() };
    let create = Command::CreateQueue { name: name("q"), config: config.clone(), bound: None };
    let Reply::Created(queue) = world.one(by, create) else { panic!("not created") };
    let publish = |world: &mut World, count: usize| {
        let messages = heads(&vec![1; count]);
        world.run(by, &[Step::Enqueue { queue, level: Level(0), messages }]).pop().unwrap()
    };
    let drop_first = |world: &mut World, last: u64| {
        let (first, last) = (LetterNumber(1), LetterNumber(last));
        let letters = vec![RoutedLetters { first, last, routes: Routes::Drop }];
        world.leader(Command::Routed { queue, at: CatalogIndex(1), via: via(), letters });
    };
    assert_eq!(publish(&mut world, 2), Reply::Taken);
    assert_eq!(publish(&mut world, 2), Reply::Taken, "there was room when they came");
    assert_eq!(publish(&mut world, 2), Reply::Refused(vec![(0, 1)]), "as reject-publish does");
    drop_first(&mut world, 1);
    assert_eq!(publish(&mut world, 1), Reply::Refused(vec![(0, 0)]));
    drop_first(&mut world, 2);
    assert_eq!(publish(&mut world, 1), Reply::Taken, "there is room again");
    // Another bound takes effect at once.
    assert_eq!(publish(&mut world, 1), Reply::Refused(vec![(0, 0)]));
    let config = QueueConfig { resolved_at: CatalogIndex(9), letters_max: 4, ..config };
    world.leader(Command::Configure { queue, config });
    assert_eq!(publish(&mut world, 1), Reply::Taken);
    assert_eq!(publish(&mut world, 1), Reply::Refused(vec![(0, 0)]));
}

/// Sends what the source has routed to home 2, and brings the answers back.
fn transfer(cluster: &mut Cluster) {
    cluster.send(2, 50, true, false);
    (0..cluster.sent.len()).for_each(|which| cluster.arrive(which));
    (0..cluster.answers.len()).for_each(|which| cluster.answer(which));
    cluster.commit(usize::MAX);
}

/// The survivor has nothing of what its copy of the target's home has done, except for the queue.
fn lose_target(cluster: &mut Cluster, length: u64) {
    let lost = Cluster::new(&[length]).worlds.remove(&2).unwrap();
    cluster.worlds.insert(2, lost);
}

#[test]
fn mem_14_a_target_takes_the_new_letters_of_a_source_that_has_lost_what_it_had_sent() {
    let mut cluster = Cluster::new(&[9]);
    // The source has lost that it had five letters, and gives their numbers to others.
    let queue = cluster.targets[0];
    let (first, mark) = (Sequence(1), Sequence(1));
    let transfers = (901..=905).map(|bytes| (queue, bytes, 1)).collect();
    cluster.sent.push(Parcel { to: 2, first, mark, transfers });
    cluster.arrive(0);
    cluster.last_resort();
    cluster.kill(3);
    cluster.finish();
    cluster.check();
    assert_eq!(cluster.taken[&queue].len(), 8);
}

#[test]
fn mem_14_a_target_that_has_lost_letters_and_refusals_takes_the_next_ones() {
    let mut cluster = Cluster::new(&[1]);
    cluster.kill(3);
    cluster.route_to(3, 1);
    transfer(&mut cluster);
    assert_eq!(cluster.source().machine.letter_counts(), (2, 0), "the target is full");
    cluster.consume(0, 1);
    lose_target(&mut cluster, 1);
    cluster.last_resort();
    cluster.kill(2);
    cluster.finish();
    cluster.check();
    let queue = cluster.targets[0];
    assert_eq!(cluster.taken[&queue], [1, 2, 3, 4, 5]);
}

#[test]
fn mem_14_what_was_under_way_comes_again_rather_than_not_at_all() {
    let mut cluster = Cluster::new(&[9]);
    cluster.kill(2);
    cluster.route_to(2, 1);
    cluster.send(2, 50, true, false);
    (0..cluster.sent.len()).for_each(|which| cluster.arrive(which));
    cluster.last_resort();
    cluster.kill(1);
    cluster.finish();
    let mut taken = cluster.taken[&cluster.targets[0]].clone();
    taken.sort_unstable();
    assert_eq!(taken, [1, 1, 2, 2, 3]);
}
