//! Damage to a database at rest, which is refused with the file's name, and the state after a
//! crash, which is opened.

use super::{GROUP, append, entry, id, open, options, scratch, written};
use crate::{Database, GroupStore, engine::Family};
use bytes::Bytes;
use quorate_types::LogIndex;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;

const ENTRIES: u64 = 60;
const BODY_BYTES: usize = 3000;

/// A group with entries and a vote, some of them in tables.
fn filled(dir: &Path) -> (Arc<Database>, GroupStore) {
    let database = open(dir, options());
    let store = database.group(GROUP).unwrap();
    for index in 1..=ENTRIES / 2 {
        append(&store, vec![entry(1, index, &[(1, 0, 2, BODY_BYTES)])]);
    }
    for family in Family::ALL {
        store.engine().flush(family).unwrap();
    }
    for index in ENTRIES / 2 + 1..=ENTRIES {
        append(&store, vec![entry(1, index, &[(1, 0, 2, BODY_BYTES)])]);
    }
    written(|done| store.save_vote(Bytes::from_static(b"for node 2"), done));
    (database, store)
}

/// The directory after a crash at this moment, with the data that were passed to the system.
fn copy_of(dir: &Path) -> TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().flatten() {
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            if from.is_dir() {
                copy(&from, &to);
            } else {
                fs::copy(from, to).unwrap();
            }
        }
    }
    let to = scratch();
    copy(dir, to.path());
    to
}

/// Files of the database whose names satisfy `is`, in order.
fn files(dir: &Path, is: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("db")).unwrap().flatten();
    let mut found: Vec<_> =
        entries.filter(|e| is(e.file_name().to_str().unwrap())).map(|e| e.path()).collect();
    found.sort();
    found
}

