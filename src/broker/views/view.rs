//! What lists, audits and metrics show of one node: plain values, filled by the broker, shown by
//! the management floor, which asks the other nodes for theirs and merges.
//!
//! Everything here is this node's own view. Every node with a copy of the catalog gives the record of
//! a queue, but only the node that leads its group (or is its home) gives counts; the management
//! floor merges the views of all nodes by queue id. Connections, channels and consumers are those
//! of clients of this node.

pub use crate::views::attempts::{Attempts, LoginProtocol, SourceAttempts};
pub use crate::views::figures::{
    ChannelFigure, ConnectionFigure, ExchangeTraffic, Figures, QueueFigure, Traffic,
    WAIT_BOUNDS_MS, Waits,
};
pub use crate::views::group_view::{FollowerLag, GroupView, Role};
pub use crate::views::member_view::{ClusterView, MemberView, PlacementView};
pub use quorate_client::{ChannelReport, ChannelTraffic};
pub use quorate_queue::{DeadLetterFact, DeadLetterStrategy, DeathReason};
pub use quorate_storage::{DatabaseMemory, LogFiles};

use crate::{
    client::{SocketReport, TlsReport},
    memory::ShareFigures,
};
use quorate_catalog::{ConnectionId, ExchangeType, InForce, PolicyDefinition};
use quorate_types::{
    CatalogIndex, ConsumerId, FieldTable, GroupId, LogIndex, MachineVersion, NodeId, QueueId,
    QueueType, ResourceName, ShortString, StartNumber, VhostName,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// One queue, as this node knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueView {
    /// Id; views of several nodes are merged by it.
    pub id: QueueId,
    /// Virtual host and name of the queue.
    pub name: ResourceName,
    /// Type by interface.
    pub queue_type: QueueType,
    /// The durable flag of its declare.
    pub durable: bool,
    /// The auto-delete flag of its declare.
    pub auto_delete: bool,
    /// Connection that owns an exclusive queue.
    pub owner: Option<ConnectionId>,
    /// The arguments of its declare, as the client sent them.
    pub arguments: FieldTable,
    /// Node that leads its group, as far as this node knows; of a connection-bound queue its home.
    pub leader: Option<NodeId>,
    /// Nodes with a replica.
    pub members: Vec<NodeId>,
    /// Those of `members` that can be reached.
    pub online: Vec<NodeId>,
    /// Policies in force.
    pub policies: PolicyView,
    /// Given only by the node that leads the queue's group or is its home.
    pub counts: Option<QueueCounts>,
}

/// The policies in force for a queue or exchange (POL-11).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyView {
    /// Name of the policy.
    pub policy: Option<ShortString>,
    /// Name of the operator policy.
    pub operator_policy: Option<ShortString>,
    /// The merged definition of both policies.
    pub definition: PolicyDefinition,
}

impl From<InForce<'_>> for PolicyView {
    fn from(in_force: InForce<'_>) -> Self {
        Self {
            policy: in_force.policy.map(|policy| policy.name.clone()),
            operator_policy: in_force.operator.map(|policy| policy.name.clone()),
            definition: in_force.definition().into_owned(),
        }
    }
}

/// What a queue holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Number of messages that are ready for delivery.
    pub ready: u64,
    /// Number of messages that are delivered and not settled.
    pub unacknowledged: u64,
    /// Number of returned messages that wait before they are ready again (RQU-08).
    pub delayed: u64,
    /// Number of dead letters that have not reached their targets.
    pub dead_letters_waiting: u64,
    /// Number of attached consumers.
    pub consumers: u64,
    /// Bytes of the bodies of ready messages.
    pub ready_bytes: u64,
    /// Bytes of the bodies of delivered, unsettled messages.
    pub unacknowledged_bytes: u64,
    /// Memory that the queue's state takes on this node, bytes, estimated.
    pub memory_bytes: u64,
    /// Catalog index that its settings were resolved at.
    pub configured_at: CatalogIndex,
    /// Age of its oldest ready message, ms; `None`: it has none, or the age is not known.
    pub oldest_age_ms: Option<u64>,
}

