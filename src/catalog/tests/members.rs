//! Members, and the replicas that groups shall have (MEM).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod common;

use common::{members::*, *};
use quorate_catalog::{
    Catalog, CatalogCommand as C, CatalogEvent, CatalogKey, CatalogReply, ForgottenRecord,
    MemberCommand as M, MemberDenial as D, MemberState, Newcomer, Presence,
};
use quorate_types::{GroupId, Incarnation, MachineVersion, NodeId, ReplicaNumber};
use std::collections::BTreeSet;

#[test]
fn mem_01_version_2_makes_members_of_the_known_nodes_and_places_every_group_on_them() {
    let world = World::founded(3, 2);
    let mut expected = vec![CatalogEvent::MachineRaised(MachineVersion(2))];
    expected.extend(vec![CatalogEvent::MembersChanged; 3]);
    expected.extend((0..=2).map(|group| CatalogEvent::PlacementChanged { group: GroupId(group) }));
    assert_eq!(world.events(), expected);
    let members: Vec<_> = world.catalog.members().collect();
    assert_eq!(members.len(), 3);
    let (node, member) = members[2];
    assert_eq!((node, member.incarnation), (NodeId(3), Incarnation(3)));
    assert_eq!((member.address.as_str(), member.zone.as_str()), ("host3:7672", ""));
    assert_eq!((member.state, member.first), (MemberState::Member, ReplicaNumber(0)));
    for group in 0..=2 {
        assert_eq!(world.replicas(group), [replica(1, 0), replica(2, 0), replica(3, 0)]);
        assert_eq!((world.placement(group).number, world.placement(group).reached), (1, 1));
    }
    assert_eq!(world.catalog.placement(GroupId(3)), None);
    assert_eq!(world.catalog, world.reloaded());
}

#[test]
fn mem_01_version_2_waits_for_a_formed_cluster_with_nodes() {
    let raise = || C::RaiseMachine(MachineVersion::MEMBERS);
    let mut world = World::new();
    world.started(1, 11);
    world.done(raise());
    assert_eq!((world.catalog.machine(), world.events()), (MachineVersion::FIRST, &[][..]));
    let mut world = World::formed(0, 2);
    world.done(raise());
    assert_eq!((world.catalog.machine(), world.events()), (MachineVersion::FIRST, &[][..]));
    world.started(1, 11);
    world.done(raise());
    assert_eq!(world.catalog.machine(), MachineVersion::MEMBERS);
}

#[test]
fn mem_01_before_version_2_every_command_is_refused_and_nothing_is_written() {
    let (mut world, mut other) = (World::formed(3, 2), World::formed(3, 2));
    let place = M::Place { group: GroupId(1), number: 2, nodes: nodes(&[1]) };
    let reached = M::Reached { group: GroupId(1), number: 1 };
    let join = M::Join(newcomer(4, 4));
    let [drain, remove] = [M::Drain { node: NodeId(1) }, M::Remove { node: NodeId(1) }];
    for command in
        [join, admit(1, 1), drain, forget(1, 1), replace(1, 1, 9), remove, place, reached]
    {
        let denied = D::TooEarly { machine: MachineVersion::FIRST };
        assert_eq!(world.member_refused(command), denied);
        other.apply(vec![]);
    }
    assert_eq!(world.catalog.digest(), other.catalog.digest());
    assert_eq!(world.catalog, other.catalog);
    assert_eq!(world.catalog.next_step(3, &|_| Presence::Here), None);
    assert!(matches!(world.started(9, 1), CatalogReply::Started(_)), "no members are known");
}

#[test]
fn mem_01_a_node_id_serves_one_directory_at_a_time() {
    let mut world = World::founded(3, 1);
    let taken = D::IdTaken { node: NodeId(3), state: MemberState::Member };
    assert_eq!(world.member_refused(M::Join(newcomer(3, 33))), taken);
    assert_eq!(world.refused(started_from(3, 33, 1)), taken);
    assert_eq!(world.refused(started_from(4, 4, 1)), D::NoMember { node: NodeId(4) });
    let twice = D::DirectoryTaken { node: NodeId(4), by: NodeId(3) };
    assert_eq!(world.member_refused(M::Join(newcomer(4, 3))), twice);
    assert!(matches!(world.one(started_from(3, 3, 301)), CatalogReply::Started(_)));
}

