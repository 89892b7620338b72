//! What a replica keeps equal: the machine of a group, behind one interface for queues and catalog.

use quorate_storage::{Checkpoint, CommandEntry, EntryId, Loaded, StorageError, codec};
use quorate_types::LogIndex;

/// Why a replica cannot go on. The process ends.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The disk, or what was read from it.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// An entry of the log whose commands cannot be decoded.
    #[error("log entry {index}: {source}")]
    Entry {
        /// Log index of the entry.
        index: LogIndex,
        /// Error of the decoder.
        source: codec::DecodeError,
    },
    /// A read of the machine failed while an entry was applied.
    #[error("log entry {index}: {reason}")]
    Apply {
        /// Log index of the entry.
        index: LogIndex,
        /// What the machine says.
        reason: String,
    },
    /// Records of a checkpoint that make no state.
    #[error("the checkpoint is not a valid state: {0}")]
    Records(String),
}

/// The machine of one group. All calls come one at a time, in the order of the log.
pub trait GroupMachine: Send + 'static {
    /// Takes the state of a checkpoint, in place of what there is: at a start, and after a
    /// snapshot was installed.
    ///
    /// # Errors
    /// Records that make no state.
    fn load(&mut self, loaded: Loaded) -> Result<(), MachineError>;

    /// Applies the commands of an entry and hands their outcome to the sink; effects are
    /// performed only if `leading` (STO 7).
    ///
    /// # Errors
    /// The machine is then of no further use.
    fn apply(
        &mut self,
        id: EntryId,
        commands: &CommandEntry,
        leading: bool,
    ) -> Result<(), MachineError>;

    /// Takes note of an entry without commands.
    fn advance(&mut self, id: EntryId);

    /// Bytes that a checkpoint would write, about.
    fn dirty_bytes(&self) -> usize;

    /// The checkpoint of the state after `applied`; what is dirty is handed over with it (STO 3).
    ///
    /// # Errors
    /// A failed read.
    fn checkpoint(
        &mut self,
        applied: EntryId,
        meta: bytes::Bytes,
    ) -> Result<Checkpoint, MachineError>;

    /// Forgets what is dirty: a snapshot is being installed (STO 6).
    fn clear(&mut self);

    /// Rolling digest of everything applied.
    fn digest(&self) -> u64;
}
