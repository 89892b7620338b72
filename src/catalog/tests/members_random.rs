//! Any sequence of changes of members and placements keeps what the rules promise (MEM), and ends in
//! a good placement once the catalog's leader has its way.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod common;

use common::{members::*, *};
use proptest::prelude::*;
use quorate_catalog::{
    Catalog, CatalogCommand as C, CatalogKey, CatalogRecord, CatalogReply, Hosts,
    MemberCommand as M, MemberState, Newcomer, PlacementRecord, Presence,
};
use quorate_types::{GroupId, Incarnation, NodeId, ReplicaId};
use std::collections::{BTreeMap, BTreeSet};

const NODES: u16 = 7;
const GROUPS: u16 = 3;

/// What happens next. Nodes are 1 to 7, and groups 0 to 3.
#[derive(Clone, Debug)]
enum Happens {
    /// A node asks to join: from the directory that serves it, or that served it, or from a new one.
    Join(u16, bool),
    Admit(u16),
    Drain(u16),
    Revive(u16),
    Forget(u16),
    Replace(u16),
    Remove(u16),
    /// An announcement from the node's latest directory, or from the one before.
    Start(u16, bool),
    /// Any placement, which may be late.
    Place(u16, BTreeSet<u16>, bool),
    /// A report of the present placement, or of the one before.
    Reached(u16, bool),
    /// What the catalog's leader proposes.
    Step,
}

fn happens() -> impl Strategy<Value = Happens> {
    use Happens as H;
    let (node, group) = (|| 1..=NODES, || 0..=GROUPS);
    let of = prop::collection::btree_set(node(), 0..5);
    prop_oneof![
        4 => (node(), any::<bool>()).prop_map(|(node, new)| H::Join(node, new)),
        4 => node().prop_map(H::Admit),
        1 => node().prop_map(H::Drain),
        1 => node().prop_map(H::Revive),
        2 => node().prop_map(H::Forget),
        3 => node().prop_map(H::Replace),
        1 => node().prop_map(H::Remove),
        1 => (node(), any::<bool>()).prop_map(|(node, latest)| H::Start(node, latest)),
        4 => (group(), of, prop::bool::weighted(0.9)).prop_map(|(group, of, now)| H::Place(group, of, now)),
        5 => (group(), prop::bool::weighted(0.9)).prop_map(|(group, now)| H::Reached(group, now)),
        6 => Just(H::Step),
    ]
}

/// A cluster, and what must never change back.
struct History {
    world: World,
    voters: usize,
    /// Directories of each node, the latest last.
    directories: BTreeMap<u16, Vec<u64>>,
    next_directory: u64,
    /// What the changes have written.
    disk: BTreeMap<CatalogKey, CatalogRecord>,
    /// The directory of each replica that was ever placed.
    replicas: BTreeMap<(GroupId, ReplicaId), Incarnation>,
    /// Replicas that a node may have deleted.
    over: BTreeSet<(GroupId, ReplicaId)>,
    forgotten: BTreeSet<Incarnation>,
}

impl History {
    fn new(founders: u16, voters: usize) -> Self {
        let mut history = Self {
            world: World::formed(founders, GROUPS),
            voters,
            directories: (1..=NODES).map(|node| (node, vec![u64::from(node)])).collect(),
            next_directory: 100,
            disk: BTreeMap::new(),
            replicas: BTreeMap::new(),
            over: BTreeSet::new(),
            forgotten: BTreeSet::new(),
        };
        for key in std::iter::once(CatalogKey::State).chain(history.world.catalog.keys()) {
            let record = history.world.catalog.record(&key).unwrap();
            history.disk.insert(key, record);
        }
        history.apply(C::RaiseMachine(quorate_types::MachineVersion::MEMBERS));
        history
    }

    fn directory(&self, node: u16, before: usize) -> u64 {
        let all = &self.directories[&node];
        all[all.len().saturating_sub(1 + before)]
    }

    fn new_directory(&mut self, node: u16) -> u64 {
        self.next_directory += 1;
        self.directories.entry(node).or_default().push(self.next_directory);
        self.next_directory
    }

