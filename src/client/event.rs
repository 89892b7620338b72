//! What the broker tells a connection of its own accord.

use crate::request::ChannelId;
use quorate_types::{ConsumerId, Exception, Message, ShortString};

/// Something that a connection is told.
#[derive(Clone, Debug)]
pub enum Event {
    /// Publishes `first` to `last` of the channel are done: all taken, or all refused
    /// (`basic.nack`).
    Confirmed {
        /// Channel.
        channel: ChannelId,
        /// First number.
        first: u64,
        /// Last number.
        last: u64,
        /// Every target has taken them.
        taken: bool,
    },
    /// A mandatory publish of the channel has turned out to be unroutable after all (NAM 6).
    /// Its confirm follows.
    Returned {
        /// Channel.
        channel: ChannelId,
        /// The message.
        message: Box<Message>,
    },
    /// What a get of the channel took was held for too long: the channel is to be closed with this
    /// (CTO-05).
    GetTimedOut {
        /// Channel.
        channel: ChannelId,
        /// What the client is told.
        exception: Exception,
    },
    /// A publish of the channel that had been held has turned out to be refused: the channel (or
    /// connection) is to be closed with this.
    ChannelException {
        /// Channel.
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
        /// Channel.
        channel: ChannelId,
        /// Consumer.
        consumer: ConsumerId,
        /// Tag.
        tag: ShortString,
    },
    /// A delivery of the consumer was not settled in time (CTO-05), so it gets no more until its
    /// client has settled what was not (CTO-06).
    ConsumerTimedOut {
        /// Channel.
        channel: ChannelId,
        /// Consumer.
        consumer: ConsumerId,
        /// For a client that is not to be told by a `basic.cancel`: the channel is closed with this.
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
