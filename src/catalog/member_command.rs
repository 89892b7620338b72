//! Commands that change members and placements, from machine version 2 on (MEM 1).

use crate::{command::CatalogReply, denial::MemberDenial, machine::Catalog, output::CatalogOutput};
use quorate_types::{GroupId, Incarnation, MachineVersion, NodeId, ReplicaNumber};
use std::collections::{BTreeMap, BTreeSet};

/// A change of members or placements. A repeat of each is harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberCommand {
    /// A directory asks to serve a node; one that serves it already tells its address and zone
    /// (MEM 3).
    Join(Newcomer),
    /// The joining node has received the catalog, and is a member from now on (MEM 3).
    Admit {
        /// Id of the node.
        node: NodeId,
        /// Its directory.
        incarnation: Incarnation,
    },
    /// The node shall lead nothing and get no replicas (MEM 13).
    Drain {
        /// Id of the node.
        node: NodeId,
    },
    /// Ends the draining of a node (MEM 13).
    Revive {
        /// Id of the node.
        node: NodeId,
    },
    /// Forgets a directory: the node leaves (MEM 11).
    Forget {
        /// Id of the node.
        node: NodeId,
        /// Its directory.
        incarnation: Incarnation,
    },
    /// Forgets a directory whose disk is lost, and lets another one join under the node's id
    /// (MEM 10).
    Replace {
        /// The directory that is lost.
        old: Incarnation,
        /// The directory that takes its place.
        by: Newcomer,
    },
    /// A node that leaves, and that no placement names any more, is a member no longer (MEM 11).
    /// Proposed only when the node's last lease must have ended (MEM 4).
    Remove {
        /// Id of the node.
        node: NodeId,
    },
    /// The nodes that shall replicate a group (MEM 6); of the catalog's group, those that vote.
    Place {
        /// The group.
        group: GroupId,
        /// The number after that of the present placement.
        number: u64,
        /// The nodes.
        nodes: BTreeSet<NodeId>,
    },
    /// The group's leader reports that its membership equals the placement (MEM 7).
    Reached {
        /// The group.
        group: GroupId,
        /// Number of the placement.
        number: u64,
    },
    /// The node goes on alone: all others are lost for good (MEM 14). From machine version 4 on, and
    /// never proposed: it is written into the log of a node that does not run.
    LastResort {
        /// Id of the node.
        node: NodeId,
        /// Its replica of each group, that of the catalog among them.
        replicas: BTreeMap<GroupId, ReplicaNumber>,
    },
}

/// A directory that asks to serve a node (MEM 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newcomer {
    /// Id of the node.
    pub node: NodeId,
    /// The directory.
    pub incarnation: Incarnation,
    /// Host and port of its rpc port.
    pub address: String,
    /// Name of its zone, or nothing.
    pub zone: String,
}

impl MemberCommand {
    /// The node or group that the command changes, as errors name it.
    #[must_use]
    pub fn object(&self) -> String {
        match self {
            Self::Join(Newcomer { node, .. })
            | Self::Admit { node, .. }
            | Self::Drain { node }
            | Self::Revive { node }
            | Self::Forget { node, .. }
            | Self::Replace { by: Newcomer { node, .. }, .. }
            | Self::Remove { node }
            | Self::LastResort { node, .. } => format!("node {node}"),
            Self::Place { group, .. } | Self::Reached { group, .. } => {
                format!("placement of group {group}")
            }
        }
    }
}

impl Catalog {
    /// Before machine version 2 no command has an effect, so that all binaries keep the same state
    /// (MEM 15).
    pub(crate) fn member_command(
        &mut self,
        command: &MemberCommand,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        let machine = self.machine();
        let done = if machine < MachineVersion::MEMBERS {
            Err(MemberDenial::TooEarly { machine })
        } else {
            self.change_members(command, out)
        };
        done.map_or_else(|denial| CatalogReply::Denied(denial.into()), |()| CatalogReply::Done)
    }

    fn change_members(
        &mut self,
        command: &MemberCommand,
        out: &mut CatalogOutput,
    ) -> Result<(), MemberDenial> {
        match command {
            MemberCommand::Join(newcomer) => self.join(newcomer, out),
            MemberCommand::Admit { node, incarnation } => self.admit(*node, *incarnation, out),
            MemberCommand::Drain { node } => self.drain(*node, out),
            MemberCommand::Revive { node } => self.revive(*node, out),
            MemberCommand::Forget { node, incarnation } => self.forget(*node, *incarnation, out),
            MemberCommand::Replace { old, by } => self.replace(*old, by, out),
            MemberCommand::Remove { node } => self.remove_member(*node, out),
            MemberCommand::Place { group, number, nodes } => {
                self.place_group(*group, *number, nodes, out)
            }
            MemberCommand::Reached { group, number } => self.reached(*group, *number, out),
            MemberCommand::LastResort { node, replicas } => self.last_resort(*node, replicas, out),
        }
    }
}
