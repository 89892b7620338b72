//! Reading messages: only those of committed entries, within a budget; an unreadable message is not
//! reported as missing.

use super::{APPLIED, GROUP, append, body, entry, open, options, queue, written};
use crate::{
    Committed, Database, GroupStore, MessageRef, StorageError, StoredMessage,
    codec::key::{self, RunKey},
    engine::Family,
};
use quorate_types::{Level, LogIndex, MessageId, Term};
use std::{path::Path, sync::Arc};

fn message(number: u64, index: u64, position: u32) -> MessageRef {
    let message = MessageId { level: Level(0), index: LogIndex(index), position };
    MessageRef { queue: queue(number), message }
}

/// A store that caches only unwritten data, or also written data.
fn store(dir: &Path, cached: bool) -> (Arc<Database>, GroupStore) {
    let mut options = options();
    if !cached {
        options.run_cache_bytes = 0;
        options.tail_cache_bytes = 0;
    }
    let database = open(dir, options);
    let store = database.group(GROUP).unwrap();
    (database, store)
}

fn committed(applied: u64, term: Option<u64>) -> Committed {
    Committed { applied: LogIndex(applied), term: term.map(Term) }
}

fn read(store: &GroupStore, index: u64, committed: Committed) -> StoredMessage {
    store.messages(&[message(1, index, 0)], committed, 0).unwrap().pop().unwrap()
}

#[test]
fn f_1_an_entry_that_is_not_known_to_be_committed_is_not_shown_for_another() {
    for cached in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (_database, store) = store(dir.path(), cached);
        append(&store, vec![entry(1, 1, &[(1, 0, 1, 50)])]);
        // This node led term 1, and was cut off before any other node had entry 2. Another node
        // leads term 2, and its entry 2 is committed: a message of that entry is requested.
        append(&store, vec![entry(1, 2, &[(1, 0, 1, 50)])]);
        let here = |term, index| StoredMessage::Here(body(term, 1, 0, index, 0, 50));
        for by in [committed(1, None), committed(1, Some(2))] {
            assert_eq!(read(&store, 1, by), here(1, 1), "it is applied");
            assert_eq!(read(&store, 2, by), StoredMessage::Unknown, "cached: {cached}");
            assert_eq!(read(&store, 3, by), StoredMessage::Unknown, "not here yet");
        }
        // The leader's own log replaces it.
        written(|done| store.truncate_after(Some(LogIndex(1)), done));
        assert_eq!(read(&store, 2, committed(1, Some(2))), StoredMessage::Unknown);
        append(&store, vec![entry(2, 2, &[(1, 0, 1, 50)])]);
        assert_eq!(read(&store, 2, committed(1, Some(1))), StoredMessage::Unknown);
        assert_eq!(read(&store, 2, committed(2, None)), here(2, 2));
    }
}

#[test]
fn what_the_leader_of_the_term_has_made_is_shown_before_it_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    let (_database, store) = store(dir.path(), true);
    append(&store, vec![entry(2, 1, &[(1, 0, 1, 50)]), entry(3, 2, &[(1, 0, 1, 50)])]);
    let here = |term, index| StoredMessage::Here(body(term, 1, 0, index, 0, 50));
    assert_eq!(read(&store, 2, committed(0, Some(3))), here(3, 2));
    assert_eq!(read(&store, 1, committed(0, Some(3))), StoredMessage::Unknown, "made by another");
    assert_eq!(read(&store, 1, committed(1, Some(3))), here(2, 1));
}

#[test]
fn a_read_ends_where_the_next_message_would_exceed_it() {
    for cached in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (_database, store) = store(dir.path(), cached);
        let runs = |index| entry(1, index, &[(1, 0, 4, 1000)]);
        append(&store, (1..=4).map(runs).collect());
        let wanted: Vec<_> =
            (1..=4).flat_map(|index| (0..4).map(move |at| message(1, index, at))).collect();
        let count = |bytes_max| {
            let read = store.messages(&wanted, APPLIED, bytes_max).unwrap();
            for (found, (index, at)) in read.iter().zip((0..16).map(|n| (1 + n / 4, n % 4))) {
                let wanted = body(1, 1, 0, index, u32::try_from(at).unwrap(), 1000);
                assert_eq!(*found, StoredMessage::Here(wanted));
            }
            read.len()
        };
        let counts = [0, 999, 1000, 1999, 2000, 6500, 1 << 20].map(count);
        assert_eq!(counts, [1, 1, 1, 1, 2, 6, 16], "cached: {cached}");
        let mixed = [message(1, 9, 0), wanted[0], message(1, 9, 0), wanted[1]];
        let read = store.messages(&mixed, APPLIED, 1500).unwrap();
        assert_eq!(read.len(), 3, "what is not there has no bytes");
    }
}

#[test]
fn f_15_a_damaged_record_is_an_error_and_not_an_absent_message() {
    let dir = tempfile::tempdir().unwrap();
    let (_database, store) = store(dir.path(), false);
    append(&store, (1..=3).map(|index| entry(1, index, &[(1, 0, 1, 100)])).collect());
    let key = key::run_key(GROUP, RunKey { queue: queue(1), level: Level(0), index: LogIndex(2) });
    let engine = store.engine();
    let mut record = engine.get(Family::Bodies, &key).unwrap().unwrap().to_vec();
    record[0] ^= 0x40;
    let mut batch = engine.batch(0).unwrap();
    batch.put(Family::Bodies, key, record);
    engine.write_synced(batch.finish()).unwrap();
    let wanted = [message(1, 1, 0), message(1, 2, 0), message(1, 3, 0)];
    let before = StoredMessage::Here(body(1, 1, 0, 1, 0, 100));
    assert_eq!(store.messages(&wanted, APPLIED, usize::MAX).unwrap(), [before]);
    let damaged = store.messages(&wanted[1..], APPLIED, usize::MAX);
    assert!(matches!(damaged, Err(StorageError::Corrupt { .. })), "{damaged:?}");
    let behind = store.messages(&wanted[2..], APPLIED, usize::MAX).unwrap();
    assert_eq!(behind, [StoredMessage::Here(body(1, 1, 0, 3, 0, 100))]);
}
