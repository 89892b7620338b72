//! Who reaches whom. Each node asks every other one, with each beat, whom it reaches; that it is
//! answered shows that both ways are open.
//!
//! Where the link between two nodes is cut, a third one may reach both. A group that is led by one
//! of the two is lost to the other's clients for as long as that lasts, though a majority answers;
//! led by the third one it is lost to nobody. So a leader that does not reach a voter which another
//! voter reaches hands its leadership to that one. And a process whose address refuses is not taken
//! for dead while another node reaches it.

use crate::{
    aligned_runtime::every,
    codec::{decode_nodes, encode_nodes},
    group::Group,
    leadership,
    service::Service,
    shared::Shared,
};
use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;
use quorate_rpc::Lane;
use quorate_types::{BootNumber, GroupId, NodeId};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tokio::time::sleep;

/// How often each node asks each other one; heartbeats, by default, come at the same moments.
const BEAT: Duration = Duration::from_millis(125);
/// A node is reached if it has answered within this time: two beats.
const ANSWER_MAX_AGE: Duration = Duration::from_millis(250);
/// A leader hands over when another node has reached more voters for so long. A voter that has died
/// the others do not say to reach any more by then, one that has just been linked it reaches too.
const BETTER: Duration = Duration::from_millis(300);
/// Longest wait for a handover, and for another try to hand the same group over.
const HANDOVER: Duration = Duration::from_secs(1);
/// Between two questions whether others reach a process that may be dead.
const DOUBT: Duration = Duration::from_millis(50);

/// What this node knows of whom it reaches, and whom those reach.
#[derive(Debug, Default)]
pub(crate) struct Reach(Mutex<BTreeMap<NodeId, LastAnswer>>);

#[derive(Clone, Debug)]
struct LastAnswer {
    /// When it answered last.
    at: Instant,
    /// Whom it reached then.
    reaches: BTreeSet<NodeId>,
}

impl Reach {
    fn answered(&self, now: Instant, node: NodeId, reaches: BTreeSet<NodeId>) {
        self.0.lock().insert(node, LastAnswer { at: now, reaches });
    }

    /// The link to the node has ended.
    pub(crate) fn lost(&self, node: NodeId) {
        self.0.lock().remove(&node);
    }

    /// Nodes that this one reaches, and whom they reached.
    fn reached(&self, now: Instant) -> BTreeMap<NodeId, BTreeSet<NodeId>> {
        let answers = self.0.lock();
        let fresh = answers
            .iter()
            .filter(|(_, one)| now.saturating_duration_since(one.at) < ANSWER_MAX_AGE);
        fresh.map(|(node, one)| (*node, one.reaches.clone())).collect()
    }

    /// How many of the voters each of them reaches, itself included, as far as this node knows.
    fn counts(&self, now: Instant, me: NodeId, voters: &[NodeId]) -> BTreeMap<NodeId, usize> {
        let mut reached = self.reached(now);
        reached.insert(me, reached.keys().copied().collect());
        let count = |node: &NodeId| {
            let of = reached.get(node)?;
            Some(voters.iter().filter(|voter| *voter == node || of.contains(voter)).count())
        };
        voters.iter().map(|node| (*node, count(node).unwrap_or(0))).collect()
    }

    /// Of these voters, in their order, the first that reaches the most, if those are more than
    /// this node reaches.
    fn better(&self, now: Instant, me: NodeId, voters: &[NodeId]) -> Option<NodeId> {
        let counts = self.counts(now, me, voters);
        let most = counts.values().max().filter(|most| counts.get(&me) < Some(most))?;
        voters.iter().copied().find(|node| counts.get(node) == Some(most))
    }

    /// Whether another voter reaches fewer of them than this node does.
    pub(crate) fn is_worse(&self, me: NodeId, other: NodeId, voters: &[NodeId]) -> bool {
        let counts = self.counts(Instant::now(), me, voters);
        counts.get(&other) < counts.get(&me)
    }
}

