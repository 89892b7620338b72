//! The node's budget for message bodies that clients make it hold: contents being received,
//! transactions, answers and deliveries waiting to be written, dead letters being routed.
//!
//! Everything that holds bodies on behalf of a client keeps a [`Held`] for them. Caches and buffers of
//! a fixed size (run cache, RocksDB, lanes between nodes) are no part of it: the budget is what
//! remains of the node's memory when these are subtracted.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::Notify;

/// What holds bodies: one row of the budget's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Share {
    /// Contents of publishes that have not arrived whole, with their read buffers.
    Contents,
    /// Publishes of transactions that are not yet committed.
    Transactions,
    /// Publishes that are routed and not yet answered.
    InFlight,
    /// Bodies read for deliveries and answers to `basic.get`, until they are written to the socket.
    Deliveries,
    /// Bodies of dead letters being routed and transferred.
    Letters,
    /// Replies and firehose copies that wait for a connection.
    Replies,
}

impl Share {
    /// All shares, in the order of [`MemoryBudget::figures`].
    pub const ALL: [Self; 6] = [
        Self::Contents,
        Self::Transactions,
        Self::InFlight,
        Self::Deliveries,
        Self::Letters,
        Self::Replies,
    ];

    /// Its name as a metric's label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contents => "contents",
            Self::Transactions => "transactions",
            Self::InFlight => "in_flight",
            Self::Deliveries => "deliveries",
            Self::Letters => "letters",
            Self::Replies => "replies",
        }
    }
}

/// Figures of one share.
#[derive(Debug, Default)]
struct Account {
    /// Octets held now.
    held: AtomicU64,
    /// How often something had to wait for room.
    waited: AtomicU64,
    /// How often something was refused, or its holder closed.
    refused: AtomicU64,
}

/// Figures of one share, as metrics show them.
#[derive(Clone, Copy, Debug)]
pub struct ShareFigures {
    /// Which share.
    pub share: Share,
    /// Octets held now.
    pub held_bytes: u64,
    /// How often something had to wait for room since the start.
    pub waited: u64,
    /// How often something was refused, or its holder closed, since the start.
    pub refused: u64,
}

/// The budget of one node; shared by everything that holds bodies for clients.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes_max: u64,
    total: AtomicU64,
    accounts: [Account; Share::ALL.len()],
    room: Notify,
}

impl MemoryBudget {
    /// A budget of `bytes_max` octets.
    #[must_use]
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            total: AtomicU64::new(0),
            accounts: Default::default(),
            room: Notify::new(),
        })
    }

    /// An account of that share that holds nothing yet.
    #[must_use]
    pub fn account(self: &Arc<Self>, share: Share) -> Held {
        Held { budget: Arc::clone(self), share, bytes: 0 }
    }

    /// Octets that may be held.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Octets held now, of all shares.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Octets that may still be held; 0 while the budget is used up.
    #[must_use]
    pub fn room_bytes(&self) -> u64 {
        self.bytes_max.saturating_sub(self.held_bytes())
    }

    /// Resolves when something has been released since this was called, if the budget was used up.
    pub async fn room(&self) {
        let notified = self.room.notified();
        if self.room_bytes() == 0 {
            notified.await;
        }
    }

    /// Counts that something of that share waits for room.
    pub fn note_waited(&self, share: Share) {
        self.row(share).waited.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that something of that share was refused, or its holder closed.
    pub fn note_refused(&self, share: Share) {
        self.row(share).refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Figures of all shares.
    pub fn figures(&self) -> impl Iterator<Item = ShareFigures> + '_ {
        Share::ALL.iter().zip(&self.accounts).map(|(share, account)| ShareFigures {
            share: *share,
            held_bytes: account.held.load(Ordering::Relaxed),
            waited: account.waited.load(Ordering::Relaxed),
            refused: account.refused.load(Ordering::Relaxed),
        })
    }

    #[expect(clippy::indexing_slicing, reason = "one account for each variant of Share")]
    fn row(&self, share: Share) -> &Account {
        &self.accounts[share as usize]
    }

    fn add(&self, share: Share, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.row(share).held.fetch_add(bytes, Ordering::Relaxed);
    }

    fn release(&self, share: Share, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.row(share).held.fetch_sub(bytes, Ordering::Relaxed);
        let before = self.total.fetch_sub(bytes, Ordering::Relaxed);
        if before >= self.bytes_max {
            self.room.notify_waiters();
        }
    }
}

/// Octets that one holder has of the budget; released when it is dropped.
#[derive(Debug)]
pub struct Held {
    budget: Arc<MemoryBudget>,
    share: Share,
    bytes: u64,
}

impl Held {
    /// Octets held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` from now on, more or fewer than before, whether or not there is room: for what
    /// is in memory already. Who calls this reads or receives no more while there is no room.
    pub fn set(&mut self, bytes: u64) {
        if bytes >= self.bytes {
            self.budget.add(self.share, bytes - self.bytes);
        } else {
            self.budget.release(self.share, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Holds `bytes` more if there is room for them; else nothing changes and this is false.
    #[must_use]
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let fits =
            |total: u64| total.checked_add(bytes).filter(|sum| *sum <= self.budget.bytes_max);
        let taken =
            self.budget.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if taken {
            self.budget.row(self.share).held.fetch_add(bytes, Ordering::Relaxed);
            self.bytes += bytes;
        }
        taken
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryBudget, Share};

    #[test]
    fn what_is_dropped_is_released() {
        let budget = MemoryBudget::new(100);
        let mut contents = budget.account(Share::Contents);
        let mut letters = budget.account(Share::Letters);
        assert!(contents.try_grow(60));
        assert!(!letters.try_grow(41));
        assert!(letters.try_grow(40));
        assert_eq!(budget.room_bytes(), 0);
        contents.set(10);
        assert_eq!(budget.room_bytes(), 50);
        letters.set(200);
        assert_eq!((budget.held_bytes(), budget.room_bytes()), (210, 0));
        drop(letters);
        drop(contents);
        assert_eq!(budget.held_bytes(), 0);
        assert!(budget.figures().all(|row| row.held_bytes == 0));
    }

    #[tokio::test]
    async fn a_waiter_goes_on_when_something_is_released() -> Result<(), tokio::task::JoinError> {
        let budget = MemoryBudget::new(10);
        let mut held = budget.account(Share::Deliveries);
        held.set(10);
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.room().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await
    }
}
