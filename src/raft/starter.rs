//! Starts the replicas of this node: those that it has, when it starts, and new ones later.

use crate::{
    catalog_replica::CatalogReplica,
    codec::decode_vote,
    followers::Followers,
    group::{Group, GroupRaft, Parts},
    groups::Sinks,
    log_store::LogStore,
    machine::GroupMachine,
    metrics::GroupMetrics,
    network::Network,
    purge::Sending,
    queue_replica::QueueReplica,
    replica::{Replica, StateMachine},
    replica_name::raft_id,
    settings::Settings,
    sink::GroupSink,
    standing::Standing,
    start_error::StartError,
    written::written,
};
use openraft::Config;
use parking_lot::Mutex;
use quorate_queue::Machine;
use quorate_rpc::Links;
use quorate_storage::{Database, GroupStore, ReplicaRecord};
use quorate_types::{GroupId, ReplicaId, ReplicaNumber};
use std::sync::Arc;

/// What every replica of this node is started with.
pub(crate) struct Starter {
    settings: Settings,
    config: Arc<Config>,
    database: Arc<Database>,
    links: Links,
    sinks: Sinks,
    /// Number of the directory's replica of the catalog; that of the founding is 0.
    first: ReplicaNumber,
}

/// The parts of a group that differ between the catalog and queue groups.
struct Kind {
    machine: Box<dyn GroupMachine>,
    sink: Arc<dyn GroupSink>,
    queues: Option<Arc<Mutex<Machine>>>,
}

impl Starter {
    /// # Errors
    /// Settings that contradict each other, or a failed read.
    pub(crate) fn new(
        settings: Settings,
        database: Arc<Database>,
        links: Links,
        sinks: Sinks,
    ) -> Result<Self, StartError> {
        let config = Arc::new(settings.raft()?);
        let record = record(&database, GroupId::CATALOG)?;
        let first = record.map(|record| record.number).max(settings.first).unwrap_or_default();
        Ok(Self { config, settings, database, links, sinks, first })
    }

    /// Whether the directory is one of those that founded the cluster, or are to found it (MEM 2).
    pub(crate) fn is_founder(&self) -> bool {
        self.first == ReplicaNumber(0)
    }

    /// The replica of a group that this node has on disk, or that of the founding. `None`: it has had
    /// none, or the last one was removed (MEM 9).
    pub(crate) fn present(&self, id: GroupId) -> Result<Option<ReplicaId>, StartError> {
        let number = match record(&self.database, id)? {
            Some(record) if !record.is_present => return Ok(None),
            Some(record) => record.number,
            None if self.is_founder() => ReplicaNumber(0),
            None => return Ok(None),
        };
        Ok(Some(ReplicaId { node: self.settings.me, number }))
    }

    /// Whether no replica with that number, or a later one, has been here (MEM 9), and it is not one of
    /// an earlier directory of the node: those have lower numbers than its replica of the catalog
    /// (MEM 10).
    pub(crate) fn may_begin(&self, id: GroupId, number: ReplicaNumber) -> Result<bool, StartError> {
        let is_new = record(&self.database, id)?.is_none_or(|record| record.number < number);
        Ok(is_new && number >= self.first)
    }

    pub(crate) fn sinks(&self) -> &Sinks {
        &self.sinks
    }

    /// Starts a replica that is on disk: reads its state back, and applies what its log has
    /// committed.
    pub(crate) async fn start(
        &self,
        id: GroupId,
        name: ReplicaId,
    ) -> Result<Arc<Group>, StartError> {
        let store = self.database.group(id);
        let store = store.map_err(|source| StartError::Storage { group: id, source })?;
        let kind = self.kind(&store);
        self.group(store, name, kind).await
    }

    /// Starts a new replica, whose name is on disk first.
    pub(crate) async fn begin(
        &self,
        id: GroupId,
        name: ReplicaId,
    ) -> Result<Arc<Group>, StartError> {
        let added = written(|done| self.database.add_replica(id, name.number, done)).await;
        added.map_err(|source| StartError::Storage { group: id, source })?;
        self.start(id, name).await
    }

    /// Removes the data of a replica that has ended.
    pub(crate) async fn remove(
        &self,
        id: GroupId,
        number: ReplicaNumber,
    ) -> Result<(), StartError> {
        let removed = written(|done| self.database.remove_replica(id, number, done)).await;
        removed.map_err(|source| StartError::Storage { group: id, source })
    }

    fn kind(&self, store: &GroupStore) -> Kind {
        if store.group() != GroupId::CATALOG {
            let sink = Arc::clone(&self.sinks.queues);
            let (replica, machine) = QueueReplica::new(store.clone(), Arc::clone(&sink));
            return Kind { machine: Box::new(replica), sink: sink as _, queues: Some(machine) };
        }
        let (mark, machine) =
            (Arc::clone(self.database.machine_mark()), self.links.machine().clone());
        let raised = Box::new(move |present| {
            machine.raise(present);
            mark.raise(present)
        });
        let sink = Arc::clone(&self.sinks.catalog);
        let copy = Arc::clone(&self.sinks.copy);
        let replica = CatalogReplica::new(copy, Arc::clone(&sink), raised);
        Kind { machine: Box::new(replica), sink: sink as _, queues: None }
    }

    async fn group(
        &self,
        store: GroupStore,
        name: ReplicaId,
        Kind { machine, sink, queues }: Kind,
    ) -> Result<Arc<Group>, StartError> {
        let id = store.group();
        let metrics = Arc::new(GroupMetrics::default());
        let vote = store.vote().map(|bytes| decode_vote(&bytes)).transpose();
        let vote = vote.map_err(|source| StartError::Vote { group: id, source })?;
        let standing = Standing::new(id, name.node, Arc::clone(&sink), vote, Arc::clone(&metrics));
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
            me: raft_id(name),
            group: id,
            metrics: Arc::clone(&metrics),
            sending: Arc::clone(&sending),
            followers: Arc::new(Followers::default()),
        };
        let config = Arc::clone(&self.config);
        let machine = StateMachine(Arc::clone(&replica));
        let raft = GroupRaft::build(raft_id(name), config, network, log, machine).await;
        let raft =
            raft.map_err(|error| StartError::Raft { group: id, reason: error.to_string() })?;
        let links = self.links.clone();
        let parts =
            Parts { me: name, raft, queues, replica, standing, store, links, metrics, sending };
        Ok(Group::new(&self.settings, parts))
    }
}

fn record(database: &Database, id: GroupId) -> Result<Option<ReplicaRecord>, StartError> {
    database.replica(id).map_err(|source| StartError::Storage { group: id, source })
}
