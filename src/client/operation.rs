//! Requests of a channel that have an answer, and the answers.

use crate::request::{
    BindRequest, Consume, DeclareOk, ExchangeDeclare, GetOk, Publish, QueueDeclare, Settle,
};
use quorate_types::{ConsumerId, ShortString};

/// A request of a channel that has an answer.
#[derive(Clone, Debug)]
pub enum Operation {
    /// `exchange.declare` that is not passive.
    ExchangeDeclare(ExchangeDeclare),
    /// `exchange.declare`, passive: whether the exchange exists.
    ExchangeExists(ShortString),
    /// Whether clients may publish to it (PUB-01).
    Publishable(ShortString),
    /// `exchange.delete`, by the exchange's name.
    ExchangeDelete {
        /// Name of the exchange in the connection's virtual host.
        exchange: ShortString,
        /// `if-unused`: only if nothing is bound to it.
        if_unused: bool,
    },
    /// `exchange.bind`: source to destination exchange.
    ExchangeBind(BindRequest),
    /// `exchange.unbind`: the binding with exactly these arguments.
    ExchangeUnbind(BindRequest),
    /// `queue.declare` that is not passive.
    QueueDeclare(QueueDeclare),
    /// `queue.declare`, passive: whether the queue exists, and its counts.
    QueueExists(ShortString),
    /// `queue.bind`: exchange to queue.
    QueueBind(BindRequest),
    /// `queue.unbind`: the binding with exactly these arguments.
    QueueUnbind(BindRequest),
    /// `queue.purge`, by the queue's name.
    QueuePurge(ShortString),
    /// `queue.delete`, by the queue's name.
    QueueDelete {
        /// Name of the queue in the connection's virtual host.
        queue: ShortString,
        /// `if-unused`: only if it has no consumers.
        if_unused: bool,
        /// `if-empty`: only if it has no ready messages.
        if_empty: bool,
    },
    /// `basic.consume`. An empty tag asks for one (CON-01).
    Consume(Box<Consume>),
    /// Consumes from the pseudo-queue of direct reply-to (DRT-01); the tag as above.
    ConsumeReplies {
        /// Consumer tag, chosen by the client or for it.
        tag: ShortString,
    },
    /// `basic.cancel` of a consumer of this connection.
    Cancel(ConsumerId),
    /// `basic.get` of one message.
    Get {
        /// Name of the queue in the connection's virtual host.
        queue: ShortString,
        /// `no-ack`: the message counts as settled once it is sent.
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
    /// The operation was carried out; there is nothing more to say.
    Done,
    /// Answer to a declare of a queue.
    Declared(DeclareOk),
    /// Ready messages removed.
    Removed(u64),
    /// Answer to [`Operation::Consume`].
    Consuming {
        /// Id under which deliveries and settles name the consumer.
        consumer: ConsumerId,
        /// Its consumer tag, chosen by the client or by the broker.
        tag: ShortString,
    },
    /// As [`Answer::Consuming`], with the name that replies are to be sent to (DRT-02).
    ConsumingReplies {
        /// Id under which deliveries and settles name the consumer.
        consumer: ConsumerId,
        /// Its consumer tag, chosen by the client or by the broker.
        tag: ShortString,
        /// Where replies are sent.
        name: ShortString,
    },
    /// Answer to [`Operation::Get`]; `None`: the queue is empty.
    Got(Option<Box<GetOk>>),
    /// Answer to [`Operation::Route`]: bytes that the broker keeps. `None`: no queue takes the message.
    Routed(Option<usize>),
}
