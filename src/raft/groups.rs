//! All groups of a node: the catalog group and the queue groups.

use crate::{
    aligned_runtime::{every, tick_every},
    catalog_replica::CatalogReplica,
    codec::decode_vote,
    departures,
    draining::{self, DrainError},
    followers::Followers,
    founding,
    group::{Group, GroupRaft, Parts, ProposeError, ReadError, WriteError},
    heartbeats,
    inbox::Inbox,
    leadership,
    log_store::LogStore,
    machine::GroupMachine,
    metrics::GroupMetrics,
    network::Network,
    purge::{self, Sending},
    queue_replica::QueueReplica,
    reach,
    replica::{Replica, StateMachine},
    settings::Settings,
    shared::Shared,
    sink::{CatalogSink, FatalHook, GroupSink, QueueSink},
    standing::Standing,
    start_error::StartError,
    type_config::raft_id,
    watchdog,
};
use openraft::Instant as _;
use openraft::{Config, async_runtime::WatchReceiver};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use quorate_catalog::Catalog;
use quorate_queue::Machine;
use quorate_rpc::Links;
use quorate_storage::{CommandEntry, Database, EntryId, GroupStore};
use quorate_types::{BootNumber, GroupId, LogIndex, NodeId, Term};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Receivers of the groups' reports.
#[derive(Clone)]
pub struct Sinks {
    /// Receives the outcome of entries of queue groups.
    pub queues: Arc<dyn QueueSink>,
    /// Receives the outcome of entries of the catalog.
    pub catalog: Arc<dyn CatalogSink>,
    /// The copy of the catalog to which entries are applied, shared with routing.
    pub copy: Arc<RwLock<Catalog>>,
    /// Ends the process.
    pub fatal: FatalHook,
}

/// All groups of this node. Cheap to clone; they end with [`Groups::stop`].
#[derive(Clone)]
pub struct Groups {
    shared: Arc<Shared>,
    inbox: Inbox,
    catalog: Arc<RwLock<Catalog>>,
    queues: Arc<BTreeMap<GroupId, Arc<Mutex<Machine>>>>,
}

impl Groups {
    /// Starts the catalog group and the queue groups: reads their state back, applies what their
    /// logs have committed (the sinks are called meanwhile, not leading), and opens the inbox. Groups
    /// without a log are founded as soon as all members are there (`founding`).
    ///
    /// # Errors
    /// What [`StartError`] names; the process should end.
    pub async fn start(
        settings: Settings,
        database: &Database,
        links: Links,
        inbox: &Inbox,
        sinks: Sinks,
    ) -> Result<Self, StartError> {
        if !settings.members.contains(&settings.me) {
            return Err(StartError::NotMember(settings.me));
        }
        tick_every(settings.raft_heartbeat / 2);
        let starter = Starter { config: Arc::new(settings.raft()?), settings, links, sinks };
        let mut groups = BTreeMap::new();
        let store = store(database, GroupId::CATALOG)?;
        let catalog = Arc::clone(&starter.sinks.copy);
        let (mark, machine) =
            (Arc::clone(database.machine_mark()), starter.links.machine().clone());
        let raised = Box::new(move |present| {
            machine.raise(present);
            mark.raise(present)
        });
        let sink = Arc::clone(&starter.sinks.catalog);
        let replica = CatalogReplica::new(Arc::clone(&catalog), sink, raised);
        let sink: Arc<dyn GroupSink> = Arc::clone(&starter.sinks.catalog) as _;
        groups.insert(store.group(), starter.start(store, Box::new(replica), sink).await?);
        let mut queues = BTreeMap::new();
        for id in (1..=starter.settings.queue_groups).map(GroupId) {
            let store = self::store(database, id)?;
            let (replica, machine) =
                QueueReplica::new(store.clone(), Arc::clone(&starter.sinks.queues));
            let sink: Arc<dyn GroupSink> = Arc::clone(&starter.sinks.queues) as _;
            groups.insert(id, starter.start(store, Box::new(replica), sink).await?);
            queues.insert(id, machine);
        }
        let Starter { settings, links, sinks, .. } = starter;
        let writer = database.writer().clone();
        let shared = Arc::new(Shared::new(settings, links, writer, groups, sinks.fatal));
        let (inbox, queues) = (inbox.clone(), Arc::new(queues));
        let groups = Self { shared, inbox, catalog, queues };
        groups.run().await?;
        Ok(groups)
    }

