//! The founding of a cluster: once, by one node (MEM 2).
//!
//! The directories of all nodes have taken the same charter (`charter`) before any replica begins. Then
//! the founder writes the first entry of every group, which names the founders' replicas, and the others
//! get it by replication. It waits for a majority of them, without which it could lead nothing; a
//! directory that is lost from now on is replaced by name (MEM 10).
//!
//! A process dials no node and accepts none before it has read from its own catalog and from its
//! charter which data directories to expect of the others (`Links::open`).

use crate::{
    group::Group, replica_name::raft_id, settings::Settings, shared::Shared,
    start_error::StartError,
};
use openraft::{
    async_runtime::WatchReceiver,
    errors::{InitializeError, RaftError},
};
use quorate_rpc::PeerHello;
use quorate_types::{GroupId, MachineVersion, NodeId, ReplicaId, ReplicaNumber};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// How often the founder checks whether a majority of the members is linked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Number of checks between two log lines that name the missing nodes.
const LOG_EVERY: u32 = 500;

/// Why this node does not found the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Obstacle {
    /// Too few are linked: without these nodes there is no majority.
    Missing(Vec<NodeId>),
    /// These nodes belong to a cluster already.
    Formed(Vec<NodeId>),
}

/// Checks that the groups were formed of the members that the settings name, if they have a log.
/// Once members come and go the settings may name others than the group has (MEM 1): then nothing is
/// checked. `machine`: the version of this node's copy of the catalog, which may be older than the
/// group's log.
pub(crate) async fn check_members(
    settings: &Settings,
    group: &Group,
    machine: MachineVersion,
) -> Result<(), StartError> {
    if machine >= MachineVersion::MEMBERS || !is_initialized(group).await? {
        return Ok(());
    }
    let membership = group.raft().metrics().borrow_watched().membership_config.clone();
    let has_changed = membership.log_id().is_some_and(|id| id.index > 0);
    let formed: BTreeSet<u64> = membership.voter_ids().collect();
    let asked = replicas(&settings.members);
    if formed.is_empty() || formed == asked || has_changed {
        return Ok(());
    }
    Err(StartError::Members { formed, asked })
}

/// Founds the groups as soon as possible, if they have no log and this node is the founder.
pub(crate) async fn run(shared: Arc<Shared>) {
    if shared.settings.founders.is_empty() {
        return;
    }
    // The catalog comes last: if it has a log, all groups have one.
    let catalog = shared.group(GroupId::CATALOG);
    let queues = shared.all().filter(|group| group.id() != GroupId::CATALOG);
    let groups: Vec<Arc<Group>> = queues.chain(catalog.clone()).collect();
    let Some(catalog) = catalog else { return };
    let mut checks = 0;
    while matches!(is_initialized(&catalog).await, Ok(false)) {
        match obstacle(&shared.settings, &shared.links.all_connected()) {
            None => {
                for group in &groups {
                    if let Err(error) = initialize(&shared.settings, group).await {
                        shared.fail(group.id(), &error.to_string());
                        return;
                    }
                }
                tracing::info!("the cluster is formed");
                return;
            }
            Some(Obstacle::Missing(nodes)) if checks % LOG_EVERY == 0 => {
                tracing::info!(
                    ?nodes,
                    "waiting for a majority of the nodes before the cluster begins; if the data \
                     directories of so many are lost for good, stop all nodes, set aside the directories \
                     of all (setting data_dir), and start them with empty ones"
                );
            }
            Some(Obstacle::Formed(nodes)) if checks % LOG_EVERY == 0 => {
                tracing::warn!(
                    ?nodes,
                    "not forming a cluster: these nodes belong to a cluster already"
                );
            }
            Some(Obstacle::Missing(_) | Obstacle::Formed(_)) => {}
        }
        checks += 1;
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

fn obstacle(settings: &Settings, linked: &[PeerHello]) -> Option<Obstacle> {
    let others = || settings.founders.iter().copied().filter(|node| *node != settings.me);
    let peer = |node: NodeId| linked.iter().find(|peer| peer.node == node);
    let missing: Vec<_> = others().filter(|node| peer(*node).is_none()).collect();
    if missing.len() * 2 >= settings.founders.len() {
        return Some(Obstacle::Missing(missing));
    }
    let is_formed = |node: &NodeId| peer(*node).is_some_and(|peer| peer.cluster.is_some());
    let formed: Vec<_> = others().filter(is_formed).collect();
    (!formed.is_empty()).then_some(Obstacle::Formed(formed))
}

/// The replicas of the founding.
fn replicas(nodes: &BTreeSet<NodeId>) -> BTreeSet<u64> {
    let founder = |node: &NodeId| ReplicaId { node: *node, number: ReplicaNumber(0) };
    nodes.iter().map(founder).map(raft_id).collect()
}

async fn is_initialized(group: &Group) -> Result<bool, StartError> {
    group.raft().is_initialized().await.map_err(|error| failed(group, &error.to_string()))
}

async fn initialize(settings: &Settings, group: &Group) -> Result<(), StartError> {
    match group.raft().initialize(replicas(&settings.founders)).await {
        // Not allowed: the group has a log, from an interrupted founding.
        Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
        Err(error) => Err(failed(group, &error.to_string())),
    }
}

fn failed(group: &Group, reason: &str) -> StartError {
    StartError::Raft { group: group.id(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{BootNumber, ClusterId, Incarnation, MachineVersion};

    fn peer(node: u16, cluster: Option<u64>) -> PeerHello {
        PeerHello {
            node: NodeId(node),
            boot: BootNumber(1),
            incarnation: Incarnation(1),
            cluster: cluster.map(ClusterId),
            machine: MachineVersion::FIRST,
        }
    }

    #[test]
    fn mem_02_the_founder_needs_a_majority_of_which_nobody_belongs_to_a_cluster() {
        let of_three = Settings::new(NodeId(1), (1..=3).map(NodeId));
        let missing = Some(Obstacle::Missing(vec![NodeId(2), NodeId(3)]));
        assert_eq!(obstacle(&of_three, &[]), missing);
        assert_eq!(obstacle(&of_three, &[peer(3, None)]), None);
        let formed = Some(Obstacle::Formed(vec![NodeId(3)]));
        assert_eq!(obstacle(&of_three, &[peer(2, None), peer(3, Some(7))]), formed);
        let of_two = Settings::new(NodeId(1), (1..=2).map(NodeId));
        assert_eq!(obstacle(&of_two, &[]), Some(Obstacle::Missing(vec![NodeId(2)])));
        assert_eq!(obstacle(&Settings::new(NodeId(1), [NodeId(1)]), &[]), None, "one node alone");
        assert!(Settings::new(NodeId(2), (1..=3).map(NodeId)).founders.is_empty());
        // The setting was changed after the nodes had agreed: the charter counts.
        let by_charter = Settings { members: [NodeId(1), NodeId(9)].into(), ..of_three };
        assert_eq!(obstacle(&by_charter, &[peer(3, None)]), None);
        assert_eq!(replicas(&by_charter.founders).len(), 3);
    }
}
