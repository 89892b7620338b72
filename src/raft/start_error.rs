//! Why the groups of a node do not start.

use crate::{codec::DecodeError, machine::MachineError};
use openraft::ConfigError;
use quorate_storage::StorageError;
use quorate_types::{GroupId, NodeId};
use std::collections::BTreeSet;

/// Why the groups do not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Settings that contradict each other.
    #[error("raft settings: {0}")]
    Settings(#[from] ConfigError),
    /// This node is not one of the members.
    #[error("node {0} is not a member of the cluster")]
    NotMember(NodeId),
    /// The data directory belongs to a cluster of other nodes.
    #[error("the cluster was formed of nodes {formed:?}, but the settings name nodes {asked:?}")]
    Members {
        /// Nodes that the group has.
        formed: BTreeSet<u64>,
        /// Nodes that the settings name.
        asked: BTreeSet<u64>,
    },
    /// A group's part of the database cannot be read.
    #[error("group {group}: {source}")]
    Storage {
        /// Group whose storage failed.
        group: GroupId,
        /// Error of the storage.
        source: StorageError,
    },
    /// A group's state cannot be made of its checkpoint and log.
    #[error("group {group}: {source}")]
    Machine {
        /// Group whose state machine failed.
        group: GroupId,
        /// Error of the state machine.
        source: MachineError,
    },
    /// A stored vote cannot be decoded.
    #[error("group {group}: cannot decode the stored vote: {source}")]
    Vote {
        /// Group whose vote cannot be read.
        group: GroupId,
        /// Error of the decoder.
        source: DecodeError,
    },
    /// openraft refuses to start.
    #[error("group {group}: {reason}")]
    Raft {
        /// Group that could not be started.
        group: GroupId,
        /// The error of openraft.
        reason: String,
    },
}