#[test]
fn mem_03_a_node_joins_is_told_apart_by_its_directory_and_is_admitted_by_a_further_entry() {
    let mut world = World::founded(3, 1);
    world.member(M::Join(newcomer(4, 4)));
    assert_eq!(world.events(), [CatalogEvent::MembersChanged]);
    assert_eq!(world.state_of(4), Some(MemberState::Joining));
    assert!(matches!(world.one(started_from(4, 4, 1)), CatalogReply::Started(_)));
    assert_eq!(
        world.catalog.next_step(4, &|_| Presence::Here),
        None,
        "a joining node gets no replica"
    );
    let (node, state, wanted) = (NodeId(4), MemberState::Joining, MemberState::Member);
    let early = world.placing(1, &[1, 2, 4]);
    assert_eq!(world.member_refused(early), D::State { node, state, wanted });
    assert_eq!(world.member_refused(admit(4, 44)), D::IdTaken { node, state });
    world.member(admit(4, 4));
    world.member(M::Drain { node });
    let moved = Newcomer { address: "b:1".to_owned(), zone: "z".to_owned(), ..newcomer(4, 4) };
    world.member(M::Join(moved.clone()));
    let member = world.catalog.member(node).unwrap();
    assert_eq!((member.address.as_str(), member.zone.as_str()), ("b:1", "z"));
    assert_eq!((member.state, member.first), (MemberState::Draining, ReplicaNumber(1)));
    world.member(M::Join(moved));
    assert_eq!(world.events(), [], "a repeat");
}

#[test]
fn mem_04_to_be_forgotten_fences_but_proves_no_death() {
    let mut world = World::founded(4, 1);
    let start = world.catalog.node(NodeId(4)).unwrap().start;
    assert_eq!(world.catalog.forgotten_start(NodeId(4)), None);
    world.member(forget(4, 4));
    let downed = CatalogEvent::NodeDowned { node: NodeId(4), start };
    assert_eq!(world.events(), [downed, CatalogEvent::MembersChanged]);
    assert_eq!(world.catalog.forgotten_start(NodeId(4)), Some(start));
    let record = ForgottenRecord { node: NodeId(4), start };
    assert_eq!(world.catalog.forgotten(Incarnation(4)), Some(&record));
    // Another directory under the id changes nothing about the former process.
    world.settle(3);
    world.join(4, 44);
    world.one(started_from(4, 44, 1));
    assert_eq!(world.catalog.forgotten_start(NodeId(4)), Some(start));
    assert!(world.catalog.is_fenced(session(4, start.0)));
}

#[test]
fn mem_05_a_replica_that_comes_back_is_a_new_one() {
    let mut world = World::founded(4, 2);
    world.place(1, &[1, 2, 3]);
    world.reach(1);
    assert_eq!(world.replicas(1), [replica(1, 0), replica(2, 0), replica(3, 0)]);
    world.place(1, &[1, 2, 4]);
    assert_eq!(world.replicas(1), [replica(1, 0), replica(2, 0), replica(4, 1)]);
    world.place(2, &[1, 2]);
    world.reach(1);
    world.reach(2);
    world.place(2, &[1, 2, 4]);
    assert_eq!(world.replicas(2).last(), Some(&replica(4, 2)), "no number is given twice");
}

#[test]
fn mem_05_a_replica_whose_move_is_called_off_keeps_its_name() {
    let mut world = World::founded(3, 1);
    world.join(4, 4);
    world.place(1, &[1, 2, 4]);
    let before: BTreeSet<_> = [replica(1, 0), replica(2, 0), replica(3, 0)].into();
    assert_eq!(world.placement(1).before, [before]);
    world.place(1, &[1, 2, 3]);
    assert_eq!(world.replicas(1).last(), Some(&replica(3, 0)), "it was not deleted");
    world.place(1, &[1, 2, 4]);
    assert_eq!(world.replicas(1).last(), Some(&replica(4, 2)), "nor was the one that came");
    world.reach(1);
    assert!(world.placement(1).before.is_empty());
    world.place(1, &[1, 2, 3]);
    assert_eq!(world.replicas(1).last(), Some(&replica(3, 3)), "node 3 may have deleted it");
}

