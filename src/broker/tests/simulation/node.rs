//! One node, composed as `quorate` does it, on a simulated disk and a simulated network.

use crate::{
    clients, entering,
    world::{Health, NODES, PORT, World, host},
};
use futures::future::pending;
use parking_lot::RwLock;
use quorate_broker::{
    AlarmBounds, AlarmSettings, Broker, BrokerSettings, FrontSettings, NodeLimits, SpillSettings,
    WallClock,
};
use quorate_catalog::{Catalog, ClusterShape};
use quorate_raft::{Groups, Inbox, Settings, Sinks};
use quorate_rpc::{
    Accept, ClusterCell, ClusterSecret, LinkConfig, Links, Listener, MachineCell, SimulatedConnect,
    chance,
};
use quorate_storage::{Database, OpenError, Options, StorageError};
use quorate_types::{ClusterId, Incarnation, NodeId, QueueType, WallTime};
use std::{
    collections::BTreeSet,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::Notify, time::sleep};
use tonic::service::Routes;
use turmoil::net::{TcpListener, TcpStream};

const QUEUE_GROUPS: u16 = 3;

/// The listener for connections to a node.
struct Incoming(TcpListener);

impl Accept for Incoming {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await
    }
}

/// Runs a node until its process is killed. If it loses its power while it starts, or its disk fails, it
/// waits for that.
pub async fn run(world: Arc<World>, me: NodeId) -> turmoil::Result {
    if world.health(me) != Health::Running {
        return pending().await;
    }
    match start(&world, me).await {
        Err(error) if !world.disk(me).is_open() || world.may_end(me) => {
            world.trace.note(&format!("node {me} does not start: {error}"));
            pending().await
        }
        ended => ended,
    }
}

async fn start(world: &Arc<World>, me: NodeId) -> turmoil::Result {
    let database = open(world, me)?;
    tokio::spawn(step(Arc::clone(world), me, Arc::clone(&database)));
    let identity = database.identity();
    let launch = world.membership.launch(me);
    world.trace.note(&format!("node {me} starts, boot {}, with {launch:?}", identity.boot.0));
    world.membership.started(me, identity.incarnation);
    let cluster = ClusterCell::new(identity.cluster, identity.epoch);
    let catalog = Arc::new(RwLock::new(Catalog::new()));
    let broker = Broker::new(settings(world, me, &database), Arc::clone(&catalog));
    let inbox = Inbox::new();
    let config = LinkConfig {
        me,
        boot: identity.boot,
        former_boots: identity.former,
        incarnation: identity.incarnation,
        address: launch.address(me),
        peers: others(me).map(|node| (node, node.to_string())).collect(),
        secret: ClusterSecret::new(b"the secret of the simulation")?,
        tls: None,
        cluster: cluster.clone(),
        machine: MachineCell::new(launch.version),
        lane_bytes: 16 << 20,
    };
    let links = Links::simulated(config, broker.link_handler(inbox.clone()), dialer(world, me));
    let port = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let listener = Listener::simulated(Incoming(TcpListener::bind(port).await?), port);
    let sinks = Sinks {
        queues: Arc::new(broker.clone()),
        catalog: Arc::new(broker.clone()),
        copy: catalog,
        fatal: Arc::new(fatal(world, me)),
    };
    tokio::spawn(entering::answer(Arc::clone(world), me, broker.clone(), cluster.clone()));
    let mut raft = Settings::new(me, listed(me));
    raft.first = entering::enter(world, me, &database, &links, &cluster).await?;
    raft.queue_groups = QUEUE_GROUPS;
    // So that a node that was down for a second misses entries that have been purged.
    raft.log_tail_bytes = 8 << 10;
    let groups = Groups::start(raft, &database, links.clone(), &inbox, sinks).await?;
    let groups = Arc::new(groups);
    broker.begin(Arc::clone(&groups), links.clone(), &database);
    links.open();
    tokio::spawn(keep_cluster_id(broker.clone(), Arc::clone(&database), cluster));
    let routes = Routes::new(links.service());
    tokio::spawn(listener.serve(routes, links.door(), pending()));
    world.running.lock().insert(me, (broker.clone(), groups));
    clients::start(world, &broker, me);
    let rejected = links.rejected().await;
    if world.membership.may_be_forgotten(me) {
        world.trace.note(&format!("node {me} is told that it was forgotten: {rejected}"));
        world.membership.has_gone(me);
        return pending().await;
    }
    world.history.lock().violation(format!("node {me} was rejected: {rejected}"));
    Ok(())
}

/// The nodes that the settings name.
fn listed(me: NodeId) -> BTreeSet<NodeId> {
    NODES.into_iter().chain([me]).collect()
}

fn others(me: NodeId) -> impl Iterator<Item = NodeId> {
    NODES.into_iter().filter(move |node| *node != me)
}

