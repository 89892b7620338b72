//! Which messages are meant: by headers, routing key, deaths and age. The parts come from query
//! parameters or options as texts; an error names the part that is wrong.

use crate::{FieldTable, FieldValue, Message, Properties, ShortString};
use std::fmt;

/// Headers that one filter names, at most.
const HEADERS_MAX: usize = 16;
/// Longest text of one part, bytes.
const PART_BYTES_MAX: usize = 4_096;

/// Messages that match all parts that are given; without parts every message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageFilter {
    /// Names and values of headers, those that the broker adds at delivery included.
    headers: Vec<(ShortString, String)>,
    /// The routing key, or a pattern of words as in a topic binding.
    routing_key: Option<String>,
    /// The reason of a death.
    reason: Option<String>,
    /// The queue of a death; if a reason is given too, of the same death.
    death_queue: Option<String>,
    /// The age, ms.
    min_age_ms: Option<u64>,
}

/// A part of a filter that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filter {part}: {problem}")]
pub struct FilterError {
    /// Name of the part.
    part: String,
    /// What is wrong with it.
    problem: &'static str,
}

/// The reasons in `x-death` (DLX-01).
const REASONS: [&str; 4] = ["rejected", "expired", "maxlen", "delivery_limit"];

impl MessageFilter {
    /// The names of the parts.
    pub const PARTS: [&str; 5] = ["header", "routing_key", "reason", "death_queue", "min_age"];

    /// Adds a part by its name: `header` (`NAME=VALUE`, several times), `routing_key`, `reason`,
    /// `death_queue`, or `min_age` (ms, or a number with the unit `s`, `m`, `h` or `d`).
    ///
    /// # Errors
    /// What is wrong with the part.
    pub fn add(&mut self, part: &str, value: &str) -> Result<(), FilterError> {
        let name: String = part.chars().take(64).collect();
        let wrong = |problem| FilterError { part: name.clone(), problem };
        if value.len() > PART_BYTES_MAX {
            return Err(wrong("its value has too many bytes"));
        }
        match part {
            "header" => {
                let (name, value) =
                    value.split_once('=').ok_or("expected NAME=VALUE").map_err(&wrong)?;
                let name = ShortString::try_from(name).ok().filter(|name| !name.is_empty());
                let name = name.ok_or("a header's name has 1 to 255 bytes").map_err(&wrong)?;
                if self.headers.len() >= HEADERS_MAX {
                    return Err(wrong("too many headers"));
                }
                self.headers.push((name, value.to_owned()));
            }
            "routing_key" => self.routing_key = Some(value.to_owned()),
            "reason" if REASONS.contains(&value) => self.reason = Some(value.to_owned()),
            "reason" => {
                return Err(wrong("expected rejected, expired, maxlen or delivery_limit"));
            }
            "death_queue" => self.death_queue = Some(value.to_owned()),
            "min_age" => {
                let age = age_ms(value).ok_or("expected ms, or a number and s, m, h or d");
                self.min_age_ms = Some(age.map_err(&wrong)?);
            }
            _ => return Err(wrong("there is no such part")),
        }
        Ok(())
    }

    /// Adds a part of a new request, in which only `header` may come several times.
    ///
    /// # Errors
    /// What is wrong with the part.
    pub fn add_once(&mut self, part: &str, value: &str) -> Result<(), FilterError> {
        let is_there = match part {
            "routing_key" => self.routing_key.is_some(),
            "reason" => self.reason.is_some(),
            "death_queue" => self.death_queue.is_some(),
            "min_age" => self.min_age_ms.is_some(),
            _ => false,
        };
        if is_there {
            return Err(FilterError { part: part.to_owned(), problem: "is given more than once" });
        }
        self.add(part, value)
    }

    /// True if every message matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if the message matches; `age_ms` is how long it has been where it is.
    #[must_use]
    pub fn matches(&self, message: &Message, age_ms: u64) -> bool {
        self.min_age_ms.is_none_or(|least| age_ms >= least)
            && self.matches_key(message)
            && self.matches_death(&message.annotations)
            && self.matches_headers(message)
    }

    fn matches_key(&self, message: &Message) -> bool {
        let Some(pattern) = &self.routing_key else { return true };
        let key = message.routing_key.as_str();
        pattern == key || is_topic_match(pattern, key)
    }

