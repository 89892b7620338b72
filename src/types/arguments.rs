//! The arguments of `queue.declare`, parsed once (ARG-01 to ARG-17, Q-12, Q-13, Q-50).

use crate::{FieldTable, FieldValue, ShortString};

/// Longest time that a setting may name: ten years, in milliseconds (ARG-07).
const MS_MAX: i64 = 315_360_000_000;

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

/// `x-overflow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Overflow {
    /// The head makes way (LEN-04).
    DropHead,
    /// A publish that would exceed is refused.
    RejectPublish,
    /// Refused, and dead-lettered (LEN-12).
    RejectPublishDlx,
}

/// `x-queue-leader-locator` (ARG-13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaderLocator {
    /// A group led by the declaring client's node.
    #[default]
    ClientLocal,
    /// The group with the fewest queues.
    Balanced,
}

/// A declare argument that cannot be taken: its name, and RabbitMQ's reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// `invalid arg 'K' for queue … : REASON` (ARG-01, ARG-02).
    #[error("invalid arg '{name}': {reason}")]
    Invalid {
        /// The argument.
        name: &'static str,
        /// RabbitMQ's reason, as it prints it.
        reason: String,
    },
    /// Known for another queue type, meaningless for this one (ARG-03).
    #[error("invalid arg '{name}' for this queue type")]
    WrongQueueType {
        /// The argument.
        name: &'static str,
    },
    /// `x-dead-letter-exchange` of a wrong type, which has a text of its own (ARG-12).
    #[error("invalid type '{type_name}' for arg '{name}'")]
    WrongType {
        /// The argument.
        name: &'static str,
        /// RabbitMQ's name of the type given.
        type_name: &'static str,
    },
}

/// A queue's declare arguments. Absent ones are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueArguments {
    /// `x-queue-type`.
    pub queue_type: Option<QueueType>,
    /// `x-message-ttl`, ms.
    pub message_ttl_ms: Option<u64>,
    /// `x-expires`, ms.
    pub expires_ms: Option<u64>,
    /// `x-max-length`, messages.
    pub length_max: Option<u64>,
    /// `x-max-length-bytes`, octets of bodies.
    pub length_bytes_max: Option<u64>,
    /// `x-overflow`.
    pub overflow: Option<Overflow>,
    /// `x-dead-letter-exchange`.
    pub dead_letter_exchange: Option<ShortString>,
    /// `x-dead-letter-routing-key`.
    pub dead_letter_routing_key: Option<ShortString>,
    /// `x-dead-letter-strategy` is `at-least-once`.
    pub dead_letter_at_least_once: Option<bool>,
    /// `x-delivery-limit`; negative means none. Not validated (ARG-15).
    pub delivery_limit: Option<i64>,
    /// `x-delivery-count-mode` is `failures`.
    pub delivery_count_failures: Option<bool>,
    /// `x-max-priority`, 1 to 255; 0 is taken as absent (PRI-05).
    pub priority_max: Option<u8>,
    /// `x-single-active-consumer`.
    pub single_active_consumer: bool,
    /// `x-queue-leader-locator`.
    pub leader_locator: LeaderLocator,
    /// `x-consumer-timeout`, ms.
    pub consumer_timeout_ms: Option<u64>,
}

impl QueueArguments {
    /// Reads and checks a declare's arguments. `default_type` is what the virtual host or node
    /// takes without `x-queue-type` (QUE-02).
    ///
    /// # Errors
    /// The first argument, in the table's order, that cannot be taken.
    pub fn parse(table: &FieldTable, default_type: QueueType) -> Result<Self, ArgumentError> {
        let mut arguments = Self::default();
        if let Some(value) = table.get("x-queue-type") {
            arguments.queue_type = Some(queue_type(value)?);
        }
        let queue_type = arguments.queue_type.unwrap_or(default_type);
        for (name, value) in &table.0 {
            arguments.take(name.as_str(), value, queue_type)?;
        }
        if arguments.dead_letter_routing_key.is_some() && arguments.dead_letter_exchange.is_none() {
            return invalid("x-dead-letter-routing-key", "routing_key_but_no_dlx_defined");
        }
        Ok(arguments)
    }

