//! What other brokers tell and ask this node: the one match on service numbers.

use crate::{executor::Attachment, grants::Granting, node::Node, pb, wire};
use bytes::Bytes;
use quorate_catalog::CatalogEntry;
use quorate_rpc::{Lane, Origin, Responder};
use quorate_storage::codec;
use quorate_types::{CatalogIndex, DeliveryNumber, GroupId, Home, NodeId, Term};
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
        let from = origin.peer.node;
        match service {
            wire::BATCH => self.batch_from(from, group, &payload),
            wire::ANSWER => match codec::answer::decode_answer(&payload) {
                Ok(answer) => self.take_answer(wire::home(group, from), answer),
                Err(error) => tracing::warn!(%from, %error, "cannot decode an answer"),
            },
            wire::DELIVERIES => {
                if let Some(message) = wire::decode::<pb::Deliveries>(payload, from) {
                    self.deliver(wire::home(group, from), message);
                }
            }
            wire::ANNOUNCE => {
                if let Some(message) = wire::decode::<pb::LeaderAnnounced>(payload, from) {
                    self.announced(wire::home(group, from), from, Term(message.term));
                }
            }
            wire::REATTACH => self.reattach_from(from, group, payload),
            wire::APPLIED => {
                if let Some(message) = wire::decode::<pb::Applied>(payload, from) {
                    self.lease.applied(from, origin.peer.boot, CatalogIndex(message.index));
                    self.tell_all_applied();
                }
            }
            wire::ALL_APPLIED => {
                if let Some(message) = wire::decode::<pb::AllApplied>(payload, from) {
                    self.lease.note_all_applied(CatalogIndex(message.index));
                }
            }
            wire::ROOM => {
                let Some(message) = wire::decode::<pb::Room>(payload, from) else { return };
                let Some(queue) = wire::to_queue_id(message.queue) else { return };
                self.room_told(wire::home(group, self.me), queue, message.messages);
            }
            wire::ALARM => self.alarm_from(from, &payload),
            wire::REPLY => self.reply_from(from, payload),
            wire::HEARD => {
                let Some(message) = wire::decode::<pb::Heard>(payload, from) else { return };
                for one in message.groups {
                    let Ok(group) = u16::try_from(one.group) else { return };
                    self.heard(Home::Group(GroupId(group)), from, Term(one.term));
                }
            }
            wire::CLOCKS => self.clocks_from(from, payload),
            wire::COUNTS => {
                if let Some(message) = wire::decode::<pb::Counts>(payload, from) {
                    self.counts_from(from, message);
                }
            }
            unknown => tracing::warn!(%from, service = unknown, "unknown notification"),
        }
    }

    fn batch_from(self: &Arc<Self>, from: NodeId, group: GroupId, payload: &Bytes) {
        match codec::batch::decode_batch(payload) {
            Ok(batch) => {
                let home = wire::home(group, self.me);
                self.take_batch(home, batch);
                if group == GroupId::CATALOG {
                    self.local.run(self);
                }
            }
            Err(error) => tracing::warn!(%from, %error, "cannot decode a batch of commands"),
        }
    }

    fn reattach_from(self: &Arc<Self>, from: NodeId, group: GroupId, payload: Bytes) {
        let Some(message) = wire::decode::<pb::Reattach>(payload, from) else { return };
        let consumers: Vec<_> = message
            .consumers
            .into_iter()
            .filter_map(|one| {
                let consumer = wire::to_consumer_id(one.consumer)?;
                let (last, number) = (DeliveryNumber(one.last), one.attachment);
                Some(Attachment { consumer, last, number })
            })
            .collect();
        let home = wire::home(group, self.me);
        self.executor.reattach(self, home, Term(message.term), &consumers, from);
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
                self.spawn(async move { node.bodies_for(from.node, payload, responder) })
            }
            wire::REQUESTER => {
                if let Some(answer) = self.requester_for(from.node, payload) {
                    responder.answer(answer);
                }
            }
            wire::CATALOG => self.spawn(async move {
                node.catalog_request(from.node, payload, responder).await;
            }),
            wire::LEASE => self.spawn(async move {
                let Some(request) = wire::decode::<pb::LeaseRequest>(payload, from.node) else {
                    return;
                };
                let applied = CatalogIndex(request.applied);
                let granting = node.grant_lease(from.node, from.boot, applied, request.renews);
                let reach = match granting.await {
                    Some(Granting::Granted) => None,
                    Some(Granting::NotYet(reach)) => Some(reach.0),
                    None => return,
                };
                let answer = pb::LeaseResponse { all_applied: node.all_applied().0, reach };
                responder.answer(wire::encode(&answer));
            }),
            wire::SETTINGS => self.spawn(async move {
                node.settings_request(from.node, payload, responder).await;
            }),
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
        if let Some((index, replies)) = self.propose_here(commands, bytes).await {
            let replies = codec::catalog_reply::encode_replies(&replies);
            responder.answer(wire::encode(&pb::CatalogResponse { index: index.0, replies }));
        }
    }

    /// Tells all nodes that are linked; who is not misses it.
    pub(crate) fn tell_all(&self, service: u32, payload: &Bytes) {
        let Some(links) = self.links.get() else { return };
        for peer in links.all_connected() {
            let group = GroupId::CATALOG;
            let _ = links.notify(peer.node, Lane::Control, service, group, payload.clone());
        }
    }
}
