//! The shared state of a simulation's nodes and driver: disks, the network's state, the trace.

use crate::{history::History, membership::Membership};
use futures::future::pending;
use parking_lot::Mutex;
use quorate_broker::Broker;
use quorate_raft::Groups;
use quorate_rpc::Socket;
use quorate_storage::simulated::Disk;
use quorate_types::NodeId;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use turmoil::net::TcpStream;

/// The nodes that found the cluster.
pub const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

/// How long before its node is no longer alone a consumer reads again.
const READ_BEFORE_END: Duration = Duration::from_millis(300);

/// How long after it the consumers of other nodes read again, in seeds with disks that hang.
const READ_AFTER_END: Duration = Duration::from_millis(1_000);

pub const PORT: u16 = 5000;

/// The state of a node's machine and of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Running,
    /// The process is dead; the machine refuses connections.
    Killed,
    /// The machine does not answer.
    WithoutPower,
}

/// Which failures a seed has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    All,
    /// Mostly losses of power, also just after votes.
    Disks,
    /// Only failures of the network, and nodes that are unreachable for long.
    Network,
}

pub struct World {
    pub focus: Focus,
    pub disks: Mutex<BTreeMap<NodeId, Disk>>,
    pub health: Mutex<BTreeMap<NodeId, Health>>,
    /// Pairs of nodes between which messages are lost.
    pub cut: Mutex<BTreeSet<(NodeId, NodeId)>>,
    pub running: Mutex<BTreeMap<NodeId, (Broker, Arc<Groups>)>>,
    /// Whether disks hang in this seed.
    pub disks_hang: bool,
    /// Nodes whose disks hang.
    pub hanging: Mutex<BTreeSet<NodeId>>,
    /// A node that is alone, and when that ends.
    pub alone: Mutex<Option<(NodeId, Duration)>>,
    /// Since when nothing is broken, and no client has lost its connection.
    calm_since: Mutex<Duration>,
    /// Nodes whose disks have been told to fail: such a node may end by itself.
    pub failing: Mutex<BTreeSet<NodeId>>,
    /// Nodes that have ended by themselves, and may.
    pub ended: Mutex<BTreeSet<NodeId>>,
    pub history: Mutex<History>,
    pub membership: Membership,
    pub trace: Trace,
    /// How often each node has started. The boots of a node whose disk was lost begin again.
    starts: Mutex<BTreeMap<NodeId, u32>>,
    /// Queues whose declares were answered, and whose deletes have not begun.
    pub declared: Mutex<BTreeSet<String>>,
    /// How long a node is unreachable before its messages go to other nodes.
    pub unreachable_node_timeout_ms: u64,
    /// Publishers stop, and consumers take everything.
    pub draining: AtomicBool,
}

impl World {
    pub fn new(seed: u64, trace: Trace) -> Self {
        let disk = |node: NodeId| (node, Disk::new(seed.wrapping_mul(3) + u64::from(node.0)));
        let focus = match seed % 3 {
            0 => Focus::All,
            1 => Focus::Disks,
            _ => Focus::Network,
        };
        let is_patient = focus != Focus::Network;
        let membership = Membership::new(seed);
        let health = |node: NodeId| match NODES.contains(&node) {
            true => (node, Health::Running),
            false => (node, Health::Killed),
        };
        Self {
            focus,
            disks: Mutex::new(membership.nodes().into_iter().map(disk).collect()),
            health: Mutex::new(membership.nodes().into_iter().map(health).collect()),
            cut: Mutex::default(),
            running: Mutex::default(),
            disks_hang: !seed.is_multiple_of(2),
            hanging: Mutex::default(),
            alone: Mutex::default(),
            calm_since: Mutex::default(),
            failing: Mutex::default(),
            ended: Mutex::default(),
            history: Mutex::default(),
            membership,
            trace,
            starts: Mutex::default(),
            declared: Mutex::default(),
            unreachable_node_timeout_ms: if is_patient { 20_000 } else { 1_500 },
            draining: AtomicBool::new(false),
        }
    }

