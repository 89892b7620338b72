//! The one FIFO of everything that is to be written (STO 1).
//!
//! A refused append ends its group, so the FIFO has no bound of its own. What is handed to it is
//! bounded by sequencers (8 entries of 1 MiB a group), by proposals (32 MiB a group) and by the
//! leaders' pipelines (8 MiB a follower and group).

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

/// Writes that wait for the writer. Without a bound of its own, since a refused append ends its group:
/// a leader proposes nothing more while too much waits here, and a follower's leaders bound what they
/// send (DESIGN §6).
pub(crate) struct Fifo {
    waiting: Mutex<Waiting>,
    filled: Condvar,
    /// Called instead, if the database is stepped.
    wake: OnceLock<Wake>,
    /// Bytes waiting; beside the lock, for those who only ask.
    bytes: AtomicUsize,
    /// The writer is at work, or is about to be.
    busy: AtomicBool,
}

/// Called when something urgent waits and nobody is at it.
pub(crate) type Wake = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Waiting {
    writes: VecDeque<Write>,
    bytes: usize,
    /// Something waits that does not only ride along.
    urgent: bool,
    /// The writer sleeps until it is woken.
    asleep: bool,
    /// Set once: nothing more is taken.
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

    /// Takes a write in. Once closed, `done` is handed back, and the caller reports the error.
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

    /// Sets what is called when there is work, and calls it if there is some already. Only the
    /// first one counts.
    pub(crate) fn set_wake(&self, wake: Wake) {
        // A second one has nobody to wake.
        drop(self.wake.set(wake));
        let mut waiting = self.waiting.lock();
        waiting.asleep = !waiting.urgent;
        if waiting.urgent {
            drop(waiting);
            self.wake();
        }
    }

    /// Takes in a write that rides with the next one. One that directly follows another of the
    /// same kind replaces it, so that an idle node gathers none.
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

    /// Moves everything that waits to `taken`, waiting for something urgent first. False: closed,
    /// and nothing is left.
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

    /// As [`Fifo::take_all`], but does not wait. False: there is nothing to be done.
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

    /// Moves everything that has come meanwhile to the end of `taken`.
    pub(crate) fn take_more(&self, taken: &mut VecDeque<Write>) {
        let mut waiting = self.waiting.lock();
        waiting.urgent = false;
        taken.append(&mut waiting.writes);
    }

    /// Bytes that have been written do not wait any more.
    pub(crate) fn written(&self, bytes: usize) {
        self.leave(&mut self.waiting.lock(), bytes);
    }

    /// True if nothing urgent waits.
    pub(crate) fn is_drained(&self) -> bool {
        !self.waiting.lock().urgent
    }

    /// Takes nothing more. What waits is still written.
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
