//! What the links bring: Raft's messages go to the groups, everything else to the broker.

use crate::Broker;
use bytes::Bytes;
use quorate_raft::Inbox;
use quorate_rpc::{Cause, LinkHandler, Origin, PeerHello, Responder};
use quorate_types::{BootNumber, GroupId, NodeId};
use std::sync::Arc;

struct Handler {
    inbox: Inbox,
    broker: Broker,
}

impl Broker {
    /// The handler of this node's links, which hands on to the groups' inbox what is theirs.
    #[must_use]
    pub fn link_handler(&self, inbox: Inbox) -> Arc<dyn LinkHandler> {
        Arc::new(Handler { inbox, broker: self.clone() })
    }
}

impl LinkHandler for Handler {
    fn request(
        &self,
        origin: &Origin,
        service: u32,
        group: GroupId,
        payload: Bytes,
        responder: Responder,
    ) {
        if self.inbox.serves(service) {
            self.inbox.request(origin, service, group, payload, responder);
        } else {
            self.broker.0.request(origin, service, payload, responder);
        }
    }

    fn notice(&self, origin: &Origin, service: u32, group: GroupId, payload: Bytes) {
        if self.inbox.serves(service) {
            self.inbox.notice(origin, service);
        } else {
            self.broker.0.notice(origin, service, group, payload);
        }
    }

    fn connected(&self, peer: &PeerHello) {
        self.inbox.connected(peer);
        self.broker.0.connected(peer);
    }

    fn lost(&self, node: NodeId, boot: BootNumber, cause: Cause) {
        self.inbox.lost(node, boot, cause);
        self.broker.0.cluster.lost(node, boot, cause);
    }
}
