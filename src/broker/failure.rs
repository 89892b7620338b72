//! Nodes that die, come back, or cannot be reached (DESIGN §8, SES 6, DLV 5, Q-62), and what a
//! group's leader makes of it.

use crate::{node::Node, pb, wire};
use parking_lot::Mutex;
use quorate_catalog::{CatalogCommand, CatalogReply, NodeEntry};
use quorate_queue::{Command, QueueView};
use quorate_rpc::{Cause, PeerHello};
use quorate_types::{BootNumber, GroupId, Home, NodeId, QueueId, SessionId, StartNumber, Term};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// How often a leader looks whether nodes have come or gone, and queues and names agree.
const LOOK: Duration = Duration::from_millis(500);
/// A node that is not linked for this long is suspected.
const SUSPECTED_AFTER: Duration = Duration::from_secs(1);
/// Names and queues are compared this often, and when a leadership begins (NAM 7).
const COMPARE: Duration = Duration::from_secs(10);

/// What is known of the other nodes' processes.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    dead: Mutex<BTreeSet<(NodeId, BootNumber)>>,
    unreachable: Mutex<BTreeMap<NodeId, Instant>>,
    /// Groups whose names are to be compared at the next look.
    to_compare: Mutex<BTreeSet<GroupId>>,
}

impl Failures {
    fn unreachable_for(&self, node: NodeId) -> Option<Duration> {
        self.unreachable.lock().get(&node).map(Instant::elapsed)
    }

    /// A leadership of the group has begun.
    pub(crate) fn compare(&self, group: GroupId) {
        self.to_compare.lock().insert(group);
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
        if cause.is_known_dead() {
            self.failures.dead.lock().insert((node, boot));
            self.lease.dead(node, boot);
            self.tell_all_applied();
            let this = Arc::clone(self);
            self.spawn(async move { this.bury().await });
        } else {
            self.failures.unreachable.lock().entry(node).or_insert_with(Instant::now);
        }
    }

    /// As the catalog's leader: fences the starts of processes that are known dead.
    pub(crate) async fn bury(self: &Arc<Self>) {
        if self.catalog_client.leader(self) != Some(self.me) {
            return;
        }
        let commands: Vec<_> = {
            let catalog = self.catalog.read();
            let dead = self.failures.dead.lock();
            dead.iter()
                .filter_map(|&(node, boot)| catalog.session_of(node, boot))
                .filter(|session| !catalog.is_fenced(*session))
                .map(|SessionId { node, start }| CatalogCommand::NodeDown { node, start })
                .collect()
        };
        if !commands.is_empty() && self.propose_all_to_catalog(commands).await.is_err() {
            tracing::warn!("the end of a dead node could not be noted yet");
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
                    tracing::error!(?reply, "the catalog did not take this node's start");
                    tokio::time::sleep(LOOK).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "this node's start is not yet known to the cluster");
                }
            }
        }
    }

    /// What the catalog's leader puts before anything that it proposes: the cluster's shape if it
    /// has none, and a new life if the whole cluster has been stopped (DESIGN §7).
    pub(crate) fn formation(&self) -> Vec<CatalogCommand> {
        let catalog = self.catalog.read();
        let mut commands = Vec::new();
        if catalog.shape().is_none() {
            commands.push(CatalogCommand::Form(self.settings.shape));
        }
        let known = |node, boot| catalog.session_of(node, boot).is_some();
        if !known(self.me, self.boot) {
            let peers = self.links.get().map(quorate_rpc::Links::all_connected).unwrap_or_default();
            if !peers.iter().any(|peer| known(peer.node, peer.boot)) {
                commands.push(CatalogCommand::NewLife { boot: self.boot });
            }
        }
        commands
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
        tracing::info!(%session, "serving");
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
        tracing::warn!(%session, "this node was taken for dead; it closes its clients and begins anew");
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
        let mut compared = Instant::now();
        loop {
            interval.tick().await;
            self.bury().await;
            self.tell_heard();
            self.tell_counts();
            let mut to_compare = std::mem::take(&mut *self.failures.to_compare.lock());
            if compared.elapsed() > COMPARE {
                compared = Instant::now();
                to_compare.extend(self.led_groups());
            }
            for group in self.led_groups() {
                self.look_after_nodes(group);
            }
            for group in to_compare {
                self.compare_names(group).await;
            }
        }
    }

    /// Tells everyone which groups this node leads with a majority behind it (DLV 5).
    fn tell_heard(self: &Arc<Self>) {
        let Some(groups) = self.groups() else { return };
        let mut heard = pb::Heard::default();
        for group in self.led_groups() {
            let home = Home::Group(group);
            let Some(term) = self.executor.leading(home) else { continue };
            if groups.majority_heard_within(group, 2 * LOOK) {
                self.heard(home, self.me, term);
                heard.groups.push(pb::heard::Group { group: u32::from(group.0), term: term.0 });
            }
        }
        if !heard.groups.is_empty() {
            self.tell_all(wire::HEARD, &wire::encode(&heard));
        }
    }

    /// Makes a group that this node leads agree with what the catalog says of nodes and lives.
    pub(crate) fn look_after_nodes(&self, group: GroupId) {
        let mut commands = Vec::new();
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
                    commands.extend(self.reachability(node, suspected.contains(&node)));
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

    fn reachability(&self, node: NodeId, suspected: bool) -> Option<Command> {
        let timeout = Duration::from_millis(self.settings.consumer_disconnected_timeout_ms);
        match (self.failures.unreachable_for(node), suspected) {
            (None, true) => Some(Command::NodeBack { node }),
            (None, false) => None,
            (Some(time), false) if time > SUSPECTED_AFTER => Some(Command::NodeSuspected { node }),
            (Some(time), true) if time > timeout => Some(Command::NodeTimedOut { node }),
            (Some(_), _) => None,
        }
    }

    /// The reconciler: takes away what a crash left half done, and never adds (NAM 7).
    async fn compare_names(self: &Arc<Self>, group: GroupId) {
        let home = Home::Group(group);
        if self.executor.leading(home).is_none() || !self.read_catalog().await {
            return;
        }
        let mut nameless: Vec<QueueId> = Vec::new();
        let mut ended = Vec::new();
        {
            let catalog = self.catalog.read();
            let compared = self.with_machine(home, |machine| {
                nameless.extend(machine.queues().filter(|&id| {
                    let queue = machine.queue(id);
                    let creator = queue.as_ref().and_then(|queue| queue.creator);
                    let homeless = |queue: QueueView| {
                        catalog.is_of_former_vhost(&queue.name.vhost, queue.config.resolved_at)
                    };
                    catalog.queue_by_id(id).is_none()
                        && (creator.is_none_or(|creator| catalog.is_fenced(creator))
                            || queue.is_some_and(homeless))
                }));
                ended.extend(
                    catalog
                        .queues_of_group(group, None)
                        .filter(|entry| machine.queue(entry.id).is_none())
                        .map(|entry| entry.id),
                );
            });
            if compared.is_none() {
                return;
            }
        }
        for queue in nameless {
            tracing::info!(%queue, "ending a queue that has no name");
            self.propose_as_leader(
                group,
                Command::EndQueue { queue, if_unused: false, if_empty: false },
            );
        }
        for queue in ended {
            self.queue_ended(queue);
        }
        self.begin_configuring(home);
    }
}
