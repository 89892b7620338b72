//! Check-out: assigns ready messages to consumers with free credit, one by one, round robin among
//! consumers of equal priority. Assignments are part of the state (DESIGN §4, CON-08, Q-36).

use crate::{
    apply::Apply,
    consumer::Consumer,
    death_reason::DeathReason,
    digest::{self, Step},
    output::{Delivery, Effect},
    queue::{Queue, take_first},
    record::{LeftOver, QueuedMessage},
    store::StoreError,
};
use quorate_types::{ConsumerId, DeliveryNumber, Holder, QueueId};

impl Queue {
    /// Leaves the rest of the stabilization for `Continue`.
    pub(crate) fn leave_stabilizing(&mut self, apply: &mut Apply<'_>) {
        if !self.stabilizing_left {
            self.stabilizing_left = true;
            apply.leave(LeftOver::CheckOut { queue: self.id });
        }
    }

    /// Assigns until no message is ready, no consumer has credit, or the budget of this apply is
    /// spent.
    pub(crate) fn check_out(&mut self, apply: &mut Apply<'_>) -> Result<(), StoreError> {
        while let Some(id) = self.service_queue.first() {
            if apply.budget == 0 {
                if self.ready() > 0 {
                    self.leave_stabilizing(apply);
                }
                break;
            }
            if self.serve(id, apply)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Serves the consumer whose turn it is: one message, or all that it may have if no other
    /// consumer has the same priority. Returns the number of messages and turns that it used; 0
    /// means that no message is ready.
    fn serve(&mut self, id: ConsumerId, apply: &mut Apply<'_>) -> Result<u64, StoreError> {
        let lifetime = self.lifetime();
        let alone = self.service_queue.first_is_alone();
        let Some(consumer) = self.consumers.get_mut(&id) else {
            debug_assert!(false, "consumer {id:?} has a turn and does not exist");
            self.service_queue.pop();
            return Ok(1);
        };
        let room = consumer.room();
        let most = if alone { room.min(u64::from(apply.budget)) } else { room.min(1) };
        let holder = digest::of_holder(Holder::Consumer(id));
        let (mut served, mut redelivered, mut expired) = (0, 0, Vec::new());
        while served + (expired.len() as u64) < most {
            let Some(queued) = take_first(&mut self.levels, self.id, true, apply)? else { break };
            if lifetime.is_over(&queued, apply.now, apply.index) {
                expired.push(queued);
            } else {
                redelivered += u64::from(queued.counts.acquired > 0);
                self.unacked.add(&queued);
                consumer.assign(self.id, id, holder, queued, apply);
                served += 1;
            }
        }
        let handled = served + expired.len() as u64;
        apply.spend(usize::try_from(handled).unwrap_or(usize::MAX));
        self.traffic.assigned(served, redelivered, consumer.terms.no_ack);
        if served > 0 && !consumer.changed {
            self.change_consumer(id);
        }
        for queued in expired {
            self.die(queued, DeathReason::Expired, apply);
        }
        if served == room {
            self.lose_first_turn(id);
            return Ok(handled.max(1));
        }
        if served > 0 && !alone {
            self.service_queue.rotate();
        }
        Ok(handled)
    }

    fn lose_first_turn(&mut self, id: ConsumerId) {
        self.service_queue.pop();
        if let Some(consumer) = self.consumers.get_mut(&id) {
            consumer.in_service_queue = false;
        }
    }
}

impl Consumer {
    #[inline]
    fn assign(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        holder: u64,
        mut queued: QueuedMessage,
        apply: &mut Apply<'_>,
    ) {
        if queued.counts.acquired == 0 {
            apply.waits.add(queued.enqueued_at, apply.now);
        }
        queued.unacked_since = apply.now;
        let number = self.next;
        self.next = DeliveryNumber(number.0 + 1);
        self.unacked.push(number, queued);
        let QueuedMessage { message, counts, .. } = queued;
        let word = holder ^ number.0.rotate_left(32);
        apply.digest.step(Step::Assign, digest::of_message(message), word);
        apply.effect(Effect::Deliver(Delivery { consumer, number, queue, message, counts }));
    }
}
