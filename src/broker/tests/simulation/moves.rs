//! Changes of the membership, one after the other, in seeds that have them: a fourth node joins and is
//! forgotten, and nodes lose their disks and are replaced. Each ends when all groups are where the
//! placement says, and the next begins only then: two lost disks at once would lose messages.

use crate::{
    chance::Chance,
    driver::Driver,
    membership::{GUEST, Request},
    world::{Health, NODES, host},
};
use quorate_catalog::{Catalog, MemberState};
use quorate_raft::Groups;
use quorate_storage::simulated::Disk;
use quorate_types::{GroupId, NodeId, ReplicaId};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Between two looks at the members.
const LOOK: Duration = Duration::from_millis(200);
/// Between two requests of the operator.
const REQUEST: Duration = Duration::from_millis(1_000);
/// From one change to the next, in milliseconds.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 200..=2_000;
/// Of so many changes one is the loss of a disk.
const LOSS_ONE_OF: u64 = 3;
/// Replicas of a queue group.
const REPLICAS: usize = 3;
/// A former process counts as dead after the time of DLV 5, which includes leases.
const LEASES: Duration = Duration::from_secs(5);

/// The change that is under way.
#[derive(Clone, Copy, Debug)]
enum Change {
    Join,
    /// `running`: as its process runs.
    Forget {
        running: bool,
    },
    Replace {
        node: NodeId,
        by_itself: bool,
    },
}

/// The changes of a seed.
pub struct Moves {
    /// Apart, so that seeds without changes keep their meaning.
    chance: Chance,
    change: Option<Change>,
    due: Duration,
}

impl Moves {
    pub fn new(seed: u64) -> Self {
        let chance = Chance::new(seed.wrapping_add(2 << 32));
        Self { chance, change: None, due: Duration::ZERO }
    }
}

impl Driver {
    /// Begins a change, or sees to the present one.
    pub fn move_members(&mut self) {
        let now = self.sim.elapsed();
        if !self.world.membership.is_moving || now < self.moves.due {
            return;
        }
        self.moves.due = now + LOOK;
        match self.moves.change {
            Some(change) if self.is_at_rest() => self.end_change(change),
            Some(change) => self.ask_for(change),
            None if self.may_fail() && now >= self.quiet_until && self.is_at_rest() => {
                self.begin_change();
            }
            None => {}
        }
    }

    /// No change is under way, and none is left undone.
    pub fn has_moved(&self) -> bool {
        !self.world.membership.is_moving || self.moves.change.is_none() && self.is_at_rest()
    }

    fn begin_change(&mut self) {
        let members: Vec<NodeId> = self.world.membership.members().into_iter().collect();
        let change = if self.moves.chance.below(LOSS_ONE_OF) == 0 {
            let node = self.moves.chance.one_of(&members);
            let by_itself = self.moves.chance.below(2) == 0;
            self.lose_disk(node, by_itself);
            Change::Replace { node, by_itself }
        } else if members.contains(&GUEST) {
            let running = self.moves.chance.below(2) == 0;
            self.dismiss(running);
            Change::Forget { running }
        } else {
            self.invite();
            Change::Join
        };
        self.moves.change = Some(change);
    }

    fn end_change(&mut self, change: Change) {
        if let Change::Forget { .. } = change {
            // Its process may not have heard of it.
            self.stop_guest();
        }
        self.note(&format!("the groups rest after {change:?}"));
        let pause = self.moves.chance.between(*PAUSE_MS.start(), *PAUSE_MS.end());
        self.moves.due += Duration::from_millis(pause);
        self.moves.change = None;
    }

    fn invite(&mut self) {
        self.note(&format!("node {GUEST} comes"));
        self.new_disk(GUEST);
        self.world.membership.invite();
        self.world.health.lock().insert(GUEST, Health::Running);
        self.sim.bounce(host(GUEST));
    }

