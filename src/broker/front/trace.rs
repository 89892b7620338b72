//! The firehose: while a virtual host is traced, a copy of each publish and each delivery in it is
//! published to its exchange `amq.rabbitmq.trace`, by the node of the client.
//!
//! The node publishes traces in its own name: no client waits for them or loses room to them, and
//! traces above a bound are dropped.
//!
//! `trace_on` sets a flag in the catalog, so all nodes trace their own clients, also after a
//! restart. (In RabbitMQ one node traces, until it stops.) Traces are published without confirms
//! under an account of the node's session, do not count as in flight for any client, and are
//! dropped above 16 MiB in flight. While tracing is off, its cost is one read of the flag for the
//! publishes of one read.

use crate::{
    client::{ChannelId, ConnectionInfo, Delivered, GetOk, Publish, delivery_properties},
    front::{
        confirm::ConfirmTo,
        connection_state::ConnectionState,
        publish::{Outgoings, Source, sender_selected},
        publisher::Publisher,
        routed::RoutedPublish,
        tracer::Tracer,
    },
};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use quorate_catalog::{Catalog, ConnectionId, RouteRequest, server_named_queue};
use quorate_storage::codec::message;
use quorate_types::{
    Counts, FieldTable, FieldValue, Message, Properties, PropertiesError, Property, QueueId,
    ShortString,
};
use std::{
    iter,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};
use tokio::time::Instant;

/// The exchange for traces, in every virtual host.
const EXCHANGE: ShortString = ShortString::from_static("amq.rabbitmq.trace");
/// Most bytes of traces in flight. Further traces are dropped, so that a queue that accepts none
/// delays nothing else.
const IN_FLIGHT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Most bytes of a trace's headers, which are one frame. Above this, the properties and the lists
/// of names are left out.
const HEADERS_BYTES_MAX: usize = 64 * 1024;
/// Longest routing key, bytes.
const KEY_BYTES_MAX: usize = 255;

/// The names of properties in traces.
const NAMES: [(Property, &str); 14] = [
    (Property::ContentType, "content_type"),
    (Property::ContentEncoding, "content_encoding"),
    (Property::Headers, "headers"),
    (Property::DeliveryMode, "delivery_mode"),
    (Property::Priority, "priority"),
    (Property::CorrelationId, "correlation_id"),
    (Property::ReplyTo, "reply_to"),
    (Property::Expiration, "expiration"),
    (Property::MessageId, "message_id"),
    (Property::Timestamp, "timestamp"),
    (Property::Type, "type"),
    (Property::UserId, "user_id"),
    (Property::AppId, "app_id"),
    (Property::ClusterId, "cluster_id"),
];

/// A message that was published, or is delivered to a client.
struct Seen<'a> {
    /// `publish` or `deliver`.
    what: &'static str,
    /// The exchange published to, or the queue delivered from.
    name: &'a ShortString,
    connection: &'a ConnectionState,
    channel: ChannelId,
    exchange: &'a ShortString,
    routing_key: &'a ShortString,
    further_keys: &'a [ShortString],
    properties: Properties,
    body: &'a Bytes,
}

impl Tracer {
    /// Adds the trace of a routed publish, if its virtual host is traced.
    pub(crate) fn trace_publish(
        &self,
        catalog: &Catalog,
        connection: &ConnectionState,
        publish: &Publish,
        routed: &RoutedPublish,
        outgoings: &mut Outgoings,
    ) {
        // The publish has been routed, so its headers are valid. BCC is never shown (PRP-09).
        let Ok((further_keys, raw)) = sender_selected(&publish.properties) else { return };
        let seen = Seen {
            what: "publish",
            name: &publish.exchange,
            connection,
            channel: publish.channel,
            exchange: &publish.exchange,
            routing_key: &publish.routing_key,
            further_keys: &further_keys,
            properties: Properties::parse(raw).unwrap_or_default(),
            body: &publish.body,
        };
        let vhost = &connection.info.vhost;
        let name = |queue: &QueueId| match catalog.queue_by_id(*queue) {
            Some(entry) => Some(text(entry.name.name.as_str())),
            // A target that is not in the catalog was named by a routing key (NAM 8).
            None => {
                let mut keys = iter::once(&publish.routing_key).chain(&further_keys);
                let key = keys.find(|key| server_named_queue(vhost, key) == Some(*queue));
                key.map(|key| text(key.as_str()))
            }
        };
        let named = routed.targets.iter().filter_map(name);
        let replies = routed.replies.iter().map(|address| text(address.name().as_str()));
        let queues = FieldValue::Array(named.chain(replies).collect());
        self.send(catalog, &seen, field("routed_queues", queues), outgoings);
    }
}

