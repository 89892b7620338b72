//! Performs what applying hands out, where this node leads: the one match on `Effect` (STO 7).

use crate::{node::Node, pb, untold::Untold, wire};
use parking_lot::Mutex;
use quorate_catalog::Locality;
use quorate_queue::{Answer, Command, Delivery, Effect, Output};
use quorate_rpc::Lane;
use quorate_storage::codec;
use quorate_types::{ConsumerId, DeliveryNumber, Home, NodeId, QueueId, Term};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

/// For each home, which consumers have re-attached in this node's present leadership.
#[derive(Debug)]
pub(crate) struct Executor {
    homes: BTreeMap<Home, Mutex<Leadership>>,
}

#[derive(Debug, Default)]
struct Leadership {
    /// Term that this node leads in and has applied its first entry of.
    term: Option<Term>,
    /// Consumers that were sent what they hold, each with the number of its attachment; others ask
    /// first (DLV 2). Those that are gone are left out now and then.
    attached: HashMap<ConsumerId, u32>,
    /// How many there may be before that is done again.
    attached_max: usize,
    /// When the leadership began.
    since: Option<Instant>,
}

/// So many consumers are remembered before it is looked which of them are gone.
const ATTACHED_MIN: usize = 1_024;

impl Leadership {
    /// A consumer has asked; false if it has asked again since. Whoever ended is not told of one by
    /// one, so that those are forgotten when there may be as many of them as of others.
    fn attach(
        &mut self,
        consumer: ConsumerId,
        number: u32,
        lives: impl Fn(ConsumerId) -> bool,
    ) -> bool {
        if self.attached.get(&consumer).is_some_and(|known| *known > number) {
            return false;
        }
        self.attached.insert(consumer, number);
        if self.attached.len() > self.attached_max.max(ATTACHED_MIN) {
            self.attached.retain(|consumer, _| lives(*consumer));
            self.attached_max = 2 * self.attached.len();
        }
        true
    }

    /// That node has not been told of some deliveries: its consumers are sent none until they have
    /// re-attached, so that none is passed over for a later one.
    fn detach_all_of(&mut self, node: NodeId) {
        self.attached.retain(|consumer, _| consumer.session.node != node);
    }
}

/// What a consumer says when it attaches itself at a leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attachment {
    pub(crate) consumer: ConsumerId,
    /// The last number that it has.
    pub(crate) last: DeliveryNumber,
    /// Grows each time that it has dropped references; those sent for an earlier one are not taken.
    pub(crate) number: u32,
}

/// What is to be sent to one node after an apply.
#[derive(Default)]
struct ToNode {
    ranges: Vec<pb::DeliveryRange>,
    cancelled: Vec<pb::ConsumerId>,
    timed_out: Vec<pb::TimedOut>,
    timed_out_gets: Vec<pb::ConsumerId>,
}

impl Executor {
    pub(crate) fn new(homes: impl Iterator<Item = Home>) -> Self {
        Self { homes: homes.map(|home| (home, Mutex::default())).collect() }
    }

    /// This node leads the home from now on.
    pub(crate) fn lead(&self, home: Home, term: Term) {
        if let Some(leadership) = self.homes.get(&home) {
            let since = Some(Instant::now());
            *leadership.lock() = Leadership { term: Some(term), since, ..Leadership::default() };
        }
    }

    /// It leads it no more.
    pub(crate) fn stop(&self, home: Home) {
        if let Some(leadership) = self.homes.get(&home) {
            *leadership.lock() = Leadership::default();
        }
    }

    /// Term in which this node leads the home.
    pub(crate) fn leading(&self, home: Home) -> Option<Term> {
        self.homes.get(&home).and_then(|leadership| leadership.lock().term)
    }

    /// For how long this node has led the home.
    pub(crate) fn leading_for(&self, home: Home) -> Option<Duration> {
        let since = self.homes.get(&home)?.lock().since?;
        Some(since.elapsed())
    }

