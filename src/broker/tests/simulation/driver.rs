//! The driver: steps the nodes, and breaks and repairs their disks and network.

use crate::{
    chance::Chance,
    invariants::Invariants,
    moves::Moves,
    node,
    world::{Focus, Health, NODES, Trace, World, host},
};
use quorate_queue::Machine;
use quorate_rpc::chance;
use quorate_storage::simulated::Operation;
use quorate_types::{GroupId, LogIndex, NodeId, Term};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    ops::RangeInclusive,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tracing_subscriber::EnvFilter;
use turmoil::{Builder, Sim};

/// How long the cluster has to form before anything fails.
const FORMATION: Duration = Duration::from_secs(2);

/// Ticks from the start of a node to the opening of its disk, at most.
const START_TICKS: u32 = 3;

/// In seeds with disks that hang, one of so many failures comes with one.
const HANGS_ONE_OF: u64 = 8;

/// How long a node is alone while nothing else fails: long enough that its messages go to other
/// nodes meanwhile.
const ALONE_MS: RangeInclusive<u64> = 3_500..=6_000;

/// When failures end, in seeds without and with changes of the membership.
const FAULTS: [Duration; 2] = [Duration::from_secs(18), Duration::from_secs(28)];

/// Longest time from the last repair until everything is drained and equal.
const REPAIR: Duration = Duration::from_secs(60);

pub struct Driver {
    pub sim: Sim<'static>,
    pub world: Arc<World>,
    chance: Chance,
    /// Chance of disks that hang, apart, so that seeds without them keep their meaning.
    hangs: Chance,
    pub invariants: Invariants,
    pub moves: Moves,
    /// The term of each node's last vote in each group, to notice new votes.
    votes: BTreeMap<NodeId, Vec<Option<Term>>>,
    /// Number of ticks since which the disk of a node that should run is not open.
    dark_ticks: BTreeMap<NodeId, u32>,
    /// Nothing fails before this time.
    pub quiet_until: Duration,
    /// The repairs that are due, and when.
    repairs: Vec<(Duration, Repair)>,
}

enum Repair {
    Start(NodeId),
    Join(NodeId, NodeId),
    Release(NodeId, NodeId),
    Trust(NodeId),
    Answer(NodeId),
}

/// Runs a seed; its trace is complete even if it fails.
pub fn run(seed: u64, trace: Trace) {
    let world = Arc::new(World::new(seed, trace.clone()));
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("quorate=info,turmoil=info"))
        .without_time()
        .with_ansi(false)
        .with_writer(move || trace.clone())
        .init();
    chance::seed(seed);
    let mut driver = Driver::new(seed, Arc::clone(&world));
    driver.run();
    let (published, confirmed, settled) = world.history.lock().counts();
    let counts = format!("{published} published, {confirmed} confirmed, {settled} settled");
    world.trace.note(&counts);
    let violations = world.history.lock().violations();
    assert!(violations.is_empty(), "{violations:#?}");
    // With mostly losses of power a seed may spend most of its time without a majority.
    let (confirmed_min, settled_min, dead_min) = match world.focus {
        Focus::All | Focus::Network => (100, 100, 10),
        Focus::Disks => (30, 10, 0),
    };
    assert!(confirmed > confirmed_min && settled > settled_min, "{counts}");
    let (expired, returned) = world.history.lock().dead();
    assert!(expired.min(returned) > dead_min, "{expired} expired, {returned} returned");
}

