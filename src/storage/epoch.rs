//! The epoch of a data directory (MEM 14). It is stored before the last resort changes anything
//! else, as one that is not complete, and again when that has ended: a directory between the two is
//! refused until the last resort is repeated.

use crate::{
    Database, Done, StorageError,
    batch::corrupt,
    codec::{DecodeError, cursor::Cursor},
    engine::{Engine, Family},
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_types::{Epoch, LogIndex};

const VERSION: u8 = 1;
const EPOCH: &[u8] = b"epoch";

/// The epoch of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EpochRecord {
    pub(crate) epoch: Epoch,
    /// The last resort that begins it has not ended.
    pub(crate) is_recovering: bool,
}

impl EpochRecord {
    fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(10);
        out.put_u8(VERSION);
        out.put_u64(self.epoch.0);
        out.put_u8(u8::from(self.is_recovering));
        out.freeze()
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        cursor.version(VERSION)?;
        let epoch = Epoch(u64::from_be_bytes(cursor.array()?));
        let is_recovering = cursor.bool()?;
        cursor.end()?;
        Ok(Self { epoch, is_recovering })
    }

    /// A directory without a record is of the first epoch.
    pub(crate) fn read(engine: &Engine) -> Result<Self, StorageError> {
        let Some(bytes) = engine.get(Family::Identity, EPOCH)? else { return Ok(Self::default()) };
        Self::decode(&bytes).map_err(corrupt("epoch", LogIndex(0)))
    }
}

impl Database {
    /// Stores the epoch of the cluster to which the directory belongs. `is_recovering`: the last
    /// resort that begins the epoch goes on.
    pub fn set_epoch(&self, epoch: Epoch, is_recovering: bool, done: Done) {
        self.note_epoch(epoch, is_recovering);
        self.put_identity(EPOCH, EpochRecord { epoch, is_recovering }.encode(), done);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn mem_14_an_epoch_is_read_as_it_was_written() {
        for is_recovering in [false, true] {
            let record = EpochRecord { epoch: Epoch(u64::MAX - 1), is_recovering };
            let bytes = record.encode();
            assert_eq!(EpochRecord::decode(&bytes).unwrap(), record);
            assert!(EpochRecord::decode(bytes.get(..9).unwrap()).is_err());
        }
        assert!(EpochRecord::decode(&[2, 0]).is_err(), "of a later release");
    }
}
