//! How a database is opened: identity, memory budgets, bounds.

use crate::StorageError;
use quorate_types::{Incarnation, NodeId};
use std::{sync::Arc, time::Duration};

/// Called once, on the thread that met it, when a write or sync has failed. The process must end
/// with a clear line; no write is tried again (DESIGN §8).
pub type FatalHook = Arc<dyn Fn(&StorageError) + Send + Sync>;

/// How a database is opened.
#[derive(Clone)]
pub struct Options {
    /// This node; a directory of another one is refused.
    pub node: NodeId,
    /// Written into a directory that is made now, ignored for one that exists.
    pub incarnation: Incarnation,
    /// Random: distinguishes the processes of copies of a directory.
    pub chance: u32,
    /// Bytes of all memtables together.
    pub write_buffer_bytes: usize,
    /// Bytes of the block cache, indexes and filters included.
    pub block_cache_bytes: usize,
    /// Bytes of recent runs kept in memory, of all groups together. Runs not yet written are
    /// kept beyond it; they are bounded by what the raft floor has
    /// under way.
    pub run_cache_bytes: usize,
    /// Bytes of recent log entries kept in memory for one group, beyond those not yet written.
    pub tail_cache_bytes: usize,
    /// A sync that takes longer makes `LogWriter::is_stalled` true (DESIGN §8); one of many bytes has
    /// more time.
    pub watchdog: Duration,
    /// Bytes of the disk that a snapshot leaves free, or it is not received.
    pub disk_free_limit: u64,
    /// What to do when a write has failed.
    pub fatal: FatalHook,
    /// Writes to RocksDB after which the writer "crashes".
    #[cfg(test)]
    pub(crate) crash_after: Option<u64>,
    /// Holds installs up while nothing comes and it is not closed.
    #[cfg(test)]
    pub(crate) install_gate: Option<crossbeam_channel::Receiver<()>>,
}

impl Options {
    /// Defaults for a node of 300 MiB: 64 MiB of memtables, 48 MiB of blocks, 48 MiB of runs,
    /// 2 MiB of entries a group, 1 s for a sync, no reserve of disk. A failure aborts the process.
    #[must_use]
    pub fn new(node: NodeId, incarnation: Incarnation) -> Self {
        Self {
            node,
            incarnation,
            chance: 0,
            write_buffer_bytes: 64 << 20,
            block_cache_bytes: 48 << 20,
            run_cache_bytes: 48 << 20,
            tail_cache_bytes: 2 << 20,
            watchdog: Duration::from_secs(1),
            disk_free_limit: 0,
            fatal: Arc::new(|error| {
                tracing::error!("storage failed, the process exits: {error}");
                std::process::abort();
            }),
            #[cfg(test)]
            crash_after: None,
            #[cfg(test)]
            install_gate: None,
        }
    }
}