impl Driver {
    fn new(seed: u64, world: Arc<World>) -> Self {
        let mut sim = Builder::new()
            .rng_seed(seed)
            .simulation_duration(Duration::from_secs(3_600))
            .tick_duration(Duration::from_millis(1))
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(8))
            .tcp_capacity(4_096)
            .enable_random_order()
            .build();
        for node in world.membership.nodes() {
            let world = Arc::clone(&world);
            sim.host(host(node), move || node::run(Arc::clone(&world), node));
        }
        Self {
            sim,
            world,
            chance: Chance::new(seed),
            hangs: Chance::new(seed.wrapping_add(1 << 32)),
            invariants: Invariants::default(),
            moves: Moves::new(seed),
            votes: BTreeMap::new(),
            dark_ticks: BTreeMap::new(),
            quiet_until: FORMATION,
            repairs: Vec::new(),
        }
    }

    fn run(&mut self) {
        self.step_for(FORMATION);
        while self.sim.elapsed() < self.faults_end() {
            self.harm();
            let pause = self.chance.between(100, 1_500);
            self.step_for(Duration::from_millis(pause));
        }
        while !self.repairs.is_empty() {
            self.step();
        }
        self.world.trace.note("drains");
        self.world.draining.store(true, Relaxed);
        let until = self.sim.elapsed() + REPAIR;
        while !self.is_drained() {
            assert!(self.sim.elapsed() < until, "not drained: {:?}", self.digests());
            self.step_for(Duration::from_millis(500));
        }
        let digests = self.digests();
        self.world.trace.note(&format!("digests {digests:?}"));
    }

    pub fn note(&self, text: &str) {
        self.world.trace.note(&format!("{:>6} {text}", self.sim.elapsed().as_millis()));
    }

    fn step_for(&mut self, time: Duration) {
        let until = self.sim.elapsed() + time;
        while self.sim.elapsed() < until {
            self.step();
        }
    }

    fn step(&mut self) {
        self.sim.step().unwrap();
        for node in self.world.membership.nodes() {
            let lost_power = !self.world.disk(node).is_open();
            let runs = self.world.health(node) == Health::Running;
            let ticks = self.dark_ticks.entry(node).or_default();
            *ticks = if lost_power && runs { *ticks + 1 } else { 0 };
            let starting = *ticks > START_TICKS;
            if lost_power && runs && (self.is_up(node) || starting) {
                if starting {
                    self.note(&format!("node {node} has lost its power while it started"));
                }
                self.end(node, Health::WithoutPower);
            }
        }
        let ended = mem::take(&mut *self.world.ended.lock());
        for node in ended {
            if self.world.health(node) != Health::Running {
                continue;
            }
            let loss = self.world.disk(node).crash();
            self.note(&format!("the disk of node {node} has failed: {loss:?}"));
            self.end(node, Health::Killed);
        }
        let now = self.sim.elapsed();
        if self.world.is_broken() || now < self.world.membership.former_until() {
            self.world.trouble(now);
        }
        for node in self.world.membership.take_gone() {
            self.note(&format!("node {node} has ended, since it was forgotten"));
            self.stop_guest();
        }
        let violated = self.invariants.check(&self.world, self.sim.elapsed());
        assert!(violated.is_none(), "{violated:?}");
        self.end_stopped();
        self.harm_voters();
        self.move_members();
        let due = |(at, _): &mut (Duration, Repair)| *at <= now;
        let due: Vec<_> = self.repairs.extract_if(.., due).collect();
        due.into_iter().for_each(|(_, repair)| self.repair(repair));
    }

    /// Whether something may fail now.
    pub fn may_fail(&self) -> bool {
        (FORMATION..self.faults_end()).contains(&self.sim.elapsed())
    }

    fn faults_end(&self) -> Duration {
        let [shorter, longer] = FAULTS;
        if self.world.membership.is_moving { longer } else { shorter }
    }

    pub fn is_up(&self, node: NodeId) -> bool {
        self.world.running.lock().contains_key(&node)
    }
}

impl Driver {
    /// Causes a failure, if there are not too many already.
    fn harm(&mut self) {
        if self.sim.elapsed() < self.quiet_until {
            return;
        }
        let members: Vec<_> = self.world.membership.members().into_iter().collect();
        if self.world.disks_hang && self.hangs.below(HANGS_ONE_OF) == 0 {
            let node = self.hangs.one_of(&members);
            let until = self.sim.elapsed() + Duration::from_millis(self.hangs.between(200, 3_000));
            self.hang(node, until);
        }
        let node = self.chance.one_of(&members);
        let others: Vec<_> = members.iter().copied().filter(|other| *other != node).collect();
        let other = self.chance.one_of(&others);
        let until = self.sim.elapsed() + Duration::from_millis(self.chance.between(200, 3_000));
        let harm = match self.world.focus {
            Focus::All => self.chance.below(11),
            Focus::Disks => self.chance.below(8),
            Focus::Network => 6 + self.chance.below(5),
        };
        if harm < 6 && members.iter().any(|node| self.world.health(*node) != Health::Running) {
            return;
        }
        match harm {
            0 => self.lose_power(node, until),
            1 => {
                let writes = self.chance.below(20);
                self.note(&format!("node {node} will lose its power in {writes} writes"));
                self.world.disk(node).crash_after(writes);
            }
            2 => {
                self.note(&format!("node {node} is killed"));
                self.world.disk(node).kill();
                self.end(node, Health::Killed);
            }
            3 => members.into_iter().for_each(|node| self.lose_power(node, until)),
            4 => self.fail(node, Operation::Sync, until),
            5 => {
                let operation = self.chance.one_of(&[Operation::Read, Operation::Write]);
                self.fail(node, operation, until);
            }
            6 if self.world.focus == Focus::Network => self.isolate(node),
            7 if self.world.focus == Focus::Network && self.world.disks_hang => self.isolate(node),
            6 | 7 => {
                let alone = self.world.focus == Focus::Network || self.chance.below(2) == 0;
                self.cut(node, other, until);
                let rest = others.into_iter().filter(|rest| *rest != other && alone);
                rest.for_each(|rest| self.cut(node, rest, until));
            }
            8 => self.cut_one_way(node, other, until),
            _ => self.hold(node, other, until),
        }
    }

