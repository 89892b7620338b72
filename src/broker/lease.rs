//! The routing lease: a node routes publishes only while the catalog's leader lets it, so that a
//! declare that has been answered is known wherever a publish may come in (NAM 3, 5).

use crate::{node::Node, pb, wire};
use parking_lot::Mutex;
use quorate_rpc::Lane;
use quorate_types::{BootNumber, CatalogIndex, GroupId, NodeId};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// After this long without a renewal the others count a node out (NAM 5).
const BOUND: Duration = Duration::from_millis(1_000);
/// A lease runs this long from the moment that the node asked; shorter than the bound.
const LEASE: Duration = Duration::from_millis(800);
/// How often a node asks.
const RENEWAL: Duration = Duration::from_millis(200);

/// This node's lease, and what it grants while it leads the catalog.
#[derive(Debug)]
pub(crate) struct Lease {
    until: watch::Sender<Option<Instant>>,
    /// Highest index that all routing nodes are known to have applied.
    all_applied: watch::Sender<CatalogIndex>,
    grants: Mutex<Grants>,
}

/// What the catalog's leader knows of the nodes.
#[derive(Debug, Default)]
struct Grants {
    /// Since when this node leads the catalog; a silent node counts for one bound after.
    leading_since: Option<Instant>,
    nodes: BTreeMap<NodeId, Grant>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    boot: BootNumber,
    counts_until: Instant,
    applied: CatalogIndex,
}

impl Lease {
    pub(crate) fn new() -> Self {
        Self {
            until: watch::Sender::new(None),
            all_applied: watch::Sender::new(CatalogIndex(0)),
            grants: Mutex::default(),
        }
    }

    /// Whether this node may route now.
    pub(crate) fn is_held(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Waits until the lease is held.
    pub(crate) async fn until_held(&self) {
        let mut renewals = self.until.subscribe();
        while !self.is_held() {
            // The sender lives as long as `self`.
            drop(renewals.changed().await);
        }
    }

    /// Every renewal is told, also one of a lease that had run out without anyone looking.
    fn granted(&self, until: Instant) {
        self.until.send_if_modified(|known| {
            let longer = known.is_none_or(|known| known < until);
            if longer {
                *known = Some(until);
            }
            longer
        });
    }

    /// All routing nodes have applied the catalog up to `index`.
    pub(crate) fn note_all_applied(&self, index: CatalogIndex) {
        self.all_applied.send_if_modified(|known| {
            let grows = *known < index;
            if grows {
                *known = index;
            }
            grows
        });
    }

    /// Waits until all routing nodes have applied the catalog up to `index` (NAM 3); false if
    /// that takes longer than `bound`.
    pub(crate) async fn barrier(&self, index: CatalogIndex, bound: Duration) -> bool {
        let mut all_applied = self.all_applied.subscribe();
        let reached = all_applied.wait_for(|known| *known >= index);
        matches!(tokio::time::timeout(bound, reached).await, Ok(Ok(_)))
    }

    /// This node leads the catalog from now on: every member counts for one bound (NAM 5).
    pub(crate) fn lead(&self) {
        *self.grants.lock() =
            Grants { leading_since: Some(Instant::now()), nodes: BTreeMap::new() };
    }

    /// Whether this node leads the catalog.
    pub(crate) fn leads(&self) -> bool {
        self.grants.lock().leading_since.is_some()
    }

    /// It leads it no more.
    pub(crate) fn stop(&self) {
        *self.grants.lock() = Grants::default();
    }

    /// A node's process is known dead, so it routes no more (NAM 5).
    pub(crate) fn dead(&self, node: NodeId, boot: BootNumber) {
        let mut grants = self.grants.lock();
        if grants.nodes.get(&node).is_none_or(|grant| grant.boot == boot) {
            let counts_until = Instant::now();
            let applied = CatalogIndex(0);
            grants.nodes.insert(node, Grant { boot, counts_until, applied });
        }
    }

    fn grant(&self, node: NodeId, boot: BootNumber, applied: CatalogIndex) {
        let mut grants = self.grants.lock();
        if grants.leading_since.is_some() {
            let counts_until = Instant::now() + BOUND;
            let known = grants.nodes.get(&node).filter(|grant| grant.boot == boot);
            let applied = known.map_or(applied, |grant| grant.applied.max(applied));
            grants.nodes.insert(node, Grant { boot, counts_until, applied });
        }
    }

    /// A node has applied the catalog up to `index`.
    pub(crate) fn applied(&self, node: NodeId, index: CatalogIndex) {
        if let Some(grant) = self.grants.lock().nodes.get_mut(&node) {
            grant.applied = grant.applied.max(index);
        }
    }

    /// What all members that may be routing have applied; `None` while one is silent that may
    /// still hold a lease of an earlier leader.
    fn all_applied_of(&self, members: &[NodeId]) -> Option<CatalogIndex> {
        let grants = self.grants.lock();
        let now = Instant::now();
        let since = grants.leading_since?;
        let mut least = None;
        for member in members {
            let applied = match grants.nodes.get(member) {
                Some(grant) if now < grant.counts_until => grant.applied,
                Some(_) => continue,
                None if now < since + BOUND => return None,
                None => continue,
            };
            least = Some(least.map_or(applied, |least: CatalogIndex| least.min(applied)));
        }
        least
    }
}

impl Node {
    /// Asks for the lease again and again; runs as long as the node.
    pub(crate) async fn keep_lease(self: Arc<Self>) {
        let mut interval = tokio::time::interval(RENEWAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.renew_lease().await;
        }
    }