fn logs(dir: &Path) -> Vec<PathBuf> {
    files(dir, |name| name.ends_with(".log"))
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn truncate(path: &Path, to: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(to).unwrap();
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn refusal(dir: &Path) -> String {
    match Database::open(dir, options()) {
        Ok(_) => panic!("opened"),
        Err(error) => error.to_string(),
    }
}

/// Opens the directory and reads all of it, or returns the refusal.
fn read_all(dir: &Path) -> Result<(), String> {
    let database = Database::open(dir, options()).map_err(|error| error.to_string())?;
    let store = database.group(GROUP).map_err(|error| error.to_string())?;
    assert_eq!(store.vote().as_deref(), Some(&b"for node 2"[..]), "the vote is lost");
    assert_eq!(store.log_state().last, Some(id(1, ENTRIES)), "acknowledged entries are lost");
    for index in 1..=ENTRIES {
        let read = store.read(LogIndex(index), LogIndex(index + 1), usize::MAX);
        let read = read.map_err(|error| error.to_string())?;
        assert_eq!(read, [entry(1, index, &[(1, 0, 2, BODY_BYTES)])], "entry {index}");
    }
    Ok(())
}

/// The directory with one damaged file is refused with the file's name, or has lost nothing.
fn noticed(dir: &Path, path: &Path, damage: impl Fn(&Path)) -> bool {
    let copy = copy_of(dir);
    let damaged = copy.path().join(path.strip_prefix(dir).unwrap());
    damage(&damaged);
    let name = damaged.file_name().unwrap().to_str().unwrap();
    match read_all(copy.path()) {
        Ok(()) => false,
        Err(told) => {
            // RocksDB reports the number of a missing log; of a table that it cannot open it only
            // reports corruption.
            let number = name.trim_start_matches('0').trim_end_matches(".log");
            let named = told.contains(name)
                || (name.ends_with(".log") && told.contains(number))
                || (name.ends_with(".sst") && told.contains("orrupt"));
            assert!(named && !told.contains('\n'), "{name} is not named: {told}");
            assert!(read_all(copy.path()).is_err(), "refused once, {name}, and then opened");
            true
        }
    }
}

/// After a kill only the data after the gap show where the synced part ended.
#[test]
fn a_log_that_lost_its_middle_is_refused() {
    let dir = scratch();
    let (_database, _store) = filled(dir.path());
    let whole = copy_of(dir.path());
    read_all(whole.path()).unwrap();
    let log = logs(dir.path()).pop().unwrap();
    let last = length(&log) as usize;
    for at in (0..last - 8 * BODY_BYTES).step_by(last / 50) {
        let copy = copy_of(dir.path());
        let log = logs(copy.path()).pop().unwrap();
        flip(&log, at);
        let told = refusal(copy.path());
        assert!(told.contains(log.to_str().unwrap()), "byte {at}: {told}");
        assert_eq!(refusal(copy.path()), told, "and again");
    }
}

#[test]
fn a_last_write_that_a_crash_has_torn_is_no_hole() {
    let dir = scratch();
    let (_database, store) = filled(dir.path());
    append(&store, vec![entry(1, ENTRIES + 1, &[(1, 0, 9, BODY_BYTES)])]);
    let log = logs(dir.path()).pop().unwrap();
    let end = length(&log);
    let torn: [&dyn Fn(&Path); 4] = [
        &|log| truncate(log, end - 3),
        &|log| truncate(log, end - 20_000),
        &|log| flip(log, end as usize - 5),
        // Blocks of a write may reach the disk in any order.
        &|log| {
            let mut bytes = fs::read(log).unwrap();
            bytes[end as usize - 26_000..end as usize - 20_000].fill(0);
            fs::write(log, bytes).unwrap();
        },
    ];
    for tear in torn {
        let copy = copy_of(dir.path());
        tear(&logs(copy.path()).pop().unwrap());
        read_all(copy.path()).unwrap();
    }
}

/// A recycled file has the records of an older one after its end.
#[test]
fn the_end_of_a_recycled_log_is_found() {
    let dir = scratch();
    let database = open(dir.path(), options());
    let store = database.group(GROUP).unwrap();
    let mut index = 0;
    for _ in 0..3 {
        for _ in 0..40 {
            index += 1;
            append(&store, vec![entry(1, index, &[(1, 0, 1, BODY_BYTES)])]);
        }
        for family in Family::ALL {
            store.engine().flush(family).unwrap();
        }
    }
    for _ in 0..20 {
        index += 1;
        append(&store, vec![entry(1, index, &[(1, 0, 1, BODY_BYTES)])]);
    }
    let copy = copy_of(dir.path());
    let log = logs(copy.path()).pop().unwrap();
    assert!(length(&log) > 30 * BODY_BYTES as u64, "it was not recycled");
    let again = open(copy.path(), options());
    assert_eq!(again.group(GROUP).unwrap().log_state().last, Some(id(1, index)));
    drop(again);
    let copy = copy_of(dir.path());
    let log = logs(copy.path()).pop().unwrap();
    flip(&log, 10 * BODY_BYTES);
    assert!(refusal(copy.path()).contains(log.to_str().unwrap()));
}

/// Damage to any file of a stopped node is detected, or harmless.
#[test]
fn damage_at_rest_is_noticed_or_harmless() {
    let dir = scratch();
    drop(filled(dir.path()));
    read_all(copy_of(dir.path()).path()).unwrap();
    let mut noticed_by_kind = std::collections::BTreeMap::new();
    let all = files(dir.path(), |name| !name.starts_with("LOG") && name != "LOCK");
    for path in all.iter().filter(|path| length(path) > 0) {
        let end = length(path);
        let name = path.file_name().unwrap().to_str().unwrap();
        let kind = match name.split_once(['.', '-']) {
            Some((_, kind @ ("log" | "sst"))) => kind,
            Some((kind, _)) => kind,
            None => name,
        };
        let count = noticed_by_kind.entry(kind.to_owned()).or_insert(0);
        for at in (0..end).step_by((end as usize / 12).max(1)) {
            *count += u32::from(noticed(dir.path(), path, |path| flip(path, at as usize)));
        }
        for to in [0, end / 2, end - 1] {
            *count += u32::from(noticed(dir.path(), path, |path| truncate(path, to)));
        }
        *count += u32::from(noticed(dir.path(), path, |path| fs::remove_file(path).unwrap()));
    }
    for kind in ["log", "sst", "MANIFEST", "CURRENT"] {
        assert!(noticed_by_kind[kind] >= 4, "{kind}: {noticed_by_kind:?}");
    }
}

#[test]
fn the_record_of_what_was_synced_is_itself_looked_after() {
    let dir = scratch();
    drop(filled(dir.path()));
    let copy = copy_of(dir.path());
    let synced = copy.path().join("SYNCED");
    // A crash may tear one of the two places.
    flip(&synced, 10);
    read_all(copy.path()).unwrap();
    let copy = copy_of(dir.path());
    let synced = copy.path().join("SYNCED");
    flip(&synced, 10);
    flip(&synced, 4096 + 10);
    assert!(refusal(copy.path()).contains("SYNCED"));
    fs::remove_file(&synced).unwrap();
    assert!(refusal(copy.path()).contains("SYNCED"));
}

/// An earlier state of the database beside a later record of the synced position.
#[test]
fn a_database_that_was_set_back_alone_is_refused() {
    let dir = scratch();
    let (database, store) = filled(dir.path());
    let former = copy_of(dir.path());
    append(&store, vec![entry(1, ENTRIES + 1, &[(1, 0, 1, BODY_BYTES)])]);
    drop((database, store));
    fs::remove_dir_all(dir.path().join("db")).unwrap();
    fs::rename(former.path().join("db"), dir.path().join("db")).unwrap();
    let told = refusal(dir.path());
    assert!(told.contains("had been synced") || told.contains("MANIFEST"), "{told}");
}
