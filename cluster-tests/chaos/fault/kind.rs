//! Kinds of faults: what a run counts, and may be asked for by name.

use serde::{Deserialize, Serialize};
use std::fmt;

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
    /// One node after the other restarted with the next release, and sometimes set back.
    RollingUpgrade,
    /// One node cut off.
    IsolateNode,
    /// The leader of the measured queue cut off.
    IsolateLeader,
    /// One link of three cut.
    CutLink,
    /// One link cut in one direction.
    CutOneWay,
    /// A ring of links that each carry one direction: no two nodes reach each other.
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
    /// Packets that overtake each other.
    Reorder,
    /// Lost packets.
    Loss,
    /// Packets that arrive twice.
    Duplicate,
    /// A slow link.
    Throttle,
    /// Slow links of a node that comes back by snapshots.
    ThrottledSnapshot,
    /// Slow syncs of one node's disk.
    SlowDisk,
    /// Syncs that hang.
    StuckDisk,
    /// A disk whose calls fail with EIO.
    BrokenDisk,
    /// A disk whose writes fail with ENOSPC.
    FullDisk,
    /// Loss of power of one node.
    PowerLossNode,
    /// Loss of power of two nodes of three.
    PowerLossMajority,
    /// Loss of power of all nodes.
    PowerLossAll,
    /// A data directory that was set back, damaged or wiped.
    WrongData,
    /// A data file with a wrong bit.
    DamagedData,
    /// Too little processor time.
    StarvedProcessor,
    /// The kernel's kill of a process that wants more memory than it may have.
    OutOfMemory,
    /// A wall clock that jumps by minutes or a day, on one node or on all.
    ClockJump,
    /// A wall clock that runs too fast or too slow, on one node or on all.
    ClockDrift,
    /// Clients' connections reset.
    ClientsReset,
    /// One or two further nodes that join and are forgotten.
    ScaleUp,
    /// A node that is forgotten, and joins anew.
    ScaleDown,
    /// A node that loses its disk and is replaced by itself, or by name.
    LostDisk,
    /// A node that is drained and revived.
    Drain,
    /// A further node that comes back at another address.
    NewAddress,
}

/// What a fault occupies: of each of these at most one fault at a time, or the end of the first would
/// undo the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The nodes' processes. Disks count too: a node that ends by itself is started again. So does the
    /// membership: two of three nodes may not be away at the same time.
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
    pub const ALL: [Self; 42] = [
        Self::KillNode,
        Self::KillLeader,
        Self::KillMajority,
        Self::KillAll,
        Self::PauseShort,
        Self::PauseLong,
        Self::RollingRestart,
        Self::RollingUpgrade,
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
        Self::Reorder,
        Self::Loss,
        Self::Duplicate,
        Self::Throttle,
        Self::ThrottledSnapshot,
        Self::SlowDisk,
        Self::StuckDisk,
        Self::BrokenDisk,
        Self::FullDisk,
        Self::PowerLossNode,
        Self::PowerLossMajority,
        Self::PowerLossAll,
        Self::WrongData,
        Self::DamagedData,
        Self::StarvedProcessor,
        Self::OutOfMemory,
        Self::ClockJump,
        Self::ClockDrift,
        Self::ClientsReset,
        Self::ScaleUp,
        Self::ScaleDown,
        Self::LostDisk,
        Self::Drain,
        Self::NewAddress,
    ];

    /// Whether nodes join, leave, or lose or change what the others know of them.
    #[must_use]
    pub fn changes_members(self) -> bool {
        matches!(
            self,
            Self::ScaleUp | Self::ScaleDown | Self::LostDisk | Self::Drain | Self::NewAddress
        )
    }

    /// What a fault of this kind occupies.
    #[must_use]
    pub fn occupies(self) -> &'static [Resource] {
        match self {
            Self::KillNode
            | Self::KillLeader
            | Self::KillMajority
            | Self::KillAll
            | Self::PauseShort
            | Self::PauseLong
            | Self::RollingRestart
            | Self::RollingUpgrade
            | Self::SlowDisk
            | Self::StuckDisk
            | Self::BrokenDisk
            | Self::FullDisk
            | Self::PowerLossNode
            | Self::PowerLossMajority
            | Self::PowerLossAll
            | Self::WrongData
            | Self::DamagedData
            | Self::StarvedProcessor
            | Self::OutOfMemory
            | Self::ScaleUp
            | Self::ScaleDown
            | Self::LostDisk
            | Self::Drain
            | Self::NewAddress => &[Resource::Nodes],
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
            | Self::Reorder
            | Self::Loss
            | Self::Duplicate
            | Self::Throttle => &[Resource::Links],
            Self::ThrottledSnapshot => &[Resource::Nodes, Resource::Links],
            Self::ClockJump | Self::ClockDrift => &[Resource::Clocks],
            Self::ClientsReset => &[Resource::Clients],
        }
    }

    /// Whether a majority of nodes that reach each other is left, so that confirms go on.
    #[must_use]
    pub fn leaves_majority(self) -> bool {
        !matches!(
            self,
            Self::KillMajority
                | Self::KillAll
                | Self::CutAll
                | Self::Ring
                | Self::PowerLossMajority
                | Self::PowerLossAll
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
