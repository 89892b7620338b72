//! Feature flags, which clients ask for: all that this broker has are enabled.

use crate::api::call::{Answer, Call};
use crate::api::refusal::{Refusal, bad_request};
use serde_json::{Value, json};

/// Names of flags, and what they stand for.
pub const FLAGS: [(&str, &str); 12] = [
    ("classic_mirrored_queue_version", "Support setting version for classic mirrored queues"),
    ("direct_exchange_routing_v2", "v2 direct exchange routing implementation"),
    ("drop_unroutable_metric", "Count unroutable publishes to be dropped in stats"),
    ("empty_basic_get_metric", "Count AMQP `basic.get` on empty queues in stats"),
    ("feature_flags_v2", "Feature flags subsystem V2"),
    ("implicit_default_bindings", "Default bindings are now implicit"),
    ("maintenance_mode_status", "Maintenance mode status"),
    ("quorum_queue", "Support queues of type `quorum`"),
    // NServiceBus takes it for the sign of a broker that is new enough.
    ("stream_queue", "Support queues of type `stream`"),
    ("tracking_records_in_ets", "Store tracking records in memory"),
    ("user_limits", "Configure connection and channel limits for a user"),
    ("virtual_host_metadata", "Virtual host metadata (description, tags, etc)"),
];

/// All flags.
pub(crate) fn list() -> Answer {
    let shape = |(name, desc): &(&str, &str)| {
        json!({
            "name": name,
            "desc": desc,
            "doc_url": "",
            "state": "enabled",
            "stability": "stable",
            "provided_by": "rabbit",
        })
    };
    Answer::list(&["name"], move || FLAGS.iter().map(shape).collect::<Vec<Value>>())
}

/// Enables a flag, which is enabled already.
pub(crate) fn enable(call: &Call) -> Result<Answer, Refusal> {
    let name = call.name("name").unwrap_or_default();
    if name != "all" && FLAGS.iter().all(|(flag, _)| *flag != name) {
        return bad_request(format!("no feature flag '{name}'"));
    }
    Ok(Answer::done())
}
