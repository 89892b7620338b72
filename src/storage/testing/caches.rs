//! Memory and disk: unwritten runs can always be read, budgets are kept, reads show cuts and
//! removals, entries are joined with their bodies again.

use super::{GROUP, append, body, done, entry, id, open, options, queue, written};
use crate::{
    Database, GroupStore, MessageRef, Options, Payload, ReplicaStore, RunRange, engine::Family,
};
use bytes::Bytes;
use crossbeam_channel::{Sender, bounded, unbounded};
use quorate_queue::{Change, MessageStore};
use quorate_types::{Level, LogIndex, MessageId};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

fn message(number: u64, level: u8, index: u64, position: u32) -> MessageRef {
    let message = MessageId { level: Level(level), index: LogIndex(index), position };
    MessageRef { queue: queue(number), message }
}

fn without_caches() -> Options {
    let mut options = options();
    options.run_cache_bytes = 0;
    options.tail_cache_bytes = 0;
    options
}

/// Blocks the writer between two cycles until the sender is dropped. It is blocked when this
/// returns; it may be blocked after a cycle whose end was reported before, so no write is awaited.
fn hold(database: &Database, store: &GroupStore) -> Sender<()> {
    let (release, held) = bounded::<()>(0);
    let (stands, standing) = unbounded();
    database.writer().subscribe_cycles(Box::new(move |_| {
        let _ = stands.send(());
        let _ = held.recv();
    }));
    store.save_vote(Bytes::new(), Box::new(drop));
    standing.recv().unwrap();
    release
}

fn bodies(store: &GroupStore, index: u64) -> Vec<Option<Bytes>> {
    let read = store.read(LogIndex(index), LogIndex(index + 1), 0).unwrap();
    let Payload::Commands(commands) = &read[0].payload else { panic!("{read:?}") };
    commands.bodies.iter().flat_map(|run| run.messages.clone()).collect()
}

#[test]
fn runs_that_are_not_yet_written_can_be_read_whatever_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), without_caches());
    let store = database.group(GROUP).unwrap();
    append(&store, vec![entry(1, 1, &[])]);
    let release = hold(&database, &store);
    let mut told = Vec::new();
    for index in 2..=20 {
        let (done, receiver) = done();
        store.append(vec![entry(1, index, &[(1, 0, 3, 100)])], done);
        told.push(receiver);
    }
    let read = |when: &str| {
        for index in 2..=20 {
            let wanted = body(1, 1, 0, index, 2, 100);
            assert_eq!(store.message(message(1, 0, index, 2)).unwrap(), Some(wanted), "{when}");
            assert_eq!(bodies(&store, index).len(), 3, "{when}");
        }
        let runs = ReplicaStore::new(store.clone())
            .runs(queue(1), Level(0), LogIndex(3), LogIndex(18), 100)
            .unwrap();
        let indexes: Vec<u64> = runs.iter().map(|run| run.index.0).collect();
        assert_eq!(indexes, (3..=18).collect::<Vec<_>>(), "{when}");
    };
    read("unwritten");
    assert!(store.memory().cache().bytes() > 19 * 300);
    drop(release);
    told.into_iter().for_each(|told| told.recv().unwrap().unwrap());
    assert_eq!(store.memory().cache().bytes(), 0, "all is written, the budget is 0");
    read("written");
}

#[test]
fn truncated_runs_are_gone_before_the_truncation_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), without_caches());
    let store = database.group(GROUP).unwrap();
    append(&store, (1..=5).map(|index| entry(1, index, &[(1, 0, 1, 50)])).collect());
    let release = hold(&database, &store);
    // The writer is blocked: the disk has entries 4 and 5 of term 1.
    let (truncate_done, truncated) = done();
    store.truncate_after(Some(LogIndex(3)), truncate_done);
    let (append_done, appended) = done();
    store.append(vec![entry(2, 4, &[(2, 0, 1, 50)])], append_done);
    let replica = ReplicaStore::new(store.clone());
    let runs = |number| {
        let (from, through) = (LogIndex(0), LogIndex(100));
        let runs = replica.runs(queue(number), Level(0), from, through, 10).unwrap();
        runs.iter().map(|run| run.index.0).collect::<Vec<_>>()
    };
    let check = |when: &str| {
        assert_eq!((runs(1), runs(2)), (vec![1, 2, 3], vec![4]), "{when}");
        assert_eq!(store.message(message(1, 0, 4, 0)).unwrap(), None, "{when}");
        assert_eq!(store.message(message(1, 0, 5, 0)).unwrap(), None, "{when}");
        let terms: Vec<_> = store
            .read(LogIndex(1), LogIndex(9), usize::MAX)
            .unwrap()
            .iter()
            .map(|entry| entry.id.term.0)
            .collect();
        assert_eq!(terms, [1, 1, 1, 2], "{when}");
    };
    check("unwritten");
    drop(release);
    truncated.recv().unwrap().unwrap();
    appended.recv().unwrap().unwrap();
    check("written");
}

