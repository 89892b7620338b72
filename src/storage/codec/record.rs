//! State records of queue groups, and their keys.

use super::{
    DecodeError,
    command::{name, put_name, put_terms, terms},
    config::{config, put_config},
    cursor::{
        Cursor, put_bool, put_consumer, put_int, put_len, put_option, put_queue, put_session,
    },
    key::{QUEUE_KEY_BYTES, put_queue_key, queue_key},
    letter::{
        letter_home, letters, letters_record, put_letter_home, put_letters, put_letters_record,
    },
    queued_message::{put_queued_by_number, queued_by_number},
    reply::{put_reply, reply},
    task::{put_tasks, tasks},
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_queue::{
    ConsumerRecord, DelayedRecord, GetsRecord, GroupRecord, LeftOver, LevelRecord, NodeRecord,
    QueueRecord, QueuedMessage, Record, RecordKey, RequeuedRecord, SessionRecord,
};
use quorate_types::{
    ConsumerId, DeliveryNumber, GroupId, LetterHome, LetterNumber, Level, LogIndex, NodeId,
    Sequence, SessionId, StartNumber, Timestamp, WallTime,
};
use std::collections::{BTreeMap, VecDeque};

const VERSION: u8 = 1;

const GROUP: u8 = 1;
const NODE: u8 = 2;
const SESSION: u8 = 3;
const QUEUE: u8 = 4;
const CONSUMER: u8 = 5;
const GETS: u8 = 6;
const REQUEUED: u8 = 7;
const LETTERS: u8 = 8;
const SOURCE: u8 = 9;
/// A queue with tasks, from machine version 3 on (MEM 15).
const QUEUE_WITH_TASKS: u8 = 10;
const DELAYED: u8 = 11;

/// Encodes a record's key; keys sort by kind, then by their ids.
#[must_use]
pub fn encode_key(key: RecordKey) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + QUEUE_KEY_BYTES + 18);
    match key {
        RecordKey::Group => out.put_u8(GROUP),
        RecordKey::Node(node) => {
            out.put_u8(NODE);
            out.put_u16(node.0);
        }
        RecordKey::Session(session) => {
            out.put_u8(SESSION);
            put_session_key(session, &mut out);
        }
        RecordKey::Queue(queue) => {
            out.put_u8(QUEUE);
            put_queue_key(queue, &mut out);
        }
        RecordKey::Consumer(queue, consumer) => {
            out.put_u8(CONSUMER);
            put_queue_key(queue, &mut out);
            put_session_key(consumer.session, &mut out);
            out.put_u64(consumer.number);
        }
        RecordKey::Gets(queue, session) => {
            out.put_u8(GETS);
            put_queue_key(queue, &mut out);
            put_session_key(session, &mut out);
        }
        RecordKey::Requeued(queue, level) => {
            out.put_u8(REQUEUED);
            put_queue_key(queue, &mut out);
            out.put_u8(level.0);
        }
        RecordKey::Delayed(queue, level, page) => {
            out.put_u8(DELAYED);
            put_queue_key(queue, &mut out);
            out.put_u8(level.0);
            out.put_u64(page);
        }
        RecordKey::Letters(queue, page) => {
            out.put_u8(LETTERS);
            put_queue_key(queue, &mut out);
            out.put_u64(page);
        }
        RecordKey::Source(LetterHome::Group(group)) => {
            out.put_slice(&[SOURCE, 0]);
            out.put_u16(group.0);
        }
        RecordKey::Source(LetterHome::Start(session)) => {
            out.put_slice(&[SOURCE, 1]);
            put_session_key(session, &mut out);
        }
    }
    out.freeze()
}

