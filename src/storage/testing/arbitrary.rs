//! Arbitrary values of all encoded types.

use super::arbitrary_letters::{
    letter_command, letter_home, letters, letters_record, task_command,
};
use super::arbitrary_queue::queue_record;
use crate::{CommandEntry, EntryId, LogEntry, Payload, RunBodies};
use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*, sample::select};
use quorate_queue::{
    Batch, Command, ConsumerRecord, ConsumerTerms, Counts, DeadLetter, DelayedRecord, DelayedRetry,
    Detach, Entry, GetsRecord, Got, GroupRecord, LeftOver, MessageHead, NodeRecord, Origin,
    QueueConfig, QueueReport, QueuedMessage, Record, RecordKey, Reply, RequeueCause,
    RequeuedRecord, RetryAfter, Run, SessionRecord,
};
use quorate_types::{
    CatalogIndex, ConsumerId, DeliveryNumber, FieldTable, FieldValue, GroupId, Holder, Home, Level,
    LogIndex, Message, MessageId, NodeId, Overflow, QueueId, QueueType, ResourceName, Sequence,
    SessionId, ShortString, Stamp, StartNumber, Term, Timestamp, WallTime,
};

/// Numbers of every length, including the smallest and largest of each.
pub(super) fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..300u64, 2 => any::<u64>(), 1 => select(vec![0, u64::MAX, u64::MAX - 1])]
}

pub(super) fn number32() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..300u32, 1 => any::<u32>()]
}

pub(super) fn queue_id() -> impl Strategy<Value = QueueId> {
    let home = prop_oneof![
        any::<u16>().prop_map(|group| Home::Group(GroupId(group))),
        any::<u16>().prop_map(|node| Home::Node(NodeId(node))),
    ];
    (home, number(), number()).prop_map(|(home, index, position)| QueueId { home, index, position })
}

pub(super) fn session() -> impl Strategy<Value = SessionId> {
    (any::<u16>(), number())
        .prop_map(|(node, start)| SessionId { node: NodeId(node), start: StartNumber(start) })
}

pub(super) fn consumer() -> impl Strategy<Value = ConsumerId> {
    (session(), number()).prop_map(|(session, number)| ConsumerId { session, number })
}

pub(super) fn holder() -> impl Strategy<Value = Holder> {
    prop_oneof![
        consumer().prop_map(Holder::Consumer),
        (session(), number()).prop_map(|(session, number)| Holder::Get(session, Sequence(number))),
    ]
}

pub(super) fn short() -> impl Strategy<Value = ShortString> {
    "\\PC{0,20}".prop_map(|text| ShortString::try_from(text).unwrap())
}

pub(super) fn name() -> impl Strategy<Value = ResourceName> {
    (short(), short()).prop_map(|(vhost, name)| ResourceName { vhost, name })
}

pub(super) fn head() -> impl Strategy<Value = MessageHead> {
    (number32(), option::of(number()))
        .prop_map(|(body_bytes, expiration_ms)| MessageHead { body_bytes, expiration_ms })
}

pub(super) fn config() -> impl Strategy<Value = QueueConfig> {
    let overflow =
        select(vec![Overflow::DropHead, Overflow::RejectPublish, Overflow::RejectPublishDlx]);
    let dead_letter = option::of((short(), option::of(short()), any::<bool>()).prop_map(
        |(exchange, routing_key, at_least_once)| DeadLetter {
            exchange,
            routing_key,
            at_least_once,
        },
    ));
    let limits = (option::of(number()), option::of(number()), option::of(number32()), number());
    let times = (option::of(number()), option::of(number()), option::of(number()));
    let flags = any::<[bool; 6]>();
    let after = select(vec![RetryAfter::All, RetryAfter::Failed, RetryAfter::Returned]);
    let retry = (after, number(), number(), option::of(number32())).prop_map(
        |(after, min_ms, max_ms, multiplier)| DelayedRetry { after, min_ms, max_ms, multiplier },
    );
    let retry = option::of(retry);
    let priority_max = option::of(any::<u8>());
    (number(), flags, overflow, dead_letter, limits, times, priority_max, retry).prop_map(
        |(index, flags, overflow, dead_letter, limits, times, priority_max, delayed_retry)| {
            QueueConfig {
                resolved_at: CatalogIndex(index),
                queue_type: if flags[0] { QueueType::Quorum } else { QueueType::Classic },
                durable: flags[1],
                auto_delete: flags[2],
                priority_max,
                message_ttl_ms: times.0,
                expires_ms: times.1,
                length_max: limits.0,
                length_bytes_max: limits.1,
                overflow,
                delivery_limit: limits.2,
                delivery_count_failures: flags[3],
                dead_letter,
                single_active_consumer: flags[4],
                consumer_timeout_ms: times.2,
                letters_max: limits.3,
                delays: flags[5],
                delayed_retry,
            }
        },
    )
}