    fn take(
        &mut self,
        name: &str,
        value: &FieldValue,
        queue_type: QueueType,
    ) -> Result<(), ArgumentError> {
        match name {
            "x-message-ttl" => self.message_ttl_ms = Some(time("x-message-ttl", value, 0)?),
            "x-expires" => self.expires_ms = Some(time("x-expires", value, 1)?),
            "x-max-length" => self.length_max = Some(count("x-max-length", value)?),
            "x-max-length-bytes" => {
                self.length_bytes_max = Some(count("x-max-length-bytes", value)?);
            }
            "x-overflow" => self.overflow = Some(overflow(value)?),
            "x-dead-letter-exchange" => {
                let name = "x-dead-letter-exchange";
                let wrong = ArgumentError::WrongType { name, type_name: value.type_name() };
                self.dead_letter_exchange = Some(text(value).ok_or(wrong)?);
            }
            "x-dead-letter-routing-key" => {
                self.dead_letter_routing_key = Some(
                    text(value).ok_or_else(|| unacceptable("x-dead-letter-routing-key", value))?,
                );
            }
            "x-dead-letter-strategy" => {
                self.dead_letter_at_least_once =
                    Some(match text(value).as_ref().map(ShortString::as_str) {
                        Some("at-least-once") => true,
                        Some("at-most-once") => false,
                        Some(_) | None => {
                            return invalid("x-dead-letter-strategy", "invalid_dlx_strategy");
                        }
                    });
            }
            "x-delivery-limit" => self.delivery_limit = value.as_integer(),
            "x-delivery-count-mode" => {
                self.delivery_count_failures =
                    Some(match text(value).as_ref().map(ShortString::as_str) {
                        Some("failures") => true,
                        Some("returns") => false,
                        Some(_) | None => return invalid("x-delivery-count-mode", "invalid_mode"),
                    });
            }
            "x-max-priority" => self.priority_max = priority(value)?,
            "x-single-active-consumer" => {
                self.single_active_consumer = boolean("x-single-active-consumer", value)?;
            }
            "x-queue-leader-locator" => self.leader_locator = locator(value)?,
            "x-consumer-timeout" => {
                self.consumer_timeout_ms = Some(count("x-consumer-timeout", value)?);
            }
            other => check_other(other, value, queue_type)?,
        }
        Ok(())
    }
}

