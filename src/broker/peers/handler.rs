//! What brokers, this node among them, tell and ask this node.

#[cfg(test)]
mod tests;

use crate::{
    base::Base,
    leader::local::says_gone,
    names::Granting,
    node::Node,
    pb,
    peers::{PeerMessage, Retry, wire},
};
use bytes::Bytes;
use quorate_catalog::CatalogEntry;
use quorate_queue::Answer;
use quorate_rpc::{Origin, PeerHello, Responder};
use quorate_storage::codec;
use quorate_types::{BootNumber, CatalogIndex, GroupId, Home, NodeId};
use std::sync::Arc;

impl Node {
    /// Takes a notice from another node. Must not block.
    pub(crate) fn notice(
        self: &Arc<Self>,
        origin: &Origin,
        service: u32,
        group: GroupId,
        payload: Bytes,
    ) {
        let PeerHello { node: from, boot, .. } = origin.peer;
        match wire::decode_message(service, group, payload, from, self.base.context.me) {
            Ok(message) => self.receive(from, boot, message),
            Err(error) => {
                tracing::warn!(%from, service, %error, "cannot decode a message of another node");
            }
        }
    }

    /// Takes what this node tells itself; runs as long as the node.
    pub(crate) async fn receive_own(self: Arc<Self>) {
        loop {
            self.base.context.peers.arrived().await;
            while self.receive_own_round() {
                // Others have their turn between two entries of connection-bound queues.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes the messages that this node has sent to itself, and works one entry of its
    /// connection-bound queues off; false if there was nothing.
    fn receive_own_round(self: &Arc<Self>) -> bool {
        let Base { context, led, .. } = &self.base;
        for retry in context.peers.take_retries() {
            context.spawn(Arc::clone(self).retry(retry));
        }
        let messages = context.peers.take_own();
        if messages.is_empty() && !led.local.has_work() {
            return false;
        }
        messages.into_iter().for_each(|message| self.receive(context.me, context.boot, message));
        let own = led.own_home();
        led.local.run_one(|output| {
            if says_gone(output) {
                self.exclusive.gone.notify_one();
            }
            led.applied(own);
            self.leader.perform(own, output);
        });
        true
    }

    /// Takes the messages that this node has sent to itself, and those that follow from them.
    #[cfg(test)]
    pub(crate) fn receive_own_now(self: &Arc<Self>) {
        while self.receive_own_round() {}
    }

    /// Sends what a full lane had refused.
    async fn retry(self: Arc<Self>, retry: Retry) {
        let Base { context, led, proposers, .. } = &self.base;
        context.peers.until_retry(retry).await;
        match retry {
            Retry::Leadership(home, to) => {
                if let Some(term) = led.leading(home) {
                    self.leader.announce(home, term, Some(to));
                }
            }
            Retry::Consumers(home, leader) => {
                let known = proposers.leader(home);
                if let Some((_, term)) = known.filter(|(known, _)| *known == leader) {
                    self.front.reattach_all(home, leader, term);
                }
            }
            Retry::GetTimedOut(home, get) => self.leader.send_get_timed_out(home, get),
        }
    }

    /// Takes an answer to one of this node's batches.
    fn take_answer(&self, home: Home, answer: Answer) {
        match answer {
            Answer::Answered { session, first, last, other } => {
                self.front.answered(home, session, first, last, other);
            }
            Answer::Want { session, want } => self.base.proposers.wanted(home, session, want),
            Answer::Fenced { session } => self.cluster.fenced(session),
            answer @ (Answer::Transferred { .. } | Answer::TransfersWanted { .. }) => {
                self.letters.answered(answer);
            }
        }
    }

    /// The one match on messages of nodes, this one's own among them. Must not block.
    fn receive(self: &Arc<Self>, from: NodeId, boot: BootNumber, message: PeerMessage) {
        match message {
            PeerMessage::Batch { home, batch } => self.base.led.take_batch(home, batch),
            PeerMessage::Answer { home, answer } => self.take_answer(home, answer),
            PeerMessage::Deliveries { home, deliveries } => self.front.deliver(home, deliveries),
            PeerMessage::LeaderAnnounced { home, term } => self.front.announced(home, from, term),
            PeerMessage::Reattach { home, term, consumers } => {
                self.leader.reattach(home, term, &consumers, from);
            }
            PeerMessage::Applied(index) => {
                self.base.lease.applied(from, boot, index);
                self.base.lease.report_all_applied();
            }
            PeerMessage::AllApplied(index) => self.base.lease.note_all_applied(index),
            PeerMessage::Room { home, queue, messages } => {
                self.letters.room_received(home, queue, messages)
            }
            PeerMessage::Shortage(shortage) => self.alarms.alarm(from, shortage),
            PeerMessage::LeaderContact(groups) => {
                for (group, term) in groups {
                    self.front.leader_contacted(Home::Group(group), from, term);
                }
            }
            PeerMessage::Clocks(clocks) => self.base.led.clocks_received(clocks),
            PeerMessage::Counts(counts) => self.clients.counts.received(from, counts),
            PeerMessage::Reply { addresses, message } => {
                addresses.iter().for_each(|address| self.replies.deliver_reply(address, &message));
            }
        }
    }

    /// Answers a request of another node. Must not block.
    pub(crate) fn request(
        self: &Arc<Self>,
        origin: &Origin,
        service: u32,
        group: GroupId,
        payload: Bytes,
        responder: Responder,
    ) {
        let from = origin.peer;
        let node = Arc::clone(self);
        match service {
            wire::BODIES => {
                self.base
                    .context
                    .spawn(async move { node.base.bodies.answer(from.node, payload, responder) });
            }
            wire::REQUESTER => {
                if let Some(answer) = self.replies.requester_for(from.node, payload) {
                    responder.answer(answer);
                }
            }
            wire::CATALOG => {
                self.base.context.spawn(async move {
                    node.catalog_request(from.node, payload, responder).await;
                });
            }
            wire::LEASE => {
                self.base.context.spawn(async move {
                    let Some(request) = wire::decode::<pb::LeaseRequest>(payload, from.node) else {
                        return;
                    };
                    let applied = CatalogIndex(request.applied);
                    let granting =
                        node.base.lease.grant(from.node, from.boot, applied, request.renews);
                    let reach = match granting.await {
                        Some(Granting::Granted) => None,
                        Some(Granting::NotYet(reach)) => Some(reach.0),
                        None => return,
                    };
                    let answer =
                        pb::LeaseResponse { all_applied: node.base.lease.all_applied().0, reach };
                    responder.answer(wire::encode(&answer));
                });
            }
            wire::SETTINGS => {
                self.base.context.spawn(async move {
                    node.queues.configurer.answer(from.node, payload, responder).await;
                });
            }
            unknown => {
                tracing::warn!(from = %from.node, %group, service = unknown, "unknown request");
                responder.refuse(Bytes::from_static(b"unknown service"));
            }
        }
    }

    async fn catalog_request(self: &Arc<Self>, from: NodeId, payload: Bytes, responder: Responder) {
        let Some(request) = wire::decode::<pb::CatalogRequest>(payload, from) else { return };
        let commands = match codec::catalog::decode_entry(&request.entry) {
            Ok(CatalogEntry { commands, .. }) => commands,
            Err(error) => {
                tracing::warn!(%from, %error, "cannot decode catalog commands");
                return;
            }
        };
        let bytes = request.entry.len();
        if let Some((index, replies)) = self.base.catalog_client.propose_here(commands, bytes).await
        {
            let replies = codec::catalog_reply::encode_replies(&replies);
            responder.answer(wire::encode(&pb::CatalogResponse { index: index.0, replies }));
        }
    }
}
