//! What the machine reads: the heads of runs, kept by the storage floor.

use crate::command::MessageHead;
use quorate_types::{Level, LogIndex, QueueId, Timestamp};

/// The heads of one run as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHead {
    /// Log index of the entry that carried it.
    pub index: LogIndex,
    /// When it was enqueued, on the group's clock.
    pub time: Timestamp,
    /// One head a message; `None` where the message was cut (STO 4).
    pub messages: Vec<Option<MessageHead>>,
}

/// Read-only access to run heads. What it shows reflects every [`crate::Change`] handed out by
/// the applies before the present one; removed runs may or may not still be there.
pub trait MessageStore {
    /// Up to `limit` runs of that queue and level with `from` ≤ index ≤ `through`, in ascending
    /// order of index. Fewer than `limit` means that there are no more.
    ///
    /// # Errors
    /// What the disk says; the machine passes it on, and the process ends.
    fn runs(
        &self,
        queue: QueueId,
        level: Level,
        from: LogIndex,
        through: LogIndex,
        limit: usize,
    ) -> Result<Vec<RunHead>, StoreError>;
}

/// A read of the message store failed; says what and where.
#[derive(Debug, thiserror::Error)]
#[error("message store: {0}")]
pub struct StoreError(pub String);
