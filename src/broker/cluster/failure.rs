//! Nodes that die, come back, or cannot be reached (DESIGN §8, SES 6, DLV 5, Q-62), and what a
//! group's leader does about them.
//!
//! A refused connection alone does not prove that a process is dead: a firewall, a proxy or one
//! broken link refuses too. A process counts as dead if, in addition, it has no stream of its own
//! open to this node (`rpc/peers`) and no reachable node reaches it (`raft/reach`). A crash closes
//! all of these at once, so no timeout is needed. An accusation fences one start. It ends when the
//! process is connected again or has been fenced.
//!
//! Before a leadership begins, another leader may have contacted a node that this one cannot reach
//! (DLV 5). So a node counts as unreachable from the start of this process until it is linked, but
//! for a leader no longer than its leadership has lasted. A front end counts only the notice of a
//! leader that a majority has just answered (`front::leader_contact`), never an announcement.

use crate::{
    cluster::{
        Cluster,
        liveness::Outlook,
        raise::{MemberVersion, may_raise},
    },
    leader::Leader,
    node::Node,
    peers::PeerMessage,
};
use quorate_catalog::{CatalogCommand, CatalogReply};
use quorate_rpc::{Cause, PeerHello};
use quorate_types::{BootNumber, GroupId, Home, NodeId, SessionId, StartNumber, Term};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Pause before the catalog is read again.
const RETRY: Duration = Duration::from_millis(20);
/// How often a leader checks whether nodes have come or gone, and whether queues and names agree.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

impl Node {
    /// Handles a new link: both lanes to the process are open. Both sides announce their
    /// leaderships, and unanswered batches are sent again (SES 5).
    pub(crate) fn connected(self: &Arc<Self>, peer: &PeerHello) {
        self.cluster.failures.absences.lock().linked(peer.node);
        for home in self.base.led.homes() {
            if let Some(term) = self.base.led.leading(home) {
                self.leader.announce(home, term, Some(peer.node));
            }
        }
        // After the announcements: a leader's time counts for more than others'.
        self.base.led.send_clocks(self.base.led.queue_groups(), Some(peer.node));
        for home in self.base.proposers.homes() {
            if let Some((leader, term)) = self.base.proposers.leader(home)
                && leader == peer.node
            {
                self.front.announced(home, leader, term);
            }
        }
    }
}

