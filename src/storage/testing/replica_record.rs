//! Replicas that come and go (MEM 5, 9).

use super::{GROUP, Place, append, entry, id, options, written_to};
use crate::ReplicaRecord;
use bytes::Bytes;
use quorate_types::{GroupId, ReplicaNumber};

fn record(number: u32, is_present: bool) -> ReplicaRecord {
    ReplicaRecord { number: ReplicaNumber(number), is_present }
}

fn a_removed_replica_leaves_its_name_only(place: &Place) {
    {
        let database = place.open(options());
        assert_eq!(database.replica(GROUP).unwrap(), None, "that of the founding");
        let (store, other) = (database.group(GROUP).unwrap(), database.group(GroupId(4)).unwrap());
        written_to(&store, |done| database.add_replica(GROUP, ReplicaNumber(7), done));
        append(&store, (1..=9).map(|index| entry(1, index, &[(1, 0, 2, 100)])).collect());
        append(&other, (1..=3).map(|index| entry(1, index, &[(1, 0, 2, 100)])).collect());
        written_to(&store, |done| store.save_vote(Bytes::from_static(b"vote"), done));
    }
    let database = place.open(options());
    assert_eq!(database.replica(GROUP).unwrap(), Some(record(7, true)));
    let store = database.group(GROUP).unwrap();
    assert_eq!(store.log_state().last, Some(id(1, 9)));
    written_to(&store, |done| {
        database.remove_replica(GROUP, ReplicaNumber(7), done);
    });
    drop(store);
    // The next replica finds nothing of the former one, also not in memory.
    let next = database.group(GROUP).unwrap();
    assert_eq!((next.log_state().last, next.vote()), (None, None));
    written_to(&next, |done| database.add_replica(GROUP, ReplicaNumber(8), done));
    append(&next, vec![entry(2, 1, &[(1, 0, 1, 50)])]);
    drop((next, database));

    let database = place.open(options());
    assert_eq!(database.replica(GROUP).unwrap(), Some(record(8, true)));
    let next = database.group(GROUP).unwrap();
    assert_eq!(next.log_state().last, Some(id(2, 1)));
    assert_eq!(database.group(GroupId(4)).unwrap().log_state().last, Some(id(1, 3)));
    written_to(&next, |done| {
        database.remove_replica(GROUP, ReplicaNumber(8), done);
    });
    drop((next, database));
    let database = place.open(options());
    assert_eq!(database.replica(GROUP).unwrap(), Some(record(8, false)));
    assert_eq!(database.group(GROUP).unwrap().log_state().last, None);
}

#[test]
fn mem_09_a_removed_replica_leaves_its_name_only_in_a_directory() {
    a_removed_replica_leaves_its_name_only(&Place::new(None));
}

#[test]
fn mem_09_a_removed_replica_leaves_its_name_only_on_a_simulated_disk() {
    a_removed_replica_leaves_its_name_only(&Place::new(Some(5)));
}
