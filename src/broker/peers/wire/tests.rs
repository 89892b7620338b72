//! Every message between nodes comes out as it went in, and bytes that are none are refused.

use super::*;
use proptest::{collection::vec, prelude::*};
use quorate_queue::{Answer, Command, MessageHead, Reply};
use quorate_storage::codec::batch::{ProposedBatch, ProposedRun, Sender};
use quorate_types::{Holder, VhostName};

const FROM: NodeId = NodeId(3);
const ME: NodeId = NodeId(9);

/// A replicated group, or connection-bound queues of that node.
fn home(node: NodeId) -> impl Strategy<Value = Home> {
    prop_oneof![
        (1..=u16::MAX).prop_map(|group| Home::Group(GroupId(group))),
        Just(Home::Node(node))
    ]
}

fn queue_id() -> impl Strategy<Value = QueueId> {
    let node = (1..=u16::MAX).prop_map(NodeId);
    (node.prop_flat_map(home), any::<(u64, u64)>()).prop_map(|(home, (index, position))| QueueId {
        home,
        index,
        position,
    })
}

fn session() -> impl Strategy<Value = SessionId> {
    any::<(u16, u64)>()
        .prop_map(|(node, start)| SessionId { node: NodeId(node), start: StartNumber(start) })
}

fn consumer_id() -> impl Strategy<Value = ConsumerId> {
    (session(), any::<u64>()).prop_map(|(session, number)| ConsumerId { session, number })
}

fn name() -> impl Strategy<Value = ShortString> {
    "[a-zäß/]{0,20}".prop_filter_map("a short string", |name| ShortString::try_from(name).ok())
}

fn terms() -> impl Strategy<Value = Vec<(GroupId, u64)>> {
    vec(any::<(u16, u64)>().prop_map(|(group, of)| (GroupId(group), of)), 0..5)
}

fn batch() -> impl Strategy<Value = ProposedBatch> {
    let messages = vec(vec(any::<u8>(), 0..40), 1..4);
    (session(), any::<(u32, u32)>(), queue_id(), any::<u8>(), messages, consumer_id()).prop_map(
        |(session, (mark, more), queue, level, messages, consumer)| {
            let count = messages.len() as u32;
            let heads = vec![MessageHead { body_bytes: 7, expiration_ms: Some(9) }; messages.len()];
            let messages = messages.into_iter().map(Bytes::from).collect();
            let numbers = vec![(DeliveryNumber(1), DeliveryNumber(u64::from(more)))];
            ProposedBatch {
                sender: Sender::Session(session),
                first: Sequence(u64::from(mark) + u64::from(more)),
                mark: Sequence(u64::from(mark)),
                runs: vec![ProposedRun { queue, level: Level(level), heads, messages }],
                commands: vec![
                    Command::Ack { holder: Holder::Consumer(consumer), numbers },
                    Command::Enqueue { run: 0, first: 0, count },
                    Command::Inspect { queue, renew: true },
                ],
            }
        },
    )
}

fn answer() -> impl Strategy<Value = Answer> {
    let reply = prop_oneof![
        Just(Reply::Gone),
        queue_id().prop_map(Reply::Created),
        any::<(u16, u16)>().prop_map(|(first, more)| {
            Reply::Refused(vec![(u32::from(first), u32::from(first) + u32::from(more))])
        }),
    ];
    let numbers = (session(), any::<u32>(), any::<u32>());
    (numbers, reply).prop_flat_map(|((session, first, more), reply)| {
        let (first, last) = (u64::from(first), u64::from(first) + u64::from(more));
        let other = vec![(Sequence(last), reply)];
        let (first, last) = (Sequence(first), Sequence(last));
        prop_oneof![
            Just(Answer::Answered { session, first, last, other }),
            Just(Answer::Want { session, want: first }),
            Just(Answer::Fenced { session }),
        ]
    })
}

