//! The dead letters of one queue come in the order of its deaths (Q-40, DLX-13).
//!
//! Messages that no consumer has seen die from the head of their queue, so those of one channel die in the
//! order of their publishes. Messages that a consumer rejects, or returns once too often, die in the order
//! in which it settles them.

use super::Violation;
use super::excuse::{Claim, Heard};
use crate::history::{Delivered, Fate, Log, Number, Traits};
use std::collections::BTreeMap;
use std::time::Duration;

/// The place of a death in its line.
type Rank = (Duration, u64);

/// Deaths that have an order among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// The order of the queue: of age or of the queue's length.
    Unseen { producer: u32, priority: u8 },
    /// The order in which this consumer rejected.
    Rejected { by: usize },
    /// The order in which this consumer returned once too often.
    GivenUp { by: usize },
}

/// What consumers of its own queue did with a message.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// Number of deliveries.
    times: u32,
    /// Returns among them of which the queue has surely heard.
    returned: u32,
    /// Place of the last delivery in the history.
    last: usize,
}

/// Letters that come late, unless a lost consumer is the cause: one of the target that was given the letter
/// and not shown it, or one of the queue that kept it from its death.
pub(super) fn check(log: &Log, heard: &Heard<'_>) -> Vec<Claim> {
    let shown = shown(log, heard);
    let mut latest: BTreeMap<(usize, &str, Line), (Rank, &Delivered)> = BTreeMap::new();
    let mut claims = Vec::new();
    // A returned letter goes back to its place and so comes late, but marked.
    for delivered in log.delivered.iter().filter(|delivered| !delivered.redelivered) {
        let Some(published) = log.published.get(&delivered.number) else { continue };
        let Some(traits) = log.queues.get(&published.queue) else { continue };
        let is_letter = delivered.queue != published.queue
            && traits.dead_letters.as_ref() == Some(&delivered.queue);
        // Delayed messages reach their queue in the order of the ends of their delays.
        if !is_letter || !published.delay.is_zero() {
            continue;
        }
        let number = delivered.number;
        let (line, rank) = match (traits.dies, shown.get(&number)) {
            (true, None) => {
                let Number { producer, seq } = number;
                let priority = published.priority;
                (Line::Unseen { producer, priority }, (Duration::ZERO, seq))
            }
            (false, Some(shown)) => match by_consumer(log, heard, traits, shown) {
                Some(death) => death,
                None => continue,
            },
            // A message that was shown may have come back late, and died then.
            (true, Some(_)) | (false, None) => continue,
        };
        let key = (delivered.consumer, published.queue.as_str(), line);
        let (highest, before) = latest.entry(key).or_insert((rank, delivered));
        if *highest <= rank {
            (*highest, *before) = (rank, delivered);
            continue;
        }
        let also = matches!(line, Line::Unseen { .. }).then(|| published.queue.clone());
        claims.push(Claim {
            queue: delivered.queue.clone(),
            holder: None,
            also,
            published: published.at,
            came: delivered.at,
            otherwise: Violation::LettersReordered(format!("{delivered:?} after {before:?}")),
        });
    }
    claims
}

/// The messages that consumers of their own queues have seen, where dead letters go on.
fn shown(log: &Log, heard: &Heard<'_>) -> BTreeMap<Number, Shown> {
    let mut shown = BTreeMap::new();
    for (last, delivered) in log.delivered.iter().enumerate() {
        let Some(published) = log.published.get(&delivered.number) else { continue };
        let has_letters = |traits: &Traits| traits.dead_letters.is_some();
        if published.queue != delivered.queue
            || !log.queues.get(&published.queue).is_some_and(has_letters)
        {
            continue;
        }
        let new = Shown { times: 0, returned: 0, last };
        let shown = shown.entry(delivered.number).or_insert(new);
        shown.times += 1;
        shown.returned += u32::from(delivered.fate == Fate::Returned && heard.surely(last));
        shown.last = last;
    }
    shown
}

/// The line and the place of a message that died of what a consumer did; none, if it may have died of
/// something else, or at another time.
fn by_consumer(
    log: &Log,
    heard: &Heard<'_>,
    traits: &Traits,
    shown: &Shown,
) -> Option<(Line, Rank)> {
    let last = log.delivered.get(shown.last)?;
    let by = last.consumer;
    let rank = (last.settled_at?, shown.last as u64);
    match last.fate {
        Fate::Rejected if heard.surely(shown.last) => Some((Line::Rejected { by }, rank)),
        Fate::Returned => {
            // If the queue has not counted each of them, it has counted one that nobody was shown,
            // and the message may have died of that.
            let fatal = traits.delivery_limit?.saturating_add(1);
            let is_fatal = shown.times == fatal && shown.returned == fatal;
            is_fatal.then_some((Line::GivenUp { by }, rank))
        }
        Fate::Held | Fate::Settled | Fate::Rejected => None,
    }
}
