//! Follows the members that the catalog names, and, as the catalog's leader, proposes what becomes of
//! them (MEM 1, MEM 3, MEM 4, MEM 6, MEM 11).
//!
//! Every node links the members that do not leave, refuses forgotten directories, and prepares for
//! sessions of new nodes. The catalog's leader makes a member of a joining node that has received the
//! catalog, places the groups' replicas, and removes a node that has left. Each step is a command that
//! is harmless when it is repeated, so that a new leader goes on with what it finds.

use crate::cluster::Cluster;
use quorate_catalog::{
    Catalog, CatalogCommand, CatalogReply, MemberCommand, MemberRecord, MemberState, Newcomer,
    Presence,
};
use quorate_types::{GroupId, Home, MachineVersion, NodeId, ReplicaId};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How often the catalog's leader looks for a next step.
const EVERY: Duration = Duration::from_millis(200);
/// Entries of the catalog that a joining node may lack to become a member (MEM 3).
const BEHIND_MAX: u64 = 1_000;
/// A node that leaves is removed only after its last lease must have ended (MEM 4).
const LAST_LEASE: Duration = crate::names::LEASE_BOUND;
/// Replicas of a queue group, unless the setting says otherwise or it has more (MEM 6).
const REPLICAS: usize = 3;

impl Cluster {
    /// The catalog's members have changed, or may have.
    pub(crate) fn members_changed(&self) {
        let _following = self.following.lock();
        let context = &self.base.context;
        let now = Instant::now();
        self.base.catalog.note_forgotten(now);
        let Some(links) = context.peers.links() else { return };
        let catalog = self.base.catalog.read();
        if catalog.is_forgotten(context.settings.incarnation) {
            links.forgotten();
            return;
        }
        // A copy that is older than the own joining says nothing of the others (MEM 3).
        if catalog.member(context.me).is_none() {
            return;
        }
        let stay = |(_, member): &(NodeId, &MemberRecord)| member.state != MemberState::Leaving;
        let members: Vec<NodeId> = catalog.members().filter(stay).map(|(node, _)| node).collect();
        let others = catalog.members().filter(stay).filter(|(node, _)| *node != context.me);
        // This node may reach another one in its own way: through a proxy, or by another name.
        let own = &context.settings.peers;
        let reached_at = |node, held| own.get(node).unwrap_or(held).clone();
        let held: BTreeMap<NodeId, String> =
            others.map(|(node, member)| (node, member.address.clone())).collect();
        let others =
            held.iter().map(|(node, address)| (*node, reached_at(node, address))).collect();
        let forgotten = catalog.all_forgotten().map(|(directory, _)| directory).collect();
        drop(catalog);
        let known = context.members();
        let joined = members.iter().filter(|node| **node != context.me && !known.contains(node));
        self.failures.absences.lock().follow(now, joined.copied());
        self.base.proposers.add(members.iter().copied().map(Home::Node));
        self.base.led.leaderships.add(members.iter().copied());
        context.set_members(members);
        links.set_peers(&others, &held, forgotten);
        self.expect_incarnations();
    }

    /// Keeps this node's own record up to date, and takes the next steps while it leads the catalog; runs
    /// as long as the node.
    pub(crate) async fn keep_members(self: Arc<Self>) {
        let mut interval = tokio::time::interval(EVERY);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            if let Some(command) = self.own_change() {
                self.propose_change(command).await;
            }
            if !self.base.lease.leads() {
                continue;
            }
            // One after the other: each depends on the catalog as the one before has left it.
            while let Some(command) = self.next_change() {
                if !self.propose_change(command).await {
                    break;
                }
            }
        }
    }

    /// What the catalog does not have yet of this node: another address or zone (MEM 3).
    fn own_change(&self) -> Option<MemberCommand> {
        let settings = &self.base.context.settings;
        let catalog = self.base.catalog.read();
        let member = catalog.member(settings.me)?;
        let (address, zone) = (settings.rpc_address.clone(), settings.zone.clone());
        let is_served = member.incarnation == settings.incarnation;
        let is_known = member.address == address && member.zone == zone;
        (is_served && !is_known).then(|| {
            let (node, incarnation) = (settings.me, settings.incarnation);
            MemberCommand::Join(Newcomer { node, incarnation, address, zone })
        })
    }

    /// Proposes a change; false if it was not made.
    async fn propose_change(self: &Arc<Self>, command: MemberCommand) -> bool {
        let object = command.object();
        match self.base.catalog_client.propose(CatalogCommand::Members(command)).await {
            Ok((_, CatalogReply::Done)) => true,
            Ok((_, reply)) => {
                tracing::info!(object, ?reply, "the members are not changed");
                false
            }
            Err(error) => {
                tracing::debug!(object, %error, "the members are not changed yet");
                false
            }
        }
    }

    /// The next change of members or placements, as the leader's copy of the catalog has it.
    fn next_change(&self) -> Option<MemberCommand> {
        let catalog = self.base.catalog.read();
        if catalog.machine() < MachineVersion::MEMBERS {
            return None;
        }
        if let Some((node, member)) = catalog.members().find(|it| self.is_ready_to_work(*it)) {
            return Some(MemberCommand::Admit { node, incarnation: member.incarnation });
        }
        let next = catalog.next_step(self.replicas(&catalog), &|node| presence(self, node))?;
        let may_hold_a_lease = |node: NodeId| {
            let since = self.base.catalog.forgotten_at(node);
            since.is_none_or(|since| since.elapsed() <= LAST_LEASE)
        };
        let is_early = matches!(&next, MemberCommand::Remove { node } if may_hold_a_lease(*node));
        (!is_early).then_some(next)
    }

    /// MEM 3: a joining node becomes a member when its process runs, and has received the catalog.
    fn is_ready_to_work(&self, (node, member): (NodeId, &MemberRecord)) -> bool {
        let (context, incarnation) = (&self.base.context, member.incarnation);
        let runs = || {
            let peer = context.peers.connected(node);
            peer.is_some_and(|peer| peer.incarnation == incarnation)
        };
        let lag = || {
            let replica = ReplicaId { node, number: member.first };
            context.groups()?.catalog_group()?.replica_lag(replica)
        };
        member.state == MemberState::Joining && runs() && lag().is_some_and(|it| it <= BEHIND_MAX)
    }

    /// Replicas that each queue group shall have. No group shrinks only because the nodes that founded
    /// the cluster were more than three.
    fn replicas(&self, catalog: &Catalog) -> usize {
        let queues = catalog.placements().filter(|(group, _)| *group != GroupId::CATALOG);
        let present = queues.map(|(_, placement)| placement.replicas.len()).max().unwrap_or(0);
        let setting = self.base.context.settings.queue_replicas;
        setting.map_or_else(|| present.max(REPLICAS), usize::from)
    }

    /// A group that this node leads has the members that its placement names: reports it to the catalog
    /// (MEM 7). Called again and again until the catalog knows; one report is under way at a time.
    pub(crate) fn report_reached(self: &Arc<Self>, group: GroupId, number: u64) {
        if !self.reporting.lock().insert(group) {
            return;
        }
        let cluster = Arc::clone(self);
        self.base.context.spawn(async move {
            cluster.propose_change(MemberCommand::Reached { group, number }).await;
            cluster.reporting.lock().remove(&group);
        });
    }
}

/// Whether a node runs, as far as this one knows.
fn presence(cluster: &Cluster, node: NodeId) -> Presence {
    let context = &cluster.base.context;
    if context.is_reachable(node) {
        Presence::Here
    } else if cluster.failures.is_gone(context, node) {
        Presence::Gone
    } else {
        Presence::Away
    }
}
