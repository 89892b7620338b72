//! Arbitrary batches, as a proposer sends them to a leader.

use super::{
    arbitrary::{holder_command, number, session},
    arbitrary_letters::letter_home,
    queue,
};
use crate::codec::batch::{ProposedBatch, ProposedRun, Sender};
use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use quorate_queue::{Command, MessageHead};
use quorate_types::{Level, Sequence};

/// A batch whose enqueues cover its runs, each in one to three parts.
pub(super) fn batch() -> impl Strategy<Value = ProposedBatch> {
    let run = (vec(1..4u32, 1..4), vec(any::<u8>(), 12), any::<bool>());
    let runs = prop::collection::btree_map((1..4u64, 0..2u8), run, 0..4);
    let sender =
        prop_oneof![session().prop_map(Sender::Session), letter_home().prop_map(Sender::Letters),];
    (sender, number(), runs, vec(holder_command(), 0..3)).prop_map(
        |(sender, first, runs, others)| {
            let (mut proposed, mut commands) = (Vec::new(), others);
            for (place, ((number, level), (parts, bytes, long))) in (0u32..).zip(runs) {
                let mut covered = 0;
                for count in parts {
                    commands.push(match count {
                        1 => Command::Transfer { run: place, first: covered, attempt: count },
                        count => Command::Enqueue { run: place, first: covered, count },
                    });
                    covered += count;
                }
                let length = if long { 4500 } else { 3 };
                let messages: Vec<Bytes> = bytes
                    .into_iter()
                    .take(covered as usize)
                    .map(|byte| Bytes::from(vec![byte; length]))
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
            ProposedBatch { sender, first, mark, runs: proposed, commands }
        },
    )
}
