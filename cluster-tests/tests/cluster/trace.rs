//! The firehose: what a traced virtual host's clients publish and get is told to the exchange
//! `amq.rabbitmq.trace`, whichever node they are on (EXC-01).

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

use futures::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel};
use quorate_cluster_tests::harness::amqp::{
    arguments, bind, declare_quorum, declare_with, get, headers, int, open, open_confirming,
    publish_with, text,
};
use quorate_cluster_tests::harness::ctl;
use quorate_cluster_tests::harness::wait::{eventually, in_time};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::collections::BTreeMap;

const FIREHOSE: &str = "firehose";

async fn switch(cluster: &Cluster, verb: &str) {
    let output = cluster.ctl(1, &[verb]).await;
    output.succeeded().unwrap_or_else(|said| panic!("{verb}: {said}"));
}

/// A traced message: routing key, headers, body.
type Trace = (String, BTreeMap<String, AMQPValue>, Vec<u8>);

/// The next trace. Nobody waits for traces to be enqueued, so it may take a moment.
async fn next(channel: &Channel) -> Trace {
    eventually("a trace", || async {
        let options = BasicGetOptions { no_ack: true };
        let got = channel.basic_get(FIREHOSE.into(), options).await;
        let got = got.map_err(|error| error.to_string())?.ok_or("none yet")?.delivery;
        assert_eq!(got.exchange.as_str(), "amq.rabbitmq.trace");
        assert_eq!(got.properties.clone().with_headers(FieldTable::default()), only_headers());
        Ok((got.routing_key.to_string(), headers(&got.properties), got.data))
    })
    .await
}

fn only_headers() -> BasicProperties {
    BasicProperties::default().with_headers(FieldTable::default())
}

fn texts(value: &AMQPValue) -> Vec<String> {
    let AMQPValue::FieldArray(values) = value else { panic!("no array: {value:?}") };
    let text = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => text.to_string(),
        other => panic!("no text: {other:?}"),
    };
    values.as_slice().iter().map(text).collect()
}

fn properties() -> BasicProperties {
    let copies = AMQPValue::FieldArray(vec![text("copy")].into());
    BasicProperties::default()
        .with_content_type("text/plain".into())
        .with_headers(arguments(&[("CC", copies), ("n", int(7))]))
        .with_delivery_mode(2)
        .with_timestamp(1_700_000_000)
        .with_message_id("m".into())
}

async fn publish(channel: &Channel, exchange: &str, key: &str, body: &[u8]) {
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish(exchange.into(), key.into(), options, body, properties());
    let confirm = in_time("a confirm", sent.await.expect("sent")).await;
    assert!(confirm.expect("a confirm").is_ack());
}

/// What a trace says of the connection, as `list_connections` of any node does.
async fn is_of(cluster: &Cluster, trace: &Trace, node: u64) {
    let rows = cluster.rows(1, &["list_connections", "name", "node"]).await.expect("rows");
    let AMQPValue::LongString(name) = &trace.1["connection"] else { panic!("{trace:?}") };
    let row = rows.iter().find(|row| ctl::text(row, "name") == name.to_string());
    let row = row.unwrap_or_else(|| panic!("no connection {name} in {rows:?}"));
    assert_eq!(trace.1["node"], text(&ctl::text(row, "node")));
    let port = cluster.node(node).amqp_address();
    assert!(name.to_string().ends_with(&format!(" -> {port}")), "{name} is not of node {node}");
}

fn names(trace: &Trace) -> Vec<&str> {
    trace.1.keys().map(String::as_str).collect()
}

