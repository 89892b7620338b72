//! Dead letters between queues, as clients see them: routed by the exchange and key in force, with
//! their history, exactly once whatever dies meanwhile (DLX, Q-40 to Q-46).

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use futures::StreamExt;
use lapin::message::BasicGetMessage;
use lapin::options::{
    BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicQosOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    REQUEST_BOUND, bind, declare_exchange, durable, get, headers, of_type, open, open_confirming,
    persistent, publish_confirmed, publish_with,
};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, LIFECYCLE_BOUND, Options, figure};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// No run of the chain takes longer.
const CHAIN_BOUND: Duration = Duration::from_secs(400);

fn arguments(pairs: &[(&str, &str)]) -> FieldTable {
    let mut table = of_type("quorum");
    for (name, value) in pairs {
        let value = match value.parse::<i64>() {
            Ok(number) => AMQPValue::LongLongInt(number),
            Err(_) => AMQPValue::LongString((*value).into()),
        };
        table.insert((*name).into(), value);
    }
    table
}

async fn declare(channel: &Channel, queue: &str, pairs: &[(&str, &str)]) {
    channel
        .queue_declare(queue.into(), durable(), arguments(pairs))
        .await
        .unwrap_or_else(|error| panic!("{queue}: {error}"));
}

/// Takes one message and rejects it.
async fn reject_one(channel: &Channel, queue: &str) {
    let got = channel.basic_get(queue.into(), BasicGetOptions::default()).await.expect("get-ok");
    let got = got.unwrap_or_else(|| panic!("{queue} is empty"));
    got.nack(BasicNackOptions { requeue: false, ..Default::default() }).await.expect("nacked");
}

async fn arrives(channel: &Channel, queue: &str) -> BasicGetMessage {
    let got = eventually("a dead letter arrives", LIFECYCLE_BOUND, || async {
        let options = BasicGetOptions { no_ack: true };
        let got =
            channel.basic_get(queue.into(), options).await.map_err(|error| error.to_string())?;
        got.ok_or_else(|| format!("{queue} is empty"))
    });
    got.await
}

#[tokio::test(flavor = "multi_thread")]
async fn dlx_23_to_32_a_rejected_message_goes_on_with_its_history() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let (_other, elsewhere) = open(&cluster.amqp_uri(2)).await;
    declare_exchange(&channel, "dlx", ExchangeKind::Direct).await;
    declare(&channel, "work", &[("x-dead-letter-exchange", "dlx")]).await;
    // The target is of another node's choosing, so mostly of another group.
    declare(&elsewhere, "dead", &[]).await;
    bind(&elsewhere, "dead", "dlx", "work").await;
    publish_confirmed(&channel, "work", b"one").await;
    reject_one(&channel, "work").await;
    let dead = arrives(&elsewhere, "dead").await;
    assert_eq!(dead.delivery.data, b"one");
    assert!(!dead.delivery.redelivered, "Q-43");
    assert_eq!(dead.delivery.exchange.as_str(), "dlx", "DLX-24");
    assert_eq!(dead.delivery.routing_key.as_str(), "work", "DLX-24");
    let headers = headers(&dead.delivery.properties);
    let text = |text: &str| AMQPValue::LongString(text.into());
    for name in ["x-first-death-queue", "x-last-death-queue"] {
        assert_eq!(headers[name], text("work"), "DLX-32");
    }
    assert_eq!(headers["x-first-death-reason"], text("rejected"));
    let AMQPValue::FieldArray(deaths) = &headers["x-death"] else { panic!("{headers:?}") };
    let [AMQPValue::FieldTable(death)] = deaths.as_slice() else { panic!("{deaths:?}") };
    let death: BTreeMap<_, _> =
        death.clone().into_iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
    assert_eq!(death["count"], AMQPValue::LongLongInt(1), "DLX-30");
    assert_eq!(death["queue"], text("work"));
    assert_eq!(death["exchange"], text(""));
}

