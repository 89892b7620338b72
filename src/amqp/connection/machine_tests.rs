//! The bounds of an open connection: no client can make it hold more.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::{
    channel::{Action, Bounds},
    codec::{
        cold::{Cold, channel, exchange},
        frame::{Frame, Kind, put, take},
        hot,
        method::Method,
    },
    connection::{
        close::Ending,
        handshake::{Capabilities, Limits},
        machine::Machine,
    },
    outbox::Outbox,
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_client::{Answer, ChannelId};
use quorate_types::ShortString;

const MIB: u64 = 1 << 20;

/// A machine that takes messages of up to 1 MiB.
fn machine() -> (Machine, Outbox) {
    let limits = Limits { channel_max: 2047, frame_max: 131_072, heartbeat_s: 0 };
    let vhost = ShortString::from_static("/");
    let bounds = Bounds {
        max_message_size: MIB,
        consumer_max_per_channel: None,
        default_consumer_prefetch: 0,
    };
    (Machine::new(vhost, limits, Capabilities::default(), bounds, None), Outbox::new())
}

fn frame_of(channel: u16, method: &Method) -> Frame {
    let mut out = BytesMut::new();
    method.put(&mut out, channel);
    take(&mut out, u32::MAX).unwrap().unwrap()
}

fn cold(channel: u16, method: impl Into<Cold>) -> Frame {
    frame_of(channel, &Method::Cold(Box::new(method.into())))
}

/// Opens a channel; the broker grants it.
fn open(machine: &mut Machine, number: u16, outbox: &mut Outbox) {
    machine.frame(cold(number, channel::Open::default()), outbox);
    for action in machine.take_actions() {
        if let Action::OpenChannel(id) = action {
            machine.answer(id, Ok(Answer::Done), outbox);
        }
    }
}

fn publish(channel: u16) -> Frame {
    frame_of(channel, &Method::Publish(hot::Publish::default()))
}

fn header(channel: u16, body_bytes: u64) -> Frame {
    let mut payload = BytesMut::from(&[0, 60, 0, 0][..]);
    payload.put_u64(body_bytes);
    payload.put_u16(0);
    Frame { kind: Kind::Header, channel, payload: payload.freeze() }
}

fn body(channel: u16, bytes: usize) -> Frame {
    Frame { kind: Kind::Body, channel, payload: Bytes::from(vec![0; bytes]) }
}

fn close_code(machine: &Machine) -> Option<u16> {
    match machine.ending() {
        None => None,
        Some(Ending::Server { close, .. }) => Some(close.reply_code),
        Some(Ending::Client | Ending::Silent) => panic!("no close"),
    }
}

/// A channel that waits for an answer queues frames up to a bound; then the socket is not read.
#[test]
fn frames_behind_an_unanswered_method_are_bounded() {
    let (mut machine, mut outbox) = machine();
    open(&mut machine, 1, &mut outbox);
    machine.frame(cold(1, exchange::Declare::default()), &mut outbox);
    assert!(matches!(machine.take_actions()[..], [Action::Start(..)]));
    let mut taken = 0;
    while machine.takes_frames() {
        machine.frame(publish(1), &mut outbox);
        machine.frame(header(1, 1000), &mut outbox);
        machine.frame(body(1, 1000), &mut outbox);
        taken += 1000;
        assert!(taken < 2 * MIB, "no bound is reached");
    }
    assert!(taken > MIB / 2);
    let id = ChannelId { number: 1, opened: 0 };
    machine.answer(id, Ok(Answer::Done), &mut outbox);
    assert!(machine.takes_frames());
    let published = machine.take_publishes().len();
    assert_eq!(u64::try_from(published).unwrap(), taken / 1000);
}

/// PUB-02, FRM-17: a body that is too large is counted, not kept.
#[test]
fn pub_02_a_body_that_is_too_large_is_not_kept() {
    let (mut machine, mut outbox) = machine();
    open(&mut machine, 1, &mut outbox);
    machine.frame(publish(1), &mut outbox);
    machine.frame(header(1, 512 * MIB), &mut outbox);
    for _ in 0..512 {
        assert_eq!(machine.content_bytes(), 2, "its properties");
        machine.frame(body(1, 1 << 20), &mut outbox);
    }
    let mut sent = outbox.take_all();
    take(&mut sent, u32::MAX).unwrap().unwrap();
    let close = take(&mut sent, u32::MAX).unwrap().unwrap();
    let Method::Cold(close) = Method::decode(close.payload).unwrap() else { panic!("hot") };
    let Cold::Channel(channel::Method::Close(close)) = *close else { panic!("{close:?}") };
    assert_eq!(
        (close.reply_code, close.reply_text.as_str()),
        (
            406,
            "PRECONDITION_FAILED - message size 536870912 is larger than configured max size \
             1048576"
        )
    );
    assert_eq!(close_code(&machine), None, "the connection lives");
}

