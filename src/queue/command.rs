//! The contents of a group's log: entries, batches, commands, replies.
//!
//! A log entry carries batches of commands, at most one batch for each session, and the heads of
//! the runs that its enqueues refer to. The bodies are sent and stored beside it (DESIGN §3).

use crate::{config::QueueConfig, letter::Via};
use quorate_types::{
    CatalogIndex, ConsumerId, DeliveryNumber, Holder, LetterHome, LetterNumber, Level, LogIndex,
    MessageId, NodeId, QueueId, ResourceName, Sequence, SessionId, Stamp, StartNumber, TaskId,
};
pub use quorate_types::{Counts, Numbers, RequeueCause};

/// One entry of a queue group's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Time of the leader's clock when it made the entry.
    pub stamp: Stamp,
    /// Heads of the runs that the enqueues of this entry refer to, at most one for each
    /// (queue, level). Their bodies are stored under the same (queue, level, index).
    pub runs: Vec<Run>,
    /// Batches, applied in this order.
    pub batches: Vec<Batch>,
}

/// The messages of one entry for one queue and level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Queue to which the messages belong.
    pub queue: QueueId,
    /// Priority level, computed by the proposer.
    pub level: Level,
    /// One head for each message; its index is the message's position.
    pub messages: Vec<MessageHead>,
}

/// The properties of a message that expiry and limits need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageHead {
    /// Bytes of the body.
    pub body_bytes: u32,
    /// The message's own `expiration`, ms.
    pub expiration_ms: Option<u64>,
}

/// Commands of one origin, numbered from `first` without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Session, or stream of dead letters, that numbers the commands.
    pub origin: Origin,
    /// The commands, in the order of their numbers.
    pub commands: Vec<Command>,
}

/// The sender of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A node's proposer, in its session (SES 2, 3).
    Session {
        /// Node and start that number the commands.
        session: SessionId,
        /// Number of the batch's first command.
        first: Sequence,
        /// Lowest number whose answer the sender has not received; answers below are deleted.
        mark: Sequence,
    },
    /// Another home that sends dead letters for queues of this home, under its own numbers (LET 1).
    Letters {
        /// Home that sends the dead letters.
        from: LetterHome,
        /// Number of the batch's first command.
        first: Sequence,
        /// Lowest number whose answer the sender has not yet applied (LET 2).
        mark: Sequence,
    },
    /// The group's leader itself: timers, failure detection, continuations. These commands are not
    /// numbered; a repeat of each is harmless.
    Leader,
}

