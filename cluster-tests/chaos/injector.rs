//! Carries out the events of a schedule on a cluster, and reads back that each took effect.

use super::fault::{Cut, DiskCall, Fault, Victim, Victims};
use super::schedule::Event;
use crate::harness::disk::{CallFault, CallFaults, EIO, ENOSPC};
use crate::harness::{Cluster, Node, ctl};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long a question about the leader of a queue may take.
const QUESTION: Duration = Duration::from_secs(2);
/// Interval between two checks for the effect of a fault.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// It took effect; how that was seen.
    Seen(String),
    /// It was carried out, and its effect was not seen.
    Missed(String),
    /// This machine cannot do it.
    Skipped(String),
}

/// An event that was carried out.
#[derive(Clone, Debug, Serialize)]
pub struct Injected {
    /// As the schedule has it.
    pub event: Event,
    /// The nodes that it hit.
    pub nodes: BTreeSet<u64>,
    /// When it began, since the start of the load.
    pub began: Duration,
    /// When it had been undone and all nodes were ready again.
    pub ended: Duration,
    /// What became of it.
    pub effect: Effect,
}

/// Does things to a cluster.
#[derive(Debug)]
pub struct Injector<'a> {
    cluster: &'a Cluster,
    disks: &'a CallFaults,
    /// The queue whose leader is meant by [`Victim::Leader`].
    queue: &'a str,
    start: Instant,
}

impl<'a> Injector<'a> {
    /// On a cluster started with proxies and with these disks; the load starts now.
    #[must_use]
    pub fn new(cluster: &'a Cluster, disks: &'a CallFaults, queue: &'a str) -> Self {
        Self { cluster, disks, queue, start: Instant::now() }
    }

    /// Waits for the time of an event, carries it out, waits for its end and undoes it.
    ///
    /// # Panics
    /// When a node does not become ready again.
    pub async fn carry_out(&self, event: Event) -> Injected {
        tokio::time::sleep_until(self.start + Duration::from_millis(event.at_ms)).await;
        let began = self.start.elapsed();
        let (nodes, effect) = self.inject(event).await;
        Injected { event, nodes, began, ended: self.start.elapsed(), effect }
    }

    /// Undoes whatever may be left, and waits until all nodes are ready.
    ///
    /// # Panics
    /// When a node does not become ready.
    pub async fn heal(&self) {
        self.cluster.links().heal();
        for node in self.cluster.nodes() {
            for fault in CALL_FAULTS {
                self.disks.set(node.id(), fault, 0);
            }
        }
        self.start_ended().await;
        self.cluster.ready().await;
    }

    async fn inject(&self, event: Event) -> (BTreeSet<u64>, Effect) {
        let lasts = Duration::from_millis(event.for_ms);
        match event.fault {
            Fault::Kill { victims } => self.kill(self.all(victims).await, lasts).await,
            Fault::Pause { victims } => self.pause(self.all(victims).await, lasts).await,
            Fault::RollingRestart => self.restart_all().await,
            Fault::Partition { cut } => {
                let (nodes, pairs) = self.pairs(cut).await;
                (nodes, self.links(lasts, || self.cut(&pairs)).await)
            }
            Fault::Flapping { cut, period_ms } => {
                let (nodes, pairs) = self.pairs(cut).await;
                (nodes, self.flap(&pairs, lasts, Duration::from_millis(period_ms)).await)
            }
            Fault::Reject { victim } => {
                let refuse = |node, other| self.cluster.links().refuse(other, node);
                self.links_of(victim, lasts, refuse).await
            }
            Fault::Reset => {
                let reset = |one, other| self.cluster.links().reset(one, other);
                (self.ids(), self.links(lasts, || self.each_pair(reset)).await)
            }
            Fault::Delay { delay_ms, jitter_ms } => {
                let [least, jitter] = [delay_ms, jitter_ms].map(Duration::from_millis);
                let delay = |one, other| self.cluster.links().delay(one, other, least, jitter);
                (self.ids(), self.links(lasts, || self.each_pair(delay)).await)
            }
            Fault::Throttle { victim, bytes_per_s } => {
                let links = self.cluster.links();
                let throttle = |node, other| links.throttle(node, other, bytes_per_s);
                self.links_of(victim, lasts, throttle).await
            }
            Fault::SlowDisk { victim, sync_ms } => {
                let sync_ms = u32::try_from(sync_ms).unwrap_or(u32::MAX);
                self.disk(victim, CallFault::SyncMs, sync_ms, lasts).await
            }
            Fault::StuckDisk { victim } => self.disk(victim, CallFault::SyncHangs, 1, lasts).await,
            Fault::BrokenDisk { victim, call } => {
                self.disk(victim, failing(call), EIO, lasts).await
            }
            Fault::FullDisk { victim } => {
                self.disk(victim, CallFault::WriteFails, ENOSPC, lasts).await
            }
            Fault::ClockJump { victims, seconds } => {
                self.clocks(victims, CallFault::WallSeconds, seconds, lasts).await
            }
            Fault::ClockDrift { victims, percent } => {
                self.clocks(victims, CallFault::WallPercent, percent, lasts).await
            }
            Fault::ClientsReset => (self.ids(), reset_clients(self.cluster.nodes()).await),
        }
    }

