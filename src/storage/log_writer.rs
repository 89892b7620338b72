//! The one thread that writes: it writes all waiting writes of all groups in one batch and one
//! sync, and then reports the end of each, in the order of the FIFO (DESIGN §3, STO 1).

use crate::{
    Done, FatalHook, StorageError, WriterStats,
    batch::{BatchBuilder, Work, Write},
    engine::{Engine, WriteBatch},
    fifo::{Fifo, Wake},
    reclaim::Reclaim,
    statistics::Recorders,
    watchdog::Watchdog,
};
use bytes::BytesMut;
use parking_lot::{Mutex, RwLock};
use std::{collections::VecDeque, sync::Arc, thread::JoinHandle, time::Duration};

/// Size at which a batch accepts no more writes, so that a sync stays short and the first write
/// does not wait for the last. A write of that size begins a batch.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Writes of at most this many bytes may still join the batch of a large one before them, up to
/// this many bytes together: otherwise each large body would cost all others an additional sync.
const SMALL_BYTES: usize = 64 << 10;
const SMALL_BYTES_SUM: usize = 1 << 20;

/// Bytes of the buffer that is reused for the next batch.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Cycles between two checks of RocksDB's background errors.
const BACKGROUND_CYCLES: u32 = 64;

/// Statistics of one cycle of the writer (DESIGN §6: they control when the proposer ends a group's
/// next entry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleStats {
    /// Number of writes in the batch.
    pub writes: usize,
    /// Number of log entries among them.
    pub entries: usize,
    /// Bytes of the batch.
    pub bytes: usize,
    /// Duration of the synced write.
    pub sync: Duration,
    /// No write was waiting when the cycle ended.
    pub idle: bool,
}

type Listener = Box<dyn Fn(CycleStats) + Send + Sync>;

/// Handle of the one thread that writes. Cheap to clone.
#[derive(Clone)]
pub struct LogWriter {
    shared: Arc<Shared>,
    /// Used in place of the thread, if the database is stepped.
    stepped: Option<Arc<Mutex<Stepped>>>,
}

/// The state that the thread has on its stack.
struct Stepped {
    writer: Writer,
    taken: VecDeque<Write>,
}

struct Shared {
    fifo: Fifo,
    recorders: Recorders,
    watchdog: Watchdog,
    listeners: RwLock<Vec<Listener>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    crash: Crash,
}

impl LogWriter {
    /// Starts the thread, unless the database is stepped.
    pub(crate) fn start(
        engine: Arc<Engine>,
        reclaim: Arc<Reclaim>,
        options: &crate::Options,
    ) -> Result<Self, StorageError> {
        let shared = Arc::new(Shared {
            fifo: Fifo::new(),
            recorders: Recorders::default(),
            watchdog: Watchdog::new(options.watchdog),
            listeners: RwLock::default(),
            thread: Mutex::new(None),
            crash: Crash::new(options),
        });
        let stepped = engine.is_stepped();
        let writer = Writer {
            engine,
            reclaim,
            shared: shared.clone(),
            fatal: options.fatal.clone(),
            scratch: BytesMut::new(),
            cycles: 0,
        };
        if stepped {
            let stepped = Stepped { writer, taken: VecDeque::new() };
            return Ok(Self { shared, stepped: Some(Arc::new(Mutex::new(stepped))) });
        }
        let thread = std::thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(crate::engine::file("cannot start the log writer"))?;
        *shared.thread.lock() = Some(thread);
        Ok(Self { shared, stepped: None })
    }

    /// Adds a write to the FIFO. If that is closed, `done` is returned, and the caller reports the
    /// error.
    #[must_use]
    pub(crate) fn push(&self, work: Work, done: Option<Done>) -> Option<(Done, StorageError)> {
        self.shared.fifo.push(work, done)
    }

    pub(crate) fn ride_along(&self, work: Work) {
        self.shared.fifo.ride_along(work);
    }

    /// Fails like after a failed write, because a part beside the writer has failed: nothing more
    /// is written.
    pub(crate) fn fail(&self, error: StorageError) {
        // If it is closed already, the error was reported.
        let _ = self.push(Work::Failed(error), None);
    }

    /// Called before each write to RocksDB that is not the writer's own; tests crash there.
    pub(crate) fn before_write(&self) -> Result<(), StorageError> {
        self.shared.crash.step()
    }

