//! Shortages of all nodes, and where those of this one begin (ALM-01).

use crate::{base::Base, clients::Clients, peers::message::Shortage};
use parking_lot::Mutex;
use quorate_types::NodeId;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};
use tokio::sync::Notify;

/// Shortages by node, this one included, and what this one calls short.
#[derive(Debug)]
pub(crate) struct Alarms {
    pub(crate) base: Base,
    pub(crate) clients: Arc<Clients>,
    pub(crate) nodes: Mutex<BTreeMap<NodeId, Shortage>>,
    pub(crate) bounds: Mutex<AlarmBounds>,
    /// Held while a change is noted and told, so that clients hear of changes in their order.
    pub(crate) telling: Mutex<()>,
    /// Told of every change.
    pub(crate) changed: Notify,
}

/// Where this node's alarms begin.
#[derive(Clone, Copy, Debug)]
pub struct AlarmBounds {
    /// Resident memory above which publishers are blocked, bytes.
    pub memory_bytes_max: u64,
    /// Free space of the data directory's file system below which they are, bytes.
    pub disk_free_bytes_min: u64,
}

/// What this node's alarms are about.
#[derive(Clone, Debug)]
pub struct AlarmSettings {
    /// Until an operator sets others.
    pub bounds: AlarmBounds,
    /// Memory of the machine, bytes.
    pub machine_memory_bytes: u64,
    /// The data directory.
    pub data_dir: PathBuf,
    /// Gives memory that the allocator keeps for later back to the system. It may take some tens of
    /// milliseconds.
    pub return_free_memory: fn(),
}

/// An amount as an operator gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// Of the machine's memory.
    OfMemory(f64),
}

impl Amount {
    /// Bytes on a machine that has `memory_bytes`.
    #[must_use]
    pub fn bytes_of(self, memory_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a bound need not be exact, and what is below 0 becomes 0"
            )]
            Self::OfMemory(fraction) => (memory_bytes as f64 * fraction) as u64,
        }
    }
}

impl Alarms {
    /// Nobody is short of anything.
    pub(crate) fn new(base: &Base, clients: &Arc<Clients>) -> Self {
        Self {
            base: base.clone(),
            clients: Arc::clone(clients),
            nodes: Mutex::default(),
            bounds: Mutex::new(base.context.settings.alarms.bounds),
            telling: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Resolves while no alarm is on, on any node. Cancel-safe.
    pub(crate) async fn until_lifted(&self) {
        loop {
            let changed = self.changed.notified();
            if self.reason().is_none() {
                return;
            }
            changed.await;
        }
    }

    /// Where this node's alarms begin now.
    pub(crate) fn bounds(&self) -> AlarmBounds {
        *self.bounds.lock()
    }

    /// The reason for blocking, joined over all nodes (ALM-04).
    pub(crate) fn reason(&self) -> Option<String> {
        let nodes = self.nodes.lock();
        let memory = nodes.values().any(|short| short.memory).then_some("low on memory");
        let disk = nodes.values().any(|short| short.disk).then_some("low on disk");
        let reasons: Vec<_> = memory.into_iter().chain(disk).collect();
        (!reasons.is_empty()).then(|| reasons.join(" & "))
    }

    /// Notes a node's shortage; true if it has changed.
    pub(crate) fn note(&self, node: NodeId, shortage: Shortage) -> bool {
        self.nodes.lock().insert(node, shortage).unwrap_or_default() != shortage
    }

    /// Shortage of one node: memory, disk.
    pub(crate) fn of(&self, node: NodeId) -> (bool, bool) {
        let shortage = self.nodes.lock().get(&node).copied().unwrap_or_default();
        (shortage.memory, shortage.disk)
    }
}
