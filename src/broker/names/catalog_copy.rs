//! This node's copy of the catalog, and how far it has been applied.

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use quorate_catalog::{Catalog, ClusterShape};
use quorate_types::{CatalogIndex, Incarnation, NodeId};
use std::{collections::BTreeMap, sync::Arc};
use tokio::{sync::watch, time::Instant};

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
