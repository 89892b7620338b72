//! The codec against itself, and against amq-protocol, an independent implementation.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use crate::codec::{
    PROTOCOL_HEADER,
    cold::{Cold, basic, channel, confirm, connection, exchange, queue, tx},
    content::{self, Assembly, ContentHeader, Excess},
    frame::{self, Frame, HEADER_BYTES, Kind, take},
    hot,
    method::{Method, MethodErrorCause, MethodId},
};
use amq_protocol::{
    frame::{AMQPFrame, ProtocolVersion, gen_frame},
    protocol::{AMQPClass, AMQPErrorKind, constants, parse_class},
};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use quorate_types::{FieldTable, FieldValue, ReplyCode, Scope, ShortString};

fn short() -> impl Strategy<Value = ShortString> {
    prop_oneof![
        "[a-z.]{0,12}".prop_map(|text| ShortString::try_from(text).unwrap()),
        "\\PC{0,60}".prop_map(|text| ShortString::try_from(text).unwrap_or_default()),
    ]
}

fn long() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

fn value() -> impl Strategy<Value = FieldValue> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(FieldValue::Bool),
        any::<i8>().prop_map(FieldValue::I8),
        any::<u8>().prop_map(FieldValue::U8),
        any::<i16>().prop_map(FieldValue::I16),
        any::<u16>().prop_map(FieldValue::U16),
        any::<i32>().prop_map(FieldValue::I32),
        any::<u32>().prop_map(FieldValue::U32),
        any::<i64>().prop_map(FieldValue::I64),
        (-1e9f64..1e9).prop_map(FieldValue::F64),
        (any::<u8>(), any::<u32>()).prop_map(|(scale, value)| FieldValue::Decimal { scale, value }),
        any::<u64>().prop_map(FieldValue::Timestamp),
        long().prop_map(FieldValue::LongString),
        long().prop_map(FieldValue::ByteArray),
        Just(FieldValue::Void),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(FieldValue::Array),
            prop::collection::vec((short(), inner), 0..6)
                .prop_map(|fields| FieldValue::Table(FieldTable(fields))),
        ]
    })
}

fn table() -> impl Strategy<Value = FieldTable> {
    prop::collection::vec((short(), value()), 0..6).prop_map(FieldTable)
}

fn hot_method() -> impl Strategy<Value = Method> {
    let (tag, bit) = (any::<u64>(), any::<bool>());
    prop_oneof![
        (short(), short(), bit, bit).prop_map(|(exchange, routing_key, mandatory, immediate)| {
            Method::Publish(hot::Publish { exchange, routing_key, mandatory, immediate })
        }),
        (short(), tag, bit, short(), short()).prop_map(
            |(consumer_tag, delivery_tag, redelivered, exchange, routing_key)| {
                Method::Deliver(hot::Deliver {
                    consumer_tag,
                    delivery_tag,
                    redelivered,
                    exchange,
                    routing_key,
                })
            }
        ),
        (tag, bit, short(), short(), any::<u32>()).prop_map(
            |(delivery_tag, redelivered, exchange, routing_key, message_count)| {
                Method::GetOk(hot::GetOk {
                    delivery_tag,
                    redelivered,
                    exchange,
                    routing_key,
                    message_count,
                })
            }
        ),
        (any::<u16>(), short(), short(), short()).prop_map(
            |(code, text, exchange, routing_key)| {
                Method::Return(hot::Return { code, text, exchange, routing_key })
            }
        ),
        (tag, bit).prop_map(|(delivery_tag, multiple)| {
            Method::Ack(hot::Ack { delivery_tag, multiple })
        }),
        (tag, bit, bit).prop_map(|(delivery_tag, multiple, requeue)| {
            Method::Nack(hot::Nack { delivery_tag, multiple, requeue })
        }),
        (tag, bit).prop_map(|(delivery_tag, requeue)| {
            Method::Reject(hot::Reject { delivery_tag, requeue })
        }),
    ]
}

