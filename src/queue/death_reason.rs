//! Why messages die.

/// Why a message died (DLX-01). The number is part of the digest, so it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DeathReason {
    /// `basic.reject` or `basic.nack` without requeue.
    Rejected = 1,
    /// Its TTL has run out.
    Expired = 2,
    /// A length limit was exceeded (LEN-04, LEN-12).
    MaxLength = 3,
    /// Requeued more often than the delivery limit allows (DLM-05).
    DeliveryLimit = 4,
    /// The message has not died: its delay in the queue of a delayed exchange is over (EXC-17).
    Delayed = 5,
    /// The message has not died: a task takes it to other queues.
    Redriven = 6,
}
