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
    /// The highest index that was told as known by all.
    told: CatalogIndex,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    boot: BootNumber,
    /// Until then nothing is told as known by all that the node does not know.
    counts_until: Instant,
    applied: CatalogIndex,
    /// What it must have applied to be granted the next lease. While it counts, that is what was
    /// committed when it was granted the last one, or began to count: a node that keeps up has it
    /// long since, one that does not is counted out and holds nobody up any more.
    reach: CatalogIndex,
    /// It was told to reach that while it did not count.
    told: bool,
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

    /// A node asks for a lease. `committed` is what is committed since it did: with what has been told
    /// meanwhile, all that may have been answered before it counts. `None`: this node does not lead.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        (node, boot): (NodeId, BootNumber),
        applied: CatalogIndex,
        committed: CatalogIndex,
    ) -> Option<Granting> {
        let since = self.since?;
        let committed = committed.max(self.told);
        let known = self.nodes.get(&node).filter(|grant| grant.boot == boot).copied();
        let applied = known.map_or(applied, |known| known.applied.max(applied));
        let counted = known.filter(|known| now < known.counts_until);
        let reach = counted.map_or(committed, |known| known.reach);
        let reached = applied >= reach;
        // It has come up to what it was told, and is close: from now on it counts, so that what it
        // has to reach moves on no more.
        let is_close = known.is_some_and(|known| known.told && applied >= known.reach);
        let grant = match counted {
            Some(known) if !reached => Grant { applied, ..known },
            Some(_) | None => {
                let begins = reached || is_close;
                let counts_until = if begins { now + BOUND } else { since + BOUND };
                Grant { boot, counts_until, applied, reach: committed, told: !begins }
            }
        };
        self.nodes.insert(node, grant);
        Some(if reached { Granting::Granted } else { Granting::NotYet(grant.reach) })
    }

    /// A process is known dead, so it routes no more (NAM 5).
    pub(crate) fn dead(&mut self, now: Instant, node: NodeId, boot: BootNumber) {
        if self.nodes.get(&node).is_none_or(|grant| grant.boot == boot) {
            let (applied, reach) = (CatalogIndex(0), CatalogIndex(0));
            let grant = Grant { boot, counts_until: now, applied, reach, told: false };
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
        self.told = self.told.max(least.unwrap_or_default());
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: (NodeId, BootNumber) = (NodeId(1), BootNumber(10));
    const TWO: (NodeId, BootNumber) = (NodeId(2), BootNumber(20));
    const MEMBERS: [NodeId; 2] = [ONE.0, TWO.0];

    struct Leader {
        grants: Grants,
        begun: Instant,
    }

    impl Leader {
        fn new() -> Self {
            let begun = Instant::now();
            Self { grants: Grants::lead(begun), begun }
        }

        fn at(&self, ms: u64) -> Instant {
            self.begun + Duration::from_millis(ms)
        }

        fn ask(
            &mut self,
            ms: u64,
            who: (NodeId, BootNumber),
            applied: u64,
            committed: u64,
        ) -> Granting {
            let now = self.at(ms);
            let (applied, committed) = (CatalogIndex(applied), CatalogIndex(committed));
            self.grants.ask(now, who, applied, committed).unwrap_or(Granting::NotYet(committed))
        }

        fn all(&mut self, ms: u64) -> Option<u64> {
            let now = self.at(ms);
            self.grants.all_applied(now, &MEMBERS).map(|index| index.0)
        }
    }

    fn not_yet(index: u64) -> Granting {
        Granting::NotYet(CatalogIndex(index))
    }

    #[test]
    fn nam_05_a_node_that_was_counted_out_routes_when_it_knows_what_was_answered() {
        let mut leader = Leader::new();
        assert_eq!(leader.ask(0, ONE, 5, 5), Granting::Granted);
        assert_eq!(leader.ask(0, TWO, 5, 5), Granting::Granted);
        // Node 2 is silent; what node 1 declares waits for it, and then does not.
        assert_eq!(leader.ask(900, ONE, 8, 8), Granting::Granted);
        assert_eq!(leader.all(900), Some(5));
        assert_eq!(leader.all(1_001), Some(8));
        assert_eq!(leader.ask(1_100, TWO, 5, 8), not_yet(8));
        assert_eq!(leader.all(1_100), Some(8), "and holds nobody up meanwhile");
        assert_eq!(leader.ask(1_110, TWO, 8, 8), Granting::Granted);
        assert_eq!(leader.ask(1_110, ONE, 9, 9), Granting::Granted);
        assert_eq!(leader.all(1_110), Some(8));
    }

    /// What is committed was read before what was told.
    #[test]
    fn nam_05_what_was_told_while_a_node_was_asking_is_what_it_must_have_reached() {
        let mut leader = Leader::new();
        assert_eq!(leader.ask(2_000, ONE, 9, 9), Granting::Granted);
        assert_eq!(leader.all(2_000), Some(9));
        assert_eq!(leader.ask(2_000, TWO, 8, 8), not_yet(9));
    }

    /// What it has to reach grows while it catches up; it gets there all the same.
    #[test]
    fn nam_05_a_node_that_comes_back_to_a_busy_catalog_is_let_in() {
        let mut leader = Leader::new();
        assert_eq!(leader.ask(0, TWO, 5, 5), Granting::Granted);
        for (ms, index) in [(500, 100), (1_000, 150), (1_500, 200), (2_400, 290)] {
            assert_eq!(leader.ask(ms, ONE, index, index), Granting::Granted);
        }
        assert_eq!(leader.ask(2_500, TWO, 5, 300), not_yet(300));
        leader.grants.applied(ONE.0, ONE.1, CatalogIndex(310));
        assert_eq!(leader.all(2_510), Some(310));
        // It is close now, so that nothing is answered without it any more.
        assert_eq!(leader.ask(2_520, TWO, 300, 312), not_yet(312));
        leader.grants.applied(ONE.0, ONE.1, CatalogIndex(320));
        assert_eq!(leader.all(2_530), Some(300));
        assert_eq!(leader.ask(2_540, TWO, 312, 320), Granting::Granted);
    }

    /// NAM 3: a node that asks but does not apply is counted out like a silent one.
    #[test]
    fn nam_03_a_node_that_does_not_keep_up_holds_nobody_up_for_longer_than_the_bound() {
        let mut leader = Leader::new();
        assert_eq!(leader.ask(0, TWO, 5, 5), Granting::Granted);
        assert_eq!(leader.ask(200, ONE, 9, 9), Granting::Granted);
        assert_eq!(leader.ask(200, TWO, 5, 9), Granting::Granted, "it had no time yet");
        assert_eq!(leader.ask(1_100, ONE, 9, 9), Granting::Granted);
        for ms in [400, 600, 800, 1_000] {
            assert_eq!(leader.ask(ms, TWO, 5, 9), not_yet(9));
            assert_eq!(leader.all(ms), Some(5));
        }
        assert_eq!(leader.all(1_201), Some(9));
    }

    #[test]
    fn nam_05_a_new_leader_counts_everyone_for_one_bound_but_the_dead() {
        let mut leader = Leader::new();
        assert_eq!(leader.ask(0, ONE, 7, 7), Granting::Granted);
        assert_eq!(leader.all(500), None, "node 2 may hold a lease of the former leader");
        // That it asks and gets nothing does not count it out.
        assert_eq!(leader.ask(500, TWO, 3, 7), not_yet(7));
        assert_eq!(leader.all(600), Some(3));
        assert_eq!(leader.ask(900, ONE, 7, 7), Granting::Granted);
        assert_eq!(leader.all(1_001), Some(7));
        let now = leader.at(0);
        leader.grants = Grants::lead(now);
        assert_eq!(leader.ask(0, ONE, 7, 7), Granting::Granted);
        leader.grants.dead(now, TWO.0, TWO.1);
        assert_eq!(leader.all(0), Some(7));
    }
}
