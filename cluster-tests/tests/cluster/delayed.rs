//! Delayed exchanges (EXC-17): a message is kept for as long as its header says, by all nodes, and
//! then routed by the bindings of that moment.

#![expect(clippy::expect_used, reason = "tests")]

use lapin::options::{BasicPublishOptions, ExchangeDeclareOptions, ExchangeDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    arguments, bind, code, declare_exchange, declare_quorum, get, headers, int, open,
    open_confirming, text,
};
use quorate_cluster_tests::harness::ctl;
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options, figure};
use std::time::{Duration, Instant};

async fn declare_delayed(
    channel: &Channel,
    exchange: &str,
    of: &[(&str, AMQPValue)],
) -> Result<(), Option<u16>> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let kind = ExchangeKind::Custom("x-delayed-message".into());
    let declared = channel.exchange_declare(exchange.into(), kind, options, arguments(of)).await;
    declared.map_err(|error| code(&error))
}

/// Publishes with that header; true if it was confirmed.
async fn publish(
    channel: &Channel,
    exchange: &str,
    key: &str,
    body: &str,
    delay: AMQPValue,
) -> Result<bool, Option<u16>> {
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_expiration("60000".into())
        .with_headers(arguments(&[("x-delay", delay)]));
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let sent =
        channel.basic_publish(exchange.into(), key.into(), options, body.as_bytes(), properties);
    let confirm = async { sent.await?.await };
    confirm.await.map(|confirm| confirm.is_ack()).map_err(|error| code(&error))
}

/// What a queue gets next.
async fn next(channel: &Channel, queue: &str) -> Vec<u8> {
    let found = std::cell::RefCell::new(Vec::new());
    eventually("a message", || async {
        let body = get(channel, queue).await;
        let has_come = body.is_some();
        *found.borrow_mut() = body.unwrap_or_default();
        hold(has_come, || format!("nothing in '{queue}'"))
    })
    .await;
    found.into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn exc_17_each_comes_at_its_time_whatever_happens_to_its_node() {
    let cluster = Cluster::start(3, Options::alone()).await;
    cluster.leaders_rest().await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let topic = [("x-delayed-type", text("topic"))];
    assert_eq!(declare_delayed(&channel, "later", &topic).await, Ok(()));
    assert_eq!(declare_delayed(&channel, "later", &topic).await, Ok(()), "again");
    declare_quorum(&channel, "q").await;
    let begun = Instant::now();
    // No binding yet, and mandatory: it is routed when the time has come.
    for (body, delay) in [("third", 17_000), ("first", 15_000), ("second", 16_000)] {
        let published = publish(&channel, "later", "a.b", body, int(delay)).await;
        assert_eq!(published, Ok(true), "{body}");
    }
    let held = async || cluster.counts(2, "amq.delayed.later", ["messages"]).await;
    assert_eq!(held().await, Ok([3]), "replicated, listed, counted");
    bind(&channel, "q", "later", "a.*").await;
    for now in [int(0), int(-5)] {
        assert_eq!(publish(&channel, "later", "a.b", "now", now).await, Ok(true));
        assert_eq!(get(&channel, "q").await, Some(b"now".to_vec()));
    }
    let leader = cluster.leader_of("amq.delayed.later").await;
    cluster.node(leader).kill9();
    let (_other, channel) = match leader {
        1 => open(&cluster.amqp_uri(2)).await,
        _ => (connection, channel),
    };
    for (body, after) in [("first", 15_000), ("second", 16_000), ("third", 17_000)] {
        assert_eq!(next(&channel, "q").await, body.as_bytes());
        let took = begun.elapsed();
        figure(&format!("delayed by {after} ms"), took);
        assert!(took >= Duration::from_millis(after), "{body} came after {took:?}");
    }
    assert_eq!(get(&channel, "q").await, None);
    cluster.node(leader).restart().await;
    assert_eq!(held().await, Ok([0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn exc_17_what_comes_is_as_it_was_published_but_for_the_sign() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let direct = [("x-delayed-type", text("direct"))];
    assert_eq!(declare_delayed(&channel, "later", &direct).await, Ok(()));
    declare_exchange(&channel, "all", ExchangeKind::Fanout).await;
    let to_later = channel.exchange_bind(
        "later".into(),
        "all".into(),
        "".into(),
        Default::default(),
        FieldTable::default(),
    );
    to_later.await.expect("bound");
    declare_quorum(&channel, "q").await;
    declare_quorum(&channel, "at-once").await;
    bind(&channel, "q", "later", "k").await;
    bind(&channel, "at-once", "all", "").await;
    assert_eq!(publish(&channel, "all", "k", "x", int(300)).await, Ok(true));
    assert_eq!(next(&channel, "at-once").await, b"x");
    eventually("the delayed copy", || async {
        let got = channel.basic_get("q".into(), Default::default()).await.expect("get");
        let Some(got) = got else { return Err("nothing yet".to_owned()) };
        assert_eq!(headers(&got.properties).get("x-delay"), Some(&AMQPValue::LongLongInt(-300)));
        assert_eq!(headers(&got.properties).len(), 1, "no death is told");
        assert_eq!(got.properties.expiration().as_ref().map(|it| it.as_str()), Some("60000"));
        assert_eq!((got.exchange.as_str(), got.routing_key.as_str()), ("all", "k"));
        assert!(!got.redelivered);
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exc_17_q_50_bad_input_is_told_and_the_queue_is_the_exchanges() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let direct = [("x-delayed-type", text("direct"))];
    assert_eq!(declare_delayed(&channel, "later", &direct).await, Ok(()));
    let channel_of = || async { open_confirming(&cluster.amqp_uri(1)).await };
    // As libraries for PHP and JavaScript, and for .NET, send them.
    for whole in [text("60000"), AMQPValue::Double(60_000.0)] {
        assert_eq!(publish(&channel, "later", "k", "x", whole).await, Ok(true));
    }
    for wrong in [text("soon"), AMQPValue::Double(0.5), int(315_360_000_001)] {
        let (_own, channel) = channel_of().await;
        assert_eq!(publish(&channel, "later", "k", "x", wrong).await, Err(Some(406)));
    }
    for wrong in [&[][..], &[("x-delayed-type", text("x-foo"))], &[("x-delayed-type", int(1))]] {
        let (_own, channel) = channel_of().await;
        assert_eq!(declare_delayed(&channel, "other", wrong).await, Err(Some(406)));
    }
    let (_own, other) = channel_of().await;
    let deleted = other.queue_delete("amq.delayed.later".into(), Default::default()).await;
    assert_eq!(deleted.map_err(|error| code(&error)), Err(Some(403)));
    let output = cluster.ctl(1, &["delete_queue", "amq.delayed.later"]).await;
    assert_ne!(output.code, 0, "{}", output.stdout);
    assert_eq!(publish(&channel, "later", "k", "x", int(60_000)).await, Ok(true));
    assert_eq!(listed_of_one(&cluster).await, ["amq.delayed.later"]);
    let deleted = channel.exchange_delete("later".into(), ExchangeDeleteOptions::default()).await;
    deleted.expect("deleted");
    assert_eq!(listed_of_one(&cluster).await, [""; 0], "it goes with its exchange");
    connection.close(200, "done".into()).await.expect("close-ok");
}

async fn listed_of_one(cluster: &Cluster) -> Vec<String> {
    let output = cluster.ctl(1, &["list_queues", "--formatter=json", "name"]).await;
    let rows = output.rows().expect("rows");
    rows.iter().map(|row| ctl::text(row, "name")).collect()
}
