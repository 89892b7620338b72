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
    /// `x-delayed-retry-type`, `-min`, `-max` and `-multiplier` (RQU-07).
    pub delayed_retry: DelayedRetryArguments,
}

/// Arguments that delay returned messages (RQU-07). Values that cannot be used switch it off
/// (ARG-16).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayedRetryArguments {
    /// `x-delayed-retry-type`, as given.
    pub which: Option<ShortString>,
    /// `x-delayed-retry-min`, ms.
    pub min_ms: Option<u64>,
    /// `x-delayed-retry-max`, ms.
    pub max_ms: Option<u64>,
    /// `x-delayed-retry-multiplier`.
    pub multiplier: Option<u64>,
}

/// Both queue types; see [`ARGUMENTS`].
const BOTH: &[QueueType] = &[QueueType::Classic, QueueType::Quorum];
const CLASSIC: &[QueueType] = &[QueueType::Classic];
const QUORUM: &[QueueType] = &[QueueType::Quorum];
const NONE: &[QueueType] = &[];

/// Every argument that has a meaning or a check, the types that take it (ARG-03 to ARG-06), and the
/// types whose redeclares compare it, in this order (EQV-02). `x-queue-type` is apart.
const ARGUMENTS: [(&str, &[QueueType], &[QueueType]); 33] = [
    ("x-expires", BOTH, BOTH),
    ("x-message-ttl", BOTH, BOTH),
    ("x-dead-letter-exchange", BOTH, BOTH),
    ("x-dead-letter-routing-key", BOTH, BOTH),
    ("x-dead-letter-strategy", BOTH, BOTH),
    ("x-max-length", BOTH, BOTH),
    ("x-max-length-bytes", BOTH, BOTH),
    ("x-max-priority", BOTH, BOTH),
    ("x-overflow", BOTH, BOTH),
    ("x-single-active-consumer", BOTH, BOTH),
    ("x-delivery-limit", BOTH, BOTH),
    ("x-delivery-count-mode", BOTH, BOTH),
    ("x-consumer-timeout", BOTH, BOTH),
    ("x-queue-leader-locator", BOTH, BOTH),
    ("x-queue-mode", CLASSIC, CLASSIC),
    ("x-queue-version", CLASSIC, CLASSIC),
    ("x-queue-master-locator", CLASSIC, CLASSIC),
    ("x-max-in-memory-length", QUORUM, QUORUM),
    ("x-max-in-memory-bytes", QUORUM, QUORUM),
    ("x-quorum-initial-group-size", QUORUM, QUORUM),
    ("x-member-placement-tag", QUORUM, QUORUM),
    ("x-consumer-disconnected-timeout", QUORUM, QUORUM),
    ("x-delayed-retry-type", BOTH, QUORUM),
    ("x-delayed-retry-min", BOTH, QUORUM),
    ("x-delayed-retry-max", BOTH, QUORUM),
    ("x-delayed-retry-multiplier", BOTH, QUORUM),
    ("x-message-deduplication", BOTH, NONE),
    ("x-cache-size", BOTH, NONE),
    ("x-cache-ttl", BOTH, NONE),
    // Streams' own (ARG-06); there are none here.
    ("x-max-age", NONE, NONE),
    ("x-stream-max-segment-size-bytes", NONE, NONE),
    ("x-stream-filter-size-bytes", NONE, NONE),
    ("x-initial-cluster-size", NONE, NONE),
];

/// The arguments that a redeclare of a queue of this type compares, in this order (EQV-02).
pub fn compared_arguments(queue_type: QueueType) -> impl Iterator<Item = &'static str> {
    let rows = ARGUMENTS.iter().filter(move |(_, _, compared)| compared.contains(&queue_type));
    rows.map(|(name, _, _)| *name)
}

