//! Checkpoints: state records, changes of runs and the applied index to which they belong, in one
//! batch (STO 3).

use crate::{
    EntryId, Loaded, StorageError,
    batch::{RunChanges, corrupt, state_family},
    codec::{self, DecodeError, cursor::Cursor, key},
    engine::Engine,
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_types::{GroupId, LogIndex};
use std::sync::{Arc, atomic::AtomicU64};

const VERSION: u8 = 1;

/// The contents of one checkpoint, written in one batch (STO 3).
pub struct Checkpoint {
    pub(crate) applied: EntryId,
    pub(crate) meta: Bytes,
    pub(crate) records: Vec<(Bytes, Option<Bytes>)>,
    pub(crate) runs: RunChanges,
    /// Set to the number when the checkpoint is written.
    pub(crate) written: Option<(Arc<AtomicU64>, u64)>,
}

impl Checkpoint {
    /// A checkpoint without runs (the catalog's): the state after `applied`; `meta` is stored
    /// beside it for the raft crate; `records` are the changed records by their encoded keys,
    /// `None` for a removed one.
    #[must_use]
    pub fn new(applied: EntryId, meta: Bytes, records: Vec<(Bytes, Option<Bytes>)>) -> Self {
        Self { applied, meta, records, runs: RunChanges::default(), written: None }
    }

    /// Last entry applied.
    #[must_use]
    pub fn applied(&self) -> EntryId {
        self.applied
    }
}

/// Encodes the checkpoint's own record.
pub(crate) fn encode_header(applied: EntryId, meta: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(32 + meta.len());
    out.put_u8(VERSION);
    codec::log::put_id(applied, &mut out);
    out.put_slice(meta);
    out.freeze()
}

pub(crate) fn decode_header(bytes: &[u8]) -> Result<(EntryId, Bytes), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let applied = codec::log::id(&mut cursor)?;
    Ok((applied, Bytes::copy_from_slice(cursor.take(cursor.remaining())?)))
}

/// Reads the checkpoint's own record from the disk.
pub(crate) fn header(
    engine: &Engine,
    group: GroupId,
) -> Result<Option<(EntryId, Bytes)>, StorageError> {
    let bytes = engine.get(state_family(group), &key::checkpoint_key(group))?;
    bytes.map(|bytes| decode_header(&bytes).map_err(corrupt("checkpoint", LogIndex(0)))).transpose()
}

/// Reads a checkpoint back.
pub(crate) fn load(engine: &Engine, group: GroupId) -> Result<Loaded, StorageError> {
    let Some((applied, meta)) = header(engine, group)? else { return Ok(Loaded::default()) };
    let first = key::state_key(group, &[]);
    let mut records = Vec::new();
    let mut state = engine.scan(state_family(group), &key::group_end(group))?;
    state.seek(&first);
    while let Some((key, value)) = state.item() {
        let record = key.get(first.len()..).unwrap_or_default();
        records.push((Bytes::copy_from_slice(record), Bytes::copy_from_slice(value)));
        state.next();
    }
    state.check()?;
    Ok(Loaded { applied: Some(applied), meta, records })
}