    fn matches_death(&self, annotations: &FieldTable) -> bool {
        if self.reason.is_none() && self.death_queue.is_none() {
            return true;
        }
        let Some(FieldValue::Array(deaths)) = annotations.get("x-death") else { return false };
        let says = |table: &FieldTable, field: &str, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| {
                let value = table.get(field).and_then(FieldValue::as_long_string);
                value.is_some_and(|value| value == wanted.as_bytes())
            })
        };
        deaths.iter().any(|death| {
            let FieldValue::Table(table) = death else { return false };
            says(table, "reason", &self.reason) && says(table, "queue", &self.death_queue)
        })
    }

    fn matches_headers(&self, message: &Message) -> bool {
        if self.headers.is_empty() {
            return true;
        }
        // Headers are decoded only for those who ask for them.
        let properties = Properties::parse(message.properties.clone()).unwrap_or_default();
        let sent = properties.decode_headers().ok().flatten().unwrap_or_default();
        self.headers.iter().all(|(name, wanted)| {
            // The broker's own headers win (PRP-02).
            let value = message.annotations.get(name.as_str()).or_else(|| sent.get(name.as_str()));
            value.is_some_and(|value| is_written(value, wanted))
        })
    }
}

/// Whether a header's value is written so: a text as it is, a number in digits, a truth value as
/// `true` or `false`. Tables, arrays and bytes match nothing.
fn is_written(value: &FieldValue, text: &str) -> bool {
    match value {
        FieldValue::LongString(bytes) => bytes == text.as_bytes(),
        FieldValue::Bool(truth) => text == if *truth { "true" } else { "false" },
        FieldValue::Timestamp(seconds) => is_shown(seconds, text),
        FieldValue::F32(number) => text.parse() == Ok(*number),
        FieldValue::F64(number) => text.parse() == Ok(*number),
        FieldValue::I8(_)
        | FieldValue::U8(_)
        | FieldValue::I16(_)
        | FieldValue::U16(_)
        | FieldValue::I32(_)
        | FieldValue::U32(_)
        | FieldValue::I64(_) => value.as_integer().is_some_and(|number| is_shown(&number, text)),
        FieldValue::Decimal { .. }
        | FieldValue::Array(_)
        | FieldValue::Table(_)
        | FieldValue::Void
        | FieldValue::ByteArray(_) => false,
    }
}

fn is_shown(value: &impl fmt::Display, text: &str) -> bool {
    value.to_string() == text
}

/// Whether a pattern of words matches a key: `*` is one word, `#` any number of them.
fn is_topic_match(pattern: &str, key: &str) -> bool {
    let (pattern, key): (Vec<&str>, Vec<&str>) =
        (pattern.split('.').collect(), key.split('.').collect());
    // Where the pattern goes on after its last `#`, and from which word on that was tried.
    let (mut at, mut word, mut retry) = (0, 0, None);
    while word < key.len() {
        let (wanted, given) = (pattern.get(at).copied(), key.get(word).copied());
        if wanted == Some("#") {
            retry = Some((at + 1, word));
            at += 1;
        } else if wanted == Some("*") || (wanted.is_some() && wanted == given) {
            (at, word) = (at + 1, word + 1);
        } else if let Some((after, tried)) = retry {
            (at, word) = (after, tried + 1);
            retry = Some((after, tried + 1));
        } else {
            return false;
        }
    }
    pattern.iter().skip(at).all(|rest| *rest == "#")
}

