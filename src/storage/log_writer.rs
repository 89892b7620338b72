//! The one writer.

use crate::WriterStats;
use std::time::Duration;

/// What one cycle of the writer did (DESIGN §6: the proposer cuts a group's next entry by it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleStats {
    /// Writes in the batch.
    pub writes: usize,
    /// Log entries among them.
    pub entries: usize,
    /// Octets of the batch.
    pub bytes: usize,
    /// How long the synced write took.
    pub sync: Duration,
    /// Nothing was waiting when the cycle ended.
    pub idle: bool,
}

/// Handle of the one thread that writes. Cheap to clone.
#[derive(Clone)]
pub struct LogWriter {}

impl LogWriter {
    /// Calls `listener` after each cycle, after the cycle's [`crate::Done`]s, on the writer's
    /// thread. It must be short.
    pub fn subscribe_cycles(&self, listener: Box<dyn Fn(CycleStats) + Send + Sync>) {
        let _ = listener;
        todo!()
    }
    /// True if nothing waits and nothing is being written.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        todo!()
    }
    /// False from half of the FIFO's bound on: propose nothing new.
    #[must_use]
    pub fn has_room(&self) -> bool {
        todo!()
    }
    /// How long the sync that runs now has been running; zero if none does.
    #[must_use]
    pub fn stalled_for(&self) -> Duration {
        todo!()
    }
    /// True while a sync takes longer than the bound (DESIGN §8): give up leaderships.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        todo!()
    }
    /// What it has done since the start.
    #[must_use]
    pub fn stats(&self) -> WriterStats {
        todo!()
    }
}
