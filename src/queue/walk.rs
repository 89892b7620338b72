//! Reads all queues of a machine in parts of bounded size, so that a reader holds the machine's lock only
//! while it reads one part.

use crate::{machine::Machine, queue::Queue};
use quorate_types::QueueId;
use std::{collections::BTreeMap, ops::Bound};

/// Number of queues of one part.
const PART: usize = 256;

/// How far a walk has come. A queue that exists from its beginning to its end is visited once; one that
/// is created or removed meanwhile may be missed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk {
    after: Option<QueueId>,
    over: bool,
}

impl Walk {
    /// Walks to the end, or until a part cannot be read, which `read` says with `None`.
    pub fn through<T>(mut read: impl FnMut(&mut Self) -> Option<Vec<T>>) -> Vec<T> {
        let (mut walk, mut all) = (Self::default(), Vec::new());
        while !walk.over {
            let Some(part) = read(&mut walk) else { break };
            all.extend(part);
        }
        all
    }

    /// What the maps have of the next part, at most [`PART`] of each.
    fn next_part<'a, T>(
        &mut self,
        maps: &[&'a BTreeMap<QueueId, T>],
    ) -> impl Iterator<Item = &'a T> + use<'a, T> {
        let first = self.after.map_or(Bound::Unbounded, Bound::Excluded);
        let nth = |map: &&'a BTreeMap<QueueId, T>| {
            map.range((first, Bound::Unbounded)).nth(PART - 1).map(|(id, _)| *id)
        };
        let last = maps.iter().filter_map(nth).min();
        self.after = last;
        self.over = last.is_none();
        let until = last.map_or(Bound::Unbounded, Bound::Included);
        let parts: Vec<_> = maps.iter().map(|map| map.range((first, until))).collect();
        parts.into_iter().flatten().map(|(_, it)| it)
    }
}

impl Machine {
    /// The queues of the walk's next part, without those that have ended.
    pub(crate) fn next_queues(&self, walk: &mut Walk) -> impl Iterator<Item = &Queue> + use<'_> {
        walk.next_part(&[&self.queues]).map(AsRef::as_ref)
    }

    /// The queues of the walk's next part, and those that have ended with letters.
    pub(crate) fn next_with_ended(
        &self,
        walk: &mut Walk,
    ) -> impl Iterator<Item = &Queue> + use<'_> {
        walk.next_part(&[&self.queues, &self.ended_queues]).map(AsRef::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{GroupId, Home};

    /// Queues with the indexes from `first` on, `step` apart.
    fn queues(first: u64, step: usize, count: u64) -> BTreeMap<QueueId, u64> {
        let id = |index| QueueId { home: Home::Group(GroupId(1)), index, position: 0 };
        let indexes = (first..).step_by(step).take(count as usize);
        indexes.map(|index| (id(index), index)).collect()
    }

    #[test]
    fn each_queue_is_visited_once_and_a_part_is_bounded() {
        let part = PART as u64;
        for (present, ended) in
            [(0, 0), (1, 0), (part, 3), (part + 1, 2 * part), (3 * part, 10), (5, 3 * part + 1)]
        {
            let maps = [queues(0, 2, present), queues(1, 4, ended)];
            let (mut walk, mut visited, mut parts) = (Walk::default(), Vec::new(), 0);
            while !walk.over {
                let found: Vec<_> = walk.next_part(&[&maps[0], &maps[1]]).copied().collect();
                assert!(found.len() <= 2 * PART);
                visited.extend(found);
                parts += 1;
            }
            assert!(parts <= 1 + (present + ended) / part, "{parts} parts");
            visited.sort_unstable();
            let mut expected: Vec<_> = maps.iter().flat_map(BTreeMap::values).copied().collect();
            expected.sort_unstable();
            assert_eq!(visited, expected);
        }
    }

    #[test]
    fn a_removed_queue_does_not_end_a_walk() {
        let mut map = queues(0, 1, 3 * PART as u64);
        let mut walk = Walk::default();
        let mut visited = walk.next_part(&[&map]).count();
        map.retain(|_, index| *index != PART as u64 - 1);
        while !walk.over {
            visited += walk.next_part(&[&map]).count();
        }
        assert_eq!(visited, 3 * PART);
    }
}
