//! Identities. Every id has its own type, so that a term is never taken for an index.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A node of the cluster, 1 to 65,535, chosen by the operator (`--node-id`).
    NodeId(u16)
);
number!(
    /// A Raft group: 0 is the catalog group, 1 and above are queue groups (DESIGN §2).
    GroupId(u16)
);
number!(
    /// A task of the catalog, which puts back, moves or deletes messages of a queue.
    TaskId(u64)
);
number!(
    /// A Raft term (Raft paper, section 5.1).
    Term(u64)
);
number!(
    /// An index in a group's log (Raft paper, section 5.3). The first entry has index 1.
    LogIndex(u64)
);
number!(
    /// An index in the catalog group's log: the version of a catalog copy.
    CatalogIndex(u64)
);
number!(
    /// The number of one start of a node: the catalog index of the entry that announced it (SES 1).
    StartNumber(u64)
);
number!(
    /// Distinguishes two processes of a node on the wire before their start numbers are known
    /// (DESIGN §8). Those of one data directory ascend, so that of two the later one is known.
    BootNumber(u64)
);

number!(
    /// A random number written into a data directory when it is made. A node that comes back with
    /// another one has lost its data, and its votes do not count (DESIGN §8).
    Incarnation(u64)
);
number!(
    /// Tells the replicas of a group apart that a node has had one after the other (MEM 5). 0: of the
    /// founding of the cluster.
    ReplicaNumber(u32)
);
number!(
    /// A random number drawn when the cluster is formed; nodes of another cluster are refused.
    ClusterId(u64)
);
number!(
    /// How often the last resort was used on the cluster, in the high 16 bits, and a random number: the
    /// last resort on two survivors of one cluster makes two of it (MEM 14). 0: never.
    Epoch(u64)
);
number!(
    /// The place of a command in its session, from 1 without gaps (SES 2).
    Sequence(u64)
);
number!(
    /// The place of a delivery among the deliveries of one consumer, from 1 (DLV 1).
    DeliveryNumber(u64)
);
number!(
    /// The place of a dead letter among those of its queue, from 1, in the order of death (LET 1).
    LetterNumber(u64)
);
number!(
    /// A priority level of a queue. Higher levels are served first.
    Level(u8)
);

/// A replica of a group (MEM 5). One that comes back to a node is a new one, with another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId {
    /// The node that has it.
    pub node: NodeId,
    /// Its number, which the placement that brought it has given.
    pub number: ReplicaNumber,
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.number)
    }
}

impl BootNumber {
    /// Of a process that has opened its data directory for the `opened`th time. `chance` tells
    /// apart what has no other difference: processes of two copies of the directory.
    #[must_use]
    pub fn of_opening(opened: u32, chance: u32) -> Self {
        Self(u64::from(opened) << 32 | u64::from(chance))
    }

    /// How often its data directory had been opened, for this process too.
    #[must_use]
    pub fn opened(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl Epoch {
    /// Bits of the random number.
    const CHANCE_BITS: u32 = 48;

    /// The epoch that the last resort begins in one that ends. `chance` is random.
    #[must_use]
    pub fn after(ended: Self, chance: u64) -> Self {
        let number = u64::from(ended.number().saturating_add(1));
        Self(number << Self::CHANCE_BITS | chance >> (u64::BITS - Self::CHANCE_BITS))
    }

    /// How often the last resort was used.
    #[must_use]
    pub fn number(self) -> u16 {
        (self.0 >> Self::CHANCE_BITS) as u16
    }
}

impl GroupId {
    /// The group that replicates the catalog.
    pub const CATALOG: GroupId = GroupId(0);
}

impl LogIndex {
    /// The index after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The state machine that holds a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Home {
    /// Replicated, in this group.
    Group(GroupId),
    /// Connection-bound, in the memory of this node (DESIGN §2, NAM 8).
    Node(NodeId),
}

/// Who sends dead letters or takes them: each numbers what it sends to each other (LET 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LetterHome {
    /// The letters of a Raft group's queues.
    Group(GroupId),
    /// The connection-bound queues of one start of a node, which end with its process.
    Start(SessionId),
}

impl LetterHome {
    /// The state machine that sends and takes these letters.
    #[must_use]
    pub fn home(self) -> Home {
        match self {
            Self::Group(group) => Home::Group(group),
            Self::Start(session) => Home::Node(session.node),
        }
    }
}

/// A queue's identity, never used again.
///
/// Of a replicated queue: its group, and the log index and position in the entry of its
/// `CreateQueue` (NAM 1). Of a connection-bound one: its node, the node's start number (in
/// `index`) and 64 bits drawn at random (in `position`): a client that does not know it cannot reach the
/// queue, whatever name it is put into (NAM 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId {
    /// The state machine that holds the queue.
    pub home: Home,
    /// Log index of the `CreateQueue`, or the start number.
    pub index: u64,
    /// Position of the `CreateQueue` in its entry, or the random number.
    pub position: u64,
}

impl QueueId {
    /// Where its dead letters come from, and where others' are taken for it.
    #[must_use]
    pub fn letter_home(self) -> LetterHome {
        match self.home {
            Home::Group(group) => LetterHome::Group(group),
            Home::Node(node) => {
                LetterHome::Start(SessionId { node, start: StartNumber(self.index) })
            }
        }
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.home {
            Home::Group(group) => write!(f, "g{group}.{}.{}", self.index, self.position),
            Home::Node(node) => write!(f, "n{node}.{}.{}", self.index, self.position),
        }
    }
}

/// A session: one start of one node, in one group (SES 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Node that the session belongs to.
    pub node: NodeId,
    /// Its start number.
    pub start: StartNumber,
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.node, self.start)
    }
}

/// A consumer, unique over the cluster and for ever: the start of the node that its client is
/// connected to, and a count within that start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId {
    /// The start of the node whose client consumes.
    pub session: SessionId,
    /// Count within that start, from 1.
    pub number: u64,
}

/// Who holds a delivery: a consumer, or a `basic.get`, which counts as a consumer with one
/// delivery and is named by its number in the session (DLV 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A consumer, by its id.
    Consumer(ConsumerId),
    /// A get, named by the session and the sequence of its command.
    Get(SessionId, Sequence),
}

impl Holder {
    /// The start of the node that holds the delivery.
    #[must_use]
    pub fn session(self) -> SessionId {
        match self {
            Holder::Consumer(consumer) => consumer.session,
            Holder::Get(session, _) => session,
        }
    }
}

/// A message's identity within its queue: where it was enqueued (DESIGN §3). Known when its entry
/// is appended; within a level it only grows, so it is also the queue's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// Priority level; 0 is the lowest.
    pub level: Level,
    /// Log index of the entry that carried it.
    pub index: LogIndex,
    /// Position in its run (the messages of that entry for this queue and level), from 0.
    pub position: u32,
}
