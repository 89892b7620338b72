//! Encodings: decoding gives the encoded value; arbitrary bytes are refused or decoded without a
//! panic and without excessive memory; keys sort like the objects that they name.

use super::arbitrary::{entry, head, log_entry, message, number, queue_id, record, record_key};
use super::arbitrary_batch::batch;
use crate::{
    Payload, RunBodies,
    codec::{
        self,
        batch::{ProposedBatch, Sender, part_of},
        key::{self, RunKey},
    },
};
use bytes::{Bytes, BytesMut};
use proptest::{collection::vec, option, prelude::*};
use quorate_queue::{
    Command, Counts, GetsRecord, MessageHead, Origin, QueuedMessage, Record, RunHead,
};
use quorate_types::{
    GroupId, Level, LogIndex, MessageId, QueueId, Sequence, Stamp, Timestamp, WallTime,
};

fn whole(chain: Vec<Bytes>) -> Bytes {
    Bytes::from(chain.concat())
}

/// The messages of a batch's enqueues: queue, level, size, bytes.
type Enqueued = (QueueId, Level, MessageHead, Option<Bytes>);

/// A run with its messages.
type FullRun = (QueueId, Level, Vec<MessageHead>, Vec<Option<Bytes>>);

fn enqueued(commands: &[Command], runs: &[FullRun]) -> Vec<Enqueued> {
    let mut all = Vec::new();
    for command in commands {
        if let Some((run, first, count)) = part_of(command) {
            let (queue, level, heads, messages) = &runs[run as usize];
            for position in first..first + count {
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
        let bytes = codec::queue::encode_entry(&entry);
        let heads = codec::queue::decode_heads(&bytes).unwrap();
        prop_assert_eq!(&heads, &(entry.stamp, entry.runs.clone()));
        prop_assert_eq!(codec::queue::decode_entry(&bytes).unwrap(), entry);
        for end in 0..bytes.len() {
            prop_assert!(codec::queue::decode_entry(&bytes[..end]).is_err(), "cut at {}", end);
        }
    }

    #[test]
    fn records_round_trip(key in record_key(), record in record()) {
        let bytes = codec::queue::encode_key(key);
        prop_assert_eq!(codec::queue::decode_key(&bytes).unwrap(), key);
        let bytes = codec::queue::encode_record(&record);
        prop_assert_eq!(codec::queue::decode_record(&bytes).unwrap(), record);
        for end in 0..bytes.len() {
            prop_assert!(codec::queue::decode_record(&bytes[..end]).is_err(), "cut at {}", end);
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
        let bytes = out.freeze().slice(6..);
        prop_assert_eq!(bytes.len(), length);
        prop_assert_eq!(&codec::message::encode(&message), &bytes);
        let found = codec::message::decode(&bytes).unwrap();
        if !message.body.is_empty() {
            prop_assert_eq!(found.body.as_ptr_range().end, bytes.as_ptr_range().end);
        }
        prop_assert_eq!(found, message);
    }

    #[test]
    fn entries_on_the_wire_round_trip_without_a_copy(entry in log_entry()) {
        let bytes = whole(codec::log::encode_wire(&entry));
        let found = codec::log::decode_wire(&bytes).unwrap();
        if let Payload::Commands(commands) = &found.payload {
            for message in commands.bodies.iter().flat_map(|run| &run.messages).flatten() {
                let inside = bytes.as_ptr_range().contains(&message.as_ptr());
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
            prop_assert_eq!(codec::run::body(&out, position).unwrap(), message.as_deref());
        }
        prop_assert_eq!(codec::run::body(&out, run.messages.len() as u32).unwrap(), None);
    }

    #[test]
    fn batches_round_trip(batch in batch()) {
        let bytes = whole(codec::batch::encode_batch(&batch));
        prop_assert_eq!(codec::batch::decode_batch(&bytes).unwrap(), batch);
    }

    #[test]
    fn batches_that_do_not_cover_their_runs_are_refused(batch in batch(), which in any::<u8>()) {
        let enqueues: Vec<usize> = (0..batch.commands.len())
            .filter(|at| part_of(&batch.commands[*at]).is_some())
            .collect();
        prop_assume!(!enqueues.is_empty());
        let at = enqueues[usize::from(which) % enqueues.len()];
        let mut without = batch.clone();
        without.commands.remove(at);
        let mut twice = batch.clone();
        twice.commands.insert(at, batch.commands[at].clone());
        for wrong in [without, twice] {
            let bytes = whole(codec::batch::encode_batch(&wrong));
            prop_assert!(codec::batch::decode_batch(&bytes).is_err());
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
            if let Some((run, first, count)) = part_of(command) {
                prop_assert_eq!(covered[run as usize], first);
                covered[run as usize] += count;
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
            let ProposedBatch { sender, first, mark, .. } = *batch;
            prop_assert_eq!(merged.origin, match sender {
                Sender::Session(session) => Origin::Session { session, first, mark },
                Sender::Letters(from) => Origin::Letters { from, first, mark },
            });
            prop_assert_eq!(merged.commands.len(), batch.commands.len());
        }
        prop_assert_eq!(entry.batches.len(), batches.len());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200), version in any::<bool>()) {
        let mut bytes = bytes;
        if let (true, Some(first)) = (version, bytes.first_mut()) {
            *first = 1;
        }
        let bytes = Bytes::from(bytes);
        // Bytes that happen to be valid are encoded and decoded again to an equal value.
        if let Ok(entry) = codec::queue::decode_entry(&bytes) {
            let again = codec::queue::encode_entry(&entry);
            prop_assert_eq!(codec::queue::decode_entry(&again).unwrap(), entry);
        }
        if let Ok(entry) = codec::catalog::decode_entry(&bytes) {
            let again = codec::catalog::encode_entry(&entry);
            prop_assert_eq!(codec::catalog::decode_entry(&again).unwrap(), entry);
        }
        drop(codec::queue::decode_record(&bytes));
        drop(codec::catalog::decode_record(&bytes));
        drop(codec::catalog::decode_key(&bytes));
        drop(codec::message::decode(&bytes));
        drop(codec::log::decode_wire(&bytes));
        drop(codec::log::record(LogIndex(1), &bytes));
        drop(codec::run::heads(LogIndex(1), &bytes));
        drop(codec::run::bodies(&bytes));
        let _ = codec::run::body(&bytes, 1);
        drop(codec::batch::decode_batch(&bytes));
        let _ = (codec::queue::decode_key(&bytes), codec::log::decode_id(&bytes));
    }

    #[test]
    fn changed_bytes_never_panic(entry in entry(), at in any::<prop::sample::Index>(), by in 1..=255u8) {
        let mut bytes = codec::queue::encode_entry(&entry).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = bytes[at].wrapping_add(by);
        drop(codec::queue::decode_entry(&bytes));
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
    // Version, stamp, then a count of runs far beyond the bytes.
    let bytes = [1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
    assert!(codec::queue::decode_entry(&bytes).is_err());
    let bytes = Bytes::from_static(&[1, 0xff, 0xff, 0xff, 0xff]);
    assert!(codec::run::bodies(&bytes).is_err());
}

#[test]
fn deliveries_held_in_a_row_cost_two_bytes_each() {
    let queued = (1..=2000u32)
        .map(|position| {
            let queued = QueuedMessage {
                message: MessageId { level: Level(0), index: LogIndex(70_000), position },
                counts: Counts::default(),
                head: MessageHead { body_bytes: 1024, expiration_ms: None },
                enqueued_at: Timestamp(5),
                unacked_since: Timestamp(6),
            };
            (Sequence(u64::from(position)), queued)
        })
        .collect();
    let bytes = codec::queue::encode_record(&Record::Gets(GetsRecord {
        timeout_default_ms: Some(1_800_000),
        unacked: queued,
    }));
    assert!(bytes.len() < 4050, "{} bytes", bytes.len());
}
