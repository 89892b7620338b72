//! Clients of a node, within its process: each uses the broker's own connection, and a new one when
//! that ends.

mod churn;
mod consumer;
mod getter;
mod publisher;
mod queues;
mod rejecter;

use crate::world::World;
use quorate_broker::{Broker, Connection};
use quorate_client::{ChannelId, Connection as _, ConnectionInfo, Event, Publish, PublishOutcome};
use quorate_types::{Exception, FieldTable, NodeId, ShortString, VhostName};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};
use tokio::time::{sleep, timeout};

const CHANNEL: ChannelId = ChannelId { number: 1, opened: 0 };

/// Why a client begins with a new connection.
#[derive(thiserror::Error, Debug)]
enum Ended {
    #[error("{0:?}")]
    Told(Exception),
    #[error("its consumer was cancelled")]
    Cancelled,
}

impl From<Exception> for Ended {
    fn from(exception: Exception) -> Self {
        Self::Told(exception)
    }
}

/// The shared state of the clients of one process of a node.
struct Clients {
    world: Arc<World>,
    broker: Broker,
    node: NodeId,
    name: String,
    /// Number of messages published, and of queues declared, so far.
    published: AtomicU64,
    declared: AtomicU64,
}

/// Starts the clients of a process, one of each kind.
pub fn start(world: &Arc<World>, broker: &Broker, me: NodeId) {
    let name = format!("{me}.{}", world.count_start(me));
    let clients = Arc::new(Clients {
        world: Arc::clone(world),
        broker: broker.clone(),
        node: me,
        name,
        published: AtomicU64::new(0),
        declared: AtomicU64::new(0),
    });
    clients.keep("publisher", Clients::publish);
    clients.keep("consumer", Clients::consume);
    clients.keep("rejecter", Clients::reject);
    clients.keep("declarer", Clients::declare_and_delete);
    clients.keep("follower", Clients::follow);
    clients.keep("getter", Clients::get);
}

impl Clients {
    fn note(&self, text: &str) {
        self.world.trace.note(&format!("client {} {text}", self.name));
    }

    /// Starts a client, which works with a connection, and with a new one whenever that ends, until its
    /// work is done.
    fn keep<F>(self: &Arc<Self>, name: &'static str, work: fn(Arc<Self>, Connection) -> F)
    where
        F: Future<Output = Result<(), Ended>> + Send + 'static,
    {
        let clients = Arc::clone(self);
        tokio::spawn(async move {
            while let Err(ended) = work(Arc::clone(&clients), clients.connect().await).await {
                clients.world.trouble(clients.world.elapsed());
                clients.note(&format!("{name} ended: {ended}"));
            }
        });
    }

    /// Opens a connection with a channel, as soon as the node accepts one.
    async fn connect(&self) -> Connection {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let info = ConnectionInfo {
            user: ShortString::from_static("guest"),
            mechanism: "PLAIN",
            vhost: VhostName::from(ShortString::from_static("/")),
            peer: at,
            local: at,
            client_properties: FieldTable::default(),
            channel_max: 10,
            frame_max: 1 << 17,
            heartbeat_s: 60,
            tls: None,
        };
        loop {
            sleep(Duration::from_millis(50)).await;
            // Refused while the node is drained.
            if let Ok(connection) = self.broker.connect(info.clone())
                && connection.open_channel(CHANNEL).is_ok()
            {
                return connection;
            }
        }
    }
}

/// The events of a connection, for which it waits at most that time.
async fn events(connection: &Connection, time: Duration) -> Vec<Event> {
    let mut events = Vec::new();
    let _ = timeout(time, connection.events(&mut events)).await;
    events
}

/// Waits for events during that time.
async fn hear(connection: &Connection, time: Duration) -> Result<(), Ended> {
    events(connection, time).await.into_iter().try_for_each(ends)
}

/// Publishes one message; false if it is unroutable.
fn publish(connection: &Connection, publish: Publish) -> Result<bool, Ended> {
    let mut outcomes = Vec::new();
    connection.publish(vec![publish], &mut outcomes);
    match outcomes.pop() {
        Some(PublishOutcome::Refused(exception)) => Err(exception.into()),
        Some(PublishOutcome::Unroutable) => Ok(false),
        Some(PublishOutcome::Routed) | None => Ok(true),
    }
}

/// Whether an event ends a connection.
fn ends(event: Event) -> Result<(), Ended> {
    match event {
        Event::Close(exception)
        | Event::ChannelException { exception, .. }
        | Event::GetTimedOut { exception, .. }
        | Event::ConsumerTimedOut { exception, .. } => Err(exception.into()),
        Event::ConsumerCancelled { .. } => Err(Ended::Cancelled),
        Event::Confirmed { .. }
        | Event::Returned { .. }
        | Event::DeliveriesReady
        | Event::MaySettle
        | Event::Blocked { .. }
        | Event::Unblocked => Ok(()),
    }
}
