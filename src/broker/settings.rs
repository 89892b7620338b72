//! Settings of a broker.

use crate::{
    FrontSettings,
    cluster::alarm_settings::AlarmSettings,
    leader::{clock::WallClock, local::SpillSettings},
};
use quorate_catalog::ClusterShape;
use quorate_types::{BootNumber, Incarnation, NodeId, QueueType};
use std::collections::BTreeMap;

/// Limits of the node and of the cluster; `None` for no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeLimits {
    /// Connections of clients of this node (CONN-20).
    pub connection_max: Option<u32>,
    /// Open channels of this node (CHN-03).
    pub channel_max_per_node: Option<u32>,
    /// Exchanges of the cluster, as this node's copy of the catalog has them (EXC-12).
    pub cluster_exchange_limit: Option<u64>,
    /// Queues of the cluster, likewise (QUE-11).
    pub cluster_queue_limit: Option<u64>,
    /// Bindings of the cluster, likewise.
    pub cluster_binding_limit: Option<u64>,
    /// Consumers of one connection.
    pub consumer_max_per_connection: Option<u32>,
    /// Values in the arguments of a declaration, a binding or a consumer, nested ones included.
    pub argument_max: Option<u32>,
    /// Bytes that such arguments take in memory.
    pub argument_max_bytes: Option<u64>,
    /// Values in the headers of a message, nested ones included.
    pub header_max: Option<u32>,
    /// Routing keys in `CC` and `BCC` of a message together (RTE-09).
    pub cc_max: Option<u32>,
}

/// Settings of one node's broker.
#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// The id of this node.
    pub me: NodeId,
    /// Its name, as lists show it.
    pub name: String,
    /// Boot number of this process.
    pub boot: BootNumber,
    /// Identity of its data directory.
    pub incarnation: Incarnation,
    /// The nodes with which a new cluster is founded, this one included. Once the catalog has members,
    /// it says who they are (MEM 1).
    pub members: Vec<NodeId>,
    /// Where this node reaches others, `host:port`, whatever the catalog says (MEM 1).
    pub peers: BTreeMap<NodeId, String>,
    /// Zone of this node; empty: a zone of its own (MEM 6).
    pub zone: String,
    /// Replicas of each queue group, as far as there are nodes for them; `None`: as many as it has, at
    /// least three (MEM 6).
    pub queue_replicas: Option<u16>,
    /// Where this node's rpc port is reached, for lists.
    pub rpc_address: String,
    /// Where its AMQP port is reached, for lists.
    pub amqp_address: String,
    /// Shape that a new cluster is given.
    pub shape: ClusterShape,
    /// Type of a queue whose declare names none (QUE-02).
    pub default_queue_type: QueueType,
    /// A classic redeclare of a quorum queue compares only what EQV-07 names.
    pub relaxed_redeclaration: bool,
    /// Limits of the node and of the cluster.
    pub limits: NodeLimits,
    /// Users that may log in from loopback addresses only (ACL-24).
    pub loopback_users: Vec<String>,
    /// How long the answer to a login that fails is held back, ms.
    pub login_failure_delay_ms: u64,
    /// How long an operation waits for a majority, ms.
    pub operation_timeout_ms: u64,
    /// How long a consumer on a node that cannot be reached keeps its messages, ms.
    pub unreachable_node_timeout_ms: u64,
    /// How long a consumer may hold a delivery unless its queue or it says otherwise, ms (CTO-01).
    pub consumer_timeout_ms: u64,
    /// Bytes of publishes that one connection may have in flight. Above, its socket is not read.
    pub connection_in_flight_bytes: u64,
    /// Bytes of publishes of all connections in flight to one home. Above, sockets that have any in
    /// flight are not read.
    pub group_in_flight_bytes: u64,
    /// Bytes of message bodies that clients may make this node hold (see `MemoryBudget`).
    pub client_memory: u64,
    /// Memory and files of connection-bound queues.
    pub spill: SpillSettings,
    /// Watermarks of the alarms for memory and disk.
    pub alarms: AlarmSettings,
    /// Settings of the front ends, such as AMQP limits.
    pub front: FrontSettings,
    /// The source of wall time.
    pub wall: WallClock,
}