    /// Performs what one entry handed out. Nothing if this node does not lead.
    pub(crate) fn perform(&self, node: &Arc<Node>, home: Home, output: &Output) {
        let Some(leadership) = self.homes.get(&home) else { return };
        let mut to_nodes: BTreeMap<NodeId, ToNode> = BTreeMap::new();
        {
            let mut leadership = leadership.lock();
            let Some(term) = leadership.term else { return };
            for effect in &output.effects {
                perform_one(node, home, effect, &leadership, &mut to_nodes);
            }
            // Sent under the lock: what a re-attaching consumer is sent comes before what is
            // newer (DLV 2).
            for (to, what) in std::mem::take(&mut to_nodes) {
                if !send(node, home, term, to, what) {
                    leadership.detach_all_of(to);
                }
            }
        }
        for answer in &output.answers {
            send_answer(node, home, answer);
        }
    }

    /// A consumer asks for what it holds above `last` (DLV 2). `None`: this node does not lead in
    /// that term.
    pub(crate) fn reattach(
        &self,
        node: &Arc<Node>,
        home: Home,
        term: Term,
        consumers: &[Attachment],
        from: NodeId,
    ) {
        let Some(leadership) = self.homes.get(&home) else { return };
        let mut leadership = leadership.lock();
        if leadership.term != Some(term) {
            return;
        }
        let mut what = ToNode::default();
        node.with_machine(home, |machine| {
            for &Attachment { consumer, last, number } in consumers {
                match machine.held_after(consumer, last) {
                    Some(held) => {
                        if !leadership.attach(consumer, number, |id| machine.has_consumer(id)) {
                            continue;
                        }
                        let timed_out = machine.timed_out(consumer);
                        what.timed_out.extend(timed_out.map(|last| timed_out_to(consumer, last)));
                        for one in &held {
                            wire::add_delivery(&mut what.ranges, one, number);
                        }
                    }
                    None => what.cancelled.push(wire::from_consumer_id(consumer)),
                }
            }
        });
        if !send(node, home, term, from, what) {
            leadership.detach_all_of(from);
        }
    }
}

impl Locality for Executor {
    fn is_local(&self, queue: QueueId) -> bool {
        self.leading(queue.home).is_some()
    }

    fn is_known(&self, home: Home) -> bool {
        self.homes.contains_key(&home)
    }
}

/// The one match on `Effect`.
fn perform_one(
    node: &Arc<Node>,
    home: Home,
    effect: &Effect,
    leadership: &Leadership,
    to_nodes: &mut BTreeMap<NodeId, ToNode>,
) {
    match effect {
        Effect::Deliver(delivery) => {
            if let Some(attachment) = leadership.attached.get(&delivery.consumer) {
                let to = to_nodes.entry(delivery.consumer.session.node).or_default();
                wire::add_delivery(&mut to.ranges, delivery, *attachment);
            }
        }
        Effect::CancelConsumer { consumer } => {
            let to = to_nodes.entry(consumer.session.node).or_default();
            to.cancelled.push(wire::from_consumer_id(*consumer));
        }
        Effect::QueueEnded { queue } => node.queue_ended(*queue),
        Effect::DeadLettersChanged => node.letters.wake(),
        Effect::DeadLettersCounted { queue_type, strategy, fact, count } => {
            node.counters.dead_letters(*queue_type, *strategy, *fact, *count);
        }
        Effect::Room { queue, to, messages } => node.tell_room(*queue, *to, *messages),
        Effect::WakeAt { queue, time } => node.wake_at(*queue, *time),
        Effect::ConsumerTimedOut { consumer, last } => {
            let to = to_nodes.entry(consumer.session.node).or_default();
            to.timed_out.push(timed_out_to(*consumer, *last));
        }
        Effect::GetTimedOut { session, sequence } => {
            let to = to_nodes.entry(session.node).or_default();
            // A get is named as a consumer is: by its session and a number.
            let get = ConsumerId { session: *session, number: sequence.0 };
            to.timed_out_gets.push(wire::from_consumer_id(get));
        }
        Effect::ContinueSoon => match home {
            Home::Group(group) => {
                let later = Arc::clone(node);
                // Not from within apply: the entry that is being applied must finish first.
                node.spawn(async move { later.propose_as_leader(group, Command::Continue) });
            }
            Home::Node(_) => node.local.command(Command::Continue),
        },
    }
}

