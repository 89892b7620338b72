//! Log lines that appear at most once a minute for each key, however often their cause occurs.

use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(60);

/// The time of the last log line for each key, of the last minute.
#[derive(Debug)]
pub(crate) struct OncePerMinute<K>(BTreeMap<K, Instant>);

impl<K> Default for OncePerMinute<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> OncePerMinute<K> {
    /// Whether a line for the key is due. If so, it counts as written.
    pub(crate) fn is_due(&mut self, of: K, now: Instant) -> bool {
        let is_fresh = |at: &Instant| now.duration_since(*at) < INTERVAL;
        if self.0.get(&of).is_some_and(is_fresh) {
            return false;
        }
        self.0.retain(|_, at| is_fresh(at));
        self.0.insert(of, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{GroupId, Home, QueueId};

    #[test]
    fn q_44_a_cycle_is_logged_once_a_minute_per_queue() {
        let queue = |index| QueueId { home: Home::Group(GroupId(1)), index, position: 0 };
        let begun = Instant::now();
        let mut log = OncePerMinute::default();
        let mut due = |index, secs| log.is_due(queue(index), begun + Duration::from_secs(secs));
        assert_eq!(
            [due(1, 0), due(1, 59), due(2, 59), due(1, 60), due(1, 61)],
            [true, false, true, true, false]
        );
        assert!(due(3, 200));
        assert_eq!(log.0.len(), 1, "older ones are forgotten");
    }
}
