//! The broker's interface for the crates above: creation, start, and new connections.

use crate::{
    base::Base,
    client::ConnectionInfo,
    front::{clients::drained, connection::Connection, connection_state::ConnectionState},
    leader::redrive::{self, IsShort},
    node::Node,
    settings::BrokerSettings,
};
use parking_lot::RwLock;
use quorate_catalog::{Catalog, ClusterShape, ConnectionId};
use quorate_raft::Groups;
use quorate_rpc::Links;
use quorate_storage::Database;
use quorate_types::{Exception, ReplyCode};
use std::sync::Arc;

/// The broker of one node, shared by everything that serves clients.
#[derive(Clone, Debug)]
pub struct Broker(pub(crate) Arc<Node>);

impl Broker {
    /// A broker without clients. [`Broker::begin`] follows once its groups and links run. Must be
    /// called within a tokio runtime.
    #[must_use]
    pub fn new(settings: BrokerSettings, catalog: Arc<RwLock<Catalog>>) -> Self {
        Self(Node::new(Base::new(settings, catalog)))
    }

    /// Takes the running groups and links, announces this process's start, and begins the
    /// background tasks.
    pub fn begin(&self, groups: Arc<Groups>, links: Links, database: &Arc<Database>) {
        let node = &self.0;
        node.base.context.show_database(Arc::downgrade(database));
        let pacer = Arc::downgrade(&node.base.led);
        database.writer().subscribe_cycles(Box::new(move |_| {
            if let Some(led) = pacer.upgrade() {
                led.pace_all();
            }
        }));
        if !node.base.context.peers.link(links) || !node.base.context.run(groups) {
            tracing::error!("the broker was started twice");
            return;
        }
        node.cluster.expect_incarnations();
        node.cluster.members_changed();
        node.base.catalog.note_formed();
        node.start_early_leaderships();
        let (context, cluster) = (&node.base.context, Arc::clone(&node.cluster));
        context.spawn(async move { cluster.announce_start().await });
        context.spawn(Arc::clone(node).receive_own());
        context.spawn(Arc::clone(node).check_nodes());
        context.spawn(Arc::clone(&node.cluster).keep_members());
        context.spawn(Arc::clone(&node.base.lease).keep());
        context.spawn(Arc::clone(&node.base.led).pace());
        context.spawn(Arc::clone(&node.base.proposers).send_overdue());
        context.spawn(Arc::clone(&node.publisher).balance());
        context.spawn(Arc::clone(&node.leader).reconcile());
        context.spawn(Arc::clone(&node.leader.timer).watch());
        context.spawn(Arc::clone(&node.exclusive).compare_own_names());
        context.spawn(Arc::clone(&node.alarms).watch_alarms());
        context.spawn(Arc::clone(&node.letters).run());
        let alarms = Arc::clone(&node.alarms);
        let is_short = IsShort(Box::new(move || alarms.reason().is_some()));
        context.spawn(redrive::Tasks::new(&node.base, is_short).run());
        context.spawn(Arc::clone(&node.queues.configurer).keep());
    }

    /// Opens a connection (`connection.open`), after its user has been authenticated.
    ///
    /// 320 while this node is drained; 530 as CONN-20 lists; 541 while this process has no session.
    pub fn connect(&self, info: ConnectionInfo) -> Result<Connection, Exception> {
        let node = &self.0;
        // A client may have reached the port before it was closed.
        if *node.clients.drained.borrow() {
            return Err(drained());
        }
        // Held until the connection is registered, so that a deletion either precedes it or finds
        // it.
        let catalog = node.base.catalog.read();
        node.clients.check_connection(&catalog, &info)?;
        let Some(session) = node.base.context.session() else {
            let text = "this node has not joined its cluster yet";
            return Err(Exception::new(ReplyCode::InternalError, text));
        };
        let id = ConnectionId { session, number: node.clients.connections.number() };
        let in_flight_max = node.base.context.settings.connection_in_flight_bytes;
        let wall = node.base.context.settings.wall.now();
        let state =
            Arc::new(ConnectionState::new(&node.base.context, id, info, wall, in_flight_max));
        node.clients.connections.insert(id.number, Arc::clone(&state));
        drop(catalog);
        state.count(&node.clients.counts, 1, 0);
        node.base.context.counters.connections_opened.add(1);
        let connection = Connection { node: Arc::clone(node), state };
        connection.recount();
        Ok(connection)
    }

    /// The cluster's shape; `None` until the cluster has been formed.
    #[must_use]
    pub fn formed(&self) -> tokio::sync::watch::Receiver<Option<ClusterShape>> {
        self.0.base.catalog.formed()
    }
}
