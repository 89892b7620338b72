//! An explanation in words. Pure.

use super::{DeadLetterPath, Explanation, Nowhere};
use crate::views::browse::{BrowsedMessage, LetterTarget, looker::MessageState, place::Shown};
use quorate_catalog::QueueEntry;
use quorate_queue::{DeathReason, Letter, QueueConfig, Stage};
use quorate_types::{
    FieldTable, FieldValue, Holder, Overflow, Properties, Property, ShortString, WallTime,
};

/// Deaths that are told; the others are counted.
const DEATHS_TOLD_MAX: usize = 20;
/// Characters of a name or key in a sentence.
const NAME_MAX: usize = 255;

/// All that is known of the message, a sentence each.
pub(crate) fn sentences(
    entry: &QueueEntry,
    config: &QueueConfig,
    explanation: &Explanation,
) -> Vec<String> {
    let message = &explanation.message;
    let mut told = vec![format!(
        "Message {} of {}, {} bytes.",
        Shown(message.id),
        entry.name,
        message.body_bytes
    )];
    told.extend(origin(message));
    told.extend(history(&message.message.annotations));
    told.push(arrival(message));
    match &message.state {
        MessageState::Ready | MessageState::Delayed { .. } | MessageState::Unacked { .. } => {
            told.push(standing(explanation));
            told.extend(returns(message, explanation.delivery_limit));
            told.extend(expiry(explanation, config));
            told.extend(length(config));
            told.push(death(explanation.dead_letter.as_ref()));
        }
        MessageState::Letter(_, letter) => {
            told.extend(letter_fate(letter, explanation));
        }
    }
    told
}

fn named(name: &ShortString) -> String {
    shown(name.as_str())
}

/// A text that clients choose, without control characters.
fn shown(text: &str) -> String {
    let clean = text.chars().take(NAME_MAX);
    clean.map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect()
}

fn exchange(name: &str) -> String {
    if name.is_empty() { "the default exchange".to_owned() } else { format!("exchange '{name}'") }
}

/// Where the client published it.
fn origin(message: &BrowsedMessage) -> Vec<String> {
    let annotations = &message.message.annotations;
    let first = text(annotations, "x-first-death-exchange");
    let mut told = Vec::new();
    match first {
        None => told.push(format!(
            "It was published to {} with routing key '{}'.",
            exchange(&named(&message.message.exchange)),
            named(&message.message.routing_key)
        )),
        Some(first) => told.push(format!("It was first published to {}.", exchange(&first))),
    }
    let properties = Properties::parse(message.message.properties.clone()).unwrap_or_default();
    if let Some(bytes) = properties.bytes_of(Property::Timestamp) {
        let seconds = bytes.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        let at = utc(WallTime(seconds.saturating_mul(1_000)));
        told.push(format!("Its publisher gave it the time {at}."));
    }
    if let Some(user) = &properties.user_id {
        told.push(format!("Its publisher was user '{}'.", named(user)));
    }
    told
}

/// Its deaths so far, the first one first.
fn history(annotations: &FieldTable) -> Vec<String> {
    let Some(FieldValue::Array(deaths)) = annotations.get("x-death") else { return Vec::new() };
    let tables: Vec<_> = deaths
        .iter()
        .rev()
        .filter_map(|it| if let FieldValue::Table(table) = it { Some(table) } else { None })
        .collect();
    let left = tables.len().saturating_sub(DEATHS_TOLD_MAX);
    let mut told: Vec<_> =
        tables.iter().take(DEATHS_TOLD_MAX).map(|table| one_death(table)).collect();
    if left > 0 {
        told.push(format!("It died in {left} more ways."));
    }
    told
}

fn one_death(table: &FieldTable) -> String {
    let name = |field| text(table, field).unwrap_or_default();
    let count = table.get("count").and_then(FieldValue::as_integer).unwrap_or(1);
    let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let at = match table.get("time") {
        Some(FieldValue::Timestamp(seconds)) => {
            format!(", first at {}", utc(WallTime(seconds.saturating_mul(1_000))))
        }
        Some(_) | None => String::new(),
    };
    if name("reason") == "redriven" {
        return format!("A task took it {times} out of queue '{}'{at}.", name("queue"));
    }
    let keys = match table.get("routing-keys") {
        Some(FieldValue::Array(keys)) => keys
            .iter()
            .filter_map(FieldValue::as_long_string)
            .map(|key| format!("'{}'", shown(&String::from_utf8_lossy(key))))
            .collect(),
        Some(_) | None => Vec::new(),
    };
    format!(
        "It died {times} in queue '{}'{at}: {}. It had come there from {} with routing key {}.",
        name("queue"),
        why(&name("reason")),
        exchange(&name("exchange")),
        keys.join(", ")
    )
}