    /// Carries out one cycle, on the caller's thread. False: there is nothing to write, or a thread
    /// does it. A [`Done`] must not call it.
    pub(crate) fn step(&self) -> bool {
        let Some(stepped) = &self.stepped else { return false };
        let Some(mut stepped) = stepped.try_lock() else { return false };
        let Stepped { writer, taken } = &mut *stepped;
        if taken.is_empty() && !self.shared.fifo.take_now(taken) {
            return false;
        }
        writer.step(taken);
        true
    }

    /// Sets the callback for waiting writes while the writer does not work.
    pub(crate) fn set_wake(&self, wake: Wake) {
        self.shared.fifo.set_wake(wake);
    }

    /// Writes waiting writes and ends the thread.
    pub(crate) fn close(&self) {
        self.shared.fifo.close(StorageError::Closed);
        while self.step() {}
        let thread = self.shared.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the log writer has panicked");
        }
    }

    /// Calls `listener` after each cycle, after the cycle's [`Done`]s, on the writer's thread. It
    /// must be short.
    pub fn subscribe_cycles(&self, listener: Box<dyn Fn(CycleStats) + Send + Sync>) {
        self.shared.listeners.write().push(listener);
    }

    /// True if no write waits or is being written.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.shared.fifo.is_idle()
    }

    /// Bytes that wait to be written, of all groups.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.shared.fifo.bytes()
    }

    /// Duration of the sync in progress so far; zero if there is none.
    #[must_use]
    pub fn stalled_for(&self) -> Duration {
        self.shared.watchdog.stalled_for()
    }

    /// True while a sync takes longer than the bound (DESIGN §8): give up leaderships, and take
    /// no new ones.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.shared.watchdog.is_late()
    }

    /// Statistics since the start.
    #[must_use]
    pub fn stats(&self) -> WriterStats {
        self.shared.recorders.stats(self.shared.fifo.bytes())
    }
}

/// The state of the thread.
struct Writer {
    engine: Arc<Engine>,
    reclaim: Arc<Reclaim>,
    shared: Arc<Shared>,
    fatal: FatalHook,
    scratch: BytesMut,
    cycles: u32,
}

impl Writer {
    fn run(mut self) {
        let mut taken = VecDeque::new();
        while self.shared.fifo.take_all(&mut taken) {
            while !taken.is_empty() {
                if !self.step(&mut taken) {
                    return;
                }
            }
        }
    }

    /// One cycle, then adds writes that have arrived, if any are left. False: a write has failed,
    /// and all waiting writes with it.
    fn step(&mut self, taken: &mut VecDeque<Write>) -> bool {
        let mut batch = Vec::new();
        if let Err(error) = self.cycle(taken, &mut batch) {
            self.fail(&error, batch.into_iter().chain(taken.drain(..)));
            return false;
        }
        if !taken.is_empty() {
            self.shared.fifo.take_more(taken);
        }
        true
    }

    /// One batch, one sync, then the ends of its writes are reported.
    fn cycle(
        &mut self,
        taken: &mut VecDeque<Write>,
        batch: &mut Vec<Write>,
    ) -> Result<(), StorageError> {
        let (entries, written, sync) = match taken.pop_front() {
            Some(Write { work: Work::Batch(rocks), bytes, done }) => {
                batch.push(Write { work: Work::Barrier, bytes, done });
                let written = rocks.bytes();
                (0, written, self.sync(*rocks, written)?)
            }
            Some(Write { work: Work::Failed(error), .. }) => return Err(error),
            Some(first) => {
                batch.push(first);
                self.write(taken, batch)?
            }
            None => return Ok(()),
        };
        let writes = batch.len();
        self.shared.recorders.cycle(sync, written, writes, entries);
        self.shared.fifo.written(batch.iter().map(|write| write.bytes).sum());
        for Write { work, done, .. } in batch.drain(..) {
            if let Work::Append(append) = &work {
                append.memory.written(append.ticket);
            }
            drop(work);
            if let Some(done) = done {
                done(Ok(()));
            }
        }
        let idle = taken.is_empty() && self.shared.fifo.is_drained();
        let stats = CycleStats { writes, entries, bytes: written, sync, idle };
        for listener in self.shared.listeners.read().iter() {
            listener(stats);
        }
        Ok(())
    }