fn timed_out_to(consumer: ConsumerId, last: DeliveryNumber) -> pb::TimedOut {
    pb::TimedOut { consumer: Some(wire::from_consumer_id(consumer)), last: last.0 }
}

/// False if the lane to that node is full; this node announces itself there anew when it is not.
fn send(node: &Arc<Node>, home: Home, term: Term, to: NodeId, what: ToNode) -> bool {
    let ToNode { ranges, cancelled, timed_out, timed_out_gets } = what;
    let ended = cancelled.len() + timed_out.len() + timed_out_gets.len();
    if ranges.is_empty() && ended == 0 {
        return true;
    }
    let gets = timed_out_gets.clone();
    let message = pb::Deliveries { term: term.0, ranges, cancelled, timed_out, timed_out_gets };
    if to == node.me {
        node.deliver(home, message);
        return true;
    }
    // What is lost with a connection is asked for again by re-attaching (DLV 2).
    let anew = Untold::Leadership(home, to);
    let told = node.notify(home, wire::DELIVERIES, wire::encode(&message), anew);
    if !told {
        // Gets do not re-attach, so that each is told by itself.
        for get in gets.into_iter().filter_map(|get| wire::to_consumer_id(Some(get))) {
            node.say_later(Untold::GetTimedOut(home, get));
        }
    }
    told
}

impl Node {
    /// Tells a client's node that what a get took was held for too long (CTO-05).
    pub(crate) fn tell_get_timed_out(&self, home: Home, get: ConsumerId) {
        let timed_out_gets = vec![wire::from_consumer_id(get)];
        let message = pb::Deliveries { timed_out_gets, ..pb::Deliveries::default() };
        let anew = Untold::GetTimedOut(home, get);
        self.notify(home, wire::DELIVERIES, wire::encode(&message), anew);
    }
}

fn send_answer(node: &Arc<Node>, home: Home, answer: &Answer) {
    let to = match answer {
        Answer::Answered { session, .. }
        | Answer::Want { session, .. }
        | Answer::Fenced { session } => session.node,
        Answer::Transferred { from, .. } | Answer::TransfersWanted { from, .. } => {
            // If nobody is known to lead, the next leader sends again and is answered again.
            let Some(leader) = node.leader_of(*from) else { return };
            leader
        }
    };
    if to == node.me {
        node.take_answer(home, answer.clone());
    } else if let Some(links) = node.links.get() {
        let payload = codec::answer::encode_answer(answer);
        let _ = links.notify(to, Lane::Control, wire::ANSWER, wire::group(home), payload);
    }
}

impl Node {
    /// Hands deliveries to this node's consumers.
    pub(crate) fn deliver(self: &Arc<Self>, home: Home, message: pb::Deliveries) {
        let term = Term(message.term);
        for range in message.ranges {
            let Some(consumer) = wire::to_consumer_id(range.consumer) else { continue };
            let Some(consumer) = self.consumer(consumer) else { continue };
            let attachment = range.attachment;
            let deliveries: Vec<Delivery> = wire::deliveries(range).collect();
            consumer.deliver(term, attachment, &deliveries);
        }
        for cancelled in message.cancelled {
            let Some(id) = wire::to_consumer_id(Some(cancelled)) else { continue };
            if let Some(consumer) = self.consumer(id) {
                self.consumers.remove(id.number);
                consumer.cancelled();
                let node = Arc::clone(self);
                // Not from within apply: it proposes.
                self.spawn(async move { node.share_room(&consumer.connection, consumer.channel) });
            }
        }
        let mut commands = Vec::new();
        for timed_out in message.timed_out {
            let consumer = wire::to_consumer_id(timed_out.consumer);
            let Some(consumer) = consumer.and_then(|id| self.consumer(id)) else { continue };
            commands.extend(consumer.timed_out(DeliveryNumber(timed_out.last)));
        }
        if !commands.is_empty() || !message.timed_out_gets.is_empty() {
            let to_id = |id| wire::to_consumer_id(Some(id));
            let gets = message.timed_out_gets.into_iter().filter_map(to_id).collect();
            let node = Arc::clone(self);
            // Not from within apply: it proposes.
            self.spawn(async move {
                commands.into_iter().for_each(|command| node.submit(home, command));
                node.gets_timed_out(home, gets);
            });
        }
    }

