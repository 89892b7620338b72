//! Which groups can have a leader, and need which nodes, while other nodes are away (MEM 11, QUE-15).

mod common;

use common::{members::*, *};
use quorate_catalog::MemberDenial as D;
use quorate_types::{GroupId, LeaderLocator, NodeId};

#[test]
fn mem_11_a_group_needs_a_node_while_others_of_its_nodes_are_away() {
    let mut world = World::founded(5, 1);
    world.place(1, &[1, 2, 3]);
    world.reach(1);
    let needs = |world: &World, node, away: &[u16]| {
        world.catalog.needs(NodeId(node), |it| !away.contains(&it.0))
    };
    let in_group = |away| Some((GroupId(1), NodeId(away)));
    assert_eq!(needs(&world, 3, &[]), None);
    assert_eq!(needs(&world, 3, &[4, 5]), Some((GroupId::CATALOG, NodeId(4))), "five vote there");
    assert_eq!(needs(&world, 3, &[2]), in_group(2));
    assert_eq!(needs(&world, 3, &[3]), None, "its own absence is not another one");
    assert_eq!(needs(&world, 4, &[2]), None, "it has no replica of the group");
    assert!(world.catalog.can_be_led(GroupId(1), |it| it.0 != 2));
    assert!(!world.catalog.can_be_led(GroupId(1), |it| it.0 > 2));
    // On the way to nodes 1, 4 and 5: majorities of both placements are needed.
    world.place(1, &[1, 4, 5]);
    assert_eq!(needs(&world, 1, &[5]), in_group(5));
    assert_eq!(needs(&world, 1, &[2]), in_group(2));
    assert_eq!(needs(&world, 1, &[]), None);
    assert!(!world.catalog.can_be_led(GroupId(1), |it| it.0 < 4));
    world.reach(1);
    // On the way to nodes 1, 4 and 2, under the leader 5: all four vote until it has handed over.
    world.place(1, &[1, 2, 4]);
    assert!(world.catalog.can_be_led(GroupId(1), |it| it.0 != 2));
    assert_eq!(needs(&world, 5, &[2]), in_group(2), "else 1 and 4 of 1, 2, 4 and 5 were left");
    world.place(1, &[1, 4, 5]);
    world.reach(1);
    // A lost replica does not lead its group while a new one takes its place.
    let mut replaced = World::founded(3, 1);
    replaced.member(replace(3, 3, 33));
    replaced.member(admit(3, 33));
    replaced.place(1, &[1, 2, 3]);
    assert!(replaced.catalog.can_be_led(GroupId(1), |it| it.0 != 3));
    // Its disk is lost, so that nothing is lost with it.
    world.member(replace(4, 4, 44));
    assert_eq!(needs(&world, 4, &[5]), None);
    assert_eq!(needs(&world, 1, &[]), None, "nobody is away: the catalog refuses it");
    assert_eq!(needs(&world, 1, &[4]), None, "a lost replica does not come back");
    assert!(matches!(world.member_refused(forget(1, 1)), D::NoMajority { .. }));
}

/// The catalog does not know which replica leads, and would let it go.
#[test]
fn mem_11_a_leader_that_goes_is_needed_while_another_replica_is_lost() {
    let mut world = World::founded(5, 1);
    world.place(1, &[1, 2, 3]);
    world.reach(1);
    world.place(1, &[1, 2, 4]);
    let needs = |world: &World| world.catalog.needs(NodeId(3), |it| it != NodeId(3));
    assert_eq!(needs(&world), None);
    // Of the voters 1, 2, 3 and 4 two would be left.
    world.member(replace(4, 4, 44));
    assert_eq!(needs(&world), Some((GroupId(1), NodeId(4))));
}

#[test]
fn que_15_no_queue_is_placed_in_a_group_that_has_no_majority_while_others_have_one() {
    let mut world = World::founded(5, 2);
    world.place(1, &[1, 2, 3]);
    world.reach(1);
    let place = |world: &World, locator, away: &[u16]| {
        world.catalog.place(locator, &[GroupId(1)], |it| !away.contains(&it.0))
    };
    let (local, balanced) = (LeaderLocator::ClientLocal, LeaderLocator::Balanced);
    assert_eq!(place(&world, local, &[3]), GroupId(1));
    assert_eq!(place(&world, local, &[2, 3]), GroupId(2), "a leader that has not noticed it");
    assert_eq!(place(&world, balanced, &[2, 3]), GroupId(2));
    assert_eq!(place(&world, balanced, &[1, 2, 3]), GroupId(1), "no group has one");
}