/// One exchange of the catalog.
#[derive(Clone, Debug, PartialEq)]
pub struct ExchangeView {
    /// Virtual host and name; the default exchange has the empty name.
    pub name: ResourceName,
    /// The exchange type, such as direct or topic.
    pub kind: ExchangeType,
    /// The durable flag of its declare.
    pub durable: bool,
    /// The auto-delete flag of its declare.
    pub auto_delete: bool,
    /// The internal flag of its declare: clients may not publish to it.
    pub internal: bool,
    /// The arguments of its declare, as the client sent them.
    pub arguments: FieldTable,
    /// Policies in force.
    pub policies: PolicyView,
}

/// One explicit binding of the catalog.
#[derive(Clone, Debug, PartialEq)]
pub struct BindingView {
    /// Virtual host and name of the source exchange.
    pub source: ResourceName,
    /// Name of the destination, in the same virtual host.
    pub destination: ShortString,
    /// The destination is a queue; else it is an exchange.
    pub to_queue: bool,
    /// The binding key, which a routing key is matched with.
    pub key: ShortString,
    /// The arguments of the binding, such as header values to match.
    pub arguments: FieldTable,
}

/// The state of a client connection, in RabbitMQ's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// The connection is open and its socket is read.
    Running,
    /// Not read because the node is behind (DESIGN §6).
    Flow,
    /// Not read because of an alarm (ALM-03), having tried to publish.
    Blocked,
    /// The connection is closing and waits for close-ok.
    Closing,
}

/// One client connection of this node.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionView {
    /// Session of the node, and number of the connection within it.
    pub id: ConnectionId,
    /// The user that has authenticated.
    pub user: ShortString,
    /// The virtual host that the client has opened.
    pub vhost: VhostName,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address of this node that the client connected to.
    pub local: SocketAddr,
    /// The state as its front end last reported it.
    pub state: ConnectionState,
    /// Number of its open channels.
    pub channels: u32,
    /// Highest channel number, as negotiated.
    pub channel_max: u16,
    /// Largest frame, bytes, as negotiated.
    pub frame_max: u32,
    /// Heartbeat interval, seconds, as negotiated; 0 for none.
    pub heartbeat_s: u16,
    /// Time of its opening, ms since 1970.
    pub connected_at_ms: u64,
    /// The client properties of start-ok.
    pub client_properties: FieldTable,
    /// The mechanism by which the user has authenticated.
    pub mechanism: &'static str,
    /// Its TLS; `None`: it has none.
    pub tls: Option<Box<TlsReport>>,
    /// Counts of its socket, as its front end last reported them.
    pub socket: SocketReport,
}

/// One channel of a client connection of this node.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelView {
    /// The connection that it belongs to.
    pub connection: ConnectionId,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The address of this node that the client connected to.
    pub local: SocketAddr,
    /// The channel number in frames.
    pub number: u16,
    /// The user of the connection.
    pub user: ShortString,
    /// The virtual host of the connection.
    pub vhost: VhostName,
    /// The channel is in confirm mode.
    pub confirm: bool,
    /// Number of its consumers.
    pub consumers: u32,
    /// Deliveries and gets that are not settled.
    pub unacknowledged: u64,
    /// Publishes that are not confirmed.
    pub unconfirmed: u64,
    /// The channel is in transaction mode.
    pub transactional: bool,
    /// Publishes in its open transaction.
    pub messages_uncommitted: u64,
    /// Settles in its open transaction.
    pub acks_uncommitted: u64,
    /// Limit of unsettled deliveries of the channel, 0 for none.
    pub prefetch: u16,
    /// Messages that have passed through it.
    pub traffic: ChannelTraffic,
}

/// One consumer of a client of this node.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsumerView {
    /// Id of the consumer; the view of the queue's leader is merged by it.
    pub id: ConsumerId,
    /// Queue that it consumes from.
    pub queue: ResourceName,
    /// Connection of its channel.
    pub connection: ConnectionId,
    /// Number of its channel on the wire.
    pub channel: u16,
    /// The consumer tag, unique on its channel.
    pub tag: ShortString,
    /// The consumer acknowledges: it was declared without no-ack.
    pub ack_required: bool,
    /// Prefetch of the consumer, 0 for none.
    pub prefetch: u16,
    /// The consumer is exclusive: the queue has no other (CON-04).
    pub exclusive: bool,
    /// The arguments of basic.consume.
    pub arguments: FieldTable,
    /// How long it may hold a delivery unsettled, ms (CTO-04).
    pub timeout_ms: u64,
}

