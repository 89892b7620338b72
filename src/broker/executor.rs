//! Performs what applying hands out, where this node leads: the one match on `Effect` (STO 7).

use crate::{
    node::Node,
    peers::{
        PeerMessage, Untold,
        message::{Attachment, Deliveries, GetId},
    },
};
use parking_lot::Mutex;
use quorate_catalog::Locality;
use quorate_queue::{Answer, Command, Effect, Output};
use quorate_types::{ConsumerId, Home, NodeId, QueueId, Term};
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

/// What is to be sent to each node after an entry was applied.
struct ToNodes {
    term: Term,
    nodes: BTreeMap<NodeId, Deliveries>,
}

impl ToNodes {
    fn at(&mut self, node: NodeId) -> &mut Deliveries {
        self.nodes.entry(node).or_insert_with(|| Deliveries::none(self.term))
    }
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
        {
            let mut leadership = leadership.lock();
            let Some(term) = leadership.term else { return };
            let mut to_nodes = ToNodes { term, nodes: BTreeMap::new() };
            for effect in &output.effects {
                perform_one(node, home, effect, &leadership, &mut to_nodes);
            }
            // Sent under the lock: what a re-attaching consumer is sent comes before what is
            // newer (DLV 2).
            for (to, deliveries) in to_nodes.nodes {
                if !send(node, home, to, deliveries) {
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
        let mut what = Deliveries::none(term);
        node.led.with_machine(home, |machine| {
            for &Attachment { consumer, last, number } in consumers {
                match machine.held_after(consumer, last) {
                    Some(held) => {
                        if !leadership.attach(consumer, number, |id| machine.has_consumer(id)) {
                            continue;
                        }
                        let timed_out = machine.timed_out(consumer);
                        what.timed_out.extend(timed_out.map(|last| (consumer, last)));
                        held.iter().for_each(|one| what.push(one, number));
                    }
                    None => what.cancelled.push(consumer),
                }
            }
        });
        if !send(node, home, from, what) {
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
    to_nodes: &mut ToNodes,
) {
    match effect {
        Effect::Deliver(delivery) => {
            if let Some(attachment) = leadership.attached.get(&delivery.consumer) {
                to_nodes.at(delivery.consumer.session.node).push(delivery, *attachment);
            }
        }
        Effect::CancelConsumer { consumer } => {
            to_nodes.at(consumer.session.node).cancelled.push(*consumer);
        }
        Effect::QueueEnded { queue } => node.queue_ended(*queue),
        Effect::DeadLettersChanged => node.letters.wake(),
        Effect::DeadLettersCounted { queue_type, strategy, fact, count } => {
            node.context.counters.dead_letters(*queue_type, *strategy, *fact, *count);
        }
        Effect::Room { queue, to, messages } => node.letters.tell_room(*queue, *to, *messages),
        Effect::WakeAt { queue, time } => node.timer.wake_at(*queue, *time),
        Effect::ConsumerTimedOut { consumer, last } => {
            to_nodes.at(consumer.session.node).timed_out.push((*consumer, *last));
        }
        Effect::GetTimedOut { session, sequence } => {
            to_nodes.at(session.node).timed_out_gets.push((*session, *sequence));
        }
        Effect::ContinueSoon => {
            let led = Arc::clone(&node.led);
            // Not from within apply: the entry that is being applied must finish first.
            node.context.spawn(async move { led.propose_to(home, vec![Command::Continue]) });
        }
    }
}

/// False if the lane to that node is full; this node announces itself there anew when it is not.
fn send(node: &Node, home: Home, to: NodeId, deliveries: Deliveries) -> bool {
    if deliveries.is_empty() {
        return true;
    }
    let gets = deliveries.timed_out_gets.clone();
    // What is lost with a connection is asked for again by re-attaching (DLV 2).
    let anew = Untold::Leadership(home, to);
    let told = node.send_or_anew(PeerMessage::Deliveries { home, deliveries }, anew);
    if !told {
        // Gets do not re-attach, so that each is told by itself.
        gets.into_iter().for_each(|get| node.say_later(Untold::GetTimedOut(home, get)));
    }
    told
}

fn send_answer(node: &Node, home: Home, answer: &Answer) {
    let to = match answer {
        Answer::Answered { session, .. }
        | Answer::Want { session, .. }
        | Answer::Fenced { session } => session.node,
        Answer::Transferred { from, .. } | Answer::TransfersWanted { from, .. } => {
            // If nobody is known to lead, the next leader sends again and is answered again.
            let Some(leader) = node.proposers.leader_of(*from) else { return };
            leader
        }
    };
    // An answer that is lost is given again to a repeat (SES 3).
    node.context.peers.send(to, PeerMessage::Answer { home, answer: answer.clone() });
}

impl Node {
    /// Tells a client's node that what a get took was held for too long (CTO-05).
    pub(crate) fn tell_get_timed_out(&self, home: Home, get: GetId) {
        let deliveries = Deliveries { timed_out_gets: vec![get], ..Deliveries::default() };
        let anew = Untold::GetTimedOut(home, get);
        self.send_or_anew(PeerMessage::Deliveries { home, deliveries }, anew);
    }

    /// Tells everyone, this node included, or one node, that this node leads the home (SES 5).
    pub(crate) fn announce(&self, home: Home, term: Term, to: Option<NodeId>) {
        let linked = self.context.peers.all_connected().into_iter().map(|peer| peer.node);
        for node in linked.chain([self.context.me]).filter(|node| to.is_none_or(|to| to == *node)) {
            let anew = Untold::Leadership(home, node);
            self.send_or_anew(PeerMessage::LeaderAnnounced { home, term }, anew);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use quorate_types::{DeliveryNumber, SessionId, StartNumber};

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
