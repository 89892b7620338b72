//! What each process is answered that asks to enter the cluster.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::testing_state::{CatalogLog, started};
use quorate_catalog::Denial;
use quorate_types::{BootNumber, ClusterId};
use std::collections::BTreeSet;

const FOUNDERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
const SHAPE: ClusterShape = ClusterShape { cluster: ClusterId(7), queue_groups: 2 };

fn applicant(node: u16, incarnation: u64) -> Applicant {
    let newcomer = Newcomer {
        node: NodeId(node),
        incarnation: Incarnation(incarnation),
        address: format!("host{node}:7672"),
        zone: String::new(),
    };
    Applicant {
        newcomer,
        machine_newest: MachineVersion::NEWEST,
        replaces_lost_disk: false,
        nodes: FOUNDERS.into(),
    }
}

/// A cluster of the first version, formed of nodes 1 to 3; the first of them have started.
fn formed(nodes: u16) -> CatalogLog {
    let mut log = CatalogLog::new();
    log.apply(CatalogCommand::Form(SHAPE));
    for node in 1..=nodes {
        log.apply(started(NodeId(node), BootNumber(u64::from(node) * 10)));
    }
    log
}

/// The same, with members.
fn founded() -> CatalogLog {
    let mut log = formed(3);
    log.apply(CatalogCommand::RaiseMachine(MachineVersion::MEMBERS));
    log
}

fn member(log: &mut CatalogLog, command: MemberCommand) {
    assert_eq!(log.apply(CatalogCommand::Members(command)), CatalogReply::Done);
}

fn step_of(log: &CatalogLog, applicant: &Applicant) -> Result<Step, MemberError> {
    step(&log.catalog, &FOUNDERS, applicant)
}

#[test]
fn mem_02_a_node_forms_a_cluster_with_those_that_name_the_same_nodes() {
    let three = applicant(3, 3);
    assert_eq!(unformed(&FOUNDERS, &three, false), Ok(Entrance::Forming));
    assert_eq!(unformed(&FOUNDERS, &three, true), Err(MemberError::Starting));
    assert_eq!(unformed(&[NodeId(1), NodeId(3)], &three, false), Err(MemberError::OtherNodes));
    assert!(!MemberError::OtherNodes.is_final() && !MemberError::Starting.is_final());
}

#[test]
fn mem_02_before_there_are_members_the_nodes_of_the_settings_are_founders() {
    let log = formed(2);
    assert_eq!(step_of(&log, &applicant(2, 2)), Ok(Step::Founder), "the directory that started");
    assert_eq!(step_of(&log, &applicant(3, 33)), Ok(Step::Founder), "the first one of the node");
    let other = step_of(&log, &applicant(2, 22)).unwrap_err();
    assert_eq!(other, MemberError::OtherDirectory(NodeId(2)));
    assert!(other.is_final() && other.to_string().contains("another data directory"), "{other}");
    let early = step_of(&log, &applicant(4, 4)).unwrap_err();
    let denial = MemberDenial::TooEarly { machine: MachineVersion::FIRST };
    assert_eq!((early, early.is_final()), (MemberError::Denied(denial), false));
}

#[test]
fn mem_02_a_named_directory_that_is_lost_before_its_first_start_has_a_way_out() {
    let (log, known) = (formed(2), Some(Incarnation(3)));
    let check = |log: &CatalogLog, incarnation, known| {
        check_charter(&log.catalog, &applicant(3, incarnation).newcomer, known)
    };
    assert_eq!(check(&log, 3, known), Ok(()));
    assert_eq!(check(&log, 33, None), Ok(()), "no charter names it");
    let lost = check(&log, 33, known).unwrap_err();
    assert_eq!((lost, lost.is_final()), (MemberError::LostFounder(NodeId(3)), true));
    assert!(lost.to_string().contains("recover-quorum"), "{lost}");
    let started = check(&formed(3), 33, known);
    assert_eq!(started, Err(MemberError::OtherDirectory(NodeId(3))));
    assert_eq!(check(&founded(), 33, known), Ok(()), "it can be replaced");
}

#[test]
fn mem_15_a_process_that_does_not_know_the_machine_version_is_refused_for_good() {
    let old = Applicant { machine_newest: MachineVersion::FIRST, ..applicant(4, 4) };
    let refused = step_of(&founded(), &old).unwrap_err();
    let (newest, present) = (MachineVersion::FIRST, MachineVersion::MEMBERS);
    assert_eq!(refused, MemberError::TooOld { node: NodeId(4), newest, present });
    assert!(refused.is_final());
}

