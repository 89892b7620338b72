//! The columns of each list, and the contents of their cells: rabbitmqctl's columns, and Quorate's
//! own. They are in the order of the help.

use super::names::Names;
use super::value::Value;
use bytes::Bytes;
use quorate_management::wire;
use quorate_types::{FieldTable, FieldTableError};

type Cell = Result<Value, FieldTableError>;

/// A column of a list; `T` is the source of a row.
pub(crate) struct Column<T> {
    pub(crate) name: &'static str,
    /// Computes the cell.
    pub(crate) cell: fn(&T, &Names) -> Cell,
}

/// A column of RabbitMQ that has no meaning in Quorate; its cells are empty.
const fn unused<T>(name: &'static str) -> Column<T> {
    Column { name, cell: |_, _| Ok(Value::Empty) }
}

const fn column<T>(name: &'static str, cell: fn(&T, &Names) -> Cell) -> Column<T> {
    Column { name, cell }
}

/// A queue, and its exclusive consumer.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueRow {
    pub(crate) queue: wire::Queue,
    pub(crate) alone: Option<wire::Consumer>,
}

/// A field table of the protocol, with the fields sorted by name, as RabbitMQ keeps them.
fn table(bytes: &Bytes) -> Cell {
    let mut table = FieldTable::decode(&mut bytes.clone())?;
    table.0.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(Value::Table(table))
}

fn number(number: impl Into<u64>) -> Value {
    Value::Number(number.into())
}

/// Running; minority: too few members are reachable; down: the leader is not reachable.
fn queue_state(queue: &wire::Queue) -> &'static str {
    if queue.counts.is_some() {
        "running"
    } else if queue.online.len() * 2 <= queue.members.len() {
        "minority"
    } else {
        "down"
    }
}

/// The name of the policy in force; empty without one.
fn policy(name: &str) -> Value {
    if name.is_empty() { Value::Empty } else { Value::text(name) }
}

/// A number that only the queue's leader knows; empty if the leader does not answer.
fn counted(row: &QueueRow, count: fn(&wire::QueueCounts) -> u64) -> Cell {
    Ok(row.queue.counts.as_ref().map_or(Value::Empty, |counts| number(count(counts))))
}

fn leader(row: &QueueRow, names: &Names) -> Cell {
    let leader = row.queue.leader;
    Ok(if leader == 0 { Value::Empty } else { Value::word(names.node(leader)) })
}

/// The definition of a policy; empty without a policy (POL-11).
fn definition(json: &str) -> Value {
    let empty = || serde_json::Value::Object(serde_json::Map::new());
    Value::Json(serde_json::from_str(json).unwrap_or_else(|_| empty()))
}

/// RabbitMQ's name of a connection.
fn connection_name(peer_host: &str, peer_port: u32, host: &str, port: u32) -> String {
    format!("{peer_host}:{peer_port} -> {host}:{port}")
}

