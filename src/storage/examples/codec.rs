//! Measures encoding and decoding, in nanoseconds for each command or message.
//!
//! `cargo run --release -p quorate-storage --example codec`

#![expect(clippy::unwrap_used, reason = "a measurement, not a product")]

use bytes::{Bytes, BytesMut};
use quorate_queue::{Batch, Command, Entry, MessageHead, Origin, Run};
use quorate_storage::codec::{
    self,
    batch::{ProposedBatch, ProposedRun, Sender},
};
use quorate_types::{
    ConsumerId, DeliveryNumber, GroupId, Holder, Home, Level, Message, NodeId, QueueId, Sequence,
    SessionId, ShortString, Stamp, StartNumber, Timestamp, WallTime,
};
use std::{hint::black_box, time::Instant};

const SESSION: SessionId = SessionId { node: NodeId(2), start: StartNumber(12_345) };
const QUEUE: QueueId = QueueId { home: Home::Group(GroupId(1)), index: 70_000, position: 3 };

fn main() {
    let stamp = Stamp { time: Timestamp(3_600_000), wall: WallTime(1_800_000_000_000) };
    let head = MessageHead { body_bytes: 1024, expiration_ms: None };
    let settle = |number| Command::Ack {
        holder: Holder::Consumer(ConsumerId { session: SESSION, number: 4 }),
        numbers: vec![(DeliveryNumber(number), DeliveryNumber(number + 9))],
    };
    let mut commands: Vec<Command> =
        (0..64).map(|first| Command::Enqueue { run: 0, first, count: 1 }).collect();
    commands.extend((0..64).map(|number| settle(500_000 + 10 * number)));
    let (first, mark) = (Sequence(1_000_000), Sequence(999_000));
    let origin = Origin::Session { session: SESSION, first, mark };
    let runs = vec![Run { queue: QUEUE, level: Level(0), messages: vec![head; 64] }];
    let batches = vec![Batch { origin, commands: commands.clone() }];
    let entry = Entry { stamp, runs, batches };
    let bytes = codec::queue::encode_entry(&entry);
    println!("entry of 64 enqueues and 64 settles: {} bytes", bytes.len());
    measure("encode an entry, a command", 128, || codec::queue::encode_entry(&entry));
    measure("decode an entry, a command", 128, || codec::queue::decode_entry(&bytes).unwrap());

    let message = Message {
        exchange: ShortString::from_static("orders"),
        routing_key: ShortString::from_static("orders.created.eu"),
        properties: Bytes::from_static(&[0x10, 0, 2]),
        body: Bytes::from(vec![7; 1024]),
        ..Message::default()
    };
    let encoded = codec::message::encode(&message);
    let mut out = BytesMut::new();
    measure("encode a message of 1 KiB", 1, || {
        out.clear();
        codec::message::encode_into(&message, &mut out)
    });
    measure("decode a message of 1 KiB", 1, || codec::message::decode(&encoded).unwrap());

    let messages = vec![encoded; 64];
    let run = ProposedRun { queue: QUEUE, level: Level(0), heads: vec![head; 64], messages };
    let batch =
        ProposedBatch { sender: Sender::Session(SESSION), first, mark, runs: vec![run], commands };
    let frame = Bytes::from(codec::batch::encode_batch(&batch).concat());
    measure("encode a batch, a command", 128, || codec::batch::encode_batch(&batch));
    measure("decode a batch, a command", 128, || codec::batch::decode_batch(&frame).unwrap());
    measure("merge four batches, a command", 4 * 128, || {
        codec::batch::merge(vec![batch.clone(), batch.clone(), batch.clone(), batch.clone()], stamp)
    });
}

fn measure<T>(what: &str, items: u32, mut action: impl FnMut() -> T) {
    let mut best = f64::MAX;
    for _ in 0..20 {
        let began = Instant::now();
        for _ in 0..2000 {
            black_box(action());
        }
        best = best.min(began.elapsed().as_nanos() as f64 / 2000.0 / f64::from(items));
    }
    println!("{what}: {best:.1} ns");
}
