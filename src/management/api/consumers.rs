//! Consumers: `/api/consumers` and below.

use crate::api::call::{Answer, Api, Call};
use crate::api::channels;
use crate::api::cluster::VhostConsumer;
use crate::api::connections;
use crate::api::json;
use crate::api::names::Names;
use crate::api::refusal::Refusal;
use crate::wire;
use quorate_types::FieldTable;
use serde_json::{Value, json};

/// How lists of consumers are sorted.
const ORDER: &[&str] = &["queue.vhost", "queue.name", "consumer_tag"];
/// The time to settle a delivery that RabbitMQ shows where none is set, ms.
const TIMEOUT_MS: u64 = 1_800_000;

/// The time that consumers of a queue have to settle a delivery, by its argument, ms (CTO-01).
pub(crate) fn timeout_ms(queue: &wire::Queue) -> u64 {
    let arguments = FieldTable::decode(&mut queue.arguments.clone()).unwrap_or_default();
    let given = arguments.get("x-consumer-timeout").and_then(|value| value.as_integer());
    given.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(TIMEOUT_MS)
}

/// A consumer as lists show it. `channels` are those of the cluster, among them its own.
pub(crate) fn shape(
    known: &VhostConsumer,
    timeout_ms: u64,
    channels: &[wire::Channel],
    names: &Names,
) -> Value {
    let consumer = &known.consumer;
    let channel = channels.iter().find(|one| is_on(consumer, one));
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
        "consumer_timeout": timeout_ms,
        "channel_details": details,
    })
}

fn is_on(consumer: &wire::Consumer, channel: &wire::Channel) -> bool {
    consumer.connection == channel.connection && consumer.channel == channel.number
}

/// The consumers that the caller sees: its own, or all; of the virtual hosts that it may use, or of
/// one.
pub(crate) async fn list(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let vhosts = call.vhosts(api)?;
    let (consumers, channels, names) =
        tokio::join!(api.cluster.consumers(&vhosts), api.cluster.channels(), Names::of(api));
    let (user, sees_all) = (call.caller.user.clone(), call.caller.is_monitor());
    let silent = consumers.silent;
    let items = move || {
        let is_seen = |known: &&VhostConsumer| {
            let mut own = channels.items.iter().filter(|one| is_on(&known.consumer, one));
            sees_all || own.any(|one| one.user == user.as_str())
        };
        let seen = consumers.items.iter().filter(is_seen);
        seen.map(|one| shape(one, TIMEOUT_MS, &channels.items, &names)).collect()
    };
    Ok(Answer::list(ORDER, items).without(silent))
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
            ..wire::Consumer::default()
        };
        let known = VhostConsumer { vhost: ShortString::from_static("/"), consumer };
        let channel = wire::Channel { connection, number: 2, ..wire::Channel::default() };
        let shown = shape(&known, TIMEOUT_MS, &[channel], &names());
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
        let number = shown.get("channel_details").and_then(|details| details.get("number"));
        assert_eq!(number, Some(&json!(2)));
        let lost = shape(&known, TIMEOUT_MS, &[], &names());
        assert_eq!(lost.get("channel_details"), Some(&json!({})));
    }
}
