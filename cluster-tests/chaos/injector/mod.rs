//! Carries out the events of a schedule on a cluster, and reads back that each took effect.

mod data;
mod disks;
mod ended;
mod links;
mod members;
mod processes;
mod wal;

use super::fault::{Fault, Victim, Victims};
use super::schedule::Event;
use crate::harness::disk::{CallFaults, LoopDisk};
use crate::harness::{Cluster, Node, ctl};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long a question about the leader of a queue may take.
const QUESTION: Duration = Duration::from_secs(2);
/// Interval between two checks for the effect of a fault.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// How much longer a fault may last that nothing has felt: it ends when it is felt.
const LONGER: Duration = Duration::from_secs(60);

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
    /// A node, or the cluster, did what it must not do then, or did not do what it must.
    Wrong(String),
}

/// An event that was carried out.
#[derive(Clone, Debug, Serialize)]
pub struct Injected {
    /// As the schedule has it.
    pub event: Event,
    /// The nodes that it hit.
    pub nodes: BTreeSet<u64>,
    /// The node that led the measured queue when it began, if a node told.
    pub leader: Option<u64>,
    /// When it began, since the start of the load.
    pub began: Duration,
    /// When it had been undone and all nodes were ready again.
    pub ended: Duration,
    /// What became of it.
    pub effect: Effect,
}

/// What faults need that must be there before the nodes start.
#[derive(Debug)]
pub struct Equipment {
    /// Faults of calls to disks and clocks.
    pub calls: CallFaults,
    /// A disk for each node, whose power can be cut; or why this machine has none.
    pub disks: Result<BTreeMap<u64, LoopDisk>, String>,
    /// The binary of an earlier release, which the nodes run until they are upgraded.
    pub before: Option<PathBuf>,
}

/// Size of a node's disk, in MiB; what is not written takes no room.
const DISK_MIB: u64 = 8 << 10;

impl Equipment {
    /// Equipment for nodes of these ids, which run an earlier release first, if one is given.
    ///
    /// # Panics
    /// Without a C compiler.
    #[must_use]
    pub fn prepare(nodes: impl Iterator<Item = u64>, before: Option<PathBuf>) -> Self {
        let disks = nodes.map(|id| Ok((id, LoopDisk::make(DISK_MIB)?))).collect();
        Self { calls: CallFaults::prepare(), disks, before }
    }
}

/// Does things to a cluster.
#[derive(Debug)]
pub struct Injector<'a> {
    cluster: &'a Cluster,
    equipment: &'a Equipment,
    /// The queue whose leader is meant by [`Victim::Leader`].
    queue: &'a str,
    start: Instant,
    /// The nodes that present faults may end; each fault starts its own again.
    may_end: Mutex<BTreeSet<u64>>,
    /// Ends of nodes that no fault excuses.
    findings: Mutex<Vec<String>>,
    /// Held while nodes that have ended are looked for, so that two faults do not start the same one.
    looking: tokio::sync::Mutex<()>,
}

impl<'a> Injector<'a> {
    /// On a cluster started with this equipment; the load starts now.
    #[must_use]
    pub fn new(cluster: &'a Cluster, equipment: &'a Equipment, queue: &'a str) -> Self {
        Self {
            cluster,
            equipment,
            queue,
            start: Instant::now(),
            may_end: Mutex::default(),
            findings: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        }
    }

    /// Waits for the time of an event, carries it out, waits for its end and undoes it.
    ///
    /// # Panics
    /// When a node does not become ready again.
    pub async fn carry_out(&self, event: Event) -> Injected {
        tokio::time::sleep_until(self.start + Duration::from_millis(event.at_ms)).await;
        self.start_ended().await;
        let leader = self.known_leader().await;
        let began = self.start.elapsed();
        let (nodes, effect) = self.inject(event).await;
        self.start_ended().await;
        Injected { event, nodes, leader, began, ended: self.start.elapsed(), effect }
    }

    /// Undoes whatever may be left, and waits until all nodes are ready.
    ///
    /// # Panics
    /// When a node does not become ready.
    pub async fn heal(&self) {
        self.cluster.links().heal();
        for node in self.cluster.nodes() {
            for fault in disks::CALL_FAULTS {
                self.equipment.calls.set(node.id(), fault, 0);
            }
        }
        self.start_ended().await;
        self.cluster.ready().await;
    }

    async fn inject(&self, event: Event) -> (BTreeSet<u64>, Effect) {
        let lasts = Duration::from_millis(event.for_ms);
        match event.fault {
            Fault::Process(fault) => self.inject_into_processes(fault, lasts).await,
            Fault::Link(fault) => self.inject_into_links(fault, lasts).await,
            Fault::Disk(fault) => self.inject_into_disks(fault, lasts).await,
            Fault::Clock(fault) => self.inject_into_clocks(fault, lasts).await,
            Fault::Member(fault) => self.inject_into_members(fault, lasts).await,
            Fault::ClientsReset => (self.ids(), self.reset_clients(lasts).await),
        }
    }

    /// Waits for the end of a fault, which lasts longer if nothing has felt it: another fault may have
    /// stopped the nodes that would.
    async fn until_felt(&self, lasts: Duration, is_felt: impl Fn() -> bool) {
        sleep(lasts).await;
        let end = Instant::now() + LONGER;
        while !is_felt() && Instant::now() < end {
            sleep(CHECK_INTERVAL).await;
        }
    }

    fn ids(&self) -> BTreeSet<u64> {
        self.cluster.nodes().iter().map(Node::id).collect()
    }

    /// The leader of the measured queue; node 1 if none is known, or if it is a guest.
    async fn leader(&self) -> u64 {
        let leader = self.known_leader().await;
        leader.filter(|leader| self.ids().contains(leader)).unwrap_or(1)
    }

    /// The leader of the measured queue, as the first node that answers says.
    async fn known_leader(&self) -> Option<u64> {
        for node in self.cluster.nodes().iter().filter(|node| node.runs()) {
            let asked = self.cluster.rows(node.id(), &["list_queues", "name", "leader"]);
            let Ok(Ok(rows)) = timeout(QUESTION, asked).await else { continue };
            let row = rows.iter().find(|row| ctl::text(row, "name") == self.queue);
            let leader = row.and_then(|row| self.cluster.named(&ctl::text(row, "leader")));
            if leader.is_some() {
                return leader;
            }
        }
        None
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
}