fn range() -> impl Strategy<Value = DeliveryRange> {
    let near_the_end = || {
        any::<(u8, u8, u64, u8, u32, u32)>().prop_map(
            |(number, level, index, position, acquired, returned)| {
                let position = u32::MAX - u32::from(position);
                (u64::MAX - u64::from(number), level, index, position, acquired, returned)
            },
        )
    };
    let numbers = prop_oneof![any::<(u64, u8, u64, u32, u32, u32)>(), near_the_end()];
    (consumer_id(), queue_id(), numbers, any::<(u32, u32)>()).prop_map(
        |(consumer, queue, (number, level, index, position, acquired, returned), range)| {
            let index = LogIndex(index);
            let message = MessageId { level: Level(level), index, position };
            let counts = Counts { acquired, returned };
            let number = DeliveryNumber(number);
            let first = Delivery { consumer, number, queue, message, counts };
            DeliveryRange { attachment: range.0, first, count: range.1 }
        },
    )
}

fn deliveries() -> impl Strategy<Value = Deliveries> {
    let timed_out = (consumer_id(), any::<u64>().prop_map(DeliveryNumber));
    let get = (session(), any::<u64>().prop_map(Sequence));
    let consumers = vec(consumer_id(), 0..3);
    (any::<u64>(), vec(range(), 0..4), consumers, vec(timed_out, 0..3), vec(get, 0..3)).prop_map(
        |(term, ranges, cancelled, timed_out, timed_out_gets)| Deliveries {
            term: Term(term),
            ranges,
            cancelled,
            timed_out,
            timed_out_gets,
        },
    )
}

fn attachment() -> impl Strategy<Value = Attachment> {
    (consumer_id(), any::<(u64, u32)>()).prop_map(|(consumer, (last, number))| Attachment {
        consumer,
        last: DeliveryNumber(last),
        number,
    })
}

fn counts() -> impl Strategy<Value = PeerCounts> {
    let vhost = name().prop_map(VhostName::from);
    let vhosts = prop::collection::btree_map(vhost, any::<u64>(), 0..4);
    let users = prop::collection::btree_map(name(), any::<(u64, u64)>(), 0..4);
    (vhosts, users).prop_map(|(vhosts, users)| PeerCounts { vhosts, users })
}

fn reply() -> impl Strategy<Value = PeerMessage> {
    let address = any::<(u64, u16, [u8; REPLY_KEY_BYTES])>();
    let address = address.prop_map(|(connection, channel, key)| ReplyTo {
        node: ME,
        connection,
        channel,
        key,
    });
    (vec(address, 0..3), vec(any::<u8>(), 0..60))
        .prop_map(|(addresses, message)| PeerMessage::Reply { addresses, message: message.into() })
}

/// How many kinds of messages there are; [`kind`] does not compile when one is forgotten.
const KINDS: usize = 13;

fn kind(message: &PeerMessage) -> usize {
    match message {
        PeerMessage::Batch { .. } => 0,
        PeerMessage::Answer { .. } => 1,
        PeerMessage::Deliveries { .. } => 2,
        PeerMessage::LeaderAnnounced { .. } => 3,
        PeerMessage::Reattach { .. } => 4,
        PeerMessage::Applied(_) => 5,
        PeerMessage::AllApplied(_) => 6,
        PeerMessage::Room { .. } => 7,
        PeerMessage::Shortage(_) => 8,
        PeerMessage::LeaderContact(_) => 9,
        PeerMessage::Clocks(_) => 10,
        PeerMessage::Counts(_) => 11,
        PeerMessage::Reply { .. } => 12,
    }
}

