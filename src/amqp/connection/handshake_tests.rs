//! The handshake, step by step (CONN-01 to CONN-23, Q-02 to Q-04).

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::{
    codec::{
        cold::{Cold, channel, connection},
        frame::{self, Frame, Kind, take},
        method::Method,
    },
    connection::{
        close::{Ending, Linger},
        handshake::{
            Capabilities, FirstBytes, Handshake, Limits, Opening, Question, protocol_header,
        },
    },
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_client::FrontSettings;
use quorate_types::{FieldTable, FieldValue, ShortString};

fn settings() -> FrontSettings {
    FrontSettings {
        delivery_ahead_bytes: 4 << 20,
        max_message_size: 16 << 20,
        consumer_max_per_channel: None,
        default_consumer_prefetch: 0,
        frame_max: 131_072,
        channel_max: 2047,
        amqp_heartbeat_s: 60,
        handshake_timeout_ms: 10_000,
        handshake_max: 1024,
        amqp_receive_buffer: 0,
        write_timeout_ms: 60_000,
        anonymous_user: None,
        server_properties: FieldTable(vec![(short("product"), FieldValue::text("RabbitMQ"))]),
    }
}

fn short(text: &str) -> ShortString {
    ShortString::try_from(text).unwrap()
}

fn frame_of(channel: u16, method: impl Into<Cold>) -> Frame {
    let mut out = BytesMut::new();
    method.into().put(&mut out, channel);
    take(&mut out, u32::MAX).unwrap().unwrap()
}

fn sent(out: &mut BytesMut) -> Option<Cold> {
    let frame = take(out, u32::MAX).unwrap()?;
    let Method::Cold(cold) = Method::decode(frame.payload).unwrap() else { panic!("hot") };
    Some(*cold)
}

fn start_ok(mechanism: &str, response: &str, capability: Option<&str>) -> connection::StartOk {
    let capabilities = capability
        .map(|name| FieldTable(vec![(short(name), FieldValue::Bool(true))]))
        .map(|table| (short("capabilities"), FieldValue::Table(table)));
    connection::StartOk {
        client_properties: FieldTable(capabilities.into_iter().collect()),
        mechanism: short(mechanism),
        response: Bytes::from(response.to_owned()),
        locale: short("en_US"),
    }
}

fn guest() -> connection::StartOk {
    start_ok("PLAIN", "\0guest\0guest", None)
}

/// A handshake that has begun, and its output.
struct Play(Handshake, BytesMut);

impl Play {
    fn begin() -> Self {
        let mut out = BytesMut::new();
        let handshake = Handshake::new(&settings(), None, &mut out);
        Self(handshake, out)
    }

    /// Plays the handshake up to tune.
    fn authenticated() -> Self {
        let mut play = Self::begin();
        play.1.clear();
        play.take(guest()).unwrap().unwrap();
        play.0.authenticated(true, &mut play.1).unwrap();
        play
    }

    fn take(&mut self, method: impl Into<Cold>) -> Result<Option<Question>, Ending> {
        self.0.frame(&frame_of(0, method), &mut self.1)
    }

    fn tune(&mut self, channel_max: u16, frame_max: u32) -> Result<Option<Question>, Ending> {
        self.take(connection::TuneOk { channel_max, frame_max, heartbeat: 7 })
    }
}

fn text(ending: &Ending) -> (u16, &str, Linger) {
    let Ending::Server { close, linger } = ending else { panic!("{ending:?}") };
    (close.reply_code, close.reply_text.as_str(), *linger)
}

/// CONN-01 to CONN-05, Q-02: the protocol headers that are accepted.
#[test]
fn conn_01_to_04_only_our_protocol_is_let_in() {
    let first = |bytes: &[u8]| protocol_header(&mut BytesMut::from(bytes));
    assert_eq!(first(b"AMQP\x00\x00\x09\x01"), FirstBytes::Accepted);
    assert_eq!(first(b"AMQP\x01\x01\x00\x09"), FirstBytes::Accepted);
    for refused in [
        &b"AMQP\x00\x00\x09\x02"[..],
        b"AMQP\x01\x01\x08\x00",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"GET / HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    ] {
        assert_eq!(first(refused), FirstBytes::Refused);
    }
    assert_eq!(first(b"AMQP\x00\x00\x09"), FirstBytes::Missing);
    assert_eq!(first(b""), FirstBytes::Missing);
}

/// CONN-06, CONN-07: the fields of `connection.start`.
#[test]
fn conn_06_start_offers_plain_and_amqplain() {
    let mut play = Play::begin();
    let Some(Cold::Connection(connection::Method::Start(start))) = sent(&mut play.1) else {
        panic!("no start");
    };
    assert_eq!((start.version_major, start.version_minor), (0, 9));
    assert_eq!(&start.mechanisms[..], b"PLAIN AMQPLAIN");
    assert_eq!(&start.locales[..], b"en_US");
    assert_eq!(start.server_properties, settings().server_properties);
}

/// Before tune-ok only the smallest frame size is accepted; afterwards the negotiated one.
#[test]
fn conn_17_frames_are_small_until_tune_ok() {
    let mut play = Play::begin();
    assert_eq!(play.0.frame_max(), 8192);
    play.take(guest()).unwrap();
    play.0.authenticated(true, &mut play.1).unwrap();
    assert_eq!(play.0.frame_max(), 8192);
    assert_eq!(play.tune(5, 100_000), Ok(None));
    assert_eq!(play.0.frame_max(), 100_000);
}

/// A complete handshake (CONN-16, CONN-19, CONN-20).
#[test]
fn conn_20_a_client_that_does_everything_right_is_let_in() {
    let mut play = Play::begin();
    sent(&mut play.1).unwrap();
    let Some(Question::Credentials(credentials)) = play.take(guest()).unwrap() else {
        panic!("no credentials");
    };
    assert_eq!(credentials.user.as_str(), "guest");
    assert_eq!(credentials.password.as_deref(), Some(&b"guest"[..]));
    play.0.authenticated(true, &mut play.1).unwrap();
    let tune = connection::Tune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 };
    assert_eq!(sent(&mut play.1), Some(tune.into()));
    assert_eq!(play.tune(5, 8192), Ok(None));
    assert_eq!(play.0.frame_max(), 8192);
    let open = connection::Open { virtual_host: short("/"), ..Default::default() };
    assert_eq!(
        play.take(open),
        Ok(Some(Question::Open(Box::new(Opening {
            user: short("guest"),
            mechanism: "PLAIN",
            vhost: short("/"),
            client_properties: FieldTable::default(),
            limits: Limits { channel_max: 5, frame_max: 8192, heartbeat_s: 7 },
        }))))
    );
}

