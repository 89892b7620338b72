//! What a full control lane has refused, and is said anew when the lane has room.

use super::message::GetId;
use quorate_types::{Home, NodeId};

/// What is to be said when the lane to a node has room again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Untold {
    /// That this node leads the home: the other node re-attaches its consumers there (SES 5, DLV 2).
    Leadership(Home, NodeId),
    /// Which consumers of this node's the leader of the home is to attach (DLV 2).
    Consumers(Home, NodeId),
    /// That what a get took was held for too long (CTO-05).
    GetTimedOut(Home, GetId),
}

impl Untold {
    /// The node that it is said to.
    pub(crate) fn is_for(self) -> NodeId {
        match self {
            Self::Leadership(_, to) | Self::Consumers(_, to) => to,
            Self::GetTimedOut(_, (session, _)) => session.node,
        }
    }
}
