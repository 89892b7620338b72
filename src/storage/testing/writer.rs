//! The writer: order, cycles, bounds, and the effects of a failure.

use super::{GROUP, append, done, entry, open, options};
use crate::{LogEntry, Payload, StorageError, batch::Work, engine::Family};
use bytes::Bytes;
use crossbeam_channel::{bounded, unbounded};
use parking_lot::Mutex;
use quorate_types::{GroupId, LogIndex};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

#[test]
fn ends_are_told_in_the_order_of_the_fifo() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), options());
    let stores = [1, 2, 3].map(|group| database.group(GroupId(group)).unwrap());
    let (sender, told) = unbounded();
    for index in 1..=50 {
        for (at, store) in stores.iter().enumerate() {
            let sender = sender.clone();
            let done = Box::new(move |result: Result<(), _>| {
                result.unwrap();
                sender.send((index, at)).unwrap();
            });
            store.append(vec![entry(1, index, &[])], done);
        }
    }
    drop(sender);
    let wanted: Vec<_> = (1..=50).flat_map(|index| [0, 1, 2].map(|at| (index, at))).collect();
    assert_eq!(told.iter().collect::<Vec<_>>(), wanted);
}

#[test]
fn what_waits_during_a_sync_shares_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), options());
    let (sender, cycles) = unbounded();
    // The first cycle's listener blocks the writer until the other writes wait.
    let (release, held) = bounded::<()>(0);
    let first = AtomicUsize::new(0);
    database.writer().subscribe_cycles(Box::new(move |cycle| {
        if first.fetch_add(1, SeqCst) == 0 {
            held.recv().unwrap();
        }
        sender.send(cycle).unwrap();
    }));
    let store = database.group(GROUP).unwrap();
    append(&store, vec![entry(1, 1, &[])]);
    let mut told = Vec::new();
    for index in 2..=9 {
        let (done, receiver) = done();
        store.append(vec![entry(1, index, &[])], done);
        told.push(receiver);
    }
    release.send(()).unwrap();
    for told in told {
        told.recv().unwrap().unwrap();
    }
    let (first, second) = (cycles.recv().unwrap(), cycles.recv().unwrap());
    assert_eq!((first.writes, first.entries), (1, 1));
    assert_eq!((second.writes, second.entries, second.idle), (8, 8, true));
    assert!(second.bytes > 0 && second.sync > Duration::ZERO);
    let stats = database.writer().stats();
    assert_eq!((stats.entries, stats.sync_us.count, stats.waiting_bytes), (9, 2, 0));
    assert_eq!(stats.batch_writes.sum, 9);
}

#[test]
fn entries_that_do_not_fit_the_log_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), options());
    let store = database.group(GROUP).unwrap();
    append(&store, vec![entry(1, 1, &[(1, 0, 2, 10)])]);
    let refused = |entry: LogEntry| {
        let (done, told) = done();
        store.append(vec![entry], done);
        told.recv().unwrap().unwrap_err()
    };
    let gap = refused(entry(1, 3, &[]));
    assert!(matches!(gap, StorageError::NotContiguous { found: 3, last: 1 }));
    let mut missing = entry(1, 2, &[(1, 0, 2, 10)]);
    if let Payload::Commands(commands) = &mut missing.payload {
        commands.bodies[0].messages.pop();
    }
    assert!(matches!(refused(missing), StorageError::Corrupt { .. }));
    let twice = entry(1, 2, &[(1, 0, 2, 10), (1, 0, 2, 10)]);
    assert!(matches!(refused(twice), StorageError::Corrupt { .. }));
    assert_eq!(store.log_state().last.unwrap().index, LogIndex(1));
    append(&store, vec![entry(1, 2, &[(1, 0, 2, 10)])]);
}

#[test]
fn a_failed_write_is_told_once_to_the_hook_and_fails_all_that_follows() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    let fatal = Arc::new(Mutex::new(Vec::new()));
    let heard = fatal.clone();
    options.fatal = Arc::new(move |error| heard.lock().push(error.to_string()));
    let database = open(dir.path(), options);
    let store = database.group(GROUP).unwrap();
    append(&store, vec![entry(1, 1, &[(1, 0, 1, 10)])]);
    // A record that cannot be decoded makes the truncation fail.
    let key = Bytes::copy_from_slice(&crate::codec::key::log_key(GROUP, LogIndex(1)));
    let value = Bytes::from_static(b"\xff");
    let (put_done, put) = done();
    let put_work = Work::Put { family: Family::Log, key, value };
    assert!(database.writer().push(put_work, Some(put_done)).is_none());
    put.recv().unwrap().unwrap();
    let (truncate_done, truncated) = done();
    store.truncate_after(Some(LogIndex(0)), truncate_done);
    let error = truncated.recv().unwrap().unwrap_err();
    assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
    let (later_done, later) = done();
    store.save_vote(Bytes::new(), later_done);
    assert!(later.recv().unwrap().is_err());
    assert_eq!(fatal.lock().len(), 1, "{:?}", fatal.lock());
}

#[test]
fn a_closed_writer_has_written_everything_and_refuses_more() {
    let dir = tempfile::tempdir().unwrap();
    {
        let database = open(dir.path(), options());
        let store = database.group(GROUP).unwrap();
        for index in 1..=100 {
            store.append(vec![entry(1, index, &[(1, 0, 1, 10)])], Box::new(drop));
        }
        database.close();
        let (done, told) = done();
        store.append(vec![entry(1, 101, &[])], done);
        assert!(matches!(told.recv().unwrap(), Err(StorageError::Closed)));
    }
    let store = open(dir.path(), options()).group(GROUP).unwrap();
    assert_eq!(store.log_state().last.unwrap().index, LogIndex(100));
}

#[test]
fn a_sync_that_hangs_is_seen_from_another_thread() {
    let bound = Duration::from_millis(5);
    let watchdog = Arc::new(crate::watchdog::Watchdog::new(bound));
    assert_eq!(watchdog.stalled_for(), Duration::ZERO);
    let (release, held) = bounded::<()>(0);
    let (inside, begun) = bounded(1);
    let watched = watchdog.clone();
    let thread = std::thread::spawn(move || {
        watched.watch(16 << 20, || {
            inside.send(()).unwrap();
            let _ = held.recv();
        })
    });
    begun.recv().unwrap();
    while watchdog.stalled_for() <= bound {
        std::thread::yield_now();
    }
    assert!(!watchdog.is_late(), "its bytes have a second of their own");
    drop(release);
    let ((), took) = thread.join().unwrap();
    assert!(took > bound);
    assert_eq!(watchdog.stalled_for(), Duration::ZERO);
}
