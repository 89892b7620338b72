//! The vocabulary of the catalog group's log.

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

/// One entry of the catalog group's log: commands applied one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CatalogEntry {
    /// What the leader's clock said.
    pub stamp: Stamp,
    /// The commands, in their order.
    pub commands: Vec<CatalogCommand>,
}

/// A change of the catalog. Every command is decided in apply, so that of two that race the first
/// in the log wins; each is harmless when repeated (a proposer that lost its answer sends again).
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogCommand {
    /// Fixes the cluster's shape; only the first one counts.
    Form(ClusterShape),
    /// A process announces its start; its start number is the index of this entry (SES 1). Ends
    /// and fences every earlier start of the node.
    NodeStarted {
        /// Id of the node.
        node: NodeId,
        /// Identity of its data directory; another one than before means that its data was lost.
        incarnation: Incarnation,
        /// Drawn by this process; a repeat of the announcement is known by it.
        boot: BootNumber,
        /// Where the node's rpc port is reached, for lists.
        rpc_address: String,
        /// Where its AMQP port is reached, for lists.
        amqp_address: String,
    },
    /// A node's process up to `start` is known dead: its names are freed, its creations fenced.
    NodeDown {
        /// Id of the node.
        node: NodeId,
        /// Number of the node's start.
        start: StartNumber,
    },
    /// The whole cluster has been stopped: a new life begins (DESIGN §7, Q-11).
    NewLife {
        /// Boot number of the proposing process; a repeat is known by it.
        boot: BootNumber,
    },
    /// Carries out `exchange.declare`.
    DeclareExchange(ExchangeRecord),
    /// Carries out `exchange.delete`.
    DeleteExchange {
        /// Name of the exchange.
        exchange: ResourceName,
        /// Only if it is the source of no binding (EXC-08).
        if_unused: bool,
    },
    /// Carries out `queue.bind`, `exchange.bind`.
    Bind(Binding),
    /// Carries out `queue.unbind`, `exchange.unbind`.
    Unbind(Binding),
    /// Makes a queue's name visible (NAM 2, 8).
    AddQueue(QueueEntry),
    /// Takes a queue's entry and bindings away, by id (NAM 4).
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
    /// What an operator changes about who may do what.
    Access(AccessCommand),
}

impl CatalogCommand {
    /// The object that it is about, as errors name it.
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

/// What became of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogReply {
    /// Done, or already so.
    Done,
    /// Refused; what the client is told.
    Refused(Exception),
    /// The start number given.
    Started(StartNumber),
    /// The name belongs to another queue already.
    NameTaken {
        /// Id of the queue that has the name.
        by: QueueId,
    },
    /// The creator's start is fenced.
    Fenced,
    /// An operator's command was not obeyed.
    Denied(Denial),
}

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
