//! Counts of dead letters, for metrics: why messages died, and how letters ended. Counted in apply
//! and returned as an effect, so that the leader counts for all replicas.
//!
//! A message must count once, not once for each replica. An effect says how many messages of an
//! entry died for a reason. Effects of this kind are not owed: what a new leader applies before it
//! performs effects is not counted.

use crate::{
    apply::Apply,
    config::{DeadLetter, QueueConfig},
    death_reason::DeathReason,
    output::Effect,
};
use quorate_types::QueueType;
use std::collections::BTreeMap;

/// A queue's dead-letter strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadLetterStrategy {
    /// There is no dead-letter exchange: messages that die are dropped.
    Disabled,
    /// Unroutable letters are dropped.
    AtMostOnce,
    /// Unroutable letters are kept.
    AtLeastOnce,
}

/// A counted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadLetterFact {
    /// A message died.
    Died(DeathReason),
    /// A letter was accepted by every queue that it was routed to, except ended ones.
    Confirmed,
    /// A letter was dropped because it has no destination or no dead-letter exchange is in force
    /// (LET 5).
    Unroutable,
    /// A letter was dropped because it would go round in a cycle.
    Cycle,
}

/// Number of each event in one entry.
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
    /// Counts an event for a queue with these settings. Messages that a delayed exchange releases
    /// have not died, so they do not count.
    pub(crate) fn count(&mut self, config: &QueueConfig, fact: DeadLetterFact) {
        if config.delays {
            return;
        }
        let of = (config.queue_type, DeadLetterStrategy::of(config), fact);
        *self.tally.entry(of).or_default() += 1;
    }

    /// Emits the counts of the entry as effects.
    pub(crate) fn report_tally(&mut self) {
        for ((queue_type, strategy, fact), count) in std::mem::take(&mut self.tally) {
            self.effect(Effect::DeadLettersCounted { queue_type, strategy, fact, count });
        }
    }
}
