//! A node's broker without groups and links, for tests of what it makes of messages.

use crate::{
    AlarmBounds, AlarmSettings, Broker, BrokerSettings, ChannelId, ConnectionInfo, FrontSettings,
    NodeLimits, SpillSettings,
    connection::ConnectionState,
    consumer::{FrontConsumer, NewConsumer},
};
use quorate_catalog::{ClusterShape, ConnectionId};
use quorate_types::{
    BootNumber, ClusterId, ConsumerId, FieldTable, GroupId, Home, Incarnation, NodeId, QueueId,
    QueueType, SessionId, ShortString, StartNumber, VhostName,
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

/// Node 1 of three. Must be called within a tokio runtime.
pub(crate) fn broker() -> Broker {
    let none = u64::MAX;
    let settings = BrokerSettings {
        me: NodeId(1),
        name: "test".to_owned(),
        boot: BootNumber(1),
        incarnation: Incarnation(1),
        members: (1..=3).map(NodeId).collect(),
        rpc_address: String::new(),
        amqp_address: String::new(),
        shape: ClusterShape { cluster: ClusterId(1), queue_groups: 3 },
        default_queue_type: QueueType::Classic,
        relaxed_redeclaration: false,
        limits: NodeLimits::default(),
        loopback_users: Vec::new(),
        operation_timeout_ms: 1_000,
        consumer_timeout_ms: none,
        consumer_disconnected_timeout_ms: 60_000,
        connection_in_flight_bytes: none,
        home_in_flight_bytes: none,
        spill: SpillSettings { memory_bytes_max: none, folder: PathBuf::new() },
        alarms: AlarmSettings {
            bounds: AlarmBounds { memory_bytes_max: none, disk_free_bytes_min: 0 },
            machine_memory_bytes: none,
            data_dir: PathBuf::new(),
        },
        front: FrontSettings {
            message_bytes_max: none,
            consumers_per_channel_max: None,
            default_prefetch: 0,
            delivery_ahead_bytes: none,
            frame_max: 0,
            channel_max: 0,
            heartbeat_s: 0,
            handshake_timeout_ms: none,
            anonymous_user: None,
            server_properties: FieldTable::default(),
        },
    };
    Broker::new(settings, Arc::default())
}

/// A consumer of a replicated queue, without a limit.
pub(crate) fn consumer() -> Arc<FrontConsumer> {
    let session = SessionId { node: NodeId(1), start: StartNumber(1) };
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let info = ConnectionInfo {
        user: ShortString::from_static("guest"),
        vhost: VhostName::from(ShortString::from_static("/")),
        peer: nowhere,
        local: nowhere,
        client_properties: FieldTable::default(),
        channel_max: 0,
        frame_max: 0,
        heartbeat_s: 0,
    };
    let id = ConnectionId { session, number: 1 };
    let connection = Arc::new(ConnectionState::new(id, info, u64::MAX, Arc::default()));
    let new = NewConsumer {
        id: ConsumerId { session, number: 1 },
        queue: QueueId { home: Home::Group(GroupId(1)), index: 1, position: 0 },
        queue_type: QueueType::Quorum,
        has_delivery_limit: false,
        channel: ChannelId { number: 1, opened: 0 },
        tag: ShortString::from_static("tag"),
        no_ack: false,
        prefetch: 0,
        windowed: true,
        arguments: FieldTable::default(),
        room: None,
    };
    Arc::new(FrontConsumer::new(new, connection))
}
