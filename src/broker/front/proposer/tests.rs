//! A proposer against the sessions of a real queue machine, over a lane that refuses, leaders that
//! drop what they were sent, answers that are lost or come twice, and new terms.
#![expect(clippy::unwrap_used, reason = "tests")]

mod home;
mod link;
mod starts;

use super::*;
use crate::{
    client::ChannelId,
    front::{
        batch::{Outgoing, Ticket},
        confirm::{ConfirmTo, PublishTicket},
    },
    memory::{MemoryBudget, Share},
    testing,
};
use bytes::Bytes;
use proptest::prelude::*;
use quorate_queue::{
    Answer, Command, Machine, MessageHead, MessageStore, Output, QueueConfig, RunHead, StoreError,
};
use quorate_storage::codec::batch;
use quorate_types::{
    ConsumerId, DeliveryNumber, GroupId, Holder, Level, LogIndex, QueueId, QueueType, ResourceName,
    ShortString, Stamp, StartNumber,
};
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};
use tokio::sync::oneshot;

const SESSION: SessionId = SessionId { node: NodeId(2), start: StartNumber(7) };
const HOME: Home = Home::Group(GroupId(1));
const LEADER: NodeId = NodeId(1);

/// The lane to the leader, and the time.
struct Lane {
    sent: RefCell<VecDeque<ProposedBatch>>,
    room: Cell<usize>,
    refused: Cell<u32>,
    waited_for: Cell<bool>,
    now: Cell<Instant>,
}

impl Courier for Lane {
    fn cut(&self, _: &ProposedBatch, _: Duration) {}

    fn carry(&self, _: Home, _: NodeId, batch: &Arc<ProposedBatch>) -> Sent {
        let mut sent = self.sent.borrow_mut();
        if sent.len() >= self.room.get() {
            self.refused.set(self.refused.get() + 1);
            return Sent::Full;
        }
        sent.push_back(ProposedBatch::clone(batch));
        Sent::OnItsWay
    }

    fn wait_for_room(&self, _: Home, _: NodeId) {
        assert!(!self.waited_for.replace(true), "one waits for room at a time");
    }

    fn now(&self) -> Instant {
        self.now.get()
    }
}

/// Nothing is enqueued in this test.
struct NoMessages;

impl MessageStore for NoMessages {
    fn runs(
        &self,
        _: QueueId,
        _: Level,
        _: LogIndex,
        _: LogIndex,
        _: usize,
    ) -> Result<Vec<RunHead>, StoreError> {
        Ok(Vec::new())
    }
}

struct World {
    proposer: Proposer,
    lane: Lane,
    machine: Machine,
    index: LogIndex,
    term: Term,
    answers: VecDeque<Answer>,
    callers: Vec<(ResourceName, oneshot::Receiver<Reply>)>,
}

impl World {
    fn new() -> Self {
        Self::with(HOME, Machine::new(HOME), Term(1))
    }

    fn with(home: Home, machine: Machine, term: Term) -> Self {
        let lane = Lane {
            sent: RefCell::default(),
            room: Cell::new(usize::MAX),
            refused: Cell::new(0),
            waited_for: Cell::new(false),
            now: Cell::new(Instant::now()),
        };
        let held = MemoryBudget::new(1 << 30).account(Share::InFlight);
        let world = Self {
            proposer: Proposer::new(home, SESSION, held),
            lane,
            machine,
            index: LogIndex(0),
            term,
            answers: VecDeque::new(),
            callers: Vec::new(),
        };
        assert!(world.proposer.announced(&world.lane, LEADER, world.term));
        world
    }

