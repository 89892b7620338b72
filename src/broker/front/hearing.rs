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
        let _one = self.taking_up.lock();
        if self.note_heard(home, Instant::now()) {
            take_up();
        }
    }

    /// A leader was heard at that moment; true if consumers were kept from showing something since the
    /// last time.
    fn note_heard(&self, home: Home, now: Instant) -> bool {
        let Some(heard) = self.groups.get(&home) else { return false };
        heard.at.store(self.age(now), Ordering::Release);
        heard.missed.swap(false, Ordering::AcqRel)
    }

    /// Whether consumers of the home may be shown something. What is connection-bound always may.
    pub(crate) fn may_show(&self, home: Home) -> bool {
        self.may_show_at(home, Instant::now())
    }

    fn may_show_at(&self, home: Home, now: Instant) -> bool {
        let Some(heard) = self.groups.get(&home) else { return true };
        let at = heard.at.load(Ordering::Acquire);
        let fresh = at > 0 && self.age(now).saturating_sub(at) < millis(self.bound);
        if !fresh {
            heard.missed.store(true, Ordering::Release);
        }
        fresh
    }

    /// Milliseconds from the beginning to that moment.
    fn age(&self, now: Instant) -> u64 {
        millis(now.saturating_duration_since(self.began)).max(1)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
