//! Which replicas this node has, and removal of one with all its data (MEM 5, 9).
//!
//! The record of a group names the last replica that the node has had of it, and is kept for ever,
//! so that a name that was removed never acts again. A group without a record has the replica of
//! the founding, if the node has one.

use crate::{
    Database, Done, StorageError,
    batch::{Work, corrupt, state_family},
    codec::{
        DecodeError,
        cursor::Cursor,
        key::{self, RaftRecord},
    },
    engine::Family,
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_types::{GroupId, LogIndex, ReplicaNumber};

const VERSION: u8 = 1;

/// The last replica of a group that the node has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaRecord {
    /// Its number.
    pub number: ReplicaNumber,
    /// False once it was removed.
    pub is_present: bool,
}

impl ReplicaRecord {
    fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(6);
        out.put_u8(VERSION);
        out.put_u32(self.number.0);
        out.put_u8(u8::from(self.is_present));
        out.freeze()
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        cursor.version(VERSION)?;
        let number = ReplicaNumber(u32::from_be_bytes(cursor.array()?));
        let is_present = cursor.bool()?;
        cursor.end()?;
        Ok(Self { number, is_present })
    }
}

impl Database {
    /// The record of a group; `None` if the node has had no replica of it but that of the founding.
    ///
    /// # Errors
    /// A failed read, or a record that cannot be decoded.
    pub fn replica(&self, group: GroupId) -> Result<Option<ReplicaRecord>, StorageError> {
        let key = key::raft_key(group, RaftRecord::Replica);
        let Some(record) = self.engine.get(Family::Raft, &key)? else { return Ok(None) };
        let wrong = corrupt("name of a replica", LogIndex(0));
        ReplicaRecord::decode(&record).map(Some).map_err(wrong)
    }

    /// Records durably that the node has a new replica of a group, before that does anything.
    pub fn add_replica(&self, group: GroupId, number: ReplicaNumber, done: Done) {
        let key = Bytes::copy_from_slice(&key::raft_key(group, RaftRecord::Replica));
        let value = ReplicaRecord { number, is_present: true }.encode();
        self.push(Work::Put { family: Family::Raft, key, value }, done);
    }

    /// Removes a replica's log, votes, messages and state durably, in one step, and keeps its name. A
    /// snapshot that is being installed is installed first. The caller must have ended the replica:
    /// nothing may use the group's store any more.
    pub fn remove_replica(&self, group: GroupId, number: ReplicaNumber, done: Done) {
        let mut batch = match self.engine.batch(0) {
            Ok(batch) => batch,
            Err(error) => return done(Err(error)),
        };
        let (start, end) = (key::group_start(group), key::group_end(group));
        let families =
            [Family::Log, Family::Heads, Family::Bodies, Family::Raft, state_family(group)];
        families.into_iter().for_each(|family| batch.delete_range(family, &start, &end));
        let name = ReplicaRecord { number, is_present: false }.encode();
        batch.put(Family::Raft, key::raft_key(group, RaftRecord::Replica), name);
        let removed = self.groups.lock().remove(&group);
        self.cache.truncate(group, LogIndex(0));
        let work = Work::Batch(Box::new(batch.finish()));
        match removed {
            Some(store) => store.push_last(work, done),
            None => self.push(work, done),
        }
    }

    fn push(&self, work: Work, done: Done) {
        if let Some((done, error)) = self.writer.push(work, Some(done)) {
            done(Err(error));
        }
    }
}
