//! The last known counts of queues. An autoscaler takes a missing count for 0 and stops its
//! consumers, so while the leader of a queue does not answer, the counts that it had before are
//! shown. Pure.

use crate::api::cluster::KnownQueue;
use crate::wire;
use std::collections::BTreeMap;

/// Queues whose counts are remembered. Above that, a new one takes the place of another.
const REMEMBERED_MAX: usize = 100_000;

/// Group, node, index and position of a queue's id.
type Key = (u32, u32, u64, u64);

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
