//! Nodes that die, come back, or cannot be reached (DESIGN §8, SES 6, DLV 5, Q-62), and what a
//! group's leader makes of it.
//!
//! A refused connection alone does not prove that a process is dead: a firewall, a proxy or one
//! broken link refuses too. A process is taken for dead if, in addition, it has no stream of its
//! own open to this node (`rpc/peers`) and no node that can be reached reaches it (`raft/reach`). A
//! crash closes all of these at once, so no timeout is needed. An accusation fences one start, and
//! it ends when the process is met again or has been fenced.
//!
//! Until a leadership begins, another leader may have been heard on a node that this one cannot
//! reach (DLV 5). So a node counts as unreachable from the start of this process until it is
//! linked, but for a leader at most since its leadership began. On the other side, a front end
//! counts only the notice of a leader that has heard a majority (`hearing`), never an announcement.

use crate::{node::Node, pb, wire};
use parking_lot::Mutex;
use quorate_catalog::{Catalog, CatalogCommand, CatalogReply, NodeEntry};
use quorate_queue::Command;
use quorate_rpc::{Cause, PeerHello};
use quorate_types::{BootNumber, GroupId, Home, NodeId, SessionId, StartNumber, Term};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// How often a leader looks whether nodes have come or gone, and queues and names agree.
const LOOK: Duration = Duration::from_millis(500);
/// A node that is not linked for this long is suspected.
const SUSPECTED_AFTER: Duration = Duration::from_secs(1);

/// What is known of the other nodes' processes.
#[derive(Debug)]
pub(crate) struct Failures {
    /// Processes that are known dead and not fenced yet, each with the start that it is accused of
    /// once the catalog has told it: later ones of the same process are not meant.
    dead: Mutex<BTreeMap<(NodeId, BootNumber), Option<StartNumber>>>,
    /// Members that are not linked, and since when: those not met yet since this process began.
    unreachable: Mutex<BTreeMap<NodeId, Instant>>,
}

impl Failures {
    /// Of a process that has not been linked with anybody.
    pub(crate) fn new(me: NodeId, members: &[NodeId]) -> Self {
        let others = members.iter().filter(|node| **node != me);
        let unreachable = others.map(|node| (*node, Instant::now())).collect();
        Self { dead: Mutex::default(), unreachable: Mutex::new(unreachable) }
    }

    fn unreachable_for(&self, node: NodeId) -> Option<Duration> {
        self.unreachable.lock().get(&node).map(Instant::elapsed)
    }

    /// Processes that are known dead and not fenced yet.
    pub(crate) fn dead(&self) -> Vec<(NodeId, BootNumber)> {
        self.dead.lock().keys().copied().collect()
    }