impl QueueArguments {
    /// Reads and checks a declare's arguments. `default_type` is what the virtual host or node
    /// takes without `x-queue-type` (QUE-02). Unknown arguments are left alone (Q-13, QUE-18). Of an
    /// argument that is given twice the first counts, as everywhere in field tables.
    ///
    /// # Errors
    /// The first argument that cannot be taken: `x-queue-type`, then `x-dead-letter-exchange`
    /// (QUE-10), then the others in a fixed order.
    pub fn parse(table: &FieldTable, default_type: QueueType) -> Result<Self, ArgumentError> {
        let queue_type = table.get("x-queue-type").map(queue_type).transpose()?;
        let given = Given { table, queue_type: queue_type.unwrap_or(default_type) };
        let dead_letter_exchange = given.take("x-dead-letter-exchange", dead_letter_exchange)?;
        let routing_key = |name, value| match (short(name, value)?, &dead_letter_exchange) {
            (key, Some(_)) => Ok(key),
            (_, None) => invalid(name, "routing_key_but_no_dlx_defined"),
        };
        // In the order in which they are looked at.
        let arguments = Self {
            queue_type,
            message_ttl_ms: given.take("x-message-ttl", |name, value| time(name, value, 0))?,
            expires_ms: given.take("x-expires", |name, value| time(name, value, 1))?,
            length_max: given.take("x-max-length", count)?,
            length_bytes_max: given.take("x-max-length-bytes", count)?,
            overflow: given.take("x-overflow", overflow)?,
            dead_letter_routing_key: given.take("x-dead-letter-routing-key", routing_key)?,
            dead_letter_at_least_once: given.take("x-dead-letter-strategy", strategy)?,
            delivery_limit: given
                .take("x-delivery-limit", anything)?
                .and_then(|it| it.as_integer()),
            delivery_count_failures: given.take("x-delivery-count-mode", count_mode)?,
            priority_max: given.take("x-max-priority", priority)?.flatten(),
            single_active_consumer: given.take("x-single-active-consumer", boolean)? == Some(true),
            leader_locator: given.take("x-queue-leader-locator", locator)?,
            consumer_timeout_ms: given.take("x-consumer-timeout", count)?,
            delayed_retry: DelayedRetryArguments {
                which: given
                    .take("x-delayed-retry-type", long_string)?
                    .and_then(|text| std::str::from_utf8(text).ok())
                    .and_then(|text| ShortString::try_from(text).ok()),
                min_ms: given.take("x-delayed-retry-min", count)?,
                max_ms: given.take("x-delayed-retry-max", count)?,
                // Earlier releases took any value: queues that were declared there have it.
                multiplier: given
                    .take("x-delayed-retry-multiplier", anything)?
                    .and_then(|it| it.as_integer())
                    .and_then(|it| u64::try_from(it).ok()),
            },
            dead_letter_exchange,
        };
        given.check_others()?;
        Ok(arguments)
    }
}

/// What a declare gives.
struct Given<'a> {
    table: &'a FieldTable,
    queue_type: QueueType,
}

impl<'a> Given<'a> {
    /// The argument of that name, if it is given and the queue's type takes it.
    fn take<T>(
        &self,
        name: &'static str,
        parse: impl Fn(&'static str, &'a FieldValue) -> Result<T, ArgumentError>,
    ) -> Result<Option<T>, ArgumentError> {
        let row = || ARGUMENTS.iter().find(|(known, _, _)| *known == name);
        debug_assert!(row().is_some(), "{name} has no row in the table");
        let Some(value) = self.table.get(name) else { return Ok(None) };
        let queue_type = self.queue_type;
        if row().is_some_and(|(_, taken, _)| !taken.contains(&queue_type)) {
            return Err(ArgumentError::WrongQueueType { name, queue_type });
        }
        parse(name, value).map(Some)
    }

    /// Arguments without an effect here: checked, then kept only in the table.
    fn check_others(&self) -> Result<(), ArgumentError> {
        self.take("x-queue-mode", queue_mode)?;
        self.take("x-queue-version", queue_version)?;
        self.take("x-queue-master-locator", anything)?;
        self.take("x-quorum-initial-group-size", group_size)?;
        self.take("x-max-in-memory-length", count)?;
        self.take("x-max-in-memory-bytes", count)?;
        self.take("x-member-placement-tag", anything)?;
        self.take("x-consumer-disconnected-timeout", count)?;
        self.take("x-max-age", anything)?;
        self.take("x-stream-max-segment-size-bytes", anything)?;
        self.take("x-stream-filter-size-bytes", anything)?;
        self.take("x-initial-cluster-size", anything)?;
        //
        self.take("x-message-deduplication", boolean)?;
        self.take("x-cache-size", count)?;
        self.take("x-cache-ttl", count)?;
        Ok(())
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

/// A value that is not looked at here.
fn anything<'a>(
    _name: &'static str,
    value: &'a FieldValue,
) -> Result<&'a FieldValue, ArgumentError> {
    Ok(value)
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

fn strategy(name: &'static str, value: &FieldValue) -> Result<bool, ArgumentError> {
    either(name, value, ("at-most-once", "at-least-once"), "invalid_dlx_strategy")
}

fn count_mode(name: &'static str, value: &FieldValue) -> Result<bool, ArgumentError> {
    either(name, value, ("returns", "failures"), "invalid_delivery_count_mode")
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

/// ARG-13.
fn group_size(name: &'static str, value: &FieldValue) -> Result<i64, ArgumentError> {
    match integer(name, value)? {
        0 => invalid(name, "{value_zero,0}"),
        size => Ok(size),
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
