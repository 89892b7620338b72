//! Reachability between nodes. Each node asks every other one at regular intervals which nodes that
//! one reaches; an answer shows that both directions work.
//!
//! If the link between two nodes is cut, a third one may still reach both. If one of the two leads
//! a group, the other's clients cannot use the group, though a majority answers; if the third one
//! leads it, all clients can use it. So a leader that does not reach a voter which another voter
//! reaches hands its leadership to that one. The same holds for a learner, if as many voters are
//! reached: a replica that comes would otherwise wait for the one link to its leader (MEM 8). And a
//! process whose address refuses connections does not count as dead while another node reaches it.
//!
//! A node that has not answered for as long as the lease of a leader may hang, or be cut off: the
//! groups that it leads get a successor if no majority hears it (`succession`).

use crate::{
    aligned_runtime::every,
    codec::{decode_nodes, encode_nodes},
    group::Group,
    leadership::{self, TransferError},
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
    cmp::Reverse,
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
/// A leader hands over when another node has reached more replicas for this time. By then the others
/// do not report a dead voter as reached any more, and this node reaches a voter that has just been
/// linked.
const BETTER: Duration = Duration::from_millis(300);
/// The same if the other node has reached as many voters, and more learners. A learner that has been started
/// again may be linked with this node a second later than with others, and no client waits for it.
const BETTER_FOR_LEARNERS: Duration = Duration::from_secs(3);
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

/// The nodes of a group's replicas.
#[derive(Debug)]
pub(crate) struct Replicas {
    /// Those that vote, in the order in which they should lead the group.
    pub(crate) voters: Vec<NodeId>,
    /// Those that receive the log and have no vote.
    pub(crate) learners: Vec<NodeId>,
}

impl Replicas {
    /// The replicas of a group, by its log.
    pub(crate) fn of(group: &Group) -> Self {
        Self { voters: leadership::order(group), learners: group.learners() }
    }
}

/// How many replicas of a group a node reaches, its own included. Voters count first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Reached {
    voters: usize,
    learners: usize,
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

    /// For each voter, what it reaches of a group, as far as this node knows.
    fn counts(&self, now: Instant, me: NodeId, of: &Replicas) -> BTreeMap<NodeId, Reached> {
        let mut reached = self.reached(now);
        reached.insert(me, reached.keys().copied().collect());
        let count = |node: &NodeId| {
            let to = reached.get(node)?;
            let count = |all: &[NodeId]| {
                all.iter().filter(|other| *other == node || to.contains(other)).count()
            };
            Some(Reached { voters: count(&of.voters), learners: count(&of.learners) })
        };
        of.voters.iter().map(|node| (*node, count(node).unwrap_or_default())).collect()
    }

    /// The voters that reach more than this node does, those that reach most first, else in their order; each
    /// with the time for which it has to be so before this node hands over.
    fn better(&self, now: Instant, me: NodeId, of: &Replicas) -> Vec<(NodeId, Duration)> {
        let counts = self.counts(now, me, of);
        let reached = |node: &NodeId| counts.get(node).copied().unwrap_or_default();
        let mine = reached(&me);
        let mut better: Vec<NodeId> =
            of.voters.iter().copied().filter(|node| reached(node) > mine).collect();
        better.sort_by_key(|node| Reverse(reached(node)));
        let time =
            |node| if reached(node).voters > mine.voters { BETTER } else { BETTER_FOR_LEARNERS };
        better.iter().map(|node| (*node, time(node))).collect()
    }

    /// True if another voter reaches less of the group than this node does.
    pub(crate) fn is_worse(&self, me: NodeId, other: NodeId, of: &Replicas) -> bool {
        let counts = self.counts(Instant::now(), me, of);
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
    // For each group, the nodes that should rather lead it, and since when; and groups that are being
    // handed over.
    let mut better: BTreeMap<GroupId, BTreeMap<NodeId, Instant>> = BTreeMap::new();
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
            let is_elected = group.standing().is_elected();
            let look = || shared.reach().better(now, shared.settings.me, &Replicas::of(&group));
            let now_better = if is_elected { look() } else { Vec::new() };
            let since = better.entry(group.id()).or_default();
            let nodes = better_for_long(now, &now_better, since);
            if !nodes.is_empty() && !moved.contains_key(&group.id()) {
                moved.insert(group.id(), now);
                tokio::spawn(hand_over(Arc::clone(&shared), Arc::clone(&group), nodes));
            }
        }
    }
}

/// Of the nodes that are better now, those that have been it for long enough. `since` keeps when each was
/// first seen to be it.
fn better_for_long(
    now: Instant,
    better: &[(NodeId, Duration)],
    since: &mut BTreeMap<NodeId, Instant>,
) -> Vec<NodeId> {
    since.retain(|node, _| better.iter().any(|(it, _)| it == node));
    let for_long = |(node, time): &&(NodeId, Duration)| {
        let since = *since.entry(*node).or_insert(now);
        now.saturating_duration_since(since) >= *time
    };
    better.iter().filter(for_long).map(|(node, _)| *node).collect()
}

