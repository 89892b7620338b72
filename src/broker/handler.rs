//! What brokers, this node among them, tell and ask this node.

use crate::{
    local::says_gone,
    names::Granting,
    node::Node,
    pb,
    peers::{PeerMessage, wire},
};
use bytes::Bytes;
use quorate_catalog::CatalogEntry;
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
        match wire::decode_message(service, group, payload, from, self.context.me) {
            Ok(message) => self.receive(from, boot, message),
            Err(error) => {
                tracing::warn!(%from, service, %error, "cannot decode a message of another node");
            }
        }
    }

    /// Takes what this node tells itself; runs as long as the node.
    pub(crate) async fn receive_own(self: Arc<Self>) {
        loop {
            self.context.peers.arrived().await;
            self.receive_own_now();
        }
    }

    /// Takes the messages that this node has sent to itself, and those that follow from them.
    pub(crate) fn receive_own_now(self: &Arc<Self>) {
        loop {
            let messages = self.context.peers.take_own();
            if messages.is_empty() && !self.led.local.has_work() {
                return;
            }
            messages
                .into_iter()
                .for_each(|message| self.receive(self.context.me, self.context.boot, message));
            let own = self.led.own_home();
            self.led.local.run(|output| {
                if says_gone(output) {
                    self.gone.notify_one();
                }
                self.led.applied(own);
                self.perform(own, output);
            });
        }
    }

    /// The one match on messages of nodes, this one's own among them. Must not block.
    fn receive(self: &Arc<Self>, from: NodeId, boot: BootNumber, message: PeerMessage) {
        match message {
            PeerMessage::Batch { home, batch } => self.led.take_batch(home, batch),
            PeerMessage::Answer { home, answer } => self.take_answer(home, answer),
            PeerMessage::Deliveries { home, deliveries } => self.deliver(home, deliveries),
            PeerMessage::LeaderAnnounced { home, term } => self.announced(home, from, term),
            PeerMessage::Reattach { home, term, consumers } => {
                self.reattach(home, term, &consumers, from);
            }
            PeerMessage::Applied(index) => {
                self.lease.applied(from, boot, index);
                self.lease.tell_all_applied();
            }
            PeerMessage::AllApplied(index) => self.lease.note_all_applied(index),
            PeerMessage::Room { home, queue, messages } => {
                self.letters.room_told(home, queue, messages)
            }
            PeerMessage::Shortage(shortage) => self.alarm(from, shortage),
            PeerMessage::Heard(groups) => {
                for (group, term) in groups {
                    self.heard(Home::Group(group), from, term);
                }
            }
            PeerMessage::Clocks(clocks) => self.led.clocks_told(clocks),
            PeerMessage::Counts(counts) => self.counts.told(from, counts),
            PeerMessage::Reply { addresses, message } => {
                addresses.iter().for_each(|address| self.deliver_reply(address, &message));
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
                self.context
                    .spawn(async move { node.bodies.answer(from.node, payload, responder) });
            }
            wire::REQUESTER => {
                if let Some(answer) = self.requester_for(from.node, payload) {
                    responder.answer(answer);
                }
            }
            wire::CATALOG => {
                self.context.spawn(async move {
                    node.catalog_request(from.node, payload, responder).await;
                });
            }
            wire::LEASE => {
                self.context.spawn(async move {
                    let Some(request) = wire::decode::<pb::LeaseRequest>(payload, from.node) else {
                        return;
                    };
                    let applied = CatalogIndex(request.applied);
                    let granting = node.lease.grant(from.node, from.boot, applied, request.renews);
                    let reach = match granting.await {
                        Some(Granting::Granted) => None,
                        Some(Granting::NotYet(reach)) => Some(reach.0),
                        None => return,
                    };
                    let answer =
                        pb::LeaseResponse { all_applied: node.lease.all_applied().0, reach };
                    responder.answer(wire::encode(&answer));
                });
            }
            wire::SETTINGS => {
                self.context.spawn(async move {
                    node.configurer.answer(from.node, payload, responder).await;
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
        if let Some((index, replies)) = self.catalog_client.propose_here(commands, bytes).await {
            let replies = codec::catalog_reply::encode_replies(&replies);
            responder.answer(wire::encode(&pb::CatalogResponse { index: index.0, replies }));
        }
    }
}
