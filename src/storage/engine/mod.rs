//! The one interface to the storage engine: RocksDB in a node, a simulated disk in simulations
//! (`simulated`). Everything above reads and writes through [`Engine`]. Only the log writer,
//! installs and the opening of a database write.
//!
//! It is an enum, not a trait, because iterators and pinned values borrow from the engine: a match
//! costs nothing compared to RocksDB's work, while a boxed iterator would allocate at each read.

mod batch;
mod folder;
mod rocks;
mod scan;
mod table;
mod tuning;

pub(crate) use batch::{OpenBatch, WriteBatch};
pub(crate) use folder::{Folder, Output};
pub(crate) use rocks::RocksEngine;
pub(crate) use scan::{Scan, Snapshot, Value};
pub(crate) use table::{Table, TableOptions};

use crate::{DatabaseMemory, LogFiles, StorageError, simulated::SimulatedEngine};
use std::time::Duration;

/// Column families (DESIGN §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// The database's own identity.
    Identity,
    Log,
    Raft,
    Heads,
    Bodies,
    State,
    Catalog,
}

impl Family {
    pub(crate) const ALL: [Family; 7] = [
        Self::Identity,
        Self::Log,
        Self::Raft,
        Self::Heads,
        Self::Bodies,
        Self::State,
        Self::Catalog,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Identity => "default",
            Self::Log => "log",
            Self::Raft => "raft",
            Self::Heads => "heads",
            Self::Bodies => "bodies",
            Self::State => "state",
            Self::Catalog => "catalog",
        }
    }
}

/// The storage engine of a database.
pub(crate) enum Engine {
    Rocks(RocksEngine),
    Simulated(SimulatedEngine),
}

impl Engine {
    /// True if the database has no threads: its owner steps it.
    pub(crate) fn is_stepped(&self) -> bool {
        matches!(self, Self::Simulated(_))
    }

    /// True if the simulated process was killed: it calls no callbacks.
    pub(crate) fn is_dead(&self) -> bool {
        match self {
            Self::Rocks(_) => false,
            Self::Simulated(engine) => engine.is_dead(),
        }
    }

    /// Refuses a write of this many bytes if the disk does not have enough free space.
    pub(crate) fn check_room(&self, needed: u64) -> Result<(), StorageError> {
        match self {
            Self::Rocks(engine) => engine.check_room(needed),
            Self::Simulated(_) => Ok(()),
        }
    }

    /// Approximate bytes of a range of keys on disk.
    pub(crate) fn range_bytes(
        &self,
        family: Family,
        start: &[u8],
        end: &[u8],
    ) -> Result<u64, StorageError> {
        match self {
            Self::Rocks(engine) => engine.range_bytes(family, start, end),
            Self::Simulated(engine) => engine.range_bytes(family, start, end),
        }
    }

    pub(crate) fn get(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<Value<'_>>, StorageError> {
        match self {
            Self::Rocks(engine) => Ok(engine.get(family, key)?.map(Value::Rocks)),
            Self::Simulated(engine) => Ok(engine.get(family, key)?.map(Value::Simulated)),
        }
    }

