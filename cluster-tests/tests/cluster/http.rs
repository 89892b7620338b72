//! `/health` and `/metrics`: what a load balancer and Prometheus ask.

#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

use quorate_cluster_tests::harness::amqp::publish_confirmed;
use quorate_cluster_tests::harness::amqp::{declare_quorum, get, open, open_confirming};
use quorate_cluster_tests::harness::metrics::Metrics;
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, LIFECYCLE_BOUND, Options};

/// The sum of a metric over the nodes of the cluster.
async fn total(cluster: &Cluster, name: &str) -> f64 {
    let mut sum = 0.0;
    for node in cluster.nodes() {
        let value = node.metrics().await.sum(name);
        sum += value.unwrap_or_else(|| panic!("node {} has no {name}", node.id()));
    }
    sum
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "not all counters are counted yet"]
async fn metrics_count_what_happens() {
    let cluster = Cluster::start(3, Options::default()).await;
    let names = [
        "rabbitmq_global_messages_received_total",
        "rabbitmq_global_messages_confirmed_total",
        "rabbitmq_queue_messages_ready",
        "rabbitmq_connections",
    ];
    let mut before = Vec::new();
    for name in names {
        before.push(total(&cluster, name).await);
    }
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(2)).await;
    declare_quorum(&channel, "counted").await;
    for _ in 0..30 {
        publish_confirmed(&channel, "counted", b"body").await;
    }
    let (_taking, taker) = open(&cluster.amqp_uri(3)).await;
    for _ in 0..10 {
        assert!(get(&taker, "counted").await.is_some());
    }
    let expected = [30.0, 30.0, 20.0, 2.0];
    for ((name, before), more) in names.into_iter().zip(before).zip(expected) {
        eventually(name, LIFECYCLE_BOUND, || async {
            let now = total(&cluster, name).await;
            hold(now == before + more, || format!("{before}, then {now}, not {more} more"))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_the_names_that_dashboards_use() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "named").await;
    publish_confirmed(&channel, "named", b"body").await;
    for node in cluster.nodes() {
        let answer = node.get("/metrics").await.expect("/metrics");
        assert_eq!(answer.status, 200);
        assert!(answer.headers.to_lowercase().contains("content-type: text/plain"), "{answer:?}");
        let metrics = Metrics::parse(&answer.body).expect("Prometheus reads it");
        for name in [
            "rabbitmq_build_info",
            "rabbitmq_identity_info",
            "rabbitmq_connections",
            "rabbitmq_channels",
            "rabbitmq_consumers",
            "rabbitmq_queues",
            "rabbitmq_queue_messages",
            "rabbitmq_queue_messages_ready",
            "rabbitmq_queue_messages_unacked",
            "rabbitmq_process_resident_memory_bytes",
            "rabbitmq_disk_space_available_bytes",
        ] {
            assert!(metrics.sum(name).is_some(), "node {} has no {name}", node.id());
        }
        for word in ["sync", "checkpoint", "round", "batch", "election"] {
            let families = metrics.families("quorate_", word);
            assert!(!families.is_empty(), "node {}: no quorate_…{word}…", node.id());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_tells_a_live_node_from_a_ready_one() {
    let cluster = Cluster::start(3, Options::default()).await;
    let status = async |path: &str| cluster.node(1).get(path).await.expect("an answer").status;
    assert_eq!(status("/health/live").await, 200);
    assert_eq!(status("/health/ready").await, 200);
    assert_eq!(status("/no/such/page").await, 404);
    cluster.node(2).kill9();
    cluster.node(3).kill9();
    eventually("a minority is not ready", LIFECYCLE_BOUND, || async {
        let ready = status("/health/ready").await;
        hold(ready == 503, || format!("{ready}"))
    })
    .await;
    assert_eq!(status("/health/live").await, 200, "a node in a minority need not be restarted");
    cluster.node(2).restart().await;
    cluster.node(1).ready().await;
}