/// A command on a group's queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Creates a queue; its id is (group, log index, position of this command in the entry,
    /// counted over all batches) (NAM 1, 2).
    CreateQueue {
        /// Name, for reports and for events about its end.
        name: ResourceName,
        /// Its effective settings.
        config: QueueConfig,
        /// For a connection-bound queue: the position of its id, drawn by its node (NAM 8).
        bound: Option<u64>,
    },
    /// Ends a queue, if the conditions are met (NAM 4, DEL-01, DEL-02).
    EndQueue {
        /// The queue that ends.
        queue: QueueId,
        /// Only if it has no consumers.
        if_unused: bool,
        /// Only if it has no ready messages.
        if_empty: bool,
    },
    /// New effective settings; ignored if resolved at a lower catalog index (NAM 2).
    Configure {
        /// The queue whose configuration changes.
        queue: QueueId,
        /// The whole new configuration.
        config: QueueConfig,
    },
    /// Asks whether the queue exists, for a (re)declare (NAM 3).
    Inspect {
        /// The queue that is inspected.
        queue: QueueId,
        /// A redeclare restarts the queue's TTL, a passive declare does not.
        renew: bool,
    },
    /// Enqueues `count` messages of run `run` of this entry, from position `first`. The enqueues
    /// of an entry cover each of its runs exactly once, in order.
    Enqueue {
        /// Index of the run in [`Entry::runs`].
        run: u32,
        /// Position of the first message.
        first: u32,
        /// Number of messages, at least 1.
        count: u32,
    },
    /// Attaches a consumer (`basic.consume`).
    Attach {
        /// The queue that is consumed.
        queue: QueueId,
        /// Consumer; its session is the batch's.
        consumer: ConsumerId,
        /// Properties of the consumer.
        terms: ConsumerTerms,
    },
    /// A consumer ends, by `basic.cancel` or with its channel (DLV 4).
    Detach {
        /// The consumer that ends.
        consumer: ConsumerId,
        /// Last number that was shown to the client. Deliveries above it are requeued unmarked.
        shown: DeliveryNumber,
        /// How deliveries at or below `shown` are handled.
        how: Detach,
    },
    /// `basic.ack`: the messages are settled. Numbers that are not held any more have no effect
    /// (DLV 3).
    Ack {
        /// The consumer or channel that holds the deliveries.
        holder: Holder,
        /// Deliveries; `(1, 1)` for a get.
        numbers: Numbers,
    },
    /// The client requeues messages; they are marked as redelivered.
    Requeue {
        /// The consumer or channel that holds the deliveries.
        holder: Holder,
        /// Numbers of the deliveries, within the holder.
        numbers: Numbers,
        /// The method, since delivery limits count the methods differently.
        cause: RequeueCause,
    },
    /// `basic.reject` / `basic.nack` without requeue: the messages die, reason `rejected`.
    Discard {
        /// The consumer or channel that holds the deliveries.
        holder: Holder,
        /// Numbers of the deliveries, within the holder.
        numbers: Numbers,
    },
    /// Gives messages back that the client has not seen: without a count and without the
    /// redelivered mark. The consumer is paused until its next `Credit` (DLV 6).
    Release {
        /// The consumer or channel that holds the deliveries.
        holder: Holder,
        /// Numbers of the deliveries, within the holder.
        numbers: Numbers,
    },
    /// Deliveries up to this number may be assigned (DLV 6).
    Credit {
        /// The consumer that may be assigned more.
        consumer: ConsumerId,
        /// Highest delivery number that it may be assigned.
        up_to: DeliveryNumber,
    },
    /// `basic.get`: takes one ready message, which `Holder::Get(session, sequence of this command)`
    /// then holds.
    Get {
        /// The queue that the message is taken from.
        queue: QueueId,
        /// How long the session's gets may hold a message unless the queue sets another time, ms
        /// (CTO-04).
        timeout_default_ms: Option<u64>,
    },
    /// `queue.purge` (DEL-07): all ready messages are removed.
    Purge {
        /// The queue that is emptied.
        queue: QueueId,
    },
    /// The session's node reports that the session has ended for good: its answers are deleted, the
    /// fence stays (SES 6).
    SessionEnded {
        /// The session whose consumers and holders end.
        session: SessionId,
    },
    /// All starts of the node up to `start` are known to be dead: the messages that they held are
    /// requeued and counted, and the starts are fenced (SES 6, Q-62).
    NodeDown {
        /// The node that is down for good, by the catalog.
        node: NodeId,
        /// Highest dead start.
        start: StartNumber,
    },
    /// The node cannot be reached: no new deliveries to its consumers (DLV 5).
    NodeSuspected {
        /// The node that cannot be reached.
        node: NodeId,
    },
    /// The node is reachable again before the time-out: deliveries continue.
    NodeBack {
        /// The node that can be reached again.
        node: NodeId,
    },
    /// The messages of the suspected node's consumers are requeued, uncounted, and the consumers
    /// are detached.
    NodeTimedOut {
        /// The node that could not be reached for the time of Q-62.
        node: NodeId,
    },
    /// A moment that the queue waited for has come: the TTL of a message, the time-out of a
    /// delivery or the TTL of the queue itself may have run out (Q-21, Q-22, CTO-05).
    ExpireHead {
        /// The queue whose head may have expired.
        queue: QueueId,
    },
    /// Continues work that an earlier apply has left over because of its bound.
    Continue,
    /// Commits one routing of letters of a queue (LET 1).
    Routed {
        /// Queue in which the letters died.
        queue: QueueId,
        /// Version of the catalog copy that routed them.
        at: CatalogIndex,
        /// The dead-letter settings that were in force then.
        via: Via,
        /// The letters with their destinations.
        letters: Vec<RoutedLetters>,
    },
    /// A dead letter of another home arrives, numbered by that home (LET 1).
    Transfer {
        /// Index of its run in [`Entry::runs`].
        run: u32,
        /// Its position in the run.
        first: u32,
        /// Number of the attempt to send to this target (LET 3).
        attempt: u32,
    },
    /// Answers to the transfers with these numbers (LET 2).
    DeadLettered {
        /// Stream, named by the home at its other end.
        stream: LetterHome,
        /// First answered transfer, by its number.
        first: Sequence,
        /// Last answered transfer, included.
        last: Sequence,
        /// Answers other than `Taken`, ascending.
        other: Vec<(Sequence, TransferAnswer)>,
    },
    /// Numbers are assigned again to the first letters that wait for a full target (LET 3).
    Retry {
        /// Queue that the transfers go to.
        target: QueueId,
        /// Number of transfers to try again.
        count: u32,
    },
    /// A step of a task that takes messages out of a queue.
    TaskStep(Box<TaskStep>),
    /// A task of a queue has ended, and the catalog has its last progress.
    ForgetTask {
        /// The queue that messages were taken from.
        queue: QueueId,
        /// The task.
        task: TaskId,
    },
    /// A new *life* of the cluster (DESIGN §7): queues that do not outlive a stop of the whole
    /// cluster end.
    NewLife {
        /// Number of the life, from the catalog.
        life: u64,
    },
    /// The group goes on from one replica, as all others do (MEM 14). From machine version 4 on, and never
    /// proposed: it is written into the log of a node that does not run.
    LastResort,
}

