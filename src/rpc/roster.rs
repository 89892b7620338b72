//! Which nodes this one links, and where it dials them. Members come, go and move while it runs (MEM
//! 3, 11).
//!
//! A process that has come back at another address tells the catalog, for which it needs the catalog's
//! leader; but it may not know the leader before that one dials it. So each hello says where the process
//! is. A node is dialed where the settings say, and if it is not there, in turn where the catalog and its
//! process say.

use parking_lot::RwLock;
use quorate_types::NodeId;
use std::collections::BTreeMap;
use tokio::sync::watch;

/// The address at which a node is dialed, as it changes; `None` once it is dialed no more.
pub(crate) type Address = watch::Receiver<Option<String>>;

/// Bytes of an address that a process may say to have.
const CLAIM_BYTES_MAX: usize = 300;

/// The other nodes and their addresses, `host:port`.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    nodes: RwLock<BTreeMap<NodeId, watch::Sender<Option<String>>>>,
    elsewhere: RwLock<BTreeMap<NodeId, Elsewhere>>,
}

/// Where else a node may be.
#[derive(Clone, Debug, Default)]
struct Elsewhere {
    /// Where the catalog says that it is.
    held: Option<String>,
    /// Where its process says that it is.
    claimed: Option<String>,
}

impl Roster {
    pub(crate) fn new(peers: &BTreeMap<NodeId, String>) -> Self {
        let roster = Self::default();
        drop(roster.set(peers));
        roster
    }

    /// Replaces the nodes; returns those that are new. The others' dialing learns of its changes.
    pub(crate) fn set(&self, peers: &BTreeMap<NodeId, String>) -> Vec<(NodeId, Address)> {
        self.elsewhere.write().retain(|node, _| peers.contains_key(node));
        self.nodes.write().retain(|node, address| {
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
        let mut roster = self.nodes.write();
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
        let roster = self.nodes.read();
        roster.iter().map(|(node, address)| (*node, address.subscribe())).collect()
    }

    /// The address of a node.
    pub(crate) fn address(&self, node: NodeId) -> Option<String> {
        self.nodes.read().get(&node).and_then(|address| address.borrow().clone())
    }

    /// A process of a node says where it is; an empty text says nothing.
    pub(crate) fn claim(&self, node: NodeId, address: &str) {
        let is_one = !address.is_empty() && address.len() <= CLAIM_BYTES_MAX;
        if is_one && self.nodes.read().contains_key(&node) {
            self.elsewhere.write().entry(node).or_default().claimed = Some(address.to_owned());
        }
    }

    /// The catalog says where these nodes are.
    pub(crate) fn hold(&self, addresses: &BTreeMap<NodeId, String>) {
        let mut elsewhere = self.elsewhere.write();
        for (node, address) in addresses {
            elsewhere.entry(*node).or_default().held = Some(address.clone());
        }
    }

    /// Where the node's process says that it is.
    pub(crate) fn claimed(&self, node: NodeId) -> Option<String> {
        self.elsewhere.read().get(&node).and_then(|elsewhere| elsewhere.claimed.clone())
    }

    /// Where the node is to be dialed in turn; at first where the settings say, if they do.
    pub(crate) fn addresses(&self, node: NodeId, first: String) -> Vec<String> {
        let elsewhere = self.elsewhere.read().get(&node).cloned().unwrap_or_default();
        let mut addresses = vec![first];
        for address in elsewhere.held.into_iter().chain(elsewhere.claimed) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
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

    #[test]
    fn mem_03_a_node_is_dialed_where_the_settings_the_catalog_and_itself_say() {
        let roster = Roster::new(&peers(&[(2, "two:1")]));
        let addresses = || roster.addresses(NodeId(2), "two:1".to_owned());
        assert_eq!(addresses(), ["two:1"]);
        roster.hold(&peers(&[(2, "two:2")]));
        roster.claim(NodeId(2), "two:3");
        assert_eq!(addresses(), ["two:1", "two:2", "two:3"]);
        roster.claim(NodeId(2), "two:1");
        assert_eq!(addresses(), ["two:1", "two:2"]);
    }

    #[test]
    fn mem_03_only_members_say_where_they_are() {
        let roster = Roster::new(&peers(&[(2, "two:1")]));
        roster.claim(NodeId(2), "");
        assert_eq!(roster.claimed(NodeId(2)), None, "an earlier binary says nothing");
        roster.claim(NodeId(2), "elsewhere:1");
        roster.claim(NodeId(3), "three:1");
        assert_eq!(roster.claimed(NodeId(2)).as_deref(), Some("elsewhere:1"));
        assert_eq!(roster.claimed(NodeId(3)), None);
        drop(roster.set(&peers(&[(3, "three:1")])));
        assert_eq!(roster.claimed(NodeId(2)), None);
    }
}
