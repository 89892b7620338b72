//! Connection-bound queues: the same machine in the memory of one node (NAM 8).

use crate::world::{Step, World, heads, name, session};
use quorate_queue::{
    Answer, Batch, Command, Entry, Machine, Origin, QueueConfig, Record, RecordKey, Reply, Run,
    TransferAnswer,
};
use quorate_types::{
    GroupId, Home, LetterHome, Level, NodeId, QueueId, QueueType, Sequence, SessionId, StartNumber,
};

fn create(world: &mut World, bound: Option<u64>) -> Reply {
    let config = QueueConfig::plain(QueueType::Classic);
    world.one(session(3, 44), Command::CreateQueue { name: name("reply"), config, bound })
}

#[test]
fn nam_8_an_id_is_node_start_and_the_number_drawn_for_it() {
    let mut world = World::with(Machine::new_local(NodeId(3), StartNumber(44)));
    let id = |position| QueueId { home: Home::Node(NodeId(3)), index: 44, position };
    assert_eq!(create(&mut world, Some(u64::MAX)), Reply::Created(id(u64::MAX)));
    assert_eq!(create(&mut world, Some(7)), Reply::Created(id(7)));
    assert_eq!(create(&mut world, Some(7)), Reply::Gone, "there is one of this id");
    assert_eq!(create(&mut world, None), Reply::Gone);
}

#[test]
fn messages_go_through_as_in_a_group() {
    let mut world = World::with(Machine::new_local(NodeId(3), StartNumber(44)));
    let Reply::Created(queue) = create(&mut world, Some(7)) else { panic!("not created") };
    let messages = heads(&[7, 8]);
    world.run(session(3, 44), &[Step::Enqueue { queue, level: Level(0), messages }]);
    let reply = world.one(session(3, 44), Command::Get { queue, timeout_default_ms: None });
    let Reply::Got(got) = reply else { panic!("{reply:?}") };
    assert_eq!((got.message.position, got.ready), (0, 1));
}

/// Another node's session goes on over the starts of this node, and what is below its mark has been
/// answered (SES 3).
#[test]
fn nam_8_a_session_of_another_node_begins_at_its_mark() {
    let mut world = World::with(Machine::new_local(NodeId(3), StartNumber(44)));
    let session = session(1, 7);
    let origin =
        |first, mark| Origin::Session { session, first: Sequence(first), mark: Sequence(mark) };
    let create = |bound| {
        let config = QueueConfig::plain(QueueType::Classic);
        Step::Other(Command::CreateQueue { name: name("reply"), config, bound: Some(bound) })
    };
    let want = [Answer::Want { session, want: Sequence(58) }];
    assert_eq!(world.send(origin(60, 58), &[create(60)]), want, "58 and 59 are under way");
    let first = world.send(origin(58, 58), &[create(58), create(59)]);
    assert!(matches!(first[..], [Answer::Answered { .. }]), "{first:?}");
    assert_eq!(world.send(origin(58, 58), &[create(58), create(59)]), first, "a repeat");
    let next = world.send(origin(60, 60), &[create(60)]);
    assert!(matches!(next[..], [Answer::Answered { .. }]), "{next:?}");
    assert_eq!(world.machine.queues().count(), 3);
}

/// Letters for another start of the node count nothing in the stream to the present one. Otherwise the next
/// letters of that stream would pass for repeats that were taken.
#[test]
fn let_1_each_start_of_a_node_has_a_stream_of_its_own() {
    let mut world = World::with(Machine::new_local(NodeId(3), StartNumber(44)));
    let Reply::Created(queue) = create(&mut world, Some(7)) else { panic!("not created") };
    let from = LetterHome::Group(GroupId(1));
    let start = |start| LetterHome::Start(SessionId { node: NodeId(3), start: StartNumber(start) });
    let mut letters = |queue, first: u64, count: u64| {
        let run = Run { queue, level: Level(0), messages: heads(&vec![1; count as usize]) };
        let transfer = |first| Command::Transfer { run: 0, first, attempt: 1 };
        let commands = (0..count as u32).map(transfer).collect();
        let origin = Origin::Letters { from, first: Sequence(first), mark: Sequence(first) };
        let batches = vec![Batch { origin, commands }];
        world.apply(&Entry { runs: vec![run], batches, ..Entry::default() });
        let record = world.machine.record(RecordKey::Source(from));
        let last = record.map(|record| match record {
            Record::Source(source) => source.last.0,
            other => panic!("{other:?}"),
        });
        let ready = world.machine.queue(QueueId { index: 44, ..queue }).map(|queue| queue.ready);
        (world.out.answers.clone(), last, ready)
    };
    let gone = |number| (Sequence(number), TransferAnswer::Gone);
    for other in [43, 45] {
        let answer = Answer::Transferred {
            from,
            by: start(other),
            first: Sequence(501),
            last: Sequence(502),
            other: vec![gone(501), gone(502)],
        };
        let sent = letters(QueueId { index: other, ..queue }, 501, 2);
        assert_eq!(sent, (vec![answer], None, Some(0)), "start {other}");
    }
    let (first, last, other) = (Sequence(1), Sequence(3), Vec::new());
    let taken = Answer::Transferred { from, by: start(44), first, last, other };
    assert_eq!(letters(queue, 1, 3), (vec![taken], Some(3), Some(3)));
}
