//! When each group's leader last contacted this node with a majority behind it. After half of
//! Q-62's time without such a contact, consumers here are delivered nothing new, because the leader
//! may soon give the same messages to consumers of another node (DLV 5).
//!
//! Twice a second each leader sends all nodes one notice for all of its groups that a majority has
//! answered within the last second. After half of Q-62's time without such a notice, consumers drop
//! the deliveries that have not been written to a client. After the next notice they re-attach, and
//! their attachments get the next number. Deliveries carry this number, so references that were sent
//! to an earlier attachment are ignored.

use parking_lot::Mutex;
use quorate_types::{Home, PlantedBug};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// The last contact of each group's leader.
#[derive(Debug)]
pub(crate) struct LeaderContact {
    began: Instant,
    bound: Duration,
    groups: BTreeMap<Home, Contact>,
    /// Held while consumers of a group whose leader was silent re-attach.
    resuming: Mutex<()>,
}

#[derive(Debug, Default)]
struct Contact {
    /// Milliseconds from `began` to the last contact; 0 if there was none.
    at: AtomicU64,
    /// A delivery has been withheld since the last contact.
    withheld: AtomicBool,
}

impl LeaderContact {
    /// No leader has contacted this node. `unreachable_node_timeout_ms` is the time of Q-62.
    pub(crate) fn new(homes: impl Iterator<Item = Home>, unreachable_node_timeout_ms: u64) -> Self {
        Self {
            began: Instant::now(),
            bound: Duration::from_millis(unreachable_node_timeout_ms / 2),
            groups: homes.map(|home| (home, Contact::default())).collect(),
            resuming: Mutex::new(()),
        }
    }

    /// The home's leader, which a majority has just answered, has contacted this node. Calls `drop`
    /// before that counts, if the leader was silent for too long: consumers whose clients read
    /// nothing meanwhile still have references that may have been given to others. Then calls
    /// `resume`, also if a delivery was withheld since the last contact: it may just have been
    /// withheld by somebody whose look at the time was later.
    pub(crate) fn contacted(&self, home: Home, drop: impl FnOnce(), resume: impl FnOnce()) {
        let _one = self.resuming.lock();
        let now = Instant::now();
        let was_silent = self.was_silent_at(home, now);
        if was_silent {
            drop();
        }
        if self.note_contact(home, now) || was_silent {
            resume();
        }
    }

    /// Whether the home's leader has not contacted this node for too long, or not at all yet.
    fn was_silent_at(&self, home: Home, now: Instant) -> bool {
        self.groups.get(&home).is_some_and(|contact| self.is_silent(contact, now))
    }

    fn is_silent(&self, contact: &Contact, now: Instant) -> bool {
        let at = contact.at.load(Ordering::Acquire);
        let is_recent = at > 0 && self.age(now).saturating_sub(at) < millis(self.bound);
        !is_recent && !PlantedBug::StaleLeaderDelivers.is_in()
    }

    /// Records a contact at `now`; true if a delivery was withheld since the last contact.
    fn note_contact(&self, home: Home, now: Instant) -> bool {
        let Some(contact) = self.groups.get(&home) else { return false };
        contact.at.store(self.age(now), Ordering::Release);
        contact.withheld.swap(false, Ordering::AcqRel)
    }

    /// Whether the home's leader has contacted this node since its start. Until then consumers of its
    /// queues are delivered nothing.
    pub(crate) fn has_begun(&self, home: Home) -> bool {
        self.groups.get(&home).is_none_or(|contact| contact.at.load(Ordering::Acquire) > 0)
    }

    /// Whether consumers of the home may be delivered something. Those of connection-bound queues
    /// always may.
    pub(crate) fn may_deliver(&self, home: Home) -> bool {
        self.may_deliver_at(home, Instant::now())
    }

    fn may_deliver_at(&self, home: Home, now: Instant) -> bool {
        let Some(contact) = self.groups.get(&home) else { return true };
        let is_silent = self.is_silent(contact, now);
        if is_silent {
            contact.withheld.store(true, Ordering::Release);
        }
        !is_silent
    }

    /// Whether the answer to a get of `asked` may be shown to its client. A message that it holds may
    /// have returned after Q-62's time without contact, which began after `asked`: the leader that
    /// committed the get had heard from this node, and a later leader waits for Q-62's time too.
    pub(crate) fn is_timely(&self, home: Home, asked: Instant) -> bool {
        self.is_timely_at(home, asked, Instant::now())
    }

    fn is_timely_at(&self, home: Home, asked: Instant, now: Instant) -> bool {
        let is_recent = now.saturating_duration_since(asked) < self.bound;
        is_recent || !self.groups.contains_key(&home) || PlantedBug::StaleLeaderDelivers.is_in()
    }

    /// Milliseconds from `began` to `now`, at least 1.
    fn age(&self, now: Instant) -> u64 {
        millis(now.saturating_duration_since(self.began)).max(1)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
