//! Delayed retry (RQU-07, RQU-08): a returned message waits before it becomes ready again, at its
//! old position. While it waits it is neither ready nor unacked: no consumer gets it, and it is not
//! counted towards limits. It is looked at for its expiry when its time has come.

use crate::{
    apply::Apply,
    command::Counts,
    digest::{self, Step},
    level::LevelState,
    queue::Queue,
    record::QueuedMessage,
    settle::Marking,
};
use quorate_types::{Level, Timestamp};

/// Which returned messages wait, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedRetry {
    /// The returns after which a message waits.
    pub after: RetryAfter,
    /// The wait after the first delivery, ms; above 0.
    pub min_ms: u64,
    /// The longest wait, ms; at least `min_ms`.
    pub max_ms: u64,
    /// Each further delivery multiplies the wait by this; `None`: it adds `min_ms` (RQU-07).
    pub multiplier: Option<u32>,
}

/// The returns after which a message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// Every return of a message that its client was shown.
    All,
    /// Returns that mean a failure: `basic.reject`, the end of a channel, a dead node.
    Failed,
    /// All others: `basic.nack`, `basic.recover`, a timeout, a node that cannot be reached.
    Returned,
}

impl RetryAfter {
    /// Its name in arguments and policies; `None` for `disabled` and for what is no name (ARG-16).
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "all" => Some(Self::All),
            "failed" => Some(Self::Failed),
            "returned" => Some(Self::Returned),
            _ => None,
        }
    }

    /// Its name in arguments and policies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Failed => "failed",
            Self::Returned => "returned",
        }
    }

    fn includes(self, marking: Marking) -> bool {
        match (self, marking) {
            (_, Marking::Unseen)
            | (Self::Failed, Marking::Returned { .. })
            | (Self::Returned, Marking::Failed) => false,
            (Self::All, Marking::Returned { .. } | Marking::Failed)
            | (Self::Failed, Marking::Failed)
            | (Self::Returned, Marking::Returned { .. }) => true,
        }
    }
}

impl DelayedRetry {
    /// How long a message with these counts waits, ms (RQU-07).
    #[must_use]
    pub fn wait_ms(&self, counts: Counts) -> u64 {
        let deliveries = counts.acquired.max(1);
        let factor = match self.multiplier {
            None => u64::from(deliveries),
            Some(multiplier) => u64::from(multiplier).saturating_pow(deliveries - 1),
        };
        self.min_ms.saturating_mul(factor).min(self.max_ms)
    }

    /// Until when a message that was returned just now waits; `None`: it is ready at once.
    pub(crate) fn until(
        &self,
        queued: &QueuedMessage,
        marking: Marking,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.after.includes(marking).then(|| now.plus_ms(self.wait_ms(queued.counts)))
    }
}

impl LevelState {
    /// Lets a returned message wait until a moment.
    pub(crate) fn delay(&mut self, mut queued: QueuedMessage, until: Timestamp) {
        queued.unacked_since = Timestamp(0);
        self.delayed.insert(until, queued);
    }

    /// Makes the first delayed message ready.
    fn end_delay(&mut self) -> Option<QueuedMessage> {
        let queued = self.delayed.pop_first()?;
        self.requeue(queued);
        Some(queued)
    }

    /// Drops all delayed messages. Returns their number.
    pub(crate) fn forget_retries(&mut self) -> u64 {
        let forgotten = self.delayed.clear();
        let count = forgotten.len() as u64;
        forgotten.for_each(|index| self.living.subtract(index, 1));
        count
    }
}

impl Queue {
    /// Number of returned messages that wait.
    pub(crate) fn retries(&self) -> u64 {
        self.levels.values().map(|state| state.delayed.len() as u64).sum()
    }

    /// When the first returned message becomes ready.
    pub(crate) fn next_retry(&self) -> Option<Timestamp> {
        self.levels.values().filter_map(|state| state.delayed.next()).min()
    }

    /// The settings have changed: no message waits longer than a return of now would (RQU-07).
    pub(crate) fn shorten_delays(&mut self, now: Timestamp) {
        let longest_ms = self.config.delayed_retry.map_or(0, |retry| retry.max_ms);
        let latest = now.plus_ms(longest_ms);
        self.levels.values_mut().for_each(|state| state.delayed.end_by(latest));
    }

    /// Makes the messages ready whose time has come, as many as the budget of this apply allows.
    pub(crate) fn end_delays(&mut self, apply: &mut Apply<'_>) {
        while let Some(level) = self.first_due(apply.now) {
            if apply.budget == 0 {
                self.leave_stabilizing(apply);
                break;
            }
            let queued = self.levels.get_mut(&level).and_then(|state| state.end_delay());
            let Some(queued) = queued else { break };
            apply.digest.step(Step::Delay, digest::of_message(queued.message), 0);
            self.arrived += 1;
            apply.spend(1);
        }
    }

    /// The level whose first delayed message is due, of the earliest time.
    fn first_due(&self, now: Timestamp) -> Option<Level> {
        let levels = self.levels.iter();
        let next = levels.filter_map(|(level, state)| Some((state.delayed.next()?, *level)));
        let first = next.min()?;
        (first.0 <= now).then_some(first.1)
    }
}

#[cfg(test)]
mod tests {
    use super::{DelayedRetry, RetryAfter};
    use crate::Counts;

    fn waits(retry: DelayedRetry) -> Vec<u64> {
        let wait = |acquired| retry.wait_ms(Counts { acquired, returned: 0 });
        [0, 1, 2, 3, 4, u32::MAX].map(wait).to_vec()
    }

    #[test]
    fn rqu_07_the_wait_grows_with_the_deliveries_up_to_the_maximum() {
        let linear =
            DelayedRetry { after: RetryAfter::All, min_ms: 100, max_ms: 350, multiplier: None };
        assert_eq!(waits(linear), [100, 100, 200, 300, 350, 350]);
        let doubling = DelayedRetry { multiplier: Some(2), max_ms: 700, ..linear };
        assert_eq!(waits(doubling), [100, 100, 200, 400, 700, 700]);
        let constant = DelayedRetry { multiplier: Some(1), max_ms: u64::MAX, ..linear };
        assert_eq!(waits(constant), [100; 6]);
    }
}
