//! Requests that a front end sends to the broker for its clients, and what the broker returns.

use crate::TlsReport;
use bytes::Bytes;
use quorate_types::{
    ConsumerId, Counts, DeliveryNumber, Exception, FieldTable, Holder, Home, Message, Numbers,
    Properties, RequeueCause, ShortString, VhostName,
};
use std::net::SocketAddr;

/// A client connection as it is opened, for lists.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Name of the authenticated user.
    pub user: ShortString,
    /// The mechanism by which it has authenticated.
    pub mechanism: &'static str,
    /// Virtual host that the client has opened.
    pub vhost: VhostName,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address that it connected to.
    pub local: SocketAddr,
    /// `client-properties` as sent.
    pub client_properties: FieldTable,
    /// Highest channel number, as negotiated.
    pub channel_max: u16,
    /// Largest frame in bytes, as negotiated.
    pub frame_max: u32,
    /// Heartbeat timeout in seconds, as negotiated; 0 for none.
    pub heartbeat_s: u16,
    /// What lists show of its TLS; `None`: it has none.
    pub tls: Option<Box<TlsReport>>,
}

/// A channel, unique within its connection for ever: a number that is opened again is another
/// channel, and gets nothing that was meant for the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId {
    /// Number on the wire.
    pub number: u16,
    /// Count of channels opened on the connection before.
    pub opened: u64,
}

/// A `basic.publish` with its content, checked by the front end for shape and size.
#[derive(Clone, Debug)]
pub struct Publish {
    /// Channel of the publish.
    pub channel: ChannelId,
    /// Delivery tag to confirm, if the channel is in confirm mode (CNF-01).
    pub confirm: Option<u64>,
    /// Exchange; empty is the default exchange.
    pub exchange: ShortString,
    /// Routing key, at most 255 bytes.
    pub routing_key: ShortString,
    /// Properties as parsed; `raw` is what is stored.
    pub properties: Properties,
    /// Body, assembled from all its frames.
    pub body: Bytes,
    /// `mandatory`: return the message if no queue takes it.
    pub mandatory: bool,
}

/// The immediate outcome of a publish. If it is to be confirmed, the confirm follows as an event.
#[derive(Clone, Debug, PartialEq)]
pub enum PublishOutcome {
    /// On its way to at least one queue; its confirm comes as
    /// [`Event::Confirmed`](crate::Event::Confirmed).
    Routed,
    /// No queue takes it (RTE-01): the front end returns it if mandatory, then confirms it.
    Unroutable,
    /// The channel (or connection) is to be closed with this; it gets no confirm (CNF-09).
    Refused(Exception),
}

/// Whether the front end may go on reading its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// The socket may be read further.
    None,
    /// Too much is in flight: do not read before [`crate::Connection::room`] resolves (DESIGN §6).
    Wait,
}

/// `exchange.declare`, not passive.
#[derive(Clone, Debug)]
pub struct ExchangeDeclare {
    /// Name of the exchange to declare.
    pub exchange: ShortString,
    /// Type of the exchange, as the client sent it.
    pub kind: ShortString,
    /// `durable`: it survives a restart of the cluster.
    pub durable: bool,
    /// `auto-delete`: it ends with its last binding.
    pub auto_delete: bool,
    /// `internal`: clients cannot publish to it.
    pub internal: bool,
    /// Arguments, such as `alternate-exchange`, unchecked.
    pub arguments: FieldTable,
}

/// `queue.declare`, not passive.
#[derive(Clone, Debug)]
pub struct QueueDeclare {
    /// Name of the queue; if it is empty, the broker chooses one (QUE-06).
    pub queue: ShortString,
    /// `durable`: it survives a restart of the cluster.
    pub durable: bool,
    /// `exclusive`: it belongs to this connection and ends with it.
    pub exclusive: bool,
    /// `auto-delete`: it ends with its last consumer.
    pub auto_delete: bool,
    /// Arguments (`x-…`), unchecked.
    pub arguments: FieldTable,
}

/// The contents of `queue.declare-ok`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclareOk {
    /// Name of the queue, chosen by the client or by the broker.
    pub queue: ShortString,
    /// Messages that are ready to be delivered.
    pub messages: u64,
    /// Consumers that are attached.
    pub consumers: u32,
}

/// A binding as a client names it.
#[derive(Clone, Debug)]
pub struct BindRequest {
    /// Queue or exchange that messages go to.
    pub destination: ShortString,
    /// Exchange that they come from.
    pub source: ShortString,
    /// Binding key; what it means depends on the exchange's type.
    pub routing_key: ShortString,
    /// Arguments of the binding, part of its identity.
    pub arguments: FieldTable,
}

/// A `basic.consume`.
#[derive(Clone, Debug)]
pub struct Consume {
    /// Channel of the consumer.
    pub channel: ChannelId,
    /// Name of the queue.
    pub queue: ShortString,
    /// Consumer tag, never empty.
    pub tag: ShortString,
    /// `no-ack`: deliveries count as settled once they are sent.
    pub no_ack: bool,
    /// `exclusive`: no other consumer may be attached.
    pub exclusive: bool,
    /// Prefetch of this consumer, 0 for no limit (QOS-02).
    pub prefetch: u16,
    /// Arguments, such as `x-priority`, unchecked.
    pub arguments: FieldTable,
}

/// The holder of a delivery, and the home of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderRef {
    /// Home of the queue.
    pub home: Home,
    /// The consumer, or the channel for what it got by `basic.get`.
    pub holder: Holder,
}

/// One delivery, with its message, to be shown to the client now.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// Channel that its consumer is on.
    pub channel: ChannelId,
    /// Consumer that the delivery is for.
    pub consumer: ConsumerId,
    /// Consumer tag of the consumer.
    pub tag: ShortString,
    /// The holder to name when the delivery is settled.
    pub holder: HolderRef,
    /// Number among the consumer's deliveries.
    pub number: DeliveryNumber,
    /// The broker has settled it already: the front end must not track it.
    pub no_ack: bool,
    /// `redelivered`: it may have been delivered before.
    pub redelivered: bool,
    /// For headers `x-delivery-count` and `x-acquired-count`; `None`: add none.
    pub counts: Option<Counts>,
    /// The message, with the headers that the queue adds.
    pub message: Message,
}

/// The message that `basic.get` returned.
#[derive(Clone, Debug)]
pub struct GetOk {
    /// The holder to name when the message is settled, with number 1.
    pub holder: HolderRef,
    /// `redelivered`: it may have been delivered before.
    pub redelivered: bool,
    /// For the count headers, as in [`Delivered`].
    pub counts: Option<Counts>,
    /// The message, with the headers that the queue adds.
    pub message: Message,
    /// Ready messages left.
    pub ready: u64,
}

/// How deliveries are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// `basic.ack`: the message is removed.
    Ack,
    /// Returned to the queue.
    Requeue(RequeueCause),
    /// `basic.reject` / `nack` without requeue.
    Discard,
    /// Returned to the queue without having been shown: not marked and not counted. The consumer has
    /// ended.
    Release,
}

/// Deliveries of one holder to be settled in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// Holder of the deliveries, and its queue.
    pub holder: HolderRef,
    /// Numbers of the deliveries, within the holder.
    pub numbers: Numbers,
    /// How they are settled.
    pub settlement: Settlement,
}
