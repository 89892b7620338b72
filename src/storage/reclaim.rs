//! Reclaims disk space. Range deletions free nothing until a compaction processes them, and after a
//! backlog was drained there are no writes that would trigger one. A separate thread compacts the
//! ranges of removed runs, once they are quiet or large.
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

/// Size in files at which a range is compacted although it is not quiet. Messages that are settled
/// soon after they arrive stay below it, because of RocksDB's own compactions.
const BUSY_BYTES: u64 = 512 << 20;

/// Minimum size of one range for a compaction, and minimum of all of them.
const RANGE_BYTES: u64 = 1 << 20;
const TOTAL_BYTES: u64 = 16 << 20;

/// Maximum of ranges recorded at once; removals from more queues within a tick are left to RocksDB.
const RANGES_MAX: usize = 4096;

/// The thread, and the state that it shares.
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

/// The smallest range that contains all removed runs.
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

    /// Records that these runs were removed.
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

    /// The work of the thread in one tick, if the database is stepped.
    pub(crate) fn step(&self) -> Result<(), StorageError> {
        if self.shared.engine.is_stepped() { self.shared.scan(false) } else { Ok(()) }
    }

    /// Ends the thread; a compaction in progress is cancelled.
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
                // The log writer uses the same disk, and ends the process if necessary.
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

    /// Compacts quiet ranges (with `at_once` all) that are large enough.
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

    /// Later removals begin a new range.
    fn forget(&self, place: Place) {
        let mut state = self.state.lock();
        if state.removed.get(&place).is_some_and(|removed| removed.quiet) {
            state.removed.remove(&place);
        }
    }

    /// Approximate bytes of files in the range.
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

    /// Releases the files of the write-ahead log.
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
    /// Does at once what the thread does after a range has become quiet.
    pub(crate) fn scan_now(&self) -> Result<(), StorageError> {
        self.shared.scan(true)
    }
}
