//! The node's budget for message bodies that clients make it hold: contents being received,
//! transactions, answers and deliveries waiting to be written, dead letters being routed.
//!
//! Everything that holds bodies on behalf of a client keeps a [`Held`] for them. Caches and buffers of
//! a fixed size (run cache, RocksDB, lanes between nodes) are no part of it: the budget comes from
//! what remains of the node's memory when these are subtracted (ARCHITECTURE, "Where memory goes").
//!
//! A publisher of small messages holds next to nothing between two turns, so small messages never
//! wait for their share. If an attacker uses up a share, only connections that hold as much
//! themselves have to wait. Holders report once a turn, in steps of 16 KiB.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::Notify;

/// What holds bodies. Each share has its own part of the budget, so that a client that uses up one leaves
/// the others as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Share {
    /// Contents of publishes that have not arrived whole, with their read buffers.
    Contents,
    /// Publishes of transactions that are not yet committed.
    Transactions,
    /// Publishes that are routed and not yet answered, each target counted.
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

    /// Its part of the budget, in sixteenths.
    const fn sixteenths(self) -> u64 {
        match self {
            Self::Contents | Self::InFlight | Self::Deliveries => 4,
            Self::Transactions => 2,
            Self::Letters | Self::Replies => 1,
        }
    }
}

/// What is held is reported in steps of this many bytes: a client that holds little reports nothing.
const STEP_BYTES: u64 = 16 * 1024;

/// Figures of one share.
#[derive(Debug, Default)]
struct Account {
    /// Bytes held now.
    held: AtomicU64,
    /// Tasks that wait for room.
    waiting: AtomicU64,
    room: Notify,
    /// How often something had to wait for room.
    waited: AtomicU64,
    /// How often something was refused, or its holder closed.
    refused: AtomicU64,
}

/// Figures of one share, as metrics show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareFigures {
    /// The share that the figures are of.
    pub share: Share,
    /// Bytes held now.
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
    accounts: [Account; Share::ALL.len()],
}

impl MemoryBudget {
    /// A budget of `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, accounts: Default::default() })
    }

    /// An account of that share that holds nothing yet.
    #[must_use]
    pub fn account(self: &Arc<Self>, share: Share) -> Held {
        Held { budget: Arc::clone(self), share, bytes: 0 }
    }

    /// Bytes that may be held.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes that the share may hold.
    #[must_use]
    pub fn share_bytes_max(&self, share: Share) -> u64 {
        self.bytes_max / 16 * share.sixteenths()
    }

    /// Bytes held now, of all shares.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.accounts.iter().map(|account| account.held.load(Ordering::SeqCst)).sum()
    }

    /// Bytes that the share holds now.
    #[must_use]
    pub fn share_held_bytes(&self, share: Share) -> u64 {
        self.row(share).held.load(Ordering::SeqCst)
    }

    /// Bytes that the share may still hold; 0 while it is used up.
    #[must_use]
    pub fn room_bytes(&self, share: Share) -> u64 {
        self.share_bytes_max(share).saturating_sub(self.share_held_bytes(share))
    }

    /// A body of this many bytes fits beside what the shares hold, taken together.
    #[must_use]
    pub fn takes_body(&self, shares: &[Share], bytes: u64) -> bool {
        let max: u64 = shares.iter().map(|share| self.share_bytes_max(*share)).sum();
        let held: u64 = shares.iter().map(|share| self.share_held_bytes(*share)).sum();
        takes_body(held, bytes, max)
    }

    /// The share is used up, and a quarter as much again: what may pass it a little, so that everybody
    /// gets on, passes it no more. Whoever is `trusted` may hold it
    /// up to twice.
    #[must_use]
    pub fn is_overdrawn(&self, share: Share, trusted: bool) -> bool {
        let max = self.share_bytes_max(share);
        self.share_held_bytes(share) >= max + if trusted { max } else { max / 4 }
    }

    /// Wakes all that wait for room in the share.
    pub fn notify_waiting(&self, share: Share) {
        self.row(share).notify_waiting();
    }

    /// Resolves once `fits` is true, which is checked whenever the share releases something.
    pub async fn until(&self, share: Share, mut fits: impl FnMut() -> bool) {
        if fits() {
            return;
        }
        let account = self.row(share);
        let _waiting = Waiting::new(account);
        loop {
            // Before the check, so that a release between check and wait is not missed.
            let released = account.room.notified();
            if fits() {
                return;
            }
            released.await;
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

    fn release(&self, share: Share, bytes: u64) {
        self.row(share).held.fetch_sub(bytes, Ordering::SeqCst);
        self.row(share).notify_waiting();
        if share == Share::InFlight {
            // Contents wait for room in both, see `Held::try_grow_content`.
            self.row(Share::Contents).notify_waiting();
        }
    }
}

impl Account {
    fn notify_waiting(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.room.notify_waiters();
        }
    }
}

/// There is room for a body of this many bytes beside what is held, or little is held: a body that is
/// larger than all room must pass too.
#[must_use]
pub fn takes_body(held: u64, bytes: u64, max: u64) -> bool {
    held.saturating_add(bytes) <= max || held <= max / 4
}

/// A task that waits for room, counted as long as it does.
struct Waiting<'a>(&'a Account);

