//! The moment at which a queue has something to do though nobody says anything: a first message, a
//! delivery or the queue itself expires, a delayed message's time comes. Its leader's timer then proposes `ExpireHead`.

use crate::{apply::Apply, machine::Machine, output::Effect, queue::Queue, store::StoreError};
use quorate_types::{QueueId, Timestamp};

impl Machine {
    /// `ExpireHead`: what has expired is looked at when the queue is stabilized.
    pub(crate) fn expire_head(&mut self, id: QueueId, apply: &mut Apply<'_>) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.touch(apply);
        }
    }

    /// When the queue next has something to do that no command brings.
    #[must_use]
    pub fn wake_at(&self, queue: QueueId) -> Option<Timestamp> {
        self.queues.get(&queue)?.wake_at
    }
}

impl Queue {
    /// Ends the entry: says when the queue has something to do next. A later moment than the one
    /// said before is not said, since the timer looks again when that comes.
    pub(crate) fn set_wake(&mut self, apply: &mut Apply<'_>) -> Result<(), StoreError> {
        if self.ended {
            self.wake_at = None;
            return Ok(());
        }
        self.note_use(apply.now);
        self.note_timeouts();
        let expiry = self.next_expiry(apply)?;
        let due = self.letters.next_due();
        let next = [expiry, self.ttl_end(), self.timeout_at, due].into_iter().flatten().min();
        let said = self.wake_at.filter(|at| *at > apply.now);
        self.wake_at = next;
        if let Some(time) = next.filter(|next| said.is_none_or(|said| *next < said)) {
            apply.effect(Effect::WakeAt { queue: self.id, time });
        }
        Ok(())
    }
}
