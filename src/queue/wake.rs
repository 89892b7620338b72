//! The moment at which a queue has work without a command: the TTL of a first message or of the
//! queue itself runs out, a delivery times out, or a delay ends. The timer of the group's leader
//! then proposes `ExpireHead`.

use crate::{apply::Apply, machine::Machine, output::Effect, queue::Queue, store::StoreError};
use quorate_types::{QueueId, Timestamp};

impl Machine {
    /// `ExpireHead`: touches the queue, so that it is stabilized and expired messages die.
    pub(crate) fn expire_head(&mut self, id: QueueId, apply: &mut Apply<'_>) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.touch(apply);
        }
    }

    /// When the queue next has work without a command.
    #[must_use]
    pub fn wake_at(&self, queue: QueueId) -> Option<Timestamp> {
        self.queues.get(&queue)?.wake_at
    }
}

impl Queue {
    /// Ends the entry: emits the time at which the queue next has work. A time later than the one
    /// emitted before is not emitted, since the timer checks the queue again at the earlier time.
    pub(crate) fn set_wake(&mut self, apply: &mut Apply<'_>) -> Result<(), StoreError> {
        if self.ended {
            self.wake_at = None;
            return Ok(());
        }
        self.note_use(apply.now);
        self.note_timeouts();
        let expiry = self.next_expiry(apply)?;
        let due = self.letters.next_due();
        let next = [expiry, self.ttl_end(), self.timeout_at, due, self.next_retry()];
        let next = next.into_iter().flatten().min();
        let said = self.wake_at.filter(|at| *at > apply.now);
        self.wake_at = next;
        if let Some(time) = next.filter(|next| said.is_none_or(|said| *next < said)) {
            apply.effect(Effect::WakeAt { queue: self.id, time });
        }
        Ok(())
    }
}
