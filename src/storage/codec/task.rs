//! Tasks in a queue's group: steps and progress.

use super::{
    DecodeError,
    cursor::{Cursor, put_bool, put_int, put_len, put_queue},
    letter::{put_via, via},
};
use bytes::{BufMut, BytesMut};
use quorate_queue::{Take, TakeTo, Taken, TaskCounts, TaskProgress, TaskStep};
use quorate_types::{CatalogIndex, Counts, Level, LogIndex, MessageId, TaskId};
use std::collections::BTreeMap;

/// Encodes `TaskStep` without its tag.
pub(crate) fn put_task_step(step: &TaskStep, out: &mut BytesMut) {
    let TaskStep { queue, task, until, at, from, next, skipped, no_target, matched, takes } = step;
    put_queue(out, *queue);
    put_int(out, task.0);
    put_int(out, until.0);
    put_int(out, at.0);
    put_message(*from, out);
    put_next(*next, out);
    put_int(out, *skipped);
    put_int(out, *no_target);
    put_int(out, *matched);
    put_len(out, takes.len());
    for Take { to, messages } in takes {
        match to {
            TakeTo::Nowhere => out.put_u8(0),
            TakeTo::Queues { via, targets } => {
                out.put_u8(1);
                put_via(via, out);
                put_len(out, targets.len());
                targets.iter().for_each(|target| put_queue(out, *target));
            }
        }
        put_len(out, messages.len());
        messages.iter().for_each(|message| put_message(*message, out));
    }
}

pub(crate) fn task_step(cursor: &mut Cursor<'_>) -> Result<TaskStep, DecodeError> {
    Ok(TaskStep {
        queue: cursor.queue()?,
        task: TaskId(cursor.int()?),
        until: LogIndex(cursor.int()?),
        at: CatalogIndex(cursor.int()?),
        from: message(cursor)?,
        next: next(cursor)?,
        skipped: cursor.int()?,
        no_target: cursor.int()?,
        matched: cursor.int()?,
        takes: cursor.list(|cursor| {
            let to = match cursor.u8()? {
                0 => TakeTo::Nowhere,
                1 => TakeTo::Queues { via: via(cursor)?, targets: cursor.list(Cursor::queue)? },
                _ => return Err(DecodeError::Invalid("target of taken messages")),
            };
            Ok(Take { to, messages: cursor.list(message)? })
        })?,
    })
}

fn put_message(message: MessageId, out: &mut BytesMut) {
    out.put_u8(message.level.0);
    put_int(out, message.index.0);
    put_int(out, u64::from(message.position));
}

fn message(cursor: &mut Cursor<'_>) -> Result<MessageId, DecodeError> {
    Ok(MessageId {
        level: Level(cursor.u8()?),
        index: LogIndex(cursor.int()?),
        position: cursor.u32()?,
    })
}

fn put_next(next: Option<MessageId>, out: &mut BytesMut) {
    put_bool(out, next.is_some());
    next.iter().for_each(|next| put_message(*next, out));
}

fn next(cursor: &mut Cursor<'_>) -> Result<Option<MessageId>, DecodeError> {
    Ok(if cursor.bool()? { Some(message(cursor)?) } else { None })
}

pub(crate) fn put_counts(counts: TaskCounts, out: &mut BytesMut) {
    let TaskCounts { taken, moved, skipped, no_target, under_way } = counts;
    [taken, moved, skipped, no_target, under_way].iter().for_each(|count| put_int(out, *count));
}

pub(crate) fn counts(cursor: &mut Cursor<'_>) -> Result<TaskCounts, DecodeError> {
    Ok(TaskCounts {
        taken: cursor.int()?,
        moved: cursor.int()?,
        skipped: cursor.int()?,
        no_target: cursor.int()?,
        under_way: cursor.int()?,
    })
}

/// Encodes the tasks of a queue.
pub(crate) fn put_tasks(tasks: &BTreeMap<TaskId, TaskProgress>, out: &mut BytesMut) {
    put_len(out, tasks.len());
    for (task, progress) in tasks {
        put_int(out, task.0);
        put_int(out, progress.until.0);
        put_next(progress.next, out);
        put_counts(progress.counts, out);
    }
}

pub(crate) fn tasks(
    cursor: &mut Cursor<'_>,
) -> Result<BTreeMap<TaskId, TaskProgress>, DecodeError> {
    let tasks = cursor.list(|cursor| {
        let task = TaskId(cursor.int()?);
        let until = LogIndex(cursor.int()?);
        Ok((task, TaskProgress { until, next: next(cursor)?, counts: counts(cursor)? }))
    })?;
    Ok(tasks.into_iter().collect())
}

/// Encodes by which task a message was taken.
pub(crate) fn put_taken(taken: Taken, out: &mut BytesMut) {
    put_int(out, taken.task.0);
    put_int(out, u64::from(taken.counts.acquired));
    put_int(out, u64::from(taken.counts.returned));
}

pub(crate) fn taken(cursor: &mut Cursor<'_>) -> Result<Taken, DecodeError> {
    let task = TaskId(cursor.int()?);
    let counts = Counts { acquired: cursor.u32()?, returned: cursor.u32()? };
    Ok(Taken { task, counts })
}
