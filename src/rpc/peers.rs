//! Facts about the other nodes' processes: which ones live, and which are dead.
//!
//! A hello of a dead process may arrive after its successor's, and must not shut the successor out.
//! So the processes of one data directory are ordered: the boot number is the number of times that
//! the directory was opened, followed by 32 random bits. (DESIGN §8 has random bits only.)
//!
//! A data directory that was set back is recognized by the boots that it lacks. A directory
//! remembers its last 64 boot numbers and names them in its hellos. A node refuses a hello that
//! lacks a boot which it knows of, from an earlier hello or from the catalog.

use crate::hello::{PeerHello, Refusal};
use parking_lot::Mutex;
use quorate_types::{BootNumber, Incarnation, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::watch;

/// Why a process is no longer linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A connection to it has ended. Proves nothing about the process (DESIGN §8).
    Closed,
    /// Then its address refused a connection, and no stream of its own is open any more: the
    /// process is dead.
    Refused,
    /// A process with a higher boot number answers for the node: the former one is dead.
    Replaced,
}

impl Cause {
    /// Whether the process is known dead (DESIGN §8).
    #[must_use]
    pub fn is_known_dead(self) -> bool {
        match self {
            Cause::Closed => false,
            Cause::Refused | Cause::Replaced => true,
        }
    }
}

/// A process that is no longer linked, to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) node: NodeId,
    pub(crate) boot: BootNumber,
    pub(crate) cause: Cause,
}

/// Facts about the other nodes' processes, from the hellos of both directions and from the
/// connections that this node dials.
#[derive(Debug)]
pub(crate) struct Peers {
    nodes: Mutex<BTreeMap<NodeId, Known>>,
    /// Directories that the cluster has forgotten (MEM 11).
    forgotten: watch::Sender<BTreeSet<Incarnation>>,
}

#[derive(Debug, Default)]
struct Known {
    /// The only accepted data directory of the node: the first one met, or the one that the catalog
    /// names.
    incarnation: Option<Incarnation>,
    /// The process that lives, as far as this node knows.
    present: Option<Process>,
    /// Highest known boot number of that directory. The numbers ascend, and each process of a
    /// directory names those before it. So a hello of a former process, or from a directory that
    /// was set back, is recognized because it does not name this one.
    latest: Option<BootNumber>,
}

#[derive(Debug)]
struct Process {
    boot: BootNumber,
    incarnation: Incarnation,
    link: Link,
    /// Number of streams that it has opened to this node.
    streams: usize,
    /// Its address has refused a connection since its last hello.
    refused: bool,
}

impl Process {
    fn new(&PeerHello { boot, incarnation, .. }: &PeerHello) -> Self {
        Self { boot, incarnation, link: Link::Never, streams: 0, refused: false }
    }

    /// A process that dies loses all its sockets. If a connection is refused while streams of its
    /// own are open, something else refuses it: a firewall, a proxy, a port that is not mapped at
    /// the moment.
    fn is_dead(&self) -> bool {
        self.link == Link::Closed && self.refused && self.streams == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// The process has dialed this node; this node has not reached it yet. Its port may not be open
    /// yet, so a refused connection proves nothing.
    Never,
    /// Both lanes are open.
    Open,
    /// The connections were established, and are closed.
    Closed,
}

impl Known {
    fn take_dead(&mut self, node: NodeId) -> Option<Lost> {
        let process = self.present.take_if(|process| process.is_dead())?;
        Some(Lost { node, boot: process.boot, cause: Cause::Refused })
    }
}

impl Peers {
    pub(crate) fn new(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let nodes = nodes.into_iter().map(|node| (node, Known::default())).collect();
        Self { nodes: Mutex::new(nodes), forgotten: watch::Sender::default() }
    }

    /// Further nodes that may be met. What is known of a node is kept when it leaves: its directory is
    /// forgotten then.
    pub(crate) fn add<'a>(&self, nodes: impl Iterator<Item = &'a NodeId>) {
        let mut known = self.nodes.lock();
        for node in nodes {
            known.entry(*node).or_default();
        }
    }

    /// Sets the directories that are refused for ever (MEM 11).
    pub(crate) fn forget(&self, directories: BTreeSet<Incarnation>) {
        self.forgotten.send_if_modified(|known| {
            let news = *known != directories;
            *known = directories;
            news
        });
    }

    /// Resolves when the directory of a process that has been met was forgotten (MEM 11).
    pub(crate) async fn until_refused(&self, peer: &PeerHello) {
        let mut forgotten = self.forgotten.subscribe();
        // The sender lives as long as `self`.
        drop(forgotten.wait_for(|forgotten| forgotten.contains(&peer.incarnation)).await);
    }