/// Decodes a record's key.
///
/// # Errors
/// The bytes are not a key.
pub fn decode_key(bytes: &[u8]) -> Result<RecordKey, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let key = match cursor.u8()? {
        GROUP => RecordKey::Group,
        NODE => RecordKey::Node(NodeId(u16::from_be_bytes(cursor.array()?))),
        SESSION => RecordKey::Session(session_key(&mut cursor)?),
        QUEUE => RecordKey::Queue(queue_key(&mut cursor)?),
        CONSUMER => {
            let queue = queue_key(&mut cursor)?;
            let session = session_key(&mut cursor)?;
            let number = u64::from_be_bytes(cursor.array()?);
            RecordKey::Consumer(queue, ConsumerId { session, number })
        }
        GETS => RecordKey::Gets(queue_key(&mut cursor)?, session_key(&mut cursor)?),
        REQUEUED => RecordKey::Requeued(queue_key(&mut cursor)?, Level(cursor.u8()?)),
        DELAYED => {
            let (queue, level) = (queue_key(&mut cursor)?, Level(cursor.u8()?));
            RecordKey::Delayed(queue, level, u64::from_be_bytes(cursor.array()?))
        }
        LETTERS => {
            let queue = queue_key(&mut cursor)?;
            RecordKey::Letters(queue, u64::from_be_bytes(cursor.array()?))
        }
        SOURCE => RecordKey::Source(match cursor.u8()? {
            0 => LetterHome::Group(GroupId(u16::from_be_bytes(cursor.array()?))),
            1 => LetterHome::Start(session_key(&mut cursor)?),
            _ => return Err(DecodeError::Invalid("source of dead letters")),
        }),
        _ => return Err(DecodeError::Invalid("kind of record")),
    };
    cursor.end()?;
    Ok(key)
}

fn put_session_key(session: SessionId, out: &mut BytesMut) {
    out.put_u16(session.node.0);
    out.put_u64(session.start.0);
}

fn session_key(cursor: &mut Cursor<'_>) -> Result<SessionId, DecodeError> {
    let node = NodeId(u16::from_be_bytes(cursor.array()?));
    Ok(SessionId { node, start: StartNumber(u64::from_be_bytes(cursor.array()?)) })
}

/// Encodes a record.
#[must_use]
pub fn encode_record(record: &Record) -> Bytes {
    let mut out = BytesMut::with_capacity(64);
    out.put_u8(VERSION);
    match record {
        Record::Group(group) => put_group(group, &mut out),
        Record::Node(node) => {
            out.put_u8(NODE);
            put_int(&mut out, node.fenced.0);
            put_bool(&mut out, node.suspected);
        }
        Record::Session(session) => put_session_record(SESSION, session, &mut out),
        Record::Source(source) => put_session_record(SOURCE, source, &mut out),
        Record::Letters(page) => {
            out.put_u8(LETTERS);
            put_letters(page, &mut out);
        }
        Record::Queue(queue) if queue.tasks.is_empty() => {
            out.put_u8(QUEUE);
            put_queue_record(queue, &mut out);
        }
        Record::Queue(queue) => {
            out.put_u8(QUEUE_WITH_TASKS);
            put_queue_record(queue, &mut out);
            put_tasks(&queue.tasks, &mut out);
        }
        Record::Consumer(consumer) => put_consumer_record(consumer, &mut out),
        Record::Gets(gets) => {
            out.put_u8(GETS);
            put_option(&mut out, gets.timeout_default_ms);
            put_queued_by_number(
                gets.unacked.iter().map(|(sequence, queued)| (sequence.0, queued)),
                &mut out,
            );
        }
        Record::Requeued(requeued) => {
            out.put_u8(REQUEUED);
            // The position in the queue is part of the message's identity, so no separate key is
            // encoded.
            put_queued_by_number((0..).zip(requeued.messages.values()), &mut out);
        }
        Record::Delayed(delayed) => {
            out.put_u8(DELAYED);
            put_delayed(delayed, &mut out);
        }
    }
    out.freeze()
}

/// Decodes a record.
///
/// # Errors
/// The bytes are not a record.
pub fn decode_record(bytes: &[u8]) -> Result<Record, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let record = match cursor.u8()? {
        GROUP => Record::Group(group(&mut cursor)?),
        NODE => Record::Node(NodeRecord {
            fenced: StartNumber(cursor.int()?),
            suspected: cursor.bool()?,
        }),
        SESSION => Record::Session(session_record(&mut cursor)?),
        SOURCE => Record::Source(session_record(&mut cursor)?),
        LETTERS => Record::Letters(letters(&mut cursor)?),
        QUEUE => Record::Queue(Box::new(queue_record(&mut cursor)?)),
        QUEUE_WITH_TASKS => {
            let mut queue = Box::new(queue_record(&mut cursor)?);
            queue.tasks = tasks(&mut cursor)?;
            Record::Queue(queue)
        }
        CONSUMER => Record::Consumer(consumer_record(&mut cursor)?),
        GETS => Record::Gets(GetsRecord {
            timeout_default_ms: cursor.option()?,
            unacked: queued_by_number(&mut cursor)?
                .into_iter()
                .map(|(number, queued)| (Sequence(number), queued))
                .collect(),
        }),
        REQUEUED => Record::Requeued(RequeuedRecord {
            messages: queued_by_number(&mut cursor)?
                .into_iter()
                .map(|(_, queued)| ((queued.message.index, queued.message.position), queued))
                .collect(),
        }),
        DELAYED => Record::Delayed(delayed(&mut cursor)?),
        _ => return Err(DecodeError::Invalid("kind of record")),
    };
    cursor.end()?;
    Ok(record)
}