impl Publisher {
    /// Publishes the traces of deliveries that are about to be written.
    pub(crate) fn trace_deliveries(&self, connection: &ConnectionState, all: &[Delivered]) {
        if all.is_empty() || !self.traces(connection) {
            return;
        }
        // The catalog must not be locked here, since finding a name locks it.
        let queue_of = |delivered: &Delivered| {
            let consumer = self.clients.consumers.get(delivered.consumer.number)?;
            self.base.queue_name(consumer.about.queue).map(|name| name.name)
        };
        let named: Vec<_> = all.iter().map(queue_of).collect();
        let mut outgoings = Outgoings::default();
        {
            let catalog = self.base.catalog.read();
            for (delivered, queue) in all.iter().zip(&named) {
                // A direct reply passes through no queue; it was traced when it was published.
                let Some(queue) = queue else { continue };
                let shown = (&delivered.message, delivered.redelivered, delivered.counts);
                let to = (connection, delivered.channel);
                self.tracer.trace_delivery(&catalog, to, queue, shown, &mut outgoings);
            }
        }
        self.send_all(outgoings);
    }

    /// Publishes the trace of a message that a get has found.
    pub(crate) fn trace_get(
        &self,
        connection: &ConnectionState,
        channel: ChannelId,
        queue: &ShortString,
        got: &GetOk,
    ) {
        if !self.traces(connection) {
            return;
        }
        let mut outgoings = Outgoings::default();
        let shown = (&got.message, got.redelivered, got.counts);
        let to = (connection, channel);
        self.tracer.trace_delivery(&self.base.catalog.read(), to, queue, shown, &mut outgoings);
        self.send_all(outgoings);
    }

    /// Without a lease nothing is routed (NAM 5), and a trace does not wait for one.
    fn traces(&self, connection: &ConnectionState) -> bool {
        self.base.catalog.read().is_traced(&connection.info.vhost) && self.base.lease.is_held()
    }
}

impl Tracer {
    fn trace_delivery(
        &self,
        catalog: &Catalog,
        (connection, channel): (&ConnectionState, ChannelId),
        queue: &ShortString,
        (message, redelivered, counts): (&Message, bool, Option<Counts>),
        outgoings: &mut Outgoings,
    ) {
        let seen = Seen {
            what: "deliver",
            name: queue,
            connection,
            channel,
            exchange: &message.exchange,
            routing_key: &message.routing_key,
            further_keys: &message.further_keys,
            // As the client sees them; the stored message is valid.
            properties: Properties::parse(delivery_properties(message, counts)).unwrap_or_default(),
            body: &message.body,
        };
        let redelivered = FieldValue::I32(i32::from(redelivered));
        self.send(catalog, &seen, field("redelivered", redelivered), outgoings);
    }

    fn send(
        &self,
        catalog: &Catalog,
        seen: &Seen<'_>,
        more: (ShortString, FieldValue),
        outgoings: &mut Outgoings,
    ) {
        // Traces are not traced themselves.
        if *seen.exchange == EXCHANGE {
            return;
        }
        let Some(account) = self.account() else { return };
        let (vhost, key) = (&seen.connection.info.vhost, seen.key());
        let properties = seen.headers(&self.base.context.settings.name, more);
        let mut routed = RoutedPublish::default();
        let request = RouteRequest {
            vhost,
            exchange: &EXCHANGE,
            routing_key: &key,
            further_keys: &[],
            properties: &properties,
            chance: quorate_rpc::chance::random,
            locality: &self.base.led.leaderships,
            by_broker: true,
        };
        // The exchange always exists, since it cannot be deleted (EXC-01).
        let _ = catalog.route(&request, &mut routed.targets);
        if routed.targets.is_empty() {
            return;
        }
        routed.options =
            self.base.led.enqueue_options(catalog, &routed.targets, &properties, seen.body);
        routed.message = message::encode(&Message {
            exchange: EXCHANGE,
            routing_key: key,
            further_keys: Vec::new(),
            properties: properties.raw,
            annotations: FieldTable::default(),
            body: seen.body.clone(),
        });
        if routed.targets.len() > 1 && routed.copies_bytes() as u64 > IN_FLIGHT_BYTES_MAX {
            return;
        }
        let (channel, confirm_to) = (ChannelId { number: 0, opened: 0 }, ConfirmTo::Nobody);
        let source = Source { connection: &account, channel, confirm_to, mandatory: false };
        outgoings.add(&source, &routed);
    }

