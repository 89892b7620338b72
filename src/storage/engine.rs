//! RocksDB itself: its column families, how it is tuned, and reads from it. Nothing but the log
//! writer writes.
//!
//! A body of 8 MiB fills a memtable on a small node. After three memtables that wait to be flushed,
//! or 20 files in level 0, RocksDB by default slows all writes to 16 MiB/s: confirms of other
//! clients took 0.7 s (p99). So slowed writes proceed at 1 GiB/s here (RocksDB takes the rate of
//! its rate limiter), and level 0 of `bodies` may have 64 files.

use crate::{Options, StorageError};
use parking_lot::Mutex;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBPinnableSlice, DBRawIterator, FlushOptions, IngestExternalFileOptions, LogLevel, ReadOptions,
    WriteBatch, WriteBufferManager, WriteOptions,
};
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Range deletions in one memtable before it is flushed. Each read after a new one sorts all of
/// them again, so thousands would make reads slow.
const RANGE_DELETIONS_MAX: &str = "512";

/// Bytes of write-ahead log before the memtables that hold it back are flushed.
const WAL_BYTES_MAX: u64 = 256 << 20;

/// Column families (DESIGN §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// Share of the memtables' budget, in sixteenths.
    fn share(self) -> usize {
        match self {
            Self::Bodies => 8,
            Self::Log => 4,
            Self::Heads | Self::State => 2,
            Self::Identity | Self::Raft | Self::Catalog => 1,
        }
    }
}

/// The open database.
pub(crate) struct Engine {
    db: DB,
    cache: Cache,
    dir: PathBuf,
    disk_reserve_bytes: u64,
    /// Sequence number up to which everything is known to be on the disk.
    synced: AtomicU64,
    /// Held while tables are taken in: meanwhile the sequence number runs ahead of the disk.
    ingesting: Mutex<()>,
    /// Held as long as the database is open; the system lets go of it with the process.
    _lock: File,
}

impl Engine {
    /// Opens the database below `dir`, whose lock the caller has taken, or makes a `new` one.
    pub(crate) fn open(
        dir: &Path,
        lock: File,
        options: &Options,
        new: bool,
    ) -> Result<Self, StorageError> {
        let cache = Cache::new_lru_cache(options.block_cache_bytes);
        let families = Family::ALL.map(|family| {
            ColumnFamilyDescriptor::new(family.name(), tuned(family, options, &cache))
        });
        let mut database = database_options(options);
        // Never in place of one whose files are gone.
        database.create_if_missing(new);
        let db = DB::open_cf_descriptors(&database, dir.join("db"), families)
            .map_err(|error| disk("cannot open the database", &error))?;
        let synced = AtomicU64::new(db.latest_sequence_number());
        let ingesting = Mutex::default();
        let (dir, disk_reserve_bytes) = (dir.to_owned(), options.disk_reserve_bytes);
        let engine = Self { db, cache, dir, disk_reserve_bytes, synced, ingesting, _lock: lock };
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
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Refuses what takes so many bytes if the disk has not that much room.
    pub(crate) fn check_room(&self, needed: u64) -> Result<(), StorageError> {
        let free = crate::directory::free_bytes(&self.dir)
            .map_err(file("cannot determine the free disk space"))?;
        let reserve = self.disk_reserve_bytes;
        if free >= needed.saturating_add(reserve) {
            return Ok(());
        }
        Err(StorageError::NoRoom { needed, free, reserve })
    }

    /// Bytes that a range of keys has on disk, about.
    pub(crate) fn octets(
        &self,
        family: Family,
        start: &[u8],
        end: &[u8],
    ) -> Result<u64, StorageError> {
        let range = [rocksdb::Range::new(start, end)];
        Ok(self.db.get_approximate_sizes_cf(self.family(family)?, &range).iter().sum())
    }

    pub(crate) fn db(&self) -> &DB {
        &self.db
    }

    /// Options for files that are to be ingested into that family.
    pub(crate) fn file_options(&self, family: Family) -> rocksdb::Options {
        table_options(family, &self.cache)
    }

    pub(crate) fn family(&self, family: Family) -> Result<&ColumnFamily, StorageError> {
        self.db.cf_handle(family.name()).ok_or_else(|| StorageError::Disk {
            action: "cannot find a column family",
            reason: family.name().into(),
        })
    }

    pub(crate) fn get(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'_>>, StorageError> {
        self.db
            .get_pinned_cf(self.family(family)?, key)
            .map_err(|error| disk("cannot read", &error))
    }

    /// An iterator over `first` to before `end`.
    pub(crate) fn scan(
        &self,
        family: Family,
        end: &[u8],
    ) -> Result<DBRawIterator<'_>, StorageError> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        Ok(self.db.raw_iterator_cf_opt(self.family(family)?, options))
    }

    /// Writes a batch and waits until it is on the disk.
    pub(crate) fn write_synced(&self, batch: WriteBatch) -> Result<(), StorageError> {
        let mut options = WriteOptions::default();
        options.set_sync(true);
        options.set_memtable_insert_hint_per_batch(true);
        self.db.write_opt(batch, &options).map_err(|error| disk("cannot write", &error))?;
        if let Some(_nobody_ingests) = self.ingesting.try_lock() {
            self.synced.fetch_max(self.sequence(), Relaxed);
        }
        Ok(())
    }