/// CONN-10, CONN-12: nothing is sent.
#[test]
fn conn_12_an_unknown_mechanism_and_a_malformed_response_meet_silence() {
    for bad in [start_ok("EXTERNAL", "", None), start_ok("PLAIN", "guest\0guest", None)] {
        let mut play = Play::begin();
        play.1.clear();
        assert_eq!(play.take(bad), Err(Ending::Silent));
        assert!(play.1.is_empty());
    }
}

/// CONN-14: clients with the capability get a close with the reason; others are disconnected.
#[test]
fn conn_14_a_refused_login_is_told_to_those_who_can_hear_it() {
    let mut play = Play::begin();
    play.take(guest()).unwrap();
    assert_eq!(play.0.authenticated(false, &mut play.1), Err(Ending::Silent));
    let mut play = Play::begin();
    let hears = start_ok("PLAIN", "\0guest\0no", Some("authentication_failure_close"));
    play.take(hears).unwrap();
    let ending = play.0.authenticated(false, &mut play.1).unwrap_err();
    assert_eq!(
        text(&ending),
        (
            403,
            "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details \
             see the broker logfile.",
            Linger::Silence
        )
    );
}

/// CONN-17, CONN-18, Q-03: the bounds of `connection.tune-ok`, and the reason of a refusal.
#[test]
fn q_03_a_negotiation_out_of_range_is_refused_with_its_reason() {
    for (channel_max, frame_max, reason) in [
        (1, 1000, "frame_max = 1000 is lower than the minimum allowed value (8192)"),
        (1, 0, "frame_max = 0 (no limit) is higher than the maximum allowed value (131072)"),
        (1, 131_073, "frame_max = 131073 is higher than the maximum allowed value (131072)"),
        (0, 8192, "channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"),
        (2048, 8192, "channel_max = 2048 is higher than the maximum allowed value (2047)"),
    ] {
        let ending = Play::authenticated().tune(channel_max, frame_max).unwrap_err();
        let expected = format!("NOT_ALLOWED - negotiated {reason}");
        assert_eq!(text(&ending), (530, expected.as_str(), Linger::CloseOk));
    }
    assert_eq!(Play::authenticated().tune(2047, 131_072), Ok(None));
}