    async fn run(&self) -> Result<(), StartError> {
        let shared = &self.shared;
        self.inbox.open(shared);
        for group in shared.all() {
            group.replica().run();
            group.raft().run();
            tokio::spawn(watch_over(Arc::clone(shared), Arc::clone(group)));
            founding::check_members(&shared.settings, group).await?;
        }
        tokio::spawn(until_stopped(shared, founding::run(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, heartbeats::run(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, checkpoints(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, purge::run(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, watchdog::run(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, leadership::run(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, reach::run(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, draining::run(Arc::clone(shared))));
        Ok(())
    }

    /// The group of this id, if this node has it.
    #[must_use]
    pub fn group(&self, id: GroupId) -> Option<&Arc<Group>> {
        self.shared.group(id)
    }

    /// All groups, the catalog's first.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.shared.all()
    }

    /// The leader of a group and the term; `None` while no leader is known.
    #[must_use]
    pub fn leader(&self, group: GroupId) -> Option<(NodeId, Term)> {
        self.group(group)?.leader()
    }

    /// Proposes an entry; see [`Group::propose`].
    ///
    /// # Errors
    /// Nothing has been proposed.
    pub fn propose(&self, group: GroupId, commands: CommandEntry) -> Result<(), ProposeError> {
        self.group(group).ok_or(ProposeError::Stopped)?.propose(commands)
    }

    /// Proposes an entry and waits until it has been applied here; see [`Group::write`].
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write(
        &self,
        group: GroupId,
        commands: CommandEntry,
    ) -> Result<EntryId, WriteError> {
        self.group(group).ok_or(WriteError::Stopped)?.write(commands).await
    }

    /// On a group's leader: the index that a read must have applied; see [`Group::read_index`].
    ///
    /// # Errors
    /// This node does not lead, or no majority answers.
    pub async fn read_index(&self, group: GroupId) -> Result<LogIndex, ReadError> {
        self.group(group).ok_or(ReadError::Timeout)?.read_index().await
    }

    /// A group's log and messages.
    #[must_use]
    pub fn store(&self, group: GroupId) -> Option<&GroupStore> {
        self.group(group).map(|group| group.store())
    }

    /// The catalog group.
    #[must_use]
    pub fn catalog_group(&self) -> Option<&Arc<Group>> {
        self.group(GroupId::CATALOG)
    }

    /// This node's copy of the catalog, locked for reading. It must be held only briefly, since
    /// applying waits for it.
    pub fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.catalog.read()
    }

    /// A queue group's machine, locked. It must be held only briefly, since applying waits for it.
    #[must_use]
    pub fn machine(&self, group: GroupId) -> Option<MutexGuard<'_, Machine>> {
        self.queues.get(&group).map(|machine| machine.lock())
    }

    /// Reads a queue group's machine.
    pub fn read<T>(&self, group: GroupId, read: impl FnOnce(&Machine) -> T) -> Option<T> {
        self.machine(group).map(|machine| read(&machine))
    }

    /// True if this node leads the group and a majority of its members has answered it within that
    /// time (DLV 5).
    #[must_use]
    pub fn majority_answered_within(&self, group: GroupId, bound: Duration) -> bool {
        let Some(group) = self.shared.group(group) else { return false };
        let alone = self.shared.settings.members.len() == 1;
        let acked = group.raft().metrics().borrow_watched().last_quorum_acked;
        group.is_leading() && (alone || acked.is_some_and(|acked| acked.elapsed() < bound))
    }

    /// Resolves when no node that this one reaches can reach a process whose address has refused
    /// this one: it is dead. False if it turns out to live.
    pub async fn is_dead(&self, node: NodeId, boot: BootNumber) -> bool {
        reach::is_dead(&self.shared, node, boot).await
    }

    /// Hands a group that this node leads over to another node, and waits until that is known as
    /// its leader.
    ///
    /// # Errors
    /// This node does not lead it, the other one does not take it, or not in time.
    pub async fn transfer(
        &self,
        group: GroupId,
        to: NodeId,
        deadline: Duration,
    ) -> Result<(), leadership::TransferError> {
        let group = self.group(group).ok_or(leadership::TransferError::NotLeader)?;
        leadership::transfer(&self.shared, group, to, deadline).await
    }

    /// Drains this node (MEM 13): from now on it takes no more leaderships, and hands its own to nodes
    /// that have caught up, until [`Groups::revive`]. Its replicas go on. It leads only groups that no
    /// other node can lead.
    ///
    /// # Errors
    /// No other node takes leaderships, or there is none; this node goes on as before.
    pub async fn drain(&self) -> Result<(), DrainError> {
        draining::drain(&self.shared).await
    }

    /// Ends the draining: this node may lead again. Returns whether it was drained.
    pub fn revive(&self) -> bool {
        draining::revive(&self.shared)
    }

    /// The groups that this process has been elected in and not deposed.
    #[must_use]
    pub fn led(&self) -> Vec<GroupId> {
        leadership::groups_led(&self.shared).into_iter().collect()
    }

    /// Before a clean stop: takes no more leaderships, informs the other nodes, and hands its own
    /// to nodes that have caught up. Returns the groups that it still leads at the deadline, or
    /// when no node is left that could take them.
    pub async fn hand_over_all(&self, deadline: Duration) -> Vec<GroupId> {
        let shared = &self.shared;
        shared.gate().set_leaving();
        shared.follow_gate();
        for peer in shared.links.all_connected() {
            departures::notify(&shared.links, peer.node);
        }
        leadership::hand_over_all(&self.shared, deadline).await
    }

    /// Ends all groups, after a last checkpoint. The database is closed after this and the links
    /// are stopped last of all.
    pub async fn stop(&self) {
        self.shared.stopping.send_replace(true);
        self.inbox.close();
        for group in self.all() {
            group.replica().checkpoint();
            if let Err(error) = group.raft().shutdown().await {
                tracing::error!(group = %group.id(), "the group did not stop cleanly: {error}");
            }
        }
    }
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.all()).finish()
    }
}

fn store(database: &Database, group: GroupId) -> Result<GroupStore, StartError> {
    database.group(group).map_err(|source| StartError::Storage { group, source })
}

struct Starter {
    settings: Settings,
    config: Arc<Config>,
    links: Links,
    sinks: Sinks,
}

impl Starter {
    async fn start(
        &self,
        store: GroupStore,
        machine: Box<dyn GroupMachine>,
        sink: Arc<dyn GroupSink>,
    ) -> Result<Arc<Group>, StartError> {
        let id = store.group();
        let metrics = Arc::new(GroupMetrics::default());
        let vote = store.vote().map(|bytes| decode_vote(&bytes)).transpose();
        let vote = vote.map_err(|source| StartError::Vote { group: id, source })?;
        let me = self.settings.me;
        let standing = Standing::new(id, me, Arc::clone(&sink), vote, Arc::clone(&metrics));
        let replica = Replica::load(
            store.clone(),
            machine,
            Arc::clone(&standing),
            sink,
            Arc::clone(&self.sinks.fatal),
            Arc::clone(&metrics),
            self.settings.checkpoint_bytes,
        )
        .map_err(|source| StartError::Machine { group: id, source })?;
        let log = LogStore::new(store.clone(), Arc::clone(&standing));
        let sending = Arc::new(Sending::default());
        let network = Network {
            links: self.links.clone(),
            me: raft_id(me),
            group: id,
            metrics: Arc::clone(&metrics),
            sending: Arc::clone(&sending),
            followers: Arc::new(Followers::default()),
        };
        let config = Arc::clone(&self.config);
        let machine = StateMachine(Arc::clone(&replica));
        let raft = GroupRaft::build(raft_id(me), config, network, log, machine).await;
        let raft =
            raft.map_err(|error| StartError::Raft { group: id, reason: error.to_string() })?;
        let links = self.links.clone();
        let parts = Parts { raft, replica, standing, store, links, metrics, sending };
        Ok(Group::new(&self.settings, parts))
    }
}

/// Runs a task of the groups until they stop.
fn until_stopped(
    shared: &Shared,
    task: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let mut stopping = shared.stopping.subscribe();
    async move {
        tokio::select! {
            () = task => {}
            _ = stopping.wait_for(|stop| *stop) => {}
        }
    }
}

/// Writes checkpoints of changed state, group by group (DESIGN §3).
async fn checkpoints(shared: Arc<Shared>) {
    let mut due = every(shared.settings.checkpoint);
    loop {
        due.tick().await;
        shared.all().for_each(|group| group.replica().checkpoint());
    }
}

/// Ends the process when the group's Raft has ended by itself.
async fn watch_over(shared: Arc<Shared>, group: Arc<Group>) {
    let mut server = group.raft().server_metrics();
    while server.changed().await.is_ok() {}
    if *shared.stopping.borrow() {
        return;
    }
    let state = group.raft().metrics().borrow_watched().running_state.clone();
    let reason = match state {
        Ok(()) => "Raft stopped without an error".to_owned(),
        Err(fatal) => fatal.to_string(),
    };
    shared.fail(group.id(), &reason);
}
