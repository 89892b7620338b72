//! Commands that end a delivery: `Ack`, `Discard`, `Requeue`, `Release` (ACK-06 to ACK-10, DLV 3).
//! They name holder and numbers, never messages; numbers that are not held any more are ignored.

use crate::{
    apply::Apply,
    command::RequeueCause,
    consumer::ALL,
    death_reason::DeathReason,
    digest::{self, Digest, Step},
    level::LevelState,
    machine::Machine,
    queue::{Burial, Queue},
    record::QueuedMessage,
};
use quorate_types::{ConsumerId, DeliveryNumber, Holder, Level, Sequence, SessionId, Timestamp};
use std::collections::BTreeMap;

/// What happens to a message when its delivery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is settled.
    Done,
    /// It dies for this reason.
    Dies(DeathReason),
    /// It is requeued at its old position, at once or after a delay (RQU-07).
    Back(Marking),
}

/// How a requeued message is marked (CON-20, Q-31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marking {
    /// Unmarked: the client was not shown the message.
    Unseen,
    /// Marked as redelivered; no failure.
    Returned {
        /// It counts towards the delivery limit.
        counted: bool,
    },
    /// Marked as redelivered, and counted towards the delivery limit, since the client failed.
    Failed,
}

impl Machine {
    /// `Ack` and `Discard`.
    pub(crate) fn settle(
        &mut self,
        holder: Holder,
        numbers: &[(DeliveryNumber, DeliveryNumber)],
        fate: Fate,
        apply: &mut Apply<'_>,
    ) {
        self.end_deliveries(holder, numbers, |_| fate, apply);
    }

    /// `Requeue`. In count mode `failures`, nack and recover do not count.
    pub(crate) fn requeue(
        &mut self,
        holder: Holder,
        numbers: &[(DeliveryNumber, DeliveryNumber)],
        cause: RequeueCause,
        apply: &mut Apply<'_>,
    ) {
        let fate = |queue: &Queue| {
            Fate::Back(match cause {
                RequeueCause::Nack | RequeueCause::Recover => {
                    Marking::Returned { counted: !queue.config.delivery_count_failures }
                }
                RequeueCause::Reject | RequeueCause::ChannelEnd => Marking::Failed,
            })
        };
        self.end_deliveries(holder, numbers, fate, apply);
    }

    /// `Release`: requeues unmarked. A consumer then waits for its `Credit` (DLV 6), a get ends
    /// (SES 7).
    pub(crate) fn release(
        &mut self,
        holder: Holder,
        numbers: &[(DeliveryNumber, DeliveryNumber)],
        apply: &mut Apply<'_>,
    ) {
        if let Holder::Consumer(id) = holder
            && let Some(queue) = self.queue_of(holder, apply)
            && let Some(consumer) = queue.consumers.get_mut(&id)
        {
            consumer.paused = true;
            apply.digest.step(Step::Pause, digest::of_holder(holder), 0);
            queue.lose_turn(id);
            queue.change_consumer(id);
        }
        self.end_deliveries(holder, numbers, |_| Fate::Back(Marking::Unseen), apply);
    }

    fn end_deliveries(
        &mut self,
        holder: Holder,
        numbers: &[(DeliveryNumber, DeliveryNumber)],
        fate: impl FnOnce(&Queue) -> Fate,
        apply: &mut Apply<'_>,
    ) {
        // The queue has ended, or the holder holds nothing any more (ACK-11, DLV 3).
        let Some(queue) = self.queue_of(holder, apply) else { return };
        queue.touch(apply);
        let fate = fate(queue);
        queue.end_deliveries(holder, numbers, fate, apply);
        if let Holder::Consumer(id) = holder {
            queue.settle_late(id, numbers, apply);
            queue.regain_turn(id);
            queue.forget_if_done(id, apply);
        }
    }
}

impl Queue {
    /// Ends the deliveries of these numbers.
    pub(crate) fn end_deliveries(
        &mut self,
        holder: Holder,
        numbers: &[(DeliveryNumber, DeliveryNumber)],
        fate: Fate,
        apply: &mut Apply<'_>,
    ) {
        match holder {
            Holder::Consumer(id) => {
                for range in numbers {
                    self.end_range(id, *range, usize::MAX, fate, apply);
                }
            }
            Holder::Get(session, sequence) => {
                let one = DeliveryNumber(1);
                if numbers.iter().any(|(first, last)| (*first..=*last).contains(&one)) {
                    self.end_get(session, sequence, fate, apply);
                }
            }
        }
    }

