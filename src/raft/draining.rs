//! A drained node (MEM 13): it hands its leaderships over and takes none, but its replicas go on voting
//! and applying.
//!
//! Of two nodes that are left without a leader, only the drained one may have the last committed
//! entries, and then only that one can be elected. So after a group has had no leader for a while, a
//! drained node stands for election too, and hands the group over as soon as another node has caught
//! up.

use crate::{aligned_runtime::every, group::Group, leadership, shared::Shared};
use futures::future::join_all;
use quorate_rpc::PeerHello;
use quorate_types::{GroupId, NodeId};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How often a drained node checks its groups.
const EVERY: Duration = Duration::from_millis(100);
/// A group may be without a leader for this long, until this node stands for election although it is
/// drained: the other nodes have had time for an election.
const LEADERLESS_MAX: Duration = Duration::from_secs(1);

/// Why a node was not drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    /// The cluster has no other node that takes leaderships.
    #[error(
        "no other node takes leaderships now: each is down, drained, about to stop, or its disk hangs"
    )]
    NobodyElse,
    /// The cluster has one node.
    #[error("the cluster has one node, so no other one can take its leaderships and clients")]
    Alone,
    /// The groups do not run yet.
    #[error("the node is still starting")]
    Starting,
}

/// Drains this node.
pub(crate) async fn drain(shared: &Shared) -> Result<(), DrainError> {
    if shared.links.peers().next().is_none() {
        return Err(DrainError::Alone);
    }
    shared.gate().set_drained(true);
    // Asked only now: of nodes that are drained at the same moment, none counts on the others.
    if !is_anyone_ready(shared).await {
        revive(shared);
        return Err(DrainError::NobodyElse);
    }
    shared.follow_gate();
    Ok(())
}

/// Ends the draining; returns whether the node was drained.
pub(crate) fn revive(shared: &Shared) -> bool {
    let was_drained = shared.gate().set_drained(false);
    shared.follow_gate();
    was_drained
}

/// Whether another node takes leaderships now.
async fn is_anyone_ready(shared: &Shared) -> bool {
    let Some(catalog) = shared.group(GroupId::CATALOG) else { return false };
    let catalog = &catalog;
    let ask = |peer: PeerHello| async move {
        !shared.departures().leaves(peer.node)
            && leadership::is_ready(shared, catalog, peer.node).await
    };
    join_all(shared.links.all_connected().into_iter().map(ask)).await.contains(&true)
}

/// While this node is drained, hands its leaderships over and leads only what nobody else can lead;
/// until it is aborted.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut due = every(EVERY);
    let mut leaderless = Leaderless::default();
    loop {
        due.tick().await;
        if !shared.gate().is_drained() || !shared.gate().may_lead_at_last() {
            leaderless.since.clear();
            continue;
        }
        join_all(shared.all().map(async |group| leadership::hand_over_once(&shared, &group).await))
            .await;
        for group in shared.all() {
            if leaderless.is_over_long(Instant::now(), shared.settings.me, &group) {
                // With a pre-vote, which no node grants that hears a leader or has a longer log.
                let _ = group.raft().trigger().elect(true).await;
            }
        }
    }
}

/// Since when groups have no leader that this node hears. One that is reached may be silent: it offers
/// the group to a node that does not take it, and appends nothing more.
#[derive(Debug, Default)]
struct Leaderless {
    since: BTreeMap<GroupId, Instant>,
}

impl Leaderless {
    fn is_over_long(&mut self, now: Instant, me: NodeId, group: &Group) -> bool {
        let leader = group.leadership().leader;
        let is_heard = group.catch_up().has_heard_within(LEADERLESS_MAX);
        let has_leader = leader.is_some_and(|leader| leader == me || is_heard);
        self.note(now, group.id(), has_leader)
    }

    /// True once in each `LEADERLESS_MAX` without a leader.
    fn note(&mut self, now: Instant, group: GroupId, has_leader: bool) -> bool {
        if has_leader {
            self.since.remove(&group);
            return false;
        }
        let since = self.since.entry(group).or_insert(now);
        let over_long = now.saturating_duration_since(*since) >= LEADERLESS_MAX;
        if over_long {
            *since = now;
        }
        over_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drained_node_lets_the_others_try_first() {
        let (mut leaderless, begun, group) = (Leaderless::default(), Instant::now(), GroupId(1));
        let at = |ms: u64| begun + Duration::from_millis(ms);
        assert!(!leaderless.note(at(0), group, false));
        assert!(!leaderless.note(at(999), group, false));
        assert!(leaderless.note(at(1_000), group, false));
        assert!(!leaderless.note(at(1_100), group, false), "its election takes time too");
        assert!(leaderless.note(at(2_000), group, false));
        assert!(!leaderless.note(at(2_500), group, true));
        assert!(!leaderless.note(at(3_100), group, false), "counted anew");
    }
}
