//! Messages that were looked at, explanations, settings and dry runs as JSON, for the HTTP API and
//! `quorate ctl`. Pure.

use crate::api::json;
use quorate_broker::browse::{
    Browsed, BrowsedMessage, DeathReason, Letter, LetterTarget, MessageState, Shown, Stage,
};
use quorate_broker::{DeadLetterPath, DryRun, Excess, Explanation, Nowhere};
use quorate_catalog::{QueueChange, Setting, SettingSource, arguments_to_json};
use quorate_client::delivery_properties;
use quorate_types::{FieldTable, Holder};
use serde_json::{Map, Value, json};

/// A page of messages.
pub(crate) fn page(browsed: &Browsed) -> Value {
    json!({
        "messages": browsed.messages.iter().map(message).collect::<Value>(),
        "next": browsed.next.map(|cursor| cursor.to_string()),
        "looked_at": browsed.looked_at,
        "unreadable": browsed.unreadable,
        "stale": browsed.stale,
    })
}

/// One message.
pub(crate) fn message(browsed: &BrowsedMessage) -> Value {
    let message = &browsed.message;
    let properties = json::properties(&delivery_properties(message, Some(browsed.counts)));
    let properties = properties.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot decode stored message properties");
        json!({})
    });
    let (payload, encoding) = json::payload(&message.body, false);
    let mut shown = json!({
        "position": Shown(browsed.id).to_string(),
        "state": state(&browsed.state),
        "payload_bytes": browsed.body_bytes,
        "payload": payload,
        "payload_encoding": encoding,
        "properties": properties,
        "exchange": message.exchange.as_str(),
        "routing_key": message.routing_key.as_str(),
        "redelivered": browsed.counts.acquired > 0,
        "acquired_count": browsed.counts.acquired,
        "delivery_count": browsed.counts.returned,
        "priority_level": browsed.id.level.0,
        "age_ms": browsed.age_ms,
        "since_ms": browsed.since.0,
        "deaths": deaths(&message.annotations),
    });
    let more = match &browsed.state {
        MessageState::Ready => None,
        MessageState::Delayed { .. } => browsed.retry_at.map(|at| ("retry_at_ms", at.0.into())),
        MessageState::Unacked { holder, .. } => Some(("held_by", held_by(*holder))),
        MessageState::Letter(_, letter) => {
            Some(("dead_letter", dead_letter(letter, &browsed.targets)))
        }
    };
    if let Some(fields) = shown.as_object_mut() {
        fields.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    shown
}

fn state(state: &MessageState) -> &'static str {
    match state {
        MessageState::Ready => "ready",
        MessageState::Delayed { .. } => "delayed",
        MessageState::Unacked { .. } => "unacked",
        MessageState::Letter(_, letter) if letter.reason == DeathReason::Delayed => "delayed",
        MessageState::Letter(_, letter) if letter.reason == DeathReason::Redriven => "moving",
        MessageState::Letter(..) => "dead_letter",
    }
}

fn held_by(holder: Holder) -> Value {
    match holder {
        Holder::Consumer(consumer) => {
            json!({ "kind": "consumer", "node": consumer.session.node.0 })
        }
        Holder::Get(session, _) => json!({ "kind": "get", "node": session.node.0 }),
    }
}

/// What a dead letter waits for.
fn dead_letter(letter: &Letter, targets: &[LetterTarget]) -> Value {
    let waits_for = match &letter.stage {
        Stage::Waiting { .. } => "routing",
        Stage::Kept => "a queue that takes it",
        Stage::Routed(_) => "its targets",
        Stage::Delayed { .. } => "the end of its delay",
    };
    let target = |target: &LetterTarget| {
        json!({
            "queue": target.name.as_ref().map(|name| name.as_str()),
            "attempt": target.attempt,
            "full": target.attempt.is_none(),
        })
    };
    json!({
        "died_at_ms": letter.died_at.0,
        "waits_for": waits_for,
        "targets": targets.iter().map(target).collect::<Value>(),
    })
}

