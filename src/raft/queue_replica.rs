//! The machine of a queue group: `quorate_queue::Machine`, its run heads, and its changes since the
//! last checkpoint.

use crate::{
    machine::{GroupMachine, MachineError},
    sink::QueueSink,
};
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_queue::{Change, Machine, Output};
use quorate_storage::{
    Checkpoint, CommandEntry, Done, EntryId, GroupStore, Loaded, ReplicaStore, RunRange,
    codec::{
        DecodeError,
        queue::{decode_entry, decode_key, decode_record},
    },
};
use quorate_types::{GroupId, Home};
use std::sync::Arc;
use tokio::time::Instant;

/// Backlogs whose ages are read at a start, each a read of the disk.
const LEARN_MAX: usize = 256;

/// The queues of one group. Readers share the machine.
pub(crate) struct QueueReplica {
    group: GroupId,
    machine: Arc<Mutex<Machine>>,
    group_store: GroupStore,
    store: ReplicaStore,
    sink: Arc<dyn QueueSink>,
    output: Output,
}

impl QueueReplica {
    /// An empty machine, until [`GroupMachine::load`], and a handle to it for readers.
    pub(crate) fn new(
        group_store: GroupStore,
        sink: Arc<dyn QueueSink>,
    ) -> (Self, Arc<Mutex<Machine>>) {
        let group = group_store.group();
        let machine = Arc::new(Mutex::new(Machine::new(Home::Group(group))));
        let replica = Self {
            group,
            machine: Arc::clone(&machine),
            store: ReplicaStore::new(group_store.clone()),
            group_store,
            sink,
            output: Output::default(),
        };
        (replica, machine)
    }
}

impl GroupMachine for QueueReplica {
    fn load(&mut self, loaded: Loaded) -> Result<(), MachineError> {
        let mut records = Vec::with_capacity(loaded.records.len());
        for (key, record) in &loaded.records {
            let key = decode_key(key).map_err(records_error)?;
            records.push((key, decode_record(record).map_err(records_error)?));
        }
        let mut machine = Machine::load(Home::Group(self.group), records)
            .map_err(|error| MachineError::Records(error.to_string()))?;
        let dead: Vec<_> = machine.dead_ranges().iter().filter_map(removed).collect();
        self.store.clear();
        if let Some(applied) = loaded.applied {
            machine.learn_oldest(&self.store, applied.index, LEARN_MAX);
        }
        *self.machine.lock() = machine;
        // Removals that a crash has prevented are repeated (STO 3).
        let done: Done = Box::new(|result| {
            if let Err(error) = result {
                tracing::error!("cannot remove messages that are no longer needed: {error}");
            }
        });
        self.group_store.remove_dead(&dead, done)?;
        Ok(())
    }

    fn apply(
        &mut self,
        id: EntryId,
        commands: &CommandEntry,
        leading: bool,
    ) -> Result<(), MachineError> {
        let index = id.index;
        let entry = decode_entry(&commands.command)
            .map_err(|source| MachineError::Entry { index, source })?;
        self.output.clear();
        let applied = self.machine.lock().apply(index, &entry, &self.store, &mut self.output);
        applied.map_err(|error| MachineError::Apply { index, reason: error.to_string() })?;
        self.store.take(index, &self.output.changes)?;
        self.sink.applied(self.group, id, leading, &entry, &self.output);
        Ok(())
    }

    fn advance(&mut self, _: EntryId) {}

    fn dirty_bytes(&self) -> usize {
        self.store.dirty_bytes()
    }

    fn checkpoint(&mut self, applied: EntryId, meta: Bytes) -> Result<Checkpoint, MachineError> {
        let machine = self.machine.lock();
        let record = |key| machine.record(key);
        Ok(self.store.checkpoint(applied, meta, record, Instant::now().into_std()))
    }

    fn clear(&mut self) {
        self.store.clear();
    }

    fn digest(&self) -> u64 {
        self.machine.lock().digest()
    }
}

fn records_error(error: DecodeError) -> MachineError {
    MachineError::Records(error.to_string())
}

/// The runs that a change removes; `None` for other changes.
fn removed(change: &Change) -> Option<RunRange> {
    match change {
        Change::Removed { queue, level, first, last } => {
            Some(RunRange { queue: *queue, level: *level, first: *first, last: *last })
        }
        Change::Record(_) | Change::Cut { .. } | Change::QueueRemoved { .. } => None,
    }
}
