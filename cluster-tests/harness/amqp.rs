//! What most tests say to lapin, said once.

use super::wait::in_time;
use lapin::options::{
    BasicConsumeOptions, BasicGetOptions, ConfirmSelectOptions, ExchangeDeclareOptions,
    QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, Consumer, ErrorKind, ExchangeKind,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

/// A client that gets no answer for so long gives its node up, and goes on at another one.
const GIVES_UP: Duration = Duration::from_secs(30);

/// Connects, failing the test when that does not work.
///
/// # Panics
/// When the node refuses or does not answer.
pub async fn connect(uri: &str) -> Connection {
    let connected = in_time(&format!("connect to {uri}"), try_connect(uri)).await;
    connected.unwrap_or_else(|error| panic!("connect to {uri}: {error}"))
}

/// A connection to a broker that may not serve now.
///
/// # Errors
/// The node refuses, or cannot be reached.
pub async fn try_connect(uri: &str) -> Result<Connection, lapin::Error> {
    Connection::connect(uri, ConnectionProperties::default()).await
}

/// A connection and one channel of it.
///
/// # Panics
/// When the node refuses or does not answer.
pub async fn open(uri: &str) -> (Connection, Channel) {
    let connection = connect(uri).await;
    let channel = in_time("open a channel", connection.create_channel()).await;
    (connection, channel.expect("channel.open-ok"))
}

/// A connection and one channel of it that confirms.
///
/// # Panics
/// When the node refuses or does not answer.
pub async fn open_confirming(uri: &str) -> (Connection, Channel) {
    let (connection, channel) = open(uri).await;
    let select = channel.confirm_select(ConfirmSelectOptions::default());
    in_time("confirm.select", select).await.expect("select-ok");
    (connection, channel)
}

/// Declares a durable quorum queue.
///
/// # Panics
/// When that does not work.
pub async fn declare_quorum(channel: &Channel, queue: &str) {
    let declared = channel.queue_declare(queue.into(), durable(), of_type("quorum"));
    let declared = in_time(&format!("declare '{queue}'"), declared).await;
    declared.unwrap_or_else(|error| panic!("declare '{queue}': {error}"));
}

/// Durable, nothing else.
#[must_use]
pub fn durable() -> QueueDeclareOptions {
    QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() }
}

/// Exclusive, nothing else.
#[must_use]
pub fn exclusive() -> QueueDeclareOptions {
    QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() }
}

/// Passive, nothing else.
#[must_use]
pub fn passive() -> QueueDeclareOptions {
    QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() }
}

/// Queue arguments with only `x-queue-type`.
#[must_use]
pub fn of_type(queue_type: &str) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString(queue_type.into()));
    arguments
}

/// Persistent, nothing else.
#[must_use]
pub fn persistent() -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2)
}

/// Publishes through the default exchange and waits for the confirm, which must be an ack.
///
/// # Panics
/// When it is not, or does not come.
pub async fn publish_confirmed(channel: &Channel, queue: &str, body: &[u8]) {
    let publish = async {
        let options = lapin::options::BasicPublishOptions::default();
        let sent = channel.basic_publish("".into(), queue.into(), options, body, persistent());
        sent.await?.await
    };
    let confirmed = in_time(&format!("a confirm from '{queue}'"), publish).await;
    let confirmed = confirmed.unwrap_or_else(|error| panic!("publish to '{queue}': {error}"));
    assert!(confirmed.is_ack(), "publish to '{queue}': {confirmed:?}");
}

/// Publishes to a queue, one message after the other, while something goes on: what that gives, and
/// the longest that a publish took.
///
/// # Panics
/// When a publish is refused.
pub async fn beside<T>(uri: &str, queue: &str, goes_on: impl Future<Output = T>) -> (T, Duration) {
    let (_connection, channel) = open_confirming(uri).await;
    let mut slowest = Duration::ZERO;
    tokio::pin!(goes_on);
    loop {
        let begun = Instant::now();
        let publish = publish_confirmed(&channel, queue, b"beside");
        tokio::pin!(publish);
        let done = tokio::select! {
            () = &mut publish => None,
            done = &mut goes_on => {
                publish.await;
                Some(done)
            }
        };
        slowest = slowest.max(begun.elapsed());
        if let Some(done) = done {
            return (done, slowest);
        }
    }
}

/// Gets one message, acking it in the same go.
///
/// # Panics
/// When the node refuses or does not answer.
pub async fn get(channel: &Channel, queue: &str) -> Option<Vec<u8>> {
    let get = channel.basic_get(queue.into(), BasicGetOptions { no_ack: true });
    let got = in_time(&format!("get from '{queue}'"), get).await;
    got.unwrap_or_else(|error| panic!("get from '{queue}': {error}"))
        .map(|message| message.delivery.data)
}

