//! The machine's read access to the heads of runs, which the storage crate keeps.

use crate::command::MessageHead;
use quorate_types::{Level, LogIndex, QueueId, Timestamp};

/// The heads of one run as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHead {
    /// Log index of the entry that contained it.
    pub index: LogIndex,
    /// When it was enqueued, by the group's clock.
    pub time: Timestamp,
    /// One head for each message; `None` if the message was cut (STO 4).
    pub messages: Vec<Option<MessageHead>>,
}

/// Read-only access to run heads. It reflects every [`crate::Change`] that applies before the
/// present one have returned; removed runs may or may not be shown.
pub trait MessageStore {
    /// Up to `limit` runs of that queue and level with `from` ≤ index ≤ `through`, in ascending
    /// order of index. Fewer than `limit` means that there are no more.
    ///
    /// # Errors
    /// The error of the disk; the machine returns it, and the process ends.
    fn runs(
        &self,
        queue: QueueId,
        level: Level,
        from: LogIndex,
        through: LogIndex,
        limit: usize,
    ) -> Result<Vec<RunHead>, StoreError>;
}

/// A read of the message store failed; the text says what was read and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("message store: {0}")]
pub struct StoreError(pub String);
