//! Encodings that the catalog's commands and records share.

use super::{
    DecodeError,
    command::{name, put_name},
    config::{put_queue_type, queue_type},
    cursor::{Cursor, put_bool, put_bytes, put_int, put_queue, put_session, put_short},
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_catalog::{
    Binding, ClusterShape, ConnectionId, Destination, ExchangeRecord, ExchangeType, QueueEntry,
};
use quorate_types::{ClusterId, FieldTable, MachineVersion};

pub(crate) fn put_shape(shape: ClusterShape, out: &mut BytesMut) {
    put_int(out, shape.cluster.0);
    put_int(out, u64::from(shape.queue_groups));
}

pub(crate) fn shape(cursor: &mut Cursor<'_>) -> Result<ClusterShape, DecodeError> {
    Ok(ClusterShape { cluster: ClusterId(cursor.int()?), queue_groups: cursor.u16()? })
}

/// A version of the replicated machine that this binary knows.
pub(crate) fn machine_version(cursor: &mut Cursor<'_>) -> Result<MachineVersion, DecodeError> {
    let found = u32::try_from(cursor.int()?).map_err(|_| DecodeError::Invalid("version"))?;
    let version = MachineVersion(found);
    if version.is_known() {
        return Ok(version);
    }
    Err(DecodeError::Machine { found, newest: MachineVersion::NEWEST })
}

pub(crate) fn put_exchange(exchange: &ExchangeRecord, out: &mut BytesMut) {
    put_name(&exchange.name, out);
    out.put_u8(match exchange.kind {
        ExchangeType::Direct => 0,
        ExchangeType::Fanout => 1,
        ExchangeType::Topic => 2,
        ExchangeType::Headers => 3,
        ExchangeType::ConsistentHash => 4,
        ExchangeType::ModulusHash => 5,
        ExchangeType::Random => 6,
        ExchangeType::Delayed => 7,
        ExchangeType::LocalRandom => 8,
    });
    put_bool(out, exchange.durable);
    put_bool(out, exchange.auto_delete);
    put_bool(out, exchange.internal);
    put_table(&exchange.arguments, out);
}

pub(crate) fn exchange(cursor: &mut Cursor<'_>) -> Result<ExchangeRecord, DecodeError> {
    Ok(ExchangeRecord {
        name: name(cursor)?,
        kind: match cursor.u8()? {
            0 => ExchangeType::Direct,
            1 => ExchangeType::Fanout,
            2 => ExchangeType::Topic,
            3 => ExchangeType::Headers,
            4 => ExchangeType::ConsistentHash,
            5 => ExchangeType::ModulusHash,
            6 => ExchangeType::Random,
            7 => ExchangeType::Delayed,
            8 => ExchangeType::LocalRandom,
            _ => return Err(DecodeError::Invalid("exchange type")),
        },
        durable: cursor.bool()?,
        auto_delete: cursor.bool()?,
        internal: cursor.bool()?,
        arguments: table(cursor)?,
    })
}

pub(crate) fn put_binding(binding: &Binding, out: &mut BytesMut) {
    put_name(&binding.source, out);
    match &binding.destination {
        Destination::Queue { name, id } => {
            out.put_u8(0);
            put_short(out, name);
            put_queue(out, *id);
        }
        Destination::Exchange(name) => {
            out.put_u8(1);
            put_short(out, name);
        }
    }
    put_short(out, &binding.key);
    put_table(&binding.arguments, out);
}

pub(crate) fn binding(cursor: &mut Cursor<'_>) -> Result<Binding, DecodeError> {
    Ok(Binding {
        source: name(cursor)?,
        destination: match cursor.u8()? {
            0 => Destination::Queue { name: cursor.short()?, id: cursor.queue()? },
            1 => Destination::Exchange(cursor.short()?),
            _ => return Err(DecodeError::Invalid("destination")),
        },
        key: cursor.short()?,
        arguments: table(cursor)?,
    })
}

pub(crate) fn put_queue_entry(entry: &QueueEntry, out: &mut BytesMut) {
    put_name(&entry.name, out);
    put_queue(out, entry.id);
    put_session(out, entry.creator);
    put_queue_type(entry.queue_type, out);
    put_bool(out, entry.durable);
    put_bool(out, entry.auto_delete);
    put_bool(out, entry.owner.is_some());
    if let Some(owner) = entry.owner {
        put_session(out, owner.session);
        put_int(out, owner.number);
    }
    put_table(&entry.arguments, out);
}

pub(crate) fn queue_entry(cursor: &mut Cursor<'_>) -> Result<QueueEntry, DecodeError> {
    Ok(QueueEntry {
        name: name(cursor)?,
        id: cursor.queue()?,
        creator: cursor.session()?,
        queue_type: queue_type(cursor)?,
        durable: cursor.bool()?,
        auto_delete: cursor.bool()?,
        owner: if cursor.bool()? { Some(connection(cursor)?) } else { None },
        arguments: table(cursor)?,
    })
}

fn connection(cursor: &mut Cursor<'_>) -> Result<ConnectionId, DecodeError> {
    Ok(ConnectionId { session: cursor.session()?, number: cursor.int()? })
}

/// A field table in its wire format, after its length. The decoder in `quorate-types` bounds its
/// depth.
fn put_table(table: &FieldTable, out: &mut BytesMut) {
    let mut content = BytesMut::new();
    table.encode_content(&mut content);
    put_bytes(out, &content);
}

fn table(cursor: &mut Cursor<'_>) -> Result<FieldTable, DecodeError> {
    // A copy, so that the table does not keep a whole frame in memory.
    let content = Bytes::copy_from_slice(cursor.bytes()?);
    FieldTable::decode_content(content).map_err(|_| DecodeError::Invalid("field table"))
}
