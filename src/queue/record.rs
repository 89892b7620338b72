//! The state as records, which a checkpoint writes and a start reads. The machine's state is made
//! of these; everything else in it (windows, indexes) is derived from them.

use crate::{
    command::{ConsumerTerms, Counts, MessageHead, Reply},
    config::QueueConfig,
    letter::Letter,
    task::TaskProgress,
};
use quorate_types::{
    ConsumerId, DeliveryNumber, LetterHome, LetterNumber, Level, LogIndex, MessageId, QueueId,
    ResourceName, Sequence, SessionId, StartNumber, TaskId, Timestamp, WallTime,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One record. Its key is a [`crate::RecordKey`] of the same variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The group's own record.
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
    /// Some returned messages of one level that wait.
    Delayed(DelayedRecord),
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
    /// Wall time of the same entry.
    pub wall: WallTime,
    /// Rolling digest of all changes (`quorate ctl audit`).
    pub digest: u64,
    /// Life of the cluster that the group has seen last (DESIGN §7).
    pub life: u64,
    /// Left-over work, oldest first.
    pub left_over: VecDeque<LeftOver>,
    /// State shared by the letters of all queues.
    pub letters: LettersRecord,
}

/// State shared by the letters of a home (LET 1 to 3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LettersRecord {
    /// Number of routings so far.
    pub routings: u64,
    /// The last number assigned in each stream.
    pub streams: BTreeMap<LetterHome, Sequence>,
    /// Attempts of targets that have refused letters.
    pub attempts: BTreeMap<QueueId, Attempt>,
}

/// The state of a target that has refused letters (LET 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Number of the present attempt.
    pub number: u32,
    /// The present attempt was refused.
    pub refused: bool,
}

/// Work that one apply did not finish, because an apply handles a bounded number of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOver {
    /// Requeue the messages of the queue that this session's lost consumers and its gets hold, and
    /// remove those consumers.
    RequeueSession {
        /// Queue that the messages are in.
        queue: QueueId,
        /// Session that the holders belong to.
        session: SessionId,
        /// Gets up to this number; later ones belong to a node that has come back.
        gets_through: Sequence,
        /// True if the returns count towards delivery limits (NDF-01).
        counted: bool,
    },
    /// Continue to stabilize this queue: expired messages die, ready messages are assigned to
    /// consumers with credit, messages above a limit are dropped.
    CheckOut {
        /// Queue that is stabilized.
        queue: QueueId,
    },
}

/// The record of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRecord {
    /// Starts up to this one are fenced (SES 6).
    pub fenced: StartNumber,
    /// The node is suspected to be unreachable (DLV 5).
    pub suspected: bool,
}

/// A session (SES 3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// Highest number applied.
    pub last: Sequence,
    /// The sender's mark: it has received all answers below.
    pub mark: Sequence,
    /// Answers other than `Taken`, from the mark on.
    pub answers: BTreeMap<Sequence, Reply>,
}

/// A queue without its messages, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRecord {
    /// Name of the queue, with its virtual host.
    pub name: ResourceName,
    /// Effective settings, from arguments and policies.
    pub config: QueueConfig,
    /// The session that created the queue: only that session adds the catalog entry, and the
    /// reconciler ends the queue only once that start is fenced (NAM 2, 7). `None` if the leader
    /// created it.
    pub creator: Option<SessionId>,
    /// Life of the cluster in which it was created.
    pub life: u64,
    /// Last use, for the TTL.
    pub used_at: Timestamp,
    /// The next time at which the queue has work without a command; its leader's timer waits for
    /// it.
    pub wake_at: Option<Timestamp>,
    /// No delivery times out before this time (CTO-05).
    pub timeout_at: Option<Timestamp>,
    /// The active consumer of a queue with a single active consumer (SAC-01).
    pub active: Option<ConsumerId>,
    /// Number of consumers that have ever attached.
    pub arrivals: u64,
    /// It has had a consumer (EXQ-05).
    pub had_consumer: bool,
    /// Levels that have or had messages.
    pub levels: BTreeMap<Level, LevelRecord>,
    /// Consumers that may be served, in the order of service.
    pub service_queue: VecDeque<ConsumerId>,
    /// Number of its last letter.
    pub last_letter: LetterNumber,
    /// The highest refused attempt of each source that has not sent a higher one since (LET 3).
    pub refusals: BTreeMap<LetterHome, u32>,
    /// The queue has ended, and is removed with its last letter.
    pub ended: bool,
    /// Tasks that take messages out of the queue.
    pub tasks: BTreeMap<TaskId, TaskProgress>,
}

/// One priority level of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelRecord {
    /// Index of the run of the next fresh message, or a lower index from which that run is the
    /// first one found.
    pub head_index: LogIndex,
    /// Position in that run.
    pub head_position: u32,
    /// Fresh (never assigned) messages from the head on.
    pub fresh: u64,
    /// Bytes of their bodies.
    pub fresh_bytes: u64,
    /// Those of them with an `expiration` of their own.
    pub fresh_expiring: u64,
    /// Every run below this index is settled, and its removal was returned.
    pub removed_below: LogIndex,
}

/// A message of a queue: ready, or unacked (held by a consumer or a get).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedMessage {
    /// Position of the message in its queue.
    pub message: MessageId,
    /// Times it was acquired and returned before.
    pub counts: Counts,
    /// Size of the body and expiration of the message.
    pub head: MessageHead,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// Since when its holder has it; 0 if it is ready (CTO-05).
    pub unacked_since: Timestamp,
}

/// A consumer and its unacked messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRecord {
    /// Properties of the consumer.
    pub terms: ConsumerTerms,
    /// Number of its next delivery.
    pub next: DeliveryNumber,
    /// Deliveries up to this number may be assigned.
    pub up_to: DeliveryNumber,
    /// The consumer was cancelled and only settles its messages (ACK-10).
    pub cancelled: bool,
    /// Deliveries that timed out and have not been settled since: until the consumer has settled
    /// all of them it gets no more (CTO-06).
    pub timed_out: BTreeSet<DeliveryNumber>,
    /// Its number among the queue's consumers, in order of arrival (SAC-05).
    pub arrival: u64,
    /// Its node is dead or timed out: the consumer is cancelled, and its messages are being
    /// requeued.
    pub lost: bool,
    /// The consumer gave messages back and waits for its `Credit` (DLV 6).
    pub paused: bool,
    /// Unacked messages.
    pub unacked: BTreeMap<DeliveryNumber, QueuedMessage>,
}

/// The gets of one session that hold a message of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetsRecord {
    /// How long gets may hold a message unless the queue sets another time, ms (CTO-04): a setting
    /// of the session's node.
    pub timeout_default_ms: Option<u64>,
    /// Messages by the sequence of their get.
    pub unacked: BTreeMap<Sequence, QueuedMessage>,
}

/// Requeued messages of one level, in the queue's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequeuedRecord {
    /// Messages by (index, position).
    pub messages: BTreeMap<(LogIndex, u32), QueuedMessage>,
}

/// Some returned messages of one level that wait before they are ready again (RQU-08): those of one
/// page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayedRecord {
    /// The time at which each becomes ready, and the message, by index and position.
    pub messages: BTreeMap<(LogIndex, u32), (Timestamp, QueuedMessage)>,
}

/// Why records cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored state of a queue group: {0}")]
pub struct RecordError(pub String);

/// A level without messages, at index 0.
impl LevelRecord {
    /// A level whose first message will have the log index `index`.
    #[must_use]
    pub fn starting_at(index: LogIndex) -> Self {
        Self { head_index: index, removed_below: index, ..Self::default() }
    }
}
