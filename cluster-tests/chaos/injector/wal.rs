//! The format of RocksDB's write-ahead log, as far as it takes to damage a part that was synced.

use std::ops::Range;

/// The log is written in blocks of this size; no record crosses a block's end.
const BLOCK_BYTES: usize = 32 << 10;
/// Checksum (4), length (2), type (1) and log number (4) before each record of a recyclable log.
const HEADER_BYTES: usize = 11;
/// Types of records: a complete batch, or the first, a middle and the last part of one.
const FULL: u8 = 5;
const FIRST: u8 = 6;
const LAST: u8 = 8;

/// The records of a log before its last batch: nodes sync each batch before they begin the next one.
/// A recycled file has records of another log's number behind its end.
pub(super) fn synced_records(log: &[u8], number: u32) -> Vec<Range<usize>> {
    let mut records = Vec::new();
    let mut last_batch = 0;
    let mut at = 0;
    loop {
        let left_in_block = BLOCK_BYTES - at % BLOCK_BYTES;
        if left_in_block < HEADER_BYTES {
            at += left_in_block;
        }
        let Some(header) = log.get(at..).and_then(<[u8]>::first_chunk) else { break };
        let [_, _, _, _, l0, l1, kind, n0, n1, n2, n3]: [u8; HEADER_BYTES] = *header;
        let end = at + HEADER_BYTES + usize::from(u16::from_le_bytes([l0, l1]));
        let is_of_this_log = u32::from_le_bytes([n0, n1, n2, n3]) == number;
        if !(FULL..=LAST).contains(&kind) || !is_of_this_log || end > log.len() {
            break;
        }
        if matches!(kind, FULL | FIRST) {
            last_batch = records.len();
        }
        records.push(at..end);
        at = end;
    }
    records.truncate(last_batch);
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(log: &mut Vec<u8>, kind: u8, number: u32, payload: usize) -> Range<usize> {
        let begin = log.len();
        log.extend([1, 2, 3, 4]);
        log.extend(u16::try_from(payload).unwrap().to_le_bytes());
        log.push(kind);
        log.extend(number.to_le_bytes());
        log.resize(log.len() + payload, 0);
        begin..log.len()
    }

    #[test]
    fn all_before_the_last_batch_was_synced() {
        let (mut log, mut expected) = (Vec::new(), Vec::new());
        expected.push(record(&mut log, FULL, 7, 100));
        // Leaves less than a header in the block.
        let rest = BLOCK_BYTES - log.len() - HEADER_BYTES - 5;
        expected.push(record(&mut log, FIRST, 7, rest));
        log.resize(BLOCK_BYTES, 0);
        expected.push(record(&mut log, LAST, 7, 50));
        assert_eq!(synced_records(&log, 7), expected[..1], "the batch may be the last one");
        record(&mut log, FIRST, 7, 60);
        record(&mut log, LAST, 7, 60);
        assert_eq!(synced_records(&log, 7), expected);
        record(&mut log, FULL, 6, 60);
        assert_eq!(synced_records(&log, 7), expected, "a record from before the recycling");
        assert_eq!(synced_records(&log, 8), []);
        assert_eq!(synced_records(&[], 7), []);
    }
}
