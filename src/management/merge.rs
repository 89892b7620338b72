//! Merges the lists of several nodes into one. Pure.

use crate::wire;
use std::collections::BTreeMap;

type Key = (u32, u32, u64, u64);

fn key(id: Option<wire::QueueId>) -> Key {
    id.map_or((0, 0, 0, 0), |id| (id.group, id.node, id.index, id.position))
}

/// Every queue once, in the order of the lists: with the counts of the node that leads it, if that one
/// answered. The first list contains each queue at most once. The others may contain queues with an id and
/// counts only; such a queue has a name in the result only if the first list names it.
pub(crate) fn queues(
    first: Vec<wire::Queue>,
    others: impl IntoIterator<Item = wire::Queue>,
) -> Vec<wire::Queue> {
    let of_first = first.iter().enumerate().map(|(place, queue)| (key(queue.id), place));
    let mut places: BTreeMap<Key, usize> = of_first.collect();
    let mut merged = first;
    for queue in others {
        let next = merged.len();
        let place = *places.entry(key(queue.id)).or_insert(next);
        match merged.get_mut(place) {
            None => merged.push(queue),
            // For a moment two nodes may both take themselves for the leader. Which one leads is
            // not known here, so the first answer stays.
            Some(known) if known.counts.is_none() && queue.counts.is_some() => {
                if queue.name.is_empty() {
                    (known.counts, known.leader) = (queue.counts, queue.leader);
                } else {
                    *known = queue;
                }
            }
            Some(known) if known.leader == 0 && known.counts.is_none() => {
                known.leader = queue.leader;
            }
            Some(_) => {}
        }
    }
    merged
}

/// Sorts queues by name; those of one name, of which one is about to end, by id.
pub(crate) fn sort_by_name(queues: &mut [wire::Queue]) {
    queues.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| key(a.id).cmp(&key(b.id))));
}

/// The default exchange's binding of every queue, then the explicit ones by source, destination
/// and key (CTL-10).
pub(crate) fn bindings(
    queues: &[wire::Queue],
    mut explicit: Vec<wire::Binding>,
) -> Vec<wire::Binding> {
    explicit.sort_by(|a, b| {
        (&a.source, &a.destination, &a.key, &a.arguments).cmp(&(
            &b.source,
            &b.destination,
            &b.key,
            &b.arguments,
        ))
    });
    let mut bindings: Vec<_> = queues.iter().map(crate::convert::default_binding).collect();
    bindings.append(&mut explicit);
    bindings
}

/// Which consumers are served, in RabbitMQ's words: of a queue with a single active consumer the
/// others wait.
pub(crate) fn note_turns(consumers: &mut [wire::Consumer], turns: Vec<wire::Turn>) {
    let key = |id: wire::ConsumerId| (id.node, id.start, id.number);
    let turns: BTreeMap<_, bool> =
        turns.iter().filter_map(|turn| Some((key(turn.consumer?), turn.active))).collect();
    for consumer in consumers {
        let turn = consumer.id.and_then(|id| turns.get(&key(id)));
        consumer.activity_status = match turn {
            None => "up",
            Some(true) => "single_active",
            Some(false) => "waiting",
        }
        .to_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, index: u64, ready: Option<u64>, leader: u32) -> wire::Queue {
        wire::Queue {
            id: Some(wire::QueueId { group: 1, node: 0, index, position: 0 }),
            name: name.to_owned(),
            leader,
            counts: ready.map(|ready| wire::QueueCounts { ready, ..Default::default() }),
            ..Default::default()
        }
    }

    fn shown(queues: &[wire::Queue]) -> Vec<(&str, Option<u64>, u32)> {
        queues
            .iter()
            .map(|queue| {
                (queue.name.as_str(), queue.counts.map(|counts| counts.ready), queue.leader)
            })
            .collect()
    }

    #[test]
    fn a_queue_is_listed_once_with_the_counts_of_its_leader() {
        let own = vec![queue("b", 1, None, 0), queue("a", 2, Some(5), 1)];
        let mut merged = queues(
            own,
            [queue("b", 1, Some(7), 2), queue("a", 2, None, 1), queue("b", 1, None, 3)],
        );
        assert_eq!(shown(&merged), [("b", Some(7), 2), ("a", Some(5), 1)]);
        sort_by_name(&mut merged);
        assert_eq!(shown(&merged), [("a", Some(5), 1), ("b", Some(7), 2)]);
    }

    #[test]
    fn counts_come_to_the_queue_that_they_are_of() {
        let counts = [queue("", 1, Some(4), 2), queue("", 2, Some(9), 2)];
        let merged = queues(vec![queue("a", 1, None, 0)], counts);
        // Only its leader knows the second one.
        assert_eq!(shown(&merged), [("a", Some(4), 2), ("", Some(9), 2)]);
    }

    #[test]
    fn without_its_leaders_answer_a_queue_is_listed_without_counts() {
        let merged = queues(Vec::new(), [queue("a", 1, None, 0), queue("a", 1, None, 3)]);
        assert_eq!(shown(&merged), [("a", None, 3)]);
    }

    #[test]
    fn default_bindings_come_first() {
        let explicit = |key: &str| wire::Binding {
            source: "x".to_owned(),
            key: key.to_owned(),
            ..Default::default()
        };
        let all = bindings(&[queue("q", 1, None, 0)], vec![explicit("k2"), explicit("k1")]);
        let keys: Vec<_> =
            all.iter().map(|binding| (binding.source.as_str(), binding.key.as_str())).collect();
        assert_eq!(keys, [("", "q"), ("x", "k1"), ("x", "k2")]);
    }
}
