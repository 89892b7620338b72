//! How a death changes a message (DLX-24 to DLX-34, Q-42, Q-43): it gets the dead-letter exchange
//! and key and a longer history, and loses what would kill it again. A message of a delayed
//! exchange is only marked as delayed (EXC-17), and one that a task moves keeps its history, in which
//! the move is a boundary. Pure.

use quorate_catalog::after_delay;
use quorate_queue::{DeathReason, Via};
use quorate_types::{
    FieldTable, FieldValue, Message, Properties, PropertiesError, ResourceName, ShortString,
    WallTime,
};

const DEATHS: &str = "x-death";

/// One death of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Death<'a> {
    /// The queue that the message died in.
    pub(crate) queue: &'a ResourceName,
    pub(crate) reason: DeathReason,
    pub(crate) at: WallTime,
}

/// The reason's name in headers (DLX-01).
pub(crate) fn reason_text(reason: DeathReason) -> &'static str {
    match reason {
        DeathReason::Rejected => "rejected",
        DeathReason::Expired => "expired",
        DeathReason::MaxLength => "maxlen",
        DeathReason::DeliveryLimit => "delivery_limit",
        DeathReason::Delayed => "delayed",
        DeathReason::Redriven => "redriven",
    }
}

/// A message as its targets get it, with what was decoded to make it.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) message: Message,
    pub(crate) properties: Properties,
    pub(crate) headers: Option<FieldTable>,
}

/// Makes the message that its targets get. Its headers are decoded only here.
///
/// # Errors
/// The stored properties cannot be decoded; the broker did not write them.
pub(crate) fn annotate(
    mut message: Message,
    death: Death<'_>,
    via: &Via,
) -> Result<Letter, PropertiesError> {
    let mut properties = Properties::parse(message.properties.clone())?;
    let mut headers = properties.decode_headers()?;
    if death.reason == DeathReason::Delayed {
        headers = headers.map(after_delay);
        properties = Properties::parse(properties.with_headers(headers.as_ref())?)?;
        message.properties = properties.raw.clone();
        return Ok(Letter { message, properties, headers });
    }
    if death.reason == DeathReason::Redriven {
        // The message has not died. If it died before, its history says that somebody moved it.
        if !deaths(&message.annotations).is_empty() {
            let tables = with_death(&message, &properties, headers.as_ref(), death);
            set(&mut message.annotations, DEATHS, FieldValue::Array(tables));
        }
        message.exchange = via.exchange.clone();
        if let Some(key) = &via.routing_key {
            message.routing_key = key.clone();
            message.further_keys = Vec::new();
        }
        return Ok(Letter { message, properties, headers });
    }
    message.annotations = history(&message, &properties, headers.as_ref(), death);
    message.exchange = via.exchange.clone();
    if properties.expiration.take().is_some() {
        properties.raw = properties.with_expiration(None)?;
    }
    if let Some(key) = &via.routing_key {
        message.routing_key = key.clone();
        message.further_keys = Vec::new();
        if let Some(table) = headers.as_mut().filter(|table| table.get("CC").is_some()) {
            // If a dead-letter routing key is in force, the CC header is removed too.
            table.0.retain(|(name, _)| name.as_str() != "CC");
            properties = Properties::parse(properties.with_headers(Some(table))?)?;
        }
    }
    message.properties = properties.raw.clone();
    Ok(Letter { message, properties, headers })
}

/// The tables of `x-death` with this death added: one for each (queue, reason), the latest first
/// (DLX-29).
fn with_death(
    message: &Message,
    properties: &Properties,
    headers: Option<&FieldTable>,
    death: Death<'_>,
) -> Vec<FieldValue> {
    let mut tables = deaths(&message.annotations);
    let known = tables.iter().position(|table| is_of(table, death));
    let latest = match known {
        Some(place) => counted_again(tables.remove(place)),
        None => first_of_its_kind(message, properties, headers, death),
    };
    tables.insert(0, latest);
    tables.into_iter().map(FieldValue::Table).collect()
}

