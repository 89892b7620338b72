//! Nodes that are about to stop: they announce it, and no node waits for them to take a leadership.

use crate::service::Service;
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_rpc::{Lane, Links, PeerHello};
use quorate_types::{BootNumber, GroupId, NodeId};
use std::{collections::BTreeMap, time::Duration};
use tokio::sync::watch;
use tokio::time::Instant;

/// How often a node that hands over checks whether another node is left to take over.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Longest wait for a node that is not linked and not known to be dead: it may only be
/// reconnecting.
const UNLINKED_MAX: Duration = Duration::from_millis(200);

/// Processes that have announced their stop.
#[derive(Debug)]
pub(crate) struct Departures {
    leaving: Mutex<BTreeMap<NodeId, BootNumber>>,
    /// Changes with every notice.
    changed: watch::Sender<()>,
}

impl Default for Departures {
    fn default() -> Self {
        Self { leaving: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

/// Informs a node that this one is about to stop. The notice may be lost with the connection; the
/// next connection repeats it.
pub(crate) fn notify(links: &Links, node: NodeId) {
    let number = Service::Leaving.number();
    let _ = links.notify(node, Lane::Control, number, GroupId::CATALOG, Bytes::new());
}

impl Departures {
    /// Records that a process has announced its stop.
    pub(crate) fn note(&self, peer: &PeerHello) {
        tracing::info!(
            node = %peer.node, boot = peer.boot.0, "the node announced that it will stop"
        );
        self.leaving.lock().insert(peer.node, peer.boot);
        self.changed.send_replace(());
    }

    /// A process is linked: an announcement of an earlier process of the node is dropped.
    pub(crate) fn met(&self, peer: &PeerHello) {
        self.leaving.lock().retain(|node, boot| *node != peer.node || *boot == peer.boot);
    }

    /// Whether the process of the node has announced its stop.
    pub(crate) fn leaves(&self, node: NodeId) -> bool {
        self.leaving.lock().contains_key(&node)
    }

    /// Resolves when the process of the node has announced its stop.
    pub(crate) async fn wait_for(&self, node: NodeId) {
        let mut changes = self.changed.subscribe();
        while !self.leaves(node) {
            // `self` holds the sender.
            let _ = changes.changed().await;
        }
    }

    /// Whether a node may take a leadership over.
    fn hope(&self, links: &Links, node: NodeId) -> Hope {
        if self.leaves(node) || links.has_no_process(node) {
            Hope::None
        } else if links.connected(node).is_some() {
            Hope::Linked
        } else {
            Hope::Unlinked
        }
    }

    /// Resolves as soon as no node is left that could take a leadership over: all of them are dead,
    /// about to stop, or not linked.
    pub(crate) async fn wait_for_all(&self, links: &Links, nodes: &[NodeId]) {
        let mut unlinked: Option<Instant> = None;
        loop {
            let best = nodes.iter().map(|node| self.hope(links, *node)).max();
            match best.unwrap_or(Hope::None) {
                Hope::None => return,
                Hope::Unlinked => {
                    if unlinked.get_or_insert_with(Instant::now).elapsed() >= UNLINKED_MAX {
                        return;
                    }
                }
                Hope::Linked => unlinked = None,
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }
}

/// Whether a node may take a leadership over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hope {
    /// It will not: it has no process known to live, or is about to stop too.
    None,
    /// Perhaps, after it has been linked again.
    Unlinked,
    /// Yes, as soon as it is ready.
    Linked,
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{Incarnation, MachineVersion};

    #[test]
    fn a_departure_is_of_one_process() {
        let peer = |boot| PeerHello {
            node: NodeId(2),
            boot: BootNumber(boot),
            incarnation: Incarnation(1),
            cluster: None,
            machine: MachineVersion::FIRST,
        };
        let departures = Departures::default();
        departures.note(&peer(1));
        departures.met(&peer(1));
        assert!(departures.leaves(NodeId(2)), "linked again, and leaving all the same");
        assert!(!departures.leaves(NodeId(3)));
        departures.met(&peer(2));
        assert!(!departures.leaves(NodeId(2)), "its successor stays");
    }
}
