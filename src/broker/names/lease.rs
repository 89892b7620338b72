//! The routing lease: a node routes publishes only while the catalog's leader lets it, so that a
//! declare that has been answered is known wherever a publish may come in (NAM 3, 5).

use super::{
    CatalogCopy,
    grants::{BOUND, Granting, Grants},
};
use crate::{
    context::{CallError, Context},
    peers::{PeerMessage, PeerReply, PeerRequest, Process},
};
use parking_lot::Mutex;
use quorate_catalog::Catalog;
use quorate_types::{BootNumber, CatalogIndex, LogIndex, NodeId, PlantedBug};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio::time::Instant;

/// A lease runs this long from the moment that the node asked; shorter than the bound.
pub(super) const LEASE: Duration = Duration::from_millis(800);
/// How often a node asks.
const RENEWAL: Duration = Duration::from_millis(200);

/// This node's lease, and what it grants while it leads the catalog.
#[derive(Debug)]
pub(crate) struct RoutingLease {
    context: Arc<Context>,
    catalog: Arc<CatalogCopy>,
    until: watch::Sender<Option<Instant>>,
    /// Highest index that all routing nodes are known to have applied.
    all_applied: watch::Sender<CatalogIndex>,
    grants: Mutex<Grants>,
}

impl RoutingLease {
    /// A lease that is not held.
    pub(crate) fn new(context: Arc<Context>, catalog: Arc<CatalogCopy>) -> Self {
        Self {
            context,
            catalog,
            until: watch::Sender::new(None),
            all_applied: watch::Sender::new(CatalogIndex(0)),
            grants: Mutex::default(),
        }
    }

    /// Whether this node may route now.
    pub(crate) fn is_held(&self) -> bool {
        let lasts = |until| Instant::now() < until || PlantedBug::LeaseNeverRunsOut.is_in();
        self.until.borrow().is_some_and(lasts)
    }

    /// Waits until the lease is held.
    pub(crate) async fn until_held(&self) {
        let mut renewals = self.until.subscribe();
        while !self.is_held() {
            // The sender lives as long as `self`.
            drop(renewals.changed().await);
        }
    }

    /// Waits for the lease until `deadline`.
    ///
    /// # Errors
    /// This node does not hold it then.
    pub(crate) async fn held_by(&self, deadline: Instant) -> Result<(), CallError> {
        let held = tokio::time::timeout_at(deadline, self.until_held());
        held.await.map_err(|_| CallError::TimedOut)
    }

