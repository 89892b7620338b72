//! Why messages die.

/// Why a message died (DLX-01). The number is part of the digest, so a variant keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DeathReason {
    /// `basic.reject` or `basic.nack` without requeue.
    Rejected = 1,
    /// Its time to live is over.
    Expired = 2,
    /// A length limit was exceeded (LEN-04, LEN-12).
    MaxLength = 3,
    /// Requeued more often than the delivery limit allows (DLM-05).
    DeliveryLimit = 4,
    /// None: the time has come that a delayed exchange kept it until (EXC-17).
    Delayed = 5,
}
