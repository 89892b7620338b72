//! Snapshots of a group: made of the last checkpoint, so that building one costs nothing (DESIGN
//! §3).

use crate::{
    codec::decode_stored_membership,
    replica::Replica,
    type_config::{SnapshotMeta, TypeConfig, log_id},
};
use openraft::{RaftSnapshotBuilder, alias::SnapshotOf};
use quorate_storage::{EntryId, GroupStore, ReceivedSnapshot, SnapshotReader};
use std::{io, sync::Arc};

/// The bytes of a snapshot.
pub(crate) enum SnapshotData {
    /// Left out: only the metadata was requested.
    Left,
    /// A snapshot to be sent to a follower.
    Outgoing(Box<SnapshotReader>),
    /// A received snapshot, to be installed.
    Received(Box<ReceivedSnapshot>),
}

pub(crate) type Snapshot = SnapshotOf<TypeConfig, SnapshotData>;

/// openraft's metadata of a snapshot at `applied`, with the membership stored beside it.
pub(crate) fn snapshot_meta(applied: EntryId, meta: &bytes::Bytes) -> io::Result<SnapshotMeta> {
    let last_membership = decode_stored_membership(meta).map_err(io::Error::other)?;
    Ok(SnapshotMeta { last_log_id: Some(log_id(applied)), last_membership })
}

/// The state of the last written checkpoint, to be sent.
pub(crate) fn outgoing(store: &GroupStore) -> io::Result<Option<Snapshot>> {
    let Some(reader) = store.snapshot().map_err(io::Error::other)? else { return Ok(None) };
    let meta = snapshot_meta(reader.applied(), reader.meta())?;
    Ok(Some(Snapshot { meta, snapshot: SnapshotData::Outgoing(Box::new(reader)) }))
}

/// "Builds" a snapshot: names the last written checkpoint. Its contents are persistent, so the log
/// may be purged up to it (STO 3).
pub(crate) struct Builder(pub(crate) Arc<Replica>);

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let meta = self.0.durable().unwrap_or_default();
        Ok(Snapshot { meta, snapshot: SnapshotData::Left })
    }
}
