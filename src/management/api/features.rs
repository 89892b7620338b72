//! Feature flags and deprecated features, which clients ask for.

use crate::api::call::{Answer, Call};
use crate::api::refusal::{Refusal, bad_request};
use serde_json::{Value, json};

/// Names of flags, and what they stand for: those whose meaning holds here. All are enabled.
pub const FLAGS: [(&str, &str); 22] = [
    ("classic_mirrored_queue_version", "Support setting version for classic mirrored queues"),
    ("detailed_queues_endpoint", "Add a detailed queues HTTP API endpoint"),
    ("direct_exchange_routing_v2", "v2 direct exchange routing implementation"),
    ("drop_unroutable_metric", "Count unroutable publishes to be dropped in stats"),
    ("empty_basic_get_metric", "Count AMQP `basic.get` on empty queues in stats"),
    ("feature_flags_v2", "Feature flags subsystem V2"),
    ("implicit_default_bindings", "Default bindings are now implicit"),
    ("khepri_db", "Metadata is replicated by Raft"),
    ("listener_records_in_ets", "Store listener records in memory"),
    ("maintenance_mode_status", "Maintenance mode status"),
    ("message_containers", "Message containers"),
    ("message_containers_deaths_v2", "Deaths of messages in their order"),
    ("quorum_queue", "Support queues of type `quorum`"),
    ("rabbit_exchange_type_local_random", "Local random exchange"),
    ("rabbitmq_4.0.0", "Allows rolling upgrades from 3.13.x to 4.0.x"),
    ("rabbitmq_4.1.0", "Allows rolling upgrades to 4.1.x"),
    ("rabbitmq_4.2.0", "Allows rolling upgrades to 4.2.x"),
    ("rabbitmq_4.3.0", "Allows rolling upgrades to 4.3.x"),
    // NServiceBus takes it for the sign of a broker that is new enough.
    ("stream_queue", "Support queues of type `stream`"),
    ("tracking_records_in_ets", "Store tracking records in memory"),
    ("user_limits", "Configure connection and channel limits for a user"),
    ("virtual_host_metadata", "Virtual host metadata (description, tags, etc)"),
];

/// What RabbitMQ calls deprecated, its phase there, and whether it is to be had here.
const DEPRECATED: [(&str, &str, &str, &str); 5] = [
    (
        "amqp_address_v1",
        "permitted_by_default",
        "denied",
        "RabbitMQ AMQP address version 1 is deprecated: there is no AMQP 1.0 here",
    ),
    (
        "global_qos",
        "permitted_by_default",
        "permitted",
        "The field `global` of `basic.qos` is deprecated: with it, the limit is that of the channel",
    ),
    (
        "management_metrics_collection",
        "permitted_by_default",
        "permitted",
        "The statistics of the HTTP API are deprecated: use Prometheus",
    ),
    (
        "ram_node_type",
        "permitted_by_default",
        "denied",
        "Nodes without a disk are deprecated: there are none here",
    ),
    (
        "transient_nonexcl_queues",
        "permitted_by_default",
        "permitted",
        "Transient queues that are not exclusive are deprecated",
    ),
];

/// Where RabbitMQ explains them.
const DEPRECATED_URL: &str = "https://www.rabbitmq.com/docs/deprecated-features-list";

/// The deprecated features.
pub(crate) fn deprecated() -> Answer {
    let shape = |(name, phase, state, desc): &(&str, &str, &str, &str)| {
        json!({
            "name": name,
            "desc": desc,
            "deprecation_phase": phase,
            "state": state,
            "doc_url": DEPRECATED_URL,
            "provided_by": "rabbit",
        })
    };
    Answer::list(&["name"], move || DEPRECATED.iter().map(shape).collect::<Vec<Value>>())
}

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
