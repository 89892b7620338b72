//! A message comes again only with a cause, and is marked exactly then (CON-19, DUR-05, DUR-07).

use super::Violation;
use crate::history::{Delivered, Fate, Log, Number};
use std::collections::BTreeMap;
use std::time::Duration;

/// A broker may learn of a lost connection before the client's own task has written it down.
const SLACK: Duration = Duration::from_secs(5);

pub(super) fn check(log: &Log) -> Vec<Violation> {
    let mut earlier: BTreeMap<(&str, Number), Vec<&Delivered>> = BTreeMap::new();
    let mut found = Vec::new();
    for delivered in &log.delivered {
        let before = earlier.entry((&delivered.queue, delivered.number)).or_default();
        let story = || format!("{delivered:?} after {before:?}");
        if !delivered.redelivered && !before.is_empty() {
            found.push(Violation::Doubled(story()));
        } else if delivered.redelivered && !has_cause(log, delivered, before) {
            found.push(Violation::FalselyRedelivered(story()));
        }
        before.push(delivered);
    }
    found
}

/// Whether the broker had to think that a client had been shown it, and had given it back.
fn has_cause(log: &Log, delivered: &Delivered, before: &[&Delivered]) -> bool {
    match before.last() {
        // The delivery before this one ended without an ack that surely reached the broker.
        Some(last) => last.fate == Fate::Returned || lost(log, last.consumer, delivered.at),
        // Nobody wrote an earlier one down: it was on its way to a client that was lost.
        None => (0..log.consumers.len()).any(|consumer| {
            let same_queue =
                log.consumers.get(consumer).map(|c| &c.queue) == Some(&delivered.queue);
            same_queue && lost(log, consumer, delivered.at)
        }),
    }
}

fn lost(log: &Log, consumer: usize, by: Duration) -> bool {
    let lost_at = log.consumers.get(consumer).and_then(|consumer| consumer.lost_at);
    lost_at.is_some_and(|at| at <= by + SLACK)
}
