//! The first message of each stream, which identifies the peer, and the objections to it.

use crate::wire::Hello;
use quorate_types::{BootNumber, ClusterId, Epoch, Incarnation, MachineVersion, NodeId};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Version of the protocol between nodes. Another one is refused.
pub const PROTOCOL_VERSION: u32 = 1;

/// What a peer has sent about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHello {
    /// Id of the node.
    pub node: NodeId,
    /// Boot number of its process: the numbers of one data directory ascend.
    pub boot: BootNumber,
    /// Identity of its data directory.
    pub incarnation: Incarnation,
    /// The cluster that it belongs to; `None` if it does not know it yet.
    pub cluster: Option<ClusterId>,
    /// The newest version of the replicated machine that it knows (MEM 15).
    pub machine: MachineVersion,
}

/// An objection to a hello. Both sides log it; a permanent one is sent to the refused node as a
/// [`Reason`](crate::Reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The protocol version differs.
    #[error("the peer speaks protocol version {theirs}, this node version {PROTOCOL_VERSION}")]
    Protocol {
        /// Protocol version of the peer.
        theirs: u32,
    },
    /// The peer does not know the cluster's machine version.
    #[error(
        "node {node} knows machine versions up to {newest}, and the cluster has version {present}: \
         start a newer quorate there"
    )]
    Machine {
        /// Id of the peer.
        node: NodeId,
        /// The newest version that it knows.
        newest: MachineVersion,
        /// The cluster's present version.
        present: MachineVersion,
    },
    /// The peer belongs to another cluster.
    #[error("the peer belongs to cluster {:016x}, this node to {:016x}", .theirs.0, .ours.0)]
    Cluster {
        /// Cluster id of the peer.
        theirs: ClusterId,
        /// Cluster id of this node.
        ours: ClusterId,
    },
    /// The peer's cluster was given up for lost, and this node belongs to what goes on of it, or the
    /// other way round (MEM 14).
    #[error(
        "node {node} has a data directory of epoch {theirs}, this node one of epoch {ours}: the older \
         one was given up for lost (quorate recover-quorum)"
    )]
    Epoch {
        /// Id of the peer.
        node: NodeId,
        /// Number of its epoch.
        theirs: u16,
        /// Number of this node's epoch.
        ours: u16,
    },
    /// The last resort was used on both nodes, so that each belongs to a cluster of its own (MEM 14).
    #[error(
        "the last resort (quorate recover-quorum) was used on node {0} too: it has another cluster"
    )]
    OtherEpoch(NodeId),
    /// The peer has this node's own id.
    #[error("the peer has the id of this node, {0}")]
    SameNode(NodeId),
    /// The peer is not a node of the cluster.
    #[error("node {0} is not a member of this cluster")]
    Unknown(NodeId),
    /// Another node answers at the address of a node.
    #[error("node {found} answers at the address of node {wanted}")]
    OtherNode {
        /// The node that was dialed.
        wanted: NodeId,
        /// The node that answered.
        found: NodeId,
    },
    /// The node has lost its data: its votes and acknowledgements do not count (DESIGN §8).
    #[error(
        "node {node} has another data directory than before (incarnation {:016x}, not {:016x})",
        .theirs.0, .known.0
    )]
    Incarnation {
        /// Id of the node.
        node: NodeId,
        /// The directory that it names now.
        theirs: Incarnation,
        /// The directory that is known of it.
        known: Incarnation,
    },
    /// The cluster is not formed yet, and the peer's settings name other nodes: the two would form
    /// different clusters.
    #[error("the peer has other cluster members in its settings than this node (setting cluster)")]
    Members,
    /// The node has had a process that its data directory does not know.
    #[error("the peer is a former process of node {0}, or its data directory is an older copy")]
    FormerProcess(NodeId),
    /// The cluster has forgotten the node's data directory (MEM 11).
    #[error("the data directory of node {0} was forgotten by the cluster")]
    Forgotten(NodeId),
    /// The certificate of the peer does not name the host of the node that it claims to be.
    #[error(
        "the certificate of the peer does not name the host of node {0} in setting cluster \
         (setting rpc_tls_certificate_file of that node)"
    )]
    OtherHost(NodeId),
    /// The first message of the stream is not a hello, or did not arrive in time.
    #[error("the peer did not identify itself")]
    NoHello,
}

/// The cluster's identity, which a node does not know before it belongs to a cluster, and its epoch.
/// Shared; set once they are known, the epoch first.
#[derive(Clone, Debug, Default)]
pub struct ClusterCell(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    cluster: AtomicU64,
    epoch: AtomicU64,
}

impl ClusterCell {
    /// A cell for a node that knows its cluster already, or does not yet.
    #[must_use]
    pub fn new(cluster: Option<ClusterId>, epoch: Epoch) -> Self {
        let cell = Self::default();
        cell.set_epoch(epoch);
        if let Some(cluster) = cluster {
            cell.set(cluster);
        }
        cell
    }