/// The deaths in the broker's own annotations, the latest first.
fn deaths(annotations: &FieldTable) -> Value {
    let deaths = annotations.0.iter().filter(|(name, _)| name.as_str() == "x-death");
    let table = FieldTable(deaths.take(1).cloned().collect());
    let json = arguments_to_json(&table);
    json.get("x-death").cloned().unwrap_or_else(|| json!([]))
}

/// An explanation.
pub(crate) fn explanation(explained: &Explanation) -> Value {
    let ahead = explained.ahead.map(|it| json!({ "messages": it.messages, "more": it.more }));
    let expires = explained.ttl_ms.filter(|_| explained.ahead.is_some());
    let expires = expires.map(|ttl| explained.message.since.0.saturating_add(ttl));
    json!({
        "text": explained.text.join("\n"),
        "sentences": explained.text,
        "message": message(&explained.message),
        "ahead": ahead,
        "delivery_limit": explained.delivery_limit,
        "ttl_ms": explained.ttl_ms,
        "expires_at_ms": expires,
        "dead_letter_path": explained.dead_letter.as_ref().map(path),
    })
}

fn path(path: &DeadLetterPath) -> Value {
    let nowhere = path.nowhere.map(|nowhere| match nowhere {
        Nowhere::NoExchange => "no_exchange",
        Nowhere::NoQueue => "no_queue",
        Nowhere::Kept => "kept",
        Nowhere::Cycle => "cycle",
    });
    json!({
        "exchange": path.exchange.as_str(),
        "routing_key": path.routing_key.as_str(),
        "queues": path.queues.iter().map(|queue| queue.as_str()).collect::<Vec<_>>(),
        "nowhere": nowhere,
    })
}

/// The effective settings of a queue.
pub(crate) fn settings(settings: &[Setting]) -> Value {
    let one = |setting: &Setting| {
        let mut fields = Map::new();
        fields.insert("setting".to_owned(), setting.setting.into());
        fields.insert("value".to_owned(), setting.value.clone());
        add_source(&mut fields, &setting.source);
        Value::Object(fields)
    };
    settings.iter().map(one).collect()
}

fn add_source(fields: &mut Map<String, Value>, source: &SettingSource) {
    fields.insert("source".to_owned(), source.kind().into());
    fields.insert("name".to_owned(), source.name().map_or(Value::Null, Value::from));
}

/// A dry run; `excess` has what each queue would lose, or `None` if that is not known.
pub(crate) fn dry_run(run: &DryRun, excess: &[Option<Excess>]) -> Value {
    let excess = excess.iter().copied().chain(std::iter::repeat(None));
    json!({
        "queues": run.queues.iter().zip(excess).map(|(it, lost)| queue(it, lost)).collect::<Value>(),
        "queue_count": run.queue_count,
        "made": run.made,
        "changed": run.changed,
        "left_out": run.left_out,
    })
}