/// Methods that together have every type of field, and bits in every position.
#[expect(clippy::too_many_lines, reason = "one strategy for each method")]
fn cold_method() -> impl Strategy<Value = Cold> {
    let bits = || any::<[bool; 5]>();
    prop_oneof![
        (table(), short(), long(), short()).prop_map(
            |(client_properties, mechanism, response, locale)| {
                connection::StartOk { client_properties, mechanism, response, locale }.into()
            }
        ),
        (table(), long(), any::<u8>()).prop_map(|(server_properties, mechanisms, version)| {
            connection::Start {
                version_major: version,
                version_minor: 9,
                server_properties,
                locales: mechanisms.clone(),
                mechanisms,
            }
            .into()
        }),
        (any::<u16>(), any::<u32>(), any::<u16>()).prop_map(
            |(channel_max, frame_max, heartbeat)| {
                connection::Tune { channel_max, frame_max, heartbeat }.into()
            }
        ),
        (any::<u16>(), short()).prop_map(|(reply_code, reply_text)| {
            channel::Close { reply_code, reply_text, class_id: 60, method_id: 40 }.into()
        }),
        (short(), short(), bits(), table()).prop_map(|(exchange, kind, bits, arguments)| {
            let [passive, durable, auto_delete, internal, nowait] = bits;
            let ticket = 0;
            exchange::Declare {
                ticket,
                exchange,
                kind,
                passive,
                durable,
                auto_delete,
                internal,
                nowait,
                arguments,
            }
            .into()
        }),
        (short(), bits(), table()).prop_map(|(queue, bits, arguments)| {
            let [passive, durable, exclusive, auto_delete, nowait] = bits;
            let ticket = 0;
            queue::Declare {
                ticket,
                queue,
                passive,
                durable,
                exclusive,
                auto_delete,
                nowait,
                arguments,
            }
            .into()
        }),
        (short(), short(), bits(), table()).prop_map(|(queue, consumer_tag, bits, arguments)| {
            let [no_local, no_ack, exclusive, nowait, _] = bits;
            let ticket = 0;
            basic::Consume {
                ticket,
                queue,
                consumer_tag,
                no_local,
                no_ack,
                exclusive,
                nowait,
                arguments,
            }
            .into()
        }),
        (short(), any::<u32>(), any::<u32>()).prop_map(|(queue, message_count, consumer_count)| {
            queue::DeclareOk { queue, message_count, consumer_count }.into()
        }),
        Just(confirm::Select { nowait: true }.into()),
        Just(tx::Commit {}.into()),
        Just(exchange::UnbindOk {}.into()),
    ]
}

fn put(method: &Method, channel: u16) -> BytesMut {
    let mut out = BytesMut::new();
    method.put(&mut out, channel);
    out
}