/// Messages that were returned together wait until the same time, which is encoded once.
fn put_delayed(record: &DelayedRecord, out: &mut BytesMut) {
    let mut by_time: BTreeMap<Timestamp, Vec<&QueuedMessage>> = BTreeMap::new();
    for (until, queued) in record.messages.values() {
        by_time.entry(*until).or_default().push(queued);
    }
    put_len(out, by_time.len());
    for (until, queued) in by_time {
        put_int(out, until.0);
        put_queued_by_number((0..).zip(queued), out);
    }
}

fn delayed(cursor: &mut Cursor<'_>) -> Result<DelayedRecord, DecodeError> {
    let mut record = DelayedRecord::default();
    for _ in 0..cursor.len()? {
        let until = Timestamp(cursor.int()?);
        for (_, queued) in queued_by_number(cursor)? {
            let place = (queued.message.index, queued.message.position);
            record.messages.insert(place, (until, queued));
        }
    }
    Ok(record)
}

fn put_group(group: &GroupRecord, out: &mut BytesMut) {
    out.put_u8(GROUP);
    put_int(out, group.time.0);
    put_int(out, group.wall.0);
    out.put_u64(group.digest);
    put_int(out, group.life);
    put_len(out, group.left_over.len());
    for left_over in &group.left_over {
        match *left_over {
            LeftOver::RequeueSession { queue, session, gets_through, counted } => {
                out.put_u8(0);
                put_queue(out, queue);
                put_session(out, session);
                put_int(out, gets_through.0);
                put_bool(out, counted);
            }
            LeftOver::CheckOut { queue } => {
                out.put_u8(1);
                put_queue(out, queue);
            }
        }
    }
    put_letters_record(&group.letters, out);
}

fn group(cursor: &mut Cursor<'_>) -> Result<GroupRecord, DecodeError> {
    Ok(GroupRecord {
        time: Timestamp(cursor.int()?),
        wall: WallTime(cursor.int()?),
        digest: u64::from_be_bytes(cursor.array()?),
        life: cursor.int()?,
        left_over: VecDeque::from(cursor.list(left_over)?),
        letters: letters_record(cursor)?,
    })
}

fn left_over(cursor: &mut Cursor<'_>) -> Result<LeftOver, DecodeError> {
    match cursor.u8()? {
        0 => Ok(LeftOver::RequeueSession {
            queue: cursor.queue()?,
            session: cursor.session()?,
            gets_through: Sequence(cursor.int()?),
            counted: cursor.bool()?,
        }),
        1 => Ok(LeftOver::CheckOut { queue: cursor.queue()? }),
        _ => Err(DecodeError::Invalid("kind of work left over")),
    }
}

fn put_session_record(kind: u8, session: &SessionRecord, out: &mut BytesMut) {
    out.put_u8(kind);
    put_int(out, session.last.0);
    put_int(out, session.mark.0);
    put_len(out, session.answers.len());
    for (sequence, answer) in &session.answers {
        put_int(out, sequence.0);
        put_reply(answer, out);
    }
}

fn session_record(cursor: &mut Cursor<'_>) -> Result<SessionRecord, DecodeError> {
    let (last, mark) = (Sequence(cursor.int()?), Sequence(cursor.int()?));
    let answers = cursor.list(|cursor| Ok((Sequence(cursor.int()?), reply(cursor)?)))?;
    Ok(SessionRecord { last, mark, answers: answers.into_iter().collect() })
}