/// A reason in words, with its name in headers.
fn why(reason: &str) -> String {
    let words = match reason {
        "rejected" => "a client rejected it",
        "expired" => "its time to live was over",
        "maxlen" => "the queue was full",
        "delivery_limit" => "it came back too often",
        _ => return reason.to_owned(),
    };
    format!("{words} ({reason})")
}

/// How it came into this queue.
fn arrival(message: &BrowsedMessage) -> String {
    let (at, age) = (utc(message.since), duration(message.age_ms));
    match &message.state {
        MessageState::Letter(_, letter) if letter.reason == DeathReason::Delayed => {
            format!("A delayed exchange has kept it for {age}, since {at}.")
        }
        MessageState::Letter(_, letter) if letter.reason == DeathReason::Redriven => {
            format!("A task has taken it out of this queue {age} ago, at {at}.")
        }
        MessageState::Letter(..) => format!("It died here {age} ago, at {at}."),
        MessageState::Ready | MessageState::Delayed { .. } | MessageState::Unacked { .. } => {
            let deaths = &message.message.annotations;
            let how = if deaths.is_empty() {
                String::new()
            } else {
                format!(
                    ", dead-lettered to {} with routing key '{}'",
                    exchange(&named(&message.message.exchange)),
                    named(&message.message.routing_key)
                )
            };
            format!("It came into this queue {age} ago, at {at}{how}.")
        }
    }
}

/// Its place in the queue.
fn standing(explanation: &Explanation) -> String {
    match (&explanation.message.state, explanation.ahead) {
        (MessageState::Unacked { holder: Holder::Consumer(consumer), .. }, _) => format!(
            "A consumer of node {} has it, and has not acknowledged it.",
            consumer.session.node
        ),
        (MessageState::Unacked { holder: Holder::Get(session, _), .. }, _) => format!(
            "A client of node {} got it by basic.get, and has not acknowledged it.",
            session.node
        ),
        (MessageState::Delayed { .. }, _) => match explanation.message.retry_at {
            Some(at) => {
                format!("It was returned, and is ready again at {} (delayed retry).", utc(at))
            }
            None => "It was returned, and waits for its retry.".to_owned(),
        },
        (_, Some(ahead)) if ahead.messages == 0 => {
            "It is ready, and the next one to be delivered.".to_owned()
        }
        (_, Some(ahead)) if ahead.messages == 1 && !ahead.more => {
            "It is ready; 1 message is delivered before it.".to_owned()
        }
        (_, Some(ahead)) => format!(
            "It is ready; {}{} messages are delivered before it.",
            if ahead.more { "more than " } else { "" },
            ahead.messages
        ),
        (_, None) => "It is ready.".to_owned(),
    }
}

fn returns(message: &BrowsedMessage, limit: Option<u32>) -> Option<String> {
    let returned = counted(u64::from(message.counts.returned), "counted return");
    match limit {
        Some(limit) => {
            Some(format!("It has had {returned}; with more than {limit} it dies (delivery_limit)."))
        }
        None if message.counts.acquired == 0 => None,
        None => Some(format!("It has had {returned}; its queue has no limit of them.")),
    }
}

fn expiry(explanation: &Explanation, config: &QueueConfig) -> Option<String> {
    let message = &explanation.message;
    let ttl = explanation.ttl_ms?;
    let by = match (config.message_ttl_ms, message.expiration_ms) {
        (Some(queue), Some(own)) if own < queue => "its own expiration",
        (Some(_), _) => "the queue's message-ttl",
        (None, _) => "its own expiration",
    };
    let left = ttl.saturating_sub(message.age_ms);
    Some(if left > 0 {
        let at = WallTime(message.since.0.saturating_add(ttl));
        format!(
            "It expires in {}, at {}, by {by} of {ttl} ms; not before all ready messages of its \
             priority that are ahead of it have gone.",
            duration(left),
            utc(at)
        )
    } else {
        format!(
            "Its time to live is over, by {by} of {ttl} ms; it dies when it is ready and the first \
             of its priority."
        )
    })
}

