//! What every history must keep, whatever died meanwhile; each rule in a file of its own.

mod conserved;
mod order;
mod redelivery;
mod replicas;

pub use replicas::assert_replicas_equal;

use crate::history::Log;
use std::fmt::Write;

/// Violations printed of one kind.
const SHOWN: usize = 5;

/// A broken rule, with its story.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// A publish was confirmed and nobody ever saw the message.
    Lost(String),
    /// A message was seen that was never published, was refused, belongs to another queue, or is
    /// not octet for octet what was published.
    Invented(String),
    /// A publish got no answer although its connection lives.
    Unanswered(String),
    /// A message came again, unmarked.
    Doubled(String),
    /// A message came marked as redelivered that nobody can have been shown before.
    FalselyRedelivered(String),
    /// A message came after one that had been published after it.
    Reordered(String),
}

/// Every violation in a finished history.
#[must_use]
pub fn violations(log: &Log) -> Vec<Violation> {
    let mut found = conserved::check(log);
    found.extend(redelivery::check(log));
    found.extend(order::check(log));
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
