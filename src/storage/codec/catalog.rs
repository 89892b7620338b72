//! Entries of the catalog group.

use super::{
    DecodeError,
    catalog_access::{access_command, put_access_command},
    catalog_members::{member_command, put_member_command},
    catalog_parts::{
        binding, exchange, machine_version, put_binding, put_exchange, put_queue_entry, put_shape,
        queue_entry, shape,
    },
    catalog_policy::{
        parameter, parameter_name, policy, policy_name, put_parameter, put_parameter_name,
        put_policy, put_policy_name,
    },
    catalog_tasks::{put_task_command, task_command},
    command::{name, put_name},
    cursor::{Cursor, put_bool, put_bytes, put_int, put_len, put_queue},
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_catalog::{CatalogCommand, CatalogEntry};
use quorate_types::{BootNumber, Incarnation, NodeId, Stamp, StartNumber, Timestamp, WallTime};

pub use super::catalog_record::{decode_key, decode_record, encode_key, encode_record};

const VERSION: u8 = 1;

const FORM: u8 = 1;
const NODE_STARTED: u8 = 2;
const NODE_DOWN: u8 = 3;
const NEW_LIFE: u8 = 4;
const DECLARE_EXCHANGE: u8 = 5;
const DELETE_EXCHANGE: u8 = 6;
const BIND: u8 = 7;
const UNBIND: u8 = 8;
const ADD_QUEUE: u8 = 9;
const REMOVE_QUEUE: u8 = 10;
const ACCESS: u8 = 11;
const SET_POLICY: u8 = 12;
const CLEAR_POLICY: u8 = 13;
const SET_PARAMETER: u8 = 14;
const CLEAR_PARAMETER: u8 = 15;
const RAISE_MACHINE: u8 = 16;
const MEMBERS: u8 = 17;
const TASKS: u8 = 18;

/// Encodes an entry.
#[must_use]
pub fn encode_entry(entry: &CatalogEntry) -> Bytes {
    let mut out = BytesMut::with_capacity(64 + 128 * entry.commands.len());
    out.put_u8(VERSION);
    put_int(&mut out, entry.stamp.time.0);
    put_int(&mut out, entry.stamp.wall.0);
    put_len(&mut out, entry.commands.len());
    for command in &entry.commands {
        put_command(command, &mut out);
    }
    out.freeze()
}

/// Decodes an entry.
///
/// # Errors
/// The bytes are not an entry.
pub fn decode_entry(bytes: &[u8]) -> Result<CatalogEntry, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let stamp = Stamp { time: Timestamp(cursor.int()?), wall: WallTime(cursor.int()?) };
    let commands = cursor.list(command)?;
    cursor.end()?;
    Ok(CatalogEntry { stamp, commands })
}

/// Encodes one command, which a node sends to the catalog's leader.
#[must_use]
pub fn encode_command(command: &CatalogCommand) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    out.put_u8(VERSION);
    put_command(command, &mut out);
    out.freeze()
}

/// Decodes one command.
///
/// # Errors
/// The bytes are not a command.
pub fn decode_command(bytes: &[u8]) -> Result<CatalogCommand, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let command = command(&mut cursor)?;
    cursor.end()?;
    Ok(command)
}

/// True if the encoded command can be decoded to an equal one. Other commands must not be proposed:
/// every replica would fail at them, also after a restart.
#[must_use]
pub fn can_be_read_again(command: &CatalogCommand) -> bool {
    let bytes = encode_command(command);
    // Bytes are compared, since a table may contain a number that does not equal itself (NaN).
    decode_command(&bytes).is_ok_and(|decoded| encode_command(&decoded) == bytes)
}

/// Encodes a tag and one value.
fn tagged<T>(tag: u8, value: &T, put: impl Fn(&T, &mut BytesMut), out: &mut BytesMut) {
    out.put_u8(tag);
    put(value, out);
}