/// A resource alarm (ALM-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// Memory above its watermark.
    Memory,
    /// Free disk below its limit.
    Disk,
}

/// State of this node: its alarms, resources and replicas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// The id of the node.
    pub id: NodeId,
    /// Number of this process's start; `None` until it has been announced (SES 1).
    pub start: Option<StartNumber>,
    /// The newest version of the replicated machine that the node agrees to (MEM 15).
    pub machine_newest: MachineVersion,
    /// Alarms in force on this node itself.
    pub alarms: Vec<Alarm>,
    /// Memory above which the memory alarm is on, bytes.
    pub memory_limit_bytes: u64,
    /// Free bytes of the data directory's file system.
    pub disk_free_bytes: u64,
    /// Free bytes below which the disk alarm is on.
    pub disk_free_limit_bytes: u64,
    /// Number of open client connections.
    pub connections: u64,
    /// Queues in the catalog copy, and connection-bound ones of this node.
    pub queues: u64,
    /// Virtual hosts in the catalog copy.
    pub vhosts: u64,
    /// The replicas on this node, one for each group.
    pub groups: Vec<GroupView>,
    /// Publishes since the start of the process, by the size of their bodies.
    pub message_sizes: HistogramView,
    /// What the node's memory is used for.
    pub memory: MemoryUse,
}

/// What a node's memory is used for, as far as it is measured (ARCHITECTURE, "Where memory goes"); in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// What clients make the node hold, share by share.
    pub shares: Vec<ShareFigures>,
    /// Bodies of connection-bound queues.
    pub exclusive: u64,
    /// What its database holds.
    pub database: DatabaseMemory,
}

/// State digest of one replica at one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupAudit {
    /// The group of the replica.
    pub group: GroupId,
    /// Node of the replica.
    pub node: NodeId,
    /// Applied index that the digest belongs to.
    pub index: LogIndex,
    /// Rolling hash of the state (DESIGN §4).
    pub digest: u64,
}

/// Whether the node can serve clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Why the node has not entered the cluster yet; `None` if it does not wait for that (MEM 3).
    pub entrance: Option<String>,
    /// The node holds a routing lease of the catalog's leader (NAM 5).
    pub catalog_lease: bool,
    /// The AMQP port is open, and the replicas of this node have caught up enough to serve.
    pub serving: bool,
    /// Queue groups whose leader this node does not know, or has not heard from since its start: consumers of
    /// their queues would be delivered nothing (DLV 5). A group that has lacked a majority of its nodes for
    /// long is left out.
    pub leaderless: Vec<GroupId>,
    /// Groups whose replica here has not caught up since the start of the process; none once all have. A
    /// group that has lacked a majority of its nodes for long is left out.
    pub behind: Vec<GroupId>,
    /// Why the definitions of the start are not imported yet; `None` if they are.
    pub definitions: Option<String>,
    /// The node is drained (MEM 13).
    pub drained: bool,
    /// The ports of clients are closed, because the node is or was drained, or stops.
    pub ports_closed: bool,
}

impl Readiness {
    /// Clients can be served in full.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.catalog_lease && self.serving && self.leaderless.is_empty()
    }

    /// Clients can be served in full, find what the definitions name, and may come; and another node may
    /// be stopped now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.serves() && self.behind.is_empty() && self.definitions.is_none() && self.is_open()
    }

    /// Clients may come.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.drained && !self.ports_closed
    }
}

/// Durations in microseconds, or sizes, counted in buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramView {
    /// Upper bounds of the buckets, ascending; one more bucket has none.
    pub bounds: Vec<u64>,
    /// Counts, one more than bounds.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
}

/// Counters of one queue type's deliveries since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounters {
    /// Deliveries to consumers that acknowledge.
    pub consume_manual_ack: u64,
    /// Deliveries to consumers that do not acknowledge.
    pub consume_auto_ack: u64,
    /// Messages got by basic.get that are to be acknowledged.
    pub get_manual_ack: u64,
    /// Messages got by basic.get without acknowledgement.
    pub get_auto_ack: u64,
    /// Uses of basic.get that found the queue empty.
    pub get_empty: u64,
    /// Deliveries marked redelivered.
    pub redelivered: u64,
    /// Messages that clients have acknowledged.
    pub acknowledged: u64,
}

