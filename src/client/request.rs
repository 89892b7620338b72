//! What a front end asks of the broker for its clients, and what it is answered.

use bytes::Bytes;
use quorate_types::{
    ConsumerId, Counts, DeliveryNumber, Exception, FieldTable, Holder, Home, Message, Numbers,
    Properties, RequeueCause, ShortString, VhostName,
};
use std::net::SocketAddr;

/// A client connection as it is opened, for lists.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Authenticated user.
    pub user: ShortString,
    /// The mechanism by which it has authenticated.
    pub mechanism: &'static str,
    /// Virtual host.
    pub vhost: VhostName,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address that it connected to.
    pub local: SocketAddr,
    /// `client-properties` as sent.
    pub client_properties: FieldTable,
    /// Negotiated, channels.
    pub channel_max: u16,
    /// Negotiated, bytes.
    pub frame_max: u32,
    /// Negotiated, seconds.
    pub heartbeat_s: u16,
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
    /// Channel.
    pub channel: ChannelId,
    /// Number to confirm, on a confirming channel (CNF-01).
    pub confirm: Option<u64>,
    /// Exchange; empty is the default exchange.
    pub exchange: ShortString,
    /// Routing key.
    pub routing_key: ShortString,
    /// Properties as parsed; `raw` is what is stored.
    pub properties: Properties,
    /// Body.
    pub body: Bytes,
    /// `mandatory`.
    pub mandatory: bool,
}

/// What a publish came to at once. A confirm follows as an event where there is one to come.
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
    /// Read on.
    None,
    /// Too much is in flight: read no more until [`crate::Connection::room`] resolves (DESIGN §6).
    Wait,
}

/// `exchange.declare`, not passive.
#[derive(Clone, Debug)]
pub struct ExchangeDeclare {
    /// Name.
    pub exchange: ShortString,
    /// Type as sent.
    pub kind: ShortString,
    /// `durable`.
    pub durable: bool,
    /// `auto-delete`.
    pub auto_delete: bool,
    /// `internal`.
    pub internal: bool,
    /// Arguments.
    pub arguments: FieldTable,
}

/// `queue.declare`, not passive.
#[derive(Clone, Debug)]
pub struct QueueDeclare {
    /// Name; empty asks for one (QUE-06).
    pub queue: ShortString,
    /// `durable`.
    pub durable: bool,
    /// `exclusive`.
    pub exclusive: bool,
    /// `auto-delete`.
    pub auto_delete: bool,
    /// Arguments.
    pub arguments: FieldTable,
}

/// `queue.declare-ok`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclareOk {
    /// Name, given or made.
    pub queue: ShortString,
    /// Ready messages.
    pub messages: u64,
    /// Consumers.
    pub consumers: u32,
}

/// A binding as a client names it.
#[derive(Clone, Debug)]
pub struct BindRequest {
    /// Queue or exchange that messages go to.
    pub destination: ShortString,
    /// Exchange that they come from.
    pub source: ShortString,
    /// Binding key.
    pub routing_key: ShortString,
    /// Arguments.
    pub arguments: FieldTable,
}

/// `basic.consume`.
#[derive(Clone, Debug)]
pub struct Consume {
    /// Channel.
    pub channel: ChannelId,
    /// Queue.
    pub queue: ShortString,
    /// Consumer tag, never empty.
    pub tag: ShortString,
    /// `no-ack`.
    pub no_ack: bool,
    /// `exclusive`.
    pub exclusive: bool,
    /// Prefetch of this consumer, 0 for no limit (QOS-02).
    pub prefetch: u16,
    /// Arguments.
    pub arguments: FieldTable,
}

/// Where a delivery is settled: its queue's home, and its holder there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderRef {
    /// Home of the queue.
    pub home: Home,
    /// Holder.
    pub holder: Holder,
}

/// One delivery, with its message, to be shown to the client now.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// Channel that its consumer is on.
    pub channel: ChannelId,
    /// Consumer.
    pub consumer: ConsumerId,
    /// Its tag.
    pub tag: ShortString,
    /// Whom to name when settling.
    pub holder: HolderRef,
    /// Number among the consumer's deliveries.
    pub number: DeliveryNumber,
    /// Settled by the broker already: the front end must not track it.
    pub no_ack: bool,
    /// `redelivered`.
    pub redelivered: bool,
    /// For headers `x-delivery-count` and `x-acquired-count`; `None`: add none.
    pub counts: Option<Counts>,
    /// The message.
    pub message: Message,
}

/// What `basic.get` found.
#[derive(Clone, Debug)]
pub struct GetOk {
    /// Whom to name when settling, with number 1.
    pub holder: HolderRef,
    /// `redelivered`.
    pub redelivered: bool,
    /// For the count headers, as in [`Delivered`].
    pub counts: Option<Counts>,
    /// The message.
    pub message: Message,
    /// Ready messages left.
    pub ready: u64,
}

/// How deliveries are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// `basic.ack`.
    Ack,
    /// Back to the queue.
    Requeue(RequeueCause),
    /// `basic.reject` / `nack` without requeue.
    Discard,
    /// Back to the queue, never having been shown: unmarked, uncounted. The consumer is over.
    Release,
}

/// Deliveries of one holder to be settled in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// Holder.
    pub holder: HolderRef,
    /// Deliveries.
    pub numbers: Numbers,
    /// How.
    pub settlement: Settlement,
}