/// Any message that a node `FROM` sends to a node `ME`, of the kind of that number.
fn message_of(kind: usize) -> BoxedStrategy<PeerMessage> {
    let (led, mine) = (home(FROM), home(ME));
    match kind {
        0 => (mine, batch())
            .prop_map(|(home, batch)| PeerMessage::Batch { home, batch: Arc::new(batch) })
            .boxed(),
        1 => {
            (led, answer()).prop_map(|(home, answer)| PeerMessage::Answer { home, answer }).boxed()
        }
        2 => (led, deliveries())
            .prop_map(|(home, deliveries)| PeerMessage::Deliveries { home, deliveries })
            .boxed(),
        3 => (led, any::<u64>())
            .prop_map(|(home, term)| PeerMessage::LeaderAnnounced { home, term: Term(term) })
            .boxed(),
        4 => (mine, any::<u64>(), vec(attachment(), 0..4))
            .prop_map(|(home, term, consumers)| PeerMessage::Reattach {
                home,
                term: Term(term),
                consumers,
            })
            .boxed(),
        5 => any::<u64>().prop_map(|index| PeerMessage::Applied(CatalogIndex(index))).boxed(),
        6 => any::<u64>().prop_map(|index| PeerMessage::AllApplied(CatalogIndex(index))).boxed(),
        7 => (mine, queue_id(), any::<u32>())
            .prop_map(|(home, queue, messages)| PeerMessage::Room { home, queue, messages })
            .boxed(),
        8 => any::<(bool, bool)>()
            .prop_map(|(memory, disk)| PeerMessage::Shortage(Shortage { memory, disk }))
            .boxed(),
        9 => terms()
            .prop_map(|all| all.into_iter().map(|(group, term)| (group, Term(term))).collect())
            .prop_map(PeerMessage::LeaderContact)
            .boxed(),
        10 => terms()
            .prop_map(|all| all.into_iter().map(|(group, time)| (group, Timestamp(time))).collect())
            .prop_map(PeerMessage::Clocks)
            .boxed(),
        11 => counts().prop_map(PeerMessage::Counts).boxed(),
        _ => reply().boxed(),
    }
}

fn any_message() -> impl Strategy<Value = PeerMessage> {
    (0..KINDS).prop_flat_map(|number| {
        message_of(number).prop_map(move |message| {
            assert_eq!(kind(&message), number);
            message
        })
    })
}

/// The payload in one piece.
fn whole(payload: &Payload) -> Bytes {
    payload.clone().into_bytes()
}

const SERVICES: [u32; KINDS] = [
    BATCH,
    ANSWER,
    DELIVERIES,
    LEADER_ANNOUNCED,
    REATTACH,
    APPLIED,
    ALL_APPLIED,
    SHORTAGE,
    LEADER_CONTACT,
    ROOM,
    COUNTS,
    CLOCKS,
    REPLY,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// SES 4: what a node says is what the other one hears, whichever home it is about, and bodies go in
    /// the lane of bodies.
    #[test]
    fn ses_4_every_message_comes_out_as_it_went_in(message in any_message()) {
        let (lane, service, group, payload) = encode_message(&message);
        let is_bulk = matches!(message, PeerMessage::Batch { .. } | PeerMessage::Reply { .. });
        prop_assert_eq!(lane == Lane::Bulk, is_bulk);
        match decode_message(service, group, whole(&payload), FROM, ME) {
            Ok(back) => prop_assert_eq!(format!("{back:?}"), format!("{message:?}")),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    /// Whatever comes, it is a message or refused, and a message that was taken is sent on as it is.
    #[test]
    fn arbitrary_bytes_are_a_message_or_refused(
        service in prop_oneof![4 => prop::sample::select(SERVICES.to_vec()), 1 => 90..130_u32],
        group in any::<u16>(),
        bytes in vec(any::<u8>(), 0..120),
    ) {
        let decoded = decode_message(service, GroupId(group), bytes.into(), FROM, ME);
        if let Ok(message) = decoded {
            let (_, service, group, payload) = encode_message(&message);
            let again = decode_message(service, group, whole(&payload), FROM, ME);
            prop_assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, WireError>(message)));
        }
    }

    /// As above, for what is nearly a message.
    #[test]
    fn a_message_with_changed_bytes_is_another_or_refused(
        message in any_message(),
        at in any::<prop::sample::Index>(),
        change in 1..=255_u8,
        is_cut: bool,
    ) {
        let (_, service, group, payload) = encode_message(&message);
        let mut bytes = whole(&payload).to_vec();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            if is_cut {
                bytes.truncate(at);
            } else if let Some(byte) = bytes.get_mut(at) {
                *byte ^= change;
            }
        }
        let decoded = decode_message(service, group, bytes.into(), FROM, ME);
        if let Ok(PeerMessage::Deliveries { deliveries, .. }) = decoded {
            // A count that lies does not make deliveries of numbers that there are not.
            for range in deliveries.ranges {
                let some: Vec<_> = range.deliveries().take(1_000).collect();
                prop_assert!(some.len() <= range.count as usize);
                let ascend = |a: &Delivery, b: &Delivery| {
                    a.number < b.number && a.message.position < b.message.position
                };
                prop_assert!(some.is_sorted_by(ascend));
            }
        }
    }
}
