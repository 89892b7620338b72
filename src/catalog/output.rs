//! What an apply hands out, in kinds that are never mixed: a reply to each command, the names of
//! the records that every replica writes, and what the broker on every node may have to react to.

use crate::{command::CatalogReply, objects::ClusterShape, record::CatalogKey};
use quorate_types::{NodeId, QueueId, ResourceName, ShortString, StartNumber, VhostName};

/// Everything that applying one entry hands out. Reused from entry to entry.
#[derive(Debug, Default)]
pub struct CatalogOutput {
    /// One reply to each command, in their order.
    pub replies: Vec<CatalogReply>,
    /// Records that have changed, or are no more. They are named, not given: a checkpoint encodes
    /// each once, from the state as it then is. One may be named more than once.
    pub changes: Vec<CatalogKey>,
    /// What has happened.
    pub events: Vec<CatalogEvent>,
}

impl CatalogOutput {
    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.replies.clear();
        self.changes.clear();
        self.events.clear();
    }
}

/// Something that a node's broker reacts to. Every replica hands out the same ones; after a start
/// from records they are derived from the state instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogEvent {
    /// The cluster has its shape.
    Formed(ClusterShape),
    /// A node has a new start; its earlier ones are fenced.
    NodeStarted {
        /// Id of the node.
        node: NodeId,
        /// Number of the node's start.
        start: StartNumber,
        /// It came back with another data directory than before (DESIGN §8).
        data_lost: bool,
    },
    /// A node's starts up to this one are fenced, and none has followed.
    NodeDowned {
        /// Id of the node.
        node: NodeId,
        /// Highest start fenced.
        start: StartNumber,
    },
    /// A new life of the cluster.
    LifeBegan {
        /// Number of the cluster's life.
        life: u64,
    },
    /// A queue's entry is gone, with its bindings.
    QueueRemoved {
        /// Id of the queue.
        id: QueueId,
        /// The name that is free again.
        name: ResourceName,
    },
    /// A delayed exchange is gone, and its queue's entry: the queue ends in its group (EXC-17).
    DelayQueueRemoved {
        /// Id of the queue.
        queue: QueueId,
    },
    /// A virtual host is gone with everything in it: its connections are closed (CONN-33), and
    /// these queues end in their groups (NAM 4).
    VhostDeleted {
        /// Name of the virtual host.
        vhost: VhostName,
        /// Queues that it had.
        queues: Vec<QueueId>,
    },
    /// A user is gone: its connections are closed (CONN-33).
    UserDeleted {
        /// Name of the user.
        user: ShortString,
    },
    /// Policies, or a parameter that settings follow, have changed: the settings of queues may be other ones (DESIGN §7).
    PoliciesChanged,
}
