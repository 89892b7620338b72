//! Election of a successor of a node that is dead or silent, in an agreed order instead of after
//! random timeouts (DESIGN §8).
//!
//! Each survivor asks the others for their positions. The one with the longest log, and among
//! equals the first in the group's preference, begins an election. The others give it some time
//! and then try themselves; election timeouts remain as a fallback.
//!
//! The successor of a dead process is elected at once: openraft lets a node that is asked to take
//! over start an election inside a lease, and the voters grant it. A silent process may live. So
//! its successor is elected after its lease, with a pre-vote, which no voter grants inside the
//! lease: a leader that a majority hears stays. Random timeouts, of up to twice the lease, often
//! collided in one of a node's groups, which then had no leader for 1.3 s.

use crate::{
    codec::{Position, decode_positions, encode_groups},
    group::Group,
    leadership,
    replica_name::node_of,
    service::Service,
    shared::Shared,
    type_config::Vote,
};
use futures::future::join_all;
use openraft::raft::TransferLeaderRequest;
use quorate_rpc::Lane;
use quorate_types::{GroupId, NodeId};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// Longest wait for the others' positions.
const ASK_TIMEOUT: Duration = Duration::from_millis(100);

/// How long the first candidate has before the next one tries.
const TURN: Duration = Duration::from_millis(150);

/// What is known of a leader that needs a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// Its process has ended.
    Dead,
    /// It has answered nothing for as long as its lease.
    Silent,
}

/// A group, and the term in which a node leads it.
pub(crate) type Led = (Arc<Group>, u64);

/// The groups that a node leads, as far as this node knows.
pub(crate) fn led(shared: &Shared, node: NodeId) -> Vec<Led> {
    shared.all().filter_map(|group| led_by(&group, node).map(|term| (group, term))).collect()
}

/// Elects successors of a node in groups that it leads, or led until its process was lost. The node's
/// next process may have been elected meanwhile, in a later term: it needs no successor.
pub(crate) async fn succeed(
    shared: Arc<Shared>,
    absent: NodeId,
    absence: Absence,
    mut headless: Vec<Led>,
) {
    headless.retain(|(group, term)| led_by(group, absent) == Some(*term));
    if absence == Absence::Dead {
        headless.iter().for_each(|(group, term)| group.standing().leader_died(absent, *term));
    }
    // A learner would be granted no vote, and those that have one would wait for it.
    headless.retain(|(group, _)| group.is_voter());
    if headless.is_empty() || !shared.gate().may_lead() {
        return;
    }
    let ids: Vec<GroupId> = headless.iter().map(|(group, _)| group.id()).collect();
    let others = shared.links.all_connected().into_iter().map(|peer| peer.node);
    let asked = others.filter(|node| *node != absent).map(|node| ask(&shared, node, absent, &ids));
    let positions: Vec<(NodeId, Vec<Position>)> = join_all(asked).await;
    for (group, term) in headless {
        let theirs = positions.iter().map(|(node, all)| {
            let position = all.iter().find(|position| position.group == group.id()).cloned();
            (*node, position)
        });
        let theirs: Vec<_> = theirs.collect();
        tokio::spawn(follow(Arc::clone(&shared), (group, term), (absent, absence), theirs));
    }
}

/// The term in which the node leads the group, if it does.
fn led_by(group: &Group, node: NodeId) -> Option<u64> {
    let vote = group.standing().vote()?;
    let leads = vote.committed && node_of(vote.leader_id.voted_for) == node;
    leads.then_some(vote.leader_id.term)
}

/// The positions of a node in the groups; empty if it does not answer in time.
async fn ask(
    shared: &Shared,
    node: NodeId,
    absent: NodeId,
    groups: &[GroupId],
) -> (NodeId, Vec<Position>) {
    let payload = encode_groups(absent, groups);
    let number = Service::Positions.number();
    let links = &shared.links;
    let asked = links.call(node, Lane::Control, number, GroupId::CATALOG, payload, ASK_TIMEOUT);
    let positions = asked.await.ok().and_then(|answer| decode_positions(&answer).ok());
    (node, positions.unwrap_or_default())
}

