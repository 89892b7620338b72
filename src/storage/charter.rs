//! The charter that a data directory has taken (MEM 2). It is in the database, so that a directory
//! that has lost its data has lost its charter too.

use crate::{
    Database, Done, StorageError,
    batch::corrupt,
    codec::{DecodeError, cursor::Cursor},
    engine::Family,
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_types::{Charter, Founding, GroupId, Incarnation, LogIndex, NodeId};

const VERSION: u8 = 1;
const CHARTER: &[u8] = b"charter";

fn encode(charter: &Charter, is_formed: bool) -> Bytes {
    let mut out = BytesMut::with_capacity(16 + 10 * charter.directories.len());
    out.put_u8(VERSION);
    out.put_u8(u8::from(is_formed));
    out.put_u64(charter.founder.0);
    out.put_u32(charter.number);
    for (node, directory) in &charter.directories {
        out.put_u16(node.0);
        out.put_u64(directory.0);
    }
    out.freeze()
}

fn decode(bytes: &[u8]) -> Result<(Charter, bool), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let is_formed = cursor.bool()?;
    let founder = Incarnation(u64::from_be_bytes(cursor.array()?));
    let number = u32::from_be_bytes(cursor.array()?);
    let mut charter = Charter { founder, number, directories: Default::default() };
    while cursor.remaining() > 0 {
        let node = NodeId(u16::from_be_bytes(cursor.array()?));
        charter.directories.insert(node, Incarnation(u64::from_be_bytes(cursor.array()?)));
    }
    Ok((charter, is_formed))
}

impl Database {
    /// What the directory has of the founding. One that belongs to a cluster is formed, also if an
    /// earlier release has formed it, which knows no charters.
    ///
    /// # Errors
    /// A failed read, or a record that cannot be decoded.
    pub fn founding(&self) -> Result<Founding, StorageError> {
        let record = self.engine.get(Family::Identity, CHARTER)?;
        let wrong = corrupt("charter", LogIndex(0));
        let record = record.map(|bytes| decode(&bytes).map_err(wrong)).transpose()?;
        let belongs = self.identity().cluster.is_some()
            || self.group(GroupId::CATALOG)?.log_state().last.is_some();
        Ok(match record {
            Some((charter, true)) => Founding::Formed(Some(charter)),
            // It came into its cluster in another way: that all have taken the charter is not known.
            Some(_) | None if belongs => Founding::Formed(None),
            Some((charter, false)) => Founding::Taken(charter),
            None => Founding::Empty,
        })
    }

    /// Stores a charter that the directory takes; `is_formed`: all have taken it.
    pub fn set_charter(&self, charter: &Charter, is_formed: bool, done: Done) {
        self.put_identity(CHARTER, encode(charter, is_formed), done);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn mem_02_a_charter_is_read_as_it_was_written() {
        let directories = (1..=3).map(|node| (NodeId(node), Incarnation(u64::MAX - 7))).collect();
        let charter = Charter { founder: Incarnation(9), number: 4, directories };
        for is_formed in [false, true] {
            let bytes = encode(&charter, is_formed);
            assert_eq!(decode(&bytes).unwrap(), (charter.clone(), is_formed));
            for end in 1..bytes.len() {
                let torn = decode(bytes.get(..end).unwrap());
                assert!(torn.is_err() || torn.is_ok_and(|(it, _)| it != charter), "{end}");
            }
        }
        assert!(decode(&[9]).is_err(), "of a later release");
    }
}
