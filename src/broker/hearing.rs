//! When this node last heard a leader of each group that had itself just heard a majority. Without
//! that for half of Q-62's time, consumers here are shown nothing new, since another node's consumers
//! may soon be given the same messages (DLV 5).
//!
//! Each leader that has heard a majority within the last second says so to all nodes twice a
//! second, in one notice for all its groups. Without such notices for half of Q-62's time,
//! consumers drop what they have not shown. After the next notice they re-attach under the next
//! number of their attachment. Deliveries carry this number, so references that were sent before
//! are ignored.

use parking_lot::Mutex;
use quorate_types::Home;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// What has been heard.
#[derive(Debug)]
pub(crate) struct Hearing {
    began: Instant,
    bound: Duration,
    groups: BTreeMap<Home, Heard>,
    /// Held while a group that was silent is taken up again.
    taking_up: Mutex<()>,
}

#[derive(Debug, Default)]
struct Heard {
    /// Milliseconds after `began`; 0 for never.
    at: AtomicU64,
    /// Consumers have been kept from showing something since.
    missed: AtomicBool,
}

impl Hearing {
    /// Nothing has been heard of any home. `timeout_ms` is the time of Q-62.
    pub(crate) fn new(homes: impl Iterator<Item = Home>, timeout_ms: u64) -> Self {
        Self {
            began: Instant::now(),
            bound: Duration::from_millis(timeout_ms / 2),
            groups: homes.map(|home| (home, Heard::default())).collect(),
            taking_up: Mutex::new(()),
        }
    }

    /// A leader that has just heard a majority was heard. `take_up` is called if consumers were kept
    /// from showing something meanwhile.
    pub(crate) fn heard(&self, home: Home, take_up: impl FnOnce()) {
        let Some(heard) = self.groups.get(&home) else { return };
        let _one = self.taking_up.lock();
        heard.at.store(self.now(), Ordering::Release);
        if heard.missed.swap(false, Ordering::AcqRel) {
            take_up();
        }
    }

    /// Whether consumers of the home may be shown something. What is connection-bound always may.
    pub(crate) fn may_show(&self, home: Home) -> bool {
        let Some(heard) = self.groups.get(&home) else { return true };
        let at = heard.at.load(Ordering::Acquire);
        let fresh = at > 0 && self.now().saturating_sub(at) < millis(self.bound);
        if !fresh {
            heard.missed.store(true, Ordering::Release);
        }
        fresh
    }

    fn now(&self) -> u64 {
        millis(self.began.elapsed()).max(1)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{GroupId, NodeId};

    #[test]
    fn dlv_5_nothing_is_shown_of_a_group_that_is_not_heard() {
        let group = Home::Group(GroupId(1));
        let hearing = Hearing::new([group].into_iter(), 100);
        assert!(hearing.may_show(Home::Node(NodeId(1))), "its own are never silent");
        assert!(!hearing.may_show(group), "never heard");
        let mut taken_up = 0;
        hearing.heard(group, || taken_up += 1);
        hearing.heard(group, || taken_up += 1);
        assert!(hearing.may_show(group));
        while hearing.may_show(group) {
            std::thread::sleep(Duration::from_millis(1));
        }
        hearing.heard(group, || taken_up += 1);
        assert!(hearing.may_show(group));
        assert_eq!(taken_up, 2, "once after each silence that mattered");
    }
}
