//! The one FIFO of all writes (STO 1).
//!
//! A refused append ends its group, so the FIFO has no bound of its own. Its contents are bounded
//! by sequencers (8 entries of 1 MiB for each group), by proposals (32 MiB for each group) and by
//! the leaders' pipelines (8 MiB for each follower and group).

use crate::{
    Done, StorageError,
    batch::{Work, Write},
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

/// Writes that wait for the writer. It has no bound of its own, since a refused append ends its
/// group: a leader proposes nothing more while too many bytes wait here, and a follower's leaders
/// bound their appends (DESIGN §6).
pub(crate) struct Fifo {
    waiting: Mutex<Waiting>,
    filled: Condvar,
    /// Called in place of a wake-up of the thread, if the database is stepped.
    wake: OnceLock<Wake>,
    /// Bytes waiting; outside the lock, for readers that need only this number.
    bytes: AtomicUsize,
    /// The writer is working, or about to begin.
    busy: AtomicBool,
}

/// Called when an urgent write waits and the writer does not work.
pub(crate) type Wake = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Waiting {
    writes: VecDeque<Write>,
    bytes: usize,
    /// A write waits that does not merely ride along.
    urgent: bool,
    /// The writer sleeps until it is woken.
    asleep: bool,
    /// Set once: no more writes are accepted.
    closed: Option<StorageError>,
}

impl Fifo {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Mutex::default(),
            filled: Condvar::new(),
            wake: OnceLock::new(),
            bytes: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.busy.load(Relaxed)
    }

    /// Adds a write. Once closed, `done` is returned, and the caller reports the error.
    pub(crate) fn push(&self, work: Work, done: Option<Done>) -> Option<(Done, StorageError)> {
        let bytes = work.bytes();
        let mut waiting = self.waiting.lock();
        if let Some(error) = &waiting.closed {
            return Some((done?, error.clone()));
        }
        waiting.urgent = true;
        self.enter(&mut waiting, Write { work, bytes, done });
        self.busy.store(true, Relaxed);
        if std::mem::take(&mut waiting.asleep) {
            drop(waiting);
            self.wake();
        }
        None
    }

    fn wake(&self) {
        self.filled.notify_one();
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Sets the callback for new work, and calls it if there is work already. Only the first
    /// callback is used.
    pub(crate) fn set_wake(&self, wake: Wake) {
        // A second callback is dropped.
        drop(self.wake.set(wake));
        let mut waiting = self.waiting.lock();
        waiting.asleep = !waiting.urgent;
        if waiting.urgent {
            drop(waiting);
            self.wake();
        }
    }

    /// Adds a write that is written with the next urgent one. It replaces a write of the same kind
    /// directly before it, so that an idle node does not collect them.
    pub(crate) fn ride_along(&self, work: Work) {
        let bytes = work.bytes();
        let mut waiting = self.waiting.lock();
        if waiting.closed.is_some() {
            return;
        }
        if waiting.writes.back().is_some_and(|last| last.work.is_replaced_by(&work))
            && let Some(last) = waiting.writes.pop_back()
        {
            self.leave(&mut waiting, last.bytes);
        }
        self.enter(&mut waiting, Write { work, bytes, done: None });
    }

    fn enter(&self, waiting: &mut Waiting, write: Write) {
        waiting.bytes += write.bytes;
        waiting.writes.push_back(write);
        self.bytes.store(waiting.bytes, Relaxed);
    }

    fn leave(&self, waiting: &mut Waiting, bytes: usize) {
        waiting.bytes -= bytes;
        self.bytes.store(waiting.bytes, Relaxed);
    }

    /// Moves all waiting writes to `taken`, after waiting for an urgent one. False: closed, and no
    /// writes are left.
    pub(crate) fn take_all(&self, taken: &mut VecDeque<Write>) -> bool {
        let mut waiting = self.waiting.lock();
        while !waiting.urgent && waiting.closed.is_none() {
            self.busy.store(false, Relaxed);
            waiting.asleep = true;
            self.filled.wait(&mut waiting);
        }
        waiting.urgent = false;
        waiting.asleep = false;
        taken.append(&mut waiting.writes);
        !(taken.is_empty() && waiting.closed.is_some())
    }

    /// Like [`Fifo::take_all`], but does not wait. False: there is no work.
    pub(crate) fn take_now(&self, taken: &mut VecDeque<Write>) -> bool {
        let mut waiting = self.waiting.lock();
        if !waiting.urgent && waiting.closed.is_none() {
            self.busy.store(false, Relaxed);
            waiting.asleep = true;
            return false;
        }
        waiting.urgent = false;
        waiting.asleep = false;
        taken.append(&mut waiting.writes);
        !taken.is_empty()
    }

    /// Appends the writes that have arrived meanwhile to `taken`.
    pub(crate) fn take_more(&self, taken: &mut VecDeque<Write>) {
        let mut waiting = self.waiting.lock();
        waiting.urgent = false;
        taken.append(&mut waiting.writes);
    }

    /// Subtracts written bytes from the waiting ones.
    pub(crate) fn written(&self, bytes: usize) {
        self.leave(&mut self.waiting.lock(), bytes);
    }

    /// True if no urgent write waits.
    pub(crate) fn is_drained(&self) -> bool {
        !self.waiting.lock().urgent
    }

    /// Accepts no more writes. Waiting writes are still written.
    pub(crate) fn close(&self, reason: StorageError) {
        let mut waiting = self.waiting.lock();
        waiting.closed.get_or_insert(reason);
        waiting.asleep = false;
        drop(waiting);
        self.filled.notify_one();
    }

    /// Empties the FIFO after a failure.
    pub(crate) fn abandon(&self) -> VecDeque<Write> {
        let mut waiting = self.waiting.lock();
        waiting.bytes = 0;
        self.bytes.store(0, Relaxed);
        self.busy.store(false, Relaxed);
        std::mem::take(&mut waiting.writes)
    }
}
