//! What lists show of the cluster: its members, and which of them replicate which group.

use quorate_catalog::MemberState;
use quorate_types::{ClusterId, GroupId, MachineVersion, NodeId};

/// A member of the cluster, as this node knows it (MEM 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The id of the member.
    pub id: NodeId,
    /// What it is to the cluster; before machine version 2 each node is a member.
    pub state: MemberState,
    /// Name of its zone; empty: a zone of its own.
    pub zone: String,
    /// Where its rpc port is reached, HOST:PORT.
    pub rpc_address: String,
    /// Where its AMQP port is reached, HOST:PORT; empty while unknown.
    pub amqp_address: String,
    /// The member can be reached now; always true for this node itself.
    pub running: bool,
    /// Number of groups whose placement names it.
    pub replicas: u64,
    /// Number of groups that it leads, as far as this node knows.
    pub leads: u64,
}

/// The nodes that shall replicate a group; of the catalog's group, those that vote (MEM 1, MEM 12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementView {
    /// The group.
    pub group: GroupId,
    /// The nodes, in ascending order.
    pub nodes: Vec<NodeId>,
    /// Whether the group has a leader at work, as far as this node knows. The last leader that it knows is
    /// none if this node does not reach it, or too few of the group's other nodes.
    pub is_led: bool,
    /// The nodes of the placement that was reached last, while the group moves; else none.
    pub former: Vec<NodeId>,
    /// Nodes whose replicas of the group are lost or shall go; they count for no majority.
    pub lost: Vec<NodeId>,
    /// The nodes of later placements that were superseded before they were reached: the group may still
    /// need a majority of each.
    pub superseded: Vec<Vec<NodeId>>,
}

/// The cluster, as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    /// Id of the cluster; `None` until the cluster has been formed.
    pub cluster: Option<ClusterId>,
    /// Node that leads the catalog group.
    pub catalog_leader: Option<NodeId>,
    /// Members, by id.
    pub members: Vec<MemberView>,
    /// Version of the replicated machine (MEM 15).
    pub machine: MachineVersion,
    /// The placement of each group, by group; none until the cluster has been formed.
    pub placement: Vec<PlacementView>,
}
