//! Queued messages, run-length encoded: numbers and positions are mostly consecutive, so a consumer
//! that holds 2,000 messages of one run takes its header and two bytes for each message.

use super::{
    DecodeError,
    cursor::{Cursor, put_int, put_len},
    queue::{head, put_head},
};
use bytes::{BufMut, BytesMut};
use quorate_queue::{Counts, MessageHead, QueuedMessage};
use quorate_types::{Level, LogIndex, MessageId, PlantedBug, Timestamp};

/// Messages with consecutive numbers and positions, which are equal except for their heads.
struct Stretch<'a> {
    number: u64,
    first: &'a QueuedMessage,
    heads: Vec<MessageHead>,
}

impl Stretch<'_> {
    fn goes_on_with(&self, number: u64, queued: &QueuedMessage) -> bool {
        let count = self.heads.len() as u64;
        number.checked_sub(self.number) == Some(count)
            && queued.message.level == self.first.message.level
            && queued.message.index == self.first.message.index
            && u64::from(queued.message.position) == u64::from(self.first.message.position) + count
            && queued.counts == self.first.counts
            && queued.enqueued_at == self.first.enqueued_at
            && queued.unacked_since == self.first.unacked_since
    }

    fn put(&self, out: &mut BytesMut) {
        put_int(out, self.number);
        out.put_u8(self.first.message.level.0);
        put_int(out, self.first.message.index.0);
        put_int(out, u64::from(self.first.message.position));
        put_int(out, u64::from(self.first.counts.acquired));
        put_int(out, u64::from(self.first.counts.returned));
        put_int(out, self.first.enqueued_at.0);
        put_int(out, self.first.unacked_since.0);
        put_len(out, self.heads.len());
        for head in &self.heads {
            put_head(*head, out);
        }
    }
}

/// Appends messages with their numbers, in ascending order of these.
pub(crate) fn put_queued_by_number<'a>(
    all: impl Iterator<Item = (u64, &'a QueuedMessage)>,
    out: &mut BytesMut,
) {
    let mut stretches: Vec<Stretch<'_>> = Vec::new();
    for (number, queued) in all {
        match stretches.last_mut() {
            Some(last) if last.goes_on_with(number, queued) => last.heads.push(queued.head),
            Some(_) | None => {
                stretches.push(Stretch { number, first: queued, heads: vec![queued.head] });
            }
        }
    }
    put_len(out, stretches.len());
    for stretch in &stretches {
        stretch.put(out);
    }
}

/// Reads messages with their numbers.
pub(crate) fn queued_by_number(
    cursor: &mut Cursor<'_>,
) -> Result<Vec<(u64, QueuedMessage)>, DecodeError> {
    let mut all = Vec::new();
    for _ in 0..cursor.len()? {
        stretch(cursor, &mut all)?;
    }
    Ok(all)
}

fn stretch(
    cursor: &mut Cursor<'_>,
    all: &mut Vec<(u64, QueuedMessage)>,
) -> Result<(), DecodeError> {
    let invalid = DecodeError::Invalid("unacknowledged messages");
    let mut number = cursor.int()?;
    let mut message = MessageId {
        level: Level(cursor.u8()?),
        index: LogIndex(cursor.int()?),
        position: cursor.u32()?,
    };
    let mut counts = Counts { acquired: cursor.u32()?, returned: cursor.u32()? };
    if PlantedBug::DeliveryCountOutsideState.is_in() {
        counts = Counts::default();
    }
    let (enqueued_at, unacked_since) = (Timestamp(cursor.int()?), Timestamp(cursor.int()?));
    let count = cursor.len()?;
    for place in 0..count {
        all.push((
            number,
            QueuedMessage { message, counts, head: head(cursor)?, enqueued_at, unacked_since },
        ));
        if place + 1 < count {
            number = number.checked_add(1).ok_or(invalid)?;
            message.position = message.position.checked_add(1).ok_or(invalid)?;
        }
    }
    Ok(())
}
