//! What every history must keep, whatever died meanwhile; each rule in a file of its own.

mod conserved;
mod counted;
mod early;
mod excuse;
mod length;
mod letter_order;
mod letters;
mod level;
mod limit;
mod order;
mod prefetch;
mod redelivery;
mod replicas;
mod single_active;

pub use replicas::assert_replicas_equal;

use crate::history::Log;
use std::fmt::Write;

/// Violations printed of one kind.
const SHOWN: usize = 5;

/// A broken rule, with its story.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// A publish was confirmed and nobody ever saw the message, or nobody did after it was given back
    /// or rejected.
    Lost(String),
    /// A message was seen that was never published, was refused, belongs to another queue, came as a
    /// dead letter without a death, or is not byte for byte what was published.
    Invented(String),
    /// A publish got no answer although its connection lives.
    Unanswered(String),
    /// A message came again, unmarked, or after its end.
    Doubled(String),
    /// A message came marked as redelivered that nobody can have been shown before.
    FalselyRedelivered(String),
    /// A message came after one that had been published after it.
    Reordered(String),
    /// A queue with a single active consumer served two.
    Together(String),
    /// A message came before its delay was over, or as a dead letter before its time to live was.
    TooEarly(String),
    /// A message was delivered more often than its queue's delivery limit allows, or died before it was
    /// delivered that often.
    OverLimit(String),
    /// A consumer was given more than its prefetch allows.
    OverPrefetch(String),
    /// A queue took a publish beyond its length limit.
    OverLength(String),
    /// A queue refused a publish, or let a message die of its length limit, though it had room.
    HadRoom(String),
    /// A dead letter came after one of the same queue that had died later.
    LettersReordered(String),
    /// A queue that had been declared was not there for a publish through another node, or a message of a
    /// deleted queue came back.
    Forgotten(String),
    /// A node served with a data directory that it had to refuse.
    Served(String),
    /// A node counted other messages in a queue than its consumers got.
    Miscounted(String),
    /// The cluster did not take a node up, give it up, or move its groups, in time.
    NotMoved(String),
    /// At rest a node still holds or uses what it needed for clients.
    NotBack(String),
    /// Confirms stopped for longer than any fail-over takes.
    Stuck(String),
    /// A node ended that no fault may end, or not as it must.
    Ended(String),
}

/// Every violation in a finished history.
#[must_use]
pub fn violations(log: &Log) -> Vec<Violation> {
    let mut found = conserved::check(log);
    let heard = excuse::Heard::new(log);
    found.extend(letters::check(log, &heard));
    found.extend(early::check(log));
    found.extend(counted::check(log));
    found.extend(single_active::check(log));
    found.extend(prefetch::check(log));
    found.extend(length::check(log));
    let (redelivered, mut claims) = redelivery::check(log, &heard);
    found.extend(redelivered);
    claims.extend(order::check(log));
    found.extend(excuse::unexcused(log, claims));
    let (over, missing) = limit::check(log);
    found.extend(over);
    // A message that a lost consumer held may be marked for it, and counted for it: not twice the same.
    found.extend(excuse::unexcused(log, missing));
    // Excused by themselves: other claims must not use up what excuses a late letter.
    found.extend(excuse::unexcused(log, letter_order::check(log, &heard)));
    found.sort();
    found
}

/// Fails the test when a finished history breaks a rule.
///
/// # Panics
/// With the first violations of each kind, and how many there are.
pub fn assert_sound(log: &Log) {
    let found = violations(log);
    if found.is_empty() {
        return;
    }
    let mut story = String::new();
    for kind in found.chunk_by(|a, b| std::mem::discriminant(a) == std::mem::discriminant(b)) {
        // Writing to a string does not fail.
        let _ = writeln!(story, "{} like these:", kind.len());
        for violation in kind.iter().take(SHOWN) {
            let _ = writeln!(story, "    {violation:?}");
        }
    }
    panic!("the history breaks its invariants\n{story}");
}

#[cfg(test)]
mod planted;
