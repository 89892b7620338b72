//! Column families in memory, and iterators over them. A family is copied on a write while a reader
//! still uses the old version.

use super::record::Change;
use crate::{StorageError, engine::Family};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
};

type Tree = BTreeMap<Bytes, Bytes>;

/// All column families.
#[derive(Clone, Default)]
pub(crate) struct Trees(BTreeMap<Family, Arc<Tree>>);

impl Trees {
    pub(super) fn apply(&mut self, family: Family, change: &Change<'_>) {
        let tree = Arc::make_mut(self.0.entry(family).or_default());
        match *change {
            Change::Put(key, value) => {
                tree.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
            }
            Change::Delete(key) => {
                tree.remove(key);
            }
            Change::DeleteRange(start, end) => {
                let gone: Vec<Bytes> = keys(tree, start, end).map(|(key, _)| key.clone()).collect();
                for key in gone {
                    tree.remove(&key);
                }
            }
        }
    }

    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Option<Bytes> {
        self.0.get(&family)?.get(key).cloned()
    }

    pub(crate) fn scan(&self, family: Family, end: &[u8]) -> TreeScan {
        let tree = self.0.get(&family).cloned().unwrap_or_default();
        TreeScan { tree, end: Bytes::copy_from_slice(end), at: None, failure: None }
    }

    pub(super) fn range_bytes(&self, family: Family, start: &[u8], end: &[u8]) -> u64 {
        let Some(tree) = self.0.get(&family) else { return 0 };
        keys(tree, start, end).map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}

/// The records from `start` on, before `end`.
fn keys<'a>(
    tree: &'a Tree,
    start: &[u8],
    end: &[u8],
) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> {
    // An empty range would panic.
    let range = (start < end).then(|| tree.range::<[u8], _>((Included(start), Excluded(end))));
    range.into_iter().flatten()
}

/// An iterator up to before `end` over a tree, as the tree was when the iterator was made.
pub(crate) struct TreeScan {
    tree: Arc<Tree>,
    end: Bytes,
    at: Option<(Bytes, Bytes)>,
    failure: Option<StorageError>,
}

impl TreeScan {
    /// An iterator without records, because its reads fail.
    pub(super) fn failing(failure: StorageError) -> Self {
        let (tree, end) = (Arc::default(), Bytes::new());
        Self { tree, end, at: None, failure: Some(failure) }
    }

    pub(crate) fn seek(&mut self, key: &[u8]) {
        let found = keys(&self.tree, key, &self.end).next();
        self.at = found.map(|(key, value)| (key.clone(), value.clone()));
    }

    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) {
        let last = if key < &*self.end { Included(key) } else { Excluded(&*self.end) };
        let found = self.tree.range::<[u8], _>((Unbounded, last)).next_back();
        self.at = found.map(|(key, value)| (key.clone(), value.clone()));
    }

    pub(crate) fn next(&mut self) {
        let Some((at, _)) = self.at.take() else { return };
        let behind = self.tree.range::<[u8], _>((Excluded(&*at), Excluded(&*self.end))).next();
        self.at = behind.map(|(key, value)| (key.clone(), value.clone()));
    }

    pub(crate) fn item(&self) -> Option<(&[u8], &[u8])> {
        self.at.as_ref().map(|(key, value)| (&**key, &**value))
    }

    pub(crate) fn check(&self) -> Result<(), StorageError> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}
