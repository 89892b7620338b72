//! Arbitrary bytes, handled like those of a hostile client: no panic, valid output, bounded memory.
//! Run under proptest here, and by cargo-fuzz from `cluster-tests/fuzz`.

use crate::{
    channel::{Action, Bounds},
    codec::frame::{self, Frame, Kind, take},
    codec::method::Method,
    connection::{
        handshake::{Capabilities, FirstBytes, Handshake, Limits, Question, protocol_header},
        machine::Machine,
    },
    outbox::Outbox,
};
use bytes::{Bytes, BytesMut};
use quorate_client::{
    Answer, ChannelId, DeclareOk, Delivered, Event, FrontSettings, GetOk, HolderRef, PublishOutcome,
};
use quorate_types::{
    ConsumerId, DeliveryNumber, Exception, FieldTable, GroupId, Holder, Home, Message, NodeId,
    ReplyCode, Sequence, SessionId, ShortString, StartNumber,
};

const FRAME_MAX: u32 = 8192;

/// Bytes of a client from its first one on: protocol header, handshake, and, if the handshake
/// succeeds, an open connection.
///
/// # Panics
/// If an invariant is broken.
pub fn fuzz_client(data: &[u8]) {
    let mut input = BytesMut::from(data);
    if protocol_header(&mut input) != FirstBytes::Accepted {
        return;
    }
    let settings = FrontSettings {
        delivery_ahead_bytes: 4 * 1024 * 1024,
        max_message_size: 1 << 20,
        consumer_max_per_channel: None,
        default_consumer_prefetch: 0,
        frame_max: FRAME_MAX,
        channel_max: 16,
        amqp_heartbeat_s: 60,
        handshake_timeout_ms: 10_000,
        handshake_max: 1024,
        amqp_receive_buffer: 0,
        write_timeout_ms: 60_000,
        anonymous_user: Some(ShortString::from_static("visitor")),
        server_properties: FieldTable::default(),
    };
    let mut out = BytesMut::new();
    let mut handshake = Handshake::new(&settings, None, &mut out);
    while let Ok(Some(frame)) = take(&mut input, handshake.frame_max()) {
        match handshake.frame(&frame, &mut out) {
            Ok(None) => {}
            Ok(Some(Question::Credentials(credentials))) => {
                let right = credentials.password.is_none_or(|it| it.len().is_multiple_of(2));
                if handshake.authenticated(right, &mut out).is_err() {
                    return;
                }
            }
            Ok(Some(Question::Open(opening))) => return open(input, opening.limits),
            Err(_) => return,
        }
    }
}

/// Bytes as frames of an open connection.
///
/// # Panics
/// If an invariant is broken.
pub fn fuzz_frames(data: &[u8]) {
    open(BytesMut::from(data), limits());
}

/// Bytes as a list of well-formed frames of an open connection: kind, channel, length and payload,
/// so that a fuzzer need not discover the frame format.
///
/// # Panics
/// If an invariant is broken.
pub fn fuzz_payloads(data: &[u8]) {
    let mut input = BytesMut::new();
    let mut rest = data;
    while let [what, length, tail @ ..] = rest {
        let kind = match what % 8 {
            0..=4 => Kind::Method,
            5 => Kind::Header,
            6 => Kind::Body,
            _ => Kind::Heartbeat,
        };
        let length = usize::from(*length).min(tail.len());
        let (payload, tail) = tail.split_at(length);
        frame::put(&mut input, kind, u16::from(what / 8 % 4), payload);
        rest = tail;
    }
    open(input, limits());
}

fn limits() -> Limits {
    Limits { channel_max: 16, frame_max: FRAME_MAX, heartbeat_s: 60 }
}

/// An open connection whose broker answers at once; the answers depend on the operations.
fn open(mut input: BytesMut, limits: Limits) {
    let capabilities = Capabilities {
        authentication_failure_close: true,
        connection_blocked: true,
        consumer_cancel_notify: true,
    };
    let bounds = Bounds {
        max_message_size: 1 << 20,
        consumer_max_per_channel: None,
        default_consumer_prefetch: 0,
    };
    let mut machine =
        Machine::new(ShortString::from_static("/"), limits, capabilities, bounds, None);
    let mut outbox = Outbox::new();
    let received = input.len();
    for turn in 0u32.. {
        let before = input.len();
        while machine.takes_frames() {
            match take(&mut input, limits.frame_max) {
                Ok(Some(frame)) => one_frame(&mut machine, frame, &mut outbox),
                Ok(None) | Err(_) => break,
            }
        }
        settle_down(&mut machine, turn, &mut outbox);
        machine.grant();
        machine.end_turn();
        let _ = machine.events(&mut vec![Event::Unblocked], &mut outbox);
        if input.len() == before {
            break;
        }
    }
    let _ = machine.reports();
    check_sent(&mut outbox, received);
}