#[tokio::test(flavor = "multi_thread")]
async fn q_40_an_unroutable_letter_is_dropped_or_kept_until_there_is_a_route() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_exchange(&channel, "later", ExchangeKind::Topic).await;
    let keeps = [("x-dead-letter-exchange", "later"), ("x-dead-letter-strategy", "at-least-once")];
    declare(&channel, "keeps", &keeps).await;
    declare(&channel, "drops", &[("x-dead-letter-exchange", "later")]).await;
    for queue in ["keeps", "drops"] {
        publish_confirmed(&channel, queue, queue.as_bytes()).await;
        reject_one(&channel, queue).await;
    }
    eventually("one is kept, one dropped", LIFECYCLE_BOUND, || async {
        let [kept] = cluster.counts(2, "keeps", ["messages"]).await?;
        let [dropped] = cluster.counts(2, "drops", ["messages"]).await?;
        hold((kept, dropped) == (1, 0), || format!("{kept} kept, {dropped} left"))
    })
    .await;
    declare(&channel, "found", &[]).await;
    // What has a route is not held up by what has none.
    bind(&channel, "found", "later", "other").await;
    assert_eq!(get(&channel, "found").await, None);
    let bound = Instant::now();
    bind(&channel, "found", "later", "#").await;
    let dead = arrives(&channel, "found").await;
    figure("a route appears: time to the letter", bound.elapsed());
    assert_eq!(dead.delivery.data, b"keeps");
}

