//! Length limits are exact. A queue that refuses publishes takes none beyond its limit, and refuses
//! none while it has room (LEN-07); one that drops its head drops none while it has room (LEN-04).

use super::Violation;
use super::excuse;
use super::level::Level;
use crate::history::{Answer, Fate, Length, Log, Number, Overflow, Published};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// After its queue can have learned of its loss, a consumer holds messages for less than this: a node that
/// cannot be reached is given 20 s, and time to be missed.
const HOLDS: Duration = Duration::from_secs(30);

/// No prefetch is no limit.
const UNLIMITED: u64 = u32::MAX as u64;

/// A message for a queue with a limit, and when it was seen.
struct Message<'a> {
    number: Number,
    published: &'a Published,
    /// First seen, by anyone.
    first: Option<Duration>,
    /// Last seen in its queue, and what became of it.
    last: Option<(Duration, Fate)>,
    /// First seen as a dead letter.
    letter: Option<Duration>,
    /// Whether a consumer rejected it.
    is_rejected: bool,
}

impl Message<'_> {
    /// From when until when the message can have been ready. A finished history has drained its queues:
    /// what was not seen again was not returned, and what was never seen was never taken.
    fn ready(&self) -> Option<(Duration, Duration)> {
        let from = self.published.at;
        let until = match (self.letter, self.last, self.published.answer) {
            (_, _, Answer::Refused) | (None, None, Answer::Lost) => return None,
            (Some(at), _, _) | (None, Some((at, Fate::Settled | Fate::Rejected)), _) => at,
            // Another check reports that it is lost.
            (None, Some((_, Fate::Held | Fate::Returned)) | None, _) => Duration::MAX,
        };
        Some((from, until))
    }
}

pub(super) fn check(log: &Log) -> Vec<Violation> {
    let mut losses = excuse::losses(log);
    let mut found = Vec::new();
    for (queue, messages) in messages(log) {
        let Some(length) = log.queues.get(queue).and_then(|traits| traits.length) else { continue };
        let lost = losses.remove(queue).unwrap_or_default();
        let learned = lost.into_iter().map(|loss| (loss.consumer, loss.learned)).collect();
        found.extend(too_many(length, &messages, &holders(log, queue, &learned)));
        // Letters that come to a queue take room too, and the history does not say when.
        let is_target =
            |queue| log.queues.values().any(|traits| traits.dead_letters.as_deref() == Some(queue));
        // What dies without a trace leaves room, and the history does not say when.
        let traceless = log.queues.get(queue).is_some_and(|t| t.dies && t.dead_letters.is_none());
        if !is_target(queue) && !traceless {
            found.extend(without_need(log, queue, length, &messages));
        }
    }
    found
}

/// The messages for the queues with limits, by queue.
fn messages(log: &Log) -> BTreeMap<&str, Vec<Message<'_>>> {
    let limited = |published: &Published| {
        log.queues.get(&published.queue).is_some_and(|traits| traits.length.is_some())
    };
    let mut all: BTreeMap<Number, Message<'_>> = BTreeMap::new();
    for (number, published) in log.published.iter().filter(|(_, published)| limited(published)) {
        let (first, last, letter, is_rejected) = (None, None, None, false);
        let number = *number;
        all.insert(number, Message { number, published, first, last, letter, is_rejected });
    }
    for delivered in &log.delivered {
        let Some(message) = all.get_mut(&delivered.number) else { continue };
        message.first.get_or_insert(delivered.at);
        if delivered.queue == message.published.queue {
            message.last = Some((delivered.at, delivered.fate));
            message.is_rejected |= delivered.fate == Fate::Rejected;
        } else {
            message.letter.get_or_insert(delivered.at);
        }
    }
    let mut by_queue: BTreeMap<&str, Vec<Message<'_>>> = BTreeMap::new();
    for message in all.into_values() {
        by_queue.entry(&message.published.queue).or_default().push(message);
    }
    by_queue
}

/// How many messages consumers can hold.
fn holders(log: &Log, queue: &str, learned: &BTreeMap<usize, Duration>) -> Level {
    let of_queue = log.consumers.iter().enumerate().filter(|(_, one)| one.queue == queue);
    Level::new(of_queue.map(|(consumer, attached)| {
        // The history does not say when one that is not lost is served no more.
        let until = learned.get(&consumer).map_or(Duration::MAX, |learned| *learned + HOLDS);
        let most = if attached.prefetch == 0 { UNLIMITED } else { attached.prefetch.into() };
        (attached.from, until, most)
    }))
}

/// Messages that a queue took when it was full.
///
/// Messages that are confirmed and not seen yet are ready or held. When the queue took the last of them, no
/// more were ready than the limit. Later more may be ready, because lost consumers give back what they held.
/// So what counts is who can have held messages when the queue took the last one. That was after each of
/// them was published, and before the latest confirm.
fn too_many(length: Length, messages: &[Message<'_>], holders: &Level) -> Vec<Violation> {
    if length.overflow != Overflow::RejectPublish {
        // What has died is not seen at once.
        return Vec::new();
    }
    let mut taken: Vec<(Duration, Duration, &Message<'_>)> = Vec::new();
    for message in messages {
        let Published { answer, answered_at, delay, .. } = message.published;
        // The confirm of a delayed message does not say that the queue has it. One that nobody ever
        // sees may be lost, which another check reports.
        if *answer == Answer::Confirmed && delay.is_zero() {
            let times = answered_at.zip(message.first);
            taken.extend(times.map(|(confirmed, first)| (confirmed, first, message)));
        }
    }
    taken.sort_by_key(|(confirmed, first, message)| (*confirmed, *first, message.number));
    let mut unseen: BinaryHeap<Reverse<Duration>> = BinaryHeap::new();
    let mut found = Vec::new();
    for (confirmed, first, message) in taken {
        while unseen.peek().is_some_and(|Reverse(first)| *first <= confirmed) {
            unseen.pop();
        }
        if first <= confirmed {
            continue;
        }
        unseen.push(Reverse(first));
        let held = holders.most(message.published.at, confirmed);
        let have = unseen.len() as u64;
        if have > length.limit.saturating_add(held) {
            let (number, published) = (message.number, message.published);
            let story =
                format!("{have} in the queue, {held} held at most: {number:?}: {published:?}");
            found.push(Violation::OverLength(story));
        }
    }
    found
}

/// Messages that a queue refused or dropped when it cannot have been full.
fn without_need(
    log: &Log,
    queue: &str,
    length: Length,
    messages: &[Message<'_>],
) -> Vec<Violation> {
    let spans = messages.iter().filter_map(Message::ready);
    let ready = Level::new(spans.map(|(from, until)| (from, until, 1)));
    let dies_otherwise =
        log.queues.get(queue).is_some_and(|t| !t.lives.is_zero() || t.delivery_limit.is_some());
    let mut found = Vec::new();
    for Message { number, published, letter, is_rejected, .. } in messages {
        let (until, full) = match length.overflow {
            Overflow::RejectPublish if published.answer == Answer::Refused => {
                (published.answered_at, length.limit)
            }
            // The message itself is one too many.
            Overflow::DropHead if !is_rejected && !dies_otherwise => {
                (*letter, length.limit.saturating_add(1))
            }
            Overflow::RejectPublish | Overflow::DropHead => continue,
        };
        let Some(until) = until else { continue };
        let most = ready.most(published.at, until);
        if most < full {
            let story = format!("{most} ready at most: {number:?} until {until:?}: {published:?}");
            found.push(Violation::HadRoom(story));
        }
    }
    found
}
