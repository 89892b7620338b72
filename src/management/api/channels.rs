//! Channels: `/api/channels` and below.

use crate::api::call::{Answer, Api, Call};
use crate::api::connections::{self, check_owner};
use crate::api::names::Names;
use crate::api::refusal::Refusal;
use crate::api::statistics::{self, Book, Key};
use crate::wire::{self, SampledKind};
use serde_json::{Value, json};

/// How lists of channels are sorted.
const ORDER: &[&str] = &["vhost", "name"];

/// The name of a channel: that of its connection, and its number.
pub(crate) fn name(channel: &wire::Channel) -> String {
    format!("{} ({})", connection_name(channel), channel.number)
}

fn connection_name(channel: &wire::Channel) -> String {
    connections::name((&channel.peer_host, channel.peer_port), (&channel.host, channel.port))
}

/// A channel as lists show it.
pub(crate) fn shape(channel: &wire::Channel, names: &Names) -> Value {
    json!({
        "name": name(channel),
        "number": channel.number,
        "node": names.name(channel.connection.map_or(0, |id| id.node)),
        "vhost": channel.vhost,
        "user": channel.user,
        "user_who_performed_action": channel.user,
        "state": "running",
        "confirm": channel.confirm,
        "transactional": channel.transactional,
        "consumer_count": channel.consumers,
        "prefetch_count": 0,
        "global_prefetch_count": channel.prefetch,
        "messages_unacknowledged": channel.unacknowledged,
        "messages_unconfirmed": channel.unconfirmed,
        "messages_uncommitted": channel.messages_uncommitted,
        "acks_uncommitted": channel.acks_uncommitted,
        "connection_details": {
            "name": connection_name(channel),
            "peer_host": channel.peer_host,
            "peer_port": channel.peer_port,
        },
    })
}

/// The channels that the caller sees: its own, or all; of all virtual hosts or of one.
pub(crate) async fn list(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    if call.name("vhost").is_some() {
        call.vhost(api)?;
    }
    let spans = statistics::spans(call)?;
    let (listed, names, book) = tokio::join!(
        api.cluster.channels(),
        Names::of(api),
        Book::of(api, call, &spans, SampledKind::Channels),
    );
    let (vhost, caller) = (call.name("vhost"), &call.caller);
    let is_seen = |one: &wire::Channel| {
        vhost.is_none_or(|vhost| one.vhost == vhost)
            && (caller.is_monitor() || one.user == caller.user.as_str())
    };
    let book = book?;
    let silent = book.silent.clone();
    let channels: Vec<_> = listed.items.into_iter().filter(is_seen).collect();
    let shown =
        move |one: &wire::Channel| book.with(shape(one, &names), Key::of_channel(one).as_ref());
    let items = move || channels.iter().map(shown).collect();
    Ok(Answer::list(ORDER, items).without(listed.silent).without(silent))
}

/// One channel.
pub(crate) async fn one(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let wanted = call.name("channel").unwrap_or_default();
    let spans = statistics::spans(call)?;
    let (listed, names, book) = tokio::join!(
        api.cluster.channels(),
        Names::of(api),
        Book::of(api, call, &spans, SampledKind::Channels),
    );
    let book = book?;
    let found = listed.items.into_iter().find(|one| name(one) == wanted);
    let channel = found.ok_or(Refusal::NoObject)?;
    check_owner(&call.caller, call.method, &channel.user)?;
    let mut shown = book.with(shape(&channel, &names), Key::of_channel(&channel).as_ref());
    if let Some(fields) = shown.as_object_mut() {
        for details in ["consumer_details", "deliveries", "publishes"] {
            fields.insert(details.to_owned(), json!([]));
        }
    }
    Ok(Answer::object(shown).without(listed.silent).without(book.silent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tests::names;

    /// The keys that clients need (management.md, section 2.2).
    #[test]
    fn a_channel_has_what_clients_need() {
        let channel = wire::Channel {
            connection: Some(wire::ConnectionId { node: 1, start: 1, number: 1 }),
            number: 3,
            peer_host: "a".to_owned(),
            host: "b".to_owned(),
            ..wire::Channel::default()
        };
        let shown = shape(&channel, &names());
        for key in [
            "number",
            "name",
            "vhost",
            "state",
            "consumer_count",
            "confirm",
            "prefetch_count",
            "messages_unacknowledged",
            "messages_unconfirmed",
        ] {
            assert!(shown.get(key).is_some(), "{key}");
        }
        assert_eq!(shown.get("name"), Some(&json!("a:0 -> b:0 (3)")));
        assert_eq!(shown.get("node"), Some(&json!("rabbit1@a")));
    }
}
