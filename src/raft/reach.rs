//! Reachability between nodes. Each node asks every other one at regular intervals which nodes that
//! one reaches; an answer shows that both directions work.
//!
//! If the link between two nodes is cut, a third one may still reach both. If one of the two leads
//! a group, the other's clients cannot use the group, though a majority answers; if the third one
//! leads it, all clients can use it. So a leader that does not reach a voter which another voter
//! reaches hands its leadership to that one. And a process whose address refuses connections does
//! not count as dead while another node reaches it.
//!
//! A node that has not answered for as long as the lease of a leader may hang, or be cut off: the
//! groups that it leads get a successor if no majority hears it (`succession`).

use crate::{
    aligned_runtime::every,
    codec::{decode_nodes, encode_nodes},
    group::Group,
    leadership,
    service::Service,
    settings::Settings,
    shared::Shared,
    succession::{self, Absence},
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

/// How often each node asks each other one; by default at the moments of heartbeats.
const BEAT: Duration = Duration::from_millis(125);
/// Maximum age of an answer for a node to count as reached: two intervals.
const ANSWER_MAX_AGE: Duration = Duration::from_millis(250);
/// A leader hands over when another node has reached more voters for this time. By then the others
/// do not report a dead voter as reached any more, and this node reaches a voter that has just been
/// linked.
const BETTER: Duration = Duration::from_millis(300);
/// Longest wait for a handover, and pause before the same group is handed over again.
const HANDOVER: Duration = Duration::from_secs(1);
/// A look that comes this late after the one before follows a pause of this process.
const PAUSED: Duration = Duration::from_millis(375);
/// Pause between two questions whether others reach a process that may be dead.
const DOUBT: Duration = Duration::from_millis(50);

/// The nodes that have answered this one, with the nodes that each of them reaches.
#[derive(Debug, Default)]
pub(crate) struct Reach(Mutex<BTreeMap<NodeId, LastAnswer>>);

#[derive(Clone, Debug)]
struct LastAnswer {
    /// Time of the last answer.
    at: Instant,
    /// The nodes that it reached then.
    reaches: BTreeSet<NodeId>,
}

impl Reach {
    fn answered(&self, now: Instant, node: NodeId, reaches: BTreeSet<NodeId>) {
        self.0.lock().insert(node, LastAnswer { at: now, reaches });
    }

    /// Removes a node whose link has ended.
    pub(crate) fn lost(&self, node: NodeId) {
        self.0.lock().remove(&node);
    }

    /// The nodes that this one reaches, and the nodes that each of them reaches.
    pub(crate) fn reached(&self, now: Instant) -> BTreeMap<NodeId, BTreeSet<NodeId>> {
        let answers = self.0.lock();
        let fresh = answers
            .iter()
            .filter(|(_, one)| now.saturating_duration_since(one.at) < ANSWER_MAX_AGE);
        fresh.map(|(node, one)| (*node, one.reaches.clone())).collect()
    }

    /// The nodes that are still linked and have not answered for this time.
    fn silent(&self, now: Instant, time: Duration) -> Vec<NodeId> {
        let answers = self.0.lock();
        let silent =
            answers.iter().filter(|(_, one)| now.saturating_duration_since(one.at) >= time);
        silent.map(|(node, _)| *node).collect()
    }

    /// For each voter, the number of voters that it reaches, itself included, as far as this node
    /// knows.
    fn counts(&self, now: Instant, me: NodeId, voters: &[NodeId]) -> BTreeMap<NodeId, usize> {
        let mut reached = self.reached(now);
        reached.insert(me, reached.keys().copied().collect());
        let count = |node: &NodeId| {
            let of = reached.get(node)?;
            Some(voters.iter().filter(|voter| *voter == node || of.contains(voter)).count())
        };
        voters.iter().map(|node| (*node, count(node).unwrap_or(0))).collect()
    }

    /// The first of the voters, in their order, that reaches the most voters, if those are more
    /// than this node reaches.
    fn better(&self, now: Instant, me: NodeId, voters: &[NodeId]) -> Option<NodeId> {
        let counts = self.counts(now, me, voters);
        let most = counts.values().max().filter(|most| counts.get(&me) < Some(most))?;
        voters.iter().copied().find(|node| counts.get(node) == Some(most))
    }

    /// True if another voter reaches fewer of them than this node does.
    pub(crate) fn is_worse(&self, me: NodeId, other: NodeId, voters: &[NodeId]) -> bool {
        let counts = self.counts(Instant::now(), me, voters);
        counts.get(&other) < counts.get(&me)
    }
}

/// When this node sought successors of silent nodes.
struct Silence {
    /// The last look.
    looked: Instant,
    /// When this process last went on after a pause: it has heard nobody meanwhile.
    woke: Instant,
    /// For each silent node, the last attempt.
    attempts: BTreeMap<NodeId, Instant>,
}

impl Silence {
    fn since(now: Instant) -> Self {
        Self { looked: now, woke: now, attempts: BTreeMap::new() }
    }

    /// The nodes whose groups need a successor now, because their leases have run out.
    fn look(&mut self, now: Instant, shared: &Shared) -> Vec<NodeId> {
        let Settings { election_min, election_max, .. } = shared.settings;
        let since = |then: Instant| now.saturating_duration_since(then);
        if since(self.looked) > PAUSED {
            self.woke = now;
        }
        self.looked = now;
        // A further attempt leaves the first one the time that its requests for votes have.
        self.attempts.retain(|_, at| since(*at) < election_min);
        if since(self.woke) < election_max {
            return Vec::new();
        }
        // An entry of the leader's may have come up to one interval after its last answer.
        let mut silent = shared.reach().silent(now, election_max + BEAT);
        silent.retain(|node| !self.attempts.contains_key(node));
        self.attempts.extend(silent.iter().map(|node| (*node, now)));
        silent
    }
}

/// Asks all nodes at regular intervals, and hands over groups that another node should lead.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut due = every(BEAT);
    // For each group, since when another node should lead it; and groups that are being handed
    // over.
    let mut better: BTreeMap<GroupId, (NodeId, Instant)> = BTreeMap::new();
    let mut moved: BTreeMap<GroupId, Instant> = BTreeMap::new();
    let mut silence = Silence::since(Instant::now());
    loop {
        due.tick().await;
        let now = Instant::now();
        for node in silence.look(now, &shared) {
            let led = succession::led(&shared, node);
            tokio::spawn(succession::succeed(Arc::clone(&shared), node, Absence::Silent, led));
        }
        for peer in shared.links.all_connected() {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move { ask(&shared, peer.node).await });
        }
        if !shared.settings.balance {
            continue;
        }
        moved.retain(|_, at| at.elapsed() < HANDOVER);
        for group in shared.all() {
            let order = leadership::order(&group);
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
                tokio::spawn(hand_over(Arc::clone(&shared), Arc::clone(&group), to));
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

/// Asks a node which nodes it reaches; `None`: this node does not reach it.
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

/// The nodes that this node reaches, as an answer.
pub(crate) fn answer(shared: &Shared) -> Bytes {
    encode_nodes(shared.reach().reached(Instant::now()).into_keys())
}

/// Resolves when no node that this one reaches can reach a process whose address has refused this
/// node: it is dead. False if the process turns out to live.
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
        // Node 2 does not answer this node any more; node 3 still does.
        reach.answered(at(250), NodeId(3), nodes(&[1, 2]));
        assert_eq!(reach.better(at(300), ME, &VOTERS), Some(NodeId(3)));
        let order = [NodeId(2), NodeId(3), NodeId(1)];
        assert_eq!(reach.better(at(300), ME, &order), Some(NodeId(3)), "2 may not reach anybody");
        assert_eq!(reach.better(at(600), ME, &VOTERS), None, "and what 3 said is old");
    }

    #[test]
    fn a_linked_node_that_does_not_answer_is_silent() {
        let (reach, begun) = (Reach::default(), Instant::now());
        let lease = Duration::from_millis(450);
        reach.answered(begun, NodeId(2), nodes(&[]));
        reach.answered(begun + Duration::from_millis(100), NodeId(3), nodes(&[]));
        assert!(reach.silent(begun + Duration::from_millis(449), lease).is_empty());
        assert_eq!(reach.silent(begun + lease, lease), [NodeId(2)]);
        reach.lost(NodeId(2));
        assert!(reach.silent(begun + lease, lease).is_empty(), "its process may have ended");
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
