//! The cluster as a whole: `/api/overview`, `/api/cluster-name`, `/api/version`, `/api/whoami`,
//! `/api/extensions`.

use crate::api::call::{Answer, Api, Call};
use crate::api::counts::Messages;
use crate::api::nodes;
use crate::api::refusal::Refusal;
use crate::api::route::Method;
use crate::api::statistics::{self, Book, Key};
use crate::facts::NodeFacts;
use crate::rates::fields::{Asked, CHURN, Field, NODE, VHOST};
use crate::rates::shown;
use crate::wire::{self, SampledKind};
use quorate_broker::Broker;
use quorate_catalog::{ParameterName, ParameterRecord};
use quorate_types::ShortString;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The global parameter with the cluster's name.
const CLUSTER_NAME: ShortString = ShortString::from_static(quorate_catalog::CLUSTER_NAME);

/// The types of exchanges.
pub(crate) fn exchange_types() -> Value {
    let described = [
        ("direct", "AMQP direct exchange, as per the AMQP specification"),
        ("fanout", "AMQP fanout exchange, as per the AMQP specification"),
        ("headers", "AMQP headers exchange, as per the AMQP specification"),
        ("topic", "AMQP topic exchange, as per the AMQP specification"),
        ("x-consistent-hash", "Consistent Hashing Exchange"),
        ("x-delayed-message", "Delayed Message Exchange."),
        ("x-local-random", "Picks one random local binding (queue) to route via (to)."),
        ("x-modulus-hash", "Modulus Hashing Exchange"),
        (
            "x-random",
            "AMQP random exchange. Like a direct exchange, but randomly chooses who to \
                      route to.",
        ),
    ];
    let shown = described.map(
        |(name, description)| json!({ "name": name, "description": description, "enabled": true }),
    );
    Value::from(shown.to_vec())
}

/// The name that was set for the cluster.
pub(crate) fn set_cluster_name(broker: &Broker) -> Option<String> {
    let set = broker.views().parameters(None).unwrap_or_default().into_iter();
    let is_name = |one: &ParameterRecord| one.name == ParameterName::Global(CLUSTER_NAME);
    let set = set.into_iter().find(is_name);
    set.and_then(|one| serde_json::from_str(&one.value).ok())
}

/// The name of the cluster: the one that was set, or its id.
pub(crate) fn cluster_name(api: &Api) -> String {
    set_cluster_name(&api.broker).unwrap_or_else(|| match api.cluster.view().cluster {
        Some(id) => format!("{:016x}", id.0),
        None => api.facts.name.clone(),
    })
}

/// Reads or sets the name of the cluster.
pub(crate) async fn name(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    if call.method == Method::Get {
        return Ok(Answer::object(json!({ "name": cluster_name(api) })));
    }
    let fields = call.fields()?;
    let value = Value::from(fields.text("name")?).to_string();
    let record = ParameterRecord::parse(ParameterName::Global(CLUSTER_NAME), &value)
        .map_err(|error| Refusal::BadRequest(error.to_string()))?;
    api.broker.operator().set_parameter(record).await?;
    Ok(Answer::done())
}

/// What monitors see of the nodes: this one, and what all of them serve.
fn insert_nodes(fields: &mut Map<String, Value>, api: &Api, others: Vec<wire::Node>) {
    let running: Vec<_> = others.into_iter().chain([nodes::own(api)]).collect();
    let listeners: Vec<_> = running.iter().flat_map(nodes::listeners).collect();
    let contexts: Vec<_> = running.iter().flat_map(nodes::contexts).collect();
    fields.insert("node".to_owned(), api.facts.name.as_str().into());
    fields.insert("listeners".to_owned(), listeners.into());
    fields.insert("contexts".to_owned(), contexts.into());
}

/// Figures of the cluster: the sums of what its nodes have sampled.
pub(crate) async fn overview(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    // A monitor sees the sums of all virtual hosts and clients, and the nodes.
    let is_monitor = call.caller.is_monitor();
    let vhosts = if is_monitor { all_vhosts(api) } else { call.vhosts(api)? };
    let spans = statistics::spans(call)?;
    let (queues, connections, channels, consumers, others, nodes, of_vhosts) = tokio::join!(
        api.cluster.queues(&vhosts),
        api.cluster.connections(),
        api.cluster.channels(),
        api.cluster.consumers(&vhosts),
        api.cluster.nodes(),
        Book::of(api, call, &spans, SampledKind::Node),
        Book::of(api, call, &spans, SampledKind::Vhosts),
    );
    let is_seen = |user: &str| is_monitor || user == call.caller.user.as_str();
    let (nodes, of_vhosts) = (nodes?, of_vhosts?);
    let mut messages = Messages::default();
    let counts = queues.items.iter().filter_map(|known| known.queue.counts);
    counts.for_each(|counts| messages.add(&counts));
    let mut shown = identity(&api.facts, &cluster_name(api));
    let figures = json!({
        "object_totals": {
            "channels": channels.items.iter().filter(|one| is_seen(&one.user)).count(),
            "connections": connections.items.iter().filter(|one| is_seen(&one.user)).count(),
            "consumers": consumers.items.len(),
            "exchanges": api.broker.lookup().exchange_count(&vhosts),
            "queues": queues.items.len(),
        },
        "queue_totals": {
            "messages": messages.all(),
            "messages_ready": messages.ready,
            "messages_unacknowledged": messages.unacknowledged,
        },
    });
    if let (Some(fields), Value::Object(figures)) = (shown.as_object_mut(), figures) {
        fields.extend(figures);
        if is_monitor {
            insert_nodes(fields, api, others.items);
        }
    }
    let in_seen = |key: &Key| match key {
        Key::Vhost(name) => vhosts.iter().any(|vhost| vhost.as_str() == name),
        Key::Queue(..)
        | Key::Connection(..)
        | Key::Channel(..)
        | Key::Exchange(..)
        | Key::Node(_) => false,
    };
    if let (Some(of_nodes), Some(of_seen)) = (nodes.sum(|_| true), of_vhosts.sum(in_seen)) {
        let messages = if is_monitor { (NODE, &of_nodes) } else { (VHOST, &of_seen) };
        insert_statistics(&mut shown, messages, &of_nodes);
    }
    let silent = [queues.silent, connections.silent, channels.silent, consumers.silent];
    let silent = silent.into_iter().flatten().chain(nodes.silent).chain(others.silent);
    Ok(Answer::object(shown).without(silent))
}

