//! Where the replicas of groups are (MEM 6).

#![expect(clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;
use quorate_catalog::{Host, Hosts, Replicas};
use quorate_types::{GroupId, NodeId};
use std::collections::{BTreeMap, BTreeSet};

fn host(zone: &str) -> Host {
    Host { zone: zone.to_owned(), takes: true, leaves: false }
}

fn hosts(zones: &[&str]) -> BTreeMap<NodeId, Host> {
    (1..).map(NodeId).zip(zones.iter().map(|zone| host(zone))).collect()
}

fn nodes(nodes: &[u16]) -> BTreeSet<NodeId> {
    nodes.iter().copied().map(NodeId).collect()
}

fn placed(groups: u16, of: &[u16]) -> Replicas {
    (0..groups).map(|group| (GroupId(group), nodes(of))).collect()
}

/// Takes all steps; returns how many there were.
fn settle(hosts: &Hosts<'_>, replicas: &mut Replicas) -> usize {
    let mut steps = 0;
    while let Some((group, next)) = hosts.next_step(replicas, &BTreeSet::new()) {
        let before = hosts.flaws(replicas);
        replicas.insert(group, next);
        assert!(hosts.flaws(replicas) < before, "a step makes it better");
        steps += 1;
    }
    steps
}

fn loads(replicas: &Replicas) -> Vec<usize> {
    let mut loads: BTreeMap<NodeId, usize> = BTreeMap::new();
    replicas.values().flatten().for_each(|node| *loads.entry(*node).or_default() += 1);
    loads.into_values().collect()
}

#[test]
fn mem_06_a_new_node_gets_its_share_and_no_more_moves() {
    let all = hosts(&["", "", "", ""]);
    let hosts = Hosts::new(&all, 3);
    let mut replicas = placed(12, &[1, 2, 3]);
    assert_eq!(settle(&hosts, &mut replicas), 9);
    assert_eq!(loads(&replicas), [9, 9, 9, 9]);
    assert_eq!(settle(&hosts, &mut replicas), 0);
}

#[test]
fn mem_06_a_node_that_leaves_gives_all_its_replicas_away_and_nothing_else_moves() {
    let mut all = hosts(&["", "", "", ""]);
    let mut replicas = placed(12, &[1, 2, 3]);
    settle(&Hosts::new(&all, 3), &mut replicas);
    all.entry(NodeId(2)).and_modify(|host| host.leaves = true);
    assert_eq!(settle(&Hosts::new(&all, 3), &mut replicas), 9);
    assert_eq!(loads(&replicas), [12, 12, 12]);
}

#[test]
fn mem_06_with_two_nodes_left_a_group_has_two_replicas_and_gets_the_third_back() {
    let mut all = hosts(&["", "", ""]);
    let mut replicas = placed(3, &[1, 2, 3]);
    all.entry(NodeId(1)).and_modify(|host| host.leaves = true);
    assert_eq!(settle(&Hosts::new(&all, 3), &mut replicas), 3);
    assert_eq!(replicas, placed(3, &[2, 3]));
    all.insert(NodeId(4), host(""));
    assert_eq!(settle(&Hosts::new(&all, 3), &mut replicas), 3);
    assert_eq!(replicas, placed(3, &[2, 3, 4]));
}

#[test]
fn mem_13_a_drained_node_keeps_its_replicas_and_gets_none() {
    let mut all = hosts(&["", "", "", ""]);
    all.entry(NodeId(4)).and_modify(|host| host.takes = false);
    let mut replicas = placed(12, &[1, 2, 3]);
    assert_eq!(settle(&Hosts::new(&all, 3), &mut replicas), 0);
    all.entry(NodeId(3)).and_modify(|host| host.takes = false);
    assert_eq!(settle(&Hosts::new(&all, 3), &mut replicas), 0);
}

#[test]
fn mem_06_groups_in_motion_are_left_alone() {
    let all = hosts(&["", "", "", ""]);
    let moving = [GroupId(0)].into();
    let step = Hosts::new(&all, 3).next_step(&placed(2, &[1, 2, 3]), &moving);
    assert_eq!(step.map(|(group, _)| group), Some(GroupId(1)));
}

