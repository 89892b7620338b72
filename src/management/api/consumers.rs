//! Consumers: `/api/consumers` and below.

use crate::api::call::{Answer, Api, Call};
use crate::api::channels;
use crate::api::cluster::VhostConsumer;
use crate::api::connections;
use crate::api::json;
use crate::api::names::Names;
use crate::api::refusal::Refusal;
use crate::wire;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How lists of consumers are sorted.
const ORDER: &[&str] = &["queue.vhost", "queue.name", "consumer_tag"];

/// The channels of the cluster, by connection and number.
#[derive(Debug)]
pub(crate) struct Channels<'a>(BTreeMap<(u32, u64, u64, u32), &'a wire::Channel>);

fn place(connection: Option<wire::ConnectionId>, channel: u32) -> (u32, u64, u64, u32) {
    let id = connection.unwrap_or_default();
    (id.node, id.start, id.number, channel)
}

impl<'a> Channels<'a> {
    /// An index of channels.
    pub(crate) fn of(channels: &'a [wire::Channel]) -> Self {
        let indexed = |one: &'a wire::Channel| (place(one.connection, one.number), one);
        Self(channels.iter().map(indexed).collect())
    }

    /// The channel of a consumer; `None` if it, or its node, has not been heard of.
    fn of_consumer(&self, consumer: &wire::Consumer) -> Option<&'a wire::Channel> {
        self.0.get(&place(consumer.connection, consumer.channel)).copied()
    }
}

/// A consumer as lists show it.
pub(crate) fn shape(known: &VhostConsumer, channels: &Channels<'_>, names: &Names) -> Value {
    let consumer = &known.consumer;
    let channel = channels.of_consumer(consumer);
    let details = channel.map_or_else(
        || json!({}),
        |channel| {
            json!({
                "name": channels::name(channel),
                "number": channel.number,
                "node": names.name(channel.connection.map_or(0, |id| id.node)),
                "connection_name": connections::name(
                    (&channel.peer_host, channel.peer_port),
                    (&channel.host, channel.port),
                ),
                "peer_host": channel.peer_host,
                "peer_port": channel.peer_port,
                "user": channel.user,
            })
        },
    );
    json!({
        "queue": { "name": consumer.queue, "vhost": known.vhost.as_str() },
        "consumer_tag": consumer.tag,
        "ack_required": consumer.ack_required,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch,
        "arguments": json::table(&consumer.arguments),
        "active": consumer.activity_status != "waiting",
        "activity_status": consumer.activity_status,
        "consumer_timeout": consumer.timeout_ms,
        "channel_details": details,
    })
}

/// The consumers that the caller sees: its own, or all; of the virtual hosts that it may use, or of
/// one.
pub(crate) async fn list(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhosts = call.vhosts(api)?;
    let (consumers, channels, names) =
        tokio::join!(api.cluster.consumers(&vhosts), api.cluster.channels(), Names::of(api));
    let (user, sees_all) = (call.caller.user.clone(), call.caller.is_monitor());
    let (silent, unknown) = (consumers.silent, channels.silent.clone());
    let items = move || {
        let channels = Channels::of(&channels.items);
        let is_seen = |known: &&VhostConsumer| {
            let channel = channels.of_consumer(&known.consumer);
            sees_all || channel.is_some_and(|one| one.user == user.as_str())
        };
        let seen = consumers.items.iter().filter(is_seen);
        seen.map(|one| shape(one, &channels, &names)).collect()
    };
    Ok(Answer::list(ORDER, items).without(silent).without(unknown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tests::names;
    use quorate_types::ShortString;

    /// The keys that clients need (management.md, section 2.2).
    #[test]
    fn a_consumer_has_what_clients_need() {
        let connection = Some(wire::ConnectionId { node: 1, start: 1, number: 1 });
        let consumer = wire::Consumer {
            queue: "q".to_owned(),
            connection,
            channel: 2,
            activity_status: "waiting".to_owned(),
            timeout_ms: 60_000,
            ..wire::Consumer::default()
        };
        let known = VhostConsumer { vhost: ShortString::from_static("/"), consumer };
        let channel = wire::Channel { connection, number: 2, ..wire::Channel::default() };
        let shown = shape(&known, &Channels::of(&[channel]), &names());
        for key in [
            "consumer_tag",
            "active",
            "ack_required",
            "prefetch_count",
            "exclusive",
            "arguments",
            "consumer_timeout",
            "queue",
        ] {
            assert!(shown.get(key).is_some(), "{key}");
        }
        assert_eq!(shown.get("active"), Some(&json!(false)));
        assert_eq!(shown.get("consumer_timeout"), Some(&json!(60_000)));
        let number = shown.get("channel_details").and_then(|details| details.get("number"));
        assert_eq!(number, Some(&json!(2)));
        let lost = shape(&known, &Channels::of(&[]), &names());
        assert_eq!(lost.get("channel_details"), Some(&json!({})));
    }
}
