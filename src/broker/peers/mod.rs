//! Messages and requests between brokers, and from a node to itself. Those to another node go over a
//! link, those to this node into its own queue, which one task takes from (`Node::receive_own`). So a
//! sender need not know who leads, holds no lock of the receiver's, and is not called back.

pub(crate) mod handler;
pub(crate) mod links;

pub(crate) mod message;
pub(crate) mod request;
mod request_wire;
mod retry;
pub(crate) mod wire;

pub(crate) use message::PeerMessage;
pub(crate) use request::{PeerReply, PeerRequest};
pub(crate) use retry::Retry;

use parking_lot::Mutex;
use quorate_rpc::{Lane, Links, NotifyError, PeerHello};
use quorate_types::{BootNumber, Incarnation, NodeId};
use std::{collections::BTreeSet, sync::OnceLock, time::Duration};
use tokio::sync::{Notify, oneshot};

/// A process of a node, and the directory that it serves the node with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) node: NodeId,
    pub(crate) boot: BootNumber,
    pub(crate) incarnation: Incarnation,
}

impl From<PeerHello> for Process {
    fn from(PeerHello { node, boot, incarnation, .. }: PeerHello) -> Self {
        Self { node, boot, incarnation }
    }
}

/// What became of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is on its way, but may be lost with the connection.
    OnItsWay,
    /// The lane takes no more just now.
    Full,
    /// The node cannot be reached; its announcement or a new stream will follow (SES 5).
    Unreachable,
}

/// What waits for room in full control lanes.
#[derive(Debug, Default)]
struct Retries {
    /// Each at most once.
    all: BTreeSet<Retry>,
    /// Those of them that nobody waits for yet.
    new: Vec<Retry>,
}

/// What this node sends to itself.
#[derive(Debug)]
pub(crate) enum Own {
    Message(PeerMessage),
    /// A request, and where its reply goes.
    Request(PeerRequest, oneshot::Sender<PeerReply>),
}

/// The nodes of the cluster, as this node reaches them and itself.
#[derive(Debug)]
pub(crate) struct Peers {
    me: NodeId,
    links: OnceLock<Links>,
    /// Messages and requests to this node, in their order.
    own: Mutex<Vec<Own>>,
    /// There are some, or work for connection-bound queues.
    arrived: Notify,
    /// What waits for room in full control lanes.
    retries: Mutex<Retries>,
}

impl Peers {
    /// Of a node that is not linked with any other.
    pub(crate) fn new(me: NodeId) -> Self {
        Self {
            me,
            links: OnceLock::new(),
            own: Mutex::default(),
            arrived: Notify::new(),
            retries: Mutex::default(),
        }
    }

    /// Takes this node's links; false if it has some already.
    pub(crate) fn link(&self, links: Links) -> bool {
        self.links.set(links).is_ok()
    }

    /// This node's links, once it has some.
    pub(crate) fn links(&self) -> Option<&Links> {
        self.links.get()
    }

    /// The process of that node that this one is linked with.
    pub(crate) fn connected(&self, node: NodeId) -> Option<PeerHello> {
        self.links()?.connected(node)
    }

    /// All processes that this one is linked with.
    pub(crate) fn all_connected(&self) -> Vec<PeerHello> {
        self.links().map(Links::all_connected).unwrap_or_default()
    }

    /// Sends a message to a node, which may be this one. Never waits.
    pub(crate) fn send(&self, to: NodeId, message: PeerMessage) -> Sent {
        if to == self.me {
            self.send_to_self(Own::Message(message));
            return Sent::OnItsWay;
        }
        let Some(links) = self.links() else { return Sent::Unreachable };
        let (lane, service, group, payload) = wire::encode_message(&message);
        match links.notify(to, lane, service, group, payload) {
            Ok(()) => Sent::OnItsWay,
            Err(NotifyError::Full(_)) => Sent::Full,
            Err(NotifyError::NotConnected(_)) => Sent::Unreachable,
            Err(error @ NotifyError::TooLarge(_)) => {
                // One message and its commands are far below what a lane takes.
                tracing::error!(%error, node = %to, "cannot send a message to another node");
                Sent::Unreachable
            }
        }
    }

    fn send_to_self(&self, own: Own) {
        self.own.lock().push(own);
        self.arrived.notify_one();
    }

    /// Asks a node, which may be this one, and waits for the reply until `bound` has passed. `None`
    /// also if the node cannot be reached or refuses; it may have carried the request out.
    pub(crate) async fn ask(
        &self,
        node: NodeId,
        request: PeerRequest,
        bound: Duration,
    ) -> Option<PeerReply> {
        if node == self.me {
            let (reply, replied) = oneshot::channel();
            self.send_to_self(Own::Request(request, reply));
            return tokio::time::timeout(bound, replied).await.ok()?.ok();
        }
        let (lane, service, group, payload) = request_wire::encode_request(request);
        let reply = self.links()?.call(node, lane, service, group, payload, bound).await.ok()?;
        request_wire::decode_reply(service, reply)
            .inspect_err(|error| tracing::warn!(%node, service, %error, "cannot decode a reply"))
            .ok()
    }

    /// Sends a message to all other nodes that are linked; who is not misses it.
    pub(crate) fn send_to_others(&self, message: &PeerMessage) {
        let Some(links) = self.links() else { return };
        let (lane, service, group, payload) = wire::encode_message(message);
        for peer in links.all_connected() {
            // What is lost is said again, or made up for when the next connection begins.
            let _ = links.notify(peer.node, lane, service, group, payload.clone());
        }
    }

    /// Sends a message to all nodes that are linked, and to this one.
    pub(crate) fn send_to_all(&self, message: PeerMessage) {
        self.send_to_others(&message);
        self.send(self.me, message);
    }

    /// Resolves when a lane to that node that has refused a message takes some again, or its
    /// connection has ended.
    pub(crate) async fn wait_for_room(&self, node: NodeId, lane: Lane) {
        if let Some(links) = self.links() {
            links.wait_for_room(node, lane).await;
        }
    }

    /// Sends a message. If the lane is full, the message is dropped, `retry` follows when the lane has
    /// room, and false is returned.
    pub(crate) fn send_or_retry(&self, message: PeerMessage, retry: Retry) -> bool {
        let full = self.send(retry.to(), message) == Sent::Full;
        if full {
            self.retry_later(retry);
        }
        !full
    }

    /// Has something sent when the lane has room.
    pub(crate) fn retry_later(&self, retry: Retry) {
        let mut retries = self.retries.lock();
        if retries.all.insert(retry) {
            retries.new.push(retry);
            drop(retries);
            self.arrived.notify_one();
        }
    }

    /// Takes what is to be sent when its lane has room, and has not been taken before.
    pub(crate) fn take_retries(&self) -> Vec<Retry> {
        std::mem::take(&mut self.retries.lock().new)
    }

    /// Resolves when the control lane has room for it, which is to be sent now.
    pub(crate) async fn until_retry(&self, retry: Retry) {
        self.wait_for_room(retry.to(), Lane::Control).await;
        self.retries.lock().all.remove(&retry);
    }

    /// What waits for room.
    #[cfg(test)]
    pub(crate) fn retries(&self) -> BTreeSet<Retry> {
        self.retries.lock().all.clone()
    }

    /// Wakes the task that takes this node's own messages.
    pub(crate) fn wake(&self) {
        self.arrived.notify_one();
    }

    /// Resolves when this node may have messages of its own. Cancel-safe.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Takes this node's messages and requests to itself.
    pub(crate) fn take_own(&self) -> Vec<Own> {
        std::mem::take(&mut *self.own.lock())
    }
}