    /// Sets the only data directory that is accepted from the node from now on, and a process that
    /// it has had, if it is known to have had one.
    pub(crate) fn expect(&self, node: NodeId, directory: Incarnation, boot: Option<BootNumber>) {
        if let Some(known) = self.nodes.lock().get_mut(&node) {
            if known.incarnation != Some(directory) {
                known.latest = None;
            }
            known.incarnation = Some(directory);
            known.latest = known.latest.max(boot);
        }
    }

    /// The only data directory that is accepted from the node, if one is known.
    pub(crate) fn directory(&self, node: NodeId) -> Option<Incarnation> {
        self.nodes.lock().get(&node).and_then(|known| known.incarnation)
    }

    /// True if the cluster has forgotten the directory (MEM 11).
    pub(crate) fn has_forgotten(&self, directory: Incarnation) -> bool {
        self.forgotten.borrow().contains(&directory)
    }

    /// Records a hello, from either direction, with the earlier boots of its directory. Returns the
    /// process that it replaces. `is_ours`: the directory belongs to this node's cluster. Then it has been
    /// joined, and if this node's copy of the catalog does not have it yet, the peer may be the only one
    /// from which that copy can be brought up to date.
    pub(crate) fn meet(
        &self,
        hello: &PeerHello,
        former_boots: &[u64],
        is_ours: bool,
    ) -> Result<Option<Lost>, Refusal> {
        let node = hello.node;
        if self.has_forgotten(hello.incarnation) {
            return Err(Refusal::Forgotten(node));
        }
        let mut nodes = self.nodes.lock();
        if is_ours {
            nodes.entry(node).or_default();
        }
        let Some(known) = nodes.get_mut(&node) else { return Err(Refusal::Unknown(node)) };
        let incarnation = *known.incarnation.get_or_insert(hello.incarnation);
        if incarnation != hello.incarnation {
            let theirs = hello.incarnation;
            if !is_ours {
                return Err(Refusal::Incarnation { node, theirs, known: incarnation });
            }
            (known.incarnation, known.latest) = (Some(theirs), None);
        }
        if known.latest.is_some_and(|latest| !follows(hello.boot, former_boots, latest)) {
            return Err(Refusal::FormerProcess(node));
        }
        known.latest = Some(hello.boot);
        let is_same =
            |of: &&mut Process| (of.boot, of.incarnation) == (hello.boot, hello.incarnation);
        if let Some(process) = known.present.as_mut().filter(is_same) {
            process.refused = false;
            return Ok(None);
        }
        let replaced = known.present.replace(Process::new(hello));
        // Another directory under the node's id proves nothing about the former process (MEM 4).
        let cause = |of: &Process| match of.incarnation == hello.incarnation {
            true => Cause::Replaced,
            false => Cause::Closed,
        };
        Ok(replaced.map(|process| Lost { node, boot: process.boot, cause: cause(&process) }))
    }

    /// Both lanes to the process are linked. `false` if it has been replaced meanwhile.
    pub(crate) fn linked(&self, node: NodeId, boot: BootNumber) -> bool {
        let mut nodes = self.nodes.lock();
        let present = nodes.get_mut(&node).and_then(|known| known.present.as_mut());
        match present {
            Some(process) if process.boot == boot => {
                (process.link, process.refused) = (Link::Open, false);
                true
            }
            Some(_) | None => false,
        }
    }

    /// A lane to the process has ended.
    pub(crate) fn closed(&self, node: NodeId, boot: BootNumber) -> Option<Lost> {
        let mut nodes = self.nodes.lock();
        let process = nodes.get_mut(&node)?.present.as_mut()?;
        if process.boot != boot || process.link != Link::Open {
            return None;
        }
        process.link = Link::Closed;
        Some(Lost { node, boot, cause: Cause::Closed })
    }

    /// The process has opened a stream to this node.
    pub(crate) fn stream_opened(&self, node: NodeId, boot: BootNumber) {
        let mut nodes = self.nodes.lock();
        let present = nodes.get_mut(&node).and_then(|known| known.present.as_mut());
        if let Some(process) = present.filter(|process| process.boot == boot) {
            process.streams += 1;
        }
    }

    /// A stream that the process has opened has ended.
    pub(crate) fn stream_ended(&self, node: NodeId, boot: BootNumber) -> Option<Lost> {
        let mut nodes = self.nodes.lock();
        let known = nodes.get_mut(&node)?;
        let process = known.present.as_mut().filter(|process| process.boot == boot)?;
        process.streams = process.streams.saturating_sub(1);
        known.take_dead(node)
    }

