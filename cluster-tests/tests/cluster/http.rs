//! `/health` and `/metrics`: what a load balancer and Prometheus ask.

#![expect(clippy::expect_used, reason = "tests")]

use futures::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions,
};
use lapin::{Channel, Connection};
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, declare_with, durable, exclusive, get, int, of_type, open, open_confirming,
    persistent, publish_confirmed, publish_with, text,
};
use quorate_cluster_tests::harness::http::{self, get_as_guest};
use quorate_cluster_tests::harness::metrics::Metrics;
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Options, Port};
use std::collections::BTreeMap;

/// Everything that is counted, summed over the nodes of the cluster.
async fn counts(cluster: &Cluster) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for node in cluster.nodes() {
        for (key, count) in node.metrics().await.counts() {
            *sums.entry(key).or_default() += count;
        }
    }
    sums
}

/// Publishes to a queue of that type, and takes from it in every way that is counted.
async fn use_queue(publisher: &Channel, taker: &Channel, kind: &str) {
    for _ in 0..2 {
        let declared = publisher.queue_declare(kind.into(), durable(), of_type(kind)).await;
        declared.expect("declare-ok");
    }
    for _ in 0..30 {
        publish_confirmed(publisher, kind, b"body").await;
    }
    for _ in 0..10 {
        assert!(get(taker, kind).await.is_some());
    }
    let got = async || {
        let got = taker.basic_get(kind.into(), BasicGetOptions { no_ack: false }).await;
        got.expect("get-ok").expect("a message").delivery
    };
    got().await.ack(BasicAckOptions::default()).await.expect("ack");
    let requeue = BasicNackOptions { requeue: true, multiple: false };
    got().await.nack(requeue).await.expect("nack");
    let again = got().await;
    assert!(again.redelivered);
    again.ack(BasicAckOptions::default()).await.expect("ack");
    consume(taker, kind, 18, false).await;
    for _ in 0..5 {
        publish_confirmed(publisher, kind, b"body").await;
    }
    consume(taker, kind, 5, true).await;
    assert!(get(taker, kind).await.is_none());
    taker.queue_delete(kind.into(), <_>::default()).await.expect("delete-ok");
}

/// Consumes so many messages, acknowledging each if the queue wants it.
async fn consume(channel: &Channel, queue: &str, count: usize, no_ack: bool) {
    let options = BasicConsumeOptions { no_ack, ..BasicConsumeOptions::default() };
    let consumer = channel.basic_consume(queue.into(), "taker".into(), options, <_>::default());
    let mut consumer = consumer.await.expect("consume-ok");
    for _ in 0..count {
        let next = in_time("a delivery", consumer.next()).await;
        let delivery = next.expect("a consumer").expect("a delivery");
        if !no_ack {
            delivery.ack(BasicAckOptions::default()).await.expect("ack");
        }
    }
    channel.basic_cancel("taker".into(), <_>::default()).await.expect("cancel-ok");
}

/// What `use_queue` of a quorum and a classic queue, and what the test does beside it, count.
fn expected() -> BTreeMap<String, f64> {
    let alone = [
        ("rabbitmq_connections_opened_total", 2.0),
        ("rabbitmq_connections_closed_total", 1.0),
        ("rabbitmq_channels_opened_total", 3.0),
        ("rabbitmq_channels_closed_total", 2.0),
        ("rabbitmq_queues_declared_total", 6.0),
        ("rabbitmq_queues_created_total", 4.0),
        ("rabbitmq_queues_deleted_total", 4.0),
    ];
    let of_protocol = [
        ("rabbitmq_global_messages_received_total", 79.0),
        ("rabbitmq_global_messages_received_confirm_total", 75.0),
        ("rabbitmq_global_messages_routed_total", 70.0),
        ("rabbitmq_global_messages_unroutable_dropped_total", 7.0),
        ("rabbitmq_global_messages_unroutable_returned_total", 2.0),
        ("rabbitmq_global_messages_confirmed_total", 75.0),
        ("quorate_messages_refused_total", 0.0),
    ];
    let of_type = [
        ("rabbitmq_global_messages_delivered_total", 36.0),
        ("rabbitmq_global_messages_delivered_consume_manual_ack_total", 18.0),
        ("rabbitmq_global_messages_delivered_consume_auto_ack_total", 5.0),
        ("rabbitmq_global_messages_delivered_get_manual_ack_total", 3.0),
        ("rabbitmq_global_messages_delivered_get_auto_ack_total", 10.0),
        ("rabbitmq_global_messages_get_empty_total", 1.0),
        ("rabbitmq_global_messages_redelivered_total", 1.0),
        ("rabbitmq_global_messages_acknowledged_total", 20.0),
    ];
    let mut all: BTreeMap<_, _> =
        alone.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    let protocol = "protocol=\"amqp091\"";
    for (name, count) in of_protocol {
        all.insert(format!("{name}{{{protocol}}}"), count);
    }
    for (name, count) in of_type {
        for queue_type in ["rabbit_classic_queue", "rabbit_quorum_queue"] {
            all.insert(format!("{name}{{{protocol},queue_type=\"{queue_type}\"}}"), count);
        }
    }
    all
}

