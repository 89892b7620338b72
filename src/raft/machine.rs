//! The replicated state machine of a group, behind one interface for queues and catalog.

use quorate_storage::{Checkpoint, CommandEntry, EntryId, Loaded, OpenError, StorageError, codec};
use quorate_types::LogIndex;

/// Why a replica cannot continue. The process ends.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The disk failed, or the data that was read is invalid.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The mark of the data directory cannot be written.
    #[error(transparent)]
    Mark(#[from] OpenError),
    /// The commands of a log entry cannot be decoded.
    #[error("log entry {index}: {source}")]
    Entry {
        /// Log index of the entry.
        index: LogIndex,
        /// Error of the decoder.
        source: codec::DecodeError,
    },
    /// The machine failed to apply an entry, because a read failed.
    #[error("log entry {index}: {reason}")]
    Apply {
        /// Log index of the entry.
        index: LogIndex,
        /// The error of the machine.
        reason: String,
    },
    /// The records of a checkpoint contradict each other.
    #[error("the checkpoint is not a valid state: {0}")]
    Records(String),
}

/// The state machine of one group. Calls are sequential, in the order of the log.
pub trait GroupMachine: Send + 'static {
    /// Replaces the state by that of a checkpoint: at a start, and after a snapshot was installed.
    ///
    /// # Errors
    /// The records contradict each other.
    fn load(&mut self, loaded: Loaded) -> Result<(), MachineError>;

    /// Applies the commands of an entry and passes their outcome to the sink; effects are performed
    /// only if `leading` (STO 7).
    ///
    /// # Errors
    /// The machine cannot be used any more.
    fn apply(
        &mut self,
        id: EntryId,
        commands: &CommandEntry,
        leading: bool,
    ) -> Result<(), MachineError>;

    /// Records that the log has an entry without commands.
    fn advance(&mut self, id: EntryId);

    /// Approximate number of bytes that a checkpoint would write.
    fn dirty_bytes(&self) -> usize;

    /// The checkpoint of the state after `applied`; the changed records are passed with it (STO 3).
    ///
    /// # Errors
    /// A read has failed.
    fn checkpoint(
        &mut self,
        applied: EntryId,
        meta: bytes::Bytes,
    ) -> Result<Checkpoint, MachineError>;

    /// Discards the changes since the last checkpoint, because a snapshot is being installed (STO
    /// 6).
    fn clear(&mut self);

    /// Rolling digest of all applied entries.
    fn digest(&self) -> u64;
}