    /// Takes in a table file, which goes away. Writes wait meanwhile, but only briefly if nothing in
    /// the family's memtable overlaps it.
    pub(crate) fn ingest(&self, family: Family, table: PathBuf) -> Result<(), StorageError> {
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let _held = self.ingesting.lock();
        self.db
            .ingest_external_file_cf_opts(self.family(family)?, &options, vec![table])
            .map_err(|error| disk("cannot ingest a table of a snapshot", &error))?;
        self.synced.fetch_max(self.sequence(), Relaxed);
        Ok(())
    }

    /// Writes the family's memtable to a table, while writes go on.
    pub(crate) fn flush(&self, family: Family) -> Result<(), StorageError> {
        self.db
            .flush_cf_opt(self.family(family)?, &FlushOptions::default())
            .map_err(|error| disk("cannot flush", &error))
    }

    /// RocksDB's number of the last write.
    pub(crate) fn sequence(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    /// The last write that is known to be on the disk.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Relaxed)
    }

    /// Failed flushes and compactions so far; above 0 the database takes no more writes.
    pub(crate) fn background_errors(&self) -> u64 {
        self.db.property_int_value("rocksdb.background-errors").ok().flatten().unwrap_or(0)
    }
}

/// Wraps what RocksDB said.
pub(crate) fn disk(action: &'static str, error: &rocksdb::Error) -> StorageError {
    StorageError::Disk { action, reason: error.to_string().into() }
}

/// Wraps what the system said.
pub(crate) fn file(action: &'static str) -> impl Fn(std::io::Error) -> StorageError {
    move |error| StorageError::Disk { action, reason: error.to_string().into() }
}

/// Checks an iterator that has come to its end.
pub(crate) fn scanned(iterator: &DBRawIterator<'_>) -> Result<(), StorageError> {
    iterator.status().map_err(|error| disk("cannot read", &error))
}

fn database_options(options: &Options) -> rocksdb::Options {
    let mut tuned = rocksdb::Options::default();
    tuned.create_missing_column_families(true);
    tuned.set_max_total_wal_size(WAL_BYTES_MAX);
    let budget = WriteBufferManager::new_write_buffer_manager(options.write_buffer_bytes, false);
    tuned.set_write_buffer_manager(&budget);
    // One writer: nothing to coordinate.
    tuned.set_allow_concurrent_memtable_write(false);
    tuned.set_enable_write_thread_adaptive_yield(false);
    // A recycled log file does not grow, so that a sync need not write the file's size too. One is
    // enough to have the next at hand; each is some 32 MiB that an empty node keeps.
    tuned.set_recycle_log_file_num(1);
    // A file of the log that is gone or too short is noticed; damage within one by `wal`, the end of
    // the last one by `synced`.
    tuned.set_track_and_verify_wals_in_manifest(true);
    tuned.set_max_background_jobs(2);
    // Only for what follows from it: where memtables wait to be flushed, RocksDB slows writes down to this
    // rate, not to its own 16 MiB/s, at which one large body holds back all others, and votes, for long.
    tuned.set_ratelimiter(1 << 30, 100_000, 10);
    tuned.set_bytes_per_sync(1 << 20);
    tuned.set_max_open_files(512);
    tuned.set_log_level(LogLevel::Warn);
    tuned.set_keep_log_file_num(2);
    tuned.set_max_log_file_size(4 << 20);
    tuned.set_avoid_unnecessary_blocking_io(true);
    tuned
}

fn tuned(family: Family, options: &Options, cache: &Cache) -> rocksdb::Options {
    let mut tuned = table_options(family, cache);
    tuned.set_write_buffer_size((options.write_buffer_bytes / 16 * family.share()).max(1 << 20));
    tuned.set_max_write_buffer_number(4);
    tuned.set_target_file_size_base(16 << 20);
    tuned.set_max_bytes_for_level_base(64 << 20);
    if family == Family::Bodies {
        // Most bodies are settled within seconds: the later they are compacted, the fewer are left.
        tuned.set_level_zero_file_num_compaction_trigger(8);
        tuned.set_max_bytes_for_level_base(256 << 20);
        // A large body fills a memtable, and so a file, by itself.
        tuned.set_level_zero_slowdown_writes_trigger(64);
        tuned.set_level_zero_stop_writes_trigger(128);
    }
    tuned
}

fn table_options(family: Family, cache: &Cache) -> rocksdb::Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_block_size(if family == Family::Bodies { 32 << 10 } else { 8 << 10 });
    blocks.set_format_version(5);
    if family == Family::Bodies {
        // Read by key alone; a filter spares looking into the young files that have others.
        blocks.set_bloom_filter(10.0, false);
    }
    let mut tuned = rocksdb::Options::default();
    tuned.set_block_based_table_factory(&blocks);
    tuned.set_compression_type(DBCompressionType::None);
    if matches!(family, Family::Bodies | Family::State | Family::Catalog) {
        // What reaches the lower levels stays there for a while; above, time is dearer.
        let (none, lz4) = (DBCompressionType::None, DBCompressionType::Lz4);
        tuned.set_compression_per_level(&[none, none, lz4, lz4, lz4, lz4, lz4]);
    }
    tuned
}
