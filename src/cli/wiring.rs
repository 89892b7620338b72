//! Assembles a node from its parts: storage, groups, links, broker, AMQP front end.
//!
//! A node is prepared first: its directory is open, and its rpc port can be served, so that nodes that
//! start at the same time find each other. Then it enters the cluster (`joining`), and only then
//! its groups start.

use super::{
    allocator,
    charter::{Charters, await_beginning, expect_founders},
    joining::{self, Newcomer},
    machine,
    memory::Division,
    settings::{Identity, RABBITMQ_VERSION, Settings},
};
use parking_lot::RwLock;
use quorate_amqp::{Listeners, PortSwitch};
use quorate_broker::{
    AlarmBounds, AlarmSettings, Broker, BrokerSettings, FrontSettings, Joined, NodeLimits,
    SpillSettings, WallClock,
};
use quorate_catalog::{Catalog, ClusterShape};
use quorate_management::{
    MemberService, NodeFacts,
    wire::{EnterRequest, founding_server::FoundingServer, members_server::MembersServer},
};
use quorate_raft::{Groups, Inbox, Sinks};
use quorate_rpc::{ClusterCell, ClusterSecret, Connector, Door, LinkConfig, Links, MachineCell};
use quorate_storage::{Database, OpenError, Options, StorageError};
use quorate_tls::Mutual;
use quorate_types::{
    BootNumber, ClusterId, FieldTable, FieldValue, GroupId, Incarnation, MachineVersion, NodeId,
    ReplicaNumber, ShortString,
};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tonic::service::Routes;

/// Longest time for handing leaderships over at a stop.
const HAND_OVER: Duration = Duration::from_secs(5);

/// Why the parts cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WiringError {
    /// The data directory cannot be opened.
    #[error("setting data_dir: {0}")]
    Open(#[from] OpenError),
    /// The Raft groups could not be started.
    #[error(transparent)]
    Groups(#[from] quorate_raft::StartError),
    /// The cluster was formed with another number of groups.
    #[error("setting queue_groups: the cluster was formed with {formed} queue groups, not {asked}")]
    QueueGroups { formed: u16, asked: u16 },
    /// The node does not enter a cluster.
    #[error(transparent)]
    Enter(#[from] joining::EnterError),
    /// The last resort was interrupted (MEM 14).
    #[error(
        "setting data_dir: `quorate recover-quorum` was interrupted on data directory {0}: run it again, or, \
         if another node goes on in the place of all, set the directory aside"
    )]
    Recovering(PathBuf),
    /// The data directory cannot be read or written.
    #[error("setting data_dir: {0}")]
    Storage(#[from] StorageError),
}

/// A node whose groups do not run yet.
pub(crate) struct Prepared {
    pub(crate) broker: Broker,
    /// gRPC services of the links between nodes, and for nodes that enter the cluster.
    pub(crate) routes: Routes,
    inbox: Inbox,
    sinks: Sinks,
    links: Links,
    cluster: ClusterCell,
    charters: Charters,
    database: Arc<Database>,
    fatal: mpsc::Receiver<String>,
}

/// The running parts of a node.
pub(crate) struct Node {
    pub(crate) broker: Broker,
    groups: Arc<Groups>,
    links: Links,
    database: Arc<Database>,
    fatal: mpsc::Receiver<String>,
    amqp: Option<Amqp>,
}

/// The resources for serving AMQP clients.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    /// The runtime of the clients' threads.
    pub(crate) runtime: Handle,
    /// Maximum of connections at once.
    pub(crate) connections_max: usize,
}

