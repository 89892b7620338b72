//! Damage to the end of a log file that was closed, whose next file has later batches.

use super::{GROUP, append, entry, id, open, options, scratch};
use crate::{
    Database, GroupStore,
    engine::Family,
    wal::{check, manifest::synced_sizes},
};
use quorate_types::LogIndex;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;

const BODY_BYTES: usize = 3000;

/// An open database whose log has a closed file that is still needed.
struct Rotated {
    dir: TempDir,
    _database: Arc<Database>,
    store: GroupStore,
    last: u64,
}

impl Rotated {
    fn new() -> Self {
        let dir = scratch();
        let database = open(dir.path(), options());
        let store = database.group(GROUP).unwrap();
        Self { dir, _database: database, store, last: 0 }
    }

    /// A closed file that was an older one, whose remains are behind its end.
    fn recycled() -> Self {
        let mut rotated = Self::new();
        for _ in 0..3 {
            (0..200).for_each(|_| rotated.append(BODY_BYTES));
            for family in Family::ALL {
                rotated.store.engine().flush(family).unwrap();
            }
        }
        (0..20).for_each(|_| rotated.append(BODY_BYTES));
        rotated.store.engine().flush(Family::Bodies).unwrap();
        (0..5).for_each(|_| rotated.append(BODY_BYTES));
        rotated
    }

    /// A closed file that was replaced because a memtable was full.
    fn filled() -> Self {
        let mut rotated = Self::new();
        while rotated.closed().is_empty() {
            rotated.append(20 * BODY_BYTES);
        }
        (0..5).for_each(|_| rotated.append(BODY_BYTES));
        rotated
    }

    fn append(&mut self, bytes: usize) {
        self.last += 1;
        append(&self.store, vec![entry(1, self.last, &[(1, 0, 1, bytes)])]);
    }

    /// The closed files with their synced sizes.
    fn closed(&self) -> Vec<(PathBuf, u64)> {
        let logs = logs(self.dir.path());
        let sizes = synced_sizes(&self.dir.path().join("db"), logs.keys().copied().collect());
        sizes.into_iter().map(|(number, size)| (logs[&number].clone(), size)).collect()
    }

    /// The directory after a kill, as soon as RocksDB's threads have ended their work.
    fn killed(&self) -> TempDir {
        let state = || -> Vec<_> {
            let entries = fs::read_dir(self.dir.path().join("db")).unwrap().flatten();
            // RocksDB may remove one meanwhile.
            entries.filter_map(|e| Some((e.file_name(), e.metadata().ok()?.len()))).collect()
        };
        let mut before = state();
        loop {
            std::thread::sleep(Duration::from_millis(300));
            let after = state();
            if before == after {
                break;
            }
            before = after;
        }
        let to = scratch();
        fs::create_dir(to.path().join("db")).unwrap();
        for part in ["", "db"] {
            for entry in fs::read_dir(self.dir.path().join(part)).unwrap().flatten() {
                if entry.path().is_file() {
                    fs::copy(entry.path(), to.path().join(part).join(entry.file_name())).unwrap();
                }
            }
        }
        to
    }

    /// The same file in a copy.
    fn in_copy(&self, copy: &TempDir, path: &Path) -> PathBuf {
        copy.path().join(path.strip_prefix(self.dir.path()).unwrap())
    }

    /// The last entry of a copy.
    fn last_of(&self, copy: &TempDir) -> u64 {
        let store = open(copy.path(), options()).group(GROUP).unwrap();
        let last = store.log_state().last.unwrap().index;
        assert_eq!(store.log_state().last, Some(id(1, last.0)));
        let read = store.read(LogIndex(1), LogIndex(last.0 + 1), usize::MAX).unwrap();
        assert_eq!(read.len() as u64, last.0);
        last.0
    }
}

fn logs(dir: &Path) -> BTreeMap<u64, PathBuf> {
    let paths = fs::read_dir(dir.join("db")).unwrap().flatten().map(|entry| entry.path());
    let logs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.map(|path| (path.file_stem().unwrap().to_str().unwrap().parse().unwrap(), path)).collect()
}

fn flip(path: &Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at as usize] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn refusal(dir: &Path) -> String {
    match Database::open(dir, options()) {
        Ok(_) => panic!("opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_closed_wal_file_that_lost_its_last_batch_is_refused() {
    for rotated in [Rotated::filled(), Rotated::recycled()] {
        assert_eq!(rotated.last_of(&rotated.killed()), rotated.last, "without damage");
        let closed = rotated.closed();
        assert_eq!(closed.len(), 1, "{closed:?}");
        let (path, size) = &closed[0];
        let number = logs(rotated.dir.path()).into_iter().find(|(_, log)| log == path).unwrap().0;
        assert_ne!(number, *logs(rotated.dir.path()).keys().max().unwrap(), "it is the newest");
        for back in [1, 5, 500, 2500] {
            let copy = rotated.killed();
            let log = rotated.in_copy(&copy, path);
            flip(&log, size - back);
            let told = refusal(copy.path());
            assert!(told.contains(log.to_str().unwrap()), "{told}");
            assert!(told.contains(&format!("synced up to byte {size}")), "{told}");
            assert_eq!(refusal(copy.path()), told, "and again");
        }
        let copy = rotated.killed();
        let log = rotated.in_copy(&copy, path);
        fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(size - 1).unwrap();
        assert!(refusal(copy.path()).contains(log.to_str().unwrap()));
    }
}

#[test]
fn a_newest_wal_file_with_a_torn_last_batch_is_opened() {
    for mut rotated in [Rotated::filled(), Rotated::recycled()] {
        // The mark of the last second does not cover the last batch.
        let synced = fs::read(rotated.dir.path().join("SYNCED")).unwrap();
        rotated.append(BODY_BYTES);
        let newest = logs(rotated.dir.path()).pop_last().unwrap().1;
        let copy = rotated.killed();
        fs::write(copy.path().join("SYNCED"), synced).unwrap();
        let log = rotated.in_copy(&copy, &newest);
        let bytes = fs::read(&log).unwrap();
        let body = format!("1/1/0/{}/0", rotated.last);
        let at = bytes.windows(body.len()).rposition(|part| part == body.as_bytes()).unwrap();
        flip(&log, at as u64 + 100);
        assert_eq!(rotated.last_of(&copy), rotated.last - 1);
    }
}

/// The check ends where the manifest cannot be read, and leaves the refusal to RocksDB.
#[test]
fn a_damaged_manifest_does_not_confuse_the_check_of_the_wal() {
    let rotated = Rotated::recycled();
    let copy = rotated.killed();
    let db = copy.path().join("db");
    let name = fs::read_to_string(db.join("CURRENT")).unwrap();
    let path = db.join(name.trim_end());
    let whole = fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(whole.len() / 50) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        fs::write(&path, &bytes).unwrap();
        check(&db).unwrap();
        fs::write(&path, &whole[..at]).unwrap();
        check(&db).unwrap();
    }
    fs::remove_file(path).unwrap();
    check(&db).unwrap();
    fs::write(db.join("CURRENT"), "MANIFEST-../../x").unwrap();
    check(&db).unwrap();
}
