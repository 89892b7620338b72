//! Encodings: what goes in comes out; arbitrary octets are refused or read, never a panic, never
//! more memory than they warrant; keys sort as what they name.

use super::queue;
use crate::{
    CommandEntry, EntryId, LogEntry, Payload, RunBodies,
    codec::{
        self,
        batch::{ProposedBatch, ProposedRun},
        key::{self, RunKey},
    },
};
use bytes::{Bytes, BytesMut};
use proptest::{collection::vec, option, prelude::*, sample::select};
use quorate_queue::{
    Batch, Command, ConsumerRecord, ConsumerTerms, Counts, DeadLetter, Detach, Entry, GetsRecord,
    Got, GroupRecord, Held, LeftOver, LevelRecord, MessageHead, NodeRecord, Origin, QueueConfig,
    QueueRecord, QueueReport, Record, RecordKey, Reply, ReturnCause, ReturnedRecord, Run, RunHead,
    SessionRecord,
};
use quorate_types::{
    CatalogIndex, ConsumerId, DeliveryNumber, FieldTable, FieldValue, GroupId, Holder, Home, Level,
    LogIndex, Message, MessageId, NodeId, Overflow, QueueId, QueueType, ResourceName, Sequence,
    SessionId, ShortString, Stamp, StartNumber, Term, Timestamp, WallTime,
};

/// Numbers of every length, the ends among them.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..300u64, 2 => any::<u64>(), 1 => select(vec![0, u64::MAX, u64::MAX - 1])]
}

fn number32() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..300u32, 1 => any::<u32>()]
}

fn queue_id() -> impl Strategy<Value = QueueId> {
    let home = prop_oneof![
        any::<u16>().prop_map(|group| Home::Group(GroupId(group))),
        any::<u16>().prop_map(|node| Home::Node(NodeId(node))),
    ];
    (home, number(), number32()).prop_map(|(home, index, position)| QueueId {
        home,
        index,
        position,
    })
}

fn session() -> impl Strategy<Value = SessionId> {
    (any::<u16>(), number())
        .prop_map(|(node, start)| SessionId { node: NodeId(node), start: StartNumber(start) })
}

fn consumer() -> impl Strategy<Value = ConsumerId> {
    (session(), number()).prop_map(|(session, number)| ConsumerId { session, number })
}

fn holder() -> impl Strategy<Value = Holder> {
    prop_oneof![
        consumer().prop_map(Holder::Consumer),
        (session(), number()).prop_map(|(session, number)| Holder::Get(session, Sequence(number))),
    ]
}

fn short() -> impl Strategy<Value = ShortString> {
    "\\PC{0,20}".prop_map(|text| ShortString::try_from(text).unwrap())
}

fn name() -> impl Strategy<Value = ResourceName> {
    (short(), short()).prop_map(|(vhost, name)| ResourceName { vhost, name })
}

fn head() -> impl Strategy<Value = MessageHead> {
    (number32(), option::of(number()))
        .prop_map(|(body_bytes, expiration_ms)| MessageHead { body_bytes, expiration_ms })
}

fn config() -> impl Strategy<Value = QueueConfig> {
    let overflow =
        select(vec![Overflow::DropHead, Overflow::RejectPublish, Overflow::RejectPublishDlx]);
    let dead_letter = option::of((short(), option::of(short()), any::<bool>()).prop_map(
        |(exchange, routing_key, at_least_once)| DeadLetter {
            exchange,
            routing_key,
            at_least_once,
        },
    ));
    let limits = (option::of(number()), option::of(number()), option::of(number32()));
    let times = (option::of(number()), option::of(number()), option::of(number()));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (number(), flags, overflow, dead_letter, limits, times, option::of(any::<u8>())).prop_map(
        |(index, flags, overflow, dead_letter, limits, times, priority_max)| QueueConfig {
            resolved_at: CatalogIndex(index),
            queue_type: if flags.0 { QueueType::Quorum } else { QueueType::Classic },
            durable: flags.1,
            auto_delete: flags.2,
            priority_max,
            message_ttl_ms: times.0,
            expires_ms: times.1,
            length_max: limits.0,
            length_bytes_max: limits.1,
            overflow,
            delivery_limit: limits.2,
            delivery_count_failures: flags.3,
            dead_letter,
            single_active_consumer: flags.4,
            consumer_timeout_ms: times.2,
        },
    )
}

