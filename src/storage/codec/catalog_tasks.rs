//! Tasks of the catalog: commands, records and denials.

use super::{
    DecodeError,
    catalog_parts::machine_version,
    command::{name, put_name},
    cursor::{Cursor, put_bool, put_bytes, put_int, put_len, put_option, put_queue, put_short},
    task::{counts, put_counts},
};
use bytes::{BufMut, BytesMut};
use quorate_catalog::{
    TaskCommand, TaskControl, TaskDenial, TaskKind, TaskOrder, TaskRecord, TaskState, TaskTarget,
};
use quorate_types::{TaskId, WallTime};

const CREATE: u8 = 1;
const CONTROL: u8 = 2;
const REPORT: u8 = 3;

const NOWHERE: u8 = 0;
const ORIGINAL: u8 = 1;
const TO_QUEUE: u8 = 2;
const TO_EXCHANGE: u8 = 3;

pub(super) fn put_task_command(command: &TaskCommand, out: &mut BytesMut) {
    match command {
        TaskCommand::Create { nonce, order, by, at } => {
            out.put_u8(CREATE);
            out.put_u64(*nonce);
            put_order(order, out);
            put_short(out, by);
            put_int(out, at.0);
        }
        TaskCommand::Control { task, control, at } => {
            out.put_u8(CONTROL);
            put_int(out, task.0);
            out.put_u8(match control {
                TaskControl::Pause => 0,
                TaskControl::Resume => 1,
                TaskControl::Cancel => 2,
            });
            put_int(out, at.0);
        }
        TaskCommand::Report { task, counts, done } => {
            out.put_u8(REPORT);
            put_int(out, task.0);
            put_counts(*counts, out);
            put_option(out, done.map(|at| at.0));
        }
    }
}

pub(super) fn task_command(cursor: &mut Cursor<'_>) -> Result<TaskCommand, DecodeError> {
    Ok(match cursor.u8()? {
        CREATE => TaskCommand::Create {
            nonce: u64::from_be_bytes(cursor.array()?),
            order: order(cursor)?,
            by: cursor.short()?,
            at: WallTime(cursor.int()?),
        },
        CONTROL => TaskCommand::Control {
            task: TaskId(cursor.int()?),
            control: match cursor.u8()? {
                0 => TaskControl::Pause,
                1 => TaskControl::Resume,
                2 => TaskControl::Cancel,
                _ => return Err(DecodeError::Invalid("change of a task")),
            },
            at: WallTime(cursor.int()?),
        },
        REPORT => TaskCommand::Report {
            task: TaskId(cursor.int()?),
            counts: counts(cursor)?,
            done: cursor.option()?.map(WallTime),
        },
        _ => return Err(DecodeError::Invalid("command on tasks")),
    })
}

fn put_order(order: &TaskOrder, out: &mut BytesMut) {
    let TaskOrder { kind, queue, name, to, filter, rate, max, dry_run } = order;
    out.put_u8(match kind {
        TaskKind::Redrive => 0,
        TaskKind::Move => 1,
        TaskKind::Delete => 2,
    });
    put_queue(out, *queue);
    put_name(name, out);
    match to {
        TaskTarget::Nowhere => out.put_u8(NOWHERE),
        TaskTarget::Original => out.put_u8(ORIGINAL),
        TaskTarget::Queue(name) => {
            out.put_u8(TO_QUEUE);
            put_short(out, name);
        }
        TaskTarget::Exchange(name) => {
            out.put_u8(TO_EXCHANGE);
            put_short(out, name);
        }
    }
    put_len(out, filter.len());
    for (part, value) in filter {
        put_short(out, part);
        put_bytes(out, value.as_bytes());
    }
    put_option(out, rate.map(u64::from));
    put_option(out, *max);
    put_bool(out, *dry_run);
}