/// Inserts the message rates, which come from the statistics of nodes or of virtual hosts, and the churn
/// rates, which come from the statistics of nodes.
fn insert_statistics(
    shown: &mut Value,
    (fields, sum): (&[Field], &wire::Statistic),
    of_nodes: &wire::Statistic,
) {
    let mut statistics = json!({});
    shown::insert(&mut statistics, fields, Some(sum));
    let taken = |name: &str| statistics.get(name).cloned().unwrap_or_default();
    if let Some(totals) = shown.get_mut("queue_totals").and_then(Value::as_object_mut) {
        let lengths = NODE.iter().filter(|field| field.asked == Asked::Lengths);
        for name in lengths.map(|field| format!("{}_details", field.name)) {
            let details = taken(&name);
            totals.insert(name, details);
        }
    }
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("message_stats".to_owned(), taken("message_stats"));
        let churn = shown::with_totals(NODE, &CHURN, of_nodes);
        fields.insert("churn_rates".to_owned(), Value::Object(churn));
    }
}

fn all_vhosts(api: &Api) -> BTreeSet<ShortString> {
    api.broker.views().vhosts().into_iter().map(|record| record.name).collect()
}

/// What stands for the runtime, of which RabbitMQ shows the version.
pub(crate) const RUNTIME: &str = "Quorate";
/// What stands for the library of RabbitMQ's cryptography.
pub(crate) const CRYPTO: &str = "rustls with ring";

/// Names and versions. RabbitMQ shows those of its runtime, which clients print.
fn identity(facts: &NodeFacts, cluster_name: &str) -> Value {
    let runtime = format!("{RUNTIME} {}", facts.version);
    json!({
        "management_version": facts.product_version,
        "rabbitmq_version": facts.product_version,
        "product_name": facts.product,
        "product_version": facts.product_version,
        "quorate_version": facts.version,
        "erlang_version": facts.version,
        "erlang_full_version": runtime,
        "crypto_lib_version": CRYPTO,
        "release_series_support_status": "supported",
        "cluster_name": cluster_name,
        "rates_mode": "basic",
        "sample_retention_policies": {
            "global": [600, 3_600, 28_800, 86_400],
            "basic": [600],
            "detailed": [600],
        },
        "exchange_types": exchange_types(),
        "disable_stats": false,
        "enable_queue_totals": false,
        "is_op_policy_updating_enabled": true,
        "statistics_db_event_queue": 0,
    })
}

/// The version that clients are shown.
pub(crate) fn version(api: &Api) -> Answer {
    Answer::object(Value::from(api.facts.product_version.as_str()))
}

/// Who asks.
pub(crate) fn whoami(call: &Call) -> Answer {
    let caller = &call.caller;
    Answer::object(json!({ "name": caller.user.as_str(), "tags": caller.tags() }))
}

/// The extensions of RabbitMQ's web page.
pub(crate) fn extensions() -> Answer {
    Answer::object(json!([{ "javascript": "dispatcher.js" }]))
}

/// Hands leaderships to the nodes that should have them, at once; by themselves nodes wait some seconds
/// after each change. A transfer that is not done in time goes on after the answer.
pub(crate) async fn rebalance(api: &Api, call: &Call) -> Answer {
    api.cluster.rebalance(call.caller.user.as_str()).await;
    Answer::done()
}

/// The stored form of a password.
pub(crate) fn hashed_password(call: &Call) -> Result<Answer, Refusal> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let password = call.name("password").unwrap_or_default();
    let hash = quorate_broker::hash_password(password.as_bytes())
        .map_err(|error| Refusal::BadRequest(error.to_string()))?;
    Ok(Answer::object(json!({ "ok": STANDARD.encode(&hash.bytes) })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::call::Content;
    use crate::api::tests::{assert_has_keys, call, facts};

    #[test]
    fn who_asks_is_told_its_tags() {
        let answer = whoami(&call("administrator"));
        let Content::Object(shown) = answer.content else { return };
        assert_has_keys(&shown, include_str!("gold/whoami.json"), &[]);
        assert_eq!(shown.get("tags"), Some(&json!(["administrator"])));
    }

    /// The figures are added where they are gathered.
    #[test]
    fn the_overview_has_the_keys_of_rabbitmqs() {
        let shown = identity(&facts(), "c1");
        let without = [
            "churn_rates",
            "contexts",
            "listeners",
            "message_stats",
            "node",
            "object_totals",
            "queue_totals",
        ];
        assert_has_keys(&shown, include_str!("gold/overview.json"), &without);
        assert_eq!(shown.get("cluster_name"), Some(&json!("c1")));
    }

    #[test]
    fn all_types_of_exchanges_are_known() {
        let types = exchange_types();
        for one in types.as_array().into_iter().flatten() {
            let name = one.get("name").and_then(Value::as_str).unwrap_or_default();
            assert!(quorate_catalog::ExchangeType::parse(name).is_ok(), "{name}");
        }
    }
}
