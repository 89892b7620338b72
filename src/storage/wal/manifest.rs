//! Reads from RocksDB's manifest up to which byte files of the write-ahead log were synced.
//!
//! The first synced write to a new log file, or the flush that the change of files has caused,
//! records the size of the closed file in the manifest (`track_and_verify_wals_in_manifest`). A
//! flush can still be recording it while the first writes to the new file are reported; for that
//! moment, nothing is known of the closed file.
//!
//! The manifest is a log of edits. Sizes of log files, and their deletion, are in edits of their
//! own, which begin with numbers only. All other edits are skipped. RocksDB refuses a damaged
//! manifest, so that reading ends here, without an error, at what cannot be read.

use super::{BLOCK_BYTES, masked};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Read,
    path::Path,
};

/// Checksum (4), length (2) and type (1) before each record: a manifest is never recycled.
const HEADER_BYTES: usize = 7;

/// Types of physical records: a complete edit, or the first, a middle and the last part of one.
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Bytes of an edit that are kept, enough for the sizes of thousands of log files. Edits with many
/// tables are longer.
const EDIT_BYTES_MAX: usize = 64 << 10;

/// Tags of fields with one number, which can precede the fields of log files in an edit: last
/// sequence number, next file, previous log, oldest needed log, highest column family.
const NUMBERS: [u64; 5] = [4, 3, 9, 10, 203];

/// Tags of fields about log files.
const WAL_ADDITION: u64 = (1 << 13) + 7;
const WAL_DELETION: u64 = (1 << 13) + 8;

/// Tags within an addition.
const TERMINATE: u64 = 1;
const SYNCED_SIZE: u64 = 2;

/// The synced sizes of those of the `logs` of which the current manifest has one.
pub(crate) fn synced_sizes(db: &Path, logs: BTreeSet<u64>) -> BTreeMap<u64, u64> {
    let mut reader = Reader { logs, ..Reader::default() };
    let Some(mut file) = open_current(db) else { return reader.sizes };
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    loop {
        block.clear();
        let read = file.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block);
        if !read.is_ok_and(|bytes| bytes > 0) || reader.block(&block).is_none() {
            return reader.sizes;
        }
    }
}

/// The manifest that the file CURRENT names.
fn open_current(db: &Path) -> Option<File> {
    let name = fs::read_to_string(db.join("CURRENT")).ok()?;
    let name = name.strip_suffix('\n')?;
    name.strip_prefix("MANIFEST-")?.parse::<u64>().ok()?;
    File::open(db.join(name)).ok()
}

#[derive(Default)]
struct Reader {
    /// Numbers of the files whose sizes are wanted.
    logs: BTreeSet<u64>,
    sizes: BTreeMap<u64, u64>,
    /// Files with smaller numbers are not needed any more.
    first_kept: u64,
    /// The beginning of an edit whose last part was not read yet.
    edit: Option<Vec<u8>>,
}

impl Reader {
    /// Continues with the next block. `None` if it cannot be read to its end.
    fn block(&mut self, mut block: &[u8]) -> Option<()> {
        // What is shorter than a header at the end of a block is padding.
        while block.len() >= HEADER_BYTES {
            let (header, rest) = block.split_first_chunk::<HEADER_BYTES>()?;
            let [c0, c1, c2, c3, l0, l1, kind] = *header;
            let bytes = usize::from(u16::from_le_bytes([l0, l1]));
            let (payload, next) = rest.split_at_checked(bytes)?;
            // The checksum covers the type and the payload.
            let checksum = crc32c::crc32c_append(crc32c::crc32c(&[kind]), payload);
            if u32::from_le_bytes([c0, c1, c2, c3]) != masked(checksum) {
                return None;
            }
            self.record(kind, payload)?;
            block = next;
        }
        Some(())
    }

    /// Adds a part of an edit, which is applied after its last one.
    fn record(&mut self, kind: u8, payload: &[u8]) -> Option<()> {
        let mut edit = match (kind, self.edit.take()) {
            (FULL | FIRST, None) => Vec::new(),
            (MIDDLE | LAST, Some(edit)) => edit,
            _ => return None,
        };
        let room = EDIT_BYTES_MAX.saturating_sub(edit.len());
        edit.extend(payload.iter().take(room));
        if matches!(kind, FULL | LAST) {
            // `None` only says that the edit has other fields, which do not matter.
            let _ = self.apply(&edit);
        } else {
            self.edit = Some(edit);
        }
        Some(())
    }

    /// Applies the fields about log files. `None` at the first field that is not known.
    fn apply(&mut self, mut edit: &[u8]) -> Option<()> {
        while !edit.is_empty() {
            match varint(&mut edit)? {
                tag if NUMBERS.contains(&tag) => {
                    varint(&mut edit)?;
                }
                WAL_ADDITION => {
                    let (number, size) = addition(prefixed(&mut edit)?)?;
                    if let Some(size) = size {
                        self.add(number, size);
                    }
                }
                WAL_DELETION => {
                    let first = varint(&mut prefixed(&mut edit)?)?;
                    self.first_kept = self.first_kept.max(first);
                    self.sizes = self.sizes.split_off(&self.first_kept);
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// Sizes of one file may be recorded out of order, and after the deletion.
    fn add(&mut self, number: u64, size: u64) {
        if number >= self.first_kept && self.logs.contains(&number) {
            let known = self.sizes.entry(number).or_default();
            *known = size.max(*known);
        }
    }
}

/// The number of a log file, and its synced size if that is known.
fn addition(mut field: &[u8]) -> Option<(u64, Option<u64>)> {
    let number = varint(&mut field)?;
    let mut size = None;
    loop {
        match varint(&mut field)? {
            TERMINATE => return Some((number, size)),
            SYNCED_SIZE => size = Some(varint(&mut field)?),
            _ => return None,
        }
    }
}

/// Bytes with their length before them.
fn prefixed<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(bytes)?).ok()?;
    let (field, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(field)
}

/// A number in groups of seven bits, the lowest first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
