//! The arguments of `queue.declare`, parsed once (ARG-01 to ARG-17, Q-12, Q-13, Q-50).

use crate::{FieldTable, FieldValue, ShortString};

/// Longest time that a setting may name: ten years, in milliseconds (ARG-07).
pub const MS_MAX: i64 = 315_360_000_000;

/// `x-queue-type`, as far as Quorate has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueType {
    /// RabbitMQ's classic interface.
    Classic,
    /// RabbitMQ's quorum interface.
    Quorum,
}

impl QueueType {
    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Quorum => "quorum",
        }
    }
}

/// What a full queue does (`x-overflow`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Overflow {
    /// The head makes way (LEN-04).
    DropHead,
    /// A publish that would exceed is refused.
    RejectPublish,
    /// Refused, and dead-lettered (LEN-12).
    RejectPublishDlx,
}

impl Overflow {
    /// The one of that name.
    #[must_use]
    pub fn parse(name: &[u8]) -> Option<Self> {
        match name {
            b"drop-head" => Some(Self::DropHead),
            b"reject-publish" => Some(Self::RejectPublish),
            b"reject-publish-dlx" => Some(Self::RejectPublishDlx),
            _ => None,
        }
    }
}

/// Where a queue's leader is placed (`x-queue-leader-locator`, ARG-13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaderLocator {
    /// A group led by the declaring client's node.
    #[default]
    ClientLocal,
    /// The group with the fewest queues.
    Balanced,
}

impl LeaderLocator {
    /// The one of that name; `random` and `least-leaders` are older names of `balanced`.
    #[must_use]
    pub fn parse(name: &[u8]) -> Option<Self> {
        match name {
            b"client-local" => Some(Self::ClientLocal),
            b"balanced" | b"random" | b"least-leaders" => Some(Self::Balanced),
            _ => None,
        }
    }
}

/// A declare argument that cannot be taken: its name, and RabbitMQ's reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// `invalid arg 'K' for queue … : REASON` (ARG-01, ARG-02).
    #[error("invalid arg '{name}': {reason}")]
    Invalid {
        /// Name of the argument.
        name: &'static str,
        /// RabbitMQ's reason, as it prints it.
        reason: String,
    },
    /// Known for another queue type, meaningless for this one (ARG-03).
    #[error("invalid arg '{name}' for this queue type")]
    WrongQueueType {
        /// Name of the argument.
        name: &'static str,
        /// This one: as given, else the default.
        queue_type: QueueType,
    },
    /// `x-dead-letter-exchange` of a wrong type, which has a text of its own (ARG-12).
    #[error("invalid type '{type_name}' for arg '{name}'")]
    WrongType {
        /// Name of the argument.
        name: &'static str,
        /// RabbitMQ's name of the type given.
        type_name: &'static str,
    },
}

/// A queue's declare arguments. Absent ones are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueArguments {
    /// `x-queue-type`: quorum or classic.
    pub queue_type: Option<QueueType>,
    /// `x-message-ttl`, in milliseconds.
    pub message_ttl_ms: Option<u64>,
    /// `x-expires`, in milliseconds without use.
    pub expires_ms: Option<u64>,
    /// `x-max-length`, in ready messages.
    pub length_max: Option<u64>,
    /// `x-max-length-bytes`, bytes of bodies.
    pub length_bytes_max: Option<u64>,
    /// `x-overflow`: what a full queue does.
    pub overflow: Option<Overflow>,
    /// `x-dead-letter-exchange`: where dead letters are published.
    pub dead_letter_exchange: Option<ShortString>,
    /// `x-dead-letter-routing-key`: replaces the message's own.
    pub dead_letter_routing_key: Option<ShortString>,
    /// `x-dead-letter-strategy` is `at-least-once`.
    pub dead_letter_at_least_once: Option<bool>,
    /// `x-delivery-limit`; negative means none. Not validated (ARG-15).
    pub delivery_limit: Option<i64>,
    /// `x-delivery-count-mode` is `failures`.
    pub delivery_count_failures: Option<bool>,
    /// `x-max-priority`, 1 to 255; 0 is taken as absent (PRI-05).
    pub priority_max: Option<u8>,
    /// `x-single-active-consumer`: one consumer is served at a time.
    pub single_active_consumer: bool,
    /// `x-queue-leader-locator`: where the leader is placed.
    pub leader_locator: Option<LeaderLocator>,
    /// `x-consumer-timeout`, in milliseconds.
    pub consumer_timeout_ms: Option<u64>,
}

/// Every argument that has a meaning or a check, in the order that they are looked at. Of one
/// given twice the first counts, as everywhere in field tables.
const KNOWN: [&str; 32] = [
    // Looked at before all others (QUE-10).
    "x-dead-letter-exchange",
    "x-message-ttl",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-delivery-limit",
    "x-delivery-count-mode",
    "x-max-priority",
    "x-single-active-consumer",
    "x-queue-leader-locator",
    "x-consumer-timeout",
    "x-queue-mode",
    "x-queue-version",
    "x-queue-master-locator",
    "x-quorum-initial-group-size",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-member-placement-tag",
    "x-consumer-disconnected-timeout",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
    "x-initial-cluster-size",
    "x-delayed-retry-type",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
    "x-message-deduplication",
    "x-cache-size",
    "x-cache-ttl",
];

