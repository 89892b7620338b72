//! Disk space given back: range deletions free nothing until a compaction meets them, and after a
//! backlog has been drained nothing is written any more that would bring one about. A thread of its
//! own compacts the ranges of removed runs, once they are quiet or large.
//!
//! The files of a range are never simply dropped: a snapshot that is being read may need them.

use crate::{
    RunRange, StorageError,
    batch::range_keys,
    codec::key::RunKey,
    engine::{Engine, Family},
};
use parking_lot::{Condvar, Mutex};
use quorate_types::{GroupId, Level, LogIndex, QueueId};
use std::{
    collections::BTreeMap,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Interval of the checks. A range in which nothing was removed for this long is quiet.
const TICK: Duration = Duration::from_secs(10);

/// Bytes in files from which on a range is compacted although it is not quiet. Traffic that is
/// settled as it comes stays below, by the compactions that RocksDB does anyway.
const BUSY_BYTES: u64 = 512 << 20;

/// Bytes that one range is worth a compaction for, and that all of them are.
const RANGE_BYTES: u64 = 1 << 20;
const TOTAL_BYTES: u64 = 16 << 20;

/// Ranges noted at once; what is removed from more queues within a tick waits for RocksDB.
const RANGES_MAX: usize = 4096;

/// The thread, and the messages that wait for it.
pub(crate) struct Reclaim {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    engine: Arc<Engine>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    removed: BTreeMap<Place, Removed>,
    closed: bool,
}

type Place = (GroupId, QueueId, Level);

/// The hull of what was removed.
#[derive(Clone, Copy)]
struct Removed {
    first: LogIndex,
    last: LogIndex,
    /// Nothing was added to it since the last check.
    quiet: bool,
}

impl Reclaim {
    /// Starts the thread, unless the database is stepped.
    pub(crate) fn start(engine: Arc<Engine>) -> Result<Self, StorageError> {
        let stepped = engine.is_stepped();
        let shared = Arc::new(Shared { engine, state: Mutex::default(), changed: Condvar::new() });
        if stepped {
            return Ok(Self { shared, thread: Mutex::new(None) });
        }
        let thread = std::thread::Builder::new()
            .name("reclaim".to_owned())
            .spawn({
                let shared = shared.clone();
                move || shared.run()
            })
            .map_err(crate::engine::file("cannot start the thread that reclaims disk space"))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// These runs have been removed.
    pub(crate) fn note(&self, ranges: &[(GroupId, RunRange)]) {
        let removed = &mut self.shared.state.lock().removed;
        for &(group, RunRange { queue, level, first, last }) in ranges {
            let place = (group, queue, level);
            if let Some(range) = removed.get_mut(&place) {
                range.first = range.first.min(first);
                range.last = range.last.max(last);
                range.quiet = false;
            } else if removed.len() < RANGES_MAX {
                removed.insert(place, Removed { first, last, quiet: false });
            }
        }
    }

    /// What the thread does once in a tick, if the database is stepped.
    pub(crate) fn step(&self) -> Result<(), StorageError> {
        if self.shared.engine.is_stepped() { self.shared.scan(false) } else { Ok(()) }
    }

    /// Ends the thread; a compaction under way is given up.
    pub(crate) fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_all();
        self.shared.engine.cancel_background_work();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that reclaims disk space has panicked");
        }
    }
}

impl Shared {
    fn run(&self) {
        while self.sleep() {
            if let Err(error) = self.scan(false) {
                // The log writer meets the same disk, and ends the process if need be.
                tracing::warn!("cannot reclaim disk space: {error}");
            }
        }
    }

    /// Waits a tick; false if the database closes.
    fn sleep(&self) -> bool {
        let until = Instant::now() + TICK;
        let mut state = self.state.lock();
        while !state.closed {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return !state.closed;
            }
        }
        false
    }

    /// Compacts what is worth it, of the ranges that are quiet (or `at_once` all).
    fn scan(&self, at_once: bool) -> Result<(), StorageError> {
        let seen: Vec<(Place, Removed)> = {
            let mut state = self.state.lock();
            let mark = |(&place, removed): (&Place, &mut Removed)| {
                let before = *removed;
                removed.quiet = true;
                (place, before)
            };
            state.removed.iter_mut().map(mark).collect()
        };
        let mut due = Vec::new();
        let mut total = 0;
        for (place, removed) in seen {
            let bytes = self.bytes(place, removed)?;
            let quiet = removed.quiet || at_once;
            if quiet && bytes < RANGE_BYTES {
                self.forget(place);
            } else if quiet || bytes >= BUSY_BYTES {
                due.push((place, removed));
                total += bytes;
            }
        }
        if total < TOTAL_BYTES {
            return Ok(());
        }
        tracing::debug!(ranges = due.len(), bytes = total, "reclaiming disk space");
        for (place, removed) in due {
            self.forget(place);
            self.compact(place, removed)?;
        }
        self.flush()
    }

    /// What is removed from now on is a new range.
    fn forget(&self, place: Place) {
        let mut state = self.state.lock();
        if state.removed.get(&place).is_some_and(|removed| removed.quiet) {
            state.removed.remove(&place);
        }
    }

    /// Bytes of files in the range, about.
    fn bytes(&self, place: Place, removed: Removed) -> Result<u64, StorageError> {
        let (start, end) = keys(place, removed);
        let mut bytes = 0;
        for family in [Family::Heads, Family::Bodies] {
            bytes += self.engine.range_bytes(family, &start, &end)?;
        }
        Ok(bytes)
    }

    fn compact(&self, place: Place, removed: Removed) -> Result<(), StorageError> {
        let (start, end) = keys(place, removed);
        for family in [Family::Heads, Family::Bodies] {
            if self.state.lock().closed {
                return Ok(());
            }
            self.engine.compact(family, &start, &end)?;
        }
        Ok(())
    }

    /// Lets go of the files of the write-ahead log.
    fn flush(&self) -> Result<(), StorageError> {
        if self.state.lock().closed {
            return Ok(());
        }
        match self.engine.flush_all() {
            Err(error) if !self.state.lock().closed => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn keys((group, queue, level): Place, removed: Removed) -> (bytes::BytesMut, bytes::BytesMut) {
    let Removed { first, last, .. } = removed;
    range_keys(group, &RunRange { queue, level, first, last })
}

/// A single run, as a range.
pub(crate) fn one_run(group: GroupId, run: RunKey) -> (GroupId, RunRange) {
    let RunKey { queue, level, index } = run;
    (group, RunRange { queue, level, first: index, last: index })
}

#[cfg(test)]
impl Reclaim {
    /// Does at once what the thread does when a range has been quiet.
    pub(crate) fn scan_now(&self) -> Result<(), StorageError> {
        self.shared.scan(true)
    }
}
