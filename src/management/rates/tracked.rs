//! The histories of all objects of one kind, within bounds. Pure.

use crate::rates::history::History;
use std::collections::BTreeMap;

/// Objects that have a history of the full length. Others have two rows, enough for a rate.
pub(crate) const LONG_MAX: usize = 500;
/// Objects that have a history. Further ones have none.
const OBJECTS_MAX: usize = 100_000;

/// Histories by object.
#[derive(Debug)]
pub(crate) struct Tracked<K>(BTreeMap<K, Object>);

#[derive(Debug)]
struct Object {
    history: History,
    is_long: bool,
    /// It was there when samples were last taken.
    seen_ms: u64,
}

impl<K> Default for Tracked<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Tracked<K> {
    /// Adds a sample of an object. The history of one that is not known begins with its first value
    /// other than 0. `born` says when it had none, if that is known. Returns the row before this one.
    pub(crate) fn sample(
        &mut self,
        key: K,
        now_ms: u64,
        values: &[u64],
        born: Option<u64>,
        rows_max: usize,
    ) -> Option<Box<[u64]>> {
        let is_known = self.0.contains_key(&key);
        let is_nothing = values.iter().all(|value| *value == 0);
        if !is_known && (is_nothing || self.0.len() >= OBJECTS_MAX) {
            return None;
        }
        let object = self.0.entry(key).or_insert_with(|| {
            let mut history = History::default();
            if let Some(born) = born {
                history.push(born, &vec![0; values.len()], 1);
            }
            Object { history, is_long: false, seen_ms: now_ms }
        });
        let before = object.history.last().map(Into::into);
        let rows_max = if object.is_long { rows_max } else { 2 };
        object.history.push(now_ms, values, rows_max);
        object.seen_ms = now_ms;
        before
    }

    /// Ends a round of samples: forgets objects that were not seen in it, shortens the histories of
    /// those of which nothing has changed, and gives the places of long ones to others.
    pub(crate) fn end(&mut self, now_ms: u64, rows_max: usize) {
        self.0.retain(|_, object| object.seen_ms == now_ms);
        for object in self.0.values_mut() {
            let is_full = object.history.len() >= if object.is_long { rows_max } else { 2 };
            if is_full && object.history.is_still() {
                object.history.shorten();
                object.is_long = false;
            }
        }
        let mut places = LONG_MAX.saturating_sub(self.0.values().filter(|it| it.is_long).count());
        for object in self.0.values_mut() {
            if places == 0 {
                break;
            }
            if !object.is_long && object.history.len() > 1 {
                object.is_long = true;
                places -= 1;
            }
        }
    }

    /// The history of an object.
    pub(crate) fn get(&self, key: &K) -> Option<&History> {
        self.0.get(key).map(|object| &object.history)
    }

    /// All objects.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &History)> {
        self.0.iter().map(|(key, object)| (key, &object.history))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_known_from_their_first_traffic_on_and_forgotten_with_their_end() {
        let mut tracked = Tracked::default();
        assert_eq!(tracked.sample("q", 5, &[0], Some(0), 9), None);
        tracked.end(5, 9);
        assert!(tracked.get(&"q").is_none());
        assert_eq!(tracked.sample("q", 10, &[10], Some(5), 9).as_deref(), Some(&[0][..]));
        assert_eq!(tracked.get(&"q").map(|history| history.rate(0)), Some(2_000.0));
        tracked.end(10, 9);
        tracked.end(15, 9);
        assert_eq!(tracked.iter().count(), 0);
    }

    #[test]
    fn a_queue_that_may_have_been_led_elsewhere_has_no_rate_at_first() {
        let mut tracked = Tracked::default();
        assert_eq!(tracked.sample(1, 10, &[1_000], None, 9), None);
        assert_eq!(tracked.get(&1).map(|history| history.rate(0)), Some(0.0));
    }

    /// The memory of a hundred thousand queues is bounded: few have long histories, and of what rests
    /// one row is left.
    #[test]
    fn long_histories_are_few_and_idle_ones_short() {
        let mut tracked = Tracked::default();
        for time in 1..20u64 {
            for queue in 0..2 * LONG_MAX {
                let value = if queue % 2 == 0 { time } else { 1 };
                tracked.sample(queue, time, &[value], Some(0), 5);
            }
            tracked.end(time, 5);
        }
        let rows = |most: usize| tracked.iter().filter(|(_, it)| it.len() == most).count();
        assert_eq!((rows(5), rows(1) + rows(2)), (LONG_MAX, LONG_MAX));
    }
}
