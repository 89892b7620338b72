//! What a channel and its connection are told, where no transcript can show it: the broker decides.

#![expect(clippy::expect_used, reason = "tests")]

use lapin::options::{
    BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, ExchangeDeclareOptions,
    ExchangeDeleteOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    code, declare_quorum, open, open_confirming, persistent, publish_confirmed, ready,
};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::wire::{self, Wire};
use quorate_cluster_tests::harness::{Cluster, Options};

async fn refused_consume(channel: &Channel, argument: &str, value: AMQPValue, text: &str) {
    let mut arguments = FieldTable::default();
    arguments.insert(argument.into(), value);
    let options = BasicConsumeOptions::default();
    let consuming = channel.basic_consume("q".into(), "".into(), options, arguments);
    let refused = in_time("a refusal", consuming).await.expect_err(argument);
    assert_eq!(code(&refused), Some(406), "{refused}");
    assert!(refused.to_string().contains(text), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn con_05_and_con_06_consumer_arguments_are_checked() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "q").await;
    let text = "invalid arg 'x-stream-offset' for queue 'q' in vhost '/' of queue type \
                rabbit_quorum_queue";
    refused_consume(&channel, "x-stream-offset", AMQPValue::LongInt(1), text).await;
    let channel = connection.create_channel().await.expect("open-ok");
    let text =
        "invalid arg 'x-priority' for queue 'q' in vhost '/': \"expected integer, got longstr\"";
    refused_consume(&channel, "x-priority", AMQPValue::LongString("high".into()), text).await;
    // Unknown ones are ignored.
    let channel = connection.create_channel().await.expect("open-ok");
    let mut arguments = FieldTable::default();
    arguments.insert("x-unheard-of".into(), AMQPValue::Boolean(true));
    arguments.insert("x-priority".into(), AMQPValue::ShortInt(-3));
    let options = BasicConsumeOptions::default();
    let consuming = channel.basic_consume("q".into(), "".into(), options, arguments);
    in_time("consume-ok", consuming).await.expect("consume-ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn pub_08_an_exchange_deleted_elsewhere_is_missing_from_the_next_publish_on() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_deleting, deleter) = open(&cluster.amqp_uri(2)).await;
    for round in 0..10_u8 {
        let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(1)).await;
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let arguments = FieldTable::default();
        let declared =
            deleter.exchange_declare("goes".into(), ExchangeKind::Fanout, options, arguments);
        declared.await.expect("declare-ok");
        let publish = || async {
            let options = BasicPublishOptions::default();
            let sent =
                publisher.basic_publish("goes".into(), "".into(), options, b"", persistent());
            in_time("a confirm", sent.await?).await
        };
        assert!(publish().await.expect("a confirm").is_ack(), "round {round}");
        let deleted = deleter.exchange_delete("goes".into(), ExchangeDeleteOptions::default());
        deleted.await.expect("delete-ok");
        let missing = publish().await.expect_err("404");
        assert!(missing.to_string().contains("no exchange 'goes' in vhost '/'"), "{missing}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cnf_06_and_pub_09_what_is_published_while_its_queue_is_deleted_is_confirmed() {
    const MESSAGES: usize = 3_000;
    let cluster = Cluster::start(3, Options::default()).await;
    let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(1)).await;
    let (_deleting, deleter) = open(&cluster.amqp_uri(2)).await;
    declare_quorum(&deleter, "goes").await;
    let mut confirms = Vec::new();
    let mut deleting = None;
    for number in 0..MESSAGES {
        if number == MESSAGES / 3 {
            let deleter = deleter.clone();
            deleting = Some(tokio::spawn(async move {
                deleter.queue_delete("goes".into(), QueueDeleteOptions::default()).await
            }));
        }
        let options = BasicPublishOptions::default();
        let sent =
            publisher.basic_publish("".into(), "goes".into(), options, b"gone", persistent());
        confirms.push(sent.await.expect("sent"));
    }
    for (number, confirm) in confirms.into_iter().enumerate() {
        let confirm = in_time("a confirm", confirm).await.expect("a confirm");
        assert!(confirm.is_ack(), "message {number}: {confirm:?}");
    }
    deleting.expect("begun").await.expect("ended").expect("delete-ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn get_04_an_unsettled_get_returns_with_its_channel_and_is_counted() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "got").await;
    publish_confirmed(&channel, "got", b"again").await;
    for round in 0..3_i64 {
        let channel = connection.create_channel().await.expect("open-ok");
        let message = eventually("the message is back", || async {
            let got = channel.basic_get("got".into(), BasicGetOptions::default()).await;
            got.expect("get").ok_or_else(|| "the queue is empty".to_owned())
        });
        let delivery = message.await.delivery;
        assert_eq!(delivery.redelivered, round > 0);
        let headers = delivery.properties.headers().clone().unwrap_or_default();
        let counted = headers.inner().get("x-delivery-count").cloned();
        // CON-20, Q-31: an ended channel counts.
        assert_eq!(counted, (round > 0).then_some(AMQPValue::LongLongInt(round)));
        channel.close(200, "enough".into()).await.expect("close-ok");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conn_26_and_conn_28_after_its_close_the_server_ignores_all_but_closes() {
    let cluster = Cluster::start(1, Options::default()).await;
    let address = cluster.node(1).amqp_address();
    let mut wire = Wire::open_channel(&address).await;
    // A second open is a hard error; what follows it is passed over, but for a crossing close.
    wire.method(1, 20, 10, &[0]).await;
    wire.method(1, 60, 10, &[0, 0, 0, 0, 0, 1, 0]).await;
    wire.method(0, 10, 50, &[0, 200, 0, 0, 0, 0, 0]).await;
    wire.expect(0, 10, 50).await;
    wire.expect(0, 10, 51).await;
    // It waits for its own close-ok.
    wire.method(1, 60, 10, &[0, 0, 0, 0, 0, 1, 0]).await;
    wire.method(0, 10, 51, &[]).await;
    assert_eq!(wire.next().await, None);
}

/// CHN-06: a client that passes a message on and then acknowledges it keeps the message if what it made of it is
/// refused, also if it does not wait for the refusal.
#[tokio::test(flavor = "multi_thread")]
async fn chn_06_an_ack_behind_a_refused_publish_is_not_carried_out() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "jobs").await;
    publish_confirmed(&channel, "jobs", b"job").await;
    let mut client = Wire::open_channel(&cluster.node(1).amqp_address()).await;
    client.method(1, 60, 20, &wire::basic_consume("jobs", false)).await;
    client.expect(1, 60, 21).await;
    client.expect(1, 60, 60).await;
    let to_missing = [&[0, 0][..], &wire::short("missing"), &wire::short("key"), &[0]].concat();
    let first_tag = [&1_u64.to_be_bytes()[..], &[0]].concat();
    let mut bytes = wire::method_frame(1, 60, 40, &to_missing);
    bytes.extend(wire::frame(wire::HEADER, 1, &wire::content_header(60, 4, None)));
    bytes.extend(wire::frame(wire::BODY, 1, b"done"));
    bytes.extend(wire::method_frame(1, 60, 80, &first_tag));
    client.send(&bytes).await;
    let close = client.channel_close(1).await.expect("channel.close");
    assert_eq!(close.code, 404, "{close:?}");
    eventually("the job is ready again", || async {
        let jobs = ready(&connection, "jobs").await;
        hold(jobs == Ok(1), || format!("{jobs:?}"))
    })
    .await;
}
