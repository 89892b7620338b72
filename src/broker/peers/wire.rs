//! Messages between brokers as they are on the wire: service numbers, and Protocol Buffers to and
//! from our own types.
//!
//! A frame carries a group's number. That of the catalog, 0, stands for the connection-bound queues
//! of whichever of the two nodes is their home; nothing beyond this file knows of that.

use super::message::{
    Attachment, Deliveries, DeliveryRange, PeerCounts, PeerMessage, REPLY_KEY_BYTES, ReplyTo,
    Shortage,
};
use crate::pb;
use bytes::Bytes;
use quorate_queue::Delivery;
use quorate_rpc::{Lane, Payload};
use quorate_storage::{MessageRef, codec};
use quorate_types::{
    CatalogIndex, ConsumerId, Counts, DeliveryNumber, GroupId, Home, Level, LogIndex, MessageId,
    NodeId, QueueId, Sequence, SessionId, ShortString, StartNumber, Term, Timestamp,
};
use std::sync::Arc;

const BATCH: u32 = 100;
const ANSWER: u32 = 101;
pub(crate) const DELIVERIES: u32 = 102;
pub(crate) const LEADER_ANNOUNCED: u32 = 103;
const REATTACH: u32 = 104;
const APPLIED: u32 = 108;
const ALL_APPLIED: u32 = 109;
const SHORTAGE: u32 = 110;
const LEADER_CONTACT: u32 = 111;
const ROOM: u32 = 112;
const COUNTS: u32 = 114;
const CLOCKS: u32 = 115;
const REPLY: u32 = 120;

