//! The newest events of this process: what it logs, kept for the page's live log.
//!
//! A process has one log, so the events are those of the process. Whatever the filter of the log lets
//! through is kept, down to the level info: connections, logins, leaders, alarms, members, and the
//! audit lines of changes. Both the number of events and the size of each are bounded.

use crate::admin::check;
use crate::wire::{self, events_server::Events};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};
use tonic::{Request, Response, Status};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Events that are kept. An older one makes room.
const EVENTS_MAX: usize = 1_000;
/// Fields of an event; further ones are left out.
const FIELDS_MAX: usize = 16;
/// Bytes of a text of an event. Clients choose many of them.
const TEXT_BYTES_MAX: usize = 512;

/// The events of this process.
static NEWEST: Mutex<Ring> = Mutex::new(Ring { last: 0, events: VecDeque::new() });

/// The newest events, the oldest first.
#[derive(Debug)]
struct Ring {
    last: u64,
    events: VecDeque<wire::Event>,
}

impl Ring {
    /// Adds an event. Its number is the time, unless several have the same: so numbers ascend over
    /// restarts too, and a reader who asks for what is new gets all of it after one.
    fn add(&mut self, event: wire::Event) {
        self.last = self.last.saturating_add(1).max(event.time_ms);
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(wire::Event { number: self.last, ..event });
    }

    /// The newest of those above a number.
    fn since(&self, number: u64, most: usize) -> Vec<wire::Event> {
        let from = self.events.partition_point(|event| event.number <= number);
        let skipped = from.max(self.events.len().saturating_sub(most));
        self.events.iter().skip(skipped).cloned().collect()
    }
}

/// The newest events of this process above a number, the oldest first.
pub(crate) fn newest(since: u64, most: usize) -> Vec<wire::Event> {
    NEWEST.lock().since(since, most)
}

/// An event as operators read it; `node` is the name of the node where it happened.
#[must_use]
pub fn event_json(node: &str, event: &wire::Event) -> Value {
    let field = |it: &wire::EventField| json!({ "name": it.name, "value": it.value });
    let fields: Vec<_> = event.fields.iter().map(field).collect();
    json!({
        "node": node,
        "number": event.number,
        "time": event.time_ms,
        "level": event.level.to_ascii_lowercase(),
        "target": event.target,
        "message": event.message,
        "fields": fields,
    })
}

/// A text that stops at a bound.
#[derive(Debug, Default)]
struct Text(String);

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            if self.0.len() + letter.len_utf8() > TEXT_BYTES_MAX {
                return Err(fmt::Error);
            }
            self.0.push(letter);
        }
        Ok(())
    }
}

fn bounded(value: fmt::Arguments<'_>) -> String {
    let mut text = Text::default();
    // What does not fit is left out.
    let _ = text.write_fmt(value);
    text.0
}

/// Message and fields of an event.
#[derive(Debug, Default)]
struct Read {
    message: String,
    fields: Vec<wire::EventField>,
}

impl Read {
    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if field.name() == "message" {
            self.message = bounded(value);
        } else if self.fields.len() < FIELDS_MAX {
            let name = field.name().to_owned();
            self.fields.push(wire::EventField { name, value: bounded(value) });
        }
    }
}

impl Visit for Read {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }
}

fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

/// Keeps what is logged: a layer of the process's log.
#[derive(Clone, Copy, Debug)]
pub struct EventRecorder;

impl<S: Subscriber> Layer<S> for EventRecorder {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (level, target) = (event.metadata().level(), event.metadata().target());
        if *level > Level::INFO {
            return;
        }
        let mut read = Read::default();
        event.record(&mut read);
        NEWEST.lock().add(wire::Event {
            number: 0,
            time_ms: now_ms(),
            level: level.to_string(),
            target: target.to_owned(),
            message: read.message,
            fields: read.fields,
        });
    }
}

/// The events of this node, for the other nodes.
#[derive(Clone, Copy, Debug)]
pub struct EventService;

#[tonic::async_trait]
impl Events for EventService {
    async fn list_events(
        &self,
        request: Request<wire::EventsRequest>,
    ) -> Result<Response<wire::EventList>, Status> {
        let wire::EventsRequest { caller, since, most } = request.into_inner();
        check(caller)?;
        Ok(Response::new(wire::EventList { events: newest(since, most as usize) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    fn event(time_ms: u64) -> wire::Event {
        wire::Event { time_ms, ..wire::Event::default() }
    }

    fn numbers(events: &[wire::Event]) -> Vec<u64> {
        events.iter().map(|event| event.number).collect()
    }

    #[test]
    fn numbers_ascend_whatever_the_clock_says() {
        let mut ring = Ring { last: 0, events: VecDeque::new() };
        for time_ms in [100, 100, 50, 200] {
            ring.add(event(time_ms));
        }
        assert_eq!(numbers(&ring.since(0, 10)), [100, 101, 102, 200]);
        assert_eq!(numbers(&ring.since(101, 10)), [102, 200]);
        assert_eq!(numbers(&ring.since(0, 2)), [102, 200], "the newest");
        assert!(ring.since(200, 10).is_empty());
    }

    #[test]
    fn events_are_bounded() {
        let mut ring = Ring { last: 0, events: VecDeque::new() };
        for _ in 0..EVENTS_MAX * 2 {
            ring.add(event(1));
        }
        let kept = numbers(&ring.since(0, usize::MAX));
        assert_eq!((kept.len(), kept.last()), (EVENTS_MAX, Some(&(2 * EVENTS_MAX as u64))));
        assert_eq!(bounded(format_args!("{}", "ü".repeat(9_999))).len(), TEXT_BYTES_MAX);
        assert_eq!(bounded(format_args!("short")), "short");
    }

    #[test]
    fn what_is_logged_is_kept() {
        let before = newest(0, 1).last().map_or(0, |event| event.number);
        let log = tracing_subscriber::registry().with(EventRecorder);
        tracing::subscriber::with_default(log, || {
            tracing::info!(target: "audit", user = "<img src=x>", status = 204, "change of a test");
            tracing::debug!("not an event of a test");
        });
        let mut kept = newest(before, EVENTS_MAX);
        kept.retain(|event| event.message.ends_with("of a test"));
        let field =
            |name: &str, value: &str| wire::EventField { name: name.into(), value: value.into() };
        assert_eq!(kept.len(), 1);
        for event in kept {
            assert_eq!((event.level.as_str(), event.target.as_str()), ("INFO", "audit"));
            assert_eq!(event.fields, [field("user", "<img src=x>"), field("status", "204")]);
        }
    }
}
