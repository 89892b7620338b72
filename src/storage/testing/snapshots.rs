//! Snapshots: an install gives the streamed state; incomplete ones are refused; after a crash there
//! is either state, and no files.

use super::{GROUP, append, entry, id, model::runs_on_disk, open, options, queue, written};
use crate::{Database, GroupStore, ReplicaStore, StorageError, engine::Family, snapshot};
use bytes::Bytes;
use quorate_queue::{Change, NodeRecord, Record, RecordKey};
use quorate_types::{GroupId, Level, LogIndex, NodeId, ReplicaNumber, StartNumber};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// A group with a backlog of several chunks, partly cut, and with entries above the checkpoint.
fn donor(dir: &Path, messages: u32) -> (Arc<Database>, GroupStore) {
    let database = open(dir, options());
    let store = database.group(GROUP).unwrap();
    let mut replica = ReplicaStore::new(store.clone());
    for index in 1..=20 {
        append(&store, vec![entry(1, index, &[(index % 3 + 1, 0, messages, 4000)])]);
    }
    let cut =
        Change::Cut { queue: queue(2), level: Level(0), index: LogIndex(10), first: 0, last: 0 };
    let records = [Change::Record(RecordKey::Group), Change::Record(RecordKey::Node(NodeId(4)))];
    replica.take(LogIndex(18), &records).unwrap();
    replica.take(LogIndex(18), &[cut]).unwrap();
    let record = Record::Node(NodeRecord { fenced: StartNumber(3), suspected: true });
    let meta = Bytes::from_static(b"voters 1 2 3");
    let checkpoint = replica.checkpoint(id(1, 18), meta, |_| Some(record.clone()), Instant::now());
    written(|done| store.checkpoint(checkpoint, done));
    (database, store)
}

fn pieces(store: &GroupStore) -> Vec<Bytes> {
    let mut reader = store.snapshot().unwrap().unwrap();
    assert_eq!(reader.applied(), id(1, 18));
    assert_eq!(reader.meta(), "voters 1 2 3");
    std::iter::from_fn(|| reader.next_chunk().unwrap()).collect()
}

fn receive(store: &GroupStore, pieces: &[Bytes]) -> Result<crate::ReceivedSnapshot, StorageError> {
    let mut download = store.download(id(1, 18), 0, Bytes::from_static(b"voters 1 2 3")).unwrap();
    for piece in pieces {
        download.chunk(piece).unwrap();
    }
    download.complete()
}

/// All records of the group in a column family with their values, up to an index.
fn records(store: &GroupStore, family: Family) -> Vec<(Vec<u8>, Vec<u8>)> {
    use crate::codec::key;
    let mut found = Vec::new();
    let mut records = store.engine().scan(family, &key::group_end(store.group())).unwrap();
    records.seek(key::group_start(store.group()));
    while let Some((key, value)) = records.item() {
        let above = family != Family::State
            && key::decode_run_key(store.group(), key).unwrap().index > LogIndex(18);
        if !above {
            found.push((key.to_vec(), value.to_vec()));
        }
        records.next();
    }
    found
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("snapshots")).map_or(0, Iterator::count)
}

#[test]
fn what_is_installed_is_what_was_streamed() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_database, donor) = donor(from.path(), 20);
    let pieces = pieces(&donor);
    assert!(pieces.len() > 5);
    assert!(pieces.iter().all(|piece| piece.len() <= snapshot::CHUNK_BYTES_MAX));
    let database = open(to.path(), options());
    let store = database.group(GROUP).unwrap();
    // The existing data are removed: other runs, other state, a shorter log.
    append(&store, (1..=7).map(|index| entry(9, index, &[(5, 1, 2, 10)])).collect());
    let neighbour = database.group(GroupId(GROUP.0 + 1)).unwrap();
    append(&neighbour, vec![entry(9, 1, &[(5, 1, 2, 10)])]);
    let received = receive(&store, &pieces).unwrap();
    written(|done| store.install(received, done));
    for family in [Family::Heads, Family::Bodies, Family::State] {
        assert_eq!(records(&store, family), records(&donor, family), "{family:?}");
    }
    assert_eq!(files(to.path()), 0);
    let state = store.log_state();
    assert_eq!((state.last_purged, state.last), (Some(id(1, 18)), Some(id(1, 18))));
    assert_eq!(neighbour.read(LogIndex(1), LogIndex(2), 0).unwrap().len(), 1);
    assert_eq!(runs_on_disk(&neighbour, neighbour.group(), Family::Heads), [(5, 1, 1)]);
    // The group continues after it.
    append(&store, vec![entry(2, 19, &[(1, 0, 1, 10)])]);
    drop((store, neighbour, database));
    let store = open(to.path(), options()).group(GROUP).unwrap();
    assert_eq!(store.log_state().last, Some(id(2, 19)));
    assert_eq!(store.load().unwrap(), donor.load().unwrap());
}

