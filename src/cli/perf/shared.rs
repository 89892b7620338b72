//! State that the workers of a run share: clock, counters, phase.

use super::verify::Ledger;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Run,
    /// No more publishes; messages in flight are awaited.
    Drain,
    /// Nothing is awaited any more: the workers end.
    Stop,
}

/// Shared by all workers. Counters are written once for each batch.
#[derive(Debug)]
pub(crate) struct Shared {
    started: Instant,
    /// Random number of the run.
    pub(crate) run: u32,
    pub(crate) published: AtomicU64,
    pub(crate) confirmed: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) returned: AtomicU64,
    pub(crate) received: AtomicU64,
    /// Number of publishing connections that the broker has blocked.
    pub(crate) blocked: AtomicU64,
    /// The warm-up is over: latencies are recorded.
    pub(crate) measuring: AtomicBool,
    pub(crate) ledger: Option<Mutex<Ledger>>,
}

impl Shared {
    pub(crate) fn new(run: u32, verify: bool, measuring: bool) -> Self {
        Self {
            started: Instant::now(),
            run,
            published: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            received: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            measuring: AtomicBool::new(measuring),
            ledger: verify.then(Mutex::default),
        }
    }

    /// Time on the run's clock, ns.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A counter that grows with every event.
    pub(crate) fn progress(&self) -> u64 {
        [&self.published, &self.confirmed, &self.refused, &self.received]
            .map(|counter| counter.load(Relaxed))
            .iter()
            .sum()
    }

    pub(crate) fn is_measuring(&self) -> bool {
        self.measuring.load(Relaxed)
    }
}

/// Latencies, in microseconds.
pub(crate) type Latencies = Histogram<u64>;

/// An empty histogram with three significant digits; its range grows as needed.
pub(crate) fn latencies() -> Latencies {
    match Histogram::new(3) {
        Ok(histogram) => histogram,
        // Only more than 5 digits are refused.
        Err(_) => unreachable!("three digits are a histogram's"),
    }
}

/// Records the time from `sent_ns` to `now_ns`.
pub(crate) fn record(latencies: &mut Latencies, sent_ns: u64, now_ns: u64) {
    // The range grows as needed, so no value is refused.
    let _ = latencies.record(now_ns.saturating_sub(sent_ns) / 1000);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_latencies_are_recorded_as_they_are() {
        let mut recorded = latencies();
        record(&mut recorded, 1_000, 60_000_000_000);
        assert!(recorded.max() >= 59_900_000, "{}", recorded.max());
        record(&mut recorded, 2_000, 1_000);
        assert_eq!(recorded.min(), 0);
    }
}
