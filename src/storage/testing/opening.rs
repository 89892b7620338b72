//! Directories that can be opened, and the texts of refusals.

use super::{GROUP, append, entry, open, options, written};
use crate::{Database, OpenError};
use bytes::Bytes;
use quorate_types::{BootNumber, ClusterId, GroupId, Incarnation, MachineVersion, NodeId};
use std::fs;

fn refusal(dir: &std::path::Path, node: u16) -> OpenError {
    let mut options = options();
    options.node = NodeId(node);
    match Database::open(dir, options) {
        Ok(_) => panic!("opened"),
        Err(error) => {
            let line = error.to_string();
            assert!(line.contains(dir.to_str().unwrap()) && !line.contains('\n'), "{line}");
            error
        }
    }
}

#[test]
fn the_identity_is_made_once_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("made/by/open");
    {
        let database = open(&dir, options());
        assert_eq!(database.identity().incarnation, Incarnation(77));
        let identity = database.identity();
        assert_eq!((identity.cluster, identity.boot.opened(), identity.former), (None, 1, vec![]));
        written(|done| database.set_cluster(ClusterId(5), done));
    }
    let mut other = options();
    other.incarnation = Incarnation(78);
    other.chance = 9;
    let identity = open(&dir, other).identity();
    assert_eq!(identity.node, NodeId(1));
    assert_eq!(identity.incarnation, Incarnation(77), "that of the first start");
    assert_eq!(identity.cluster, Some(ClusterId(5)));
    let first = BootNumber::of_opening(1, 0);
    assert_eq!((identity.boot, identity.former), (BootNumber::of_opening(2, 9), vec![first]));
    for opened in 3..80 {
        let identity = open(&dir, options()).identity();
        assert_eq!(identity.boot.opened(), opened);
        assert!(identity.former.len() <= 64 && identity.former.is_sorted());
    }
}

#[test]
fn a_database_that_is_lost_is_another_incarnation() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), options()));
    fs::remove_dir_all(dir.path().join("db")).unwrap();
    // The file that identifies the directory is still there.
    assert!(matches!(refusal(dir.path(), 1), OpenError::Storage { .. }));
    fs::remove_file(dir.path().join("SYNCED")).unwrap();
    let mut other = options();
    other.incarnation = Incarnation(78);
    assert_eq!(open(dir.path(), other).identity().incarnation, Incarnation(78));
}

#[test]
fn another_nodes_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), options()));
    assert!(matches!(refusal(dir.path(), 2), OpenError::OtherNode { found: 1, node: 2, .. }));
}

#[test]
fn a_directory_that_is_not_ours_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "all my work").unwrap();
    assert!(matches!(refusal(dir.path(), 1), OpenError::NotOurs { .. }));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    fs::write(dir.path().join("QUORATE"), "something else\n").unwrap();
    assert!(matches!(refusal(dir.path(), 1), OpenError::NotOurs { .. }));
}

#[test]
fn an_unknown_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), options()));
    for later in ["format 9 node 1", "format 9 node 1 machine 2", "format 4 node 1 and more"] {
        fs::write(dir.path().join("QUORATE"), format!("quorate {later}\n")).unwrap();
        assert!(matches!(refusal(dir.path(), 1), OpenError::Format { .. }), "{later}");
    }
    fs::write(dir.path().join("QUORATE"), "quorate format 3 node 1 machine x\n").unwrap();
    assert!(matches!(refusal(dir.path(), 1), OpenError::NotOurs { .. }));
}

#[test]
fn mem_15_the_mark_names_the_machine_version_and_an_unknown_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mark = || fs::read_to_string(dir.path().join("QUORATE")).unwrap();
    {
        let database = open(dir.path(), options());
        database.machine_mark().raise(MachineVersion::FIRST).unwrap();
        assert_eq!(mark(), "quorate format 2 node 1\n", "as binaries wrote it before this rule");
        database.machine_mark().raise(MachineVersion(2)).unwrap();
        database.machine_mark().raise(MachineVersion::FIRST).unwrap();
        assert_eq!(mark(), "quorate format 3 node 1 machine 2\n");
    }
    assert!(matches!(refusal(dir.path(), 2), OpenError::OtherNode { found: 1, node: 2, .. }));
    {
        let database = open(dir.path(), options());
        database.machine_mark().raise(MachineVersion(2)).unwrap();
    }
    fs::write(dir.path().join("QUORATE"), "quorate format 3 node 1 machine 99\n").unwrap();
    let refused = refusal(dir.path(), 1);
    assert!(matches!(refused, OpenError::Machine { found: MachineVersion(99), .. }), "{refused}");
}

#[test]
fn a_first_open_that_was_broken_off_is_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["LOCK", "QUORATE.new", "lost+found"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    drop(open(dir.path(), options()));
}

#[test]
fn a_directory_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), options());
    assert!(matches!(refusal(dir.path(), 1), OpenError::InUse { .. }));
    drop(database);
    // Also if anyone else holds the lock, which belongs to an open file, not to a process. (A child
    // process would inherit the other tests' locks until it runs its program.)
    let holder = std::fs::File::open(dir.path().join("LOCK")).unwrap();
    holder.lock().unwrap();
    assert!(matches!(refusal(dir.path(), 1), OpenError::InUse { .. }));
    drop(holder);
    drop(open(dir.path(), options()));
}

#[test]
fn votes_and_committed_indexes_belong_to_their_group() {
    let dir = tempfile::tempdir().unwrap();
    {
        let database = open(dir.path(), options());
        let (one, two) = (database.group(GROUP).unwrap(), database.group(GroupId(4)).unwrap());
        written(|done| one.save_vote(Bytes::from_static(b"one"), done));
        one.save_committed(Bytes::from_static(b"c1"));
        assert_eq!(one.vote().unwrap(), "one");
        assert_eq!((two.vote(), two.committed()), (None, None));
        // Rides along, and is written at the close.
        two.save_committed(Bytes::from_static(b"c2"));
        append(&one, vec![entry(1, 1, &[])]);
    }
    let database = open(dir.path(), options());
    let (one, two) = (database.group(GROUP).unwrap(), database.group(GroupId(4)).unwrap());
    assert_eq!((one.vote().unwrap(), one.committed().unwrap()), ("one".into(), "c1".into()));
    assert_eq!((two.vote(), two.committed().unwrap()), (None, "c2".into()));
}
