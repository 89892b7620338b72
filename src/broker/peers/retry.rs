//! What a full control lane has refused, and is sent again when the lane has room.
//!
//! Gaps in delivery numbers are accepted, so a later delivery would hide one that a full lane
//! refused (DLV 2). So the leader sends a node that missed deliveries no more of them until its
//! consumers have re-attached, and announces itself to that node when the lane has room. A
//! re-attachment that the lane refused is sent again. What a lost connection has taken with it needs
//! no retry: it is made up for when the next connection begins.

use super::message::GetId;
use quorate_types::{Home, NodeId};

/// What is sent to a node when the lane to it has room again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Retry {
    /// That this node leads the home: the other node re-attaches its consumers there (SES 5, DLV 2).
    Leadership(Home, NodeId),
    /// Which consumers of this node's the leader of the home is to attach (DLV 2).
    Consumers(Home, NodeId),
    /// That what a get took was held for too long (CTO-05).
    GetTimedOut(Home, GetId),
}

impl Retry {
    /// The node that it is sent to.
    pub(crate) fn to(self) -> NodeId {
        match self {
            Self::Leadership(_, to) | Self::Consumers(_, to) => to,
            Self::GetTimedOut(_, (session, _)) => session.node,
        }
    }
}
