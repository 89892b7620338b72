//! What the rooms of the broker share: this node's proposers, groups, links, catalog copy,
//! connections and consumers.

use crate::{
    alarm::Alarms, catalog_client::CatalogClient, client::Event, clock::ProcessStart,
    configure::Configuring, connection::ConnectionState, consumer::FrontConsumer,
    counters::Counters, dead_letter::DeadLetters, executor::Executor, failure::Failures,
    hearing::Hearing, lease::Lease, limits::Counts, local::LocalQueues, making::Making,
    memory::MemoryBudget, once_per_minute::OncePerMinute, peers::Peers, proposer::Proposer,
    reconcile::Reconciler, registry::Registry, sequencer::Sequencer, settings::BrokerSettings,
    sink::Early, timer::Timer, trace::Tracer,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::{Mutex, RwLock};
use quorate_catalog::{Catalog, ClusterShape, QueueEntry};
use quorate_queue::Machine;
use quorate_raft::Groups;
use quorate_storage::DatabaseStats;
use quorate_types::{
    BootNumber, CatalogIndex, ConsumerId, Exception, GroupId, Home, NodeId, QueueId, ReplyCode,
    ResourceName, SessionId, ShortString,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{Arc, OnceLock, Weak},
};

/// One node's broker, shared by all its rooms.
pub(crate) struct Node {
    pub(crate) this: Weak<Node>,
    pub(crate) me: NodeId,
    pub(crate) boot: BootNumber,
    pub(crate) settings: BrokerSettings,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) catalog: Arc<RwLock<Catalog>>,
    pub(crate) catalog_client: CatalogClient,
    /// Index that this node's copy has been applied up to.
    pub(crate) catalog_version: tokio::sync::watch::Sender<CatalogIndex>,
    pub(crate) lease: Lease,
    pub(crate) making: Arc<Making>,
    pub(crate) local: LocalQueues,
    pub(crate) hearing: Hearing,
    /// One for each home that this node may send to.
    pub(crate) proposers: BTreeMap<Home, Proposer>,
    pub(crate) sequencers: BTreeMap<GroupId, Sequencer>,
    pub(crate) executor: Executor,
    pub(crate) letters: DeadLetters,
    pub(crate) connections: Registry<Arc<ConnectionState>>,
    pub(crate) consumers: Registry<Arc<FrontConsumer>>,
    /// This run's session, once its start number is known.
    pub(crate) session: RwLock<Option<SessionId>>,
    pub(crate) groups: OnceLock<Arc<Groups>>,
    pub(crate) peers: Peers,
    pub(crate) pacer: tokio::sync::Notify,
    pub(crate) timer: Timer,
    pub(crate) process: ProcessStart,
    pub(crate) failures: Failures,
    pub(crate) reconciler: Reconciler,
    /// Somebody was told that a connection-bound queue of this node is gone.
    pub(crate) gone: tokio::sync::Notify,
    pub(crate) configuring: Configuring,
    pub(crate) alarms: Alarms,
    /// Bodies held for clients.
    pub(crate) memory: Arc<MemoryBudget>,
    /// When who holds most of them was last looked for.
    pub(crate) relief: Mutex<Option<std::time::Instant>>,
    pub(crate) counters: Arc<Counters>,
    /// Entries of connection-bound queues of this node, also of those that are not in the catalog.
    pub(crate) local_entries: RwLock<BTreeMap<ResourceName, QueueEntry>>,
    pub(crate) logins: crate::login::Logins,
    /// What other nodes count against limits.
    pub(crate) counts: Counts,
    pub(crate) early: Early,
    /// Groups that this node is about to announce itself to again.
    pub(crate) reannouncing: Mutex<BTreeSet<GroupId>>,
    /// When a missing alternate exchange was last told of.
    pub(crate) warned_of_alternate: Mutex<OncePerMinute<()>>,
    /// When the log last said of which queue that a message cannot be read.
    pub(crate) unreadable: Mutex<OncePerMinute<QueueId>>,
    /// Bodies fetched at once for consumers, which are counted when they have come.
    pub(crate) fetches: Arc<tokio::sync::Semaphore>,
    /// Held by the message to many queues whose turn it is to send copies.
    pub(crate) spreading: tokio::sync::Mutex<()>,
    pub(crate) tracer: Tracer,
    /// The cluster's shape, once it has one.
    pub(crate) formed: tokio::sync::watch::Sender<Option<ClusterShape>>,
    /// The database's numbers.
    pub(crate) storage_stats: OnceLock<StatsSource>,
    /// Whether this run's session is in force.
    pub(crate) started: tokio::sync::watch::Sender<bool>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.me)
    }
}

/// Where the database's numbers come from.
pub(crate) type StatsSource = Box<dyn Fn() -> DatabaseStats + Send + Sync>;

impl Node {
    /// The node, shared, for tasks that outlive a call; `None` while it is being made or dropped.
    pub(crate) fn arc(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    /// Runs a task of the node's.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// This run's session; `None` until its start has been announced.
    pub(crate) fn session(&self) -> Option<SessionId> {
        *self.session.read()
    }

    /// The groups; set once when the node starts, before anything is served.
    pub(crate) fn groups(&self) -> Option<&Arc<Groups>> {
        self.groups.get()
    }

    /// Bytes under way to the fullest home.
    pub(crate) fn home_bytes_max(&self) -> usize {
        self.proposers.values().map(Proposer::bytes).max().unwrap_or(0)
    }

    /// Bytes of publishes that wait or are under way to all homes.
    pub(crate) fn proposed_bytes(&self) -> u64 {
        self.proposers.values().map(|one| one.bytes() as u64).sum()
    }

    /// A consumer of this run of the node.
    pub(crate) fn consumer(&self, id: ConsumerId) -> Option<Arc<FrontConsumer>> {
        (self.session() == Some(id.session)).then(|| self.consumers.get(id.number)).flatten()
    }

    /// A server-given name (QUE-06, CON-01).
    pub(crate) fn generated_name(&self, prefix: &str) -> ShortString {
        let chance: [u8; 16] = rand::random();
        let name = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(chance));
        // A prefix of ours and 22 characters are a short string.
        ShortString::try_from(name).unwrap_or_default()
    }

    /// Closes all client connections.
    pub(crate) fn close_all(&self, why: &str) {
        for connection in self.connections.all() {
            let exception = Exception::new(ReplyCode::ConnectionForced, why);
            connection.mailbox.put(Event::Close(exception));
        }
    }

    /// Members of the cluster.
    pub(crate) fn members(&self) -> Vec<NodeId> {
        self.settings.members.clone()
    }

    /// Queue groups that this node leads.
    pub(crate) fn led_groups(&self) -> Vec<GroupId> {
        let leads = |group: &GroupId| self.executor.leading(Home::Group(*group)).is_some();
        self.sequencers.keys().copied().filter(leads).collect()
    }

    /// Reads a home's machine on this node.
    pub(crate) fn with_machine<T>(
        &self,
        home: Home,
        read: impl FnOnce(&Machine) -> T,
    ) -> Option<T> {
        match home {
            Home::Node(_) => self.local.read(read),
            Home::Group(group) => self.groups()?.read(group, read),
        }
    }
}
