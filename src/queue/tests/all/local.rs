//! Connection-bound queues: the same machine in the memory of one node (NAM 8).

use crate::world::{Step, World, heads, name, session};
use quorate_queue::{Command, Machine, QueueConfig, Reply};
use quorate_types::{Home, Level, NodeId, QueueId, QueueType, StartNumber};

fn create(world: &mut World) -> QueueId {
    let config = QueueConfig::plain(QueueType::Classic);
    match world.one(session(3, 44), Command::CreateQueue { name: name("reply"), config }) {
        Reply::Created(queue) => queue,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nam_8_an_id_is_node_start_and_count() {
    let mut world = World::with(Machine::new_local(NodeId(3), StartNumber(44)));
    let id = |position| QueueId { home: Home::Node(NodeId(3)), index: 44, position };
    let first = create(&mut world);
    let second = create(&mut world);
    assert_eq!([first, second], [id(0), id(1)]);
    world.one(
        session(3, 44),
        Command::EndQueue { queue: second, if_unused: false, if_empty: false },
    );
    assert_eq!(create(&mut world), id(2), "never used again");
}

#[test]
fn messages_go_through_as_in_a_group() {
    let mut world = World::with(Machine::new_local(NodeId(3), StartNumber(44)));
    let queue = create(&mut world);
    let messages = heads(&[7, 8]);
    world.run(session(3, 44), &[Step::Enqueue { queue, level: Level(0), messages }]);
    let reply = world.one(session(3, 44), Command::Get { queue, timeout_default_ms: None });
    let Reply::Got(got) = reply else { panic!("{reply:?}") };
    assert_eq!((got.message.position, got.ready), (0, 1));
}
