//! What the tasks of all groups share.

use crate::{
    codec::Position,
    departures::{self, Departures},
    gate::Gate,
    group::Group,
    reach::Reach,
    settings::Settings,
    sink::FatalHook,
    succession::{self, Absence, Led},
};
use parking_lot::{Mutex, RwLock};
use quorate_rpc::{Links, PeerHello};
use quorate_storage::LogWriter;
use quorate_types::{BootNumber, GroupId, NodeId};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::watch;

/// State shared by the groups' tasks.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) links: Links,
    pub(crate) writer: LogWriter,
    groups: RwLock<BTreeMap<GroupId, Arc<Group>>>,
    gate: Gate,
    departures: Departures,
    reach: Reach,
    /// Processes known to be dead, the latest of each node.
    died: Mutex<BTreeMap<NodeId, BootNumber>>,
    pub(crate) stopping: watch::Sender<bool>,
    fatal: FatalHook,
}

impl Shared {
    /// Of groups that are about to run.
    pub(crate) fn new(
        settings: Settings,
        links: Links,
        writer: LogWriter,
        groups: BTreeMap<GroupId, Arc<Group>>,
        fatal: FatalHook,
    ) -> Self {
        Self {
            settings,
            links,
            writer,
            groups: RwLock::new(groups),
            gate: Gate::default(),
            departures: Departures::default(),
            reach: Reach::default(),
            died: Mutex::default(),
            stopping: watch::Sender::new(false),
            fatal,
        }
    }

    /// This node's replica of the group, if it has one.
    pub(crate) fn group(&self, id: GroupId) -> Option<Arc<Group>> {
        self.groups.read().get(&id).cloned()
    }

    /// All groups of which this node has a replica now, the catalog's first.
    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<Group>> + use<> {
        let groups: Vec<_> = self.groups.read().values().cloned().collect();
        groups.into_iter()
    }

    /// This node has a further replica.
    pub(crate) fn add(&self, group: Arc<Group>) {
        self.groups.write().insert(group.id(), group);
    }

    /// This node has no replica of the group any more.
    pub(crate) fn remove(&self, id: GroupId) -> Option<Arc<Group>> {
        self.groups.write().remove(&id)
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(crate) fn departures(&self) -> &Departures {
        &self.departures
    }

    pub(crate) fn reach(&self) -> &Reach {
        &self.reach
    }

    pub(crate) fn position(&self, id: GroupId) -> Option<Position> {
        self.group(id)?.position(self.gate.may_lead())
    }

    /// Ends the process.
    pub(crate) fn fail(&self, group: GroupId, reason: &str) {
        (self.fatal)(group, reason);
    }

    /// Handles that a node is reachable again: followers on it are retried at once.
    pub(crate) fn node_connected(self: &Arc<Self>, peer: &PeerHello) {
        let (shared, node) = (Arc::clone(self), peer.node);
        self.departures.met(peer);
        if self.died.lock().remove(&node) == Some(peer.boot) {
            self.all().for_each(|group| group.standing().leader_lives(node));
        }
        if self.gate.is_leaving() {
            departures::notify(&self.links, node);
        }
        tokio::spawn(async move {
            for group in shared.all() {
                // A group that has ended needs no reset.
                let _ = group.raft().trigger().reset_backoff(group.replicas_on(node)).await;
            }
        });
    }

    /// Handles that a node's process is dead, without waiting for a timeout (DESIGN §8). `led` are the
    /// groups that it led when its link was lost.
    pub(crate) fn node_died(self: &Arc<Self>, node: NodeId, boot: BootNumber, led: Vec<Led>) {
        self.died.lock().insert(node, boot);
        tokio::spawn(succession::succeed(Arc::clone(self), node, Absence::Dead, led));
    }

    /// Election timeouts are active only if this node may lead.
    pub(crate) fn follow_gate(&self) {
        let may_lead = self.gate.may_lead();
        self.all().for_each(|group| group.raft().runtime_config().elect(may_lead));
    }
}