    /// Fills a batch, beginning with its first write, and writes it; returns its entries and bytes,
    /// and the duration of the sync.
    fn write(
        &mut self,
        taken: &mut VecDeque<Write>,
        batch: &mut Vec<Write>,
    ) -> Result<(usize, usize, Duration), StorageError> {
        let mut bytes: usize = batch.iter().map(|write| write.bytes).sum();
        let mut small = 0;
        while let Some(next) = taken.pop_front_if(|next| {
            let is_small = next.bytes <= SMALL_BYTES && small < SMALL_BYTES_SUM;
            let fits = bytes < BATCH_BYTES_MAX && next.bytes < BATCH_BYTES_MAX;
            (fits || is_small) && !next.work.begins_a_batch()
        }) {
            if bytes >= BATCH_BYTES_MAX {
                small += next.bytes;
            }
            bytes += next.bytes;
            batch.push(next);
        }
        let scratch = std::mem::take(&mut self.scratch);
        let mut builder = BatchBuilder::new(&self.engine, bytes + bytes / 8, scratch)?;
        for write in batch.iter() {
            builder.add(&write.work)?;
        }
        let (entries, written) = (builder.entries, builder.bytes());
        let removed = std::mem::take(&mut builder.removed);
        let (rocks, scratch) = builder.finish();
        if scratch.capacity() <= SCRATCH_BYTES_MAX {
            self.scratch = scratch;
        }
        if rocks.is_empty() {
            assert!(entries == 0, "STO 1: what is told written is in a batch: {entries} entries");
            return Ok((0, 0, Duration::ZERO));
        }
        let sync = self.sync(rocks, written)?;
        self.reclaim.note(&removed);
        Ok((entries, written, sync))
    }

    /// Writes a batch of this many bytes, observed by the watchdog; returns the duration.
    fn sync(&mut self, rocks: WriteBatch, bytes: usize) -> Result<Duration, StorageError> {
        self.check_background_errors()?;
        self.shared.crash.step()?;
        let (result, sync) = self.shared.watchdog.watch(bytes, || self.engine.write_synced(rocks));
        result.map(|()| self.engine.sync_time().unwrap_or(sync))
    }

    /// A failed flush or compaction ends the process too, even if this write would succeed.
    fn check_background_errors(&mut self) -> Result<(), StorageError> {
        self.cycles = self.cycles.wrapping_add(1);
        if self.cycles.is_multiple_of(BACKGROUND_CYCLES) && self.engine.background_errors() > 0 {
            return Err(StorageError::Disk {
                action: "background write of the database failed",
                reason: "see the file LOG of the database".into(),
            });
        }
        Ok(())
    }

    /// A failed write or sync is never repeated: no more writes are accepted, all waiting ones
    /// fail, and the hook ends the process (DESIGN §8).
    fn fail(&self, error: &StorageError, unwritten: impl Iterator<Item = Write>) {
        self.shared.fifo.close(error.clone());
        if self.shared.crash.has_come() || self.engine.is_dead() {
            // A crashed process calls no callbacks.
            drop((unwritten.count(), self.shared.fifo.abandon()));
            return;
        }
        (self.fatal)(error);
        for write in unwritten.chain(self.shared.fifo.abandon()) {
            if let Some(done) = write.done {
                done(Err(error.clone()));
            }
        }
    }
}

/// In tests: when the process "crashes", counted in writes to RocksDB. Nothing is written after
/// that.
struct Crash {
    #[cfg(test)]
    state: Mutex<(Option<u64>, bool)>,
}

#[cfg(test)]
impl Crash {
    fn new(options: &crate::Options) -> Self {
        Self { state: Mutex::new((options.crash_after, false)) }
    }

    fn step(&self) -> Result<(), StorageError> {
        let (steps_left, come) = &mut *self.state.lock();
        match steps_left {
            None => Ok(()),
            Some(0) => {
                *come = true;
                Err(StorageError::Closed)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn has_come(&self) -> bool {
        self.state.lock().1
    }
}

#[cfg(not(test))]
impl Crash {
    fn new(_: &crate::Options) -> Self {
        Self {}
    }

    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "the test's twin fails")]
    fn step(&self) -> Result<(), StorageError> {
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "the test's twin looks")]
    fn has_come(&self) -> bool {
        false
    }
}
