//! The vocabulary of the catalog group's log.

use crate::{
    access_command::AccessCommand,
    denial::Denial,
    objects::{Binding, ClusterShape, ExchangeRecord, QueueEntry},
    parameter::{ParameterName, ParameterRecord},
    policy::{PolicyName, PolicyRecord},
};
use quorate_types::{
    BootNumber, Exception, Incarnation, NodeId, QueueId, ResourceName, Stamp, StartNumber,
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