    /// A new directory comes into being only if its command is accepted: else the node keeps its own.
    fn with_new_directory(&mut self, node: u16, command: impl Fn(u64) -> M) {
        let new = self.new_directory(node);
        if !matches!(self.apply(C::Members(command(new))), CatalogReply::Done) {
            self.directories.entry(node).or_default().pop();
        }
    }

    fn happen(&mut self, what: &Happens) {
        let served = |history: &Self, node: &u16| history.directory(*node, 0);
        let command = match what {
            Happens::Join(node, true) => {
                let node = *node;
                return self.with_new_directory(node, |new| M::Join(newcomer(node, new)));
            }
            Happens::Replace(node) => {
                let (node, old) = (*node, served(self, node));
                return self.with_new_directory(node, |new| replace(node, old, new));
            }
            Happens::Join(node, false) => {
                let zone = ["", "a", "b"][usize::from(*node) % 3].to_owned();
                M::Join(Newcomer { zone, ..newcomer(*node, served(self, node)) })
            }
            Happens::Admit(node) => admit(*node, served(self, node)),
            Happens::Drain(node) => M::Drain { node: NodeId(*node) },
            Happens::Revive(node) => M::Revive { node: NodeId(*node) },
            Happens::Forget(node) => forget(*node, served(self, node)),
            Happens::Remove(node) => M::Remove { node: NodeId(*node) },
            Happens::Start(node, latest) => {
                let directory = self.directory(*node, usize::from(!latest));
                drop(self.apply(started_from(*node, directory, self.world.index + 1_000)));
                return;
            }
            Happens::Place(group, of, now) => {
                let number = self.world.placement(*group).number + u64::from(*now);
                let nodes = of.iter().copied().map(NodeId).collect();
                M::Place { group: GroupId(*group), number, nodes }
            }
            Happens::Reached(group, now) => {
                let number = self.world.placement(*group).number - u64::from(!now);
                M::Reached { group: GroupId(*group), number }
            }
            Happens::Step => return self.step(),
        };
        self.apply(C::Members(command));
    }

    /// Takes the next step of the plan, which must be accepted.
    fn step(&mut self) {
        if let Some(step) = self.world.catalog.next_step(self.voters, &|_| Presence::Here) {
            let reply = self.apply(C::Members(step.clone()));
            assert_eq!(reply, CatalogReply::Done, "{step:?}");
        }
    }

    /// Applies a command and checks all that must hold; a repeat has no effect.
    fn apply(&mut self, command: C) -> CatalogReply {
        let before = self.world.catalog.clone();
        let reply = self.world.one(command.clone());
        for key in &self.world.out.changes {
            match self.world.catalog.record(key) {
                Some(record) => drop(self.disk.insert(key.clone(), record)),
                None => drop(self.disk.remove(key)),
            }
        }
        if !matches!(reply, CatalogReply::Done | CatalogReply::Started(_)) {
            assert_eq!(self.world.out.changes, [CatalogKey::State], "{command:?}: {reply:?}");
        }
        self.check_directories(&command, &reply);
        self.check_placements(&before);
        let again = self.world.one(command.clone());
        assert_eq!(
            (&again, &self.world.out.changes),
            (&reply, &vec![CatalogKey::State]),
            "{command:?}"
        );
        self.disk.insert(CatalogKey::State, self.world.catalog.record(&CatalogKey::State).unwrap());
        reply
    }

    /// MEM 1, MEM 11: a node id serves one directory, and a forgotten one never comes back.
    fn check_directories(&mut self, command: &C, reply: &CatalogReply) {
        let catalog = &self.world.catalog;
        let members: Vec<_> = catalog.members().collect();
        let distinct: BTreeSet<_> = members.iter().map(|(_, member)| member.incarnation).collect();
        assert_eq!(distinct.len(), members.len(), "a directory serves two nodes");
        for directory in &self.forgotten {
            assert!(catalog.is_forgotten(*directory), "kept for ever");
        }
        let forgotten = |key: &CatalogKey| {
            if let CatalogKey::Forgotten(directory) = key { Some(*directory) } else { None }
        };
        self.forgotten.extend(catalog.keys().iter().filter_map(forgotten));
        for (node, member) in members {
            let is_forgotten = self.forgotten.contains(&member.incarnation);
            assert_eq!(is_forgotten, member.state == MemberState::Leaving, "node {node}");
        }
        if let (C::NodeStarted { node, incarnation, .. }, CatalogReply::Started(_)) =
            (command, reply)
        {
            let serves = catalog.member(*node).map(|member| member.incarnation);
            assert_eq!((serves, self.forgotten.contains(incarnation)), (Some(*incarnation), false));
        }
    }