/// The server of AMQP clients, and the ways to stop it.
struct Amqp {
    /// True: no new connections are accepted.
    full: watch::Sender<bool>,
    /// True: all clients are disconnected.
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

/// Opens the data directory and makes the parts that run before the groups.
pub(crate) fn prepare(
    settings: &Settings,
    facts: &NodeFacts,
    secret: ClusterSecret,
    tls: Option<Mutual>,
) -> Result<Prepared, WiringError> {
    let (fatal_sender, fatal) = mpsc::channel(1);
    let memory = Division::of(settings, machine::memory_bytes());
    tracing::debug!(?memory, "division of the memory, in bytes");
    let database = open(settings, &memory, fatal_sender.clone())?;
    let identity = database.identity();
    if identity.is_recovering {
        database.close();
        return Err(WiringError::Recovering(settings.data_dir.clone()));
    }
    let cluster = ClusterCell::new(identity.cluster, identity.epoch);
    let charters = Charters::new(Arc::clone(&database), settings.node_id, members(settings));
    let broker_settings =
        broker_settings(settings, &memory, facts, identity.boot, identity.incarnation);
    let catalog = Arc::new(RwLock::new(Catalog::new()));
    let broker = Broker::new(broker_settings, Arc::clone(&catalog));
    let inbox = Inbox::new();
    let links = Links::new(
        LinkConfig {
            me: settings.node_id,
            boot: identity.boot,
            former_boots: identity.former,
            incarnation: identity.incarnation,
            address: settings.rpc_address().to_string(),
            peers: peers(settings),
            secret,
            tls,
            cluster: cluster.clone(),
            machine: machine_cell(settings),
            lane_bytes: memory.lane_bytes as usize,
        },
        broker.link_handler(inbox.clone()),
    );
    let sinks = Sinks {
        queues: Arc::new(broker.clone()),
        catalog: Arc::new(broker.clone()),
        copy: catalog,
        fatal: Arc::new(move |group, reason| {
            // The first line ends the process; further ones add nothing.
            let _ = fatal_sender.try_send(format!("group {group}: {reason}"));
        }),
    };
    let members = MemberService::new(broker.clone(), cluster.clone());
    let routes = Routes::default().add_service(links.service());
    let routes = routes.add_service(MembersServer::new(members));
    let routes = routes.add_service(FoundingServer::new(charters.clone()));
    Ok(Prepared { broker, routes, inbox, sinks, links, cluster, charters, database, fatal })
}

impl Prepared {
    /// Authenticates connections to the rpc port.
    pub(crate) fn door(&self) -> Door {
        self.links.door()
    }

    /// Waits until it is known how this node takes part in a cluster: as a member that joins, or as
    /// one whose directory says what it has, or is to found the cluster (`None`).
    pub(crate) async fn enter(
        &self,
        settings: &Settings,
        connector: &Connector,
    ) -> Result<Option<Joined>, WiringError> {
        let catalog = self.database.group(GroupId::CATALOG)?;
        let others = peers(settings);
        // A process may have ended after it had joined and before it had any of the catalog.
        if catalog.log_state().last.is_some() || others.is_empty() {
            return Ok(None);
        }
        let identity = self.database.identity();
        let node = settings.node_id.0.into();
        let request = EnterRequest {
            node,
            incarnation: identity.incarnation.0,
            address: settings.rpc_address().to_string(),
            zone: settings.zone.clone(),
            machine_newest: self.links.machine().newest().0,
            replace_lost_disk: settings.replace_lost_disk,
            nodes: members(settings).into_iter().map(|node| node.0.into()).collect(),
        };
        let charters = identity.cluster.is_none().then(|| self.charters.clone());
        let newcomer = Newcomer { me: settings.node_id, request, others, charters };
        let operator = self.broker.operator();
        let entered =
            joining::enter(&newcomer, connector, |why| operator.await_entrance(Some(why)));
        let entered = entered.await?;
        operator.await_entrance(None);
        Ok(entered)
    }