proptest! {
    #[test]
    fn methods_survive_being_coded(
        method in prop_oneof![
            hot_method(),
            cold_method().prop_map(|cold| Method::Cold(Box::new(cold))),
        ],
        channel in any::<u16>(),
    ) {
        let mut bytes = put(&method, channel);
        let frame = take(&mut bytes, u32::MAX).unwrap().unwrap();
        prop_assert!(bytes.is_empty());
        prop_assert_eq!((frame.kind, frame.channel), (Kind::Method, channel));
        prop_assert_eq!(Method::decode(frame.payload).unwrap(), method);
    }

    /// FRM-11: no prefix of a method is decoded as a method, nor is a method with an additional
    /// byte.
    #[test]
    fn frm_11_too_short_and_too_long_are_refused(
        method in prop_oneof![
            hot_method(),
            cold_method().prop_map(|cold| Method::Cold(Box::new(cold))),
        ],
        cut in any::<prop::sample::Index>(),
    ) {
        let payload = take(&mut put(&method, 1), u32::MAX).unwrap().unwrap().payload;
        let short = payload.slice(..cut.index(payload.len()));
        let code = Method::decode(short).unwrap_err().exception().0.code.number();
        prop_assert!(code == 501 || code == 502, "{}", code);
        let long = Bytes::from([&payload[..], &[0]].concat());
        let code = Method::decode(long).unwrap_err().exception().0.code.number();
        prop_assert_eq!(code, 501);
    }

    /// Both libraries read each other's bytes as the same method.
    #[test]
    fn amq_protocol_reads_what_is_written(
        method in prop_oneof![
            hot_method(),
            cold_method().prop_map(|cold| Method::Cold(Box::new(cold))),
        ],
    ) {
        let payload = take(&mut put(&method, 1), u32::MAX).unwrap().unwrap().payload;
        let (rest, theirs) = parse_class(&payload[..]).unwrap();
        prop_assert!(rest.is_empty());
        let ids = (theirs.get_amqp_class_id(), theirs.get_amqp_method_id());
        prop_assert_eq!(ids, (method.id().class, method.id().method));
        if !has_table(&method) {
            // amq-protocol sorts tables and drops duplicates.
            let again = theirs_of(&AMQPFrame::Method(1, theirs));
            prop_assert_eq!(&again[HEADER_BYTES..again.len() - 1], &payload[..]);
        }
    }

    /// FRM-10: a body is the same for any division into frames.
    #[test]
    fn frm_10_bodies_may_be_cut_anywhere(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20),
    ) {
        let whole = pieces.concat();
        let mut assembly = Assembly::new(u64::try_from(whole.len()).unwrap(), true);
        let mut counted = Assembly::new(u64::try_from(whole.len()).unwrap(), false);
        for piece in pieces {
            prop_assert!(!assembly.is_complete() || piece.is_empty() || whole.is_empty());
            assembly.push(Bytes::from(piece.clone())).unwrap();
            counted.push(Bytes::from(piece)).unwrap();
            prop_assert_eq!(counted.held_bytes(), 0);
        }
        prop_assert!(assembly.is_complete() && counted.is_complete());
        prop_assert_eq!(assembly.finish(), Bytes::from(whole));
    }
}

/// A frame as amq-protocol writes it.
fn theirs_of(frame: &AMQPFrame) -> Vec<u8> {
    gen_frame(frame)(Vec::new().into()).unwrap().into_inner().0
}

/// The constants of frames. The codec does not take them from amq-protocol, since the fuzz targets,
/// whose dependencies are locked separately, would compile it for these alone.
#[test]
fn frames_are_made_of_what_amq_protocol_says() {
    let version = AMQPFrame::ProtocolHeader(ProtocolVersion::amqp_0_9_1());
    assert_eq!(theirs_of(&version), PROTOCOL_HEADER);
    assert_eq!(
        (frame::END, frame::FRAME_MAX_LEAST),
        (constants::FRAME_END, constants::FRAME_MIN_SIZE)
    );
    for (kind, theirs) in [
        (Kind::Method, constants::FRAME_METHOD),
        (Kind::Header, constants::FRAME_HEADER),
        (Kind::Body, constants::FRAME_BODY),
        (Kind::Heartbeat, constants::FRAME_HEARTBEAT),
    ] {
        assert_eq!(kind as u8, theirs);
    }
}

/// CONN-24 and CONN-25: the numbers, names and severity of reply codes. `quorate-types` cannot take
/// them from amq-protocol, which depends on sockets.
#[test]
fn conn_24_and_25_reply_codes_are_those_of_amq_protocol() {
    for number in 0..=u16::MAX {
        let theirs = AMQPErrorKind::from_id(number).map(|kind| match kind {
            AMQPErrorKind::Soft(error) => (Scope::Channel, error.to_string()),
            AMQPErrorKind::Hard(error) => (Scope::Connection, error.to_string()),
        });
        let ours = ReplyCode::of(number).map(|code| (code.scope(), code.name().replace('_', "-")));
        assert_eq!(ours, theirs, "{number}");
    }
}

