//! The options of RocksDB.
//!
//! A body of 8 MiB fills a memtable on a small node. After three memtables that wait to be flushed,
//! or 20 files in level 0, RocksDB by default slows all writes to 16 MiB/s: confirms of other
//! clients took 0.7 s (p99). So slowed writes proceed at 1 GiB/s here (RocksDB takes the rate of
//! its rate limiter), and level 0 of `bodies` may have 64 files.

use super::Family;
use crate::Options;
use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, LogLevel, WriteBufferManager};

/// Size of the write-ahead log at which the memtables that keep its files are flushed.
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
    // There is only one writer, so nothing has to be coordinated.
    tuned.set_allow_concurrent_memtable_write(false);
    tuned.set_enable_write_thread_adaptive_yield(false);
    // A recycled log file does not grow, so that a sync need not write the file's size too. One is
    // enough to have the next one ready; each takes some 32 MiB even on an empty node.
    tuned.set_recycle_log_file_num(1);
    // Detects a missing or truncated log file; `wal` detects damage within a file, and `synced` a
    // missing end of the last one.
    tuned.set_track_and_verify_wals_in_manifest(true);
    tuned.set_max_background_jobs(2);
    // Only for its side effect: while memtables wait to be flushed, RocksDB slows writes down to
    // this rate, not to its own 16 MiB/s, at which one large body delays all others, and votes, for
    // long.
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
        // A large body alone fills a memtable, and so a file.
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
        // Read by key only; a filter avoids searching the young files that do not have the key.
        blocks.set_bloom_filter(10.0, false);
    }
    let mut tuned = rocksdb::Options::default();
    tuned.set_block_based_table_factory(&blocks);
    tuned.set_compression_type(DBCompressionType::None);
    if matches!(family, Family::Bodies | Family::State | Family::Catalog) {
        // Data in the lower levels stays there for a while; in the upper levels CPU time matters
        // more.
        let (none, lz4) = (DBCompressionType::None, DBCompressionType::Lz4);
        tuned.set_compression_per_level(&[none, none, lz4, lz4, lz4, lz4, lz4]);
    }
    tuned
}