    /// Of a node that runs, the operator forgets it as it does; another one is killed before.
    fn dismiss(&mut self, running: bool) {
        self.note(&format!("node {GUEST} is to be forgotten, as it runs: {running}"));
        self.world.membership.dismiss();
        if !running {
            self.stop_guest();
        }
    }

    /// The guest's process ends, and nobody starts it again.
    pub fn stop_guest(&mut self) {
        if self.world.health(GUEST) == Health::Running {
            self.world.disk(GUEST).kill();
            self.end(GUEST, Health::Killed);
            self.former_process();
        }
        self.never_start(GUEST);
    }

    fn lose_disk(&mut self, node: NodeId, by_itself: bool) {
        self.note(&format!("node {node} loses its disk, and replaces it by itself: {by_itself}"));
        self.world.disk(node).kill();
        self.end(node, Health::Killed);
        self.new_disk(node);
        self.world.membership.replace(node, by_itself);
        self.former_process();
    }

    fn new_disk(&mut self, node: NodeId) {
        let seed = self.moves.chance.below(u64::MAX);
        self.world.disks.lock().insert(node, Disk::new(seed));
        self.invariants.retire(node);
    }

    fn former_process(&self) {
        let timeout = Duration::from_millis(self.world.unreachable_node_timeout_ms);
        self.world.membership.has_lost_process(self.sim.elapsed() + timeout + LEASES);
    }

    /// What an operator does, again and again, until it is done.
    fn ask_for(&mut self, change: Change) {
        let (node, request) = match change {
            Change::Join | Change::Replace { by_itself: true, .. } => return,
            Change::Replace { node, by_itself: false } => (node, Request::Replace(node)),
            Change::Forget { running } => (GUEST, Request::Forget { node: GUEST, running }),
        };
        self.moves.due += REQUEST;
        let others: Vec<NodeId> = NODES.into_iter().filter(|other| *other != node).collect();
        let asked = self.moves.chance.one_of(&others);
        self.world.membership.ask(asked, request);
    }

    /// All nodes that shall be members run, and say that they and no others are members; all groups are
    /// where the placement says, and each node has exactly the replicas that the placement names.
    fn is_at_rest(&self) -> bool {
        let members = self.world.membership.members();
        let running = self.world.running.lock();
        let has_come = |node: &NodeId| {
            let groups = running.get(node).map(|(_, groups)| groups);
            groups.is_some_and(|groups| self.has_settled(*node, groups, &members))
        };
        members.iter().all(has_come)
    }

    fn has_settled(&self, node: NodeId, groups: &Arc<Groups>, members: &BTreeSet<NodeId>) -> bool {
        let catalog = groups.catalog();
        let known: BTreeSet<NodeId> = catalog.members().map(|(member, _)| member).collect();
        let all_work = catalog.members().all(|(member, record)| {
            let directory = self.world.membership.directory(member);
            record.state == MemberState::Member && directory == Some(record.incarnation)
        });
        let queues = catalog.placements().filter(|(group, _)| *group != GroupId::CATALOG);
        let mut queues = queues.map(|(_, placement)| placement);
        let complete = catalog.placements().all(|(_, placement)| placement.is_reached())
            && queues.all(|it| it.replicas.len() == REPLICAS && it.nodes().is_subset(members));
        let has: BTreeSet<(GroupId, ReplicaId)> =
            groups.all().map(|group| (group.id(), group.name())).collect();
        known == *members && all_work && complete && has == shall_have(&catalog, node)
    }
}

/// The replicas that a node shall have.
fn shall_have(catalog: &Catalog, node: NodeId) -> BTreeSet<(GroupId, ReplicaId)> {
    let first = catalog.member(node).map(|member| ReplicaId { node, number: member.first });
    let queues = catalog.placements().filter(|(group, _)| *group != GroupId::CATALOG);
    let of_node = queues.flat_map(|(group, placement)| {
        let mine = placement.replicas.iter().filter(|replica| replica.node == node);
        mine.map(move |replica| (group, *replica))
    });
    of_node.chain(first.map(|first| (GroupId::CATALOG, first))).collect()
}
