//! A proposer to the connection-bound queues of a node that starts again and again. Its session goes
//! on while each start of the node knows nothing of it (SES 3, NAM 8).

use super::*;

const NODE: NodeId = LEADER;

fn machine(start: u64) -> Machine {
    Machine::new_local(NODE, StartNumber(start))
}

fn world() -> World {
    World::with(Home::Node(NODE), machine(1), Term(1))
}

impl World {
    /// The node starts again: its queues are gone. Batches under way to the former start and answers
    /// of it may still arrive.
    fn new_start(&mut self) {
        self.term = Term(self.term.0 + 1);
        self.machine = machine(self.term.0);
        self.index = LogIndex(0);
        assert!(self.proposer.announced(&self.lane, NODE, self.term));
    }

    /// The present start is fenced.
    fn end(&mut self) {
        let answered = self.proposer.ended(&self.lane, StartNumber(self.term.0));
        for answered in answered {
            assert_eq!(answered.reply, Reply::Gone);
            let Ticket::Reply(caller) = answered.ticket else { continue };
            caller.send(answered.reply).unwrap();
        }
    }

    /// Every caller has its answer, and what the present start created is there.
    fn all_answered(mut self) {
        self.settle_down();
        for (name, mut receiver) in self.callers {
            let reply = receiver.try_recv();
            assert!(matches!(reply, Ok(Reply::Created(_) | Reply::Gone)), "{name}: {reply:?}");
            if let Ok(Reply::Created(id)) = reply
                && id.index == self.term.0
            {
                assert_eq!(self.machine.queue(id).map(|queue| queue.name), Some(name));
            }
        }
    }
}

#[test]
fn nam_8_commands_follow_to_a_node_that_has_started_again() {
    let mut world = world();
    world.submit(3);
    world.settle_down();
    world.new_start();
    world.submit(2);
    world.settle_down();
    assert_eq!(world.machine.queues().count(), 2);
    world.all_answered();
}

/// The batch was cut before answers to earlier ones had come, so that its mark is an old one.
#[test]
fn nam_8_a_batch_in_flight_is_taken_by_the_next_start() {
    let mut world = world();
    world.submit(1);
    world.submit(1);
    world.deliver();
    world.answer(1);
    world.lose_batch();
    world.new_start();
    world.settle_down();
    assert_eq!(world.machine.queues().count(), 1);
    world.all_answered();
}

/// The former start answered the second batch; its answer to the first was lost, and so is the next one's.
#[test]
fn nam_8_what_was_answered_behind_a_lost_answer_is_sent_again_too() {
    let mut world = world();
    for _ in 0..3 {
        world.submit(1);
    }
    world.deliver();
    world.deliver();
    world.answer(0);
    world.answer(1);
    world.lose_batch();
    world.new_start();
    world.deliver();
    world.answer(0);
    world.settle_down();
    assert_eq!(world.machine.queues().count(), 3, "the second one is made anew, for nobody");
    world.all_answered();
}

#[test]
fn nam_8_when_the_latest_start_is_fenced_its_queues_are_gone() {
    let mut world = world();
    for _ in 0..UNDER_WAY_MAX + 2 {
        world.submit(1);
    }
    world.end();
    for (name, receiver) in &mut world.callers {
        assert_eq!(receiver.try_recv(), Ok(Reply::Gone), "{name}");
    }
    world.callers.clear();
    world.lane.sent.borrow_mut().clear();
    world.new_start();
    world.submit(1);
    world.settle_down();
    assert_eq!(world.machine.queues().count(), 1);
    world.all_answered();
}

#[test]
fn nam_8_the_end_of_a_start_is_nothing_to_commands_for_a_later_one() {
    let mut world = world();
    world.new_start();
    world.submit(1);
    assert!(world.proposer.ended(&world.lane, StartNumber(1)).is_empty());
    world.settle_down();
    assert_eq!(world.machine.queues().count(), 1);
    world.all_answered();
}

/// The catalog copy that tells of the end may be older than the one that named a queue.
#[test]
fn nam_8_a_message_to_a_queue_of_a_later_start_waits_for_it() {
    let world = world();
    publish(&world, 2, 1, 10);
    assert!(world.proposer.ended(&world.lane, StartNumber(1)).is_empty(), "queue 2 is of start 2");
    assert_eq!(world.proposer.ended(&world.lane, StartNumber(2)).len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn ses_3_nam_8_every_command_is_answered_once_whichever_start_it_meets(
        events in prop::collection::vec((event(), 0..12_u8), 1..120),
    ) {
        let mut world = world();
        for (event, chance) in events {
            match (event, chance) {
                (Event::NewTerm, _) => world.new_start(),
                (_, 0) => {
                    world.end();
                    world.new_start();
                }
                (event, _) => world.occurs(event),
            }
        }
        world.all_answered();
    }
}
