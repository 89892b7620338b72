//! Answers, which a session's record stores (SES 3).

use super::{
    DecodeError,
    cursor::{Cursor, put_int, put_len, put_queue},
};
use bytes::{BufMut, BytesMut};
use quorate_queue::{Counts, Got, QueueReport, Reply};
use quorate_types::{CatalogIndex, Level, LogIndex, MessageId};

const TAKEN: u8 = 0;
const CREATED: u8 = 1;
const GONE: u8 = 2;
const ALIVE: u8 = 3;
const ENDED: u8 = 4;
const IN_USE: u8 = 5;
const NOT_EMPTY: u8 = 6;
const REFUSED: u8 = 7;
const EXCLUSIVE_IN_USE: u8 = 8;
const GOT: u8 = 9;
const EMPTY: u8 = 10;
const PURGED: u8 = 11;
const FULL: u8 = 12;

pub(crate) fn put_reply(reply: &Reply, out: &mut BytesMut) {
    match reply {
        Reply::Taken => out.put_u8(TAKEN),
        Reply::Created(queue) => {
            out.put_u8(CREATED);
            put_queue(out, *queue);
        }
        Reply::Gone => out.put_u8(GONE),
        Reply::Alive(report) => {
            out.put_u8(ALIVE);
            put_int(out, report.ready);
            put_int(out, u64::from(report.consumers));
            put_int(out, report.configured_at.0);
        }
        Reply::Ended { ready } => {
            out.put_u8(ENDED);
            put_int(out, *ready);
        }
        Reply::InUse => out.put_u8(IN_USE),
        Reply::NotEmpty => out.put_u8(NOT_EMPTY),
        Reply::Refused(ranges) => {
            out.put_u8(REFUSED);
            put_len(out, ranges.len());
            for (first, last) in ranges {
                put_int(out, u64::from(*first));
                put_int(out, u64::from(*last));
            }
        }
        Reply::ExclusiveInUse => out.put_u8(EXCLUSIVE_IN_USE),
        Reply::Got(got) => put_got(got, out),
        Reply::Empty => out.put_u8(EMPTY),
        Reply::Full => out.put_u8(FULL),
        Reply::Purged { messages } => {
            out.put_u8(PURGED);
            put_int(out, *messages);
        }
    }
}

pub(crate) fn reply(cursor: &mut Cursor<'_>) -> Result<Reply, DecodeError> {
    Ok(match cursor.u8()? {
        TAKEN => Reply::Taken,
        CREATED => Reply::Created(cursor.queue()?),
        GONE => Reply::Gone,
        ALIVE => Reply::Alive(QueueReport {
            ready: cursor.int()?,
            consumers: cursor.u32()?,
            configured_at: CatalogIndex(cursor.int()?),
        }),
        ENDED => Reply::Ended { ready: cursor.int()? },
        IN_USE => Reply::InUse,
        NOT_EMPTY => Reply::NotEmpty,
        REFUSED => Reply::Refused(cursor.list(|cursor| Ok((cursor.u32()?, cursor.u32()?)))?),
        EXCLUSIVE_IN_USE => Reply::ExclusiveInUse,
        GOT => Reply::Got(got(cursor)?),
        EMPTY => Reply::Empty,
        FULL => Reply::Full,
        PURGED => Reply::Purged { messages: cursor.int()? },
        _ => return Err(DecodeError::Invalid("reply")),
    })
}

fn put_got(got: &Got, out: &mut BytesMut) {
    out.put_u8(GOT);
    put_queue(out, got.queue);
    out.put_u8(got.message.level.0);
    put_int(out, got.message.index.0);
    put_int(out, u64::from(got.message.position));
    put_int(out, u64::from(got.counts.acquired));
    put_int(out, u64::from(got.counts.returned));
    put_int(out, got.ready);
}

fn got(cursor: &mut Cursor<'_>) -> Result<Got, DecodeError> {
    Ok(Got {
        queue: cursor.queue()?,
        message: MessageId {
            level: Level(cursor.u8()?),
            index: LogIndex(cursor.int()?),
            position: cursor.u32()?,
        },
        counts: Counts { acquired: cursor.u32()?, returned: cursor.u32()? },
        ready: cursor.int()?,
    })
}
