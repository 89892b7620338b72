//! A proposer and its tickets, against a model of the session that a home keeps. The link between
//! them loses, repeats, reorders and refuses batches and answers, and ends. Leaders and sessions
//! change.

use super::{
    home::{Fate, Item, QUEUES, Session, number_of, queue, reply_to_inspect},
    *,
};
use crate::{
    client::Event,
    front::{confirm, connection_state::ConnectionState},
};
use quorate_storage::codec::batch::Sender;
use std::collections::{BTreeMap, BTreeSet};

/// What is in flight to the home, also what was sent to a former leader.
struct Link {
    lane: RefCell<Vec<ProposedBatch>>,
    /// Batches as they were sent first.
    cut: RefCell<BTreeMap<(SessionId, Sequence), ProposedBatch>>,
    room: Cell<usize>,
    is_up: Cell<bool>,
    waited_for: Cell<bool>,
    now: Cell<Instant>,
}

impl Courier for Link {
    fn cut(&self, batch: &ProposedBatch, _: Duration) {
        let Sender::Session(session) = batch.sender else { unreachable!() };
        let mut cut = self.cut.borrow_mut();
        let before = cut.range(..(session, Sequence(u64::MAX))).next_back();
        let before = before.filter(|((of, _), _)| *of == session);
        let next = before.map_or(1, |((_, first), batch)| first.0 + batch.commands.len() as u64);
        assert_eq!(batch.first.0, next, "SES 2: numbers from 1 without gaps");
        cut.insert((session, batch.first), batch.clone());
    }

    fn carry(&self, _: Home, _: NodeId, batch: &Arc<ProposedBatch>) -> Sent {
        if !self.is_up.get() {
            return Sent::Unreachable;
        }
        let mut lane = self.lane.borrow_mut();
        if lane.len() >= self.room.get() {
            return Sent::Full;
        }
        let Sender::Session(session) = batch.sender else { unreachable!() };
        let cut = self.cut.borrow();
        assert_eq!(cut.get(&(session, batch.first)), Some(&**batch), "SES 2: sent as it was cut");
        lane.push(ProposedBatch::clone(batch));
        Sent::OnItsWay
    }

    fn wait_for_room(&self, _: Home, _: NodeId) {
        assert!(!self.waited_for.replace(true), "one waits for room at a time");
    }

    fn now(&self) -> Instant {
        self.now.get()
    }
}

/// The choice among several.
fn pick<T>(from: &[T], at: usize) -> Option<usize> {
    (!from.is_empty()).then(|| at % from.len())
}

struct Front {
    proposer: Proposer,
    link: Link,
    session: SessionId,
    term: Term,
    homes: BTreeMap<SessionId, Session>,
    answers: Vec<Answer>,
    connection: Arc<ConnectionState>,
    next: u64,
    submitted: BTreeMap<SessionId, Vec<Item>>,
    inspections: BTreeMap<u64, oneshot::Receiver<Reply>>,
    /// Numbers of this session that have been answered.
    answered: BTreeSet<Sequence>,
    fates: BTreeMap<u64, Fate>,
    /// Lower numbers belong to ended sessions, with the confirms sent until their end.
    over: (u64, BTreeMap<u64, Fate>),
}

impl Front {
    fn new() -> Self {
        let link = Link {
            lane: RefCell::default(),
            cut: RefCell::default(),
            room: Cell::new(usize::MAX),
            is_up: Cell::new(true),
            waited_for: Cell::new(false),
            now: Cell::new(Instant::now()),
        };
        let held = MemoryBudget::new(1 << 30).account(Share::InFlight);
        Self {
            proposer: Proposer::new(HOME, SESSION, held),
            link,
            session: SESSION,
            term: Term(0),
            homes: BTreeMap::new(),
            answers: Vec::new(),
            connection: testing::lone_connection(),
            next: 0,
            submitted: BTreeMap::new(),
            inspections: BTreeMap::new(),
            answered: BTreeSet::new(),
            fates: BTreeMap::new(),
            over: (0, BTreeMap::new()),
        }
    }

    fn submit(&mut self, item: impl FnOnce(u64) -> Item) -> u64 {
        let number = self.next;
        self.next += 1;
        self.submitted.entry(self.session).or_default().push(item(number));
        number
    }

