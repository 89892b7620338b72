//! A batch of writes for an engine.

use super::Family;
use crate::simulated::Record;
use rocksdb::ColumnFamily;

/// A batch that is being filled.
pub(crate) enum OpenBatch<'e> {
    Rocks(Families<'e>, rocksdb::WriteBatch),
    Simulated(Record),
}

/// A batch that is ready to be written.
pub(crate) enum WriteBatch {
    Rocks(rocksdb::WriteBatch),
    Simulated(Record),
}

/// The handles of all column families, in the order of [`Family::ALL`].
pub(crate) struct Families<'e>([&'e ColumnFamily; Family::ALL.len()]);

impl<'e> Families<'e> {
    fn of(&self, family: Family) -> &'e ColumnFamily {
        let [identity, log, raft, heads, bodies, state, catalog] = self.0;
        match family {
            Family::Identity => identity,
            Family::Log => log,
            Family::Raft => raft,
            Family::Heads => heads,
            Family::Bodies => bodies,
            Family::State => state,
            Family::Catalog => catalog,
        }
    }
}

impl<'e> OpenBatch<'e> {
    pub(super) fn rocks(families: [&'e ColumnFamily; 7], capacity: usize) -> Self {
        let batch = rocksdb::WriteBatch::with_capacity_bytes(capacity);
        Self::Rocks(Families(families), batch)
    }

    pub(super) fn simulated(capacity: usize) -> Self {
        Self::Simulated(Record::with_capacity(capacity))
    }

    pub(crate) fn put(&mut self, family: Family, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        match self {
            Self::Rocks(families, batch) => batch.put_cf(families.of(family), key, value),
            Self::Simulated(record) => record.put(family, key.as_ref(), value.as_ref()),
        }
    }

    pub(crate) fn delete(&mut self, family: Family, key: impl AsRef<[u8]>) {
        match self {
            Self::Rocks(families, batch) => batch.delete_cf(families.of(family), key),
            Self::Simulated(record) => record.delete(family, key.as_ref()),
        }
    }

    /// Removes the keys from `start` to before `end`.
    pub(crate) fn delete_range<K: AsRef<[u8]>>(&mut self, family: Family, start: K, end: K) {
        match self {
            Self::Rocks(families, batch) => batch.delete_range_cf(families.of(family), start, end),
            Self::Simulated(record) => record.delete_range(family, start.as_ref(), end.as_ref()),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Rocks(_, batch) => batch.size_in_bytes(),
            Self::Simulated(record) => record.bytes(),
        }
    }

    pub(crate) fn finish(self) -> WriteBatch {
        match self {
            Self::Rocks(_, batch) => WriteBatch::Rocks(batch),
            Self::Simulated(record) => WriteBatch::Simulated(record),
        }
    }
}

impl WriteBatch {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Rocks(batch) => batch.size_in_bytes(),
            Self::Simulated(record) => record.bytes(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Rocks(batch) => batch.is_empty(),
            Self::Simulated(record) => record.bytes() == 0,
        }
    }
}
