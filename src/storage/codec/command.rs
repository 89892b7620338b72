//! Commands on queues.

use super::{
    DecodeError,
    config::{config, put_config},
    cursor::{
        CAPACITY_MAX, Cursor, Short, put_bool, put_consumer, put_int, put_len, put_option,
        put_queue, put_session, put_short, put_signed,
    },
    letter::{dead_lettered, put_dead_lettered, put_routed, routed},
    task::{put_task_step, task_step},
};
use bytes::{BufMut, BytesMut};
use quorate_queue::{Command, ConsumerTerms, Detach, Numbers, QueueConfig, RequeueCause};
use quorate_types::{
    ConsumerId, DeliveryNumber, Holder, NodeId, QueueId, ResourceName, Sequence, SessionId,
    StartNumber, TaskId,
};

const ENQUEUE: u8 = 1;
const ACK: u8 = 2;
const CREDIT: u8 = 3;
const REQUEUE: u8 = 4;
const DISCARD: u8 = 5;
const RELEASE: u8 = 6;
const GET: u8 = 7;
const ATTACH: u8 = 8;
const DETACH: u8 = 9;
const CREATE_QUEUE: u8 = 10;
const END_QUEUE: u8 = 11;
const CONFIGURE: u8 = 12;
const INSPECT: u8 = 13;
const PURGE: u8 = 14;
const SESSION_ENDED: u8 = 15;
const NODE_DOWN: u8 = 16;
const NODE_SUSPECTED: u8 = 17;
const NODE_BACK: u8 = 18;
const NODE_TIMED_OUT: u8 = 19;
const CONTINUE: u8 = 20;
const NEW_LIFE: u8 = 21;
/// From `MachineVersion::LAST_RESORT` on.
const LAST_RESORT: u8 = 23;
const ROUTED: u8 = 30;
const TRANSFER: u8 = 31;
const DEAD_LETTERED: u8 = 32;
const RETRY: u8 = 33;
const EXPIRE_HEAD: u8 = 22;
/// From machine version 3 on.
const TASK_STEP: u8 = 40;
const FORGET_TASK: u8 = 41;

/// Appends a command of a batch of session `own`, whose holders are encoded without the session.
pub(crate) fn put_command(command: &Command, own: SessionId, out: &mut BytesMut) {
    match command {
        Command::Enqueue { run, first, count } => put_enqueue([*run, *first, *count], out),
        Command::Ack { holder, numbers } => put_held(ACK, *holder, numbers, own, out),
        Command::Credit { consumer, up_to } => {
            out.put_u8(CREDIT);
            put_consumer(out, *consumer);
            put_int(out, up_to.0);
        }
        Command::Requeue { holder, numbers, cause } => {
            put_held(REQUEUE, *holder, numbers, own, out);
            out.put_u8(cause_number(*cause));
        }
        Command::Discard { holder, numbers } => put_held(DISCARD, *holder, numbers, own, out),
        Command::Release { holder, numbers } => put_held(RELEASE, *holder, numbers, own, out),
        Command::Get { queue, timeout_default_ms } => {
            put_on_queue(GET, *queue, &[], out);
            put_option(out, *timeout_default_ms);
        }
        Command::Attach { queue, consumer, terms } => put_attach(*queue, *consumer, terms, out),
        Command::Detach { consumer, shown, how } => {
            out.put_u8(DETACH);
            put_consumer(out, *consumer);
            put_int(out, shown.0);
            put_bool(out, matches!(how, Detach::ChannelEnd));
        }
        Command::CreateQueue { name, config, bound } => put_create(name, config, *bound, out),
        Command::EndQueue { queue, if_unused, if_empty } => {
            put_on_queue(END_QUEUE, *queue, &[*if_unused, *if_empty], out);
        }
        Command::Configure { queue, config } => {
            put_on_queue(CONFIGURE, *queue, &[], out);
            put_config(config, out);
        }
        Command::Inspect { queue, renew } => put_on_queue(INSPECT, *queue, &[*renew], out),
        Command::Purge { queue } => put_on_queue(PURGE, *queue, &[], out),
        Command::SessionEnded { session } => {
            out.put_u8(SESSION_ENDED);
            put_session(out, *session);
        }
        Command::NodeDown { node, start } => {
            put_on_node(NODE_DOWN, *node, out);
            put_int(out, start.0);
        }
        Command::NodeSuspected { node } => put_on_node(NODE_SUSPECTED, *node, out),
        Command::NodeBack { node } => put_on_node(NODE_BACK, *node, out),
        Command::NodeTimedOut { node } => put_on_node(NODE_TIMED_OUT, *node, out),
        Command::Routed { .. }
        | Command::Transfer { .. }
        | Command::DeadLettered { .. }
        | Command::Retry { .. } => put_letter_command(command, out),
        Command::Continue => out.put_u8(CONTINUE),
        Command::NewLife { life } => {
            out.put_u8(NEW_LIFE);
            put_int(out, *life);
        }
        Command::ExpireHead { queue } => put_on_queue(EXPIRE_HEAD, *queue, &[], out),
        Command::LastResort => out.put_u8(LAST_RESORT),
        Command::TaskStep(_) | Command::ForgetTask { .. } => put_task_command(command, out),
    }
}