    /// The front end creates queues with different names.
    fn submit(&mut self, count: usize) {
        for _ in 0..count {
            let name = ShortString::try_from(format!("queue-{}", self.callers.len())).unwrap();
            let name = ResourceName { vhost: ShortString::from_static("/"), name };
            let config = QueueConfig::plain(QueueType::Quorum);
            let (sender, receiver) = oneshot::channel();
            let bound = match self.proposer.home {
                Home::Node(_) => Some(self.callers.len() as u64),
                Home::Group(_) => None,
            };
            let create = Command::CreateQueue { name: name.clone(), config, bound };
            self.callers.push((name, receiver));
            self.proposer.submit(&self.lane, |batches| batches.push(create, Ticket::Reply(sender)));
        }
    }

    /// The leader takes the next batch from the lane and applies it.
    fn deliver(&mut self) {
        let Some(next) = self.lane.sent.borrow_mut().pop_front() else { return };
        let (entry, _) = batch::merge(vec![next], Stamp::default());
        let mut out = Output::default();
        self.index = self.index.next();
        self.machine.apply(self.index, &entry, &NoMessages, &mut out).unwrap();
        self.answers.extend(out.answers);
    }

    fn lose_batch(&mut self) {
        self.lane.sent.borrow_mut().pop_front();
    }

    /// Delivers the next answer `times` times.
    fn answer(&mut self, times: usize) {
        let Some(answer) = self.answers.pop_front() else { return };
        for _ in 0..times {
            match answer.clone() {
                Answer::Answered { session, first, last, other } => {
                    let answered = self.proposer.answered(&self.lane, session, first, last, other);
                    for answered in answered {
                        let Ticket::Reply(caller) = answered.ticket else { continue };
                        caller.send(answered.reply).unwrap();
                    }
                }
                Answer::Want { session, want } => {
                    self.proposer.wanted(&self.lane, session, want);
                }
                other @ (Answer::Fenced { .. }
                | Answer::Transferred { .. }
                | Answer::TransfersWanted { .. }) => unreachable!("{other:?}"),
            }
        }
    }

    fn occurs(&mut self, event: Event) {
        match event {
            Event::Submit(count) => self.submit(count),
            Event::Deliver => self.deliver(),
            Event::LoseBatch => self.lose_batch(),
            Event::Answer => self.answer(1),
            Event::AnswerTwice => self.answer(2),
            Event::LoseAnswer => self.answer(0),
            Event::Room(room) => self.set_room(room),
            Event::NewTerm => self.new_term(),
            Event::Pass(ms) => self.pass(Duration::from_millis(ms)),
        }
    }

    fn set_room(&mut self, room: usize) {
        self.lane.room.set(room);
        if room > self.lane.sent.borrow().len() && self.lane.waited_for.take() {
            self.proposer.has_room(&self.lane);
        }
    }

    /// A new leader, which has received nothing of what was sent to the old one.
    fn new_term(&mut self) {
        self.term = Term(self.term.0 + 1);
        self.lane.sent.borrow_mut().clear();
        assert!(self.proposer.announced(&self.lane, LEADER, self.term));
    }

    fn pass(&mut self, time: Duration) {
        self.lane.now.set(self.lane.now.get() + time);
        self.proposer.send_overdue(&self.lane);
    }

    /// Without further failures everything must be answered and have been applied once.
    fn finish(mut self) {
        self.settle_down();
        let made = self.machine.queues().count();
        assert_eq!(made, self.callers.len(), "each command is taken exactly once");
        for (name, mut receiver) in self.callers {
            let reply = receiver.try_recv();
            assert!(matches!(reply, Ok(Reply::Created(_))), "{name}: {reply:?}");
            let Ok(Reply::Created(id)) = reply else { continue };
            assert_eq!(self.machine.queue(id).map(|queue| queue.name), Some(name));
        }
    }

    /// Delivers everything until nothing is under way.
    fn settle_down(&mut self) {
        self.set_room(usize::MAX);
        for _ in 0..1_000 {
            let mut delivered = 0;
            while !self.lane.sent.borrow().is_empty() || !self.answers.is_empty() {
                self.deliver();
                self.answer(1);
                delivered += 1;
                assert!(delivered < 10_000, "batches are sent again and again");
            }
            self.pass(PATIENCE_MAX);
            if self.lane.sent.borrow().is_empty() {
                break;
            }
        }
    }
}

