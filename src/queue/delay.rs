//! The queue of a delayed exchange (EXC-17): its messages never become ready. An enqueued message
//! is stored as a letter until its time, and is then routed like dead letters are, at least once.

use crate::{
    apply::Apply,
    death_reason::DeathReason,
    digest::{self, Step},
    letter::{Letter, Stage},
    queue::Queue,
    store::StoreError,
};
use quorate_types::CatalogIndex;

impl Queue {
    /// Delays the messages that the present command has enqueued. A message's `expiration_ms` is
    /// its delay here.
    pub(crate) fn delay_arrivals(&mut self, apply: &mut Apply<'_>) -> Result<(), StoreError> {
        if !self.config.delays {
            return Ok(());
        }
        while let Some(queued) = self.take_first(apply)? {
            let until = queued.enqueued_at.plus_ms(queued.head.expiration_ms.unwrap_or(0));
            apply.digest.step(Step::Delay, digest::of_message(queued.message), until.0);
            self.letters.push(Letter {
                message: queued.message,
                body_bytes: queued.head.body_bytes,
                reason: DeathReason::Delayed,
                died_at: apply.group.wall,
                stage: Stage::Delayed { until },
            });
            apply.spend(1);
        }
        Ok(())
    }

    /// Releases the letters whose time has come, in the order of their times, as many as the budget
    /// of this apply allows.
    pub(crate) fn release_due(&mut self, apply: &mut Apply<'_>) {
        while self.letters.next_due().is_some_and(|due| due <= apply.now) {
            if apply.budget == 0 {
                self.leave_stabilizing(apply);
                break;
            }
            let Some(letter) = self.letters.take_due() else { break };
            apply.digest.step(Step::Delay, digest::of_message(letter.message), 0);
            // A new number, since letters are routed in the order of their numbers.
            let stage = Stage::Waiting { after: CatalogIndex(0) };
            self.letters.push(Letter { died_at: apply.group.wall, stage, ..letter });
            apply.outbox.waiting.insert(self.id);
            apply.letters_changed = true;
            apply.spend(1);
        }
    }
}