    fn ids(&self) -> BTreeSet<u64> {
        self.cluster.nodes().iter().map(Node::id).collect()
    }

    /// The leader of the measured queue, as the first node that answers says; node 1 if none does.
    async fn leader(&self) -> u64 {
        for node in self.cluster.nodes().iter().filter(|node| node.runs()) {
            let asked = self.cluster.rows(node.id(), &["list_queues", "name", "leader"]);
            let Ok(Ok(rows)) = timeout(QUESTION, asked).await else { continue };
            let row = rows.iter().find(|row| ctl::text(row, "name") == self.queue);
            let leader = row.and_then(|row| self.cluster.named(&ctl::text(row, "leader")));
            if let Some(leader) = leader {
                return leader;
            }
        }
        1
    }

    async fn one(&self, victim: Victim) -> u64 {
        match victim {
            Victim::Node(id) => id,
            Victim::Leader => self.leader().await,
            Victim::Follower => {
                let leader = self.leader().await;
                self.ids().into_iter().find(|id| *id != leader).unwrap_or(leader)
            }
        }
    }

    async fn all(&self, victims: Victims) -> BTreeSet<u64> {
        match victims {
            Victims::One(victim) => BTreeSet::from([self.one(victim).await]),
            Victims::Majority => {
                let leader = self.leader().await;
                let other = self.ids().into_iter().find(|id| *id != leader);
                other.into_iter().chain([leader]).collect()
            }
            Victims::All => self.ids(),
        }
    }

    async fn kill(&self, ids: BTreeSet<u64>, lasts: Duration) -> (BTreeSet<u64>, Effect) {
        let nodes: Vec<&Node> = ids.iter().map(|id| self.cluster.node(*id)).collect();
        // A node that a fault before this one has ended is started at that fault's end.
        let hit: Vec<u64> = nodes.iter().filter(|node| node.runs()).map(|node| node.id()).collect();
        nodes.iter().filter(|node| hit.contains(&node.id())).for_each(|node| node.kill9());
        let runs: Vec<u64> =
            nodes.iter().filter(|node| node.runs()).map(|node| node.id()).collect();
        sleep(lasts).await;
        self.start_ended().await;
        let effect = if hit.len() == ids.len() && runs.is_empty() {
            Effect::Seen(format!("the kernel reported the end of {hit:?}"))
        } else {
            Effect::Missed(format!("{hit:?} ran before it, {runs:?} after it"))
        };
        (ids, effect)
    }