    /// Starts to be fenced. A process that lives after all is accused no more, nor is one that is
    /// fenced: it may have begun anew.
    fn to_fence(
        &self,
        catalog: &Catalog,
        lives: impl Fn(NodeId, BootNumber) -> bool,
    ) -> Vec<SessionId> {
        let mut due = Vec::new();
        self.dead.lock().retain(|&(node, boot), accused| {
            let replaced = catalog.node(node).is_some_and(|entry| entry.boot > boot);
            if replaced || lives(node, boot) {
                return false;
            }
            *accused = accused.or_else(|| Some(catalog.session_of(node, boot)?.start));
            // Its start may be under way still.
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

impl Node {
    /// Both lanes to a process are open: what it leads and what it sent may be new (SES 5).
    pub(crate) fn connected(self: &Arc<Self>, peer: &PeerHello) {
        self.failures.unreachable.lock().remove(&peer.node);
        self.tell_clocks(self.sequencers.keys().copied(), Some(peer.node));
        let homes = self.proposers.keys().copied().filter(|home| match home {
            Home::Group(_) => true,
            Home::Node(node) => *node == self.me,
        });
        for home in homes {
            if let Some(term) = self.executor.leading(home) {
                self.announce(home, term, Some(peer.node));
            }
        }
        for (home, proposer) in &self.proposers {
            if let Some((leader, term)) = proposer.leader()
                && leader == peer.node
            {
                self.announced(*home, leader, term);
            }
        }
    }

    /// A process can no longer be reached, or is known dead.
    pub(crate) fn lost(self: &Arc<Self>, node: NodeId, boot: BootNumber, cause: Cause) {
        {
            let mut unreachable = self.failures.unreachable.lock();
            // Under the lock: its successor may be linked already, or at this moment.
            let linked = self.links.get().and_then(|links| links.connected(node));
            if linked.is_none_or(|peer| peer.boot == boot) {
                unreachable.entry(node).or_insert_with(Instant::now);
            }
        }
        if cause.is_known_dead() {
            let this = Arc::clone(self);
            self.spawn(async move {
                let groups = this.groups().cloned();
                let is_dead = match groups {
                    Some(groups) => groups.is_dead(node, boot).await,
                    None => true,
                };
                if is_dead {
                    this.accuse(node, boot).await;
                }
            });
        }
    }

    /// A process is dead, as far as anybody here can tell.
    async fn accuse(self: &Arc<Self>, node: NodeId, boot: BootNumber) {
        self.failures.dead.lock().entry((node, boot)).or_default();
        self.lease.dead(node, boot);
        self.tell_all_applied();
        self.bury().await;
    }

    /// As the catalog's leader: fences the starts of processes that are known dead.
    pub(crate) async fn bury(self: &Arc<Self>) {
        let lives = |node, boot| self.links.get().is_some_and(|links| links.lives(node, boot));
        let due = self.failures.to_fence(&self.catalog.read(), lives);
        if self.catalog_client.leader(self) != Some(self.me) {
            return;
        }
        let down = |SessionId { node, start }| CatalogCommand::NodeDown { node, start };
        let commands: Vec<_> = due.into_iter().map(down).collect();
        if !commands.is_empty() && self.propose_all_to_catalog(commands).await.is_err() {
            tracing::debug!("cannot record in the catalog yet that a node is dead");
        }
    }

    /// Announces this process's start, and takes up its session (SES 1).
    pub(crate) async fn announce_start(self: &Arc<Self>) {
        loop {
            let started = CatalogCommand::NodeStarted {
                node: self.me,
                incarnation: self.settings.incarnation,
                boot: self.boot,
                rpc_address: self.settings.rpc_address.clone(),
                amqp_address: self.settings.amqp_address.clone(),
            };
            match self.propose_to_catalog(started).await {
                Ok((_, CatalogReply::Started(start))) => return self.begin_session(start),
                Ok((_, reply)) => {
                    tracing::error!(?reply, "the catalog did not accept the start of this node");
                    tokio::time::sleep(LOOK).await;
                }
                Err(error) => {
                    tracing::debug!(%error, "the start of this node is not in the catalog yet");
                }
            }
        }
    }

    /// What the catalog's leader puts before anything that it proposes: the cluster's shape if it
    /// has none, and a new life if the whole cluster has been stopped (DESIGN §7). `None` while it
    /// cannot tell that, since it is not linked with a majority.
    pub(crate) fn formation(&self) -> Option<Vec<CatalogCommand>> {
        let catalog = self.catalog.read();
        let mut commands = Vec::new();
        if catalog.shape().is_none() {
            commands.push(CatalogCommand::Form(self.settings.shape));
        }
        let known = |node, boot| catalog.session_of(node, boot).is_some();
        if !known(self.me, self.boot) {
            let peers = self.links.get().map(quorate_rpc::Links::all_connected).unwrap_or_default();
            let linked: Vec<bool> = peers.iter().map(|peer| known(peer.node, peer.boot)).collect();
            if has_been_stopped(&linked, self.settings.members.len())? {
                commands.push(CatalogCommand::NewLife { boot: self.boot });
            }
        }
        Some(commands)
    }

    pub(crate) fn begin_session(self: &Arc<Self>, start: StartNumber) {
        let session = SessionId { node: self.me, start };
        for proposer in self.proposers.values() {
            proposer.restart(session);
        }
        self.local_entries.write().clear();
        self.local.begin(self.me, start);
        *self.session.write() = Some(session);
        let home = Home::Node(self.me);
        let term = Term(start.0);
        self.executor.lead(home, term);
        self.announce(home, term, None);
        self.announced(home, self.me, term);
        tracing::debug!(%session, "session started");
        self.started.send_replace(true);
    }

    /// This run has been fenced: its clients are closed, it begins anew (SES 6).
    pub(crate) fn fenced(self: &Arc<Self>, session: SessionId) {
        {
            let mut own = self.session.write();
            if *own != Some(session) {
                return;
            }
            *own = None;
        }
        tracing::warn!(
            %session, "the cluster declared this node dead; closing all clients, starting a session"
        );
        self.started.send_replace(false);
        self.close_all("the node was taken for dead by the cluster");
        for home in self.proposers.keys() {
            if let Home::Node(_) = home {
                self.executor.stop(*home);
            }
        }
        let node = Arc::clone(self);
        self.spawn(async move { node.announce_start().await });
    }

    /// What leaders look after; runs as long as the node.
    pub(crate) async fn look_after(self: Arc<Self>) {
        let mut interval = tokio::time::interval(LOOK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.bury().await;
            self.tell_heard();
            self.tell_counts();
            for group in self.led_groups() {
                self.look_after_nodes(group);
            }
        }
    }

    /// Tells everyone which groups this node leads with a majority behind it (DLV 5).
    fn tell_heard(self: &Arc<Self>) {
        let Some(groups) = self.groups() else { return };
        let led = self.led_groups().into_iter();
        let heard = led.filter(|group| groups.majority_heard_within(*group, 2 * LOOK));
        let terms =
            heard.filter_map(|group| Some((group, self.executor.leading(Home::Group(group))?)));
        self.tell_heard_of(terms);
    }

    /// Tells everyone that this node has just heard a majority of groups that it leads.
    pub(crate) fn tell_heard_of(
        self: &Arc<Self>,
        groups: impl IntoIterator<Item = (GroupId, Term)>,
    ) {
        let mut heard = pb::Heard::default();
        for (group, term) in groups {
            self.heard(Home::Group(group), self.me, term);
            heard.groups.push(pb::heard::Group { group: u32::from(group.0), term: term.0 });
        }
        if !heard.groups.is_empty() {
            self.tell_all(wire::HEARD, &wire::encode(&heard));
        }
    }

    /// Makes a group that this node leads agree with what the catalog says of nodes and lives.
    pub(crate) fn look_after_nodes(&self, group: GroupId) {
        let mut commands = Vec::new();
        let led_for = self.executor.leading_for(Home::Group(group)).unwrap_or_default();
        let catalog = self.catalog.read();
        self.with_machine(Home::Group(group), |machine| {
            let sessions: BTreeSet<NodeId> =
                machine.sessions().map(|session| session.node).collect();
            let suspected: BTreeSet<NodeId> = machine.suspected().collect();
            for (node, NodeEntry { fenced, .. }) in catalog.nodes() {
                let present = sessions.contains(&node);
                if present && machine.fenced(node) < *fenced {
                    commands.push(Command::NodeDown { node, start: *fenced });
                }
                if node != self.me && present {
                    let silent_for = self.failures.unreachable_for(node);
                    // Until then another leader may have been heard there (DLV 5).
                    let silent_for = silent_for.map(|time| time.min(led_for));
                    commands.extend(self.reachability(node, silent_for, suspected.contains(&node)));
                }
            }
            if machine.life() < catalog.life() {
                commands.push(Command::NewLife { life: catalog.life() });
            }
        });
        drop(catalog);
        for command in commands {
            self.propose_as_leader(group, command);
        }
    }

    fn reachability(
        &self,
        node: NodeId,
        silent_for: Option<Duration>,
        suspected: bool,
    ) -> Option<Command> {
        let timeout = Duration::from_millis(self.settings.consumer_disconnected_timeout_ms);
        match (silent_for, suspected) {
            (None, true) => Some(Command::NodeBack { node }),
            (None, false) => None,
            (Some(time), false) if time > SUSPECTED_AFTER => Some(Command::NodeSuspected { node }),
            (Some(time), true) if time > timeout => Some(Command::NodeTimedOut { node }),
            (Some(_), _) => None,
        }
    }
}

/// Whether the whole cluster has been stopped, as a process sees it whose own start is not known:
/// `linked` says of each linked process whether its start is. `None` while too few are linked.
fn has_been_stopped(linked: &[bool], members: usize) -> Option<bool> {
    if linked.contains(&true) {
        return Some(false);
    }
    ((linked.len() + 1) * 2 > members).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_catalog::{CatalogEntry, CatalogOutput};
    use quorate_types::{CatalogIndex, Incarnation, Stamp};

    /// a life that ends too early ends all transient queues.
    #[test]
    fn a_new_life_begins_only_when_a_majority_is_known_to_have_been_stopped() {
        assert_eq!(has_been_stopped(&[], 3), None, "its links are down at the moment");
        assert_eq!(has_been_stopped(&[false], 3), Some(true));
        assert_eq!(has_been_stopped(&[false, true], 3), Some(false), "a rolling restart");
        assert_eq!(has_been_stopped(&[false], 5), None);
        assert_eq!(has_been_stopped(&[], 1), Some(true));
    }

    const TWO: NodeId = NodeId(2);
    const BOOT: BootNumber = BootNumber(20);

    fn apply(catalog: &mut Catalog, index: u64, command: CatalogCommand) {
        let entry = CatalogEntry { stamp: Stamp::default(), commands: vec![command] };
        catalog.apply(CatalogIndex(index), &entry, &mut CatalogOutput::default());
    }

    fn started(boot: BootNumber) -> CatalogCommand {
        CatalogCommand::NodeStarted {
            node: TWO,
            incarnation: Incarnation(2),
            boot,
            rpc_address: String::new(),
            amqp_address: String::new(),
        }
    }

    fn accused() -> Failures {
        let failures = Failures::new(NodeId(1), &[NodeId(1), TWO]);
        failures.dead.lock().insert((TWO, BOOT), None);
        failures
    }

    fn fence(failures: &Failures, catalog: &Catalog, lives: bool) -> Vec<u64> {
        let due = failures.to_fence(catalog, |_, _| lives);
        due.into_iter().map(|session| session.start.0).collect()
    }

    #[test]
    fn ses_06_an_accusation_fences_one_start_of_a_process_and_no_later_one() {
        let (failures, mut catalog) = (accused(), Catalog::new());
        assert!(fence(&failures, &catalog, false).is_empty(), "its start is not known yet");
        apply(&mut catalog, 5, started(BOOT));
        assert_eq!(fence(&failures, &catalog, false), [5]);
        apply(&mut catalog, 6, CatalogCommand::NodeDown { node: TWO, start: StartNumber(5) });
        // It lived after all, and begins anew before anybody has met it again.
        apply(&mut catalog, 7, started(BOOT));
        assert!(fence(&failures, &catalog, false).is_empty());
        assert!(failures.dead().is_empty());
    }

    #[test]
    fn a_process_that_is_met_again_or_replaced_is_accused_no_more() {
        let (failures, mut catalog) = (accused(), Catalog::new());
        apply(&mut catalog, 5, started(BOOT));
        assert!(fence(&failures, &catalog, true).is_empty());
        assert!(fence(&failures, &catalog, false).is_empty(), "that it was met ends the belief");
        let failures = accused();
        apply(&mut catalog, 6, started(BootNumber(21)));
        assert!(fence(&failures, &catalog, false).is_empty());
        assert!(failures.dead().is_empty());
    }

    #[test]
    fn dlv_05_a_member_that_was_never_met_is_unreachable_from_the_start() {
        let failures = Failures::new(NodeId(1), &[NodeId(1), TWO]);
        assert!(failures.unreachable_for(TWO).is_some());
        assert!(failures.unreachable_for(NodeId(1)).is_none());
    }
}
