//! State records of the catalog group, and their keys.

use super::{
    DecodeError,
    catalog_access::{
        permission, put_permission, put_topic_permission, put_user, put_vhost, topic_permission,
        user, vhost,
    },
    catalog_members::{forgotten, member, placement, put_forgotten, put_member, put_placement},
    catalog_parts::{
        binding, exchange, machine_version, put_binding, put_exchange, put_queue_entry, put_shape,
        queue_entry, shape,
    },
    catalog_policy::{
        parameter, parameter_name, policy, policy_name, put_parameter, put_parameter_name,
        put_policy, put_policy_name,
    },
    catalog_tasks::{put_task, task},
    command::{name, put_name},
    cursor::{Cursor, put_bool, put_bytes, put_int, put_len, put_short},
    key::{put_queue_key, queue_key},
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_catalog::{BindingId, CatalogKey, CatalogRecord, CatalogState, NodeEntry};
use quorate_types::{
    BootNumber, CatalogIndex, GroupId, Incarnation, MachineVersion, NodeId, ReplicaNumber,
    StartNumber, TaskId,
};

const VERSION: u8 = 1;

const STATE: u8 = 1;
const VHOST: u8 = 2;
const USER: u8 = 3;
const NODE: u8 = 4;
const EXCHANGE: u8 = 5;
const BINDING: u8 = 6;
const QUEUE: u8 = 7;
const PERMISSION: u8 = 8;
const TOPIC_PERMISSION: u8 = 9;
const POLICY: u8 = 10;
const PARAMETER: u8 = 11;
/// State of a version of the replicated machine after the first one.
const STATE_OF_MACHINE: u8 = 12;
const MEMBER: u8 = 13;
const FORGOTTEN: u8 = 14;
const PLACEMENT: u8 = 15;
const TASK: u8 = 16;

/// Encodes a record's key.
#[must_use]
pub fn encode_key(key: &CatalogKey) -> Bytes {
    let mut out = BytesMut::with_capacity(32);
    match key {
        CatalogKey::State => out.put_u8(STATE),
        CatalogKey::Vhost(name) => {
            out.put_u8(VHOST);
            put_short(&mut out, name);
        }
        CatalogKey::User(name) => {
            out.put_u8(USER);
            put_short(&mut out, name);
        }
        CatalogKey::Node(node) => {
            out.put_u8(NODE);
            out.put_u16(node.0);
        }
        CatalogKey::Exchange(exchange) => {
            out.put_u8(EXCHANGE);
            put_name(exchange, &mut out);
        }
        CatalogKey::Binding(id) => put_numbered(BINDING, id.0, &mut out),
        CatalogKey::Queue(queue) => {
            out.put_u8(QUEUE);
            put_queue_key(*queue, &mut out);
        }
        CatalogKey::Permission { vhost, user } => {
            out.put_u8(PERMISSION);
            put_short(&mut out, vhost);
            put_short(&mut out, user);
        }
        CatalogKey::TopicPermission { vhost, user, exchange } => {
            out.put_u8(TOPIC_PERMISSION);
            put_short(&mut out, vhost);
            put_short(&mut out, user);
            put_short(&mut out, exchange);
        }
        CatalogKey::Policy(name) => {
            out.put_u8(POLICY);
            put_policy_name(name, &mut out);
        }
        CatalogKey::Parameter(name) => {
            out.put_u8(PARAMETER);
            put_parameter_name(name, &mut out);
        }
        CatalogKey::Member(node) => {
            out.put_u8(MEMBER);
            out.put_u16(node.0);
        }
        CatalogKey::Forgotten(incarnation) => put_numbered(FORGOTTEN, incarnation.0, &mut out),
        CatalogKey::Placement(group) => {
            out.put_u8(PLACEMENT);
            out.put_u16(group.0);
        }
        CatalogKey::Task(id) => put_numbered(TASK, id.0, &mut out),
    }
    out.freeze()
}

fn put_numbered(kind: u8, number: u64, out: &mut BytesMut) {
    out.put_u8(kind);
    out.put_u64(number);
}

/// Decodes a record's key.
///
/// # Errors
/// The bytes are not a key.
pub fn decode_key(bytes: &[u8]) -> Result<CatalogKey, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let key = match cursor.u8()? {
        STATE => CatalogKey::State,
        VHOST => CatalogKey::Vhost(cursor.short()?),
        USER => CatalogKey::User(cursor.short()?),
        NODE => CatalogKey::Node(NodeId(u16::from_be_bytes(cursor.array()?))),
        EXCHANGE => CatalogKey::Exchange(name(&mut cursor)?),
        BINDING => CatalogKey::Binding(BindingId(u64::from_be_bytes(cursor.array()?))),
        QUEUE => CatalogKey::Queue(queue_key(&mut cursor)?),
        PERMISSION => CatalogKey::Permission { vhost: cursor.short()?, user: cursor.short()? },
        TOPIC_PERMISSION => CatalogKey::TopicPermission {
            vhost: cursor.short()?,
            user: cursor.short()?,
            exchange: cursor.short()?,
        },
        POLICY => CatalogKey::Policy(policy_name(&mut cursor)?),
        PARAMETER => CatalogKey::Parameter(parameter_name(&mut cursor)?),
        MEMBER => CatalogKey::Member(NodeId(u16::from_be_bytes(cursor.array()?))),
        FORGOTTEN => CatalogKey::Forgotten(Incarnation(u64::from_be_bytes(cursor.array()?))),
        PLACEMENT => CatalogKey::Placement(GroupId(u16::from_be_bytes(cursor.array()?))),
        TASK => CatalogKey::Task(TaskId(u64::from_be_bytes(cursor.array()?))),
        _ => return Err(DecodeError::Invalid("kind of record")),
    };
    cursor.end()?;
    Ok(key)
}

