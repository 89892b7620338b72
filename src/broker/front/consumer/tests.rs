//! A consumer against a model of its queue: leaders change, messages from them are lost with their
//! connection or arrive late, groups fall silent, bodies are missing, and limits are reached.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::{client::Delivered, testing};
use futures::FutureExt;
use proptest::{collection::vec, prelude::*};
use quorate_storage::{StoredMessage, codec::message};
use quorate_types::{GroupId, Message};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use tokio::sync::Semaphore;

mod fetches;

/// Deliveries of a leader of that term, for that attachment.
type Sent = (Term, u32, Vec<Delivery>);

fn new_consumer(connection: &Arc<ConnectionState>, no_ack: bool) -> Arc<FrontConsumer> {
    let channel = ChannelId { number: 1, opened: 0 };
    let new = ConsumerProperties {
        id: ConsumerId { session: testing::SESSION, number: 1 },
        queue: QueueId { home: Home::Group(GroupId(1)), index: 1, position: 0 },
        queue_type: QueueType::Quorum,
        has_delivery_limit: false,
        channel,
        tag: ShortString::default(),
        no_ack,
        prefetch: 0,
        exclusive: false,
        windowed: true,
        arguments: FieldTable::default(),
        room: None,
    };
    let consumer = Arc::new(FrontConsumer::new(new, Arc::clone(connection)));
    let held = &mut connection.held.lock().channels;
    held.entry(channel).or_default().consumers.insert(consumer.about.id, Arc::clone(&consumer));
    consumer
}

/// The stored message of that delivery number.
fn stored(number: u64) -> bytes::Bytes {
    let body = number.to_be_bytes().to_vec().into();
    message::encode(&Message { body, ..Message::default() })
}

fn number_of(delivered: &Delivered) -> u64 {
    u64::from_be_bytes(delivered.message.body.as_ref().try_into().unwrap())
}

/// The state of the group, whichever node leads it.
#[derive(Debug, Default)]
struct Queue {
    assigned: u64,
    /// Assigned to the consumer, and not settled.
    held: BTreeMap<u64, Delivery>,
    /// Given back by the front end.
    released: BTreeSet<u64>,
}

struct World {
    consumer: Arc<FrontConsumer>,
    queue: Queue,
    term: Term,
    /// The attachment number that the leader knows.
    attachment: Option<u32>,
    /// In flight: deliveries, re-attachments, and commands of the front end.
    link: VecDeque<Sent>,
    late: Vec<Sent>,
    asked: VecDeque<(Term, Attachment)>,
    commands: VecDeque<Command>,
    is_in_contact: bool,
    missed: bool,
    fetches: Arc<Semaphore>,
    shown: Vec<u64>,
    unsettled: BTreeSet<u64>,
    limit: Option<u64>,
    /// Unsettled deliveries of the channel's other consumers.
    others: u64,
    /// Deliveries up to this number were held too long.
    timed_out: u64,
    /// The body that is being fetched.
    fetching: DeliveryNumber,
    cancel: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// This node has the bodies of all deliveries; else every fifth is fetched.
    has_all: bool,
}

impl World {
    fn new(no_ack: bool, limit: Option<u16>) -> Self {
        let connection = testing::lone_connection();
        let consumer = new_consumer(&connection, no_ack);
        connection.held.lock().channels.get_mut(&consumer.about.channel).unwrap().limit = limit;
        Self {
            consumer,
            queue: Queue::default(),
            term: Term(1),
            attachment: None,
            link: VecDeque::new(),
            late: Vec::new(),
            asked: VecDeque::new(),
            commands: VecDeque::new(),
            is_in_contact: true,
            missed: false,
            fetches: Arc::new(Semaphore::new(1)),
            shown: Vec::new(),
            unsettled: BTreeSet::new(),
            limit: limit.map(u64::from),
            others: 0,
            timed_out: 0,
            fetching: DeliveryNumber(0),
            cancel: None,
            has_all: false,
        }
    }

    fn assign(&mut self, count: u64) {
        let mut new = Vec::new();
        for _ in 0..count {
            self.queue.assigned += 1;
            let number = self.queue.assigned;
            let mut delivery = testing::delivery(&self.consumer, number);
            delivery.counts.acquired = u32::from(number.is_multiple_of(2));
            self.queue.held.insert(number, delivery);
            new.push(delivery);
        }
        if let Some(attachment) = self.attachment {
            self.link.push_back((self.term, attachment, new));
        }
    }

    fn hand(&mut self) {
        if let Some((term, attachment, deliveries)) = self.link.pop_front() {
            self.consumer.deliver(term, attachment, &deliveries);
        }
    }

