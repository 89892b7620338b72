//! Who is a member of a cluster under test, and which nodes replicate which group: what `cluster_status`
//! says, and what the nodes really have.

use super::metrics::Metrics;
use super::wait::hold;
use super::{Cluster, Node};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Replicas of a queue group; fewer if the cluster has fewer nodes.
const REPLICAS: usize = 3;
/// The catalog's group: each member has a replica of it.
const CATALOG: u64 = 0;
/// A metric that each replica of a node has.
const OF_REPLICA: &str = "quorate_group_term";

/// What a node says of members and groups.
#[derive(Clone, Debug)]
pub struct Members {
    /// The cluster's version of the replicated machine.
    pub machine: u64,
    /// The state of each member.
    states: BTreeMap<u64, String>,
    /// Where each member is called by the others.
    addresses: BTreeMap<u64, String>,
    /// The members that the asked node is linked with, and itself.
    running: BTreeSet<u64>,
    /// The nodes of each group.
    nodes: BTreeMap<u64, BTreeSet<u64>>,
    moves: bool,
}

impl Members {
    /// Asks a node.
    ///
    /// # Errors
    /// What the command said.
    pub async fn by(cluster: &Cluster, asked: u64) -> Result<Self, String> {
        let status = cluster.ctl(asked, &["cluster_status", "-q", "--formatter", "json"]).await;
        let status: Value = serde_json::from_str(&status.succeeded()?.stdout)
            .map_err(|error| format!("no JSON: {error}"))?;
        Self::of(&status).ok_or_else(|| format!("not as expected: {status}"))
    }

    fn of(status: &Value) -> Option<Self> {
        let members = status.get("members")?.as_array()?;
        let text = |of: &Value, name: &str| {
            Some((of.get("id")?.as_u64()?, of.get(name)?.as_str()?.to_owned()))
        };
        let runs = |member: &&Value| member.get("running").and_then(Value::as_bool) == Some(true);
        let group = |placement: &Value| {
            let nodes = placement.get("nodes")?.as_array()?.iter().map(Value::as_u64);
            Some((placement.get("group")?.as_u64()?, nodes.collect::<Option<BTreeSet<u64>>>()?))
        };
        let placement = status.get("placement")?.as_array()?;
        let moves = |it: &Value| it.get("moves").and_then(Value::as_bool).unwrap_or(true);
        Some(Self {
            machine: status.get("machine_version")?.as_u64()?,
            states: members.iter().map(|it| text(it, "state")).collect::<Option<_>>()?,
            addresses: members.iter().map(|it| text(it, "rpc_address")).collect::<Option<_>>()?,
            running: members
                .iter()
                .filter(runs)
                .map(|it| it.get("id")?.as_u64())
                .collect::<Option<_>>()?,
            nodes: placement.iter().map(group).collect::<Option<_>>()?,
            moves: placement.iter().any(moves),
        })
    }

    /// The nodes that have a replica of each group.
    #[must_use]
    pub fn groups(&self) -> &BTreeMap<u64, BTreeSet<u64>> {
        &self.nodes
    }

    /// The asked node is linked with the member, or is it.
    #[must_use]
    pub fn runs(&self, node: u64) -> bool {
        self.running.contains(&node)
    }

    /// The asked node is linked with a member that is called at this address.
    #[must_use]
    pub fn reaches(&self, node: u64, address: &str) -> bool {
        self.running.contains(&node) && self.addresses.get(&node).is_some_and(|it| it == address)
    }

    /// Whether the node is a member, in whatever state.
    #[must_use]
    pub fn names(&self, node: u64) -> bool {
        self.states.contains_key(&node)
    }

    /// The nodes of each queue group.
    pub fn queue_groups(&self) -> impl Iterator<Item = &BTreeSet<u64>> {
        self.nodes.iter().filter(|(group, _)| **group != CATALOG).map(|(_, it)| it)
    }