/// Encodes a record.
#[must_use]
pub fn encode_record(record: &CatalogRecord) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    out.put_u8(VERSION);
    match record {
        CatalogRecord::State(state) => put_state(state, &mut out),
        CatalogRecord::Vhost(vhost) => {
            out.put_u8(VHOST);
            put_vhost(vhost, &mut out);
        }
        CatalogRecord::User(user) => {
            out.put_u8(USER);
            put_user(user, &mut out);
        }
        CatalogRecord::Node(node) => put_node(node, &mut out),
        CatalogRecord::Exchange(exchange) => {
            out.put_u8(EXCHANGE);
            put_exchange(exchange, &mut out);
        }
        CatalogRecord::Binding(binding) => {
            out.put_u8(BINDING);
            put_binding(binding, &mut out);
        }
        CatalogRecord::Queue(entry) => {
            out.put_u8(QUEUE);
            put_queue_entry(entry, &mut out);
        }
        CatalogRecord::Permission(record) => {
            out.put_u8(PERMISSION);
            put_permission(record, &mut out);
        }
        CatalogRecord::TopicPermission(record) => {
            out.put_u8(TOPIC_PERMISSION);
            put_topic_permission(record, &mut out);
        }
        CatalogRecord::Policy(policy) => {
            out.put_u8(POLICY);
            put_policy(policy, &mut out);
        }
        CatalogRecord::Parameter(parameter) => {
            out.put_u8(PARAMETER);
            put_parameter(parameter, &mut out);
        }
        CatalogRecord::Member(member) => {
            out.put_u8(MEMBER);
            put_member(member, &mut out);
        }
        CatalogRecord::Forgotten(record) => {
            out.put_u8(FORGOTTEN);
            put_forgotten(record, &mut out);
        }
        CatalogRecord::Placement(placement) => {
            out.put_u8(PLACEMENT);
            put_placement(placement, &mut out);
        }
        CatalogRecord::Task(task) => {
            out.put_u8(TASK);
            put_task(task, &mut out);
        }
    }
    out.freeze()
}

