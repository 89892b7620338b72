//! Dead letters between queues, as clients see them: routed by the exchange and key in force, with
//! their history, exactly once whatever dies meanwhile (DLX, Q-40 to Q-46).

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use lapin::options::QueueDeleteOptions;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    bind, declare_exchange, durable, get, headers, of_type, open, open_confirming, persistent,
    publish_confirmed, publish_with,
};
use quorate_cluster_tests::harness::dead_letters::{arrives, reject_one};
use quorate_cluster_tests::harness::spread::declare_in_groups;
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options, scale};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use std::collections::BTreeMap;
use std::time::Instant;

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
    assert_eq!(dead.data, b"one");
    assert!(!dead.redelivered, "Q-43");
    assert_eq!(dead.exchange.as_str(), "dlx", "DLX-24");
    assert_eq!(dead.routing_key.as_str(), "work", "DLX-24");
    let headers = headers(&dead.properties);
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
    declare(&channel, "found", &[]).await;
    bind(&channel, "found", "later", "*.known").await;
    for queue in ["keeps", "drops"] {
        bind(&channel, queue, "amq.topic", &format!("{queue}.*")).await;
        // What has a route is not held up by what has none.
        for end in ["unknown", "known"] {
            let key = format!("{queue}.{end}");
            let sent = channel.basic_publish(
                "amq.topic".into(),
                key.as_str().into(),
                <_>::default(),
                key.as_bytes(),
                persistent(),
            );
            assert!(sent.await.expect("sent").await.expect("a confirm").is_ack());
            reject_one(&channel, queue).await;
        }
        assert_eq!(arrives(&channel, "found").await.data, format!("{queue}.known").as_bytes());
    }
    eventually("one is kept, one dropped", || async {
        let [kept] = cluster.counts(2, "keeps", ["messages"]).await?;
        let [dropped] = cluster.counts(2, "drops", ["messages"]).await?;
        hold((kept, dropped) == (1, 0), || format!("{kept} kept, {dropped} left"))
    })
    .await;
    bind(&channel, "found", "later", "other").await;
    assert_eq!(get(&channel, "found").await, None);
    let bound = Instant::now();
    bind(&channel, "found", "later", "#").await;
    let dead = arrives(&channel, "found").await;
    scale::ROUTE_APPEARS.upto("from the binding to the kept letter", bound.elapsed());
    assert_eq!(dead.data, b"keeps.unknown");
    assert_eq!(get(&channel, "found").await, None);
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
        // Now and then its leader dies with the letters on their way; this client's node lives.
        let leader = cluster.leader_of("gone").await;
        let victim = if leader == 1 { 2 } else { leader };
        let dies = round % 7 == 3;
        if dies {
            cluster.node(victim).kill9();
        }
        let deleted = channel.queue_delete("gone".into(), QueueDeleteOptions::default()).await;
        deleted.unwrap_or_else(|error| panic!("round {round}: {error}"));
        if dies {
            cluster.node(victim).restart().await;
        }
    }
    eventually("all letters arrive", || async {
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
    eventually("they have left", || async {
        let [left] = cluster.counts(3, "bounded", ["messages"]).await?;
        hold(left == 0, || format!("{left} are left"))
    })
    .await;
    assert!(publish_with(&channel, "bounded", b"more", persistent()).await);
    assert_eq!(arrives(&channel, "way-out").await.data, b"more");
    let wrong = cluster.ctl(2, &["set_global_parameter", "dead_letters_max", "0"]).await;
    let told = wrong.succeeded().expect_err("refused");
    assert!(told.contains("must be an integer above 0"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dlx_07_a_fanout_exchange_takes_letters_to_queues_of_ten_groups() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_exchange(&channel, "spread", ExchangeKind::Fanout).await;
    declare(&channel, "one", &[("x-dead-letter-exchange", "spread")]).await;
    let ten = declare_in_groups(&cluster, "of-ten", 10).await;
    for queue in &ten {
        bind(&channel, queue, "spread", "").await;
    }
    for _ in 0..50 {
        publish_confirmed(&channel, "one", b"letter").await;
        reject_one(&channel, "one").await;
    }
    for queue in &ten {
        eventually("every queue has all", || async {
            let [ready] = cluster.counts(1, queue, ["messages_ready"]).await?;
            hold(ready == 50, || format!("{queue} has {ready}"))
        })
        .await;
    }
}