impl QueueArguments {
    /// Reads and checks a declare's arguments. `default_type` is what the virtual host or node
    /// takes without `x-queue-type` (QUE-02). Unknown arguments are left alone (Q-13, QUE-18).
    ///
    /// # Errors
    /// The first argument that cannot be taken: `x-queue-type`, then `x-dead-letter-exchange`
    /// (QUE-10), then the others in a fixed order.
    pub fn parse(table: &FieldTable, default_type: QueueType) -> Result<Self, ArgumentError> {
        let mut arguments = Self::default();
        if let Some(value) = table.get("x-queue-type") {
            arguments.queue_type = Some(queue_type(value)?);
        }
        let queue_type = arguments.queue_type.unwrap_or(default_type);
        for name in KNOWN {
            if let Some(value) = table.get(name) {
                arguments.take(name, value, queue_type)?;
            }
        }
        Ok(arguments)
    }

    fn take(
        &mut self,
        name: &'static str,
        value: &FieldValue,
        queue_type: QueueType,
    ) -> Result<(), ArgumentError> {
        match name {
            "x-message-ttl" => self.message_ttl_ms = Some(time(name, value, 0)?),
            "x-expires" => self.expires_ms = Some(time(name, value, 1)?),
            "x-max-length" => self.length_max = Some(count(name, value)?),
            "x-max-length-bytes" => self.length_bytes_max = Some(count(name, value)?),
            "x-overflow" => self.overflow = Some(overflow(name, value)?),
            "x-dead-letter-exchange" => {
                self.dead_letter_exchange = Some(dead_letter_exchange(name, value)?);
            }
            "x-dead-letter-routing-key" => {
                let key = short(name, value)?;
                if self.dead_letter_exchange.is_none() {
                    return invalid(name, "routing_key_but_no_dlx_defined");
                }
                self.dead_letter_routing_key = Some(key);
            }
            "x-dead-letter-strategy" => {
                let modes = ("at-most-once", "at-least-once");
                self.dead_letter_at_least_once =
                    Some(either(name, value, modes, "invalid_dlx_strategy")?);
            }
            "x-delivery-limit" => self.delivery_limit = value.as_integer(),
            "x-delivery-count-mode" => {
                let modes = ("returns", "failures");
                self.delivery_count_failures =
                    Some(either(name, value, modes, "invalid_delivery_count_mode")?);
            }
            "x-max-priority" => self.priority_max = priority(name, value)?,
            "x-single-active-consumer" => self.single_active_consumer = boolean(name, value)?,
            "x-queue-leader-locator" => self.leader_locator = Some(locator(name, value)?),
            "x-consumer-timeout" => self.consumer_timeout_ms = Some(count(name, value)?),
            other => check_other(other, value, queue_type)?,
        }
        Ok(())
    }
}

/// Arguments without an effect here: checked, then kept only in the table.
fn check_other(
    name: &'static str,
    value: &FieldValue,
    queue_type: QueueType,
) -> Result<(), ArgumentError> {
    let only = |of: QueueType| {
        if of == queue_type {
            Ok(())
        } else {
            Err(ArgumentError::WrongQueueType { name, queue_type })
        }
    };
    match name {
        "x-queue-mode" => only(QueueType::Classic).and_then(|()| queue_mode(name, value)),
        "x-queue-version" => only(QueueType::Classic).and_then(|()| queue_version(name, value)),
        "x-queue-master-locator" => only(QueueType::Classic),
        "x-quorum-initial-group-size" => {
            only(QueueType::Quorum)?;
            match integer(name, value)? {
                0 => invalid(name, "{value_zero,0}"),
                _ => Ok(()),
            }
        }
        "x-max-in-memory-length" | "x-max-in-memory-bytes" | "x-consumer-disconnected-timeout" => {
            only(QueueType::Quorum)?;
            count(name, value).map(drop)
        }
        "x-member-placement-tag" => only(QueueType::Quorum),
        // Streams' own (ARG-06); there are none here.
        "x-max-age"
        | "x-stream-max-segment-size-bytes"
        | "x-stream-filter-size-bytes"
        | "x-initial-cluster-size" => Err(ArgumentError::WrongQueueType { name, queue_type }),
        //
        "x-delayed-retry-type" => long_string(name, value).map(drop),
        "x-delayed-retry-min" | "x-delayed-retry-max" | "x-cache-size" | "x-cache-ttl" => {
            count(name, value).map(drop)
        }
        "x-message-deduplication" => boolean(name, value).map(drop),
        _ => Ok(()),
    }
}

fn invalid<T>(name: &'static str, reason: impl Into<String>) -> Result<T, ArgumentError> {
    Err(ArgumentError::Invalid { name, reason: reason.into() })
}