#[test]
fn what_the_lane_refuses_is_sent_when_there_is_room() {
    let mut world = World::new();
    world.set_room(1);
    for _ in 0..6 {
        world.submit(1);
    }
    assert_eq!(world.lane.sent.borrow().len(), 1);
    assert!(world.lane.waited_for.get() && world.lane.refused.get() > 0);
    world.deliver();
    world.set_room(3);
    let sent: Vec<_> = world.lane.sent.borrow().iter().map(|batch| batch.first.0).collect();
    assert_eq!(sent, [2, 3], "in order; what waited meanwhile is one batch");
    world.finish();
}

/// Commands of each batch on the lane.
fn sizes(world: &World) -> Vec<usize> {
    world.lane.sent.borrow().iter().map(|batch| batch.commands.len()).collect()
}

#[test]
fn while_rounds_take_long_further_batches_follow_at_intervals() {
    let mut world = World::new();
    for _ in 0..10 {
        world.submit(1);
    }
    assert_eq!(sizes(&world), [1; UNDER_WAY_MAX]);
    world.pass(SLOW_ROUND - Duration::from_millis(1));
    world.submit(1);
    assert_eq!(sizes(&world), [1; UNDER_WAY_MAX], "what waits makes a larger batch");
    world.pass(Duration::from_millis(1));
    world.submit(1);
    world.submit(1);
    assert_eq!(sizes(&world), [1, 1, 1, 1, 8], "and the next one waits");
    for _ in 0..2 * UNDER_WAY_SLOW_MAX {
        world.pass(SLOW_ROUND);
        world.submit(1);
    }
    assert_eq!(sizes(&world).len(), UNDER_WAY_SLOW_MAX);
    world.finish();
}

#[test]
fn ses_3_nothing_is_sent_past_a_batch_that_was_refused() {
    let mut world = World::new();
    world.set_room(0);
    world.submit(1);
    world.submit(1);
    world.lane.room.set(usize::MAX);
    world.submit(1);
    let sent: Vec<_> = world.lane.sent.borrow().iter().map(|batch| batch.first.0).collect();
    assert_eq!(sent, [1, 2]);
    world.finish();
}

#[test]
fn what_a_leader_has_dropped_is_sent_again_after_a_second_then_less_and_less_often() {
    let mut world = World::new();
    world.submit(3);
    while !world.lane.sent.borrow().is_empty() {
        world.lose_batch();
    }
    world.pass(PATIENCE - Duration::from_millis(1));
    assert!(world.lane.sent.borrow().is_empty());
    let mut sent_after = Vec::new();
    for ms in 0..20_000 {
        world.pass(Duration::from_millis(1));
        if !world.lane.sent.borrow().is_empty() {
            world.lose_batch();
            sent_after.push(ms);
        }
    }
    assert_eq!(sent_after, [0, 2_000, 6_000, 14_000]);
    world.finish();
}

#[test]
fn an_answer_that_was_lost_is_given_again() {
    let mut world = World::new();
    world.submit(1);
    world.deliver();
    world.answer(0);
    world.pass(PATIENCE);
    world.finish();
}

#[derive(Clone, Debug)]
enum Event {
    Submit(usize),
    Deliver,
    LoseBatch,
    Answer,
    AnswerTwice,
    LoseAnswer,
    Room(usize),
    NewTerm,
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..4_usize).prop_map(Event::Submit),
        6 => Just(Event::Deliver),
        1 => Just(Event::LoseBatch),
        6 => Just(Event::Answer),
        1 => Just(Event::AnswerTwice),
        1 => Just(Event::LoseAnswer),
        2 => (0..4_usize).prop_map(Event::Room),
        1 => Just(Event::NewTerm),
        2 => (0..3_000_u64).prop_map(Event::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn ses_2_to_5_every_command_is_taken_once_whatever_is_refused_or_lost(
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut world = World::new();
        events.into_iter().for_each(|event| world.occurs(event));
        world.finish();
    }
}

