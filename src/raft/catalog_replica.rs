//! The machine of the catalog group: `quorate_catalog::Catalog`, by which every node routes.

use crate::{
    machine::{GroupMachine, MachineError},
    sink::CatalogSink,
};
use bytes::Bytes;
use parking_lot::RwLock;
use quorate_catalog::{Catalog, CatalogEvent, CatalogKey, CatalogOutput};
use quorate_storage::{
    Checkpoint, CommandEntry, EntryId, Loaded, OpenError,
    codec::{
        DecodeError,
        catalog::{decode_entry, decode_key, decode_record, encode_key, encode_record},
    },
};
use quorate_types::{CatalogIndex, MachineVersion};
use std::{collections::BTreeSet, sync::Arc};

/// Approximate size of a changed record in a checkpoint, bytes.
const RECORD_BYTES: usize = 256;

/// Called with the version of the replicated machine before a checkpoint has records of it (MEM 15).
pub(crate) type RaisedHook = Box<dyn Fn(MachineVersion) -> Result<(), OpenError> + Send>;

/// The catalog. Routing shares this copy.
pub(crate) struct CatalogReplica {
    catalog: Arc<RwLock<Catalog>>,
    sink: Arc<dyn CatalogSink>,
    raised: RaisedHook,
    output: CatalogOutput,
    dirty: BTreeSet<CatalogKey>,
}

impl CatalogReplica {
    /// A replica that applies to `catalog`, which others read.
    pub(crate) fn new(
        catalog: Arc<RwLock<Catalog>>,
        sink: Arc<dyn CatalogSink>,
        raised: RaisedHook,
    ) -> Self {
        Self { catalog, sink, raised, output: CatalogOutput::default(), dirty: BTreeSet::new() }
    }
}

impl GroupMachine for CatalogReplica {
    fn load(&mut self, loaded: Loaded) -> Result<(), MachineError> {
        let catalog = load_catalog(&loaded)?;
        // Before a record of that version is written, and before the next entry is applied.
        (self.raised)(catalog.machine())?;
        *self.catalog.write() = catalog;
        self.dirty.clear();
        Ok(())
    }

    fn apply(
        &mut self,
        id: EntryId,
        commands: &CommandEntry,
        leading: bool,
    ) -> Result<(), MachineError> {
        let index = id.index;
        let entry = decode_entry(&commands.command)
            .map_err(|source| MachineError::Entry { index, source })?;
        self.output.clear();
        self.catalog.write().apply(CatalogIndex(index.0), &entry, &mut self.output);
        for event in &self.output.events {
            if let CatalogEvent::MachineRaised(to) = event {
                (self.raised)(*to)?;
            }
        }
        self.dirty.extend(self.output.changes.iter().cloned());
        self.sink.applied(id, leading, &entry, &self.output);
        Ok(())
    }

    fn advance(&mut self, id: EntryId) {
        self.catalog.write().advance(CatalogIndex(id.index.0));
    }

    fn dirty_bytes(&self) -> usize {
        self.dirty.len() * RECORD_BYTES
    }

    fn checkpoint(&mut self, applied: EntryId, meta: Bytes) -> Result<Checkpoint, MachineError> {
        let catalog = self.catalog.read();
        let record = |key: CatalogKey| {
            let record = catalog.record(&key).map(|record| encode_record(&record));
            (encode_key(&key), record)
        };
        let records = std::mem::take(&mut self.dirty).into_iter().map(record).collect();
        Ok(Checkpoint::new(applied, meta, records))
    }

    fn clear(&mut self) {
        self.dirty.clear();
    }

    fn digest(&self) -> u64 {
        self.catalog.read().digest()
    }
}

/// The catalog of a checkpoint.
pub(crate) fn load_catalog(loaded: &Loaded) -> Result<Catalog, MachineError> {
    let mut records = Vec::with_capacity(loaded.records.len());
    for (key, record) in &loaded.records {
        let key = decode_key(key).map_err(records_error)?;
        records.push((key, decode_record(record).map_err(records_error)?));
    }
    let mut catalog =
        Catalog::load(records).map_err(|error| MachineError::Records(error.to_string()))?;
    if let Some(applied) = loaded.applied {
        catalog.advance(CatalogIndex(applied.index.0));
    }
    Ok(catalog)
}

fn records_error(error: DecodeError) -> MachineError {
    MachineError::Records(error.to_string())
}
