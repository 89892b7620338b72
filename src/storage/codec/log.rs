//! Log entries, on disk and on the wire.
//!
//! A `log` record is: version, term, leader, kind, content. The content of commands is the encoded
//! entry, which begins with its runs' heads (STO 2). The wire form is a record with its index,
//! with the lengths of all messages in front of the messages themselves.

use super::{
    DecodeError,
    chain::Chain,
    cursor::{Cursor, put_bytes, put_int, put_len},
};
use crate::{CommandEntry, EntryId, LogEntry, Payload, RunBodies};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_types::{LogIndex, NodeId, Term};

const VERSION: u8 = 1;

const BLANK: u8 = 0;
const MEMBERSHIP: u8 = 1;
const COMMANDS: u8 = 2;

/// Appends a `log` record.
pub(crate) fn put_record(entry: &LogEntry, out: &mut BytesMut) {
    out.put_u8(VERSION);
    put_int(out, entry.id.term.0);
    put_int(out, u64::from(entry.id.leader.0));
    match &entry.payload {
        Payload::Blank => out.put_u8(BLANK),
        Payload::Membership(membership) => {
            out.put_u8(MEMBERSHIP);
            out.put_slice(membership);
        }
        Payload::Commands(commands) => {
            out.put_u8(COMMANDS);
            out.put_slice(&commands.command);
        }
    }
}

/// Reads a `log` record; the commands come without their bodies.
pub(crate) fn record(index: LogIndex, bytes: &[u8]) -> Result<LogEntry, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let id = id_of(index, &mut cursor)?;
    let kind = cursor.u8()?;
    let content = Bytes::copy_from_slice(cursor.take(cursor.remaining())?);
    let payload = match kind {
        BLANK if content.is_empty() => Payload::Blank,
        MEMBERSHIP => Payload::Membership(content),
        COMMANDS => Payload::Commands(CommandEntry { command: content, bodies: Vec::new() }),
        _ => return Err(DecodeError::Invalid("kind of log entry")),
    };
    Ok(LogEntry { id, payload })
}

/// Decodes only the identity of a `log` record.
pub(crate) fn record_id(index: LogIndex, bytes: &[u8]) -> Result<EntryId, DecodeError> {
    id_of(index, &mut Cursor::new(bytes))
}

fn id_of(index: LogIndex, cursor: &mut Cursor<'_>) -> Result<EntryId, DecodeError> {
    cursor.version(VERSION)?;
    Ok(EntryId { term: Term(cursor.int()?), leader: NodeId(cursor.u16()?), index })
}

/// Encodes an entry's identity as a separate value.
pub(crate) fn encode_id(id: EntryId) -> Bytes {
    let mut out = BytesMut::with_capacity(24);
    out.put_u8(VERSION);
    put_id(id, &mut out);
    out.freeze()
}

/// Decodes an entry's identity.
pub(crate) fn decode_id(bytes: &[u8]) -> Result<EntryId, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let id = id(&mut cursor)?;
    cursor.end()?;
    Ok(id)
}

pub(crate) fn put_id(id: EntryId, out: &mut BytesMut) {
    put_int(out, id.term.0);
    put_int(out, u64::from(id.leader.0));
    put_int(out, id.index.0);
}

pub(crate) fn id(cursor: &mut Cursor<'_>) -> Result<EntryId, DecodeError> {
    Ok(EntryId {
        term: Term(cursor.int()?),
        leader: NodeId(cursor.u16()?),
        index: LogIndex(cursor.int()?),
    })
}

/// Encodes an entry for a follower as a chain of buffers whose concatenation is the frame; large
/// messages are not copied.
#[must_use]
pub fn encode_wire(entry: &LogEntry) -> Vec<Bytes> {
    let mut chain = Chain::default();
    let out = chain.small();
    out.put_u8(VERSION);
    put_id(entry.id, out);
    match &entry.payload {
        Payload::Blank => out.put_u8(BLANK),
        Payload::Membership(membership) => {
            out.put_u8(MEMBERSHIP);
            out.put_slice(membership);
        }
        Payload::Commands(commands) => put_commands(commands, &mut chain),
    }
    chain.finish()
}

fn put_commands(commands: &CommandEntry, chain: &mut Chain) {
    let out = chain.small();
    out.put_u8(COMMANDS);
    put_len(out, commands.bodies.len());
    for run in &commands.bodies {
        put_len(out, run.messages.len());
        for message in &run.messages {
            // 0 means an absent message (STO 2).
            put_len(out, message.as_ref().map_or(0, |message| message.len() + 1));
        }
    }
    put_bytes(out, &commands.command);
    for message in commands.bodies.iter().flat_map(|run| &run.messages).flatten() {
        chain.push(message);
    }
}

/// Decodes an entry; commands and messages are slices of `bytes`.
///
/// # Errors
/// The bytes are not an entry.
pub fn decode_wire(bytes: &Bytes) -> Result<LogEntry, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let id = id(&mut cursor)?;
    let payload = match cursor.u8()? {
        BLANK => Payload::Blank,
        MEMBERSHIP => Payload::Membership(bytes.slice_ref(cursor.take(cursor.remaining())?)),
        COMMANDS => Payload::Commands(commands(bytes, &mut cursor)?),
        _ => return Err(DecodeError::Invalid("kind of log entry")),
    };
    cursor.end()?;
    Ok(LogEntry { id, payload })
}

fn commands(bytes: &Bytes, cursor: &mut Cursor<'_>) -> Result<CommandEntry, DecodeError> {
    let runs = cursor.list(|cursor| cursor.list(Cursor::int))?;
    let command = bytes.slice_ref(cursor.bytes()?);
    let mut bodies = Vec::with_capacity(runs.len());
    for run in runs {
        let mut messages = Vec::with_capacity(run.len());
        for length in run {
            messages.push(match length.checked_sub(1) {
                None => None,
                Some(length) => {
                    let length = usize::try_from(length).map_err(|_| DecodeError::Truncated)?;
                    Some(bytes.slice_ref(cursor.take(length)?))
                }
            });
        }
        bodies.push(RunBodies { messages });
    }
    Ok(CommandEntry { command, bodies })
}
