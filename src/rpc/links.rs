//! The links of one node: the interface to the crates above.

use crate::{
    accept::{Acceptor, LinkService},
    admission::{Admission, Attempt},
    call::{CallError, NotifyError, PendingCall},
    connection::Connection,
    dial::keep_linked,
    door::Door,
    frame::{Head, Outgoing},
    hello::{PeerHello, Refusal, digest_of, examine, hello, knows_epochs, node_id},
    lane::{Lane, LaneQueue, MESSAGE_BYTES_MAX, PushError},
    link_config::LinkConfig,
    machine::MachineCell,
    payload::Payload,
    peers::{Cause, Lost, Peers},
    rejection::{Reason, Rejected},
    roster::{Address, Roster},
    sockets::{Network, SimulatedConnect},
    wire,
};
use bytes::Bytes;
use parking_lot::RwLock;
use quorate_types::{BootNumber, Epoch, GroupId, Incarnation, NodeId};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

/// The origin of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Process that has sent the request.
    pub peer: PeerHello,
    /// Number of the accepted stream: messages with the same number and lane are in the order in
    /// which they were sent, others need not be.
    pub stream: u64,
    /// The lane on which it arrived.
    pub lane: Lane,
}

/// Receiver of the links' events. The methods are called from the tasks that read the streams, in
/// the order of each stream: they must not block.
pub trait LinkHandler: Send + Sync + 'static {
    /// A request of a node; `responder` takes the answer, now or later.
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

    /// The process cannot be reached any more, or is known to be dead ([`Cause::is_known_dead`]).
    /// For one process [`Cause::Closed`] may be reported several times, and after it one of the
    /// others, once.
    fn lost(&self, node: NodeId, boot: BootNumber, cause: Cause);
}

/// Takes the answer to one request. A drop without an answer refuses with an empty reason.
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

    /// Refuses the request, with a reason encoded by the service.
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

/// State shared by the tasks of a node's links.
pub(crate) struct Shared {
    pub(crate) config: LinkConfig,
    pub(crate) network: Network,
    /// The nodes to link; `config` has those of the settings.
    pub(crate) roster: Roster,
    /// Digest of the configured nodes.
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
    /// The facts about this node in its hellos.
    pub(crate) fn me(&self) -> PeerHello {
        PeerHello {
            node: self.config.me,
            boot: self.config.boot,
            incarnation: self.config.incarnation,
            cluster: self.config.cluster.get(),
            machine: self.config.machine.newest(),
        }
    }

    /// The hello of this node to node `to`.
    pub(crate) fn hello(&self, to: NodeId) -> wire::Hello {
        let former = &self.config.former_boots;
        let hello = hello(&self.me(), former, &self.config.cluster, self.members, to);
        wire::Hello { address: self.config.address.clone(), ..hello }
    }

    /// Checks of a peer without earlier facts about it. A release that knows no epochs ends only by the
    /// answer that its directory was forgotten, so that comes first (MEM 11, MEM 14).
    pub(crate) fn examine(&self, theirs: &wire::Hello) -> Result<PeerHello, Refusal> {
        if !knows_epochs(theirs) && self.peers.has_forgotten(Incarnation(theirs.incarnation)) {
            return Err(Refusal::Forgotten(node_id(theirs.node)?));
        }
        let config = &self.config;
        examine(theirs, config.me, &config.cluster, self.members, config.machine.present())
    }

    /// True if the peer's directory belongs to this node's cluster.
    pub(crate) fn is_ours(&self, peer: &PeerHello) -> bool {
        peer.cluster.is_some() && peer.cluster == self.config.cluster.get()
    }

    /// True if this node accepts streams already.
    pub(crate) fn is_open(&self) -> bool {
        self.opened.load(Ordering::Acquire)
    }