/// Arguments without an effect here: checked, then kept only in the table.
fn check_other(name: &str, value: &FieldValue, queue_type: QueueType) -> Result<(), ArgumentError> {
    let quorum = queue_type == QueueType::Quorum;
    let only = |fits: bool, name| {
        if fits { Ok(()) } else { Err(ArgumentError::WrongQueueType { name }) }
    };
    match name {
        "x-queue-mode" => {
            only(!quorum, "x-queue-mode")?;
            match text(value).as_ref().map(ShortString::as_str) {
                Some("default" | "lazy") => Ok(()),
                Some(mode) => {
                    invalid("x-queue-mode", format!("\"unsupported queue mode '{mode}'\""))
                }
                None => Err(unacceptable("x-queue-mode", value)),
            }
        }
        "x-queue-version" => {
            only(!quorum, "x-queue-version")?;
            match value.as_integer() {
                Some(1 | 2) => Ok(()),
                Some(version) => {
                    invalid("x-queue-version", format!("\"unsupported queue version '{version}'\""))
                }
                None => Err(expected_integer("x-queue-version", value)),
            }
        }
        "x-queue-master-locator" => only(!quorum, "x-queue-master-locator"),
        "x-quorum-initial-group-size" => {
            only(quorum, "x-quorum-initial-group-size")?;
            match integer("x-quorum-initial-group-size", value)? {
                0 => invalid("x-quorum-initial-group-size", "{value_zero,0}"),
                _ => Ok(()),
            }
        }
        "x-max-in-memory-length" => {
            only(quorum, "x-max-in-memory-length")?;
            count("x-max-in-memory-length", value).map(drop)
        }
        "x-max-in-memory-bytes" => {
            only(quorum, "x-max-in-memory-bytes")?;
            count("x-max-in-memory-bytes", value).map(drop)
        }
        "x-consumer-disconnected-timeout" => {
            only(quorum, "x-consumer-disconnected-timeout")?;
            count("x-consumer-disconnected-timeout", value).map(drop)
        }
        "x-max-age" => only(false, "x-max-age"),
        "x-stream-max-segment-size-bytes" => only(false, "x-stream-max-segment-size-bytes"),
        "x-stream-filter-size-bytes" => only(false, "x-stream-filter-size-bytes"),
        "x-initial-cluster-size" => only(false, "x-initial-cluster-size"),
        "x-delayed-retry-type" => reserved_text("x-delayed-retry-type", value),
        "x-delayed-retry-min" => count("x-delayed-retry-min", value).map(drop),
        "x-delayed-retry-max" => count("x-delayed-retry-max", value).map(drop),
        "x-cache-size" => count("x-cache-size", value).map(drop),
        "x-cache-ttl" => count("x-cache-ttl", value).map(drop),
        "x-message-deduplication" => boolean("x-message-deduplication", value).map(drop),
        // Unknown arguments are stored and ignored.
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

fn reserved_text(name: &'static str, value: &FieldValue) -> Result<(), ArgumentError> {
    if text(value).is_some() { Ok(()) } else { Err(unacceptable(name, value)) }
}

fn text(value: &FieldValue) -> Option<ShortString> {
    value.as_long_string().and_then(|octets| ShortString::from_bytes(octets.clone()).ok())
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

fn overflow(value: &FieldValue) -> Result<Overflow, ArgumentError> {
    let Some(text) = text(value) else { return Err(unacceptable("x-overflow", value)) };
    match text.as_str() {
        "drop-head" => Ok(Overflow::DropHead),
        "reject-publish" => Ok(Overflow::RejectPublish),
        "reject-publish-dlx" => Ok(Overflow::RejectPublishDlx),
        _ => invalid("x-overflow", "invalid_overflow"),
    }
}

fn locator(value: &FieldValue) -> Result<LeaderLocator, ArgumentError> {
    match text(value).as_ref().map(ShortString::as_str) {
        Some("client-local") => Ok(LeaderLocator::ClientLocal),
        Some("balanced" | "random" | "least-leaders") => Ok(LeaderLocator::Balanced),
        Some(_) => invalid("x-queue-leader-locator", "invalid_queue_locator_arg"),
        None => Err(unacceptable("x-queue-leader-locator", value)),
    }
}

fn priority(value: &FieldValue) -> Result<Option<u8>, ArgumentError> {
    let level = integer("x-max-priority", value)?;
    match u8::try_from(level) {
        Ok(0) => Ok(None),
        Ok(level) => Ok(Some(level)),
        Err(_) => invalid("x-max-priority", format!("{{max_value_exceeded,{level}}}")),
    }
}

fn queue_type(value: &FieldValue) -> Result<QueueType, ArgumentError> {
    let Some(octets) = value.as_long_string() else {
        return Err(unacceptable("x-queue-type", value));
    };
    match octets.as_ref() {
        b"classic" => Ok(QueueType::Classic),
        b"quorum" => Ok(QueueType::Quorum),
        // Streams too are refused by name.
        other => invalid(
            "x-queue-type",
            format!("\"unsupported queue type '{}'\"", String::from_utf8_lossy(other)),
        ),
    }
}
