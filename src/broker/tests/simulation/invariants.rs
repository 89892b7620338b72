//! What must hold for the Raft groups at each step (Raft §5.2, §5.4): a term has one leader, votes
//! that have elected a leader are not forgotten, and replicas that have applied the same entry have
//! the same state.

use crate::world::{NODES, World};
use quorate_raft::{Group, Groups};
use quorate_types::{GroupId, LogIndex, NodeId, Term};
use std::collections::BTreeMap;

/// What was seen of the groups so far.
#[derive(Default)]
pub struct Invariants {
    leaders: BTreeMap<(GroupId, Term), NodeId>,
    /// The highest term of each group in which a leader was seen.
    newest: BTreeMap<GroupId, Term>,
    /// The digest of the state after an entry.
    states: BTreeMap<(GroupId, LogIndex), u64>,
}

impl Invariants {
    /// Compares all running nodes with what was seen before; returns what is violated.
    pub fn check(&mut self, world: &World) -> Option<String> {
        let running = world.running.lock();
        let mut violated = None;
        for (node, (_, groups)) in running.iter() {
            for group in groups.all() {
                violated = violated.or_else(|| self.check_leader(*node, &group));
                violated = violated.or_else(|| self.check_state(*node, &group));
            }
        }
        violated.or_else(|| self.check_votes(running.values().map(|(_, groups)| groups.as_ref())))
    }

    /// A term has at most one leader (Election Safety).
    fn check_leader(&mut self, node: NodeId, group: &Group) -> Option<String> {
        let (leader, term) = group.leader().filter(|_| group.is_leading())?;
        if leader != node {
            return None;
        }
        let newest = self.newest.entry(group.id()).or_default();
        *newest = term.max(*newest);
        let known = *self.leaders.entry((group.id(), term)).or_insert(node);
        let id = group.id();
        (known != node).then(|| format!("nodes {known} and {node} lead group {id} in term {term}"))
    }

    /// Replicas apply the same entry at an index (State Machine Safety).
    fn check_state(&mut self, node: NodeId, group: &Group) -> Option<String> {
        let (index, digest) = group.digest();
        let (id, index) = (group.id(), index?);
        let known = *self.states.entry((id, index)).or_insert(digest);
        (known != digest).then(|| format!("node {node} has another state of group {id} at {index}"))
    }

    /// A majority knows the term of the newest leader.
    fn check_votes<'a>(&self, running: impl Iterator<Item = &'a Groups>) -> Option<String> {
        let mut behind: BTreeMap<GroupId, usize> = BTreeMap::new();
        for group in running.flat_map(Groups::all) {
            let newest = self.newest.get(&group.id()).copied().unwrap_or_default();
            if group.voted().unwrap_or_default() < newest {
                *behind.entry(group.id()).or_default() += 1;
            }
        }
        let majority = NODES.len() / 2 + 1;
        let (group, behind) = behind.into_iter().find(|(_, behind)| *behind >= majority)?;
        let term = self.newest.get(&group).copied().unwrap_or_default();
        Some(format!("group {group} had a leader in term {term}, and {behind} nodes know none"))
    }
}
