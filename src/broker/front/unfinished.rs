//! Incomplete contents and open transactions of a connection.

use crate::memory::Share;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Incomplete contents and open transactions of a connection, as its front end last reported them.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// Bytes of contents that have not arrived completely.
    pub(crate) contents: AtomicU64,
    /// Age of the oldest of them, ms.
    pub(crate) age_ms: AtomicU64,
    /// Bytes of open transactions.
    pub(crate) transactions: AtomicU64,
    /// The connection has been asked to close.
    pub(crate) closing: AtomicBool,
}

impl Unfinished {
    /// Stores the report of the front end: bytes of contents, their age, and bytes of transactions.
    pub(crate) fn report(&self, contents: u64, age_ms: u64, transactions: u64) {
        self.contents.store(contents, Ordering::Relaxed);
        self.age_ms.store(age_ms, Ordering::Relaxed);
        self.transactions.store(transactions, Ordering::Relaxed);
    }

    /// Bytes of that share, and their age, ms. The age of transactions does not count: only
    /// contents of an honest client are complete soon.
    pub(crate) fn of(&self, share: Share) -> (u64, u64) {
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        match share {
            Share::Contents => (load(&self.contents), load(&self.age_ms)),
            Share::Transactions => (load(&self.transactions), 0),
            Share::InFlight | Share::Deliveries | Share::Letters | Share::Replies => (0, 0),
        }
    }
}
