//! The links of one node: what the floors above call, and what calls them.

use crate::{
    accept::{Acceptor, LinkService},
    admission::{Admission, Attempt},
    call::{CallError, NotifyError, PendingCall},
    connection::Connection,
    dial::keep_linked,
    frame::{Head, Outgoing},
    hello::{ClusterCell, PeerHello},
    lane::{Lane, LaneQueue, MESSAGE_BYTES_MAX, PushError},
    payload::Payload,
    peers::{Cause, Lost, Peers},
    rejection::Rejected,
    secret::ClusterSecret,
};
use bytes::Bytes;
use parking_lot::RwLock;
use quorate_types::{BootNumber, GroupId, Incarnation, NodeId};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// What a node's links need to know.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// This node.
    pub me: NodeId,
    /// Boot number of this process.
    pub boot: BootNumber,
    /// Identity of this node's data directory.
    pub incarnation: Incarnation,
    /// The other nodes and their rpc addresses, `host:port`.
    pub peers: BTreeMap<NodeId, String>,
    /// The cluster secret.
    pub secret: ClusterSecret,
    /// The cluster's identity, once it is known.
    pub cluster: ClusterCell,
    /// Octets that may wait in the bulk lane to each of them; a quarter of it in the control lane.
    pub lane_bytes: usize,
}

/// Where a message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The process.
    pub peer: PeerHello,
    /// Counts the streams that this node has accepted: messages with the same number and lane are
    /// in the order in which they were sent, others need not be.
    pub stream: u64,
    /// The lane that it came on.
    pub lane: Lane,
}

/// What the links call. The methods are called from the tasks that read the streams, in the order
/// of each stream: they must not block.
pub trait LinkHandler: Send + Sync + 'static {
    /// A node asks; `responder` takes the answer, now or later.
    fn request(
        &self,
        origin: &Origin,
        service: u32,
        group: GroupId,
        payload: Bytes,
        responder: Responder,
    );

    /// A node tells.
    fn notice(&self, origin: &Origin, service: u32, group: GroupId, payload: Bytes);

    /// Both lanes to this process are open: it can be told and asked.
    fn connected(&self, peer: &PeerHello);

    /// The process can no longer be reached, or is known dead ([`Cause::is_known_dead`]). Of one
    /// process [`Cause::Closed`] may come several times, and after it one of the others, once.
    fn lost(&self, node: NodeId, boot: BootNumber, cause: Cause);
}

/// Takes the answer to one request. Dropped without an answer, it refuses with an empty reason.
#[derive(Debug)]
pub struct Responder {
    id: u64,
    queue: Option<Arc<LaneQueue>>,
}

impl Responder {
    pub(crate) fn new(id: u64, queue: Arc<LaneQueue>) -> Self {
        Self { id, queue: Some(queue) }
    }

    /// Answers.
    pub fn answer(mut self, payload: impl Into<Payload>) {
        self.send(false, payload.into());
    }

    /// Refuses, saying why in the service's own words.
    pub fn refuse(mut self, reason: impl Into<Payload>) {
        self.send(true, reason.into());
    }

    fn send(&mut self, refused: bool, mut payload: Payload) {
        let Some(queue) = self.queue.take() else { return };
        let mut refused = refused;
        if payload.len() > MESSAGE_BYTES_MAX {
            tracing::error!(bytes = payload.len(), "an answer is too large to be sent");
            (refused, payload) = (true, Payload::new());
        }
        queue.push_beyond(Outgoing::new(Head::Response { id: self.id, refused }, payload));
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.send(true, Payload::new());
    }
}

/// What the tasks of a node's links share.
pub(crate) struct Shared {
    pub(crate) config: LinkConfig,
    pub(crate) handler: Arc<dyn LinkHandler>,
    pub(crate) peers: Peers,
    pub(crate) admission: Admission,
    /// The verdict, once there is one.
    rejected: watch::Sender<Option<Rejected>>,
    /// The connection to each node, while both its lanes are open.
    pub(crate) linked: RwLock<BTreeMap<NodeId, Arc<Connection>>>,
    pub(crate) stopping: watch::Sender<bool>,
}

impl Shared {
    /// What this node says of itself.
    pub(crate) fn me(&self) -> PeerHello {
        PeerHello {
            node: self.config.me,
            boot: self.config.boot,
            incarnation: self.config.incarnation,
            cluster: self.config.cluster.get(),
        }
    }

    /// Takes note of what came of dialing a node, and tells if this process is in the wrong place.
    pub(crate) fn note(&self, node: NodeId, attempt: Attempt) {
        if let Some(rejected) = self.admission.note(node, attempt) {
            self.rejected.send_replace(Some(rejected));
        }
    }

    /// Tells the handler of a process that is gone, and drops a connection to it.
    pub(crate) fn tell_lost(&self, lost: Option<Lost>) {
        let Some(Lost { node, boot, cause }) = lost else { return };
        tracing::info!(%node, boot = boot.0, ?cause, "link lost");
        if cause.is_known_dead() {
            let connection = self.linked.read().get(&node).cloned();
            if let Some(connection) = connection.filter(|c| c.peer.boot == boot) {
                connection.close();
            }
        }
        self.handler.lost(node, boot, cause);
    }
}

/// The links of this node to all others. Cheap to clone; they end with [`Links::stop`].
#[derive(Clone)]
pub struct Links(Arc<Shared>);

