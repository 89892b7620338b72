//! Measures the codec for the methods of every message, with bodies of 1 KiB: `cargo run --release
//! -p quorate-amqp --example codec_speed`.

use bytes::{Bytes, BytesMut};
use quorate_amqp::codec::{
    content::{self, Assembly, ContentHeader},
    frame::{self, Kind},
    hot::{Ack, Deliver, Publish},
    method::Method,
};
use quorate_types::{Properties, ShortString};
use std::{hint::black_box, time::Instant};

const FRAME_MAX: u32 = 131_072;
/// Messages in one buffer, as one large read returns them.
const BATCH: usize = 200;
/// Batches in a run: short enough that some runs are not interrupted.
const ROUNDS: usize = 5;
const RUNS: usize = 1_000;

fn main() {
    let body = Bytes::from(vec![b'x'; 1024]);
    // delivery-mode 2 and a header of one field.
    let properties =
        Bytes::from_static(b"\x30\x00\x00\x00\x00\x0a\x03abcI\x00\x00\x00\x01\x00\x02");
    let plain = Bytes::from_static(b"\x10\x00\x02");
    let mut input = BytesMut::with_capacity(512 * 1024);
    let mut out = BytesMut::with_capacity(512 * 1024);
    report("publish, coded", || encode_publishes(&plain, &body, &mut out));
    let read = encode_publishes(&plain, &body, &mut out);
    report("publish, parsed", || parse_publishes(&read, &mut input));
    let read = encode_publishes(&properties, &body, &mut out);
    report("publish with headers, parsed", || parse_publishes(&read, &mut input));
    report("deliver, coded", || encode_deliveries(&plain, &body, &mut out));
    let read = encode_deliveries(&plain, &body, &mut out);
    report("deliver, parsed", || parse_contents(&read, &mut input));
    report("ack, coded", || encode_acks(&mut out));
    let read = encode_acks(&mut out);
    report("ack, parsed", || parse_contents(&read, &mut input));
}

/// Runs a step that handles a batch, and prints the time for one message. It prints the best run,
/// so that other load on the machine is not measured.
fn report<R>(what: &str, mut step: impl FnMut() -> R) {
    let best = (0..RUNS)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..ROUNDS {
                black_box(step());
            }
            begun.elapsed()
        })
        .min()
        .unwrap_or_default();
    let ns = best.as_nanos() / u128::try_from(BATCH * ROUNDS).unwrap_or(1);
    println!("{what:30} {ns:5} ns");
}

fn name(text: &'static str) -> ShortString {
    ShortString::from_static(text)
}

fn encode_publishes(properties: &[u8], body: &[u8], out: &mut BytesMut) -> Bytes {
    out.reserve(256 * 1024);
    let publish = Publish {
        exchange: name("amq.topic"),
        routing_key: name("orders.created"),
        ..Publish::default()
    };
    for _ in 0..BATCH {
        publish.put(out, 1);
        content::put(out, 1, properties, body, FRAME_MAX);
    }
    out.split().freeze()
}

fn encode_deliveries(properties: &[u8], body: &[u8], out: &mut BytesMut) -> Bytes {
    out.reserve(256 * 1024);
    for delivery_tag in 1u64.. {
        if delivery_tag > u64::try_from(BATCH).unwrap_or_default() {
            break;
        }
        let deliver = Deliver {
            consumer_tag: name("amq.ctag-0123456789012345678901"),
            delivery_tag,
            redelivered: false,
            exchange: name("amq.topic"),
            routing_key: name("orders.created"),
        };
        deliver.put(out, 1);
        content::put(out, 1, properties, body, FRAME_MAX);
    }
    out.split().freeze()
}

fn encode_acks(out: &mut BytesMut) -> Bytes {
    out.reserve(256 * 1024);
    for delivery_tag in 1u64.. {
        if delivery_tag > u64::try_from(BATCH).unwrap_or_default() {
            break;
        }
        Ack { delivery_tag, multiple: false }.put(out, 1);
    }
    out.split().freeze()
}

/// As a server parses them: names and properties decoded, bodies as slices.
fn parse_publishes(read: &[u8], input: &mut BytesMut) -> usize {
    // The copy represents the read, and is part of the time.
    input.extend_from_slice(read);
    let mut seen = 0;
    let mut publish = None;
    let mut content = None;
    while let Ok(Some(frame)) = frame::take(input, FRAME_MAX) {
        match frame.kind {
            Kind::Method => publish = Method::decode(frame.payload).ok(),
            Kind::Header => {
                content = ContentHeader::decode(frame.payload).and_then(|header| {
                    let body = Assembly::new(header.body_bytes, true);
                    Some((Properties::parse(header.properties).ok()?, body))
                });
            }
            Kind::Body => {
                if let (Some(publish), Some((properties, mut body))) =
                    (publish.take(), content.take())
                    && body.push(frame.payload).is_ok()
                {
                    seen += black_box((publish, properties, body.finish())).2.len();
                }
            }
            Kind::Heartbeat => {}
        }
    }
    seen
}

/// As a client parses them.
fn parse_contents(read: &[u8], input: &mut BytesMut) -> usize {
    input.extend_from_slice(read);
    let mut seen = 0;
    while let Ok(Some(frame)) = frame::take(input, FRAME_MAX) {
        match frame.kind {
            Kind::Method => seen += usize::from(black_box(Method::decode(frame.payload)).is_ok()),
            Kind::Header => drop(black_box(ContentHeader::decode(frame.payload))),
            Kind::Body => seen += black_box(frame.payload).len(),
            Kind::Heartbeat => {}
        }
    }
    seen
}