    /// The account of traces in flight; `None` while the bound is reached.
    fn account(&self) -> Option<Arc<ConnectionState>> {
        let session = self.base.context.session()?;
        let mut known = self.account.lock();
        let account = match &*known {
            Some(account) if account.id.session == session => Arc::clone(account),
            Some(_) | None => {
                let id = ConnectionId { session, number: 0 };
                let wall = self.base.context.settings.wall.now();
                let new = ConnectionState::new(
                    &self.base.context,
                    id,
                    nobody(),
                    wall,
                    IN_FLIGHT_BYTES_MAX,
                );
                Arc::clone(known.insert(Arc::new(new)))
            }
        };
        drop(known);
        if account.publishing.in_flight.bytes() as u64 <= IN_FLIGHT_BYTES_MAX {
            return Some(account);
        }
        if self.warned.lock().is_due((), Instant::now()) {
            tracing::warn!(
                "the queues of amq.rabbitmq.trace are too slow: dropping trace messages"
            );
        }
        None
    }
}

impl Seen<'_> {
    fn key(&self) -> ShortString {
        let mut key = format!("{}.{}", self.what, self.name);
        key.truncate(key.floor_char_boundary(KEY_BYTES_MAX));
        ShortString::try_from(key).unwrap_or_default()
    }

    /// The trace's properties: only headers, in order of their names (PRP-02).
    fn headers(&self, node: &str, more: (ShortString, FieldValue)) -> Properties {
        let info = &self.connection.info;
        let keys = iter::once(self.routing_key).chain(self.further_keys);
        let keys = keys.map(|key| text(key.as_str())).collect();
        let mut fields = vec![
            field("channel", FieldValue::I32(i32::from(self.channel.number))),
            field("connection", text(&format!("{} -> {}", info.peer, info.local))),
            field("exchange_name", text(self.exchange.as_str())),
            field("node", text(node)),
            field("properties", FieldValue::Table(table_of(&self.properties))),
            field("routing_keys", FieldValue::Array(keys)),
            field("user", text(info.user.as_str())),
            field("vhost", text(info.vhost.as_str())),
            more,
        ];
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        match with_headers(&FieldTable(fields.clone())) {
            Ok(properties) if properties.raw.len() <= HEADERS_BYTES_MAX => properties,
            // The headers are too long, or nested too deep.
            Ok(_) | Err(_) => {
                fields.retain(|(_, value)| !is_composed(value));
                with_headers(&FieldTable(fields)).unwrap_or_default()
            }
        }
    }
}

fn with_headers(table: &FieldTable) -> Result<Properties, PropertiesError> {
    let mut raw = BytesMut::new();
    raw.put_u16(1 << Property::Headers as u16);
    table.encode(&mut raw);
    Properties::parse(raw.freeze())
}

fn is_composed(value: &FieldValue) -> bool {
    matches!(value, FieldValue::Array(_) | FieldValue::Table(_))
}

/// The properties that a message has, by name.
fn table_of(properties: &Properties) -> FieldTable {
    let named = |(property, name): &(Property, &'static str)| {
        Some(field(name, value_of(*property, properties.bytes_of(*property)?)?))
    };
    FieldTable(NAMES.iter().filter_map(named).collect())
}

/// The value of a property in a trace; integers are 32-bit if they fit.
fn value_of(property: Property, mut bytes: Bytes) -> Option<FieldValue> {
    Some(match property {
        Property::Headers => FieldValue::Table(FieldTable::decode(&mut bytes).ok()?),
        Property::DeliveryMode | Property::Priority => {
            FieldValue::I32(i32::from(bytes.try_get_u8().ok()?))
        }
        Property::Timestamp => {
            let seconds = bytes.try_get_u64().ok()?;
            i32::try_from(seconds).map_or(FieldValue::Timestamp(seconds), FieldValue::I32)
        }
        Property::ContentType
        | Property::ContentEncoding
        | Property::CorrelationId
        | Property::ReplyTo
        | Property::Expiration
        | Property::MessageId
        | Property::Type
        | Property::UserId
        | Property::AppId
        | Property::ClusterId => {
            // The content after its length.
            bytes.try_get_u8().ok()?;
            FieldValue::LongString(bytes)
        }
    })
}

/// The account under which the node publishes.
fn nobody() -> ConnectionInfo {
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    ConnectionInfo {
        user: ShortString::EMPTY,
        mechanism: "",
        vhost: ShortString::EMPTY,
        peer: nowhere,
        local: nowhere,
        client_properties: FieldTable::default(),
        channel_max: 0,
        frame_max: 0,
        heartbeat_s: 0,
        tls: None,
    }
}

fn text(text: &str) -> FieldValue {
    FieldValue::text(text)
}

fn field(name: &'static str, value: FieldValue) -> (ShortString, FieldValue) {
    (ShortString::from_static(name), value)
}

#[cfg(test)]
mod tests;
