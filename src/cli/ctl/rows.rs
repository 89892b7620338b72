//! Cells of the lists, by column.

use super::names::Names;
use super::value::Value;
use bytes::Bytes;
use quorate_management::wire;
use quorate_types::{FieldTable, FieldTableError};

/// A field table of the wire, its fields by name, as RabbitMQ keeps them.
fn table(octets: &Bytes) -> Result<Value, FieldTableError> {
    let mut table = FieldTable::decode(&mut octets.clone())?;
    table.0.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(Value::Table(table))
}

fn number(number: impl Into<u64>) -> Value {
    Value::Number(number.into())
}

/// Running; minority: too few of its members can be reached; down: its leader cannot.
fn queue_state(queue: &wire::Queue) -> &'static str {
    if queue.counts.is_some() {
        "running"
    } else if queue.online.len() * 2 <= queue.members.len() {
        "minority"
    } else {
        "down"
    }
}

/// A policy's name, if one is in force.
fn policy(name: &str) -> Value {
    if name.is_empty() { Value::Empty } else { Value::text(name) }
}

/// A definition; that of no policy is empty (POL-11).
fn definition(json: &str) -> Value {
    let empty = || serde_json::Value::Object(serde_json::Map::new());
    Value::Json(serde_json::from_str(json).unwrap_or_else(|_| empty()))
}

/// A queue's cell; `alone` is its exclusive consumer.
pub(crate) fn queue(
    column: &str,
    queue: &wire::Queue,
    alone: Option<&wire::Consumer>,
    names: &Names,
) -> Result<Value, FieldTableError> {
    Ok(match column {
        "name" => Value::text(&queue.name),
        "vhost" => Value::text(&queue.vhost),
        "type" => Value::word(&queue.queue_type),
        "durable" => Value::Bool(queue.durable),
        "auto_delete" => Value::Bool(queue.auto_delete),
        "exclusive" => Value::Bool(queue.owner.is_some()),
        "owner_pid" => match queue.owner {
            Some(owner) => Value::word(names.connection(Some(owner))),
            None => Value::Empty,
        },
        "arguments" => table(&queue.arguments)?,
        "leader" | "pid" if queue.leader != 0 => Value::word(names.node(queue.leader)),
        "members" => Value::Words(names.nodes(&queue.members)),
        "online" => Value::Words(names.nodes(&queue.online)),
        "group" => number(queue.id.map_or(0, |id| id.group)),
        "state" => Value::word(queue_state(queue)),
        "policy" => policy(&queue.policy),
        "operator_policy" => policy(&queue.operator_policy),
        "effective_policy_definition" => definition(&queue.effective_policy_definition),
        "exclusive_consumer_pid" => alone.map_or(Value::Empty, |consumer| {
            Value::word(names.channel(consumer.connection, consumer.channel))
        }),
        "exclusive_consumer_tag" => {
            alone.map_or(Value::Empty, |consumer| Value::text(&consumer.tag))
        }
        counted => queue.counts.as_ref().map_or(Value::Empty, |counts| count(counted, counts)),
    })
}

fn count(column: &str, counts: &wire::QueueCounts) -> Value {
    match column {
        "messages" => number(counts.ready + counts.unacknowledged + counts.dead_letters_waiting),
        "messages_ready" => number(counts.ready),
        "messages_unacknowledged" => number(counts.unacknowledged),
        "messages_dead_letters_waiting" => number(counts.dead_letters_waiting),
        "consumers" => number(counts.consumers),
        "message_bytes" => number(counts.ready_bytes + counts.unacknowledged_bytes),
        "message_bytes_ready" => number(counts.ready_bytes),
        "message_bytes_unacknowledged" => number(counts.unacknowledged_bytes),
        "memory" => number(counts.memory_bytes),
        "configured_at" => number(counts.configured_at),
        // Columns of RabbitMQ's that have no meaning here.
        _ => Value::Empty,
    }
}

pub(crate) fn exchange(column: &str, exchange: &wire::Exchange) -> Result<Value, FieldTableError> {
    Ok(match column {
        "name" => Value::text(&exchange.name),
        "type" => Value::word(&exchange.kind),
        "durable" => Value::Bool(exchange.durable),
        "auto_delete" => Value::Bool(exchange.auto_delete),
        "internal" => Value::Bool(exchange.internal),
        "arguments" => table(&exchange.arguments)?,
        "policy" => policy(&exchange.policy),
        _ => Value::Empty,
    })
}

