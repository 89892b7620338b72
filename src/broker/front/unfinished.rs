//! What a connection holds of what is not finished.

use crate::memory::Share;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a connection holds of what is not finished, as its front end told last.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// Bytes of contents that have not come whole.
    pub(crate) contents: AtomicU64,
    /// For how long they have been in flight, ms.
    pub(crate) age_ms: AtomicU64,
    /// Bytes of transactions.
    pub(crate) transactions: AtomicU64,
    /// The connection has been told to close.
    pub(crate) closing: AtomicBool,
}

impl Unfinished {
    /// Notes what the front end holds: bytes of contents, how long they have been in flight, and bytes
    /// of transactions.
    pub(crate) fn report(&self, contents: u64, age_ms: u64, transactions: u64) {
        self.contents.store(contents, Ordering::Relaxed);
        self.age_ms.store(age_ms, Ordering::Relaxed);
        self.transactions.store(transactions, Ordering::Relaxed);
    }

    /// Bytes of that share, and for how long they have been in flight, ms, where that matters: an
    /// honest content is soon over.
    pub(crate) fn of(&self, share: Share) -> (u64, u64) {
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        match share {
            Share::Contents => (load(&self.contents), load(&self.age_ms)),
            Share::Transactions => (load(&self.transactions), 0),
            Share::InFlight | Share::Deliveries | Share::Letters | Share::Replies => (0, 0),
        }
    }
}
