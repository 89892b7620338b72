//! Ends of files that a full disk has left.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::{BLOCK_BYTES, FIRST, FULL, HEADER_BYTES, LAST, Scan, masked};

const NUMBER: u32 = 7;

/// A physical record with the batch's sequence number.
fn record(kind: u8, payload: usize) -> Vec<u8> {
    let mut covered = vec![kind];
    covered.extend(NUMBER.to_le_bytes());
    covered.extend(1u64.to_le_bytes());
    covered.resize(5 + payload, 0x77);
    let mut bytes = masked(crc32c::crc32c(&covered)).to_le_bytes().to_vec();
    bytes.extend(u16::try_from(payload).unwrap().to_le_bytes());
    bytes.extend(covered);
    bytes
}

fn scan(file: &[u8]) -> Scan {
    let mut scan = Scan { number: NUMBER, ..Scan::default() };
    for (block, offset) in file.chunks(BLOCK_BYTES).zip((0..).step_by(BLOCK_BYTES)) {
        assert_eq!(scan.block(block, offset), None);
    }
    scan
}

#[test]
fn a_synced_record_that_cannot_be_read_is_lacking() {
    for (kind, damaged) in [(FULL, 0), (FULL, 4), (FULL, 6), (FULL, 8), (FULL, 30), (LAST, 30)] {
        let mut file = record(FIRST, BLOCK_BYTES - HEADER_BYTES);
        file.extend(record(kind, 40));
        let size = file.len() as u64;
        assert!(!scan(&file).lacks(size));
        // Remains of an older file.
        file.extend([0x55; 500]);
        assert!(!scan(&file).lacks(size));
        file[BLOCK_BYTES + damaged] ^= 0x10;
        assert!(scan(&file).lacks(size), "type {kind}, byte {damaged}");
        assert!(!scan(&file).lacks(BLOCK_BYTES as u64));
    }
}

#[test]
fn a_batch_that_a_full_disk_has_cut_is_not_lacking() {
    let mut file = record(FIRST, BLOCK_BYTES - HEADER_BYTES);
    file.extend(record(LAST, 40));
    for size in BLOCK_BYTES..file.len() {
        let mut cut = file[..size].to_vec();
        assert!(!scan(&cut).lacks(size as u64), "{size}");
        cut.extend([0x55; 500]);
        assert!(!scan(&cut).lacks(size as u64), "{size}, with remains of an older file");
    }
}