#[tokio::test(flavor = "multi_thread")]
async fn q_45_letters_outlive_their_queue() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare(&channel, "heir", &[]).await;
    let to_heir = [("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", "heir")];
    for round in 0..20 {
        declare(&channel, "gone", &to_heir).await;
        for _ in 0..10 {
            publish_confirmed(&channel, "gone", b"letter").await;
        }
        for _ in 0..10 {
            reject_one(&channel, "gone").await;
        }
        let deleted = channel.queue_delete("gone".into(), QueueDeleteOptions::default()).await;
        deleted.unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    eventually("all letters arrive", LIFECYCLE_BOUND, || async {
        let [ready] = cluster.counts(3, "heir", ["messages_ready"]).await?;
        hold(ready == 200, || format!("{ready} of 200"))
    })
    .await;
    assert_replicas_equal(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn q_45_a_queue_with_as_many_letters_as_the_bound_refuses_publishes() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let keeps = [
        ("x-dead-letter-exchange", "amq.fanout"),
        ("x-dead-letter-strategy", "at-least-once"),
        ("x-message-ttl", "0"),
    ];
    declare(&channel, "bounded", &keeps).await;
    let set = cluster.ctl(2, &["set_global_parameter", "dead_letters_max", "3"]).await;
    set.succeeded().expect("set");
    for taken in [true, true, true, false, false] {
        assert_eq!(publish_with(&channel, "bounded", b"body", persistent()).await, taken);
    }
    // The letters leave, and it takes messages again.
    declare(&channel, "way-out", &[]).await;
    bind(&channel, "way-out", "amq.fanout", "").await;
    for _ in 0..3 {
        arrives(&channel, "way-out").await;
    }
    eventually("they have left", LIFECYCLE_BOUND, || async {
        let [left] = cluster.counts(3, "bounded", ["messages"]).await?;
        hold(left == 0, || format!("{left} are left"))
    })
    .await;
    assert!(publish_with(&channel, "bounded", b"more", persistent()).await);
    assert_eq!(arrives(&channel, "way-out").await.delivery.data, b"more");
    let wrong = cluster.ctl(2, &["set_global_parameter", "dead_letters_max", "0"]).await;
    let told = wrong.succeeded().expect_err("refused");
    assert!(told.contains("must be an integer above 0"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dlx_07_a_fanout_exchange_takes_letters_to_ten_queues() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_exchange(&channel, "spread", ExchangeKind::Fanout).await;
    declare(&channel, "one", &[("x-dead-letter-exchange", "spread")]).await;
    for number in 0..10 {
        let (_other, elsewhere) = open(&cluster.amqp_uri(1 + number % 3)).await;
        let queue = format!("of-ten-{number}");
        declare(&elsewhere, &queue, &[]).await;
        bind(&elsewhere, &queue, "spread", "").await;
    }
    for _ in 0..50 {
        publish_confirmed(&channel, "one", b"letter").await;
        reject_one(&channel, "one").await;
    }
    for number in 0..10 {
        let queue = format!("of-ten-{number}");
        eventually("every queue has all", LIFECYCLE_BOUND, || async {
            let [ready] = cluster.counts(1, &queue, ["messages_ready"]).await?;
            hold(ready == 50, || format!("{queue} has {ready}"))
        })
        .await;
    }
}

fn letters() -> u64 {
    let asked = std::env::var("QUORATE_TEST_LETTERS").ok();
    asked.map_or(5_000, |text| text.parse().expect("QUORATE_TEST_LETTERS is a number"))
}

/// Rejects everything that comes into a queue, until the task is dropped.
async fn reject_all(uri: String, queue: &'static str) {
    loop {
        let (_connection, channel) = open(&uri).await;
        channel.basic_qos(500, BasicQosOptions::default()).await.expect("qos-ok");
        let options = BasicConsumeOptions::default();
        let consumer =
            channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
        let Ok(mut consumer) = consumer.await else { continue };
        while let Some(Ok(delivery)) = consumer.next().await {
            let options = BasicNackOptions { requeue: false, ..Default::default() };
            if delivery.nack(options).await.is_err() {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q_40_every_letter_of_a_chain_arrives_once_whatever_dies() {
    let cluster = Cluster::start(3, Options::alone()).await;
    let count = letters();
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for (queue, next) in [("chain-1", "chain-2"), ("chain-2", "chain-3")] {
        let next = [("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", next)];
        declare(&channel, queue, &next).await;
    }
    declare(&channel, "chain-3", &[]).await;
    for number in 0..count {
        let body = number.to_be_bytes();
        let publish = channel.basic_publish(
            "".into(),
            "chain-1".into(),
            Default::default(),
            &body,
            Default::default(),
        );
        // Confirms are waited for all together, below.
        drop(publish.await.expect("published"));
    }
    channel.wait_for_confirms().await.expect("confirmed");
    let begun = Instant::now();
    // Clients stay on node 1; the others are killed in turn.
    let rejecting = [("chain-1"), ("chain-2")]
        .map(|queue| tokio::spawn(reject_all(cluster.amqp_uri(1), queue)));
    let mut kills = 0;
    loop {
        let all = cluster.counts(1, "chain-3", ["messages_ready"]).await;
        if all == Ok([count]) || begun.elapsed() > CHAIN_BOUND {
            break;
        }
        let victim = 2 + kills % 2;
        cluster.node(victim).kill9();
        cluster.node(victim).restart().await;
        kills += 1;
    }
    eventually("the chain comes to rest", LIFECYCLE_BOUND, || async {
        let [ready] = cluster.counts(1, "chain-3", ["messages_ready"]).await?;
        hold(ready >= count, || format!("{ready} of {count}"))
    })
    .await;
    figure("letters through a chain of three, with nodes killed", (count, kills, begun.elapsed()));
    rejecting.iter().for_each(tokio::task::JoinHandle::abort);
    let mut seen = BTreeMap::<Vec<u8>, u32>::new();
    while let Some(body) = in_time("a get", REQUEST_BOUND, get(&channel, "chain-3")).await {
        *seen.entry(body).or_default() += 1;
    }
    assert_eq!(seen.len() as u64, count, "letters were lost");
    assert!(seen.values().all(|times| *times == 1), "letters were doubled");
    assert_replicas_equal(&cluster).await;
}
