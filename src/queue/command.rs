//! The vocabulary of a group's log: entries, batches, commands, replies.
//!
//! A log entry carries batches of commands, one batch for each session that had something to say,
//! and the heads of the runs that its enqueues refer to. The bodies travel beside it (DESIGN §3).

use crate::{config::QueueConfig, letter::Via};
use quorate_types::{
    CatalogIndex, ConsumerId, DeliveryNumber, Holder, LetterHome, LetterNumber, Level, MessageId,
    NodeId, QueueId, ResourceName, Sequence, SessionId, Stamp, StartNumber,
};
pub use quorate_types::{Counts, Numbers, RequeueCause};

/// One entry of a queue group's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// What the leader's clock said when it cut the entry.
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
    /// Queue that the messages are for.
    pub queue: QueueId,
    /// Priority level, computed by the proposer.
    pub level: Level,
    /// One head a message; its place is the message's position.
    pub messages: Vec<MessageHead>,
}

/// What expiry and limits need to know of a message.
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
    /// Session or line of dead letters that numbers the commands.
    pub origin: Origin,
    /// The commands, in the order of their numbers.
    pub commands: Vec<Command>,
}

/// Who proposes a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A node's proposer, under its session (SES 2, 3).
    Session {
        /// Node and start that number the commands.
        session: SessionId,
        /// Number of the batch's first command.
        first: Sequence,
        /// Lowest number whose answer the sender has not yet had; answers below are forgotten.
        mark: Sequence,
    },
    /// Another home with letters for queues of this one, under its own numbers (LET 1).
    Letters {
        /// Home whose dead letters these are.
        from: LetterHome,
        /// Number of the batch's first command.
        first: Sequence,
        /// Lowest number whose answer the sender has not yet applied (LET 2).
        mark: Sequence,
    },
    /// The group's leader itself: timers, failure detection, continuations. Not numbered; each
    /// such command is harmless when repeated.
    Leader,
}

/// A command on a group's queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Creates a queue; its id is (group, log index, position of this command in the entry,
    /// counted over all batches) (NAM 1, 2).
    CreateQueue {
        /// Name, for reports and for what is told when it ends.
        name: ResourceName,
        /// Its effective settings.
        config: QueueConfig,
        /// Of a connection-bound queue: the position of its id, drawn by its node (NAM 8).
        bound: Option<u64>,
    },
    /// Ends a queue, if the conditions hold (NAM 4, DEL-01, DEL-02).
    EndQueue {
        /// The queue that ends.
        queue: QueueId,
        /// Only without consumers.
        if_unused: bool,
        /// Only without ready messages.
        if_empty: bool,
    },
    /// New effective settings; ignored if resolved at a lower catalog index (NAM 2).
    Configure {
        /// The queue whose configuration changes.
        queue: QueueId,
        /// The whole new configuration.
        config: QueueConfig,
    },
    /// Asks whether the queue lives, for a (re)declare (NAM 3).
    Inspect {
        /// The queue that is inspected.
        queue: QueueId,
        /// A redeclare begins the TTL anew, a passive declare does not.
        renew: bool,
    },
    /// Enqueues `count` messages of run `run` of this entry, from position `first`. The enqueues
    /// of an entry cover each of its runs exactly once, in order.
    Enqueue {
        /// Place of the run in [`Entry::runs`].
        run: u32,
        /// Position of the first message.
        first: u32,
        /// Messages, at least 1.
        count: u32,
    },
    /// Attaches a consumer (`basic.consume`).
    Attach {
        /// The queue that is consumed.
        queue: QueueId,
        /// Consumer; its session is the batch's.
        consumer: ConsumerId,
        /// How it consumes.
        terms: ConsumerTerms,
    },
    /// A consumer ends, by `basic.cancel` or with its channel (DLV 4).
    Detach {
        /// The consumer that leaves.
        consumer: ConsumerId,
        /// Last number that the client was shown. What is held above it goes back unmarked.
        shown: DeliveryNumber,
        /// What becomes of the deliveries at or below `shown`.
        how: Detach,
    },
    /// `basic.ack`: the messages are done with. Numbers no longer held have no effect (DLV 3).
    Ack {
        /// The consumer or channel that holds the deliveries.
        holder: Holder,
        /// Deliveries; `(1, 1)` for a get.
        numbers: Numbers,
    },
    /// Requeued by the client, marked redelivered.
    Requeue {
        /// The consumer or channel that holds the deliveries.
        holder: Holder,
        /// Numbers of the deliveries, within the holder.
        numbers: Numbers,
        /// By which method, since delivery limits count them differently.
        cause: RequeueCause,
    },
    /// `basic.reject` / `basic.nack` without requeue: the messages die, reason `rejected`.
    Discard {
        /// The consumer or channel that holds the deliveries.
        holder: Holder,
        /// Numbers of the deliveries, within the holder.
        numbers: Numbers,
    },
    /// Given back unseen: no count, no redelivered mark; the consumer is paused until its next
    /// `Credit` (DLV 6).
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
    /// `basic.get`: takes one ready message; held by `Holder::Get(session, this sequence)`.
    Get {
        /// The queue that is asked for a message.
        queue: QueueId,
        /// How long the session's gets may hold a message unless the queue says otherwise, ms (CTO-04).
        timeout_default_ms: Option<u64>,
    },
    /// `queue.purge` (DEL-07): all ready messages are removed.
    Purge {
        /// The queue that is emptied.
        queue: QueueId,
    },
    /// The session's node says that it has ended for good: its answers may be forgotten, the
    /// fence stays (SES 6).
    SessionEnded {
        /// The session whose consumers and holders end.
        session: SessionId,
    },
    /// All runs of the node up to `start` are known dead: what they held returns, counted, and
    /// they are fenced (SES 6, Q-62).
    NodeDown {
        /// The node that is down for good, as the catalog says.
        node: NodeId,
        /// Highest dead start.
        start: StartNumber,
    },
    /// The node cannot be reached: no new deliveries to its consumers (DLV 5).
    NodeSuspected {
        /// The node that cannot be reached.
        node: NodeId,
    },
    /// It is back in time: deliveries go on.
    NodeBack {
        /// The node that can be reached again.
        node: NodeId,
    },
    /// What the suspected node's consumers held returns, uncounted, and they are detached.
    NodeTimedOut {
        /// The node that could not be reached for the time of Q-62.
        node: NodeId,
    },
    /// A moment that the queue waited for has come: a message, a delivery or the queue itself may
    /// have expired (Q-21, Q-22, CTO-05).
    ExpireHead {
        /// The queue whose head may have expired.
        queue: QueueId,
    },
    /// Takes up work that an earlier apply left because it would not have been bounded.
    Continue,
    /// One routing of letters of a queue (LET 1).
    Routed {
        /// Queue that they died in.
        queue: QueueId,
        /// Version of the catalog copy that routed them.
        at: CatalogIndex,
        /// What was in force then.
        via: Via,
        /// Letters and where they go.
        letters: Vec<RoutedLetters>,
    },
    /// A dead letter of another home arrives, under that home's own numbers (LET 1).
    Transfer {
        /// Place of its run in [`Entry::runs`].
        run: u32,
        /// Its position there.
        first: u32,
        /// Attempt of the target's in the source (LET 3).
        attempt: u32,
    },
    /// Answers to the transfers with these numbers (LET 2).
    DeadLettered {
        /// Stream, by the home at its end.
        stream: LetterHome,
        /// First answered transfer, by its number.
        first: Sequence,
        /// Last answered transfer, included.
        last: Sequence,
        /// Answers other than `Taken`, ascending.
        other: Vec<(Sequence, TransferAnswer)>,
    },
    /// The first letters that wait for a full target are sent again (LET 3).
    Retry {
        /// Queue that the transfers go to.
        target: QueueId,
        /// Number of transfers to try again.
        count: u32,
    },
    /// A new *life* of the cluster (DESIGN §7): queues that do not outlive a stop of the whole
    /// cluster end.
    NewLife {
        /// Number of the life, from the catalog.
        life: u64,
    },
}