#[test]
fn mem_06_placements_are_numbered_and_at_most_two_groups_move() {
    let mut world = World::founded(4, 3);
    let late = M::Place { group: GroupId(1), number: 1, nodes: nodes(&[1, 2, 3]) };
    let (group, present) = (GroupId(1), 1);
    let other = D::OtherPlacement { group, present, number: 1 };
    assert_eq!(world.member_refused(late), other);
    assert_eq!(world.member_refused(world.placing(1, &[])), D::Count { group, count: 0 });
    let nobody = world.placing(1, &[1, 9]);
    assert_eq!(world.member_refused(nobody), D::NoMember { node: NodeId(9) });
    let nothing = M::Place { group: GroupId(4), number: 2, nodes: nodes(&[1]) };
    assert_eq!(world.member_refused(nothing), D::NoGroup { group: GroupId(4) });

    let first = world.placing(1, &[1, 2, 3]);
    world.member(first.clone());
    assert_eq!(world.events(), [CatalogEvent::PlacementChanged { group }]);
    world.member(first);
    assert_eq!(world.events(), [], "a repeat");
    world.place(2, &[1, 2, 4]);
    let third = world.placing(3, &[1, 2, 4]);
    assert_eq!(world.member_refused(third.clone()), D::OthersMove { group: GroupId(3) });
    world.place(1, &[2, 3, 4]);
    assert_eq!((world.placement(1).number, world.placement(1).reached), (3, 1));
    world.reach(2);
    world.member(third);
}

#[test]
fn mem_07_only_the_present_placement_can_be_reached() {
    let mut world = World::founded(4, 1);
    let reached = |number| M::Reached { group: GroupId(1), number };
    world.place(1, &[1, 2, 3]);
    world.place(1, &[1, 2, 4]);
    for number in [2, 4] {
        let other = D::OtherPlacement { group: GroupId(1), present: 3, number };
        assert_eq!(world.member_refused(reached(number)), other);
    }
    world.member(reached(3));
    assert_eq!(world.events(), [CatalogEvent::PlacementChanged { group: GroupId(1) }]);
    assert!(world.placement(1).is_reached());
    world.member(reached(3));
    assert_eq!(world.events(), [], "a repeat");
}

#[test]
fn mem_09_a_replica_is_over_when_a_newer_placement_without_it_is_reached() {
    let mut world = World::founded(4, 1);
    let over = |catalog: &Catalog, node, number| {
        catalog.is_replica_over(GroupId(1), replica(node, number))
    };
    world.place(1, &[1, 2, 3]);
    assert!(!over(&world.catalog, 4, 0), "not while the placement is only planned");
    world.reach(1);
    assert!(over(&world.catalog, 4, 0) && !over(&world.catalog, 3, 0));
    let older = world.catalog.clone();
    world.place(1, &[1, 2, 4]);
    assert!(over(&world.catalog, 4, 0) && !over(&world.catalog, 4, 1));
    assert!(!over(&world.catalog, 3, 0), "the move may be called off");
    world.reach(1);
    assert!(over(&world.catalog, 3, 0));
    assert!(!over(&older, 4, 1), "a copy from before the replica came says nothing about it");
    world.place(0, &[1, 2, 3]);
    world.reach(0);
    assert!(!world.catalog.is_replica_over(GroupId::CATALOG, replica(4, 0)), "it learns (MEM 12)");
}