    /// Messages over a former connection, or of a former leader: in order for each attachment.
    fn hand_late(&mut self, at: usize) {
        let chosen = self.late.get(at % self.late.len().max(1)).map(|sent| (sent.0, sent.1));
        let first = self.late.iter().position(|sent| Some((sent.0, sent.1)) == chosen);
        if let Some(first) = first {
            let (term, attachment, deliveries) = self.late.remove(first);
            self.consumer.deliver(term, attachment, &deliveries);
        }
    }

    /// A full lane refuses the newest delivery; the leader waits for a re-attachment (DLV 2).
    fn refuse_newest(&mut self) {
        if self.link.pop_back().is_some() {
            self.attachment = None;
        }
    }

    /// The connection ends: some messages in flight are lost, some are handled late.
    fn lose_link(&mut self, lost: usize) {
        self.lose_under_way(lost);
        // Over the next connection the leader announces itself and sends as before.
        self.reattach(self.term);
    }

    fn lose_under_way(&mut self, lost: usize) {
        let (length, link) = (self.link.len(), std::mem::take(&mut self.link));
        self.late.extend(link.into_iter().take(length.saturating_sub(lost)));
        self.asked.clear();
    }

    fn new_leader(&mut self) {
        self.lose_under_way(0);
        self.attachment = None;
        self.term = Term(self.term.0 + 1);
        self.reattach(self.term);
    }

    fn reattach(&mut self, term: Term) {
        let attachment = self.consumer.reattach(term);
        assert_eq!(attachment.is_some(), term >= self.term, "an old leader is not asked");
        if let Some(attachment) = attachment {
            self.asked.push_back((term, attachment));
        }
    }

    /// The leader handles a re-attachment: it sends what the consumer holds above `last`.
    fn take_reattaching(&mut self) {
        let Some((term, Attachment { last, number, .. })) = self.asked.pop_front() else { return };
        if term != self.term || self.attachment.is_some_and(|known| known > number) {
            return;
        }
        self.attachment = Some(number);
        let held = self.queue.held.range(last.0 + 1..).map(|(_, delivery)| *delivery).collect();
        self.link.push_back((term, number, held));
    }

    fn contact(&mut self, is_in_contact: bool) {
        self.is_in_contact = is_in_contact;
        if is_in_contact && std::mem::take(&mut self.missed) {
            self.reattach(self.term);
        }
    }

    /// The content of this node's store for that message.
    fn look_up(&self, number: u64) -> StoredMessage {
        match number % 5 {
            0 if !self.has_all => StoredMessage::Unknown,
            _ if !self.queue.held.contains_key(&number) => StoredMessage::Absent,
            _ => StoredMessage::Here(stored(number)),
        }
    }

    /// The connection takes what is ready.
    fn take(&mut self, count_max: usize) {
        let Some(consumer) = self.consumer.connection.next_ready() else { return };
        let read = |state: &mut FrontState, count: usize| match state.fetched.take() {
            _ if count == 0 => Vec::new(),
            Some(fetched) => {
                fetched.bodies.iter().take(count).cloned().map(StoredMessage::Here).collect()
            }
            None => {
                let first = state.ready.iter().take(count.min(count_max));
                first.map(|it| self.look_up(it.number.0)).collect()
            }
        };
        let (mut into, mut commands) = (Vec::new(), Vec::new());
        let mut state = consumer.state.lock();
        let may_deliver = || self.is_in_contact;
        let (taken, is_missing) =
            consumer.show(&mut state, may_deliver, read, &mut into, &mut commands);
        assert!(!taken.more || state.listed, "a consumer with more deliveries is listed");
        if let Some(first) = state.ready.front().filter(|_| is_missing) {
            self.fetching = first.number;
            state.fetching = true;
        }
        drop(state);
        self.missed |= !self.is_in_contact;
        if taken.more {
            self.consumer.connection.delivering.ready.lock().push_back(consumer);
        }
        self.commands.extend(commands);
        into.iter().for_each(|delivered| self.note_shown(delivered));
    }

    fn note_shown(&mut self, delivered: &Delivered) {
        let number = delivered.number.0;
        assert!(self.is_in_contact, "DLV 5: {number} is delivered during a silence");
        assert!(self.shown.last() < Some(&number), "{number} is shown after {:?}", self.shown);
        assert!(number <= self.queue.assigned && !self.queue.released.contains(&number));
        assert_eq!(number_of(delivered), number, "another message");
        assert_eq!(delivered.redelivered, number.is_multiple_of(2));
        assert!(!self.consumer.has_ended(), "{number} is shown after the end");
        self.shown.push(number);
        if !self.consumer.about.no_ack {
            self.unsettled.insert(number);
        }
        assert!(number > self.timed_out, "CTO-06: {number} is shown after it timed out");
        let count = self.unsettled.len() as u64 + self.others;
        assert!(self.limit.is_none_or(|limit| count <= limit), "QOS-06: {count} are unsettled");
    }