/// The annotations with this death added. Only annotations of the broker count as history (DLX-34,
/// 35).
fn history(
    message: &Message,
    properties: &Properties,
    headers: Option<&FieldTable>,
    death: Death<'_>,
) -> FieldTable {
    let mut annotations = FieldTable::default();
    let tables = with_death(message, properties, headers, death);
    annotations.0.push(field(DEATHS, FieldValue::Array(tables)));
    let facts = [
        ("queue", text(&death.queue.name)),
        ("reason", FieldValue::text(reason_text(death.reason))),
        ("exchange", text(&message.exchange)),
    ];
    for (what, value) in facts {
        let first = format!("x-first-death-{what}");
        let value_of_first = message.annotations.get(&first).cloned().unwrap_or(value.clone());
        annotations.0.push(field(&first, value_of_first));
        annotations.0.push(field(&format!("x-last-death-{what}"), value));
    }
    annotations
}

fn first_of_its_kind(
    message: &Message,
    properties: &Properties,
    headers: Option<&FieldTable>,
    death: Death<'_>,
) -> FieldTable {
    let carbon_copies = headers.and_then(|headers| headers.get("CC"));
    let copies = match carbon_copies {
        Some(FieldValue::Array(keys)) => keys.clone(),
        Some(_) | None => Vec::new(),
    };
    let is_text = |key: &FieldValue| key.as_long_string().is_some();
    let keys =
        std::iter::once(text(&message.routing_key)).chain(copies.into_iter().filter(is_text));
    let mut table = FieldTable(vec![
        field("count", FieldValue::I64(1)),
        field("reason", FieldValue::text(reason_text(death.reason))),
        field("queue", text(&death.queue.name)),
        field("time", FieldValue::Timestamp(death.at.0 / 1000)),
        field("exchange", text(&message.exchange)),
        field("routing-keys", FieldValue::Array(keys.collect())),
    ]);
    if let Some(expiration) = &properties.expiration {
        table.0.push(field("original-expiration", text(expiration)));
    }
    table
}

fn counted_again(mut table: FieldTable) -> FieldTable {
    for (name, value) in &mut table.0 {
        if name.as_str() == "count" {
            *value = FieldValue::I64(value.as_integer().unwrap_or(0).saturating_add(1));
        }
    }
    table
}

fn deaths(annotations: &FieldTable) -> Vec<FieldTable> {
    let Some(FieldValue::Array(tables)) = annotations.get(DEATHS) else { return Vec::new() };
    let table = |value: &FieldValue| {
        let FieldValue::Table(table) = value else { return None };
        Some(table.clone())
    };
    tables.iter().filter_map(table).collect()
}

fn is_of(table: &FieldTable, death: Death<'_>) -> bool {
    says(table, "queue", death.queue.name.as_str())
        && says(table, "reason", reason_text(death.reason))
}

fn says(table: &FieldTable, name: &str, text: &str) -> bool {
    let value = table.get(name).and_then(FieldValue::as_long_string);
    value.is_some_and(|value| value == text.as_bytes())
}

fn set(table: &mut FieldTable, name: &str, value: FieldValue) {
    if let Some((_, old)) = table.0.iter_mut().find(|(known, _)| known.as_str() == name) {
        *old = value;
    }
}

fn text(text: &ShortString) -> FieldValue {
    FieldValue::text(text.as_str())
}

fn field(name: &str, value: FieldValue) -> (ShortString, FieldValue) {
    // The broker's own names are short.
    (ShortString::try_from(name).unwrap_or_default(), value)
}

