//! What the rooms of the broker share: this node's proposers, groups, links, catalog copy,
//! connections and consumers.

use crate::{
    alarm::Alarms,
    client::Event,
    clock::ProcessStart,
    configure::Configuring,
    connection::ConnectionState,
    consumer::FrontConsumer,
    context::Context,
    dead_letter::DeadLetters,
    executor::Executor,
    failure::Failures,
    hearing::Hearing,
    limits::Counts,
    local::LocalQueues,
    making::Making,
    names::{CatalogClient, CatalogCopy, RoutingLease},
    once_per_minute::OncePerMinute,
    proposer::Proposer,
    reconcile::Reconciler,
    registry::Registry,
    sequencer::Sequencer,
    sink::Early,
    timer::Timer,
    trace::Tracer,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::{Mutex, RwLock};
use quorate_catalog::QueueEntry;
use quorate_queue::Machine;
use quorate_storage::DatabaseStats;
use quorate_types::{
    ConsumerId, Exception, GroupId, Home, QueueId, ReplyCode, ResourceName, ShortString,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock, Weak},
};

/// One node's broker, shared by all its rooms.
pub(crate) struct Node {
    pub(crate) this: Weak<Node>,
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: Arc<CatalogCopy>,
    pub(crate) catalog_client: Arc<CatalogClient>,
    pub(crate) lease: Arc<RoutingLease>,
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
    pub(crate) pacer: tokio::sync::Notify,
    pub(crate) timer: Timer,
    pub(crate) process: ProcessStart,
    pub(crate) failures: Failures,
    pub(crate) reconciler: Reconciler,
    /// Somebody was told that a connection-bound queue of this node is gone.
    pub(crate) gone: tokio::sync::Notify,
    pub(crate) configuring: Configuring,
    pub(crate) alarms: Alarms,
    /// When who holds most of them was last looked for.
    pub(crate) relief: Mutex<Option<std::time::Instant>>,
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
    /// The database's numbers.
    pub(crate) storage_stats: OnceLock<StatsSource>,
    /// Whether this run's session is in force.
    pub(crate) started: tokio::sync::watch::Sender<bool>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.context.me)
    }
}

/// Where the database's numbers come from.
pub(crate) type StatsSource = Box<dyn Fn() -> DatabaseStats + Send + Sync>;

impl Node {
    /// The node, shared, for tasks that outlive a call; `None` while it is being made or dropped.
    pub(crate) fn arc(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
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
        (self.context.session() == Some(id.session))
            .then(|| self.consumers.get(id.number))
            .flatten()
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
            Home::Group(group) => self.context.groups()?.read(group, read),
        }
    }
}