    /// Ends at most `limit` of a consumer's deliveries in a range. Returns their number.
    pub(crate) fn end_range(
        &mut self,
        id: ConsumerId,
        (first, last): (DeliveryNumber, DeliveryNumber),
        limit: usize,
        fate: Fate,
        apply: &mut Apply<'_>,
    ) -> usize {
        let Some(consumer) = self.consumers.get_mut(&id) else { return 0 };
        let no_ack = consumer.terms.no_ack;
        let (levels, unacked) = (&mut self.levels, &mut self.unacked);
        let (retry, limit_of_returns) = (self.config.delayed_retry, self.config.delivery_limit);
        let (digest, now) = (&mut apply.digest, apply.now);
        let mut delayed = 0;
        let mut burial = Burial::default();
        let mut dying = Vec::new();
        let taken = consumer.unacked.take(first, last, limit, |queued| {
            unacked.remove(&queued);
            match fate {
                Fate::Done => burial.add(levels, queued.message),
                Fate::Dies(reason) => dying.push((queued, reason)),
                Fate::Back(marking) => {
                    let queued = mark(queued, marking);
                    if is_given_up(&queued, marking, limit_of_returns) {
                        dying.push((queued, DeathReason::DeliveryLimit));
                    } else {
                        let until = retry.and_then(|retry| retry.until(&queued, marking, now));
                        delayed += u64::from(until.is_some());
                        put_back(levels, queued, until, digest);
                    }
                }
            }
        });
        burial.end(levels);
        if taken > 0 {
            digest.step(Step::Settle, digest::of_holder(Holder::Consumer(id)), first.0);
            digest.step(Step::Settle, last.0, taken as u64);
            if fate == Fate::Done && !no_ack {
                self.traffic.acknowledged += taken as u64;
            }
            self.arrived += taken as u64 - delayed;
            apply.spend(taken);
            self.change_consumer(id);
        }
        for (queued, reason) in dying {
            self.die(queued, reason, apply);
        }
        taken
    }

    /// Ends a get's one delivery.
    pub(crate) fn end_get(
        &mut self,
        session: SessionId,
        sequence: Sequence,
        fate: Fate,
        apply: &mut Apply<'_>,
    ) {
        let Some(gets) = self.gets.get_mut(&session) else { return };
        let Some(queued) = gets.unacked.remove(&sequence) else { return };
        if gets.unacked.is_empty() {
            self.gets.remove(&session);
        }
        self.unacked.remove(&queued);
        match fate {
            Fate::Dies(reason) => self.die(queued, reason, apply),
            Fate::Done => {
                self.traffic.acknowledged += 1;
                let mut burial = Burial::default();
                burial.add(&mut self.levels, queued.message);
                burial.end(&mut self.levels);
            }
            Fate::Back(marking) => {
                let queued = mark(queued, marking);
                if is_given_up(&queued, marking, self.config.delivery_limit) {
                    self.die(queued, DeathReason::DeliveryLimit, apply);
                } else {
                    let retry = self.config.delayed_retry;
                    let until = retry.and_then(|retry| retry.until(&queued, marking, apply.now));
                    put_back(&mut self.levels, queued, until, &mut apply.digest);
                    self.arrived += u64::from(until.is_none());
                }
            }
        }
        let holder = digest::of_holder(Holder::Get(session, sequence));
        apply.digest.step(Step::Settle, holder, 1);
        apply.spend(1);
        apply.holders.gets.remove(&(session, sequence));
        self.change_gets(session);
    }

    /// Requeues the messages of a consumer, at most `limit`. Returns their number.
    pub(crate) fn return_all(
        &mut self,
        id: ConsumerId,
        limit: usize,
        marking: Marking,
        apply: &mut Apply<'_>,
    ) -> usize {
        self.end_range(id, ALL, limit, Fate::Back(marking), apply)
    }
}

/// Records in a requeued message how it was held.
fn mark(mut queued: QueuedMessage, marking: Marking) -> QueuedMessage {
    let counts = &mut queued.counts;
    match marking {
        Marking::Unseen => {}
        Marking::Returned { counted: false } => {
            counts.acquired = counts.acquired.saturating_add(1);
        }
        Marking::Returned { counted: true } | Marking::Failed => {
            counts.acquired = counts.acquired.saturating_add(1);
            counts.returned = counts.returned.saturating_add(1);
        }
    }
    queued
}

/// True if the message's counted returns exceed the limit: then it dies at the return (DLM-04). A
/// lowered limit takes effect at the next counted return (DLM-06).
fn is_given_up(queued: &QueuedMessage, marking: Marking, limit: Option<u32>) -> bool {
    let counts = matches!(marking, Marking::Returned { counted: true } | Marking::Failed);
    counts && limit.is_some_and(|limit| queued.counts.returned > limit)
}

/// Puts a returned message back, at once or `until` a moment.
fn put_back(
    levels: &mut BTreeMap<Level, Box<LevelState>>,
    queued: QueuedMessage,
    until: Option<Timestamp>,
    digest: &mut Digest,
) {
    let counts = queued.counts;
    let words = u64::from(counts.acquired) << 32 | u64::from(counts.returned);
    digest.step(Step::Requeue, digest::of_message(queued.message), words);
    let Some(level) = levels.get_mut(&queued.message.level) else { return };
    match until {
        None => level.requeue(queued),
        Some(until) => {
            digest.step(Step::Delay, digest::of_message(queued.message), until.0);
            level.delay(queued, until);
        }
    }
}
