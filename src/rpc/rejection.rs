//! A refusal as it is sent to the refused node: typed, beside the text of the gRPC status.
//!
//! Which of two nodes is wrong depends on whether the refusing node is a member (`admission`). So
//! the detail of the status also says whether a majority has admitted its sender.

use crate::{hello::Refusal, wire};
use prost::Message;
use quorate_types::NodeId;
use std::fmt;
use tonic::{Code, Status};

/// Why the others do not admit a node, until its settings or its data are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Reason {
    /// It has another cluster secret.
    #[error("its cluster secret differs from theirs (setting cluster_secret_file)")]
    Secret,
    /// Its data belong to another cluster.
    #[error("its data directory belongs to another cluster (setting data_dir)")]
    Cluster,
    /// Its id is in use with another data directory. The node itself may have lost its data: such a
    /// node must not vote as if it had them (DESIGN §8).
    #[error(
        "its id is already in use with another data directory \
         (setting node_id or data_dir), or the node has lost its data"
    )]
    Incarnation,
    /// The node has had a process that its data directory does not know.
    #[error(
        "its data directory lacks the last start of the node: the directory is an older copy, or a \
         copy of it is in use elsewhere (setting data_dir)"
    )]
    FormerProcess,
    /// The cluster has forgotten its data directory (MEM 11).
    #[error(
        "its data directory was forgotten by the cluster: set the directory aside (setting \
         data_dir), and the node can join anew with an empty one"
    )]
    Forgotten,
    /// The last resort was used on its cluster, which goes on without it (MEM 14).
    #[error(
        "its data directory is of an older epoch: the cluster was given up for lost, and goes on from the \
         data of another node (quorate recover-quorum); set the directory aside (setting data_dir), \
         and the node can join anew with an empty one"
    )]
    Epoch,
}

impl Reason {
    /// True if one member that says so is enough: the reason is a committed fact (MEM 11), or an operator
    /// has decided it (MEM 14).
    pub(crate) fn is_proven(self) -> bool {
        match self {
            Self::Forgotten | Self::Epoch => true,
            Self::Secret | Self::Cluster | Self::Incarnation | Self::FormerProcess => false,
        }
    }

    /// The permanent reason of a refusal; `None` for a refusal that may pass.
    fn of(refusal: &Refusal) -> Option<Self> {
        match refusal {
            Refusal::Cluster { .. } => Some(Self::Cluster),
            Refusal::Incarnation { .. } => Some(Self::Incarnation),
            Refusal::FormerProcess(_) => Some(Self::FormerProcess),
            Refusal::Forgotten(_) => Some(Self::Forgotten),
            Refusal::Epoch { theirs, ours, .. } => (theirs < ours).then_some(Self::Epoch),
            // Settings and versions differ while a cluster is being changed node by node.
            Refusal::Protocol { .. }
            | Refusal::Machine { .. }
            | Refusal::SameNode(_)
            | Refusal::Unknown(_)
            | Refusal::OtherNode { .. }
            | Refusal::Members
            | Refusal::OtherHost(_)
            | Refusal::NoHello => None,
            // Both go on: which of the two is to be set aside, an operator decides (MEM 14).
            Refusal::OtherEpoch(_) => None,
        }
    }

    fn to_wire(self) -> wire::rejection::Reason {
        match self {
            Self::Secret => wire::rejection::Reason::Secret,
            Self::Cluster => wire::rejection::Reason::Cluster,
            Self::Incarnation => wire::rejection::Reason::Incarnation,
            Self::FormerProcess => wire::rejection::Reason::FormerProcess,
            Self::Forgotten => wire::rejection::Reason::Forgotten,
            Self::Epoch => wire::rejection::Reason::Epoch,
        }
    }

    fn of_wire(reason: wire::rejection::Reason) -> Option<Self> {
        match reason {
            wire::rejection::Reason::Unspecified => None,
            wire::rejection::Reason::Secret => Some(Self::Secret),
            wire::rejection::Reason::Cluster => Some(Self::Cluster),
            wire::rejection::Reason::Incarnation => Some(Self::Incarnation),
            wire::rejection::Reason::FormerProcess => Some(Self::FormerProcess),
            wire::rejection::Reason::Forgotten => Some(Self::Forgotten),
            wire::rejection::Reason::Epoch => Some(Self::Epoch),
        }
    }
}