pub(super) fn terms() -> impl Strategy<Value = ConsumerTerms> {
    let flags = (any::<bool>(), any::<bool>());
    let prefetch = (option::of(number32()), option::of(number()), option::of(number()));
    (prefetch, number(), flags, any::<i64>(), short()).prop_map(
        |(
            (prefetch, timeout_ms, timeout_default_ms),
            up_to,
            (exclusive, no_ack),
            priority,
            tag,
        )| ConsumerTerms {
            prefetch,
            up_to: DeliveryNumber(up_to),
            exclusive,
            priority,
            tag,
            no_ack,
            timeout_ms,
            timeout_default_ms,
        },
    )
}

pub(super) fn numbers() -> impl Strategy<Value = Vec<(DeliveryNumber, DeliveryNumber)>> {
    vec((number().prop_map(DeliveryNumber), number().prop_map(DeliveryNumber)), 0..4)
}

pub(super) fn node() -> impl Strategy<Value = NodeId> {
    any::<u16>().prop_map(NodeId)
}

pub(super) fn queue_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (name(), config(), any::<Option<u64>>())
            .prop_map(|(name, config, bound)| Command::CreateQueue { name, config, bound }),
        (queue_id(), any::<bool>(), any::<bool>()).prop_map(|(queue, if_unused, if_empty)| {
            Command::EndQueue { queue, if_unused, if_empty }
        }),
        (queue_id(), config()).prop_map(|(queue, config)| Command::Configure { queue, config }),
        (queue_id(), any::<bool>()).prop_map(|(queue, renew)| Command::Inspect { queue, renew }),
        (queue_id(), any::<Option<u64>>())
            .prop_map(|(queue, timeout_default_ms)| Command::Get { queue, timeout_default_ms }),
        queue_id().prop_map(|queue| Command::Purge { queue }),
        (queue_id(), consumer(), terms()).prop_map(|(queue, consumer, terms)| Command::Attach {
            queue,
            consumer,
            terms
        }),
    ]
}

pub(super) fn holder_command() -> impl Strategy<Value = Command> {
    let causes =
        [RequeueCause::Reject, RequeueCause::Nack, RequeueCause::Recover, RequeueCause::ChannelEnd];
    prop_oneof![
        (holder(), numbers()).prop_map(|(holder, numbers)| Command::Ack { holder, numbers }),
        (holder(), numbers(), select(causes.to_vec()))
            .prop_map(|(holder, numbers, cause)| Command::Requeue { holder, numbers, cause }),
        (holder(), numbers()).prop_map(|(holder, numbers)| Command::Discard { holder, numbers }),
        (holder(), numbers()).prop_map(|(holder, numbers)| Command::Release { holder, numbers }),
        (consumer(), number(), any::<bool>()).prop_map(|(consumer, shown, end)| Command::Detach {
            consumer,
            shown: DeliveryNumber(shown),
            how: if end { Detach::ChannelEnd } else { Detach::Cancel },
        }),
        (consumer(), number()).prop_map(|(consumer, up_to)| Command::Credit {
            consumer,
            up_to: DeliveryNumber(up_to)
        }),
    ]
}

pub(super) fn group_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (number32(), number32(), number32()).prop_map(|(run, first, count)| Command::Enqueue {
            run,
            first,
            count
        }),
        session().prop_map(|session| Command::SessionEnded { session }),
        (node(), number())
            .prop_map(|(node, start)| Command::NodeDown { node, start: StartNumber(start) }),
        node().prop_map(|node| Command::NodeSuspected { node }),
        node().prop_map(|node| Command::NodeBack { node }),
        node().prop_map(|node| Command::NodeTimedOut { node }),
        Just(Command::Continue),
        Just(Command::LastResort),
        number().prop_map(|life| Command::NewLife { life }),
        queue_id().prop_map(|queue| Command::ExpireHead { queue }),
    ]
}

pub(super) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        queue_command(),
        holder_command(),
        group_command(),
        letter_command(),
        task_command()
    ]
}

pub(super) fn stamp() -> impl Strategy<Value = Stamp> {
    (number(), number())
        .prop_map(|(time, wall)| Stamp { time: Timestamp(time), wall: WallTime(wall) })
}

