//! The output of apply, in three kinds that are never mixed: answers to sessions, changes that
//! every replica writes, and effects that only the leader performs.

use crate::{
    command::{Counts, Reply, TransferAnswer},
    tally::{DeadLetterFact, DeadLetterStrategy},
};
use quorate_types::{
    ConsumerId, DeliveryNumber, LetterHome, Level, LogIndex, MessageId, NodeId, QueueId, QueueType,
    Sequence, SessionId, Timestamp,
};

/// The output of one entry. The value is reused for later entries.
#[derive(Debug, Default)]
pub struct Output {
    /// Answers to sessions, in the order of the commands.
    pub answers: Vec<Answer>,
    /// Changes, which every replica writes.
    pub changes: Vec<Change>,
    /// Effects, which the leader performs.
    pub effects: Vec<Effect>,
}

impl Output {
    /// Empties the output and keeps its memory.
    pub fn clear(&mut self) {
        self.answers.clear();
        self.changes.clear();
        self.effects.clear();
    }
}

/// The machine's answer to a batch of a session or stream (SES 3, 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All commands numbered `first` to `last` are answered: `Taken` except for those in `other`.
    Answered {
        /// Session whose commands are answered.
        session: SessionId,
        /// First number that is answered.
        first: Sequence,
        /// Last number that is answered, included.
        last: Sequence,
        /// Answers other than `Taken`, in ascending order.
        other: Vec<(Sequence, Reply)>,
    },
    /// A gap precedes the batch: send again from `want`. No command is answered (SES 3).
    Want {
        /// Session whose next commands are missing.
        session: SessionId,
        /// Lowest number not yet seen.
        want: Sequence,
    },
    /// The session's start is fenced (SES 6).
    Fenced {
        /// Session whose commands are refused from now on.
        session: SessionId,
    },
    /// The transfers numbered `first` to `last` are answered: `Taken` except for those in `other`
    /// (LET 2).
    Transferred {
        /// Home that sent them.
        from: LetterHome,
        /// Home that answers.
        by: LetterHome,
        /// First transfer that is answered.
        first: Sequence,
        /// Last transfer that is answered, included.
        last: Sequence,
        /// Answers other than `Taken`, ascending.
        other: Vec<(Sequence, TransferAnswer)>,
    },
    /// A gap precedes the transfers: send again from `want` (SES 3).
    TransfersWanted {
        /// Home that sent them.
        from: LetterHome,
        /// Home that misses transfers.
        by: LetterHome,
        /// Lowest number not yet seen.
        want: Sequence,
    },
}

/// A change that every replica makes durable with its next checkpoint. Records are named by their
/// keys: a checkpoint encodes each record once, from the state at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record has changed or was removed.
    Record(RecordKey),
    /// All messages of the runs with `first` ≤ index ≤ `last` of that queue and level are settled.
    Removed {
        /// Queue that the bodies belong to.
        queue: QueueId,
        /// Priority level of the bodies.
        level: Level,
        /// First log index of the range.
        first: LogIndex,
        /// Last log index of the range, included.
        last: LogIndex,
    },
    /// The messages at positions `first` to `last` of the run at `index` were not accepted (STO 4),
    /// or were letters among fresh messages and have ended (LEN-12). From now on
    /// [`crate::MessageStore`] shows the run without them. A run that is cut completely, for
    /// example of a queue that has ended, is empty and may be deleted at once.
    Cut {
        /// Queue that the bodies belong to.
        queue: QueueId,
        /// Priority level of the bodies.
        level: Level,
        /// Log index of the entry that is cut.
        index: LogIndex,
        /// First position that is cut.
        first: u32,
        /// Last position that is cut, included.
        last: u32,
    },
    /// The queue has ended: all its runs up to the applied index are removed. No cut of them
    /// follows.
    QueueRemoved {
        /// The queue that has ended.
        queue: QueueId,
    },
}

/// The key of one record of the state in column family `state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKey {
    /// The group's own record: clock, digest, life, left-over work.
    Group,
    /// A node's fence and suspicion.
    Node(NodeId),
    /// A session: highest number, stored answers.
    Session(SessionId),
    /// A queue: settings, heads, counts.
    Queue(QueueId),
    /// A consumer and what it holds.
    Consumer(QueueId, ConsumerId),
    /// The gets of one session that hold a message of this queue.
    Gets(QueueId, SessionId),
    /// Requeued messages of one level of a queue.
    Requeued(QueueId, Level),
    /// Some letters of a queue.
    Letters(QueueId, u64),
    /// Another home that sends letters here.
    Source(LetterHome),
    /// Some returned messages of one level of a queue that wait: one page.
    Delayed(QueueId, Level, u64),
}

/// An action of the leader, performed once the leader has applied the first entry of its own term
/// (STO 7). An effect is only a hint: `obligations` derives all owed effects from the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a delivery to the consumer's node (DLV 1).
    Deliver(Delivery),
    /// The consumer's queue has ended: inform its front end (CON-13).
    CancelConsumer {
        /// The consumer that is cancelled.
        consumer: ConsumerId,
    },
    /// The queue has ended, by `EndQueue` or otherwise (auto-delete, TTL, a new life): its catalog
    /// entry is removed, by id (NAM 4). Owed until the reconciler has seen it.
    QueueEnded {
        /// The queue that has ended.
        queue: QueueId,
    },
    /// Propose `ExpireHead` for the queue at that moment.
    WakeAt {
        /// The queue whose timer is set.
        queue: QueueId,
        /// When the queue has to be checked, by the group's clock.
        time: Timestamp,
    },
    /// Propose `Continue`: work is left over.
    ContinueSoon,
    /// Deliveries of the consumer have timed out: inform its client (CTO-05). Owed until it has
    /// settled all of them (CTO-06).
    ConsumerTimedOut {
        /// The consumer that did not settle in time.
        consumer: ConsumerId,
        /// The last delivery that timed out.
        last: DeliveryNumber,
    },
    /// The message of a get has timed out: its front end closes the channel (CTO-05).
    GetTimedOut {
        /// Session of the get.
        session: SessionId,
        /// Number of the get in its session.
        sequence: Sequence,
    },
    /// The dead-letter worker has work, which it finds in the state: propose `Routed` for letters
    /// without a route, send numbered transfers until they are answered (LET 1), propose `Retry`
    /// for a target without transfers in flight (LET 3).
    DeadLettersChanged,
    /// Inform the source that this queue, which has refused its letters, has room (LET 3).
    Room {
        /// The queue that has room again.
        queue: QueueId,
        /// Home whose transfers waited for room.
        to: LetterHome,
        /// Approximate number of messages that there is room for.
        messages: u32,
    },
    /// This number of a queue's messages died, or of its letters ended, in this way: for metrics.
    /// Not owed: what a leader applies before it performs effects is not counted.
    DeadLettersCounted {
        /// The queue's type.
        queue_type: QueueType,
        /// The queue's dead-letter strategy.
        strategy: DeadLetterStrategy,
        /// The event that is counted.
        fact: DeadLetterFact,
        /// Number of dead letters.
        count: u64,
    },
}

/// One message that is assigned to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Consumer that gets the message.
    pub consumer: ConsumerId,
    /// Number of the delivery, within the consumer.
    pub number: DeliveryNumber,
    /// Queue that the message is in.
    pub queue: QueueId,
    /// Position of the message in its queue.
    pub message: MessageId,
    /// Times it was acquired and returned before.
    pub counts: Counts,
}
