//! What a channel asks of the broker and waits for, and the answers.

use crate::request::{
    BindRequest, Consume, DeclareOk, ExchangeDeclare, GetOk, Publish, QueueDeclare, Settle,
};
use quorate_types::{ConsumerId, ShortString};

/// A request of a channel that has an answer.
#[derive(Clone, Debug)]
pub enum Operation {
    /// `exchange.declare`.
    ExchangeDeclare(ExchangeDeclare),
    /// `exchange.declare`, passive.
    ExchangeExists(ShortString),
    /// Whether clients may publish to it (PUB-01).
    Publishable(ShortString),
    /// `exchange.delete`.
    ExchangeDelete {
        /// Name.
        exchange: ShortString,
        /// `if-unused`.
        if_unused: bool,
    },
    /// `exchange.bind`.
    ExchangeBind(BindRequest),
    /// `exchange.unbind`.
    ExchangeUnbind(BindRequest),
    /// `queue.declare`.
    QueueDeclare(QueueDeclare),
    /// `queue.declare`, passive.
    QueueExists(ShortString),
    /// `queue.bind`.
    QueueBind(BindRequest),
    /// `queue.unbind`.
    QueueUnbind(BindRequest),
    /// `queue.purge`.
    QueuePurge(ShortString),
    /// `queue.delete`.
    QueueDelete {
        /// Name.
        queue: ShortString,
        /// `if-unused`.
        if_unused: bool,
        /// `if-empty`.
        if_empty: bool,
    },
    /// `basic.consume`. An empty tag asks for one (CON-01).
    Consume(Box<Consume>),
    /// Consumes from the pseudo-queue of direct reply-to (DRT-01); the tag as above.
    ConsumeReplies {
        /// Consumer tag.
        tag: ShortString,
    },
    /// `basic.cancel`.
    Cancel(ConsumerId),
    /// `basic.get`.
    Get {
        /// Queue.
        queue: ShortString,
        /// `no-ack`.
        no_ack: bool,
    },
    /// Routes a publish of the channel's transaction, which the broker keeps until the transaction
    /// ends (TX-03).
    Route(Box<Publish>),
    /// Sends what the channel's transaction has published, then settles what it has settled (TX-05).
    Commit {
        /// What is settled with the commit.
        settles: Vec<Settle>,
    },
}

/// The broker's answer to an operation.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// To a declare of a queue.
    Declared(DeclareOk),
    /// Ready messages removed.
    Removed(u64),
    /// To [`Operation::Consume`].
    Consuming {
        /// The consumer.
        consumer: ConsumerId,
        /// Its tag, given or made.
        tag: ShortString,
    },
    /// As [`Answer::Consuming`], with the name that replies are to be sent to (DRT-02).
    ConsumingReplies {
        /// The consumer.
        consumer: ConsumerId,
        /// Its tag, given or made.
        tag: ShortString,
        /// Where replies are sent.
        name: ShortString,
    },
    /// To [`Operation::Get`]; `None`: the queue is empty.
    Got(Option<Box<GetOk>>),
    /// To [`Operation::Route`]: bytes that the broker keeps. `None`: no queue takes the message.
    Routed(Option<usize>),
}
