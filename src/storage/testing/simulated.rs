//! The simulated disk itself: its losses, its guarantees, failures on request, and that a database
//! on it does nothing by itself.

use super::{GROUP, append, done, entry, id, options, written_to};
use crate::{
    Database, GroupStore, OpenError, StorageError,
    engine::{Engine, Family},
    simulated::{Disk, Loss, Operation, SimulatedEngine},
};
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_types::LogIndex;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

fn open(disk: &Disk) -> (Arc<Database>, GroupStore) {
    let mut options = options();
    options.run_cache_bytes = 0;
    options.tail_cache_bytes = 0;
    let database = Database::open_simulated(disk, &options).unwrap();
    let store = database.group(GROUP).unwrap();
    (database, store)
}

fn put(engine: &Engine, key: &[u8]) -> Result<(), StorageError> {
    let mut batch = engine.batch(0).unwrap();
    batch.put(Family::Log, key, [7; 40]);
    engine.write_synced(batch.finish())
}

/// Writes one synced key and four whose sync fails; returns the loss of a crash, and how many of
/// the four are left.
fn crash_with_four_pending(seed: u64) -> (Loss, usize) {
    let disk = Disk::new(seed);
    let engine = Engine::Simulated(SimulatedEngine::open(&disk).unwrap());
    put(&engine, b"synced").unwrap();
    for key in [b"1", b"2", b"3", b"4"] {
        disk.fail(Operation::Sync, 0);
        assert!(put(&engine, key).is_err());
        assert!(engine.get(Family::Log, key).unwrap().is_some(), "what pends is read");
    }
    let loss = disk.crash();
    assert!(put(&engine, b"5").is_err(), "the process is dead");
    assert!(engine.get(Family::Log, b"synced").is_err());
    let engine = Engine::Simulated(SimulatedEngine::open(&disk).unwrap());
    assert!(engine.get(Family::Log, b"synced").unwrap().is_some());
    let left = [b"1", b"2", b"3", b"4"].map(|key| engine.get(Family::Log, key).unwrap().is_some());
    let count = left.iter().take_while(|is_left| **is_left).count();
    assert!(left[count..].iter().all(|is_left| !is_left), "a suffix is lost: {left:?}");
    (loss, count)
}

#[test]
fn a_crash_loses_a_suffix_of_what_was_not_synced_and_may_tear_a_record() {
    let outcomes: Vec<_> = (0..200).map(crash_with_four_pending).collect();
    for (loss, left) in &outcomes {
        assert_eq!(loss.batches, 4 - left);
    }
    for wanted in 0..4 {
        assert!(outcomes.iter().any(|(_, left)| *left == wanted), "never {wanted} left");
    }
    assert!(outcomes.iter().any(|(loss, _)| loss.torn));
    assert!(outcomes.iter().any(|(loss, _)| loss.batches > 0 && !loss.torn));
    let again: Vec<_> = (0..200).map(crash_with_four_pending).collect();
    assert_eq!(outcomes, again, "chance comes from the seed alone");
}

#[test]
fn a_killed_process_loses_nothing_that_was_written() {
    let disk = Disk::new(1);
    let engine = Engine::Simulated(SimulatedEngine::open(&disk).unwrap());
    disk.fail(Operation::Sync, 0);
    assert!(put(&engine, b"1").is_err());
    disk.kill();
    assert!(put(&engine, b"2").is_err());
    let engine = Engine::Simulated(SimulatedEngine::open(&disk).unwrap());
    assert!(engine.get(Family::Log, b"1").unwrap().is_some());
    assert!(engine.get(Family::Log, b"2").unwrap().is_none());
}

/// Unsynced bytes and names of files can be lost.
#[test]
fn files_that_are_not_synced_may_be_lost() {
    let mut lost = [false; 3];
    for seed in 0..50 {
        let disk = Disk::new(seed);
        let engine = Engine::Simulated(SimulatedEngine::open(&disk).unwrap());
        let folder = engine.new_folder("g3");
        folder.create("neither").unwrap().write_all(&[1; 100]).unwrap();
        let mut synced = folder.create("bytes").unwrap();
        synced.write_all(&[1; 100]).unwrap();
        synced.sync().unwrap();
        let other = engine.new_folder("g3");
        other.create("named").unwrap().write_all(&[1; 100]).unwrap();
        other.sync_names().unwrap();
        disk.crash();
        let engine = SimulatedEngine::open(&disk).unwrap();
        let length = |folder: &str, file| engine.folder(folder).read(file).map(|it| it.len()).ok();
        lost[0] |= length("g3-1", "neither") != Some(100);
        lost[1] |= length("g3-1", "bytes").is_none();
        lost[2] |= length("g3-2", "named").unwrap() < 100;
        assert!(matches!(length("g3-1", "bytes"), None | Some(100)));
    }
    assert_eq!(lost, [true; 3]);
}

