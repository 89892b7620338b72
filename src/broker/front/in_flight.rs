//! Publishes of a connection that are in flight: how many bytes there may be, and who waits until
//! there are fewer.
//!
//! A publish waits behind everything that its connection has in flight before it. A few rounds of
//! replication keep the broker busy, so a connection may have only little in flight while its
//! messages are small. Large messages may use all that the setting allows (ARCHITECTURE, "Decisions").

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Publishes that may be in flight, whatever their size, up to the setting.
const FEW: usize = 256;
/// Bytes of small publishes that may be in flight.
const SMALL_BYTES: usize = 2 << 20;
/// The same while all connections of the node together have more than enough in flight.
const SHARE_BYTES: usize = 1 << 20;
/// The same for a connection that publishes more than the others.
const SHARE_AHEAD_BYTES: usize = 256 << 10;

/// Publishes of one connection that are in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Mean bytes of the publishes sent last.
    mean_bytes: AtomicUsize,
    /// Bytes published since [`balance`] was called last.
    published: AtomicUsize,
    /// The connection publishes more than the others do (see [`balance`]).
    is_ahead: AtomicBool,
    room: Notify,
}

impl InFlight {
    /// Nothing is in flight; `bytes_max` bytes may be, however few the publishes are.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            mean_bytes: AtomicUsize::new(0),
            published: AtomicUsize::new(0),
            is_ahead: AtomicBool::new(false),
            room: Notify::new(),
        }
    }

    /// A publish of that many bytes is on its way.
    pub(crate) fn launched(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        self.published.fetch_add(bytes, Ordering::Relaxed);
        let mean = self.mean_bytes.load(Ordering::Relaxed);
        self.mean_bytes.store((3 * mean + bytes) / 4, Ordering::Relaxed);
    }

    /// Publishes of that many bytes have been answered.
    pub(crate) fn landed(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        if before.saturating_sub(bytes) <= self.resume_bytes() {
            self.room.notify_waiters();
        }
    }

    /// Lets everything that waits look again.
    pub(crate) fn wake(&self) {
        self.room.notify_waiters();
    }

    /// Bytes that may be in flight now.
    fn bytes_max(&self) -> usize {
        let of_few = self.mean_bytes.load(Ordering::Relaxed) * FEW;
        of_few.max(SMALL_BYTES).min(self.bytes_max)
    }

    /// Bytes in flight at which reading goes on. Publishes are answered by the batch; at half of what
    /// may be in flight, the broker would be idle until more have come.
    fn resume_bytes(&self) -> usize {
        let max = self.bytes_max();
        max - max / 8
    }

    /// More bytes are in flight than may be.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() > self.bytes_max()
    }

    /// More bytes of small publishes are in flight than this connection's share of what a node needs.
    pub(crate) fn exceeds_share(&self) -> bool {
        let is_ahead = self.is_ahead.load(Ordering::Relaxed);
        let share = if is_ahead { SHARE_AHEAD_BYTES } else { SHARE_BYTES };
        self.bytes_max() == SMALL_BYTES.min(self.bytes_max) && self.bytes() > share
    }

    /// Few enough bytes are in flight for more to follow.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes() <= self.resume_bytes()
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

/// Compares what the connections of a node have published since the last call. Those with more than
/// the mean are ahead until the next call, and get a smaller share. Without this, a connection whose
/// queue is alone in its Raft group publishes at twice the rate of one whose queue shares its group, and
/// the messages of the slower one wait for twice as long in its client's socket buffer.
pub(crate) fn balance<'a>(connections: impl Iterator<Item = &'a InFlight>) {
    let published: Vec<_> =
        connections.map(|one| (one, one.published.swap(0, Ordering::Relaxed))).collect();
    let active = published.iter().filter(|(_, bytes)| *bytes > 0).count();
    let mean = published.iter().map(|(_, bytes)| *bytes).sum::<usize>() / active.max(1);
    for (one, bytes) in published {
        one.is_ahead.store(bytes > mean, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