    /// Counts a start of the node; returns its number, from 1 on.
    pub fn count_start(&self, node: NodeId) -> u32 {
        let mut starts = self.starts.lock();
        let count = starts.entry(node).or_default();
        *count += 1;
        *count
    }

    /// The simulated time since the start.
    pub fn elapsed(&self) -> Duration {
        turmoil::sim_elapsed().unwrap_or_default()
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    pub fn is_cut(&self, one: NodeId, other: NodeId) -> bool {
        let cut = self.cut.lock();
        cut.contains(&(one, other)) || cut.contains(&(other, one))
    }

    /// Records that something breaks, or is broken, at this time.
    pub fn trouble(&self, now: Duration) {
        *self.calm_since.lock() = now;
    }

    /// Since when nothing is broken.
    pub fn calm_since(&self) -> Duration {
        *self.calm_since.lock()
    }

    /// The node that is alone.
    fn lone_node(&self) -> Option<NodeId> {
        let alone = *self.alone.lock();
        alone.filter(|(_, until)| self.elapsed() < *until).map(|(node, _)| node)
    }

    /// Whether a node is alone.
    pub fn is_one_alone(&self) -> bool {
        self.lone_node().is_some()
    }

    /// Whether this node is alone.
    pub fn is_alone(&self, node: NodeId) -> bool {
        self.lone_node() == Some(node)
    }

    /// How long a consumer of the node reads nothing while a node is alone. A consumer of the lone node
    /// reads just before that node is joined again. In seeds with disks that hang, consumers of the
    /// other nodes read only afterwards: the new leaders' first messages stay in their queues until
    /// consumers of the joined node get them, whose log may have other entries at their indexes (STO 7).
    pub fn unread_for(&self, node: NodeId) -> Duration {
        let Some((alone, until)) = *self.alone.lock() else { return Duration::ZERO };
        let reads = match alone == node {
            true => until.saturating_sub(READ_BEFORE_END),
            false if self.disks_hang => until + READ_AFTER_END,
            false => return Duration::ZERO,
        };
        reads.saturating_sub(self.elapsed())
    }

    /// Whether anything is broken. A node that joins is not.
    pub fn is_broken(&self) -> bool {
        let members = self.membership.members();
        let all_run = members.iter().all(|node| self.health(*node) == Health::Running);
        let is_whole = self.cut.lock().is_empty() && self.hanging.lock().is_empty();
        let running = self.running.lock();
        let all_serve = NODES.iter().all(|node| running.contains_key(node));
        !all_run || !is_whole || !all_serve
    }

    /// Whether a node that ends by itself now may do so; then it is noted.
    pub fn may_end(&self, node: NodeId) -> bool {
        let is_failing = self.failing.lock().contains(&node);
        if is_failing {
            self.ended.lock().insert(node);
        }
        is_failing
    }

    pub fn disk(&self, node: NodeId) -> Disk {
        self.disks.lock().get(&node).cloned().unwrap()
    }

    pub fn health(&self, node: NodeId) -> Health {
        self.health.lock().get(&node).copied().unwrap()
    }

    /// Opens a connection from one node to another. Turmoil refuses a connection whose first
    /// message is lost; a real network delays it.
    pub async fn connect(self: Arc<Self>, from: NodeId, to: NodeId) -> io::Result<Box<dyn Socket>> {
        if self.health(to) == Health::Killed && !self.is_cut(from, to) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        match TcpStream::connect((host(to), PORT)).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(_) => pending().await,
        }
    }
}

pub fn host(node: NodeId) -> String {
    format!("node-{node}")
}

/// All events, line by line.
#[derive(Clone, Default)]
pub struct Trace(Arc<Mutex<Vec<u8>>>);

impl Trace {
    pub fn note(&self, line: &str) {
        let at = turmoil::sim_elapsed().unwrap_or_default();
        let _ = writeln!(self.0.lock(), "{:>6} {line}", at.as_millis());
    }

    pub fn text(&self) -> Vec<u8> {
        self.0.lock().clone()
    }
}

/// The log of the nodes is a part of the trace.
impl Write for Trace {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
