//! A disk in memory for simulations: deterministic from a seed, without files and threads.
//!
//! A write can be read at once, but is pending until a sync. A crash loses a suffix of the pending
//! writes, and may tear its first record; everything after a torn record is lost too. Any write,
//! sync or read can be made to fail.
//!
//! [`crate::Database::open_simulated`] opens a database on such a disk. Its work is done by
//! [`crate::Database::step`], on the caller's thread.

mod chance;
mod engine;
mod files;
mod record;
mod state;
mod trees;

pub(crate) use engine::SimulatedEngine;
pub(crate) use files::SimulatedFolder;
pub(crate) use record::Record;
pub(crate) use trees::{TreeScan, Trees};

use parking_lot::{Mutex, MutexGuard};
use state::State;
use std::{sync::Arc, time::Duration};

/// An operation that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A read of a key, an iterator or a file.
    Read,
    /// A write of a batch, a table or a file, before it has changed anything.
    Write,
    /// A sync. Pending writes stay pending.
    Sync,
}

/// The losses of a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Number of unsynced batches that were lost.
    pub batches: usize,
    /// The first of them was torn: a part of it, or a damaged whole, was on disk.
    pub torn: bool,
    /// Number of files of received snapshots that were lost or truncated.
    pub files: usize,
}

/// A simulated disk. It outlives the databases that are opened on it. Cheap to clone.
#[derive(Clone)]
pub struct Disk {
    state: Arc<Mutex<State>>,
}

impl Disk {
    /// An empty disk. The seed decides what its crashes lose.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(seed))) }
    }

    /// Simulates a loss of power. The open database is dead from now on: its reads and writes fail,
    /// and pending writes are not reported.
    pub fn crash(&self) -> Loss {
        self.lock().crash()
    }

    /// Kills the process. The database is dead as after a crash, but nothing is lost: the system
    /// still has all written data.
    pub fn kill(&self) {
        self.lock().end();
    }

    /// Makes the power fail before the write or sync that comes after this many others.
    pub fn crash_after(&self, operations: u64) {
        self.lock().crash_after = Some(operations);
    }

    /// Cancels a [`Disk::crash_after`] that has not happened. True if there was one.
    pub fn call_crash_off(&self) -> bool {
        self.lock().crash_after.take().is_some()
    }

    /// Makes the operation of that kind fail that comes after this many others of its kind.
    pub fn fail(&self, operation: Operation, after: u64) {
        self.lock().faults.push((operation, after));
    }

    /// Cancels every [`Disk::fail`] that has not happened.
    pub fn call_failures_off(&self) {
        self.lock().faults.clear();
    }

    /// Sets the reported duration of a sync; nothing waits for it. The default is a millisecond.
    pub fn set_sync_time(&self, time: Duration) {
        self.lock().sync_time = time;
    }

    /// True while a database is open on the disk.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.lock().open
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
