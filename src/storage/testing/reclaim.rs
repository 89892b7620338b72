//! Disk space of removed runs is given back without any further write.

use super::{GROUP, append, body, entry, open, options, queue, written};
use crate::{Database, MessageRef, RunRange};
use quorate_types::{Level, LogIndex, MessageId};
use std::path::Path;

const RUNS: u64 = 64;
const BODY_BYTES: usize = 1 << 20;

/// Bytes of the table files.
fn tables(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir.join("db")).unwrap().flatten();
    files
        .filter(|file| file.path().extension().is_some_and(|kind| kind == "sst"))
        .map(|file| file.metadata().unwrap().len())
        .sum()
}

fn remove(database: &Database, first: u64, last: u64) {
    let (first, last) = (LogIndex(first), LogIndex(last));
    let range = RunRange { queue: queue(1), level: Level(0), first, last };
    let store = database.group(GROUP).unwrap();
    written(|done| store.remove_dead(&[range], done).unwrap());
}

#[test]
fn removed_runs_give_their_space_back_and_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    options.run_cache_bytes = 0;
    options.tail_cache_bytes = 0;
    let database = open(dir.path(), options);
    let store = database.group(GROUP).unwrap();
    for index in 1..=RUNS {
        append(&store, vec![entry(1, index, &[(1, 0, 1, BODY_BYTES)])]);
    }
    let before = tables(dir.path());
    assert!(before > (RUNS / 2) * BODY_BYTES as u64, "{before} bytes were flushed");
    remove(&database, 1, RUNS - 2);
    database.reclaim().scan_now().unwrap();
    let after = tables(dir.path());
    assert!(after < 4 * BODY_BYTES as u64, "{after} of {before} bytes are left");
    for index in [RUNS - 1, RUNS] {
        let message = MessageId { level: Level(0), index: LogIndex(index), position: 0 };
        let read = store.message(MessageRef { queue: queue(1), message }).unwrap();
        assert_eq!(read, Some(body(1, 1, 0, index, 0, BODY_BYTES)));
    }
}