    /// True if this process certainly belongs to a cluster: a majority has admitted it, or it knows
    /// its cluster.
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
            roster: Roster::new(&config.peers),
            config,
            network,
            handler,
            opened: AtomicBool::new(false),
            linked: RwLock::default(),
            stopping: watch::Sender::new(false),
        }))
    }

    /// Accepts streams, and dials all peers until the links stop: again at once when a connection
    /// ends, then every 50 to 100 ms. Must be called within a tokio runtime, once.
    pub fn open(&self) {
        let shared = &self.0;
        shared.opened.store(true, Ordering::Release);
        for (node, address) in shared.roster.all() {
            tokio::spawn(keep_linked(Arc::clone(shared), node, address));
        }
    }

    /// Replaces the nodes to link, by `host:port`, and the directories that are refused for ever (MEM
    /// 11). `held`: where the catalog says that they are, which may be elsewhere. New nodes are dialed and let in from now on; the others are no longer, and their links end,
    /// as do those with forgotten directories. A node that has moved is dialed at its new address when
    /// its present link ends. Must be called within a tokio runtime, by one task.
    pub fn set_peers(
        &self,
        peers: &BTreeMap<NodeId, String>,
        held: &BTreeMap<NodeId, String>,
        forgotten: BTreeSet<Incarnation>,
    ) {
        let shared = &self.0;
        let new = shared.roster.set(peers);
        shared.roster.hold(held);
        shared.peers.add(peers.keys());
        shared.admission.set(peers.keys());
        shared.peers.forget(forgotten);
        self.dial_if_open(new);
    }

    /// Adds nodes to link, by `host:port`: those that a process which joins has been told of, until it
    /// has the catalog (MEM 3). Must be called within a tokio runtime.
    pub fn add_peers(&self, peers: &BTreeMap<NodeId, String>) {
        let shared = &self.0;
        let new = shared.roster.add(peers);
        shared.peers.add(peers.keys());
        shared.admission.add(peers.keys());
        self.dial_if_open(new);
    }

    fn dial_if_open(&self, new: Vec<(NodeId, Address)>) {
        if self.0.is_open() {
            for (node, address) in new {
                tokio::spawn(keep_linked(Arc::clone(&self.0), node, address));
            }
        }
    }

    /// The gRPC service that the other nodes dial, to be mounted at this node's rpc port.
    #[must_use]
    pub fn service(&self) -> LinkService {
        Acceptor::service(Arc::clone(&self.0))
    }

    /// Sends a request to a node, and waits for the answer, together at most `deadline`. While the
    /// lane is full the call waits; it must not be used where the order of calls matters
    /// ([`Links::request`]).
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

    /// Queues a request, after waiting while the lane is full; the returned future waits for the
    /// answer. One task's requests are sent in the order of its calls. There is no deadline: the
    /// caller must have one.
    ///
    /// # Errors
    /// Nothing was sent.
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
    /// Nothing was sent. A notice that was sent may still be lost with the connection.
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

    /// Sets the only data directory that is accepted from a node, and a process that it has had, if it
    /// is known to have had one: with another directory, or one that does not know that process, the
    /// node is refused (DESIGN §8, MEM 1). Without this, the directory of its first process since this
    /// one started is accepted. A process that is linked with another directory is disconnected.
    pub fn expect(&self, node: NodeId, directory: Incarnation, boot: Option<BootNumber>) {
        self.0.peers.expect(node, directory, boot);
        if let Some(connection) = self.connection(node)
            && directory != connection.peer.incarnation
        {
            connection.close();
        }
    }

    /// The only data directory that is accepted from a node, if one is known.
    #[must_use]
    pub fn directory(&self, node: NodeId) -> Option<Incarnation> {
        self.0.peers.directory(node)
    }

    /// The epoch of this node's data directory (MEM 14).
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.0.config.cluster.epoch()
    }

    /// This node's own copy of the catalog says that its directory was forgotten (MEM 11): it does not
    /// belong to the cluster any more.
    pub fn forgotten(&self) {
        let rejected = Rejected { me: self.me(), by: Vec::new(), reason: Reason::Forgotten };
        self.0.rejected.send_replace(Some(rejected));
    }

    /// Resolves when it is certain that this process does not belong to the cluster: the others
    /// reject it for good, and have not admitted it since it started. It should end then. A process
    /// that a majority has admitted continues for ever, even if others reject it.
    pub async fn rejected(&self) -> Rejected {
        let mut verdict = self.0.rejected.subscribe();
        match verdict.wait_for(Option::is_some).await.map(|found| (*found).clone()) {
            Ok(Some(rejected)) => rejected,
            // `self` holds the sender, and the wait was not for `None`.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// The process that is linked at present, if any.
    #[must_use]
    pub fn connected(&self, node: NodeId) -> Option<PeerHello> {
        self.connection(node).map(|connection| connection.peer)
    }

    /// The versions of the replicated machine.
    #[must_use]
    pub fn machine(&self) -> &MachineCell {
        &self.0.config.machine
    }

    /// All processes that are linked at present.
    #[must_use]
    pub fn all_connected(&self) -> Vec<PeerHello> {
        self.0.linked.read().values().map(|connection| connection.peer).collect()
    }

    /// True if this process of the node lives, as far as this node knows.
    #[must_use]
    pub fn lives(&self, node: NodeId, boot: BootNumber) -> bool {
        self.0.peers.present(node) == Some(boot)
    }

    /// True if the node's process is known to be dead, or was never met: as far as this node knows
    /// no process of it lives.
    #[must_use]
    pub fn has_no_process(&self, node: NodeId) -> bool {
        self.0.peers.present(node).is_none()
    }

    /// The door for the other nodes' connections, for [`crate::Listener::serve`].
    #[must_use]
    pub fn door(&self) -> Door {
        let shared = Arc::downgrade(&self.0);
        let is_admitted = move || shared.upgrade().is_some_and(|shared| shared.is_member());
        let acceptor = self.0.config.tls.as_ref().map(|tls| tls.acceptor.clone());
        Door::new(self.0.config.secret.clone(), acceptor, is_admitted)
    }

    /// Id of this node.
    #[must_use]
    pub fn me(&self) -> NodeId {
        self.0.config.me
    }

    /// The other nodes.
    pub fn peers(&self) -> impl Iterator<Item = NodeId> + use<> {
        self.0.roster.all().into_iter().map(|(node, _)| node)
    }

    /// Ends all connections and dials no more. To be called last: the others take a node whose port
    /// refuses connections for dead.
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
