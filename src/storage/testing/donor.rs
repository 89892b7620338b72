//! A replica whose snapshots the crash tests install.

use super::{
    GROUP, Place, append, entry, id,
    model::{Model, QUEUES},
    options, written_to,
};
use crate::{Database, GroupStore, ReplicaStore, SnapshotReader};
use bytes::Bytes;
use quorate_queue::{Change, NodeRecord, Record, RecordKey};
use quorate_types::{LogIndex, StartNumber};
use std::{collections::BTreeMap, sync::Arc, time::Instant};

/// Another replica, with a snapshot at each index.
pub(super) struct Donor {
    snapshots: BTreeMap<u64, (Arc<Database>, GroupStore, Place)>,
    pub(super) runs: BTreeMap<super::model::Run, Vec<Option<Bytes>>>,
}

impl Donor {
    pub(super) fn new(seed: Option<u64>) -> Self {
        let mut model = Model::default();
        let mut snapshots = BTreeMap::new();
        for last in [4u64, 9, 15] {
            let place = Place::new(seed);
            let database = place.open(options());
            let store = database.group(GROUP).unwrap();
            let mut replica = ReplicaStore::new(store.clone());
            for index in 1..=last {
                let entry = entry(50, index, &[(index % QUEUES + 1, (index % 2) as u8, 2, 60)]);
                model.append(entry.clone());
                append(&store, vec![entry]);
            }
            replica.take(LogIndex(last), &[Change::Record(RecordKey::Group)]).unwrap();
            let meta = Bytes::from(format!("donated {last}"));
            let made = Record::Node(NodeRecord { fenced: StartNumber(last), suspected: true });
            let checkpoint =
                replica.checkpoint(id(50, last), meta, |_| Some(made.clone()), Instant::now());
            written_to(&store, |done| store.checkpoint(checkpoint, done));
            snapshots.insert(last, (database, store, place));
        }
        Self { snapshots, runs: model.runs }
    }

    pub(super) fn above(&self, index: u64) -> Option<(u64, SnapshotReader)> {
        let (index, (_, store, _)) = self.snapshots.range(index + 1..).next()?;
        Some((*index, store.snapshot().unwrap()?))
    }

    pub(super) fn state(&self, index: u64) -> BTreeMap<Bytes, Bytes> {
        let made = Record::Node(NodeRecord { fenced: StartNumber(index), suspected: true });
        let key = crate::codec::queue::encode_key(RecordKey::Group);
        BTreeMap::from([(key, crate::codec::queue::encode_record(&made))])
    }
}
