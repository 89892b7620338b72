//! The death of a message: a message leaves its queue without being acknowledged (DLX-01).

use crate::{
    apply::Apply,
    digest::{self, Step},
    letter::{Letter, Stage},
    queue::{Burial, Queue},
    record::QueuedMessage,
    tally::DeadLetterFact,
};
use quorate_types::CatalogIndex;

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
}

impl Queue {
    /// A message that was taken from its level (so that it counts as living) dies. All deaths go
    /// through this function; the caller subtracts them from the budget of the apply.
    ///
    /// If a dead-letter exchange is in force the message becomes a letter, else this command drops
    /// it (LET 1).
    pub(crate) fn die(
        &mut self,
        queued: QueuedMessage,
        reason: DeathReason,
        apply: &mut Apply<'_>,
    ) {
        apply.digest.step(Step::Die, digest::of_message(queued.message), reason as u64);
        apply.count(&self.config, DeadLetterFact::Died(reason));
        if self.config.dead_letter.is_none() {
            let mut burial = Burial::default();
            burial.add(&mut self.levels, queued.message);
            burial.end(&mut self.levels);
            return;
        }
        self.letters.push(Letter {
            message: queued.message,
            body_bytes: queued.head.body_bytes,
            reason,
            died_at: apply.group.wall,
            stage: Stage::Waiting { after: CatalogIndex(0) },
        });
        apply.outbox.waiting.insert(self.id);
        apply.letters_changed = true;
    }
}