fn terms() -> impl Strategy<Value = ConsumerTerms> {
    let flags = (any::<bool>(), any::<bool>());
    (option::of(number32()), number(), flags, any::<i64>(), short()).prop_map(
        |(prefetch, up_to, (exclusive, no_ack), priority, tag)| ConsumerTerms {
            prefetch,
            up_to: DeliveryNumber(up_to),
            exclusive,
            priority,
            tag,
            no_ack,
        },
    )
}

fn numbers() -> impl Strategy<Value = Vec<(DeliveryNumber, DeliveryNumber)>> {
    vec((number().prop_map(DeliveryNumber), number().prop_map(DeliveryNumber)), 0..4)
}

fn node() -> impl Strategy<Value = NodeId> {
    any::<u16>().prop_map(NodeId)
}

fn queue_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (name(), config()).prop_map(|(name, config)| Command::CreateQueue { name, config }),
        (queue_id(), any::<bool>(), any::<bool>()).prop_map(|(queue, if_unused, if_empty)| {
            Command::EndQueue { queue, if_unused, if_empty }
        }),
        (queue_id(), config()).prop_map(|(queue, config)| Command::Configure { queue, config }),
        (queue_id(), any::<bool>()).prop_map(|(queue, renew)| Command::Look { queue, renew }),
        queue_id().prop_map(|queue| Command::Get { queue }),
        queue_id().prop_map(|queue| Command::Purge { queue }),
        (queue_id(), consumer(), terms()).prop_map(|(queue, consumer, terms)| Command::Attach {
            queue,
            consumer,
            terms
        }),
    ]
}