/// Decodes a record.
///
/// # Errors
/// The bytes are not a record.
pub fn decode_record(bytes: &[u8]) -> Result<CatalogRecord, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let record = match cursor.u8()? {
        STATE => CatalogRecord::State(state(&mut cursor, MachineVersion::FIRST)?),
        STATE_OF_MACHINE => {
            let machine = machine_version(&mut cursor)?;
            CatalogRecord::State(state(&mut cursor, machine)?)
        }
        VHOST => CatalogRecord::Vhost(vhost(&mut cursor)?),
        USER => CatalogRecord::User(user(&mut cursor)?),
        NODE => CatalogRecord::Node(node(&mut cursor)?),
        EXCHANGE => CatalogRecord::Exchange(exchange(&mut cursor)?),
        BINDING => CatalogRecord::Binding(binding(&mut cursor)?),
        QUEUE => CatalogRecord::Queue(queue_entry(&mut cursor)?),
        PERMISSION => CatalogRecord::Permission(permission(&mut cursor)?),
        TOPIC_PERMISSION => CatalogRecord::TopicPermission(topic_permission(&mut cursor)?),
        POLICY => CatalogRecord::Policy(policy(&mut cursor)?),
        PARAMETER => CatalogRecord::Parameter(parameter(&mut cursor)?),
        MEMBER => CatalogRecord::Member(member(&mut cursor)?),
        FORGOTTEN => CatalogRecord::Forgotten(forgotten(&mut cursor)?),
        PLACEMENT => CatalogRecord::Placement(placement(&mut cursor)?),
        TASK => CatalogRecord::Task(task(&mut cursor)?),
        _ => return Err(DecodeError::Invalid("kind of record")),
    };
    cursor.end()?;
    Ok(record)
}

fn put_state(state: &CatalogState, out: &mut BytesMut) {
    if state.machine == MachineVersion::FIRST {
        out.put_u8(STATE);
    } else {
        out.put_u8(STATE_OF_MACHINE);
        put_int(out, u64::from(state.machine.0));
    }
    put_int(out, state.version.0);
    out.put_u64(state.digest);
    put_int(out, state.next_binding);
    put_int(out, state.life);
    put_bool(out, state.life_boot.is_some());
    if let Some(boot) = state.life_boot {
        out.put_u64(boot.0);
    }
    put_bool(out, state.shape.is_some());
    if let Some(shape) = state.shape {
        put_shape(shape, out);
    }
    if state.machine >= MachineVersion::MEMBERS {
        put_int(out, u64::from(state.next_replica.0));
    }
}

fn state(cursor: &mut Cursor<'_>, machine: MachineVersion) -> Result<CatalogState, DecodeError> {
    Ok(CatalogState {
        version: CatalogIndex(cursor.int()?),
        digest: u64::from_be_bytes(cursor.array()?),
        next_binding: cursor.int()?,
        life: cursor.int()?,
        life_boot: if cursor.bool()? { Some(boot(cursor)?) } else { None },
        shape: if cursor.bool()? { Some(shape(cursor)?) } else { None },
        machine,
        next_replica: if machine >= MachineVersion::MEMBERS {
            ReplicaNumber(cursor.u32()?)
        } else {
            ReplicaNumber(0)
        },
    })
}

fn boot(cursor: &mut Cursor<'_>) -> Result<BootNumber, DecodeError> {
    Ok(BootNumber(u64::from_be_bytes(cursor.array()?)))
}

fn put_node(node: &NodeEntry, out: &mut BytesMut) {
    out.put_u8(NODE);
    out.put_u64(node.incarnation.0);
    out.put_u64(node.boot.0);
    put_int(out, node.start.0);
    put_int(out, node.fenced.0);
    put_len(out, node.former_boots.len());
    for boot in &node.former_boots {
        out.put_u64(boot.0);
    }
    put_bytes(out, node.rpc_address.as_bytes());
    put_bytes(out, node.amqp_address.as_bytes());
}

fn node(cursor: &mut Cursor<'_>) -> Result<NodeEntry, DecodeError> {
    Ok(NodeEntry {
        incarnation: Incarnation(u64::from_be_bytes(cursor.array()?)),
        boot: boot(cursor)?,
        start: StartNumber(cursor.int()?),
        fenced: StartNumber(cursor.int()?),
        former_boots: cursor.list(boot)?,
        rpc_address: cursor.string()?,
        amqp_address: cursor.string()?,
    })
}