#[test]
fn mem_06_zones_come_before_even_numbers() {
    let all = hosts(&["a", "a", "a", "b", "c"]);
    let mut replicas = placed(6, &[1, 2, 3]);
    settle(&Hosts::new(&all, 3), &mut replicas);
    for of in replicas.values() {
        assert!(of.contains(&NodeId(4)) && of.contains(&NodeId(5)), "one in each zone: {of:?}");
    }
    assert_eq!(loads(&replicas), [2, 2, 2, 6, 6]);
}

fn any_hosts() -> impl Strategy<Value = BTreeMap<NodeId, Host>> {
    let host = (0..4_usize, 0..8_u8).prop_map(|(zone, state)| Host {
        zone: ["", "a", "b", "c"][zone].to_owned(),
        takes: state > 1,
        leaves: state == 0,
    });
    prop::collection::vec(host, 1..8).prop_map(|hosts| (1..).map(NodeId).zip(hosts).collect())
}

proptest! {
    #[test]
    fn mem_06_steps_end_and_leave_a_good_placement(
        all in any_hosts(),
        present in prop::collection::vec(prop::collection::btree_set(1..9_u16, 0..6), 1..14),
        voters in prop_oneof![Just(1_usize), Just(3), Just(5)],
    ) {
        let placed = present.into_iter().map(|of| of.into_iter().map(NodeId).collect());
        let mut replicas: Replicas = (0..).map(GroupId).zip(placed).collect();
        let hosts = Hosts::new(&all, voters);
        let groups = replicas.len();
        let steps = settle(&hosts, &mut replicas);
        prop_assert!(steps <= groups * 16, "{steps} steps for {groups} groups");
        let stay = |node: &NodeId| all.get(node).is_some_and(|host| !host.leaves);
        for of in replicas.values() {
            prop_assert!(of.iter().all(stay), "a replica on a node that is gone: {of:?}");
            prop_assert!(of.len() <= voters);
            let may_have = all.iter().filter(|(node, host)| {
                !host.leaves && (host.takes || of.contains(node))
            });
            prop_assert_eq!(of.len(), voters.min(may_have.count()));
        }
    }

    /// When a node joins, only its share of the replicas moves. When a node leaves, its own replicas move, and
    /// at most two more.
    #[test]
    fn mem_06_no_more_moves_than_what_comes_and_goes(
        nodes in 3..8_u16,
        groups in 1..20_u16,
        voters in prop_oneof![Just(1_usize), Just(3)],
    ) {
        let all = |nodes: u16| -> BTreeMap<NodeId, Host> {
            (1..=nodes).map(|node| (NodeId(node), host(""))).collect()
        };
        let (before, mut after) = (all(nodes), all(nodes + 1));
        let mut replicas = placed(groups, &[1]);
        settle(&Hosts::new(&before, voters), &mut replicas);
        let share = usize::from(groups) * voters / usize::from(nodes + 1);
        prop_assert_eq!(settle(&Hosts::new(&after, voters), &mut replicas), share);

        let goes = NodeId(nodes);
        let has = replicas.values().filter(|of| of.contains(&goes)).count();
        after.entry(goes).and_modify(|host| host.leaves = true);
        let moved = settle(&Hosts::new(&after, voters), &mut replicas);
        // A node has one replica of a group at most, so that a step may have to be made good.
        prop_assert!((has..=has + 2).contains(&moved), "{moved} moves of {has} replicas");
    }

    #[test]
    fn mem_06_nodes_without_zones_have_even_numbers(
        nodes in 1..8_u16,
        groups in 1..20_u16,
        voters in prop_oneof![Just(1_usize), Just(3), Just(5)],
    ) {
        let all = (1..=nodes).map(|node| (NodeId(node), host(""))).collect();
        let mut replicas = placed(groups, &[1]);
        settle(&Hosts::new(&all, voters), &mut replicas);
        let loads = loads(&replicas);
        let most = loads.iter().max().copied().unwrap_or(0);
        let least = if loads.len() < usize::from(nodes) { 0 } else { loads.iter().min().copied().unwrap_or(0) };
        prop_assert!(most - least <= 1, "{loads:?}");
    }
}
