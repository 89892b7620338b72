//! Why an operator's command was refused (CTL-12, CTL-13).

use crate::{member::MemberState, task::TaskState};
use quorate_types::{GroupId, MachineVersion, NodeId, ShortString, TaskId, VhostName};

/// Why a change of users, virtual hosts, permissions, limits, members or tasks was refused. Nothing
/// has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The user does not exist.
    #[error("User {0} does not exist")]
    NoSuchUser(ShortString),
    /// The user exists already.
    #[error("User \"{0}\" already exists")]
    UserExists(ShortString),
    /// The virtual host does not exist.
    #[error("Virtual host '{0}' does not exist")]
    NoSuchVhost(VhostName),
    /// The virtual host is protected from deletion.
    #[error("Refusing to delete virtual host '{0}' because it is protected from deletion")]
    VhostProtected(VhostName),
    /// Not all nodes know the protection of virtual hosts yet (MEM 15).
    #[error(
        "the cluster's machine version is {machine}: virtual hosts can be protected from version {} \
         on, which it gets when all nodes run a release that knows that version",
        MachineVersion::RETRIES
    )]
    ProtectionTooEarly {
        /// The present version.
        machine: MachineVersion,
    },
    /// The regular expression is invalid.
    #[error("invalid regular expression '{pattern}': {reason} at {at}")]
    InvalidPattern {
        /// The regular expression, as it was given.
        pattern: String,
        /// The parser's error.
        reason: String,
        /// Position of the error, in bytes from the beginning.
        at: u32,
    },
    /// More tags than a user may have.
    #[error("A user can have at most {most} tags (received {received})")]
    TooManyTags {
        /// Number of tags that is allowed.
        most: u32,
        /// Number of tags in the request.
        received: u32,
    },
    /// A change of members or placements.
    #[error(transparent)]
    Member(#[from] MemberDenial),
    /// A change of tasks.
    #[error(transparent)]
    Task(#[from] TaskDenial),
}

/// Why a change of tasks was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskDenial {
    /// The cluster's machine does not know tasks yet (MEM 15).
    #[error(
        "the cluster's machine version is {machine}: messages can be put back, moved and deleted by \
         tasks from version {} on, which it gets when all nodes run a release that knows that version",
        MachineVersion::RETRIES
    )]
    TooEarly {
        /// The present version.
        machine: MachineVersion,
    },
    /// The task does not exist, or ended long ago.
    #[error("there is no task {task}")]
    NoTask {
        /// The id.
        task: TaskId,
    },
    /// The task has ended.
    #[error("task {task} has ended: it is {state}")]
    Ended {
        /// The id.
        task: TaskId,
        /// How it ended.
        state: TaskState,
    },
    /// The queue has ended.
    #[error("the queue does not exist any more")]
    NoQueue,
    /// Too many tasks have not ended.
    #[error("there are {most} tasks that have not ended: wait, or cancel some")]
    TooMany {
        /// The bound.
        most: u32,
    },
    /// Too many tasks of the queue have not ended.
    #[error("the queue has {most} tasks that have not ended: wait, or cancel some")]
    TooManyOfQueue {
        /// The bound.
        most: u32,
    },
    /// Too many tasks of the virtual host have not ended.
    #[error("the virtual host has {most} tasks that have not ended: wait, or cancel some")]
    TooManyOfVhost {
        /// The bound.
        most: u32,
    },
    /// The filter has too many parts or bytes.
    #[error("the filter has too many parts, or more than 8 KiB")]
    Filter,
}

/// Why a change of members or placements was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberDenial {
    /// The catalog has no members yet (MEM 15).
    #[error(
        "the cluster's machine version is {machine}: its members can be changed from version {} on, \
         which it gets when all nodes run a release that knows that version",
        MachineVersion::MEMBERS
    )]
    TooEarly {
        /// The present version.
        machine: MachineVersion,
    },
    /// The directory was forgotten (MEM 11).
    #[error(
        "this directory of node {node} was forgotten and never comes back: set it aside, and the \
         node can join anew with an empty one"
    )]
    Forgotten {
        /// The node that the directory served.
        node: NodeId,
    },
    /// The node id belongs to another directory (MEM 1).
    #[error(
        "node id {node} belongs to another data directory, and that node is {state}: forget it and wait \
         until it is gone (quorate ctl forget_cluster_node), or replace it (quorate ctl \
         replace_cluster_node)"
    )]
    IdTaken {
        /// Id of the node.
        node: NodeId,
        /// State of the member that has the id.
        state: MemberState,
    },
    /// The directory serves another node (MEM 1).
    #[error("node {node} cannot join: its data directory is that of node {by}")]
    DirectoryTaken {
        /// Id of the node that would join.
        node: NodeId,
        /// Id of the node that the directory serves.
        by: NodeId,
    },
    /// The node is not a member (MEM 1).
    #[error("node {node} is not a member of the cluster")]
    NoMember {
        /// Id of the node.
        node: NodeId,
    },
    /// The node is in another state than the command is for.
    #[error("node {node} is {state}; this can be done only with a node that is {wanted}")]
    State {
        /// Id of the node.
        node: NodeId,
        /// Its state.
        state: MemberState,
        /// The state in which the command has an effect.
        wanted: MemberState,
    },
    /// No other member would be left (MEM 11).
    #[error("node {node} is the last member of the cluster")]
    LastMember {
        /// Id of the node.
        node: NodeId,
    },
    /// A group would be left without a majority (MEM 10, MEM 11).
    #[error(
        "without the present directory of node {node}, group {group} has no majority of replicas \
         with their disks: wait until its replicas are placed on other nodes"
    )]
    NoMajority {
        /// Id of the node.
        node: NodeId,
        /// The first such group.
        group: GroupId,
    },
    /// The node has replicas that others depend on (MEM 11).
    #[error("node {node} is leaving, and group {group} may still need its replica there")]
    StillPlaced {
        /// Id of the node.
        node: NodeId,
        /// The first such group.
        group: GroupId,
    },
    /// The group does not exist.
    #[error("there is no group {group}")]
    NoGroup {
        /// Number of the group.
        group: GroupId,
    },
    /// The command is about another placement than the present one (MEM 6, MEM 7).
    #[error("the present placement of group {group} is number {present}; this was about {number}")]
    OtherPlacement {
        /// The group.
        group: GroupId,
        /// Number of the present placement.
        present: u64,
        /// The number that the command gives.
        number: u64,
    },
    /// A group has at least one replica, and the catalog's at most five that vote (MEM 12).
    #[error("group {group} cannot have {count} voters")]
    Count {
        /// The group.
        group: GroupId,
        /// Number of voters that it should have.
        count: u64,
    },
    /// At most two groups move at once (MEM 6).
    #[error("the replicas of group {group} cannot move while those of two other groups move")]
    OthersMove {
        /// The group.
        group: GroupId,
    },
}
