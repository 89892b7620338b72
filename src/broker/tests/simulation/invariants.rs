//! What must hold for the Raft groups at each step (Raft §5.2): a term has one leader, and votes
//! that have elected a leader are not forgotten.

use crate::world::{NODES, World};
use quorate_types::{GroupId, NodeId, Term};
use std::collections::{BTreeMap, btree_map::Entry};

/// The leaders that were seen, by group and term.
#[derive(Default)]
pub struct Elections {
    leaders: BTreeMap<(GroupId, Term), NodeId>,
    /// The highest term of each group in which a leader was seen.
    newest: BTreeMap<GroupId, Term>,
}

impl Elections {
    /// Compares the votes and leaders of all running nodes with what was seen before; returns what
    /// is violated.
    pub fn check(&mut self, world: &World) -> Option<String> {
        let running = world.running.lock();
        let mut behind: BTreeMap<GroupId, usize> = BTreeMap::new();
        for (node, (_, groups)) in running.iter() {
            for group in groups.all().filter(|group| group.is_leading()) {
                let Some((leader, term)) = group.leader() else { continue };
                if leader != *node {
                    continue;
                }
                match self.leaders.entry((group.id(), term)) {
                    Entry::Occupied(known) if known.get() != node => {
                        let other = known.get();
                        return Some(format!(
                            "nodes {node} and {other} lead group {} in term {term}",
                            group.id()
                        ));
                    }
                    Entry::Occupied(_) => {}
                    Entry::Vacant(vacant) => {
                        vacant.insert(*node);
                    }
                }
                let newest = self.newest.entry(group.id()).or_default();
                *newest = term.max(*newest);
            }
        }
        for (_, groups) in running.values() {
            for group in groups.all() {
                let newest = self.newest.get(&group.id()).copied().unwrap_or_default();
                if group.voted().unwrap_or_default() < newest {
                    *behind.entry(group.id()).or_default() += 1;
                }
            }
        }
        let majority = NODES.len() / 2 + 1;
        let (group, behind) = behind.into_iter().find(|(_, behind)| *behind >= majority)?;
        let term = self.newest.get(&group).copied().unwrap_or_default();
        Some(format!("group {group} had a leader in term {term}, and {behind} nodes know none"))
    }
}