    /// The queue applies the next command of the front end.
    fn apply(&mut self) {
        // Settles overtake (DLV 6).
        let settles = self.commands.iter().position(|it| matches!(it, Command::Ack { .. }));
        match self.commands.remove(settles.unwrap_or(0)) {
            Some(Command::Ack { numbers, .. }) => {
                for number in numbers.iter().flat_map(|(first, last)| first.0..=last.0) {
                    let was_held = self.queue.held.remove(&number).is_some();
                    assert!(!was_held || self.shown.contains(&number), "{number} was not shown");
                }
            }
            Some(Command::Release { numbers, .. }) => {
                for number in numbers.iter().flat_map(|(first, last)| first.0..=last.0) {
                    assert!(!self.shown.contains(&number), "{number} was shown before");
                    self.queue.held.remove(&number);
                    self.queue.released.insert(number);
                }
            }
            Some(Command::Credit { .. }) | None => {}
            Some(other) => unreachable!("{other:?}"),
        }
    }

    fn settle(&mut self, at: usize) {
        let number = self.unsettled.iter().copied().nth(at % self.unsettled.len().max(1));
        let Some(number) = number else { return };
        self.unsettled.remove(&number);
        self.queue.held.remove(&number);
        let mut held = self.consumer.connection.held.lock();
        held.channels.get_mut(&self.consumer.about.channel).unwrap().unsettled -= 1;
        drop(held);
        let is_last = self.consumer.has_ended() && self.unsettled.is_empty();
        assert_eq!(self.consumer.settled(1), is_last, "nothing is left to remember");
    }

    /// Deliveries up to one number were held too long (CTO-05).
    fn time_out(&mut self, last: u64) {
        let last = last % (self.queue.assigned + 1);
        if last > 0 && !self.consumer.about.no_ack {
            self.commands.extend(self.consumer.timed_out(DeliveryNumber(last)));
            self.timed_out = self.timed_out.max(last);
        }
    }

    /// A message returns to its queue, and is assigned to another consumer.
    fn take_away(&mut self, at: usize) {
        let number = self.queue.held.keys().copied().nth(at % self.queue.held.len().max(1));
        number.map(|number| self.queue.held.remove(&number));
    }

    fn cancel(&mut self) {
        self.consumer.leave();
        self.cancel.get_or_insert_with(|| Box::pin(self.consumer.all_shown()));
    }

    fn end(&mut self) {
        let (shown, _) = self.consumer.end();
        assert!(self.shown.last().copied().unwrap_or(0) <= shown.0, "DLV 4: what was shown stays");
        // The queue releases the messages above that number.
        let above = self.queue.held.split_off(&(shown.0 + 1));
        self.queue.released.extend(above.into_keys());
    }

    /// Others of the channel have this much unsettled, within its limit.
    fn others_hold(&mut self, count: u64) {
        let own = self.unsettled.len() as u64;
        self.others = count.min(self.limit.unwrap_or(0).saturating_sub(own));
        let mut held = self.consumer.connection.held.lock();
        let channel = held.channels.get_mut(&self.consumer.about.channel).unwrap();
        channel.unsettled = own + self.others;
    }

    /// DLV 4: a cancel waits for ready deliveries, and for nothing else.
    fn check_cancel(&mut self) {
        let Some(cancel) = &mut self.cancel else { return };
        let is_done = cancel.as_mut().now_or_never().is_some();
        let is_empty = self.consumer.state.lock().ready.is_empty();
        assert!(is_done || !is_empty, "DLV 4: nothing is left to show, and the cancel still waits");
        if is_done {
            self.cancel = None;
        }
    }

