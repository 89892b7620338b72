//! Whether this process belongs to the cluster: which nodes have admitted it, which reject it for
//! good, and what follows from both (DESIGN §8).
//!
//! A rejection says only that two nodes do not fit; which one is wrong follows from other facts. A
//! process that a majority has admitted belongs to the cluster and is never wrong again, whatever
//! another node says. Only nodes that know their cluster count for that majority, or all nodes
//! together (the first formation): two nodes that have lost their data admit each other, beside the
//! one that still has it. A process that was not yet admitted is wrong
//! - if the nodes that do not reject it, with itself, cannot be a majority; or
//! - if a member rejects it and no node that knows its cluster admits it: a cluster works there, or
//!   did, and this process is not part of it.
//!
//! Two rejections are different: that the directory was forgotten is a committed entry of the catalog
//! (MEM 11), and that it is of an older epoch an operator's decision (MEM 14). A single member that says
//! so is enough, also against a process that was admitted.

use crate::rejection::{Reason, Rejected, Rejection};
use parking_lot::Mutex;
use quorate_types::NodeId;
use std::collections::BTreeMap;

/// The result of the last attempt to link a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// No attempt has ended yet.
    UnderWay,
    /// The node admitted this process; `formed` if the node knows its cluster.
    Linked { formed: bool },
    /// The node rejects this process for good.
    Rejected(Rejection),
    /// Proves nothing: the node cannot be reached, or may admit this process later.
    Failed,
}

/// The facts from which this process decides whether it belongs to the cluster.
#[derive(Debug)]
pub(crate) struct Admission {
    me: NodeId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    admitted: bool,
    attempts: BTreeMap<NodeId, Attempt>,
}

impl State {
    /// Number of nodes, this one included, that are a majority.
    fn majority(&self) -> usize {
        self.members() / 2 + 1
    }

    fn members(&self) -> usize {
        self.attempts.len() + 1
    }

    fn count(&self, which: impl Fn(&Attempt) -> bool) -> usize {
        self.attempts.values().filter(|attempt| which(attempt)).count()
    }

    /// True if a member rejects this process for a reason that needs no other witness.
    fn is_proven_wrong(&self) -> bool {
        let proves = |attempt: &Attempt| matches!(attempt, Attempt::Rejected(it) if it.admitted && it.reason.is_proven());
        self.count(proves) > 0
    }

    /// True if the rejections prove that this process does not belong to the cluster.
    fn is_wrong(&self) -> bool {
        if self.is_proven_wrong() {
            return true;
        }
        let rejecting = self.count(|attempt| matches!(attempt, Attempt::Rejected(_)));
        if rejecting == 0 || self.admitted {
            return false;
        }
        let no_majority_left = self.members() - rejecting < self.majority();
        let by_a_member = self
            .count(|attempt| matches!(attempt, Attempt::Rejected(rejection) if rejection.admitted))
            > 0;
        let nobody_vouches = self.count(|attempt| {
            matches!(attempt, Attempt::UnderWay | Attempt::Linked { formed: true })
        }) == 0;
        no_majority_left || (by_a_member && nobody_vouches)
    }

    /// The reason that most nodes give, and those nodes.
    fn verdict(&self, me: NodeId) -> Option<Rejected> {
        let mut by: BTreeMap<Reason, Vec<NodeId>> = BTreeMap::new();
        for (node, attempt) in &self.attempts {
            if let Attempt::Rejected(rejection) = attempt {
                by.entry(rejection.reason).or_default().push(*node);
            }
        }
        let most = by.into_iter().max_by_key(|(reason, by)| (reason.is_proven(), by.len()));
        most.map(|(reason, by)| Rejected { me, by, reason })
    }
}

impl Admission {
    /// The state of a process that has not dialed any node yet. A single node is its own majority.
    pub(crate) fn new(me: NodeId, others: impl IntoIterator<Item = NodeId>) -> Self {
        let attempts: BTreeMap<_, _> =
            others.into_iter().map(|node| (node, Attempt::UnderWay)).collect();
        let state = State { admitted: attempts.is_empty(), attempts };
        Self { me, state: Mutex::new(state) }
    }

    /// True if at any moment since the start a majority had admitted this process.
    pub(crate) fn is_admitted(&self) -> bool {
        self.state.lock().admitted
    }

