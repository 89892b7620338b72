//! The end of a message that nobody has settled: why it dies, and what becomes of it then (DLX-01).

use crate::{
    apply::Apply,
    digest::{self, Step},
    queue::{Burial, Queue},
    record::Held,
};

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
    /// Returned more often than the delivery limit allows (DLM-05).
    DeliveryLimit = 4,
}

impl Queue {
    /// A message that was taken from its level (so that it counts as living) dies. The one way for
    /// that to happen; settling is another thing. The caller
    /// spends of the apply's budget.
    pub(crate) fn die(&mut self, held: Held, reason: DeathReason, apply: &mut Apply<'_>) {
        apply.digest.step(Step::Die, digest::of_message(held.message), reason as u64);
        let mut burial = Burial::default();
        burial.add(&mut self.levels, held.message);
        burial.end(&mut self.levels);
    }
}
