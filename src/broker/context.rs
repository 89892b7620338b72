//! What all rooms of the broker use and what itself uses none of them: this node's id, settings,
//! counters, memory, links and groups.

use crate::{
    memory::MemoryBudget,
    peers::{Peers, Process},
    settings::BrokerSettings,
    views::counters::Counters,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::{Mutex, RwLock};
use quorate_raft::{Group, Groups};
use quorate_storage::{Database, DatabaseMemory, DatabaseStats};
use quorate_types::{BootNumber, GroupId, NodeId, SessionId, ShortString};
use std::{
    future::Future,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

/// Why a command got no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The home has no leader that answered in time.
    #[error("timed out")]
    TimedOut,
    /// The session of the node has ended, and another one follows (SES 6).
    #[error("the node's session has ended")]
    SessionEnded,
}

/// What a node waits for before it is ready, as text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Awaited {
    /// Why the definitions of the start are not imported yet; `None` if nothing is to be imported.
    pub(crate) definitions: Option<String>,
    /// Why the node has not entered the cluster yet (MEM 3); `None` if it does not wait for that.
    pub(crate) entrance: Option<String>,
    /// The replicas of this node have caught up once.
    pub(crate) caught_up: bool,
}

/// The parts of a node that do not depend on its clients or queues.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) me: NodeId,
    pub(crate) boot: BootNumber,
    pub(crate) settings: BrokerSettings,
    runtime: tokio::runtime::Handle,
    pub(crate) peers: Peers,
    groups: OnceLock<Arc<Groups>>,
    /// Weak, so that metrics do not keep the database open.
    database: OnceLock<Weak<Database>>,
    /// This process's session, once its start number is known (SES 1).
    session: RwLock<Option<SessionId>>,
    /// What this node waits for before it is ready.
    pub(crate) awaited: Mutex<Awaited>,
    /// The members that do not leave, this node among them (MEM 1).
    members: RwLock<Vec<NodeId>>,
    /// The budget for bodies that are held for clients.
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) counters: Arc<Counters>,
}

quorate_types::declare_shared!(Context: me, boot, settings, runtime, peers, groups, database,
    session, awaited, members, memory, counters);

impl Context {
    /// The context of a node whose links and groups do not run yet. Must be called within a tokio
    /// runtime.
    pub(crate) fn new(settings: BrokerSettings) -> Self {
        Self {
            me: settings.me,
            boot: settings.boot,
            runtime: tokio::runtime::Handle::current(),
            peers: Peers::new(settings.me),
            groups: OnceLock::new(),
            database: OnceLock::new(),
            session: RwLock::default(),
            awaited: Mutex::default(),
            members: RwLock::new(settings.members.clone()),
            memory: MemoryBudget::new(settings.client_memory),
            counters: Arc::default(),
            settings,
        }
    }

    /// Stores the running groups; false if they were stored before.
    pub(crate) fn run(&self, groups: Arc<Groups>) -> bool {
        self.groups.set(groups).is_ok()
    }

    /// This process.
    pub(crate) fn process(&self) -> Process {
        let incarnation = self.settings.incarnation;
        Process { node: self.me, boot: self.boot, incarnation }
    }

    /// The groups; set once when the node starts, before anything is served.
    pub(crate) fn groups(&self) -> Option<&Arc<Groups>> {
        self.groups.get()
    }

    /// This node's replica of a group; `None` before the groups run.
    pub(crate) fn group(&self, group: GroupId) -> Option<Arc<Group>> {
        self.groups()?.group(group)
    }

    /// This process's session; `None` until its start has been announced.
    pub(crate) fn session(&self) -> Option<SessionId> {
        *self.session.read()
    }

    /// Begins a session of this process.
    pub(crate) fn begin_session(&self, session: SessionId) {
        *self.session.write() = Some(session);
    }

    /// Ends that session; false if it is not the present one of this process.
    pub(crate) fn end_session(&self, session: SessionId) -> bool {
        let mut own = self.session.write();
        let ends = *own == Some(session);
        if ends {
            *own = None;
        }
        ends
    }

    /// A generated name: `prefix` and 22 characters of URL-safe base64 of 16 random bytes (QUE-06,
    /// CON-01).
    pub(crate) fn generated_name(&self, prefix: &str) -> ShortString {
        let chance: [u8; 16] = quorate_rpc::chance::random();
        let name = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(chance));
        // A short prefix and 22 characters fit into a short string.
        ShortString::try_from(name).unwrap_or_default()
    }

    /// Stores this node's database, whose figures metrics show.
    pub(crate) fn show_database(&self, database: Weak<Database>) {
        // Set once, when the node starts.
        let _ = self.database.set(database);
    }

    /// Figures of this node's database.
    pub(crate) fn database_stats(&self) -> DatabaseStats {
        let database = self.database.get().and_then(Weak::upgrade);
        database.map(|database| database.stats()).unwrap_or_default()
    }

    /// Memory that this node's database holds.
    pub(crate) fn database_memory(&self) -> DatabaseMemory {
        let database = self.database.get().and_then(Weak::upgrade);
        database.map(|database| database.memory()).unwrap_or_default()
    }

    /// How long the present sync of this node's database has taken so far; zero if none is under way.
    pub(crate) fn sync_under_way(&self) -> Duration {
        let database = self.database.get().and_then(Weak::upgrade);
        database.map(|database| database.writer().stalled_for()).unwrap_or_default()
    }

    /// Whether a node is this one, or is linked with it.
    pub(crate) fn is_reachable(&self, node: NodeId) -> bool {
        node == self.me || self.peers.connected(node).is_some()
    }

    /// Whether a process of that node lives, as far as this node or one that it reaches knows.
    pub(crate) fn seems_to_live(&self, node: NodeId) -> bool {
        let others = self.groups().is_some_and(|groups| groups.is_reached_by_others(node));
        self.is_reachable(node) || others
    }

    /// The catalog's leader, as far as this node knows.
    pub(crate) fn catalog_leader(&self) -> Option<NodeId> {
        self.groups()?.catalog_group()?.leader().map(|(leader, _)| leader)
    }

    /// Runs a task on the node's runtime.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(task)
    }

    /// Members of the cluster that do not leave: those of the catalog, or before it has any (MEM 15)
    /// those of the settings.
    pub(crate) fn members(&self) -> Vec<NodeId> {
        self.members.read().clone()
    }

    /// The catalog has other members now (MEM 1).
    pub(crate) fn set_members(&self, members: Vec<NodeId>) {
        *self.members.write() = members;
    }

    /// How long an operation of a client may take.
    pub(crate) fn operation_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.operation_timeout_ms)
    }

    /// Performs a linearizable read of a group: brings this node's replica up to date; false
    /// without a majority.
    pub(crate) async fn read_group(&self, group: GroupId) -> bool {
        let Some(group) = self.group(group) else { return false };
        group.linearizable(self.operation_timeout()).await.is_ok()
    }
}