    /// True if exactly these nodes are members, no group is moving, and each queue group has this number of
    /// replicas, all of them on members.
    #[must_use]
    pub fn is_complete_on(&self, nodes: &[u64], replicas: usize) -> bool {
        let members: BTreeSet<u64> = nodes.iter().copied().collect();
        let all_are = self.states.keys().copied().collect::<BTreeSet<u64>>() == members
            && self.states.values().all(|state| state == "member");
        let complete = |it: &BTreeSet<u64>| it.len() == replicas && it.is_subset(&members);
        all_are && !self.moves && self.queue_groups().all(complete)
    }

    /// As [`Members::is_complete_on`] with three replicas of each queue group, which are spread evenly.
    #[must_use]
    pub fn is_at_rest_on(&self, nodes: &[u64]) -> bool {
        let load = |node: &u64| self.queue_groups().filter(|it| it.contains(node)).count();
        let loads = || nodes.iter().map(load);
        let even = loads().max().unwrap_or(0) <= loads().min().unwrap_or(0) + 1;
        even && self.is_complete_on(nodes, REPLICAS.min(nodes.len()))
    }

    /// The groups that a member shall have replicas of.
    fn groups_of(&self, node: u64) -> BTreeSet<u64> {
        let of_node = self.nodes.iter().filter(|(_, nodes)| nodes.contains(&node));
        of_node.map(|(group, _)| *group).chain([CATALOG]).collect()
    }
}

impl Cluster {
    /// `Ok` if these nodes, and no others, are members by what one of them says; all groups are where they
    /// shall be, and each node has exactly the replicas that it shall have.
    ///
    /// # Errors
    /// What is not so yet.
    pub async fn is_at_rest_on(&self, asked: u64, nodes: &[u64]) -> Result<(), String> {
        let members = Members::by(self, asked).await?;
        hold(members.is_at_rest_on(nodes), || format!("{members:?}"))?;
        for node in nodes {
            let (has, shall) = (replicas_of(self.node(*node)).await?, members.groups_of(*node));
            hold(has == shall, || format!("node {node} has the groups {has:?}, not {shall:?}"))?;
        }
        Ok(())
    }
}

/// The groups that a node has replicas of.
async fn replicas_of(node: &Node) -> Result<BTreeSet<u64>, String> {
    let page = node.get("/metrics").await?;
    let metrics = Metrics::parse(&page.body)?;
    let replicas = metrics.samples.iter().filter(|sample| sample.name == OF_REPLICA);
    let groups = replicas.map(|sample| sample.labels.get("group")?.parse().ok());
    groups.collect::<Option<_>>().ok_or_else(|| "a metric names no group".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(placement: &[(u64, &[u64])], moves: bool) -> Members {
        let member = |id: u64| {
            let address = format!("node-{id}:1");
            json!({"id": id, "state": "member", "rpc_address": address, "running": id != 3})
        };
        let group = |(group, nodes): &(u64, &[u64])| json!({"group": group, "nodes": nodes, "moves": moves});
        let status = json!({
            "machine_version": 2,
            "members": (1..=4).map(member).collect::<Value>(),
            "placement": placement.iter().map(group).collect::<Value>(),
        });
        Members::of(&status).unwrap()
    }

    #[test]
    fn a_cluster_is_at_rest_when_all_groups_are_complete_and_spread_evenly() {
        let all = [1, 2, 3, 4];
        let even: [(u64, &[u64]); 4] =
            [(0, &[1, 2, 3]), (1, &[1, 2, 3]), (2, &[1, 2, 4]), (3, &[2, 3, 4])];
        let at_rest = seen(&even, false);
        assert!(at_rest.is_at_rest_on(&all) && !at_rest.is_at_rest_on(&[1, 2, 3]));
        assert_eq!(at_rest.groups_of(4), BTreeSet::from([0, 2, 3]));
        assert!(at_rest.reaches(4, "node-4:1") && !at_rest.reaches(4, "elsewhere:1"));
        assert!(!at_rest.reaches(3, "node-3:1"), "it does not run");
        assert!(!seen(&even, true).is_at_rest_on(&all), "a group moves");
        assert!(!seen(&[(1, &[1, 2])], false).is_at_rest_on(&all), "a replica is missing");
        let uneven: [(u64, &[u64]); 2] = [(1, &[1, 2, 3]), (2, &[1, 2, 3])];
        assert!(!seen(&uneven, false).is_at_rest_on(&all), "node 4 has nothing");
    }
}
