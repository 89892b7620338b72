//! The handle of one client connection on the broker, and its end.

use crate::{
    client::{ChannelId, Connection as _},
    front::{
        client_handle::Client,
        connection_state::{ConnectionState, Held},
    },
    node::Node,
};
use quorate_types::QueueId;
use std::{collections::BTreeSet, sync::Arc};

/// A client connection. Dropping it without [`close`](crate::client::Connection::close) counts as a
/// loss of the connection: its channels end, and its exclusive queues are deleted (CONN-32).
#[derive(Debug)]
pub struct Connection {
    pub(crate) node: Arc<Node>,
    pub(crate) state: Arc<ConnectionState>,
}

impl Connection {
    /// The operations of this connection's client.
    pub(crate) fn client(&self) -> Client<'_> {
        Client { node: &self.node, state: &self.state }
    }

    /// Carries out what waited behind held publishes, unless some are held again.
    pub(crate) fn settle_held(&self) {
        self.settle(Vec::new());
        let ended = self.state.publishing.held.lock().take_ended();
        self.node.front.submit(ended);
    }

    pub(crate) fn forget_channel(&self, id: ChannelId) {
        let mut channels = self.state.reported.channels.lock();
        if channels.get(&id.number).is_some_and(|open| open.id == id) {
            channels.remove(&id.number);
            self.state.counters.channels_closed.add(1);
            drop(channels);
            self.state.count(&self.node.clients.counts, 0, -1);
            self.recount();
        }
    }

    /// Ends the connection's channels; returns its exclusive queues, which end with it. Publishes that are
    /// still held are dropped, since nobody waits for them any more: routed later, they would enter queues
    /// that were declared after the client had gone. What was settled behind them is dropped too, so its
    /// messages are requeued (CONN-32). If none is held any more, it is settled.
    pub(crate) fn end_channels(&self) -> BTreeSet<QueueId> {
        self.settle_held();
        let held = {
            let mut held = self.state.held.lock();
            let closed = Held { closed: true, ..Held::default() };
            std::mem::replace(&mut *held, closed)
        };
        if held.closed {
            return BTreeSet::new();
        }
        let ended = self.state.publishing.held.lock().abandon();
        self.node.front.submit(ended);
        // Ends the task that waits until they can be routed.
        self.state.publishing.in_flight.wake();
        self.node.clients.connections.remove(self.state.id.number);
        self.state.delivering.unwritten.set(0);
        let open = std::mem::take(&mut *self.state.reported.channels.lock());
        self.state.counters.channels_closed.add(open.len() as u64);
        // A connection has at most 65,535 channels.
        self.state.count(&self.node.clients.counts, -1, -(open.len() as i64));
        self.state.counters.connections_closed.add(1);
        self.recount();
        for (_, channel) in held.channels {
            self.node.front.submit(self.node.front.end_commands(channel));
        }
        held.queues
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let queues = self.end_channels();
        if !queues.is_empty() {
            let node = Arc::clone(&self.node);
            self.node.base.context.spawn(async move { node.exclusive.end_exclusive(queues).await });
        }
    }
}
