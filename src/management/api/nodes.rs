//! Nodes: `/api/nodes` and below.

use crate::api::call::{Answer, Api, Call};
use crate::api::names::Names;
use crate::api::refusal::Refusal;
use crate::api::statistics::{self, Book, Key};
use crate::convert;
use crate::facts::ProcessFacts;
use crate::memory_uses::memory_by_category;
use crate::rates::fields::{Asked, NODE};
use crate::rates::shown;
use crate::wire::{self, SampledKind};
use serde_json::{Value, json};

/// How lists of nodes are sorted.
const ORDER: &[&str] = &["name"];
/// What RabbitMQ calls plugins and is built in here.
const PLUGINS: [&str; 4] = [
    "rabbitmq_management",
    "rabbitmq_management_agent",
    "rabbitmq_prometheus",
    "rabbitmq_web_dispatch",
];
/// RabbitMQ's limit of Erlang processes, which some clients ask for.
const PROCESSES_MAX: u32 = 1_048_576;

/// This node.
pub(crate) fn own(api: &Api) -> wire::Node {
    let views = api.broker.views();
    let (view, readiness) = (views.node_status(), views.readiness());
    convert::node_status(&api.facts, ProcessFacts::read(), &view, &readiness, None)
}

/// The listeners of a node.
pub(crate) fn listeners(node: &wire::Node) -> Vec<Value> {
    let listener = |one: &wire::Listener| {
        json!({
            "node": node.name,
            "protocol": one.protocol,
            "ip_address": one.interface,
            "port": one.port,
            "socket_opts": {},
        })
    };
    node.listeners.iter().map(listener).collect()
}

/// A node that has answered, as lists show it.
fn shape(node: &wire::Node) -> Value {
    let alarm = |name: &str| node.alarms.iter().any(|alarm| alarm == name);
    // RabbitMQ's clients read 32 bits, which are enough for 49 days.
    let uptime = node.uptime_s.saturating_mul(1_000).min(u64::from(u32::MAX));
    json!({
        "name": node.name,
        "type": "disc",
        "running": true,
        "being_drained": node.drained,
        "uptime": uptime,
        "os_pid": node.os_pid.to_string(),
        "processors": node.cores,
        "run_queue": 0,
        "proc_used": 0,
        "proc_total": PROCESSES_MAX,
        "fd_used": node.fds_open,
        "fd_total": node.fds_limit.min(u64::from(u32::MAX)),
        "sockets_used": node.connections,
        "sockets_total": node.fds_limit.min(u64::from(u32::MAX)),
        "rabbitmq_version": node.product_version,
        "erlang_version": node.version,
        "erlang_full_version": format!("{} {}", crate::api::overview::RUNTIME, node.version),
        "crypto_lib_version": crate::api::overview::CRYPTO,
        "mem_used": node.memory_bytes,
        "mem_limit": node.memory_limit_bytes,
        "mem_alarm": alarm("memory"),
        "mem_calculation_strategy": "rss",
        "disk_free": node.disk_free_bytes,
        "disk_free_limit": node.disk_free_limit_bytes,
        "disk_free_alarm": alarm("disk"),
        "partitions": [],
        "rates_mode": "basic",
        "enabled_plugins": PLUGINS,
        "applications": [
            { "name": "rabbit", "description": node.product, "version": node.product_version },
        ],
        "auth_mechanisms": [
            { "name": "PLAIN", "description": "SASL PLAIN authentication mechanism",
              "enabled": true },
            { "name": "AMQPLAIN", "description": "QPid AMQPLAIN mechanism", "enabled": true },
        ],
        "exchange_types": crate::api::overview::exchange_types(),
        "contexts": contexts(node),
        "log_files": ["<stdout>"],
        "db_dir": node.data_dir,
        "config_files":
            if node.config_file.is_empty() { json!([]) } else { json!([node.config_file]) },
        "net_ticktime": 0,
        "cluster_links": [],
    })
}

/// The ports of a node that serve HTTP.
pub(crate) fn contexts(node: &wire::Node) -> Vec<Value> {
    let of_http = node.listeners.iter().filter(|one| one.protocol.starts_with("http"));
    let context = |one: &wire::Listener| {
        json!({
            "node": node.name,
            "description": "RabbitMQ Management",
            "path": "/",
            "ip": one.interface,
            "port": one.port.to_string(),
            "ssl_opts": [],
        })
    };
    of_http.map(context).collect()
}

/// A node that has not answered.
fn absent(name: &str) -> Value {
    json!({ "name": name, "type": "disc", "running": false, "partitions": [] })
}

/// All nodes.
pub(crate) async fn list(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let spans = statistics::spans(call)?;
    let (listed, book) =
        tokio::join!(api.cluster.nodes(), Book::of(api, call, &spans, SampledKind::Node));
    let (names, book) = (Names::known(api), book?);
    let with = |node: &wire::Node| with_statistics(shape(node), node, &book);
    let mut nodes: Vec<Value> = listed.items.iter().map(with).collect();
    nodes.push(with(&own(api)));
    nodes.extend(listed.silent.iter().map(|node| absent(names.name(*node))));
    Ok(Answer::list(ORDER, move || nodes).without(listed.silent).without(book.silent))
}