    /// Sometimes a node loses its power just after a vote, which must be on its disk then if it has
    /// been answered.
    fn harm_voters(&mut self) {
        for node in self.world.membership.nodes() {
            let votes: Vec<_> = match self.world.running.lock().get(&node) {
                Some((_, groups)) => groups.all().map(|group| group.voted()).collect(),
                None => continue,
            };
            let voted =
                self.votes.insert(node, votes.clone()).is_some_and(|before| before != votes);
            let odds = if self.world.focus == Focus::Disks { 2 } else { 12 };
            let may_fail = self.may_fail() && self.world.focus != Focus::Network;
            if voted && may_fail && self.chance.below(odds) == 0 {
                let writes = self.chance.below(3);
                self.note(&format!("node {node} has voted; power for {writes} more writes"));
                self.world.disk(node).crash_after(writes);
            }
        }
    }

    fn lose_power(&mut self, node: NodeId, until: Duration) {
        if self.world.health(node) == Health::Running && self.is_up(node) {
            let loss = self.world.disk(node).crash();
            self.note(&format!("node {node} loses its power until {until:?}: {loss:?}"));
            self.end(node, Health::WithoutPower);
        }
    }

    /// Kills the node's process. On a loss of power it closes no connection.
    pub fn end(&mut self, node: NodeId, health: Health) {
        self.note(&format!("node {node} is {health:?}"));
        let without_power = health == Health::WithoutPower;
        let others = self.world.membership.nodes().into_iter().filter(|other| *other != node);
        let linked: Vec<_> = others.filter(|other| !self.world.is_cut(node, *other)).collect();
        if without_power {
            linked.iter().for_each(|other| self.sim.partition(host(node), host(*other)));
        }
        self.world.health.lock().insert(node, health);
        self.change_launch(node);
        self.invariants.ended(node, self.sim.elapsed());
        drop(self.world.running.lock().remove(&node));
        self.sim.crash(host(node));
        if without_power {
            linked.iter().for_each(|other| self.sim.repair(host(node), host(*other)));
        }
        let pause = Duration::from_millis(self.chance.between(100, 3_000));
        self.repairs.push((self.sim.elapsed() + pause, Repair::Start(node)));
    }

    /// A node whose process has ended is not started again.
    pub fn never_start(&mut self, node: NodeId) {
        self.repairs
            .retain(|(_, repair)| !matches!(repair, Repair::Start(other) if *other == node));
    }

    /// Messages between two nodes are lost.
    fn cut(&mut self, one: NodeId, other: NodeId, until: Duration) {
        if self.world.is_cut(one, other) {
            return;
        }
        self.note(&format!("nodes {one} and {other} are cut apart until {until:?}"));
        self.world.cut.lock().insert((one, other));
        self.sim.partition(host(one), host(other));
        self.repairs.push((until, Repair::Join(one, other)));
    }

    /// Messages between a node and all others are lost, and nothing else fails meanwhile. In seeds with
    /// disks that hang, the node that leads the most groups is isolated, and its disk hangs until after
    /// the network is repaired. So its logs still have the entries that it appended while it was isolated
    /// when its consumers get messages from the new leaders.
    fn isolate(&mut self, node: NodeId) {
        if self.world.is_broken() {
            return;
        }
        let alone = self.chance.between(*ALONE_MS.start(), *ALONE_MS.end());
        self.quiet_until = self.sim.elapsed() + Duration::from_millis(alone);
        let node = if self.world.disks_hang { self.busiest_leader() } else { node };
        let others = self.world.membership.nodes().into_iter().filter(|other| *other != node);
        others.for_each(|other| self.cut(node, other, self.quiet_until));
        *self.world.alone.lock() = Some((node, self.quiet_until));
        if self.world.disks_hang {
            let returned = Duration::from_millis(self.hangs.between(500, 2_000));
            self.hang(node, self.quiet_until + returned);
        }
    }

