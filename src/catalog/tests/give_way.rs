//! Moves that cannot be reached, since a node is away, give way to repairs (MEM 6).

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{members::*, *};
use quorate_catalog::{MemberCommand as M, Presence};
use quorate_types::{GroupId, NodeId};

fn gone(is_gone: bool) -> Presence {
    if is_gone { Presence::Gone } else { Presence::Here }
}

#[test]
fn mem_06_moves_to_a_node_that_is_away_do_not_keep_others_from_a_repair() {
    let mut world = World::founded(3, 3);
    world.join(4, 4);
    world.place(1, &[1, 2, 4]);
    world.place(2, &[1, 2, 4]);
    let next = |world: &World| world.catalog.next_step(3, &|node| gone(node.0 == 4));
    assert_eq!(next(&world), None, "it may come back");
    world.member(replace(3, 3, 33));
    assert_eq!(next(&world), None, "the new directory is joining");
    world.member(admit(3, 33));
    for _ in 0..20 {
        if let Some(step) = next(&world) {
            world.member(step);
        }
        let moves = |group: &u16| !world.placement(*group).is_reached();
        let runs = |group: &u16| !world.placement(*group).nodes().contains(&NodeId(4));
        if let Some(group) = (0..=3).filter(moves).find(runs) {
            world.reach(group);
        }
    }
    assert_eq!(world.placement(2).nodes(), nodes(&[1, 2, 4]), "it does not have to give way");
    for group in [0, 1, 3] {
        let replicas = world.replicas(group);
        assert_eq!(world.placement(group).nodes(), nodes(&[1, 2, 3]), "group {group}");
        assert!(replicas.into_iter().all(|replica| world.catalog.can_act(replica)), "{group}");
    }
}

/// A group moves from node 3 to node 4, and both are lost for good.
#[test]
fn mem_11_both_nodes_of_a_move_can_be_forgotten() {
    let mut world = World::founded(3, 3);
    world.join(4, 4);
    world.join(5, 5);
    world.place(1, &[1, 2, 4]);
    let runs = |node: NodeId| ![3, 4].contains(&node.0);
    let needs = |world: &World, node| world.catalog.needs(NodeId(node), runs);
    assert!(needs(&world, 3).is_some() && needs(&world, 4).is_some(), "each waits for the other");
    let next = |world: &World| world.catalog.next_step(3, &|node| gone(!runs(node)));
    let back = M::Place { group: GroupId(1), number: 3, nodes: nodes(&[1, 2, 3]) };
    assert_eq!(next(&world), Some(back.clone()));
    world.member(back);
    world.reach(1);
    assert_eq!(needs(&world, 3).or(needs(&world, 4)), None);
}

/// A node is exchanged, and the new one ends while groups move to it from the one that leaves.
#[test]
fn mem_06_moves_between_two_nodes_that_are_away_go_to_a_third() {
    let mut world = World::founded(3, 3);
    world.join(5, 5);
    for group in 1..=3 {
        world.place(group, &[1, 2, 5]);
        world.reach(group);
    }
    world.join(4, 4);
    world.member(forget(5, 5));
    world.place(1, &[1, 2, 4]);
    world.place(2, &[1, 2, 4]);
    let next = |world: &World| world.catalog.next_step(3, &|node| gone(node.0 >= 4));
    // The third group takes the place of the first among those that move.
    for (group, number) in [(1, 4), (3, 3), (2, 4)] {
        let step = next(&world).unwrap();
        assert_eq!(step, M::Place { group: GroupId(group), number, nodes: nodes(&[1, 2, 3]) });
        world.member(step);
        world.reach(group);
    }
    assert_eq!(next(&world), Some(M::Remove { node: NodeId(5) }));
}

/// A move goes on, and its copy is not thrown away, when a node is away for a moment, or when one is gone that
/// had a replica before: the move can be reached without it.
#[test]
fn mem_06_moves_that_can_be_reached_go_on() {
    let mut world = World::founded(3, 3);
    world.join(4, 4);
    world.join(5, 5);
    for group in 1..=3 {
        world.place(group, &[1, 2, 5]);
        world.reach(group);
    }
    world.member(forget(5, 5));
    world.place(1, &[1, 2, 4]);
    world.place(2, &[1, 2, 4]);
    let next = |absent: u16, presence| {
        world.catalog.next_step(3, &|node| if node.0 == absent { presence } else { Presence::Here })
    };
    for (absent, presence) in [(2, Presence::Away), (2, Presence::Gone), (4, Presence::Away)] {
        assert_eq!(next(absent, presence), None, "{absent} {presence:?}");
    }
    let moved = M::Place { group: GroupId(1), number: 4, nodes: nodes(&[1, 2, 3]) };
    assert_eq!(next(4, Presence::Gone), Some(moved));
    // What node 2 has stays there.
    let both = world.catalog.next_step(3, &|node| gone([2, 4].contains(&node.0)));
    assert_eq!(both, Some(M::Place { group: GroupId(1), number: 4, nodes: nodes(&[1, 2, 3]) }));
}
