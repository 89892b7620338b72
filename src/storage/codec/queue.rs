//! Entries of queue groups. The runs' heads come first, so that storage can decode them without the
//! commands (STO 2).

use super::{
    DecodeError,
    command::{commands, put_command},
    cursor::{Cursor, Short, put_int, put_len, put_queue, put_session},
    letter::{letter_home, put_letter_home},
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_queue::{Batch, Command, Entry, MessageHead, Origin, Run};
use quorate_types::{Level, NodeId, Sequence, SessionId, Stamp, StartNumber, Timestamp, WallTime};

pub use super::record::{decode_key, decode_record, encode_key, encode_record};

const VERSION: u8 = 1;

/// Encodes an entry.
#[must_use]
pub fn encode_entry(entry: &Entry) -> Bytes {
    let commands: usize = entry.batches.iter().map(|batch| batch.commands.len()).sum();
    let messages: usize = entry.runs.iter().map(|run| run.messages.len()).sum();
    let mut out = BytesMut::with_capacity(64 + 8 * commands + 4 * messages);
    out.put_u8(VERSION);
    put_int(&mut out, entry.stamp.time.0);
    put_int(&mut out, entry.stamp.wall.0);
    put_len(&mut out, entry.runs.len());
    for run in &entry.runs {
        put_run(run, &mut out);
    }
    put_len(&mut out, entry.batches.len());
    for batch in &entry.batches {
        put_batch(batch, &mut out);
    }
    out.freeze()
}

/// Decodes an entry.
///
/// # Errors
/// The bytes are not an entry.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let (stamp, runs) = heads(&mut cursor)?;
    let batches = cursor.list(batch)?;
    cursor.end()?;
    Ok(Entry { stamp, runs, batches })
}

/// Decodes only the stamp and the runs' heads of an encoded entry.
pub(crate) fn decode_heads(bytes: &[u8]) -> Result<(Stamp, Vec<Run>), DecodeError> {
    heads(&mut Cursor::new(bytes))
}

/// The times of an entry, without the rest of it.
///
/// # Errors
/// The bytes are not an entry.
pub fn decode_stamp(bytes: &[u8]) -> Result<Stamp, DecodeError> {
    decode_heads(bytes).map(|(stamp, _)| stamp)
}

fn heads(cursor: &mut Cursor<'_>) -> Result<(Stamp, Vec<Run>), DecodeError> {
    cursor.version(VERSION)?;
    let stamp = Stamp { time: Timestamp(cursor.int()?), wall: WallTime(cursor.int()?) };
    Ok((stamp, cursor.list(run)?))
}

fn put_run(run: &Run, out: &mut BytesMut) {
    put_queue(out, run.queue);
    out.put_u8(run.level.0);
    put_len(out, run.messages.len());
    for head in &run.messages {
        put_head(*head, out);
    }
}

fn run(cursor: &mut Cursor<'_>) -> Result<Run, DecodeError> {
    Ok(Run { queue: cursor.queue()?, level: Level(cursor.u8()?), messages: cursor.list(head)? })
}

/// The size times two, plus one if an expiration follows.
#[inline]
pub(crate) fn put_head(head: MessageHead, out: &mut BytesMut) {
    let size = u64::from(head.body_bytes) << 1;
    let mut short = Short::default();
    match head.expiration_ms {
        None => short.int(size),
        Some(expiration) => {
            short.int(size | 1);
            short.int(expiration);
        }
    }
    short.put(out);
}

#[inline]
pub(crate) fn head(cursor: &mut Cursor<'_>) -> Result<MessageHead, DecodeError> {
    let size = cursor.int()?;
    let body_bytes =
        u32::try_from(size >> 1).map_err(|_| DecodeError::Invalid("size of a message"))?;
    let expiration_ms = if size & 1 == 0 { None } else { Some(cursor.int()?) };
    Ok(MessageHead { body_bytes, expiration_ms })
}

/// Session that means "none" in the encoding of a leader's own batch: every holder is then encoded
/// in full.
pub(crate) const NOBODY: SessionId = SessionId { node: NodeId(0), start: StartNumber(0) };

fn put_batch(batch: &Batch, out: &mut BytesMut) {
    let own = match batch.origin {
        Origin::Leader => {
            out.put_u8(0);
            NOBODY
        }
        Origin::Session { session, first, mark } => {
            out.put_u8(1);
            put_session(out, session);
            put_int(out, first.0);
            put_int(out, mark.0);
            session
        }
        Origin::Letters { from, first, mark } => {
            out.put_u8(2);
            put_letter_home(from, out);
            put_int(out, first.0);
            put_int(out, mark.0);
            NOBODY
        }
    };
    put_commands(&batch.commands, own, out);
}

fn batch(cursor: &mut Cursor<'_>) -> Result<Batch, DecodeError> {
    let (origin, own) = match cursor.u8()? {
        0 => (Origin::Leader, NOBODY),
        1 => {
            let session = cursor.session()?;
            let (first, mark) = (Sequence(cursor.int()?), Sequence(cursor.int()?));
            (Origin::Session { session, first, mark }, session)
        }
        2 => {
            let from = letter_home(cursor)?;
            let (first, mark) = (Sequence(cursor.int()?), Sequence(cursor.int()?));
            (Origin::Letters { from, first, mark }, NOBODY)
        }
        _ => return Err(DecodeError::Invalid("origin")),
    };
    Ok(Batch { origin, commands: commands(cursor, own)? })
}

/// Commands of a batch of session `own`, whose holders are encoded without the session.
pub(crate) fn put_commands(commands: &[Command], own: SessionId, out: &mut BytesMut) {
    put_len(out, commands.len());
    for command in commands {
        put_command(command, own, out);
    }
}
