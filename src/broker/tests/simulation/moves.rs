//! What operators do, one after the other, in seeds that have it: a fourth node joins and is forgotten,
//! nodes lose their disks and are replaced, are drained and revived, and are restarted (`restarts`). Each
//! ends when all groups are where the placement says, and the next begins only then: two lost disks at
//! once would lose messages.

use crate::{
    chance::Chance,
    driver::Driver,
    membership::{GUEST, Request},
    restarts::{Restarts, Why},
    world::{Health, NODES, host},
};
use quorate_catalog::{Catalog, MemberState};
use quorate_raft::Groups;
use quorate_storage::simulated::Disk;
use quorate_types::{GroupId, MachineVersion, NodeId, ReplicaId};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Between two looks at the members.
const LOOK: Duration = Duration::from_millis(200);
/// Between two requests of the operator.
const REQUEST: Duration = Duration::from_millis(1_000);
/// From one change to the next, in milliseconds.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 200..=2_000;
/// How long a node is drained, in milliseconds.
const DRAINED_MS: std::ops::RangeInclusive<u64> = 500..=3_000;
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
    /// `revived`: the operator has begun to revive it.
    Drain {
        node: NodeId,
        revived: bool,
    },
    Restart(Why),
}

/// The changes of a seed.
pub struct Moves {
    /// Apart, so that seeds without changes keep their meaning.
    pub chance: Chance,
    change: Option<Change>,
    pub restarts: Restarts,
    pub due: Duration,
}

impl Moves {
    pub fn new(seed: u64) -> Self {
        let chance = Chance::new(seed.wrapping_add(2 << 32));
        Self { chance, change: None, restarts: Restarts::default(), due: Duration::ZERO }
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
            Some(change) if self.is_done(change) => self.end_change(change),
            Some(change) => self.ask_for(change),
            None if self.may_fail() && self.is_old() => self.restart(Why::Upgrade),
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

    /// All that the change does has been done, and the groups are where they shall be.
    fn is_done(&self, change: Change) -> bool {
        let is_over = match change {
            Change::Drain { node, revived } => {
                revived && !self.world.membership.is_drained(node) && self.is_up(node)
            }
            Change::Restart(_) => self.moves.restarts.is_over(),
            Change::Join | Change::Forget { .. } | Change::Replace { .. } => true,
        };
        is_over && self.is_at_rest()
    }

    fn begin_change(&mut self) {
        let members: Vec<NodeId> = self.world.membership.members().into_iter().collect();
        let node = self.moves.chance.one_of(&members);
        let is_invited = members.contains(&GUEST);
        match self.moves.chance.below(6) {
            0 => {
                let by_itself = self.moves.chance.below(2) == 0;
                self.lose_disk(node, by_itself);
                self.moves.change = Some(Change::Replace { node, by_itself });
            }
            1 => {
                self.note(&format!("node {node} is to be drained"));
                self.moves.change = Some(Change::Drain { node, revived: false });
            }
            2 => self.restart(Why::Rolling),
            // A guest does not stay for long.
            3.. if is_invited => {
                let running = self.moves.chance.below(2) == 0;
                self.dismiss(running);
                self.moves.change = Some(Change::Forget { running });
            }
            3 => self.restart(Why::NewAddress),
            4.. => {
                self.invite();
                self.moves.change = Some(Change::Join);
            }
        }
    }

    fn restart(&mut self, why: Why) {
        self.note(&format!("nodes are restarted: {why:?}"));
        self.plan_restarts(why);
        self.moves.change = Some(Change::Restart(why));
    }

    fn end_change(&mut self, change: Change) {
        if let Change::Forget { .. } = change {
            // Its process may not have heard of it.
            self.stop_guest();
        }
        let what = match change {
            Change::Restart(why) => format!("{why:?}"),
            Change::Join
            | Change::Forget { .. }
            | Change::Replace { .. }
            | Change::Drain { .. } => format!("{change:?}"),
        };
        self.note(&format!("the groups rest after {what}"));
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
            Change::Drain { node, revived } => return self.drain(node, revived),
            Change::Restart(_) => return self.see_to_restarts(),
        };
        self.moves.due += REQUEST;
        let others: Vec<NodeId> = NODES.into_iter().filter(|other| *other != node).collect();
        let asked = self.moves.chance.one_of(&others);
        self.world.membership.ask(asked, request);
    }

    /// Asks a node to be drained until it is, and some time later to be revived. What ends its process ends
    /// its draining too.
    fn drain(&mut self, node: NodeId, revived: bool) {
        self.moves.due += REQUEST;
        if revived {
            self.world.membership.ask(node, Request::Revive);
        } else if self.world.membership.is_drained(node) {
            self.moves.change = Some(Change::Drain { node, revived: true });
            let lasts = self.moves.chance.between(*DRAINED_MS.start(), *DRAINED_MS.end());
            self.moves.due += Duration::from_millis(lasts);
        } else {
            self.world.membership.ask(node, Request::Drain);
        }
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
            let membership = &self.world.membership;
            let directory = membership.directory(member);
            record.state == MemberState::Member
                && directory == Some(record.incarnation)
                && record.address == membership.launch(member).address(member)
        });
        let queues = catalog.placements().filter(|(group, _)| *group != GroupId::CATALOG);
        let mut queues = queues.map(|(_, placement)| placement);
        let complete = catalog.placements().all(|(_, placement)| placement.is_reached())
            && queues.all(|it| it.replicas.len() == REPLICAS && it.nodes().is_subset(members));
        let has: BTreeSet<(GroupId, ReplicaId)> =
            groups.all().map(|group| (group.id(), group.name())).collect();
        let is_newest = catalog.machine() == MachineVersion::NEWEST;
        is_newest && known == *members && all_work && complete && has == shall_have(&catalog, node)
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
