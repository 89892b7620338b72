//! What a queue would lose at once if it had other limits: messages that are older than a new TTL,
//! messages above a new length, or all of them because the queue itself has expired. Counted on any
//! replica; a bounded number of messages is looked at, for a bounded time, beyond which the answer is
//! "at least".
//!
//! The order is that of `quorate_queue`: first messages expire at the heads of their levels, then
//! those that would be delivered next are dropped until the limits are kept (DLX-41 to DLX-43).

use crate::{
    Broker,
    node::Node,
    views::browse::{
        looker::{Item, Items, LookError, Looker, MessageState},
        place::Cursor,
    },
};
use quorate_queue::QueueConfig;
use quorate_types::{Level, Overflow, QueueId, ResourceName, Timestamp};
use std::time::{Duration, Instant};

/// Messages that are looked at, at most: ready ones, and unacked ones between them.
const LOOKED_AT_MAX: usize = 10_000;
/// How long messages are looked at.
const LOOK_TIME_MAX: Duration = Duration::from_secs(1);
/// Messages that are looked at in one step.
const STEP: usize = 1_000;

/// The limits of a queue that decide what it keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// TTL of messages, ms.
    pub message_ttl_ms: Option<u64>,
    /// TTL of the unused queue, ms.
    pub expires_ms: Option<u64>,
    /// Maximum of ready messages, if those above it are dropped.
    pub length_max: Option<u64>,
    /// Maximum of bytes of ready bodies, likewise.
    pub length_bytes_max: Option<u64>,
}

impl Bounds {
    /// Those of these settings.
    #[must_use]
    pub fn of(config: &QueueConfig) -> Self {
        let drops = config.overflow == Overflow::DropHead;
        Self {
            message_ttl_ms: config.message_ttl_ms,
            expires_ms: config.expires_ms,
            length_max: config.length_max.filter(|_| drops),
            length_bytes_max: config.length_bytes_max.filter(|_| drops),
        }
    }
}

/// What a queue would lose at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    /// Number of messages that would die.
    pub messages: u64,
    /// They may be more: not all were looked at.
    pub more: bool,
    /// The queue would end, with all of its messages.
    pub ends: bool,
}

/// A ready message, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ready {
    level: Level,
    body_bytes: u64,
    is_over: bool,
}

/// The first ready messages of a queue, in the order of delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct First {
    messages: Vec<Ready>,
    /// The level of the first message that was not looked at; `None`: all were.
    cut: Option<Level>,
    /// Messages of levels below those of these were not looked at.
    lower: bool,
}

impl Broker {
    /// What a queue would lose at once with these bounds, by this node's replica.
    ///
    /// # Errors
    /// Why it cannot be looked at.
    pub async fn excess(&self, queue: &ResourceName, bounds: Bounds) -> Result<Excess, LookError> {
        let entry = self.0.base.known_queue(queue).ok_or(LookError::NoQueue)?;
        self.0.is_up_to_date(entry.id).await?;
        self.0.looked(move |node| excess(&node, entry.id, bounds)).await
    }
}

fn excess(node: &Node, queue: QueueId, bounds: Bounds) -> Result<Excess, LookError> {
    let looker = Looker::new(&node.base, queue)?;
    let now = node.clock(&looker, queue)?;
    let (view, unused) = looker.machine(|it| (it.queue(queue), it.unused_since(queue)))?;
    let view = view.ok_or(LookError::NoQueue)?;
    let expires = |since: Timestamp| Some(since.plus_ms(bounds.expires_ms?) <= now);
    if unused.and_then(expires).unwrap_or(false) {
        return Ok(Excess { messages: view.ready, more: false, ends: true });
    }
    let over = bounds.length_bytes_max.is_some_and(|most| view.ready_bytes > most);
    let first = if bounds.message_ttl_ms.is_some() || over {
        let until = Instant::now() + LOOK_TIME_MAX;
        first(|from, most| looker.items(from, most), (now, until), bounds.message_ttl_ms)?
    } else {
        First::default()
    };
    Ok(counted((view.ready, view.ready_bytes), &first, bounds))
}