    /// The node that leads the most groups.
    fn busiest_leader(&self) -> NodeId {
        let running = self.world.running.lock();
        let busiest = running.iter().max_by_key(|(_, (_, groups))| groups.led().len());
        busiest.map_or(NODES[0], |(node, _)| *node)
    }

    /// Messages from one node to another are lost.
    fn cut_one_way(&mut self, from: NodeId, to: NodeId, until: Duration) {
        if self.world.is_cut(from, to) {
            return;
        }
        self.note(&format!("node {to} hears nothing from {from} until {until:?}"));
        self.world.cut.lock().insert((from, to));
        self.sim.partition_oneway(host(from), host(to));
        self.repairs.push((until, Repair::Join(from, to)));
    }

    /// An operation of a node's disk fails.
    fn fail(&mut self, node: NodeId, operation: Operation, until: Duration) {
        let after = self.chance.below(20);
        self.note(&format!(
            "the disk of node {node} will fail: {operation:?}, after {after} others"
        ));
        self.world.failing.lock().insert(node);
        self.world.disk(node).fail(operation, after);
        self.repairs.push((until, Repair::Trust(node)));
    }

    /// A node's disk does not answer.
    fn hang(&mut self, node: NodeId, until: Duration) {
        if self.world.hanging.lock().insert(node) {
            self.note(&format!("the disk of node {node} hangs until {until:?}"));
            self.repairs.push((until, Repair::Answer(node)));
        }
    }

    /// Messages between two nodes are delayed.
    fn hold(&mut self, one: NodeId, other: NodeId, until: Duration) {
        if self.world.is_cut(one, other) {
            return;
        }
        self.note(&format!("messages between {one} and {other} wait until {until:?}"));
        self.world.cut.lock().insert((one, other));
        self.sim.hold(host(one), host(other));
        self.repairs.push((until, Repair::Release(one, other)));
    }

    fn repair(&mut self, repair: Repair) {
        match repair {
            Repair::Start(node) => {
                self.world.health.lock().insert(node, Health::Running);
                if self.may_fail() && self.chance.below(8) == 0 {
                    let writes = self.chance.below(6);
                    self.note(&format!("node {node} starts with power for {writes} writes"));
                    self.world.disk(node).crash_after(writes);
                }
                self.sim.bounce(host(node));
            }
            Repair::Trust(node) => {
                self.world.disk(node).call_failures_off();
                self.world.failing.lock().remove(&node);
            }
            Repair::Answer(node) => drop(self.world.hanging.lock().remove(&node)),
            Repair::Join(one, other) => {
                self.note(&format!("nodes {one} and {other} are joined"));
                self.world.cut.lock().remove(&(one, other));
                self.sim.repair(host(one), host(other));
            }
            Repair::Release(one, other) => {
                self.note(&format!("messages between {one} and {other} come"));
                self.world.cut.lock().remove(&(one, other));
                self.sim.release(host(one), host(other));
            }
        }
    }

    /// The applied index of each group on each node that has it, and a digest of its state.
    fn digests(&self) -> BTreeMap<GroupId, BTreeSet<(Option<LogIndex>, u64)>> {
        let mut digests: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        let running = self.world.running.lock();
        for group in running.values().flat_map(|(_, groups)| groups.all()) {
            digests.entry(group.id()).or_default().insert(group.digest());
        }
        digests
    }

    /// All nodes run, their replicas of a group have the same state, no group moves, and no queue has a
    /// message.
    fn is_drained(&self) -> bool {
        let equal = self.digests().values().all(|of_group| of_group.len() == 1);
        let all_run = self.world.running.lock().len() == self.world.membership.members().len();
        if !equal || !all_run || !self.has_moved() {
            return false;
        }
        let running = self.world.running.lock();
        let mut groups = running.values().flat_map(|(_, groups)| groups.all());
        let is_drained = |machine: &Machine| {
            let queues = machine.queues().filter_map(|queue| machine.queue(queue));
            // Nobody consumes from those that clients have declared as they went.
            let mut drained = queues.filter(|it| !it.name.name.as_str().starts_with("declared-"));
            drained.all(|queue| queue.ready + queue.unacknowledged + queue.letters == 0)
        };
        groups.all(|group| group.read(is_drained).unwrap_or(true))
    }
}