/// Columns of `list_queues`.
pub(crate) const QUEUES: &[Column<QueueRow>] = &[
    column("arguments", |row, _| table(&row.queue.arguments)),
    column("auto_delete", |row, _| Ok(Value::Bool(row.queue.auto_delete))),
    column("configured_at", |row, _| counted(row, |it| it.configured_at)),
    column("consumer_capacity", |row, _| counted(row, wire::QueueCounts::consumer_capacity)),
    column("consumer_utilisation", |row, _| counted(row, wire::QueueCounts::consumer_capacity)),
    column("consumers", |row, _| counted(row, |it| it.consumers)),
    unused("disk_reads"),
    unused("disk_writes"),
    column("durable", |row, _| Ok(Value::Bool(row.queue.durable))),
    column("effective_policy_definition", |row, _| {
        Ok(definition(&row.queue.effective_policy_definition))
    }),
    column("exclusive", |row, _| Ok(Value::Bool(row.queue.owner.is_some()))),
    column("exclusive_consumer_pid", |row, names| {
        Ok(row.alone.as_ref().map_or(Value::Empty, |consumer| {
            Value::word(names.channel(consumer.connection, consumer.channel))
        }))
    }),
    column("exclusive_consumer_tag", |row, _| {
        Ok(row.alone.as_ref().map_or(Value::Empty, |consumer| Value::text(&consumer.tag)))
    }),
    column("group", |row, _| Ok(number(row.queue.id.map_or(0, |id| id.group)))),
    unused("head_message_timestamp"),
    column("leader", leader),
    column("members", |row, names| Ok(Value::Words(names.nodes(&row.queue.members)))),
    column("memory", |row, _| counted(row, |it| it.memory_bytes)),
    column("message_bytes", |row, _| counted(row, |it| it.ready_bytes + it.unacknowledged_bytes)),
    unused("message_bytes_persistent"),
    unused("message_bytes_ram"),
    column("message_bytes_ready", |row, _| counted(row, |it| it.ready_bytes)),
    column("message_bytes_unacknowledged", |row, _| counted(row, |it| it.unacknowledged_bytes)),
    column("messages", |row, _| {
        counted(row, |it| it.ready + it.unacknowledged + it.delayed + it.dead_letters_waiting)
    }),
    column("messages_dead_letters_waiting", |row, _| counted(row, |it| it.dead_letters_waiting)),
    column("messages_delayed", |row, _| counted(row, |it| it.delayed)),
    unused("messages_persistent"),
    unused("messages_ram"),
    column("messages_ready", |row, _| counted(row, |it| it.ready)),
    unused("messages_ready_ram"),
    column("messages_unacknowledged", |row, _| counted(row, |it| it.unacknowledged)),
    unused("messages_unacknowledged_ram"),
    column("name", |row, _| Ok(Value::text(&row.queue.name))),
    column("online", |row, names| Ok(Value::Words(names.nodes(&row.queue.online)))),
    column("operator_policy", |row, _| Ok(policy(&row.queue.operator_policy))),
    column("owner_pid", |row, names| {
        Ok(match row.queue.owner {
            Some(owner) => Value::word(names.connection(Some(owner))),
            None => Value::Empty,
        })
    }),
    column("pid", leader),
    column("policy", |row, _| Ok(policy(&row.queue.policy))),
    column("state", |row, _| Ok(Value::word(queue_state(&row.queue)))),
    column("type", |row, _| Ok(Value::word(&row.queue.queue_type))),
    column("vhost", |row, _| Ok(Value::text(&row.queue.vhost))),
];

/// Columns of `list_exchanges`.
pub(crate) const EXCHANGES: &[Column<wire::Exchange>] = &[
    column("arguments", |it, _| table(&it.arguments)),
    column("auto_delete", |it, _| Ok(Value::Bool(it.auto_delete))),
    column("durable", |it, _| Ok(Value::Bool(it.durable))),
    column("internal", |it, _| Ok(Value::Bool(it.internal))),
    column("name", |it, _| Ok(Value::text(&it.name))),
    column("policy", |it, _| Ok(policy(&it.policy))),
    column("type", |it, _| Ok(Value::word(&it.kind))),
];

/// Columns of `list_bindings`.
pub(crate) const BINDINGS: &[Column<wire::Binding>] = &[
    column("source_name", |it, _| Ok(Value::text(&it.source))),
    column("source_kind", |_, _| Ok(Value::word("exchange"))),
    column("destination_name", |it, _| Ok(Value::text(&it.destination))),
    column("destination_kind", |it, _| {
        Ok(Value::word(if it.to_queue { "queue" } else { "exchange" }))
    }),
    column("routing_key", |it, _| Ok(Value::text(&it.key))),
    column("arguments", |it, _| table(&it.arguments)),
];

/// A text about the TLS of a connection; empty without one.
fn of_tls(connection: &wire::Connection, text: fn(&wire::Tls) -> &str) -> Value {
    let text = connection.tls.as_ref().map(text).filter(|text| !text.is_empty());
    text.map_or(Value::Empty, Value::text)
}