    /// Without further failures everything that the consumer holds has been delivered.
    fn finish(mut self) {
        self.contact(true);
        self.new_leader();
        for _ in 0..10 * (self.queue.assigned + 10) {
            self.take_reattaching();
            self.hand();
            self.take(7);
            self.fetched(true);
            self.apply();
            self.check_cancel();
        }
        assert!(self.cancel.is_none() && self.commands.is_empty());
        if self.consumer.has_ended() {
            return;
        }
        let shown: BTreeSet<_> = self.shown.iter().copied().collect();
        let unseen: Vec<_> = self.queue.held.keys().filter(|it| !shown.contains(it)).collect();
        assert!(unseen.is_empty(), "held and never shown: {unseen:?}; shown: {shown:?}");
        assert!(!self.consumer.about.no_ack || self.queue.held.is_empty(), "{:?}", self.queue.held);
        assert_eq!(self.consumer.state.lock().unsettled, self.unsettled.len() as u64);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Assign(u64),
    Hand,
    HandLate(usize),
    RefuseNewest,
    LoseLink(usize),
    NewLeader,
    Reattach(u64),
    TakeReattaching,
    Contact(bool),
    Take(usize),
    Fetched(bool),
    Apply,
    Settle(usize),
    TimeOut(u64),
    TakeAway(usize),
    OthersHold(u64),
    Cancel,
    End,
}

fn step() -> impl Strategy<Value = Step> {
    let rarely = |step: Step, other: Step| {
        prop::bool::weighted(0.1).prop_map(move |it| if it { step.clone() } else { other.clone() })
    };
    prop_oneof![
        8 => (1..4_u64).prop_map(Step::Assign),
        8 => Just(Step::Hand),
        2 => any::<usize>().prop_map(Step::HandLate),
        1 => Just(Step::RefuseNewest),
        1 => (0..3_usize).prop_map(Step::LoseLink),
        1 => Just(Step::NewLeader),
        3 => (0..2_u64).prop_map(Step::Reattach),
        4 => Just(Step::TakeReattaching),
        2 => prop::bool::weighted(0.7).prop_map(Step::Contact),
        8 => (1..5_usize).prop_map(Step::Take),
        4 => prop::bool::weighted(0.8).prop_map(Step::Fetched),
        6 => Just(Step::Apply),
        3 => any::<usize>().prop_map(Step::Settle),
        1 => any::<u64>().prop_map(Step::TimeOut),
        2 => any::<usize>().prop_map(Step::TakeAway),
        1 => (0..6_u64).prop_map(Step::OthersHold),
        1 => rarely(Step::Cancel, Step::Hand),
        1 => rarely(Step::End, Step::Apply),
    ]
}

impl World {
    fn run(&mut self, step: &Step) {
        match *step {
            Step::Assign(count) => self.assign(count),
            Step::Hand => self.hand(),
            Step::HandLate(at) => self.hand_late(at),
            Step::RefuseNewest => self.refuse_newest(),
            Step::LoseLink(lost) => self.lose_link(lost),
            Step::NewLeader => self.new_leader(),
            Step::Reattach(before) => self.reattach(Term(self.term.0 - before)),
            Step::TakeReattaching => self.take_reattaching(),
            Step::Contact(is_in_contact) => self.contact(is_in_contact),
            Step::Take(count) => self.take(count),
            Step::Fetched(is_found) => self.fetched(is_found),
            Step::Apply => self.apply(),
            Step::Settle(at) => self.settle(at),
            Step::TimeOut(last) => self.time_out(last),
            Step::TakeAway(at) => self.take_away(at),
            Step::OthersHold(count) => self.others_hold(count),
            Step::Cancel => self.cancel(),
            Step::End => self.end(),
        }
        let listed = self.consumer.connection.delivering.ready.lock().len();
        assert!(listed <= 1, "a consumer is listed once");
        self.check_cancel();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// Messages are delivered in order and once, never during a silence, above the channel's limit,
    /// or after the end. In the end everything that the queue assigned has been delivered or given
    /// back, and only delivered messages have been settled.
    #[test]
    fn dlv_1_to_5_and_qos_06_each_delivery_is_shown_once_in_order_or_given_back(
        steps in vec(step(), 1..150),
        no_ack: bool,
        limit in prop::option::weighted(0.3, 1..5_u16),
    ) {
        let mut world = World::new(no_ack, limit);
        world.new_leader();
        steps.iter().for_each(|step| world.run(step));
        world.finish();
    }

    /// DLV 6: without a limit the queue may assign at most 2,000 messages above those delivered,
    /// and never stops while the client takes its deliveries.
    #[test]
    fn dlv_6_the_window_moves_with_what_was_shown(takes in vec(1..700_usize, 1..40), no_ack: bool) {
        let mut world = World { has_all: true, ..World::new(no_ack, None) };
        world.reattach(Term(1));
        world.take_reattaching();
        let mut up_to = world.consumer.up_to().0;
        prop_assert_eq!(up_to, CREDIT_WINDOW);
        for take in takes {
            world.assign(up_to - world.queue.assigned);
            while !world.link.is_empty() {
                world.hand();
            }
            world.take(take);
            world.fetched(true);
            let shown = world.shown.last().copied().unwrap_or(0);
            for command in std::mem::take(&mut world.commands) {
                let Command::Credit { up_to: credit, .. } = command else { continue };
                prop_assert!(credit.0 > up_to && credit.0 <= shown + CREDIT_WINDOW);
                up_to = credit.0;
            }
            prop_assert!(up_to >= shown + CREDIT_WINDOW / 2, "{} after {}", up_to, shown);
        }
    }
}
