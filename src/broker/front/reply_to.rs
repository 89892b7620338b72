//! Direct reply-to (DRT): names that lead to a requester's channel, on whichever node it is, and
//! the delivery of replies to it. Nothing is stored or repeated: a reply to a requester that has
//! gone is dropped (DRT-04).
//!
//! A direct reply therefore has no queue. The name contains the node, the connection, the channel
//! and a random key. A reply goes to that node over the bulk lane and waits in the requester's
//! connection. What exceeds 16 MiB for a connection, or the lane's own bound, is dropped.

use crate::{
    client::{ChannelId, DeclareOk, Delivered, HolderRef},
    front::{
        client_handle::{ConsumerOperations, QueueOperations},
        connection_state::{ConnectionState, HeldByChannel},
        direct_replies::DirectReplies,
        replies::ReplyConsumer,
    },
    memory::Share,
    peers::{
        PeerMessage, PeerReply, PeerRequest, Sent,
        message::{REPLY_KEY_BYTES, ReplyTo},
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use quorate_catalog::{RouteRequest, refusal};
use quorate_storage::codec::message;
use quorate_types::{
    ConsumerId, DeliveryNumber, Exception, Holder, NodeId, ReplyCode, ShortString,
};
use std::iter;

/// The pseudo-queue that a requester consumes from; every reply name begins with it.
const PSEUDO_QUEUE: &str = "amq.rabbitmq.reply-to";
/// Separates the pseudo-queue's name from the encoded address.
const SEPARATOR: char = '.';
/// Node, connection, channel, key.
const BYTES: usize = 2 + 8 + 2 + REPLY_KEY_BYTES;

impl ReplyTo {
    /// The name of this address.
    pub(crate) fn name(&self) -> ShortString {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(self.node.0.to_be_bytes());
        bytes.extend(self.connection.to_be_bytes());
        bytes.extend(self.channel.to_be_bytes());
        bytes.extend(self.key);
        let name = format!("{PSEUDO_QUEUE}{SEPARATOR}{}", URL_SAFE_NO_PAD.encode(bytes));
        // 22 and 38 characters fit into a short string.
        ShortString::try_from(name).unwrap_or_default()
    }

    /// Parses a name; `None` if no node has made it.
    fn parse(name: &ShortString) -> Option<Self> {
        let text = name.as_str().strip_prefix(PSEUDO_QUEUE)?.strip_prefix(SEPARATOR)?;
        let bytes: [u8; BYTES] = URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
        let (node, rest) = bytes.split_first_chunk::<2>()?;
        let (connection, rest) = rest.split_first_chunk::<8>()?;
        let (channel, key) = rest.split_first_chunk::<2>()?;
        Some(Self {
            node: NodeId(u16::from_be_bytes(*node)),
            connection: u64::from_be_bytes(*connection),
            channel: u16::from_be_bytes(*channel),
            key: key.try_into().ok()?,
        })
    }
}

/// The addresses among a message's routing keys.
pub(crate) fn addresses(request: &RouteRequest<'_>, found: &mut Vec<ReplyTo>) {
    found.clear();
    if !request.exchange.is_empty() {
        return;
    }
    let keys = iter::once(request.routing_key).chain(request.further_keys);
    found.extend(keys.filter_map(ReplyTo::parse));
    found.sort_unstable();
    found.dedup();
}

/// Whether the name belongs to direct reply-to, also if no node has made it.
fn is_pseudo(queue: &ShortString) -> bool {
    queue.as_str().starts_with(PSEUDO_QUEUE)
}

/// Refuses a binding of such a queue (BND-01).
pub(crate) fn check_not_bound(queue: &ShortString) -> Result<(), Exception> {
    if !is_pseudo(queue) {
        return Ok(());
    }
    let text = "cannot bind or unbind to a volatile (direct reply-to) queue";
    Err(Exception::new(ReplyCode::AccessRefused, text))
}

impl ConsumerOperations<'_> {
    /// `basic.consume` of the pseudo-queue. Returns the consumer, and the name under which replies
    /// reach it (DRT-01, DRT-02).
    ///
    /// # Errors
    /// 541 while this start of the node has no session, or when the connection has ended.
    pub(crate) fn consume_replies(
        &self,
        channel: ChannelId,
        tag: ShortString,
    ) -> Result<(ConsumerId, ShortString), Exception> {
        let ended = || Exception::new(ReplyCode::InternalError, "the connection has ended");
        let session = self.client.base().context.session().ok_or_else(ended)?;
        let id = ConsumerId { session, number: self.client.node.clients.consumers.number() };
        let key: [u8; REPLY_KEY_BYTES] = quorate_rpc::chance::random();
        let mut held = self.client.state.held.lock();
        if held.closed {
            return Err(ended());
        }
        held.channels.entry(channel).or_default().replies = Some(ReplyConsumer { id, tag, key });
        let (node, connection) = (self.client.base().context.me, self.client.state.id.number);
        Ok((id, ReplyTo { node, connection, channel: channel.number, key }.name()))
    }

    /// Ends a consumer of replies; false if it is not one (DRT-06).
    pub(crate) fn cancel_replies(&self, consumer: ConsumerId) {
        for channel in self.client.state.held.lock().channels.values_mut() {
            channel.replies.take_if(|replies| replies.id == consumer);
        }
    }
}

impl QueueOperations<'_> {
    /// `queue.declare` of the pseudo-queue or of a requester's name (DRT-05); `None` for the name
    /// of any other queue.
    pub(crate) async fn declare_reply_queue(
        &self,
        queue: &ShortString,
    ) -> Result<Option<DeclareOk>, Exception> {
        if !is_pseudo(queue) {
            return Ok(None);
        }
        let there = match ReplyTo::parse(queue) {
            Some(address) => self.client.node.replies.finds_requester(&address).await,
            None => queue.as_str() == PSEUDO_QUEUE,
        };
        if !there {
            return Err(refusal::no_queue(&self.client.resource(queue)));
        }
        Ok(Some(DeclareOk { queue: queue.clone(), messages: 0, consumers: 1 }))
    }
}

