//! The queues of the workload, and how they are declared.

use super::{CHANNEL, Ended};
use bytes::Bytes;
use quorate_broker::Connection;
use quorate_client::{Connection as _, Consume, Operation, Publish, QueueDeclare};
use quorate_rpc::chance;
use quorate_types::{FieldTable, FieldValue, Properties, ShortString};
use std::time::Duration;

/// Queues that messages are published to.
pub(super) const PUBLISHED: [&str; 6] = ["a", "b", "c", "d", MORTAL, LIMITED];

/// Queues that are consumed from, and queues that messages are got from.
pub(super) const CONSUMED: [&str; 4] = ["a", "b", "c", DEAD];
pub(super) const GOT: [&str; 2] = ["c", "d"];

/// A queue without consumers: its messages expire, and are dead-lettered to [`DEAD`].
pub(super) const MORTAL: &str = "mortal";

/// How long a message lives in [`MORTAL`].
pub(super) const LIFETIME: Duration = Duration::from_millis(400);

/// A queue whose consumers return every message, until it is dead-lettered to [`DEAD`].
pub(super) const LIMITED: &str = "limited";

/// The returns after which a message of [`LIMITED`] is delivered again; one more ends it (DLM-04).
pub(super) const LIMIT: u32 = 2;

pub(super) const DEAD: &str = "dead";

/// Declares a queue of the workload.
pub(super) async fn declare(connection: &Connection, queue: &'static str) -> Result<(), Ended> {
    declare_with(connection, ShortString::from_static(queue), arguments(queue)).await
}

/// Declares a durable queue.
pub(super) async fn declare_with(
    connection: &Connection,
    queue: ShortString,
    arguments: FieldTable,
) -> Result<(), Ended> {
    let (durable, exclusive, auto_delete) = (true, false, false);
    let declare = QueueDeclare { queue, durable, exclusive, auto_delete, arguments };
    connection.ask(CHANNEL, Operation::QueueDeclare(declare)).await?;
    Ok(())
}

fn arguments(queue: &str) -> FieldTable {
    let ends = match queue {
        MORTAL => ("x-message-ttl", FieldValue::I64(LIFETIME.as_millis() as i64)),
        LIMITED => ("x-delivery-limit", FieldValue::I64(i64::from(LIMIT))),
        _ => return FieldTable::default(),
    };
    let arguments = [
        ends,
        ("x-dead-letter-exchange", FieldValue::text("")),
        ("x-dead-letter-routing-key", FieldValue::text(DEAD)),
        ("x-dead-letter-strategy", FieldValue::text("at-least-once")),
        ("x-overflow", FieldValue::text("reject-publish")),
    ];
    FieldTable(arguments.map(|(name, value)| (ShortString::from_static(name), value)).into())
}

/// Consumes from a queue, under its name as the consumer tag.
pub(super) async fn consume(connection: &Connection, queue: &'static str) -> Result<(), Ended> {
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
    Ok(())
}

/// A publish to a queue, to be confirmed under that number, and returned if the queue does not
/// exist.
pub(super) fn message(number: u64, queue: ShortString, body: &str) -> Publish {
    Publish {
        channel: CHANNEL,
        confirm: Some(number),
        exchange: ShortString::default(),
        routing_key: queue,
        properties: Properties::parse(Bytes::from_static(&[0, 0])).unwrap(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        mandatory: true,
    }
}

pub(super) fn one_of(queues: &[&'static str]) -> &'static str {
    let last = queues.len() as u64 - 1;
    queues.get(chance::in_range(0..=last) as usize).unwrap()
}
