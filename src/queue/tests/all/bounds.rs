//! Bounds and the cost of a queue: no apply handles more than 5,000 messages, a queue that is
//! emptied as fast as it is filled never reads its store, a purge reads nothing, and dead runs are
//! removed as ranges.

use crate::{
    store::TestStore,
    world::{EntryBuilder, Step, World, heads, name, session},
};
use quorate_queue::{
    Change, Command, ConsumerTerms, Effect, Entry, LeftOver, Machine, Origin, Output, QueueConfig,
    Record, RecordKey, Reply,
};
use quorate_types::{
    ConsumerId, DeliveryNumber, GroupId, Holder, Home, Level, LogIndex, NodeId, QueueId, QueueType,
    ResourceName, Sequence, SessionId, ShortString, StartNumber, Timestamp,
};

const A: u64 = 1;

fn a() -> SessionId {
    session(1, A)
}

fn terms(prefetch: Option<u32>) -> ConsumerTerms {
    ConsumerTerms {
        prefetch,
        up_to: DeliveryNumber(u64::MAX),
        exclusive: false,
        priority: 0,
        tag: ShortString::EMPTY,
        no_ack: false,
        timeout_ms: None,
        timeout_default_ms: None,
    }
}

fn create(world: &mut World) -> QueueId {
    let config = QueueConfig::plain(QueueType::Quorum);
    match world.one(session(9, 1), Command::CreateQueue { name: name("q"), config, bound: None }) {
        Reply::Created(queue) => queue,
        other => panic!("{other:?}"),
    }
}

fn attach(world: &mut World, queue: QueueId, by: SessionId, number: u64, prefetch: Option<u32>) {
    let consumer = ConsumerId { session: by, number };
    let reply = world.one(by, Command::Attach { queue, consumer, terms: terms(prefetch) });
    assert_eq!(reply, Reply::Taken);
}

fn fill(world: &mut World, queue: QueueId, sizes: std::ops::Range<u32>) {
    let messages = heads(&sizes.collect::<Vec<_>>());
    world.run(session(9, 1), &[Step::Enqueue { queue, level: Level(0), messages }]);
}

fn settle(world: &mut World, by: SessionId, number: u64, first: u64, last: u64) {
    let holder = Holder::Consumer(ConsumerId { session: by, number });
    let numbers = vec![(DeliveryNumber(first), DeliveryNumber(last))];
    world.one(by, Command::Ack { holder, numbers });
}

fn removed(world: &World) -> Vec<(u64, u64)> {
    let range = |change: &Change| match change {
        Change::Removed { first, last, .. } => Some((first.0, last.0)),
        _ => None,
    };
    world.out.changes.iter().filter_map(range).collect()
}

#[test]
fn a_queue_emptied_as_fast_as_it_is_filled_never_reads_its_store() {
    let mut world = World::new();
    let queue = create(&mut world);
    attach(&mut world, queue, a(), 1, Some(1_000));
    for round in 0..100 {
        fill(&mut world, queue, round * 100..round * 100 + 100);
        assert_eq!(world.deliveries().len(), 100);
        let first = u64::from(round) * 100 + 1;
        settle(&mut world, a(), 1, first, first + 99);
    }
    assert_eq!(world.store.reads.get(), 0);
    let Some(Record::Queue(record)) = world.machine.record(RecordKey::Queue(queue)) else {
        panic!("no record")
    };
    let level = record.levels[&Level(0)];
    assert_eq!(level.removed_below, level.head_index, "all that was settled is removed");
}

#[test]
fn a_backlog_is_read_in_chunks_and_once() {
    let mut world = World::new();
    let queue = create(&mut world);
    for round in 0..300 {
        fill(&mut world, queue, round * 20..round * 20 + 20);
    }
    assert_eq!(world.store.reads.get(), 0);
    attach(&mut world, queue, a(), 1, Some(500));
    let mut next = 0;
    while next < 6_000 {
        let got: Vec<u32> = world.deliveries().into_iter().map(|it| it.2).collect();
        let expected: Vec<u32> = (next..next + got.len() as u32).collect();
        assert_eq!(got, expected);
        next += got.len() as u32;
        settle(&mut world, a(), 1, 1, u64::from(next));
    }
    let reads = world.store.reads.get();
    assert!((3..40).contains(&reads), "{reads} reads for 300 runs");
}

