//! What brokers, this node among them, tell and ask this node.

#[cfg(test)]
mod tests;

use crate::{
    base::Base,
    leader::local::says_gone,
    names::Granting,
    node::Node,
    peers::{Own, PeerMessage, PeerReply, PeerRequest, Process, Retry, request_wire, wire},
};
use bytes::Bytes;
use quorate_queue::Answer;
use quorate_rpc::{Origin, PeerHello, Responder};
use quorate_types::{BootNumber, GroupId, Home, NodeId};
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
        for own in messages {
            match own {
                Own::Message(message) => self.receive(context.me, context.boot, message),
                Own::Request(request, asker) => {
                    // The asker may have given up.
                    self.answer(context.process(), request, |reply| drop(asker.send(reply)));
                }
            }
        }
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
            PeerMessage::Clocks(clocks) => self.base.led.clocks_received(clocks, |group| {
                let leader = self.base.proposers.leader(Home::Group(group));
                leader.filter(|(leader, _)| *leader == from).map(|(_, term)| term)
            }),
            PeerMessage::Counts(counts) => self.clients.counts.received(from, counts),
            PeerMessage::Reply { addresses, message } => {
                addresses.iter().for_each(|address| self.replies.deliver_reply(address, &message));
            }
        }
    }

    /// Takes a request from another node. Must not block.
    pub(crate) fn request(
        self: &Arc<Self>,
        origin: &Origin,
        service: u32,
        payload: Bytes,
        responder: Responder,
    ) {
        let from = Process::from(origin.peer);
        match request_wire::decode_request(service, payload, self.base.context.me) {
            // Without a reply, dropping the responder refuses the request.
            Ok(request) => self.answer(from, request, move |reply| {
                responder.answer(request_wire::encode_reply(reply));
            }),
            Err(error) => {
                let from = from.node;
                tracing::warn!(%from, service, %error, "cannot decode a request of another node");
                responder.refuse(Bytes::from(error.to_string()));
            }
        }
    }

    /// Has a request carried out by a task, which sends the reply if there is one.
    fn answer(
        self: &Arc<Self>,
        from: Process,
        request: PeerRequest,
        send: impl FnOnce(PeerReply) + Send + 'static,
    ) {
        let node = Arc::clone(self);
        self.base.context.spawn(async move {
            if let Some(reply) = node.reply(from, request).await {
                send(reply);
            }
        });
    }

    /// The one match on requests of nodes. `None` refuses: this node does not lead the catalog.
    async fn reply(&self, from: Process, request: PeerRequest) -> Option<PeerReply> {
        let Base { bodies, catalog_client, lease, .. } = &self.base;
        Some(match request {
            PeerRequest::Bodies { messages, term } => {
                PeerReply::Bodies(bodies.own_copies(&messages, term))
            }
            PeerRequest::Catalog(commands) => {
                let (index, replies) = catalog_client.propose_here(commands).await?;
                PeerReply::Catalog { index, replies }
            }
            PeerRequest::Lease { applied, renews } => {
                let not_before = match lease.grant(from, applied, renews).await? {
                    Granting::Granted => None,
                    Granting::NotYet(index) => Some(index),
                };
                PeerReply::Lease { all_applied: lease.all_applied(), not_before }
            }
            PeerRequest::Settings(index) => {
                PeerReply::Settings(self.queues.configurer.settings_at(index).await)
            }
            PeerRequest::Requester(address) => {
                PeerReply::Requester(self.replies.has_requester(&address))
            }
        })
    }
}