pub(crate) fn binding(column: &str, binding: &wire::Binding) -> Result<Value, FieldTableError> {
    Ok(match column {
        "source_name" => Value::text(&binding.source),
        "source_kind" => Value::word("exchange"),
        "destination_name" => Value::text(&binding.destination),
        "destination_kind" => Value::word(if binding.to_queue { "queue" } else { "exchange" }),
        "routing_key" => Value::text(&binding.key),
        "arguments" => table(&binding.arguments)?,
        _ => Value::Empty,
    })
}

/// RabbitMQ's name of a connection.
fn connection_name(peer_host: &str, peer_port: u32, host: &str, port: u32) -> String {
    format!("{peer_host}:{peer_port} -> {host}:{port}")
}

pub(crate) fn connection(
    column: &str,
    of: &wire::Connection,
    names: &Names,
) -> Result<Value, FieldTableError> {
    Ok(match column {
        "pid" => Value::word(names.connection(of.id)),
        "node" => Value::word(names.node(of.id.unwrap_or_default().node)),
        "name" => Value::text(connection_name(&of.peer_host, of.peer_port, &of.host, of.port)),
        "user" => Value::text(&of.user),
        "vhost" => Value::text(&of.vhost),
        "peer_host" => Value::text(&of.peer_host),
        "peer_port" => number(of.peer_port),
        "host" => Value::text(&of.host),
        "port" => number(of.port),
        "state" => Value::word(&of.state),
        "channels" => number(of.channels),
        "channel_max" => number(of.channel_max),
        "frame_max" => number(of.frame_max),
        "timeout" => number(of.heartbeat_s),
        "connected_at" => number(of.connected_at_ms),
        "client_properties" => table(&of.client_properties)?,
        "recv_oct" => number(of.received_bytes),
        "recv_cnt" => number(of.reads),
        "send_oct" => number(of.sent_bytes),
        "send_cnt" => number(of.writes),
        "send_pend" => number(of.pending_bytes),
        "auth_mechanism" => Value::word(&of.mechanism),
        "protocol" => Value::word("{0,9,1}"),
        "ssl" => Value::Bool(false),
        _ => Value::Empty,
    })
}

pub(crate) fn channel(
    column: &str,
    of: &wire::Channel,
    names: &Names,
) -> Result<Value, FieldTableError> {
    Ok(match column {
        "pid" => Value::word(names.channel(of.connection, of.number)),
        "connection" => Value::word(names.connection(of.connection)),
        "name" => {
            let name = connection_name(&of.peer_host, of.peer_port, &of.host, of.port);
            Value::text(format!("{name} ({})", of.number))
        }
        "number" => number(of.number),
        "user" => Value::text(&of.user),
        "vhost" => Value::text(&of.vhost),
        "confirm" => Value::Bool(of.confirm),
        "transactional" => Value::Bool(of.transactional),
        "consumer_count" => number(of.consumers),
        "messages_unacknowledged" => number(of.unacknowledged),
        "messages_unconfirmed" => number(of.unconfirmed),
        "acks_uncommitted" => number(of.acks_uncommitted),
        "messages_uncommitted" => number(of.messages_uncommitted),
        "prefetch_count" => number(of.prefetch),
        _ => Value::Empty,
    })
}

pub(crate) fn consumer(
    column: &str,
    of: &wire::Consumer,
    names: &Names,
) -> Result<Value, FieldTableError> {
    Ok(match column {
        "queue_name" => Value::text(&of.queue),
        "channel_pid" => Value::word(names.channel(of.connection, of.channel)),
        "consumer_tag" => Value::text(&of.tag),
        "ack_required" => Value::Bool(of.ack_required),
        "prefetch_count" => number(of.prefetch),
        "active" => Value::Bool(of.activity_status != "waiting"),
        "activity_status" => Value::word(&of.activity_status),
        "arguments" => table(&of.arguments)?,
        _ => Value::Empty,
    })
}
