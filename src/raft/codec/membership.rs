//! Memberships, the committed log id, and entries between openraft and the storage floor.

use super::{
    DecodeError,
    wire::{Reader, begin, put_option_log_id},
};
use crate::type_config::{Entry, LogId, Membership, Proposal, StoredMembership, entry_id, log_id};
use bytes::{BufMut, Bytes, BytesMut};
use openraft::EntryPayload;
use quorate_storage::{LogEntry, Payload};
use std::collections::BTreeSet;

fn put_membership(out: &mut BytesMut, membership: &Membership) {
    let configs = membership.get_joint_config();
    out.put_u32(configs.len() as u32);
    for config in configs {
        out.put_u32(config.len() as u32);
        config.iter().for_each(|node| out.put_u64(*node));
    }
    let nodes: Vec<u64> = membership.nodes().map(|(node, ())| *node).collect();
    out.put_u32(nodes.len() as u32);
    nodes.into_iter().for_each(|node| out.put_u64(node));
}

fn membership(reader: &mut Reader) -> Result<Membership, DecodeError> {
    let configs = reader.count(4)?;
    let configs = (0..configs).map(|_| nodes(reader)).collect::<Result<Vec<_>, _>>()?;
    let nodes = nodes(reader)?;
    if configs.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(configs, nodes).map_err(|_| DecodeError::Invalid("membership"))
}

fn nodes(reader: &mut Reader) -> Result<BTreeSet<u64>, DecodeError> {
    let count = reader.count(8)?;
    (0..count).map(|_| reader.u64()).collect()
}

/// Encodes a membership, as an entry of the log carries it.
pub(crate) fn encode_membership(membership: &Membership) -> Bytes {
    let mut out = begin(64);
    put_membership(&mut out, membership);
    out.freeze()
}

/// Decodes a membership that an entry of the log carries.
pub(crate) fn decode_membership(bytes: &Bytes) -> Result<Membership, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let decoded = membership(&mut reader)?;
    reader.end()?;
    Ok(decoded)
}

/// Encodes the membership in force and where it was decided, as a checkpoint keeps it.
pub(crate) fn encode_stored_membership(stored: &StoredMembership) -> Bytes {
    let mut out = begin(80);
    put_option_log_id(&mut out, stored.log_id().as_ref());
    put_membership(&mut out, stored.membership());
    out.freeze()
}

/// Decodes a membership that a checkpoint keeps.
pub(crate) fn decode_stored_membership(bytes: &Bytes) -> Result<StoredMembership, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let at = reader.option_log_id()?;
    let decoded = membership(&mut reader)?;
    reader.end()?;
    Ok(StoredMembership::new(at, decoded))
}

/// Encodes the committed log id.
pub(crate) fn encode_committed(committed: Option<&LogId>) -> Bytes {
    let mut out = begin(17);
    put_option_log_id(&mut out, committed);
    out.freeze()
}

/// Decodes the committed log id.
pub(crate) fn decode_committed(bytes: &Bytes) -> Result<Option<LogId>, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let committed = reader.option_log_id()?;
    reader.end()?;
    Ok(committed)
}

/// An entry as the storage floor sees it.
pub(crate) fn to_log_entry(entry: &Entry) -> LogEntry {
    let payload = match &entry.payload {
        EntryPayload::Blank => Payload::Blank,
        EntryPayload::Normal(Proposal(commands)) => Payload::Commands(commands.clone()),
        EntryPayload::Membership(membership) => Payload::Membership(encode_membership(membership)),
    };
    LogEntry { id: entry_id(&entry.log_id), payload }
}

/// The same without a copy of the commands.
pub(crate) fn into_log_entry(entry: Entry) -> LogEntry {
    let id = entry_id(&entry.log_id);
    match entry.payload {
        EntryPayload::Normal(Proposal(commands)) => {
            LogEntry { id, payload: Payload::Commands(commands) }
        }
        EntryPayload::Blank => LogEntry { id, payload: Payload::Blank },
        EntryPayload::Membership(membership) => {
            LogEntry { id, payload: Payload::Membership(encode_membership(&membership)) }
        }
    }
}

/// An entry as openraft sees it.
pub(crate) fn from_log_entry(entry: LogEntry) -> Result<Entry, DecodeError> {
    let payload = match entry.payload {
        Payload::Blank => EntryPayload::Blank,
        Payload::Commands(commands) => EntryPayload::Normal(Proposal(commands)),
        Payload::Membership(bytes) => EntryPayload::Membership(decode_membership(&bytes)?),
    };
    Ok(Entry { log_id: log_id(entry.id), payload })
}
