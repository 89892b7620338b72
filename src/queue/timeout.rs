//! Delivery-acknowledgement timeout (CTO, Q-35): a delivery that is held too long is requeued,
//! marked and not counted. The consumer's client is informed, or its channel is closed; the
//! consumer gets no more deliveries until it has settled all that timed out (CTO-06).

use crate::{
    apply::Apply,
    consumer::Consumer,
    digest::{self, Step},
    output::Effect,
    queue::Queue,
    record::{GetsRecord, QueuedMessage},
    settle::{Fate, Marking},
};
use quorate_types::{ConsumerId, DeliveryNumber, Holder, Sequence, SessionId, Timestamp};

/// The first moment at which the message has been held for longer than the timeout.
fn end(queued: &QueuedMessage, timeout_ms: u64) -> Timestamp {
    queued.unacked_since.plus_ms(timeout_ms).plus_ms(1)
}

impl Consumer {
    /// The consumer's time to settle a delivery (CTO-04).
    fn timeout_ms(&self, of_queue: Option<u64>) -> Option<u64> {
        let terms = &self.terms;
        let timeout = terms.timeout_ms.or(of_queue).or(terms.timeout_default_ms);
        timeout.filter(|_| !terms.no_ack)
    }

    /// When the consumer's oldest delivery times out.
    fn next_timeout(&self, of_queue: Option<u64>) -> Option<Timestamp> {
        Some(end(&self.unacked.oldest()?, self.timeout_ms(of_queue)?))
    }
}

impl GetsRecord {
    /// When each of the gets times out (CTO-04).
    fn ends(&self, of_queue: Option<u64>) -> impl Iterator<Item = (Sequence, Timestamp)> + '_ {
        let timeout = of_queue.or(self.timeout_default_ms);
        self.unacked
            .iter()
            .filter_map(move |(sequence, queued)| Some((*sequence, end(queued, timeout?))))
    }
}

impl Queue {
    /// Requeues the messages that were held for too long.
    pub(crate) fn time_out(&mut self, apply: &mut Apply<'_>) {
        if self.timeout_at.is_none_or(|at| at > apply.now) {
            return;
        }
        let of_queue = self.config.consumer_timeout_ms;
        let due = |next: Option<Timestamp>| next.is_some_and(|end| end <= apply.now);
        let consumers = self.consumers.iter().filter(|(_, it)| due(it.next_timeout(of_queue)));
        let consumers: Vec<ConsumerId> = consumers.map(|(id, _)| *id).collect();
        let gets = self.gets.iter().flat_map(|(session, gets)| {
            let due = gets.ends(of_queue).filter(|(_, end)| *end <= apply.now);
            due.map(|(sequence, _)| (*session, sequence))
        });
        let gets: Vec<(SessionId, Sequence)> = gets.collect();
        for id in consumers {
            self.time_out_consumer(id, apply);
        }
        for (session, sequence) in gets {
            if apply.budget > 0 {
                self.end_get(
                    session,
                    sequence,
                    Fate::Back(Marking::Returned { counted: false }),
                    apply,
                );
                apply.effect(Effect::GetTimedOut { session, sequence });
            }
        }
        self.arm_timeout();
        if self.timeout_at.is_some_and(|at| at <= apply.now) {
            self.leave_stabilizing(apply);
        }
    }

    /// Requeues the consumer's timed-out deliveries, as many as the budget of this apply allows;
    /// the consumer gets no more.
    fn time_out_consumer(&mut self, id: ConsumerId, apply: &mut Apply<'_>) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let Some(ms) = consumer.timeout_ms(self.config.consumer_timeout_ms) else { return };
        let over = |queued: &QueuedMessage| end(queued, ms) <= apply.now;
        let deliveries = consumer.unacked.above(DeliveryNumber(0));
        let deliveries =
            deliveries.take_while(|(_, queued)| over(queued)).map(|(number, _)| number);
        let numbers: Vec<DeliveryNumber> = deliveries.take(apply.budget as usize).collect();
        let Some(last) = numbers.last().copied() else { return };
        if !consumer.cancelled {
            if consumer.timed_out.is_empty() {
                apply.effect(Effect::ConsumerTimedOut { consumer: id, last });
            }
            consumer.timed_out.extend(numbers);
            apply.digest.step(Step::TimeOut, digest::of_holder(Holder::Consumer(id)), last.0);
        }
        let range = (DeliveryNumber(0), last);
        self.end_range(
            id,
            range,
            usize::MAX,
            Fate::Back(Marking::Returned { counted: false }),
            apply,
        );
        self.lose_turn(id);
        self.change_consumer(id);
        self.forget_if_done(id, apply);
    }

    /// Deliveries that a consumer settles late, in whatever way, count as settled: after the last
    /// of them the consumer is served again (CTO-06).
    pub(crate) fn settle_late(
        &mut self,
        id: ConsumerId,
        numbers: &[(DeliveryNumber, DeliveryNumber)],
        apply: &mut Apply<'_>,
    ) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let before = consumer.timed_out.len();
        if before == 0 {
            return;
        }
        for (first, last) in numbers.iter().filter(|(first, last)| first <= last) {
            consumer.timed_out.extract_if(*first..=*last, |_| true).for_each(drop);
        }
        let left = consumer.timed_out.len();
        if left < before {
            apply.digest.step(Step::TimeOut, digest::of_holder(Holder::Consumer(id)), left as u64);
            self.change_consumer(id);
        }
    }

    /// Searches all unacked messages for the next timeout.
    pub(crate) fn arm_timeout(&mut self) {
        let of_queue = self.config.consumer_timeout_ms;
        let consumers = self.consumers.values().filter_map(|it| it.next_timeout(of_queue));
        let gets = self.gets.values().flat_map(|gets| gets.ends(of_queue)).map(|(_, end)| end);
        self.timeout_at = consumers.chain(gets).min();
    }

    /// Considers the deliveries of the present entry. If one was settled since, that is noticed
    /// when its time comes.
    pub(crate) fn note_timeouts(&mut self) {
        let of_queue = self.config.consumer_timeout_ms;
        let changed = self.changed_consumers.iter().filter_map(|id| self.consumers.get(id));
        let next = changed.filter_map(|consumer| consumer.next_timeout(of_queue)).min();
        self.timeout_at = [self.timeout_at, next].into_iter().flatten().min();
    }

    /// Considers a message that a get has taken.
    pub(crate) fn note_get_timeout(
        &mut self,
        queued: &QueuedMessage,
        timeout_default_ms: Option<u64>,
    ) {
        let timeout = self.config.consumer_timeout_ms.or(timeout_default_ms);
        let next = timeout.map(|ms| end(queued, ms));
        self.timeout_at = [self.timeout_at, next].into_iter().flatten().min();
    }
}
