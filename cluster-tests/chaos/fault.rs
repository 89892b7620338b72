//! The faults: what can be done to a cluster.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One fault. It begins, lasts for the time that its [`super::schedule::Event`] gives, and is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Fault {
    /// SIGKILL; the node is started again at the end.
    Kill {
        /// Whom it hits.
        victims: Victims,
    },
    /// SIGSTOP, and SIGCONT at the end.
    Pause {
        /// Whom it hits.
        victims: Victims,
    },
    /// SIGTERM to one node after the other; each is started again before the next is stopped.
    RollingRestart,
    /// Bytes between nodes are held back, as a partition does, and delivered at the end.
    Partition {
        /// The links that are cut.
        cut: Cut,
    },
    /// The links of [`Fault::Partition`], cut and healed again and again.
    Flapping {
        /// The links that are cut and healed.
        cut: Cut,
        /// How long each state lasts, in milliseconds.
        period_ms: u64,
    },
    /// One node's port refuses the others and resets their connections; the node lives.
    Reject {
        /// The node whose port refuses.
        victim: Victim,
    },
    /// All connections between nodes are reset once.
    Reset,
    /// Bytes between nodes arrive late, in order.
    Delay {
        /// By at least this, in milliseconds.
        delay_ms: u64,
        /// By up to this more, in milliseconds.
        jitter_ms: u64,
    },
    /// What one node sends and receives passes at a low rate.
    Throttle {
        /// The node whose links are slow.
        victim: Victim,
        /// Bytes a second in each direction of each link.
        bytes_per_s: u64,
    },
    /// Each sync of a node's disk takes longer.
    SlowDisk {
        /// The node whose disk is slow.
        victim: Victim,
        /// By this, in milliseconds.
        sync_ms: u64,
    },
    /// Syncs of a node's disk do not return.
    StuckDisk {
        /// The node whose disk hangs.
        victim: Victim,
    },
    /// Calls to a node's disk fail with EIO. The node ends itself and is started again at the end.
    BrokenDisk {
        /// The node whose disk fails.
        victim: Victim,
        /// The calls that fail.
        call: DiskCall,
    },
    /// Writes to a node's disk fail with ENOSPC. The node ends itself and is started again at the end.
    FullDisk {
        /// The node whose disk is full.
        victim: Victim,
    },
    /// Wall clocks jump, and jump back at the end.
    ClockJump {
        /// Whose clocks.
        victims: Victims,
        /// How far ahead, in seconds; back, if it is negative.
        seconds: i32,
    },
    /// Wall clocks run too fast or too slow, and jump back at the end.
    ClockDrift {
        /// Whose clocks.
        victims: Victims,
        /// How much too fast; too slow, if it is negative.
        percent: i32,
    },
    /// Clients' connections to all nodes are reset, with deliveries unsettled and publishes unconfirmed.
    ClientsReset,
}

/// Selects one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Victim {
    /// By its id.
    Node(u64),
    /// The node that leads the measured queue when the fault begins.
    Leader,
    /// The node with the lowest id that does not lead the measured queue.
    Follower,
}

/// One node or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Victims {
    /// One node.
    One(Victim),
    /// The leader of the measured queue and one more: no majority is left.
    Majority,
    /// All nodes of the cluster.
    All,
}

/// Which links between nodes are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// A node from all others.
    Isolated(Victim),
    /// One link, both ways; the third node reaches both of its ends.
    Link {
        /// The node at one end.
        from: Victim,
        /// How many places further, in the circle of ids, the other end is; from 1.
        further: u64,
    },
    /// One link, one way.
    OneWay {
        /// The sender whose bytes are held back.
        from: Victim,
        /// How many places further, in the circle of ids, the receiver is; from 1.
        further: u64,
    },
    /// Each node hears from the one before it in the circle of ids, and from no other.
    Ring,
    /// Every link between nodes is cut.
    All,
}

