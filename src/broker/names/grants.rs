//! What the catalog's leader keeps of routing leases: which nodes may be routing, and what they know
//! of the catalog (NAM 3, NAM 5; MEM 3).
//!
//! A node that catches up must not be held off by a busy catalog, and a node that does not keep up
//! must not hold up others. The leader therefore answers "not yet, reach N", where N is what is
//! committed. A node that counts must have reached at each renewal what was committed at the last
//! one; otherwise it is counted out like a silent node. So a barrier is always answered: by all
//! nodes, or without those that no longer route. A node that was counted out begins to count when
//! it has reached N, and gets its lease when it has reached what was committed at that moment.

use quorate_types::{BootNumber, CatalogIndex, NodeId};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// After this long without a renewal the others count a node out (NAM 5).
pub(crate) const BOUND: Duration = Duration::from_millis(1_000);

/// What the leader answers a node that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granting {
    /// It may route.
    Granted,
    /// Not before it has applied the catalog up to here.
    NotYet(CatalogIndex),
}

/// What the catalog's leader knows of the nodes.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// Since when this node leads the catalog; a silent node counts for one bound after.
    since: Option<Instant>,
    nodes: BTreeMap<NodeId, Grant>,
    /// The highest index that a barrier was answered with: every node that may route has applied it.
    answered: CatalogIndex,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    boot: BootNumber,
    /// Until then no barrier is answered with an index that the node has not applied.
    counts_until: Instant,
    applied: CatalogIndex,
    /// What it must have applied to be granted the next lease. While it counts, that is what was
    /// committed when it was granted the last one, or began to count: a node that keeps up has it
    /// long since, one that does not is counted out and holds nobody up any more.
    reach: CatalogIndex,
    /// Whether `reach` was sent to it while it did not count.
    reach_sent: bool,
}

impl Grants {
    /// This node leads the catalog from now on: every member counts for one bound (NAM 5).
    pub(crate) fn lead(now: Instant) -> Self {
        Self { since: Some(now), ..Self::default() }
    }

    /// Whether this node leads the catalog.
    pub(crate) fn leads(&self) -> bool {
        self.since.is_some()
    }

    /// A node asks for a lease. `committed` is the index committed at or after its request. Together with
    /// `answered` it covers every barrier that may be answered before the node counts. `None`: this node
    /// does not lead, or a later process of the node has a lease.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        (node, boot): (NodeId, BootNumber),
        applied: CatalogIndex,
        committed: CatalogIndex,
    ) -> Option<Granting> {
        let since = self.since?;
        let committed = committed.max(self.answered);
        let other = self.nodes.get(&node).filter(|grant| grant.boot != boot);
        if other.is_some_and(|other| other.boot > boot && now < other.counts_until) {
            // A late request of an earlier process. Its successor may be routing.
            return None;
        }
        let known = self.nodes.get(&node).filter(|grant| grant.boot == boot).copied();
        let applied = known.map_or(applied, |known| known.applied.max(applied));
        let counted = known.filter(|known| now < known.counts_until);
        let reach = counted.map_or(committed, |known| known.reach);
        let reached = applied >= reach;
        // It has applied what it was sent to reach, so it is close: from now on it counts, and what
        // it has to reach stays fixed.
        let is_close = known.is_some_and(|known| known.reach_sent && applied >= known.reach);
        let grant = match counted {
            Some(known) if !reached => Grant { applied, ..known },
            Some(_) | None => {
                let begins = reached || is_close;
                let counts_until = if begins { now + BOUND } else { since + BOUND };
                Grant { boot, counts_until, applied, reach: committed, reach_sent: !begins }
            }
        };
        self.nodes.insert(node, grant);
        Some(if reached { Granting::Granted } else { Granting::NotYet(grant.reach) })
    }

    /// A process is known dead, so it routes no more (NAM 5).
    pub(crate) fn dead(&mut self, now: Instant, node: NodeId, boot: BootNumber) {
        if self.nodes.get(&node).is_none_or(|grant| grant.boot == boot) {
            let (applied, reach) = (CatalogIndex(0), CatalogIndex(0));
            let grant = Grant { boot, counts_until: now, applied, reach, reach_sent: false };
            self.nodes.insert(node, grant);
        }
    }

    /// A process has applied the catalog up to `index`.
    pub(crate) fn applied(&mut self, node: NodeId, boot: BootNumber, index: CatalogIndex) {
        if let Some(grant) = self.nodes.get_mut(&node).filter(|grant| grant.boot == boot) {
            grant.applied = grant.applied.max(index);
        }
    }

    /// What all members that may be routing have applied; `None` while one is silent that may
    /// still hold a lease of an earlier leader.
    pub(crate) fn all_applied(&mut self, now: Instant, members: &[NodeId]) -> Option<CatalogIndex> {
        let since = self.since?;
        let mut least: Option<CatalogIndex> = None;
        for member in members {
            let applied = match self.nodes.get(member) {
                Some(grant) if now < grant.counts_until => grant.applied,
                Some(_) => continue,
                None if now < since + BOUND => return None,
                None => continue,
            };
            least = Some(least.map_or(applied, |least| least.min(applied)));
        }
        self.answered = self.answered.max(least.unwrap_or_default());
        least
    }
}

#[cfg(test)]
mod tests;