fn put_task_command(command: &Command, out: &mut BytesMut) {
    if let Command::TaskStep(step) = command {
        out.put_u8(TASK_STEP);
        put_task_step(step, out);
    } else if let Command::ForgetTask { queue, task } = command {
        put_on_queue(FORGET_TASK, *queue, &[], out);
        put_int(out, task.0);
    }
}

/// Appends a command about dead letters.
fn put_letter_command(command: &Command, out: &mut BytesMut) {
    if let Command::Routed { queue, at, via, letters } = command {
        out.put_u8(ROUTED);
        put_routed(*queue, *at, via, letters, out);
    } else if let Command::Transfer { run, first, attempt } = command {
        out.put_u8(TRANSFER);
        [*run, *first, *attempt].iter().for_each(|number| put_int(out, u64::from(*number)));
    } else if let Command::DeadLettered { stream, first, last, other } = command {
        out.put_u8(DEAD_LETTERED);
        put_dead_lettered(*stream, (*first, *last), other, out);
    } else if let Command::Retry { target, count } = command {
        put_on_queue(RETRY, *target, &[], out);
        put_int(out, u64::from(*count));
    }
}

/// Decodes the commands of a batch of session `own`.
///
/// A command is as large as its largest variant, so frequent ones are constructed in place.
pub(crate) fn commands(
    cursor: &mut Cursor<'_>,
    own: SessionId,
) -> Result<Vec<Command>, DecodeError> {
    let count = cursor.len()?;
    let mut commands = Vec::with_capacity(count.min(CAPACITY_MAX));
    for _ in 0..count {
        match cursor.u8()? {
            ENQUEUE => {
                let (run, first, count) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
                commands.push(Command::Enqueue { run, first, count });
            }
            ACK => {
                let (holder, numbers) = held(cursor, own)?;
                commands.push(Command::Ack { holder, numbers });
            }
            tag => commands.push(command(tag, cursor, own)?),
        }
    }
    Ok(commands)
}

