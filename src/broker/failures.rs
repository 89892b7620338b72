//! What is known of the other nodes' processes: which are dead, which cannot be reached.

use parking_lot::Mutex;
use quorate_catalog::Catalog;
use quorate_types::{BootNumber, NodeId, SessionId, StartNumber};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// What is known of the other nodes' processes.
#[derive(Debug)]
pub(crate) struct Failures {
    /// Processes that are known dead and not fenced yet, each with the start that it is accused of
    /// once the catalog has told it: later ones of the same process are not meant.
    pub(crate) dead: Mutex<BTreeMap<(NodeId, BootNumber), Option<StartNumber>>>,
    /// Members that are not linked, and since when: those not met yet since this process began.
    pub(crate) unreachable: Mutex<BTreeMap<NodeId, Instant>>,
}

impl Failures {
    /// Of a process that has not been linked with anybody.
    pub(crate) fn new(me: NodeId, members: &[NodeId]) -> Self {
        let others = members.iter().filter(|node| **node != me);
        let unreachable = others.map(|node| (*node, Instant::now())).collect();
        Self { dead: Mutex::default(), unreachable: Mutex::new(unreachable) }
    }

    pub(crate) fn unreachable_for(&self, node: NodeId) -> Option<Duration> {
        self.unreachable.lock().get(&node).map(Instant::elapsed)
    }

    /// Processes that are known dead and not fenced yet.
    pub(crate) fn dead(&self) -> Vec<(NodeId, BootNumber)> {
        self.dead.lock().keys().copied().collect()
    }

    /// Starts to be fenced. A process that lives after all is accused no more, nor is one that is
    /// fenced: it may have begun anew.
    pub(crate) fn to_fence(
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

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_catalog::{CatalogCommand, CatalogEntry, CatalogOutput};
    use quorate_types::{CatalogIndex, Incarnation, Stamp};

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
