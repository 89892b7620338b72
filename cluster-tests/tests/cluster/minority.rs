//! Without a majority nothing is confirmed and nothing declared, within bounds; when the majority is
//! back, everything that was under way is finished (PRT, Q-60, Q-61).

#![expect(clippy::expect_used, reason = "tests")]

use futures::{StreamExt, stream::FuturesUnordered};
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ExchangeDeclareOptions, QueueBindOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    code, declare_exchange, declare_quorum, declare_with, durable, get, of_type, open,
    open_confirming, persistent, publish_confirmed, text,
};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Options, figure};
use quorate_cluster_tests::history::{ConsumerOptions, Homes, Load, Mix, PublisherOptions};
use std::future::Future;
use std::time::{Duration, Instant};

const QUEUE: &str = "minority";
/// 10 s by setting, less what the clock may be read too late.
const PATIENCE: Duration = Duration::from_millis(9_500);

/// Waits for the refusal of `request` on a connection of its own: a 541 with these words, in bounded time.
async fn refused<T, R>(
    cluster: &Cluster,
    what: &str,
    words: &str,
    request: impl FnOnce(Channel) -> R,
) where
    T: std::fmt::Debug,
    R: Future<Output = lapin::Result<T>>,
{
    // Connecting works without a majority (PRT-07).
    let (connection, channel): (Connection, Channel) = open(&cluster.amqp_uri(1)).await;
    let begun = Instant::now();
    let answer = in_time(what, request(channel)).await;
    let error = answer.expect_err(what);
    assert_eq!(code(&error), Some(541), "{what}: {error}");
    assert!(error.to_string().contains(words), "{what}: {error}\nwanted {words}");
    let took = begun.elapsed();
    figure(&format!("minority: {what} refused after"), took);
    assert!(took > PATIENCE, "{what} was given up after {took:?}");
    drop(connection);
}

/// PRT-03, PRT-06: what needs a majority is refused, each with its text (EXC-13, QUE-16, BND-10, GET-06,
/// CON-15, DEL-06, Q-60).
async fn everything_is_refused(cluster: &Cluster) {
    let nothing = FieldTable::default;
    let declare = |channel: Channel| async move {
        channel.queue_declare("new".into(), durable(), of_type("quorum")).await
    };
    let declare_exchange = |channel: Channel| async move {
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        channel.exchange_declare("new".into(), ExchangeKind::Fanout, options, nothing()).await
    };
    let delete_exchange = |channel: Channel| async move {
        channel.exchange_delete("old".into(), <_>::default()).await
    };
    let bind = |channel: Channel| async move {
        let options = QueueBindOptions::default();
        channel.queue_bind("got".into(), "old".into(), "".into(), options, nothing()).await
    };
    let delete =
        |channel: Channel| async move { channel.queue_delete("got".into(), <_>::default()).await };
    let consume = |channel: Channel| async move {
        channel.basic_consume("got".into(), "c".into(), <_>::default(), nothing()).await
    };
    let get = |channel: Channel| async move {
        channel.basic_get("got".into(), BasicGetOptions::default()).await
    };
    let (queue, exchange) = ("queue 'got' in vhost '/'", "exchange 'old' in vhost '/'");
    futures::join!(
        refused(cluster, "queue.declare", "queue 'new' in vhost '/'", declare),
        refused(cluster, "exchange.declare", "exchange 'new' in vhost '/'", declare_exchange),
        refused(cluster, "exchange.delete", exchange, delete_exchange),
        refused(cluster, "queue.bind", "Could not add binding due to timeout", bind),
        refused(cluster, "queue.delete", queue, delete),
        refused(cluster, "basic.consume", queue, consume),
        refused(cluster, "basic.get", queue, get),
    );
}

/// Waits until node 1 knows that it is a minority.
async fn is_known(cluster: &Cluster) {
    eventually("the minority knows that it is one", || async {
        let ready = cluster.node(1).get("/health/ready").await?;
        hold(ready.status == 503, || format!("{ready:?}"))
    })
    .await;
}