    fn inspect(&mut self) {
        let number = self.submit(Item::Inspect);
        let (sender, receiver) = oneshot::channel();
        self.inspections.insert(number, receiver);
        let inspect = Command::Inspect { queue: queue(number), renew: false };
        self.proposer.submit(&self.link, |batches| batches.push(inspect, Ticket::Reply(sender)));
    }

    fn settle(&mut self) {
        let number = DeliveryNumber(self.submit(Item::Settle));
        let holder = Holder::Consumer(ConsumerId { session: self.session, number: 1 });
        let settle = Command::Ack { holder, numbers: vec![(number, number)] };
        self.proposer.submit(&self.link, |batches| batches.push_ahead(settle));
    }

    fn publish(&mut self, to: u64, count: usize) {
        for _ in 0..count {
            let number = self.submit(|number| Item::Message { queue: to, number });
            let message = Bytes::copy_from_slice(&number.to_be_bytes());
            self.connection.publishing.in_flight.launched(message.len());
            let ticket = PublishTicket {
                connection: Arc::clone(&self.connection),
                channel: ChannelId { number: 1, opened: 0 },
                confirm_to: ConfirmTo::Client(number),
                mandatory: false,
                count: 1,
                bytes: message.len(),
                shared: None,
            };
            let head = MessageHead { body_bytes: 8, expiration_ms: None };
            let outgoing = Outgoing { queue: queue(to), level: Level(0), head, message, ticket };
            self.proposer.submit(&self.link, |batches| batches.push_message(outgoing));
        }
    }

    /// A batch reaches the home, in any order, and once more later if it is `repeated`.
    fn deliver(&mut self, at: usize, repeated: bool) {
        let mut lane = self.link.lane.borrow_mut();
        let Some(at) = pick(&lane, at) else { return };
        let batch = if repeated { lane.get(at).unwrap().clone() } else { lane.remove(at) };
        let Sender::Session(session) = batch.sender else { unreachable!() };
        let newest = self.homes.keys().next_back().copied().unwrap_or(session);
        if session < newest {
            self.answers.push(Answer::Fenced { session });
            return;
        }
        if session == self.session {
            let below = (1..batch.mark.0).map(Sequence);
            let all = below.into_iter().all(|number| self.answered.contains(&number));
            assert!(all, "SES 3: the mark {} is past an answer that is not had", batch.mark);
        }
        self.answers.push(self.homes.entry(session).or_default().take(session, &batch));
    }

    fn answer(&mut self, at: usize, repeated: bool) {
        let Some(at) = pick(&self.answers, at) else { return };
        let answer =
            if repeated { self.answers.get(at).unwrap().clone() } else { self.answers.remove(at) };
        match answer {
            Answer::Answered { session, first, last, other } => {
                for it in self.proposer.answered(&self.link, session, first, last, other) {
                    assert_eq!(session, self.session, "SES 6: nothing of an old session");
                    self.complete(it);
                }
            }
            Answer::Want { session, want } => {
                self.proposer.wanted(&self.link, session, want);
                if session == self.session {
                    self.check_sent_from(want);
                }
            }
            Answer::Fenced { .. } | Answer::Transferred { .. } | Answer::TransfersWanted { .. } => {
            }
        }
    }

    /// SES 3, 5: everything unanswered from that number on has been sent again, as far as there is
    /// room.
    fn check_sent_from(&self, from: Sequence) {
        let lane = self.link.lane.borrow();
        if !self.link.is_up.get() || lane.len() >= self.link.room.get() {
            return;
        }
        for ((session, first), batch) in self.link.cut.borrow().iter() {
            let last = Sequence(first.0 + batch.commands.len() as u64 - 1);
            let is_open = *session == self.session && !self.answered.contains(first);
            let is_sent = || lane.iter().any(|sent| sent == batch);
            assert!(!is_open || last < from || is_sent(), "{first} is not sent again");
        }
    }

