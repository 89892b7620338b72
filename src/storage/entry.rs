//! A log entry as the storage and the network handle it: opaque commands, and beside them the
//! bodies of the runs that they refer to (DESIGN §3).

use bytes::Bytes;
use quorate_types::{LogIndex, NodeId, Term};

/// Identity of a log entry: the leader that made it, and its index (Raft paper, section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// Term of the leader.
    pub term: Term,
    /// Node that led when the entry was made.
    pub leader: NodeId,
    /// Index in the group's log.
    pub index: LogIndex,
}

/// One entry of a group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Term, leader and index of the entry.
    pub id: EntryId,
    /// The contents of the entry.
    pub payload: Payload,
}

/// The contents of a log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No contents: a leader's first entry.
    Blank,
    /// A membership of the group, as the raft crate encodes it.
    Membership(Bytes),
    /// Commands of the group's machine.
    Commands(CommandEntry),
}

/// Encoded commands with the bodies of their runs. Cheap to clone: encoded once, it is used for the
/// write-ahead log, the followers and the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandEntry {
    /// The encoded `quorate_queue::Entry` (run heads included) or `quorate_catalog::CatalogEntry`.
    pub command: Bytes,
    /// For each run of the entry, in its order, the bodies of its messages. Empty for the catalog.
    pub bodies: Vec<RunBodies>,
}

impl CommandEntry {
    /// Bytes of the commands and of all bodies.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.command.len() + self.bodies.iter().map(RunBodies::bytes).sum::<usize>()
    }
}

/// The encoded messages of one run. A message is absent when it was settled and removed before
/// the entry was read back for a lagging follower (STO 2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunBodies {
    /// One encoded message ([`crate::codec::message`]) for each position.
    pub messages: Vec<Option<Bytes>>,
}

impl RunBodies {
    /// Bytes of all messages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.messages.iter().flatten().map(Bytes::len).sum()
    }
}
