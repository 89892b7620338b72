//! What all rooms of the broker use, and what knows none of them: who this node is, its settings,
//! its counters and its memory, its links and its groups.

use crate::{
    memory::MemoryBudget, peers::Peers, settings::BrokerSettings, views::counters::Counters,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::RwLock;
use quorate_raft::{Group, Groups};
use quorate_storage::{Database, DatabaseStats};
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
    /// The node has begun again (SES 6).
    #[error("the node's session has ended")]
    SessionEnded,
}

/// One node, without anything that it serves.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) me: NodeId,
    pub(crate) boot: BootNumber,
    pub(crate) settings: BrokerSettings,
    runtime: tokio::runtime::Handle,
    pub(crate) peers: Peers,
    groups: OnceLock<Arc<Groups>>,
    /// Weak: metrics do not keep the database open.
    database: OnceLock<Weak<Database>>,
    /// This process's session, once its start number is known (SES 1).
    session: RwLock<Option<SessionId>>,
    /// Bodies held for clients.
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) counters: Arc<Counters>,
}

impl Context {
    /// Of a node whose links and groups do not run yet. Must be called within a tokio runtime.
    pub(crate) fn new(settings: BrokerSettings) -> Self {
        Self {
            me: settings.me,
            boot: settings.boot,
            runtime: tokio::runtime::Handle::current(),
            peers: Peers::new(settings.me),
            groups: OnceLock::new(),
            database: OnceLock::new(),
            session: RwLock::default(),
            memory: MemoryBudget::new(settings.client_memory_bytes),
            counters: Arc::default(),
            settings,
        }
    }

    /// Takes the running groups; false if there are some already.
    pub(crate) fn run(&self, groups: Arc<Groups>) -> bool {
        self.groups.set(groups).is_ok()
    }

    /// The groups; set once when the node starts, before anything is served.
    pub(crate) fn groups(&self) -> Option<&Arc<Groups>> {
        self.groups.get()
    }

    /// This node's replica of a group; `None` before the groups run.
    pub(crate) fn group(&self, group: GroupId) -> Option<&Arc<Group>> {
        self.groups()?.group(group)
    }

    /// This process's session; `None` until its start has been announced.
    pub(crate) fn session(&self) -> Option<SessionId> {
        *self.session.read()
    }

    /// A session begins.
    pub(crate) fn begin_session(&self, session: SessionId) {
        *self.session.write() = Some(session);
    }

    /// That session is over; false if it was not this process's, or no more.
    pub(crate) fn end_session(&self, session: SessionId) -> bool {
        let mut own = self.session.write();
        let ends = *own == Some(session);
        if ends {
            *own = None;
        }
        ends
    }

    /// A name that the server gives: `prefix` and 22 characters of URL-safe base64 of 16 random bytes
    /// (QUE-06, CON-01).
    pub(crate) fn generated_name(&self, prefix: &str) -> ShortString {
        let chance: [u8; 16] = quorate_rpc::chance::random();
        let name = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(chance));
        // A prefix of ours and 22 characters are a short string.
        ShortString::try_from(name).unwrap_or_default()
    }

    /// Takes this node's database, to show its figures.
    pub(crate) fn show_database(&self, database: Weak<Database>) {
        // Set once, when the node starts.
        let _ = self.database.set(database);
    }

    /// Figures of this node's database.
    pub(crate) fn database_stats(&self) -> DatabaseStats {
        let database = self.database.get().and_then(Weak::upgrade);
        database.map(|database| database.stats()).unwrap_or_default()
    }

    /// Whether a node is this one, or linked with it.
    pub(crate) fn is_reachable(&self, node: NodeId) -> bool {
        node == self.me || self.peers.connected(node).is_some()
    }

    /// The catalog's leader, as far as this node knows.
    pub(crate) fn catalog_leader(&self) -> Option<NodeId> {
        self.groups()?.catalog_group()?.leader().map(|(leader, _)| leader)
    }

    /// Runs a task of the node's.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(task)
    }

    /// Members of the cluster.
    pub(crate) fn members(&self) -> Vec<NodeId> {
        self.settings.members.clone()
    }

    /// How long an operation of a client may take.
    pub(crate) fn operation_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.operation_timeout_ms)
    }

    /// Brings this node's replica of a group up to a linearizable read; false without a majority.
    pub(crate) async fn read_group(&self, group: GroupId) -> bool {
        let Some(group) = self.group(group) else { return false };
        group.linearizable(self.operation_timeout()).await.is_ok()
    }
}
