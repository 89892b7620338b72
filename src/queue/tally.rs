//! What is counted of dead letters, for metrics: why messages died, and what became of the letters.
//! Counted as it is applied and told as an effect, so that the leader counts it for all replicas.
//!
//! A message must count once, not once for each replica. An effect says how many messages died of
//! what in an entry. Effects of this kind are not owed: what a new leader applies before it
//! performs effects is not counted.

use crate::{
    apply::Apply,
    config::{DeadLetter, QueueConfig},
    death_reason::DeathReason,
    output::Effect,
};
use quorate_types::QueueType;
use std::collections::BTreeMap;

/// What a queue's settings say of its dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadLetterStrategy {
    /// There is no dead-letter exchange: what dies is dropped.
    Disabled,
    /// What cannot be routed is dropped.
    AtMostOnce,
    /// What cannot be routed is kept.
    AtLeastOnce,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadLetterFact {
    /// A message died.
    Died(DeathReason),
    /// A letter has got into every queue that it was routed to and that takes it.
    Confirmed,
    /// A letter was dropped, since nothing takes it or no dead-letter exchange is in force (LET 5).
    Unroutable,
    /// A letter was dropped, since it would go round in a circle.
    Cycle,
}

/// So often in one entry.
pub(crate) type Tally = BTreeMap<(QueueType, DeadLetterStrategy, DeadLetterFact), u64>;

impl DeadLetterStrategy {
    fn of(config: &QueueConfig) -> Self {
        match &config.dead_letter {
            None => Self::Disabled,
            Some(DeadLetter { at_least_once: false, .. }) => Self::AtMostOnce,
            Some(DeadLetter { at_least_once: true, .. }) => Self::AtLeastOnce,
        }
    }
}

impl Apply<'_> {
    /// Counts it for a queue with these settings. What a delayed exchange lets go has not died.
    pub(crate) fn count(&mut self, config: &QueueConfig, fact: DeadLetterFact) {
        if config.delays {
            return;
        }
        let of = (config.queue_type, DeadLetterStrategy::of(config), fact);
        *self.tally.entry(of).or_default() += 1;
    }

    /// What the entry counted.
    pub(crate) fn report_tally(&mut self) {
        for ((queue_type, strategy, fact), count) in std::mem::take(&mut self.tally) {
            self.effect(Effect::DeadLettersCounted { queue_type, strategy, fact, count });
        }
    }
}