#[test]
fn a_check_out_of_masses_goes_on_by_continue() {
    let mut world = World::new();
    let queue = create(&mut world);
    fill(&mut world, queue, 0..12_000);
    attach(&mut world, queue, a(), 1, None);
    let mut delivered = Vec::new();
    let mut applies = 0;
    loop {
        let part: Vec<u32> = world.deliveries().into_iter().map(|it| it.2).collect();
        assert!(part.len() <= 5_000, "an apply assigned {}", part.len());
        delivered.extend(part);
        applies += 1;
        let mut owed = Vec::new();
        world.machine.obligations(&mut owed);
        assert_eq!(owed.contains(&Effect::ContinueSoon), delivered.len() < 12_000);
        assert_eq!(
            owed,
            world.out.effects.iter().rev().take(owed.len()).cloned().collect::<Vec<_>>()
        );
        if owed.is_empty() {
            break;
        }
        world.leader(Command::Continue);
    }
    assert_eq!(applies, 3);
    assert!(delivered.into_iter().eq(0..12_000));
}

#[test]
fn a_check_out_is_left_over_once_after_a_restart_too() {
    let mut world = World::new();
    let queue = create(&mut world);
    fill(&mut world, queue, 0..12_000);
    attach(&mut world, queue, a(), 1, None);
    let keys = world.machine.keys();
    let records = keys.into_iter().map(|key| (key, world.machine.record(key).unwrap()));
    let machine = Machine::load(Home::Group(GroupId(1)), records).unwrap();
    let mut restarted = World { machine, store: world.store.clone(), ..World::new() };
    (restarted.index, restarted.next) = (world.index, world.next.clone());
    let left = |world: &mut World| {
        fill(world, queue, 0..1);
        match world.machine.record(RecordKey::Group) {
            Some(Record::Group(record)) => record.left_over,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(left(&mut world), [LeftOver::CheckOut { queue }]);
    assert_eq!(left(&mut restarted), [LeftOver::CheckOut { queue }]);
}

#[test]
fn a_dead_node_returns_its_masses_bit_by_bit() {
    let mut world = World::new();
    let queue = create(&mut world);
    for number in 1..=4 {
        attach(&mut world, queue, a(), number, Some(3_000));
    }
    for round in 0..6 {
        fill(&mut world, queue, round * 2_000..round * 2_000 + 2_000);
    }
    assert_eq!(world.machine.queue(queue).unwrap().unacknowledged, 12_000);
    world.leader(Command::NodeDown { node: NodeId(1), start: StartNumber(A) });
    let ready = |world: &World| world.machine.queue(queue).unwrap().ready;
    assert_eq!(world.machine.queue(queue).unwrap().consumers, 0, "all stop at once");
    assert!((4_900..=5_000).contains(&ready(&world)), "{} returned", ready(&world));
    let mut continues = 0;
    while world.out.effects.contains(&Effect::ContinueSoon) {
        world.leader(Command::Continue);
        continues += 1;
    }
    assert_eq!((continues, ready(&world)), (2, 12_000));
    // The messages of the dead node were counted, and delivered in their order.
    attach(&mut world, queue, session(2, 1), 9, Some(4_000));
    let Effect::Deliver(first) = &world.out.effects[0] else { panic!("nothing delivered") };
    assert_eq!((first.counts.acquired, first.counts.returned), (1, 1));
    assert!(world.deliveries().into_iter().map(|it| it.2).eq(0..4_000));
    world.leader(Command::Continue);
    assert_eq!(world.out.effects, [], "nothing was left over");
}

#[test]
fn what_a_node_takes_after_its_timeout_does_not_go_with_what_is_left_over() {
    let mut world = World::new();
    let queue = create(&mut world);
    fill(&mut world, queue, 0..10_000);
    let get = Command::Get { queue, timeout_default_ms: None };
    attach(&mut world, queue, a(), 1, Some(4_000));
    attach(&mut world, queue, a(), 2, Some(2_000));
    world.leader(Command::Continue);
    assert!(matches!(world.one(a(), get.clone()), Reply::Got(_)));
    world.leader(Command::NodeSuspected { node: NodeId(1) });
    world.leader(Command::NodeTimedOut { node: NodeId(1) });
    world.leader(Command::NodeBack { node: NodeId(1) });
    attach(&mut world, queue, a(), 3, Some(10));
    assert!(matches!(world.one(a(), get), Reply::Got(_)));
    for _ in 0..3 {
        world.leader(Command::Continue);
    }
    let view = world.machine.queue(queue).unwrap();
    assert_eq!((view.unacknowledged, view.consumers), (11, 1), "ten and the late get are held");
    let consumer = ConsumerId { session: a(), number: 1 };
    assert_eq!(world.machine.unacked_after(consumer, DeliveryNumber(0)), None);
}

#[test]
fn a_purge_reads_nothing_however_long_the_queue() {
    let mut world = World::new();
    let queue = create(&mut world);
    attach(&mut world, queue, a(), 1, Some(150));
    for round in 0..50 {
        fill(&mut world, queue, round * 100..round * 100 + 100);
    }
    let reads = world.store.reads.get();
    assert_eq!(world.one(a(), Command::Purge { queue }), Reply::Purged { messages: 4_850 });
    assert_eq!(world.store.reads.get(), reads);
    // Run 4 (the first two entries created and attached) and half of run 5 are unacked.
    let index = world.index.0;
    assert_eq!(removed(&world), [(5, index - 1)]);
    settle(&mut world, a(), 1, 101, 150);
    assert_eq!(removed(&world), [(4, index - 1)]);
    settle(&mut world, a(), 1, 1, 100);
    assert_eq!(removed(&world), [(3, index - 1)]);
}

#[test]
fn dead_runs_go_as_ranges_between_living_ones() {
    let mut world = World::new();
    let queue = create(&mut world);
    attach(&mut world, queue, a(), 1, None);
    // Runs 3 to 12, two messages each: numbers 1 and 2 are in run 3, 19 and 20 in run 12.
    for round in 0..10 {
        fill(&mut world, queue, round * 2..round * 2 + 2);
    }
    settle(&mut world, a(), 1, 3, 3);
    assert_eq!(removed(&world), [], "half of run 4 lives");
    settle(&mut world, a(), 1, 4, 4);
    assert_eq!(removed(&world), [(4, 4)]);
    settle(&mut world, a(), 1, 7, 8);
    assert_eq!(removed(&world), [(6, 6)]);
    settle(&mut world, a(), 1, 5, 6);
    assert_eq!(removed(&world), [(4, 6)]);
    let holder = Holder::Consumer(ConsumerId { session: a(), number: 1 });
    let numbers = vec![
        (DeliveryNumber(1), DeliveryNumber(1)),
        (DeliveryNumber(11), DeliveryNumber(12)),
        (DeliveryNumber(15), DeliveryNumber(18)),
    ];
    world.one(a(), Command::Ack { holder, numbers });
    assert_eq!(removed(&world), [(8, 8), (10, 11)], "one range for neighbours");
    settle(&mut world, a(), 1, 2, 2);
    assert_eq!(removed(&world), [(3, 6)]);
    settle(&mut world, a(), 1, 1, 99);
    assert_eq!(removed(&world), [(7, 12)], "the head has passed run 12");
    let dead: Vec<_> = world.machine.dead_ranges();
    let all = Change::Removed { queue, level: Level(0), first: LogIndex(0), last: LogIndex(12) };
    assert_eq!(dead, [all], "a start removes all of it again");
}

#[test]
fn the_clock_never_goes_back_and_a_message_keeps_its_stamp() {
    let mut world = World::new();
    let queue = create(&mut world);
    world.time = 500;
    fill(&mut world, queue, 0..1);
    world.time = 400;
    fill(&mut world, queue, 1..2);
    assert_eq!(world.machine.time(), Timestamp(500));
    attach(&mut world, queue, a(), 1, None);
    let key = RecordKey::Consumer(queue, ConsumerId { session: a(), number: 1 });
    let Some(Record::Consumer(record)) = world.machine.record(key) else { panic!("no consumer") };
    let stamps: Vec<u64> = record.unacked.values().map(|it| it.enqueued_at.0).collect();
    assert_eq!(stamps, [500, 400], "as the stored heads have it, whoever reads them");
}

#[test]
fn a_run_that_is_missing_in_the_store_is_fatal() {
    let mut world = World::new();
    let queue = create(&mut world);
    for round in 0..5 {
        fill(&mut world, queue, round * 20..round * 20 + 20);
    }
    let records = world.machine.keys();
    let records = records.into_iter().map(|key| (key, world.machine.record(key).unwrap()));
    let mut machine = Machine::load(Home::Group(GroupId(1)), records).unwrap();
    let mut builder = EntryBuilder::default();
    let origin = Origin::Session { session: a(), first: Sequence(1), mark: Sequence(1) };
    builder.batch(origin, &[Step::Other(Command::Get { queue, timeout_default_ms: None })]);
    let mut store = TestStore::default();
    store.change(world.index, &[]);
    let entry = builder.build(0);
    let failed = machine.apply(world.index.next(), &entry, &store, &mut Output::default());
    let text = failed.unwrap_err().to_string();
    assert!(text.contains("100 fresh messages") && text.contains("show 0"), "{text}");
}

#[test]
fn records_that_contradict_each_other_are_refused() {
    let mut world = World::new();
    let queue = create(&mut world);
    attach(&mut world, queue, a(), 1, Some(2));
    fill(&mut world, queue, 0..5);
    let keys = world.machine.keys();
    let all: Vec<_> =
        keys.into_iter().map(|key| (key, world.machine.record(key).unwrap())).collect();
    let load = |records: Vec<(RecordKey, Record)>| {
        Machine::load(Home::Group(GroupId(1)), records).map(|_| ()).map_err(|it| it.0)
    };
    assert_eq!(load(all.clone()), Ok(()));
    let without = |gone: fn(&RecordKey) -> bool| {
        all.iter().filter(|(key, _)| !gone(key)).cloned().collect::<Vec<_>>()
    };
    let text = load(without(|key| matches!(key, RecordKey::Queue(_)))).unwrap_err();
    assert!(text.contains("of no queue"), "{text}");
    let text = load(without(|key| matches!(key, RecordKey::Consumer(..)))).map(|()| String::new());
    assert_eq!(text, Ok(String::new()), "a consumer that is full has no turn");
    let mut wrong = all.clone();
    for (_, record) in &mut wrong {
        if let Record::Queue(record) = record {
            record.service_queue.push_back(ConsumerId { session: a(), number: 7 });
        }
    }
    assert!(load(wrong).unwrap_err().contains("turn too many"));
    let mut wrong = all.clone();
    for (_, record) in &mut wrong {
        if let Record::Queue(record) = record {
            record.levels.get_mut(&Level(0)).unwrap().head_position = 1;
        }
    }
    assert!(load(wrong).unwrap_err().contains("not below a head"));
    let wrong = vec![(RecordKey::Node(NodeId(1)), all[0].1.clone())];
    assert!(load(wrong).unwrap_err().contains("another kind"));
}

#[test]
fn work_left_over_for_a_queue_that_has_ended_is_dropped() {
    let mut world = World::new();
    let queue = create(&mut world);
    fill(&mut world, queue, 0..6_000);
    attach(&mut world, queue, a(), 1, None);
    let left = |world: &World| match world.machine.record(RecordKey::Group) {
        Some(Record::Group(record)) => record.left_over,
        other => panic!("{other:?}"),
    };
    assert_eq!(left(&world), [LeftOver::CheckOut { queue }]);
    world.one(a(), Command::EndQueue { queue, if_unused: false, if_empty: false });
    world.leader(Command::Continue);
    assert_eq!(left(&world), []);
}

#[test]
fn an_entry_without_anything_still_moves_the_digest() {
    let mut world = World::new();
    let before = world.machine.digest();
    world.apply(&Entry::default());
    assert_ne!(world.machine.digest(), before);
    assert_eq!(world.out.changes, [Change::Record(RecordKey::Group)]);
}

#[test]
fn a_name_stays_with_its_queue() {
    let mut world = World::new();
    let queue = create(&mut world);
    let ResourceName { vhost, name } = world.machine.queue(queue).unwrap().name;
    assert_eq!((vhost.as_str(), name.as_str()), ("/", "q"));
    attach(&mut world, queue, a(), 4, Some(3));
    let consumers = world.machine.consumers(queue);
    assert_eq!(consumers.len(), 1);
    assert_eq!((consumers[0].consumer.number, consumers[0].terms.clone()), (4, terms(Some(3))));
}