/// The first ready messages, as many as are looked at. `look` reads messages from a cursor on, about
/// as many as it is told.
fn first(
    look: impl Fn(Cursor, usize) -> Result<Items, LookError>,
    (now, until): (Timestamp, Instant),
    ttl: Option<u64>,
) -> Result<First, LookError> {
    let (mut first, mut looked_at) = (First::default(), 0);
    let mut next = Some(Cursor::START);
    while let Some(from @ Cursor::Message(at)) = next {
        if looked_at >= LOOKED_AT_MAX || (looked_at > 0 && Instant::now() > until) {
            let below = look(Cursor::behind(at.level, None), 1)?;
            first.lower = !below.items.is_empty();
            first.cut = Some(at.level);
            break;
        }
        let Items { items, next: behind } = look(from, STEP)?;
        // A step that finds nothing takes its time too.
        looked_at += items.len().max(1);
        let ready = items.iter().filter(|item| item.state == MessageState::Ready);
        first.messages.extend(ready.map(|item| ready_message(item, now, ttl)));
        next = behind;
    }
    Ok(first)
}

fn ready_message(item: &Item, now: Timestamp, ttl: Option<u64>) -> Ready {
    let ttl = [ttl, item.expiration_ms].into_iter().flatten().min();
    let age = now.ms_since(item.enqueued_at.unwrap_or(now));
    Ready {
        level: item.id.level,
        body_bytes: u64::from(item.body_bytes),
        is_over: ttl.is_some_and(|ttl| age > ttl || ttl == 0),
    }
}