fn unacceptable(name: &'static str, value: &FieldValue) -> ArgumentError {
    let reason = format!("{{unacceptable_type,{}}}", value.type_name());
    ArgumentError::Invalid { name, reason }
}

fn expected_integer(name: &'static str, value: &FieldValue) -> ArgumentError {
    let reason = format!("\"expected integer, got {}\"", value.type_name());
    ArgumentError::Invalid { name, reason }
}

fn boolean(name: &'static str, value: &FieldValue) -> Result<bool, ArgumentError> {
    if let FieldValue::Bool(value) = value { Ok(*value) } else { Err(unacceptable(name, value)) }
}

fn long_string<'a>(name: &'static str, value: &'a FieldValue) -> Result<&'a [u8], ArgumentError> {
    value.as_long_string().map(AsRef::as_ref).ok_or_else(|| unacceptable(name, value))
}

/// A long string that is a name or a key: RabbitMQ takes any, but nothing could have it.
fn short(name: &'static str, value: &FieldValue) -> Result<ShortString, ArgumentError> {
    let bytes = value.as_long_string().ok_or_else(|| unacceptable(name, value))?;
    ShortString::from_bytes(bytes.clone()).or_else(|error| invalid(name, format!("\"{error}\"")))
}

/// Of two modes: true if it is the second.
fn either(
    name: &'static str,
    value: &FieldValue,
    (no, yes): (&str, &str),
    reason: &'static str,
) -> Result<bool, ArgumentError> {
    match value.as_long_string().map(AsRef::as_ref) {
        Some(mode) if mode == yes.as_bytes() => Ok(true),
        Some(mode) if mode == no.as_bytes() => Ok(false),
        Some(_) | None => invalid(name, reason),
    }
}

/// ARG-12 has a text of its own for a wrong type.
fn dead_letter_exchange(
    name: &'static str,
    value: &FieldValue,
) -> Result<ShortString, ArgumentError> {
    match value.as_long_string() {
        Some(_) => short(name, value),
        None => Err(ArgumentError::WrongType { name, type_name: value.type_name() }),
    }
}

/// ARG-14: kept without effect.
fn queue_mode(name: &'static str, value: &FieldValue) -> Result<(), ArgumentError> {
    match long_string(name, value)? {
        b"default" | b"lazy" => Ok(()),
        mode => {
            let mode = String::from_utf8_lossy(mode);
            invalid(name, format!("\"unsupported queue mode '{mode}'\""))
        }
    }
}

/// ARG-14: version 1 is no more since 4.3.
fn queue_version(name: &'static str, value: &FieldValue) -> Result<(), ArgumentError> {
    match value.as_integer() {
        Some(2) => Ok(()),
        Some(version) => invalid(name, format!("\"unsupported queue version '{version}'\"")),
        None => Err(expected_integer(name, value)),
    }
}

/// A non-negative integer.
fn integer(name: &'static str, value: &FieldValue) -> Result<i64, ArgumentError> {
    match value.as_integer() {
        Some(negative) if negative < 0 => invalid(name, format!("{{value_negative,{negative}}}")),
        Some(value) => Ok(value),
        None => Err(expected_integer(name, value)),
    }
}

fn count(name: &'static str, value: &FieldValue) -> Result<u64, ArgumentError> {
    Ok(integer(name, value)?.unsigned_abs())
}

/// Milliseconds from `least` to [`MS_MAX`] (ARG-07, ARG-08).
fn time(name: &'static str, value: &FieldValue, least: i64) -> Result<u64, ArgumentError> {
    match integer(name, value)? {
        ms if ms < least => invalid(name, "{value_zero,0}"),
        ms if ms > MS_MAX => invalid(name, format!("{{value_too_large,{ms}}}")),
        ms => Ok(ms.unsigned_abs()),
    }
}

fn overflow(name: &'static str, value: &FieldValue) -> Result<Overflow, ArgumentError> {
    Overflow::parse(long_string(name, value)?).map_or_else(|| invalid(name, "invalid_overflow"), Ok)
}

fn locator(name: &'static str, value: &FieldValue) -> Result<LeaderLocator, ArgumentError> {
    LeaderLocator::parse(long_string(name, value)?)
        .map_or_else(|| invalid(name, "invalid_queue_locator_arg"), Ok)
}

fn priority(name: &'static str, value: &FieldValue) -> Result<Option<u8>, ArgumentError> {
    let level = integer(name, value)?;
    match u8::try_from(level) {
        Ok(0) => Ok(None),
        Ok(level) => Ok(Some(level)),
        Err(_) => invalid(name, format!("{{max_value_exceeded,{level}}}")),
    }
}

fn queue_type(value: &FieldValue) -> Result<QueueType, ArgumentError> {
    let Some(bytes) = value.as_long_string() else {
        return Err(unacceptable("x-queue-type", value));
    };
    match bytes.as_ref() {
        b"classic" => Ok(QueueType::Classic),
        b"quorum" => Ok(QueueType::Quorum),
        // Streams too are refused by name.
        other => invalid(
            "x-queue-type",
            format!("\"unsupported queue type '{}'\"", String::from_utf8_lossy(other)),
        ),
    }
}