#[test]
fn mem_10_a_lost_directory_is_replaced_by_name_and_its_replicas_names_end() {
    let mut world = World::founded(3, 1);
    let start = world.catalog.node(NodeId(2)).unwrap().start;
    assert!(matches!(world.member_refused(M::Join(newcomer(2, 22))), D::IdTaken { .. }));
    assert!(matches!(world.member_refused(replace(2, 9, 22)), D::IdTaken { .. }));
    world.member(replace(2, 2, 22));
    assert!(
        world.catalog.is_fenced(session(2, start.0)) && world.catalog.is_forgotten(Incarnation(2))
    );
    let member = world.catalog.member(NodeId(2)).unwrap();
    assert_eq!((member.incarnation, member.state), (Incarnation(22), MemberState::Joining));
    assert!(!world.catalog.can_act(replica(2, 0)) && world.catalog.can_act(replica(1, 0)));
    world.member(replace(2, 2, 22));
    assert_eq!(world.events(), [], "a repeat");
    assert_eq!(world.refused(started_from(2, 2, 201)), D::Forgotten { node: NodeId(2) });

    assert_eq!(
        world.catalog.next_step(3, &|_| Presence::Here),
        None,
        "the groups wait for the new directory"
    );
    world.member(admit(2, 22));
    world.settle(3);
    assert_eq!(world.replicas(0), [replica(1, 0), replica(2, 1), replica(3, 0)]);
    assert_eq!(world.replicas(1), [replica(1, 0), replica(2, 2), replica(3, 0)]);
}

#[test]
fn mem_10_no_directory_is_replaced_while_a_group_needs_its_disk() {
    let mut world = World::founded(3, 1);
    world.member(replace(1, 1, 11));
    let node = NodeId(2);
    let denied = D::NoMajority { node, group: GroupId::CATALOG };
    assert_eq!(world.member_refused(replace(2, 2, 22)), denied);
    world.member(replace(1, 11, 12));
    world.member(admit(1, 12));
    for group in [0, 1] {
        world.place(group, &[1, 2, 3]);
        let denied = D::NoMajority { node, group: GroupId(group) };
        assert_eq!(world.member_refused(replace(2, 2, 22)), denied, "planned is not reached");
        world.reach(group);
    }
    world.member(replace(2, 2, 22));
    let mut alone = World::founded(1, 1);
    assert!(matches!(alone.member_refused(replace(1, 1, 11)), D::NoMajority { .. }));
}

#[test]
fn mem_10_a_disk_that_is_lost_during_a_move_is_replaced_before_the_move_ends() {
    let mut world = World::founded(4, 1);
    world.settle(3);
    assert_eq!(world.placement(1).nodes(), nodes(&[1, 2, 3]));
    world.place(1, &[1, 2, 4]);
    world.member(replace(4, 4, 44));
    assert_eq!(world.catalog.next_step(3, &|_| Presence::Here), None);
    world.member(admit(4, 44));
    assert_eq!(world.catalog.next_step(3, &|_| Presence::Here), Some(world.placing(1, &[1, 2, 4])));
    world.settle(3);
    assert_eq!(world.placement(1).nodes(), nodes(&[1, 2, 4]));
    assert!(world.replicas(1).into_iter().all(|replica| world.catalog.can_act(replica)));
}

#[test]
fn mem_11_a_forgotten_node_leaves_and_can_join_anew_with_an_empty_directory() {
    let mut world = World::founded(4, 2);
    world.settle(3);
    let start = world.catalog.node(NodeId(2)).unwrap().start;
    world.member(forget(2, 2));
    assert_eq!(world.state_of(2), Some(MemberState::Leaving));
    world.member(forget(2, 2));
    assert_eq!(world.events(), [], "a repeat");
    assert_eq!(world.refused(started_from(2, 2, 201)), D::Forgotten { node: NodeId(2) });
    assert!(matches!(world.member_refused(M::Join(newcomer(2, 22))), D::IdTaken { .. }));
    assert!(matches!(world.member_refused(replace(2, 2, 22)), D::State { .. }));
    let named = M::Remove { node: NodeId(2) };
    assert!(matches!(world.member_refused(named.clone()), D::StillPlaced { .. }));

    world.settle(3);
    assert_eq!(world.state_of(2), None, "removed when the placements without it are reached");
    for group in 0..=2 {
        assert_eq!(world.placement(group).nodes(), nodes(&[1, 3, 4]));
    }
    world.member(named);
    world.member(forget(2, 2));
    assert_eq!(world.events(), [], "repeats");
    assert!(world.catalog.is_fenced(session(2, start.0)), "for ever (SES 6)");
    assert_eq!(world.member_refused(M::Join(newcomer(2, 2))), D::Forgotten { node: NodeId(2) });
    world.join(2, 22);
    world.one(started_from(2, 22, 1));
    assert!(world.catalog.live_session(NodeId(2)).is_some_and(|session| session.start > start));
    assert!(world.catalog.is_fenced(session(2, start.0)));
}

