//! The contents of a simulated disk, and the effect of a crash.

use super::{
    Loss, Operation,
    chance::Chance,
    files::Files,
    record::{changes, put_frame, whole_frames},
    trees::Trees,
};
use crate::StorageError;
use bytes::Bytes;
use std::time::Duration;

pub(super) struct State {
    /// Counts openings and ends: a dead process is recognized by an older number.
    pub(super) life: u64,
    pub(super) open: bool,
    /// The data that reads return.
    pub(super) live: Trees,
    /// The data that no crash loses.
    durable: Trees,
    /// Writes in `live` that are not in `durable`, in their order.
    pending: Vec<Pending>,
    pub(super) files: Files,
    /// Numbers of the last write, and of the last synced one.
    sequence: u64,
    pub(super) synced: u64,
    /// Number of folders created so far.
    pub(super) folders: u64,
    chance: Chance,
    pub(super) crash_after: Option<u64>,
    pub(super) faults: Vec<(Operation, u64)>,
    pub(super) sync_time: Duration,
}

enum Pending {
    /// A batch, which a crash may lose.
    Batch(Bytes),
    /// An ingested table, which is not lost; it is pending because batches before it are.
    Table(Bytes),
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            life: 0,
            open: false,
            live: Trees::default(),
            durable: Trees::default(),
            pending: Vec::new(),
            files: Files::default(),
            sequence: 0,
            synced: 0,
            folders: 0,
            chance: Chance::new(seed),
            crash_after: None,
            faults: Vec::new(),
            sync_time: Duration::from_millis(1),
        }
    }

    /// Begins a process with the data of its predecessor, which a recovery writes to tables.
    pub(super) fn begin(&mut self) -> u64 {
        self.flush();
        self.open = true;
        self.life += 1;
        self.life
    }

    /// Ends the process.
    pub(super) fn end(&mut self) {
        self.open = false;
        self.life += 1;
    }

    /// Called before each operation of the process of that life: lets scheduled failures happen.
    pub(super) fn step(&mut self, life: u64, operation: Operation) -> Result<(), StorageError> {
        if self.life != life {
            return Err(StorageError::Closed);
        }
        if operation != Operation::Read {
            match &mut self.crash_after {
                None => {}
                Some(0) => {
                    self.crash();
                    return Err(StorageError::Closed);
                }
                Some(left) => *left -= 1,
            }
        }
        let mut fails = false;
        self.faults.retain_mut(|(kind, left)| {
            let comes = *kind == operation && *left == 0;
            fails |= comes;
            *left -= u64::from(*kind == operation && *left > 0);
            !comes
        });
        if fails { Err(failure(operation)) } else { Ok(()) }
    }

    pub(super) fn write(&mut self, life: u64, batch: Bytes) -> Result<(), StorageError> {
        self.step(life, Operation::Write)?;
        apply(&batch, &mut self.live)?;
        self.sequence += 1;
        self.pending.push(Pending::Batch(batch));
        Ok(())
    }

    pub(super) fn sync(&mut self, life: u64) -> Result<(), StorageError> {
        self.step(life, Operation::Sync)?;
        self.flush();
        Ok(())
    }

    pub(super) fn ingest(&mut self, life: u64, table: Bytes) -> Result<(), StorageError> {
        self.step(life, Operation::Write)?;
        apply(&table, &mut self.live)?;
        self.sequence += 1;
        self.pending.push(Pending::Table(table));
        Ok(())
    }

    fn flush(&mut self) {
        let batches = self.pending.len();
        self.settle(batches);
        self.synced = self.sequence;
    }

    /// Makes this number of batches durable and drops the others. Tables are durable anyway.
    fn settle(&mut self, batches: usize) {
        let mut left = batches;
        for pending in self.pending.drain(..) {
            let operations = match pending {
                Pending::Batch(_) if left == 0 => continue,
                Pending::Batch(batch) => {
                    left -= 1;
                    batch
                }
                Pending::Table(table) => table,
            };
            // It was applied to `live` without an error before.
            drop(apply(&operations, &mut self.durable));
        }
    }

    /// Simulates a loss of power: a suffix of the pending writes is lost, its first batch may be
    /// torn, and blocks before the end may be missing.
    pub(super) fn crash(&mut self) -> Loss {
        self.end();
        self.crash_after = None;
        let mut log = Vec::new();
        let mut ends = vec![0];
        for pending in &self.pending {
            if let Pending::Batch(batch) = pending {
                put_frame(batch, &mut log);
                ends.push(log.len());
            }
        }
        let written = ends.len() - 1;
        let mut left = ends.into_iter().skip(self.chance.up_to(written));
        let (end, next) = (left.next().unwrap_or_default(), left.next());
        let torn = next.filter(|_| self.chance.once_in(2));
        log.truncate(torn.map_or(end, |next| end + self.chance.up_to(next - end)));
        if self.chance.once_in(4) {
            let from = self.chance.up_to(log.len());
            log.iter_mut().skip(from).take(512).for_each(|byte| *byte = !*byte);
        }
        let (whole, torn) = whole_frames(&log);
        self.settle(whole);
        self.live = self.durable.clone();
        self.synced = self.sequence;
        let files = self.files.crash(&mut self.chance);
        Loss { batches: written - whole, torn, files }
    }
}

fn failure(operation: Operation) -> StorageError {
    let action = match operation {
        Operation::Read => "cannot read",
        Operation::Write => "cannot write",
        Operation::Sync => "cannot sync",
    };
    StorageError::Disk { action, reason: "the simulated disk was told to fail".into() }
}

/// Applies a batch, completely or not at all.
fn apply(operations: &[u8], trees: &mut Trees) -> Result<(), StorageError> {
    let changes = changes(operations).ok_or_else(|| StorageError::Disk {
        action: "cannot read a table of a snapshot",
        reason: "it is damaged".into(),
    })?;
    for (family, change) in changes {
        trees.apply(family, &change);
    }
    Ok(())
}
