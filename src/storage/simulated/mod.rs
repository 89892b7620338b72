//! A disk in memory for simulations: deterministic from a seed, without files and threads.
//!
//! A write is part of what is read at once, but pends until a sync. A crash loses a suffix of what
//! pends, and may tear its last record; what follows a torn record is lost too. Any write, sync or
//! read can be made to fail.
//!
//! [`crate::Database::open_simulated`] opens a database on one. Its work is done by
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

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A read of a key, an iterator or a file.
    Read,
    /// A write of a batch, a table or a file, before it has changed anything.
    Write,
    /// A sync. What pends goes on pending.
    Sync,
}

/// What a crash took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Batches that were not synced and are gone.
    pub batches: usize,
    /// The first of them was torn: a part of it, or a damaged whole, was on the disk.
    pub torn: bool,
    /// Files of received snapshots that are gone or shorter.
    pub files: usize,
}

/// A simulated disk. It outlives the databases that are opened on it. Cheap to clone.
#[derive(Clone)]
pub struct Disk {
    state: Arc<Mutex<State>>,
}

impl Disk {
    /// An empty disk. The seed decides what its crashes take away.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(seed))) }
    }

    /// The machine loses its power. The open database is dead from now on: its reads and writes
    /// fail, and writes that were under way are not reported.
    pub fn crash(&self) -> Loss {
        self.lock().crash()
    }

    /// The process is killed. The database is dead as after a crash, but nothing is lost: the
    /// system still has what was written.
    pub fn kill(&self) {
        self.lock().end();
    }

    /// The power is lost before the write or sync that comes after this many others.
    pub fn crash_after(&self, operations: u64) {
        self.lock().crash_after = Some(operations);
    }

    /// Calls a [`Disk::crash_after`] off that has not come. True if there was one.
    pub fn call_crash_off(&self) -> bool {
        self.lock().crash_after.take().is_some()
    }

    /// The operation of that kind that comes after this many others of its kind fails.
    pub fn fail(&self, operation: Operation, after: u64) {
        self.lock().faults.push((operation, after));
    }

    /// Sets how long a sync is said to take; nothing waits for it. At first a millisecond.
    pub fn set_sync_time(&self, time: Duration) {
        self.lock().sync_time = time;
    }

    /// True while a database is open on it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.lock().open
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
