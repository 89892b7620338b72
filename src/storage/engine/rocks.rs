//! RocksDB: reads, synced writes, ingested tables. `tuning` has its options.

use super::{Family, OpenBatch, disk, file, tuning};
use crate::{DatabaseMemory, LogFiles, Options, StorageError};
use parking_lot::Mutex;
use quorate_types::PlantedBug;
use rocksdb::{
    Cache, ColumnFamily, ColumnFamilyDescriptor, CompactOptions, DB, DBPinnableSlice,
    DBRawIterator, FlushOptions, IngestExternalFileOptions, ReadOptions, SnapshotWithThreadMode,
    WriteBatch, WriteOptions,
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Levels of RocksDB's sorted files.
const LEVELS: u32 = 7;

/// Maximum of range deletions in one memtable before it is flushed. Each read after a new one sorts
/// all of them again, so thousands would make reads slow.
const RANGE_DELETIONS_MAX: &str = "512";

/// The open database.
pub(crate) struct RocksEngine {
    db: DB,
    cache: Cache,
    dir: PathBuf,
    disk_free_limit: u64,
    /// Sequence number up to which everything is known to be on disk.
    synced: AtomicU64,
    /// Held while tables are ingested: meanwhile the sequence number is ahead of the disk.
    ingesting: Mutex<()>,
    /// Held as long as the database is open; the system releases it with the process.
    _lock: File,
}

impl RocksEngine {
    /// Opens the database below `dir`, whose lock the caller has taken, or creates a `new` one.
    pub(crate) fn open(
        dir: &Path,
        lock: File,
        options: &Options,
        new: bool,
    ) -> Result<Self, StorageError> {
        let cache = Cache::new_lru_cache(options.block_cache_bytes);
        let families = Family::ALL.map(|family| {
            let tuned = tuning::family_options(family, options, &cache);
            ColumnFamilyDescriptor::new(family.name(), tuned)
        });
        let mut database = tuning::database_options(options);
        // A database whose files are gone must not be replaced by an empty one.
        database.create_if_missing(new);
        let db = DB::open_cf_descriptors(&database, dir.join("db"), families)
            .map_err(|error| disk("cannot open the database", &error))?;
        let synced = AtomicU64::new(db.latest_sequence_number());
        let ingesting = Mutex::default();
        let (dir, disk_free_limit) = (dir.to_owned(), options.disk_free_limit);
        let engine = Self { db, cache, dir, disk_free_limit, synced, ingesting, _lock: lock };
        for family in [Family::Log, Family::Heads, Family::Bodies, Family::State, Family::Catalog] {
            let option = [("memtable_max_range_deletions", RANGE_DELETIONS_MAX)];
            engine
                .db
                .set_options_cf(engine.family(family)?, &option)
                .map_err(|error| disk("cannot tune the database", &error))?;
        }
        Ok(engine)
    }

    /// The data directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn check_room(&self, needed: u64) -> Result<(), StorageError> {
        let free = crate::directory::free_bytes(&self.dir)
            .map_err(file("cannot determine the free disk space"))?;
        let reserve = self.disk_free_limit;
        if free >= needed.saturating_add(reserve) {
            return Ok(());
        }
        Err(StorageError::NoRoom { needed, free, reserve })
    }

    pub(super) fn range_bytes(
        &self,
        family: Family,
        start: &[u8],
        end: &[u8],
    ) -> Result<u64, StorageError> {
        let range = [rocksdb::Range::new(start, end)];
        Ok(self.db.get_approximate_sizes_cf(self.family(family)?, &range).iter().sum())
    }

    /// Options for files that are to be ingested into that family.
    pub(super) fn file_options(&self, family: Family) -> rocksdb::Options {
        tuning::table_options(family, &self.cache)
    }

    pub(super) fn family(&self, family: Family) -> Result<&ColumnFamily, StorageError> {
        self.db.cf_handle(family.name()).ok_or_else(|| StorageError::Disk {
            action: "cannot find a column family",
            reason: family.name().into(),
        })
    }

    pub(super) fn get(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'_>>, StorageError> {
        self.db
            .get_pinned_cf(self.family(family)?, key)
            .map_err(|error| disk("cannot read", &error))
    }

    pub(super) fn scan(
        &self,
        family: Family,
        end: &[u8],
    ) -> Result<DBRawIterator<'_>, StorageError> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        Ok(self.db.raw_iterator_cf_opt(self.family(family)?, options))
    }

    pub(super) fn snapshot(&self) -> SnapshotWithThreadMode<'_, DB> {
        self.db.snapshot()
    }

    pub(super) fn batch(&self, capacity: usize) -> Result<OpenBatch<'_>, StorageError> {
        let [identity, log, raft, heads, bodies, state, catalog] = Family::ALL;
        let families = [
            self.family(identity)?,
            self.family(log)?,
            self.family(raft)?,
            self.family(heads)?,
            self.family(bodies)?,
            self.family(state)?,
            self.family(catalog)?,
        ];
        Ok(OpenBatch::rocks(families, capacity))
    }

    pub(super) fn write_synced(&self, batch: WriteBatch) -> Result<(), StorageError> {
        let mut options = WriteOptions::default();
        options.set_sync(!PlantedBug::WalSyncOff.is_in());
        options.set_memtable_insert_hint_per_batch(true);
        self.db.write_opt(batch, &options).map_err(|error| disk("cannot write", &error))?;
        if let Some(_nobody_ingests) = self.ingesting.try_lock() {
            self.synced.fetch_max(self.sequence(), Relaxed);
        }
        Ok(())
    }

    /// Ingests a table file by a hard link: the file stays for another try.
    pub(super) fn ingest(&self, family: Family, table: &Path) -> Result<(), StorageError> {
        let link = table.with_extension("link");
        if link.exists() {
            fs::remove_file(&link).map_err(file("cannot remove a snapshot's link"))?;
        }
        fs::hard_link(table, &link).map_err(file("cannot link a snapshot's table"))?;
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let _held = self.ingesting.lock();
        self.db
            .ingest_external_file_cf_opts(self.family(family)?, &options, vec![link])
            .map_err(|error| disk("cannot ingest a table of a snapshot", &error))?;
        self.synced.fetch_max(self.sequence(), Relaxed);
        Ok(())
    }

    pub(super) fn flush(&self, family: Family) -> Result<(), StorageError> {
        self.db
            .flush_cf_opt(self.family(family)?, &FlushOptions::default())
            .map_err(|error| disk("cannot flush", &error))
    }

    pub(super) fn flush_all(&self) -> Result<(), StorageError> {
        let families: Vec<&ColumnFamily> =
            Family::ALL.into_iter().map(|family| self.family(family)).collect::<Result<_, _>>()?;
        self.db
            .flush_cfs_opt(&families, &FlushOptions::default())
            .map_err(|error| disk("cannot flush", &error))
    }

    pub(super) fn compact(
        &self,
        family: Family,
        start: &[u8],
        end: &[u8],
    ) -> Result<(), StorageError> {
        let mut options = CompactOptions::default();
        // RocksDB's own compactions continue meanwhile.
        options.set_exclusive_manual_compaction(false);
        let family = self.family(family)?;
        self.db.compact_range_cf_opt(family, Some(start), Some(end), &options);
        Ok(())
    }

    pub(super) fn cancel_background_work(&self) {
        self.db.cancel_all_background_work(false);
    }

    /// RocksDB's sequence number of the last write.
    pub(crate) fn sequence(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced.load(Relaxed)
    }

    pub(super) fn log_files(&self) -> LogFiles {
        let Ok(family) = self.family(Family::Log) else { return LogFiles::default() };
        let number = |name: &str| {
            self.db.property_int_value_cf(family, name).ok().flatten().unwrap_or_default()
        };
        // A property of a level is a text.
        let at_level = |level| {
            let name = format!("rocksdb.num-files-at-level{level}");
            let text = self.db.property_value_cf(family, name.as_str()).ok().flatten();
            text.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or_default()
        };
        let names = std::fs::read_dir(self.db.path()).into_iter().flatten().flatten();
        let is_wal = |name: &std::ffi::OsStr| {
            std::path::Path::new(name).extension().is_some_and(|end| end == "log")
        };
        LogFiles {
            wal: names.filter(|entry| is_wal(&entry.file_name())).count() as u64,
            // The one that is written to, and those that are not on disk yet.
            mem_tables: 1 + number("rocksdb.num-immutable-mem-table"),
            tables: (0..LEVELS).map(at_level).sum(),
        }
    }

    pub(super) fn memory(&self) -> DatabaseMemory {
        let of_families = |name: &str| {
            let families = Family::ALL.into_iter().filter_map(|family| self.family(family).ok());
            families
                .filter_map(|family| self.db.property_int_value_cf(family, name).ok().flatten())
                .sum::<u64>()
        };
        DatabaseMemory {
            run_cache: 0,
            write_buffers: of_families("rocksdb.size-all-mem-tables"),
            blocks: of_families("rocksdb.estimate-table-readers-mem")
                + self.cache.get_usage() as u64,
        }
    }

    pub(super) fn background_errors(&self) -> u64 {
        self.db.property_int_value("rocksdb.background-errors").ok().flatten().unwrap_or(0)
    }
}
