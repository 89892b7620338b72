//! The counts of queues, added, and the last known ones. An autoscaler takes a missing count for 0 and stops its
//! consumers, so while the leader of a queue does not answer, the counts that it had before are
//! shown. Pure.

use crate::api::cluster::KnownQueue;
use crate::wire;
use std::collections::BTreeMap;

/// Queues whose counts are remembered. Above that, a new one takes the place of another.
const REMEMBERED_MAX: usize = 100_000;

/// Group, node, index and position of a queue's id.
type Key = (u32, u32, u64, u64);

/// The messages of some queues, added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Messages {
    pub(crate) ready: u64,
    pub(crate) unacknowledged: u64,
    /// Returned ones that wait before they are ready again (RQU-08).
    pub(crate) delayed: u64,
    /// Dead letters that wait.
    pub(crate) dead_letters: u64,
}

impl Messages {
    /// Adds those of a queue.
    pub(crate) fn add(&mut self, counts: &wire::QueueCounts) {
        self.ready = self.ready.saturating_add(counts.ready);
        self.unacknowledged = self.unacknowledged.saturating_add(counts.unacknowledged);
        self.delayed = self.delayed.saturating_add(counts.delayed);
        self.dead_letters = self.dead_letters.saturating_add(counts.dead_letters_waiting);
    }

    /// All of them.
    pub(crate) fn all(self) -> u64 {
        let waiting = self.delayed.saturating_add(self.dead_letters);
        self.ready.saturating_add(self.unacknowledged).saturating_add(waiting)
    }
}

/// Counts of queues when their leaders last answered.
#[derive(Debug, Default)]
pub(crate) struct LastCounts(BTreeMap<Key, wire::QueueCounts>);

fn key(queue: &wire::Queue) -> Option<Key> {
    queue.id.map(|id| (id.group, id.node, id.index, id.position))
}

impl LastCounts {
    /// Remembers counts that have come, and adds those that have not.
    pub(crate) fn complete(&mut self, queues: Vec<wire::Queue>) -> Vec<KnownQueue> {
        queues.into_iter().map(|queue| self.known(queue)).collect()
    }

    fn known(&mut self, queue: wire::Queue) -> KnownQueue {
        let Some(key) = key(&queue) else { return KnownQueue { queue, fresh: false } };
        match queue.counts {
            Some(counts) => {
                if self.0.len() >= REMEMBERED_MAX && !self.0.contains_key(&key) {
                    self.0.pop_first();
                }
                self.0.insert(key, counts);
                KnownQueue { queue, fresh: true }
            }
            None => {
                let counts = self.0.get(&key).copied();
                KnownQueue { queue: wire::Queue { counts, ..queue }, fresh: false }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(index: u64, ready: Option<u64>) -> wire::Queue {
        wire::Queue {
            id: Some(wire::QueueId { group: 1, node: 0, index, position: 0 }),
            counts: ready.map(|ready| wire::QueueCounts { ready, ..Default::default() }),
            ..Default::default()
        }
    }

    #[test]
    fn q_45_waiting_dead_letters_are_messages() {
        let mut messages = Messages::default();
        messages.add(&wire::QueueCounts {
            ready: 1,
            dead_letters_waiting: 2,
            ..Default::default()
        });
        assert_eq!((messages.ready, messages.all()), (1, 3));
    }

    #[test]
    fn rqu_08_messages_that_wait_for_a_retry_are_messages() {
        let mut messages = Messages::default();
        let counts =
            wire::QueueCounts { ready: 3, unacknowledged: 2, delayed: 4, ..Default::default() };
        messages.add(&counts);
        messages.add(&wire::QueueCounts { delayed: u64::MAX, ..Default::default() });
        assert_eq!((messages.ready, messages.all()), (3, u64::MAX));
        let mut few = Messages::default();
        few.add(&counts);
        assert_eq!(few.all(), 9);
    }

    #[test]
    fn counts_are_shown_until_the_leader_answers_again() {
        let mut last = LastCounts::default();
        let mut shown = |queues| -> Vec<(Option<u64>, bool)> {
            let known = last.complete(queues).into_iter();
            known.map(|one| (one.queue.counts.map(|counts| counts.ready), one.fresh)).collect()
        };
        assert_eq!(
            shown(vec![queue(1, Some(7)), queue(2, None)]),
            [(Some(7), true), (None, false)]
        );
        assert_eq!(shown(vec![queue(1, None)]), [(Some(7), false)]);
        assert_eq!(shown(vec![queue(1, Some(3))]), [(Some(3), true)]);
        assert_eq!(shown(vec![queue(1, None)]), [(Some(3), false)]);
    }
}
