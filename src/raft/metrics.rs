//! Numbers of one group, for /metrics and reports.

use quorate_storage::{Histogram, Recorder};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A number that is counted or set.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    /// The number now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations in microseconds, and their maximum.
#[derive(Debug, Default)]
pub struct Times {
    us: Recorder,
    max_us: AtomicU64,
}

impl Times {
    pub(crate) fn add(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.us.record(us);
        self.max_us.fetch_max(us, Ordering::Relaxed);
    }

    /// The histogram, microseconds.
    #[must_use]
    pub fn histogram(&self) -> Histogram {
        self.us.histogram()
    }

    /// The maximum, microseconds.
    #[must_use]
    pub fn max_us(&self) -> u64 {
        self.max_us.load(Ordering::Relaxed)
    }
}

/// Numbers of one group on this node, since the process started.
#[derive(Debug, Default)]
pub struct GroupMetrics {
    /// Index of the last entry applied.
    pub applied: Number,
    /// Index of the last entry that a written checkpoint covers.
    pub checkpointed: Number,
    /// Log entries that were applied.
    pub entries_applied: Number,
    /// Entries proposed here.
    pub proposals: Number,
    /// Bytes proposed here.
    pub proposal_bytes: Number,
    /// Proposals in flight.
    pub in_flight: Number,
    /// Proposals that were refused, or discarded with a lost leadership.
    pub proposals_lost: Number,
    /// Time from the start of a checkpoint until it was written.
    pub checkpoint: Times,
    /// Time from a proposal until it was applied here.
    pub round: Times,
    /// Times that this node was elected.
    pub elections_won: Number,
    /// Elections that this node began because a leader's process was known dead.
    pub crash_elections: Number,
    /// Time from the loss of a leader, or the start, until the next leader is known.
    pub election: Times,
    /// Leaderships handed over.
    pub transfers: Number,
    /// Snapshots that were sent completely.
    pub snapshots_sent: Number,
    /// Snapshots that were installed.
    pub snapshots_installed: Number,
    /// Appends to followers.
    pub appends_sent: Number,
    /// Bytes of appends to followers.
    pub append_bytes_sent: Number,
}
