//! Events that the broker sends to a connection unasked.

use crate::request::ChannelId;
use quorate_types::{ConsumerId, Exception, Message, ShortString};

/// An event for a connection.
#[derive(Clone, Debug)]
pub enum Event {
    /// Publishes `first` to `last` of the channel are done: all taken, or all refused
    /// (`basic.nack`).
    Confirmed {
        /// Channel of the publishes.
        channel: ChannelId,
        /// First publish that is settled, by its number in the channel.
        first: u64,
        /// Last publish that is settled, included.
        last: u64,
        /// Every target has taken them.
        taken: bool,
    },
    /// A mandatory publish of the channel has turned out to be unroutable after all (NAM 6).
    /// Its confirm follows.
    Returned {
        /// Channel of the publish.
        channel: ChannelId,
        /// The message that no queue took, as it was published.
        message: Box<Message>,
    },
    /// What a get of the channel took was held for too long: the channel is to be closed with this
    /// (CTO-05).
    GetTimedOut {
        /// Channel that has asked.
        channel: ChannelId,
        /// What the client is told.
        exception: Exception,
    },
    /// A publish of the channel that had been held has turned out to be refused: the channel (or
    /// connection) is to be closed with this.
    ChannelException {
        /// Channel of the publish.
        channel: ChannelId,
        /// What the client is told.
        exception: Exception,
    },
    /// Deliveries wait: call [`crate::Connection::take_deliveries`].
    DeliveriesReady,
    /// What was settled behind held publishes can be settled now.
    MaySettle,
    /// The consumer's queue has ended (CON-13).
    ConsumerCancelled {
        /// Channel of the consumer.
        channel: ChannelId,
        /// The consumer that has ended.
        consumer: ConsumerId,
        /// Its consumer tag, as the client knows it.
        tag: ShortString,
    },
    /// A delivery of the consumer was not settled in time (CTO-05), so it gets no more until its
    /// client has settled what was not (CTO-06).
    ConsumerTimedOut {
        /// Channel of the consumer.
        channel: ChannelId,
        /// The consumer that did not settle in time.
        consumer: ConsumerId,
        /// For a client that does not accept `basic.cancel`: the channel is closed with this.
        exception: Exception,
    },
    /// An alarm is on: publishing is blocked for this reason (ALM-04).
    Blocked {
        /// `low on memory`, `low on disk`, or both joined with ` & `.
        reason: String,
    },
    /// All alarms are off.
    Unblocked,
    /// Close the connection with this (CONN-29).
    Close(Exception),
}
