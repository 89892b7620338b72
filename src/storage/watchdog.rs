//! How long the sync that runs now has been running (DESIGN §8): a leader whose disk hangs is the
//! worst kind of alive, and nobody but another thread can notice it.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Set around each sync, read by any thread.
pub(crate) struct Watchdog {
    origin: Instant,
    /// Microseconds from `origin` to the begin of the sync that runs, plus 1; 0 if none runs.
    began: AtomicU64,
}

impl Watchdog {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), began: AtomicU64::new(0) }
    }

    /// Runs `sync` under watch; says how long it took.
    pub(crate) fn watch<T>(&self, sync: impl FnOnce() -> T) -> (T, Duration) {
        let began = Instant::now();
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

    fn micros(&self, moment: Instant) -> u64 {
        u64::try_from(moment.duration_since(self.origin).as_micros()).unwrap_or(u64::MAX - 1)
    }
}