fn queue(change: &QueueChange, excess: Option<Excess>) -> Value {
    let changes = change.changes.iter().map(|it| {
        let mut fields = Map::new();
        fields.insert("setting".to_owned(), it.setting.into());
        fields.insert("before".to_owned(), it.before.clone());
        fields.insert("after".to_owned(), it.after.clone());
        add_source(&mut fields, &it.source);
        Value::Object(fields)
    });
    // The messages of a queue that ends are dropped; those that die go where it says.
    let to_dlx = change.after.dead_letter.is_some();
    let (dropped, dead_lettered) = match excess {
        None => (None, None),
        Some(lost) if lost.ends || !to_dlx => (Some(lost.messages), Some(0)),
        Some(lost) => (Some(0), Some(lost.messages)),
    };
    json!({
        "vhost": change.entry.name.vhost.as_str(),
        "name": change.entry.name.name.as_str(),
        "changes": changes.collect::<Value>(),
        "dropped": dropped,
        "dead_lettered": dead_lettered,
        "at_least": excess.is_some_and(|lost| lost.more),
        "deleted": excess.is_some_and(|lost| lost.ends),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use bytes::Bytes;
    use quorate_broker::browse::Cursor;
    use quorate_types::{
        Counts, FieldValue, LetterNumber, Level, LogIndex, Message, MessageId, ShortString,
        Timestamp, WallTime,
    };

    fn browsed(state: MessageState) -> BrowsedMessage {
        let death = FieldTable(vec![
            (ShortString::from_static("reason"), FieldValue::text("expired")),
            (ShortString::from_static("count"), FieldValue::I64(1)),
        ]);
        let deaths = FieldValue::Array(vec![FieldValue::Table(death)]);
        BrowsedMessage {
            id: MessageId { level: Level(4), index: LogIndex(9), position: 1 },
            state,
            counts: Counts { acquired: 2, returned: 1 },
            expiration_ms: None,
            age_ms: 5,
            since: WallTime(7),
            message: Message {
                exchange: ShortString::from_static("e"),
                routing_key: ShortString::from_static("k"),
                annotations: FieldTable(vec![(ShortString::from_static("x-death"), deaths)]),
                body: Bytes::from_static(&[0xff]),
                ..Message::default()
            },
            body_bytes: 3,
            targets: vec![LetterTarget {
                name: Some(ShortString::from_static("dead")),
                attempt: None,
            }],
            retry_at: None,
        }
    }

    #[test]
    fn a_page_shows_messages_as_they_would_be_delivered() {
        let browsed = Browsed {
            messages: vec![browsed(MessageState::Ready)],
            next: Some(Cursor::Letter(LetterNumber(3))),
            looked_at: 8,
            ..Browsed::default()
        };
        let shown = page(&browsed);
        assert_eq!(shown.get("next"), Some(&json!("d3")));
        let message = shown.pointer("/messages/0").unwrap();
        for (field, expected) in [
            ("position", json!("4.9.1")),
            ("state", json!("ready")),
            ("payload", json!("/w==")),
            ("payload_encoding", json!("base64")),
            ("payload_bytes", json!(3)),
            ("redelivered", json!(true)),
            ("delivery_count", json!(1)),
            ("deaths", json!([{ "reason": "expired", "count": 1 }])),
        ] {
            assert_eq!(message.get(field), Some(&expected), "{field}");
        }
        let headers = message.pointer("/properties/headers").unwrap();
        assert_eq!(headers.get("x-delivery-count"), Some(&json!(1)));
        assert!(headers.get("x-death").is_some());
        assert_eq!(message.get("dead_letter"), None);
    }

    #[test]
    fn a_message_that_waits_for_its_retry_says_until_when() {
        let mut waiting = browsed(MessageState::Delayed { until: Timestamp(3) });
        waiting.retry_at = Some(WallTime(9));
        let shown = message(&waiting);
        assert_eq!(shown.get("state"), Some(&json!("delayed")));
        assert_eq!(shown.get("retry_at_ms"), Some(&json!(9)));
    }

    #[test]
    fn a_dead_letter_names_what_it_waits_for() {
        let id = MessageId { level: Level(4), index: LogIndex(9), position: 1 };
        let (reason, stage) = (DeathReason::Rejected, Stage::Kept);
        let letter = Letter { message: id, body_bytes: 3, reason, died_at: WallTime(4), stage };
        let shown = message(&browsed(MessageState::Letter(LetterNumber(1), Box::new(letter))));
        assert_eq!(shown.get("state"), Some(&json!("dead_letter")));
        let expected = json!({
            "died_at_ms": 4,
            "waits_for": "a queue that takes it",
            "targets": [{ "queue": "dead", "attempt": null, "full": true }],
        });
        assert_eq!(shown.get("dead_letter"), Some(&expected));
    }

    #[test]
    fn a_setting_names_its_source() {
        let all = [
            Setting {
                setting: "max-length",
                value: json!(5),
                source: SettingSource::Policy(ShortString::from_static("p")),
            },
            Setting { setting: "expires", value: Value::Null, source: SettingSource::Default },
        ];
        let expected = json!([
            { "setting": "max-length", "value": 5, "source": "policy", "name": "p" },
            { "setting": "expires", "value": null, "source": "default", "name": null },
        ]);
        assert_eq!(settings(&all), expected);
    }
}
