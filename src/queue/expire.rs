//! Message TTL (TTL, Q-20, Q-21): a message dies when it is the first of its level and has been in
//! the queue longer than the queue's present TTL or its own `expiration`, whichever is shorter.
//! Nothing is stored at enqueue, so a changed policy applies to messages that are already in the
//! queue.
//!
//! The clock may show the same millisecond for several entries, so a TTL of 0 is not measured by
//! the clock. A message with a TTL of 0 can be delivered by the entry that enqueues it, and has
//! expired in every later entry. A message that is requeued within the same millisecond
//! therefore dies too.

use crate::{
    apply::Apply,
    death_reason::DeathReason,
    level::Place,
    queue::{Queue, take_first_of},
    record::QueuedMessage,
    store::StoreError,
};
use quorate_types::{LogIndex, Timestamp};

/// The TTL rule of a queue at present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) queue_ttl_ms: Option<u64>,
}

/// Which of the first messages of the levels die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Those whose TTL has run out.
    Over,
    /// Also those with a TTL of 0 that the present command enqueued: no consumer could take them
    /// (TTL-07).
    OverOrZero,
}

impl Lifetime {
    /// The effective TTL of a message, ms.
    fn of(self, queued: &QueuedMessage) -> Option<u64> {
        match (self.queue_ttl_ms, queued.head.expiration_ms) {
            (Some(queue), Some(own)) => Some(queue.min(own)),
            (queue, own) => queue.or(own),
        }
    }

    /// True if the message has been in the queue longer than its TTL. A message of TTL 0 expires
    /// with the entry that enqueued it, whatever the clock shows; if it is requeued later it dies
    ///
    #[inline]
    pub(crate) fn is_over(self, queued: &QueuedMessage, now: Timestamp, entry: LogIndex) -> bool {
        self.of(queued).is_some_and(|ms| {
            now.ms_since(queued.enqueued_at) > ms || (ms == 0 && queued.message.index < entry)
        })
    }

    /// The first moment at which the message has expired.
    pub(crate) fn end(self, queued: &QueuedMessage) -> Option<Timestamp> {
        self.of(queued).map(|ms| queued.enqueued_at.plus_ms(ms).plus_ms(1))
    }
}

impl Queue {
    pub(crate) fn lifetime(&self) -> Lifetime {
        Lifetime { queue_ttl_ms: self.config.message_ttl_ms }
    }

    /// Lets expired messages at the heads of the levels die, as many as the budget of this apply
    /// allows; the rest is left for `Continue`.
    pub(crate) fn expire(
        &mut self,
        which: Expiry,
        apply: &mut Apply<'_>,
    ) -> Result<(), StoreError> {
        while let Some(place) = self.first_expired(which, apply)? {
            if apply.budget == 0 {
                self.leave_stabilizing(apply);
                break;
            }
            let Some(queued) = take_first_of(&mut self.levels, place, apply)? else { break };
            self.die(queued, DeathReason::Expired, apply);
            apply.spend(1);
        }
        Ok(())
    }

    /// The highest level whose first message has expired.
    fn first_expired(
        &mut self,
        which: Expiry,
        apply: &Apply<'_>,
    ) -> Result<Option<Place>, StoreError> {
        let lifetime = self.lifetime();
        let (queue, served) = (self.id, self.attached > 0);
        for (level, state) in self.levels.iter_mut().rev() {
            if lifetime.queue_ttl_ms.is_none() && !state.has_expiring() {
                continue;
            }
            let place = Place { queue, level: *level, served };
            let Some(queued) = state.first(place, apply)? else { continue };
            let zero = which == Expiry::OverOrZero && lifetime.of(&queued) == Some(0);
            if zero || lifetime.is_over(&queued, apply.now, apply.index) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// The earliest moment at which the first message of a level expires.
    pub(crate) fn next_expiry(
        &mut self,
        apply: &Apply<'_>,
    ) -> Result<Option<Timestamp>, StoreError> {
        let lifetime = self.lifetime();
        let (queue, served) = (self.id, self.attached > 0);
        let mut next = None;
        for (level, state) in &mut self.levels {
            if lifetime.queue_ttl_ms.is_none() && !state.has_expiring() {
                continue;
            }
            let first = state.first(Place { queue, level: *level, served }, apply)?;
            let end = first.and_then(|queued| lifetime.end(&queued));
            next = [next, end].into_iter().flatten().min();
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::Lifetime;
    use crate::{Counts, MessageHead, QueuedMessage};
    use proptest::prelude::*;
    use quorate_types::{Level, LogIndex, MessageId, Timestamp};

    fn ms() -> impl Strategy<Value = Option<u64>> {
        prop::option::of(prop_oneof![0u64..50, Just(315_360_000_000)])
    }

    proptest! {
        /// the shorter of both TTLs counts at any moment; the end is the first moment beyond
        /// it.
        #[test]
        fn q_20_the_lower_of_both_counts(queue in ms(), own in ms(), at in 0u64..1_000, after in 0u64..120) {
            let queued = QueuedMessage {
                message: MessageId { level: Level(0), index: LogIndex(1), position: 0 },
                counts: Counts::default(),
                head: MessageHead { body_bytes: 1, expiration_ms: own },
                enqueued_at: Timestamp(at),
                unacked_since: Timestamp(0),
            };
            let lifetime = Lifetime { queue_ttl_ms: queue };
            let entry = queued.message.index;
            let over = queue.is_some_and(|ms| after > ms) || own.is_some_and(|ms| after > ms);
            prop_assert_eq!(lifetime.is_over(&queued, Timestamp(at + after), entry), over);
            let zero = queue == Some(0) || own == Some(0);
            prop_assert_eq!(lifetime.is_over(&queued, Timestamp(at + after), entry.next()), over || zero);
            let ended = lifetime.end(&queued).is_some_and(|end| end <= Timestamp(at + after));
            prop_assert_eq!(ended, over);
        }
    }
}