/// Publishes `count` messages of `bytes` bytes to each of the home's first `queues` queues.
fn publish(world: &World, queues: u64, count: usize, bytes: usize) {
    let connection = testing::lone_connection();
    world.proposer.submit(&world.lane, |batches| {
        for index in (0..count).flat_map(|_| 1..=queues) {
            let ticket = PublishTicket {
                connection: Arc::clone(&connection),
                channel: ChannelId { number: 1, opened: 0 },
                confirm_to: ConfirmTo::Nobody,
                mandatory: false,
                count: 1,
                bytes,
                shared: None,
            };
            batches.push_message(Outgoing {
                queue: QueueId { home: HOME, index, position: 0 },
                level: Level(0),
                head: MessageHead::default(),
                message: Bytes::from(vec![0; bytes]),
                ticket,
            });
        }
    });
}

#[test]
fn a_queue_that_shares_its_home_has_as_much_under_way_as_one_that_is_alone() {
    let under_way = |queues: u64| {
        let world = World::new();
        world.proposer.submit(&world.lane, |batches| batches.push_ahead(settle(1)));
        for _ in 0..8 {
            publish(&world, queues, 300, 1_024);
        }
        let batches = world.lane.sent.borrow();
        batches.iter().flat_map(|it| &it.runs).map(|it| it.messages.len()).sum::<usize>()
    };
    assert_eq!(under_way(1), 600);
    assert_eq!(under_way(2), 1_200);
    assert!(under_way(8) < 4_096, "{}", under_way(8));
}

/// Larger rounds cost publishers less, and without consumers they delay nothing.
#[test]
fn publishers_alone_have_more_under_way_until_something_is_settled() {
    let under_way = |settles: bool| {
        let world = World::new();
        if settles {
            world.proposer.submit(&world.lane, |batches| batches.push_ahead(settle(1)));
        }
        for _ in 0..30 {
            publish(&world, 1, 300, 1_024);
        }
        let batches = world.lane.sent.borrow();
        batches.iter().flat_map(|it| &it.runs).map(|it| it.messages.len()).sum::<usize>()
    };
    assert_eq!(under_way(true), 2 * 300);
    assert_eq!(under_way(false), 4 * 300, "as many batches as may be under way at once");
}

fn settle(number: u64) -> Command {
    let holder = Holder::Consumer(ConsumerId { session: SESSION, number: 1 });
    let numbers = vec![(DeliveryNumber(number), DeliveryNumber(number))];
    Command::Ack { holder, numbers }
}

/// DLV 6: a consumer's settles do not wait behind queued publishes, and publishers have no more in
/// flight than a consumer's window can follow.
#[test]
fn dlv_06_settles_overtake_the_publishes_that_wait() {
    let mut world = World::new();
    world.proposer.submit(&world.lane, |batches| batches.push_ahead(settle(0)));
    world.deliver();
    world.answer(1);
    let sent = || world.lane.sent.borrow().len();
    let ask = |number| {
        world.proposer.submit(&world.lane, |batches| batches.push_ahead(settle(number)));
    };
    for _ in 0..8 {
        publish(&world, 1, 1_024, 1_024);
    }
    assert_eq!(sent(), 1, "one round is enough for a window");
    (1..=20).for_each(ask);
    let batches = world.lane.sent.borrow();
    let overtaking: Vec<_> = batches.iter().skip(1).map(|it| it.commands.clone()).collect();
    assert_eq!(overtaking.len(), AHEAD_MAX);
    assert_eq!(overtaking.first(), Some(&vec![settle(1)]));
    let numbers: Vec<_> = batches.iter().map(|it| it.first.0).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
}
