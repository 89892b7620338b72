//! What the brokers of a cluster tell each other, and a node itself: one enum, matched exhaustively
//! by its receiver.

use bytes::Bytes;
use quorate_queue::{Answer, Delivery};
use quorate_storage::codec::batch::ProposedBatch;
use quorate_types::{
    CatalogIndex, ConsumerId, DeliveryNumber, GroupId, Home, NodeId, QueueId, Sequence, SessionId,
    ShortString, Term, Timestamp, VhostName,
};
use std::{collections::BTreeMap, sync::Arc};

/// A notice to one node. It can be lost with the connection.
#[derive(Clone, Debug)]
pub(crate) enum PeerMessage {
    /// Commands to the leader of a home (SES 2).
    Batch { home: Home, batch: Arc<ProposedBatch> },
    /// A home's answer to a batch (SES 4).
    Answer { home: Home, answer: Answer },
    /// Deliveries to consumers of the receiver, and which of them have ended (DLV 1).
    Deliveries { home: Home, deliveries: Deliveries },
    /// The sender leads the home, and has applied its term's first entry (SES 5).
    LeaderAnnounced { home: Home, term: Term },
    /// Consumers of the sender, for the leader of that term to attach (DLV 2).
    Reattach { home: Home, term: Term, consumers: Vec<Attachment> },
    /// The sender has applied the catalog up to here (NAM 3).
    Applied(CatalogIndex),
    /// All routing nodes have applied the catalog up to here (NAM 3).
    AllApplied(CatalogIndex),
    /// A target of the home's dead letters has room for about so many messages (LET 3).
    Room { home: Home, queue: QueueId, messages: u32 },
    /// What the sender is short of (ALM-01).
    Shortage(Shortage),
    /// The sender leads these groups, and has just heard a majority of each (DLV 5).
    LeaderContact(Vec<(GroupId, Term)>),
    /// How the clocks of groups stand with the sender (DESIGN §4, *Time*).
    Clocks(Vec<(GroupId, Timestamp)>),
    /// What the sender counts against limits (VLM-04).
    Counts(PeerCounts),
    /// A message to channels of the receiver that wait for replies (DRT-04).
    Reply { addresses: Vec<ReplyTo>, message: Bytes },
}

/// What a leader sends to one node after it has applied an entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deliveries {
    pub(crate) term: Term,
    pub(crate) ranges: Vec<DeliveryRange>,
    /// Consumers whose queue has ended.
    pub(crate) cancelled: Vec<ConsumerId>,
    /// Consumers that held deliveries up to that number for too long (CTO-05).
    pub(crate) timed_out: Vec<(ConsumerId, DeliveryNumber)>,
    /// Gets whose message was held for too long.
    pub(crate) timed_out_gets: Vec<GetId>,
}

/// A get, by the number of its command.
pub(crate) type GetId = (SessionId, Sequence);

impl Deliveries {
    /// Nothing of a leader of that term.
    pub(crate) fn none(term: Term) -> Self {
        Self { term, ..Self::default() }
    }

    /// Whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
            && self.cancelled.is_empty()
            && self.timed_out.is_empty()
            && self.timed_out_gets.is_empty()
    }

    /// Adds a delivery to a consumer whose attachment has that number.
    pub(crate) fn push(&mut self, delivery: &Delivery, attachment: u32) {
        if !self.ranges.last_mut().is_some_and(|last| last.join(delivery)) {
            self.ranges.push(DeliveryRange { attachment, first: *delivery, count: 1 });
        }
    }
}

/// Consecutive deliveries of one consumer: numbers and positions grow together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeliveryRange {
    /// Number of the consumer's attachment that the sender knows.
    pub(crate) attachment: u32,
    pub(crate) first: Delivery,
    pub(crate) count: u32,
}

impl DeliveryRange {
    /// Takes in the delivery that continues the range; false if it does not.
    fn join(&mut self, next: &Delivery) -> bool {
        let continues = self.at(self.count).is_some_and(|expected| expected == *next);
        self.count += u32::from(continues);
        continues
    }

    /// The delivery at that place; `None` beyond the numbers that there are.
    fn at(&self, place: u32) -> Option<Delivery> {
        let mut delivery = self.first;
        delivery.number = DeliveryNumber(delivery.number.0.checked_add(u64::from(place))?);
        delivery.message.position = delivery.message.position.checked_add(place)?;
        Some(delivery)
    }

    /// The deliveries of the range.
    pub(crate) fn deliveries(self) -> impl Iterator<Item = Delivery> {
        (0..self.count).map_while(move |place| self.at(place))
    }
}

/// What a consumer sends when it attaches at a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) consumer: ConsumerId,
    /// The last delivery number that it has.
    pub(crate) last: DeliveryNumber,
    /// Grows each time that it has dropped references; those sent for an earlier one are not taken.
    pub(crate) number: u32,
}

/// What a node is short of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) memory: bool,
    pub(crate) disk: bool,
}

/// Connections and channels of one node that count against limits (VLM-04).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerCounts {
    /// Number of connections of each vhost.
    pub(crate) vhosts: BTreeMap<VhostName, u64>,
    /// Number of connections and number of channels of each user.
    pub(crate) users: BTreeMap<ShortString, (u64, u64)>,
}

/// Where replies go: what a name of direct reply-to is made of (DRT-02).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReplyTo {
    pub(crate) node: NodeId,
    /// Number of the connection on that node.
    pub(crate) connection: u64,
    /// Number of the channel.
    pub(crate) channel: u16,
    /// Random bytes, so that nobody can guess the name.
    pub(crate) key: [u8; REPLY_KEY_BYTES],
}

/// Bytes of the key in a name of direct reply-to.
pub(crate) const REPLY_KEY_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quorate_types::{Counts, Level, LogIndex, MessageId, StartNumber};

    fn delivery() -> impl Strategy<Value = Delivery> {
        // Few values, so that deliveries often continue each other.
        (0..2_u64, 0..4_u64, 0..2_u64, 0..4_u32, 0..2_u32).prop_map(
            |(consumer, number, index, position, acquired)| {
                let session = SessionId { node: NodeId(1), start: StartNumber(1) };
                let home = Home::Group(GroupId(1));
                Delivery {
                    consumer: ConsumerId { session, number: consumer },
                    number: DeliveryNumber(number),
                    queue: QueueId { home, index: consumer, position: 0 },
                    message: MessageId { level: Level(0), index: LogIndex(index), position },
                    counts: Counts { acquired, returned: 0 },
                }
            },
        )
    }

    proptest! {
        /// DLV 1: what is joined into ranges comes out as it went in.
        #[test]
        fn dlv_1_ranges_hold_each_delivery_in_its_order(
            deliveries in prop::collection::vec(delivery(), 0..40),
        ) {
            let mut joined = Deliveries::none(Term(1));
            deliveries.iter().for_each(|one| joined.push(one, 1));
            let back: Vec<_> = joined.ranges.iter().flat_map(|it| it.deliveries()).collect();
            prop_assert_eq!(back, deliveries);
        }
    }
}
