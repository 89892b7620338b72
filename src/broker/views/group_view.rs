//! The replicas of this node and their groups, as lists and metrics show them.

use quorate_types::{GroupId, LogIndex, NodeId, Term};

/// What a replica is in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Raft's own")]
pub enum Role {
    Leader,
    Follower,
    Candidate,
    Learner,
}

/// One replica of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// The group of the replica.
    pub group: GroupId,
    /// The replica's role in the group.
    pub role: Role,
    /// The group's leader, as far as this node knows.
    pub leader: Option<NodeId>,
    /// The Raft term of the replica.
    pub term: Term,
    /// Index of the last entry in the log.
    pub last: LogIndex,
    /// Index of the last entry applied.
    pub applied: LogIndex,
    /// Index of the last entry purged from the log.
    pub purged: LogIndex,
    /// Bytes of the log on disk.
    pub log_bytes: u64,
    /// Number of entries that this node has proposed and applied as the leader.
    pub rounds: u64,
    /// Sum of the times from the proposal of these entries until they were applied, microseconds.
    pub rounds_us: u64,
}

/// How far a follower of a leader on this node is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerLag {
    /// The group that this node leads.
    pub group: GroupId,
    /// The follower's node.
    pub follower: NodeId,
    /// Entries of the leader that the follower has not acknowledged.
    pub entries: u64,
}
