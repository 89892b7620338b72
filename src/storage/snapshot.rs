//! Snapshots of a group.

use crate::{EntryId, StorageError};
use bytes::Bytes;

/// A group as of one checkpoint, streamed.
pub struct SnapshotReader {}

impl SnapshotReader {
    /// Last entry applied to it.
    #[must_use]
    pub fn applied(&self) -> EntryId {
        todo!()
    }
    /// What the raft floor wrote beside the checkpoint.
    #[must_use]
    pub fn meta(&self) -> &Bytes {
        todo!()
    }
    /// The next piece, at most 256 KiB; `None` at the end. Blocks while it is read from disk.
    ///
    /// # Errors
    /// A failed read.
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>, StorageError> {
        todo!()
    }
}

/// A snapshot that is being received. Dropped, it leaves nothing.
pub struct SnapshotDownload {}

impl SnapshotDownload {
    /// Takes the next piece. Blocks for the disk.
    ///
    /// # Errors
    /// A failed write.
    pub fn chunk(&mut self, chunk: &[u8]) -> Result<(), StorageError> {
        let _ = chunk;
        todo!()
    }
    /// All pieces are there: makes the files that an install takes in. Blocks for the disk.
    ///
    /// # Errors
    /// A failed write, or a stream that is not whole.
    pub fn complete(self) -> Result<ReceivedSnapshot, StorageError> {
        todo!()
    }
}

/// A snapshot received whole, for `GroupStore::install`. Dropped, it leaves nothing.
pub struct ReceivedSnapshot {}

impl ReceivedSnapshot {
    /// Last entry applied to it.
    #[must_use]
    pub fn applied(&self) -> EntryId {
        todo!()
    }
    /// What the sender's raft floor wrote beside its checkpoint.
    #[must_use]
    pub fn meta(&self) -> &Bytes {
        todo!()
    }
}
