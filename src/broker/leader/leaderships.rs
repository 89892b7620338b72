//! Where this node leads, and which consumers have attached themselves there (DLV 2).

use parking_lot::{Mutex, MutexGuard};
use quorate_catalog::Locality;
use quorate_types::{ConsumerId, Home, NodeId, QueueId, Term};
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};
use tokio::time::Instant;

/// For each home, which consumers have re-attached in this node's present leadership.
#[derive(Debug)]
pub(crate) struct Leaderships {
    homes: BTreeMap<Home, Mutex<Leadership>>,
}

/// Of one home.
#[derive(Debug, Default)]
pub(crate) struct Leadership {
    /// Term that this node leads in and has applied its first entry of.
    pub(crate) term: Option<Term>,
    /// Consumers that were sent what they hold, each with the number of its attachment; others ask
    /// first (DLV 2). Those that are gone are left out now and then.
    attached: HashMap<ConsumerId, u32>,
    /// How many there may be before that is done again.
    attached_max: usize,
    /// When the leadership began.
    since: Option<Instant>,
}

/// Consumers remembered before those that have ended are looked for.
const ATTACHED_MIN: usize = 1_024;

impl Leadership {
    /// Attaches a consumer under that number; false if it is attached under a later one. No event says
    /// that a consumer has ended, so ended ones are removed whenever the number of entries has doubled.
    pub(crate) fn attach(
        &mut self,
        consumer: ConsumerId,
        number: u32,
        lives: impl Fn(ConsumerId) -> bool,
    ) -> bool {
        if self.attached.get(&consumer).is_some_and(|known| *known > number) {
            return false;
        }
        self.attached.insert(consumer, number);
        if self.attached.len() > self.attached_max.max(ATTACHED_MIN) {
            self.attached.retain(|consumer, _| lives(*consumer));
            self.attached_max = 2 * self.attached.len();
        }
        true
    }

    /// Number of the consumer's attachment, if it has attached itself.
    pub(crate) fn attachment(&self, consumer: ConsumerId) -> Option<u32> {
        self.attached.get(&consumer).copied()
    }

    /// That node has not been told of some deliveries: its consumers are sent none until they have
    /// re-attached, so that none is passed over for a later one.
    pub(crate) fn detach_all_of(&mut self, node: NodeId) {
        self.attached.retain(|consumer, _| consumer.session.node != node);
    }
}

impl Leaderships {
    pub(crate) fn new(homes: impl Iterator<Item = Home>) -> Self {
        Self { homes: homes.map(|home| (home, Mutex::default())).collect() }
    }

    /// This node leads the home from now on.
    pub(crate) fn lead(&self, home: Home, term: Term) {
        if let Some(leadership) = self.homes.get(&home) {
            let since = Some(Instant::now());
            *leadership.lock() = Leadership { term: Some(term), since, ..Leadership::default() };
        }
    }

    /// It leads it no more.
    pub(crate) fn stop(&self, home: Home) {
        if let Some(leadership) = self.homes.get(&home) {
            *leadership.lock() = Leadership::default();
        }
    }

    /// Term in which this node leads the home.
    pub(crate) fn leading(&self, home: Home) -> Option<Term> {
        self.homes.get(&home).and_then(|leadership| leadership.lock().term)
    }

    /// For how long this node has led the home.
    pub(crate) fn leading_for(&self, home: Home) -> Option<Duration> {
        let since = self.homes.get(&home)?.lock().since?;
        Some(since.elapsed())
    }

    /// The leadership of the home, which nobody else looks at meanwhile.
    pub(crate) fn of(&self, home: Home) -> Option<MutexGuard<'_, Leadership>> {
        self.homes.get(&home).map(Mutex::lock)
    }
}

impl Locality for Leaderships {
    fn is_local(&self, queue: QueueId) -> bool {
        self.leading(queue.home).is_some()
    }

    fn is_known(&self, home: Home) -> bool {
        self.homes.contains_key(&home)
    }
}

#[cfg(test)]
mod tests;
