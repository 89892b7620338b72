//! What brokers tell each other: service numbers, and messages to and from the machine's types.

use crate::pb;
use bytes::Bytes;
use quorate_queue::Delivery;
use quorate_storage::MessageRef;
use quorate_types::{
    ConsumerId, Counts, DeliveryNumber, GroupId, Home, Level, LogIndex, MessageId, NodeId, QueueId,
    SessionId, StartNumber,
};

/// A proposer's batch (bulk lane).
pub(crate) const BATCH: u32 = 100;
/// Answers to a session's batches.
pub(crate) const ANSWER: u32 = 101;
/// Deliveries and cancellations for consumers of the receiver.
pub(crate) const DELIVERIES: u32 = 102;
/// A leader announces its term.
pub(crate) const ANNOUNCE: u32 = 103;
/// Consumers re-attach.
pub(crate) const REATTACH: u32 = 104;
/// Bodies that the asker has no copy of.
pub(crate) const BODIES: u32 = 105;
/// Commands to the catalog's leader.
pub(crate) const CATALOG: u32 = 106;
/// A node asks for a routing lease.
pub(crate) const LEASE: u32 = 107;
/// A node has applied the catalog up to an index.
pub(crate) const APPLIED: u32 = 108;
/// All routing nodes have applied the catalog up to an index.
pub(crate) const ALL_APPLIED: u32 = 109;
/// An alarm of the sender is on or off.
pub(crate) const ALARM: u32 = 110;
/// The sender leads groups and has just heard a majority of each (DLV 5).
pub(crate) const HEARD: u32 = 111;
/// A target of the receiver's letters has room (LET 3).
pub(crate) const ROOM: u32 = 112;
/// What the sender counts against limits (VLM-04).
pub(crate) const COUNTS: u32 = 114;
/// How the clocks of groups stand.
pub(crate) const CLOCKS: u32 = 115;
/// A node asks whether the queues led by another have the settings of a catalog index.
pub(crate) const SETTINGS: u32 = 113;

/// A reply to a channel of the receiver.
pub(crate) const REPLY: u32 = 120;
/// Whether a channel of the receiver waits for replies.
pub(crate) const REQUESTER: u32 = 121;

/// The group number that a frame about this home carries: 0, the catalog's, stands for the
/// connection-bound queues of whichever of the two nodes is their home.
pub(crate) fn group(home: Home) -> GroupId {
    match home {
        Home::Group(group) => group,
        Home::Node(_) => GroupId::CATALOG,
    }
}

/// The home that a frame is about, `local` being the node whose connection-bound queues are meant
/// by group 0.
pub(crate) fn home(group: GroupId, local: NodeId) -> Home {
    if group == GroupId::CATALOG { Home::Node(local) } else { Home::Group(group) }
}

pub(crate) fn from_queue_id(id: QueueId) -> pb::QueueId {
    let (group, node) = match id.home {
        Home::Group(group) => (u32::from(group.0), 0),
        Home::Node(node) => (0, u32::from(node.0)),
    };
    pb::QueueId { group, node, index: id.index, position: id.position }
}

/// `None` for what no node of ours has sent.
pub(crate) fn to_queue_id(id: Option<pb::QueueId>) -> Option<QueueId> {
    let id = id?;
    let home = match u16::try_from(id.node).ok()? {
        0 => Home::Group(GroupId(u16::try_from(id.group).ok()?)),
        node => Home::Node(NodeId(node)),
    };
    Some(QueueId { home, index: id.index, position: id.position })
}

pub(crate) fn from_consumer_id(id: ConsumerId) -> pb::ConsumerId {
    pb::ConsumerId {
        node: u32::from(id.session.node.0),
        start: id.session.start.0,
        number: id.number,
    }
}

pub(crate) fn to_consumer_id(id: Option<pb::ConsumerId>) -> Option<ConsumerId> {
    let id = id?;
    let node = NodeId(u16::try_from(id.node).ok()?);
    let session = SessionId { node, start: StartNumber(id.start) };
    Some(ConsumerId { session, number: id.number })
}

/// Joins a delivery with the range before it, if it continues it.
fn joined(
    last: Option<&mut pb::DeliveryRange>,
    next: &Delivery,
    consumer: &pb::ConsumerId,
) -> bool {
    let Some(last) = last else { return false };
    let continues = last.consumer.as_ref() == Some(consumer)
        && last.first + u64::from(last.count) == next.number.0
        && last.index == next.message.index.0
        && last.position + last.count == next.message.position
        && last.level == u32::from(next.message.level.0)
        && (last.acquired, last.returned) == (next.counts.acquired, next.counts.returned);
    if continues {
        last.count += 1;
    }
    continues
}

/// Adds a delivery to those of one node.
pub(crate) fn add_delivery(
    ranges: &mut Vec<pb::DeliveryRange>,
    delivery: &Delivery,
    attachment: u32,
) {
    let consumer = from_consumer_id(delivery.consumer);
    if !joined(ranges.last_mut(), delivery, &consumer) {
        ranges.push(pb::DeliveryRange {
            attachment,
            consumer: Some(consumer),
            first: delivery.number.0,
            count: 1,
            queue: Some(from_queue_id(delivery.queue)),
            level: u32::from(delivery.message.level.0),
            index: delivery.message.index.0,
            position: delivery.message.position,
            acquired: delivery.counts.acquired,
            returned: delivery.counts.returned,
        });
    }
}

/// The deliveries of a range; none for what no node of ours has sent.
pub(crate) fn deliveries(range: pb::DeliveryRange) -> impl Iterator<Item = Delivery> {
    let consumer = to_consumer_id(range.consumer);
    let queue = to_queue_id(range.queue);
    let level = u8::try_from(range.level).ok().map(Level);
    let counts = Counts { acquired: range.acquired, returned: range.returned };
    (0..range.count).map_while(move |offset| {
        Some(Delivery {
            consumer: consumer?,
            number: DeliveryNumber(range.first.checked_add(u64::from(offset))?),
            queue: queue?,
            message: MessageId {
                level: level?,
                index: LogIndex(range.index),
                position: range.position.checked_add(offset)?,
            },
            counts,
        })
    })
}

pub(crate) fn from_message_ref(wanted: &MessageRef) -> pb::MessageRef {
    pb::MessageRef {
        queue: Some(from_queue_id(wanted.queue)),
        level: u32::from(wanted.message.level.0),
        index: wanted.message.index.0,
        position: wanted.message.position,
    }
}

pub(crate) fn to_message_ref(wanted: pb::MessageRef) -> Option<MessageRef> {
    let level = Level(u8::try_from(wanted.level).ok()?);
    let message = MessageId { level, index: LogIndex(wanted.index), position: wanted.position };
    Some(MessageRef { queue: to_queue_id(wanted.queue)?, message })
}

/// Encodes a message of ours.
pub(crate) fn encode(message: &impl prost::Message) -> Bytes {
    Bytes::from(message.encode_to_vec())
}

/// Decodes a message; what is none is logged and dropped.
pub(crate) fn decode<M: prost::Message + Default>(payload: Bytes, from: NodeId) -> Option<M> {
    M::decode(payload)
        .inspect_err(|error| tracing::warn!(%from, %error, "cannot decode a message"))
        .ok()
}
