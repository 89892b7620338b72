//! Single active consumer (SAC): a queue that was declared with it serves one consumer at a time;
//! the others wait until it is their turn.

use crate::{
    apply::Apply,
    consumer::Consumer,
    digest::{self, Step},
    queue::Queue,
};
use quorate_types::{ConsumerId, Holder, QueueType};
use std::cmp::Reverse;

impl Consumer {
    fn may_be_active(&self) -> bool {
        !self.cancelled && self.timed_out.is_empty()
    }
}

impl Queue {
    /// True if only the active consumer may be served, and this is another one.
    #[inline]
    pub(crate) fn waits_inactive(&self, id: ConsumerId) -> bool {
        self.config.single_active_consumer && self.active != Some(id)
    }

    /// Selects the active consumer. The active one stays while it is attached and has no timed-out
    /// delivery, whether its node is suspected or not (NDF-05). On a quorum queue it yields to a
    /// consumer of higher priority: it gets no more deliveries, and is replaced once it holds
    /// nothing (SAC-05).
    pub(crate) fn choose_active(&mut self, apply: &mut Apply<'_>) {
        if !self.config.single_active_consumer {
            return;
        }
        let present = self.active.filter(|id| self.may_be_active(*id));
        let best = self.best_waiting();
        let next = match (present, best) {
            (Some(present), Some(best)) if self.precedes(best, present) => {
                let busy = self.consumers.get(&present).is_some_and(|it| !it.unacked.is_empty());
                if busy {
                    self.lose_turn(present);
                    return;
                }
                Some(best)
            }
            (Some(present), Some(_) | None) => Some(present),
            // The messages of a lost consumer are requeued first (SAC-03).
            (None, _) if self.consumers.values().any(|consumer| consumer.lost) => None,
            (None, best) => best,
        };
        self.activate(next, apply);
    }

    fn may_be_active(&self, id: ConsumerId) -> bool {
        self.consumers.get(&id).is_some_and(|consumer| consumer.may_be_active())
    }

    /// The next active consumer: of those whose node is reachable, the first to attach, on a quorum
    /// queue among those of the highest priority (SAC-05, SAC-06).
    fn best_waiting(&self) -> Option<ConsumerId> {
        let waiting = self.consumers.iter().filter(|(id, consumer)| {
            consumer.may_be_active() && !consumer.suspected && self.active != Some(**id)
        });
        let first = waiting.min_by_key(|(_, it)| (Reverse(self.priority(it)), it.arrival));
        first.map(|(id, _)| *id)
    }

    fn priority(&self, consumer: &Consumer) -> i64 {
        match self.config.queue_type {
            QueueType::Quorum => consumer.terms.priority,
            QueueType::Classic => 0,
        }
    }

    /// True if the first consumer has a higher priority than the second.
    fn precedes(&self, one: ConsumerId, other: ConsumerId) -> bool {
        let priority = |id| self.consumers.get(&id).map(|consumer| self.priority(consumer));
        priority(one) > priority(other)
    }

    fn activate(&mut self, next: Option<ConsumerId>, apply: &mut Apply<'_>) {
        if next != self.active {
            if let Some(before) = std::mem::replace(&mut self.active, next) {
                self.lose_turn(before);
            }
            let word = next.map_or(0, |id| digest::of_holder(Holder::Consumer(id)));
            apply.digest.step(Step::Activate, digest::of_queue(self.id), word);
        }
        if let Some(active) = next {
            self.regain_turn(active);
        }
    }
}