/// Hands a group over to the first of these nodes that takes it.
async fn hand_over(shared: Arc<Shared>, group: Arc<Group>, nodes: Vec<NodeId>) {
    let group_id = group.id();
    for to in nodes {
        let Err(error) = leadership::transfer(&shared, &group, to, HANDOVER).await else {
            tracing::info!(
                group = %group_id, %to, "leadership transferred to a node that reaches more nodes"
            );
            return;
        };
        tracing::info!(
            group = %group_id, %to,
            "leadership not transferred to a node that reaches more: {error}"
        );
        match error {
            TransferError::NotCaughtUp | TransferError::Declined => {}
            // It may still be elected.
            TransferError::Timeout | TransferError::NotLeader => return,
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

    /// Voters in this order, and learners.
    fn replicas(voters: &[u16], learners: &[u16]) -> Replicas {
        let list = |nodes: &[u16]| nodes.iter().copied().map(NodeId).collect();
        Replicas { voters: list(voters), learners: list(learners) }
    }

    fn nodes(nodes: &[u16]) -> BTreeSet<NodeId> {
        nodes.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn who_reaches_more_voters_had_better_lead() {
        let (reach, begun, of) = (Reach::default(), Instant::now(), replicas(&[1, 2, 3], &[]));
        let at = |ms: u64| begun + Duration::from_millis(ms);
        reach.answered(at(0), NodeId(2), nodes(&[1, 3]));
        reach.answered(at(0), NodeId(3), nodes(&[1, 2]));
        assert_eq!(reach.better(at(10), ME, &of), [], "all reach all");
        // Node 2 does not answer this node any more; node 3 still does.
        reach.answered(at(250), NodeId(3), nodes(&[1, 2]));
        assert_eq!(reach.better(at(300), ME, &of), [(NodeId(3), BETTER)]);
        let order = replicas(&[2, 3, 1], &[]);
        assert_eq!(
            reach.better(at(300), ME, &order),
            [(NodeId(3), BETTER)],
            "2 may not reach anybody"
        );
        assert_eq!(reach.better(at(600), ME, &of), [], "and what 3 said is old");
    }

    #[test]
    fn mem_08_who_reaches_a_replica_that_comes_had_better_lead() {
        let (reach, now, of) = (Reach::default(), Instant::now(), replicas(&[1, 2, 3], &[4]));
        reach.answered(now, NodeId(2), nodes(&[1, 3]));
        reach.answered(now, NodeId(3), nodes(&[1, 2, 4]));
        assert_eq!(reach.better(now, ME, &of), [(NodeId(3), BETTER_FOR_LEARNERS)]);
        assert!(!reach.is_worse(ME, NodeId(3), &of));
        reach.answered(now, NodeId(2), nodes(&[1, 3, 4]));
        let order = replicas(&[3, 2, 1], &[4]);
        let both = [(NodeId(3), BETTER_FOR_LEARNERS), (NodeId(2), BETTER_FOR_LEARNERS)];
        assert_eq!(reach.better(now, ME, &order), both, "one may not take it");
        reach.answered(now, NodeId(2), nodes(&[1, 3]));
        reach.answered(now, NodeId(3), nodes(&[2, 4]));
        assert_eq!(reach.better(now, ME, &of), [], "voters count first");
        assert!(reach.is_worse(ME, NodeId(3), &of));
        reach.answered(now, NodeId(4), nodes(&[1]));
        reach.answered(now, NodeId(3), nodes(&[1, 2, 4]));
        assert_eq!(reach.better(now, ME, &of), [], "this node reaches it too");
        assert!(
            reach.is_worse(ME, NodeId(2), &of),
            "a group does not go where the replica is not reached"
        );
    }

    #[test]
    fn each_node_must_have_been_better_for_its_time() {
        let (begun, mut since) = (Instant::now(), BTreeMap::new());
        let mut look = |ms: u64, better: &[(NodeId, Duration)]| {
            better_for_long(begun + Duration::from_millis(ms), better, &mut since)
        };
        let (two, three) = ((NodeId(2), BETTER), (NodeId(3), BETTER_FOR_LEARNERS));
        assert_eq!(look(0, &[two]), []);
        assert_eq!(look(125, &[two, three]), []);
        assert_eq!(look(300, &[two, three]), [NodeId(2)]);
        assert_eq!(look(3_124, &[two, three]), [NodeId(2)]);
        assert_eq!(look(3_125, &[two, three]), [NodeId(2), NodeId(3)]);
        assert_eq!(look(3_250, &[three]), [NodeId(3)]);
        assert_eq!(look(3_375, &[two, three]), [NodeId(3)], "it begins again");
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
        let (reach, begun, of) = (Reach::default(), Instant::now(), replicas(&[1, 2, 3], &[]));
        let now = begun + Duration::from_millis(600);
        reach.answered(begun, NodeId(2), nodes(&[1, 3]));
        reach.answered(now, NodeId(3), nodes(&[1]));
        assert_eq!(reach.better(now, ME, &of), []);
        reach.lost(NodeId(3));
        assert_eq!(reach.better(now, ME, &of), [], "nor one that reaches nobody");
    }
}
