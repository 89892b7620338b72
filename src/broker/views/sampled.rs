//! How a node's figures are read.

use crate::leader::led_homes::walk;
use crate::views::{
    administration::{Operator, Views},
    attempts::{Attempts, SourceAttempts},
    figures::{ChannelFigure, ConnectionFigure, ExchangeTraffic, Figures, QueueFigure},
    query::memory_bytes,
};
use quorate_queue::{Machine, QueueFigures};
use quorate_types::{ResourceName, Timestamp};

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
            let queues = walk(led, home, Machine::figures);
            all.extend(queues.into_iter().map(|queue| figure(queue, now)));
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
        memory_bytes: memory_bytes(&queue),
        id: queue.id,
        name: queue.name,
        queue_type: queue.queue_type,
        ready: queue.ready,
        ready_bytes: queue.ready_bytes,
        unacknowledged: queue.unacknowledged,
        unacknowledged_bytes: queue.unacknowledged_bytes,
        delayed: queue.delayed,
        consumers: queue.consumers,
        dead_letters_waiting: queue.letters,
        oldest_age_ms: now.zip(queue.oldest).map(|(now, oldest)| now.ms_since(oldest)),
        traffic: queue.traffic,
    }
}
