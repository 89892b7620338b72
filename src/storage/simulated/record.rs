//! A batch on the simulated disk: its operations one after the other. In the log, its length and a
//! checksum precede it, by which a torn one is recognized.

use crate::engine::Family;
use bytes::{BufMut, Bytes, BytesMut};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_RANGE: u8 = 3;

/// Bytes of length and checksum before a record in the log.
const FRAME_BYTES: usize = 8;

/// One batch of the simulated log.
pub(crate) struct Record {
    operations: BytesMut,
}

/// One operation of a batch.
pub(super) enum Change<'a> {
    Put(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
    /// Removes keys from the first to before the second.
    DeleteRange(&'a [u8], &'a [u8]),
}

impl Record {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { operations: BytesMut::with_capacity(bytes) }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.operations.len()
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.operations.freeze()
    }

    pub(crate) fn put(&mut self, family: Family, key: &[u8], value: &[u8]) {
        self.add(PUT, family, key, value);
    }

    pub(crate) fn delete(&mut self, family: Family, key: &[u8]) {
        self.add(DELETE, family, key, &[]);
    }

    pub(crate) fn delete_range(&mut self, family: Family, start: &[u8], end: &[u8]) {
        self.add(DELETE_RANGE, family, start, end);
    }

    fn add(&mut self, kind: u8, family: Family, first: &[u8], second: &[u8]) {
        self.operations.put_u8(kind);
        self.operations.put_u8(family as u8);
        self.operations.put_u32(first.len() as u32);
        self.operations.put_u32(second.len() as u32);
        self.operations.put_slice(first);
        self.operations.put_slice(second);
    }
}

/// The operations of a batch; `None` if the bytes are not a batch.
pub(super) fn changes(mut operations: &[u8]) -> Option<Vec<(Family, Change<'_>)>> {
    let mut changes = Vec::new();
    while !operations.is_empty() {
        let ([kind, family], rest) = operations.split_first_chunk()?;
        let (first_bytes, rest) = rest.split_first_chunk()?;
        let (second_bytes, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_at_checked(u32::from_be_bytes(*first_bytes) as usize)?;
        let (second, rest) = rest.split_at_checked(u32::from_be_bytes(*second_bytes) as usize)?;
        let change = match *kind {
            PUT => Change::Put(first, second),
            DELETE => Change::Delete(first),
            DELETE_RANGE => Change::DeleteRange(first, second),
            _ => return None,
        };
        changes.push((*Family::ALL.get(usize::from(*family))?, change));
        operations = rest;
    }
    Some(changes)
}

/// Appends a batch to a log.
pub(super) fn put_frame(operations: &[u8], log: &mut Vec<u8>) {
    log.put_u32(operations.len() as u32);
    log.put_u32(crc32fast::hash(operations));
    log.put_slice(operations);
}

/// The number of complete batches at the beginning of a log, and whether other bytes follow.
pub(super) fn whole_frames(mut log: &[u8]) -> (usize, bool) {
    let mut count = 0;
    while let Some(rest) = behind_frame(log) {
        count += 1;
        log = rest;
    }
    (count, !log.is_empty())
}

/// The bytes after the first batch, if that is complete.
fn behind_frame(log: &[u8]) -> Option<&[u8]> {
    let (frame, rest) = log.split_first_chunk::<FRAME_BYTES>()?;
    let [l0, l1, l2, l3, c0, c1, c2, c3] = *frame;
    let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    let (operations, rest) = rest.split_at_checked(length)?;
    (u32::from_be_bytes([c0, c1, c2, c3]) == crc32fast::hash(operations)).then_some(rest)
}