impl Cluster {
    /// Handles the loss of a process: it can no longer be reached, or is known to be dead.
    pub(crate) fn lost(self: &Arc<Self>, node: NodeId, boot: BootNumber, cause: Cause) {
        {
            let mut absences = self.failures.absences.lock();
            // Read under the lock: a successor of the process may already be linked.
            let linked = self.base.context.peers.connected(node).map(|peer| peer.boot);
            absences.lost(Instant::now(), (node, boot), linked);
        }
        if cause.is_known_dead() {
            let this = Arc::clone(self);
            self.base.context.spawn(async move {
                let groups = this.base.context.groups().cloned();
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

    /// Records an accusation: no reachable node reaches the process.
    async fn accuse(self: &Arc<Self>, node: NodeId, boot: BootNumber) {
        let added = {
            let catalog = self.base.catalog.read();
            let mut accusations = self.failures.accusations.lock();
            let added = accusations.add(&catalog, node, boot);
            // Under the lock of the accusations, so that it cannot end first: a later process of
            // the node may hold a lease.
            if added {
                self.base.lease.dead(node, boot);
            }
            added
        };
        if added {
            self.base.lease.report_all_applied();
        }
        self.fence_dead_nodes().await;
    }

    /// As the catalog's leader, fences the starts of processes that are known to be dead.
    pub(crate) async fn fence_dead_nodes(self: &Arc<Self>) {
        let due = self.to_fence();
        if self.base.context.catalog_leader() != Some(self.base.context.me) {
            return;
        }
        let down = |SessionId { node, start }| CatalogCommand::NodeDown { node, start };
        let commands: Vec<_> = due.into_iter().map(down).collect();
        if !commands.is_empty() && self.base.catalog_client.propose_all(commands).await.is_err() {
            tracing::debug!("cannot record in the catalog yet that a node is dead");
        }
    }

    /// As the catalog's leader, raises the version of the replicated machine if all members are linked
    /// and know the next one (MEM 15). Each must have a start in the catalog: version 2 makes members
    /// of the nodes that the catalog knows, and lets no others start (MEM 1).
    pub(crate) async fn raise_machine(&self) {
        let context = &self.base.context;
        let Some(links) = context.peers.links() else { return };
        let next = links.machine().present().next();
        if context.catalog_leader() != Some(context.me) || links.machine().newest() < next {
            return;
        }
        let connected = links.all_connected();
        let newest = |node: NodeId| {
            let peer = connected.iter().find(|peer: &&PeerHello| peer.node == node);
            if node == context.me {
                Some(links.machine().newest())
            } else {
                peer.map(|it| it.machine)
            }
        };
        let members = context.members();
        let is_ready = {
            let catalog = self.base.catalog.read();
            let known = members.into_iter().map(|node| MemberVersion {
                newest: newest(node),
                has_start: catalog.live_session(node).is_some(),
            });
            catalog.machine().next() == next && may_raise(catalog.machine(), known)
        };
        if !is_ready {
            return;
        }
        let raise = CatalogCommand::RaiseMachine(next);
        if let Err(error) = self.base.catalog_client.propose(raise).await {
            tracing::debug!(%error, "the machine version is not raised yet");
        }
    }

    /// Begins this node's leadership of the catalog's group.
    pub(crate) fn lead_catalog(self: &Arc<Self>) {
        self.base.lease.lead();
        // Ends accusations that no longer apply: a later process of the node may hold a lease of
        // the previous leader.
        drop(self.to_fence());
        let dead = self.failures.accusations.lock().all();
        for (node, boot) in dead {
            self.base.lease.dead(node, boot);
        }
        let cluster = Arc::clone(self);
        self.base.context.spawn(async move { cluster.fence_dead_nodes().await });
    }

    /// Handles a change of the nodes' starts or of the cluster's life: informs the groups led here,
    /// and ends this session if it has been fenced.
    pub(crate) fn nodes_changed(self: &Arc<Self>) {
        if let Some(session) = self.base.context.session()
            && self.base.catalog.read().is_fenced(session)
        {
            self.fenced(session);
        }
        self.expect_incarnations();
        for group in self.base.led.groups() {
            self.leader.reconcile_nodes(group);
        }
    }

    /// Accepts other nodes only with the data directory that the catalog records for them, in its
    /// recorded state or a later one: a node that has lost its data must neither vote nor
    /// acknowledge (DESIGN §8).
    pub(crate) fn expect_incarnations(&self) {
        let Some(links) = self.base.context.peers.links() else { return };
        let catalog = self.base.catalog.read();
        let me = self.base.context.me;
        for (node, entry) in catalog.nodes().filter(|(node, _)| *node != me) {
            if entry.start > StartNumber(0) && catalog.member(node).is_none() {
                links.expect(node, entry.incarnation, Some(entry.boot));
            }
        }
        // A member's directory may have had no process yet (MEM 1, MEM 10).
        for (node, member) in catalog.members().filter(|(node, _)| *node != me) {
            let entry = catalog.node(node).filter(|it| it.incarnation == member.incarnation);
            let boot = entry.filter(|it| it.start > StartNumber(0)).map(|it| it.boot);
            links.expect(node, member.incarnation, boot);
        }
    }

    /// Starts to be fenced. Removes accusations that no longer apply.
    pub(crate) fn to_fence(&self) -> Vec<SessionId> {
        let lives = |node, boot| {
            self.base.context.peers.links().is_some_and(|links| links.lives(node, boot))
        };
        let catalog = self.base.catalog.read();
        self.failures.accusations.lock().fences_due(&catalog, lives)
    }

    /// Announces this process's start to the catalog, and begins the session that it is given
    /// (SES 1).
    pub(crate) async fn announce_start(self: &Arc<Self>) {
        self.wait_for_former_directory().await;
        loop {
            let started = CatalogCommand::NodeStarted {
                node: self.base.context.me,
                incarnation: self.base.context.settings.incarnation,
                boot: self.base.context.boot,
                rpc_address: self.base.context.settings.rpc_address.clone(),
                amqp_address: self.base.context.settings.amqp_address.clone(),
            };
            match self.base.catalog_client.propose(started).await {
                Ok((_, CatalogReply::Started(start))) if self.base.proposers.is_next(start) => {
                    return self.begin_session(start);
                }
                Ok((_, reply)) => {
                    tracing::error!(?reply, "the catalog did not accept the start of this node");
                    tokio::time::sleep(CHECK_INTERVAL).await;
                }
                Err(error) => {
                    tracing::debug!(%error, "the start of this node is not in the catalog yet");
                }
            }
        }
    }

    /// The first start of a directory that has taken the place of another one ends what that one's
    /// process held. That process may live, and show it to its clients, for the time of DLV 5 (MEM 4).
    async fn wait_for_former_directory(&self) {
        while !self.base.catalog_client.read().await {
            tokio::time::sleep(RETRY).await;
        }
        let settings = &self.base.context.settings;
        let forgotten_at = {
            let catalog = self.base.catalog.read();
            let entry = catalog.node(settings.me);
            let is_first = entry.is_none_or(|entry| entry.incarnation != settings.incarnation);
            let forgotten = catalog.forgotten_start(settings.me);
            forgotten.filter(|start| is_first && *start > StartNumber(0)).and_then(|_| {
                drop(catalog);
                self.base.catalog.forgotten_at(settings.me)
            })
        };
        if let Some(at) = forgotten_at {
            let time = Duration::from_millis(settings.unreachable_node_timeout_ms);
            tracing::info!(
                seconds = time.as_secs(),
                "this node takes the place of another data directory, whose process may live: it serves \
                 no clients before that is over"
            );
            tokio::time::sleep_until(at + time).await;
        }
    }

    pub(crate) fn begin_session(self: &Arc<Self>, start: StartNumber) {
        let session = SessionId { node: self.base.context.me, start };
        // The queues first: no command of this session may reach queues of the previous session,
        // which are dropped here.
        self.base.led.local.begin(self.base.context.me, start);
        self.base.proposers.restart(session);
        let (home, term) = (self.base.led.own_home(), Term(start.0));
        // Before batches of the session are accepted: only a leader performs the effects of their
        // commands.
        self.base.led.leaderships.lead(home, term);
        self.base.context.begin_session(session);
        self.leader.announce(home, term, None);
        tracing::debug!(%session, "session started");
        self.started.send_replace(true);
        // A fence that came before the session was in force has found none to end.
        if self.base.catalog.read().is_fenced(session) {
            self.fenced(session);
        }
    }

    /// Handles the fencing of this node's session: closes all clients, and announces a new start
    /// (SES 6).
    pub(crate) fn fenced(self: &Arc<Self>, session: SessionId) {
        if !self.base.context.end_session(session) {
            return;
        }
        tracing::warn!(
            %session, "the cluster declared this node dead; closing all clients, starting a session"
        );
        self.started.send_replace(false);
        self.clients.close_all("the node was taken for dead by the cluster");
        self.base.led.stop(self.base.led.own_home());
        let node = Arc::clone(self);
        self.base.context.spawn(async move { node.announce_start().await });
    }
}

impl Node {
    /// Checks the other nodes, and sends notices and counts, at each interval; runs until the node
    /// stops.
    pub(crate) async fn check_nodes(self: Arc<Self>) {
        let mut interval = tokio::time::interval(CHECK_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.cluster.fence_dead_nodes().await;
            self.cluster.raise_machine().await;
            self.front.answer_for_ended_starts();
            self.leader.send_majority_contacts();
            self.clients.send_counts();
            for group in self.base.led.groups() {
                self.leader.reconcile_nodes(group);
            }
        }
    }
}

impl Leader {
    /// Sends all nodes the groups that this node leads and whose majority has recently answered it
    /// (DLV 5).
    fn send_majority_contacts(self: &Arc<Self>) {
        let Some(groups) = self.base.context.groups() else { return };
        let led = self.base.led.groups().into_iter();
        let answered =
            led.filter(|group| groups.majority_answered_within(*group, 2 * CHECK_INTERVAL));
        let terms: Vec<_> = answered
            .filter_map(|group| Some((group, self.base.led.leading(Home::Group(group))?)))
            .collect();
        self.base.led.send_clocks(terms.iter().map(|(group, _)| *group), None);
        self.send_majority_contact(terms);
    }

    /// Sends all nodes a notice that majorities of these groups have just answered this node.
    pub(crate) fn send_majority_contact(
        self: &Arc<Self>,
        groups: impl IntoIterator<Item = (GroupId, Term)>,
    ) {
        let groups: Vec<_> = groups.into_iter().collect();
        if !groups.is_empty() {
            self.base.context.peers.send_to_all(PeerMessage::LeaderContact(groups));
        }
    }

    /// Proposes what makes a group that this node leads agree with the catalog's nodes and lives.
    pub(crate) fn reconcile_nodes(&self, group: GroupId) {
        let absences = self.failures.absences.lock().clone();
        let outlook = Outlook {
            now: Instant::now(),
            absences: &absences,
            led_for: self.base.led.leaderships.leading_for(Home::Group(group)).unwrap_or_default(),
            unreachable_node_timeout: Duration::from_millis(
                self.base.context.settings.unreachable_node_timeout_ms,
            ),
            forgotten_for: &|node| Some(self.base.catalog.forgotten_at(node)?.elapsed()),
        };
        let commands = {
            let catalog = self.base.catalog.read();
            self.base
                .led
                .with_machine(Home::Group(group), |machine| outlook.commands(&catalog, machine))
        };
        self.base.led.propose_to(Home::Group(group), commands.unwrap_or_default());
    }
}