    /// Starts the parts, after [`Prepared::enter`].
    pub(crate) async fn start(
        self,
        settings: &Settings,
        joined: Option<Joined>,
    ) -> Result<Node, WiringError> {
        let mut raft = raft_settings(settings);
        if let Some(joined) = joined {
            raft.first = Some(self.join(settings, joined).await?);
        }
        let (charter, is_founding) = (self.charters.formed()?, raft.first.is_none());
        let founders = is_founding.then(|| self.charters.founders(charter.as_ref()));
        raft.founders = founders.transpose()?.unwrap_or_default();
        let Self { broker, inbox, sinks, links, cluster, database, fatal, .. } = self;
        let groups = Groups::start(raft, &database, links.clone(), &inbox, sinks);
        let groups = Arc::new(groups.await?);
        check_shape(&groups, settings)?;
        broker.begin(Arc::clone(&groups), links.clone(), &database);
        if let Some(charter) = charter.filter(|_| is_founding) {
            expect_founders(&groups.catalog(), &links, &charter);
            tokio::spawn(await_beginning(broker.clone(), charter, settings.node_id));
        }
        // Only now, since the links must know from the catalog which data directories of the other
        // nodes are valid.
        links.open();
        tokio::spawn(keep_cluster_id(broker.clone(), Arc::clone(&database), cluster));
        Ok(Node { broker, groups, links, database, fatal, amqp: None })
    }

    /// Makes this node one of the cluster that it has joined (MEM 3), and returns the number of its
    /// replica of the catalog. The directory belongs to the cluster before it has anything of it, and
    /// is refused before that by binaries that do not know the cluster's machine version (MEM 15).
    async fn join(
        &self,
        settings: &Settings,
        joined: Joined,
    ) -> Result<ReplicaNumber, WiringError> {
        check_queue_groups(joined.shape, settings)?;
        self.database.machine_mark().raise(joined.machine)?;
        let own = peers(settings);
        let parts = (&self.links, &self.cluster);
        joined.take_part(&self.database, parts, |node| own.contains_key(&node)).await?;
        let (cluster, first) = (joined.shape.cluster.0, joined.first);
        tracing::info!(cluster, replica = %first, "this node joins a cluster");
        Ok(first)
    }

