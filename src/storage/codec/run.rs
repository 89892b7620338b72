//! The two records of a run: its heads, and its bodies after an offset table.

use super::{
    DecodeError,
    cursor::{Cursor, put_int, put_len},
    queue::{head, put_head},
};
use crate::RunBodies;
use bytes::{BufMut, Bytes, BytesMut};
use quorate_queue::RunHead;
use quorate_types::{LogIndex, Timestamp};

const VERSION: u8 = 1;

/// Set in an offset whose message is absent (STO 2).
const ABSENT: u32 = 1 << 31;

/// Appends a run's heads; cut ones keep their position (STO 4).
pub(crate) fn put_heads(run: &RunHead, out: &mut BytesMut) {
    out.put_u8(VERSION);
    put_int(out, run.time.0);
    put_len(out, run.messages.len());
    for message in &run.messages {
        match message {
            Some(message) => {
                out.put_u8(1);
                put_head(*message, out);
            }
            None => out.put_u8(0),
        }
    }
}

/// Reads a run's heads.
pub(crate) fn heads(index: LogIndex, bytes: &[u8]) -> Result<RunHead, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let time = Timestamp(cursor.int()?);
    let messages =
        cursor.list(|cursor| Ok(if cursor.bool()? { Some(head(cursor)?) } else { None }))?;
    cursor.end()?;
    Ok(RunHead { index, time, messages })
}

/// Appends a run's bodies: version, count, for each message the offset of its end, the messages.
pub(crate) fn put_bodies(run: &RunBodies, out: &mut BytesMut) {
    out.reserve(run.bytes() + 4 * run.messages.len() + 5);
    out.put_u8(VERSION);
    out.put_u32(run.messages.len() as u32);
    let mut end = 0u32;
    for message in &run.messages {
        // A run is part of one entry, which is far below 2 GiB (the proposer bounds it).
        end += message.as_ref().map_or(0, |message| message.len() as u32);
        out.put_u32(if message.is_some() { end } else { end | ABSENT });
    }
    for message in run.messages.iter().flatten() {
        out.put_slice(message);
    }
}

/// One message of a `bodies` record.
pub(crate) fn body(bytes: &[u8], position: u32) -> Result<Option<&[u8]>, DecodeError> {
    let (count, rest) = table(bytes)?;
    let position = position as usize;
    if position >= count {
        return Ok(None);
    }
    let start = match position.checked_sub(1) {
        None => 0,
        Some(before) => offset(rest, before)? & !ABSENT,
    };
    let end = offset(rest, position)?;
    if end & ABSENT != 0 {
        return Ok(None);
    }
    let messages = rest.get(4 * count..).ok_or(DecodeError::Truncated)?;
    messages.get(start as usize..end as usize).map(Some).ok_or(DecodeError::Truncated)
}

/// Reads all messages of a `bodies` record, as slices of one copy.
pub(crate) fn bodies(bytes: &[u8]) -> Result<RunBodies, DecodeError> {
    let bytes = Bytes::copy_from_slice(bytes);
    let (count, _) = table(&bytes)?;
    let mut messages = Vec::with_capacity(count);
    for position in 0..count {
        let message = body(&bytes, position as u32)?;
        messages.push(message.map(|message| bytes.slice_ref(message)));
    }
    Ok(RunBodies { messages })
}

/// Number of messages, and the bytes after it: their offsets, whose presence is checked.
fn table(bytes: &[u8]) -> Result<(usize, &[u8]), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let count = u32::from_be_bytes(cursor.array()?) as usize;
    let rest = cursor.take(cursor.remaining())?;
    if rest.len() / 4 < count { Err(DecodeError::Truncated) } else { Ok((count, rest)) }
}

fn offset(table: &[u8], place: usize) -> Result<u32, DecodeError> {
    let bytes = table.get(4 * place..).and_then(|rest| rest.first_chunk());
    Ok(u32::from_be_bytes(*bytes.ok_or(DecodeError::Truncated)?))
}
