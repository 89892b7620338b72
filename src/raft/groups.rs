//! All groups of a node: the catalog group and the queue groups.

use crate::{
    aligned_runtime::{every, tick_every},
    departures,
    draining::{self, DrainError},
    founding,
    group::{Group, ProposeError, ReadError, WriteError},
    heartbeats,
    inbox::Inbox,
    leadership, placements, purge, reach,
    settings::Settings,
    shared::Shared,
    sink::{CatalogSink, FatalHook, QueueSink},
    start_error::StartError,
    starter::Starter,
    watchdog,
};
use futures::future::join_all;
use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver;
use parking_lot::{RwLock, RwLockReadGuard};
use quorate_catalog::Catalog;
use quorate_queue::Machine;
use quorate_rpc::Links;
use quorate_storage::{CommandEntry, Database, EntryId, GroupStore};
use quorate_types::{BootNumber, GroupId, LogIndex, NodeId, ReplicaId, ReplicaNumber, Term};
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
    starter: Arc<Starter>,
}

quorate_types::declare_shared!(Groups: shared, inbox, catalog, starter);

impl Groups {
    /// Starts the catalog group and the queue groups: reads their state back, applies what their
    /// logs have committed (the sinks are called meanwhile, not leading), and opens the inbox. Groups
    /// without a log are founded as soon as all members are there (`founding`). A node that joins a
    /// formed cluster begins its replica of the catalog only, from which it learns of others (MEM 3).
    ///
    /// # Errors
    /// What [`StartError`] names; the process should end.
    pub async fn start(
        settings: Settings,
        database: &Arc<Database>,
        links: Links,
        inbox: &Inbox,
        sinks: Sinks,
    ) -> Result<Self, StartError> {
        tick_every(settings.raft_heartbeat / 2);
        let fatal = Arc::clone(&sinks.fatal);
        let copy = Arc::clone(&sinks.copy);
        let starter = Starter::new(settings.clone(), Arc::clone(database), links.clone(), sinks)?;
        if starter.is_founder() && !settings.members.contains(&settings.me) {
            return Err(StartError::NotMember(settings.me));
        }
        let groups = replicas(&settings, &starter).await?;
        let writer = database.writer().clone();
        let shared = Arc::new(Shared::new(settings, links, writer, groups, fatal));
        let (inbox, starter) = (inbox.clone(), Arc::new(starter));
        let groups = Self { shared, inbox, catalog: copy, starter };
        groups.run().await?;
        Ok(groups)
    }