    async fn renew_lease(self: &Arc<Self>) {
        if self.session().is_none() {
            return;
        }
        let Some(leader) = self.catalog_client.leader(self) else { return };
        let asked = Instant::now();
        let applied = self.catalog.read().version();
        let renews = self.lease.is_held();
        let granted = if leader == self.me {
            self.grant_lease(self.me, self.boot, applied, renews).await
        } else {
            self.ask_for_lease(leader, applied, renews).await
        };
        if granted {
            self.lease.granted(asked + LEASE);
        }
    }

    async fn ask_for_lease(&self, leader: NodeId, applied: CatalogIndex, renews: bool) -> bool {
        let Some(links) = self.links.get() else { return false };
        let request = pb::LeaseRequest { applied: applied.0, renews };
        let payload = wire::encode(&request);
        let answer =
            links.call(leader, Lane::Control, wire::LEASE, GroupId::CATALOG, payload, LEASE).await;
        let Ok(answer) = answer else { return false };
        let Some(answer) = wire::decode::<pb::LeaseResponse>(answer, leader) else { return false };
        self.lease.note_all_applied(CatalogIndex(answer.all_applied));
        true
    }

    /// Grants a lease, once a majority has answered this node since (NAM 5). A renewal waits for
    /// the answers to the next heartbeat, so that it costs the others nothing.
    pub(crate) async fn grant_lease(
        &self,
        to: NodeId,
        boot: BootNumber,
        applied: CatalogIndex,
        renews: bool,
    ) -> bool {
        let Some(group) = self.groups().and_then(|groups| groups.catalog_group()) else {
            return false;
        };
        if !group.leads_since_now(!renews, BOUND).await {
            return false;
        }
        self.lease.grant(to, boot, applied);
        self.tell_all_applied();
        true
    }

    /// This node's catalog copy has grown: tells the catalog's leader.
    pub(crate) fn tell_applied(&self, index: CatalogIndex) {
        match self.catalog_client.leader(self) {
            Some(leader) if leader == self.me => {
                self.lease.applied(self.me, index);
                self.tell_all_applied();
            }
            Some(leader) => {
                let Some(links) = self.links.get() else { return };
                let payload = wire::encode(&pb::Applied { index: index.0 });
                let group = GroupId::CATALOG;
                // What is lost is said again with the next renewal.
                let _ = links.notify(leader, Lane::Control, wire::APPLIED, group, payload);
            }
            None => {}
        }
    }

    /// As the catalog's leader: works out what all have applied, and tells all if it has grown.
    pub(crate) fn tell_all_applied(&self) {
        let Some(all) = self.lease.all_applied_of(&self.members()) else { return };
        if *self.lease.all_applied.borrow() >= all {
            return;
        }
        self.lease.note_all_applied(all);
        let Some(links) = self.links.get() else { return };
        let payload = wire::encode(&pb::AllApplied { index: all.0 });
        for peer in links.all_connected() {
            let (node, group) = (peer.node, GroupId::CATALOG);
            let _ = links.notify(node, Lane::Control, wire::ALL_APPLIED, group, payload.clone());
        }
    }

    /// What all routing nodes are known to have applied.
    pub(crate) fn all_applied(&self) -> CatalogIndex {
        *self.lease.all_applied.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NAM 5: whoever waits for a lease goes on with the next renewal, though nobody has seen in
    /// between that it had run out (a node that was paused for longer than a lease).
    #[tokio::test]
    async fn nam_05_a_lease_that_ran_out_unseen_is_waited_for_and_got() {
        let lease = Lease::new();
        lease.granted(Instant::now());
        assert!(!lease.is_held());
        let waits = lease.until_held();
        let renewed = async {
            tokio::task::yield_now().await;
            lease.granted(Instant::now() + Duration::from_secs(60));
        };
        let both = async { tokio::join!(waits, renewed) };
        assert!(tokio::time::timeout(Duration::from_secs(10), both).await.is_ok());
    }
}