impl<'a> Waiting<'a> {
    fn new(account: &'a Account) -> Self {
        account.waiting.fetch_add(1, Ordering::SeqCst);
        Self(account)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes that one holder has of its share; released when it is dropped.
#[derive(Debug)]
pub struct Held {
    budget: Arc<MemoryBudget>,
    share: Share,
    bytes: u64,
}

impl Held {
    /// Bytes that this account holds of the share.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` from now on, more or fewer than before, whether or not there is room: for what
    /// is in memory already. Who calls this reads or receives no more while there is no room.
    pub fn set(&mut self, bytes: u64) {
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            self.budget.row(self.share).held.fetch_add(more, Ordering::SeqCst);
        } else if bytes < self.bytes {
            self.budget.release(self.share, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// As [`Held::set`], in whole steps of 16 KiB: for what changes often and is mostly small.
    pub fn set_about(&mut self, bytes: u64) {
        self.set(bytes - bytes % STEP_BYTES);
    }

    /// Holds `bytes` more if there is room for them, or if the share holds nothing else; otherwise
    /// nothing changes and this is false.
    #[must_use]
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let max = self.budget.share_bytes_max(self.share);
        self.grow_if(bytes, |held| held == 0 || held.saturating_add(bytes) <= max)
    }

    /// Holds `bytes` more if `may` says so of what the share holds.
    fn grow_if(&mut self, bytes: u64, may: impl Fn(u64) -> bool) -> bool {
        let grown = |held: u64| may(held).then(|| held.saturating_add(bytes));
        let held = &self.budget.row(self.share).held;
        let taken = held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, grown).is_ok();
        if taken {
            self.bytes += bytes;
        }
        taken
    }

    /// As [`Held::try_grow`] up to `bytes` in whole steps; true also where fewer are held then.
    #[must_use]
    pub fn try_set_about(&mut self, bytes: u64) -> bool {
        let wanted = bytes - bytes % STEP_BYTES;
        if wanted <= self.bytes {
            self.set(wanted);
            return true;
        }
        self.try_grow(wanted - self.bytes)
    }

    /// As [`Held::try_grow`], for a large content: it will soon be in flight, so there must be room
    /// for it beside what is in flight. Otherwise what is received would wait behind what is written,
    /// and everybody's publishes behind both.
    #[must_use]
    pub fn try_grow_content(&mut self, bytes: u64) -> bool {
        let max = self.budget.share_bytes_max(self.share);
        // One that is larger than its share would seldom find so much room.
        let passes = bytes > max && self.budget.room_bytes(Share::InFlight) > 0;
        (passes || self.budget.takes_body(&[Share::Contents, Share::InFlight], bytes))
            && self.grow_if(bytes, |held| takes_body(held, bytes, max))
    }

    /// [`Held::try_grow_content`] as soon as it succeeds. Cancel-safe.
    pub async fn grow_content(&mut self, bytes: u64) {
        let budget = Arc::clone(&self.budget);
        budget.until(Share::Contents, || self.try_grow_content(bytes)).await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::{MemoryBudget, STEP_BYTES, Share};

    #[test]
    fn the_shares_are_the_whole_budget() {
        let budget = MemoryBudget::new(1_600);
        let parts = Share::ALL.iter().map(|share| budget.share_bytes_max(*share));
        assert_eq!(parts.sum::<u64>(), 1_600);
        assert_eq!(budget.share_bytes_max(Share::Contents), 400);
    }

    #[test]
    fn what_is_dropped_is_released_and_one_share_leaves_the_others_alone() {
        let budget = MemoryBudget::new(1_600);
        let mut contents = budget.account(Share::Contents);
        let mut letters = budget.account(Share::Letters);
        assert!(contents.try_grow(300));
        assert!(!contents.try_grow(101));
        assert!(letters.try_grow(100));
        assert_eq!(budget.room_bytes(Share::Contents), 100);
        contents.set(10);
        assert_eq!(budget.room_bytes(Share::Contents), 390);
        letters.set(200);
        assert_eq!((budget.held_bytes(), budget.room_bytes(Share::Letters)), (210, 0));
        drop(letters);
        drop(contents);
        assert_eq!(budget.held_bytes(), 0);
        assert!(budget.figures().all(|row| row.held_bytes == 0));
    }

    #[test]
    fn what_is_larger_than_its_share_passes_alone() {
        let budget = MemoryBudget::new(1_600);
        let (mut first, mut second) =
            (budget.account(Share::Deliveries), budget.account(Share::Deliveries));
        assert!(first.try_grow(5_000));
        assert!(!second.try_grow(1));
        drop(first);
        assert!(second.try_grow(1));
    }

    #[test]
    fn little_is_not_counted() {
        let budget = MemoryBudget::new(32 * STEP_BYTES);
        let mut replies = budget.account(Share::Replies);
        replies.set_about(STEP_BYTES - 1);
        assert_eq!(budget.held_bytes(), 0);
        assert!(replies.try_set_about(2 * STEP_BYTES + 1));
        assert_eq!(budget.held_bytes(), 2 * STEP_BYTES);
        assert!(!replies.try_set_about(4 * STEP_BYTES));
        assert!(replies.try_set_about(1));
        assert_eq!(budget.held_bytes(), 0);
    }

    #[tokio::test]
    async fn a_content_waits_for_room_beside_what_is_in_flight() {
        let budget = MemoryBudget::new(1_600);
        let (mut sent, mut received) =
            (budget.account(Share::InFlight), budget.account(Share::Contents));
        sent.set(550);
        received.set(50);
        let waiting = tokio::spawn({
            let mut third = budget.account(Share::Contents);
            async move { third.grow_content(300).await }
        });
        tokio::task::yield_now().await;
        drop(received);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "250 of 800 are free");
        sent.set(500);
        waiting.await.unwrap();
    }

    #[test]
    fn a_body_larger_than_all_room_passes_where_little_is_held() {
        let budget = MemoryBudget::new(1_600);
        let mut sent = budget.account(Share::InFlight);
        sent.set(100);
        assert!(budget.takes_body(&[Share::InFlight], 2_000));
        sent.set(101);
        assert!(!budget.takes_body(&[Share::InFlight], 2_000));
        assert!(budget.takes_body(&[Share::InFlight], 299));
    }
}