    async fn pause(&self, ids: BTreeSet<u64>, lasts: Duration) -> (BTreeSet<u64>, Effect) {
        let nodes: Vec<&Node> = ids.iter().map(|id| self.cluster.node(*id)).collect();
        nodes.iter().for_each(|node| node.pause());
        let stopped = |node: &&Node| {
            std::fs::read_to_string(format!("/proc/{}/stat", node.pid()))
                .is_ok_and(|stat| stat.contains(") T "))
        };
        let begun = Instant::now();
        while !nodes.iter().all(stopped) && begun.elapsed() < lasts {
            sleep(CHECK_INTERVAL).await;
        }
        let all_stopped = nodes.iter().all(stopped);
        sleep(lasts.saturating_sub(begun.elapsed())).await;
        nodes.iter().for_each(|node| node.resume());
        let effect = if all_stopped {
            Effect::Seen("/proc said that the processes were stopped".to_owned())
        } else {
            Effect::Missed("a process was not stopped in time".to_owned())
        };
        (ids, effect)
    }

    async fn restart_all(&self) -> (BTreeSet<u64>, Effect) {
        let mut said = Vec::new();
        let mut clean = true;
        for node in self.cluster.nodes() {
            let (status, took) = node.sigterm().await;
            clean &= status.success();
            said.push(format!("node {}: {status} after {} ms", node.id(), took.as_millis()));
            node.restart().await;
        }
        let said = said.join("; ");
        (self.ids(), if clean { Effect::Seen(said) } else { Effect::Missed(said) })
    }

    /// Ordered pairs, (sender, receiver), of which nothing comes through; and the nodes concerned.
    async fn pairs(&self, cut: Cut) -> (BTreeSet<u64>, Vec<(u64, u64)>) {
        let ids: Vec<u64> = self.ids().into_iter().collect();
        let all = || {
            let to = |from: &u64| {
                let from = *from;
                ids.iter().filter(move |to| **to != from).map(move |to| (from, *to))
            };
            ids.iter().flat_map(to)
        };
        let place = |id: u64| ids.iter().position(|other| *other == id).unwrap_or_default();
        let after = |id: u64, further: u64| {
            ids[(place(id) + usize::try_from(further).unwrap_or(1)) % ids.len()]
        };
        match cut {
            Cut::Isolated(victim) => {
                let node = self.one(victim).await;
                let pairs = all().filter(|(from, to)| [from, to].contains(&&node)).collect();
                (BTreeSet::from([node]), pairs)
            }
            Cut::Link { from, further } => {
                let from = self.one(from).await;
                let to = after(from, further);
                (BTreeSet::from([from, to]), vec![(from, to), (to, from)])
            }
            Cut::OneWay { from, further } => {
                let from = self.one(from).await;
                let to = after(from, further);
                (BTreeSet::from([from, to]), vec![(from, to)])
            }
            Cut::Ring => (self.ids(), all().filter(|(from, to)| after(*from, 1) != *to).collect()),
            Cut::All => (self.ids(), all().collect()),
        }
    }

    fn cut(&self, pairs: &[(u64, u64)]) {
        pairs.iter().for_each(|(from, to)| self.cluster.links().cut_one_way(*from, *to));
    }

    fn each_pair(&self, act: impl Fn(u64, u64)) {
        for one in self.ids() {
            self.ids().into_iter().filter(|other| *other > one).for_each(|other| act(one, other));
        }
    }

    /// A fault of links from its begin to its end.
    async fn links(&self, lasts: Duration, begin: impl FnOnce()) -> Effect {
        let before = self.cluster.links().hindered();
        begin();
        sleep(lasts).await;
        let hindered = self.cluster.links().hindered() - before;
        self.cluster.links().heal();
        hindrances(hindered)
    }

    /// A fault of a node's links, each given by the node and the other end.
    async fn links_of(
        &self,
        victim: Victim,
        lasts: Duration,
        begin: impl Fn(u64, u64),
    ) -> (BTreeSet<u64>, Effect) {
        let node = self.one(victim).await;
        let others = self.cluster.others(node);
        let begin = || others.into_iter().for_each(|other| begin(node, other));
        (BTreeSet::from([node]), self.links(lasts, begin).await)
    }

