//! What this node's front end does with what leaders of homes send it: deliveries, answers, and who
//! leads (SES 4, 5; DLV 1, 2, 5).

use crate::{
    client::Delivered,
    front::{FrontEnd, connection_state::ConnectionState},
    peers::{
        PeerMessage, Retry,
        message::{Attachment, Deliveries},
    },
};
use quorate_queue::Delivery;
use quorate_types::{Home, NodeId, Term};
use std::sync::{Arc, atomic::Ordering};

impl FrontEnd {
    /// Hands deliveries to this node's consumers.
    pub(crate) fn deliver(self: &Arc<Self>, home: Home, deliveries: Deliveries) {
        let Deliveries { term, ranges, cancelled, timed_out, timed_out_gets } = deliveries;
        for range in ranges {
            let Some(consumer) = self.clients.consumer(range.first.consumer) else { continue };
            let deliveries: Vec<Delivery> = range.deliveries().collect();
            consumer.deliver(term, range.attachment, &deliveries);
        }
        for id in cancelled {
            if let Some(consumer) = self.clients.consumer(id) {
                self.clients.consumers.remove(id.number);
                consumer.cancelled();
                self.share_room(&consumer.connection, consumer.about.channel);
            }
        }
        for (consumer, last) in timed_out {
            if let Some(consumer) = self.clients.consumer(consumer) {
                let commands = consumer.timed_out(last);
                commands.into_iter().for_each(|command| self.base.proposers.submit(home, command));
            }
        }
        if !timed_out_gets.is_empty() {
            self.gets_timed_out(home, timed_out_gets);
        }
    }
}

impl FrontEnd {
    /// Takes deliveries to be written now, until they have `bytes_max` bytes of bodies (at least one if
    /// any is ready).
    pub(crate) fn take_deliveries(
        self: &Arc<Self>,
        state: &ConnectionState,
        bytes_max: usize,
        deliveries: &mut Vec<Delivered>,
    ) {
        // What becomes ready from here on is announced again.
        state.delivering.announced.store(false, Ordering::Release);
        let first = deliveries.len();
        let mut left =
            bytes_max.saturating_sub(state.delivering.replies.take(bytes_max, deliveries));
        let mut waiting = Vec::new();
        while left > 0 {
            let Some(consumer) = state.next_ready() else { break };
            let taken = consumer.take(self, left, deliveries);
            left = left.saturating_sub(taken.bytes.max(1));
            if taken.more {
                waiting.push(consumer);
            }
        }
        self.publisher.trace_deliveries(state, deliveries.get(first..).unwrap_or_default());
        let more = !waiting.is_empty();
        state.delivering.ready.lock().extend(waiting);
        let untaken =
            || !state.delivering.ready.lock().is_empty() || !state.delivering.replies.is_empty();
        if more || (left == 0 && untaken()) {
            state.announce();
        }
    }

    /// A leader of the home has announced itself, or its streams are new: what is unanswered is
    /// sent again, consumers re-attach (SES 5).
    pub(crate) fn announced(&self, home: Home, leader: NodeId, term: Term) {
        if self.base.proposers.announced(home, leader, term) {
            self.reattach_all(home, leader, term);
            self.letters.send_again(home);
        }
    }

    /// Re-attaches all consumers of a home at its leader.
    pub(crate) fn reattach_all(&self, home: Home, leader: NodeId, term: Term) {
        let consumers = self.clients.consumers.all();
        let of_home = consumers.iter().filter(|one| one.home() == home && one.is_attached());
        let attachments = of_home.filter_map(|consumer| consumer.reattach(term)).collect();
        self.ask_for_deliveries(home, leader, term, attachments);
    }

    /// A notice of the leader of a home has come: a majority had just answered it (DLV 5).
    pub(crate) fn leader_contacted(self: &Arc<Self>, home: Home, leader: NodeId, term: Term) {
        if self.base.proposers.leader(home) == Some((leader, term)) {
            let drop = || self.drop_unshown(home);
            self.leader_contact.contacted(home, drop, || self.reattach_all(home, leader, term));
        }
    }

    /// Drops the undelivered references of all consumers of a home, whose leader was silent for too
    /// long (DLV 5, MEM 4).
    fn drop_unshown(self: &Arc<Self>, home: Home) {
        for consumer in self.clients.consumers.all() {
            if consumer.home() == home && consumer.drop_unshown() {
                self.share_room(&consumer.connection, consumer.about.channel);
            }
        }
    }

    /// Re-attaches consumers at the leader (DLV 2).
    pub(crate) fn ask_for_deliveries(
        &self,
        home: Home,
        leader: NodeId,
        term: Term,
        consumers: Vec<Attachment>,
    ) {
        if !consumers.is_empty() {
            let retry = Retry::Consumers(home, leader);
            self.base
                .context
                .peers
                .send_or_retry(PeerMessage::Reattach { home, term, consumers }, retry);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use quorate_types::GroupId;

    /// DLV 5: an announcement says who leads, not that a majority stands behind it: it is repeated on
    /// every new connection, and by leaders that have lost proposals.
    #[tokio::test]
    async fn dlv_05_only_a_leader_with_a_majority_counts_as_contact() {
        let (node, home, term) = (crate::testing::node(), Home::Group(GroupId(1)), Term(7));
        node.front.announced(home, NodeId(2), term);
        assert!(!node.front.leader_contact.may_deliver(home));
        node.front.leader_contacted(home, NodeId(3), term);
        node.front.leader_contacted(home, NodeId(2), Term(6));
        assert!(!node.front.leader_contact.may_deliver(home), "not from the known leader");
        node.front.leader_contacted(home, NodeId(2), term);
        assert!(node.front.leader_contact.may_deliver(home));
    }

    /// DLV 5, MEM 4: a client that read nothing while the leader was silent is not delivered what
    /// its consumer held before, because the messages may have been given to others meanwhile.
    #[tokio::test(start_paused = true)]
    async fn dlv_05_what_a_client_did_not_read_before_a_silence_is_dropped_at_the_next_contact() {
        let (node, home, term) = (crate::testing::node(), Home::Group(GroupId(1)), Term(7));
        let consumer = crate::testing::consumer(&node);
        node.front.clients.consumers.insert(consumer.about.id.number, Arc::clone(&consumer));
        node.front.announced(home, NodeId(2), term);
        node.front.leader_contacted(home, NodeId(2), term);
        let attachment = consumer.reattach(term).unwrap().number;
        let deliver = || {
            let delivery = crate::testing::delivery(&consumer, 1);
            consumer.deliver(term, attachment, &[delivery]);
        };
        deliver();
        tokio::time::advance(std::time::Duration::from_secs(6)).await;
        node.front.leader_contacted(home, NodeId(2), term);
        // Sent to the attachment before the silence.
        deliver();
        assert!(!consumer.drop_unshown(), "nothing is held");
    }
}
