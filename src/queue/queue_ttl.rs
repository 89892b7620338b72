//! Queue TTL (EXP, Q-22): a queue ends if it was not used for the time of its TTL. Consumers,
//! `basic.get` and redeclares use a queue; its messages do not.

use crate::{apply::Apply, machine::Machine, queue::Queue};
use quorate_types::{QueueId, QueueType, Timestamp};

impl Machine {
    /// Ends the queue if its TTL has run out.
    pub(crate) fn end_if_unused(&mut self, id: QueueId, apply: &mut Apply<'_>) -> bool {
        let Some(queue) = self.queues.get_mut(&id) else { return true };
        queue.note_use(apply.now);
        let ends = queue.ttl_end().is_some_and(|end| end <= apply.now);
        if ends {
            self.end(id, apply);
        }
        ends
    }
}

impl Queue {
    /// Sets the time of last use to now if the queue is in use, or was until now.
    pub(crate) fn note_use(&mut self, now: Timestamp) {
        let in_use = self.has_ttl_in_use();
        if in_use || self.in_use {
            self.used_at = now;
        }
        self.in_use = in_use;
    }

    /// True if the queue has a TTL that does not run at present.
    pub(crate) fn has_ttl_in_use(&self) -> bool {
        self.config.expires_ms.is_some() && self.is_used()
    }

    /// When the queue ends if it is not used before.
    pub(crate) fn ttl_end(&self) -> Option<Timestamp> {
        let ttl = self.config.expires_ms?;
        (!self.is_used()).then(|| self.used_at.plus_ms(ttl))
    }

    /// A consumer uses the queue, but not while its node is suspected. Messages of a quorum queue
    /// that are unacked after a cancel or by a get use it too (EXP-03).
    pub(crate) fn is_used(&self) -> bool {
        let holders_count = self.config.queue_type == QueueType::Quorum;
        let mut consumers = self.consumers.values().filter(|consumer| !consumer.suspected);
        consumers.any(|consumer| !consumer.cancelled || holders_count)
            || (holders_count && !self.gets.is_empty())
    }
}
