//! Statistics of this crate: numbers and histograms that any thread may read.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Counts by powers of two: bucket `n` counts values from 2^(n-1) to 2^n - 1, bucket 0 zeroes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of values in each bucket.
    pub buckets: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
    /// Number of values.
    pub count: u64,
}

impl Histogram {
    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
        self.sum += other.sum;
        self.count += other.count;
    }

    /// Upper bound of the bucket that contains the given quantile of all values, in thousandths.
    #[must_use]
    pub fn quantile(&self, thousandths: u64) -> u64 {
        let rank = self.count.saturating_mul(thousandths).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank && seen > 0 {
                return if bucket == 0 { 0 } else { (1u64 << bucket) - 1 };
            }
        }
        0
    }
}

/// Statistics of the log writer since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Time of each synced write, in microseconds.
    pub sync_us: Histogram,
    /// Bytes of each batch.
    pub batch_bytes: Histogram,
    /// Writes (appends, votes, checkpoints, ...) in each batch.
    pub batch_writes: Histogram,
    /// Number of log entries written.
    pub entries: u64,
    /// Bytes waiting now.
    pub waiting_bytes: usize,
}

/// Statistics of the database since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseStats {
    /// The log writer.
    pub writer: WriterStats,
    /// Number of bodies read from disk because the run cache did not have them.
    pub bodies_read: u64,
    /// Files and tables of the log.
    pub log_files: LogFiles,
}

/// Numbers of the parts in which RocksDB keeps the log; 0 with a simulated disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFiles {
    /// Write-ahead logs of the database.
    pub wal: u64,
    /// Tables in memory of the log.
    pub mem_tables: u64,
    /// Sorted files of the log.
    pub tables: u64,
}

/// Memory that a database holds now, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseMemory {
    /// Bodies in the run cache.
    pub run_cache: u64,
    /// RocksDB's write buffers, with those that are being flushed; 0 with a simulated disk.
    pub write_buffers: u64,
    /// Blocks in RocksDB's cache, and what it keeps of each open file; 0 with a simulated disk.
    pub blocks: u64,
}

const BUCKETS: usize = 40;

/// A histogram that is being filled, by any thread.
pub struct Recorder {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.histogram().fmt(f)
    }
}

impl Recorder {
    /// Counts a value.
    pub fn record(&self, value: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        if let Some(bucket) = self.buckets.get(bucket.min(BUCKETS - 1)) {
            bucket.fetch_add(1, Relaxed);
        }
        self.sum.fetch_add(value, Relaxed);
    }

    /// Counts a duration, in microseconds.
    pub fn record_time(&self, time: Duration) {
        self.record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// The histogram so far.
    #[must_use]
    pub fn histogram(&self) -> Histogram {
        let buckets: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let count = buckets.iter().sum();
        Histogram { buckets, sum: self.sum.load(Relaxed), count }
    }
}

/// The writer's statistics, while they are collected.
#[derive(Default)]
pub(crate) struct Recorders {
    sync_us: Recorder,
    batch_bytes: Recorder,
    batch_writes: Recorder,
    entries: AtomicU64,
}

impl Recorders {
    pub(crate) fn cycle(&self, sync: Duration, bytes: usize, writes: usize, entries: usize) {
        self.sync_us.record_time(sync);
        self.batch_bytes.record(bytes as u64);
        self.batch_writes.record(writes as u64);
        self.entries.fetch_add(entries as u64, Relaxed);
    }

    pub(crate) fn stats(&self, waiting_bytes: usize) -> WriterStats {
        WriterStats {
            sync_us: self.sync_us.histogram(),
            batch_bytes: self.batch_bytes.histogram(),
            batch_writes: self.batch_writes.histogram(),
            entries: self.entries.load(Relaxed),
            waiting_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_of_two_recorders_add_up() {
        let (one, other) = (Recorder::default(), Recorder::default());
        one.record(0);
        one.record(5);
        other.record_time(Duration::from_micros(6));
        let mut sum = Histogram::default();
        sum.merge(&one.histogram());
        sum.merge(&other.histogram());
        assert_eq!((sum.count, sum.sum), (3, 11));
        assert_eq!(sum.buckets.get(..4), Some(&[1, 0, 0, 2][..]));
    }
}