    fn complete(&mut self, answered: Answered) {
        let Answered { sequence, ticket, reply, messages } = answered;
        assert!(self.answered.insert(sequence), "SES 4: {sequence} is answered once");
        match ticket {
            Ticket::None => assert_eq!(reply, Reply::Taken),
            Ticket::Reply(caller) => caller.send(reply).unwrap(),
            Ticket::Publishes(tickets) => {
                let fates = &mut self.fates;
                confirm::finish(&tickets, &reply, &messages, |ticket, place, message| {
                    let number = number_of(&message);
                    assert!(
                        matches!(ticket.confirm_to.after(place), ConfirmTo::Client(it) if it == number)
                    );
                    assert_eq!(fates.insert(number, Fate::RoutedAgain), None);
                });
                self.take_confirms();
            }
            Ticket::Get(_) => unreachable!(),
        }
    }

    fn take_confirms(&mut self) {
        let mut events = Vec::new();
        self.connection.mailbox.take_now(&mut events);
        for event in events {
            let Event::Confirmed { first, last, taken, .. } = event else { continue };
            let fate = if taken { Fate::Taken } else { Fate::Refused };
            let new = (first..=last).all(|number| self.fates.insert(number, fate).is_none());
            assert!(new, "CNF-05: one of {first} to {last} is confirmed twice");
        }
    }

    fn set_room(&mut self, room: usize) {
        self.link.room.set(room);
        if room > self.link.lane.borrow().len() && self.link.waited_for.take() {
            self.proposer.has_room(&self.link);
        }
    }

    /// The connection ends; what was in flight is lost or arrives late.
    fn lose_link(&mut self, is_lost: bool) {
        self.link.is_up.set(false);
        if is_lost {
            self.link.lane.borrow_mut().clear();
        }
        if self.link.waited_for.take() {
            self.proposer.has_room(&self.link);
        }
    }

    /// A leader announces itself over a new connection.
    fn announce(&mut self, term: Term) {
        self.link.is_up.set(true);
        let leader = NodeId(u16::try_from(term.0 % 3 + 1).unwrap());
        let news = self.proposer.announced(&self.link, leader, term);
        assert_eq!(news, term >= self.term, "SES 5: the announcement of an old term is none");
        if news {
            self.check_sent_from(Sequence(0));
        }
        self.term = self.term.max(term);
        assert_eq!(self.proposer.leader().map(|(_, term)| term), Some(self.term));
    }

    /// The start was fenced: the process begins another (SES 6).
    fn restart(&mut self) {
        self.session.start.0 += 1;
        self.proposer.restart(self.session);
        self.answered.clear();
        self.over = (self.next, self.fates.clone());
        let open = std::mem::take(&mut self.inspections).into_iter();
        for (number, mut caller) in open {
            let reply = caller.try_recv();
            let expected = reply_to_inspect(number);
            let given_up = reply == Err(oneshot::error::TryRecvError::Closed);
            assert!(given_up || reply == Ok(expected), "{reply:?}");
        }
    }

    fn pass(&mut self, time: Duration) {
        self.link.now.set(self.link.now.get() + time);
        self.proposer.send_overdue(&self.link);
    }

    /// Without further failures everything is answered, and has been applied once and in order.
    fn finish(mut self) {
        self.announce(Term(self.term.0 + 1));
        self.set_room(usize::MAX);
        for _ in 0..1_000 {
            while !self.link.lane.borrow().is_empty() || !self.answers.is_empty() {
                self.deliver(0, false);
                self.answer(0, false);
            }
            self.pass(PATIENCE_MAX);
            if self.link.lane.borrow().is_empty() {
                break;
            }
        }
        for (number, mut caller) in std::mem::take(&mut self.inspections) {
            assert_eq!(caller.try_recv(), Ok(reply_to_inspect(number)), "inspection {number}");
        }
        assert_eq!(self.proposer.bytes(), 0);
        self.check_fates();
        self.check_order();
    }

    fn check_fates(&self) {
        let (over, before) = &self.over;
        let of_old: BTreeMap<_, _> =
            self.fates.range(..over).map(|(&number, &fate)| (number, fate)).collect();
        assert_eq!(&of_old, before, "SES 6: no publish of an ended session is confirmed");
        let home = self.homes.get(&self.session);
        let expected = home.map(|home| home.fates.clone()).unwrap_or_default();
        let confirmed: BTreeMap<_, _> =
            self.fates.range(over..).map(|(&number, &fate)| (number, fate)).collect();
        assert_eq!(confirmed, expected, "CNF-05: each publish gets its outcome");
        let of_all = |number: &u64| self.homes.values().find_map(|home| home.fates.get(number));
        assert!(before.iter().all(|(number, fate)| of_all(number) == Some(fate)));
        if *over == 0 {
            assert_eq!(self.connection.publishing.in_flight.bytes(), 0, "all has been answered");
        }
    }

