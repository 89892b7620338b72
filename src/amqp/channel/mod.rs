//! One channel, as a pure state machine: its input is methods and contents, its output frames and
//! actions. An operation of the broker is emitted as an [`Operation`]; the channel's later frames
//! wait for the answer, other channels continue.

pub(crate) mod confirm;
pub(crate) mod consume;
pub(crate) mod declare;
pub(crate) mod get;
pub(crate) mod machine;
pub(crate) mod publish;
pub(crate) mod qos;
pub(crate) mod settle;
#[cfg(test)]
mod settle_tests;
pub(crate) mod shape;
pub(crate) mod transaction;

use crate::{codec::cold::Cold, outbox::Outbox};
use quorate_client::{ChannelId, Operation, Publish};
use quorate_types::{ConsumerId, Exception, Properties, ShortString};
use std::collections::BTreeMap;

/// Bounds of one node's connections, by its settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Largest body that is accepted.
    pub(crate) max_message_size: u64,
    /// Consumers of one channel (CON-07).
    pub(crate) consumer_max_per_channel: Option<u32>,
    /// Prefetch of consumers whose channel has set none (QOS-02).
    pub(crate) default_consumer_prefetch: u16,
}

/// State that all channels of a connection share.
#[derive(Clone, Debug)]
pub(crate) struct Env {
    pub(crate) vhost: ShortString,
    /// Largest frame in bytes, as negotiated.
    pub(crate) frame_max: u32,
    /// By the node's settings.
    pub(crate) bounds: Bounds,
    /// The client wants notifications of cancelled consumers (CON-13).
    pub(crate) consumer_cancel_notify: bool,
}

/// An action of the driver, after publishes and settlements, in order.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Answered like an operation, since a user may have a limit of channels (CHN-03). Lists show
    /// the channel from the moment that its open-ok can be read.
    OpenChannel(ChannelId),
    Start(ChannelId, Operation),
    LimitChannel(ChannelId, Option<u16>),
    /// Drops the publishes of the channel's transaction (TX-08).
    RollBack(ChannelId),
    CloseChannel(ChannelId),
    /// Checks the client's new secret; the answer goes to `Machine::secret_updated`.
    UpdateSecret,
}

/// A publish passed to the broker whose outcome is not known yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) channel: ChannelId,
    pub(crate) confirm: Option<u64>,
    /// The message to return if it is mandatory and unroutable.
    pub(crate) returned: Option<Box<Returned>>,
}

/// A mandatory publish in the form in which it is returned (PUB-04).
#[derive(Clone, Debug)]
pub(crate) struct Returned {
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: ShortString,
    pub(crate) properties: Properties,
    pub(crate) body: bytes::Bytes,
}

impl Returned {
    /// A copy that does not keep the read buffer in memory.
    pub(crate) fn detached(&self) -> Self {
        let body = bytes::Bytes::copy_from_slice(&self.body);
        let raw = bytes::Bytes::copy_from_slice(&self.properties.raw);
        Self {
            exchange: self.exchange.detached(),
            routing_key: self.routing_key.detached(),
            // The properties were parsed before.
            properties: Properties::parse(raw).unwrap_or_default(),
            body,
        }
    }
}

/// Requests of the channels, collected over one read of the socket; and the memory that they hold.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) publishes: Vec<Publish>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) settles: settle::Settles,
    /// Settlements behind publishes of their channels whose outcomes are not known yet, in order.
    pub(crate) behind: Vec<settle::Behind>,
    pub(crate) actions: Vec<Action>,
    /// Bytes of frames that wait for an answer.
    pub(crate) queued_bytes: usize,
    /// Bytes of incomplete contents: all bytes of a large one from its announcement on, received
    /// bytes of others.
    pub(crate) content_bytes: usize,
    /// Bytes of large contents that have been announced; no frame is taken until there is room.
    pub(crate) announced_bytes: usize,
    /// Channels with incomplete large contents, and the time at which each began, in this order.
    pub(crate) large: Vec<(u16, u64)>,
    /// Channels whose content may be incomplete after the frames of this turn.
    pub(crate) begun: Vec<u16>,
    /// Channels whose content was incomplete at the end of an earlier turn, and the time at which
    /// each began.
    pub(crate) lasting: BTreeMap<u16, u64>,
    /// Time of this turn, ms.
    pub(crate) now_ms: u64,
    /// Bytes of deliveries that wait for their consume-ok.
    pub(crate) early_bytes: usize,
    /// Bytes of publishes that wait for a commit.
    pub(crate) transaction_bytes: usize,
}

/// The destination of a channel's output.
pub(crate) struct Out<'a> {
    pub(crate) env: &'a Env,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) effects: &'a mut Effects,
}

impl Out<'_> {
    /// Writes a method frame.
    pub(crate) fn reply(&mut self, channel: ChannelId, method: impl Into<Cold>) {
        method.into().put(self.outbox.buffer(), channel.number);
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.effects.actions.push(action);
    }
}

/// The reply to an operation, with the data that it needs.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// A reply without fields.
    Reply(Box<Cold>),
    /// Answered by `queue.declare-ok`.
    Declared,
    /// Answered by `queue.purge-ok`.
    Purged,
    /// Answered by `queue.delete-ok`.
    Deleted,
    /// Answered by `basic.consume-ok`.
    Consuming,
    /// Answered by `basic.cancel-ok`.
    Cancelled { consumer: ConsumerId, tag: ShortString },
    /// `basic.get-ok` or `get-empty`.
    Got { no_ack: bool },
    /// No reply: the publish waits for the commit. Contains the message to return, if it is
    /// mandatory.
    Routed { returned: Option<Box<Returned>> },
    /// An invalid publish with its error; an error of its exchange would come first (PUB-01).
    Refuse(Exception),
}
