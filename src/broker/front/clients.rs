//! The clients of this node: their connections and consumers, and the counts of them.

use crate::{
    base::Base,
    client::Event,
    front::{
        connection_state::ConnectionState, consumer::FrontConsumer, counts::Counts, login::Logins,
    },
    registry::Registry,
};
use parking_lot::Mutex;
use quorate_types::{ConsumerId, Exception, ReplyCode};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;

/// Why a drained node closes and refuses its clients, in RabbitMQ's words (CONN-29).
pub(crate) fn drained() -> Exception {
    Exception::new(ReplyCode::ConnectionForced, "Node was put into maintenance mode")
}

/// The clients of one node.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) base: Base,
    pub(crate) connections: Registry<Arc<ConnectionState>>,
    pub(crate) consumers: Registry<Arc<FrontConsumer>>,
    /// The counts of all nodes, for limits.
    pub(crate) counts: Counts,
    pub(crate) logins: Logins,
    /// When the connections that hold most memory were last searched for.
    pub(crate) relief: Mutex<Option<Instant>>,
    /// Whether this node is drained: it has no new clients.
    pub(crate) drained: watch::Sender<bool>,
    /// Whether the ports of clients are closed. They follow `drained` a moment later.
    pub(crate) ports_closed: watch::Sender<bool>,
    /// Held while `drained` and the groups follow a command of an operator.
    pub(crate) maintenance: tokio::sync::Mutex<()>,
}

impl Clients {
    /// State of a node without clients.
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            base: base.clone(),
            connections: Registry::default(),
            consumers: Registry::default(),
            counts: Counts::default(),
            logins: Logins::default(),
            relief: Mutex::default(),
            drained: watch::Sender::new(false),
            ports_closed: watch::Sender::new(false),
            maintenance: tokio::sync::Mutex::default(),
        }
    }

    /// The consumer with that id, if it belongs to this node's present session.
    pub(crate) fn consumer(&self, id: ConsumerId) -> Option<Arc<FrontConsumer>> {
        (self.base.context.session() == Some(id.session))
            .then(|| self.consumers.get(id.number))
            .flatten()
    }

    /// Closes all client connections.
    pub(crate) fn close_all(&self, why: &str) {
        let exception = Exception::new(ReplyCode::ConnectionForced, why);
        let close = |one: &Arc<ConnectionState>| one.mailbox.put(Event::Close(exception.clone()));
        self.connections.all().iter().for_each(close);
    }
}
