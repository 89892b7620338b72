//! Events that the broker sends to a connection unasked.

use crate::request::ChannelId;
use quorate_types::{ConsumerId, Exception, Message, ShortString};

/// An event for a connection.
#[derive(Clone, Debug)]
pub enum Event {
    /// The outcome of publishes `first` to `last` of the channel: all taken (`basic.ack`), or all
    /// refused (`basic.nack`).
    Confirmed {
        /// Channel of the publishes.
        channel: ChannelId,
        /// First of these publishes, by its number in the channel.
        first: u64,
        /// Last of these publishes, by its number in the channel.
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
    /// A message that the channel got was not settled in time: the channel is closed with this error
    /// (CTO-05).
    GetTimedOut {
        /// Channel of the get.
        channel: ChannelId,
        /// The error for the client.
        exception: Exception,
    },
    /// A publish that had to wait was refused: the channel (or connection) is closed with this error.
    ChannelException {
        /// Channel of the publish.
        channel: ChannelId,
        /// The error for the client.
        exception: Exception,
    },
    /// Deliveries are ready: call [`crate::Connection::take_deliveries`].
    DeliveriesReady,
    /// Settles that waited for publishes can be sent now.
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
