//! How RocksDB is tuned.
//!
//! A body of 8 MiB fills a memtable on a small node. After three memtables that wait to be flushed,
//! or 20 files in level 0, RocksDB by default slows all writes to 16 MiB/s: confirms of other
//! clients took 0.7 s (p99). So slowed writes proceed at 1 GiB/s here (RocksDB takes the rate of
//! its rate limiter), and level 0 of `bodies` may have 64 files.

use super::Family;
use crate::Options;
use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, LogLevel, WriteBufferManager};

/// Bytes of write-ahead log before the memtables that hold it back are flushed.
const WAL_BYTES_MAX: u64 = 256 << 20;

/// Share of the memtables' budget, in sixteenths.
fn share(family: Family) -> usize {
    match family {
        Family::Bodies => 8,
        Family::Log => 4,
        Family::Heads | Family::State => 2,
        Family::Identity | Family::Raft | Family::Catalog => 1,
    }
}

pub(super) fn database_options(options: &Options) -> rocksdb::Options {
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

pub(super) fn family_options(family: Family, options: &Options, cache: &Cache) -> rocksdb::Options {
    let mut tuned = table_options(family, cache);
    tuned.set_write_buffer_size((options.write_buffer_bytes / 16 * share(family)).max(1 << 20));
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

pub(super) fn table_options(family: Family, cache: &Cache) -> rocksdb::Options {
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
