//! Clients of a node, within its process: each uses the broker's own connection, and a new one when
//! that ends.

use crate::world::World;
use bytes::Bytes;
use quorate_broker::{Broker, Connection};
use quorate_client::{
    Answer, ChannelId, Connection as _, ConnectionInfo, Consume, Delivered, Event, Operation,
    Publish, PublishOutcome, QueueDeclare, Settle, Settlement,
};
use quorate_rpc::chance;
use quorate_types::{
    BootNumber, Exception, FieldTable, NodeId, Properties, RequeueCause, ShortString, VhostName,
};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::time::{sleep, timeout};

const QUEUES: [&str; 4] = ["a", "b", "c", "d"];

/// Queues that are consumed from, and queues that messages are got from.
const CONSUMED: [&str; 3] = ["a", "b", "c"];
const GOT: [&str; 2] = ["c", "d"];

const CHANNEL: ChannelId = ChannelId { number: 1, opened: 0 };

/// Most unconfirmed publishes of a client.
const WINDOW: usize = 8;

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
    name: String,
}

/// What a client has settled, by queue, without knowing yet that the settle was applied.
type Settling = BTreeMap<&'static str, Vec<String>>;

/// Starts the clients of a process: one publishes, one consumes, one gets.
pub fn start(world: &Arc<World>, broker: &Broker, me: NodeId, boot: BootNumber) {
    let name = format!("{me}.{}", boot.opened());
    let clients = Clients { world: Arc::clone(world), broker: broker.clone(), name };
    let clients = Arc::new(clients);
    tokio::spawn(Arc::clone(&clients).publish_for_ever());
    tokio::spawn(Arc::clone(&clients).consume_for_ever());
    tokio::spawn(clients.get_for_ever());
}