/// Number of deaths and of outcomes of their letters, for messages of queues that this node leads
/// or is the home of.
pub type DeadLetterCounters = BTreeMap<(QueueType, DeadLetterStrategy, DeadLetterFact), u64>;

/// Everything that `/metrics` shows of the broker. Counters are since the start of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsView {
    /// The node with its groups.
    pub node: NodeView,
    /// How far the followers of the groups that this node leads are behind.
    pub follower_lags: Vec<FollowerLag>,
    /// Number of open channels.
    pub channels: u64,
    /// Consumers of clients of this node.
    pub consumers: u64,
    /// Channels that have published.
    pub publishers: u64,
    /// Counter: connections that were opened.
    pub connections_opened: u64,
    /// Counter: connections that were closed.
    pub connections_closed: u64,
    /// Counter: channels that were opened.
    pub channels_opened: u64,
    /// Logins, by protocol.
    pub logins: Vec<Attempts>,
    /// Counter: channels that were closed.
    pub channels_closed: u64,
    /// Counter: declares that were answered by declare-ok, without passive ones.
    pub queues_declared: u64,
    /// Counter: queues that were created by a declare.
    pub queues_created: u64,
    /// Counter: queues that were deleted. The catalog's leader counts them, and server-named
    /// exclusive ones, which it does not know, their own node.
    pub queues_deleted: u64,
    /// Ready messages of queues that this node leads or is the home of.
    pub messages_ready: u64,
    /// Unacknowledged messages of the same queues.
    pub messages_unacknowledged: u64,
    /// Returned messages of the same queues that wait before they are ready again (RQU-08).
    pub messages_delayed: u64,
    /// Dead letters of the same queues that have not reached their targets.
    pub dead_letters_waiting: u64,
    /// Bytes of the bodies of ready messages of the same queues.
    pub messages_ready_bytes: u64,
    /// Bytes of the bodies of unacknowledged messages of the same queues.
    pub messages_unacknowledged_bytes: u64,
    /// Bytes of memory that the same queues use, about.
    pub queues_memory_bytes: u64,
    /// Counter: publishes received.
    pub received: u64,
    /// Counter: publishes received on channels in confirm mode.
    pub received_confirm: u64,
    /// Counter: publishes that were routed to a queue.
    pub routed: u64,
    /// Counter: unroutable publishes that were returned.
    pub unroutable_returned: u64,
    /// Counter: unroutable publishes that were dropped.
    pub unroutable_dropped: u64,
    /// Counter: confirmed to publishers (basic.ack).
    pub confirmed: u64,
    /// Counter: refused (basic.nack).
    pub refused: u64,
    /// Counter: batches of commands that a full lane to another node did not take, and that were
    /// kept and sent later.
    pub batches_refused: u64,
    /// Deliveries from classic queues.
    pub classic: DeliveryCounters,
    /// Deliveries from quorum queues.
    pub quorum: DeliveryCounters,
    /// Counters of dead letters.
    pub dead_letters: DeadLetterCounters,
    /// Bytes that clients may make the node hold.
    pub memory_budget_bytes: u64,
    /// Bytes proposed by this node and not yet answered.
    pub in_flight_bytes: u64,
    /// Counter: bodies read from disk instead of the cache, for deliveries and gets.
    pub bodies_read: u64,
    /// Counter: snapshots installed.
    pub snapshots_installed: u64,
    /// How long messages of the led queues waited for their first delivery.
    pub waits: Waits,
    /// Body sizes of publishes received.
    pub message_bytes: HistogramView,
    /// Files and tables of the log.
    pub log_files: LogFiles,
    /// The log writer's syncs (STO 1).
    pub sync: HistogramView,
    /// Bytes of each synced write.
    pub sync_bytes: HistogramView,
    /// Time from the making of a checkpoint to the end of its write.
    pub checkpoint: HistogramView,
    /// Time from the cut of an entry to its commit on the leader.
    pub round: HistogramView,
    /// Time from a command's arrival at its proposer to the cut of its batch.
    pub batch: HistogramView,
    /// Commands in each batch cut.
    pub batch_commands: HistogramView,
    /// Counter: log entries proposed, by the leaders of their groups.
    pub entries: u64,
    /// Time from the loss of a leader to the knowledge of the next one.
    pub election: HistogramView,
}
