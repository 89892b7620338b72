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

use crate::{liveness::Outlook, node::Node, peers::PeerMessage};
use quorate_catalog::{CatalogCommand, CatalogReply};
use quorate_rpc::{Cause, PeerHello};
use quorate_types::{BootNumber, GroupId, Home, NodeId, SessionId, StartNumber, Term};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How often a leader looks whether nodes have come or gone, and queues and names agree.
const LOOK: Duration = Duration::from_millis(500);

impl Node {
    /// Both lanes to a process are open: what it leads and what it sent may be new (SES 5).
    pub(crate) fn connected(self: &Arc<Self>, peer: &PeerHello) {
        self.failures.absences.lock().linked(peer.node);
        self.led.tell_clocks(self.led.queue_groups(), Some(peer.node));
        for home in self.led.homes() {
            if let Some(term) = self.led.leading(home) {
                self.announce(home, term, Some(peer.node));
            }
        }
        for home in self.proposers.homes() {
            if let Some((leader, term)) = self.proposers.leader(home)
                && leader == peer.node
            {
                self.announced(home, leader, term);
            }
        }
    }

    /// A process can no longer be reached, or is known dead.
    pub(crate) fn lost(self: &Arc<Self>, node: NodeId, boot: BootNumber, cause: Cause) {
        {
            let mut absences = self.failures.absences.lock();
            // Under the lock: its successor may be linked already, or at this moment.
            let linked = self.context.peers.connected(node).map(|peer| peer.boot);
            absences.lost(Instant::now(), (node, boot), linked);
        }
        if cause.is_known_dead() {
            let this = Arc::clone(self);
            self.context.spawn(async move {
                let groups = this.context.groups().cloned();
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
        if self.failures.accusations.lock().add(&self.catalog.read(), node, boot) {
            self.lease.dead(node, boot);
            self.lease.tell_all_applied();
        }
        self.bury().await;
    }

    /// As the catalog's leader: fences the starts of processes that are known dead.
    pub(crate) async fn bury(self: &Arc<Self>) {
        let due = self.to_fence();
        if self.context.catalog_leader() != Some(self.context.me) {
            return;
        }
        let down = |SessionId { node, start }| CatalogCommand::NodeDown { node, start };
        let commands: Vec<_> = due.into_iter().map(down).collect();
        if !commands.is_empty() && self.catalog_client.propose_all(commands).await.is_err() {
            tracing::debug!("cannot record in the catalog yet that a node is dead");
        }
    }

    /// Starts to be fenced; accusations that are no longer true have ended.
    pub(crate) fn to_fence(&self) -> Vec<SessionId> {
        let lives =
            |node, boot| self.context.peers.links().is_some_and(|links| links.lives(node, boot));
        self.failures.accusations.lock().fences_due(&self.catalog.read(), lives)
    }

    /// Announces this process's start, and takes up its session (SES 1).
    pub(crate) async fn announce_start(self: &Arc<Self>) {
        loop {
            let started = CatalogCommand::NodeStarted {
                node: self.context.me,
                incarnation: self.context.settings.incarnation,
                boot: self.context.boot,
                rpc_address: self.context.settings.rpc_address.clone(),
                amqp_address: self.context.settings.amqp_address.clone(),
            };
            match self.catalog_client.propose(started).await {
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

    pub(crate) fn begin_session(self: &Arc<Self>, start: StartNumber) {
        let session = SessionId { node: self.context.me, start };
        self.proposers.restart(session);
        self.led.local.begin(self.context.me, start);
        self.context.begin_session(session);
        let home = self.led.own_home();
        let term = Term(start.0);
        self.led.leaderships.lead(home, term);
        self.announce(home, term, None);
        tracing::debug!(%session, "session started");
        self.started.send_replace(true);
    }

    /// This run has been fenced: its clients are closed, it begins anew (SES 6).
    pub(crate) fn fenced(self: &Arc<Self>, session: SessionId) {
        if !self.context.end_session(session) {
            return;
        }
        tracing::warn!(
            %session, "the cluster declared this node dead; closing all clients, starting a session"
        );
        self.started.send_replace(false);
        self.close_all("the node was taken for dead by the cluster");
        self.led.stop(self.led.own_home());
        let node = Arc::clone(self);
        self.context.spawn(async move { node.announce_start().await });
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
            for group in self.led.groups() {
                self.look_after_nodes(group);
            }
        }
    }

    /// Tells everyone which groups this node leads with a majority behind it (DLV 5).
    fn tell_heard(self: &Arc<Self>) {
        let Some(groups) = self.context.groups() else { return };
        let led = self.led.groups().into_iter();
        let heard = led.filter(|group| groups.majority_heard_within(*group, 2 * LOOK));
        let terms = heard.filter_map(|group| Some((group, self.led.leading(Home::Group(group))?)));
        self.tell_heard_of(terms);
    }

    /// Tells everyone that this node has just heard a majority of groups that it leads.
    pub(crate) fn tell_heard_of(
        self: &Arc<Self>,
        groups: impl IntoIterator<Item = (GroupId, Term)>,
    ) {
        let groups: Vec<_> = groups.into_iter().collect();
        if !groups.is_empty() {
            self.context.peers.send_to_all(PeerMessage::Heard(groups));
        }
    }

    /// Makes a group that this node leads agree with what the catalog says of nodes and lives.
    pub(crate) fn look_after_nodes(&self, group: GroupId) {
        let outlook = Outlook {
            now: Instant::now(),
            absences: &self.failures.absences.lock().clone(),
            led_for: self.led.leaderships.leading_for(Home::Group(group)).unwrap_or_default(),
            timeout: Duration::from_millis(self.context.settings.consumer_disconnected_timeout_ms),
        };
        let commands = {
            let catalog = self.catalog.read();
            self.led.with_machine(Home::Group(group), |machine| outlook.commands(&catalog, machine))
        };
        self.led.propose_to(Home::Group(group), commands.unwrap_or_default());
    }
}