impl Links {
    /// Starts dialing all peers, for ever: again at once when a connection ends, then every 50 to
    /// 100 ms. Must be called within a tokio runtime; the caller mounts [`Links::service`].
    #[must_use]
    pub fn start(config: LinkConfig, handler: Arc<dyn LinkHandler>) -> Self {
        let shared = Arc::new(Shared {
            peers: Peers::new(config.peers.keys().copied()),
            admission: Admission::new(config.me, config.peers.keys().copied()),
            rejected: watch::Sender::new(None),
            config,
            handler,
            linked: RwLock::default(),
            stopping: watch::Sender::new(false),
        });
        for (node, address) in &shared.config.peers {
            tokio::spawn(keep_linked(Arc::clone(&shared), *node, address.clone()));
        }
        Self(shared)
    }

    /// The gRPC service that the other nodes dial, to be mounted at this node's rpc port.
    #[must_use]
    pub fn service(&self) -> LinkService {
        Acceptor::service(Arc::clone(&self.0))
    }

    /// Asks a node, and waits for the answer, together at most `deadline`. While the lane is full
    /// the call waits; it must not be used where the order of calls matters ([`Links::request`]).
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call(
        &self,
        node: NodeId,
        lane: Lane,
        service: u32,
        group: GroupId,
        payload: impl Into<Payload>,
        deadline: Duration,
    ) -> Result<Bytes, CallError> {
        let payload = payload.into();
        let call = async { self.request(node, lane, service, group, payload).await?.await };
        timeout(deadline, call).await.unwrap_or(Err(CallError::Timeout(node)))
    }

    /// Queues a request, waiting while the lane is full; the future that it gives waits for the
    /// answer. One task's requests are sent in the order of its calls. No deadline: the caller
    /// must have one.
    ///
    /// # Errors
    /// Nothing has been sent.
    pub async fn request(
        &self,
        node: NodeId,
        lane: Lane,
        service: u32,
        group: GroupId,
        payload: impl Into<Payload>,
    ) -> Result<PendingCall, CallError> {
        let payload = payload.into();
        if payload.len() > MESSAGE_BYTES_MAX {
            return Err(CallError::TooLarge(payload.len()));
        }
        let connection = self.connection(node).ok_or(CallError::NotConnected(node))?;
        let (id, pending) = connection.calls.begin();
        let head = Head::Request { id, service, group: u32::from(group.0) };
        let queued = connection.lane(lane).push(Outgoing::new(head, payload)).await;
        queued.map(|()| pending).map_err(|_| CallError::NotConnected(node))
    }

    /// Tells a node. Never waits.
    ///
    /// # Errors
    /// Nothing has been sent. What was sent may be lost with the connection all the same.
    pub fn notify(
        &self,
        node: NodeId,
        lane: Lane,
        service: u32,
        group: GroupId,
        payload: impl Into<Payload>,
    ) -> Result<(), NotifyError> {
        let payload = payload.into();
        if payload.len() > MESSAGE_BYTES_MAX {
            return Err(NotifyError::TooLarge(payload.len()));
        }
        let connection = self.connection(node).ok_or(NotifyError::NotConnected(node))?;
        let head = Head::Notice { service, group: u32::from(group.0) };
        let queued = connection.lane(lane).try_push(Outgoing::new(head, payload));
        queued.map_err(|(error, _)| match error {
            PushError::Closed => NotifyError::NotConnected(node),
            PushError::Full => NotifyError::Full(node),
        })
    }

    /// Names the only data directory that a node is believed with: with another one it is refused
    /// (DESIGN §8). Without this, the first one met since the process started is it. `None`
    /// forgets, for a node that an operator has let back in without its data.
    /// A process that is linked with another one is let go.
    pub fn expect_incarnation(&self, node: NodeId, incarnation: Option<Incarnation>) {
        self.0.peers.expect(node, incarnation);
        if let Some(connection) = self.connection(node)
            && incarnation.is_some_and(|expected| expected != connection.peer.incarnation)
        {
            connection.close();
        }
    }

    /// Resolves when it is certain that this process is in the wrong place: the others reject it
    /// for good, and it has not been one of them since it started. It should end then. One that
    /// a majority has let in goes on for ever, whoever rejects it.
    pub async fn rejected(&self) -> Rejected {
        let mut verdict = self.0.rejected.subscribe();
        match verdict.wait_for(Option::is_some).await.map(|found| (*found).clone()) {
            Ok(Some(rejected)) => rejected,
            // `self` holds the sender, and `None` was not waited for.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// The process that is linked at present, if any.
    #[must_use]
    pub fn connected(&self, node: NodeId) -> Option<PeerHello> {
        self.connection(node).map(|connection| connection.peer)
    }

    /// All processes that are linked at present.
    #[must_use]
    pub fn all_connected(&self) -> Vec<PeerHello> {
        self.0.linked.read().values().map(|connection| connection.peer).collect()
    }

    /// Whether the node's process is known dead, or has never been met: there is none that might
    /// live as far as this node knows.
    #[must_use]
    pub fn has_no_process(&self, node: NodeId) -> bool {
        self.0.peers.present(node).is_none()
    }

    /// This node.
    #[must_use]
    pub fn me(&self) -> NodeId {
        self.0.config.me
    }

    /// The other nodes.
    pub fn peers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.config.peers.keys().copied()
    }

    /// Ends all connections and dials no more. To be called last of all: the others take a node
    /// whose port refuses for dead.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
        for connection in self.0.linked.read().values() {
            connection.close();
        }
    }

    fn connection(&self, node: NodeId) -> Option<Arc<Connection>> {
        self.0.linked.read().get(&node).cloned()
    }
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").field("me", &self.0.config.me).finish_non_exhaustive()
    }
}