    /// An iterator up to before `end`; it must be positioned first.
    pub(crate) fn scan(&self, family: Family, end: &[u8]) -> Result<Scan<'_>, StorageError> {
        match self {
            Self::Rocks(engine) => Ok(Scan::Rocks(engine.scan(family, end)?)),
            Self::Simulated(engine) => Ok(Scan::Simulated(engine.scan(family, end)?)),
        }
    }

    /// A consistent view of the present state, for long reads.
    pub(crate) fn snapshot(&self) -> Result<Snapshot<'_>, StorageError> {
        match self {
            Self::Rocks(engine) => Ok(Snapshot::Rocks(engine, engine.snapshot())),
            Self::Simulated(engine) => Ok(Snapshot::Simulated(engine.snapshot()?)),
        }
    }

    /// A batch to be filled, with capacity for this many bytes.
    pub(crate) fn batch(&self, capacity: usize) -> Result<OpenBatch<'_>, StorageError> {
        match self {
            Self::Rocks(engine) => engine.batch(capacity),
            Self::Simulated(_) => Ok(OpenBatch::simulated(capacity)),
        }
    }

    /// Writes a batch and waits until it is on disk.
    pub(crate) fn write_synced(&self, batch: WriteBatch) -> Result<(), StorageError> {
        match (self, batch) {
            (Self::Rocks(engine), WriteBatch::Rocks(batch)) => engine.write_synced(batch),
            (Self::Simulated(engine), WriteBatch::Simulated(batch)) => engine.write_synced(batch),
            (Self::Rocks(_), WriteBatch::Simulated(_))
            | (Self::Simulated(_), WriteBatch::Rocks(_)) => Err(StorageError::Disk {
                action: "cannot write",
                reason: "the batch was made by another engine".into(),
            }),
        }
    }

    /// Duration of a simulated sync; `None` for a real one, which is measured.
    pub(crate) fn sync_time(&self) -> Option<Duration> {
        match self {
            Self::Rocks(_) => None,
            Self::Simulated(engine) => Some(engine.sync_time()),
        }
    }

    /// Options for writing a table that is to be ingested into that family.
    pub(crate) fn table_options(&self, family: Family) -> TableOptions {
        match self {
            Self::Rocks(engine) => TableOptions::Rocks(engine.file_options(family)),
            Self::Simulated(_) => TableOptions::Simulated(family),
        }
    }

    /// Ingests a copy of a table; the table stays. Writes wait meanwhile, but only briefly if
    /// nothing in the family's memtable overlaps it.
    pub(crate) fn ingest(
        &self,
        family: Family,
        folder: &Folder,
        table: &'static str,
    ) -> Result<(), StorageError> {
        match (self, folder) {
            (Self::Rocks(engine), Folder::Disk(dir)) => engine.ingest(family, &dir.join(table)),
            (Self::Simulated(engine), Folder::Simulated(folder)) => engine.ingest(folder, table),
            (Self::Rocks(_), Folder::Simulated(_)) | (Self::Simulated(_), Folder::Disk(_)) => {
                Err(StorageError::Disk {
                    action: "cannot ingest a table of a snapshot",
                    reason: "the table is of another engine".into(),
                })
            }
        }
    }

    /// Writes the family's memtable to a table, while writes continue.
    pub(crate) fn flush(&self, family: Family) -> Result<(), StorageError> {
        match self {
            Self::Rocks(engine) => engine.flush(family),
            Self::Simulated(_) => Ok(()),
        }
    }

    /// Writes all memtables to tables: a file of the write-ahead log stays until all families have
    /// flushed its contents.
    pub(crate) fn flush_all(&self) -> Result<(), StorageError> {
        match self {
            Self::Rocks(engine) => engine.flush_all(),
            Self::Simulated(_) => Ok(()),
        }
    }

    /// Reclaims the disk space of removed records between two keys.
    pub(crate) fn compact(
        &self,
        family: Family,
        start: &[u8],
        end: &[u8],
    ) -> Result<(), StorageError> {
        match self {
            Self::Rocks(engine) => engine.compact(family, start, end),
            Self::Simulated(_) => Ok(()),
        }
    }

    /// Cancels compactions in progress.
    pub(crate) fn cancel_background_work(&self) {
        match self {
            Self::Rocks(engine) => engine.cancel_background_work(),
            Self::Simulated(_) => {}
        }
    }

    /// Numbers of the parts in which the log is kept.
    pub(crate) fn log_files(&self) -> LogFiles {
        match self {
            Self::Rocks(engine) => engine.log_files(),
            Self::Simulated(_) => LogFiles::default(),
        }
    }

    /// Memory held by the engine; the run cache is no part of it.
    pub(crate) fn memory(&self) -> DatabaseMemory {
        match self {
            Self::Rocks(engine) => engine.memory(),
            Self::Simulated(_) => DatabaseMemory::default(),
        }
    }

    /// Number of failed flushes and compactions; above 0 the database accepts no more writes.
    pub(crate) fn background_errors(&self) -> u64 {
        match self {
            Self::Rocks(engine) => engine.background_errors(),
            Self::Simulated(_) => 0,
        }
    }

    /// The last write that is known to be on disk.
    pub(crate) fn synced(&self) -> u64 {
        match self {
            Self::Rocks(engine) => engine.synced(),
            Self::Simulated(engine) => engine.synced(),
        }
    }

    /// A new folder for a received snapshot, with a unique name that begins with `name`.
    pub(crate) fn new_folder(&self, name: &str) -> Folder {
        match self {
            Self::Rocks(engine) => Folder::new_on_disk(engine.dir(), name),
            Self::Simulated(engine) => Folder::Simulated(engine.new_folder(name)),
        }
    }

    /// The folder of that name.
    pub(crate) fn folder(&self, name: &str) -> Folder {
        match self {
            Self::Rocks(engine) => Folder::on_disk(engine.dir(), name),
            Self::Simulated(engine) => Folder::Simulated(engine.folder(name)),
        }
    }

    /// Removes the folders of all received snapshots.
    pub(crate) fn remove_folders(&self) -> std::io::Result<()> {
        match self {
            Self::Rocks(engine) => folder::remove_all(engine.dir()),
            Self::Simulated(engine) => engine.remove_folders(),
        }
    }
}

/// The error for an error of RocksDB.
pub(crate) fn disk(action: &'static str, error: &rocksdb::Error) -> StorageError {
    StorageError::Disk { action, reason: error.to_string().into() }
}

/// The error for an error of the system.
pub(crate) fn file(action: &'static str) -> impl Fn(std::io::Error) -> StorageError {
    move |error| StorageError::Disk { action, reason: error.to_string().into() }
}