#[test]
fn mem_03_a_new_node_joins_and_asking_again_changes_nothing() {
    let (mut log, four) = (founded(), applicant(4, 4));
    assert_eq!(step_of(&log, &applicant(3, 3)), Ok(Step::Founder));
    assert_eq!(step_of(&log, &four), Ok(Step::Join));
    let absent = MemberDenial::NoMember { node: NodeId(4) };
    assert_eq!(joined(&log.catalog, &four.newcomer, Epoch(5)), Err(absent.into()));
    member(&mut log, MemberCommand::Join(four.newcomer.clone()));
    assert_eq!(step_of(&log, &four), Ok(Step::Known));
    let told = joined(&log.catalog, &four.newcomer, Epoch(5)).unwrap();
    assert_eq!((told.shape, told.machine), (SHAPE, MachineVersion::MEMBERS));
    assert_eq!((told.first, told.epoch), (ReplicaNumber(1), Epoch(5)));
    assert_eq!(told.peers.into_keys().collect::<Vec<_>>(), FOUNDERS);
    let mut moved = four;
    moved.newcomer.address = "elsewhere:7672".to_owned();
    assert_eq!(step_of(&log, &moved), Ok(Step::Join), "the catalog learns its new address");
}

#[test]
fn mem_10_another_directory_of_a_member_replaces_it_or_waits_until_it_is_gone() {
    let mut log = founded();
    let replace = Step::Replace { old: Incarnation(3), state: MemberState::Member };
    assert_eq!(step_of(&log, &applicant(3, 33)), Ok(replace));
    let taken = |state| MemberDenial::IdTaken { node: NodeId(3), state };
    let told = joined(&log.catalog, &applicant(3, 33).newcomer, Epoch(5));
    assert_eq!(told, Err(taken(MemberState::Member).into()));
    member(&mut log, MemberCommand::Forget { node: NodeId(3), incarnation: Incarnation(3) });
    let waits = step_of(&log, &applicant(3, 33)).unwrap_err();
    assert_eq!(waits, MemberError::Denied(taken(MemberState::Leaving)));
    assert!(!waits.is_final());
}

#[test]
fn mem_11_a_forgotten_directory_is_refused_for_good() {
    let mut log = founded();
    member(&mut log, MemberCommand::Forget { node: NodeId(3), incarnation: Incarnation(3) });
    let forgotten = MemberError::Denied(MemberDenial::Forgotten { node: NodeId(3) });
    for node in [3, 4] {
        assert_eq!(step_of(&log, &applicant(node, 3)), Err(forgotten));
    }
    assert!(forgotten.is_final());
    let twice = MemberDenial::DirectoryTaken { node: NodeId(4), by: NodeId(2) };
    assert!(MemberError::Denied(twice).is_final());
    let refused = log.apply(CatalogCommand::Members(MemberCommand::Join(applicant(4, 2).newcomer)));
    assert_eq!(refused, CatalogReply::Denied(Denial::Member(twice)));
}

#[test]
fn mem_10_a_lost_disk_is_replaced_by_itself_only_while_nothing_else_is_missing_or_changes() {
    let mut log = founded();
    let check = |log: &CatalogLog, reachable: &[u16]| {
        check_replacement(&log.catalog, NodeId(3), |node| reachable.contains(&node.0))
    };
    assert_eq!(check(&log, &[1, 2]), Ok(()));
    assert_eq!(check(&log, &[1]), Err(MemberError::Away(NodeId(2))));
    member(&mut log, MemberCommand::Join(applicant(4, 4).newcomer));
    let joining = MemberError::Changing { node: NodeId(4), state: MemberState::Joining };
    assert_eq!(check(&log, &[1, 2, 4]), Err(joining));
    let (node, incarnation) = (NodeId(4), Incarnation(4));
    member(&mut log, MemberCommand::Admit { node, incarnation });
    assert_eq!(check(&log, &[1, 2, 4]), Ok(()));
    let nodes = BTreeSet::from([NodeId(1), NodeId(2), NodeId(4)]);
    let group = GroupId(1);
    member(&mut log, MemberCommand::Place { group, number: 2, nodes });
    assert_eq!(check(&log, &[1, 2, 4]), Err(MemberError::Moving(group)));
    member(&mut log, MemberCommand::Reached { group, number: 2 });
    member(&mut log, MemberCommand::Drain { node });
    assert_eq!(check(&log, &[1, 2, 4]), Ok(()));
    assert_eq!(check(&log, &[1, 2]), Err(MemberError::Away(node)));
    member(&mut log, MemberCommand::Forget { node, incarnation });
    let leaving = MemberError::Changing { node, state: MemberState::Leaving };
    assert_eq!(check(&log, &[1, 2, 4]), Err(leaving));
}