/// Columns of `list_connections`.
pub(crate) const CONNECTIONS: &[Column<wire::Connection>] = &[
    column("auth_mechanism", |it, _| Ok(Value::word(&it.mechanism))),
    column("channel_max", |it, _| Ok(number(it.channel_max))),
    column("channels", |it, _| Ok(number(it.channels))),
    column("client_properties", |it, _| table(&it.client_properties)),
    column("connected_at", |it, _| Ok(number(it.connected_at_ms))),
    column("frame_max", |it, _| Ok(number(it.frame_max))),
    column("host", |it, _| Ok(Value::text(&it.host))),
    column("name", |it, _| {
        Ok(Value::text(connection_name(&it.peer_host, it.peer_port, &it.host, it.port)))
    }),
    column("node", |it, names| Ok(Value::word(names.node(it.id.unwrap_or_default().node)))),
    column("peer_cert_issuer", |it, _| Ok(of_tls(it, |tls| &tls.peer_issuer))),
    column("peer_cert_subject", |it, _| Ok(of_tls(it, |tls| &tls.peer_subject))),
    column("peer_cert_validity", |it, _| Ok(of_tls(it, |tls| &tls.peer_validity))),
    column("peer_host", |it, _| Ok(Value::text(&it.peer_host))),
    column("peer_port", |it, _| Ok(number(it.peer_port))),
    column("pid", |it, names| Ok(Value::word(names.connection(it.id)))),
    column("port", |it, _| Ok(number(it.port))),
    column("protocol", |_, _| Ok(Value::word("{0,9,1}"))),
    column("recv_cnt", |it, _| Ok(number(it.reads))),
    column("recv_oct", |it, _| Ok(number(it.received_bytes))),
    column("send_cnt", |it, _| Ok(number(it.writes))),
    column("send_oct", |it, _| Ok(number(it.sent_bytes))),
    column("send_pend", |it, _| Ok(number(it.pending_bytes))),
    column("ssl", |it, _| Ok(Value::Bool(it.tls.is_some()))),
    column("ssl_cipher", |it, _| Ok(of_tls(it, |tls| &tls.cipher))),
    // All suites that the node offers authenticate by their cipher.
    column("ssl_hash", |it, _| Ok(of_tls(it, |_| "aead"))),
    column("ssl_key_exchange", |it, _| Ok(of_tls(it, |tls| &tls.key_exchange))),
    column("ssl_protocol", |it, _| Ok(of_tls(it, |tls| &tls.protocol))),
    column("state", |it, _| Ok(Value::word(&it.state))),
    column("timeout", |it, _| Ok(number(it.heartbeat_s))),
    column("user", |it, _| Ok(Value::text(&it.user))),
    column("vhost", |it, _| Ok(Value::text(&it.vhost))),
];

/// Columns of `list_channels`.
pub(crate) const CHANNELS: &[Column<wire::Channel>] = &[
    column("acks_uncommitted", |it, _| Ok(number(it.acks_uncommitted))),
    column("confirm", |it, _| Ok(Value::Bool(it.confirm))),
    column("connection", |it, names| Ok(Value::word(names.connection(it.connection)))),
    column("consumer_count", |it, _| Ok(number(it.consumers))),
    column("messages_unacknowledged", |it, _| Ok(number(it.unacknowledged))),
    column("messages_uncommitted", |it, _| Ok(number(it.messages_uncommitted))),
    column("messages_unconfirmed", |it, _| Ok(number(it.unconfirmed))),
    column("name", |it, _| {
        Ok({
            let name = connection_name(&it.peer_host, it.peer_port, &it.host, it.port);
            Value::text(format!("{name} ({})", it.number))
        })
    }),
    column("number", |it, _| Ok(number(it.number))),
    column("pid", |it, names| Ok(Value::word(names.channel(it.connection, it.number)))),
    column("prefetch_count", |it, _| Ok(number(it.prefetch))),
    column("transactional", |it, _| Ok(Value::Bool(it.transactional))),
    column("user", |it, _| Ok(Value::text(&it.user))),
    column("vhost", |it, _| Ok(Value::text(&it.vhost))),
];

/// Columns of `list_consumers`.
pub(crate) const CONSUMERS: &[Column<wire::Consumer>] = &[
    column("queue_name", |it, _| Ok(Value::text(&it.queue))),
    column("channel_pid", |it, names| Ok(Value::word(names.channel(it.connection, it.channel)))),
    column("consumer_tag", |it, _| Ok(Value::text(&it.tag))),
    column("ack_required", |it, _| Ok(Value::Bool(it.ack_required))),
    column("prefetch_count", |it, _| Ok(number(it.prefetch))),
    column("active", |it, _| Ok(Value::Bool(it.activity_status != "waiting"))),
    column("activity_status", |it, _| Ok(Value::word(&it.activity_status))),
    column("arguments", |it, _| table(&it.arguments)),
];
