//! The next step of a group's leader towards the placement of its replicas (MEM 7): learner, caught
//! up, joint consensus, removal.
//!
//! A step is a pure function of the membership in the group's own log and of what the followers have
//! acknowledged, so that a new leader continues from what it finds. No step is taken while the
//! membership in force is not committed.

use crate::type_config::Membership;
use std::collections::BTreeSet;

/// Entries that a replica may lack to become a voter (MEM 7).
const BEHIND_MAX: u64 = 1_000;

/// The replicas that a group shall have, as openraft names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) voters: BTreeSet<u64>,
    pub(crate) learners: BTreeSet<u64>,
}

/// What the leader does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing yet: a membership is not committed, or a replica that comes lacks entries.
    Wait,
    /// A replica receives the log from now on.
    Add(u64),
    /// These replicas vote from now on; the others have no part in the group any more. From a joint
    /// membership this continues to the end.
    SetVoters(BTreeSet<u64>),
    /// These learners have no part in the group any more.
    Remove(BTreeSet<u64>),
    /// Another replica leads from now on: this one shall vote no longer.
    HandOver,
    /// The membership is what it shall be.
    Reached,
}

/// The next step of the leader `me` from a membership, which is committed or not. `behind` gives the
/// number of entries that a replica lacks; `None` if that is not known, or its node is not reached.
pub(crate) fn next_step(
    me: u64,
    membership: &Membership,
    is_committed: bool,
    wanted: &Wanted,
    behind: impl Fn(u64) -> Option<u64>,
) -> Step {
    if !is_committed {
        return Step::Wait;
    }
    let all = || wanted.voters.union(&wanted.learners).copied();
    let present: BTreeSet<u64> = membership.nodes().map(|(id, ())| *id).collect();
    if let Some(comes) = all().find(|id| !present.contains(id)) {
        return Step::Add(comes);
    }
    let is_voter = |id: &u64| membership.get_joint_config().iter().any(|set| set.contains(id));
    // A leader that goes brings the others in first, and hands over to one of them.
    let with_me: BTreeSet<u64> = wanted.voters.iter().copied().chain([me]).collect();
    if membership.get_joint_config() != std::slice::from_ref(&with_me) {
        let follows = |id: &u64| *id == me || behind(*id).is_some_and(|it| it <= BEHIND_MAX);
        let ready = wanted.voters.iter().all(|id| is_voter(id) || follows(id));
        // Otherwise the new voters could commit nothing. What was begun must be ended.
        let is_joint = membership.get_joint_config().len() > 1;
        let can_commit = with_me.iter().filter(|id| follows(id)).count() * 2 > with_me.len();
        let may_change = ready && (is_joint || can_commit);
        return if may_change { Step::SetVoters(with_me) } else { Step::Wait };
    }
    if !wanted.voters.contains(&me) {
        return Step::HandOver;
    }
    let wanted: BTreeSet<u64> = all().collect();
    let surplus: BTreeSet<u64> = present.difference(&wanted).copied().collect();
    if surplus.is_empty() { Step::Reached } else { Step::Remove(surplus) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::{collection::btree_set, prelude::*};

    fn ids(ids: &[u64]) -> BTreeSet<u64> {
        ids.iter().copied().collect()
    }

    fn membership(configs: &[&[u64]], nodes: &[u64]) -> Membership {
        let configs = configs.iter().map(|config| ids(config)).collect();
        Membership::new(configs, ids(nodes)).unwrap()
    }

    fn voters(of: &[u64]) -> Wanted {
        Wanted { voters: ids(of), learners: BTreeSet::new() }
    }

    #[test]
    fn mem_07_a_replica_comes_as_a_learner_and_votes_when_it_has_caught_up() {
        let (here, wanted) = (membership(&[&[1, 2, 3]], &[1, 2, 3]), voters(&[1, 2, 4]));
        let unknown = |_| None;
        assert_eq!(next_step(1, &here, false, &wanted, unknown), Step::Wait);
        assert_eq!(next_step(1, &here, true, &wanted, unknown), Step::Add(4));
        let learning = membership(&[&[1, 2, 3]], &[1, 2, 3, 4]);
        assert_eq!(next_step(1, &learning, true, &wanted, unknown), Step::Wait);
        assert_eq!(next_step(1, &learning, true, &wanted, |_| Some(1_001)), Step::Wait);
        let changed = Step::SetVoters(ids(&[1, 2, 4]));
        assert_eq!(next_step(1, &learning, true, &wanted, |_| Some(1_000)), changed);
        // A leader that finds a joint membership continues.
        let joint = membership(&[&[1, 2, 3], &[1, 2, 4]], &[1, 2, 3, 4]);
        assert_eq!(next_step(1, &joint, true, &wanted, unknown), changed);
        let reached = membership(&[&[1, 2, 4]], &[1, 2, 4]);
        assert_eq!(next_step(1, &reached, true, &wanted, unknown), Step::Reached);
        assert_eq!(next_step(1, &reached, false, &wanted, unknown), Step::Wait, "not committed");
    }

    /// Replica 3 is away. Two voters that are 2 and 3 could commit nothing.
    #[test]
    fn mem_07_no_voters_are_set_that_could_commit_nothing() {
        let here = membership(&[&[1, 2, 3, 4]], &[1, 2, 3, 4]);
        let known = |id: u64| [1, 2, 4].contains(&id).then_some(0);
        assert_eq!(next_step(2, &here, true, &voters(&[2, 3]), known), Step::Wait);
        let changed = Step::SetVoters(ids(&[1, 2, 3]));
        assert_eq!(next_step(2, &here, true, &voters(&[1, 2, 3]), known), changed);
    }

    #[test]
    fn mem_07_learners_that_nobody_wants_go_last() {
        let here = membership(&[&[1, 2, 4]], &[1, 2, 3, 4, 5]);
        let wanted = Wanted { voters: ids(&[1, 2, 4]), learners: ids(&[5]) };
        assert_eq!(next_step(1, &here, true, &wanted, |_| None), Step::Remove(ids(&[3])));
    }

    /// What openraft makes of a step.
    fn taken(from: &Membership, step: Step) -> Membership {
        let nodes: BTreeSet<u64> = from.nodes().map(|(id, ())| *id).collect();
        match step {
            Step::Wait | Step::HandOver | Step::Reached => from.clone(),
            Step::Add(id) => {
                let nodes = nodes.into_iter().chain([id]).collect::<BTreeSet<_>>();
                Membership::new(from.get_joint_config().clone(), nodes).unwrap()
            }
            Step::SetVoters(voters) => {
                let former: BTreeSet<u64> = from.voter_ids().collect();
                let kept =
                    nodes.into_iter().filter(|id| voters.contains(id) || !former.contains(id));
                let kept: BTreeSet<u64> = kept.collect();
                Membership::new(vec![voters], kept).unwrap()
            }
            Step::Remove(gone) => {
                let kept: BTreeSet<u64> = nodes.difference(&gone).copied().collect();
                Membership::new(from.get_joint_config().clone(), kept).unwrap()
            }
        }
    }

    proptest! {
        #[test]
        fn mem_07_every_placement_is_reached(
            former in btree_set(1..9_u64, 1..6),
            idle in btree_set(1..9_u64, 0..3),
            joint in btree_set(1..9_u64, 0..6),
            voters in btree_set(1..9_u64, 1..6),
            learners in btree_set(1..9_u64, 0..4),
        ) {
            let nodes: BTreeSet<u64> =
                former.iter().chain(&idle).chain(&joint).copied().collect();
            let configs = if joint.is_empty() { vec![former] } else { vec![former, joint] };
            let mut now = Membership::new(configs, nodes).unwrap();
            let wanted = Wanted { learners: &learners - &voters, voters };
            let mut leader = now.voter_ids().next().unwrap();
            for _ in 0..20 {
                let step = next_step(leader, &now, true, &wanted, |_| Some(0));
                if step == Step::HandOver {
                    prop_assert!(!wanted.voters.contains(&leader));
                    leader = *wanted.voters.first().unwrap();
                    prop_assert!(now.voter_ids().any(|id| id == leader), "it can be elected");
                    continue;
                }
                if step == Step::Reached {
                    let nodes: BTreeSet<u64> = now.nodes().map(|(id, ())| *id).collect();
                    prop_assert_eq!(now.get_joint_config(), &vec![wanted.voters.clone()]);
                    prop_assert_eq!(nodes, &wanted.voters | &wanted.learners);
                    return Ok(());
                }
                now = taken(&now, step);
            }
            prop_assert!(false, "not reached: {now:?}");
        }
    }
}