    async fn run(&self) -> Result<(), StartError> {
        let shared = &self.shared;
        self.inbox.open(shared);
        let machine = self.catalog().machine();
        for group in shared.all() {
            set_to_work(shared, &group);
            if self.starter.is_founder() {
                founding::check_members(&shared.settings, &group, machine).await?;
            }
        }
        if self.starter.is_founder() {
            tokio::spawn(until_stopped(shared, founding::run(Arc::clone(shared))));
        }
        tokio::spawn(until_stopped(shared, heartbeats::run(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, checkpoints(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, purge::run(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, watchdog::run(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, leadership::run(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, reach::run(Arc::clone(shared))));
        tokio::spawn(until_stopped(shared, placements::run(self.clone())));
        tokio::spawn(until_stopped(shared, draining::run(Arc::clone(shared))));
        Ok(())
    }

    /// The group of this id, if this node has it.
    #[must_use]
    pub fn group(&self, id: GroupId) -> Option<Arc<Group>> {
        self.shared.group(id)
    }

    /// All groups, the catalog's first.
    pub fn all(&self) -> impl Iterator<Item = Arc<Group>> + use<> {
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
    pub fn store(&self, group: GroupId) -> Option<GroupStore> {
        self.group(group).map(|group| group.store().clone())
    }

    /// The catalog group.
    #[must_use]
    pub fn catalog_group(&self) -> Option<Arc<Group>> {
        self.group(GroupId::CATALOG)
    }

    /// This node's copy of the catalog, locked for reading. It must be held only briefly, since
    /// applying waits for it.
    pub fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.catalog.read()
    }

    /// Reads a queue group's machine, which is locked meanwhile: applying waits for it.
    pub fn read<T>(&self, group: GroupId, read: impl FnOnce(&Machine) -> T) -> Option<T> {
        self.group(group)?.read(read)
    }

    /// True if this node leads the group and a majority of its members has answered it within that
    /// time (DLV 5).
    #[must_use]
    pub fn majority_answered_within(&self, group: GroupId, bound: Duration) -> bool {
        let Some(group) = self.shared.group(group) else { return false };
        let alone = group.voters() == [self.shared.settings.me];
        let acked = group.raft().metrics().borrow_watched().last_quorum_acked;
        group.is_leading() && (alone || acked.is_some_and(|acked| acked.elapsed() < bound))
    }

    /// Whether a node that has just answered this one reaches that node.
    #[must_use]
    pub fn is_reached_by_others(&self, node: NodeId) -> bool {
        let reached = self.shared.reach().reached(tokio::time::Instant::now());
        reached.values().any(|reaches| reaches.contains(&node))
    }

    /// Resolves when no node that this one reaches can reach a process whose address has refused
    /// this one: it is dead. False if it turns out to live.
    pub async fn is_dead(&self, node: NodeId, boot: BootNumber) -> bool {
        reach::is_dead(&self.shared, node, boot).await
    }

    /// The node that should lead a group, of those of its voters; `None` without a replica here.
    #[must_use]
    pub fn preferred_leader(&self, group: GroupId) -> Option<NodeId> {
        let group = self.group(group)?;
        leadership::order(&group).first().copied()
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
        leadership::transfer(&self.shared, &group, to, deadline).await
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether this node may begin that replica: its name has never acted here (MEM 9).
    pub(crate) fn may_begin(&self, replica: ReplicaId, id: GroupId) -> Result<bool, StartError> {
        self.starter.may_begin(id, replica.number)
    }

    /// A placement of a group that this node leads is reached (MEM 7).
    pub(crate) fn placement_reached(&self, group: GroupId, number: u64) {
        self.starter.sinks().catalog.placement_reached(group, number);
    }

    /// Begins a new replica of a group on this node, without a log: the group's leader sends it one
    /// (MEM 7). Its name is on disk before it answers anybody.
    ///
    /// # Errors
    /// As [`Groups::start`]; the process should end.
    pub async fn add_replica(&self, id: GroupId, number: ReplicaNumber) -> Result<(), StartError> {
        let name = ReplicaId { node: self.shared.settings.me, number };
        let group = self.starter.begin(id, name).await?;
        tracing::info!(group = %id, replica = %name, "a replica of the group begins here");
        self.shared.add(Arc::clone(&group));
        set_to_work(&self.shared, &group);
        self.shared.follow_gate();
        Ok(())
    }

    /// Ends this node's replica of a group and removes its data; its name is kept (MEM 9).
    ///
    /// # Errors
    /// As [`Groups::start`]; the process should end.
    pub async fn remove_replica(&self, id: GroupId) -> Result<(), StartError> {
        let Some(group) = self.shared.remove(id) else { return Ok(()) };
        let name = group.name();
        end(&group).await;
        group.standing().end();
        group.replica().end();
        drop(group);
        self.starter.remove(id, name.number).await?;
        tracing::info!(group = %id, replica = %name, "the replica of the group is removed");
        Ok(())
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
        let ending = self.all().map(async |group| {
            group.replica().checkpoint();
            end(&group).await;
        });
        join_all(ending).await;
    }
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.all()).finish()
    }
}

/// The replicas that this node has, with the one that it joins with.
async fn replicas(
    settings: &Settings,
    starter: &Starter,
) -> Result<BTreeMap<GroupId, Arc<Group>>, StartError> {
    let mut groups = BTreeMap::new();
    if let Some(number) = settings.first
        && starter.may_begin(GroupId::CATALOG, number)?
    {
        let name = ReplicaId { node: settings.me, number };
        groups.insert(GroupId::CATALOG, starter.begin(GroupId::CATALOG, name).await?);
    }
    for id in (0..=settings.queue_groups).map(GroupId) {
        // One that was removed is not started again.
        if !groups.contains_key(&id)
            && let Some(name) = starter.present(id)?
        {
            groups.insert(id, starter.start(id, name).await?);
        }
    }
    Ok(groups)
}

fn set_to_work(shared: &Arc<Shared>, group: &Arc<Group>) {
    group.replica().run();
    group.raft().run();
    tokio::spawn(watch_over(Arc::clone(shared), Arc::clone(group)));
}

async fn end(group: &Group) {
    if let Err(error) = group.raft().shutdown().await {
        tracing::error!(group = %group.id(), "the group did not stop cleanly: {error}");
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
    // A replica that was removed has ended as it should.
    let is_ours = shared.group(group.id()).is_some_and(|ours| Arc::ptr_eq(&ours, &group));
    if *shared.stopping.borrow() || !is_ours {
        return;
    }
    let state = group.raft().metrics().borrow_watched().running_state.clone();
    let reason = match state {
        Ok(()) => "Raft stopped without an error".to_owned(),
        Err(fatal) => fatal.to_string(),
    };
    shared.fail(group.id(), &reason);
}