#[test]
fn a_write_or_sync_that_fails_ends_the_writer() {
    for operation in [Operation::Write, Operation::Sync] {
        let disk = Disk::new(1);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut options = options();
        let slot = heard.clone();
        options.fatal = Arc::new(move |error| slot.lock().push(error.to_string()));
        let database = Database::open_simulated(&disk, &options).unwrap();
        let store = database.group(GROUP).unwrap();
        append(&store, vec![entry(1, 1, &[(1, 0, 1, 10)])]);
        disk.fail(operation, 1);
        append(&store, vec![entry(1, 2, &[(1, 0, 1, 10)])]);
        let (failing, failed) = done();
        store.append(vec![entry(1, 3, &[(1, 0, 1, 10)])], failing);
        store.drive();
        assert!(matches!(failed.recv().unwrap(), Err(StorageError::Disk { .. })), "{operation:?}");
        let (later, refused) = done();
        store.save_vote(Bytes::new(), later);
        assert!(refused.recv().unwrap().is_err());
        assert_eq!(heard.lock().len(), 1);
    }
}

#[test]
fn a_read_that_fails_is_told_and_the_next_one_succeeds() {
    let disk = Disk::new(1);
    let (_database, store) = open(&disk);
    append(&store, vec![entry(1, 1, &[(1, 0, 2, 10)])]);
    append(&store, vec![entry(1, 2, &[])]);
    let read = || store.read(LogIndex(1), LogIndex(2), usize::MAX);
    for after in [0, 1] {
        // The scan of the log, and the reads of the bodies.
        disk.fail(Operation::Read, after);
        assert!(matches!(read(), Err(StorageError::Disk { .. })), "read {after}");
    }
    assert_eq!(read().unwrap(), [entry(1, 1, &[(1, 0, 2, 10)])]);
}

#[test]
fn nothing_happens_until_the_database_is_stepped() {
    let disk = Disk::new(1);
    let (database, store) = open(&disk);
    let woken = Arc::new(AtomicUsize::new(0));
    let counter = woken.clone();
    database.when_there_is_work(Box::new(move || {
        counter.fetch_add(1, SeqCst);
    }));
    assert!(!database.step());
    assert_eq!(woken.load(SeqCst), 0);
    let told: Vec<_> = (1..=2)
        .map(|index| {
            let (done, told) = done();
            store.append(vec![entry(1, index, &[])], done);
            told
        })
        .collect();
    assert_eq!(woken.load(SeqCst), 1, "once, until it is stepped");
    assert!(told.iter().all(|told| told.try_recv().is_err()));
    assert!(database.step());
    assert!(told.iter().all(|told| told.try_recv().unwrap().is_ok()), "one cycle, one sync");
    assert!(!database.step());
    append(&store, vec![entry(1, 3, &[])]);
    assert_eq!(woken.load(SeqCst), 2);
    database.step_reclaim().unwrap();
}

#[test]
fn a_disk_is_open_once_and_nobody_is_told_after_a_crash() {
    let disk = Disk::new(1);
    let (database, store) = open(&disk);
    let twice = Database::open_simulated(&disk, &options());
    assert!(matches!(twice, Err(OpenError::InUse { .. })));
    written_to(&store, |done| store.save_vote(Bytes::from_static(b"first"), done));
    append(&store, vec![entry(1, 1, &[])]);
    let (under_way, told) = done();
    store.save_vote(Bytes::from_static(b"second"), under_way);
    disk.crash();
    assert!(!disk.is_open());
    // The dead process may continue as long as it likes.
    store.drive();
    database.close();
    assert!(told.recv().is_err(), "the end of the write is dropped untold");
    let (again, store) = open(&disk);
    assert_eq!(store.vote().unwrap(), "first");
    assert_eq!(store.log_state().last, Some(id(1, 1)));
    assert!(again.identity().boot > database.identity().boot);
}
