//! What the world knows of nodes that come and go, in the seeds that have them.

use crate::world::NODES;
use parking_lot::Mutex;
use quorate_broker::{Applicant, Entrance, MemberError};
use quorate_types::{Incarnation, MachineVersion, NodeId};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

/// A node that joins it and is forgotten, again and again.
pub const GUEST: NodeId = NodeId(4);

/// Of so many seeds two have such nodes. One of the two repeats itself.
const MOVING_ONE_OF: u64 = 5;

/// Of the seeds with membership changes, one in this number begins with a release that knows only an early
/// machine version.
const OLD_ONE_OF: u64 = 2;

/// What a node's process is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// How often the node's address has changed.
    pub moved: u32,
    /// The newest machine version that its release knows (MEM 15).
    pub version: MachineVersion,
}

impl Launch {
    /// The address that a process of the node has.
    pub fn address(self, node: NodeId) -> String {
        match self.moved {
            0 => node.to_string(),
            moved => format!("{node}@{moved}"),
        }
    }
}

/// What a node is asked by a process that enters the cluster, or by an operator.
pub enum Request {
    Enter(Applicant, oneshot::Sender<Result<Entrance, MemberError>>),
    Replace(NodeId),
    /// `running`: also while the node's process runs.
    Forget {
        node: NodeId,
        running: bool,
    },
    /// Of the asked node itself (MEM 13).
    Drain,
    Revive,
    /// The asked node itself shall stop, as `quorate` does it on SIGTERM.
    Stop,
}

/// Who shall be a member.
pub struct Membership {
    /// Whether nodes come and go in this seed.
    pub is_moving: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    members: BTreeSet<NodeId>,
    /// The data directory with which each node was started last.
    directories: BTreeMap<NodeId, Incarnation>,
    doors: BTreeMap<NodeId, mpsc::UnboundedSender<Request>>,
    /// Nodes whose disk is not the first one; true: it replaces the former one by itself.
    replacing: BTreeMap<NodeId, bool>,
    is_guest_forgotten: bool,
    /// Nodes that have ended, since they were forgotten.
    gone: BTreeSet<NodeId>,
    launches: BTreeMap<NodeId, Launch>,
    /// Nodes whose processes are drained.
    drained: BTreeSet<NodeId>,
    /// Nodes whose processes have stopped, since they were asked to.
    stopped: BTreeSet<NodeId>,
    /// Until then a former process may count as living, and what it held is not given to others.
    former_until: Duration,
}

impl Membership {
    pub fn new(seed: u64) -> Self {
        let is_moving = seed % MOVING_ONE_OF < 2;
        let is_old = is_moving && (seed / MOVING_ONE_OF).is_multiple_of(OLD_ONE_OF);
        let older = MachineVersion::NEWEST.0 - MachineVersion::FIRST.0;
        let before = u32::try_from(seed / MOVING_ONE_OF / OLD_ONE_OF % u64::from(older)).unwrap();
        let version = match is_old {
            true => MachineVersion(MachineVersion::FIRST.0 + before),
            false => MachineVersion::NEWEST,
        };
        let launch = |node| (node, Launch { moved: 0, version });
        let launches = NODES.into_iter().map(launch).collect();
        let state = State { members: NODES.into(), launches, ..State::default() };
        Self { is_moving, state: Mutex::new(state) }
    }

    /// What the next process of a node is started with. The guest has the newest release.
    pub fn launch(&self, node: NodeId) -> Launch {
        let launch = self.state.lock().launches.get(&node).copied();
        launch.unwrap_or(Launch { moved: 0, version: MachineVersion::NEWEST })
    }

    pub fn set_launch(&self, node: NodeId, launch: Launch) {
        self.state.lock().launches.insert(node, launch);
    }

    /// The node that has this address now, if any has.
    pub fn at(&self, address: &str) -> Option<NodeId> {
        self.nodes().into_iter().find(|node| self.launch(*node).address(*node) == address)
    }

    /// A node's process is drained, or is not any more.
    pub fn set_drained(&self, node: NodeId, is_drained: bool) {
        let mut state = self.state.lock();
        match is_drained {
            true => state.drained.insert(node),
            false => state.drained.remove(&node),
        };
    }

    pub fn is_drained(&self, node: NodeId) -> bool {
        self.state.lock().drained.contains(&node)
    }

    /// A node's process has stopped, since it was asked to.
    pub fn has_stopped(&self, node: NodeId) {
        self.state.lock().stopped.insert(node);
    }

    pub fn take_stopped(&self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.state.lock().stopped)
    }

    /// All nodes that there may be.
    pub fn nodes(&self) -> Vec<NodeId> {
        NODES.into_iter().chain(self.is_moving.then_some(GUEST)).collect()
    }

    /// The nodes that shall be members.
    pub fn members(&self) -> BTreeSet<NodeId> {
        self.state.lock().members.clone()
    }

    /// The guest shall be a member, as a new node.
    pub fn invite(&self) {
        let mut state = self.state.lock();
        state.members.insert(GUEST);
        state.replacing.remove(&GUEST);
        state.is_guest_forgotten = false;
    }

    /// The guest shall be no member any more.
    pub fn dismiss(&self) {
        let mut state = self.state.lock();
        state.members.remove(&GUEST);
        state.is_guest_forgotten = true;
    }

    /// Whether the node may end, since it is forgotten.
    pub fn may_be_forgotten(&self, node: NodeId) -> bool {
        node == GUEST && self.state.lock().is_guest_forgotten
    }

    /// A node's process has ended, since it was forgotten.
    pub fn has_gone(&self, node: NodeId) {
        self.state.lock().gone.insert(node);
    }

    pub fn take_gone(&self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.state.lock().gone)
    }

    /// A node gets an empty disk, which replaces the former one.
    pub fn replace(&self, node: NodeId, by_itself: bool) {
        self.state.lock().replacing.insert(node, by_itself);
    }

    /// Whether the node replaces its former disk by itself; `None`: it has the disk with which it has
    /// founded the cluster.
    pub fn replaces(&self, node: NodeId) -> Option<bool> {
        let replaces = self.state.lock().replacing.get(&node).copied();
        replaces.or((node == GUEST).then_some(true))
    }

    pub fn started(&self, node: NodeId, directory: Incarnation) {
        let mut state = self.state.lock();
        state.directories.insert(node, directory);
        // A draining ends with its process.
        state.drained.remove(&node);
    }

    pub fn directory(&self, node: NodeId) -> Option<Incarnation> {
        self.state.lock().directories.get(&node).copied()
    }

    /// From now on the node can be asked.
    pub fn opens(&self, node: NodeId) -> mpsc::UnboundedReceiver<Request> {
        let (sender, requests) = mpsc::unbounded_channel();
        self.state.lock().doors.insert(node, sender);
        requests
    }

    /// Asks a node; false if its process does not run.
    pub fn ask(&self, node: NodeId, request: Request) -> bool {
        let door = self.state.lock().doors.get(&node).cloned();
        door.is_some_and(|door| door.send(request).is_ok())
    }

    /// A process has ended whose node does not come back with the same directory.
    pub fn has_lost_process(&self, until: Duration) {
        self.state.lock().former_until = until;
    }

    pub fn former_until(&self) -> Duration {
        self.state.lock().former_until
    }
}
