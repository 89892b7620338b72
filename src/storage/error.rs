//! Errors of this crate, and how the end of a write is reported.

use crate::codec::DecodeError;
use quorate_types::MachineVersion;
use std::{path::PathBuf, sync::Arc};

/// Called exactly once when a write is durable, or has failed; in the order of the FIFO, on the
/// writer's thread (at once on the caller's thread if the write was refused). It must be short.
pub type Done = Box<dyn FnOnce(Result<(), StorageError>) + Send>;

/// A read or write that failed. Cheap to clone: one failed batch fails many writes.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StorageError {
    /// RocksDB or the disk has failed. The node's process ends: a failed sync is never repeated.
    #[error("{action}: {reason}")]
    Disk {
        /// The operation that failed.
        action: &'static str,
        /// The error of RocksDB or the system.
        reason: Arc<str>,
    },
    /// The bytes that were read are not those that were written.
    #[error("{what}: {source}")]
    Corrupt {
        /// Kind and key of the record.
        what: Arc<str>,
        /// Why it cannot be decoded.
        source: DecodeError,
    },
    /// A file of the database has lost data that had been synced.
    #[error("{file}: {what}")]
    Damaged {
        /// Name of the damaged file.
        file: Arc<str>,
        /// The kind of damage.
        what: Arc<str>,
    },
    /// Entries that do not follow the log's last one.
    #[error("log entry {found} does not follow the last log entry, {last}")]
    NotContiguous {
        /// Index of the first entry.
        found: u64,
        /// Last index of the log.
        last: u64,
    },
    /// The data to be received do not fit on the disk.
    #[error(
        "not enough disk space: {needed} bytes are needed, {free} are free, {reserve} must stay \
         free (setting disk_free_limit)"
    )]
    NoRoom {
        /// Approximate bytes that it takes while it is installed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes that must stay free.
        reserve: u64,
    },
    /// The writer has ended, by [`crate::Database::close`] or by an earlier failure.
    #[error("the log writer has stopped")]
    Closed,
}

/// Why a data directory cannot be opened: one line, naming the path.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed.
    #[error("data directory {path}: {action}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The directory is not empty, and Quorate did not make it.
    #[error("data directory {path} is not empty and was not made by quorate")]
    NotOurs {
        /// Path of the directory.
        path: PathBuf,
    },
    /// There is no directory that Quorate made.
    #[error(
        "data directory {path} does not exist, or was not made by quorate: it has no file QUORATE"
    )]
    Absent {
        /// Path of the directory.
        path: PathBuf,
    },
    /// Another version made the directory.
    #[error(
        "data directory {path} has format {found}, this version of quorate reads format {known}"
    )]
    Format {
        /// Path of the directory.
        path: PathBuf,
        /// Format that the directory has.
        found: String,
        /// Format that this version reads.
        known: u32,
    },
    /// A newer version has written to the directory (MEM 15).
    #[error(
        "data directory {path} has machine version {found}, this version of quorate knows versions \
         up to {newest}: start a newer one"
    )]
    Machine {
        /// Path of the directory.
        path: PathBuf,
        /// Version of the replicated machine by which its data was written.
        found: MachineVersion,
        /// The newest version that this binary knows.
        newest: MachineVersion,
    },
    /// The directory belongs to another node.
    #[error("data directory {path} belongs to node {found}, this is node {node}")]
    OtherNode {
        /// Path of the directory.
        path: PathBuf,
        /// Node that it belongs to.
        found: u16,
        /// Id of this node.
        node: u16,
    },
    /// Another process has opened the directory.
    #[error("data directory {path} is in use by another process")]
    InUse {
        /// Path of the directory.
        path: PathBuf,
    },
    /// The directory has lost data that had been synced, RocksDB cannot open it, or an unfinished
    /// install cannot be repeated.
    #[error("data directory {path}: {source}")]
    Storage {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the storage.
        source: StorageError,
    },
}
