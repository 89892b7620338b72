//! The rolling digest of a group's state: every change adds a few words that describe it. Two
//! replicas that have applied the same log have the same digest (`quorate ctl audit`).

use quorate_types::{Holder, Home, LetterHome, MessageId, QueueId, SessionId};

/// The kind of a change. The number is part of the digest, so a variant keeps its number for ever.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Step {
    Entry = 1,
    Create = 2,
    End = 3,
    Configure = 4,
    Use = 5,
    Life = 6,
    Enqueue = 7,
    Cut = 8,
    Assign = 9,
    Settle = 10,
    Requeue = 11,
    Get = 12,
    Purge = 13,
    Attach = 14,
    Cancel = 15,
    Forget = 16,
    Credit = 17,
    Pause = 18,
    Session = 19,
    Fence = 20,
    Suspect = 21,
    Back = 22,
    LeftOver = 23,
    Die = 24,
    Delay = 25,
    Activate = 30,
    TimeOut = 31,
    Route = 40,
    Answer = 41,
    Retry = 42,
    RemoveEndedQueue = 43,
    Refuse = 44,
    Source = 45,
    EndSource = 46,
    Task = 50,
    Take = 51,
    GiveBack = 52,
}

/// The present value of the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(pub(crate) u64);

impl Digest {
    /// Adds a change and two words about it. The cost is two multiplications.
    #[inline]
    pub(crate) fn step(&mut self, step: Step, a: u64, b: u64) {
        let first = fold(self.0 ^ a, 0x9E37_79B9_7F4A_7C15 ^ ((step as u64) << 48));
        self.0 = fold(first ^ b, 0xD6E8_FEB8_6659_FD93).wrapping_add(1);
    }
}

/// Combines both halves of the 128-bit product: every bit of the result depends on every bit of the
/// word.
#[inline]
fn fold(word: u64, multiplier: u64) -> u64 {
    let product = u128::from(word).wrapping_mul(u128::from(multiplier));
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    let low = product as u64;
    low ^ (product >> 64) as u64
}

/// A home that sends letters, as one word.
pub(crate) fn of_letter_home(home: LetterHome) -> u64 {
    match home {
        LetterHome::Group(group) => u64::from(group.0) | 1 << 40,
        LetterHome::Start(session) => of_session(session),
    }
}

/// A queue's id as one word.
pub(crate) fn of_queue(queue: QueueId) -> u64 {
    let home = match queue.home {
        Home::Group(group) => u64::from(group.0),
        Home::Node(node) => u64::from(node.0) | 1 << 16,
    };
    queue.index.wrapping_mul(0x1_0000_0001) ^ queue.position.rotate_left(24) ^ home << 40
}

/// A session's id as one word.
pub(crate) fn of_session(session: SessionId) -> u64 {
    u64::from(session.node.0).rotate_left(48) ^ session.start.0
}

/// A holder as one word.
pub(crate) fn of_holder(holder: Holder) -> u64 {
    let number = match holder {
        Holder::Consumer(consumer) => consumer.number.rotate_left(20),
        Holder::Get(_, sequence) => !sequence.0.rotate_left(20),
    };
    of_session(holder.session()) ^ number
}

/// A message's id as one word.
#[inline]
pub(crate) fn of_message(message: MessageId) -> u64 {
    message.index.0
        ^ u64::from(message.position).rotate_left(36)
        ^ u64::from(message.level.0).rotate_left(56)
}

#[cfg(test)]
mod tests {
    use super::{Digest, Step};

    #[test]
    fn order_step_and_words_all_matter() {
        let run = |steps: &[(Step, u64, u64)]| {
            let mut digest = Digest(0);
            for (step, a, b) in steps {
                digest.step(*step, *a, *b);
            }
            digest.0
        };
        let base = run(&[(Step::Assign, 1, 2), (Step::Settle, 3, 4)]);
        assert_ne!(base, run(&[(Step::Settle, 3, 4), (Step::Assign, 1, 2)]));
        assert_ne!(base, run(&[(Step::Assign, 2, 1), (Step::Settle, 3, 4)]));
        assert_ne!(base, run(&[(Step::Assign, 1, 2), (Step::Requeue, 3, 4)]));
        assert_ne!(run(&[]), run(&[(Step::Entry, 0, 0)]));
        assert_eq!(base, run(&[(Step::Assign, 1, 2), (Step::Settle, 3, 4)]));
    }
}
