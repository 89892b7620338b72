//! A node's data on disk: one RocksDB, one writer, one sync for all groups (DESIGN §3, STO).
//!
//! In reading order: an entry is passed to [`GroupStore::append`], stored in memory and in the one
//! FIFO, and written by the one [`LogWriter`]; read from memory or disk; applied by the raft crate
//! over a [`ReplicaStore`], whose changes become a [`Checkpoint`]; streamed as a snapshot.

mod batch;
mod charter;
mod checkpoint;
pub mod codec;
mod cuts;
mod database;
mod directory;
mod engine;
mod entry;
mod epoch;
mod error;
mod fifo;
mod group_store;
mod install;
mod installer;
mod log_reader;
mod log_writer;
mod memory;
mod message_reader;
mod options;
mod reclaim;
mod removals;
mod replica_record;
mod replica_store;
mod run_cache;
pub mod simulated;
mod snapshot;
mod statistics;
mod synced;
mod wal;
mod watchdog;

#[cfg(test)]
mod testing;

pub use checkpoint::Checkpoint;
pub use database::{Database, Identity};
pub use directory::{MachineMark, free_bytes, owner};
pub use entry::{CommandEntry, EntryId, LogEntry, Payload, RunBodies};
pub use error::{Done, OpenError, StorageError};
pub use group_store::{GroupStore, Loaded, LogState, RunRange};
pub use log_writer::{CycleStats, LogWriter};
pub use message_reader::{Committed, MessageRef, StoredMessage};
pub use options::{FatalHook, Options};
pub use replica_record::ReplicaRecord;
pub use replica_store::ReplicaStore;
pub use snapshot::{ReceivedSnapshot, SnapshotDownload, SnapshotReader};
pub use statistics::{DatabaseMemory, DatabaseStats, Histogram, LogFiles, Recorder, WriterStats};
