//! `quorate ctl audit`: compares the state of the replicas of each group at the same index. Pure:
//! its input is digests, its output findings.

use super::names::Names;
use quorate_management::wire;
use std::collections::{BTreeMap, BTreeSet};

/// The result for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// All replicas that answered have this digest at this index.
    Same { index: u64, digest: u64, nodes: Vec<u32> },
    /// The replicas have different digests at this index.
    Different { index: u64, digests: BTreeMap<u32, u64> },
    /// There is no index for which all replicas that answered gave a digest.
    NoCommonIndex { last: BTreeMap<u32, u64> },
}

/// Digests of several rounds of requests, until every group can be compared.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    /// For each group and node, the digest at each index.
    groups: BTreeMap<u32, BTreeMap<u32, BTreeMap<u64, u64>>>,
}

impl Audit {
    /// Adds the digests of one round.
    pub(crate) fn add(&mut self, digests: &[wire::Digest]) {
        for digest in digests {
            let nodes = self.groups.entry(digest.group).or_default();
            nodes.entry(digest.node).or_default().insert(digest.index, digest.digest);
        }
    }

    /// The finding of every group.
    pub(crate) fn findings(&self) -> BTreeMap<u32, Finding> {
        self.groups.iter().map(|(group, nodes)| (*group, finding(nodes))).collect()
    }

    /// True if the replicas of every group have the same last index, so that no newer one is left
    /// to compare.
    pub(crate) fn is_settled(&self) -> bool {
        !self.groups.is_empty() && self.groups.values().all(is_newest)
    }

    /// True if every group has an index for which all its replicas gave a digest.
    pub(crate) fn is_complete(&self) -> bool {
        !self.groups.is_empty() && self.findings().values().all(Finding::is_compared)
    }
}

impl Finding {
    /// True if there was an index at which the replicas could be compared.
    pub(crate) fn is_compared(&self) -> bool {
        match self {
            Self::Same { .. } | Self::Different { .. } => true,
            Self::NoCommonIndex { .. } => false,
        }
    }
}

fn is_newest(nodes: &BTreeMap<u32, BTreeMap<u64, u64>>) -> bool {
    let mut last = nodes.values().map(|digests| digests.keys().next_back());
    let first = last.next().flatten();
    first.is_some() && last.all(|last| last == first)
}

fn finding(nodes: &BTreeMap<u32, BTreeMap<u64, u64>>) -> Finding {
    let mut common: Option<BTreeSet<u64>> = None;
    for digests in nodes.values() {
        let indexes: BTreeSet<u64> = digests.keys().copied().collect();
        common = Some(match common {
            None => indexes,
            Some(common) => common.intersection(&indexes).copied().collect(),
        });
    }
    let Some(index) = common.and_then(|common| common.last().copied()) else {
        let last = |digests: &BTreeMap<u64, u64>| digests.keys().next_back().copied().unwrap_or(0);
        let last = nodes.iter().map(|(node, digests)| (*node, last(digests))).collect();
        return Finding::NoCommonIndex { last };
    };
    let at = |digests: &BTreeMap<u64, u64>| digests.get(&index).copied().unwrap_or_default();
    let digests: BTreeMap<u32, u64> =
        nodes.iter().map(|(node, digests)| (*node, at(digests))).collect();
    let mut values = digests.values();
    let first = values.next().copied().unwrap_or_default();
    if values.all(|digest| *digest == first) {
        let nodes = digests.into_keys().collect();
        return Finding::Same { index, digest: first, nodes };
    }
    Finding::Different { index, digests }
}

/// Number of replicas that a group should have: those of its placement. Every member that stays
/// replicates the catalog (MEM 12).
pub(crate) fn replicas(cluster: &wire::Cluster, group: u32) -> usize {
    let stays = |member: &&wire::Member| member.state != "leaving";
    let placement = cluster.placement.iter().find(|it| it.group == group && group != 0);
    placement.map_or_else(|| cluster.members.iter().filter(stays).count(), |it| it.nodes.len())
}