    /// Ends a node that has not started.
    pub(crate) fn abandon(self) {
        self.links.stop();
        self.database.close();
    }
}

fn open(
    settings: &Settings,
    memory: &Division,
    fatal_sender: mpsc::Sender<String>,
) -> Result<Arc<Database>, OpenError> {
    let mut options = Options::new(settings.node_id, Incarnation(rand::random()));
    options.chance = rand::random();
    options.write_buffer_bytes = memory.write_buffer_bytes as usize;
    options.block_cache_bytes = memory.block_cache_bytes as usize;
    options.run_cache_bytes = memory.run_cache_bytes as usize;
    options.watchdog = Duration::from_millis(settings.watchdog_ms);
    options.disk_free_limit = settings.disk_free_limit.0;
    options.fatal = Arc::new(move |error: &StorageError| {
        let _ = fatal_sender.try_send(format!("storage: {error}"));
    });
    Database::open(&settings.data_dir, options)
}

/// The versions of the replicated machine that this node agrees to.
fn machine_cell(settings: &Settings) -> MachineCell {
    let newest = settings.machine_version_max;
    MachineCell::new(newest.map_or(MachineVersion::NEWEST, MachineVersion))
}

/// The other nodes' rpc addresses.
fn peers(settings: &Settings) -> BTreeMap<NodeId, String> {
    let others = settings.cluster.iter().filter(|(node, _)| **node != settings.node_id);
    others.map(|(node, address)| (*node, address.to_string())).collect()
}

/// All nodes, this one included.
fn members(settings: &Settings) -> Vec<NodeId> {
    let mut members: Vec<_> = settings.cluster.keys().copied().collect();
    if members.is_empty() {
        members.push(settings.node_id);
    }
    members
}

fn raft_settings(settings: &Settings) -> quorate_raft::Settings {
    let mut raft = quorate_raft::Settings::new(settings.node_id, members(settings));
    raft.queue_groups = settings.queue_groups;
    raft.raft_heartbeat = Duration::from_millis(settings.raft_heartbeat_ms);
    let ms = Duration::from_millis;
    raft.election_min = ms(settings.election_min_ms);
    raft.election_max = ms(settings.election_max_ms);
    raft.log_tail_bytes = settings.log_tail_bytes.0;
    raft.checkpoint = ms(settings.checkpoint_ms);
    raft.checkpoint_bytes = usize::try_from(settings.checkpoint_bytes.0).unwrap_or(usize::MAX);
    raft
}

fn check_shape(groups: &Groups, settings: &Settings) -> Result<(), WiringError> {
    groups.catalog().shape().map_or(Ok(()), |shape| check_queue_groups(shape, settings))
}

fn check_queue_groups(shape: ClusterShape, settings: &Settings) -> Result<(), WiringError> {
    let (formed, asked) = (shape.queue_groups, settings.queue_groups);
    if formed == asked { Ok(()) } else { Err(WiringError::QueueGroups { formed, asked }) }
}

/// Stores the cluster's identity once it is known, and passes it to the links.
async fn keep_cluster_id(broker: Broker, database: Arc<Database>, cell: ClusterCell) {
    let mut formed = broker.formed();
    let shape = match formed.wait_for(Option::is_some).await {
        Ok(shape) => *shape,
        Err(_) => return,
    };
    if let Some(ClusterShape { cluster, .. }) = shape {
        cell.set(cluster);
        database.set_cluster(
            cluster,
            Box::new(|written| {
                if let Err(error) = written {
                    tracing::error!(%error, "cannot store the id of the cluster");
                }
            }),
        );
    }
}

fn limits(settings: &Settings) -> NodeLimits {
    NodeLimits {
        connection_max: settings.connection_max,
        channel_max_per_node: settings.channel_max_per_node,
        cluster_exchange_limit: settings.cluster_exchange_limit,
        cluster_queue_limit: settings.cluster_queue_limit,
        cluster_binding_limit: settings.cluster_binding_limit,
        consumer_max_per_connection: settings.consumer_max_per_connection,
        argument_max: settings.argument_max,
        argument_max_bytes: settings.argument_max_bytes.map(|bytes| bytes.0),
        header_max: settings.header_max,
        cc_max: settings.cc_max,
    }
}

fn broker_settings(
    settings: &Settings,
    memory: &Division,
    facts: &NodeFacts,
    boot: BootNumber,
    incarnation: Incarnation,
) -> BrokerSettings {
    BrokerSettings {
        me: settings.node_id,
        name: facts.name.clone(),
        boot,
        incarnation,
        members: members(settings),
        peers: peers(settings),
        rpc_address: settings.rpc_address().to_string(),
        amqp_address: settings.amqp_address().to_string(),
        zone: settings.zone.clone(),
        queue_replicas: settings.queue_replicas,
        shape: ClusterShape {
            cluster: ClusterId(rand::random()),
            queue_groups: settings.queue_groups,
        },
        default_queue_type: settings.default_queue_type,
        relaxed_redeclaration: settings.relaxed_redeclaration,
        limits: limits(settings),
        loopback_users: settings.loopback_users.0.clone(),
        login_failure_delay_ms: settings.login_failure_delay_ms,
        operation_timeout_ms: settings.operation_timeout_ms,
        consumer_timeout_ms: settings.consumer_timeout_ms,
        unreachable_node_timeout_ms: settings.unreachable_node_timeout_ms,
        connection_in_flight_bytes: memory.connection_in_flight_bytes,
        group_in_flight_bytes: memory.group_in_flight_bytes,
        client_memory: memory.client_memory,
        spill: SpillSettings {
            exclusive_memory_bytes: memory.exclusive_memory_bytes,
            data_dir: settings.data_dir.clone(),
        },
        alarms: AlarmSettings {
            bounds: AlarmBounds {
                memory_high_watermark: memory.memory_high_watermark,
                disk_free_limit: settings.disk_free_limit.0,
            },
            machine_memory_bytes: memory.machine_memory_bytes,
            data_dir: settings.data_dir.clone(),
            return_free_memory: allocator::return_free_memory,
        },
        front: FrontSettings {
            delivery_ahead_bytes: memory.delivery_ahead_bytes,
            max_message_size: settings.max_message_size.0,
            consumer_max_per_channel: settings.consumer_max_per_channel,
            default_consumer_prefetch: settings.default_consumer_prefetch,
            frame_max: settings.frame_max,
            channel_max: settings.channel_max,
            amqp_heartbeat_s: settings.amqp_heartbeat_s,
            handshake_timeout_ms: settings.handshake_timeout_ms,
            handshake_max: settings.handshake_max,
            amqp_receive_buffer: usize::try_from(settings.amqp_receive_buffer.0)
                .unwrap_or(usize::MAX),
            write_timeout_ms: settings.write_timeout_ms,
            anonymous_user: settings.anonymous_user.clone(),
            server_properties: server_properties(settings, facts),
        },
        wall: WallClock::default(),
    }
}

/// The server properties in `connection.start` (CONN-07, CONN-08, Q-01).
fn server_properties(settings: &Settings, facts: &NodeFacts) -> FieldTable {
    let (product, version) = match settings.identify_as {
        Identity::RabbitMq => ("RabbitMQ", RABBITMQ_VERSION),
        Identity::Quorate => ("Quorate", env!("CARGO_PKG_VERSION")),
    };
    let capabilities = [
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ];
    let capabilities =
        capabilities.map(|name| (ShortString::from_static(name), FieldValue::Bool(true))).to_vec();
    let text = |name, value: &str| (ShortString::from_static(name), FieldValue::text(value));
    FieldTable(vec![
        (ShortString::from_static("capabilities"), FieldValue::Table(FieldTable(capabilities))),
        text("cluster_name", &facts.name),
        text("copyright", "The Quorate authors"),
        text("information", "Licensed under the Apache License 2.0"),
        text("platform", "Rust"),
        text("product", product),
        text("quorate_version", env!("CARGO_PKG_VERSION")),
        text("version", version),
    ])
}

impl Node {
    /// Accepts AMQP clients until the node stops.
    pub(crate) fn serve_amqp(&mut self, listeners: Listeners, clients: &Clients) {
        let (full, stop) = (watch::Sender::new(false), watch::Sender::new(false));
        let (broker, door, end) = (self.broker.clone(), full.subscribe(), stop.subscribe());
        let (drained, closed) = broker.views().ports();
        let (most, switch) = (clients.connections_max, PortSwitch { drained, closed });
        let serving = quorate_amqp::serve(listeners, broker, most, switch, door, end);
        let serving = clients.runtime.spawn(serving);
        self.amqp = Some(Amqp { full, stop, serving });
    }

    /// Resolves with one line after an error that the node must not survive, or when the cluster
    /// rejects this node.
    pub(crate) async fn fatal(&mut self) -> String {
        tokio::select! {
            // The senders live as long as the groups and the database.
            Some(reason) = self.fatal.recv() => reason,
            rejected = self.links.rejected() => rejected.to_string(),
        }
    }

    /// Stops accepting clients, hands leaderships over, disconnects clients, and closes the
    /// database.
    pub(crate) async fn stop(&mut self) {
        let amqp = self.amqp.take();
        if let Some(amqp) = &amqp {
            amqp.full.send_replace(true);
        }
        self.groups.hand_over_all(HAND_OVER).await;
        if let Some(Amqp { stop, serving, .. }) = amqp {
            // The server has its own bound for the clients' answers.
            stop.send_replace(true);
            if let Err(error) = serving.await {
                tracing::warn!(%error, "the AMQP server failed");
            }
        }
        self.groups.stop().await;
        self.links.stop();
        self.database.close();
    }
}