/// Whether a letter with this history, its present death included, must not enter `target` again:
/// it has died there, and no client has rejected it since (DLX-26, Q-44), and no task has moved it
/// since.
pub(crate) fn is_cycle(annotations: &FieldTable, target: &ShortString) -> bool {
    let ends_chain = [DeathReason::Rejected, DeathReason::Redriven].map(reason_text);
    for table in deaths(annotations) {
        if ends_chain.iter().any(|reason| says(&table, "reason", reason)) {
            return false;
        }
        if says(&table, "queue", target.as_str()) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;
    use bytes::Bytes;

    fn short(text: &str) -> ShortString {
        ShortString::try_from(text).unwrap()
    }

    fn queue(name: &str) -> ResourceName {
        ResourceName { vhost: short("/"), name: short(name) }
    }

    fn via(key: Option<&str>) -> Via {
        Via { exchange: short("dlx"), routing_key: key.map(short) }
    }

    fn message(headers: Option<FieldTable>, expiration: Option<&str>) -> Message {
        let none = Properties::parse(Bytes::from_static(&[0, 0])).unwrap();
        let raw = none.with_headers(headers.as_ref()).unwrap();
        let raw = Properties::parse(raw).unwrap();
        let properties = raw.with_expiration(expiration.map(short).as_ref()).unwrap();
        Message {
            exchange: short("orders"),
            routing_key: short("new"),
            further_keys: vec![short("copy"), short("blind")],
            properties,
            annotations: FieldTable::default(),
            body: Bytes::from_static(b"body"),
        }
    }

    fn die(message: Message, name: &str, reason: DeathReason, key: Option<&str>) -> Message {
        let (queue, at) = (queue(name), WallTime(5_000));
        annotate(message, Death { queue: &queue, reason, at }, &via(key)).unwrap().message
    }

    #[test]
    fn dlx_30_the_first_death_has_every_field() {
        let copies = FieldValue::Array(vec![FieldValue::text("copy")]);
        let headers = FieldTable(vec![field("CC", copies)]);
        let dead = die(message(Some(headers), Some("60")), "q", DeathReason::Expired, None);
        let tables = deaths(&dead.annotations);
        let [table] = tables.as_slice() else { panic!("{tables:?}") };
        let names: Vec<&str> = table.0.iter().map(|(name, _)| name.as_str()).collect();
        let wanted = ["count", "reason", "queue", "time", "exchange", "routing-keys"];
        assert_eq!(names, [wanted.as_slice(), &["original-expiration"]].concat());
        assert_eq!(table.get("time"), Some(&FieldValue::Timestamp(5)));
        // BCC keys are used for routing and are never delivered.
        let keys = vec![FieldValue::text("new"), FieldValue::text("copy")];
        assert_eq!(table.get("routing-keys"), Some(&FieldValue::Array(keys)));
        assert_eq!(dead.exchange.as_str(), "dlx");
        assert_eq!(dead.routing_key.as_str(), "new");
        assert_eq!(dead.further_keys, [short("copy"), short("blind")]);
    }

    #[test]
    fn dlx_31_the_expiration_goes_at_every_death() {
        for reason in [DeathReason::Expired, DeathReason::Rejected, DeathReason::MaxLength] {
            let dead = die(message(None, Some("60")), "q", reason, None);
            assert_eq!(Properties::parse(dead.properties).unwrap().expiration, None);
        }
    }

    #[test]
    fn let_01_what_a_task_moves_keeps_its_history_and_gets_the_given_exchange_and_key() {
        let dead = die(message(None, Some("60")), "q", DeathReason::Expired, Some("parked"));
        let (queue, at) = (queue("parking"), WallTime(9_000));
        let death = Death { queue: &queue, reason: DeathReason::Redriven, at };
        let via = Via { exchange: short("orders"), routing_key: Some(short("new")) };
        let back = annotate(dead.clone(), death, &via).unwrap().message;
        let reasons = |message: &Message| {
            let tables = deaths(&message.annotations);
            let pair = |it: &FieldTable| (it.get("queue").cloned(), it.get("reason").cloned());
            tables.iter().map(pair).collect::<Vec<_>>()
        };
        let moved = (Some(FieldValue::text("parking")), Some(FieldValue::text("redriven")));
        assert_eq!(reasons(&back), [vec![moved], reasons(&dead)].concat());
        let facts = |message: &Message| message.annotations.0.iter().skip(1).cloned().collect();
        let (of_back, of_dead): (Vec<_>, Vec<_>) = (facts(&back), facts(&dead));
        assert_eq!(of_back, of_dead, "first and last death");
        assert_eq!((back.exchange, back.routing_key), (short("orders"), short("new")));
        assert_eq!((back.properties, back.body), (dead.properties, dead.body));
    }

    #[test]
    fn q_47_what_a_task_put_back_may_die_in_the_same_queues_again_once() {
        let dead = die(message(None, None), "work", DeathReason::DeliveryLimit, None);
        let dead = die(dead, "late", DeathReason::Expired, None);
        let (queue, at) = (queue("parking"), WallTime(9_000));
        let death = Death { queue: &queue, reason: DeathReason::Redriven, at };
        let back = annotate(dead, death, &via(Some("work"))).unwrap().message;
        let again = die(back, "work", DeathReason::DeliveryLimit, None);
        assert!(!is_cycle(&again.annotations, &short("late")), "it died there before the task");
        let again = die(again, "late", DeathReason::Expired, None);
        assert!(is_cycle(&again.annotations, &short("work")), "it died there since");
    }

    #[test]
    fn what_has_not_died_gets_no_history_by_a_move() {
        let (queue, at) = (queue("q"), WallTime(9_000));
        let death = Death { queue: &queue, reason: DeathReason::Redriven, at };
        let moved = annotate(message(None, None), death, &via(None)).unwrap().message;
        assert_eq!(moved.annotations, FieldTable::default());
    }

    #[test]
    fn dlx_29_a_known_pair_is_counted_and_comes_first() {
        let mut dead = message(None, None);
        for name in ["a", "b", "a"] {
            dead = die(dead, name, DeathReason::Rejected, None);
        }
        let tables = deaths(&dead.annotations);
        let pairs: Vec<_> = tables.iter().map(|it| (it.get("queue"), it.get("count"))).collect();
        let (a, b) = (FieldValue::text("a"), FieldValue::text("b"));
        let (two, one) = (FieldValue::I64(2), FieldValue::I64(1));
        assert_eq!(pairs, [(Some(&a), Some(&two)), (Some(&b), Some(&one))]);
        let first = dead.annotations.get("x-first-death-exchange");
        assert_eq!(first, Some(&FieldValue::text("orders")), "DLX-32");
        let last = dead.annotations.get("x-last-death-exchange");
        assert_eq!(last, Some(&FieldValue::text("dlx")), "DLX-32");
    }

    #[test]
    fn q_42_a_key_in_force_replaces_all_keys_and_the_cc_header() {
        let copies = FieldValue::Array(vec![FieldValue::text("copy")]);
        let headers = FieldTable(vec![field("CC", copies), field("mine", FieldValue::Bool(true))]);
        let dead = die(message(Some(headers), None), "q", DeathReason::Rejected, Some("parked"));
        assert_eq!(dead.routing_key.as_str(), "parked");
        assert_eq!(dead.further_keys, []);
        let headers = Properties::parse(dead.properties).unwrap().decode_headers().unwrap();
        assert_eq!(headers, Some(FieldTable(vec![field("mine", FieldValue::Bool(true))])));
    }

    #[test]
    fn dlx_26_a_cycle_is_one_without_a_reject() {
        let expired = die(message(None, None), "a", DeathReason::Expired, None);
        assert!(is_cycle(&expired.annotations, &short("a")), "DLX-27");
        assert!(!is_cycle(&expired.annotations, &short("b")));
        let twice = die(expired, "b", DeathReason::Expired, None);
        assert!(is_cycle(&twice.annotations, &short("a")), "two queues with a time to live");
        let rejected = die(twice, "b", DeathReason::Rejected, None);
        assert!(!is_cycle(&rejected.annotations, &short("a")), "a reject ends the chain");
        assert!(!is_cycle(&rejected.annotations, &short("b")));
    }
}
