//! The clients of this node: their connections and consumers, and what is counted of them.

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
use tokio::time::Instant;

/// The clients of one node.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) base: Base,
    pub(crate) connections: Registry<Arc<ConnectionState>>,
    pub(crate) consumers: Registry<Arc<FrontConsumer>>,
    /// What all nodes count against limits.
    pub(crate) counts: Counts,
    pub(crate) logins: Logins,
    /// When the greatest holders of memory were last looked for.
    pub(crate) relief: Mutex<Option<Instant>>,
}

impl Clients {
    /// No client is connected.
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            base: base.clone(),
            connections: Registry::default(),
            consumers: Registry::default(),
            counts: Counts::default(),
            logins: Logins::default(),
            relief: Mutex::default(),
        }
    }

    /// A consumer of this node's current session.
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
