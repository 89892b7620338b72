//! A queue's effective settings, as the catalog resolves them from arguments and policies.
//!
//! Apply must decide the same on every replica, so a cluster-wide setting that apply needs is part
//! of each queue's settings. The bound of waiting letters, the global parameter `dead_letters_max`,
//! is resolved into `QueueConfig` like a policy, and a change of it is distributed to the queues as
//! the change of a policy is. The type is in this crate because imports go downwards: `catalog`
//! resolves arguments and policies into it.

use crate::{letter::LETTERS_MAX, retry::DelayedRetry};
use quorate_types::{CatalogIndex, Overflow, QueueType, ShortString};

/// Effective settings of one queue, and the catalog index at which they were resolved. Of two, the
/// one resolved at the higher index wins (NAM 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Catalog index at which the settings were resolved.
    pub resolved_at: CatalogIndex,
    /// Interface: classic or quorum.
    pub queue_type: QueueType,
    /// Survives a stop of the whole cluster.
    pub durable: bool,
    /// Ends with its last consumer (EXQ-05).
    pub auto_delete: bool,
    /// `x-max-priority`: the highest priority level.
    pub priority_max: Option<u8>,
    /// TTL of messages (`x-message-ttl`), ms.
    pub message_ttl_ms: Option<u64>,
    /// TTL of an unused queue (`x-expires`), ms.
    pub expires_ms: Option<u64>,
    /// Maximum of ready messages.
    pub length_max: Option<u64>,
    /// Maximum of bytes of ready bodies.
    pub length_bytes_max: Option<u64>,
    /// What happens to messages above a limit.
    pub overflow: Overflow,
    /// Maximum of counted returns of a message; `None`: unlimited.
    pub delivery_limit: Option<u32>,
    /// Count only returns that mean a failure.
    pub delivery_count_failures: bool,
    /// Dead-letter exchange, routing key and strategy.
    pub dead_letter: Option<DeadLetter>,
    /// One active consumer at a time.
    pub single_active_consumer: bool,
    /// Delivery-acknowledgement timeout, ms.
    pub consumer_timeout_ms: Option<u64>,
    /// Number of dead letters at which the queue accepts no more messages.
    pub letters_max: u64,
    /// The queue belongs to a delayed exchange (EXC-17).
    pub delays: bool,
    /// Which returned messages wait before they are ready again (RQU-07); from
    /// `MachineVersion::RETRIES` on.
    pub delayed_retry: Option<DelayedRetry>,
}

/// The destination of a queue's dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Exchange; empty is the default exchange.
    pub exchange: ShortString,
    /// Routing key that replaces the message's own.
    pub routing_key: Option<ShortString>,
    /// Letters that cannot be routed are kept.
    pub at_least_once: bool,
}

/// Delivery limit of a quorum queue without `x-delivery-limit` (Q-10, DLM-01).
pub const QUORUM_DELIVERY_LIMIT: u32 = 20;

impl QueueConfig {
    /// True if both are equal except for the index at which they were resolved.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        Self { resolved_at: other.resolved_at, ..self.clone() } == *other
    }

    /// A queue of this type without arguments, resolved at catalog index 0.
    #[must_use]
    pub fn plain(queue_type: QueueType) -> Self {
        Self {
            resolved_at: CatalogIndex(0),
            queue_type,
            durable: true,
            auto_delete: false,
            priority_max: None,
            message_ttl_ms: None,
            expires_ms: None,
            length_max: None,
            length_bytes_max: None,
            overflow: Overflow::DropHead,
            delivery_limit: match queue_type {
                QueueType::Classic => None,
                QueueType::Quorum => Some(QUORUM_DELIVERY_LIMIT),
            },
            delivery_count_failures: false,
            dead_letter: None,
            single_active_consumer: false,
            consumer_timeout_ms: None,
            letters_max: LETTERS_MAX,
            delays: false,
            delayed_retry: None,
        }
    }
}