fn holder_command() -> impl Strategy<Value = Command> {
    let causes =
        [ReturnCause::Reject, ReturnCause::Nack, ReturnCause::Recover, ReturnCause::ChannelEnd];
    prop_oneof![
        (holder(), numbers()).prop_map(|(holder, numbers)| Command::Settle { holder, numbers }),
        (holder(), numbers(), select(causes.to_vec()))
            .prop_map(|(holder, numbers, cause)| Command::Return { holder, numbers, cause }),
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

fn group_command() -> impl Strategy<Value = Command> {
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
        number().prop_map(|life| Command::NewLife { life }),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![queue_command(), holder_command(), group_command()]
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (number(), number())
        .prop_map(|(time, wall)| Stamp { time: Timestamp(time), wall: WallTime(wall) })
}

fn entry() -> impl Strategy<Value = Entry> {
    let run = (queue_id(), any::<u8>(), vec(head(), 0..5))
        .prop_map(|(queue, level, messages)| Run { queue, level: Level(level), messages });
    let origin = prop_oneof![
        Just(Origin::Leader),
        (session(), number(), number()).prop_map(|(session, first, mark)| Origin::Session {
            session,
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
                Origin::Session { .. } | Origin::Leader => commands,
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
    if let Command::Settle { holder, numbers } = command {
        let holder = match holder {
            Holder::Consumer(consumer) => Holder::Consumer(ConsumerId { session, ..consumer }),
            Holder::Get(_, sequence) => Holder::Get(session, sequence),
        };
        return Command::Settle { holder, numbers };
    }
    command
}

/// Stretches of consecutive numbers and positions, as deliveries are, with breaks.
fn held() -> impl Strategy<Value = Vec<(u64, Held)>> {
    let stretch = (1..4u64, 0..3u8, 0..5u64, 0..9u32, 0..2u32, vec(head(), 1..5));
    vec(stretch, 0..5).prop_map(|stretches| {
        let mut number = 0;
        let mut all = Vec::new();
        for (gap, level, index, first, acquired, heads) in stretches {
            number += gap;
            for (position, head) in (first..).zip(heads) {
                let message = MessageId { level: Level(level), index: LogIndex(index), position };
                let counts = Counts { acquired, returned: 0 };
                all.push((number, Held { message, counts, head, enqueued_at: Timestamp(index) }));
                number += 1;
            }
        }
        all
    })
}

fn reply() -> impl Strategy<Value = Reply> {
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

fn queue_record() -> impl Strategy<Value = Record> {
    let level = (any::<u8>(), number(), number32(), number(), number(), number()).prop_map(
        |(level, head, head_position, fresh, fresh_bytes, removed)| {
            let record = LevelRecord {
                head_index: LogIndex(head),
                head_position,
                fresh,
                fresh_bytes,
                removed_below: LogIndex(removed),
            };
            (Level(level), record)
        },
    );
    let rest = (option::of(session()), number(), number(), any::<bool>(), vec(consumer(), 0..4));
    (name(), config(), rest, vec(level, 0..4)).prop_map(|(name, config, rest, levels)| {
        let (creator, life, used_at, had_consumer, turns) = rest;
        Record::Queue(Box::new(QueueRecord {
            name,
            config,
            creator,
            life,
            used_at: Timestamp(used_at),
            had_consumer,
            levels: levels.into_iter().collect(),
            turns: turns.into(),
        }))
    })
}

fn group_record() -> impl Strategy<Value = Record> {
    let left_over = prop_oneof![
        (queue_id(), session(), number(), any::<bool>()).prop_map(
            |(queue, session, gets, counted)| LeftOver::ReturnSession {
                queue,
                session,
                gets_through: Sequence(gets),
                counted
            }
        ),
        queue_id().prop_map(|queue| LeftOver::CheckOut { queue }),
    ];
    (stamp(), any::<u64>(), number(), vec(left_over, 0..4)).prop_map(
        |(stamp, digest, life, left_over)| {
            let left_over = left_over.into();
            Record::Group(GroupRecord {
                time: stamp.time,
                wall: stamp.wall,
                digest,
                life,
                left_over,
            })
        },
    )
}

fn holding_record() -> impl Strategy<Value = Record> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let consumer = (terms(), number(), number(), flags, held());
    prop_oneof![
        consumer.prop_map(|(terms, next, up_to, (cancelled, lost, paused), held)| {
            let held = held.into_iter().map(|(n, held)| (DeliveryNumber(n), held)).collect();
            let (next, up_to) = (DeliveryNumber(next), DeliveryNumber(up_to));
            Record::Consumer(ConsumerRecord { terms, next, up_to, cancelled, lost, paused, held })
        }),
        held().prop_map(|held| Record::Gets(GetsRecord {
            held: held.into_iter().map(|(n, held)| (Sequence(n), held)).collect()
        })),
        held().prop_map(|held| Record::Returned(ReturnedRecord {
            messages: held
                .into_iter()
                .map(|(_, held)| ((held.message.index, held.message.position), held))
                .collect()
        })),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let session = (number(), number(), vec((number(), reply()), 0..4));
    prop_oneof![
        group_record(),
        queue_record(),
        holding_record(),
        (number(), any::<bool>()).prop_map(|(fenced, suspected)| {
            Record::Node(NodeRecord { fenced: StartNumber(fenced), suspected })
        }),
        session.prop_map(|(last, mark, answers)| Record::Session(SessionRecord {
            last: Sequence(last),
            mark: Sequence(mark),
            answers: answers.into_iter().map(|(n, reply)| (Sequence(n), reply)).collect(),
        })),
    ]
}

fn record_key() -> impl Strategy<Value = RecordKey> {
    prop_oneof![
        Just(RecordKey::Group),
        node().prop_map(RecordKey::Node),
        session().prop_map(RecordKey::Session),
        queue_id().prop_map(RecordKey::Queue),
        (queue_id(), consumer()).prop_map(|(queue, consumer)| RecordKey::Consumer(queue, consumer)),
        (queue_id(), session()).prop_map(|(queue, session)| RecordKey::Gets(queue, session)),
        (queue_id(), any::<u8>()).prop_map(|(queue, l)| RecordKey::Returned(queue, Level(l))),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let annotations = vec((short(), any::<i64>()), 0..3).prop_map(|fields| {
        FieldTable(fields.into_iter().map(|(name, n)| (name, FieldValue::I64(n))).collect())
    });
    let octets = || vec(any::<u8>(), 0..300).prop_map(Bytes::from);
    (short(), short(), vec(short(), 0..3), octets(), annotations, octets()).prop_map(
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

fn log_entry() -> impl Strategy<Value = LogEntry> {
    let octets = || vec(any::<u8>(), 0..100).prop_map(Bytes::from);
    // Some large enough to be shared instead of copied.
    let body = prop_oneof![octets(), Just(Bytes::from(vec![9; 5000]))];
    let run = vec(option::weighted(0.8, body), 0..4).prop_map(|messages| RunBodies { messages });
    let payload = prop_oneof![
        Just(Payload::Blank),
        octets().prop_map(Payload::Membership),
        (octets(), vec(run, 0..4))
            .prop_map(|(command, bodies)| Payload::Commands(CommandEntry { command, bodies })),
    ];
    (number(), any::<u16>(), number(), payload).prop_map(|(term, leader, index, payload)| {
        let id = EntryId { term: Term(term), leader: NodeId(leader), index: LogIndex(index) };
        LogEntry { id, payload }
    })
}

/// A batch whose enqueues cover its runs, each in one to three parts.
fn batch() -> impl Strategy<Value = ProposedBatch> {
    let run = (vec(1..4u32, 1..4), vec(any::<u8>(), 12), any::<bool>());
    let runs = prop::collection::btree_map((1..4u64, 0..2u8), run, 0..4);
    (session(), number(), runs, vec(holder_command(), 0..3)).prop_map(
        |(session, first, runs, others)| {
            let (mut proposed, mut commands) = (Vec::new(), others);
            for (place, ((number, level), (parts, octets, long))) in (0u32..).zip(runs) {
                let mut covered = 0;
                for count in parts {
                    commands.push(Command::Enqueue { run: place, first: covered, count });
                    covered += count;
                }
                let length = if long { 4500 } else { 3 };
                let messages: Vec<Bytes> = octets
                    .into_iter()
                    .take(covered as usize)
                    .map(|octet| Bytes::from(vec![octet; length]))
                    .collect();
                let head = |m: &Bytes| MessageHead {
                    body_bytes: u32::from(m[0]) + 1000 * u32::from(level),
                    expiration_ms: None,
                };
                let heads = messages.iter().map(head).collect();
                let (queue, level) = (queue(number), Level(level));
                proposed.push(ProposedRun { queue, level, heads, messages });
            }
            let (first, mark) = (Sequence(first), Sequence(first / 2));
            ProposedBatch { session, first, mark, runs: proposed, commands }
        },
    )
}

fn whole(chain: Vec<Bytes>) -> Bytes {
    Bytes::from(chain.concat())
}

/// The messages that the enqueues of a batch enqueue: queue, level, size, octets.
type Enqueued = (QueueId, Level, MessageHead, Option<Bytes>);

/// A run with its messages.
type FullRun = (QueueId, Level, Vec<MessageHead>, Vec<Option<Bytes>>);

fn enqueued(commands: &[Command], runs: &[FullRun]) -> Vec<Enqueued> {
    let mut all = Vec::new();
    for command in commands {
        if let Command::Enqueue { run, first, count } = command {
            let (queue, level, heads, messages) = &runs[*run as usize];
            for position in *first..*first + *count {
                let position = position as usize;
                all.push((*queue, *level, heads[position], messages[position].clone()));
            }
        }
    }
    all
}

proptest! {
    #[test]
    fn entries_round_trip(entry in entry()) {
        let octets = codec::queue::encode_entry(&entry);
        let heads = codec::queue::decode_heads(&octets).unwrap();
        prop_assert_eq!(&heads, &(entry.stamp, entry.runs.clone()));
        prop_assert_eq!(codec::queue::decode_entry(&octets).unwrap(), entry);
        for end in 0..octets.len() {
            prop_assert!(codec::queue::decode_entry(&octets[..end]).is_err(), "cut at {}", end);
        }
    }

    #[test]
    fn records_round_trip(key in record_key(), record in record()) {
        let octets = codec::queue::encode_key(key);
        prop_assert_eq!(codec::queue::decode_key(&octets).unwrap(), key);
        let octets = codec::queue::encode_record(&record);
        prop_assert_eq!(codec::queue::decode_record(&octets).unwrap(), record);
        for end in 0..octets.len() {
            prop_assert!(codec::queue::decode_record(&octets[..end]).is_err(), "cut at {}", end);
        }
    }

    #[test]
    fn keys_of_records_sort_as_the_records(left in record_key(), right in record_key()) {
        let (l, r) = (codec::queue::encode_key(left), codec::queue::encode_key(right));
        prop_assert_eq!(l.cmp(&r), left.cmp(&right));
    }

    #[test]
    fn messages_round_trip_without_a_copy(message in message()) {
        let mut out = BytesMut::from(&b"before"[..]);
        let length = codec::message::encode_into(&message, &mut out);
        let octets = out.freeze().slice(6..);
        prop_assert_eq!(octets.len(), length);
        prop_assert_eq!(&codec::message::encode(&message), &octets);
        let found = codec::message::decode(&octets).unwrap();
        if !message.body.is_empty() {
            prop_assert_eq!(found.body.as_ptr_range().end, octets.as_ptr_range().end);
        }
        prop_assert_eq!(found, message);
    }

    #[test]
    fn entries_on_the_wire_round_trip_without_a_copy(entry in log_entry()) {
        let octets = whole(codec::log::encode_wire(&entry));
        let found = codec::log::decode_wire(&octets).unwrap();
        if let Payload::Commands(commands) = &found.payload {
            for message in commands.bodies.iter().flat_map(|run| &run.messages).flatten() {
                let inside = octets.as_ptr_range().contains(&message.as_ptr());
                prop_assert!(message.is_empty() || inside);
            }
        }
        prop_assert_eq!(&found, &entry);
        let mut record = BytesMut::new();
        codec::log::put_record(&entry, &mut record);
        let mut stored = codec::log::record(entry.id.index, &record).unwrap();
        if let (Payload::Commands(stored), Payload::Commands(commands)) =
            (&mut stored.payload, &entry.payload)
        {
            stored.bodies.clone_from(&commands.bodies);
        }
        prop_assert_eq!(stored, entry);
    }

    #[test]
    fn runs_round_trip(
        heads in vec(option::of(head()), 0..5),
        time in number(),
        messages in vec(option::of(vec(any::<u8>(), 0..9)), 0..5),
    ) {
        let head = RunHead { index: LogIndex(4), time: Timestamp(time), messages: heads };
        let mut out = BytesMut::new();
        codec::run::put_heads(&head, &mut out);
        prop_assert_eq!(codec::run::heads(LogIndex(4), &out).unwrap(), head);
        let messages: Vec<_> = messages.into_iter().map(|m| m.map(Bytes::from)).collect();
        let run = RunBodies { messages };
        out.clear();
        codec::run::put_bodies(&run, &mut out);
        prop_assert_eq!(&codec::run::bodies(&out).unwrap(), &run);
        for (position, message) in (0u32..).zip(&run.messages) {
            prop_assert_eq!(&codec::run::body(&out, position).unwrap(), message);
        }
        prop_assert_eq!(codec::run::body(&out, run.messages.len() as u32).unwrap(), None);
    }

    #[test]
    fn batches_round_trip(batch in batch()) {
        let octets = whole(codec::batch::encode_batch(&batch));
        prop_assert_eq!(codec::batch::decode_batch(&octets).unwrap(), batch);
    }

    #[test]
    fn batches_that_do_not_cover_their_runs_are_refused(batch in batch(), which in any::<u8>()) {
        let enqueues: Vec<usize> = (0..batch.commands.len())
            .filter(|at| matches!(batch.commands[*at], Command::Enqueue { .. }))
            .collect();
        prop_assume!(!enqueues.is_empty());
        let at = enqueues[usize::from(which) % enqueues.len()];
        let mut without = batch.clone();
        without.commands.remove(at);
        let mut twice = batch.clone();
        twice.commands.insert(at, batch.commands[at].clone());
        for wrong in [without, twice] {
            let octets = whole(codec::batch::encode_batch(&wrong));
            prop_assert!(codec::batch::decode_batch(&octets).is_err());
        }
    }

    #[test]
    fn merged_batches_enqueue_what_each_enqueued(batches in vec(batch(), 0..4)) {
        let stamp = Stamp { time: Timestamp(9), wall: WallTime(10) };
        let (entry, bodies) = codec::batch::merge(batches.clone(), stamp);
        prop_assert_eq!(entry.stamp, stamp);
        let runs: Vec<FullRun> = entry
            .runs
            .iter()
            .zip(&bodies)
            .map(|(run, b)| (run.queue, run.level, run.messages.clone(), b.messages.clone()))
            .collect();
        // One run for each queue and level, covered once and in order.
        let mut covered = vec![0; runs.len()];
        for command in entry.batches.iter().flat_map(|batch| &batch.commands) {
            if let Command::Enqueue { run, first, count } = command {
                prop_assert_eq!(covered[*run as usize], *first);
                covered[*run as usize] += count;
            }
        }
        for (at, (queue, level, heads, messages)) in runs.iter().enumerate() {
            prop_assert_eq!(covered[at] as usize, heads.len());
            prop_assert_eq!(heads.len(), messages.len());
            prop_assert!(runs[..at].iter().all(|other| (other.0, other.1) != (*queue, *level)));
        }
        for (merged, batch) in entry.batches.iter().zip(&batches) {
            let own: Vec<FullRun> = batch
                .runs
                .iter()
                .map(|run| {
                    let messages = run.messages.iter().cloned().map(Some).collect();
                    (run.queue, run.level, run.heads.clone(), messages)
                })
                .collect();
            prop_assert_eq!(enqueued(&merged.commands, &runs), enqueued(&batch.commands, &own));
            let ProposedBatch { session, first, mark, .. } = *batch;
            prop_assert_eq!(merged.origin, Origin::Session { session, first, mark });
            prop_assert_eq!(merged.commands.len(), batch.commands.len());
        }
        prop_assert_eq!(entry.batches.len(), batches.len());
    }

    #[test]
    fn arbitrary_octets_never_panic(octets in vec(any::<u8>(), 0..200), version in any::<bool>()) {
        let mut octets = octets;
        if let (true, Some(first)) = (version, octets.first_mut()) {
            *first = 1;
        }
        let octets = Bytes::from(octets);
        // What is read by luck is written and read again as the same.
        if let Ok(entry) = codec::queue::decode_entry(&octets) {
            let again = codec::queue::encode_entry(&entry);
            prop_assert_eq!(codec::queue::decode_entry(&again).unwrap(), entry);
        }
        if let Ok(entry) = codec::catalog::decode_entry(&octets) {
            let again = codec::catalog::encode_entry(&entry);
            prop_assert_eq!(codec::catalog::decode_entry(&again).unwrap(), entry);
        }
        drop(codec::queue::decode_record(&octets));
        drop(codec::catalog::decode_record(&octets));
        drop(codec::catalog::decode_key(&octets));
        drop(codec::message::decode(&octets));
        drop(codec::log::decode_wire(&octets));
        drop(codec::log::record(LogIndex(1), &octets));
        drop(codec::run::heads(LogIndex(1), &octets));
        drop(codec::run::bodies(&octets));
        drop(codec::run::body(&octets, 1));
        drop(codec::batch::decode_batch(&octets));
        let _ = (codec::queue::decode_key(&octets), codec::log::decode_id(&octets));
    }

    #[test]
    fn changed_octets_never_panic(entry in entry(), at in any::<prop::sample::Index>(), by in 1..=255u8) {
        let mut octets = codec::queue::encode_entry(&entry).to_vec();
        let at = at.index(octets.len());
        octets[at] = octets[at].wrapping_add(by);
        drop(codec::queue::decode_entry(&octets));
    }

    #[test]
    fn runs_sort_by_queue_level_index(
        left in (queue_id(), any::<u8>(), number()),
        right in (queue_id(), any::<u8>(), number()),
        group in any::<u16>(),
    ) {
        let run = |(queue, level, index): (QueueId, u8, u64)| RunKey {
            queue,
            level: Level(level),
            index: LogIndex(index),
        };
        let group = GroupId(group);
        let (l, r) = (key::run_key(group, run(left)), key::run_key(group, run(right)));
        prop_assert_eq!(l.cmp(&r), run(left).cmp(&run(right)));
        prop_assert_eq!(key::decode_run_key(group, &l).unwrap(), run(left));
        prop_assert!(key::group_start(group).as_slice() <= &l[..]);
        prop_assert!(&l[..] < key::group_end(group).as_slice());
    }
}

#[test]
fn a_count_that_lies_reserves_nothing() {
    // Version, stamp, then a count of runs far beyond the octets.
    let octets = [1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
    assert!(codec::queue::decode_entry(&octets).is_err());
    let octets = Bytes::from_static(&[1, 0xff, 0xff, 0xff, 0xff]);
    assert!(codec::run::bodies(&octets).is_err());
}

#[test]
fn deliveries_held_in_a_row_cost_two_octets_each() {
    let held = (1..=2000u32)
        .map(|position| {
            let held = Held {
                message: MessageId { level: Level(0), index: LogIndex(70_000), position },
                counts: Counts::default(),
                head: MessageHead { body_bytes: 1024, expiration_ms: None },
                enqueued_at: Timestamp(5),
            };
            (Sequence(u64::from(position)), held)
        })
        .collect();
    let octets = codec::queue::encode_record(&Record::Gets(GetsRecord { held }));
    assert!(octets.len() < 4050, "{} octets", octets.len());
}
