//! A broker with one node, without groups and links, which serves connection-bound queues: for unit
//! tests of this crate. Its functions must be called within a tokio runtime.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::{
    AlarmBounds, AlarmSettings, Broker, BrokerSettings, NodeLimits, SpillSettings, WallClock,
    client::{ChannelId, ConnectionInfo, FrontSettings},
    front::{
        connection_state::ConnectionState,
        consumer::{ConsumerProperties, FrontConsumer},
    },
    node::Node,
};
use quorate_catalog::{Catalog, ClusterShape, ConnectionId};
use quorate_queue::{Command, Delivery, QueueConfig, Reply};
use quorate_types::{
    BootNumber, ClusterId, ConsumerId, Counts, DeliveryNumber, GroupId, Home, Incarnation, Level,
    LogIndex, MessageId, NodeId, QueueId, QueueType, ResourceName, SessionId, ShortString,
    StartNumber,
};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

/// The node's only start.
pub(crate) const SESSION: SessionId = SessionId { node: NodeId(1), start: StartNumber(1) };

/// A node whose session has begun.
pub(crate) fn node() -> Arc<Node> {
    let settings = BrokerSettings {
        me: SESSION.node,
        name: "node-1".to_owned(),
        boot: BootNumber(1),
        incarnation: Incarnation(1),
        members: vec![SESSION.node],
        peers: BTreeMap::new(),
        queue_replicas: None,
        zone: String::new(),
        rpc_address: String::new(),
        amqp_address: String::new(),
        shape: ClusterShape { cluster: ClusterId(1), queue_groups: 2 },
        default_queue_type: QueueType::Classic,
        relaxed_redeclaration: false,
        limits: NodeLimits::default(),
        loopback_users: Vec::new(),
        operation_timeout_ms: 10_000,
        unreachable_node_timeout_ms: 10_000,
        consumer_timeout_ms: 1_800_000,
        login_failure_delay_ms: 0,
        connection_in_flight_bytes: 1 << 20,
        group_in_flight_bytes: 1 << 20,
        client_memory: 1 << 30,
        spill: SpillSettings { exclusive_memory_bytes: 1 << 20, data_dir: std::env::temp_dir() },
        alarms: AlarmSettings {
            bounds: AlarmBounds { memory_high_watermark: u64::MAX, disk_free_limit: 0 },
            machine_memory_bytes: 1 << 30,
            data_dir: std::env::temp_dir(),
            return_free_memory: || (),
        },
        front: FrontSettings {
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
        },
        wall: WallClock::default(),
    };
    let node = Broker::new(settings, Arc::new(parking_lot::RwLock::new(Catalog::new()))).0;
    node.cluster.begin_session(SESSION.start);
    node.receive_own_now();
    node.base.context.spawn(Arc::clone(&node).receive_own());
    node
}

/// A new connection-bound queue of that node, which nothing names.
pub(crate) async fn local_queue(node: &Node) -> QueueId {
    let name =
        ResourceName { vhost: ShortString::from_static("/"), name: ShortString::from_static("q") };
    let config = QueueConfig::plain(QueueType::Classic);
    let create = Command::CreateQueue { name, config, bound: Some(1) };
    let created = node.base.proposers.ask(Home::Node(SESSION.node), create).await.unwrap();
    let Reply::Created(queue) = created else { panic!("not created: {created:?}") };
    queue
}

/// A client connection of that node, as the front end stores it.
pub(crate) fn connection(node: &Arc<Node>) -> Arc<ConnectionState> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let info = ConnectionInfo {
        user: ShortString::from_static("guest"),
        mechanism: "PLAIN",
        vhost: ShortString::from_static("/"),
        peer: at,
        local: at,
        client_properties: Default::default(),
        channel_max: 10,
        frame_max: 1 << 17,
        heartbeat_s: 60,
        tls: None,
    };
    let id = ConnectionId { session: SESSION, number: 1 };
    let wall = node.base.context.settings.wall.now();
    Arc::new(ConnectionState::new(&node.base.context, id, info, wall, 1 << 20))
}

/// A connection of a node that does nothing, for tests without a runtime.
pub(crate) fn lone_connection() -> Arc<ConnectionState> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    connection(&node())
}

/// A consumer of a replicated queue, without a prefetch limit.
pub(crate) fn consumer(node: &Arc<Node>) -> Arc<FrontConsumer> {
    consumer_on(&connection(node), 1)
}

/// Another consumer of the same queue, on the first channel of that connection, which holds it.
pub(crate) fn consumer_on(connection: &Arc<ConnectionState>, number: u64) -> Arc<FrontConsumer> {
    let channel = ChannelId { number: 1, opened: 0 };
    let new = ConsumerProperties {
        id: ConsumerId { session: SESSION, number },
        queue: QueueId { home: Home::Group(GroupId(1)), index: 1, position: 0 },
        queue_type: QueueType::Quorum,
        has_delivery_limit: false,
        channel,
        tag: ShortString::from_static("tag"),
        no_ack: false,
        exclusive: false,
        prefetch: 0,
        windowed: true,
        arguments: Default::default(),
        room: None,
    };
    let consumer = Arc::new(FrontConsumer::new(new, Arc::clone(connection)));
    let mut held = connection.held.lock();
    held.channels
        .entry(channel)
        .or_default()
        .consumers
        .insert(consumer.about.id, Arc::clone(&consumer));
    consumer
}

/// A delivery to the consumer with that number, of the message of the entry with that index.
pub(crate) fn delivery(consumer: &FrontConsumer, number: u64) -> Delivery {
    Delivery {
        consumer: consumer.about.id,
        number: DeliveryNumber(number),
        queue: consumer.about.queue,
        message: MessageId { level: Level(0), index: LogIndex(number), position: 0 },
        counts: Counts::default(),
    }
}
