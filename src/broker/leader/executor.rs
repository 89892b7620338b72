//! Performs the effects of applied entries, where this node leads: the one match on `Effect`
//! (STO 7).

use crate::{
    leader::{Leader, leaderships::Leadership},
    peers::{
        PeerMessage, Retry,
        message::{Attachment, Deliveries, GetId},
    },
};
use quorate_queue::{Answer, Command, Effect, Output};
use quorate_types::{Home, NodeId, Term};
use std::{collections::BTreeMap, sync::Arc};

/// What is sent to each node after an entry has been applied.
struct ToNodes {
    term: Term,
    nodes: BTreeMap<NodeId, Deliveries>,
}

impl ToNodes {
    fn at(&mut self, node: NodeId) -> &mut Deliveries {
        self.nodes.entry(node).or_insert_with(|| Deliveries::none(self.term))
    }
}

impl Leader {
    /// Performs the effects of one entry, and sends its answers; no effects if this node does not
    /// lead.
    pub(crate) fn perform(self: &Arc<Self>, home: Home, output: &Output) {
        {
            let Some(mut leadership) = self.base.led.leaderships.of(home) else { return };
            let Some(term) = leadership.term else { return };
            let mut to_nodes = ToNodes { term, nodes: BTreeMap::new() };
            for effect in &output.effects {
                perform_one(self, home, effect, &leadership, &mut to_nodes);
            }
            // Sent under the lock: a re-attaching consumer gets what it holds before newer
            // deliveries (DLV 2).
            for (to, deliveries) in to_nodes.nodes {
                if !send(self, home, to, deliveries) {
                    leadership.detach_all_of(to);
                }
            }
        }
        for answer in &output.answers {
            send_answer(self, home, answer);
        }
    }

    /// Sends a consumer that re-attaches what it holds above `last` (DLV 2). Does nothing if this
    /// node does not lead in that term.
    pub(crate) fn reattach(
        self: &Arc<Self>,
        home: Home,
        term: Term,
        consumers: &[Attachment],
        from: NodeId,
    ) {
        let Some(mut leadership) = self.base.led.leaderships.of(home) else { return };
        if leadership.term != Some(term) {
            return;
        }
        let mut what = Deliveries::none(term);
        self.base.led.with_machine(home, |machine| {
            for &Attachment { consumer, last, number } in consumers {
                match machine.unacked_after(consumer, last) {
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
        if !send(self, home, from, what) {
            leadership.detach_all_of(from);
        }
    }
}

/// Performs one effect, or adds it to what is sent to the nodes.
fn perform_one(
    leader: &Leader,
    home: Home,
    effect: &Effect,
    leadership: &Leadership,
    to_nodes: &mut ToNodes,
) {
    match effect {
        Effect::Deliver(delivery) => {
            if let Some(attachment) = leadership.attachment(delivery.consumer) {
                to_nodes.at(delivery.consumer.session.node).push(delivery, attachment);
            }
        }
        Effect::CancelConsumer { consumer } => {
            to_nodes.at(consumer.session.node).cancelled.push(*consumer);
        }
        Effect::QueueEnded { queue } => leader.queues.queue_ended(*queue),
        Effect::DeadLettersChanged => leader.letters.wake(),
        Effect::DeadLettersCounted { queue_type, strategy, fact, count } => {
            leader.base.context.counters.dead_letters(*queue_type, *strategy, *fact, *count);
        }
        Effect::Room { queue, to, messages } => leader.letters.send_room(*queue, *to, *messages),
        Effect::WakeAt { queue, time } => leader.timer.wake_at(*queue, *time),
        Effect::ConsumerTimedOut { consumer, last } => {
            to_nodes.at(consumer.session.node).timed_out.push((*consumer, *last));
        }
        Effect::GetTimedOut { session, sequence } => {
            to_nodes.at(session.node).timed_out_gets.push((*session, *sequence));
        }
        Effect::ContinueSoon => {
            let led = Arc::clone(&leader.base.led);
            // In a task of its own, not within apply: the entry that is being applied must finish
            // first.
            leader.base.context.spawn(async move { led.propose_to(home, vec![Command::Continue]) });
        }
    }
}

/// Sends deliveries; false if the lane to that node is full. This node then announces itself to it
/// again once the lane has room.
fn send(leader: &Leader, home: Home, to: NodeId, deliveries: Deliveries) -> bool {
    if deliveries.is_empty() {
        return true;
    }
    let gets = deliveries.timed_out_gets.clone();
    // Deliveries that are lost with a connection are requested again by re-attaching (DLV 2).
    let retry = Retry::Leadership(home, to);
    let sent = leader
        .base
        .context
        .peers
        .send_or_retry(PeerMessage::Deliveries { home, deliveries }, retry);
    if !sent {
        // Gets do not re-attach, so the time-out of each one is sent again separately.
        gets.into_iter()
            .for_each(|get| leader.base.context.peers.retry_later(Retry::GetTimedOut(home, get)));
    }
    sent
}

fn send_answer(leader: &Leader, home: Home, answer: &Answer) {
    let to = match answer {
        Answer::Answered { session, .. }
        | Answer::Want { session, .. }
        | Answer::Fenced { session } => session.node,
        Answer::Transferred { from, .. } | Answer::TransfersWanted { from, .. } => {
            // If no leader is known, the next leader sends the transfer again and gets another
            // answer.
            let Some(leader) = leader.base.proposers.leader_of(*from) else { return };
            leader
        }
    };
    // A lost answer is sent again when the command is repeated (SES 3).
    leader.base.context.peers.send(to, PeerMessage::Answer { home, answer: answer.clone() });
}

impl Leader {
    /// Notifies a client's node that the message of a get was held for too long (CTO-05).
    pub(crate) fn send_get_timed_out(&self, home: Home, get: GetId) {
        let deliveries = Deliveries { timed_out_gets: vec![get], ..Deliveries::default() };
        let retry = Retry::GetTimedOut(home, get);
        self.base.context.peers.send_or_retry(PeerMessage::Deliveries { home, deliveries }, retry);
    }

    /// Announces to all nodes, this one included, or to one node, that this node leads the home
    /// (SES 5).
    pub(crate) fn announce(&self, home: Home, term: Term, to: Option<NodeId>) {
        let linked = self.base.context.peers.all_connected().into_iter().map(|peer| peer.node);
        for node in
            linked.chain([self.base.context.me]).filter(|node| to.is_none_or(|to| to == *node))
        {
            let retry = Retry::Leadership(home, node);
            self.base
                .context
                .peers
                .send_or_retry(PeerMessage::LeaderAnnounced { home, term }, retry);
        }
    }
}
