//! The commands of the catalog group's log.

use crate::{
    access_command::AccessCommand,
    denial::Denial,
    member_command::MemberCommand,
    objects::{Binding, ClusterShape, ExchangeRecord, QueueEntry},
    parameter::{ParameterName, ParameterRecord},
    policy::{PolicyName, PolicyRecord},
    policy_definition::PolicyKey,
    task::TaskCommand,
};
use quorate_types::{
    BootNumber, Exception, Incarnation, MachineVersion, NodeId, QueueId, ResourceName, Stamp,
    StartNumber,
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
    /// Raises the version of the replicated machine to this one, if it is the next (MEM 15). Binaries
    /// that know the first version only do not know this command.
    RaiseMachine(MachineVersion),
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
    /// A change of members or placements (MEM). Proposed only from machine version 2 on: binaries that
    /// know the first version only cannot read it.
    Members(MemberCommand),
    /// A change of tasks. Proposed only from machine version 3 on, like those of members.
    Tasks(TaskCommand),
}

impl CatalogCommand {
    /// The first version of the machine that knows the command (MEM 15). It is not proposed before.
    #[must_use]
    pub fn since(&self) -> MachineVersion {
        if matches!(self, Self::Tasks(_)) {
            return MachineVersion::RETRIES;
        }
        if let Self::SetPolicy(PolicyRecord { definition, .. }) = self
            && definition.integer(PolicyKey::DelayedRetryMultiplier).is_some()
        {
            return MachineVersion::RETRIES;
        }
        if let Self::Members(MemberCommand::LastResort { .. }) = self {
            return MachineVersion::LAST_RESORT;
        }
        MachineVersion::FIRST
    }

    /// The object that the command changes, as errors name it.
    #[must_use]
    pub fn object(&self) -> String {
        match self {
            Self::Form(_) | Self::NewLife { .. } | Self::RaiseMachine(_) => {
                "the cluster".to_owned()
            }
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
            Self::Members(command) => command.object(),
            Self::Tasks(command) => command.object(),
        }
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
    /// A command of an operator, or a change of members, placements or tasks, was refused.
    Denied(Denial),
}