/// PRT-01, PRT-05: what is published meanwhile is neither acked nor nacked until the majority is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_minority_confirms_and_declares_nothing_until_the_majority_is_back() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    // A queue of its own: a get that is given up may take a message, and then gives it back late.
    declare_quorum(&channel, "got").await;
    declare_exchange(&channel, "old", ExchangeKind::Fanout).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    let mix = Mix::declare(&cluster).await;
    let load = Load::on(QUEUE)
        .publish(PublisherOptions::new(cluster.amqp_uri(1), QUEUE))
        .consume(ConsumerOptions::new(cluster.amqp_uri(1), QUEUE));
    let load = mix.load(load, &Homes::new(vec![cluster.amqp_uri(1)], false));
    load.delivers(500).await;
    cluster.node(2).kill9();
    cluster.node(3).kill9();
    is_known(&cluster).await;
    // What was on its way may still be confirmed: the window fills, then silence begins.
    eventually("no confirms come", || async {
        let before = load.history().confirms();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let more = load.history().confirms() - before;
        hold(more == 0, || format!("{more} more"))
    })
    .await;
    let silent_from = load.history().now();
    everything_is_refused(&cluster).await;
    let ready = cluster.node(1).get("/health/ready").await.expect("an answer");
    assert_eq!(ready.status, 503, "{ready:?}");
    let silent_to = load.history().now();
    let confirmed_in_minority = load
        .history()
        .snapshot()
        .published
        .into_values()
        .filter(|p| p.answered_at.is_some_and(|at| (silent_from..silent_to).contains(&at)));
    assert_eq!(confirmed_in_minority.count(), 0, "answers without a majority");
    cluster.node(2).restart().await;
    // Two of three: everything goes on, on the connections that were there all along.
    load.confirms(500).await;
    load.delivers(500).await;
    let (_connection, channel) = open(&cluster.amqp_uri(2)).await;
    declare_quorum(&channel, "new").await;
    cluster.node(3).restart().await;
    load.finish(&cluster).await;
}

/// CON-14: an election is not told to consumers, nor is the lack of a leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_waits_through_a_minority_without_being_cancelled() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    let options = lapin::options::BasicConsumeOptions::default();
    let consumer = channel.basic_consume(QUEUE.into(), "c".into(), options, FieldTable::default());
    let mut consumer = consumer.await.expect("consume-ok");
    cluster.node(2).kill9();
    cluster.node(3).kill9();
    is_known(&cluster).await;
    // a channel's first publish to the queue waits like any other.
    let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(1)).await;
    let options = lapin::options::BasicPublishOptions::default();
    let first = publisher.basic_publish("".into(), QUEUE.into(), options, b"first", persistent());
    let first = first.await.expect("sent");
    cluster.node(2).restart().await;
    let first = in_time("a confirm", first).await.expect("a confirm");
    assert!(first.is_ack(), "{first:?}");
    let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(2)).await;
    publish_confirmed(&publisher, QUEUE, b"again").await;
    for body in [b"first", b"again"] {
        let delivery = in_time("a delivery", consumer.next()).await;
        let delivery = delivery.expect("not cancelled").expect("a delivery");
        assert_eq!((delivery.data.as_slice(), delivery.redelivered), (&body[..], false));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cnf_07_a_confirm_means_that_a_majority_has_it_whatever_the_delivery_mode() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let types = ["quorum", "classic"];
    for queue_type in types {
        declare_with(&channel, queue_type, &[("x-queue-type", text(queue_type))]).await;
    }
    cluster.node(2).kill9();
    cluster.node(3).kill9();
    #[expect(clippy::async_yields_async, reason = "confirms are awaited later")]
    let publish = async |queue: &str, mode: u8| {
        let properties = BasicProperties::default().with_delivery_mode(mode);
        let options = BasicPublishOptions::default();
        let body = [mode];
        let sent = channel.basic_publish("".into(), queue.into(), options, &body, properties);
        sent.await.expect("sent")
    };
    let mut confirms = FuturesUnordered::new();
    for queue_type in types {
        // Transient, persistent.
        confirms.push(publish(queue_type, 1).await);
        confirms.push(publish(queue_type, 2).await);
    }
    // Nothing to wait for: no confirm must come.
    let early = tokio::time::timeout(Duration::from_secs(3), confirms.next()).await;
    assert!(early.is_err(), "confirmed without a majority: {early:?}");
    cluster.node(2).restart().await;
    while let Some(confirm) = in_time("a confirm", confirms.next()).await {
        assert!(confirm.expect("a confirm").is_ack());
    }
    // The one that all of it was published to is of no more use.
    cluster.node(1).kill9();
    cluster.node(3).restart().await;
    for queue_type in types {
        eventually("both are there", || async {
            let [ready] = cluster.counts(2, queue_type, ["messages_ready"]).await?;
            hold(ready == 2, || format!("{ready} in {queue_type}"))
        })
        .await;
        let (_other, channel) = open(&cluster.amqp_uri(2)).await;
        for mode in [1, 2] {
            assert_eq!(get(&channel, queue_type).await, Some(vec![mode]), "{queue_type}");
        }
    }
}
