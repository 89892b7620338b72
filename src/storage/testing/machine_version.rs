//! The catalog's encodings and the version of the replicated machine (MEM 15).

use crate::codec::{
    DecodeError,
    catalog::{decode_command, decode_record, encode_command, encode_record},
};
use quorate_catalog::{CatalogCommand, CatalogRecord, CatalogState};
use quorate_types::{MachineVersion, ReplicaNumber};

fn state(machine: MachineVersion) -> CatalogRecord {
    let next_replica = ReplicaNumber(if machine >= MachineVersion::MEMBERS { 9 } else { 0 });
    CatalogRecord::State(CatalogState { life: 7, machine, next_replica, ..CatalogState::default() })
}

#[test]
fn mem_15_records_of_the_first_version_are_as_before_and_later_ones_name_theirs() {
    let first = encode_record(&state(MachineVersion::FIRST));
    // Format, kind, version, digest, next binding, life, no boot, no shape.
    assert_eq!(first[..], [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0]);
    for machine in [MachineVersion::FIRST, MachineVersion(2)] {
        assert_eq!(decode_record(&encode_record(&state(machine))), Ok(state(machine)));
    }
}

#[test]
fn mem_15_an_unknown_version_is_an_error_that_names_it() {
    let unknown = MachineVersion(99);
    let refused = DecodeError::Machine { found: 99, newest: MachineVersion::NEWEST };
    assert_eq!(decode_record(&encode_record(&state(unknown))), Err(refused));
    let command = |to| encode_command(&CatalogCommand::RaiseMachine(to));
    assert_eq!(decode_command(&command(unknown)), Err(refused));
    let known = CatalogCommand::RaiseMachine(MachineVersion(2));
    assert_eq!(decode_command(&command(MachineVersion(2))), Ok(known));
}