#[test]
fn mem_11_no_node_is_forgotten_that_a_group_needs() {
    let mut world = World::founded(2, 1);
    let denied = D::NoMajority { node: NodeId(2), group: GroupId::CATALOG };
    assert_eq!(world.member_refused(forget(2, 2)), denied);
    assert_eq!(
        world.member_refused(forget(2, 9)),
        D::IdTaken { node: NodeId(2), state: MemberState::Member }
    );
    assert_eq!(world.member_refused(forget(9, 9)), D::NoMember { node: NodeId(9) });
    let mut alone = World::founded(1, 1);
    alone.member(M::Join(newcomer(2, 2)));
    assert_eq!(alone.member_refused(forget(1, 1)), D::LastMember { node: NodeId(1) });
    alone.member(forget(2, 2));
    alone.settle(1);
    assert_eq!(alone.state_of(2), None, "nothing was placed on it");

    let mut world = World::founded(5, 1);
    world.member(forget(5, 5));
    world.member(forget(4, 4));
    assert!(matches!(world.member_refused(forget(3, 3)), D::NoMajority { .. }));
    world.settle(5);
    world.member(forget(3, 3));
}

#[test]
fn mem_12_up_to_five_members_vote_in_the_catalog_and_the_others_learn() {
    let mut world = World::founded(4, 1);
    for node in 5..=7 {
        world.join(node, u64::from(node));
    }
    world.settle(3);
    assert_eq!(world.placement(0).nodes(), nodes(&[1, 2, 3, 4, 5]));
    assert_eq!(world.catalog.catalog_learners(), [replica(6, 2), replica(7, 3)].into());
    let six = world.placing(0, &[1, 2, 3, 4, 5, 6]);
    assert_eq!(world.member_refused(six), D::Count { group: GroupId::CATALOG, count: 6 });
    // A member keeps its replica of the catalog while it votes and while it learns.
    for of in [[1, 2, 3, 4, 6], [1, 2, 3, 4, 5], [1, 2, 3, 4, 6]] {
        world.place(0, &of);
        world.reach(0);
    }
    assert_eq!(world.replicas(0).last(), Some(&replica(6, 2)));
    assert_eq!(world.catalog.catalog_learners(), [replica(5, 1), replica(7, 3)].into());
    world.member(forget(7, 7));
    assert_eq!(world.catalog.catalog_learners(), [replica(5, 1)].into());
}

#[test]
fn mem_13_a_drained_node_keeps_its_replicas_and_gets_no_others() {
    let mut world = World::founded(3, 1);
    world.join(4, 4);
    for node in [3, 4] {
        world.member(M::Drain { node: NodeId(node) });
    }
    world.settle(3);
    assert_eq!(world.placement(1).nodes(), nodes(&[1, 2, 3]));
    let (node, state, wanted) = (NodeId(4), MemberState::Draining, MemberState::Member);
    let comes = world.placing(1, &[1, 2, 4]);
    assert_eq!(world.member_refused(comes), D::State { node, state, wanted });
    world.member(M::Drain { node });
    assert_eq!(world.events(), [], "a repeat");
    world.member(M::Revive { node });
    assert_eq!(world.state_of(4), Some(MemberState::Member));
    world.member(M::Revive { node });
    world.member(M::Join(newcomer(5, 5)));
    let (node, state) = (NodeId(5), MemberState::Joining);
    assert_eq!(world.member_refused(M::Drain { node }), D::State { node, state, wanted });
    let wanted = MemberState::Draining;
    assert_eq!(world.member_refused(M::Revive { node }), D::State { node, state, wanted });
}

