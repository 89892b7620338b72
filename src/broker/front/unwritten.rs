//! What a connection has been assigned and its client has not taken yet. Bodies are read for it
//! only while there is room, so that a client that does not read costs bounded memory (DESIGN §6).
//!
//! Bodies differ in size, so the bound is in bytes and not in messages. A connection reads bodies,
//! for deliveries and gets alike, while less than `delivery_ahead_bytes` waits to be written. While
//! the node's share for deliveries is used up, it reads one message at a time.

use crate::memory::{Held, MemoryBudget, Share};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::{MutexGuard, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The unwritten deliveries and answers of one connection.
#[derive(Debug)]
pub(crate) struct Unwritten {
    /// Bytes that wait to be written, with those of answers that its session will take next.
    bytes: AtomicUsize,
    bytes_max: usize,
    budget: Arc<MemoryBudget>,
    held: Mutex<Waiting>,
    given_up: AtomicBool,
    /// Whether it has deliveries to be written, and whether it has ever taken all of some.
    is_given: AtomicBool,
    has_taken: AtomicBool,
    less: Notify,
    /// Held while the body of an answer is read, so that the next read counts its size.
    reading: tokio::sync::Mutex<()>,
    /// Held by the one fetch of a body for the connection's consumers, until the body is taken.
    fetching: Arc<Semaphore>,
    /// A fetched body waits to be taken.
    has_fetched: Arc<AtomicBool>,
}

/// The memory account of what waits to be written.
#[derive(Debug)]
struct Waiting {
    held: Held,
    /// Since when something has waited without a break.
    since: Option<Instant>,
}

impl Waiting {
    fn set(&mut self, bytes: usize) {
        self.held.set(bytes as u64);
        self.since = (bytes > 0).then(|| self.since.unwrap_or_else(Instant::now));
    }
}

/// Bodies that were fetched together from another node, until they are taken.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) bodies: Vec<bytes::Bytes>,
    _held: Held,
    _of_connection: Option<OwnedSemaphorePermit>,
    waits: Arc<AtomicBool>,
}

impl Drop for Fetched {
    fn drop(&mut self) {
        self.waits.store(false, Ordering::Release);
    }
}

/// The connection's turn to fetch a body.
#[derive(Debug)]
pub(crate) struct Fetching {
    of_connection: Option<OwnedSemaphorePermit>,
    /// Held until the body has arrived and is counted.
    _of_node: Option<OwnedSemaphorePermit>,
}

impl Unwritten {
    /// State without unwritten bytes. While more than `bytes_max` bytes wait, nothing more is read.
    pub(crate) fn new(budget: &Arc<MemoryBudget>, bytes_max: u64) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            budget: Arc::clone(budget),
            held: Mutex::new(Waiting { held: budget.account(Share::Deliveries), since: None }),
            given_up: AtomicBool::new(false),
            is_given: AtomicBool::new(false),
            has_taken: AtomicBool::new(false),
            less: Notify::new(),
            reading: tokio::sync::Mutex::default(),
            fetching: Arc::new(Semaphore::new(1)),
            has_fetched: Arc::default(),
        }
    }

    /// Sets the bytes that wait to be written.
    pub(crate) fn set(&self, bytes: usize) {
        if self.bytes.load(Ordering::Relaxed) == bytes {
            return;
        }
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        if bytes == 0 && self.is_given.swap(false, Ordering::Relaxed) {
            self.has_taken.store(true, Ordering::Relaxed);
        }
        self.held.lock().set(bytes);
        if bytes < before {
            self.less.notify_waiters();
        }
    }

    /// Sets the bytes that wait, which include deliveries that have just been read.
    pub(crate) fn given(&self, bytes: usize) {
        self.is_given.store(true, Ordering::Relaxed);
        self.set(bytes);
    }

    /// Bytes of bodies that may be read for it now; 0 for none. If the node's budget is used up,
    /// one message may still be read for a client that has taken everything, unless many clients
    /// have; a client that has taken deliveries before comes first.
    pub(crate) fn room_bytes(&self) -> usize {
        let waiting = self.bytes.load(Ordering::Relaxed);
        let budget =
            usize::try_from(self.budget.room_bytes(Share::Deliveries)).unwrap_or(usize::MAX);
        let room = self.bytes_max.saturating_sub(waiting).min(budget);
        // A fetched body is counted already and only waits to be taken.
        let has_fetched = self.has_fetched.load(Ordering::Acquire);
        let has_taken = self.has_taken.load(Ordering::Relaxed);
        let may_overdraw = has_fetched || !self.budget.is_overdrawn(Share::Deliveries, has_taken);
        if waiting == 0 && may_overdraw { room.max(1) } else { room }
    }

    /// Resolves when the node's budget has room for this connection. Cancel-safe.
    pub(crate) async fn budget_room(&self) {
        self.budget.until(Share::Deliveries, || self.room_bytes() > 0).await;
    }

    /// Whether the memory for deliveries is used up and this connection holds some of it.
    pub(crate) fn is_pressed(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0 && self.budget.room_bytes(Share::Deliveries) == 0
    }

    /// Bytes that wait to be written, and how long some have waited without a break.
    pub(crate) fn waits(&self) -> (u64, Duration) {
        let waiting = self.held.lock();
        (waiting.held.bytes(), waiting.since.map_or(Duration::ZERO, |since| since.elapsed()))
    }

    /// Marks the client to be dropped, with everything that waits for it.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Whether the client is to be dropped.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Records that something waits for the node's budget.
    pub(crate) fn note_waited(&self) {
        self.budget.note_waited(Share::Deliveries);
    }

    /// Waits until the body of an answer may be read. [`Unwritten::read`] counts it before the
    /// guard is dropped. Cancel-safe.
    pub(crate) async fn until_room(&self) -> MutexGuard<'_, ()> {
        let turn = self.reading.lock().await;
        loop {
            // Registered before the check, so that a write between check and wait is not missed.
            let less = self.less.notified();
            if self.room_bytes() > 0 {
                return turn;
            }
            tokio::select! {
                () = less => {}
                () = self.budget_room() => {}
            }
        }
    }

    /// Counts the body of an answer that has been read and that the session has not taken yet.
    pub(crate) fn read(&self, bytes: usize) {
        self.is_given.store(true, Ordering::Relaxed);
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.held.lock().set(before + bytes);
    }

    /// Waits for the connection's turn to fetch a body for a consumer. The fetch is one of the
    /// node's `fetches`, and its size is not known yet.
    pub(crate) async fn turn_to_fetch(&self, fetches: &Arc<Semaphore>) -> Fetching {
        // Neither semaphore is ever closed.
        let of_connection = Arc::clone(&self.fetching).acquire_owned().await.ok();
        loop {
            self.budget_room().await;
            let _of_node = Arc::clone(fetches).acquire_owned().await.ok();
            // Earlier fetches may have used up the room.
            if self.room_bytes() > 0 {
                return Fetching { of_connection, _of_node };
            }
        }
    }

    /// Counts bodies that have been fetched.
    pub(crate) fn fetched(&self, bodies: Vec<bytes::Bytes>, turn: Fetching) -> Fetched {
        let mut held = self.budget.account(Share::Deliveries);
        held.set(bodies.iter().map(|body| body.len() as u64).sum());
        let fetched = Fetched {
            bodies,
            _held: held,
            _of_connection: turn.of_connection,
            waits: Arc::clone(&self.has_fetched),
        };
        self.has_fetched.store(true, Ordering::Release);
        self.budget.notify_waiting(Share::Deliveries);
        fetched
    }
}

#[cfg(test)]
mod tests;
