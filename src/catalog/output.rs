//! The output of apply, in three kinds that are never mixed: a reply to each command, the keys of
//! the records that every replica writes, and events to which the broker on every node may react.

use crate::{command::CatalogReply, objects::ClusterShape, record::CatalogKey};
use quorate_types::{
    GroupId, MachineVersion, NodeId, QueueId, ResourceName, ShortString, StartNumber, VhostName,
};

/// The output of one entry. The value is reused for later entries.
#[derive(Debug, Default)]
pub struct CatalogOutput {
    /// One reply to each command, in the order of the commands.
    pub replies: Vec<CatalogReply>,
    /// Keys of the records that have changed or were removed. A checkpoint encodes each record
    /// once, from the state at that time. A key may occur more than once.
    pub changes: Vec<CatalogKey>,
    /// Events, in the order in which they happened.
    pub events: Vec<CatalogEvent>,
}

impl CatalogOutput {
    /// Empties the output and keeps its memory.
    pub fn clear(&mut self) {
        self.replies.clear();
        self.changes.clear();
        self.events.clear();
    }
}

/// An event to which a node's broker reacts. Every replica returns the same events; after a start
/// from records the broker derives them from the state instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogEvent {
    /// The cluster was formed with this shape.
    Formed(ClusterShape),
    /// The replicated machine has a new version (MEM 15).
    MachineRaised(MachineVersion),
    /// A member has come, changed or gone (MEM 1).
    MembersChanged,
    /// A group has a new placement, or has reached the present one (MEM 6, MEM 7).
    PlacementChanged {
        /// The group.
        group: GroupId,
    },
    /// A node has a new start; its earlier starts are fenced.
    NodeStarted {
        /// Id of the node.
        node: NodeId,
        /// Number of the node's start.
        start: StartNumber,
        /// The node came back with another data directory than before (DESIGN §8).
        data_lost: bool,
    },
    /// A node's starts up to this one are fenced, and it has no later start.
    NodeDowned {
        /// Id of the node.
        node: NodeId,
        /// Highest start fenced.
        start: StartNumber,
    },
    /// A new life of the cluster has begun.
    LifeBegan {
        /// Number of the cluster's life.
        life: u64,
    },
    /// A queue's entry was removed, with its bindings.
    QueueRemoved {
        /// Id of the queue.
        id: QueueId,
        /// The name that is free again.
        name: ResourceName,
    },
    /// A delayed exchange and its queue's entry were removed: the queue ends in its group (EXC-17).
    DelayQueueRemoved {
        /// Id of the queue.
        queue: QueueId,
    },
    /// A virtual host was removed with everything in it: its connections are closed (CONN-33), and
    /// these queues end in their groups (NAM 4).
    VhostDeleted {
        /// Name of the virtual host.
        vhost: VhostName,
        /// Queues of the virtual host.
        queues: Vec<QueueId>,
    },
    /// A user was removed: its connections are closed (CONN-33).
    UserDeleted {
        /// Name of the user.
        user: ShortString,
    },
    /// Policies, or a parameter that queue settings depend on, have changed: the settings of queues
    /// may change (DESIGN §7).
    PoliciesChanged,
}