    /// Takes an answer to one of this node's batches.
    pub(crate) fn take_answer(self: &Arc<Self>, home: Home, answer: Answer) {
        match answer {
            Answer::Answered { session, first, last, other } => {
                self.answered(home, session, first, last, other);
            }
            Answer::Want { session, want } => {
                if let Some(proposer) = self.proposers.get(&home) {
                    proposer.wanted(&crate::ask::Carrier(self), session, want);
                }
            }
            Answer::Fenced { session } => self.fenced(session),
            answer @ (Answer::Transferred { .. } | Answer::TransfersWanted { .. }) => {
                self.letters_answered(answer);
            }
        }
    }

    /// A leader of the home has announced itself, or its streams are new: what is unanswered is
    /// sent again, consumers re-attach (SES 5).
    pub(crate) fn announced(self: &Arc<Self>, home: Home, leader: NodeId, term: Term) {
        let Some(proposer) = self.proposers.get(&home) else { return };
        if !proposer.announced(&crate::ask::Carrier(self), leader, term) {
            return;
        }
        self.reattach_all(home, leader, term);
        self.send_letters_again(home);
        if home == Home::Node(self.me) {
            self.local.run(self);
        }
    }

    /// Re-attaches all consumers of a home at its leader.
    pub(crate) fn reattach_all(self: &Arc<Self>, home: Home, leader: NodeId, term: Term) {
        let consumers = self.consumers.all();
        let of_home = consumers.iter().filter(|one| one.home() == home && one.is_attached());
        let attachments: Vec<_> = of_home.filter_map(|consumer| consumer.reattach(term)).collect();
        self.ask_for_deliveries(home, leader, term, &attachments);
    }

    /// A leader has been heard that had itself just heard a majority (DLV 5).
    pub(crate) fn heard(self: &Arc<Self>, home: Home, leader: NodeId, term: Term) {
        let Some(proposer) = self.proposers.get(&home) else { return };
        if proposer.leader() == Some((leader, term)) {
            self.hearing.heard(home, || self.reattach_all(home, leader, term));
        }
    }

    /// Re-attaches consumers at the leader (DLV 2).
    pub(crate) fn ask_for_deliveries(
        self: &Arc<Self>,
        home: Home,
        leader: NodeId,
        term: Term,
        consumers: &[Attachment],
    ) {
        if consumers.is_empty() {
            return;
        }
        if leader == self.me {
            self.executor.reattach(self, home, term, consumers, self.me);
            return;
        }
        let consumers = consumers.iter().map(|one| pb::reattach::Consumer {
            consumer: Some(wire::from_consumer_id(one.consumer)),
            last: one.last.0,
            attachment: one.number,
        });
        let message = pb::Reattach { term: term.0, consumers: consumers.collect() };
        let anew = Untold::Consumers(home, leader);
        self.notify(home, wire::REATTACH, wire::encode(&message), anew);
    }

