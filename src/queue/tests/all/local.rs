//! Connection-bound queues: the same machine in the memory of one node (NAM 8).

use crate::world::{Step, World, heads, name, session};
use quorate_queue::{Command, Machine, QueueConfig, Reply};
use quorate_types::{Home, Level, NodeId, QueueId, QueueType, StartNumber};

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