fn one_frame(machine: &mut Machine, frame: Frame, outbox: &mut Outbox) {
    if frame.kind == Kind::Method
        && let Ok(method) = Method::decode(frame.payload.clone())
    {
        let mut again = BytesMut::new();
        method.put(&mut again, frame.channel);
        let again = take(&mut again, u32::MAX).ok().flatten().map(|frame| frame.payload);
        let again = again.map(Method::decode);
        assert!(again.as_ref() == Some(&Ok(method)), "a method does not survive being coded");
    }
    machine.frame(frame, outbox);
}

fn settle_down(machine: &mut Machine, turn: u32, outbox: &mut Outbox) {
    loop {
        let publishes = machine.take_publishes();
        let settles = machine.take_settles();
        let actions = machine.take_actions();
        if publishes.is_empty() && settles.is_empty() && actions.is_empty() {
            return;
        }
        let mut events = Vec::new();
        let mut outcomes = Vec::new();
        for publish in publishes {
            outcomes.push(match publish.body.len() % 5 {
                0 => PublishOutcome::Unroutable,
                1 => PublishOutcome::Refused(Exception::new(ReplyCode::NotFound, "no exchange")),
                _ => PublishOutcome::Routed,
            });
            if let Some(number) = publish.confirm {
                let (channel, taken) = (publish.channel, !turn.is_multiple_of(3));
                if outcomes.last() == Some(&PublishOutcome::Routed) {
                    events.push(Event::Confirmed { channel, first: number, last: number, taken });
                }
            }
        }
        let behind = machine.published(outcomes, outbox);
        for settle in settles.iter().chain(&behind) {
            let ascending = settle.numbers.is_sorted_by(|a, b| a.1.0 + 1 < b.0.0);
            assert!(ascending, "ranges touch or go back: {settle:?}");
        }
        events.reverse();
        let _ = machine.events(&mut events, outbox);
        for action in actions {
            if let Action::OpenChannel(channel) = action {
                machine.answer(channel, Ok(Answer::Done), outbox);
            } else if let Action::Start(channel, operation) = action {
                let asked = format!("{operation:?}");
                machine.deliver(&mut vec![delivery(channel, 1)], outbox);
                machine.answer(channel, answer(&asked, turn), outbox);
                machine.deliver(&mut vec![delivery(channel, 2), delivery(channel, 3)], outbox);
            }
        }
    }
}

const SESSION: SessionId = SessionId { node: NodeId(1), start: StartNumber(1) };
const CONSUMER: ConsumerId = ConsumerId { session: SESSION, number: 1 };

fn delivery(channel: ChannelId, number: u64) -> Delivered {
    let holder = HolderRef { home: Home::Group(GroupId(1)), holder: Holder::Consumer(CONSUMER) };
    Delivered {
        channel,
        consumer: CONSUMER,
        tag: ShortString::from_static("t"),
        holder,
        number: DeliveryNumber(number),
        no_ack: false,
        redelivered: false,
        counts: None,
        message: message(),
    }
}

fn message() -> Message {
    Message { body: Bytes::from_static(b"hello"), ..Message::default() }
}

fn answer(asked: &str, turn: u32) -> Result<Answer, Exception> {
    let first = asked.split(['(', ' ']).next().unwrap_or_default();
    Ok(match first {
        _ if asked.len().is_multiple_of(11) => {
            return Err(Exception::new(ReplyCode::NotFound, "nothing here"));
        }
        "QueueDeclare" | "QueueExists" => Answer::Declared(DeclareOk {
            queue: ShortString::from_static("q"),
            messages: 0,
            consumers: 0,
        }),
        "QueuePurge" | "QueueDelete" => Answer::Removed(u64::MAX),
        "Consume" => Answer::Consuming { consumer: CONSUMER, tag: ShortString::from_static("t") },
        "Get" if turn.is_multiple_of(2) => Answer::Got(None),
        "Get" => {
            let holder = Holder::Get(SESSION, Sequence(u64::from(turn)));
            Answer::Got(Some(Box::new(GetOk {
                holder: HolderRef { home: Home::Group(GroupId(1)), holder },
                redelivered: false,
                counts: None,
                message: message(),
                ready: u64::MAX,
            })))
        }
        _ => Answer::Done,
    })
}

