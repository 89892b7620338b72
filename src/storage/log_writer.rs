//! The one thread that writes: it takes everything that waits, of all groups, into one batch and
//! one sync, and then reports the end of each, in the order of the FIFO (DESIGN §3, STO 1).

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

/// Bytes from which on a batch takes nothing more, so that one sync stays short and the first in
/// line does not wait for the last. A write as large as that begins one.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Writes of at most this many bytes still join the batch of a large one before them, up to this many
/// bytes together: otherwise each large body would cost everybody a sync more.
const SMALL_BYTES: usize = 64 << 10;
const SMALL_BYTES_SUM: usize = 1 << 20;

/// Bytes of buffer kept from batch to batch.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Cycles between two checks of RocksDB's background errors.
const BACKGROUND_CYCLES: u32 = 64;

/// What one cycle of the writer did (DESIGN §6: the proposer cuts a group's next entry by it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleStats {
    /// Writes in the batch.
    pub writes: usize,
    /// Log entries among them.
    pub entries: usize,
    /// Bytes of the batch.
    pub bytes: usize,
    /// How long the synced write took.
    pub sync: Duration,
    /// Nothing was waiting when the cycle ended.
    pub idle: bool,
}

type Listener = Box<dyn Fn(CycleStats) + Send + Sync>;

/// Handle of the one thread that writes. Cheap to clone.
#[derive(Clone)]
pub struct LogWriter {
    shared: Arc<Shared>,
    /// In the thread's place, if the database is stepped.
    stepped: Option<Arc<Mutex<Stepped>>>,
}

/// What the thread has on its stack.
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

    /// Puts a write into the FIFO. If that is closed, `done` is handed back, and the caller reports the error.
    #[must_use]
    pub(crate) fn push(&self, work: Work, done: Option<Done>) -> Option<(Done, StorageError)> {
        self.shared.fifo.push(work, done)
    }

    pub(crate) fn ride_along(&self, work: Work) {
        self.shared.fifo.ride_along(work);
    }

    /// Something beside the writer has failed as a write fails: nothing more is written.
    pub(crate) fn fail(&self, error: StorageError) {
        // Closed already: the error has been reported.
        let _ = self.push(Work::Failed(error), None);
    }

    /// Called before each write to RocksDB that is not the writer's own; tests crash there.
    pub(crate) fn before_write(&self) -> Result<(), StorageError> {
        self.shared.crash.step()
    }

    /// Carries out one cycle, on the caller's thread. False: there is nothing to be written, or a
    /// thread does it. [`Done`]s may not call it.
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

    /// Calls `wake` when there is something to be written and nobody is at it.
    pub(crate) fn set_wake(&self, wake: Wake) {
        self.shared.fifo.set_wake(wake);
    }

    /// Writes what waits and ends the thread.
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

    /// True if nothing waits and nothing is being written.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.shared.fifo.is_idle()
    }

    /// Bytes that wait to be written, of all groups.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.shared.fifo.bytes()
    }

    /// How long the sync that runs now has been running; zero if none does.
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

    /// What it has done since the start.
    #[must_use]
    pub fn stats(&self) -> WriterStats {
        self.shared.recorders.stats(self.shared.fifo.bytes())
    }
}

/// The thread's own.
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

    /// One cycle, and what has come meanwhile taken in if anything is left. False: it has failed,
    /// and so has all that waits.
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

    /// Fills a batch, which holds its first write, and writes it; says how many entries and
    /// bytes it had and how long the sync took.
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

    /// Writes a batch of this many bytes, under watch; returns how long that took.
    fn sync(&mut self, rocks: WriteBatch, bytes: usize) -> Result<Duration, StorageError> {
        self.check_background_errors()?;
        self.shared.crash.step()?;
        let (result, sync) = self.shared.watchdog.watch(bytes, || self.engine.write_synced(rocks));
        result.map(|()| self.engine.sync_time().unwrap_or(sync))
    }

    /// A flush or compaction that failed ends the process too, even if this write would not.
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

    /// A failed write or sync is never tried again: nothing more is taken, everything that waits
    /// fails, and the hook ends the process (DESIGN §8).
    fn fail(&self, error: &StorageError, unwritten: impl Iterator<Item = Write>) {
        self.shared.fifo.close(error.clone());
        if self.shared.crash.has_come() || self.engine.is_dead() {
            // A crashed process calls nobody back.
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

/// In tests: the moment that the process "crashes", counted in writes to RocksDB. Nothing is
/// written from then on.
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
