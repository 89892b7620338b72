//! The kinds of messages between the groups of two nodes.

use openraft::RPCTypes;

/// A kind of message between the groups of two nodes. The numbers are the services of the links;
/// those up to [`SERVICE_MAX`] are this floor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Append,
    Heartbeat,
    Vote,
    PreVote,
    Transfer,
    Snapshot,
    ReadIndex,
    Ready,
    Positions,
    Leaving,
    Follows,
    Reach,
    Lost,
}

/// Services up to this number belong to this crate; the crates above use later numbers.
pub const SERVICE_MAX: u32 = 31;

impl Service {
    const ALL: [Service; 13] = [
        Service::Append,
        Service::Heartbeat,
        Service::Vote,
        Service::PreVote,
        Service::Transfer,
        Service::Snapshot,
        Service::ReadIndex,
        Service::Ready,
        Service::Positions,
        Service::Leaving,
        Service::Follows,
        Service::Reach,
        Service::Lost,
    ];

    pub(crate) fn number(self) -> u32 {
        match self {
            Service::Append => 1,
            Service::Heartbeat => 2,
            Service::Vote => 3,
            Service::PreVote => 4,
            Service::Transfer => 5,
            Service::Snapshot => 6,
            Service::ReadIndex => 7,
            Service::Ready => 8,
            Service::Positions => 9,
            Service::Leaving => 10,
            Service::Follows => 11,
            Service::Reach => 12,
            Service::Lost => 13,
        }
    }

    pub(crate) fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.number() == number)
    }

    /// Whether a request names the replica that it is for, rather than a node (MEM 5).
    pub(crate) fn names_replica(self) -> bool {
        match self {
            Service::Append
            | Service::Heartbeat
            | Service::Vote
            | Service::PreVote
            | Service::Transfer
            | Service::Snapshot
            | Service::Follows
            | Service::Lost => true,
            Service::ReadIndex
            | Service::Ready
            | Service::Positions
            | Service::Leaving
            | Service::Reach => false,
        }
    }

    /// openraft's name for the kind.
    pub(crate) fn rpc_type(self) -> RPCTypes {
        match self {
            Service::Append | Service::Heartbeat => RPCTypes::AppendEntries,
            Service::Vote | Service::PreVote | Service::Positions => RPCTypes::Vote,
            Service::Snapshot => RPCTypes::InstallSnapshot,
            Service::Transfer
            | Service::ReadIndex
            | Service::Ready
            | Service::Leaving
            | Service::Follows
            | Service::Reach
            | Service::Lost => RPCTypes::TransferLeader,
        }
    }
}
