//! The service queue: consumers that may be served, higher priority first, round robin among equals
//! (CON-08, PRC-01, PRC-02).

use quorate_types::ConsumerId;
use std::collections::VecDeque;

/// Consumers with free credit, each once, in the order of service.
#[derive(Debug, Default)]
pub(crate) struct ServiceQueue {
    /// Consumers in the order of service, highest priority first.
    order: VecDeque<(i64, ConsumerId)>,
}

impl ServiceQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn first(&self) -> Option<ConsumerId> {
        self.order.front().map(|(_, consumer)| *consumer)
    }

    /// True if no other consumer has the priority of the first: it is served as long as it has
    /// credit.
    pub(crate) fn first_is_alone(&self) -> bool {
        let priority = |at: usize| self.order.get(at).map(|(priority, _)| *priority);
        priority(0) != priority(1)
    }

    /// Adds a consumer behind those of equal priority.
    pub(crate) fn push(&mut self, priority: i64, consumer: ConsumerId) {
        if self.order.back().is_none_or(|(last, _)| *last >= priority) {
            self.order.push_back((priority, consumer));
        } else {
            let at = self.order.partition_point(|(other, _)| *other >= priority);
            self.order.insert(at, (priority, consumer));
        }
    }

    /// Moves the first consumer, which has been served, behind those of equal priority.
    pub(crate) fn rotate(&mut self) {
        if let Some((priority, consumer)) = self.order.pop_front() {
            self.push(priority, consumer);
        }
    }

    pub(crate) fn pop(&mut self) {
        self.order.pop_front();
    }

    pub(crate) fn remove(&mut self, consumer: ConsumerId) {
        self.order.retain(|(_, other)| *other != consumer);
    }

    pub(crate) fn to_record(&self) -> VecDeque<ConsumerId> {
        self.order.iter().map(|(_, consumer)| *consumer).collect()
    }
}
