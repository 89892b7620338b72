//! Publishes of a connection that are in flight: how many bytes there may be, and who waits until
//! there are fewer.
//!
//! What is in flight waits in the proposers, and whoever publishes behind it waits as long. A few
//! rounds of a home keep the broker busy, so small publishes share 2 MiB among the connections that
//! have any in flight (ARCHITECTURE, "Decisions").

use std::sync::{
    Arc,
    atomic::{AtomicIsize, AtomicUsize, Ordering},
};
use tokio::sync::Notify;

/// So many publishes in flight are few, however large.
const FEW: usize = 256;
/// Bytes of small publishes that may be in flight, of all connections together.
const SMALL_BYTES: usize = 2 << 20;

/// How many connections of a node have publishes in flight.
#[derive(Debug, Default)]
pub(crate) struct Publishing(AtomicIsize);

impl Publishing {
    /// Connections with publishes in flight, at least 1. The count may be wrong for a moment, while
    /// a connection's first publish is launched and another thread lands it.
    fn count(&self) -> usize {
        usize::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0).max(1)
    }
}

/// Publishes of one connection that are in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Mean bytes of the publishes sent last.
    mean_bytes: AtomicUsize,
    publishing: Arc<Publishing>,
    room: Notify,
}

impl InFlight {
    /// Nothing is in flight; `bytes_max` bytes may be, however few the publishes are.
    pub(crate) fn new(bytes_max: u64, publishing: &Arc<Publishing>) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            mean_bytes: AtomicUsize::new(0),
            publishing: Arc::clone(publishing),
            room: Notify::new(),
        }
    }

    /// A publish of that many bytes is on its way.
    pub(crate) fn launched(&self, bytes: usize) {
        let before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        if before == 0 && bytes > 0 {
            self.publishing.0.fetch_add(1, Ordering::Relaxed);
        }
        let mean = self.mean_bytes.load(Ordering::Relaxed);
        self.mean_bytes.store((3 * mean + bytes) / 4, Ordering::Relaxed);
    }

    /// Publishes of that many bytes have been answered.
    pub(crate) fn landed(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        if before == bytes && bytes > 0 {
            self.publishing.0.fetch_sub(1, Ordering::Relaxed);
        }
        if before.saturating_sub(bytes) <= self.bytes_max() / 2 {
            self.room.notify_waiters();
        }
    }

    /// Bytes that may be in flight now.
    fn bytes_max(&self) -> usize {
        let of_few = self.mean_bytes.load(Ordering::Relaxed) * FEW;
        of_few.max(SMALL_BYTES / self.publishing.count()).min(self.bytes_max)
    }

    /// More bytes are in flight than may be.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() > self.bytes_max()
    }

    /// Few enough bytes are in flight for more to follow.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes() <= self.bytes_max() / 2
    }

    /// Resolves when `ready` says so, which is asked when publishes have been answered. Cancel-safe.
    pub(crate) async fn until(&self, ready: impl Fn() -> bool) {
        loop {
            let notified = self.room.notified();
            if ready() {
                return;
            }
            notified.await;
        }
    }

    /// Bytes of publishes in flight.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if *self.bytes.get_mut() > 0 {
            self.publishing.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (InFlight, InFlight) {
        let publishing = Arc::new(Publishing::default());
        let one = || InFlight::new(64 << 20, &publishing);
        (one(), one())
    }

    #[test]
    fn small_publishes_of_all_connections_share_what_may_be_in_flight() {
        let (a, b) = two();
        a.launched(100);
        assert_eq!(a.bytes_max(), SMALL_BYTES);
        b.launched(100);
        assert_eq!(a.bytes_max(), SMALL_BYTES / 2);
        b.launched(100);
        b.landed(100);
        assert_eq!(a.bytes_max(), SMALL_BYTES / 2, "one more is in flight");
        b.landed(100);
        assert_eq!(a.bytes_max(), SMALL_BYTES);
    }

    #[test]
    fn a_connection_that_is_gone_takes_no_share() {
        let (a, b) = two();
        b.launched(100);
        a.launched(100);
        drop(b);
        assert_eq!(a.bytes_max(), SMALL_BYTES);
    }

    #[test]
    fn a_few_large_publishes_may_be_in_flight_up_to_the_setting() {
        let (a, _) = two();
        for _ in 0..64 {
            a.launched(100 << 10);
        }
        assert!(a.bytes_max() > 200 * (100 << 10), "{}", a.bytes_max());
        a.launched(1 << 30);
        assert_eq!(a.bytes_max(), 64 << 20);
        assert!(a.is_full());
    }

    #[tokio::test]
    async fn who_waits_is_told_when_publishes_have_been_answered() {
        let (a, _) = two();
        for _ in 0..3 << 10 {
            a.launched(1 << 10);
        }
        assert!(a.is_full());
        let waits = a.until(|| a.has_room());
        tokio::pin!(waits);
        tokio::select! {
            biased;
            () = &mut waits => unreachable!("nothing has been answered"),
            () = std::future::ready(()) => {}
        }
        a.landed(3 << 20);
        waits.await;
    }
}
