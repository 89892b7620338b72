//! Shortages of memory and disk space on all nodes, and this node's watermarks (ALM-01).

use crate::{
    base::Base, cluster::alarm_settings::AlarmBounds, front::clients::Clients,
    peers::message::Shortage,
};
use parking_lot::Mutex;
use quorate_types::NodeId;
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::Notify;

/// Shortages by node, this one included, and this node's watermarks.
#[derive(Debug)]
pub(crate) struct Alarms {
    pub(crate) base: Base,
    pub(crate) clients: Arc<Clients>,
    pub(crate) nodes: Mutex<BTreeMap<NodeId, Shortage>>,
    pub(crate) bounds: Mutex<AlarmBounds>,
    /// Free space of the data directory, as it was measured last; `None` before the first time, and if
    /// it cannot be measured.
    pub(crate) disk_free: Mutex<Option<u64>>,
    /// Held while a change is recorded and sent, so that clients get the changes in their order.
    pub(crate) changing: Mutex<()>,
    /// Notified of every change.
    pub(crate) changed: Notify,
}

impl Alarms {
    /// No node is short of memory or disk space.
    pub(crate) fn new(base: &Base, clients: &Arc<Clients>) -> Self {
        Self {
            base: base.clone(),
            clients: Arc::clone(clients),
            nodes: Mutex::default(),
            bounds: Mutex::new(base.context.settings.alarms.bounds),
            disk_free: Mutex::default(),
            changing: Mutex::default(),
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

    /// This node's watermarks that are in force now.
    pub(crate) fn bounds(&self) -> AlarmBounds {
        *self.bounds.lock()
    }

    /// Free bytes of the data directory's file system, at most a second old. Never waits for the disk.
    pub(crate) fn disk_free_bytes(&self) -> Option<u64> {
        *self.disk_free.lock()
    }

    /// The reason for blocking, joined over all nodes (ALM-04).
    pub(crate) fn reason(&self) -> Option<String> {
        let nodes = self.nodes.lock();
        let memory = nodes.values().any(|short| short.memory).then_some("low on memory");
        let disk = nodes.values().any(|short| short.disk).then_some("low on disk");
        let reasons: Vec<_> = memory.into_iter().chain(disk).collect();
        (!reasons.is_empty()).then(|| reasons.join(" & "))
    }

    /// Records a node's shortage; true if it has changed.
    pub(crate) fn note(&self, node: NodeId, shortage: Shortage) -> bool {
        self.nodes.lock().insert(node, shortage).unwrap_or_default() != shortage
    }

    /// Whether a node is short of memory, and of disk space.
    pub(crate) fn of(&self, node: NodeId) -> (bool, bool) {
        let shortage = self.nodes.lock().get(&node).copied().unwrap_or_default();
        (shortage.memory, shortage.disk)
    }
}
