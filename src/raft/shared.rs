//! What the tasks of all groups share.

use crate::{
    codec::Position,
    departures::{self, Departures},
    gate::Gate,
    group::Group,
    reach::Reach,
    settings::Settings,
    sink::FatalHook,
    succession,
    type_config::raft_id,
};
use parking_lot::Mutex;
use quorate_rpc::{Links, PeerHello};
use quorate_storage::LogWriter;
use quorate_types::{BootNumber, GroupId, NodeId};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::watch;

/// What the groups' tasks share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) links: Links,
    pub(crate) writer: LogWriter,
    groups: BTreeMap<GroupId, Arc<Group>>,
    gate: Gate,
    departures: Departures,
    reach: Reach,
    /// Processes taken for dead, the latest of each node.
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
            groups,
            gate: Gate::default(),
            departures: Departures::default(),
            reach: Reach::default(),
            died: Mutex::default(),
            stopping: watch::Sender::new(false),
            fatal,
        }
    }

    pub(crate) fn group(&self, id: GroupId) -> Option<&Arc<Group>> {
        self.groups.get(&id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.groups.values()
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

    /// A node can be reached again: followers on it need not wait for the next attempt.
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
                // A group that has ended needs none.
                let _ = group.raft().trigger().reset_backoff([raft_id(node)]).await;
            }
        });
    }

    /// A node's process is known dead: there is no need to wait for a timeout (DESIGN §8).
    pub(crate) fn node_died(self: &Arc<Self>, node: NodeId, boot: BootNumber) {
        self.died.lock().insert(node, boot);
        tokio::spawn(succession::succeed(Arc::clone(self), node));
    }

    /// Leaderships are taken, or not, by election timeouts.
    pub(crate) fn follow_gate(&self) {
        let may_lead = self.gate.may_lead();
        self.all().for_each(|group| group.raft().runtime_config().elect(may_lead));
    }
}