fn command(tag: u8, cursor: &mut Cursor<'_>, own: SessionId) -> Result<Command, DecodeError> {
    Ok(match tag {
        CREDIT => Command::Credit { consumer: cursor.consumer()?, up_to: number(cursor)? },
        REQUEUE => {
            let (holder, numbers) = held(cursor, own)?;
            Command::Requeue { holder, numbers, cause: cause(cursor)? }
        }
        DISCARD => {
            let (holder, numbers) = held(cursor, own)?;
            Command::Discard { holder, numbers }
        }
        RELEASE => {
            let (holder, numbers) = held(cursor, own)?;
            Command::Release { holder, numbers }
        }
        tag @ (GET | ATTACH | CREATE_QUEUE | END_QUEUE | CONFIGURE | INSPECT | PURGE) => {
            queue_command(tag, cursor)?
        }
        DETACH => Command::Detach {
            consumer: cursor.consumer()?,
            shown: number(cursor)?,
            how: if cursor.bool()? { Detach::ChannelEnd } else { Detach::Cancel },
        },
        SESSION_ENDED => Command::SessionEnded { session: cursor.session()? },
        NODE_DOWN => Command::NodeDown { node: node(cursor)?, start: StartNumber(cursor.int()?) },
        NODE_SUSPECTED => Command::NodeSuspected { node: node(cursor)? },
        NODE_BACK => Command::NodeBack { node: node(cursor)? },
        NODE_TIMED_OUT => Command::NodeTimedOut { node: node(cursor)? },
        ROUTED => routed(cursor)?,
        TRANSFER => {
            Command::Transfer { run: cursor.u32()?, first: cursor.u32()?, attempt: cursor.u32()? }
        }
        DEAD_LETTERED => dead_lettered(cursor)?,
        RETRY => Command::Retry { target: cursor.queue()?, count: cursor.u32()? },
        CONTINUE => Command::Continue,
        NEW_LIFE => Command::NewLife { life: cursor.int()? },
        LAST_RESORT => Command::LastResort,
        EXPIRE_HEAD => Command::ExpireHead { queue: cursor.queue()? },
        TASK_STEP => Command::TaskStep(Box::new(task_step(cursor)?)),
        FORGET_TASK => Command::ForgetTask { queue: cursor.queue()?, task: TaskId(cursor.int()?) },
        _ => return Err(DecodeError::Invalid("command")),
    })
}

fn queue_command(tag: u8, cursor: &mut Cursor<'_>) -> Result<Command, DecodeError> {
    if tag == CREATE_QUEUE {
        return Ok(Command::CreateQueue {
            name: name(cursor)?,
            config: config(cursor)?,
            bound: cursor.option()?,
        });
    }
    let queue = cursor.queue()?;
    Ok(match tag {
        GET => Command::Get { queue, timeout_default_ms: cursor.option()? },
        ATTACH => Command::Attach { queue, consumer: cursor.consumer()?, terms: terms(cursor)? },
        END_QUEUE => {
            Command::EndQueue { queue, if_unused: cursor.bool()?, if_empty: cursor.bool()? }
        }
        CONFIGURE => Command::Configure { queue, config: config(cursor)? },
        INSPECT => Command::Inspect { queue, renew: cursor.bool()? },
        PURGE => Command::Purge { queue },
        _ => return Err(DecodeError::Invalid("command")),
    })
}

#[inline]
fn put_enqueue(numbers: [u32; 3], out: &mut BytesMut) {
    let mut short = Short::default();
    short.u8(ENQUEUE);
    for number in numbers {
        short.int(u64::from(number));
    }
    short.put(out);
}

fn put_on_queue(tag: u8, queue: QueueId, flags: &[bool], out: &mut BytesMut) {
    out.put_u8(tag);
    put_queue(out, queue);
    for flag in flags {
        put_bool(out, *flag);
    }
}

fn put_on_node(tag: u8, node: NodeId, out: &mut BytesMut) {
    out.put_u8(tag);
    put_int(out, u64::from(node.0));
}

fn put_create(name: &ResourceName, config: &QueueConfig, bound: Option<u64>, out: &mut BytesMut) {
    out.put_u8(CREATE_QUEUE);
    put_name(name, out);
    put_config(config, out);
    put_option(out, bound);
}

fn put_attach(queue: QueueId, consumer: ConsumerId, terms: &ConsumerTerms, out: &mut BytesMut) {
    put_on_queue(ATTACH, queue, &[], out);
    put_consumer(out, consumer);
    put_terms(terms, out);
}

const OWN_CONSUMER: u8 = 0;
const OWN_GET: u8 = 1;
const CONSUMER: u8 = 2;
const FOREIGN_GET: u8 = 3;

fn put_held(tag: u8, holder: Holder, numbers: &Numbers, own: SessionId, out: &mut BytesMut) {
    let (kind, number) = match holder {
        Holder::Consumer(consumer) => (OWN_CONSUMER, consumer.number),
        Holder::Get(_, sequence) => (OWN_GET, sequence.0),
    };
    let session = holder.session();
    let mut short = Short::default();
    short.u8(tag);
    if session == own {
        short.u8(kind);
    } else {
        short.u8(kind + CONSUMER);
        short.int(u64::from(session.node.0));
        short.int(session.start.0);
    }
    short.int(number);
    short.put(out);
    put_numbers(numbers, out);
}

