//! Searches for gaps in the write-ahead log before RocksDB replays it.
//!
//! RocksDB ends its replay silently at the first record that it cannot read, since with recycled
//! files it cannot distinguish the end of the log from damage. But every batch here is synced
//! before the next one is begun, so at most the last batch can be torn by a crash. A complete batch
//! after an unreadable one therefore proves that synced data were lost.
//!
//! In that case the start is refused with the name of the file. So log files can stay recycled.
//! Missing and short files of the log are known from RocksDB's manifest. Losses at the end of the
//! log or of the manifest are known from `SYNCED` (`synced`).

use crate::StorageError;
use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// RocksDB writes its log in blocks of this size; no physical record crosses a block's end.
const BLOCK_BYTES: usize = 32 << 10;

/// Checksum (4), length (2), type (1) and log number (4) before each record of a recyclable log.
const HEADER_BYTES: usize = 11;

/// Types of physical records: a complete batch, or the first, a middle and the last part of one.
const FULL: u8 = 5;
const FIRST: u8 = 6;
const LAST: u8 = 8;

/// RocksDB's constant for masking checksums, so that a checksum of data with checksums is not
/// trivial.
const CHECKSUM_MASK: u32 = 0xa282_ead8;

/// Refuses a database below `db` whose write-ahead log has lost a part in the middle.
pub(crate) fn check(db: &Path) -> Result<(), StorageError> {
    for (number, path) in files(db).map_err(crate::engine::file("cannot list the database"))? {
        let failed = |error: io::Error| damaged(&path, format!("cannot be read: {error}"));
        let mut file = File::open(&path).map_err(failed)?;
        let mut scan = Scan { number: number as u32, sequence: 0, end: None };
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let mut offset = 0;
        loop {
            block.clear();
            let limit = BLOCK_BYTES as u64;
            let read = file.by_ref().take(limit).read_to_end(&mut block).map_err(failed)?;
            if read == 0 {
                break;
            }
            if let Some(behind) = scan.block(&block, offset) {
                let end = scan.end.unwrap_or_default();
                let what = format!(
                    "the write-ahead log is damaged at byte {end}: \
                     synced data after it, at byte {behind}, would be lost"
                );
                return Err(damaged(&path, what));
            }
            offset += read as u64;
        }
    }
    Ok(())
}

fn damaged(path: &Path, what: String) -> StorageError {
    StorageError::Damaged { file: path.display().to_string().into(), what: what.into() }
}

/// The files of the log, the oldest first.
fn files(db: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    let entries = match fs::read_dir(db) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        if let Some(number) = number
            && path.extension().is_some_and(|extension| extension == "log")
        {
            files.push((number, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// The state of reading one file.
struct Scan {
    /// Low bits of the file's number: a recycled file has records of an older one after its end.
    number: u32,
    /// Sequence number of the last batch that begins before the end.
    sequence: u64,
    /// Position of the first unreadable record.
    end: Option<u64>,
}

struct Record {
    kind: u8,
    /// Sequence number of its batch, if the record begins one.
    sequence: Option<u64>,
    /// Position of the next record.
    next: usize,
}

impl Scan {
    /// Continues with the next block. Returns the position of a batch after the log's end, if there
    /// is one.
    fn block(&mut self, block: &[u8], offset: u64) -> Option<u64> {
        let mut at = 0;
        while self.end.is_none() && at + HEADER_BYTES <= block.len() {
            match self.record(block, at) {
                Some(record) => {
                    self.sequence = record.sequence.unwrap_or(self.sequence);
                    at = record.next;
                }
                None => {
                    self.end = Some(offset + at as u64);
                    at += 1;
                }
            }
        }
        self.end?;
        // A damaged length hides the position of the next record: all positions are tried.
        (at..block.len()).find_map(|at| self.is_behind(block, at).then_some(offset + at as u64))
    }

    fn is_behind(&self, block: &[u8], at: usize) -> bool {
        let begins = |record: Record| {
            matches!(record.kind, FULL | FIRST)
                && record.sequence.is_some_and(|sequence| sequence > self.sequence)
        };
        self.record(block, at).is_some_and(begins)
    }

    /// The record of this log that begins at the position, if there is one.
    fn record(&self, block: &[u8], at: usize) -> Option<Record> {
        let header: &[u8; HEADER_BYTES] = block.get(at..)?.first_chunk()?;
        let [c0, c1, c2, c3, l0, l1, kind, n0, n1, n2, n3] = *header;
        if !(FULL..=LAST).contains(&kind) || u32::from_le_bytes([n0, n1, n2, n3]) != self.number {
            return None;
        }
        let payload = at + HEADER_BYTES;
        let next = payload + usize::from(u16::from_le_bytes([l0, l1]));
        // The checksum covers the type, the log's number and the payload.
        let checksum = crc32c::crc32c(block.get(at + 6..next)?);
        if u32::from_le_bytes([c0, c1, c2, c3]) != masked(checksum) {
            return None;
        }
        let begins = matches!(kind, FULL | FIRST);
        let first = block.get(payload..next)?.first_chunk().filter(|_| begins);
        Some(Record { kind, sequence: first.map(|bytes| u64::from_le_bytes(*bytes)), next })
    }
}

fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(CHECKSUM_MASK)
}