/// A time in ms: digits, with a unit if it is not ms.
fn age_ms(text: &str) -> Option<u64> {
    let (digits, unit) = match text.chars().last()? {
        's' => (text.strip_suffix('s')?, 1_000),
        'm' => (text.strip_suffix('m')?, 60_000),
        'h' => (text.strip_suffix('h')?, 3_600_000),
        'd' => (text.strip_suffix('d')?, 86_400_000),
        _ => (text, 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use bytes::Bytes;

    fn short(text: &str) -> ShortString {
        ShortString::try_from(text).unwrap()
    }

    fn filter(parts: &[(&str, &str)]) -> MessageFilter {
        let mut filter = MessageFilter::default();
        parts.iter().for_each(|(part, value)| filter.add(part, value).unwrap());
        filter
    }

    fn death(queue: &str, reason: &str) -> FieldValue {
        FieldValue::Table(FieldTable(vec![
            (short("queue"), FieldValue::text(queue)),
            (short("reason"), FieldValue::text(reason)),
        ]))
    }

    fn message() -> Message {
        let headers = FieldTable(vec![
            (short("n"), FieldValue::I64(-7)),
            (short("on"), FieldValue::Bool(true)),
            (short("tenant"), FieldValue::text("acme=1")),
            (short("x-first-death-queue"), FieldValue::text("forged")),
        ]);
        let none = Properties::parse(Bytes::from_static(&[0, 0])).unwrap();
        let deaths = FieldValue::Array(vec![death("a", "rejected"), death("b", "expired")]);
        Message {
            routing_key: short("orders.eu.new"),
            properties: none.with_headers(Some(&headers)).unwrap(),
            annotations: FieldTable(vec![
                (short("x-death"), deaths),
                (short("x-first-death-queue"), FieldValue::text("b")),
            ]),
            ..Message::default()
        }
    }

    #[test]
    fn every_part_must_match() {
        let message = message();
        let is_match = |parts: &[(&str, &str)]| filter(parts).matches(&message, 1_000);
        assert!(is_match(&[]) && MessageFilter::default().is_empty());
        assert!(is_match(&[
            ("header", "n=-7"),
            ("header", "on=true"),
            ("header", "tenant=acme=1")
        ]));
        assert!(!is_match(&[("header", "n=-7"), ("header", "on=1")]));
        assert!(!is_match(&[("header", "absent=")]));
        // What the broker says of deaths is not what a client says of them.
        assert!(is_match(&[("header", "x-first-death-queue=b")]));
        assert!(!is_match(&[("header", "x-first-death-queue=forged")]));
        assert!(is_match(&[("min_age", "1s")]) && !is_match(&[("min_age", "1001")]));
        assert!(!is_match(&[("min_age", "1001"), ("routing_key", "#")]));
    }

    #[test]
    fn reason_and_queue_are_of_one_death() {
        let message = message();
        let is_match = |parts: &[(&str, &str)]| filter(parts).matches(&message, 0);
        assert!(is_match(&[("reason", "expired")]) && is_match(&[("death_queue", "a")]));
        assert!(is_match(&[("reason", "expired"), ("death_queue", "b")]));
        assert!(!is_match(&[("reason", "expired"), ("death_queue", "a")]));
        assert!(!is_match(&[("reason", "maxlen")]));
        assert!(!filter(&[("reason", "expired")]).matches(&Message::default(), 0));
    }

    #[test]
    fn a_routing_key_is_exact_or_a_pattern() {
        for (pattern, key, expected) in [
            ("orders.eu.new", "orders.eu.new", true),
            ("orders.*.new", "orders.eu.new", true),
            ("orders.*", "orders.eu.new", false),
            ("orders.#", "orders.eu.new", true),
            ("orders.#", "orders", true),
            ("#.new", "orders.eu.new", true),
            ("#.eu.#.new", "a.eu.b.eu.new", true),
            ("#.eu.#.old", "a.eu.b.eu.new", false),
            ("*", "", true),
            ("#", "", true),
            ("a*", "ab", false),
        ] {
            assert_eq!(is_topic_match(pattern, key), expected, "{pattern} {key}");
        }
        // A key that looks like a pattern is found by itself.
        let message = Message { routing_key: short("a.*b"), ..Message::default() };
        assert!(filter(&[("routing_key", "a.*b")]).matches(&message, 0));
    }

    #[test]
    fn errors_name_the_part() {
        for (part, value, text) in [
            ("header", "x", "filter header: expected NAME=VALUE"),
            ("header", "=x", "filter header: a header's name has 1 to 255 bytes"),
            (
                "reason",
                "old",
                "filter reason: expected rejected, expired, maxlen or delivery_limit",
            ),
            ("min_age", "-1", "filter min_age: expected ms, or a number and s, m, h or d"),
            (
                "min_age",
                "99999999999999999d",
                "filter min_age: expected ms, or a number and s, m, h or d",
            ),
            ("colour", "red", "filter colour: there is no such part"),
        ] {
            let error = MessageFilter::default().add(part, value).unwrap_err();
            assert_eq!(error.to_string(), text);
        }
        let long = "x".repeat(5_000);
        assert!(MessageFilter::default().add("routing_key", &long).is_err());
        let mut many = MessageFilter::default();
        assert!((0..=HEADERS_MAX).any(|_| many.add("header", "a=b").is_err()));
    }
}