#[test]
fn runs_above_the_snapshot_stay_with_their_entries() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_database, donor) = donor(from.path(), 2);
    let pieces = pieces(&donor);
    let database = open(to.path(), options());
    let store = database.group(GROUP).unwrap();
    // The same log, longer, with a queue that the snapshot does not have.
    for index in 1..=25 {
        append(&store, vec![entry(1, index, &[(index % 3 + 1, 0, 2, 4000), (77, 2, 1, 10)])]);
    }
    let received = receive(&store, &pieces).unwrap();
    written(|done| store.install(received, done));
    let known = runs_on_disk(&donor, GROUP, Family::Heads).into_iter().filter(|run| run.2 <= 18);
    let mut wanted: Vec<_> = known.collect();
    wanted.extend((19..=25).flat_map(|index| [(index % 3 + 1, 0, index), (77, 2, index)]));
    wanted.sort_unstable();
    for family in [Family::Heads, Family::Bodies] {
        assert_eq!(runs_on_disk(&store, GROUP, family), wanted);
    }
    assert_eq!(store.log_state().last, Some(id(1, 25)));
    assert_eq!(store.read(LogIndex(19), LogIndex(99), usize::MAX).unwrap().len(), 7);
    written(|done| store.purge_through(id(1, 18), done));
    assert_eq!(store.log_state().last_purged, Some(id(1, 18)));
}

#[test]
fn a_stream_that_is_not_whole_is_refused_and_leaves_nothing() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_database, donor) = donor(from.path(), 5);
    let pieces = pieces(&donor);
    let database = open(to.path(), options());
    let store = database.group(GROUP).unwrap();
    assert!(receive(&store, &pieces[1..]).is_err());
    assert!(receive(&store, &pieces[..pieces.len() - 1]).is_err());
    assert!(receive(&store, &[]).is_err());
    let mut changed = pieces.clone();
    let mut piece = changed[0].to_vec();
    piece[1000] ^= 1;
    changed[0] = Bytes::from(piece);
    assert!(receive(&store, &changed).is_err());
    assert_eq!(files(to.path()), 0);
    drop(receive(&store, &pieces).unwrap());
    assert_eq!(files(to.path()), 0, "received, never installed");
}

/// A snapshot that would fill the disk is refused before, also if it is larger than announced.
#[test]
fn a_snapshot_that_does_not_fit_is_refused_before_it_fills_the_disk() {
    let (from, to) = (super::scratch(), super::scratch());
    let (_database, donor) = donor(from.path(), 20);
    donor.engine().flush(Family::Bodies).unwrap();
    let expected = donor.snapshot().unwrap().unwrap().bytes();
    let received: usize = pieces(&donor).iter().map(Bytes::len).sum();
    assert!(
        expected > received as u64 / 2 && expected < received as u64 * 2,
        "{expected} of {received}"
    );
    let free = crate::directory::free_bytes(to.path()).unwrap();
    let mut options = options();
    options.disk_free_limit = free - (64 << 20);
    let database = open(to.path(), options);
    let store = database.group(GROUP).unwrap();
    let begin = |bytes| store.download(id(1, 18), bytes, Bytes::new());
    assert!(matches!(begin(free), Err(StorageError::NoRoom { .. })));
    let mut download = begin(expected).unwrap();
    let pieces = pieces(&donor);
    let refused = (0..30).flat_map(|_| &pieces).find_map(|piece| download.chunk(piece).err());
    assert!(matches!(refused, Some(StorageError::NoRoom { .. })), "{refused:?}");
    drop(download);
    assert_eq!(files(to.path()), 0);
    assert!(receive(&store, &pieces).is_ok());
}

#[test]
fn a_snapshot_shows_the_moment_that_it_was_taken() {
    let dir = tempfile::tempdir().unwrap();
    let (_database, store) = donor(dir.path(), 20);
    let mut reader = store.snapshot().unwrap().unwrap();
    let first = reader.next_chunk().unwrap().unwrap();
    let before = pieces(&store);
    let mut replica = ReplicaStore::new(store.clone());
    replica.take(LogIndex(20), &[Change::QueueRemoved { queue: queue(1) }]).unwrap();
    let checkpoint = replica.checkpoint(id(1, 20), Bytes::new(), |_| None, Instant::now());
    written(|done| store.checkpoint(checkpoint, done));
    let rest = std::iter::from_fn(|| reader.next_chunk().unwrap());
    let all: Vec<Bytes> = std::iter::once(first).chain(rest).collect();
    assert_eq!(all.concat(), before.concat());
}

#[test]
fn there_is_no_snapshot_before_the_first_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), options()).group(GROUP).unwrap();
    assert!(store.snapshot().unwrap().is_none());
}

