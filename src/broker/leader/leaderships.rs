//! The homes that this node leads, and the consumers that have attached there (DLV 2).

use parking_lot::{Mutex, MutexGuard, RwLock};
use quorate_catalog::Locality;
use quorate_types::{ConsumerId, Home, NodeId, QueueId, Term};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};
use tokio::time::Instant;

/// For each home, the consumers that have re-attached in this node's present leadership.
#[derive(Debug)]
pub(crate) struct Leaderships {
    homes: BTreeMap<Home, Mutex<Leadership>>,
    /// Nodes that have joined since this process started. This node never leads their homes.
    joined: RwLock<BTreeSet<NodeId>>,
}

/// The leadership of one home.
#[derive(Debug, Default)]
pub(crate) struct Leadership {
    /// The term in which this node leads and has applied its first entry.
    pub(crate) term: Option<Term>,
    /// Consumers that were sent what they hold, each with the number of its attachment. Others must
    /// attach first (DLV 2). Consumers that have ended are removed now and then.
    attached: HashMap<ConsumerId, u32>,
    /// Number of entries at which ended consumers are removed again.
    attached_max: usize,
    /// When the leadership began.
    since: Option<Instant>,
}

/// Entries before ended consumers are removed for the first time.
const ATTACHED_MIN: usize = 1_024;

impl Leadership {
    /// Attaches a consumer under that number; false if it is attached under a later one. No event
    /// reports the end of a consumer, so ended ones are removed whenever the number of entries has
    /// doubled.
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

    /// The number of the consumer's attachment; `None` if it has not attached.
    pub(crate) fn attachment(&self, consumer: ConsumerId) -> Option<u32> {
        self.attached.get(&consumer).copied()
    }

    /// Detaches all consumers of a node that has missed deliveries: they are sent none until they
    /// have re-attached, so that no delivery is skipped.
    pub(crate) fn detach_all_of(&mut self, node: NodeId) {
        self.attached.retain(|consumer, _| consumer.session.node != node);
    }
}

impl Leaderships {
    pub(crate) fn new(homes: impl Iterator<Item = Home>) -> Self {
        let homes = homes.map(|home| (home, Mutex::default())).collect();
        Self { homes, joined: RwLock::default() }
    }

    /// These nodes are members now (MEM 1): messages are routed to their connection-bound queues (NAM 8).
    pub(crate) fn add(&self, nodes: impl Iterator<Item = NodeId>) {
        let new: Vec<NodeId> = nodes.filter(|node| !self.is_known(Home::Node(*node))).collect();
        if !new.is_empty() {
            self.joined.write().extend(new);
        }
    }

    /// Begins this node's leadership of the home.
    pub(crate) fn lead(&self, home: Home, term: Term) {
        if let Some(leadership) = self.homes.get(&home) {
            let since = Some(Instant::now());
            *leadership.lock() = Leadership { term: Some(term), since, ..Leadership::default() };
        }
    }

    /// Ends this node's leadership of the home.
    pub(crate) fn stop(&self, home: Home) {
        if let Some(leadership) = self.homes.get(&home) {
            *leadership.lock() = Leadership::default();
        }
    }

    /// Term in which this node leads the home.
    pub(crate) fn leading(&self, home: Home) -> Option<Term> {
        self.homes.get(&home).and_then(|leadership| leadership.lock().term)
    }

    /// How long this node has led the home.
    pub(crate) fn leading_for(&self, home: Home) -> Option<Duration> {
        let since = self.homes.get(&home)?.lock().since?;
        Some(since.elapsed())
    }

    /// Locks the leadership of the home.
    pub(crate) fn of(&self, home: Home) -> Option<MutexGuard<'_, Leadership>> {
        self.homes.get(&home).map(Mutex::lock)
    }
}

impl Locality for Leaderships {
    fn is_local(&self, queue: QueueId) -> bool {
        self.leading(queue.home).is_some()
    }

    fn is_known(&self, home: Home) -> bool {
        let has_joined = |node| self.joined.read().contains(&node);
        self.homes.contains_key(&home) || matches!(home, Home::Node(node) if has_joined(node))
    }
}

#[cfg(test)]
mod tests;