/// The name `queue.declare-ok`, made from amq-protocol's `Queue(DeclareOk(…))`.
fn name_of(theirs: &AMQPClass) -> String {
    let text = format!("{theirs:?}");
    let mut words = text.split('(');
    let (class, method) = (words.next().unwrap(), words.next().unwrap());
    let mut name = class.to_lowercase() + ".";
    for (at, letter) in method.char_indices() {
        if at > 0 && letter.is_uppercase() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// Both implementations have the same methods. The codec needs ids in patterns, and amq-protocol
/// provides them only as functions of a method's value.
#[test]
fn ids_of_methods_are_those_of_amq_protocol() {
    let mut known = 0;
    for (class, method) in (0..=120_u16).flat_map(|class| (0..=250_u16).map(move |it| (class, it)))
    {
        let id = MethodId { class, method };
        // Zeros decode as an empty value of any type.
        let mut payload = [class.to_be_bytes(), method.to_be_bytes(), [0; 2]].concat();
        payload.resize(60, 0);
        let Ok((rest, theirs)) = parse_class(&payload[..]) else {
            let cause = Method::decode(payload.into()).unwrap_err().cause;
            assert_eq!(cause, MethodErrorCause::Unknown, "{id}");
            continue;
        };
        known += 1;
        let bytes = payload.len() - rest.len();
        let ours = Method::decode(Bytes::copy_from_slice(&payload[..bytes])).unwrap();
        assert_eq!(ours.id(), id);
        assert_eq!((theirs.get_amqp_class_id(), theirs.get_amqp_method_id()), (class, method));
        if let Method::Cold(cold) = ours {
            assert_eq!(cold.name(), name_of(&theirs));
        }
    }
    assert_eq!(known, 66, "all methods of RabbitMQ's AMQP 0-9-1");
}

fn has_table(method: &Method) -> bool {
    let Method::Cold(cold) = method else { return false };
    cold.fields().contains("FieldTable([(")
}

/// FRM-08: a body longer than the header announced is refused.
#[test]
fn frm_08_more_than_announced_is_refused() {
    let mut assembly = Assembly::new(5, true);
    assembly.push(Bytes::from_static(b"hel")).unwrap();
    assert_eq!(assembly.push(Bytes::from_static(b"lo!")), Err(Excess));
    assembly.push(Bytes::from_static(b"lo")).unwrap();
    assert_eq!(assembly.finish(), "hello");
}

/// A body of one frame is a slice of what was read.
#[test]
fn a_body_in_one_frame_is_not_copied() {
    let read = Bytes::from(vec![7u8; 1000]);
    let mut assembly = Assembly::new(1000, true);
    assembly.push(read.clone()).unwrap();
    assert_eq!(assembly.finish().as_ptr(), read.as_ptr());
}

/// A content is the same for a client and a server.
#[test]
fn a_content_survives_being_coded() {
    let body: Vec<u8> = (0..20_000u32).map(|n| u8::try_from(n % 256).unwrap()).collect();
    let mut bytes = BytesMut::new();
    content::put(&mut bytes, 3, &[0, 0], &body, 8192);
    let mut frames = Vec::new();
    while let Some(frame) = take(&mut bytes, 8192).unwrap() {
        frames.push(frame);
    }
    let Frame { kind: Kind::Header, channel: 3, payload } = frames.remove(0) else {
        panic!("no header");
    };
    let header = ContentHeader::decode(payload).unwrap();
    assert_eq!(
        (header.class, header.body_bytes, &header.properties[..]),
        (60, 20_000, &[0, 0][..])
    );
    assert_eq!(
        frames.iter().map(|frame| frame.payload.len()).collect::<Vec<_>>(),
        [8184, 8184, 3632]
    );
    assert_eq!(frames.iter().flat_map(|frame| frame.payload.to_vec()).collect::<Vec<_>>(), body);
}