impl ConnectionState {
    /// The reply consumer on this connection that an address names.
    fn replies_to<T>(
        &self,
        address: &ReplyTo,
        read: impl FnOnce(ChannelId, &ReplyConsumer) -> T,
    ) -> Option<T> {
        let number = address.channel;
        let range = ChannelId { number, opened: 0 }..=ChannelId { number, opened: u64::MAX };
        let held = self.held.lock();
        let consumer_of = |(channel, held): (&ChannelId, &HeldByChannel)| {
            let consumer = held.replies.as_ref().filter(|replies| replies.key == address.key)?;
            Some(read(*channel, consumer))
        };
        // Of channels with this number, the last one opened is the open one.
        held.channels.range(range).next_back().and_then(consumer_of)
    }
}

impl DirectReplies {
    /// Sends a reply once to each reachable node of its requesters. `addresses` are sorted.
    pub(crate) fn send_reply(&self, addresses: &[ReplyTo], message: &Bytes) {
        for of_node in addresses.chunk_by(|one, other| one.node == other.node) {
            let Some(node) = of_node.first().map(|address| address.node) else { continue };
            let addresses = of_node.to_vec();
            let reply = PeerMessage::Reply { addresses, message: message.clone() };
            let sent = self.base.context.peers.send(node, reply);
            if sent != Sent::OnItsWay {
                tracing::debug!(%node, ?sent, "dropping a direct reply");
            }
        }
    }

    /// Delivers a reply to the requester, if its channel is still open.
    pub(crate) fn deliver_reply(&self, address: &ReplyTo, bytes: &Bytes) {
        // A reply to a closed channel is dropped (DRT-04).
        let Some(connection) = self.clients.connections.get(address.connection) else { return };
        let Ok(message) = message::decode(bytes) else { return };
        let delivered = connection.replies_to(address, |channel, consumer| Delivered {
            channel,
            consumer: consumer.id,
            tag: consumer.tag.clone(),
            holder: HolderRef {
                home: self.base.led.own_home(),
                holder: Holder::Consumer(consumer.id),
            },
            number: DeliveryNumber(0),
            no_ack: true,
            redelivered: false,
            counts: None,
            message,
        });
        let Some(delivered) = delivered else { return };
        if connection.delivering.replies.push(delivered) {
            connection.announce();
        } else {
            self.base.context.memory.note_refused(Share::Replies);
            tracing::debug!(
                connection = address.connection,
                "dropping a direct reply: the requester does not read"
            );
        }
    }

    /// Whether a requester's channel is still open.
    async fn finds_requester(&self, address: &ReplyTo) -> bool {
        let request = PeerRequest::Requester(address.clone());
        let bound = self.base.context.operation_timeout();
        let reply = self.base.context.peers.ask(address.node, request, bound).await;
        reply == Some(PeerReply::Requester(true))
    }

    /// Whether a channel of this node waits for replies at that address.
    pub(crate) fn has_requester(&self, address: &ReplyTo) -> bool {
        let connection = self.clients.connections.get(address.connection);
        connection.is_some_and(|connection| connection.replies_to(address, |_, _| ()).is_some())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn address() -> ReplyTo {
        let key = [7; REPLY_KEY_BYTES];
        ReplyTo { node: NodeId(3), connection: 1 << 40, channel: 65_535, key }
    }

    /// A generated name parses to its address, and no other name does (DRT-02).
    #[test]
    fn drt_02_a_name_carries_the_way_to_its_channel() {
        let name = address().name();
        assert!(name.as_str().starts_with("amq.rabbitmq.reply-to."), "{name}");
        assert_eq!(ReplyTo::parse(&name), Some(address()));
        for other in ["amq.rabbitmq.reply-to", "amq.rabbitmq.reply-to.", "q", "amq.gen-1"] {
            assert_eq!(ReplyTo::parse(&ShortString::try_from(other).unwrap()), None);
        }
        let longer = format!("{name}A");
        assert_eq!(ReplyTo::parse(&ShortString::try_from(longer).unwrap()), None);
    }
}