    async fn flap(&self, pairs: &[(u64, u64)], lasts: Duration, period: Duration) -> Effect {
        let before = self.cluster.links().hindered();
        let end = Instant::now() + lasts;
        while Instant::now() < end {
            self.cut(pairs);
            sleep(period).await;
            self.cluster.links().heal();
            sleep(period).await;
        }
        hindrances(self.cluster.links().hindered() - before)
    }

    async fn disk(
        &self,
        victim: Victim,
        fault: CallFault,
        value: u32,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        let id = self.one(victim).await;
        let before = self.disks.hits(id);
        self.disks.set(id, fault, value);
        sleep(lasts).await;
        let hits = self.disks.hits(id) - before;
        let ended = !self.cluster.node(id).runs();
        self.disks.set(id, fault, 0);
        self.start_ended().await;
        let said = format!("{hits} calls obeyed; the node ended: {ended}");
        let effect = if hits > 0 { Effect::Seen(said) } else { Effect::Missed(said) };
        (BTreeSet::from([id]), effect)
    }

    /// Wrong wall clocks from the begin of a fault to its end.
    async fn clocks(
        &self,
        victims: Victims,
        fault: CallFault,
        value: i32,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        let ids = self.all(victims).await;
        let hits = || ids.iter().map(|id| self.disks.hits(*id)).collect::<Vec<_>>();
        let before = hits();
        ids.iter().for_each(|id| self.disks.set(*id, fault, value.cast_unsigned()));
        sleep(lasts).await;
        let read: Vec<u32> = hits().iter().zip(before).map(|(now, before)| now - before).collect();
        ids.iter().for_each(|id| self.disks.set(*id, fault, 0));
        let said = format!("{value} at {ids:?}, whose nodes read their clocks {read:?} times");
        let all_read = read.iter().all(|count| *count > 0);
        (ids, if all_read { Effect::Seen(said) } else { Effect::Missed(said) })
    }

    /// Starts the nodes that do not run, and waits until they are ready.
    async fn start_ended(&self) {
        let ended: Vec<&Node> = self.cluster.nodes().iter().filter(|node| !node.runs()).collect();
        for node in &ended {
            node.reap();
            node.spawn();
        }
        for node in ended {
            node.ready().await;
        }
    }
}

const CALL_FAULTS: [CallFault; 7] = [
    CallFault::SyncFails,
    CallFault::SyncHangs,
    CallFault::SyncMs,
    CallFault::WriteFails,
    CallFault::ReadFails,
    CallFault::WallSeconds,
    CallFault::WallPercent,
];

fn failing(call: DiskCall) -> CallFault {
    match call {
        DiskCall::Sync => CallFault::SyncFails,
        DiskCall::Write => CallFault::WriteFails,
    }
}

fn hindrances(count: u64) -> Effect {
    let said = format!("the proxies of the links hindered {count} times");
    if count > 0 { Effect::Seen(said) } else { Effect::Missed(said) }
}

/// Resets all connections at the nodes' AMQP ports, by the kernel.
async fn reset_clients(nodes: &[Node]) -> Effect {
    let mut count = 0;
    for node in nodes {
        let [port, ..] = node.ports();
        let mut kill = tokio::process::Command::new("ss");
        kill.args(["-K", "-H", "-t", "-n", "sport", "=", &format!(":{port}")]);
        match kill.output().await {
            Ok(output) if output.status.success() => {
                count += String::from_utf8_lossy(&output.stdout).lines().count();
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                return Effect::Skipped(format!("ss -K: {}", said.trim()));
            }
            Err(error) => return Effect::Skipped(format!("ss: {error}")),
        }
    }
    let said = format!("the kernel closed {count} sockets");
    if count > 0 { Effect::Seen(said) } else { Effect::Missed(said) }
}