    fn check_order(&self) {
        let nothing = Session::default();
        for (session, submitted) in &self.submitted {
            let applied = &self.homes.get(session).unwrap_or(&nothing).applied;
            let of = |items: &[Item], is: &dyn Fn(&Item) -> bool| -> Vec<Item> {
                items.iter().copied().filter(|item| is(item)).collect()
            };
            let check = |is: &dyn Fn(&Item) -> bool| {
                let (asked, done) = (of(submitted, is), of(applied, is));
                assert!(asked.starts_with(&done), "{session:?}: {asked:?}, done {done:?}");
                assert!(*session != self.session || done.len() == asked.len(), "{asked:?}");
            };
            (0..QUEUES).for_each(|queue| check(&|item| item.is_for(queue)));
            check(&|item| matches!(item, Item::Settle(_)));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Inspect,
    Settle,
    Publish(u64, usize),
    Deliver(usize, bool),
    LoseBatch(usize),
    Answer(usize, bool),
    LoseAnswer(usize),
    Room(usize),
    LoseLink(bool),
    /// A term that is later by this much, or one earlier.
    Announce(Option<u64>),
    Restart,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let repeated = || prop::bool::weighted(0.1);
    // Mostly in order: a home makes no progress if everything is out of order.
    let place = || prop_oneof![3 => Just(0), 1 => any::<usize>()];
    prop_oneof![
        4 => Just(Step::Inspect),
        2 => Just(Step::Settle),
        6 => (0..QUEUES, 1..4_usize).prop_map(|(to, count)| Step::Publish(to, count)),
        10 => (place(), repeated()).prop_map(|(at, again)| Step::Deliver(at, again)),
        1 => any::<usize>().prop_map(Step::LoseBatch),
        10 => (place(), repeated()).prop_map(|(at, again)| Step::Answer(at, again)),
        1 => any::<usize>().prop_map(Step::LoseAnswer),
        2 => (0..6_usize).prop_map(Step::Room),
        1 => any::<bool>().prop_map(Step::LoseLink),
        2 => prop::option::weighted(0.8, 0..2_u64).prop_map(Step::Announce),
        1 => prop::bool::weighted(0.3).prop_map(|it| if it { Step::Restart } else { Step::Inspect }),
        2 => (0..3_000_u64).prop_map(Step::Pass),
    ]
}

impl Front {
    fn run(&mut self, step: Step) {
        match step {
            Step::Inspect => self.inspect(),
            Step::Settle => self.settle(),
            Step::Publish(to, count) => self.publish(to, count),
            Step::Deliver(at, repeated) => self.deliver(at, repeated),
            Step::LoseBatch(at) => {
                let mut lane = self.link.lane.borrow_mut();
                pick(&lane, at).map(|at| lane.remove(at));
            }
            Step::Answer(at, repeated) => self.answer(at, repeated),
            Step::LoseAnswer(at) => {
                pick(&self.answers, at).map(|at| self.answers.remove(at));
            }
            Step::Room(room) => self.set_room(room),
            Step::LoseLink(is_lost) => self.lose_link(is_lost),
            Step::Announce(Some(later)) => self.announce(Term(self.term.0 + later)),
            Step::Announce(None) => self.announce(Term(self.term.0.saturating_sub(1))),
            Step::Restart => self.restart(),
            Step::Pass(ms) => self.pass(Duration::from_millis(ms)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// Whatever is lost, repeated or reordered, and however leaders and sessions change: a home
    /// applies every command once and in order, every ticket is answered once with the first
    /// answer, and no command of an ended session is answered.
    #[test]
    fn ses_2_to_6_and_cnf_05_every_command_is_applied_once_and_its_ticket_answered_once(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut front = Front::new();
        steps.into_iter().for_each(|step| front.run(step));
        front.finish();
    }
}
