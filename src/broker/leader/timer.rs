//! The leader's timer: proposes `ExpireHead` for a queue at the time that the queue waits for
//! . A time here is only a hint, and the queue's state decides: when it comes, the
//! machine is asked whether it still applies, so no time is ever cancelled.
//!
//! After a stop of all nodes, leases begin again with the cluster's new life. A leader that
//! does not know of the new life yet would end leases that had expired before. So the timer waits
//! until this node's catalog copy contains the start of this process, which follows the new life,
//! and until the group has applied that life.

use crate::{base::Base, context::Context, leader::led_homes::LedHomes, names::CatalogCopy};
use parking_lot::Mutex;
use quorate_queue::Command;
use quorate_types::{Home, PlantedBug, QueueId, Term, Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::sync::Notify;
use tokio::time::Instant;

/// A queue is checked again this long after a proposal, in case the proposal was lost.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// Queues checked in one batch, so that many queues that expire together make several entries.
const BATCH_MAX: usize = 500;
/// Pause between two batches.
const BATCH_PAUSE: Duration = Duration::from_millis(5);
/// How long the timer sleeps when no queue waits.
const IDLE: Duration = Duration::from_secs(3_600);

/// The times that queues wait for, at most one each.
#[derive(Debug)]
pub(crate) struct Timer {
    context: Arc<Context>,
    catalog: Arc<CatalogCopy>,
    led: Arc<LedHomes>,
    waiting: Mutex<Waiting>,
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    by_queue: HashMap<QueueId, Instant>,
    by_moment: BTreeSet<(Instant, QueueId)>,
}

impl Timer {
    /// State without waiting queues.
    pub(crate) fn new(base: &Base) -> Self {
        let Base { context, catalog, led, .. } = base.clone();
        Self { context, catalog, led, waiting: Mutex::default(), earlier: Notify::new() }
    }

    /// Has the queue checked at that instant or before.
    fn wake(&self, queue: QueueId, at: Instant) {
        if self.waiting.lock().add(queue, at) {
            self.earlier.notify_one();
        }
    }

    /// Returns when the earliest time has come.
    async fn wait(&self) {
        let first = self.waiting.lock().first();
        let sleep = first.unwrap_or_else(|| Instant::now() + IDLE);
        tokio::select! {
            () = tokio::time::sleep_until(sleep) => {}
            () = self.earlier.notified() => {}
        }
    }
}

impl Waiting {
    /// Keeps the earlier time of a queue. True if it is the earliest of all queues.
    fn add(&mut self, queue: QueueId, at: Instant) -> bool {
        if let Some(present) = self.by_queue.get(&queue).copied() {
            if present <= at {
                return false;
            }
            self.by_moment.remove(&(present, queue));
        }
        self.by_queue.insert(queue, at);
        self.by_moment.insert((at, queue));
        self.first() == Some(at)
    }

    fn first(&self) -> Option<Instant> {
        self.by_moment.first().map(|(at, _)| *at)
    }

    /// Removes queues whose time has come, at most `limit`, by home.
    fn take_due(&mut self, now: Instant, limit: usize) -> BTreeMap<Home, Vec<QueueId>> {
        let mut due: BTreeMap<Home, Vec<QueueId>> = BTreeMap::new();
        for _ in 0..limit {
            if self.first().is_none_or(|at| at > now) {
                break;
            }
            let Some((_, queue)) = self.by_moment.pop_first() else { break };
            self.by_queue.remove(&queue);
            due.entry(queue.home).or_default().push(queue);
        }
        due
    }
}

impl Timer {
    /// Runs the timer until the node stops.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            self.wait().await;
            loop {
                let due = self.waiting.lock().take_due(Instant::now(), BATCH_MAX);
                if due.is_empty() {
                    break;
                }
                for (home, queues) in due {
                    self.propose_expirations(home, &queues);
                }
                tokio::time::sleep(BATCH_PAUSE).await;
            }
        }
    }

    /// Records that the queue waits for that time of its home's clock.
    pub(crate) fn wake_at(&self, queue: QueueId, time: Timestamp) {
        if let Some(at) = self.led.moment(queue.home, time) {
            self.wake(queue, at);
        }
    }

    /// Proposes `ExpireHead` for queues whose time has come by their home's state. Does nothing if
    /// this node no longer leads the home: the next leader derives its timers from the state.
    fn propose_expirations(&self, home: Home, queues: &[QueueId]) {
        let Some(term) = self.led.leading(home) else { return };
        if PlantedBug::ExpiryIgnoredAfterFailover.is_in() && term > Term(2) {
            return;
        }
        let now = Instant::now();
        if !self.knows_life(home) {
            queues.iter().for_each(|queue| self.wake(*queue, now + RETRY_AFTER));
            return;
        }
        let mut due = Vec::new();
        let wanted: Vec<(QueueId, Timestamp)> = self
            .led
            .with_machine(home, |machine| {
                let wanted = |queue: &QueueId| Some((*queue, machine.wake_at(*queue)?));
                queues.iter().filter_map(wanted).collect()
            })
            .unwrap_or_default();
        for (queue, time) in wanted {
            match self.led.moment(home, time) {
                Some(at) if at <= now => {
                    due.push(queue);
                    self.wake(queue, now + RETRY_AFTER);
                }
                Some(at) => self.wake(queue, at),
                None => {}
            }
        }
        if !due.is_empty() {
            let expire = due.into_iter().map(|queue| Command::ExpireHead { queue });
            self.led.propose_to(home, expire.collect());
        }
    }

    /// Whether the home has applied the cluster's present life. If the whole cluster was stopped,
    /// leases begin again, and none may end before. This node's catalog copy has the present
    /// life once it contains this process's start, since a new life precedes all starts.
    fn knows_life(&self, home: Home) -> bool {
        let life = {
            let catalog = self.catalog.read();
            catalog.session_of(self.context.me, self.context.boot).map(|_| catalog.life())
        };
        let known = || self.led.with_machine(home, |machine| machine.life());
        match home {
            Home::Group(_) => life.is_some_and(|life| known().is_some_and(|known| known >= life)),
            Home::Node(_) => true,
        }
    }
}

#[cfg(test)]
mod tests;
