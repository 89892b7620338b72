//! Reads from an engine: values, iterators, snapshots.

use super::{Family, RocksEngine, disk};
use crate::{
    StorageError,
    simulated::{TreeScan, Trees},
};
use bytes::Bytes;
use rocksdb::{DB, DBPinnableSlice, DBRawIterator, ReadOptions, SnapshotWithThreadMode};
use std::ops::Deref;

/// A value that was read.
pub(crate) enum Value<'e> {
    Rocks(DBPinnableSlice<'e>),
    Simulated(Bytes),
}

impl Deref for Value<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Rocks(value) => value,
            Self::Simulated(value) => value,
        }
    }
}

/// An iterator over one column family. After its end [`Scan::check`] reports whether a read has
/// failed.
pub(crate) enum Scan<'e> {
    Rocks(DBRawIterator<'e>),
    Simulated(TreeScan),
}

impl Scan<'_> {
    pub(crate) fn seek_to_first(&mut self) {
        self.seek(b"");
    }

    /// Moves to the first key at or after this one.
    pub(crate) fn seek(&mut self, key: impl AsRef<[u8]>) {
        match self {
            Self::Rocks(scan) => scan.seek(key),
            Self::Simulated(scan) => scan.seek(key.as_ref()),
        }
    }

    /// Moves to the last key at or before this one.
    pub(crate) fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) {
        match self {
            Self::Rocks(scan) => scan.seek_for_prev(key),
            Self::Simulated(scan) => scan.seek_for_prev(key.as_ref()),
        }
    }

    pub(crate) fn next(&mut self) {
        match self {
            Self::Rocks(scan) => scan.next(),
            Self::Simulated(scan) => scan.next(),
        }
    }

    pub(crate) fn item(&self) -> Option<(&[u8], &[u8])> {
        match self {
            Self::Rocks(scan) => scan.item(),
            Self::Simulated(scan) => scan.item(),
        }
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Rocks(scan) => scan.key(),
            Self::Simulated(scan) => scan.item().map(|(key, _)| key),
        }
    }

    /// Returns the error of a failed read, if there was one.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        match self {
            Self::Rocks(scan) => scan.status().map_err(|error| disk("cannot read", &error)),
            Self::Simulated(scan) => scan.check(),
        }
    }
}

/// A consistent view of one moment.
pub(crate) enum Snapshot<'e> {
    Rocks(&'e RocksEngine, SnapshotWithThreadMode<'e, DB>),
    Simulated(Trees),
}

impl Snapshot<'_> {
    pub(crate) fn get(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<Value<'_>>, StorageError> {
        match self {
            Self::Rocks(engine, snapshot) => {
                let value = snapshot.get_pinned_cf(engine.family(family)?, key);
                Ok(value.map_err(|error| disk("cannot read", &error))?.map(Value::Rocks))
            }
            Self::Simulated(trees) => Ok(trees.get(family, key).map(Value::Simulated)),
        }
    }

    /// An iterator for a long scan: it reads ahead and does not fill the block cache.
    pub(crate) fn long_scan(&self, family: Family, end: &[u8]) -> Result<Scan<'_>, StorageError> {
        match self {
            Self::Rocks(engine, snapshot) => {
                let mut options = ReadOptions::default();
                options.set_iterate_upper_bound(end);
                options.fill_cache(false);
                options.set_readahead_size(1 << 20);
                let family = engine.family(family)?;
                Ok(Scan::Rocks(snapshot.raw_iterator_cf_opt(family, options)))
            }
            Self::Simulated(trees) => Ok(Scan::Simulated(trees.scan(family, end))),
        }
    }
}
