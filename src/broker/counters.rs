//! What the node has done since it started, counted for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections_opened: Counter,
    pub(crate) connections_closed: Counter,
    pub(crate) queues_declared: Counter,
    pub(crate) queues_created: Counter,
    pub(crate) queues_deleted: Counter,
    pub(crate) received: Counter,
    pub(crate) received_confirm: Counter,
    pub(crate) routed: Counter,
    pub(crate) unroutable_returned: Counter,
    pub(crate) unroutable_dropped: Counter,
    pub(crate) confirmed: Counter,
    pub(crate) refused: Counter,
    pub(crate) delivered_manual_ack: Counter,
    pub(crate) delivered_auto_ack: Counter,
    pub(crate) got_manual_ack: Counter,
    pub(crate) got_auto_ack: Counter,
    pub(crate) got_empty: Counter,
    pub(crate) redelivered: Counter,
    pub(crate) acknowledged: Counter,
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
