//! What Prometheus, dashboards and autoscalers read of a cluster under load: the three endpoints of
//! metrics, and the rates of the HTTP API.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

use lapin::Channel;
use lapin::options::BasicGetOptions;
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, get, open, open_confirming, publish_confirmed,
};
use quorate_cluster_tests::harness::http::get_as_guest;
use quorate_cluster_tests::harness::metrics::Metrics;
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Node, Options};
use serde_json::Value;
use std::time::Duration;

/// What RabbitMQ's dashboard "Quorum-Queues-Raft" shows of each queue.
const RAFT_OF_QUEUES: [&str; 5] = [
    "rabbitmq_raft_term",
    "rabbitmq_raft_commit_index",
    "rabbitmq_raft_last_written_index",
    "rabbitmq_raft_snapshot_index",
    "rabbitmq_raft_commit_latency_seconds",
];

/// RabbitMQ's families of `/metrics/detailed`.
const FAMILIES: [&str; 21] = [
    "connection_churn_metrics",
    "node_coarse_metrics",
    "node_metrics",
    "node_persister_metrics",
    "ra_metrics",
    "queue_coarse_metrics",
    "queue_consumer_count",
    "queue_metrics",
    "queue_delivery_metrics",
    "exchange_metrics",
    "exchange_names",
    "exchange_bindings",
    "channel_metrics",
    "channel_exchange_metrics",
    "channel_queue_metrics",
    "channel_queue_exchange_metrics",
    "connection_coarse_metrics",
    "connection_metrics",
    "vhost_status",
    "auth_attempt_metrics",
    "auth_attempt_detailed_metrics",
];

const QUEUES: [&str; 4] = ["a", "b", "c", "say \"d\""];

async fn scrape(node: &Node, path: &str, endpoint: &str) -> Metrics {
    let answer = node.get(path).await.expect("a scrape");
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    let metrics = Metrics::parse(&answer.body).expect("Prometheus reads it");
    let identities: Vec<_> =
        metrics.samples.iter().filter(|sample| sample.name == "rabbitmq_identity_info").collect();
    assert_eq!(identities.len(), 1, "{path}: exactly one identity");
    let shown = identities.first().and_then(|one| one.labels.get("rabbitmq_endpoint"));
    assert_eq!(shown.map(String::as_str), Some(endpoint), "{path}");
    for label in ["rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id"] {
        let value = identities.first().and_then(|one| one.labels.get(label));
        assert!(value.is_some_and(|value| !value.is_empty()), "{path}: no {label}");
    }
    metrics
}