#[test]
fn the_run_cache_keeps_to_its_budget_and_counts_what_an_entry_holds() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    options.run_cache_bytes = 100_000;
    let database = open(dir.path(), options);
    let store = database.group(GROUP).unwrap();
    let mut replica = ReplicaStore::new(store.clone());
    for index in 1..=100 {
        append(&store, vec![entry(1, index, &[(1, 0, 10, 500), (2, 0, 1, 10)])]);
        // Queue 1 is settled at once, queue 2 never: the entry stays, and counts with its full
        // size.
        let (queue, level, index) = (queue(1), Level(0), LogIndex(index));
        let removed = Change::Removed { queue, level, first: index, last: index };
        replica.take(index, &[removed]).unwrap();
        assert!(store.memory().cache().bytes() <= 100_000);
    }
    assert!(store.memory().cache().bytes() > 90_000);
    for index in 1..=100 {
        let wanted = body(1, 2, 0, index, 0, 10);
        assert_eq!(store.message(message(2, 0, index, 0)).unwrap(), Some(wanted));
    }
}

#[test]
fn a_settled_entry_leaves_the_cache_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), options());
    let store = database.group(GROUP).unwrap();
    let mut replica = ReplicaStore::new(store.clone());
    append(&store, vec![entry(1, 1, &[(1, 0, 2, 500), (2, 3, 1, 10)])]);
    let (first, last) = (LogIndex(1), LogIndex(1));
    for (number, level) in [(1, 0), (2, 3)] {
        let (queue, level) = (queue(number), Level(level));
        replica.take(LogIndex(1), &[Change::Removed { queue, level, first, last }]).unwrap();
    }
    assert_eq!(store.memory().cache().bytes(), 0);
}

/// The messages that reads show of each run of a queue.
fn shown(replica: &ReplicaStore, number: u64) -> Vec<Vec<bool>> {
    let (from, through) = (LogIndex(0), LogIndex(9));
    let runs = replica.runs(queue(number), Level(0), from, through, 9).unwrap();
    runs.iter().map(|run| run.messages.iter().map(Option::is_some).collect()).collect()
}

fn cut(number: u64, first: u32, last: u32) -> Change {
    Change::Cut { queue: queue(number), level: Level(0), index: LogIndex(1), first, last }
}

/// STO 4: reads show a cut from its apply on, at every stage of the checkpoint's writing, whether
/// the run is in the cache or not.
#[test]
fn a_cut_is_seen_from_its_apply_on() {
    for (options, when) in [(without_caches(), "on disk"), (options(), "cached")] {
        let dir = tempfile::tempdir().unwrap();
        let database = open(dir.path(), options);
        let store = database.group(GROUP).unwrap();
        let mut replica = ReplicaStore::new(store.clone());
        append(&store, vec![entry(1, 1, &[(1, 0, 3, 20), (2, 0, 2, 20), (3, 0, 2, 20)])]);
        append(&store, vec![entry(1, 2, &[(1, 0, 1, 20)])]);
        let release = hold(&database, &store);
        // The writer is blocked.
        let check = |replica: &ReplicaStore| {
            // Those who only look at a queue have a store of their own.
            for replica in [replica, &ReplicaStore::new(store.clone())] {
                assert_eq!(shown(replica, 1), [vec![false, true, false], vec![true]], "{when}");
                assert!(shown(replica, 2).is_empty(), "{when}");
                assert_eq!(shown(replica, 3), [vec![true, true]], "{when}");
            }
        };
        replica.take(LogIndex(1), &[cut(1, 0, 0), cut(1, 2, 2), cut(2, 0, 1)]).unwrap();
        check(&replica);
        let mut told = Vec::new();
        for _ in 0..2 {
            let checkpoint = replica.checkpoint(id(1, 2), Bytes::new(), |_| None, Instant::now());
            let (done, receiver) = done();
            store.checkpoint(checkpoint, done);
            told.push(receiver);
            check(&replica);
        }
        drop(release);
        told.into_iter().for_each(|told| told.recv().unwrap().unwrap());
        check(&replica);
        // Now that it is written, the replica forgets it.
        let checkpoint = replica.checkpoint(id(1, 2), Bytes::new(), |_| None, Instant::now());
        written(|done| store.checkpoint(checkpoint, done));
        check(&replica);
        check(&ReplicaStore::new(store.clone()));
    }
}