/// A large snapshot delays only its own group.
#[test]
fn other_groups_do_not_wait_for_an_install() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_database, donor) = donor(from.path(), 20);
    let pieces = pieces(&donor);
    let (open_gate, gate) = crossbeam_channel::bounded::<()>(0);
    let mut options = options();
    options.install_gate = Some(gate);
    options.watchdog = Duration::from_secs(2);
    let database = open(to.path(), options);
    let store = database.group(GROUP).unwrap();
    append(&store, (1..=7).map(|index| entry(9, index, &[(5, 1, 2, 10)])).collect());
    let received = receive(&store, &pieces).unwrap();
    let (done, installed) = super::done();
    store.install(received, done);
    let (done, appended) = super::done();
    store.append(vec![entry(2, 19, &[(1, 0, 1, 10)])], done);
    let (done, voted) = super::done();
    store.save_vote(Bytes::from_static(b"late"), done);
    // Meanwhile another group writes, and the disk does not count as stalled.
    let neighbour = database.group(GroupId(GROUP.0 + 1)).unwrap();
    let begun = Instant::now();
    let mut index = 0;
    while begun.elapsed() < Duration::from_secs(4) {
        index += 1;
        append(&neighbour, vec![entry(1, index, &[(5, 1, 2, 10)])]);
        written(|done| neighbour.save_vote(Bytes::from_static(b"meanwhile"), done));
        assert!(!database.writer().is_stalled());
    }
    for waiting in [&installed, &appended, &voted] {
        assert!(waiting.try_recv().is_err(), "it did not wait for the install");
    }
    drop(open_gate);
    for waiting in [installed, appended, voted] {
        waiting.recv().unwrap().unwrap();
    }
    drop((store, neighbour, database));
    let store = open(to.path(), super::options()).group(GROUP).unwrap();
    assert_eq!(store.log_state().last, Some(id(2, 19)));
    assert_eq!(store.vote().as_deref(), Some(&b"late"[..]));
    assert_eq!(store.load().unwrap(), donor.load().unwrap());
}

/// STO 6: whatever write an install is interrupted at, the start finds the old state or the new
/// one.
#[test]
fn an_install_that_was_broken_off_is_done_again() {
    let from = tempfile::tempdir().unwrap();
    let (_database, donor) = donor(from.path(), 3);
    let pieces = pieces(&donor);
    let mut outcomes = Vec::new();
    for crash in 0..12 {
        let to = super::scratch();
        {
            let mut options = options();
            options.crash_after = Some(crash);
            let database = open(to.path(), options);
            let store = database.group(GROUP).unwrap();
            let (done, told) = super::done();
            store.append(vec![entry(9, 1, &[(5, 1, 2, 10)])], done);
            drop(told.recv());
            let received = receive(&store, &pieces).unwrap();
            let (done, told) = super::done();
            store.install(received, done);
            drop(told.recv());
        }
        let store = open(to.path(), options()).group(GROUP).unwrap();
        assert_eq!(files(to.path()), 0);
        let installed = store.load().unwrap() == donor.load().unwrap();
        if installed {
            for family in [Family::Heads, Family::Bodies, Family::State] {
                assert_eq!(records(&store, family), records(&donor, family), "{family:?}");
            }
            assert_eq!(store.log_state().last, Some(id(1, 18)));
        } else {
            let old = if crash == 0 { vec![] } else { vec![(5, 1, 1)] };
            assert_eq!(runs_on_disk(&store, GROUP, Family::Bodies), old);
        }
        outcomes.push(installed);
    }
    // An append; then the mark, from which on the install must be completed.
    assert_eq!(outcomes[..3], [false, false, true]);
    assert!(outcomes[2..].iter().all(|installed| *installed));
}

/// What an install under way writes does not stay for the next replica.
#[test]
fn mem_09_an_install_in_progress_ends_before_its_replica_is_removed() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_database, donor) = donor(from.path(), 20);
    let pieces = pieces(&donor);
    let (open_gate, gate) = crossbeam_channel::bounded::<()>(0);
    let mut options = options();
    options.install_gate = Some(gate);
    let database = open(to.path(), options);
    let store = database.group(GROUP).unwrap();
    let received = receive(&store, &pieces).unwrap();
    let (done, installed) = super::done();
    store.install(received, done);
    let (done, removed) = super::done();
    database.remove_replica(GROUP, ReplicaNumber(7), done);
    drop(open_gate);
    installed.recv().unwrap().unwrap();
    removed.recv().unwrap().unwrap();
    drop(store);
    let next = database.group(GROUP).unwrap();
    assert_eq!(next.load().unwrap().applied, None);
    assert_eq!((next.log_state().last, next.log_state().last_purged), (None, None));
    for family in [Family::Heads, Family::Bodies, Family::State] {
        assert!(records(&next, family).is_empty(), "{family:?}");
    }
}
