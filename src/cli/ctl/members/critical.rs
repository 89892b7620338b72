//! Groups that need a node for their majority. Pure.

use quorate_management::wire;
use std::collections::BTreeSet;

/// The groups that would have no majority of running replicas if the node stopped. A replica that is
/// still catching up after its start would keep them waiting, and does not count; nor does one that was
/// lost with its disk. A group that moves needs a majority of its former replicas, of its new ones, and of those
/// that it was to have in between.
pub(in crate::cli::ctl) fn groups(cluster: &wire::Cluster, node: u32) -> Vec<u32> {
    let running = cluster
        .members
        .iter()
        .filter(|member| member.running && !catches_up(member) && member.id != node);
    let running: BTreeSet<u32> = running.map(|member| member.id).collect();
    let loses = |nodes: &[u32], lost: &[u32]| {
        let left = nodes.iter().filter(|it| running.contains(it) && !lost.contains(it)).count();
        nodes.contains(&node) && left * 2 <= nodes.len()
    };
    let is_critical = |it: &&wire::Placement| {
        let between = it.superseded.iter().map(|between| &between.nodes);
        [&it.nodes, &it.former].into_iter().chain(between).any(|nodes| loses(nodes, &it.lost))
    };
    let critical = cluster.placement.iter().filter(is_critical);
    critical.map(|placement| placement.group).collect()
}

/// Why the node cannot be forgotten: a group that needs it, and the node that this group waits for, if it
/// does. `None` if no group needs it.
pub(super) fn need(cluster: &wire::Cluster, node: u32) -> Option<String> {
    let group = *groups(cluster, node).first()?;
    let placement = cluster.placement.iter().find(|it| it.group == group)?;
    let has_replica = |id| placement.nodes.contains(&id) || placement.former.contains(&id);
    let is_awaited =
        |it: &&wire::Member| it.id != node && has_replica(it.id) && (!it.running || catches_up(it));
    let Some(awaited) = cluster.members.iter().find(is_awaited) else {
        return Some(format!(
            "node {node} cannot be forgotten: group {group} has no majority without it"
        ));
    };
    let what = if awaited.running { "catches up" } else { "does not answer" };
    let awaited = awaited.id;
    Some(format!(
        "node {node} cannot be forgotten now: group {group} needs its replica while node {awaited} \
         {what}"
    ))
}

fn catches_up(member: &wire::Member) -> bool {
    member.status.as_ref().is_some_and(|status| status.catching_up)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(running: &[u32], placement: &[(&[u32], &[u32])]) -> wire::Cluster {
        let member =
            |id| wire::Member { id, running: running.contains(&id), ..wire::Member::default() };
        let placement = (0..).zip(placement).map(|(group, (nodes, former))| wire::Placement {
            group,
            nodes: nodes.to_vec(),
            former: former.to_vec(),
            ..wire::Placement::default()
        });
        wire::Cluster {
            members: (1..=5).map(member).collect(),
            placement: placement.collect(),
            ..wire::Cluster::default()
        }
    }

    #[test]
    fn a_node_is_critical_for_groups_that_lose_their_majority_with_it() {
        let all = [1, 2, 3, 4, 5];
        let three: &[(&[u32], &[u32])] = &[(&[1, 2, 3], &[]), (&[1, 4, 5], &[]), (&all, &[])];
        assert!(groups(&cluster(&all, three), 1).is_empty());
        assert_eq!(groups(&cluster(&[1, 3, 4, 5], three), 1), [0]);
        assert_eq!(groups(&cluster(&[1, 3, 4], three), 1), [0, 1, 2]);
        assert_eq!(groups(&cluster(&[1, 3, 4], three), 2), [0; 0], "it does not run");
        let moves: &[(&[u32], &[u32])] = &[(&[1, 4, 5], &[1, 2, 3])];
        assert!(groups(&cluster(&all, moves), 1).is_empty());
        assert_eq!(groups(&cluster(&[1, 3, 4, 5], moves), 1), [0]);
        assert_eq!(groups(&cluster(&all, &[(&[1], &[])]), 1), [0]);
        let mut went_back = cluster(&[1, 2, 3, 5], &[(&[1, 2, 3], &[1, 2, 3])]);
        assert!(groups(&went_back, 1).is_empty());
        let between = wire::ReplicaSet { nodes: vec![1, 2, 4] };
        went_back.placement.iter_mut().for_each(|it| it.superseded = vec![between.clone()]);
        assert_eq!(groups(&went_back, 1), [0], "the group may still be on its way to node 4");
        let mut started = cluster(&all, three);
        let behind = wire::Node { catching_up: true, ..wire::Node::default() };
        started
            .members
            .iter_mut()
            .filter(|it| it.id == 2)
            .for_each(|it| it.status = Some(behind.clone()));
        assert_eq!(groups(&started, 1), [0], "the second one catches up");
        let mut replaced = cluster(&all, three);
        replaced.placement.iter_mut().take(1).for_each(|it| it.lost = vec![3]);
        assert_eq!(groups(&replaced, 1), [0], "the third one has a new disk");
        assert_eq!(groups(&replaced, 3), [0; 0]);
    }
}
