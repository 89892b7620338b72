//! The times that queues wait for.

use super::Waiting;
use proptest::{collection::vec, prelude::*};
use quorate_types::{GroupId, Home, QueueId};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

#[test]
fn the_earliest_moment_of_each_queue_is_kept() {
    let queue = |index| QueueId { home: Home::Group(GroupId(1)), index, position: 0 };
    let now = Instant::now();
    let after = |ms| now + Duration::from_millis(ms);
    let mut waiting = Waiting::default();
    assert!(waiting.add(queue(1), after(50)));
    assert!(!waiting.add(queue(2), after(70)));
    assert!(!waiting.add(queue(1), after(60)), "later than what it waits for");
    assert!(waiting.add(queue(2), after(20)));
    assert!(waiting.take_due(after(19), 9).is_empty());
    assert_eq!(waiting.take_due(after(60), 1).into_values().flatten().count(), 1);
    let due: Vec<_> = waiting.take_due(after(60), 9).into_values().flatten().collect();
    assert_eq!(due, [queue(1)]);
    assert_eq!(waiting.first(), None);
}

proptest! {
    /// a queue is checked once its earliest time has come, not before, and once for all times
    /// requested until then. If many are due, the earliest come first.
    #[test]
    fn q_21_each_queue_is_checked_when_its_earliest_time_has_come(
        steps in vec((0..6_u64, 0..100_u64, prop::option::weighted(0.3, 0..5_usize)), 1..80),
    ) {
        let queue = |index| QueueId { home: Home::Group(GroupId(1)), index, position: 0 };
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let (mut waiting, mut model) = (Waiting::default(), BTreeMap::<u64, u64>::new());
        for (index, ms, take) in steps {
            let Some(limit) = take else {
                let known = model.entry(index).or_insert(u64::MAX);
                let is_earlier = ms < *known;
                *known = ms.min(*known);
                let is_first = is_earlier && model.values().min() == Some(&ms);
                prop_assert_eq!(waiting.add(queue(index), after(ms)), is_first);
                continue;
            };
            let mut due: Vec<_> =
                model.iter().filter(|(_, at)| **at <= ms).map(|(&index, &at)| (at, index)).collect();
            due.sort_unstable();
            due.truncate(limit);
            model.retain(|index, at| !due.contains(&(*at, *index)));
            let mut expected: Vec<_> = due.into_iter().map(|(_, index)| queue(index)).collect();
            let mut taken: Vec<_> =
                waiting.take_due(after(ms), limit).into_values().flatten().collect();
            expected.sort_unstable();
            taken.sort_unstable();
            prop_assert_eq!(taken, expected);
            prop_assert_eq!(waiting.first(), model.values().min().map(|ms| after(*ms)));
        }
    }
}
