//! Single active consumer (SAC): of a queue that was declared so, one consumer at a time is served,
//! the others wait for their turn.

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
    /// Whether only the active consumer may be served, and this is another one.
    #[inline]
    pub(crate) fn waits_inactive(&self, id: ConsumerId) -> bool {
        self.config.single_active_consumer && self.active != Some(id)
    }

    /// Decides who is active. The active one stays while it is there and in time, its node
    /// suspected or not (NDF-05); on a quorum queue it makes way for one of higher priority, gets
    /// nothing more, and is replaced once it holds nothing (SAC-05).
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
            // What a lost consumer held returns first (SAC-03).
            (None, _) if self.consumers.values().any(|consumer| consumer.lost) => None,
            (None, best) => best,
        };
        self.activate(next, apply);
    }

    fn may_be_active(&self, id: ConsumerId) -> bool {
        self.consumers.get(&id).is_some_and(|consumer| consumer.may_be_active())
    }

    /// Who comes next: of those whose node is up, the one of highest priority (on a quorum queue:
    /// SAC-05, SAC-06) that came first.
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

    /// Whether the one is of higher priority than the other.
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