/// A call to the operating system that concerns a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskCall {
    /// `fsync` and `fdatasync`.
    Sync,
    /// `write` and `pwrite`.
    Write,
}

/// Kind of a fault: what a run counts and may be asked for by name.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// SIGKILL of one node.
    KillNode,
    /// SIGKILL of the node that leads the measured queue.
    KillLeader,
    /// SIGKILL of two nodes of three.
    KillMajority,
    /// SIGKILL of all nodes.
    KillAll,
    /// SIGSTOP for less than an election takes.
    PauseShort,
    /// SIGSTOP for longer than an election takes.
    PauseLong,
    /// SIGTERM of one node after the other.
    RollingRestart,
    /// One node cut off.
    IsolateNode,
    /// The leader of the measured queue cut off.
    IsolateLeader,
    /// One link of three cut.
    CutLink,
    /// One link cut in one direction.
    CutOneWay,
    /// A ring of links that each carry one direction.
    Ring,
    /// Every link cut.
    CutAll,
    /// Links that go and come.
    Flapping,
    /// A port that refuses though its node lives.
    Reject,
    /// Connections between nodes reset.
    Reset,
    /// Delay with jitter between nodes.
    Delay,
    /// A slow link.
    Throttle,
    /// Slow syncs of one node's disk.
    SlowDisk,
    /// Syncs that hang.
    StuckDisk,
    /// A disk whose calls fail with EIO.
    BrokenDisk,
    /// A disk whose writes fail with ENOSPC.
    FullDisk,
    /// A wall clock that jumps by minutes or a day, on one node or on all.
    ClockJump,
    /// A wall clock that runs too fast or too slow, on one node or on all.
    ClockDrift,
    /// Clients' connections reset.
    ClientsReset,
}

/// What a fault occupies: of each of these at most one fault at a time, or the end of the first would
/// undo the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The nodes' processes. Disks count too: a node that ends by itself is started again.
    Nodes,
    /// The links between nodes.
    Links,
    /// The nodes' wall clocks.
    Clocks,
    /// The clients' connections.
    Clients,
}

impl Kind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [Self; 25] = [
        Self::KillNode,
        Self::KillLeader,
        Self::KillMajority,
        Self::KillAll,
        Self::PauseShort,
        Self::PauseLong,
        Self::RollingRestart,
        Self::IsolateNode,
        Self::IsolateLeader,
        Self::CutLink,
        Self::CutOneWay,
        Self::Ring,
        Self::CutAll,
        Self::Flapping,
        Self::Reject,
        Self::Reset,
        Self::Delay,
        Self::Throttle,
        Self::SlowDisk,
        Self::StuckDisk,
        Self::BrokenDisk,
        Self::FullDisk,
        Self::ClockJump,
        Self::ClockDrift,
        Self::ClientsReset,
    ];

    /// What a fault of this kind occupies.
    #[must_use]
    pub fn resource(self) -> Resource {
        match self {
            Self::KillNode
            | Self::KillLeader
            | Self::KillMajority
            | Self::KillAll
            | Self::PauseShort
            | Self::PauseLong
            | Self::RollingRestart
            | Self::SlowDisk
            | Self::StuckDisk
            | Self::BrokenDisk
            | Self::FullDisk => Resource::Nodes,
            Self::IsolateNode
            | Self::IsolateLeader
            | Self::CutLink
            | Self::CutOneWay
            | Self::Ring
            | Self::CutAll
            | Self::Flapping
            | Self::Reject
            | Self::Reset
            | Self::Delay
            | Self::Throttle => Resource::Links,
            Self::ClockJump | Self::ClockDrift => Resource::Clocks,
            Self::ClientsReset => Resource::Clients,
        }
    }

    /// Whether a majority of nodes that reach each other is left, so that confirms go on.
    #[must_use]
    pub fn leaves_majority(self) -> bool {
        !matches!(self, Self::KillMajority | Self::KillAll | Self::CutAll)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