pub(super) fn entry() -> impl Strategy<Value = Entry> {
    let run = (queue_id(), any::<u8>(), vec(head(), 0..5))
        .prop_map(|(queue, level, messages)| Run { queue, level: Level(level), messages });
    let origin = prop_oneof![
        Just(Origin::Leader),
        (session(), number(), number()).prop_map(|(session, first, mark)| Origin::Session {
            session,
            first: Sequence(first),
            mark: Sequence(mark)
        }),
        (letter_home(), number(), number()).prop_map(|(from, first, mark)| Origin::Letters {
            from,
            first: Sequence(first),
            mark: Sequence(mark)
        }),
    ];
    let batch =
        (origin, vec(command(), 0..6), any::<bool>()).prop_map(|(origin, commands, own)| {
            let commands = match origin {
                // Most holders are the session's own, which is written shorter.
                Origin::Session { session, .. } if own => {
                    commands.into_iter().map(|command| owned(command, session)).collect()
                }
                Origin::Session { .. } | Origin::Letters { .. } | Origin::Leader => commands,
            };
            Batch { origin, commands }
        });
    (stamp(), vec(run, 0..4), vec(batch, 0..4)).prop_map(|(stamp, runs, batches)| Entry {
        stamp,
        runs,
        batches,
    })
}

fn owned(command: Command, session: SessionId) -> Command {
    if let Command::Ack { holder, numbers } = command {
        let holder = match holder {
            Holder::Consumer(consumer) => Holder::Consumer(ConsumerId { session, ..consumer }),
            Holder::Get(_, sequence) => Holder::Get(session, sequence),
        };
        return Command::Ack { holder, numbers };
    }
    command
}

/// Stretches of consecutive numbers and positions, as in deliveries, with gaps.
pub(super) fn queued() -> impl Strategy<Value = Vec<(u64, QueuedMessage)>> {
    let stretch = (1..4u64, 0..3u8, (0..5u64, 0..2u64), 0..9u32, 0..2u32, vec(head(), 1..5));
    vec(stretch, 0..5).prop_map(|stretches| {
        let mut number = 0;
        let mut all = Vec::new();
        for (gap, level, (index, since), first, acquired, heads) in stretches {
            number += gap;
            for (position, head) in (first..).zip(heads) {
                let message = MessageId { level: Level(level), index: LogIndex(index), position };
                let counts = Counts { acquired, returned: 0 };
                let (enqueued_at, unacked_since) = (Timestamp(index), Timestamp(since));
                all.push((
                    number,
                    QueuedMessage { message, counts, head, enqueued_at, unacked_since },
                ));
                number += 1;
            }
        }
        all
    })
}

pub(super) fn reply() -> impl Strategy<Value = Reply> {
    let message = (any::<u8>(), number(), number32()).prop_map(|(level, index, position)| {
        MessageId { level: Level(level), index: LogIndex(index), position }
    });
    let got = (queue_id(), message, number32(), number32(), number()).prop_map(
        |(queue, message, acquired, returned, ready)| Got {
            queue,
            message,
            counts: Counts { acquired, returned },
            ready,
        },
    );
    prop_oneof![
        select(vec![
            Reply::Taken,
            Reply::Gone,
            Reply::InUse,
            Reply::NotEmpty,
            Reply::ExclusiveInUse,
            Reply::Empty,
            Reply::Full,
        ]),
        queue_id().prop_map(Reply::Created),
        (number(), number32(), number()).prop_map(|(ready, consumers, index)| {
            Reply::Alive(QueueReport { ready, consumers, configured_at: CatalogIndex(index) })
        }),
        number().prop_map(|ready| Reply::Ended { ready }),
        number().prop_map(|messages| Reply::Purged { messages }),
        vec((number32(), number32()), 0..4).prop_map(Reply::Refused),
        got.prop_map(Reply::Got),
    ]
}

pub(super) fn group_record() -> impl Strategy<Value = Record> {
    let left_over = prop_oneof![
        (queue_id(), session(), number(), any::<bool>()).prop_map(
            |(queue, session, gets, counted)| LeftOver::RequeueSession {
                queue,
                session,
                gets_through: Sequence(gets),
                counted
            }
        ),
        queue_id().prop_map(|queue| LeftOver::CheckOut { queue }),
    ];
    (stamp(), any::<u64>(), number(), vec(left_over, 0..4), letters_record()).prop_map(
        |(stamp, digest, life, left_over, letters)| {
            let left_over = left_over.into();
            Record::Group(GroupRecord {
                time: stamp.time,
                wall: stamp.wall,
                digest,
                life,
                left_over,
                letters,
            })
        },
    )
}