fn length(config: &QueueConfig) -> Option<String> {
    let most = match (config.length_max, config.length_bytes_max) {
        (Some(messages), Some(bytes)) => format!("{messages} messages and {bytes} bytes"),
        (Some(messages), None) => format!("{messages} messages"),
        (None, Some(bytes)) => format!("{bytes} bytes"),
        (None, None) => return None,
    };
    Some(match config.overflow {
        Overflow::DropHead => {
            format!("Above {most} the queue lets the message die that is the next one (maxlen).")
        }
        Overflow::RejectPublish | Overflow::RejectPublishDlx => {
            format!("Above {most} the queue refuses new messages, and keeps this one.")
        }
    })
}

/// What happens when it dies.
fn death(path: Option<&DeadLetterPath>) -> String {
    let Some(path) = path else {
        return "If it dies, it is dropped: its queue names no dead-letter exchange.".to_owned();
    };
    format!(
        "If it dies, it goes to {} with routing key '{}', {}.",
        exchange(&named(&path.exchange)),
        named(&path.routing_key),
        leads(path)
    )
}

fn leads(path: &DeadLetterPath) -> String {
    match path.nowhere {
        None => {
            let queues: Vec<_> =
                path.queues.iter().map(|queue| format!("'{}'", named(queue))).collect();
            let what = if queues.len() == 1 { "queue" } else { "queues" };
            format!("which leads to {what} {}", queues.join(", "))
        }
        Some(Nowhere::NoExchange) => "which does not exist, so that it is dropped".to_owned(),
        Some(Nowhere::NoQueue) => "which leads to no queue, so that it is dropped".to_owned(),
        Some(Nowhere::Kept) => {
            "which leads to no queue at present; it is kept until one takes it (at-least-once)"
                .to_owned()
        }
        Some(Nowhere::Cycle) => {
            "which leads only to queues in which it has died before, so that it is dropped unless a \
             client rejects it (cycle)"
                .to_owned()
        }
    }
}

/// What a dead letter waits for.
fn letter_fate(letter: &Letter, explanation: &Explanation) -> Vec<String> {
    let path = || {
        explanation.dead_letter.as_ref().map(|path| {
            format!(
                "It goes to {} with routing key '{}', {}.",
                exchange(&named(&path.exchange)),
                named(&path.routing_key),
                leads(path)
            )
        })
    };
    match &letter.stage {
        Stage::Waiting { .. } => {
            let waits = "It waits to be routed.".to_owned();
            std::iter::once(waits).chain(path()).collect()
        }
        Stage::Kept => {
            let waits = "No queue takes it; it waits until one does (at-least-once).".to_owned();
            std::iter::once(waits).chain(path()).collect()
        }
        Stage::Delayed { .. } => {
            let waits = "It is routed when its delay is over.".to_owned();
            std::iter::once(waits).chain(path()).collect()
        }
        Stage::Routed(routing) => {
            let via = format!(
                "It was routed by {}, and leaves when these have accepted it: {}.",
                exchange(&named(&routing.via.exchange)),
                awaited(&explanation.message.targets)
            );
            vec![via]
        }
    }
}

fn awaited(targets: &[LetterTarget]) -> String {
    let one = |target: &LetterTarget| {
        let name = target.name.as_ref().map_or_else(
            || "a queue that has ended".to_owned(),
            |name| format!("queue '{}'", named(name)),
        );
        match target.attempt {
            Some(attempt) => format!("{name} (being sent, attempt {attempt})"),
            None => format!("{name} (full; it is tried again when it has room)"),
        }
    };
    targets.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A text of a table of the broker's own.
fn text(table: &FieldTable, name: &str) -> Option<String> {
    let bytes = table.get(name)?.as_long_string()?;
    Some(shown(&String::from_utf8_lossy(bytes)))
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// A duration in its largest two units.
fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A time as the Gregorian calendar shows it, in UTC. Days are counted from March, so that a leap day
/// is the last one of its year.
fn utc(at: WallTime) -> String {
    let seconds = at.0 / 1_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // 1970 began 719,468 days after 1 March of the year 0; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    format!(
        "{:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        year + era * 400,
        rest / 3_600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests;