    /// Sets the cluster. From now on nodes of other clusters are refused.
    pub fn set(&self, cluster: ClusterId) {
        self.0.cluster.store(cluster.0, Ordering::Release);
    }

    /// Sets the epoch. From now on nodes of the cluster are refused that have another one.
    pub fn set_epoch(&self, epoch: Epoch) {
        self.0.epoch.store(epoch.0, Ordering::Release);
    }

    /// The cluster, if it is known.
    #[must_use]
    pub fn get(&self) -> Option<ClusterId> {
        match self.0.cluster.load(Ordering::Acquire) {
            0 => None,
            known => Some(ClusterId(known)),
        }
    }

    /// The epoch (MEM 14).
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.0.epoch.load(Ordering::Acquire))
    }
}

/// Digest of a list of nodes (FNV-1a), which distinguishes different lists.
pub(crate) fn digest_of(members: &BTreeSet<NodeId>) -> u64 {
    let bytes = members.iter().flat_map(|node| node.0.to_be_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The hello of this node to node `to`.
pub(crate) fn hello(
    me: &PeerHello,
    former_boots: &[BootNumber],
    cluster: &ClusterCell,
    members: u64,
    to: NodeId,
) -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        cluster: cluster.get().unwrap_or_default().0,
        node: u32::from(me.node.0),
        incarnation: me.incarnation.0,
        boot: me.boot.0,
        to: u32::from(to.0),
        members,
        former_boots: former_boots.iter().map(|boot| boot.0).collect(),
        machine_newest: me.machine.0,
        epoch: cluster.epoch().0,
        address: String::new(),
    }
}

/// Checks that do not depend on earlier facts about the peer: versions, cluster, epoch, ids. `machine`
/// is the cluster's present machine version.
pub(crate) fn examine(
    hello: &Hello,
    me: NodeId,
    cell: &ClusterCell,
    members: u64,
    machine: MachineVersion,
) -> Result<PeerHello, Refusal> {
    if hello.protocol != PROTOCOL_VERSION {
        return Err(Refusal::Protocol { theirs: hello.protocol });
    }
    let cluster = cell.get();
    let theirs = (hello.cluster != 0).then_some(ClusterId(hello.cluster));
    if let (Some(theirs), Some(ours)) = (theirs, cluster)
        && theirs != ours
    {
        return Err(Refusal::Cluster { theirs, ours });
    }
    let node = node_id(hello.node)?;
    if node == me {
        return Err(Refusal::SameNode(me));
    }
    let to = node_id(hello.to)?;
    if to != me {
        return Err(Refusal::OtherNode { wanted: to, found: me });
    }
    if theirs.is_some() && theirs == cluster {
        check_epoch(node, Epoch(hello.epoch), cell.epoch())?;
    }
    let newest = MachineVersion(hello.machine_newest).max(MachineVersion::FIRST);
    if newest < machine {
        return Err(Refusal::Machine { node, newest, present: machine });
    }
    // Once a cluster is formed, its log defines its members.
    if (theirs.is_none() || cluster.is_none()) && hello.members != members {
        return Err(Refusal::Members);
    }
    Ok(PeerHello {
        node,
        boot: BootNumber(hello.boot),
        incarnation: Incarnation(hello.incarnation),
        cluster: theirs,
        machine: newest,
    })
}

/// MEM 14: nodes of one cluster work together in one epoch only.
fn check_epoch(node: NodeId, theirs: Epoch, ours: Epoch) -> Result<(), Refusal> {
    if theirs == ours {
        return Ok(());
    }
    let (theirs, ours) = (theirs.number(), ours.number());
    let both = theirs == ours;
    Err(if both { Refusal::OtherEpoch(node) } else { Refusal::Epoch { node, theirs, ours } })
}

/// Whether the peer's release knows epochs (MEM 14).
pub(crate) fn knows_epochs(hello: &Hello) -> bool {
    hello.machine_newest >= MachineVersion::LAST_RESORT.0
}