/// CONN-23: a method in the wrong state closes silently before tune-ok, and with 504 after it.
#[test]
fn conn_23_out_of_turn_is_silence_until_tune_ok_and_504_from_then_on() {
    let open = || connection::Open { virtual_host: short("/"), ..Default::default() };
    assert_eq!(Play::begin().take(open()), Err(Ending::Silent));
    assert_eq!(Play::begin().take(connection::SecureOk::default()), Err(Ending::Silent));
    assert_eq!(Play::authenticated().take(guest()), Err(Ending::Silent));
    let mut play = Play::authenticated();
    play.tune(1, 8192).unwrap();
    let ending = play.take(guest()).unwrap_err();
    let expected = "CHANNEL_ERROR - unexpected method in connection state opening";
    assert_eq!(text(&ending), (504, expected, Linger::CloseOk));
}

/// FRM-04: frames of other channels, or of other types, are refused before `connection.open`.
#[test]
fn frm_04_only_channel_0_before_open() {
    let mut play = Play::begin();
    let frame = frame_of(1, channel::Open::default());
    let ending = play.0.frame(&frame, &mut play.1).unwrap_err();
    let expected = "UNEXPECTED_FRAME - type 1, all octets = <<0,20,0,10,0>>";
    assert_eq!(text(&ending), (505, expected, Linger::CloseOk));
    let frame = Frame { kind: Kind::Body, channel: 0, payload: Bytes::from_static(b"x") };
    let ending = Play::begin().0.frame(&frame, &mut BytesMut::new()).unwrap_err();
    let expected = "UNEXPECTED_FRAME - type 3, all octets = <<\"x\">>";
    assert_eq!(text(&ending), (505, expected, Linger::CloseOk));
}

/// Q-04 and ENGINEERING: a table nested 8,000 deep, before authentication, gives 502 and does not
/// overflow the stack.
#[test]
fn q_04_a_table_nested_8_000_deep_is_502() {
    for letter in [b'A', b'F'] {
        let mut nested = BytesMut::new();
        for _ in 0..8000 {
            let mut outer = BytesMut::new();
            if letter == b'F' {
                outer.put_u8(0);
            }
            outer.put_u8(letter);
            outer.put_u32(u32::try_from(nested.len()).unwrap());
            outer.put_slice(&nested);
            nested = outer;
        }
        let mut content = BytesMut::from(&b"\x01a"[..]);
        if letter == b'F' {
            // A table's entry has a name before its letter.
            content = BytesMut::new();
        }
        content.put_slice(&nested);
        let mut out = BytesMut::new();
        frame::put_with(&mut out, Kind::Method, 0, |out| {
            out.put_slice(&[0, 10, 0, 11]);
            out.put_u32(u32::try_from(content.len()).unwrap());
            out.put_slice(&content);
        });
        let frame = take(&mut out, u32::MAX).unwrap().unwrap();
        assert!(frame.payload.len() > 40_000);
        let ending = Play::begin().0.frame(&frame, &mut BytesMut::new()).unwrap_err();
        let expected = "SYNTAX_ERROR - field table is nested deeper than 16";
        assert_eq!(text(&ending), (502, expected, Linger::CloseOk));
    }
}

/// CONN-09: without a table of capabilities the client has none.
#[test]
fn conn_09_a_missing_or_mistyped_table_of_capabilities_means_none() {
    let of = |value| Capabilities::of(&FieldTable(vec![(short("capabilities"), value)]));
    assert_eq!(of(FieldValue::text("all")), Capabilities::default());
    assert_eq!(Capabilities::of(&FieldTable::default()), Capabilities::default());
    let table = FieldTable(vec![
        (short("connection.blocked"), FieldValue::Bool(true)),
        (short("consumer_cancel_notify"), FieldValue::Bool(false)),
    ]);
    let found = of(FieldValue::Table(table));
    assert!(found.connection_blocked && !found.consumer_cancel_notify);
}