/// A step of a task: what was looked at, and what is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStep {
    /// The queue that messages are taken from.
    pub queue: QueueId,
    /// The task.
    pub task: TaskId,
    /// Only messages of entries below this index are looked at; counts in the first step only.
    pub until: LogIndex,
    /// Version of the catalog copy that routed the messages.
    pub at: CatalogIndex,
    /// The place at which the step begins; no effect if the task is somewhere else.
    pub from: MessageId,
    /// The place at which the next step begins; `None`: this is the last one.
    pub next: Option<MessageId>,
    /// Number of messages that were looked at and are not meant.
    pub skipped: u64,
    /// Number of messages that are meant and have no target.
    pub no_target: u64,
    /// Number of messages that would be taken if this were not a dry run.
    pub matched: u64,
    /// What is taken.
    pub takes: Vec<Take>,
}

/// Messages that are taken together. Those that are not ready any more are left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// Where they go.
    pub to: TakeTo,
    /// The messages, in the order of the queue.
    pub messages: Vec<MessageId>,
}

/// Where messages go that a task takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeTo {
    /// They are deleted.
    Nowhere,
    /// Into other queues.
    Queues {
        /// Exchange and key that the messages have there.
        via: Via,
        /// The queues; each gets every message once.
        targets: Vec<QueueId>,
    },
}

/// Letters with consecutive numbers and equal destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedLetters {
    /// First letter of the range.
    pub first: LetterNumber,
    /// Last letter of the range, included.
    pub last: LetterNumber,
    /// The destinations.
    pub routes: Routes,
}

/// The result of a routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routes {
    /// The letters are sent to these queues, each once.
    To(Vec<QueueId>),
    /// No destination; the letters are kept until there is one (at-least-once, Q-40).
    Keep,
    /// No destination; the letters are dropped.
    Drop,
    /// All destinations would form a cycle; the letters are dropped.
    Cycle,
}

/// The answer of a target to a transfer (LET 2). The number is part of the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TransferAnswer {
    /// The target has the message.
    Taken = 1,
    /// The target is full and refuses the message.
    Full = 2,
    /// The target has ended.
    Gone = 3,
}

/// Properties of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerTerms {
    /// Maximum of unsettled deliveries; `None`: the client set no limit, and only `Credit` limits.
    pub prefetch: Option<u32>,
    /// Deliveries up to this number may be assigned at once (DLV 6).
    pub up_to: DeliveryNumber,
    /// `exclusive` of basic.consume.
    pub exclusive: bool,
    /// `x-priority`; consumers with a higher one are served first.
    pub priority: i64,
    /// The client's consumer tag, for lists.
    pub tag: quorate_types::ShortString,
    /// The client does not acknowledge: the front end settles for it, and deliveries do not time
    /// out.
    pub no_ack: bool,
    /// `x-consumer-timeout`, ms; it wins over the queue's (CTO-04).
    pub timeout_ms: Option<u64>,
    /// Time-out if neither the consumer nor the queue sets one, ms (CTO-01).
    pub timeout_default_ms: Option<u64>,
}

/// How a consumer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    /// `basic.cancel`: the client still settles the deliveries that it was shown (ACK-10).
    Cancel,
    /// Its channel or connection has ended: deliveries that were shown are requeued, marked and
    /// counted.
    ChannelEnd,
}

/// The answer to one command of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The command was carried out. The only answer that is not stored (SES 3).
    Taken,
    /// The queue was created; its id.
    Created(QueueId),
    /// The group does not have the queue, or not any more.
    Gone,
    /// The queue exists.
    Alive(QueueReport),
    /// The queue has ended.
    Ended {
        /// Ready messages at the end.
        ready: u64,
    },
    /// The queue was not ended: it has consumers.
    InUse,
    /// The queue was not ended: it has ready messages.
    NotEmpty,
    /// These messages of the enqueue were refused, as inclusive ranges of positions counted from
    /// the enqueue's first (reject-publish).
    Refused(Vec<(u32, u32)>),
    /// The consumer was not attached: another consumer is exclusive, or this one asks to be
    /// exclusive and others exist.
    ExclusiveInUse,
    /// The message that a get took.
    Got(Got),
    /// No message was ready.
    Empty,
    /// The queue has no room for the transfer (LET 3).
    Full,
    /// The ready messages were removed.
    Purged {
        /// Number of messages that were removed.
        messages: u64,
    },
}

/// A message that a get took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    /// Queue that the message was taken from.
    pub queue: QueueId,
    /// Position of the message in its queue.
    pub message: MessageId,
    /// How often it was acquired and returned before.
    pub counts: Counts,
    /// Number of ready messages left.
    pub ready: u64,
}

/// The facts about an existing queue that a declare returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// Number of ready messages.
    pub ready: u64,
    /// Number of attached consumers.
    pub consumers: u32,
    /// Catalog index at which its settings were resolved.
    pub configured_at: CatalogIndex,
}
