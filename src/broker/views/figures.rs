//! Figures that rates are computed from, and what `/metrics` shows of single queues and exchanges.

pub use quorate_queue::{Traffic, WAIT_BOUNDS_MS, Waits};

use crate::{
    client::{ChannelReport, SocketReport},
    views::{
        administration::{Operator, Views},
        attempts::{Attempts, SourceAttempts},
    },
};
use quorate_catalog::ConnectionId;
use quorate_queue::QueueFigures;
use quorate_types::{Home, QueueId, QueueType, ResourceName, Timestamp, VhostName};

/// Queues of one home that are read at once, so that the home's machine is not locked for long.
const CHUNK: usize = 256;

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

impl Views<'_> {
    /// Figures of all objects of this node.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let homes = self.0.base.led.homes();
        let mut figures = Figures {
            homes,
            queues: self.queue_figures(),
            exchanges: self.exchange_traffic(),
            ..Figures::default()
        };
        for connection in self.0.clients.connections.all() {
            figures.connections.push(ConnectionFigure {
                id: connection.id,
                vhost: connection.info.vhost.clone(),
                socket: *connection.reported.socket.lock(),
            });
            let channels = connection.reported.channels.lock();
            figures.channels.extend(channels.iter().map(|(number, open)| ChannelFigure {
                connection: connection.id,
                number: *number,
                report: open.report,
            }));
        }
        figures
    }

    /// Figures of all queues that this node leads or is the home of.
    pub(crate) fn queue_figures(&self) -> Vec<QueueFigure> {
        let led = &self.0.base.led;
        let mut all = Vec::new();
        for home in led.homes() {
            let now = led.now(home);
            let mut after = None;
            loop {
                let chunk = led.with_machine(home, |machine| machine.figures(after, CHUNK));
                let chunk = chunk.unwrap_or_default();
                after = chunk.last().map(|last| last.id);
                let is_last = chunk.len() < CHUNK;
                all.extend(chunk.into_iter().map(|queue| figure(queue, now)));
                if is_last {
                    break;
                }
            }
        }
        all
    }

    /// What this node's clients have published to each exchange.
    fn exchange_traffic(&self) -> Vec<(ResourceName, ExchangeTraffic)> {
        let base = &self.0.base;
        let exchanges = &base.context.counters.exchanges;
        let (kept, gone): (Vec<_>, Vec<_>) = {
            let catalog = base.catalog.read();
            let is_there = |name: &ResourceName| match name.name.is_empty() {
                true => catalog.has_vhost(&name.vhost),
                false => catalog.exchange(name).is_some(),
            };
            exchanges.all().into_iter().partition(|(name, _)| is_there(name))
        };
        gone.iter().for_each(|(name, _)| exchanges.forget(name));
        kept
    }

    /// Logins at this node, by protocol.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempts> {
        self.0.base.context.counters.logins.all()
    }

    /// Logins at this node, by their source.
    #[must_use]
    pub fn attempts_by_source(&self) -> Vec<SourceAttempts> {
        self.0.base.context.counters.logins.by_source()
    }
}

impl Operator<'_> {
    /// Counts logins at this node from 0 again, or only those by source.
    pub fn reset_attempts(&self, only_by_source: bool) {
        self.0.base.context.counters.logins.reset(only_by_source);
    }
}

fn figure(queue: QueueFigures, now: Option<Timestamp>) -> QueueFigure {
    QueueFigure {
        id: queue.id,
        name: queue.name,
        queue_type: queue.queue_type,
        ready: queue.ready,
        ready_bytes: queue.ready_bytes,
        unacknowledged: queue.unacknowledged,
        delayed: queue.delayed,
        consumers: queue.consumers,
        dead_letters_waiting: queue.letters,
        oldest_age_ms: now.zip(queue.oldest).map(|(now, oldest)| now.ms_since(oldest)),
        traffic: queue.traffic,
    }
}