fn put_command(command: &CatalogCommand, out: &mut BytesMut) {
    match command {
        CatalogCommand::RaiseMachine(to) => {
            out.put_u8(RAISE_MACHINE);
            put_int(out, u64::from(to.0));
        }
        CatalogCommand::Form(shape) => {
            out.put_u8(FORM);
            put_shape(*shape, out);
        }
        CatalogCommand::NodeStarted { node, incarnation, boot, rpc_address, amqp_address } => {
            out.put_u8(NODE_STARTED);
            put_int(out, u64::from(node.0));
            out.put_u64(incarnation.0);
            out.put_u64(boot.0);
            put_bytes(out, rpc_address.as_bytes());
            put_bytes(out, amqp_address.as_bytes());
        }
        CatalogCommand::NodeDown { node, start } => {
            out.put_u8(NODE_DOWN);
            put_int(out, u64::from(node.0));
            put_int(out, start.0);
        }
        CatalogCommand::NewLife { boot } => {
            out.put_u8(NEW_LIFE);
            out.put_u64(boot.0);
        }
        CatalogCommand::DeclareExchange(exchange) => {
            tagged(DECLARE_EXCHANGE, exchange, put_exchange, out)
        }
        CatalogCommand::DeleteExchange { exchange, if_unused } => {
            out.put_u8(DELETE_EXCHANGE);
            put_name(exchange, out);
            put_bool(out, *if_unused);
        }
        CatalogCommand::Bind(binding) => tagged(BIND, binding, put_binding, out),
        CatalogCommand::Unbind(binding) => tagged(UNBIND, binding, put_binding, out),
        CatalogCommand::AddQueue(entry) => tagged(ADD_QUEUE, entry, put_queue_entry, out),
        CatalogCommand::RemoveQueue { queue } => {
            out.put_u8(REMOVE_QUEUE);
            put_queue(out, *queue);
        }
        CatalogCommand::Access(command) => tagged(ACCESS, command, put_access_command, out),
        CatalogCommand::Members(command) => tagged(MEMBERS, command, put_member_command, out),
        CatalogCommand::Tasks(command) => tagged(TASKS, command, put_task_command, out),
        CatalogCommand::SetPolicy(policy) => tagged(SET_POLICY, policy, put_policy, out),
        CatalogCommand::ClearPolicy(name) => tagged(CLEAR_POLICY, name, put_policy_name, out),
        CatalogCommand::SetParameter(parameter) => {
            tagged(SET_PARAMETER, parameter, put_parameter, out)
        }
        CatalogCommand::ClearParameter(name) => {
            tagged(CLEAR_PARAMETER, name, put_parameter_name, out)
        }
    }
}

fn command(cursor: &mut Cursor<'_>) -> Result<CatalogCommand, DecodeError> {
    Ok(match cursor.u8()? {
        RAISE_MACHINE => CatalogCommand::RaiseMachine(machine_version(cursor)?),
        FORM => CatalogCommand::Form(shape(cursor)?),
        NODE_STARTED => CatalogCommand::NodeStarted {
            node: NodeId(cursor.u16()?),
            incarnation: Incarnation(u64::from_be_bytes(cursor.array()?)),
            boot: BootNumber(u64::from_be_bytes(cursor.array()?)),
            rpc_address: cursor.string()?,
            amqp_address: cursor.string()?,
        },
        NODE_DOWN => CatalogCommand::NodeDown {
            node: NodeId(cursor.u16()?),
            start: StartNumber(cursor.int()?),
        },
        NEW_LIFE => {
            CatalogCommand::NewLife { boot: BootNumber(u64::from_be_bytes(cursor.array()?)) }
        }
        DECLARE_EXCHANGE => CatalogCommand::DeclareExchange(exchange(cursor)?),
        DELETE_EXCHANGE => {
            CatalogCommand::DeleteExchange { exchange: name(cursor)?, if_unused: cursor.bool()? }
        }
        BIND => CatalogCommand::Bind(binding(cursor)?),
        UNBIND => CatalogCommand::Unbind(binding(cursor)?),
        ADD_QUEUE => CatalogCommand::AddQueue(queue_entry(cursor)?),
        REMOVE_QUEUE => CatalogCommand::RemoveQueue { queue: cursor.queue()? },
        ACCESS => CatalogCommand::Access(access_command(cursor)?),
        MEMBERS => CatalogCommand::Members(member_command(cursor)?),
        TASKS => CatalogCommand::Tasks(task_command(cursor)?),
        SET_POLICY => CatalogCommand::SetPolicy(policy(cursor)?),
        CLEAR_POLICY => CatalogCommand::ClearPolicy(policy_name(cursor)?),
        SET_PARAMETER => CatalogCommand::SetParameter(parameter(cursor)?),
        CLEAR_PARAMETER => CatalogCommand::ClearParameter(parameter_name(cursor)?),
        _ => return Err(DecodeError::Invalid("command")),
    })
}