/// A permanent rejection of this node by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: Reason,
    /// A majority has admitted the rejecting node.
    pub(crate) admitted: bool,
}

/// The status that ends a refused stream.
pub(crate) fn status(refusal: &Refusal, admitted: bool) -> Status {
    let code = match refusal {
        Refusal::Protocol { .. }
        | Refusal::Machine { .. }
        | Refusal::Cluster { .. }
        | Refusal::SameNode(_)
        | Refusal::Unknown(_)
        | Refusal::OtherNode { .. }
        | Refusal::Incarnation { .. }
        | Refusal::FormerProcess(_)
        | Refusal::Forgotten(_)
        | Refusal::Epoch { .. }
        | Refusal::OtherEpoch(_)
        | Refusal::Members
        | Refusal::OtherHost(_)
        | Refusal::NoHello => Code::FailedPrecondition,
    };
    let Some(reason) = Reason::of(refusal) else { return Status::new(code, refusal.to_string()) };
    let rejection = wire::Rejection { reason: reason.to_wire() as i32, admitted };
    Status::with_details(code, refusal.to_string(), rejection.encode_to_vec().into())
}

/// The permanent rejection in a status, if there is one. The sender may be something else than a
/// node.
pub(crate) fn rejection(status: &Status) -> Option<Rejection> {
    let wire = wire::Rejection::decode(status.details()).ok()?;
    let reason = Reason::of_wire(wire.reason())?;
    Some(Rejection { reason, admitted: wire.admitted })
}

/// This node does not belong to the cluster: the others reject it for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Id of this node.
    pub me: NodeId,
    /// The nodes that reject it; none if its own data say so.
    pub by: Vec<NodeId>,
    /// Why the node was rejected.
    pub reason: Reason,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by: Vec<String> = self.by.iter().map(ToString::to_string).collect();
        let by = match by.as_slice() {
            [] => "its cluster".to_owned(),
            [one] => format!("node {one}"),
            several => format!("nodes {}", several.join(", ")),
        };
        write!(f, "node {} is rejected by {by}: {}", self.me, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::ClusterId;

    #[test]
    fn a_refusal_for_good_travels_typed() {
        let cluster = Refusal::Cluster { theirs: ClusterId(1), ours: ClusterId(2) };
        for (refusal, reason) in [
            (cluster, Reason::Cluster),
            (Refusal::FormerProcess(NodeId(2)), Reason::FormerProcess),
            (Refusal::Forgotten(NodeId(2)), Reason::Forgotten),
            (Refusal::Epoch { node: NodeId(2), theirs: 0, ours: 1 }, Reason::Epoch),
        ] {
            for admitted in [false, true] {
                let said = rejection(&status(&refusal, admitted));
                assert_eq!(said, Some(Rejection { reason, admitted }));
            }
        }
        assert_eq!(rejection(&status(&Refusal::NoHello, true)), None, "it may pass");
        let other = Refusal::OtherEpoch(NodeId(2));
        assert_eq!(rejection(&status(&other, true)), None, "neither is the wrong one");
        let older = Refusal::Epoch { node: NodeId(2), theirs: 2, ours: 1 };
        assert_eq!(rejection(&status(&older, true)), None, "the refusing node is the wrong one");
        assert_eq!(rejection(&Status::unauthenticated("the cluster secret")), None, "no node");
        let later = wire::Rejection { reason: 99, admitted: true }.encode_to_vec();
        let later = Status::with_details(Code::FailedPrecondition, "", later.into());
        assert_eq!(rejection(&later), None, "a reason of a later version");
    }

    #[test]
    fn a_rejection_is_one_clear_line() {
        let by = vec![NodeId(1), NodeId(3)];
        let rejected = Rejected { me: NodeId(2), by, reason: Reason::Cluster };
        assert_eq!(
            rejected.to_string(),
            "node 2 is rejected by nodes 1, 3: its data directory belongs to another cluster \
             (setting data_dir)"
        );
    }
}