#[expect(clippy::too_many_lines, reason = "one story, told in its order")]
#[tokio::test(flavor = "multi_thread")]
async fn exc_01_what_is_published_and_got_on_any_node_is_told_to_the_trace_exchange() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_reading, reader) = open(&cluster.amqp_uri(3)).await;
    let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(2)).await;
    let (_consuming, consumer) = open(&cluster.amqp_uri(1)).await;
    for queue in [FIREHOSE, "traced"] {
        declare_quorum(&reader, queue).await;
    }
    bind(&reader, FIREHOSE, "amq.rabbitmq.trace", "#").await;
    bind(&reader, "traced", "amq.direct", "copy").await;
    publish(&publisher, "amq.direct", "k", b"untraced").await;
    assert_eq!(get(&consumer, "traced").await.as_deref(), Some(&b"untraced"[..]));
    switch(&cluster, "trace_on").await;

    publish(&publisher, "amq.direct", "k", b"one").await;
    let trace = next(&reader).await;
    assert_eq!((trace.0.as_str(), &trace.2[..]), ("publish.amq.direct", &b"one"[..]));
    let common = ["channel", "connection", "exchange_name", "node", "properties"];
    let rest = ["routed_queues", "routing_keys", "user", "vhost"];
    assert_eq!(names(&trace), [&common[..], &rest[..]].concat());
    for (name, value) in [("exchange_name", "amq.direct"), ("user", "guest"), ("vhost", "/")] {
        assert_eq!(trace.1[name], text(value), "{name}");
    }
    assert_eq!(trace.1["channel"], AMQPValue::LongInt(1));
    assert_eq!(texts(&trace.1["routing_keys"]), ["k", "copy"]);
    assert_eq!(texts(&trace.1["routed_queues"]), ["traced"]);
    let AMQPValue::FieldTable(shown) = &trace.1["properties"] else { panic!("{trace:?}") };
    let copies = AMQPValue::FieldArray(vec![text("copy")].into());
    let sent = arguments(&[("CC", copies), ("n", int(7))]);
    let wanted = arguments(&[
        ("content_type", text("text/plain")),
        ("headers", AMQPValue::FieldTable(sent)),
        ("delivery_mode", AMQPValue::LongInt(2)),
        ("timestamp", AMQPValue::LongInt(1_700_000_000)),
        ("message_id", text("m")),
    ]);
    assert_eq!(*shown, wanted);
    is_of(&cluster, &trace, 2).await;

    // A delivery, and once more, redelivered; then a get.
    let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
    let mut consuming =
        consumer.basic_consume("traced".into(), "c".into(), options, none).await.expect("consume");
    for redelivered in [0, 1] {
        let delivery = in_time("a delivery", consuming.next()).await;
        let delivery = delivery.expect("goes on").expect("a delivery");
        let trace = next(&reader).await;
        assert_eq!((trace.0.as_str(), &trace.2[..]), ("deliver.traced", &b"one"[..]));
        let rest = ["redelivered", "routing_keys", "user", "vhost"];
        assert_eq!(names(&trace), [&common[..], &rest[..]].concat());
        assert_eq!(trace.1["redelivered"], AMQPValue::LongInt(redelivered));
        assert_eq!(trace.1["exchange_name"], text("amq.direct"));
        assert_eq!(texts(&trace.1["routing_keys"]), ["k", "copy"]);
        is_of(&cluster, &trace, 1).await;
        if redelivered == 0 {
            let nack = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
            delivery.nack(nack).await.expect("sent");
        } else {
            delivery.ack(BasicAckOptions::default()).await.expect("sent");
        }
    }
    consumer.basic_cancel("c".into(), <_>::default()).await.expect("cancel-ok");
    publish(&publisher, "", "traced", b"two").await;
    assert_eq!(next(&reader).await.0, "publish.");
    // Through the very connection that has got all these traces, so that what it had been told of
    // them would come first.
    assert_eq!(get(&reader, "traced").await.as_deref(), Some(&b"two"[..]));
    assert_eq!(next(&reader).await.0, "deliver.traced");

    switch(&cluster, "trace_off").await;
    publish(&publisher, "", "traced", b"untraced").await;
    switch(&cluster, "trace_on").await;
    publish(&publisher, "", "nowhere", b"unroutable").await;
    let trace = next(&reader).await;
    assert_eq!((trace.0.as_str(), &trace.2[..]), ("publish.", &b"unroutable"[..]));
    assert_eq!(texts(&trace.1["routed_queues"]), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn cnf_04_a_queue_that_refuses_traces_refuses_nobodys_message() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(1)).await;
    let full = [("x-max-length", int(1)), ("x-overflow", text("reject-publish"))];
    declare_with(&publisher, FIREHOSE, &full).await;
    declare_quorum(&publisher, "traced").await;
    bind(&publisher, FIREHOSE, "amq.rabbitmq.trace", "publish.#").await;
    switch(&cluster, "trace_on").await;
    for number in 0..20_u8 {
        assert!(publish_with(&publisher, "traced", &[number], BasicProperties::default()).await);
    }
    assert_eq!(next(&publisher).await.2, [0]);
    assert_eq!(cluster.counts(1, "traced", ["messages"]).await, Ok([20]));
    let missing = cluster.ctl(1, &["trace_on", "-p", "missing"]).await;
    assert_eq!(
        (missing.code, missing.stderr.as_str()),
        (65, "Virtual host 'missing' does not exist\n")
    );
}
