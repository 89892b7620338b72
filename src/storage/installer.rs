//! Installs snapshots beside the log writer, on a separate thread: other groups' votes and appends
//! do not wait for an install. The group's own later writes are held until it has ended.
//!
//! The mark and two batches of an install go through the FIFO; flushing and ingesting the tables do
//! not. A snapshot needs twice its size, for the stream and for the tables made of it, and is
//! refused if it would leave less than `disk_free_limit` free. Its leader then offers no other one
//! for 10 s.

use crate::{
    Done, GroupStore, LogWriter, StorageError,
    batch::Work,
    engine::{Engine, WriteBatch, file},
    install::Install,
};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use parking_lot::Mutex;
use std::{sync::Arc, thread::JoinHandle};

/// An install whose mark was synced.
pub(crate) struct Job {
    pub(crate) store: GroupStore,
    pub(crate) install: Install,
    pub(crate) done: Done,
}

/// The thread, and the channel to it.
pub(crate) struct Installer {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Used in place of the thread, if the database is stepped.
    stepped: Option<Mutex<(Worker, Receiver<Job>)>>,
}

impl Installer {
    /// Starts the thread, unless the database is stepped.
    pub(crate) fn start(
        engine: Arc<Engine>,
        writer: LogWriter,
        options: &crate::Options,
    ) -> Result<Self, StorageError> {
        let (sender, jobs) = unbounded();
        let stepped = engine.is_stepped();
        let worker = Worker { engine, writer, gate: Gate::new(options) };
        let jobs_to_come = Mutex::new(Some(sender));
        if stepped {
            let stepped = Some(Mutex::new((worker, jobs)));
            return Ok(Self { jobs: jobs_to_come, thread: Mutex::new(None), stepped });
        }
        let thread = std::thread::Builder::new()
            .name("installer".to_owned())
            .spawn(move || worker.run(&jobs))
            .map_err(file("cannot start the thread that installs snapshots"))?;
        Ok(Self { jobs: jobs_to_come, thread: Mutex::new(Some(thread)), stepped: None })
    }

    /// Passes an install to the thread. Does not wait.
    pub(crate) fn take(&self, job: Job) {
        let refused = match &*self.jobs.lock() {
            Some(jobs) => jobs.send(job).map_err(|refused| refused.0).err(),
            None => Some(job),
        };
        if let Some(job) = refused {
            job.fail(&StorageError::Closed);
        }
    }

    /// Carries out one waiting install, on the caller's thread. False: there is none, or a thread
    /// does it.
    pub(crate) fn step(&self) -> bool {
        let Some(stepped) = self.stepped.as_ref().and_then(Mutex::try_lock) else { return false };
        let (worker, jobs) = &*stepped;
        let Ok(job) = jobs.try_recv() else { return false };
        worker.carry_out(job);
        true
    }

    /// Carries out waiting installs and ends the thread.
    pub(crate) fn close(&self) {
        drop(self.jobs.lock().take());
        while self.step() {}
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that installs snapshots has panicked");
        }
    }
}

impl Job {
    /// The mark stays, and the next start repeats the install.
    fn fail(self, error: &StorageError) {
        (self.done)(Err(error.clone()));
        self.store.release(Some(error));
    }
}

struct Worker {
    engine: Arc<Engine>,
    writer: LogWriter,
    gate: Gate,
}

impl Worker {
    fn run(&self, jobs: &Receiver<Job>) {
        for job in jobs {
            self.carry_out(job);
        }
    }

    fn carry_out(&self, job: Job) {
        let put = |batch| self.put(batch);
        let before_write = || {
            self.gate.pass();
            self.writer.before_write()
        };
        match job.install.carry_out(&self.engine, &put, &before_write) {
            Ok(()) => {
                let Job { store, install, done } = job;
                install.remove_files();
                done(Ok(()));
                store.release(None);
            }
            Err(error) => {
                self.writer.fail(error.clone());
                job.fail(&error);
            }
        }
    }

    /// Passes a batch to the log writer, and waits for it.
    fn put(&self, batch: WriteBatch) -> Result<(), StorageError> {
        let (sender, written) = bounded(1);
        // The result is received below.
        let done: Done = Box::new(move |result| drop(sender.send(result)));
        if let Some((_, error)) = self.writer.push(Work::Batch(Box::new(batch)), Some(done)) {
            return Err(error);
        }
        while self.writer.step() {}
        written.recv().map_err(|_| StorageError::Closed)?
    }
}

/// In tests: delays installs until it is opened.
struct Gate {
    #[cfg(test)]
    opened: Option<Receiver<()>>,
}

impl Gate {
    #[cfg_attr(not(test), expect(unused_variables, reason = "the test's twin looks"))]
    fn new(options: &crate::Options) -> Self {
        Self {
            #[cfg(test)]
            opened: options.install_gate.clone(),
        }
    }

    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "the test's twin waits"))]
    fn pass(&self) {
        #[cfg(test)]
        if let Some(opened) = &self.opened {
            // If the channel is closed, the gate stays open.
            let _ = opened.recv();
        }
    }
}
