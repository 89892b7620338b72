//! This node's copy of the catalog, and how far it has been applied.

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use quorate_catalog::{Binding, Catalog, ClusterShape, QueueEntry};
use quorate_types::{CatalogIndex, Incarnation, NodeId, QueueId, ResourceName};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::{sync::watch, time::Instant};

/// Number of queues or bindings of a list that are read while the copy is locked.
const PART: usize = 256;

/// The copy, which the catalog's replica writes and the broker reads.
#[derive(Debug)]
pub(crate) struct CatalogCopy {
    catalog: Arc<RwLock<Catalog>>,
    /// Index that the copy has been applied up to.
    version: watch::Sender<CatalogIndex>,
    /// The cluster's shape, once it has one.
    formed: watch::Sender<Option<ClusterShape>>,
    /// The directories that the copy shows as forgotten, and since when it does.
    forgotten: Mutex<BTreeMap<Incarnation, (NodeId, Instant)>>,
}

impl CatalogCopy {
    /// The copy that the replica writes.
    pub(crate) fn new(catalog: Arc<RwLock<Catalog>>) -> Self {
        let (version, shape) = {
            let catalog = catalog.read();
            (catalog.version(), catalog.shape())
        };
        let (version, formed) = (watch::Sender::new(version), watch::Sender::new(shape));
        Self { catalog, version, formed, forgotten: Mutex::default() }
    }

    /// Reads it. Applying waits meanwhile.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Catalog> {
        self.catalog.read()
    }

    /// The queues that are meant. The copy is read in parts: a queue that is declared or deleted meanwhile
    /// may be missing.
    pub(crate) fn queues_where(&self, is_meant: impl Fn(&QueueEntry) -> bool) -> Vec<QueueEntry> {
        let begun = self.read().version();
        let mut found: Vec<QueueEntry> = in_parts(|after: Option<QueueId>, found| {
            let mut last = None;
            for entry in self.read().queues_after(after).take(PART) {
                last = Some(entry.id);
                if is_meant(entry) {
                    found.push(entry.clone());
                }
            }
            last
        });
        if self.read().version() != begun {
            retain_last(&mut found);
        }
        found
    }

    /// Those of the queues that have an entry, read like the queues.
    pub(crate) fn with_entry(&self, queues: &[QueueId]) -> BTreeSet<QueueId> {
        let mut found = BTreeSet::new();
        for part in queues.chunks(PART) {
            let catalog = self.read();
            found.extend(part.iter().filter(|queue| catalog.queue_by_id(**queue).is_some()));
        }
        found
    }

    /// The bindings that are meant, in the order in which they were made, read like the queues.
    pub(crate) fn bindings_where(&self, is_meant: impl Fn(&Binding) -> bool) -> Vec<Binding> {
        in_parts(|after, found| {
            let mut last = None;
            for (id, binding) in self.read().bindings_after(after).take(PART) {
                last = Some(id);
                if is_meant(binding) {
                    found.push(binding.clone());
                }
            }
            last
        })
    }

    /// Applies to it, as the replica does.
    #[cfg(test)]
    pub(crate) fn write(&self) -> parking_lot::RwLockWriteGuard<'_, Catalog> {
        self.catalog.write()
    }

    /// It has been applied up to `index`.
    pub(crate) fn grown(&self, index: CatalogIndex) {
        self.version.send_replace(index);
    }

    /// The index that it has been applied up to, as it grows.
    pub(crate) fn versions(&self) -> watch::Receiver<CatalogIndex> {
        self.version.subscribe()
    }

    /// Waits until it has been applied up to `index`.
    pub(crate) async fn applied(&self, index: CatalogIndex) {
        let mut versions = self.versions();
        // The sender lives as long as `self`.
        drop(versions.wait_for(|version| *version >= index).await);
    }

    /// Tells those who wait for the cluster's shape, if the copy has it.
    pub(crate) fn note_formed(&self) {
        let shape = self.read().shape();
        self.formed.send_if_modified(|known| {
            let news = *known != shape;
            *known = shape;
            news
        });
    }

    /// Notes which directories the copy shows as forgotten by now (MEM 4).
    pub(crate) fn note_forgotten(&self, now: Instant) {
        let records: Vec<_> = self.read().all_forgotten().collect();
        let mut seen = self.forgotten.lock();
        for (directory, record) in records {
            seen.entry(directory).or_insert((record.node, now));
        }
    }

    /// When this process first knew that a directory of the node had been forgotten, the latest such
    /// moment. The entry was committed before: whatever was granted to the directory's process was
    /// granted earlier than that (MEM 4).
    pub(crate) fn forgotten_at(&self, node: NodeId) -> Option<Instant> {
        let seen = self.forgotten.lock();
        seen.values().filter(|(of, _)| *of == node).map(|(_, at)| *at).max()
    }

    /// The cluster's shape, once the copy has it.
    pub(crate) fn formed(&self) -> watch::Receiver<Option<ClusterShape>> {
        self.formed.subscribe()
    }
}

/// Reads a list in parts. `part` adds those after a key, and returns the last key that it has seen.
fn in_parts<K, T>(mut part: impl FnMut(Option<K>, &mut Vec<T>) -> Option<K>) -> Vec<T> {
    let (mut after, mut found) = (None, Vec::new());
    loop {
        after = part(after, &mut found);
        if after.is_none() {
            return found;
        }
    }
}

/// Of queues with the same name keeps the one that was read last: the other has been deleted since.
fn retain_last(queues: &mut Vec<QueueEntry>) {
    let mut names: BTreeSet<ResourceName> = BTreeSet::new();
    queues.reverse();
    queues.retain(|entry| names.insert(entry.name.clone()));
    queues.reverse();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing_state::queue_name;
    use quorate_types::{GroupId, Home, NodeId, QueueType, SessionId, StartNumber};

    fn entry(name: &'static str, index: u64) -> QueueEntry {
        QueueEntry {
            name: queue_name("/", name),
            id: QueueId { home: Home::Group(GroupId(1)), index, position: 0 },
            creator: SessionId { node: NodeId(1), start: StartNumber(1) },
            queue_type: QueueType::Classic,
            durable: true,
            auto_delete: false,
            owner: None,
            arguments: Default::default(),
        }
    }

    #[test]
    fn a_list_of_several_parts_is_complete_and_in_order() {
        let all: Vec<u64> = (1..=1_000).collect();
        for size in [1, 7, 256, 999, 1_000, 1_001] {
            let found = in_parts(|after: Option<u64>, found: &mut Vec<u64>| {
                let part = all.iter().filter(|number| after.is_none_or(|after| **number > after));
                let part: Vec<u64> = part.take(size).copied().collect();
                found.extend(part.iter().filter(|number| *number % 3 == 0));
                part.last().copied()
            });
            assert_eq!(found, all.iter().copied().filter(|it| it % 3 == 0).collect::<Vec<_>>());
        }
    }

    #[test]
    fn of_a_queue_that_was_declared_again_the_new_one_is_listed() {
        let mut queues = vec![entry("a", 1), entry("b", 2), entry("a", 3), entry("c", 4)];
        retain_last(&mut queues);
        let indexes: Vec<_> = queues.iter().map(|entry| entry.id.index).collect();
        assert_eq!(indexes, [2, 3, 4]);
    }
}
