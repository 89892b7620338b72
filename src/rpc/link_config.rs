//! What a node's links are made with.

use crate::{hello::ClusterCell, machine::MachineCell, secret::ClusterSecret};
use quorate_tls::Mutual;
use quorate_types::{BootNumber, Incarnation, NodeId};
use std::collections::BTreeMap;

/// Configuration of a node's links.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Id of this node.
    pub me: NodeId,
    /// Boot number of this process.
    pub boot: BootNumber,
    /// Boot numbers of the directory's earlier processes, as far as it remembers them.
    pub former_boots: Vec<BootNumber>,
    /// Identity of this node's data directory.
    pub incarnation: Incarnation,
    /// Where the other nodes reach this one, `host:port`.
    pub address: String,
    /// The other nodes and their rpc addresses, `host:port`.
    pub peers: BTreeMap<NodeId, String>,
    /// The cluster secret.
    pub secret: ClusterSecret,
    /// TLS to and from them; `None`: connections have none.
    pub tls: Option<Mutual>,
    /// The cluster's identity, once it is known.
    pub cluster: ClusterCell,
    /// Versions of the replicated machine.
    pub machine: MachineCell,
    /// Bytes that may wait in the bulk lane to each of them; a quarter of it in the control lane.
    pub lane_bytes: usize,
}