/// The output consists of complete frames with valid methods, and its size is proportional to the
/// input.
fn check_sent(outbox: &mut Outbox, received: usize) {
    let bound = 4096 + received * 64;
    assert!(outbox.len() <= bound, "{} bytes answer {received}", outbox.len());
    let mut sent = outbox.take_all();
    while let Ok(Some(frame)) = take(&mut sent, FRAME_MAX) {
        let readable = frame.kind != Kind::Method || Method::decode(frame.payload).is_ok();
        assert!(readable, "a method was sent that cannot be read");
    }
    assert!(sent.is_empty(), "half a frame was sent");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Methods with an effect, as payloads, with a random tail.
    fn payload() -> impl Strategy<Value = Vec<u8>> {
        let heads: Vec<&'static [u8]> = vec![
            &[0, 20, 0, 10, 0],
            &[0, 20, 0, 40, 0, 200, 0, 0, 0, 0, 0],
            &[0, 20, 0, 41],
            &[0, 85, 0, 10, 0],
            &[0, 60, 0, 40, 0, 0, 1, b'x', 1, b'k', 1],
            &[0, 60, 0, 40, 0, 0, 0, 1, b'k', 0],
            &[0, 60, 0, 20, 0, 0, 1, b'q', 1, b't', 0, 0, 0, 0, 0],
            &[0, 60, 0, 30, 1, b't', 0],
            &[0, 60, 0, 70, 0, 0, 1, b'q', 0],
            &[0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 1, 0],
            &[0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0, 60, 0, 120, 0, 0, 0, 0, 0, 0, 0, 2, 2],
            &[0, 60, 0, 110, 1],
            &[0, 50, 0, 10, 0, 0, 1, b'q', 0, 0, 0, 0, 0],
            &[0, 50, 0, 30, 0, 0, 0, 0],
            &[0, 60, 0, 10, 0, 0, 0, 0, 0, 5, 1],
        ];
        let tail = prop_oneof![8 => Just(vec![]), 1 => prop::collection::vec(any::<u8>(), 0..4)];
        (prop::sample::select(heads), tail).prop_map(|(head, tail)| [head, &tail[..]].concat())
    }

    /// A well-formed publish in three frames, any payload, or any frame at all.
    fn frames() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
        let header = |size: u8| [0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, size, 0, 0].to_vec();
        prop_oneof![
            6 => payload().prop_map(|payload| vec![(0, payload)]),
            4 => (0u8..9).prop_map(move |size| {
                let publish = vec![0, 60, 0, 40, 0, 0, 1, b'x', 1, b'k', 1];
                vec![(0, publish), (5, header(size)), (6, vec![b'b'; usize::from(size)])]
            }),
            1 => (any::<u8>(), prop::collection::vec(any::<u8>(), 0..40))
                .prop_map(|(kind, payload)| vec![(kind, payload)]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn arbitrary_bytes_do_no_harm(data in prop::collection::vec(any::<u8>(), 0..400)) {
            fuzz_client(&data);
            fuzz_frames(&data);
            fuzz_payloads(&data);
            fuzz_client(&[&crate::codec::PROTOCOL_HEADER[..], &data].concat());
        }

        #[test]
        fn plausible_frames_do_no_harm(
            frames in prop::collection::vec((0u8..3, frames()), 0..60),
        ) {
            // Channel 1 is open, the others perhaps.
            let mut data = vec![8, 5, 0, 20, 0, 10, 0];
            for (channel, frames) in frames {
                for (kind, payload) in frames {
                    data.push(kind % 8 + (channel + 1).min(3) * 8);
                    data.push(u8::try_from(payload.len()).unwrap_or(u8::MAX));
                    data.extend(payload);
                }
            }
            fuzz_payloads(&data);
        }
    }
}
