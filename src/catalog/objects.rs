//! The objects that the catalog's commands name: exchanges, bindings, entries of queues, and the
//! cluster's shape.

use quorate_types::{
    ClusterId, FieldTable, GroupId, QueueId, QueueType, ResourceName, SessionId, ShortString,
};

/// An exchange, as it was declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeRecord {
    /// Name, with its virtual host.
    pub name: ResourceName,
    /// Type of the exchange.
    pub kind: ExchangeType,
    /// Has no effect; stored, shown and compared (EXC-11).
    pub durable: bool,
    /// Removed with its last binding as a source (EXC-09).
    pub auto_delete: bool,
    /// Clients may not publish to it (EXC-10).
    pub internal: bool,
    /// Arguments as declared.
    pub arguments: FieldTable,
}

/// Exchange types (RTE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are the protocol's own")]
pub enum ExchangeType {
    Direct,
    Fanout,
    Topic,
    Headers,
    ConsistentHash,
    ModulusHash,
    Random,
    LocalRandom,
    Delayed,
}

/// A binding; its four parts are its identity (BND-03).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Exchange that messages come from.
    pub source: ResourceName,
    /// Destination, in the same virtual host.
    pub destination: Destination,
    /// Binding key; its meaning depends on the type of the exchange.
    pub key: ShortString,
    /// Arguments, as declared.
    pub arguments: FieldTable,
}

impl Binding {
    /// The object, as errors name it.
    #[must_use]
    pub fn object(&self) -> String {
        let (kind, to) = match &self.destination {
            Destination::Queue { name, .. } => ("queue", name),
            Destination::Exchange(name) => ("exchange", name),
        };
        let ResourceName { vhost, name } = &self.source;
        format!("binding from '{name}' to {kind} '{to}' in vhost '{vhost}'")
    }
}

/// The destination of a binding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// A queue, by name; refused if the name belongs to another id by then.
    Queue {
        /// Name of the queue.
        name: ShortString,
        /// Id that the proposer found under the name.
        id: QueueId,
    },
    /// An exchange, by its name.
    Exchange(ShortString),
}

/// A queue's entry in the catalog: the id, type and properties behind a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Name, with its virtual host.
    pub name: ResourceName,
    /// Id of the queue.
    pub id: QueueId,
    /// The start of the node that created the queue; the entry is refused if that start is fenced
    /// (NAM 2).
    pub creator: SessionId,
    /// Type, as declared or by default (QUE-02).
    pub queue_type: QueueType,
    /// As declared (a durable exclusive queue is stored as not durable, QUE-05).
    pub durable: bool,
    /// `auto-delete`: it ends with its last consumer or binding.
    pub auto_delete: bool,
    /// Connection that owns it, of an exclusive queue (EXQ-01).
    pub owner: Option<ConnectionId>,
    /// Arguments as declared.
    pub arguments: FieldTable,
}

/// A client connection: the start of the node that it is on, and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// The node and its start.
    pub session: SessionId,
    /// Number within the start, from 1.
    pub number: u64,
}

/// Settings fixed when the cluster is formed, in the catalog's first entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterShape {
    /// Drawn by the node that forms the cluster; nodes of another cluster are refused.
    pub cluster: ClusterId,
    /// Number of queue groups; their numbers start at 1.
    pub queue_groups: u16,
}

impl ClusterShape {
    /// All queue groups.
    pub fn groups(self) -> impl Iterator<Item = GroupId> {
        (1..=self.queue_groups).map(GroupId)
    }
}