/// Counts what dies. `ready` is the number of all ready messages, and of the bytes of their bodies.
fn counted(ready: (u64, u64), first: &First, bounds: Bounds) -> Excess {
    let (mut expired, mut kept) = (Vec::new(), Vec::new());
    let mut ended = None;
    for message in &first.messages {
        // Behind a message that lives, none of its level expires.
        if message.is_over && ended != Some(message.level) {
            expired.push(*message);
        } else {
            ended = Some(message.level);
            kept.push(*message);
        }
    }
    // Unless a message that lives was seen, those behind may be older than the TTL too.
    let is_open = first.cut.is_some_and(|level| ended != Some(level));
    let more_expire = bounds.message_ttl_ms.is_some() && (is_open || first.lower);
    let bytes_of = |messages: &[Ready]| messages.iter().map(|it| it.body_bytes).sum::<u64>();
    let messages = ready.0.saturating_sub(expired.len() as u64);
    let mut bytes = ready.1.saturating_sub(bytes_of(&expired));
    let by_count = messages.saturating_sub(bounds.length_max.unwrap_or(u64::MAX));
    let bytes_max = bounds.length_bytes_max.unwrap_or(u64::MAX);
    let mut by_bytes = 0;
    for message in &kept {
        if bytes <= bytes_max {
            break;
        }
        bytes -= message.body_bytes.min(bytes);
        by_bytes += 1;
    }
    let dropped = by_count.max(by_bytes);
    Excess {
        messages: (expired.len() as u64 + dropped).min(ready.0),
        more: more_expire || (bytes > bytes_max && by_count < messages && first.cut.is_some()),
        ends: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{
        Counts, Holder, LogIndex, MessageId, NodeId, Sequence, SessionId, StartNumber,
    };

    const HOLDER: Holder =
        Holder::Get(SessionId { node: NodeId(1), start: StartNumber(1) }, Sequence(1));

    fn ready(level: u8, body_bytes: u64, is_over: bool) -> Ready {
        Ready { level: Level(level), body_bytes, is_over }
    }

    fn seen(messages: &[Ready], all: bool) -> First {
        let cut = messages.last().map(|last| last.level).filter(|_| !all);
        First { messages: messages.to_vec(), cut, lower: false }
    }

    /// Looks at a queue of one level, of which each `ready`-th message is ready.
    fn looked_at(ready: u64, pause: Duration, until: Duration) -> (First, u64) {
        let level = Level(0);
        let steps = std::cell::Cell::new(0);
        let look = |from: Cursor, most: usize| {
            let Cursor::Message(from) = from else { return Ok(Items::default()) };
            if most == 1 {
                return Ok(Items::default());
            }
            steps.set(steps.get() + 1);
            std::thread::sleep(pause);
            let item = |place: u64| Item {
                id: MessageId { level, index: LogIndex(place), position: 0 },
                state: match place % ready {
                    0 => MessageState::Ready,
                    _ => MessageState::Unacked { holder: HOLDER, since: Timestamp::default() },
                },
                counts: Counts::default(),
                expiration_ms: None,
                body_bytes: 1,
                enqueued_at: Some(Timestamp::default()),
            };
            let places = from.index.0..from.index.0 + most as u64;
            let behind = MessageId { level, index: LogIndex(places.end), position: 0 };
            let items = places.map(item).collect();
            Ok(Items { items, next: Some(Cursor::Message(behind)) })
        };
        let now = Timestamp::default().plus_ms(1_000);
        let first = first(look, (now, Instant::now() + until), Some(1));
        (first.unwrap_or_default(), steps.get())
    }

    /// Messages that clients have do not make the look longer.
    #[test]
    fn the_look_at_a_queue_is_bounded() {
        let hour = Duration::from_secs(3_600);
        for ready in [1, 10, u64::MAX] {
            let (first, steps) = looked_at(ready, Duration::ZERO, hour);
            assert_eq!((steps, first.cut), (10, Some(Level(0))), "{ready}");
            let ttl = Bounds { message_ttl_ms: Some(1), ..NONE };
            let lost = counted((1_000_000, 1_000_000), &first, ttl);
            assert_eq!((lost.messages, lost.more), (first.messages.len() as u64, true));
        }
        let (first, steps) = looked_at(1, Duration::from_millis(2), Duration::from_millis(1));
        assert_eq!((steps, first.messages.len(), first.cut), (1, STEP, Some(Level(0))));
    }

    const NONE: Bounds =
        Bounds { message_ttl_ms: None, expires_ms: None, length_max: None, length_bytes_max: None };

    fn lost(messages: u64, more: bool) -> Excess {
        Excess { messages, more, ends: false }
    }

    /// TTL-05: behind the first message of a level that lives, none expires.
    #[test]
    fn ttl_05_only_the_heads_of_levels_expire() {
        let messages = [
            ready(4, 1, true),
            ready(4, 1, false),
            ready(4, 1, true),
            ready(0, 1, true),
            ready(0, 1, true),
        ];
        let ttl = Bounds { message_ttl_ms: Some(1), ..NONE };
        assert_eq!(counted((5, 5), &seen(&messages, true), ttl), lost(3, false));
        assert_eq!(counted((50, 50), &seen(&messages, false), ttl), lost(3, true));
        let lives = seen(messages.get(..3).unwrap_or_default(), false);
        assert_eq!(counted((50, 50), &lives, ttl), lost(1, false));
        assert_eq!(counted((50, 50), &First { lower: true, ..lives }, ttl), lost(1, true));
    }

    /// LEN-04: what expires is not dropped again.
    #[test]
    fn len_04_messages_above_the_limits_are_dropped_after_those_that_expire() {
        let messages = [ready(0, 10, true), ready(0, 10, false), ready(0, 30, false)];
        let seen = seen(&messages, true);
        let length = Bounds { length_max: Some(1), ..NONE };
        assert_eq!(counted((3, 50), &First::default(), length), lost(2, false));
        let both = Bounds { message_ttl_ms: Some(1), ..length };
        assert_eq!(counted((3, 50), &seen, both), lost(2, false));
        let bytes = Bounds { message_ttl_ms: Some(1), length_bytes_max: Some(30), ..NONE };
        assert_eq!(counted((3, 50), &seen, bytes), lost(2, false));
        let none = Bounds { message_ttl_ms: Some(1), length_bytes_max: Some(0), ..NONE };
        assert_eq!(counted((3, 50), &seen, none), lost(3, false));
    }

    #[test]
    fn what_was_not_looked_at_is_at_least_said() {
        let seen = seen(&[ready(0, 10, false), ready(0, 10, false)], false);
        let bytes = Bounds { length_bytes_max: Some(100), ..NONE };
        assert_eq!(counted((1_000, 10_000), &seen, bytes), lost(2, true));
        // The number alone decides.
        let none = Bounds { length_max: Some(0), ..bytes };
        assert_eq!(counted((1_000, 10_000), &seen, none), lost(1_000, false));
    }
}
