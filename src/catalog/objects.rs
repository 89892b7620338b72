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
    /// Kept, shown and compared only (EXC-11).
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
    /// Where they go, in the same virtual host.
    pub destination: Destination,
    /// Binding key; what it means depends on the type of the exchange.
    pub key: ShortString,
    /// Arguments, as declared.
    pub arguments: FieldTable,
}

impl Binding {
    /// As errors name it.
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

/// Where a binding leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// A queue, by name; refused if the id is not the name's any more.
    Queue {
        /// Name, unique among things of its kind.
        name: ShortString,
        /// Id that the proposer found.
        id: QueueId,
    },
    /// An exchange, by its name.
    Exchange(ShortString),
}

/// A queue's entry in the catalog: what a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Name, with its virtual host.
    pub name: ResourceName,
    /// Id of the queue.
    pub id: QueueId,
    /// The run of the node that created it; refused when fenced (NAM 2).
    pub creator: SessionId,
    /// Type, given or by default (QUE-02).
    pub queue_type: QueueType,
    /// As declared (a durable exclusive one is kept as not durable, QUE-05).
    pub durable: bool,
    /// `auto-delete`: it ends with its last consumer or binding.
    pub auto_delete: bool,
    /// Connection that owns it, of an exclusive queue (EXQ-01).
    pub owner: Option<ConnectionId>,
    /// Arguments as declared.
    pub arguments: FieldTable,
}

/// A client connection: the run of the node it is on, and a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// Run of the node.
    pub session: SessionId,
    /// Count within the run, from 1.
    pub number: u64,
}

/// Settings fixed when the cluster is formed, in the catalog's first entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterShape {
    /// Drawn by the node that forms the cluster; nodes of another cluster are refused.
    pub cluster: ClusterId,
    /// Queue groups, numbered 1 to this.
    pub queue_groups: u16,
}

impl ClusterShape {
    /// All queue groups.
    pub fn groups(self) -> impl Iterator<Item = GroupId> {
        (1..=self.queue_groups).map(GroupId)
    }
}