/// Succeeds the absent leader in one group, or lets another node do so.
async fn follow(
    shared: Arc<Shared>,
    (group, term): Led,
    (absent, absence): (NodeId, Absence),
    theirs: Vec<(NodeId, Option<Position>)>,
) {
    let Some(mine) = group.position(true) else { return };
    let others: Vec<_> = theirs.iter().filter_map(|(node, p)| Some((*node, p.as_ref()?))).collect();
    let order = leadership::order(&group);
    let turns = turns(&order, shared.settings.me, &mine, &others);
    let Some(turn) = turns else { return };
    let mut leadership = group.watch_leadership();
    let wait = TURN * turn;
    // A dead leader is not known as one any more, unless it turns out to live.
    let elected = leadership.wait_for(|now| {
        let leads = absence == Absence::Dead && now.leader.is_some();
        leads || now.term.0 > mine.vote.leader_id.term
    });
    if turn > 0 && timeout(wait, elected).await.is_ok() {
        return;
    }
    // Either may have changed meanwhile.
    if led_by(&group, absent) != Some(term) || !shared.gate().may_lead() {
        return;
    }
    match absence {
        Absence::Dead => take_over(&group, &mine.vote).await,
        // Without effect while the lease lasts, or once the group has ended.
        Absence::Silent => drop(group.raft().trigger().elect(true).await),
    }
}

/// Number of nodes that precede this one as candidates; `None` if it should not try: an election
/// has begun already, or no majority is reachable.
fn turns(
    order: &[NodeId],
    me: NodeId,
    mine: &Position,
    others: &[(NodeId, &Position)],
) -> Option<u32> {
    let begun =
        others.iter().any(|(_, theirs)| theirs.vote.leader_id.term > mine.vote.leader_id.term);
    if begun || others.len() + 1 < order.len() / 2 + 1 {
        return None;
    }
    let rank = |node: NodeId| order.iter().position(|other| *other == node).unwrap_or(usize::MAX);
    let before = others.iter().filter(|(node, theirs)| {
        theirs.may_lead && (theirs.last, rank(me)) > (mine.last, rank(*node))
    });
    u32::try_from(before.count()).ok()
}

/// Asks this node's own Raft to take over from the dead leader.
async fn take_over(group: &Group, vote: &Vote) {
    group.metrics().crash_elections.add(1);
    let request = TransferLeaderRequest::new(*vote, group.me(), None);
    match group.raft().handle_transfer_leader(request).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::info!(group = %group.id(), "cannot start an early election: {error}")
        }
        // The group has ended.
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::type_config::{log_id_of, vote};

    fn position(term: u64, last: u64, may_lead: bool) -> Position {
        let last = Some(log_id_of(3, last));
        Position { group: GroupId(1), vote: vote(term, 2, true), last, may_lead }
    }

    #[test]
    fn the_longest_log_goes_first_and_preference_breaks_ties() {
        let order: Vec<NodeId> = [2, 3, 1].map(NodeId).to_vec();
        let turn = |me: u16, mine: &Position, other: u16, theirs: &Position| {
            turns(&order, NodeId(me), mine, &[(NodeId(other), theirs)])
        };
        let (short, long) = (position(3, 10, true), position(3, 11, true));
        assert_eq!(turn(1, &long, 3, &short), Some(0));
        assert_eq!(turn(3, &short, 1, &long), Some(1));
        assert_eq!(turn(1, &short, 3, &short), Some(1));
        assert_eq!(turn(3, &short, 1, &short), Some(0));
        let hung = position(3, 11, false);
        assert_eq!(turn(3, &short, 1, &hung), Some(0), "one whose disk hangs is passed over");
        let begun = position(4, 10, true);
        assert_eq!(turn(3, &short, 1, &begun), None);
        assert_eq!(turns(&order, NodeId(3), &short, &[]), None, "no majority");
    }
}
