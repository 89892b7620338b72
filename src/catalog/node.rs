//! Nodes and their starts: announcements, fences, lives of the cluster, its shape (SES 1, SES 6,
//! DESIGN §7).

use crate::{
    command::CatalogReply,
    machine::Catalog,
    objects::ClusterShape,
    output::{CatalogEvent, CatalogOutput},
    record::{CatalogKey, NodeEntry},
};
use quorate_types::{BootNumber, Home, MachineVersion, NodeId, QueueId, SessionId, StartNumber};

/// Number of former processes that are remembered of each node.
pub const FORMER_BOOTS_MAX: usize = 8;

/// Entries of the catalog that the copy of a node with a routing lease may lack, with room to spare (NAM 5).
const LAG_MAX: u64 = 4_096;

impl Catalog {
    /// The record of the node.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<&NodeEntry> {
        self.nodes.get(&node)
    }

    /// All nodes that have ever started, in ascending order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeEntry)> {
        self.nodes.iter().map(|(node, entry)| (*node, entry))
    }

    /// True if that start of the node is fenced (SES 6). A start that this copy does not know is
    /// not fenced.
    #[must_use]
    pub fn is_fenced(&self, session: SessionId) -> bool {
        self.nodes.get(&session.node).is_some_and(|node| session.start <= node.fenced)
    }

    /// True if the queue is bound to a connection of a fenced start: it has ended (NAM 8, LET 4).
    #[must_use]
    pub fn is_over(&self, queue: QueueId) -> bool {
        match queue.home {
            Home::Node(node) => self.is_fenced(SessionId { node, start: StartNumber(queue.index) }),
            Home::Group(_) => false,
        }
    }

    /// True if that start of a node is over, or there was none and will be none: start numbers are log
    /// indexes (SES 1), so this copy knows all starts up to its own index.
    #[must_use]
    pub fn has_ended(&self, session: SessionId) -> bool {
        let known = self.nodes.get(&session.node).map(|entry| entry.start);
        let is_past = session.start.0 <= self.version().0;
        is_past && known != Some(session.start) || self.is_fenced(session)
    }

    /// False if the queue is bound to a connection of a start that has ended, or that cannot be yet. Clients
    /// may make up names of such queues (NAM 8).
    #[must_use]
    pub(crate) fn may_live(&self, queue: QueueId) -> bool {
        let Home::Node(node) = queue.home else { return true };
        let is_near = queue.index <= self.version().0.saturating_add(LAG_MAX);
        is_near && !self.has_ended(SessionId { node, start: StartNumber(queue.index) })
    }

    /// The node's latest start, unless it is fenced.
    #[must_use]
    pub fn live_session(&self, node: NodeId) -> Option<SessionId> {
        let start = self.nodes.get(&node).filter(|entry| entry.start > entry.fenced)?.start;
        Some(SessionId { node, start })
    }

    /// The start that a process of the node was given, if it is the node's latest.
    #[must_use]
    pub fn session_of(&self, node: NodeId, boot: BootNumber) -> Option<SessionId> {
        let start = self.nodes.get(&node).filter(|entry| entry.boot == boot)?.start;
        Some(SessionId { node, start })
    }

    /// How often the whole cluster has been stopped and started again, as far as it noticed (Q-11,
    ///
    #[must_use]
    pub fn life(&self) -> u64 {
        self.life
    }

    /// The cluster's shape; `None` until it is formed.
    #[must_use]
    pub fn shape(&self) -> Option<ClusterShape> {
        self.shape
    }

    /// The present version of the replicated machine.
    #[must_use]
    pub fn machine(&self) -> MachineVersion {
        self.machine
    }

    /// MEM 15: only the next version has an effect, so that a repeat has none. Version 2 has one when
    /// there are nodes to make members of (MEM 1).
    pub(crate) fn raise_machine(
        &mut self,
        to: MachineVersion,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        let begins = to == MachineVersion::MEMBERS;
        if to == self.machine.next() && (!begins || self.can_have_members()) {
            self.machine = to;
            self.changed(CatalogKey::State, out);
            out.events.push(CatalogEvent::MachineRaised(to));
            if begins {
                self.found_members(out);
            }
        }
        CatalogReply::Done
    }

    /// Only the first command of this kind has an effect.
    pub(crate) fn form(&mut self, shape: ClusterShape, out: &mut CatalogOutput) -> CatalogReply {
        if self.shape.is_none() {
            self.shape = Some(shape);
            self.changed(CatalogKey::State, out);
            out.events.push(CatalogEvent::Formed(shape));
        }
        CatalogReply::Done
    }

    /// SES 1: the start number is the index of the entry. It grows, and no other start has it,
    /// because at most one announcement of the node in an entry counts. A second one is answered
    /// `Fenced`, like a late one of a former process. A fenced process announces itself again. From
    /// machine version 2 on only the directories of members may start (MEM 1).
    pub(crate) fn node_started(
        &mut self,
        node: NodeId,
        announced: NodeEntry,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        if self.machine >= MachineVersion::MEMBERS
            && let Err(denial) = self.check_start(node, announced.incarnation)
        {
            return CatalogReply::Denied(denial.into());
        }
        let start = StartNumber(self.version().0);
        let known = self.nodes.get(&node).cloned().unwrap_or_default();
        if known.boot == announced.boot && known.start > known.fenced {
            return CatalogReply::Started(known.start);
        }
        if start <= known.start || known.former_boots.contains(&announced.boot) {
            return CatalogReply::Fenced;
        }
        let mut former_boots = known.former_boots;
        let returns = known.start > StartNumber(0);
        if returns && known.boot != announced.boot {
            former_boots.push(known.boot);
            let surplus = former_boots.len().saturating_sub(FORMER_BOOTS_MAX);
            former_boots.drain(..surplus);
        }
        let data_lost = returns && known.incarnation != announced.incarnation;
        let entry =
            NodeEntry { start, fenced: StartNumber(start.0 - 1), former_boots, ..announced };
        self.nodes.insert(node, entry);
        self.changed(CatalogKey::Node(node), out);
        out.events.push(CatalogEvent::NodeStarted { node, start, data_lost });
        self.remove_queues_of(node, out);
        CatalogReply::Started(start)
    }

    /// SES 6. A start that was never given is not fenced: `NodeDown` is about past starts only.
    pub(crate) fn node_down(
        &mut self,
        node: NodeId,
        start: StartNumber,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        let Some(entry) = self.nodes.get_mut(&node) else { return CatalogReply::Done };
        let start = start.min(entry.start);
        if start > entry.fenced {
            entry.fenced = start;
            self.changed(CatalogKey::Node(node), out);
            out.events.push(CatalogEvent::NodeDowned { node, start });
            self.remove_queues_of(node, out);
        }
        CatalogReply::Done
    }

    /// shared queues that are not durable do not outlive a stop of the whole cluster; their
    /// groups' leaders end them when they see the new life. Connection-bound queues end when the
    /// start of their node is fenced.
    pub(crate) fn new_life(&mut self, boot: BootNumber, out: &mut CatalogOutput) -> CatalogReply {
        if self.life_boot == Some(boot) {
            return CatalogReply::Done;
        }
        self.life += 1;
        self.life_boot = Some(boot);
        self.changed(CatalogKey::State, out);
        out.events.push(CatalogEvent::LifeBegan { life: self.life });
        let mortal: Vec<QueueId> = self
            .queues()
            .filter(|queue| !queue.durable && matches!(queue.id.home, Home::Group(_)))
            .map(|queue| queue.id)
            .collect();
        mortal.into_iter().for_each(|queue| drop(self.remove_queue(queue, out)));
        CatalogReply::Done
    }

    /// NAM 8: removes the entries of connection-bound queues of the node's fenced starts.
    fn remove_queues_of(&mut self, node: NodeId, out: &mut CatalogOutput) {
        let home = Home::Node(node);
        let fenced = self.nodes.get(&node).map_or(0, |entry| entry.fenced.0);
        let first = QueueId { home, index: 0, position: 0 };
        let last = QueueId { home, index: fenced, position: u64::MAX };
        let ids: Vec<QueueId> = self.queues.range(first..=last).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|queue| drop(self.remove_queue(queue, out)));
    }
}
