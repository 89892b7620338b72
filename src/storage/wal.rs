//! Searches for gaps in the write-ahead log before RocksDB replays it.
//!
//! RocksDB ends its replay silently at the first record that it cannot read, since with recycled
//! files it cannot distinguish the end of the log from damage. But every batch here is synced
//! before the next one is begun, so at most the last batch can be torn by a crash. A complete batch
//! after an unreadable one therefore proves that synced data were lost.
//!
//! If the unreadable batch is the last one of a file, the next batch is in the next file. Then it
//! cannot be distinguished from the remains of an older log by what follows it in its own file, nor
//! by the sequence numbers in the next one, since ingested tables take some too. But RocksDB's
//! manifest has the synced size of a closed file (`manifest`): its records must reach up to there.
//!
//! In both cases the start is refused with the name of the file. So log files can stay recycled.
//! Missing and short files of the log are known from RocksDB's manifest. Losses at the end of the
//! log or of the manifest are known from `SYNCED` (`synced`).

pub(crate) mod manifest;

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
    let files = files(db).map_err(crate::engine::file("cannot list the database"))?;
    let numbers = files.iter().map(|(number, _)| *number).collect();
    let synced = manifest::synced_sizes(db, numbers);
    for (number, path) in files {
        let scan = Scan::file(number, &path)?;
        let size = synced.get(&number).copied().unwrap_or_default();
        if scan.lacks(size) {
            let end = scan.stop();
            let what = format!(
                "the write-ahead log is damaged at byte {end}: it was synced up to byte {size}"
            );
            return Err(damaged(&path, what));
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
#[derive(Default)]
struct Scan {
    /// Low bits of the file's number: a recycled file has records of an older one after its end.
    number: u32,
    /// Sequence number of the last batch that begins before the end.
    sequence: u64,
    /// Position after the last readable record.
    read: u64,
    /// Position of the first unreadable record.
    end: Option<u64>,
    /// Position after that record, if it has the header of a later part of a batch.
    cut: Option<u64>,
}

struct Header {
    checksum: u32,
    kind: u8,
    /// Length of the payload.
    bytes: usize,
}

struct Record {
    kind: u8,
    /// Sequence number of its batch, if the record begins one.
    sequence: Option<u64>,
    /// Position of the next record.
    next: usize,
}

impl Scan {
    /// Reads a file to its end. Refuses it if a batch follows an unreadable record.
    fn file(number: u64, path: &Path) -> Result<Self, StorageError> {
        let failed = |error: io::Error| damaged(path, format!("cannot be read: {error}"));
        let mut file = File::open(path).map_err(failed)?;
        let mut scan = Self { number: number as u32, ..Self::default() };
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let mut offset = 0;
        loop {
            block.clear();
            let limit = BLOCK_BYTES as u64;
            let read = file.by_ref().take(limit).read_to_end(&mut block).map_err(failed)?;
            if read == 0 {
                return Ok(scan);
            }
            if let Some(behind) = scan.block(&block, offset) {
                let end = scan.stop();
                let what = format!(
                    "the write-ahead log is damaged at byte {end}: \
                     synced data after it, at byte {behind}, would be lost"
                );
                return Err(damaged(path, what));
            }
            offset += read as u64;
        }
    }

    /// Position at which reading has ended: at an unreadable record, or with the file.
    fn stop(&self) -> u64 {
        self.end.unwrap_or(self.read)
    }

    /// True if the file was synced up to `size` and has lost a record before it.
    fn lacks(&self, size: u64) -> bool {
        // If the disk is full in the middle of a large batch, RocksDB closes the file after a part
        // of a record, and counts it as synced. That batch was never reported. A synced record that
        // is complete has a payload and ends at or before the size.
        let stop = self.stop();
        let cut = size < stop + HEADER_BYTES as u64 || self.cut.is_some_and(|end| size < end);
        stop < size && !cut
    }

    /// Continues with the next block. Returns the position of a batch after the log's end, if there
    /// is one.
    fn block(&mut self, block: &[u8], offset: u64) -> Option<u64> {
        let mut at = 0;
        while self.end.is_none() && at + HEADER_BYTES <= block.len() {
            match self.record(block, at) {
                Some(record) => {
                    self.sequence = record.sequence.unwrap_or(self.sequence);
                    at = record.next;
                    self.read = offset + at as u64;
                }
                None => {
                    self.end = Some(offset + at as u64);
                    self.cut = self.part_end(block, at).map(|end| offset + end as u64);
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

    /// End of the record with such a header, if that is a later part of a batch.
    fn part_end(&self, block: &[u8], at: usize) -> Option<usize> {
        let header = self.header(block, at)?;
        let end = at + HEADER_BYTES + header.bytes;
        (!matches!(header.kind, FULL | FIRST) && end <= BLOCK_BYTES).then_some(end)
    }

    /// The header at the position, if it can be one of this log.
    fn header(&self, block: &[u8], at: usize) -> Option<Header> {
        let header: &[u8; HEADER_BYTES] = block.get(at..)?.first_chunk()?;
        let [c0, c1, c2, c3, l0, l1, kind, n0, n1, n2, n3] = *header;
        let number = u32::from_le_bytes([n0, n1, n2, n3]);
        let checksum = u32::from_le_bytes([c0, c1, c2, c3]);
        let bytes = usize::from(u16::from_le_bytes([l0, l1]));
        let ours = (FULL..=LAST).contains(&kind) && number == self.number;
        ours.then_some(Header { checksum, kind, bytes })
    }

    /// The record of this log that begins at the position, if there is one.
    fn record(&self, block: &[u8], at: usize) -> Option<Record> {
        let Header { checksum, kind, bytes } = self.header(block, at)?;
        let payload = at + HEADER_BYTES;
        let next = payload + bytes;
        // The checksum covers the type, the log's number and the payload.
        if checksum != masked(crc32c::crc32c(block.get(at + 6..next)?)) {
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

#[cfg(test)]
mod tests;