    /// Records that the node's address refused a connection: a process whose connections have all
    /// closed is dead (DESIGN §8). If it is met again nevertheless, something else has refused, and
    /// it is linked as if it were new.
    pub(crate) fn refused(&self, node: NodeId) -> Option<Lost> {
        let mut nodes = self.nodes.lock();
        let known = nodes.get_mut(&node)?;
        known.present.as_mut()?.refused = true;
        known.take_dead(node)
    }

    /// The node's present process, unless it is dead.
    pub(crate) fn present(&self, node: NodeId) -> Option<BootNumber> {
        self.nodes.lock().get(&node)?.present.as_ref().map(|process| process.boot)
    }
}

/// True if a process is the same one, or a later one of a directory that knows it. Directories
/// remember a number of boots: an older one than all of these counts as forgotten.
fn follows(boot: BootNumber, former_boots: &[u64], latest: BootNumber) -> bool {
    let forgotten = former_boots.first().is_some_and(|oldest| latest.0 < *oldest);
    boot == latest || former_boots.contains(&latest.0) || (forgotten && boot > latest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::MachineVersion;

    fn hello(boot: u64, incarnation: u64) -> PeerHello {
        PeerHello {
            node: NodeId(2),
            boot: BootNumber(boot),
            incarnation: Incarnation(incarnation),
            cluster: None,
            machine: MachineVersion::FIRST,
        }
    }

    fn lost(boot: u64, cause: Cause) -> Option<Lost> {
        Some(Lost { node: NodeId(2), boot: BootNumber(boot), cause })
    }

    #[test]
    fn a_closed_connection_proves_nothing_a_refused_one_does() {
        let peers = Peers::new([NodeId(2)]);
        assert_eq!(peers.refused(NodeId(2)), None, "never met");
        assert_eq!(peers.meet(&hello(1, 9), &[], false), Ok(None));
        assert_eq!(peers.refused(NodeId(2)), None, "its port may not be open yet");
        assert!(peers.linked(NodeId(2), BootNumber(1)));
        assert_eq!(peers.refused(NodeId(2)), None, "linked: it lives");
        assert_eq!(peers.closed(NodeId(2), BootNumber(1)), lost(1, Cause::Closed));
        assert_eq!(peers.closed(NodeId(2), BootNumber(1)), None, "told once");
        assert_eq!(peers.refused(NodeId(2)), lost(1, Cause::Refused));
        assert_eq!(peers.refused(NodeId(2)), None, "told once");
        assert_eq!(peers.meet(&hello(1, 9), &[], false), Ok(None), "it was not dead: linked again");
        assert!(peers.linked(NodeId(2), BootNumber(1)));
    }

    /// A firewall rule against its port, or a proxy that has stopped, does not mean that it is
    /// dead.
    #[test]
    fn a_process_whose_own_streams_are_open_is_not_dead_though_its_address_refuses() {
        let peers = Peers::new([NodeId(2)]);
        assert_eq!(peers.meet(&hello(1, 9), &[], false), Ok(None));
        peers.stream_opened(NodeId(2), BootNumber(1));
        peers.stream_opened(NodeId(2), BootNumber(1));
        assert!(peers.linked(NodeId(2), BootNumber(1)));
        assert_eq!(peers.closed(NodeId(2), BootNumber(1)), lost(1, Cause::Closed));
        assert_eq!(peers.refused(NodeId(2)), None);
        assert_eq!(peers.stream_ended(NodeId(2), BootNumber(1)), None);
        // After another hello the earlier refusal proves nothing any more.
        assert_eq!(peers.meet(&hello(1, 9), &[], false), Ok(None));
        assert_eq!(peers.stream_ended(NodeId(2), BootNumber(1)), None);
        assert_eq!(peers.present(NodeId(2)), Some(BootNumber(1)));
        assert_eq!(peers.refused(NodeId(2)), lost(1, Cause::Refused));
        // The other order: refused first, dead at the end of its last stream.
        assert_eq!(peers.meet(&hello(1, 9), &[], false), Ok(None));
        assert_eq!(peers.present(NodeId(2)), Some(BootNumber(1)), "it lives after all");
        peers.stream_opened(NodeId(2), BootNumber(1));
        assert!(peers.linked(NodeId(2), BootNumber(1)));
        assert_eq!(peers.closed(NodeId(2), BootNumber(1)), lost(1, Cause::Closed));
        assert_eq!(peers.refused(NodeId(2)), None);
        assert_eq!(peers.stream_ended(NodeId(2), BootNumber(1)), lost(1, Cause::Refused));
        assert_eq!(peers.present(NodeId(2)), None);
    }

    #[test]
    fn a_higher_boot_number_replaces_a_process_for_ever() {
        let peers = Peers::new([NodeId(2)]);
        assert_eq!(peers.meet(&hello(1, 9), &[], false), Ok(None));
        assert!(peers.linked(NodeId(2), BootNumber(1)));
        assert_eq!(peers.meet(&hello(2, 9), &[1], false), Ok(lost(1, Cause::Replaced)));
        assert!(!peers.linked(NodeId(2), BootNumber(1)));
        assert_eq!(peers.closed(NodeId(2), BootNumber(1)), None);
        assert_eq!(peers.meet(&hello(1, 9), &[], false), Err(Refusal::FormerProcess(NodeId(2))));
        assert_eq!(peers.present(NodeId(2)), Some(BootNumber(2)));
    }

    #[test]
    fn a_hello_of_a_former_process_that_comes_late_harms_nothing() {
        let peers = Peers::new([NodeId(2)]);
        assert_eq!(peers.meet(&hello(5, 9), &[1, 4], false), Ok(None));
        // Its predecessor had dialed too, and its hello arrives only now.
        assert_eq!(peers.meet(&hello(4, 9), &[1], false), Err(Refusal::FormerProcess(NodeId(2))));
        assert_eq!(peers.meet(&hello(5, 9), &[1, 4], false), Ok(None));
        assert!(peers.linked(NodeId(2), BootNumber(5)));
    }

    #[test]
    fn a_directory_that_knows_nothing_of_a_later_start_is_refused() {
        let peers = Peers::new([NodeId(2)]);
        peers.expect(NodeId(2), Incarnation(9), Some(BootNumber(30)));
        let set_back = Err(Refusal::FormerProcess(NodeId(2)));
        // It is refused however often its directory was opened since.
        for boot in [20, 31, 40] {
            assert_eq!(peers.meet(&hello(boot, 9), &[10, boot - 2], false), set_back, "{boot}");
        }
        assert_eq!(peers.meet(&hello(50, 9), &[], false), set_back);
        assert_eq!(peers.meet(&hello(40, 9), &[10, 30, 39], false), Ok(None));
        // The catalog's facts arrive later than the known ones.
        peers.expect(NodeId(2), Incarnation(9), Some(BootNumber(30)));
        assert_eq!(peers.meet(&hello(40, 9), &[10, 30, 39], false), Ok(None));
        // So many starts ago that the directory has forgotten it.
        assert_eq!(peers.meet(&hello(90, 9), &[60, 61], false), Ok(lost(40, Cause::Replaced)));
    }

    #[tokio::test]
    async fn mem_11_a_forgotten_directory_is_refused_for_ever() {
        let peers = Peers::new([NodeId(2)]);
        assert_eq!(peers.meet(&hello(1, 9), &[], false), Ok(None));
        peers.forget([Incarnation(9)].into());
        peers.until_refused(&hello(1, 9)).await;
        let forgotten = Err(Refusal::Forgotten(NodeId(2)));
        assert_eq!(peers.meet(&hello(2, 9), &[1], false), forgotten);
        peers.expect(NodeId(2), Incarnation(8), None);
        let replaced = lost(1, Cause::Closed);
        assert_eq!(
            peers.meet(&hello(1, 8), &[], false),
            Ok(replaced),
            "another directory may come"
        );
        assert_eq!(peers.meet(&hello(2, 9), &[1], false), forgotten);
    }

    #[test]
    fn mem_03_a_node_that_the_own_copy_of_the_catalog_lacks_may_dial() {
        let peers = Peers::new([NodeId(3)]);
        assert_eq!(peers.meet(&hello(1, 9), &[], false), Err(Refusal::Unknown(NodeId(2))));
        assert_eq!(peers.meet(&hello(1, 9), &[], true), Ok(None));
        let other = peers.meet(&hello(2, 8), &[], true);
        assert_eq!(other, Ok(lost(1, Cause::Closed)), "which proves no death");
    }

    #[test]
    fn a_node_that_lost_its_data_is_refused_until_it_is_expected() {
        let peers = Peers::new([NodeId(2)]);
        assert_eq!(peers.meet(&hello(1, 9), &[], false), Ok(None));
        let refused = peers.meet(&hello(2, 10), &[1], false);
        assert!(matches!(refused, Err(Refusal::Incarnation { .. })));
        peers.expect(NodeId(2), Incarnation(10), Some(BootNumber(2)));
        assert_eq!(peers.meet(&hello(2, 10), &[1], false), Ok(lost(1, Cause::Closed)));
        // Another directory counts from its own beginning.
        peers.expect(NodeId(2), Incarnation(11), Some(BootNumber(1)));
        assert_eq!(peers.meet(&hello(1, 11), &[], false), Ok(lost(2, Cause::Closed)));
        let stranger = PeerHello { node: NodeId(5), ..hello(1, 1) };
        assert_eq!(peers.meet(&stranger, &[], false), Err(Refusal::Unknown(NodeId(5))));
    }
}