pub(crate) fn node_id(number: u32) -> Result<NodeId, Refusal> {
    u16::try_from(number).map(NodeId).map_err(|_| Refusal::NoHello)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const FIRST: MachineVersion = MachineVersion::FIRST;

    fn me(node: u16) -> PeerHello {
        PeerHello {
            node: NodeId(node),
            boot: BootNumber(10),
            incarnation: Incarnation(20),
            cluster: None,
            machine: MachineVersion(2),
        }
    }

    /// A cell of cluster 7.
    fn cell(epoch: u64) -> ClusterCell {
        ClusterCell::new(Some(ClusterId(7)), Epoch(epoch))
    }

    #[test]
    fn mem_14_nodes_of_one_cluster_work_together_in_one_epoch_only() {
        let (first, second) = (Epoch::after(Epoch(0), u64::MAX), Epoch::after(Epoch(0), 1 << 20));
        let later = Epoch::after(first, 0);
        assert_eq!((first.number(), second.number(), later.number()), (1, 1, 2));
        let of = |theirs: Epoch, ours: Epoch| {
            let hello = hello(&me(1), &[], &cell(theirs.0), 4, NodeId(2));
            examine(&hello, NodeId(2), &cell(ours.0), 4, FIRST).map(|_| ())
        };
        let refusal = |theirs, ours| Err(Refusal::Epoch { node: NodeId(1), theirs, ours });
        assert_eq!(of(first, first), Ok(()));
        assert_eq!(of(Epoch(0), first), refusal(0, 1));
        assert_eq!(of(first, Epoch(0)), refusal(1, 0));
        assert_eq!(of(first, later), refusal(1, 2));
        assert_eq!(of(first, second), Err(Refusal::OtherEpoch(NodeId(1))), "two survivors");
        // A node that belongs nowhere yet is told the epoch when it joins.
        let joins = hello(&me(1), &[], &ClusterCell::default(), 4, NodeId(2));
        assert!(examine(&joins, NodeId(2), &cell(first.0), 4, FIRST).is_ok());
    }

    #[test]
    fn a_hello_is_examined() {
        let (ours, none) = (cell(0), ClusterCell::default());
        let good = hello(&me(1), &[], &ours, 4, NodeId(2));
        let peer = examine(&good, NodeId(2), &ours, 4, FIRST).unwrap();
        assert_eq!((peer.node, peer.boot, peer.cluster), (NodeId(1), BootNumber(10), ours.get()));
        assert!(
            examine(&good, NodeId(2), &none, 4, FIRST).is_ok(),
            "a node being formed takes any cluster"
        );
        let forming = hello(&me(1), &[], &none, 4, NodeId(2));
        assert!(examine(&forming, NodeId(2), &ours, 4, FIRST).is_ok());
        for (hello, cluster) in [(&good, &none), (&forming, &ours), (&forming, &none)] {
            let refused = examine(hello, NodeId(2), cluster, 5, FIRST);
            assert_eq!(refused, Err(Refusal::Members), "with another list nothing is formed");
        }
        assert!(examine(&good, NodeId(2), &ours, 5, FIRST).is_ok(), "its log has the members");

        let cases = [
            (Hello { protocol: 9, ..good.clone() }, Refusal::Protocol { theirs: 9 }),
            (
                Hello { cluster: 8, ..good.clone() },
                Refusal::Cluster { theirs: ClusterId(8), ours: ClusterId(7) },
            ),
            (Hello { node: 2, ..good.clone() }, Refusal::SameNode(NodeId(2))),
            (
                Hello { to: 3, ..good.clone() },
                Refusal::OtherNode { wanted: NodeId(3), found: NodeId(2) },
            ),
            (Hello { node: 70_000, ..good }, Refusal::NoHello),
        ];
        for (bad, refusal) in cases {
            assert_eq!(examine(&bad, NodeId(2), &ours, 4, FIRST), Err(refusal));
        }
    }

    #[test]
    fn mem_15_a_node_that_does_not_know_the_machine_version_is_refused() {
        let none = ClusterCell::default();
        let hello = hello(&me(1), &[], &none, 4, NodeId(2));
        let of = |hello: &Hello, present| {
            examine(hello, NodeId(2), &none, 4, MachineVersion(present)).map(|peer| peer.machine)
        };
        assert_eq!(of(&hello, 2), Ok(MachineVersion(2)));
        let refusal = |newest, present| {
            let (newest, present) = (MachineVersion(newest), MachineVersion(present));
            Err(Refusal::Machine { node: NodeId(1), newest, present })
        };
        assert_eq!(of(&hello, 3), refusal(2, 3));
        let silent = Hello { machine_newest: 0, ..hello };
        assert_eq!(of(&silent, 1), Ok(MachineVersion::FIRST), "binaries before this rule");
        assert_eq!(of(&silent, 2), refusal(1, 2));
    }

    #[test]
    fn lists_of_nodes_are_told_apart() {
        let digest = |nodes: &[u16]| digest_of(&nodes.iter().map(|node| NodeId(*node)).collect());
        assert_eq!(digest(&[1, 2, 3]), digest(&[3, 1, 2]));
        let lists: [&[u16]; 6] = [&[1], &[1, 2], &[1, 2, 3], &[1, 2, 4], &[1, 2, 3, 4], &[0x0102]];
        let digests: BTreeSet<u64> = lists.into_iter().map(digest).collect();
        assert_eq!(digests.len(), lists.len());
    }
}