/// Why a message of another node cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("the service {0} is unknown")]
    UnknownService(u32),
    #[error(transparent)]
    Protobuf(#[from] prost::DecodeError),
    #[error(transparent)]
    Codec(#[from] codec::DecodeError),
    #[error("the message has {0} bytes instead of 2")]
    ShortageLength(usize),
    #[error("a field is missing or out of range")]
    Field,
}

/// What carries a message: lane, service, group and payload of a frame.
pub(crate) type Frame = (Lane, u32, GroupId, Payload);

/// The frame of a message.
pub(crate) fn encode_message(message: &PeerMessage) -> Frame {
    let catalog = GroupId::CATALOG;
    let control = |service, group, payload: Bytes| (Lane::Control, service, group, payload.into());
    match message {
        PeerMessage::Batch { home, batch } => {
            let payload = codec::batch::encode_batch(batch).into_iter().collect();
            (Lane::Bulk, BATCH, group(*home), payload)
        }
        PeerMessage::Answer { home, answer } => {
            control(ANSWER, group(*home), codec::answer::encode_answer(answer))
        }
        PeerMessage::Deliveries { home, deliveries } => {
            control(DELIVERIES, group(*home), encode(&from_deliveries(deliveries)))
        }
        PeerMessage::LeaderAnnounced { home, term } => {
            let message = pb::LeaderAnnounced { term: term.0 };
            control(LEADER_ANNOUNCED, group(*home), encode(&message))
        }
        PeerMessage::Reattach { home, term, consumers } => {
            control(REATTACH, group(*home), encode(&from_reattach(*term, consumers)))
        }
        PeerMessage::Applied(index) => {
            control(APPLIED, catalog, encode(&pb::Applied { index: index.0 }))
        }
        PeerMessage::AllApplied(index) => {
            control(ALL_APPLIED, catalog, encode(&pb::AllApplied { index: index.0 }))
        }
        PeerMessage::Room { home, queue, messages } => {
            let message = pb::Room { queue: Some(from_queue_id(*queue)), messages: *messages };
            control(ROOM, group(*home), encode(&message))
        }
        PeerMessage::Shortage(Shortage { memory, disk }) => {
            let payload = [u8::from(*memory), u8::from(*disk)];
            control(SHORTAGE, catalog, Bytes::copy_from_slice(&payload))
        }
        PeerMessage::LeaderContact(groups) => {
            control(LEADER_CONTACT, catalog, encode(&from_leader_contact(groups)))
        }
        PeerMessage::Clocks(clocks) => control(CLOCKS, catalog, encode(&from_clocks(clocks))),
        PeerMessage::Counts(counts) => control(COUNTS, catalog, encode(&from_counts(counts))),
        PeerMessage::Reply { addresses, message } => {
            let addresses = addresses.iter().map(from_reply_to).collect();
            let reply = pb::Reply { addresses, message: message.clone() };
            (Lane::Bulk, REPLY, catalog, encode(&reply).into())
        }
    }
}

/// The message that node `from` has sent to node `me`.
///
/// # Errors
/// It is none that a node of this version sends.
pub(crate) fn decode_message(
    service: u32,
    group: GroupId,
    payload: Bytes,
    from: NodeId,
    me: NodeId,
) -> Result<PeerMessage, WireError> {
    Ok(match service {
        BATCH => {
            let batch = Arc::new(codec::batch::decode_batch(&payload)?);
            PeerMessage::Batch { home: home(group, me), batch }
        }
        ANSWER => {
            let answer = codec::answer::decode_answer(&payload)?;
            PeerMessage::Answer { home: home(group, from), answer }
        }
        DELIVERIES => {
            let deliveries = to_deliveries(message(payload)?)?;
            PeerMessage::Deliveries { home: home(group, from), deliveries }
        }
        LEADER_ANNOUNCED => {
            let announced: pb::LeaderAnnounced = message(payload)?;
            PeerMessage::LeaderAnnounced { home: home(group, from), term: Term(announced.term) }
        }
        REATTACH => {
            let (term, consumers) = to_reattach(message(payload)?)?;
            PeerMessage::Reattach { home: home(group, me), term, consumers }
        }
        APPLIED => PeerMessage::Applied(CatalogIndex(message::<pb::Applied>(payload)?.index)),
        ALL_APPLIED => {
            PeerMessage::AllApplied(CatalogIndex(message::<pb::AllApplied>(payload)?.index))
        }
        SHORTAGE => match payload.as_ref() {
            [memory, disk] => {
                PeerMessage::Shortage(Shortage { memory: *memory != 0, disk: *disk != 0 })
            }
            other => return Err(WireError::ShortageLength(other.len())),
        },
        LEADER_CONTACT => PeerMessage::LeaderContact(to_leader_contact(message(payload)?)?),
        ROOM => {
            let pb::Room { queue, messages } = message(payload)?;
            let queue = to_queue_id(queue).ok_or(WireError::Field)?;
            PeerMessage::Room { home: home(group, me), queue, messages }
        }
        COUNTS => PeerMessage::Counts(to_counts(message(payload)?)?),
        CLOCKS => PeerMessage::Clocks(to_clocks(message(payload)?)?),
        REPLY => {
            let pb::Reply { addresses, message } = message(payload)?;
            let addresses = addresses.into_iter().map(|one| to_reply_to(Some(one), me));
            let addresses = addresses.collect::<Option<_>>().ok_or(WireError::Field)?;
            PeerMessage::Reply { addresses, message }
        }
        unknown => return Err(WireError::UnknownService(unknown)),
    })
}

fn group(home: Home) -> GroupId {
    match home {
        Home::Group(group) => group,
        Home::Node(_) => GroupId::CATALOG,
    }
}

/// The home that a frame is about, `local` being the node whose connection-bound queues are meant
/// by group 0.
fn home(group: GroupId, local: NodeId) -> Home {
    if group == GroupId::CATALOG { Home::Node(local) } else { Home::Group(group) }
}

pub(super) fn to_group(group: u32) -> Result<GroupId, WireError> {
    u16::try_from(group).map(GroupId).map_err(|_| WireError::Field)
}

fn from_queue_id(id: QueueId) -> pb::QueueId {
    let (group, node) = match id.home {
        Home::Group(group) => (u32::from(group.0), 0),
        Home::Node(node) => (0, u32::from(node.0)),
    };
    pb::QueueId { group, node, index: id.index, position: id.position }
}

fn to_queue_id(id: Option<pb::QueueId>) -> Option<QueueId> {
    let id = id?;
    let home = match u16::try_from(id.node).ok()? {
        0 => Home::Group(GroupId(u16::try_from(id.group).ok()?)),
        node => Home::Node(NodeId(node)),
    };
    Some(QueueId { home, index: id.index, position: id.position })
}

fn from_consumer_id(id: ConsumerId) -> pb::ConsumerId {
    pb::ConsumerId {
        node: u32::from(id.session.node.0),
        start: id.session.start.0,
        number: id.number,
    }
}

fn to_consumer_id(id: Option<pb::ConsumerId>) -> Option<ConsumerId> {
    let id = id?;
    let node = NodeId(u16::try_from(id.node).ok()?);
    let session = SessionId { node, start: StartNumber(id.start) };
    Some(ConsumerId { session, number: id.number })
}

fn from_deliveries(deliveries: &Deliveries) -> pb::Deliveries {
    let Deliveries { term, ranges, cancelled, timed_out, timed_out_gets } = deliveries;
    let timed_out = timed_out.iter().map(|(consumer, last)| pb::TimedOut {
        consumer: Some(from_consumer_id(*consumer)),
        last: last.0,
    });
    // A get is written as a consumer is: a session and a number.
    let get = |&(session, Sequence(number)): &(SessionId, Sequence)| {
        from_consumer_id(ConsumerId { session, number })
    };
    pb::Deliveries {
        term: term.0,
        ranges: ranges.iter().map(from_range).collect(),
        cancelled: cancelled.iter().copied().map(from_consumer_id).collect(),
        timed_out: timed_out.collect(),
        timed_out_gets: timed_out_gets.iter().map(get).collect(),
    }
}

fn to_deliveries(message: pb::Deliveries) -> Result<Deliveries, WireError> {
    let consumer = |id| to_consumer_id(id).ok_or(WireError::Field);
    let timed_out = |one: pb::TimedOut| Ok((consumer(one.consumer)?, DeliveryNumber(one.last)));
    let get = |id| {
        let ConsumerId { session, number } = consumer(Some(id))?;
        Ok((session, Sequence(number)))
    };
    let range = |range| to_range(range).ok_or(WireError::Field);
    let cancelled = message.cancelled.into_iter().map(|id| consumer(Some(id)));
    Ok(Deliveries {
        term: Term(message.term),
        ranges: message.ranges.into_iter().map(range).collect::<Result<_, _>>()?,
        cancelled: cancelled.collect::<Result<_, _>>()?,
        timed_out: message
            .timed_out
            .into_iter()
            .map(timed_out)
            .collect::<Result<_, WireError>>()?,
        timed_out_gets: message
            .timed_out_gets
            .into_iter()
            .map(get)
            .collect::<Result<_, WireError>>()?,
    })
}

fn from_range(range: &DeliveryRange) -> pb::DeliveryRange {
    let DeliveryRange { attachment, first, count } = *range;
    pb::DeliveryRange {
        attachment,
        consumer: Some(from_consumer_id(first.consumer)),
        first: first.number.0,
        count,
        queue: Some(from_queue_id(first.queue)),
        level: u32::from(first.message.level.0),
        index: first.message.index.0,
        position: first.message.position,
        acquired: first.counts.acquired,
        returned: first.counts.returned,
    }
}

fn to_range(range: pb::DeliveryRange) -> Option<DeliveryRange> {
    let message = MessageId {
        level: Level(u8::try_from(range.level).ok()?),
        index: LogIndex(range.index),
        position: range.position,
    };
    let first = Delivery {
        consumer: to_consumer_id(range.consumer)?,
        number: DeliveryNumber(range.first),
        queue: to_queue_id(range.queue)?,
        message,
        counts: Counts { acquired: range.acquired, returned: range.returned },
    };
    Some(DeliveryRange { attachment: range.attachment, first, count: range.count })
}

fn from_reattach(term: Term, consumers: &[Attachment]) -> pb::Reattach {
    let consumers = consumers.iter().map(|one| pb::reattach::Consumer {
        consumer: Some(from_consumer_id(one.consumer)),
        last: one.last.0,
        attachment: one.number,
    });
    pb::Reattach { term: term.0, consumers: consumers.collect() }
}

fn to_reattach(message: pb::Reattach) -> Result<(Term, Vec<Attachment>), WireError> {
    let attachment = |one: pb::reattach::Consumer| {
        let consumer = to_consumer_id(one.consumer)?;
        Some(Attachment { consumer, last: DeliveryNumber(one.last), number: one.attachment })
    };
    let consumers = message.consumers.into_iter().map(attachment).collect::<Option<_>>();
    Ok((Term(message.term), consumers.ok_or(WireError::Field)?))
}

fn from_leader_contact(groups: &[(GroupId, Term)]) -> pb::LeaderContact {
    let group = |&(group, term): &(GroupId, Term)| pb::leader_contact::Group {
        group: u32::from(group.0),
        term: term.0,
    };
    pb::LeaderContact { groups: groups.iter().map(group).collect() }
}

fn to_leader_contact(message: pb::LeaderContact) -> Result<Vec<(GroupId, Term)>, WireError> {
    let groups = message.groups.into_iter();
    groups.map(|one| Ok((to_group(one.group)?, Term(one.term)))).collect()
}

fn from_clocks(clocks: &[(GroupId, Timestamp)]) -> pb::Clocks {
    let clock = |&(group, time): &(GroupId, Timestamp)| pb::clocks::Clock {
        group: u32::from(group.0),
        time: time.0,
    };
    pb::Clocks { clocks: clocks.iter().map(clock).collect() }
}

fn to_clocks(message: pb::Clocks) -> Result<Vec<(GroupId, Timestamp)>, WireError> {
    let clocks = message.clocks.into_iter();
    clocks.map(|one| Ok((to_group(one.group)?, Timestamp(one.time)))).collect()
}

fn from_counts(PeerCounts { vhosts, users }: &PeerCounts) -> pb::Counts {
    let count = |name: &ShortString, connections, channels| pb::counts::Count {
        name: name.to_string(),
        connections,
        channels,
    };
    pb::Counts {
        vhosts: vhosts.iter().map(|(name, connections)| count(name, *connections, 0)).collect(),
        users: users.iter().map(|(name, both)| count(name, both.0, both.1)).collect(),
    }
}

fn to_counts(message: pb::Counts) -> Result<PeerCounts, WireError> {
    let name = |name: String| ShortString::try_from(name).map_err(|_| WireError::Field);
    let vhosts = message.vhosts.into_iter();
    let vhosts = vhosts.map(|one| Ok((name(one.name)?, one.connections)));
    let users = message.users.into_iter();
    let users = users.map(|one| Ok((name(one.name)?, (one.connections, one.channels))));
    let (vhosts, users) =
        (vhosts.collect::<Result<_, WireError>>()?, users.collect::<Result<_, WireError>>()?);
    Ok(PeerCounts { vhosts, users })
}

pub(super) fn from_reply_to(address: &ReplyTo) -> pb::ReplyAddress {
    pb::ReplyAddress {
        connection: address.connection,
        channel: u32::from(address.channel),
        key: Bytes::copy_from_slice(&address.key),
    }
}

/// `None` for what no node of ours has sent. An address on the wire is of its receiver.
pub(super) fn to_reply_to(address: Option<pb::ReplyAddress>, me: NodeId) -> Option<ReplyTo> {
    let pb::ReplyAddress { connection, channel, key } = address?;
    let channel = u16::try_from(channel).ok()?;
    let key: [u8; REPLY_KEY_BYTES] = key.as_ref().try_into().ok()?;
    Some(ReplyTo { node: me, connection, channel, key })
}

pub(super) fn from_message_ref(wanted: &MessageRef) -> pb::MessageRef {
    pb::MessageRef {
        queue: Some(from_queue_id(wanted.queue)),
        level: u32::from(wanted.message.level.0),
        index: wanted.message.index.0,
        position: wanted.message.position,
    }
}

pub(super) fn to_message_ref(wanted: pb::MessageRef) -> Option<MessageRef> {
    let level = Level(u8::try_from(wanted.level).ok()?);
    let message = MessageId { level, index: LogIndex(wanted.index), position: wanted.position };
    Some(MessageRef { queue: to_queue_id(wanted.queue)?, message })
}

/// Encodes a message of ours.
pub(super) fn encode(message: &impl prost::Message) -> Bytes {
    Bytes::from(message.encode_to_vec())
}

pub(super) fn message<M: prost::Message + Default>(payload: Bytes) -> Result<M, WireError> {
    Ok(M::decode(payload)?)
}

#[cfg(test)]
mod tests;
