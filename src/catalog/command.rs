//! The commands of the catalog group's log.

use crate::{
    access_command::AccessCommand,
    denial::Denial,
    parameter::{ParameterName, ParameterRecord},
    policy::{PolicyName, PolicyRecord},
};
use quorate_types::{
    BootNumber, ClusterId, Exception, FieldTable, GroupId, Incarnation, NodeId, QueueId, QueueType,
    ResourceName, SessionId, ShortString, Stamp, StartNumber,
};

/// One entry of the catalog group's log: commands that are applied one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CatalogEntry {
    /// Time by the leader's clock.
    pub stamp: Stamp,
    /// The commands, in their order.
    pub commands: Vec<CatalogCommand>,
}

/// A change of the catalog. Every command is decided in apply: of two that race, the first in the
/// log wins. A repeat of each is harmless (a proposer that lost the answer sends again).
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogCommand {
    /// Fixes the cluster's shape; only the first such command has an effect.
    Form(ClusterShape),
    /// A process announces its start; its start number is the index of this entry (SES 1). Ends
    /// and fences every earlier start of the node.
    NodeStarted {
        /// Id of the node.
        node: NodeId,
        /// Identity of the node's data directory; a change means that its data was lost.
        incarnation: Incarnation,
        /// Drawn by this process; identifies a repeat of the announcement.
        boot: BootNumber,
        /// Address of the node's rpc port, shown in lists.
        rpc_address: String,
        /// Address of the node's AMQP port, shown in lists.
        amqp_address: String,
    },
    /// The node's processes up to `start` are known to be dead: their names are freed, and the
    /// queues that they still add are refused.
    NodeDown {
        /// Id of the node.
        node: NodeId,
        /// Number of the node's start.
        start: StartNumber,
    },
    /// The whole cluster has been stopped: a new life begins (DESIGN §7, Q-11).
    NewLife {
        /// Boot number of the proposing process; identifies a repeat.
        boot: BootNumber,
    },
    /// Carries out `exchange.declare`.
    DeclareExchange(ExchangeRecord),
    /// Carries out `exchange.delete`.
    DeleteExchange {
        /// Name of the exchange.
        exchange: ResourceName,
        /// Only if no binding has the exchange as its source (EXC-08).
        if_unused: bool,
    },
    /// Carries out `queue.bind`, `exchange.bind`.
    Bind(Binding),
    /// Carries out `queue.unbind`, `exchange.unbind`.
    Unbind(Binding),
    /// Makes a queue's name visible (NAM 2, 8).
    AddQueue(QueueEntry),
    /// Removes a queue's entry and bindings, by id (NAM 4).
    RemoveQueue {
        /// Id of the queue.
        queue: QueueId,
    },
    /// Sets a policy, or replaces the one of that name.
    SetPolicy(PolicyRecord),
    /// Clears a policy.
    ClearPolicy(PolicyName),
    /// Sets a runtime parameter, or replaces the one of that name.
    SetParameter(ParameterRecord),
    /// Clears a runtime parameter.
    ClearParameter(ParameterName),
    /// A command of an operator that changes users, virtual hosts, permissions or limits.
    Access(AccessCommand),
}

impl CatalogCommand {
    /// The object that the command changes, as errors name it.
    #[must_use]
    pub fn object(&self) -> String {
        match self {
            Self::Form(_) | Self::NewLife { .. } => "the cluster".to_owned(),
            Self::NodeStarted { node, .. } | Self::NodeDown { node, .. } => format!("node {node}"),
            Self::DeclareExchange(ExchangeRecord { name, .. })
            | Self::DeleteExchange { exchange: name, .. } => format!("exchange {name}"),
            Self::Bind(binding) | Self::Unbind(binding) => binding.object(),
            Self::AddQueue(entry) => format!("queue {}", entry.name),
            Self::RemoveQueue { queue } => format!("queue {queue}"),
            Self::SetPolicy(PolicyRecord { name, vhost, .. })
            | Self::ClearPolicy(PolicyName { name, vhost, .. }) => {
                format!("policy '{name}' in vhost '{vhost}'")
            }
            Self::SetParameter(ParameterRecord { name, .. }) | Self::ClearParameter(name) => {
                let (ParameterName::Global(name) | ParameterName::Vhost { name, .. }) = name;
                format!("parameter '{name}'")
            }
            Self::Access(command) => format!("{command:?}"),
        }
    }
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

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogReply {
    /// The command was carried out, or its effect was there already.
    Done,
    /// The command was refused; the exception is sent to the client.
    Refused(Exception),
    /// The start number that the process was given.
    Started(StartNumber),
    /// The name belongs to another queue already.
    NameTaken {
        /// Id of the queue that has the name.
        by: QueueId,
    },
    /// The start that created the queue is fenced.
    Fenced,
    /// An operator's command was refused.
    Denied(Denial),
}

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