/// A line for each group, and the verdict: true if all replicas of all groups agree. `replicas` is
/// the number that a group should have.
pub(crate) fn report(
    findings: &BTreeMap<u32, Finding>,
    replicas: impl Fn(u32) -> usize,
    names: &Names,
) -> (Vec<String>, bool) {
    let mut all_agree = !findings.is_empty();
    let lines = findings.iter().map(|(group, finding)| match finding {
        Finding::Same { index, digest, nodes } => {
            // More, while the group moves.
            let replicas = replicas(*group).max(nodes.len());
            let missing = nodes.len() < replicas;
            all_agree &= !missing;
            let remark = if missing { ", not all replicas answered" } else { "" };
            format!(
                "group {group}\tsame\tindex {index}\tdigest {digest:016x}\t{} of {replicas} replicas{remark}",
                nodes.len()
            )
        }
        Finding::Different { index, digests } => {
            all_agree = false;
            let digests: Vec<String> = digests
                .iter()
                .map(|(node, digest)| format!("{} {digest:016x}", names.node(*node)))
                .collect();
            format!("group {group}\tDIFFERENT\tindex {index}\t{}", digests.join(", "))
        }
        Finding::NoCommonIndex { last } => {
            all_agree = false;
            let last: Vec<String> = last
                .iter()
                .map(|(node, index)| format!("{} at {index}", names.node(*node)))
                .collect();
            format!("group {group}\tunknown\tno common index\t{}", last.join(", "))
        }
    });
    (lines.collect(), all_agree)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(of: &[(u32, u32, u64, u64)]) -> Vec<wire::Digest> {
        of.iter()
            .map(|&(group, node, index, digest)| wire::Digest { group, node, index, digest })
            .collect()
    }

    fn finding_of(of: &[(u32, u32, u64, u64)]) -> (Audit, Option<Finding>) {
        let mut audit = Audit::default();
        audit.add(&digests(of));
        let finding = audit.findings().remove(&1);
        (audit, finding)
    }

    #[test]
    fn replicas_are_compared_at_the_highest_index_that_all_gave() {
        let (audit, finding) = finding_of(&[
            (1, 1, 8, 80),
            (1, 1, 9, 90),
            (1, 2, 8, 80),
            (1, 2, 9, 90),
            (1, 2, 10, 100),
            (1, 3, 9, 90),
        ]);
        assert_eq!(finding, Some(Finding::Same { index: 9, digest: 90, nodes: vec![1, 2, 3] }));
        assert!(audit.is_complete());
    }

    #[test]
    fn a_replica_with_another_digest_is_found() {
        let (audit, finding) = finding_of(&[(1, 1, 9, 90), (1, 2, 9, 91)]);
        let expected = BTreeMap::from([(1, 90), (2, 91)]);
        assert_eq!(finding, Some(Finding::Different { index: 9, digests: expected }));
        let (lines, agree) = report(&audit.findings(), |_| 2, &Names::default());
        assert!(!agree);
        assert_eq!(
            lines,
            ["group 1\tDIFFERENT\tindex 9\tnode1 000000000000005a, node2 000000000000005b"]
        );
    }

    #[test]
    fn asking_again_finds_a_common_index_under_load() {
        let (mut audit, finding) = finding_of(&[(1, 1, 9, 90), (1, 2, 8, 80)]);
        assert_eq!(
            finding,
            Some(Finding::NoCommonIndex { last: BTreeMap::from([(1, 9), (2, 8)]) })
        );
        assert!(!audit.is_complete());
        audit.add(&digests(&[(1, 1, 12, 120), (1, 2, 9, 90)]));
        assert!(audit.is_complete());
    }

    #[test]
    fn replicas_that_go_on_are_compared_though_they_never_stand_at_one_index() {
        let (mut audit, finding) =
            finding_of(&[(1, 1, 16, 160), (1, 1, 21, 210), (1, 2, 16, 160), (1, 2, 20, 200)]);
        assert_eq!(finding, Some(Finding::Same { index: 16, digest: 160, nodes: vec![1, 2] }));
        assert!(audit.is_complete());
        assert!(!audit.is_settled());
        audit.add(&digests(&[(1, 1, 21, 210), (1, 2, 21, 210)]));
        assert!(audit.is_settled());
    }

    #[test]
    fn a_silent_replica_is_no_agreement() {
        let (audit, _) = finding_of(&[(1, 1, 9, 90), (1, 2, 9, 90)]);
        assert!(!report(&audit.findings(), |_| 3, &Names::default()).1);
        assert!(report(&audit.findings(), |_| 2, &Names::default()).1);
        assert!(!report(&BTreeMap::new(), |_| 3, &Names::default()).1);
    }

    #[test]
    fn mem_12_a_group_has_the_replicas_of_its_placement_and_the_catalog_one_on_each_member() {
        let member = |id, state: &str| wire::Member {
            id,
            state: state.to_owned(),
            ..wire::Member::default()
        };
        let placement =
            wire::Placement { group: 1, nodes: vec![1, 2, 4], ..wire::Placement::default() };
        let cluster = wire::Cluster {
            members: vec![member(1, "member"), member(2, "draining"), member(3, "leaving")],
            placement: vec![placement],
            ..wire::Cluster::default()
        };
        assert_eq!((replicas(&cluster, 0), replicas(&cluster, 1)), (2, 3));
        let before = wire::Cluster { members: vec![member(1, "")], ..wire::Cluster::default() };
        assert_eq!((replicas(&before, 0), replicas(&before, 1)), (1, 1));
    }
}