    fn check_placements(&mut self, before: &Catalog) {
        let catalog = &self.world.catalog;
        let moving = catalog.placements().filter(|(_, placement)| !placement.is_reached());
        assert!(moving.count() <= quorate_catalog::MOVES_MAX, "MEM 6");
        for (group, placement) in catalog.placements() {
            assert_eq!(placement.nodes().len(), placement.replicas.len(), "one of each node");
            assert_eq!(placement.is_reached(), placement.before.is_empty());
            for candidate in placement.candidates() {
                let acting = candidate.iter().filter(|replica| catalog.can_act(**replica)).count();
                assert!(2 * acting > candidate.len(), "MEM 10, MEM 11: {group}: {placement:?}");
            }
            let former = before.placement(group);
            for replica in &placement.replicas {
                let directory = catalog.member(replica.node).unwrap().incarnation;
                let known = self.replicas.entry((group, *replica)).or_insert(directory);
                assert!(*known == directory || !catalog.can_act(*replica), "MEM 5: {replica}");
                assert!(!self.over.contains(&(group, *replica)), "MEM 5, MEM 9: {replica}");
                let stays = former.and_then(|it| stays(it, *replica));
                assert!(stays.is_none_or(|name| name == *replica || !catalog.can_act(name)));
            }
        }
        let over = self
            .replicas
            .keys()
            .filter(|(group, replica)| catalog.is_replica_over(*group, *replica));
        self.over.extend(over.copied());
    }
}

/// The replica of the same node.
fn stays(former: &PlacementRecord, replica: ReplicaId) -> Option<ReplicaId> {
    former.replicas.iter().find(|it| it.node == replica.node).copied()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// After any history, and when all that join were admitted and no node is drained, the steps of
    /// the catalog's leader end. Then every replica can act, none is on a node that leaves, all
    /// nodes that left are gone, and no group lacks replicas or has them in one zone without need.
    #[test]
    fn mem_01_05_06_and_09_to_11_hold_after_any_changes_and_the_steps_end(
        founders in 1..=5u16,
        voters in prop::sample::select(vec![1usize, 3, 5]),
        all in prop::collection::vec(happens(), 0..60),
    ) {
        let mut history = History::new(founders, voters);
        all.iter().for_each(|what| history.happen(what));
        prop_assert_eq!(&Catalog::load(history.disk.clone()).unwrap(), &history.world.catalog);
        for node in 1..=NODES {
            history.happen(&Happens::Admit(node));
            history.happen(&Happens::Revive(node));
        }
        let mut steps = 0;
        while let Some(what) = rest(&history.world.catalog, voters) {
            history.happen(&what);
            steps += 1;
            prop_assert!(steps < 400, "no end");
        }
        let catalog = &history.world.catalog;
        prop_assert_eq!(&Catalog::load(history.disk.clone()).unwrap(), catalog);
        let hosts = catalog.hosts();
        for (group, placement) in catalog.placements() {
            prop_assert!(placement.replicas.iter().all(|replica| catalog.can_act(*replica)));
            let wanted = if group == GroupId::CATALOG { 5 } else { voters };
            let flaws = Hosts::new(&hosts, wanted).flaws(&[(group, placement.nodes())].into());
            prop_assert_eq!((flaws.misplaced, flaws.crowded), (0, 0), "{:?}", placement);
        }
        prop_assert!(catalog.members().all(|(_, member)| member.state == MemberState::Member));
    }
}

/// What is left to be done by the leaders of the catalog and of the groups.
fn rest(catalog: &Catalog, voters: usize) -> Option<Happens> {
    let moves = || catalog.placements().find(|(_, placement)| !placement.is_reached());
    match catalog.next_step(voters, &|_| Presence::Here) {
        Some(_) => Some(Happens::Step),
        None => moves().map(|(group, _)| Happens::Reached(group.0, true)),
    }
}