/// What is shown of a node, with its churn, and the rates of what it uses. Its part of the messages
/// of the cluster is not shown here.
fn with_statistics(mut shown: Value, node: &wire::Node, book: &Book) -> Value {
    let Some(statistic) = book.get(&Key::Node(node.id)) else { return shown };
    if let Some(fields) = shown.as_object_mut() {
        let of_node = NODE.iter().filter(|field| field.asked == Asked::Node);
        let names: Vec<&str> = of_node.map(|field| field.name).collect();
        let statistics = shown::with_totals(NODE, &names, statistic);
        for (name, value) in statistics {
            // What is known of now stays.
            fields.entry(name).or_insert(value);
        }
    }
    shown
}

/// One node, or its memory.
pub(crate) async fn one(api: &Api, call: &Call, memory: bool) -> Result<Answer, Refusal> {
    let wanted = call.name("node").unwrap_or_default();
    let spans = statistics::spans(call)?;
    let (listed, book) =
        tokio::join!(api.cluster.nodes(), Book::of(api, call, &spans, SampledKind::Node));
    let (mut nodes, book) = (listed.items, book?);
    nodes.push(own(api));
    if let Some(node) = nodes.iter().find(|node| node.name == wanted) {
        let shown = match memory {
            true => self::memory(node),
            false => with_statistics(shape(node), node, &book),
        };
        // Only the silence of this node matters.
        let silent = book.silent.into_iter().filter(|id| !memory && *id == node.id);
        return Ok(Answer::object(shown).without(silent));
    }
    let id = Names::known(api).id(wanted).ok_or(Refusal::NoObject)?;
    let shown = if memory { json!({ "memory": "not_available" }) } else { absent(wanted) };
    Ok(Answer::object(shown).without(vec![id]))
}

/// The memory of a node in RabbitMQ's categories.
fn memory(node: &wire::Node) -> Value {
    let all = node.memory_bytes;
    let categories = memory_by_category(node).map(|(name, bytes)| (name.to_owned(), bytes.into()));
    let mut fields: serde_json::Map<_, _> = categories.collect();
    fields.insert("strategy".to_owned(), "rss".into());
    fields.insert("total".to_owned(), json!({ "erlang": all, "rss": all, "allocated": all }));
    json!({ "memory": fields })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tests::assert_has_keys;

    /// Keys of RabbitMQ's reply that are about Erlang, or are known only from samples.
    const WITHOUT: &[&str] = &[
        "channel_closed",
        "channel_created",
        "connection_closed",
        "connection_created",
        "context_switches",
        "gc_bytes_reclaimed",
        "gc_num",
        "io_read_avg_time",
        "io_read_bytes",
        "io_read_count",
        "io_reopen_count",
        "io_seek_avg_time",
        "io_seek_count",
        "io_sync_avg_time",
        "io_sync_count",
        "io_write_avg_time",
        "io_write_bytes",
        "io_write_count",
        "metrics_gc_queue_length",
        "mnesia_disk_tx_count",
        "mnesia_ram_tx_count",
        "msg_store_read_count",
        "msg_store_write_count",
        "queue_created",
        "queue_declared",
        "queue_deleted",
        "queue_index_read_count",
        "queue_index_write_count",
        "ra_open_file_metrics",
    ];

    #[test]
    fn a_node_has_the_keys_of_rabbitmqs() {
        let node = wire::Node {
            name: "rabbit1@a".to_owned(),
            uptime_s: 10_000_000,
            alarms: vec!["disk".to_owned()],
            ..wire::Node::default()
        };
        let shown = shape(&node);
        assert_has_keys(&shown, include_str!("gold/nodes.json"), WITHOUT);
        assert_eq!(shown.get("uptime"), Some(&json!(u32::MAX)));
        assert_eq!(shown.get("disk_free_alarm"), Some(&json!(true)));
        assert_eq!(shown.get("mem_alarm"), Some(&json!(false)));
        assert_eq!(shown.get("os_pid"), Some(&json!("0")));
    }

    #[test]
    fn memory_has_rabbitmqs_categories() {
        let shown = memory(&wire::Node { memory_bytes: 5, ..wire::Node::default() });
        let gold: Value =
            serde_json::from_str(include_str!("gold/nodemem.json")).unwrap_or_default();
        let fields = shown.get("memory").cloned().unwrap_or_default();
        let gold = gold.get("memory").cloned().unwrap_or_default();
        assert_has_keys(&fields, &gold.to_string(), &[]);
        assert_eq!(fields.get("total").and_then(|total| total.get("rss")), Some(&json!(5)));
    }
}
