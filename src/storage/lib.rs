//! What a node keeps on disk: one RocksDB, one writer, one sync for all groups (DESIGN §3, STO).

pub mod codec;
mod database;
mod entry;
mod error;
mod group_store;
mod log_writer;
mod options;
mod replica_store;
mod snapshot;
mod statistics;

pub use database::{Database, Identity};
pub use entry::{CommandEntry, EntryId, LogEntry, Payload, RunBodies};
pub use error::{Done, OpenError, StorageError};
pub use group_store::{Checkpoint, GroupStore, Loaded, LogState, MessageRef, RunRange};
pub use log_writer::{CycleStats, LogWriter};
pub use options::{FatalHook, Options};
pub use replica_store::ReplicaStore;
pub use snapshot::{ReceivedSnapshot, SnapshotDownload, SnapshotReader};
pub use statistics::{Histogram, WriterStats};
