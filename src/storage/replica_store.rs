//! What the one apply task of a group owns: the run heads that its machine reads, and the dirty
//! checkpoint.

use crate::{Checkpoint, EntryId, GroupStore, StorageError};
use bytes::Bytes;
use quorate_queue::{Change, Machine, MessageStore, RunHead, StoreError};
use quorate_types::{Level, LogIndex, QueueId};
use std::time::Instant;

/// Run heads for the machine of one group, and its dirty checkpoint.
pub struct ReplicaStore {}

impl ReplicaStore {
    /// Of that group, with nothing dirty.
    #[must_use]
    pub fn new(group: GroupStore) -> Self {
        let _ = group;
        todo!()
    }
    /// Takes the changes of one apply; from now on reads show them.
    ///
    /// # Errors
    /// A failed read.
    pub fn take(&mut self, applied: LogIndex, changes: &[Change]) -> Result<(), StorageError> {
        let _ = (applied, changes);
        todo!()
    }
    /// True if a checkpoint would write nothing but the applied index.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        todo!()
    }
    /// Octets that a checkpoint would write, about (flush at 4 MiB, DESIGN §3).
    #[must_use]
    pub fn dirty_bytes(&self) -> usize {
        todo!()
    }
    /// The checkpoint of the machine's state, which is that after `applied`. What is dirty is
    /// handed over with it.
    ///
    /// # Errors
    /// A failed read.
    pub fn checkpoint(
        &mut self,
        applied: EntryId,
        meta: Bytes,
        machine: &Machine,
        now: Instant,
    ) -> Result<Checkpoint, StorageError> {
        let _ = (applied, meta, machine, now);
        todo!()
    }
    /// Forgets what is dirty: a snapshot is being installed (STO 6).
    pub fn clear(&mut self) {
        todo!()
    }
}

impl MessageStore for ReplicaStore {
    fn runs(
        &self,
        queue: QueueId,
        level: Level,
        from: LogIndex,
        through: LogIndex,
        limit: usize,
    ) -> Result<Vec<RunHead>, StoreError> {
        let _ = (queue, level, from, through, limit);
        todo!()
    }
}
