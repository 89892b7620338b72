//! What a node concludes about the other nodes' processes: which starts are to be fenced, and what
//! a leader proposes to its group about nodes (SES 6, DLV 5, Q-62, Q-11).
//!
//! These are values: nothing here waits, locks or reads a clock. `failures` stores them, and
//! `failure` calls them.

use quorate_catalog::{Catalog, NodeEntry};
use quorate_queue::{Command, Machine};
use quorate_types::{BootNumber, NodeId, SessionId, StartNumber};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// A node that is not linked for this long is suspected.
pub(crate) const SUSPECTED_AFTER: Duration = Duration::from_secs(1);

/// Processes that are known to be dead and not fenced yet. Each has the start that it is accused
/// of, once the catalog names it: later starts of the same process are not accused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accusations(BTreeMap<(NodeId, BootNumber), Option<StartNumber>>);

impl Accusations {
    /// Adds an accusation of a process. False if a later process of its node has started: then the
    /// earlier starts are fenced, and the death of this process proves nothing about the later one.
    pub(crate) fn add(&mut self, catalog: &Catalog, node: NodeId, boot: BootNumber) -> bool {
        let news = !is_replaced(catalog, node, boot);
        if news {
            self.0.entry((node, boot)).or_default();
        }
        news
    }

    /// Processes that are known to be dead and not fenced yet.
    pub(crate) fn all(&self) -> Vec<(NodeId, BootNumber)> {
        self.0.keys().copied().collect()
    }

    /// Starts to be fenced. Removes accusations of processes that live, and of starts that are
    /// fenced: their process may have announced another start.
    pub(crate) fn fences_due(
        &mut self,
        catalog: &Catalog,
        lives: impl Fn(NodeId, BootNumber) -> bool,
    ) -> Vec<SessionId> {
        let mut due = Vec::new();
        self.0.retain(|&(node, boot), accused| {
            if is_replaced(catalog, node, boot) || lives(node, boot) {
                return false;
            }
            *accused = accused.or_else(|| Some(catalog.session_of(node, boot)?.start));
            // The announcement of its start may still be in flight.
            let Some(start) = *accused else { return true };
            let session = SessionId { node, start };
            if catalog.is_fenced(session) {
                return false;
            }
            due.push(session);
            true
        });
        due
    }
}

/// Whether a later process of the node has started. Boot numbers of one directory ascend (SES 1); those of
/// another one say nothing (MEM 4).
fn is_replaced(catalog: &Catalog, node: NodeId, boot: BootNumber) -> bool {
    let is_later = |entry: &NodeEntry| entry.boot > boot || entry.former_boots.contains(&boot);
    catalog.node(node).is_some_and(is_later)
}

/// Members that are not linked, each with the time since when. At first these are all others, since
/// the start of this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Absences(BTreeMap<NodeId, Instant>);

impl Absences {
    /// State of a process that has not been linked with any other.
    pub(crate) fn new(now: Instant, me: NodeId, members: &[NodeId]) -> Self {
        let others = members.iter().filter(|node| **node != me);
        Self(others.map(|node| (*node, now)).collect())
    }

    /// Nodes that have joined count from the moment at which this process knows them (MEM 3). What is
    /// known of others stays: they may have left something behind.
    pub(crate) fn follow(&mut self, now: Instant, joined: impl Iterator<Item = NodeId>) {
        for node in joined {
            self.0.entry(node).or_insert(now);
        }
    }

    /// Both lanes to a process of the node are open.
    pub(crate) fn linked(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// Records that a process can no longer be reached. `linked` is the process of the same node
    /// that is linked now, which may be its successor.
    pub(crate) fn lost(
        &mut self,
        now: Instant,
        (node, boot): (NodeId, BootNumber),
        linked: Option<BootNumber>,
    ) {
        if linked.is_none_or(|linked| linked == boot) {
            self.0.entry(node).or_insert(now);
        }
    }

    /// For how long the node has been unreachable; `None` while it is linked.
    pub(crate) fn time(&self, now: Instant, node: NodeId) -> Option<Duration> {
        self.0.get(&node).map(|since| now.saturating_duration_since(*since))
    }
}

/// What a group's leader knows about the nodes.
#[derive(Clone, Copy)]
pub(crate) struct Outlook<'a> {
    pub(crate) now: Instant,
    pub(crate) absences: &'a Absences,
    /// How long it has led the group.
    pub(crate) led_for: Duration,
    /// The time of Q-62.
    pub(crate) unreachable_node_timeout: Duration,
    /// For how long this process has known that a directory of the node was forgotten.
    pub(crate) forgotten_for: &'a dyn Fn(NodeId) -> Option<Duration>,
}

impl Outlook<'_> {
    /// The commands that make the group agree with the catalog's nodes and lives, and with what the
    /// leader knows about the nodes. Only nodes with a session in the group count: others hold
    /// nothing there. About its own node a leader proposes at most that it is back, if the previous
    /// leader suspected it.
    pub(crate) fn commands(&self, catalog: &Catalog, machine: &Machine) -> Vec<Command> {
        let sessions: BTreeSet<NodeId> = machine.sessions().map(|session| session.node).collect();
        let suspected: BTreeSet<NodeId> = machine.suspected().collect();
        let mut commands = Vec::new();
        for (node, NodeEntry { fenced, .. }) in catalog.nodes() {
            if !sessions.contains(&node) {
                continue;
            }
            let known = machine.fenced(node);
            let is_over = known < *fenced;
            let lingers = is_over && self.is_too_early(catalog, node, known);
            if is_over && !lingers {
                commands.push(Command::NodeDown { node, start: *fenced });
            }
            commands.extend(self.reachability(node, suspected.contains(&node), lingers));
        }
        if machine.life() < catalog.life() {
            commands.push(Command::NewLife { life: catalog.life() });
        }
        commands
    }

    /// A start that was fenced because its directory was forgotten may live, and its clients may be shown
    /// what it holds. So that is given to others only after the time of DLV 5, during which no leader
    /// has contacted it (MEM 4). A death that becomes known first has been fenced before.
    fn is_too_early(&self, catalog: &Catalog, node: NodeId, fenced: StartNumber) -> bool {
        let silent_for = (self.forgotten_for)(node).unwrap_or(self.led_for).min(self.led_for);
        // A later start, of another directory, proves nothing about it.
        catalog.forgotten_start(node).is_some_and(|start| fenced < start)
            && silent_for <= self.unreachable_node_timeout
    }

    /// The command that records whether the node is reachable. The node's silence counts from the
    /// start of the leadership at the earliest: before, another leader may have contacted it
    /// (DLV 5). `lingers`: the group still has consumers of a directory that was forgotten. Messages that they
    /// were given would wait with them, so a process that is linked, of whatever directory, brings none of
    /// them back (MEM 4).
    fn reachability(&self, node: NodeId, suspected: bool, lingers: bool) -> Option<Command> {
        let silent_for = self.absences.time(self.now, node).map(|time| time.min(self.led_for));
        match (silent_for, suspected) {
            (None, true) if lingers => None,
            (None, false) if lingers => Some(Command::NodeSuspected { node }),
            (None, true) => Some(Command::NodeBack { node }),
            (None, false) => None,
            (Some(time), false) if time > SUSPECTED_AFTER => Some(Command::NodeSuspected { node }),
            (Some(time), true) if time > self.unreachable_node_timeout => {
                Some(Command::NodeTimedOut { node })
            }
            (Some(_), _) => None,
        }
    }
}

#[cfg(test)]
mod tests;