#[test]
fn a_refusal_says_which_node_and_why() {
    let (node, state) = (NodeId(3), MemberState::Joining);
    let text = D::State { node, state, wanted: MemberState::Member }.to_string();
    assert_eq!(text, "node 3 is joining; this can be done only with a node that is a member");
    let early = D::TooEarly { machine: MachineVersion::FIRST }.to_string();
    assert!(early.contains("version is 1") && early.contains("from version 2 on"), "{early}");
}

#[test]
fn mem_01_the_records_are_those_of_members_forgotten_directories_and_placements() {
    let mut world = World::founded(4, 1);
    world.member(forget(4, 4));
    let keys: Vec<_> = world.catalog.keys();
    let last = keys.iter().rev().take(7).rev().cloned().collect::<Vec<_>>();
    let members = (1..=4).map(|node| CatalogKey::Member(NodeId(node)));
    let placements = (0..=1).map(|group| CatalogKey::Placement(GroupId(group)));
    let expected = members.chain([CatalogKey::Forgotten(Incarnation(4))]).chain(placements);
    assert_eq!(last, expected.collect::<Vec<_>>());
    assert_eq!(world.catalog, world.reloaded());
}

/// Node 3 alone, with these replicas by their groups.
fn alone(replicas: &[(u16, u32)]) -> M {
    let replica = |(group, it): &(u16, u32)| (GroupId(*group), ReplicaNumber(*it));
    M::LastResort { node: NodeId(3), replicas: replicas.iter().map(replica).collect() }
}

/// Node 3 has been made the only member, with nothing of group 1, which has begun anew.
fn left_alone() -> World {
    let mut world = World::founded(3, 2);
    let early = world.member_refused(alone(&[(0, 0), (1, 0), (2, 0)]));
    assert_eq!(early, D::TooEarly { machine: MachineVersion::MEMBERS });
    assert_eq!(C::Members(alone(&[])).since(), MachineVersion::LAST_RESORT);
    for version in [MachineVersion::RETRIES, MachineVersion::LAST_RESORT] {
        world.done(C::RaiseMachine(version));
    }
    world.join(4, 4);
    world.settle(3);
    world.place(1, &[1, 2, 4]);
    let without = world.member_refused(alone(&[(0, 0), (1, 9)]));
    assert_eq!(without, D::NoGroup { group: GroupId(2) });
    let start = world.catalog.live_session(NodeId(1)).unwrap();
    world.member(alone(&[(0, 0), (1, 9), (2, 0)]));
    let members: Vec<_> = world.catalog.members().map(|(node, it)| (node, it.state)).collect();
    assert_eq!(members, [(NodeId(3), MemberState::Member)]);
    for (group, number) in [(0, 0), (1, 9), (2, 0)] {
        assert_eq!(world.replicas(group), [replica(3, number)]);
        assert!(world.placement(group).is_reached());
    }
    for directory in [1, 2, 4] {
        assert!(world.catalog.is_forgotten(Incarnation(directory)), "{directory}");
    }
    assert!(!world.catalog.is_forgotten(Incarnation(3)) && world.catalog.is_fenced(start));
    assert_eq!(world.catalog.next_replica_number(), ReplicaNumber(10));
    assert_eq!(world.catalog, world.reloaded());
    world
}

#[test]
fn mem_14_the_last_resort_leaves_one_member_with_its_replicas() {
    let mut world = left_alone();
    let back = world.member_refused(M::Join(newcomer(1, 1)));
    assert_eq!(back, D::Forgotten { node: NodeId(1) });
    world.join(1, 11);
    world.join(2, 22);
    world.settle(3);
    assert_eq!(world.placement(1).nodes(), nodes(&[1, 2, 3]), "the groups grow again");
    assert_eq!(world.placement(0).nodes(), nodes(&[1, 2, 3]));
    world.member(M::Drain { node: NodeId(3) });
    world.member(alone(&[(0, 0), (1, 9), (2, 0)]));
    assert_eq!(world.state_of(3), Some(MemberState::Member), "again, from another state");
    world.join(5, 5);
    world.join(6, 6);
    world.settle(3);
    world.member(forget(3, 3));
    let gone = world.member_refused(alone(&[(0, 0), (1, 9), (2, 0)]));
    assert_eq!(gone, D::Forgotten { node: NodeId(3) });
}
