//! The holders of a node that dies, cannot be reached, comes back or ends: `NodeDown`,
//! `NodeSuspected`, `NodeBack`, `NodeTimedOut`, `SessionEnded` (SES 6, DLV 5, Q-62).

use crate::{
    apply::{Apply, sessions_of},
    digest::{self, Step},
    machine::Machine,
    outbox::forget_streams,
    output::RecordKey,
    queue::Queue,
    record::LeftOver,
    store::StoreError,
};
use quorate_types::{ConsumerId, NodeId, PlantedBug, QueueId, Sequence, SessionId, StartNumber};
use std::collections::BTreeSet;

impl Machine {
    /// True if the session's start is fenced (SES 6). Starts count from 1.
    pub(crate) fn is_fenced(&self, session: SessionId) -> bool {
        session.start <= self.fenced(session.node)
    }

    /// `NodeDown`, `SessionEnded`, or a batch of a higher start: starts up to this one are fenced.
    /// All messages that they held are requeued, marked and counted, since it is unknown which of
    /// them clients have seen (NDF-01).
    pub(crate) fn fence(
        &mut self,
        node: NodeId,
        start: StartNumber,
        apply: &mut Apply<'_>,
    ) -> Result<(), StoreError> {
        if self.is_fenced(SessionId { node, start }) {
            return Ok(());
        }
        self.nodes.entry(node).or_default().fenced = start;
        apply.digest.step(Step::Fence, u64::from(node.0), start.0);
        apply.change(RecordKey::Node(node));
        // The suspicion was about a fenced start; the next start is not suspected.
        self.set_suspected(node, false, apply);
        let (first, last) = sessions_of(node, start);
        let ended: Vec<SessionId> = self.sessions.range(first..=last).map(|(id, _)| *id).collect();
        for session in ended {
            self.sessions.remove(&session);
            apply.change(RecordKey::Session(session));
        }
        self.forget_sources(first, last, apply);
        forget_streams(first, last, apply);
        self.lose(first, last, true, apply)
    }

    /// `NodeSuspected` and `NodeBack`: deliveries to the node's consumers stop, and continue (DLV
    /// 5).
    pub(crate) fn set_suspected(&mut self, node: NodeId, suspected: bool, apply: &mut Apply<'_>) {
        if self.nodes.get(&node).is_some_and(|node| node.suspected) == suspected {
            return;
        }
        self.nodes.entry(node).or_default().suspected = suspected;
        let step = if suspected { Step::Suspect } else { Step::Back };
        apply.digest.step(step, u64::from(node.0), 0);
        apply.change(RecordKey::Node(node));
        let (first, last) = sessions_of(node, StartNumber(u64::MAX));
        let consumers: Vec<_> = apply.holders.consumers_of(first, last).collect();
        for (consumer, queue) in consumers {
            let Some(queue) = self.queues.get_mut(&queue) else { continue };
            queue.touch(apply);
            queue.set_suspected(consumer, suspected);
        }
    }

    /// `NodeTimedOut`: the messages of the node's holders are requeued, marked and not counted, and
    /// its consumers are detached (Q-62, NDF-03). No effect if the node has come back before.
    pub(crate) fn node_timed_out(
        &mut self,
        node: NodeId,
        apply: &mut Apply<'_>,
    ) -> Result<(), StoreError> {
        if !self.nodes.get(&node).is_some_and(|node| node.suspected) {
            return Ok(());
        }
        let (first, last) = sessions_of(node, StartNumber(u64::MAX));
        self.lose(first, last, false, apply)
    }

    /// Ends all holders of these sessions: their consumers stop at once. The messages of consumers
    /// and gets are requeued, as many as the budget of this apply allows, the rest by `Continue`.
    fn lose(
        &mut self,
        first: SessionId,
        last: SessionId,
        counted: bool,
        apply: &mut Apply<'_>,
    ) -> Result<(), StoreError> {
        let consumers: Vec<_> = apply.holders.consumers_of(first, last).collect();
        let mut work: BTreeSet<(QueueId, SessionId)> = BTreeSet::new();
        for (consumer, id) in consumers {
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            queue.touch(apply);
            queue.lose(consumer, apply);
            work.insert((id, consumer.session));
        }
        work.extend(apply.holders.gets_of(first, last).map(|(session, queue)| (queue, session)));
        for (queue, session) in PlantedBug::in_hash_map_order(work.into_iter().collect()) {
            if !self.end_if_abandoned(queue, apply) {
                let gets_through = last_get(session, apply);
                apply.leave(LeftOver::RequeueSession { queue, session, gets_through, counted });
            }
        }
        self.take_up(apply)
    }
}

/// The number of the session's newest get that holds a message.
fn last_get(session: SessionId, apply: &Apply<'_>) -> Sequence {
    let range = (session, Sequence(0))..=(session, Sequence(u64::MAX));
    let last = apply.holders.gets.range(range).next_back();
    last.map_or(Sequence(0), |((_, sequence), _)| *sequence)
}

impl Queue {
    fn set_suspected(&mut self, id: ConsumerId, suspected: bool) {
        if let Some(consumer) = self.consumers.get_mut(&id) {
            consumer.suspected = suspected;
        }
        if suspected {
            self.lose_turn(id);
        } else {
            self.regain_turn(id);
        }
    }

    fn lose(&mut self, id: ConsumerId, apply: &mut Apply<'_>) {
        self.cancel(id, apply);
        if let Some(consumer) = self.consumers.get_mut(&id) {
            consumer.lost = true;
        }
        apply.digest.step(Step::Cancel, digest::of_session(id.session), id.number);
        self.change_consumer(id);
        self.forget_if_done(id, apply);
    }

    /// The session's lost consumers that still hold messages, at most `limit`.
    pub(crate) fn lost_consumers(&self, session: SessionId, limit: usize) -> Vec<ConsumerId> {
        let low = ConsumerId { session, number: 0 };
        let high = ConsumerId { session, number: u64::MAX };
        let all = self.consumers.range(low..=high);
        let lost = all.filter(|(_, consumer)| consumer.lost);
        lost.map(|(id, _)| *id).take(limit).collect()
    }
}
