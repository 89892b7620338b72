//! The state as records: what a checkpoint writes and a start reads back. The machine's own state
//! is built of these; everything else in it (windows, indexes) is derived from them.

use crate::{
    command::{ConsumerTerms, Counts, MessageHead, Reply},
    config::QueueConfig,
    letter::Letter,
};
use quorate_types::{
    ConsumerId, DeliveryNumber, LetterHome, LetterNumber, Level, LogIndex, MessageId, QueueId,
    ResourceName, Sequence, SessionId, StartNumber, Timestamp, WallTime,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One record. Its key is a [`crate::RecordKey`] of the same variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The group's own.
    Group(GroupRecord),
    /// Record of a node's reachability.
    Node(NodeRecord),
    /// Record of a session's numbers and answers.
    Session(SessionRecord),
    /// Record of a queue without its messages.
    Queue(Box<QueueRecord>),
    /// Record of a consumer and its unacknowledged messages.
    Consumer(ConsumerRecord),
    /// Gets of one session.
    Gets(GetsRecord),
    /// Requeued messages of one level.
    Requeued(RequeuedRecord),
    /// Some letters of a queue.
    Letters(BTreeMap<LetterNumber, Letter>),
    /// Another home that sends letters here.
    Source(SessionRecord),
}

/// The group's own record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRecord {
    /// The replicated clock: stamp of the last entry applied.
    pub time: Timestamp,
    /// Wall time beside it.
    pub wall: WallTime,
    /// Rolling digest of all changes (`quorate ctl audit`).
    pub digest: u64,
    /// Life of the cluster that the group last heard of (DESIGN §7).
    pub life: u64,
    /// Work left over, oldest first.
    pub left_over: VecDeque<LeftOver>,
    /// What the letters of all queues share.
    pub letters: LettersRecord,
}

/// What the letters of a home share (LET 1 to 3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LettersRecord {
    /// Routings so far.
    pub routings: u64,
    /// The last number given in each stream.
    pub streams: BTreeMap<LetterHome, Sequence>,
    /// Attempts of targets that have refused letters.
    pub attempts: BTreeMap<QueueId, Attempt>,
}

/// Where a target stands that has refused letters (LET 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The present attempt.
    pub number: u32,
    /// It has been refused.
    pub refused: bool,
}

/// Work that one apply did not finish, since no apply handles more than a bound of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOver {
    /// Requeue what this session's lost consumers and its gets hold of the queue, and drop them.
    RequeueSession {
        /// Queue that the message is in.
        queue: QueueId,
        /// Session that the consumer belongs to.
        session: SessionId,
        /// Gets up to this number; later ones are of a node that has come back.
        gets_through: Sequence,
        /// Whether it counts towards delivery limits (NDF-01).
        counted: bool,
    },
    /// Go on stabilizing this queue: expired messages die, ready ones go to consumers with
    /// credit, what exceeds a limit is dropped.
    CheckOut {
        /// Queue that is checked out from.
        queue: QueueId,
    },
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRecord {
    /// Starts up to this one are fenced (SES 6).
    pub fenced: StartNumber,
    /// Cannot be reached (DLV 5).
    pub suspected: bool,
}

/// A session (SES 3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// Highest number applied.
    pub last: Sequence,
    /// The sender's mark: it has had all answers below.
    pub mark: Sequence,
    /// Answers other than `Taken`, from the mark on.
    pub answers: BTreeMap<Sequence, Reply>,
}

/// A queue without its messages, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRecord {
    /// Name of the queue, with its virtual host.
    pub name: ResourceName,
    /// Configuration from arguments and policies together.
    pub config: QueueConfig,
    /// The session that created it: it alone adds the catalog entry, and the reconciler ends the
    /// queue only once that start is fenced (NAM 2, 7). `None` if the leader created it.
    pub creator: Option<SessionId>,
    /// Life of the cluster that it was created in.
    pub life: u64,
    /// Last use, for the TTL.
    pub used_at: Timestamp,
    /// When it next has something to do that no command brings; its leader's timer waits for it.
    pub wake_at: Option<Timestamp>,
    /// No delivery times out before (CTO-05).
    pub timeout_at: Option<Timestamp>,
    /// Of a queue with a single active consumer: that one (SAC-01).
    pub active: Option<ConsumerId>,
    /// Consumers that ever came.
    pub arrivals: u64,
    /// It has had a consumer (EXQ-05).
    pub had_consumer: bool,
    /// Levels that hold or held messages.
    pub levels: BTreeMap<Level, LevelRecord>,
    /// Consumers that may be served, in the order of their turn.
    pub service_queue: VecDeque<ConsumerId>,
    /// Number of its last letter.
    pub last_letter: LetterNumber,
    /// The highest attempt refused of each source that has not come with a higher one (LET 3).
    pub refusals: BTreeMap<LetterHome, u32>,
    /// It has ended, and goes with its last letter.
    pub ended: bool,
}

/// One priority level of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelRecord {
    /// Index of the run that the next fresh message is in, or any index from which on the first
    /// run found is that one.
    pub head_index: LogIndex,
    /// Position in that run.
    pub head_position: u32,
    /// Fresh (never assigned) messages from the head on.
    pub fresh: u64,
    /// Bytes of their bodies.
    pub fresh_bytes: u64,
    /// Those of them with an `expiration` of their own.
    pub fresh_expiring: u64,
    /// Every run below this index is settled and handed out as removed.
    pub removed_below: LogIndex,
}

/// A message of a queue: ready, or unacked (a consumer or a get has it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedMessage {
    /// Position of the message in its queue.
    pub message: MessageId,
    /// Times held before.
    pub counts: Counts,
    /// Expiry, priority, size and counts of the message.
    pub head: MessageHead,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// Since when its holder has it; 0 of one that is ready (CTO-05).
    pub unacked_since: Timestamp,
}

/// A consumer and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRecord {
    /// How it consumes.
    pub terms: ConsumerTerms,
    /// Number of its next delivery.
    pub next: DeliveryNumber,
    /// Deliveries up to this number may be assigned.
    pub up_to: DeliveryNumber,
    /// It has been cancelled and only settles what it holds (ACK-10).
    pub cancelled: bool,
    /// Deliveries that timed out and that it has not settled since: until it has settled all of them
    /// it gets no more (CTO-06).
    pub timed_out: BTreeSet<DeliveryNumber>,
    /// Its place among the queue's consumers, in order of arrival (SAC-05).
    pub arrival: u64,
    /// Its node is dead or timed out: cancelled, and what it holds is being requeued.
    pub lost: bool,
    /// It gave messages back and waits for its `Credit` (DLV 6).
    pub paused: bool,
    /// What it holds.
    pub unacked: BTreeMap<DeliveryNumber, QueuedMessage>,
}

/// The gets of one session that hold a message of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetsRecord {
    /// How long they may, unless the queue says otherwise, ms (CTO-04): a setting of the session's node.
    pub timeout_default_ms: Option<u64>,
    /// By the sequence of the get.
    pub unacked: BTreeMap<Sequence, QueuedMessage>,
}

/// Requeued messages of one level, in the queue's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequeuedRecord {
    /// By (index, position).
    pub messages: BTreeMap<(LogIndex, u32), QueuedMessage>,
}

/// Why records do not make a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored state of a queue group: {0}")]
pub struct RecordError(pub String);

/// A level without messages, at the top of the log.
impl LevelRecord {
    /// Ready for a first message at `index`.
    #[must_use]
    pub fn starting_at(index: LogIndex) -> Self {
        Self { head_index: index, removed_below: index, ..Self::default() }
    }
}
