//! Measures the sync in progress (DESIGN §8): a leader whose disk hangs blocks its groups without
//! being replaced, and only another thread can notice it.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Set around each sync, read by any thread.
pub(crate) struct Watchdog {
    origin: Instant,
    /// Longest time that a sync may take, beside what its bytes explain: setting `watchdog_ms`.
    limit: Duration,
    /// Microseconds from `origin` to the beginning of the sync in progress, plus 1; 0 if there is
    /// none.
    began: AtomicU64,
    /// Bytes that it writes.
    bytes: AtomicU64,
}

/// Bytes a second that every disk is expected to write, in addition to the time that a sync may
/// take.
const BYTES_A_SECOND: u64 = 16 << 20;

impl Watchdog {
    pub(crate) fn new(limit: Duration) -> Self {
        let (began, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { origin: Instant::now(), limit, began, bytes }
    }

    /// Runs `sync`, of this many bytes, and records its progress; returns its duration.
    pub(crate) fn watch<T>(&self, bytes: usize, sync: impl FnOnce() -> T) -> (T, Duration) {
        let began = Instant::now();
        self.bytes.store(bytes as u64, Relaxed);
        self.began.store(self.micros(began) + 1, Relaxed);
        let result = sync();
        self.began.store(0, Relaxed);
        (result, began.elapsed())
    }

    pub(crate) fn stalled_for(&self) -> Duration {
        match self.began.load(Relaxed) {
            0 => Duration::ZERO,
            began => Duration::from_micros(self.micros(Instant::now()).saturating_sub(began - 1)),
        }
    }

    /// Whether the sync that runs takes longer than the limit, and than its bytes explain.
    pub(crate) fn is_late(&self) -> bool {
        let writing = self.bytes.load(Relaxed).saturating_mul(1_000) / BYTES_A_SECOND;
        self.stalled_for() > self.limit + Duration::from_millis(writing)
    }

    fn micros(&self, moment: Instant) -> u64 {
        u64::try_from(moment.duration_since(self.origin).as_micros()).unwrap_or(u64::MAX - 1)
    }
}
