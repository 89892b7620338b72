//! What must hold for the Raft groups at each step: a term has one leader, votes that have elected a leader
//! are not forgotten, and replicas that have applied the same entry have the same state (Raft §5.2, §5.4);
//! there is one cluster (MEM 2), and a replica that was removed or lost never comes back (MEM 5, MEM 9,
//! MEM 10).

use crate::world::World;
use quorate_raft::{Group, Groups};
use quorate_types::{ClusterId, GroupId, LogIndex, NodeId, ReplicaNumber, Term};
use std::{collections::BTreeMap, time::Duration};

/// What was seen of the groups so far.
#[derive(Default)]
pub struct Invariants {
    cluster: Option<ClusterId>,
    leaders: BTreeMap<(GroupId, Term), NodeId>,
    /// The newest leadership of each group that was seen.
    newest: BTreeMap<GroupId, Election>,
    /// The digest of the state after an entry.
    states: BTreeMap<(GroupId, LogIndex), u64>,
    /// The replica that each node has of a group.
    replicas: BTreeMap<(NodeId, GroupId), ReplicaNumber>,
    /// Replicas that were removed, and when, or that were on a disk that was lost (`None`).
    over: BTreeMap<(NodeId, GroupId, ReplicaNumber), Option<Duration>>,
}

/// Longest time from the end of a replica to the end of its removal from the disk, which may hang.
const REMOVAL: Duration = Duration::from_secs(4);

/// The election of a leader.
struct Election {
    term: Term,
    /// The replicas that voted in the group then, as far as they had been seen.
    voters: BTreeMap<NodeId, ReplicaNumber>,
}

impl Invariants {
    /// Compares all running nodes with what was seen before; returns what is violated.
    pub fn check(&mut self, world: &World, now: Duration) -> Option<String> {
        let running = world.running.lock();
        let mut violated = None;
        for (node, (_, groups)) in running.iter() {
            violated = violated.or_else(|| self.check_cluster(*node, groups));
            violated = violated.or_else(|| self.check_replicas(*node, groups, now));
            for group in groups.all() {
                violated = violated.or_else(|| self.check_leader(*node, &group));
                violated = violated.or_else(|| self.check_state(*node, &group));
            }
        }
        let running = running.iter().map(|(node, (_, groups))| (*node, groups.as_ref()));
        violated.or_else(|| self.check_votes(running))
    }

    /// A node's disk is lost, or is used no more.
    pub fn retire(&mut self, node: NodeId) {
        let lost = self.replicas.extract_if(.., |(owner, _), _| *owner == node);
        self.over.extend(lost.map(|((_, group), number)| ((node, group, number), None)));
    }

    /// A node's process has ended. What it has removed just before may still be on its disk: it is
    /// removed again by the next process, and nobody counts it (MEM 9).
    pub fn ended(&mut self, node: NodeId, now: Duration) {
        self.over.retain(|(owner, ..), removed| {
            *owner != node || removed.is_none_or(|at| now.saturating_sub(at) > REMOVAL)
        });
    }

    /// All nodes have the catalog of one cluster.
    fn check_cluster(&mut self, node: NodeId, groups: &Groups) -> Option<String> {
        let cluster = groups.catalog().shape()?.cluster;
        let known = *self.cluster.get_or_insert(cluster);
        (known != cluster)
            .then(|| format!("node {node} is in cluster {}, not in {}", cluster.0, known.0))
    }

    /// A replica that is not there any more never comes back.
    fn check_replicas(&mut self, node: NodeId, groups: &Groups, now: Duration) -> Option<String> {
        let has: BTreeMap<_, _> =
            groups.all().map(|group| ((node, group.id()), group.name().number)).collect();
        let ended = self.replicas.extract_if(.., |key, number| {
            key.0 == node && has.get(key).is_none_or(|present| *present != *number)
        });
        self.over.extend(ended.map(|((_, group), number)| ((node, group, number), Some(now))));
        let mut back = has.iter().map(|((_, group), number)| (node, *group, *number));
        let back = back.find(|replica| self.over.contains_key(replica));
        self.replicas.extend(has);
        back.map(|(_, group, number)| {
            format!("node {node} has replica {number} of group {group} again, which was over")
        })
    }

    /// A term has at most one leader (Election Safety).
    fn check_leader(&mut self, node: NodeId, group: &Group) -> Option<String> {
        let (leader, term) = group.leader().filter(|_| group.is_leading())?;
        if leader != node {
            return None;
        }
        let id = group.id();
        if self.newest.get(&id).is_none_or(|newest| newest.term < term) {
            let replica = |node| Some((node, *self.replicas.get(&(node, id))?));
            let voters = group.voters().into_iter().filter_map(replica).collect();
            self.newest.insert(id, Election { term, voters });
        }
        let known = *self.leaders.entry((id, term)).or_insert(node);
        (known != node).then(|| format!("nodes {known} and {node} lead group {id} in term {term}"))
    }

    /// Replicas apply the same entry at an index (State Machine Safety).
    fn check_state(&mut self, node: NodeId, group: &Group) -> Option<String> {
        let (index, digest) = group.digest();
        let (id, index) = (group.id(), index?);
        let known = *self.states.entry((id, index)).or_insert(digest);
        (known != digest).then(|| format!("node {node} has another state of group {id} at {index}"))
    }

    /// A majority of those that voted in the group then knows the term of the newest leader.
    fn check_votes<'a>(
        &self,
        running: impl Iterator<Item = (NodeId, &'a Groups)>,
    ) -> Option<String> {
        let mut behind: BTreeMap<GroupId, usize> = BTreeMap::new();
        for (node, group) in
            running.flat_map(|(node, groups)| groups.all().map(move |it| (node, it)))
        {
            let Some(Election { term, voters }) = self.newest.get(&group.id()) else { continue };
            let has_voted = voters.get(&node) == Some(&group.name().number);
            if has_voted && group.voted().unwrap_or_default() < *term {
                *behind.entry(group.id()).or_default() += 1;
            }
        }
        behind.into_iter().find_map(|(group, behind)| {
            let Election { term, voters } = self.newest.get(&group)?;
            let majority = voters.len() / 2 + 1;
            (behind >= majority).then(|| {
                format!("group {group} had a leader in term {term}, and {behind} nodes know none")
            })
        })
    }
}