/// Letters with neighbouring numbers that are routed alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedLetters {
    /// First letter of the range.
    pub first: LetterNumber,
    /// Last letter of the range, included.
    pub last: LetterNumber,
    /// Where they go.
    pub routes: Routes,
}

/// What a routing came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routes {
    /// To these queues, each once.
    To(Vec<QueueId>),
    /// Nowhere, and they are kept until something takes them (at-least-once, Q-40).
    Keep,
    /// Nowhere, and they are dropped.
    Drop,
    /// Nowhere but round in a circle, and they are dropped.
    Cycle,
}

/// What a target said to a transfer (LET 2). The number is part of the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TransferAnswer {
    /// The target has the message.
    Taken = 1,
    /// It is full and refuses.
    Full = 2,
    /// It has ended.
    Gone = 3,
}

/// How a consumer consumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerTerms {
    /// Most unsettled deliveries; `None` is no limit of the client's, with `Credit` in force.
    pub prefetch: Option<u32>,
    /// Deliveries up to this number may be assigned at once (DLV 6).
    pub up_to: DeliveryNumber,
    /// `exclusive` of basic.consume.
    pub exclusive: bool,
    /// `x-priority`; consumers with a higher one are served first.
    pub priority: i64,
    /// The client's consumer tag, for lists.
    pub tag: quorate_types::ShortString,
    /// The client does not acknowledge: the front end settles for it, and no delivery times out.
    pub no_ack: bool,
    /// `x-consumer-timeout`, ms, in place of the queue's (CTO-04).
    pub timeout_ms: Option<u64>,
    /// What holds if neither says anything, ms (CTO-01).
    pub timeout_default_ms: Option<u64>,
}

/// How a consumer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    /// `basic.cancel`: what was shown stays with the client to settle (ACK-10).
    Cancel,
    /// Its channel or connection has ended: what was shown returns, marked and counted.
    ChannelEnd,
}

/// The answer to one command of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done as asked. The one answer that is not kept (SES 3).
    Taken,
    /// The queue's id.
    Created(QueueId),
    /// The queue is not, or no more, in this group.
    Gone,
    /// The queue lives.
    Alive(QueueReport),
    /// Ended; ready messages that went with it.
    Ended {
        /// Ready messages at the end.
        ready: u64,
    },
    /// Not ended: it has consumers.
    InUse,
    /// Not ended: it has ready messages.
    NotEmpty,
    /// Of the enqueue's messages these were refused, as inclusive ranges of positions counted
    /// from the enqueue's first (reject-publish).
    Refused(Vec<(u32, u32)>),
    /// Not attached: another consumer is exclusive, or this one would be and is not alone.
    ExclusiveInUse,
    /// The message that a get took.
    Got(Got),
    /// Nothing was ready.
    Empty,
    /// The queue has no room for the transfer (LET 3).
    Full,
    /// Ready messages that were removed.
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
    /// Ready messages left.
    pub ready: u64,
}

/// What a declare shows of a queue that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// Messages that are ready to be delivered.
    pub ready: u64,
    /// Consumers that are attached.
    pub consumers: u32,
    /// Catalog index that its settings were resolved at.
    pub configured_at: CatalogIndex,
}