pub(super) fn holding_record() -> impl Strategy<Value = Record> {
    let timed_out = prop::collection::btree_set(number().prop_map(DeliveryNumber), 0..4);
    let flags = (any::<bool>(), timed_out, any::<bool>(), any::<bool>(), number());
    let consumer = (terms(), number(), number(), flags, queued());
    prop_oneof![
        consumer.prop_map(|(terms, next, up_to, flags, queued)| {
            let (cancelled, timed_out, lost, paused, arrival) = flags;
            let queued =
                queued.into_iter().map(|(n, queued)| (DeliveryNumber(n), queued)).collect();
            let (next, up_to) = (DeliveryNumber(next), DeliveryNumber(up_to));
            Record::Consumer(ConsumerRecord {
                terms,
                next,
                up_to,
                cancelled,
                timed_out,
                arrival,
                lost,
                paused,
                unacked: queued,
            })
        }),
        (queued(), any::<Option<u64>>()).prop_map(|(queued, timeout_default_ms)| Record::Gets(
            GetsRecord {
                timeout_default_ms,
                unacked: queued.into_iter().map(|(n, queued)| (Sequence(n), queued)).collect()
            }
        )),
        queued().prop_map(|queued| Record::Requeued(RequeuedRecord {
            messages: queued
                .into_iter()
                .map(|(_, queued)| ((queued.message.index, queued.message.position), queued))
                .collect()
        })),
        queued().prop_map(|queued| Record::Delayed(DelayedRecord {
            messages: queued
                .into_iter()
                .map(|(until, queued)| {
                    let QueuedMessage { message, .. } = queued;
                    ((message.index, message.position), (Timestamp(until), queued))
                })
                .collect()
        })),
    ]
}

pub(super) fn record() -> impl Strategy<Value = Record> {
    let session = (number(), number(), vec((number(), reply()), 0..4), any::<bool>());
    prop_oneof![
        letters(),
        group_record(),
        queue_record(),
        holding_record(),
        (number(), any::<bool>()).prop_map(|(fenced, suspected)| {
            Record::Node(NodeRecord { fenced: StartNumber(fenced), suspected })
        }),
        session.prop_map(|(last, mark, answers, letters)| {
            let answers = answers.into_iter().map(|(n, reply)| (Sequence(n), reply)).collect();
            let record = SessionRecord { last: Sequence(last), mark: Sequence(mark), answers };
            if letters { Record::Source(record) } else { Record::Session(record) }
        }),
    ]
}

pub(super) fn record_key() -> impl Strategy<Value = RecordKey> {
    prop_oneof![
        Just(RecordKey::Group),
        node().prop_map(RecordKey::Node),
        session().prop_map(RecordKey::Session),
        letter_home().prop_map(RecordKey::Source),
        (queue_id(), any::<u64>()).prop_map(|(queue, page)| RecordKey::Letters(queue, page)),
        queue_id().prop_map(RecordKey::Queue),
        (queue_id(), consumer()).prop_map(|(queue, consumer)| RecordKey::Consumer(queue, consumer)),
        (queue_id(), session()).prop_map(|(queue, session)| RecordKey::Gets(queue, session)),
        (queue_id(), any::<u8>()).prop_map(|(queue, l)| RecordKey::Requeued(queue, Level(l))),
        (queue_id(), any::<u8>(), any::<u64>()).prop_map(|(queue, l, page)| RecordKey::Delayed(
            queue,
            Level(l),
            page
        )),
    ]
}

pub(super) fn message() -> impl Strategy<Value = Message> {
    let annotations = vec((short(), any::<i64>()), 0..3).prop_map(|fields| {
        FieldTable(fields.into_iter().map(|(name, n)| (name, FieldValue::I64(n))).collect())
    });
    let bytes = || vec(any::<u8>(), 0..300).prop_map(Bytes::from);
    (short(), short(), vec(short(), 0..3), bytes(), annotations, bytes()).prop_map(
        |(exchange, routing_key, further_keys, properties, annotations, body)| Message {
            exchange,
            routing_key,
            further_keys,
            properties,
            annotations,
            body,
        },
    )
}

pub(super) fn log_entry() -> impl Strategy<Value = LogEntry> {
    let bytes = || vec(any::<u8>(), 0..100).prop_map(Bytes::from);
    // Some are large enough to be shared instead of copied.
    let body = prop_oneof![bytes(), Just(Bytes::from(vec![9; 5000]))];
    let run = vec(option::weighted(0.8, body), 0..4).prop_map(|messages| RunBodies { messages });
    let payload = prop_oneof![
        Just(Payload::Blank),
        bytes().prop_map(Payload::Membership),
        (bytes(), vec(run, 0..4))
            .prop_map(|(command, bodies)| Payload::Commands(CommandEntry { command, bodies })),
    ];
    (number(), any::<u16>(), number(), payload).prop_map(|(term, leader, index, payload)| {
        let id = EntryId { term: Term(term), leader: NodeId(leader), index: LogIndex(index) };
        LogEntry { id, payload }
    })
}