/// A large content counts with its full size from its announcement on, and waits for room. A
/// connection may have two contents of the largest size in progress.
#[test]
fn large_contents_wait_for_room_for_all_of_them() {
    let (mut machine, mut outbox) = machine();
    let mib = usize::try_from(MIB).unwrap();
    for number in 1..=3 {
        open(&mut machine, number, &mut outbox);
        machine.frame(publish(number), &mut outbox);
        assert!(machine.takes_frames());
        machine.begin_turn(u64::from(number) * 10);
        machine.frame(header(number, MIB), &mut outbox);
        if number == 3 {
            break;
        }
        assert_eq!(machine.announced_bytes(), Some(mib));
        assert!(!machine.takes_frames());
        let before = machine.unfinished().content_bytes;
        assert!(before <= usize::from(number - 1) * (mib + 2) + 2, "it takes no room yet");
        machine.grant();
        assert!(machine.takes_frames());
        assert_eq!(machine.unfinished().content_bytes, before + mib);
        machine.frame(body(number, 1000), &mut outbox);
        assert_eq!(machine.content_bytes(), usize::from(number) * (mib + 2));
        assert_eq!(machine.unfinished().since_ms, Some(10), "of the oldest one");
    }
    assert_eq!(close_code(&machine), Some(506));
}

/// Small contents count as they arrive, with their properties, over all channels.
#[test]
fn incomplete_contents_are_bounded_over_all_channels() {
    let (mut machine, mut outbox) = machine();
    let mut number = 0;
    while close_code(&machine).is_none() {
        number += 1;
        assert!(number < 50, "no bound is reached");
        open(&mut machine, number, &mut outbox);
        machine.frame(publish(number), &mut outbox);
        machine.frame(header(number, 100_000), &mut outbox);
        machine.frame(body(number, 50_000), &mut outbox);
        assert!(machine.takes_frames() || close_code(&machine).is_some());
    }
    assert_eq!((number, close_code(&machine)), (48, Some(506)));
}

/// A small content that is incomplete after a turn has an age, until it ends; the next one begins a
/// new age.
#[test]
fn a_content_that_outlasts_turns_grows_old() {
    let (mut machine, mut outbox) = machine();
    open(&mut machine, 1, &mut outbox);
    let mut turn = |machine: &mut Machine, now_ms, frames: Vec<Frame>| {
        machine.begin_turn(now_ms);
        frames.into_iter().for_each(|frame| machine.frame(frame, &mut outbox));
        machine.end_turn();
        machine.unfinished().since_ms
    };
    let half = || vec![publish(1), header(1, 20), body(1, 10)];
    assert_eq!(turn(&mut machine, 5, half()), Some(5));
    assert_eq!(turn(&mut machine, 15_000, Vec::new()), Some(5));
    let next = [vec![body(1, 10)], half()].concat();
    assert_eq!(turn(&mut machine, 20_000, next), Some(20_000), "the next content");
    assert_eq!(turn(&mut machine, 30_000, vec![body(1, 10)]), None);
}

/// A channel's end frees what it held.
#[test]
fn a_channels_end_frees_what_it_held() {
    for (announced, held) in [(5_000, 1_002), (MIB, (1 << 20) + 2)] {
        let (mut machine, mut outbox) = machine();
        open(&mut machine, 1, &mut outbox);
        machine.frame(publish(1), &mut outbox);
        machine.frame(header(1, announced), &mut outbox);
        machine.frame(body(1, 1000), &mut outbox);
        assert_eq!(machine.content_bytes(), held);
        let exception = quorate_types::Exception::new(quorate_types::ReplyCode::NotFound, "gone");
        let channel = ChannelId { number: 1, opened: 0 };
        let event = quorate_client::Event::ChannelException { channel, exception };
        let _ = machine.events(&mut vec![event], &mut outbox);
        assert_eq!((machine.content_bytes(), machine.large_contents()), (0, 0));
    }
}

/// A publish that has names to keep.
fn named(channel: u16) -> Frame {
    let routing_key = ShortString::from_static("key");
    frame_of(channel, &Method::Publish(hot::Publish { routing_key, ..hot::Publish::default() }))
}

/// An incomplete content, or a queued frame, does not keep its read buffer in memory.
#[test]
fn what_is_kept_over_a_turn_is_detached() {
    let kept: [&[Frame]; 4] = [
        &[named(1)],
        &[named(1), header(1, 100)],
        &[named(1), header(1, 100), body(1, 50)],
        // The channel waits for an answer.
        &[cold(1, exchange::Declare::default()), named(1), header(1, 100)],
    ];
    for frames in kept {
        let (mut machine, mut outbox) = machine();
        open(&mut machine, 1, &mut outbox);
        let mut read = BytesMut::with_capacity(256 * 1024);
        for frame in frames {
            put(&mut read, frame.kind, frame.channel, &frame.payload);
        }
        read.put_u8(1);
        while let Some(frame) = take(&mut read, 131_072).unwrap() {
            machine.frame(frame, &mut outbox);
        }
        let _ = machine.take_actions();
        machine.end_turn();
        assert!(read.freeze().is_unique(), "{frames:?}");
    }
}