    /// Every renewal is reported, also one of a lease that had run out before anybody checked it.
    pub(crate) fn granted(&self, until: Instant) {
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

    /// This node leads the catalog from now on.
    pub(crate) fn lead(&self) {
        *self.grants.lock() = Grants::lead(Instant::now());
    }

    /// Whether this node leads the catalog.
    pub(crate) fn leads(&self) -> bool {
        self.grants.lock().leads()
    }

    /// It leads it no more.
    pub(crate) fn stop(&self) {
        *self.grants.lock() = Grants::default();
    }

    /// A node's process is known dead, so it routes no more (NAM 5).
    pub(crate) fn dead(&self, node: NodeId, boot: BootNumber) {
        self.grants.lock().dead(Instant::now(), node, boot);
    }

    /// A process has applied the catalog up to `index`.
    pub(crate) fn applied(&self, node: NodeId, boot: BootNumber, index: CatalogIndex) {
        self.grants.lock().applied(node, boot, index);
    }

    /// Asks for the lease again and again; runs as long as the node.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut interval = tokio::time::interval(RENEWAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.renew().await;
        }
    }

    async fn renew(&self) {
        loop {
            let Some(leader) = self.context.catalog_leader() else { return };
            if self.context.session().is_none() {
                return;
            }
            let asked = Instant::now();
            let applied = self.catalog.read().version();
            let renews = self.is_held();
            let granting = self.ask(leader, applied, renews).await;
            match granting {
                Some(Granting::Granted) => return self.granted(asked + LEASE),
                Some(Granting::NotYet(reach)) if self.catches_up(reach).await => {}
                Some(Granting::NotYet(_)) | None => return,
            }
        }
    }

    /// Waits until this node has applied the catalog up to `index`; false if it does not for long.
    async fn catches_up(&self, index: CatalogIndex) -> bool {
        let Some(group) = self.context.groups().and_then(|groups| groups.catalog_group()) else {
            return false;
        };
        group.wait_applied(LogIndex(index.0), BOUND).await.is_ok()
    }

    async fn ask(&self, leader: NodeId, applied: CatalogIndex, renews: bool) -> Option<Granting> {
        let request = PeerRequest::Lease { applied, renews };
        let reply = self.context.peers.ask(leader, request, LEASE).await?;
        let PeerReply::Lease { all_applied, not_before } = reply else { return None };
        self.note_all_applied(all_applied);
        Some(not_before.map_or(Granting::Granted, Granting::NotYet))
    }

    /// Grants a lease, once a majority has answered this node since, to a node whose copy of the
    /// catalog is as new as what has been answered (NAM 5, MEM 3). A renewal waits for the answers
    /// to the next heartbeat, so that it costs the others nothing. `None`: this node does not lead, or
    /// the process may not route.
    pub(crate) async fn grant(
        &self,
        to: Process,
        applied: CatalogIndex,
        renews: bool,
    ) -> Option<Granting> {
        let group = self.context.groups()?.catalog_group()?;
        let committed = CatalogIndex(group.committed_since_now(!renews, BOUND).await?.0);
        let granting = {
            // Held, so that the directory is not forgotten between the check and the grant.
            let catalog = self.catalog.read();
            let now = Instant::now();
            if !self.may_route(&catalog, now, to) {
                return None;
            }
            self.grants.lock().ask(now, (to.node, to.boot), applied, committed)
        };
        self.report_all_applied();
        granting
    }

    /// Whether a process may be granted a lease by its directory (MEM 3, MEM 4). The grants name nodes,
    /// and another directory under a node's id proves nothing about the former process: so its
    /// successor waits until the last lease of a directory that was forgotten has ended.
    fn may_route(
        &self,
        catalog: &Catalog,
        now: Instant,
        Process { node, incarnation, .. }: Process,
    ) -> bool {
        let forgotten = self.catalog.forgotten_at(node);
        catalog.is_working(node, incarnation) && forgotten.is_none_or(|at| now >= at + BOUND)
    }

    /// All that may hold a lease of this leader or of an earlier one: the members that the catalog
    /// names in whatever state, not only those that have asked (MEM 4).
    fn counted(&self) -> Vec<NodeId> {
        let members: Vec<_> = self.catalog.read().members().map(|(node, _)| node).collect();
        if members.is_empty() { self.context.members() } else { members }
    }

    /// This node's catalog copy has grown: tells the catalog's leader.
    pub(crate) fn report_applied(&self, index: CatalogIndex) {
        if let Some(leader) = self.context.catalog_leader() {
            // What is lost is said again with the next renewal.
            self.context.peers.send(leader, PeerMessage::Applied(index));
        }
    }

    /// As the catalog's leader: works out what all have applied, and tells all if it has grown.
    pub(crate) fn report_all_applied(&self) {
        let members = self.counted();
        let all = self.grants.lock().all_applied(Instant::now(), &members);
        let Some(all) = all else { return };
        if *self.all_applied.borrow() >= all {
            return;
        }
        self.note_all_applied(all);
        self.context.peers.send_to_others(&PeerMessage::AllApplied(all));
    }

    /// Waits until all routing nodes have the catalog up to `index`; those that do not keep up are
    /// counted out meanwhile (NAM 3, 5).
    ///
    /// # Errors
    /// The catalog has no leader that says so in time.
    pub(crate) async fn barrier(&self, index: CatalogIndex) -> Result<(), CallError> {
        let mut all_applied = self.all_applied.subscribe();
        let reached = all_applied.wait_for(|known| *known >= index);
        match tokio::time::timeout(self.context.operation_timeout(), reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(CallError::TimedOut),
        }
    }

    /// Waits until all routing nodes have the catalog as this node has it now. What was just read in its copy
    /// may be answered then: no node answers from an older one later (NAM 5).
    ///
    /// # Errors
    /// As [`RoutingLease::barrier`].
    pub(crate) async fn agreed(&self) -> Result<(), CallError> {
        // Entries that change nothing, as those of a new leader, are not announced.
        let index = self.catalog.read().routing_version();
        self.barrier(index).await
    }

    /// What all routing nodes are known to have applied.
    pub(crate) fn all_applied(&self) -> CatalogIndex {
        *self.all_applied.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NAM 5: whoever waits for a lease goes on with the next renewal, though nobody has seen in
    /// between that it had run out (a node that was paused for longer than a lease).
    #[tokio::test]
    async fn nam_05_a_lease_that_ran_out_unseen_is_waited_for_and_got() {
        let node = crate::testing::node();
        let lease = &node.base.lease;
        lease.granted(Instant::now());
        assert!(!lease.is_held());
        let waits = lease.until_held();
        let renewed = async {
            tokio::task::yield_now().await;
            lease.granted(Instant::now() + Duration::from_secs(3_600));
        };
        let both = async { tokio::join!(waits, renewed) };
        assert!(tokio::time::timeout(Duration::from_secs(600), both).await.is_ok());
    }
}
