//! Effective settings of queues.

use super::{
    DecodeError,
    cursor::{Cursor, put_bool, put_int, put_option, put_short},
};
use bytes::{BufMut, BytesMut};
use quorate_queue::{DeadLetter, DelayedRetry, QueueConfig, RetryAfter};
use quorate_types::{CatalogIndex, Overflow, QueueType};

pub(crate) fn put_config(config: &QueueConfig, out: &mut BytesMut) {
    // Every field by name, so that one which is not written does not compile.
    let QueueConfig {
        resolved_at,
        queue_type,
        durable,
        auto_delete,
        priority_max,
        message_ttl_ms,
        expires_ms,
        length_max,
        length_bytes_max,
        overflow,
        delivery_limit,
        delivery_count_failures,
        dead_letter,
        single_active_consumer,
        consumer_timeout_ms,
        letters_max,
        delays,
        delayed_retry,
    } = config;
    put_int(out, resolved_at.0);
    put_queue_type(*queue_type, out);
    put_bool(out, *durable);
    put_bool(out, *auto_delete);
    put_option(out, priority_max.map(u64::from));
    put_option(out, *message_ttl_ms);
    put_option(out, *expires_ms);
    put_option(out, *length_max);
    put_option(out, *length_bytes_max);
    out.put_u8(match overflow {
        Overflow::DropHead => 0,
        Overflow::RejectPublish => 1,
        Overflow::RejectPublishDlx => 2,
    });
    put_option(out, delivery_limit.map(u64::from));
    put_bool(out, *delivery_count_failures);
    put_dead_letter(dead_letter.as_ref(), out);
    put_bool(out, *single_active_consumer);
    put_option(out, *consumer_timeout_ms);
    put_int(out, *letters_max);
    put_delays(*delays, delayed_retry.as_ref(), out);
}

pub(crate) fn config(cursor: &mut Cursor<'_>) -> Result<QueueConfig, DecodeError> {
    let mut config = QueueConfig {
        resolved_at: CatalogIndex(cursor.int()?),
        queue_type: queue_type(cursor)?,
        durable: cursor.bool()?,
        auto_delete: cursor.bool()?,
        priority_max: cursor
            .option()?
            .map(|level| u8::try_from(level).map_err(|_| DecodeError::Invalid("priority")))
            .transpose()?,
        message_ttl_ms: cursor.option()?,
        expires_ms: cursor.option()?,
        length_max: cursor.option()?,
        length_bytes_max: cursor.option()?,
        overflow: match cursor.u8()? {
            0 => Overflow::DropHead,
            1 => Overflow::RejectPublish,
            2 => Overflow::RejectPublishDlx,
            _ => return Err(DecodeError::Invalid("overflow")),
        },
        delivery_limit: cursor.option_u32()?,
        delivery_count_failures: cursor.bool()?,
        dead_letter: dead_letter(cursor)?,
        single_active_consumer: cursor.bool()?,
        consumer_timeout_ms: cursor.option()?,
        letters_max: cursor.int()?,
        delays: false,
        delayed_retry: None,
    };
    (config.delays, config.delayed_retry) = delays(cursor)?;
    Ok(config)
}

/// One byte of flags: whether the queue delays, and whether settings of delayed retries follow.
/// Releases before `MachineVersion::RETRIES` know the first flag only.
const DELAYS: u8 = 1;
const RETRIES: u8 = 2;

fn put_delays(delays: bool, retry: Option<&DelayedRetry>, out: &mut BytesMut) {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    out.put_u8(flag(delays, DELAYS) | flag(retry.is_some(), RETRIES));
    let Some(DelayedRetry { after, min_ms, max_ms, multiplier }) = retry else { return };
    out.put_u8(match after {
        RetryAfter::All => 0,
        RetryAfter::Failed => 1,
        RetryAfter::Returned => 2,
    });
    put_int(out, *min_ms);
    put_int(out, *max_ms);
    put_option(out, multiplier.map(u64::from));
}

fn delays(cursor: &mut Cursor<'_>) -> Result<(bool, Option<DelayedRetry>), DecodeError> {
    let flags = cursor.u8()?;
    if flags & !(DELAYS | RETRIES) != 0 {
        return Err(DecodeError::Invalid("delays"));
    }
    let retry = if flags & RETRIES == 0 { None } else { Some(retry(cursor)?) };
    Ok((flags & DELAYS != 0, retry))
}

fn retry(cursor: &mut Cursor<'_>) -> Result<DelayedRetry, DecodeError> {
    Ok(DelayedRetry {
        after: match cursor.u8()? {
            0 => RetryAfter::All,
            1 => RetryAfter::Failed,
            2 => RetryAfter::Returned,
            _ => return Err(DecodeError::Invalid("delayed retry")),
        },
        min_ms: cursor.int()?,
        max_ms: cursor.int()?,
        multiplier: cursor.option_u32()?,
    })
}

pub(crate) fn put_queue_type(queue_type: QueueType, out: &mut BytesMut) {
    out.put_u8(match queue_type {
        QueueType::Classic => 0,
        QueueType::Quorum => 1,
    });
}

pub(crate) fn queue_type(cursor: &mut Cursor<'_>) -> Result<QueueType, DecodeError> {
    match cursor.u8()? {
        0 => Ok(QueueType::Classic),
        1 => Ok(QueueType::Quorum),
        _ => Err(DecodeError::Invalid("queue type")),
    }
}

fn put_dead_letter(dead_letter: Option<&DeadLetter>, out: &mut BytesMut) {
    put_bool(out, dead_letter.is_some());
    let Some(dead_letter) = dead_letter else { return };
    put_short(out, &dead_letter.exchange);
    put_bool(out, dead_letter.routing_key.is_some());
    if let Some(key) = &dead_letter.routing_key {
        put_short(out, key);
    }
    put_bool(out, dead_letter.at_least_once);
}

fn dead_letter(cursor: &mut Cursor<'_>) -> Result<Option<DeadLetter>, DecodeError> {
    if !cursor.bool()? {
        return Ok(None);
    }
    Ok(Some(DeadLetter {
        exchange: cursor.short()?,
        routing_key: if cursor.bool()? { Some(cursor.short()?) } else { None },
        at_least_once: cursor.bool()?,
    }))
}