impl Clients {
    fn note(&self, text: &str) {
        self.world.trace.note(&format!("client {} {text}", self.name));
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
        };
        loop {
            sleep(Duration::from_millis(50)).await;
            if let Ok(connection) = self.broker.connect(info.clone())
                && connection.open_channel(CHANNEL).is_ok()
            {
                return connection;
            }
        }
    }

    async fn publish_for_ever(self: Arc<Self>) {
        let mut published = 0;
        while !self.world.is_draining() {
            let connection = self.connect().await;
            if let Err(ended) = self.publish(&connection, &mut published).await {
                self.note(&format!("publisher ended: {ended}"));
            }
        }
    }

    async fn publish(&self, connection: &Connection, published: &mut u64) -> Result<(), Ended> {
        for queue in QUEUES {
            declare(connection, queue).await?;
        }
        let (mut unconfirmed, mut number) = (BTreeMap::new(), 0);
        while !self.world.is_draining() || !unconfirmed.is_empty() {
            if unconfirmed.len() < WINDOW && !self.world.is_draining() {
                (number, *published) = (number + 1, *published + 1);
                let body = format!("{}-{published}", self.name);
                self.world.history.lock().published(&body);
                let publish = message(number, &body);
                self.note(&format!("publishes {body} to {}", publish.routing_key));
                unconfirmed.insert(number, body);
                let mut outcomes = Vec::new();
                connection.publish(vec![publish], &mut outcomes);
                if let Some(PublishOutcome::Refused(exception)) = outcomes.pop() {
                    return Err(exception.into());
                }
            }
            let mut events = Vec::new();
            let pause = Duration::from_millis(chance::in_range(5..=40));
            let _ = timeout(pause, connection.events(&mut events)).await;
            for event in events {
                self.hear(event, &mut unconfirmed)?;
            }
        }
        Ok(())
    }

    fn hear(&self, event: Event, unconfirmed: &mut BTreeMap<u64, String>) -> Result<(), Ended> {
        let Event::Confirmed { first, last, taken, .. } = event else { return ends(event) };
        for body in (first..=last).filter_map(|number| unconfirmed.remove(&number)) {
            self.note(&format!("{body} is {}", if taken { "taken" } else { "refused" }));
            if taken {
                self.world.history.lock().confirmed(&body);
            }
        }
        Ok(())
    }

    async fn consume_for_ever(self: Arc<Self>) {
        loop {
            let connection = self.connect().await;
            if let Err(ended) = self.consume(&connection).await {
                self.note(&format!("consumer ended: {ended}"));
            }
        }
    }

    async fn consume(&self, connection: &Connection) -> Result<(), Ended> {
        for queue in CONSUMED {
            declare(connection, queue).await?;
            let consume = Consume {
                channel: CHANNEL,
                queue: ShortString::from_static(queue),
                tag: ShortString::from_static(queue),
                no_ack: false,
                exclusive: false,
                prefetch: 5,
                arguments: FieldTable::default(),
            };
            connection.ask(CHANNEL, Operation::Consume(Box::new(consume))).await?;
        }
        let mut settling = Settling::default();
        loop {
            hear(connection, Duration::from_millis(100)).await?;
            let mut deliveries = Vec::new();
            connection.take_deliveries(1 << 20, &mut deliveries);
            for delivered in deliveries {
                self.take(connection, delivered, &mut settling).await;
            }
            if chance::in_range(1..=10) == 1 {
                self.get_one(connection, one_of(&CONSUMED), &mut settling).await?;
            }
        }
    }

    async fn take(&self, connection: &Connection, delivered: Delivered, settling: &mut Settling) {
        let body = String::from_utf8_lossy(&delivered.message.body).into_owned();
        self.note(&format!("gets {body}, number {}", delivered.number));
        self.world.history.lock().delivered(&body);
        sleep(Duration::from_millis(chance::in_range(0..=3))).await;
        let returns = !self.world.is_draining() && chance::in_range(1..=10) == 1;
        let settlement =
            if returns { Settlement::Requeue(RequeueCause::Nack) } else { Settlement::Ack };
        let numbers = vec![(delivered.number, delivered.number)];
        connection.settle(vec![Settle { holder: delivered.holder, numbers, settlement }]);
        let queue = CONSUMED.into_iter().find(|queue| *queue == delivered.tag.as_str());
        if let (Some(queue), Settlement::Ack) = (queue, settlement) {
            settling.entry(queue).or_default().push(body);
        }
    }

    async fn get_for_ever(self: Arc<Self>) {
        loop {
            let connection = self.connect().await;
            if let Err(ended) = self.get(&connection).await {
                self.note(&format!("getter ended: {ended}"));
            }
        }
    }

    async fn get(&self, connection: &Connection) -> Result<(), Ended> {
        for queue in GOT {
            declare(connection, queue).await?;
        }
        let mut settling = Settling::default();
        for queue in GOT.into_iter().cycle() {
            sleep(Duration::from_millis(chance::in_range(1..=20))).await;
            self.get_one(connection, queue, &mut settling).await?;
        }
        Ok(())
    }

    /// Gets a message and settles it. A node's commands to a group are applied in order: when a get
    /// is answered, all earlier settles of this client in its queue have been applied.
    async fn get_one(
        &self,
        connection: &Connection,
        queue: &'static str,
        settling: &mut Settling,
    ) -> Result<(), Ended> {
        let before = settling.remove(queue).unwrap_or_default();
        let get = Operation::Get { queue: ShortString::from_static(queue), no_ack: true };
        let answer = connection.ask(CHANNEL, get).await?;
        // Not if the node has begun another session meanwhile.
        hear(connection, Duration::ZERO).await?;
        before.iter().for_each(|body| self.world.history.lock().settled(body));
        if let Answer::Got(Some(got)) = answer {
            let body = String::from_utf8_lossy(&got.message.body).into_owned();
            self.note(&format!("is given {body}"));
            self.world.history.lock().delivered(&body);
            settling.entry(queue).or_default().push(body);
        }
        Ok(())
    }
}

async fn declare(connection: &Connection, queue: &'static str) -> Result<(), Ended> {
    let declare = QueueDeclare {
        queue: ShortString::from_static(queue),
        durable: true,
        exclusive: false,
        auto_delete: false,
        arguments: FieldTable::default(),
    };
    connection.ask(CHANNEL, Operation::QueueDeclare(declare)).await?;
    Ok(())
}

fn one_of(queues: &[&'static str]) -> &'static str {
    let last = queues.len() as u64 - 1;
    queues.get(chance::in_range(0..=last) as usize).unwrap()
}

fn message(number: u64, body: &str) -> Publish {
    Publish {
        channel: CHANNEL,
        confirm: Some(number),
        exchange: ShortString::default(),
        routing_key: ShortString::from_static(one_of(&QUEUES)),
        properties: Properties::parse(Bytes::from_static(&[0, 0])).unwrap(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        mandatory: false,
    }
}

/// Waits for events during that time.
async fn hear(connection: &Connection, time: Duration) -> Result<(), Ended> {
    let mut events = Vec::new();
    let _ = timeout(time, connection.events(&mut events)).await;
    events.into_iter().try_for_each(ends)
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