/// The messages that a lagging reader gets at each stage of a run's life (STO 2).
#[test]
fn removed_messages_are_sent_as_absent_and_keep_their_heads() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), without_caches());
    let store = database.group(GROUP).unwrap();
    let mut replica = ReplicaStore::new(store.clone());
    append(&store, vec![entry(1, 1, &[(1, 0, 3, 20), (2, 0, 2, 20), (3, 0, 2, 20)])]);
    append(&store, vec![entry(1, 2, &[(1, 0, 1, 20)])]);
    replica.take(LogIndex(1), &[cut(1, 2, 2), cut(2, 0, 1)]).unwrap();
    let now = Instant::now();
    let checkpoint = replica.checkpoint(id(1, 2), Bytes::new(), |_| None, now);
    written(|done| store.checkpoint(checkpoint, done));
    let present = || bodies(&store, 1).iter().map(Option::is_some).collect::<Vec<_>>();
    // The run that was cut completely is removed.
    assert_eq!(present()[..2], [true, true]);
    assert_eq!(present()[3..], [false, false, true, true]);
    // Now queue 3 is settled, and removed a second later.
    let (queue, level, first, last) = (queue(3), Level(0), LogIndex(1), LogIndex(9));
    replica.take(LogIndex(2), &[Change::Removed { queue, level, first, last }]).unwrap();
    for wait in [0, 1000] {
        let now = now + Duration::from_millis(wait);
        let checkpoint = replica.checkpoint(id(1, 2), Bytes::new(), |_| None, now);
        written(|done| store.checkpoint(checkpoint, done));
        assert_eq!(present()[5..], [wait == 0, wait == 0]);
    }
    assert_eq!(store.message(message(3, 0, 1, 0)).unwrap(), None);
    let read = store.read(LogIndex(1), LogIndex(2), 0).unwrap();
    let Payload::Commands(commands) = &read[0].payload else { panic!("{read:?}") };
    let (_, heads) = crate::codec::queue::decode_heads(&commands.command).unwrap();
    assert_eq!(heads.iter().map(|run| run.messages.len()).collect::<Vec<_>>(), [3, 2, 2]);
}

#[test]
fn an_ended_queue_loses_its_runs_up_to_the_applied_index_of_every_level() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), without_caches());
    let store = database.group(GROUP).unwrap();
    let mut replica = ReplicaStore::new(store.clone());
    for index in 1..=4 {
        append(&store, vec![entry(1, index, &[(1, 0, 1, 9), (1, 255, 1, 9), (2, 7, 1, 9)])]);
    }
    replica.take(LogIndex(3), &[Change::QueueRemoved { queue: queue(1) }]).unwrap();
    let checkpoint = replica.checkpoint(id(1, 3), Bytes::new(), |_| None, Instant::now());
    assert!(replica.is_clean());
    written(|done| store.checkpoint(checkpoint, done));
    let left = super::model::runs_on_disk(&store, GROUP, Family::Heads);
    assert_eq!(left, [(1, 0, 4), (1, 255, 4), (2, 7, 1), (2, 7, 2), (2, 7, 3), (2, 7, 4)]);
}

#[test]
fn a_removal_never_goes_beyond_the_applied_index() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), without_caches());
    let store = database.group(GROUP).unwrap();
    let mut replica = ReplicaStore::new(store.clone());
    append(&store, (1..=5).map(|index| entry(1, index, &[(1, 0, 1, 9)])).collect());
    let (queue, level) = (queue(1), Level(0));
    let (first, last) = (LogIndex(0), LogIndex(u64::MAX));
    replica.take(LogIndex(3), &[Change::Removed { queue, level, first, last }]).unwrap();
    let now = Instant::now();
    for now in [now, now + Duration::from_secs(1)] {
        let checkpoint = replica.checkpoint(id(1, 3), Bytes::new(), |_| None, now);
        written(|done| store.checkpoint(checkpoint, done));
    }
    let left = super::model::runs_on_disk(&store, GROUP, Family::Heads);
    assert_eq!(left, [(1, 0, 4), (1, 0, 5)]);
}