fn held(cursor: &mut Cursor<'_>, own: SessionId) -> Result<(Holder, Numbers), DecodeError> {
    let kind = cursor.u8()?;
    let session = match kind {
        OWN_CONSUMER | OWN_GET => own,
        CONSUMER | FOREIGN_GET => cursor.session()?,
        _ => return Err(DecodeError::Invalid("holder")),
    };
    let number = cursor.int()?;
    let holder = if matches!(kind, OWN_CONSUMER | CONSUMER) {
        Holder::Consumer(ConsumerId { session, number })
    } else {
        Holder::Get(session, Sequence(number))
    };
    Ok((holder, numbers(cursor)?))
}

/// Encodes each range as its distance from the end of the previous one, and its length.
fn put_numbers(numbers: &Numbers, out: &mut BytesMut) {
    put_len(out, numbers.len());
    let mut end = 0u64;
    for (first, last) in numbers {
        let mut short = Short::default();
        short.int(first.0.wrapping_sub(end));
        short.int(last.0.wrapping_sub(first.0));
        short.put(out);
        end = last.0;
    }
}

fn numbers(cursor: &mut Cursor<'_>) -> Result<Numbers, DecodeError> {
    let mut end = 0u64;
    cursor.list(|cursor| {
        let first = end.wrapping_add(cursor.int()?);
        end = first.wrapping_add(cursor.int()?);
        Ok((DeliveryNumber(first), DeliveryNumber(end)))
    })
}

fn cause_number(cause: RequeueCause) -> u8 {
    match cause {
        RequeueCause::Reject => 0,
        RequeueCause::Nack => 1,
        RequeueCause::Recover => 2,
        RequeueCause::ChannelEnd => 3,
    }
}

fn cause(cursor: &mut Cursor<'_>) -> Result<RequeueCause, DecodeError> {
    Ok(match cursor.u8()? {
        0 => RequeueCause::Reject,
        1 => RequeueCause::Nack,
        2 => RequeueCause::Recover,
        3 => RequeueCause::ChannelEnd,
        _ => return Err(DecodeError::Invalid("cause of a requeue")),
    })
}

fn number(cursor: &mut Cursor<'_>) -> Result<DeliveryNumber, DecodeError> {
    Ok(DeliveryNumber(cursor.int()?))
}

fn node(cursor: &mut Cursor<'_>) -> Result<NodeId, DecodeError> {
    Ok(NodeId(cursor.u16()?))
}

pub(crate) fn put_name(name: &ResourceName, out: &mut BytesMut) {
    put_short(out, &name.vhost);
    put_short(out, &name.name);
}

pub(crate) fn name(cursor: &mut Cursor<'_>) -> Result<ResourceName, DecodeError> {
    Ok(ResourceName { vhost: cursor.short()?, name: cursor.short()? })
}

pub(crate) fn put_terms(terms: &ConsumerTerms, out: &mut BytesMut) {
    put_option(out, terms.prefetch.map(u64::from));
    put_int(out, terms.up_to.0);
    put_bool(out, terms.exclusive);
    put_signed(out, terms.priority);
    put_short(out, &terms.tag);
    put_bool(out, terms.no_ack);
    put_option(out, terms.timeout_ms);
    put_option(out, terms.timeout_default_ms);
}

pub(crate) fn terms(cursor: &mut Cursor<'_>) -> Result<ConsumerTerms, DecodeError> {
    Ok(ConsumerTerms {
        prefetch: cursor.option_u32()?,
        up_to: number(cursor)?,
        exclusive: cursor.bool()?,
        priority: cursor.signed()?,
        tag: cursor.short()?,
        no_ack: cursor.bool()?,
        timeout_ms: cursor.option()?,
        timeout_default_ms: cursor.option()?,
    })
}