fn open(world: &Arc<World>, me: NodeId) -> Result<Arc<Database>, OpenError> {
    let mut options = Options::new(me, Incarnation(chance::random()));
    options.chance = chance::random();
    options.run_cache_bytes = 1 << 20;
    options.tail_cache_bytes = 1 << 14;
    let fatal = fatal(world, me);
    options.fatal =
        Arc::new(move |error: &StorageError| fatal(Default::default(), &error.to_string()));
    Database::open_simulated(&world.disk(me), &options)
}

/// A node must not end by itself, unless its disk has lost power or has failed.
fn fatal(
    world: &Arc<World>,
    me: NodeId,
) -> impl Fn(quorate_types::GroupId, &str) + 'static + use<> {
    let world = Arc::clone(world);
    move |group, reason| {
        if world.disk(me).is_open() && !world.may_end(me) {
            world.history.lock().violation(format!("node {me} ends, group {group}: {reason}"));
        }
    }
}

fn dialer(world: &Arc<World>, me: NodeId) -> SimulatedConnect {
    let world = Arc::clone(world);
    Box::new(move |address| {
        let (world, to) = (Arc::clone(&world), world.membership.at(&address));
        Box::pin(async move {
            match to {
                Some(to) => world.connect(me, to).await,
                // Nobody has it any more.
                None => {
                    sleep(Duration::from_millis(1)).await;
                    Err(io::ErrorKind::ConnectionRefused.into())
                }
            }
        })
    })
}

/// Does the work of the database's threads. A sync takes one to four milliseconds, or as long as the
/// disk hangs.
async fn step(world: Arc<World>, me: NodeId, database: Arc<Database>) {
    let work = Arc::new(Notify::new());
    let waker = Arc::clone(&work);
    database.when_there_is_work(Box::new(move || waker.notify_one()));
    loop {
        work.notified().await;
        loop {
            sleep(Duration::from_millis(chance::in_range(1..=4))).await;
            while world.hanging.lock().contains(&me) {
                sleep(Duration::from_millis(1)).await;
            }
            if !database.step() {
                break;
            }
        }
    }
}

async fn keep_cluster_id(broker: Broker, database: Arc<Database>, cell: ClusterCell) {
    let mut formed = broker.formed();
    let shape = formed.wait_for(Option::is_some).await.ok().and_then(|shape| *shape);
    if let Some(ClusterShape { cluster, .. }) = shape {
        cell.set(cluster);
        database.set_cluster(cluster, Box::new(|_| ()));
    }
}

/// The wall time of a simulation, from its start.
fn wall_time() -> WallTime {
    let passed = turmoil::sim_elapsed().unwrap_or_default();
    WallTime(1_700_000_000_000 + passed.as_millis() as u64)
}

fn settings(world: &World, me: NodeId, database: &Database) -> BrokerSettings {
    let identity = database.identity();
    BrokerSettings {
        me,
        name: host(me),
        boot: identity.boot,
        incarnation: identity.incarnation,
        members: listed(me).into_iter().collect(),
        peers: others(me).map(|node| (node, node.to_string())).collect(),
        queue_replicas: None,
        zone: String::new(),
        rpc_address: world.membership.launch(me).address(me),
        amqp_address: String::new(),
        shape: ClusterShape { cluster: ClusterId(chance::random()), queue_groups: QUEUE_GROUPS },
        default_queue_type: QueueType::Quorum,
        relaxed_redeclaration: false,
        limits: NodeLimits::default(),
        loopback_users: Vec::new(),
        login_failure_delay_ms: 0,
        operation_timeout_ms: 10_000,
        unreachable_node_timeout_ms: world.unreachable_node_timeout_ms,
        consumer_timeout_ms: 1_800_000,
        connection_in_flight_bytes: 1 << 20,
        group_in_flight_bytes: 1 << 20,
        client_memory: 1 << 30,
        spill: SpillSettings { exclusive_memory_bytes: 1 << 20, data_dir: std::env::temp_dir() },
        alarms: AlarmSettings {
            bounds: AlarmBounds { memory_high_watermark: u64::MAX, disk_free_limit: 0 },
            machine_memory_bytes: 1 << 30,
            // A measurement runs on a thread of its own, so that a seed would not repeat itself.
            data_dir: std::path::PathBuf::new(),
            return_free_memory: || (),
        },
        front: front(),
        wall: WallClock(wall_time),
    }
}

fn front() -> FrontSettings {
    FrontSettings {
        max_message_size: 1 << 20,
        consumer_max_per_channel: None,
        default_consumer_prefetch: 0,
        delivery_ahead_bytes: 1 << 20,
        frame_max: 1 << 17,
        channel_max: 100,
        amqp_heartbeat_s: 60,
        handshake_timeout_ms: 10_000,
        handshake_max: 1_024,
        amqp_receive_buffer: 0,
        write_timeout_ms: 60_000,
        anonymous_user: None,
        server_properties: Default::default(),
    }
}
