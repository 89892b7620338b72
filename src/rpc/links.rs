//! The links of one node: what the floors above call, and what calls them.

use crate::{
    accept::{Acceptor, LinkService},
    admission::{Admission, Attempt},
    call::{CallError, NotifyError, PendingCall},
    connection::Connection,
    dial::keep_linked,
    door::Door,
    frame::{Head, Outgoing},
    hello::{ClusterCell, PeerHello, Refusal, digest_of, examine, hello},
    lane::{Lane, LaneQueue, MESSAGE_BYTES_MAX, PushError},
    payload::Payload,
    peers::{Cause, Lost, Peers},
    rejection::Rejected,
    secret::ClusterSecret,
    sockets::{Network, SimulatedConnect},
    wire,
};
use bytes::Bytes;
use parking_lot::RwLock;
use quorate_types::{BootNumber, GroupId, Incarnation, NodeId};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

/// What a node's links need to know.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Id of this node.
    pub me: NodeId,
    /// Boot number of this process.
    pub boot: BootNumber,
    /// Those of the directory's processes before, as far as it remembers them.
    pub former_boots: Vec<BootNumber>,
    /// Identity of this node's data directory.
    pub incarnation: Incarnation,
    /// The other nodes and their rpc addresses, `host:port`.
    pub peers: BTreeMap<NodeId, String>,
    /// The cluster secret.
    pub secret: ClusterSecret,
    /// The cluster's identity, once it is known.
    pub cluster: ClusterCell,
    /// Bytes that may wait in the bulk lane to each of them; a quarter of it in the control lane.
    pub lane_bytes: usize,
}

/// Where a message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Process that has sent the request.
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

    /// A notice from a node.
    fn notice(&self, origin: &Origin, service: u32, group: GroupId, payload: Bytes);

    /// Both lanes to this process are open: notices and calls reach it.
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

    /// Sends the answer to the request.
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
            tracing::error!(
                bytes = payload.len(),
                "an answer is too large to be sent to another node"
            );
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
    pub(crate) network: Network,
    /// Digest of the nodes that it names.
    members: u64,
    pub(crate) handler: Arc<dyn LinkHandler>,
    pub(crate) peers: Peers,
    pub(crate) admission: Admission,
    /// The verdict, once there is one.
    rejected: watch::Sender<Option<Rejected>>,
    /// Set when this node begins to dial and to accept.
    opened: AtomicBool,
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

    /// What this node says of itself, to `to`.
    pub(crate) fn hello(&self, to: NodeId) -> wire::Hello {
        hello(&self.me(), &self.config.former_boots, self.config.cluster.get(), self.members, to)
    }

    /// What does not depend on what is known of the peer.
    pub(crate) fn examine(&self, theirs: &wire::Hello) -> Result<PeerHello, Refusal> {
        examine(theirs, self.config.me, self.config.cluster.get(), self.members)
    }

    /// Whether this node accepts streams yet.
    pub(crate) fn is_open(&self) -> bool {
        self.opened.load(Ordering::Acquire)
    }

    /// Whether this process is one of a cluster's for certain: a majority has let it in, or it knows
    /// the cluster that it belongs to.
    pub(crate) fn is_member(&self) -> bool {
        self.admission.is_admitted() || self.config.cluster.get().is_some()
    }

    /// Records the outcome of dialing a node, and reports when the cluster rejects this process.
    pub(crate) fn note(&self, node: NodeId, attempt: Attempt) {
        if let Some(rejected) = self.admission.note(node, attempt) {
            self.rejected.send_replace(Some(rejected));
        }
    }

    /// Informs the handler that a process is gone, and drops a connection to it.
    pub(crate) fn report_lost(&self, lost: Option<Lost>) {
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
    /// Links that neither dial nor accept before [`Links::open`]. The caller mounts
    /// [`Links::service`].
    #[must_use]
    pub fn new(config: LinkConfig, handler: Arc<dyn LinkHandler>) -> Self {
        Self::over(Network::Tcp, config, handler)
    }

    /// As [`Links::new`], on a simulated network.
    #[must_use]
    pub fn simulated(
        config: LinkConfig,
        handler: Arc<dyn LinkHandler>,
        connect: SimulatedConnect,
    ) -> Self {
        Self::over(Network::Simulated(connect), config, handler)
    }

    fn over(network: Network, config: LinkConfig, handler: Arc<dyn LinkHandler>) -> Self {
        Self(Arc::new(Shared {
            peers: Peers::new(config.peers.keys().copied()),
            admission: Admission::new(config.me, config.peers.keys().copied()),
            rejected: watch::Sender::new(None),
            members: digest_of(&config.peers.keys().copied().chain([config.me]).collect()),
            config,
            network,
            handler,
            opened: AtomicBool::new(false),
            linked: RwLock::default(),
            stopping: watch::Sender::new(false),
        }))
    }

    /// Accepts streams, and dials all peers, for ever: again at once when a connection ends, then
    /// every 50 to 100 ms. Must be called within a tokio runtime, once.
    pub fn open(&self) {
        let shared = &self.0;
        shared.opened.store(true, Ordering::Release);
        for (node, address) in &shared.config.peers {
            tokio::spawn(keep_linked(Arc::clone(shared), *node, address.clone()));
        }
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

    /// Sends a notice to a node. Never waits.
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
        queued.map_err(|error| match error {
            PushError::Closed => NotifyError::NotConnected(node),
            PushError::Full => NotifyError::Full(node),
        })
    }

    /// Waits until a lane that has refused a notice takes messages again, or its connection has
    /// ended.
    pub async fn wait_for_room(&self, node: NodeId, lane: Lane) {
        if let Some(connection) = self.connection(node) {
            connection.lane(lane).wait_for_room().await;
        }
    }

    /// Names the only data directory that a node is believed with, and a process that it has had:
    /// with another directory, or one that knows nothing of that process, it is refused
    /// (DESIGN §8). Without this, the first one met since the process started is it. `None`
    /// forgets, for a node that an operator has let back in without its data.
    /// A process that is linked with another directory is let go.
    pub fn expect(&self, node: NodeId, known: Option<(Incarnation, BootNumber)>) {
        self.0.peers.expect(node, known);
        let incarnation = known.map(|(incarnation, _)| incarnation);
        if let Some(connection) = self.connection(node)
            && incarnation.is_some_and(|expected| expected != connection.peer.incarnation)
        {
            connection.close();
        }
    }

    /// Resolves when it is certain that this process is in the wrong place: the others reject it
    /// for good, and it has not been one of them since it started. It should end then. One that
    /// a majority has admitted goes on for ever, even if others reject it.
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

    /// Whether that very process of the node lives, as far as this node knows.
    #[must_use]
    pub fn lives(&self, node: NodeId, boot: BootNumber) -> bool {
        self.0.peers.present(node) == Some(boot)
    }

    /// Whether the node's process is known dead, or has never been met: there is none that might
    /// live as far as this node knows.
    #[must_use]
    pub fn has_no_process(&self, node: NodeId) -> bool {
        self.0.peers.present(node).is_none()
    }

    /// The door that the other nodes come in by, for [`crate::Listener::serve`].
    #[must_use]
    pub fn door(&self) -> Door {
        let shared = Arc::downgrade(&self.0);
        let is_admitted = move || shared.upgrade().is_some_and(|shared| shared.is_member());
        Door::new(self.0.config.secret.clone(), is_admitted)
    }

    /// Id of this node.
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