fn order(cursor: &mut Cursor<'_>) -> Result<TaskOrder, DecodeError> {
    Ok(TaskOrder {
        kind: match cursor.u8()? {
            0 => TaskKind::Redrive,
            1 => TaskKind::Move,
            2 => TaskKind::Delete,
            _ => return Err(DecodeError::Invalid("kind of task")),
        },
        queue: cursor.queue()?,
        name: name(cursor)?,
        to: match cursor.u8()? {
            NOWHERE => TaskTarget::Nowhere,
            ORIGINAL => TaskTarget::Original,
            TO_QUEUE => TaskTarget::Queue(cursor.short()?),
            TO_EXCHANGE => TaskTarget::Exchange(cursor.short()?),
            _ => return Err(DecodeError::Invalid("target of a task")),
        },
        filter: cursor.list(|cursor| Ok((cursor.short()?, cursor.string()?)))?,
        rate: cursor.option_u32()?,
        max: cursor.option()?,
        dry_run: cursor.bool()?,
    })
}

pub(super) fn put_task(task: &TaskRecord, out: &mut BytesMut) {
    let TaskRecord { id, nonce, order, state, created_by, created_at, ended_at, counts } = task;
    put_int(out, id.0);
    out.put_u64(*nonce);
    put_order(order, out);
    put_state(*state, out);
    put_short(out, created_by);
    put_int(out, created_at.0);
    put_option(out, ended_at.map(|at| at.0));
    put_counts(*counts, out);
}

pub(super) fn task(cursor: &mut Cursor<'_>) -> Result<TaskRecord, DecodeError> {
    Ok(TaskRecord {
        id: TaskId(cursor.int()?),
        nonce: u64::from_be_bytes(cursor.array()?),
        order: order(cursor)?,
        state: state(cursor)?,
        created_by: cursor.short()?,
        created_at: WallTime(cursor.int()?),
        ended_at: cursor.option()?.map(WallTime),
        counts: counts(cursor)?,
    })
}

fn put_state(state: TaskState, out: &mut BytesMut) {
    out.put_u8(match state {
        TaskState::Running => 0,
        TaskState::Paused => 1,
        TaskState::Done => 2,
        TaskState::Cancelled => 3,
        TaskState::QueueEnded => 4,
    });
}

fn state(cursor: &mut Cursor<'_>) -> Result<TaskState, DecodeError> {
    Ok(match cursor.u8()? {
        0 => TaskState::Running,
        1 => TaskState::Paused,
        2 => TaskState::Done,
        3 => TaskState::Cancelled,
        4 => TaskState::QueueEnded,
        _ => return Err(DecodeError::Invalid("state of a task")),
    })
}

pub(super) fn put_task_denial(denial: TaskDenial, out: &mut BytesMut) {
    match denial {
        TaskDenial::TooEarly { machine } => {
            out.put_u8(0);
            put_int(out, u64::from(machine.0));
        }
        TaskDenial::NoTask { task } => {
            out.put_u8(1);
            put_int(out, task.0);
        }
        TaskDenial::Ended { task, state } => {
            out.put_u8(2);
            put_int(out, task.0);
            put_state(state, out);
        }
        TaskDenial::NoQueue => out.put_u8(3),
        TaskDenial::TooMany { most } => {
            out.put_u8(4);
            put_int(out, u64::from(most));
        }
        TaskDenial::TooManyOfQueue { most } => {
            out.put_u8(5);
            put_int(out, u64::from(most));
        }
        TaskDenial::Filter => out.put_u8(6),
        TaskDenial::TooManyOfVhost { most } => {
            out.put_u8(7);
            put_int(out, u64::from(most));
        }
    }
}

pub(super) fn task_denial(cursor: &mut Cursor<'_>) -> Result<TaskDenial, DecodeError> {
    Ok(match cursor.u8()? {
        0 => TaskDenial::TooEarly { machine: machine_version(cursor)? },
        1 => TaskDenial::NoTask { task: TaskId(cursor.int()?) },
        2 => TaskDenial::Ended { task: TaskId(cursor.int()?), state: state(cursor)? },
        3 => TaskDenial::NoQueue,
        4 => TaskDenial::TooMany { most: cursor.u32()? },
        5 => TaskDenial::TooManyOfQueue { most: cursor.u32()? },
        6 => TaskDenial::Filter,
        7 => TaskDenial::TooManyOfVhost { most: cursor.u32()? },
        _ => return Err(DecodeError::Invalid("denial of a task")),
    })
}
