//! The faults: what can be done to a cluster.

mod kind;

pub use kind::{Kind, Resource};

use serde::{Deserialize, Serialize};

/// One fault. It begins, lasts for the time that its [`super::schedule::Event`] gives, and is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Of nodes' processes.
    Process(ProcessFault),
    /// Of links between nodes.
    Link(LinkFault),
    /// Of nodes' disks.
    Disk(DiskFault),
    /// Of nodes' wall clocks.
    Clock(ClockFault),
    /// Of the membership.
    Member(MemberFault),
    /// Clients' connections to all nodes are reset, with deliveries unsettled and publishes unconfirmed.
    ClientsReset,
}

/// A fault of nodes' processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessFault {
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
    /// SIGTERM to one node of an earlier release after the other; each is started with the present release
    /// before the next is stopped.
    RollingUpgrade {
        /// Two nodes are upgraded, and set back to the earlier release.
        back: bool,
    },
    /// A node gets little processor time.
    StarvedProcessor {
        /// The node that gets little.
        victim: Victim,
        /// So many of a hundred parts of one processor.
        percent: u32,
    },
    /// A node may use no more memory, until the kernel kills it. It is started again at the end.
    OutOfMemory {
        /// The node that is killed.
        victim: Victim,
    },
}

/// A fault of links between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkFault {
    /// Nothing comes through.
    Partition {
        /// The links that are cut.
        cut: Cut,
    },
    /// The links of [`LinkFault::Partition`], cut and healed again and again.
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
    /// Packets between nodes arrive late, and overtake each other.
    Reorder {
        /// By up to this, in milliseconds.
        jitter_ms: u64,
    },
    /// Packets between nodes are lost.
    Loss {
        /// So many of a hundred.
        percent: u8,
    },
    /// Packets between nodes arrive twice.
    Duplicate {
        /// So many of a hundred.
        percent: u8,
    },
    /// What one node sends and receives passes at a low rate.
    Throttle {
        /// The node whose links are slow.
        victim: Victim,
        /// Bytes a second in each direction of each link.
        bytes_per_s: u64,
    },
    /// A node is killed, and started again when the others have purged what it lacks of their logs; its links
    /// are slow until it has installed a snapshot.
    ThrottledSnapshot {
        /// The node that is away.
        victim: Victim,
        /// Bytes a second in each direction of each link.
        bytes_per_s: u64,
    },
}

/// A fault of nodes' disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskFault {
    /// Each sync of a node's disk takes longer.
    Slow {
        /// The node whose disk is slow.
        victim: Victim,
        /// By this, in milliseconds.
        sync_ms: u32,
    },
    /// Syncs of a node's disk do not return.
    Stuck {
        /// The node whose disk hangs.
        victim: Victim,
    },
    /// Calls to a node's disk fail with EIO. The node may end itself, and is started again at the end.
    /// It can go on only if reads fail.
    Broken {
        /// The node whose disk fails.
        victim: Victim,
        /// The calls that fail.
        call: DiskCall,
    },
    /// Writes to a node's disk fail with ENOSPC. The node ends itself and is started again at the end.
    Full {
        /// The node whose disk is full.
        victim: Victim,
    },
    /// The power of nodes' disks is cut: the processes are killed, and what they had not synced is lost.
    /// They are started again at the end.
    PowerLoss {
        /// Whom it hits.
        victims: Victims,
    },
    /// A node is killed, and its data directory is not what it was when the node is started again. The
    /// node must refuse it; it gets its directory back at the end.
    WrongData {
        /// The node whose directory it is.
        victim: Victim,
        /// What is wrong with it.
        wrong: WrongData,
    },
    /// A node is killed, and a bit of one of its data files is wrong when the node is started again.
    /// The node may end itself, and must not serve wrong data. It gets its data back at the end.
    Damaged {
        /// The node whose file it is.
        victim: Victim,
        /// The file.
        file: DamagedFile,
        /// Which bit, as a fraction of the file in units of 2⁻³².
        place: u32,
    },
}

/// A fault of nodes' wall clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockFault {
    /// They jump, and jump back at the end.
    Jump {
        /// Whose clocks.
        victims: Victims,
        /// How far ahead, in seconds; back, if it is negative.
        seconds: i32,
    },
    /// They run too fast or too slow, and jump back at the end.
    Drift {
        /// Whose clocks.
        victims: Victims,
        /// How much too fast; too slow, if it is negative.
        percent: i32,
    },
}

/// A fault of the membership: it changes who is a member, or which nodes replicate which group. At the end
/// the members are those that founded the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberFault {
    /// Further nodes join, and are forgotten at the end, one after the other.
    ScaleUp {
        /// Number of them.
        nodes: usize,
        /// How they leave.
        leaving: Leaving,
    },
    /// A node is forgotten as it runs. At the end it joins anew, with an empty directory.
    ScaleDown {
        /// The node that is forgotten.
        victim: Victim,
    },
    /// A node is killed, and comes back with an empty directory, which replaces the former one.
    LostDisk {
        /// The node that loses its disk.
        victim: Victim,
        /// Whether it replaces the directory by itself; otherwise an operator names the node.
        by_itself: bool,
    },
    /// A node is drained, and revived at the end.
    Drain {
        /// The node that is drained.
        victim: Victim,
    },
    /// A further node joins, and comes back at another address; it is forgotten at the end.
    NewAddress,
}

/// How a node leaves the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leaving {
    /// It is stopped, and then forgotten.
    Stopped,
    /// It is drained and forgotten as it runs, and ends by itself.
    Running,
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

/// What is wrong with a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WrongData {
    /// It is a copy that was made before the node ran last.
    OldCopy,
    /// A bit of the list of RocksDB's files is wrong.
    FlippedBit,
    /// The list of RocksDB's files ends too early.
    Truncated,
    /// It is empty.
    Wiped,
}

/// A call to the operating system that concerns a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskCall {
    /// `fsync` and `fdatasync`.
    Sync,
    /// `write` and `pwrite`.
    Write,
    /// `read` and `pread`.
    Read,
}

/// A file of RocksDB in which a bit is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamagedFile {
    /// A table. The node finds out when it reads the block, and may go on until then.
    Table,
    /// The newest write-ahead log, in the part that was synced. The node must refuse it.
    Log,
}