fn put_queue_record(queue: &QueueRecord, out: &mut BytesMut) {
    put_name(&queue.name, out);
    put_config(&queue.config, out);
    put_bool(out, queue.creator.is_some());
    if let Some(creator) = queue.creator {
        put_session(out, creator);
    }
    put_int(out, queue.life);
    put_int(out, queue.used_at.0);
    put_option(out, queue.wake_at.map(|at| at.0));
    put_option(out, queue.timeout_at.map(|at| at.0));
    put_bool(out, queue.active.is_some());
    if let Some(active) = queue.active {
        put_consumer(out, active);
    }
    put_int(out, queue.arrivals);
    put_bool(out, queue.had_consumer);
    put_len(out, queue.levels.len());
    for (level, record) in &queue.levels {
        out.put_u8(level.0);
        put_int(out, record.head_index.0);
        put_int(out, u64::from(record.head_position));
        put_int(out, record.fresh);
        put_int(out, record.fresh_bytes);
        put_int(out, record.fresh_expiring);
        put_int(out, record.removed_below.0);
    }
    put_len(out, queue.service_queue.len());
    for consumer in &queue.service_queue {
        put_consumer(out, *consumer);
    }
    put_int(out, queue.last_letter.0);
    put_len(out, queue.refusals.len());
    for (from, attempt) in &queue.refusals {
        put_letter_home(*from, out);
        put_int(out, u64::from(*attempt));
    }
    put_bool(out, queue.ended);
}

fn queue_record(cursor: &mut Cursor<'_>) -> Result<QueueRecord, DecodeError> {
    Ok(QueueRecord {
        name: name(cursor)?,
        config: config(cursor)?,
        creator: if cursor.bool()? { Some(cursor.session()?) } else { None },
        life: cursor.int()?,
        used_at: Timestamp(cursor.int()?),
        wake_at: cursor.option()?.map(Timestamp),
        timeout_at: cursor.option()?.map(Timestamp),
        active: if cursor.bool()? { Some(cursor.consumer()?) } else { None },
        arrivals: cursor.int()?,
        had_consumer: cursor.bool()?,
        levels: cursor
            .list(|cursor| Ok((Level(cursor.u8()?), level(cursor)?)))?
            .into_iter()
            .collect(),
        service_queue: VecDeque::from(cursor.list(Cursor::consumer)?),
        last_letter: LetterNumber(cursor.int()?),
        refusals: cursor
            .list(|cursor| Ok((letter_home(cursor)?, cursor.u32()?)))?
            .into_iter()
            .collect(),
        ended: cursor.bool()?,
        tasks: BTreeMap::new(),
    })
}

fn level(cursor: &mut Cursor<'_>) -> Result<LevelRecord, DecodeError> {
    Ok(LevelRecord {
        head_index: LogIndex(cursor.int()?),
        head_position: cursor.u32()?,
        fresh: cursor.int()?,
        fresh_bytes: cursor.int()?,
        fresh_expiring: cursor.int()?,
        removed_below: LogIndex(cursor.int()?),
    })
}

fn put_consumer_record(consumer: &ConsumerRecord, out: &mut BytesMut) {
    out.put_u8(CONSUMER);
    put_terms(&consumer.terms, out);
    put_int(out, consumer.next.0);
    put_int(out, consumer.up_to.0);
    put_bool(out, consumer.cancelled);
    put_len(out, consumer.timed_out.len());
    consumer.timed_out.iter().for_each(|number| put_int(out, number.0));
    put_int(out, consumer.arrival);
    put_bool(out, consumer.lost);
    put_bool(out, consumer.paused);
    put_queued_by_number(consumer.unacked.iter().map(|(number, queued)| (number.0, queued)), out);
}

fn consumer_record(cursor: &mut Cursor<'_>) -> Result<ConsumerRecord, DecodeError> {
    Ok(ConsumerRecord {
        terms: terms(cursor)?,
        next: DeliveryNumber(cursor.int()?),
        up_to: DeliveryNumber(cursor.int()?),
        cancelled: cursor.bool()?,
        timed_out: cursor.list(|cursor| Ok(DeliveryNumber(cursor.int()?)))?.into_iter().collect(),
        arrival: cursor.int()?,
        lost: cursor.bool()?,
        paused: cursor.bool()?,
        unacked: queued_by_number(cursor)?
            .into_iter()
            .map(|(number, queued)| (DeliveryNumber(number), queued))
            .collect(),
    })
}