/// For queues of each type and strategy: one message dies in each of the four ways. Their letters
/// get into `graveyard`.
async fn die_in_every_way(publisher: &Channel, taker: &Channel) {
    let publish = async |queue: &str, expiration: Option<&str>| {
        let with = match expiration {
            Some(ms) => persistent().with_expiration(ms.into()),
            None => persistent(),
        };
        assert!(publish_with(publisher, queue, b"body", with).await);
    };
    let nack = async |queue: &str, requeue| {
        let got = taker.basic_get(queue.into(), BasicGetOptions::default()).await.expect("get-ok");
        let options = BasicNackOptions { requeue, multiple: false };
        got.expect("a message").nack(options).await.expect("nack");
    };
    declare_with(publisher, "graveyard", &[]).await;
    for (queue_type, strategy) in DEATHS {
        let queue = format!("{queue_type}-{strategy}");
        let mut with = vec![
            ("x-queue-type", text(queue_type)),
            ("x-max-length", int(1)),
            ("x-delivery-limit", int(0)),
        ];
        if strategy != "disabled" {
            with.push(("x-dead-letter-exchange", text("")));
            with.push(("x-dead-letter-routing-key", text("graveyard")));
            with.push(("x-dead-letter-strategy", text(&strategy.replace('_', "-"))));
        }
        declare_with(publisher, &queue, &with).await;
        publish(&queue, Some("0")).await;
        for requeue in [false, true] {
            publish(&queue, None).await;
            nack(&queue, requeue).await;
        }
        publish(&queue, None).await;
        publish(&queue, None).await;
    }
}

/// Types of queues and strategies by which their deaths are counted.
const DEATHS: [(&str, &str); 6] = [
    ("classic", "disabled"),
    ("classic", "at_most_once"),
    ("classic", "at_least_once"),
    ("quorum", "disabled"),
    ("quorum", "at_most_once"),
    ("quorum", "at_least_once"),
];

/// Letters that nothing takes: one goes round in a circle, one finds no exchange.
async fn drop_letters(publisher: &Channel) {
    let own = [
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text("circle")),
        ("x-message-ttl", int(0)),
    ];
    declare_with(publisher, "circle", &own).await;
    publish_confirmed(publisher, "circle", b"body").await;
    let nowhere = [("x-dead-letter-exchange", text("no such")), ("x-message-ttl", int(0))];
    declare_with(publisher, "nowhere", &nowhere).await;
    publish_confirmed(publisher, "nowhere", b"body").await;
}

/// A queue is full: two publishes are refused.
async fn refuse(publisher: &Channel) {
    let full = [("x-max-length", int(1)), ("x-overflow", text("reject-publish"))];
    declare_with(publisher, "full", &full).await;
    for taken in [true, false, false] {
        assert_eq!(publish_with(publisher, "full", b"body", persistent()).await, taken);
    }
}

/// Deaths, and what becomes of the letters, are counted once for the cluster. Hands back the
/// connections that it used with their channels, since their end is counted too.
async fn count_deaths(cluster: &Cluster) -> [(Connection, Channel); 2] {
    let before = counts(cluster).await;
    let (publishing, publisher) = open_confirming(&cluster.amqp_uri(1)).await;
    let (taking, taker) = open(&cluster.amqp_uri(2)).await;
    die_in_every_way(&publisher, &taker).await;
    drop_letters(&publisher).await;
    refuse(&publisher).await;
    let mut expected = BTreeMap::new();
    for (queue_type, strategy) in DEATHS {
        let labels = format!(
            "{{dead_letter_strategy=\"{strategy}\",queue_type=\"rabbit_{queue_type}_queue\"}}"
        );
        for reason in ["expired", "rejected", "maxlen", "delivery_limit"] {
            let name = format!("rabbitmq_global_messages_dead_lettered_{reason}_total{labels}");
            // Two more expire in `drop_letters`.
            let more = (queue_type, strategy, reason) == ("classic", "at_most_once", "expired");
            expected.insert(name, if more { 3.0 } else { 1.0 });
        }
        if strategy != "disabled" {
            let name = format!("rabbitmq_global_messages_dead_lettered_confirmed_total{labels}");
            expected.insert(name, 4.0);
        }
    }
    for name in ["rabbitmq_dlx_cycle_dropped_total", "rabbitmq_dead_letter_unroutable_total"] {
        expected.insert(name.to_owned(), 1.0);
    }
    expected.insert("quorate_messages_refused_total{protocol=\"amqp091\"}".to_owned(), 2.0);
    counted(cluster, &before, &expected).await;
    [(publishing, publisher), (taking, taker)]
}

/// Waits until so much more is counted than before.
async fn counted(
    cluster: &Cluster,
    before: &BTreeMap<String, f64>,
    expected: &BTreeMap<String, f64>,
) {
    eventually("what happened is counted", || async {
        let now = counts(cluster).await;
        let more = |key: &String| now.get(key).zip(before.get(key)).map(|(now, was)| now - was);
        let wrong: Vec<_> = expected
            .iter()
            .map(|(key, expected)| (more(key), expected, key))
            .filter(|(more, expected, _)| *more != Some(**expected))
            .collect();
        hold(wrong.is_empty(), || format!("counted, expected: {wrong:#?}"))
    })
    .await;
}

