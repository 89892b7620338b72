//! Which nodes this one links, and where it dials them. Members come, go and move while it runs (MEM
//! 3, 11).

use parking_lot::RwLock;
use quorate_types::NodeId;
use std::collections::BTreeMap;
use tokio::sync::watch;

/// The address at which a node is dialed, as it changes; `None` once it is dialed no more.
pub(crate) type Address = watch::Receiver<Option<String>>;

/// The other nodes and their addresses, `host:port`.
#[derive(Debug)]
pub(crate) struct Roster(RwLock<BTreeMap<NodeId, watch::Sender<Option<String>>>>);

impl Roster {
    pub(crate) fn new(peers: &BTreeMap<NodeId, String>) -> Self {
        let roster = Self(RwLock::default());
        drop(roster.set(peers));
        roster
    }

    /// Replaces the nodes; returns those that are new. The others' dialing learns of its changes.
    pub(crate) fn set(&self, peers: &BTreeMap<NodeId, String>) -> Vec<(NodeId, Address)> {
        self.0.write().retain(|node, address| {
            let stays = peers.contains_key(node);
            if !stays {
                address.send_replace(None);
            }
            stays
        });
        self.add(peers)
    }

    /// Adds nodes, or moves those that are known; returns those that are new.
    pub(crate) fn add(&self, peers: &BTreeMap<NodeId, String>) -> Vec<(NodeId, Address)> {
        let mut roster = self.0.write();
        let mut new = Vec::new();
        for (node, address) in peers {
            match roster.get(node) {
                Some(known) => drop(known.send_if_modified(|known| {
                    let moved = known.as_ref() != Some(address);
                    if moved {
                        *known = Some(address.clone());
                    }
                    moved
                })),
                None => {
                    let (sender, receiver) = watch::channel(Some(address.clone()));
                    roster.insert(*node, sender);
                    new.push((*node, receiver));
                }
            }
        }
        new
    }

    /// All nodes, to be dialed.
    pub(crate) fn all(&self) -> Vec<(NodeId, Address)> {
        let roster = self.0.read();
        roster.iter().map(|(node, address)| (*node, address.subscribe())).collect()
    }

    /// The address of a node.
    pub(crate) fn address(&self, node: NodeId) -> Option<String> {
        self.0.read().get(&node).and_then(|address| address.borrow().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(peers: &[(u16, &str)]) -> BTreeMap<NodeId, String> {
        peers.iter().map(|(node, address)| (NodeId(*node), (*address).to_owned())).collect()
    }

    #[test]
    fn members_come_go_and_move() {
        let roster = Roster::new(&peers(&[(2, "two:1"), (3, "three:1")]));
        let dialed = roster.all();
        assert_eq!(dialed.iter().map(|(node, _)| node.0).collect::<Vec<_>>(), [2, 3]);
        let new = roster.set(&peers(&[(2, "two:9"), (4, "four:1")]));
        assert_eq!(new.iter().map(|(node, _)| node.0).collect::<Vec<_>>(), [4]);
        let addresses = dialed.iter().map(|(_, address)| address.borrow().clone());
        assert_eq!(addresses.collect::<Vec<_>>(), [Some("two:9".to_owned()), None]);
        assert_eq!(roster.address(NodeId(4)).as_deref(), Some("four:1"));
        assert_eq!(roster.address(NodeId(3)), None);
        assert!(roster.set(&peers(&[(2, "two:9"), (4, "four:1")])).is_empty());
    }
}