#[test]
fn the_log_is_purged_only_up_to_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), options());
    let store = database.group(GROUP).unwrap();
    append(&store, (1..=5).map(|index| entry(1, index, &[(1, 0, 1, 9)])).collect());
    assert!(store.log_bytes() > 0);
    written(|done| store.purge_through(id(1, 4), done));
    assert_eq!(store.log_state().last_purged, None, "there is no checkpoint");
    let checkpoint = crate::Checkpoint::new(id(1, 3), Bytes::new(), Vec::new());
    written(|done| store.checkpoint(checkpoint, done));
    written(|done| store.purge_through(id(1, 4), done));
    assert_eq!(store.log_state().last_purged, Some(id(1, 3)));
    assert!(store.read(LogIndex(1), LogIndex(4), usize::MAX).unwrap().is_empty());
    assert_eq!(store.read(LogIndex(4), LogIndex(9), usize::MAX).unwrap().len(), 2);
    // Runs do not belong to the log: those of purged entries stay.
    assert!(store.message(message(1, 0, 1, 0)).unwrap().is_some());
}

#[test]
fn after_a_purge_of_all_the_next_entry_follows_the_purged_one() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), options());
    let store = database.group(GROUP).unwrap();
    let checkpoint = crate::Checkpoint::new(id(1, 7), Bytes::new(), Vec::new());
    written(|done| store.checkpoint(checkpoint, done));
    written(|done| store.purge_through(id(1, 7), done));
    let state = store.log_state();
    assert_eq!((state.last_purged, state.last), (Some(id(1, 7)), Some(id(1, 7))));
    append(&store, vec![entry(1, 8, &[])]);
    assert_eq!(store.read(LogIndex(8), LogIndex(9), 0).unwrap().len(), 1);
}

#[test]
fn reads_are_bounded_by_bytes_but_give_at_least_one_entry() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), without_caches());
    let store = database.group(GROUP).unwrap();
    append(&store, vec![entry(1, 1, &[])]);
    append(&store, (2..=9).map(|index| entry(1, index, &[(1, 0, 1, 1000)])).collect());
    for (bytes, count) in [(0, 1), (1, 1), (1500, 2), (3200, 4), (usize::MAX, 8)] {
        let read = store.read(LogIndex(2), LogIndex(99), bytes).unwrap();
        assert_eq!(read.len(), count, "{bytes} bytes");
    }
    assert!(store.read(LogIndex(10), LogIndex(99), 1).unwrap().is_empty());
    assert!(store.read(LogIndex(5), LogIndex(5), 1).unwrap().is_empty());
}

#[test]
fn looking_for_dead_runs_writes_nothing_where_there_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), options());
    let store = database.group(GROUP).unwrap();
    append(&store, (1..=5).map(|index| entry(1, index, &[(2, 0, 1, 9)])).collect());
    let range = |number, first, last| RunRange {
        queue: queue(number),
        level: Level(0),
        first: LogIndex(first),
        last: LogIndex(last),
    };
    let before = database.writer().stats().batch_bytes.sum;
    written(|done| store.remove_dead(&[range(1, 0, 9), range(2, 6, 9)], done).unwrap());
    assert_eq!(database.writer().stats().batch_bytes.sum, before);
    written(|done| store.remove_dead(&[range(2, 0, 3)], done).unwrap());
    let left = super::model::runs_on_disk(&store, GROUP, Family::Bodies);
    assert_eq!(left, [(2, 0, 4), (2, 0, 5)]);
}

#[test]
fn handles_are_shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<GroupStore>();
    check::<Arc<Database>>();
    check::<ReplicaStore>();
}

/// The kept part of a log and the part that a purge frees are measured in the same way: bytes of
/// its own records, however large the bodies are.
#[test]
fn about_as_much_of_a_log_stays_as_is_to_be_kept_whatever_the_bodies() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), options());
    let mut kept = Vec::new();
    for (group, body) in [(quorate_types::GroupId(1), 9), (quorate_types::GroupId(2), 9_000)] {
        let store = database.group(group).unwrap();
        for index in 1..=1_000 {
            append(&store, vec![entry(1, index, &[(1, 0, 1, body)])]);
        }
        let all = store.log_bytes();
        assert_eq!(store.log_index_keeping(all), None);
        let half = store.log_index_keeping(all / 2).unwrap();
        kept.push(half.0);
        let checkpoint = crate::Checkpoint::new(id(1, 1_000), Bytes::new(), Vec::new());
        written(|done| store.checkpoint(checkpoint, done));
        written(|done| store.purge_through(id(1, half.0), done));
        let left = store.log_bytes();
        let step = 32 << 10;
        assert!((all / 2..all / 2 + step).contains(&left), "{left} of {all} bytes are left");
    }
    // A length takes a byte or two, while a body of 9,000 bytes would make a large difference.
    let apart = kept.iter().max().zip(kept.iter().min()).map(|(most, least)| most - least);
    assert!(apart.is_some_and(|apart| apart < 20), "bodies do not count: {kept:?}");
}