/// Publishes what no queue takes.
async fn publish_nowhere(channel: &Channel, count: usize, mandatory: bool) {
    for _ in 0..count {
        let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
        let to = "no such queue".into();
        let sent = channel.basic_publish("".into(), to, options, b"body", persistent());
        sent.await.expect("publish").await.expect("a confirm, if the channel confirms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_what_happens() {
    let cluster = Cluster::start(3, Options::default()).await;
    // What dies while a leadership moves may be counted by nobody.
    cluster.leaders_rest().await;
    let _connections = count_deaths(&cluster).await;
    let before = counts(&cluster).await;
    let (_connection, publisher) = open_confirming(&cluster.amqp_uri(2)).await;
    let (taking, taker) = open(&cluster.amqp_uri(3)).await;
    for kind in ["quorum", "classic"] {
        use_queue(&publisher, &taker, kind).await;
    }
    publish_nowhere(&publisher, 2, true).await;
    publish_nowhere(&publisher, 3, false).await;
    publish_nowhere(&taker, 4, false).await;
    for exclusive_name in ["", "mine"] {
        let declared = taker.queue_declare(exclusive_name.into(), exclusive(), <_>::default());
        declared.await.expect("declare-ok");
    }
    let shut = taking.create_channel().await.expect("open-ok");
    shut.close(200, "done".into()).await.expect("close-ok");
    taking.close(200, "done".into()).await.expect("close-ok");
    let stranger = format!("amqp://guest:wrong@{}/%2f", cluster.node(1).amqp_address());
    let refused = lapin::Connection::connect(&stranger, <_>::default()).await;
    assert!(refused.is_err());
    for (password, status) in [("guest", 200), ("wrong", 401)] {
        let answer = get_as_guest(&cluster.node(1).http_address(), "/api/whoami", password).await;
        assert_eq!(answer.expect("/api/whoami").status, status);
    }
    counted(&cluster, &before, &expected()).await;
    all_move(&cluster).await;
}

/// Counters that what tests do here does not move, and why.
const UNMOVED: [(&str, &str); 4] = [
    ("quorate_memory_waits_total", "attacks.rs uses the memory up"),
    ("quorate_memory_refusals_total", "attacks.rs uses the memory up"),
    ("quorate_snapshots_installed_total", "catch_up.rs makes one"),
    ("quorate_batches_refused_total", "large_bodies.rs makes some"),
];

/// Fails if something is exported as counted, but never is. What is only counted when a body is
/// not in memory any more is made to happen by a restart.
async fn all_move(cluster: &Cluster) {
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "cold").await;
    publish_confirmed(&channel, "cold", b"body").await;
    let mut all = counts(cluster).await;
    cluster.node(3).kill9();
    cluster.node(3).restart().await;
    let (_connection, cold) = open(&cluster.amqp_uri(3)).await;
    assert!(get(&cold, "cold").await.is_some());
    for (key, count) in counts(cluster).await {
        let most = all.entry(key).or_default();
        *most = most.max(count);
    }
    let unmoved = |key: &str| UNMOVED.iter().any(|(name, _)| key.starts_with(name));
    let still: Vec<_> = all.iter().filter(|(key, count)| **count == 0.0 && !unmoved(key)).collect();
    assert!(still.is_empty(), "exported, but never counted: {still:#?}");
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
    eventually("a minority is not ready", || async {
        let ready = status("/health/ready").await;
        hold(ready == 503, || format!("{ready}"))
    })
    .await;
    assert_eq!(status("/health/live").await, 200, "a node in a minority need not be restarted");
    cluster.node(2).restart().await;
    cluster.node(1).ready().await;
}

/// A port for scrapes has the pages of metrics and nothing else, and is listed as RabbitMQ lists its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_its_own_for_scrapes_serves_metrics_only() {
    let cluster = Cluster::prepare(1, Options::default()).await;
    let port = Port::reserve().address();
    cluster.node(1).spawn_with(&[("--metrics-listen", &port)]);
    cluster.ready().await;
    for path in [
        "/metrics",
        "/metrics/per-object",
        "/metrics/detailed?family=node_metrics",
        "/metrics/memory-breakdown",
    ] {
        let page = http::get(&port, path).await.expect("a page");
        assert_eq!(page.status, 200, "{path}");
        assert!(page.body.contains("_identity_info{"), "{path}: {}", page.body);
    }
    for path in ["/", "/api/overview", "/health/live"] {
        assert_eq!(http::get(&port, path).await.expect("an answer").status, 404, "{path}");
    }
    let listed = cluster.ctl(1, &["listeners"]).await.stdout;
    let (_, port) = port.rsplit_once(':').expect("a port");
    let purpose = "protocol: http/prometheus, purpose: Prometheus exporter API over HTTP";
    assert!(listed.contains(&format!("port: {port}, {purpose}")), "{listed}");
}