/// The reply code with which the broker ended a channel or connection; none for other errors.
#[must_use]
pub fn code(error: &lapin::Error) -> Option<u16> {
    // The enumeration is not exhaustive, hence no match over it.
    if let ErrorKind::ProtocolError(error) = error.kind() { Some(error.get_id()) } else { None }
}

/// An integer argument.
#[must_use]
pub fn int(value: i64) -> AMQPValue {
    AMQPValue::LongLongInt(value)
}

/// A text argument.
#[must_use]
pub fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

/// Arguments by name.
#[must_use]
pub fn arguments(arguments: &[(&str, AMQPValue)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        table.insert((*name).into(), value.clone());
    }
    table
}

/// Declares a durable queue with these arguments.
///
/// # Panics
/// When that does not work.
pub async fn declare_with(channel: &Channel, queue: &str, with: &[(&str, AMQPValue)]) {
    let declared = channel.queue_declare(queue.into(), durable(), arguments(with));
    let declared = in_time(&format!("declare '{queue}'"), declared).await;
    declared.unwrap_or_else(|error| panic!("declare '{queue}': {error}"));
}

/// Publishes through the default exchange; true if the confirm is an ack.
///
/// # Panics
/// When no confirm comes.
pub async fn publish_with(
    channel: &Channel,
    queue: &str,
    body: &[u8],
    properties: BasicProperties,
) -> bool {
    let publish = async {
        let options = lapin::options::BasicPublishOptions::default();
        let sent = channel.basic_publish("".into(), queue.into(), options, body, properties);
        sent.await?.await
    };
    let confirmed = in_time(&format!("a confirm from '{queue}'"), publish).await;
    confirmed.unwrap_or_else(|error| panic!("publish to '{queue}': {error}")).is_ack()
}

/// Ready messages of a queue, by a passive declare.
///
/// # Errors
/// The reply code, if there is no such queue.
pub async fn ready(connection: &Connection, queue: &str) -> Result<u32, Option<u16>> {
    // A channel of its own, since a refusal closes it.
    let channel = connection.create_channel().await.map_err(|error| code(&error))?;
    let declared = channel.queue_declare(queue.into(), passive(), FieldTable::default()).await;
    declared.map(|queue| queue.message_count()).map_err(|error| code(&error))
}

/// Declares a durable exchange.
///
/// # Panics
/// When that does not work.
pub async fn declare_exchange(channel: &Channel, exchange: &str, kind: ExchangeKind) {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let declared = channel.exchange_declare(exchange.into(), kind, options, FieldTable::default());
    let declared = in_time(&format!("declare '{exchange}'"), declared).await;
    declared.unwrap_or_else(|error| panic!("declare '{exchange}': {error}"));
}

/// Binds a queue to an exchange.
///
/// # Panics
/// When that does not work.
pub async fn bind(channel: &Channel, queue: &str, exchange: &str, key: &str) {
    let (options, arguments) = (QueueBindOptions::default(), FieldTable::default());
    let bound = channel.queue_bind(queue.into(), exchange.into(), key.into(), options, arguments);
    let bound = in_time(&format!("bind '{queue}' to '{exchange}'"), bound).await;
    bound.unwrap_or_else(|error| panic!("bind '{queue}' to '{exchange}': {error}"));
}

/// A consumer that acknowledges, with a tag of the server's.
///
/// # Panics
/// When that does not work.
pub async fn consume(channel: &Channel, queue: &str) -> Consumer {
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
    in_time("a consume", consumer).await.expect("consume-ok")
}

/// Headers by name.
#[must_use]
pub fn headers(properties: &BasicProperties) -> BTreeMap<String, AMQPValue> {
    let headers = properties.headers().clone().unwrap_or_default();
    headers.into_iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
}

/// What a client's work gives, or an error once its connection is lost: lapin 4.12 leaves some requests
/// unanswered for ever that are made while their connection breaks.
///
/// # Errors
/// The work's, or that the connection is lost.
pub async fn while_connected<T>(
    connection: &Connection,
    work: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    let lost = async {
        while connection.status().connected() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = lost => Err(std::io::Error::other("the connection is lost").into()),
    }
}

/// Closes a connection; an error if that takes too long.
///
/// # Errors
/// The connection was lost before close-ok.
pub async fn close_in_time(connection: &Connection) -> lapin::Result<()> {
    bounded(connection.close(200, "done".into())).await
}

/// A connection; an error if that takes too long.
///
/// # Errors
/// The connection is not established.
pub async fn connect_in_time(uri: &str) -> lapin::Result<Connection> {
    bounded(try_connect(uri)).await
}

/// An error where the work takes too long: lapin 4.12 waits for ever for a node that was killed meanwhile.
async fn bounded<T>(work: impl Future<Output = lapin::Result<T>>) -> lapin::Result<T> {
    let timed_out = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
    tokio::time::timeout(GIVES_UP, work).await.map_err(timed_out)?
}
