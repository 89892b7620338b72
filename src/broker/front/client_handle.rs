//! What a client asks of the broker, in groups: the operations on queues, exchanges, consumers and
//! transactions. All act for one connection, whose rights and state `Client` gives.

use crate::{base::Base, front::connection_state::ConnectionState, node::Node};
use std::sync::Arc;

/// The client of one connection, and the node that serves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) state: &'a Arc<ConnectionState>,
}

/// Operations on queues: declare, delete, purge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueOperations<'a> {
    pub(crate) client: Client<'a>,
}

/// Operations on exchanges and bindings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExchangeOperations<'a> {
    pub(crate) client: Client<'a>,
}

/// Consumers and gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerOperations<'a> {
    pub(crate) client: Client<'a>,
}

/// Transactions of channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transactions<'a> {
    pub(crate) client: Client<'a>,
}

impl<'a> Client<'a> {
    /// What all rooms of the node use.
    pub(crate) fn base(self) -> &'a Base {
        &self.node.base
    }

    /// Its operations on queues.
    pub(crate) fn queues(self) -> QueueOperations<'a> {
        QueueOperations { client: self }
    }

    /// Its operations on exchanges and bindings.
    pub(crate) fn exchanges(self) -> ExchangeOperations<'a> {
        ExchangeOperations { client: self }
    }

    /// Its consumers and gets.
    pub(crate) fn consumers(self) -> ConsumerOperations<'a> {
        ConsumerOperations { client: self }
    }

    /// The transactions of its channels.
    pub(crate) fn transactions(self) -> Transactions<'a> {
        Transactions { client: self }
    }
}