/// Publishes to the queues and takes some of it, until it is dropped.
async fn load(channel: Channel) {
    let mut rounds = 0u64;
    loop {
        for queue in QUEUES {
            publish_confirmed(&channel, queue, b"body").await;
        }
        rounds += 1;
        if rounds.is_multiple_of(2) {
            assert!(get(&channel, "a").await.is_some());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_and_peers_have_their_metrics() {
    let cluster = Cluster::start(3, Options::default()).await;
    cluster.leaders_rest().await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue in QUEUES {
        declare_quorum(&channel, queue).await;
    }
    let loading = tokio::spawn(load(channel));
    let (_holding, holder) = open(&cluster.amqp_uri(2)).await;
    let held = eventually("a message is there", || async {
        let got = holder.basic_get("b".into(), BasicGetOptions { no_ack: false }).await;
        got.expect("get").ok_or_else(|| "queue b is empty".to_owned())
    });
    let _held = held.await;
    eventually("the last queue has a message", || async {
        let [ready] = cluster.counts(1, QUEUES[3], ["messages_ready"]).await?;
        hold(ready > 0, || "it is empty".to_owned())
    })
    .await;
    let mut of_queues = Metrics::default();
    for node in cluster.nodes() {
        let metrics = scrape(node, "/metrics", "aggregated").await;
        let states = metrics.samples.iter().filter(|it| it.name == "erlang_vm_dist_node_state");
        assert_eq!(states.filter(|state| state.value > 2.5).count(), 2, "two connected peers");
        let memory = scrape(node, "/metrics/memory-breakdown", "memory-breakdown").await;
        for part in ["quorum_queue_ets_table", "message_index", "binary_heap", "other_system"] {
            let name = format!("rabbitmq_memory_{part}_bytes");
            assert!(memory.sum(&name).is_some_and(|bytes| bytes > 0.0), "{name}");
        }
        let objects = scrape(node, "/metrics/per-object", "per-object").await;
        of_queues.samples.extend(objects.samples);
    }
    for name in RAFT_OF_QUEUES.into_iter().chain(["rabbitmq_queue_oldest_message_age_seconds"]) {
        let mut queues: Vec<&str> = of_queues
            .samples
            .iter()
            .filter(|sample| sample.name == name)
            .filter_map(|sample| sample.labels.get("queue").map(String::as_str))
            .collect();
        queues.sort_unstable();
        assert_eq!(queues, QUEUES, "{name}");
    }
    let unacked = of_queues.samples.iter().find(|sample| {
        sample.name == "rabbitmq_queue_messages_unacked"
            && sample.labels.get("queue").is_some_and(|queue| queue == "b")
    });
    assert_eq!(unacked.map(|sample| sample.value), Some(1.0), "one message of queue b is held");
    loading.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn detailed_scrapes_have_every_family_of_rabbitmq() {
    let cluster = Cluster::start(3, Options::default()).await;
    cluster.leaders_rest().await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "named").await;
    declare_quorum(&channel, "other").await;
    publish_confirmed(&channel, "named", b"body").await;
    let families: Vec<String> = FAMILIES.iter().map(|name| format!("family={name}")).collect();
    let path = format!("/metrics/detailed?{}", families.join("&"));
    for node in cluster.nodes() {
        scrape(node, &path, "detailed").await;
        for family in FAMILIES {
            scrape(node, &format!("/metrics/detailed?family={family}"), "detailed").await;
        }
    }
    let mut found = Vec::new();
    for node in cluster.nodes() {
        let path = "/metrics/detailed?family=queue_coarse_metrics&vhost=%2F&queue=%5Ena";
        let metrics = scrape(node, path, "detailed").await;
        let ready = metrics.samples.into_iter();
        found.extend(ready.filter(|it| it.name == "rabbitmq_detailed_queue_messages_ready"));
    }
    let named: Vec<_> = found.iter().filter_map(|sample| sample.labels.get("queue")).collect();
    assert_eq!(named, ["named"]);
    let refused = cluster.node(1).get("/metrics/detailed?family=nope").await.expect("an answer");
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("nope"), "{}", refused.body);
}

async fn api(node: &Node, path: &str) -> Value {
    let answer = get_as_guest(&node.http_address(), path, "guest").await.expect("an answer");
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_default()
}

/// Every node shows the rates that autoscalers read, whichever node leads the queue.
#[tokio::test(flavor = "multi_thread")]
async fn rates_are_those_of_the_whole_cluster() {
    let options = Options::default().with("--statistics-interval-ms", "500");
    let cluster = Cluster::start(3, options).await;
    cluster.leaders_rest().await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue in QUEUES {
        declare_quorum(&channel, queue).await;
    }
    let loading = tokio::spawn(load(channel));
    let positive = [
        ("/api/queues/%2F/a", "/message_stats/publish_details/rate"),
        ("/api/queues/%2F/a", "/message_stats/deliver_get_details/rate"),
        ("/api/queues/%2F/a", "/message_stats/publish"),
        ("/api/queues/%2F", "/0/message_stats/publish_details/rate"),
        ("/api/exchanges/%2F/amq.default", "/message_stats/publish_in_details/rate"),
        ("/api/exchanges/%2F/amq.default", "/message_stats/publish_out_details/rate"),
        ("/api/overview", "/message_stats/publish_details/rate"),
        ("/api/overview", "/message_stats/confirm_details/rate"),
        ("/api/overview", "/churn_rates/queue_created"),
        ("/api/overview", "/queue_totals/messages_details/rate"),
        ("/api/vhosts/%2F", "/message_stats/publish_details/rate"),
        ("/api/vhosts/%2F", "/recv_oct_details/rate"),
        ("/api/connections", "/0/recv_oct_details/rate"),
        ("/api/channels", "/0/message_stats/publish_details/rate"),
        ("/api/channels", "/0/message_stats/confirm_details/rate"),
        ("/api/nodes", "/0/io_sync_count_details/rate"),
    ];
    for node in cluster.nodes() {
        for (path, field) in positive {
            let what = format!("node {}: {path} {field}", node.id());
            eventually(&what, || async {
                let value = api(node, path).await;
                hold(number(&value, field) > 0.0, || format!("{what} is not positive"))
            })
            .await;
        }
        let path =
            "/api/queues/%2F/a?msg_rates_age=5&msg_rates_incr=1&lengths_age=5&lengths_incr=1";
        for field in ["/message_stats/publish_details/samples", "/messages_details/samples"] {
            eventually("there are samples", || async {
                let value = api(node, path).await;
                let samples = value.pointer(field).and_then(Value::as_array);
                let there = samples.is_some_and(|samples| !samples.is_empty());
                hold(there, || format!("{field}: {value}"))
            })
            .await;
        }
        let quiet = api(node, "/api/queues/%2F/a?disable_stats=true").await;
        assert!(quiet.get("messages").is_some(), "{quiet}");
        assert!(quiet.get("message_stats").is_none(), "{quiet}");
    }
    loading.abort();
}

/// Logins are counted by the node that they are at, and read at any other.
#[tokio::test(flavor = "multi_thread")]
async fn logins_of_each_node_are_read_at_any_node() {
    let cluster = Cluster::start(3, Options::default()).await;
    let _open = open(&cluster.amqp_uri(2)).await;
    let wrong = get_as_guest(&cluster.node(2).http_address(), "/api/whoami", "wrong").await;
    assert_eq!(wrong.unwrap().status, 401);
    let nodes = api(cluster.node(1), "/api/nodes?columns=name&sort=name").await;
    let name = nodes.pointer("/1/name").and_then(Value::as_str).expect("three nodes");
    let attempts = api(cluster.node(1), &format!("/api/auth/attempts/{name}")).await;
    let of = |protocol: &str| {
        let all = attempts.as_array().expect("a list").iter();
        let found = all.filter(|one| one.get("protocol").is_some_and(|it| it == protocol));
        found.map(|one| number(one, "/auth_attempts")).sum::<f64>()
    };
    assert!(of("amqp091") >= 1.0 && of("http") >= 1.0, "{attempts}");
    let sources = api(cluster.node(1), &format!("/api/auth/attempts/{name}/source")).await;
    let first = sources.pointer("/0/remote_address").and_then(Value::as_str);
    assert_eq!(first, Some("127.0.0.1"), "{sources}");
}