    /// Tells everyone, or one node, that this node leads the home (SES 5).
    pub(crate) fn announce(&self, home: Home, term: Term, to: Option<NodeId>) {
        let Some(links) = self.links.get() else { return };
        let message = pb::LeaderAnnounced { term: term.0, leader: u32::from(self.me.0) };
        let payload = wire::encode(&message);
        for peer in links.all_connected() {
            if to.is_none_or(|to| to == peer.node) {
                let anew = Untold::Leadership(home, peer.node);
                self.notify(home, wire::ANNOUNCE, payload.clone(), anew);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use quorate_types::{GroupId, SessionId, StartNumber};

    /// DLV 5: an announcement says who leads, not that a majority stands behind it: it is repeated on
    /// every new connection, and by leaders that have lost proposals.
    #[tokio::test]
    async fn dlv_05_only_a_leader_that_has_just_heard_a_majority_is_heard() {
        let (node, home, term) = (crate::testing::node(), Home::Group(GroupId(1)), Term(7));
        node.announced(home, NodeId(2), term);
        assert!(!node.hearing.may_show(home));
        node.heard(home, NodeId(3), term);
        node.heard(home, NodeId(2), Term(6));
        assert!(!node.hearing.may_show(home), "not of the leader that is known");
        node.heard(home, NodeId(2), term);
        assert!(node.hearing.may_show(home));
    }

    /// DLV 2: a reference that was lost with a connection is not passed over, though one that was
    /// sent behind it comes first over the next connection.
    #[tokio::test]
    async fn dlv_02_what_is_sent_before_a_re_attaching_is_not_taken_after_it() {
        let consumer = crate::testing::consumer(&crate::testing::node());
        let delivery = |number| crate::testing::delivery(&consumer, number);
        let term = Term(3);
        let first = consumer.reattach(term).unwrap();
        consumer.deliver(term, first.number, &[delivery(1), delivery(2)]);
        let second = consumer.reattach(term).unwrap();
        assert_eq!(second.last, DeliveryNumber(2));
        // 3 was lost; 4 was under way behind it, or sent before the leader knew.
        consumer.deliver(term, first.number, &[delivery(4)]);
        consumer.deliver(term, second.number, &[delivery(3), delivery(4)]);
        assert_eq!(consumer.reattach(term).unwrap().last, DeliveryNumber(4));
        assert!(consumer.reattach(Term(2)).is_none(), "a leader that was looked up before");

        let mut leadership = Leadership::default();
        assert!(leadership.attach(consumer.id, second.number, |_| true));
        assert!(!leadership.attach(consumer.id, first.number, |_| true), "it came late");
    }

    /// DLV 2: of what a full lane refused, nothing is passed over for what came later.
    #[test]
    fn dlv_02_a_node_that_missed_deliveries_gets_none_before_it_re_attaches() {
        let of_node = |node| {
            let session = SessionId { node: NodeId(node), start: StartNumber(1) };
            ConsumerId { session, number: 1 }
        };
        let mut leadership = Leadership::default();
        for node in [2, 3] {
            assert!(leadership.attach(of_node(node), 1, |_| true));
        }
        leadership.detach_all_of(NodeId(2));
        let attached: Vec<_> = leadership.attached.keys().copied().collect();
        assert_eq!(attached, [of_node(3)]);
    }

    /// Clients that consume and cancel, again and again, beside some that stay.
    #[test]
    fn consumers_that_are_gone_are_not_remembered_for_ever() {
        let session = SessionId { node: NodeId(1), start: StartNumber(1) };
        let stays = |number: u64| number < 3_000;
        let mut leadership = Leadership::default();
        for number in 0..100_000 {
            let present = |id: ConsumerId| stays(id.number) || id.number == number;
            leadership.attach(ConsumerId { session, number }, 1, present);
        }
        let kept = leadership.attached.keys().filter(|id| stays(id.number)).count();
        assert_eq!(kept, 3_000, "who stays is remembered");
        assert!(leadership.attached.len() <= 2 * 3_000 + 2, "{}", leadership.attached.len());
    }
}
