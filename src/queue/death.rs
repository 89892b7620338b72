//! The end of a message that nobody has settled (DLX-01): it becomes a dead letter or is dropped.

use crate::{
    apply::Apply,
    death_reason::DeathReason,
    digest::{self, Step},
    letter::{Letter, Stage},
    queue::{Burial, Queue},
    record::QueuedMessage,
    tally::DeadLetterFact,
};
use quorate_types::CatalogIndex;

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