    /// Replaces the other nodes. An admission stays.
    pub(crate) fn set<'a>(&self, nodes: impl Iterator<Item = &'a NodeId> + Clone) {
        self.state.lock().attempts.retain(|node, _| nodes.clone().any(|stays| stays == node));
        self.add(nodes);
    }

    /// Further nodes.
    pub(crate) fn add<'a>(&self, nodes: impl Iterator<Item = &'a NodeId>) {
        let attempts = &mut self.state.lock().attempts;
        for node in nodes {
            attempts.entry(*node).or_insert(Attempt::UnderWay);
        }
    }

    /// Records an attempt. Returns the verdict if this process does not belong to the cluster.
    pub(crate) fn note(&self, node: NodeId, attempt: Attempt) -> Option<Rejected> {
        let mut state = self.state.lock();
        // Not of a node that was removed meanwhile.
        *state.attempts.get_mut(&node)? = attempt;
        let formed = state.count(|attempt| *attempt == Attempt::Linked { formed: true });
        let linked = state.count(|attempt| matches!(attempt, Attempt::Linked { .. }));
        state.admitted |= formed + 1 >= state.majority() || linked + 1 == state.members();
        if state.is_wrong() { state.verdict(self.me) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: NodeId = NodeId(2);
    const THREE: NodeId = NodeId(3);

    const FORMED: Attempt = Attempt::Linked { formed: true };
    const NEW: Attempt = Attempt::Linked { formed: false };

    fn of_three() -> Admission {
        Admission::new(NodeId(1), [TWO, THREE])
    }

    fn rejected(reason: Reason, admitted: bool) -> Attempt {
        Attempt::Rejected(Rejection { reason, admitted })
    }

    fn verdict(by: &[NodeId], reason: Reason) -> Option<Rejected> {
        Some(Rejected { me: NodeId(1), by: by.to_vec(), reason })
    }

    #[test]
    fn two_that_know_nobody_else_prove_nothing_to_each_other() {
        let admission = of_three();
        assert_eq!(admission.note(TWO, Attempt::Failed), None);
        assert_eq!(admission.note(THREE, rejected(Reason::Secret, false)), None);
        assert_eq!(admission.note(TWO, NEW), None);
        assert_eq!(admission.note(THREE, NEW), None, "the third one decides: for us");
        assert!(admission.is_admitted());

        let admission = of_three();
        admission.note(THREE, rejected(Reason::Secret, false));
        let against = admission.note(TWO, rejected(Reason::Secret, false));
        assert_eq!(against, verdict(&[TWO, THREE], Reason::Secret), "or against us");
    }

    #[test]
    fn a_member_of_a_cluster_is_believed_when_all_that_are_reached_agree() {
        let admission = of_three();
        let rejection = rejected(Reason::Incarnation, true);
        assert_eq!(admission.note(TWO, rejection), None, "node 3 was not asked yet");
        assert_eq!(admission.note(THREE, Attempt::Failed), verdict(&[TWO], Reason::Incarnation));

        let of_five = Admission::new(NodeId(1), (2..=5).map(NodeId));
        assert_eq!(of_five.note(TWO, rejection), None);
        assert_eq!(of_five.note(THREE, FORMED), None);
        for node in [4, 5] {
            assert_eq!(of_five.note(NodeId(node), Attempt::Failed), None, "node 3 lets it in");
        }
    }

    #[test]
    fn who_was_let_in_once_goes_on_for_ever() {
        let admission = of_three();
        admission.note(TWO, FORMED);
        for node in [TWO, THREE] {
            assert_eq!(admission.note(node, rejected(Reason::Cluster, true)), None);
        }
        assert!(Admission::new(NodeId(1), []).is_admitted(), "one node alone");
    }

    #[test]
    fn mem_11_a_forgotten_directory_ends_though_it_was_admitted() {
        let admission = of_three();
        admission.note(TWO, FORMED);
        assert!(admission.is_admitted());
        let unproven = rejected(Reason::Forgotten, false);
        assert_eq!(admission.note(THREE, unproven), None, "it may be lost itself");
        let against = admission.note(THREE, rejected(Reason::Forgotten, true));
        assert_eq!(against, verdict(&[THREE], Reason::Forgotten));
    }

    /// Nodes 1 and 2 were given up for lost, and come back; the last resort was used on node 3.
    #[test]
    fn mem_14_a_majority_of_an_older_epoch_ends_on_the_word_of_one_of_the_new_one() {
        let admission = of_three();
        assert_eq!(admission.note(TWO, FORMED), None, "both are a majority of the old epoch");
        let against = admission.note(THREE, rejected(Reason::Epoch, true));
        assert_eq!(against, verdict(&[THREE], Reason::Epoch));
    }

    /// Nodes 1 and 2 of three have lost their data; node 3 has not.
    #[test]
    fn two_that_lost_their_data_do_not_vouch_for_each_other() {
        let admission = of_three();
        admission.note(THREE, Attempt::Failed);
        assert_eq!(admission.note(TWO, NEW), None, "node 3 is down");
        assert!(!admission.is_admitted());
        let against = admission.note(THREE, rejected(Reason::Incarnation, true));
        assert_eq!(against, verdict(&[THREE], Reason::Incarnation));
    }

    #[test]
    fn a_rejection_that_has_passed_counts_no_more() {
        let admission = of_three();
        assert_eq!(admission.note(TWO, rejected(Reason::Secret, false)), None);
        assert_eq!(admission.note(TWO, Attempt::Failed), None);
        assert_eq!(admission.note(THREE, rejected(Reason::Secret, false)), None);
    }
}
