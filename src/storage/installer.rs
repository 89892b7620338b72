//! Installs snapshots beside the log writer, on a thread of its own: other groups' votes and appends
//! do not wait for one. The group's own later writes are held until it is through.
//!
//! The mark and two batches of an install go through the FIFO; flushing and ingesting the tables do
//! not. A snapshot needs twice its size, for the stream and for the tables made of it, and is
//! refused if it would leave less than `disk_free_limit` free. Its leader then offers no other one
//! for 10 s.

use crate::{
    Done, GroupStore, LogWriter, StorageError,
    batch::Work,
    engine::{Engine, file},
    install::Install,
};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use parking_lot::Mutex;
use rocksdb::WriteBatch;
use std::{sync::Arc, thread::JoinHandle};

/// An install whose mark has been synced.
pub(crate) struct Job {
    pub(crate) store: GroupStore,
    pub(crate) install: Install,
    pub(crate) done: Done,
}

/// The thread, and the way to it.
pub(crate) struct Installer {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Installer {
    /// Starts the thread.
    pub(crate) fn start(
        engine: Arc<Engine>,
        writer: LogWriter,
        options: &crate::Options,
    ) -> Result<Self, StorageError> {
        let (sender, jobs) = unbounded();
        let worker = Worker { engine, writer, gate: Gate::new(options) };
        let thread = std::thread::Builder::new()
            .name("installer".to_owned())
            .spawn(move || worker.run(&jobs))
            .map_err(file("cannot start the thread that installs snapshots"))?;
        Ok(Self { jobs: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) })
    }

    /// Hands it an install. Does not wait.
    pub(crate) fn take(&self, job: Job) {
        let refused = match &*self.jobs.lock() {
            Some(jobs) => jobs.send(job).map_err(|refused| refused.0).err(),
            None => Some(job),
        };
        if let Some(job) = refused {
            job.fail(&StorageError::Closed);
        }
    }

    /// Carries out what it has been handed and ends the thread.
    pub(crate) fn close(&self) {
        drop(self.jobs.lock().take());
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that installs snapshots has panicked");
        }
    }
}

impl Job {
    /// The mark stays, and the next start does it again.
    fn fail(mut self, error: &StorageError) {
        self.install.keep_files();
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
            let put = |batch| self.put(batch);
            let step = || {
                self.gate.pass();
                self.writer.step()
            };
            match job.install.carry_out(&self.engine, &put, &step) {
                Ok(()) => {
                    let Job { store, install, done } = job;
                    drop(install);
                    done(Ok(()));
                    store.release(None);
                }
                Err(error) => {
                    self.writer.fail(error.clone());
                    job.fail(&error);
                }
            }
        }
    }

    /// Has the log writer write a batch, in its turn, and waits for it.
    fn put(&self, batch: WriteBatch) -> Result<(), StorageError> {
        let (sender, written) = bounded(1);
        // It is received below.
        let done: Done = Box::new(move |result| drop(sender.send(result)));
        if let Some((_, error)) = self.writer.push(Work::Batch(Box::new(batch)), Some(done)) {
            return Err(error);
        }
        written.recv().map_err(|_| StorageError::Closed)?
    }
}

/// In tests: holds installs up until it is opened.
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
            // Closed: it is open for good.
            let _ = opened.recv();
        }
    }
}