/// Asks all nodes with each beat, and hands over what others had better lead, for ever.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut due = every(BEAT);
    // Since when another node had better lead a group; and groups that are being handed over.
    let mut better: BTreeMap<GroupId, (NodeId, Instant)> = BTreeMap::new();
    let mut moved: BTreeMap<GroupId, Instant> = BTreeMap::new();
    loop {
        due.tick().await;
        for peer in shared.links.all_connected() {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move { ask(&shared, peer.node).await });
        }
        if !shared.settings.balance {
            continue;
        }
        let now = Instant::now();
        moved.retain(|_, at| at.elapsed() < HANDOVER);
        for group in shared.all() {
            let order = leadership::order(group);
            let elected = group.standing().is_elected();
            let to = elected.then(|| shared.reach().better(now, shared.settings.me, &order));
            let Some(to) = to.flatten() else {
                better.remove(&group.id());
                continue;
            };
            let since = better.entry(group.id()).or_insert((to, now));
            if since.0 != to {
                *since = (to, now);
            }
            let for_long = now.saturating_duration_since(since.1) >= BETTER;
            if for_long && !moved.contains_key(&group.id()) {
                moved.insert(group.id(), now);
                tokio::spawn(hand_over(Arc::clone(&shared), Arc::clone(group), to));
            }
        }
    }
}

async fn hand_over(shared: Arc<Shared>, group: Arc<Group>, to: NodeId) {
    let group_id = group.id();
    match leadership::transfer(&shared, &group, to, HANDOVER).await {
        Ok(()) => {
            tracing::info!(
                group = %group_id, %to, "leadership transferred to a node that reaches more nodes"
            )
        }
        Err(error) => {
            tracing::info!(
                group = %group_id, %to,
                "leadership not transferred to a node that reaches more: {error}"
            );
        }
    }
}

/// Asks a node whom it reaches; `None`: this node does not reach it.
async fn ask(shared: &Shared, node: NodeId) -> Option<BTreeSet<NodeId>> {
    let (number, lane) = (Service::Reach.number(), Lane::Control);
    let links = &shared.links;
    let asked = links
        .call(node, lane, number, GroupId::CATALOG, Bytes::new(), ANSWER_MAX_AGE)
        .await
        .ok()?;
    match decode_nodes(&asked) {
        Ok(reaches) => {
            shared.reach().answered(Instant::now(), node, reaches.clone());
            Some(reaches)
        }
        Err(error) => {
            tracing::error!(%node, "cannot decode an answer: {error}");
            None
        }
    }
}

/// Whom this node reaches, for one that asks.
pub(crate) fn answer(shared: &Shared) -> Bytes {
    encode_nodes(shared.reach().reached(Instant::now()).into_keys())
}

/// Resolves when nobody that this node reaches does reach a process whose address has refused this
/// node: it is dead. False if it turns out to live.
pub(crate) async fn is_dead(shared: &Shared, node: NodeId, boot: BootNumber) -> bool {
    loop {
        let others = shared.links.all_connected().into_iter().filter(|peer| peer.node != node);
        let answers = join_all(others.map(|peer| ask(shared, peer.node))).await;
        if !answers.into_iter().flatten().any(|reaches| reaches.contains(&node)) {
            return !shared.links.lives(node, boot);
        }
        if !shared.links.has_no_process(node) {
            return !shared.links.lives(node, boot);
        }
        sleep(DOUBT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);
    const VOTERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn nodes(nodes: &[u16]) -> BTreeSet<NodeId> {
        nodes.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn who_reaches_more_voters_had_better_lead() {
        let (reach, begun) = (Reach::default(), Instant::now());
        let at = |ms: u64| begun + Duration::from_millis(ms);
        reach.answered(at(0), NodeId(2), nodes(&[1, 3]));
        reach.answered(at(0), NodeId(3), nodes(&[1, 2]));
        assert_eq!(reach.better(at(10), ME, &VOTERS), None, "all reach all");
        // Node 2 answers this node no more, and node 3 still.
        reach.answered(at(250), NodeId(3), nodes(&[1, 2]));
        assert_eq!(reach.better(at(300), ME, &VOTERS), Some(NodeId(3)));
        let order = [NodeId(2), NodeId(3), NodeId(1)];
        assert_eq!(reach.better(at(300), ME, &order), Some(NodeId(3)), "2 may not reach anybody");
        assert_eq!(reach.better(at(600), ME, &VOTERS), None, "and what 3 said is old");
    }

    #[test]
    fn a_node_that_nobody_reaches_moves_no_leadership() {
        let (reach, begun) = (Reach::default(), Instant::now());
        let now = begun + Duration::from_millis(600);
        reach.answered(begun, NodeId(2), nodes(&[1, 3]));
        reach.answered(now, NodeId(3), nodes(&[1]));
        assert_eq!(reach.better(now, ME, &VOTERS), None);
        reach.lost(NodeId(3));
        assert_eq!(reach.better(now, ME, &VOTERS), None, "nor one that reaches nobody");
    }
}
