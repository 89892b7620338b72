//! What an apply hands out, in three kinds that are never mixed: the reply of each command is
//! returned, a change is written by every replica, an effect is performed by the leader alone.

use crate::{
    command::{Counts, Reply, TransferAnswer},
    tally::{DeadLetterFact, DeadLetterStrategy},
};
use quorate_types::{
    ConsumerId, DeliveryNumber, LetterHome, Level, LogIndex, MessageId, NodeId, QueueId, QueueType,
    Sequence, SessionId, Timestamp,
};

/// Everything that applying one entry hands out. Reused from entry to entry.
#[derive(Debug, Default)]
pub struct Output {
    /// Answers to sessions, in the order of the commands.
    pub answers: Vec<Answer>,
    /// What every replica writes.
    pub changes: Vec<Change>,
    /// What the leader does.
    pub effects: Vec<Effect>,
}

impl Output {
    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.answers.clear();
        self.changes.clear();
        self.effects.clear();
    }
}

/// What the machine has to say to a session about a batch (SES 3, 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All commands numbered `first` to `last` are answered: `Taken` but for those in `other`.
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
    /// There is a gap before the batch: send again from `want`. Nothing is answered (SES 3).
    Want {
        /// Session whose next commands are missing.
        session: SessionId,
        /// Lowest number not yet seen.
        want: Sequence,
    },
    /// The session's start is fenced (SES 6).
    Fenced {
        /// Session that is refused from now on.
        session: SessionId,
    },
    /// The transfers numbered `first` to `last` are answered: `Taken` but for those in `other` (LET 2).
    Transferred {
        /// Who sent them.
        from: LetterHome,
        /// Home that took the transfers.
        by: LetterHome,
        /// First transfer that is answered.
        first: Sequence,
        /// Last transfer that is answered, included.
        last: Sequence,
        /// Answers other than `Taken`, ascending.
        other: Vec<(Sequence, TransferAnswer)>,
    },
    /// There is a gap before the transfers: send again from `want` (SES 3).
    TransfersWanted {
        /// Who sent them.
        from: LetterHome,
        /// Home that misses transfers.
        by: LetterHome,
        /// Lowest number not yet seen.
        want: Sequence,
    },
}

/// A change that every replica makes durable with its next checkpoint. Records are named, not
/// given: a checkpoint encodes each named record once, from the state as it then is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record has changed, or is no more.
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
    /// Of the run at `index` the positions `first` to `last` were not taken (STO 4), or were letters
    /// among fresh messages and have ended (LEN-12). From now on
    /// [`crate::MessageStore`] shows the run without them; a run that is cut as a whole, of a queue
    /// that has ended, for one, holds nothing and may go at once.
    Cut {
        /// Queue that the bodies belong to.
        queue: QueueId,
        /// Priority level of the bodies.
        level: Level,
        /// Log index of the entry that is cut.
        index: LogIndex,
        /// First position in the entry that stays.
        first: u32,
        /// Last position in the entry that stays, included.
        last: u32,
    },
    /// The queue is no more: every run of it up to the applied index goes. No cut of it follows.
    QueueRemoved {
        /// The queue that is no more.
        queue: QueueId,
    },
}

/// Names one record of the state in column family `state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKey {
    /// The group's own: clock, digest, life, continuations.
    Group,
    /// A node's fence and suspicion.
    Node(NodeId),
    /// A session: highest number, answers kept.
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
}

/// Something that the leader does, once it has applied its own term's first entry (STO 7). An
/// effect is a hint, the state is the duty: `obligations` derives what is owed from the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a delivery to the consumer's node (DLV 1).
    Deliver(Delivery),
    /// The queue has ended under the consumer: tell its front end (CON-13).
    CancelConsumer {
        /// The consumer that is cancelled.
        consumer: ConsumerId,
    },
    /// The queue has ended otherwise than by `EndQueue` (auto-delete, expiry, a new life), or by
    /// it: its catalog entry goes, by id (NAM 4). Owed until the reconciler has seen it.
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
    /// Deliveries of the consumer have timed out: its client is to be told (CTO-05). Owed until it
    /// has settled all of them (CTO-06).
    ConsumerTimedOut {
        /// The consumer that did not settle in time.
        consumer: ConsumerId,
        /// The last of them.
        last: DeliveryNumber,
    },
    /// The message that a get held has timed out: its front end closes the channel (CTO-05).
    GetTimedOut {
        /// Session of the get.
        session: SessionId,
        /// Number of the get in its session.
        sequence: Sequence,
    },
    /// Something is to be done for dead letters, which the worker finds in the state: propose `Routed`
    /// for those that have no route yet, send transfers that have got numbers until they are answered
    /// (LET 1), propose `Retry` for a target to which nothing is on the way (LET 3).
    DeadLettersChanged,
    /// Tell the source that this queue, which has refused its letters, has room (LET 3).
    Room {
        /// The queue that has room again.
        queue: QueueId,
        /// Home whose transfers waited for room.
        to: LetterHome,
        /// For so many messages, about.
        messages: u32,
    },
    /// So many of a queue's messages died, or of its letters ended, in this way: for metrics. Not
    /// owed, so what a leader applies before it performs anything is not counted.
    DeadLettersCounted {
        /// The queue's type.
        queue_type: QueueType,
        /// What its settings say of dead letters.
        strategy: DeadLetterStrategy,
        /// What is counted.
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
    /// How often it was held before.
    pub counts: Counts,
}
