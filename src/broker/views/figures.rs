//! Figures that rates are computed from, and what `/metrics` shows of single queues and exchanges.

pub use quorate_queue::{Traffic, WAIT_BOUNDS_MS, Waits};

use crate::client::{ChannelReport, SocketReport};
use quorate_catalog::ConnectionId;
use quorate_types::{Home, QueueId, QueueType, ResourceName, VhostName};

/// One queue that this node leads or is the home of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFigure {
    /// Id of the queue.
    pub id: QueueId,
    /// Name of the queue, with its virtual host.
    pub name: ResourceName,
    /// Its type by interface.
    pub queue_type: QueueType,
    /// Number of ready messages.
    pub ready: u64,
    /// Bytes of their bodies.
    pub ready_bytes: u64,
    /// Number of messages that are delivered and not settled.
    pub unacknowledged: u64,
    /// Bytes of their bodies.
    pub unacknowledged_bytes: u64,
    /// Bytes of memory that it uses, about.
    pub memory_bytes: u64,
    /// Number of returned messages that wait before they are ready again (RQU-08).
    pub delayed: u64,
    /// Number of attached consumers.
    pub consumers: u32,
    /// Number of dead letters that have not reached their targets.
    pub dead_letters_waiting: u64,
    /// Age of its oldest ready message, ms; `None`: it has none, or the age is not known.
    pub oldest_age_ms: Option<u64>,
    /// What has passed through it.
    pub traffic: Traffic,
}

/// What clients of this node have published to an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeTraffic {
    /// Publishes received.
    pub published_in: u64,
    /// Copies of them that were routed to queues.
    pub published_out: u64,
    /// Unroutable publishes that were returned.
    pub returned: u64,
    /// Unroutable publishes that were dropped.
    pub dropped: u64,
}

/// What the socket of one connection has carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionFigure {
    /// Id of the connection.
    pub id: ConnectionId,
    /// Its virtual host.
    pub vhost: VhostName,
    /// Counts of its socket.
    pub socket: SocketReport,
}

/// What has passed through one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelFigure {
    /// Its connection.
    pub connection: ConnectionId,
    /// The channel number in frames.
    pub number: u16,
    /// The channel's state as its front end last reported it.
    pub report: ChannelReport,
}

/// Figures of the objects of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Homes that the node leads, that of its connection-bound queues among them.
    pub homes: Vec<Home>,
    /// The queues of these homes.
    pub queues: Vec<QueueFigure>,
    /// The exchanges that its clients have published to.
    pub exchanges: Vec<(ResourceName, ExchangeTraffic)>,
    /// Its clients' connections.
    pub connections: Vec<ConnectionFigure>,
    /// Their channels.
    pub channels: Vec<ChannelFigure>,
}
