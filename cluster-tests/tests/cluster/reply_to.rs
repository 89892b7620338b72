//! Direct reply-to within a node and between nodes (DRT).

#![expect(clippy::expect_used, reason = "tests")]

use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions, QueueBindOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Consumer};
use quorate_cluster_tests::harness::amqp::{
    arguments, code, declare_quorum, durable, int, open, open_confirming, passive, text,
};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Options};

const PSEUDO_QUEUE: &str = "amq.rabbitmq.reply-to";

async fn consume(channel: &Channel, queue: &str, no_ack: bool) -> lapin::Result<Consumer> {
    let options = BasicConsumeOptions { no_ack, ..BasicConsumeOptions::default() };
    let consumer = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
    in_time("consume-ok", consumer).await
}

async fn next(consumer: &mut Consumer) -> Delivery {
    let delivery = in_time("a delivery", consumer.next()).await;
    delivery.expect("the consumer goes on").expect("a delivery")
}

async fn ask(channel: &Channel, body: &[u8]) {
    let properties = BasicProperties::default().with_reply_to(PSEUDO_QUEUE.into());
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish("".into(), "server".into(), options, body, properties);
    sent.await.expect("sent").await.expect("sent");
}

/// Publishes as a server does, mandatory; the confirm's message is what was returned.
async fn answer(channel: &Channel, name: &ShortString, body: &[u8]) -> Option<ShortString> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties = BasicProperties::default().with_correlation_id("7".into());
    let sent = channel.basic_publish("".into(), name.clone(), options, body, properties);
    let confirm = in_time("a confirm", sent.await.expect("sent")).await;
    let confirm = confirm.expect("a confirm");
    assert!(confirm.is_ack(), "{confirm:?}");
    confirm.take_message().map(|returned| returned.delivery.routing_key.clone())
}

/// The name that a request carries, as the server sees it.
async fn name_of(requests: &mut Consumer) -> ShortString {
    next(requests).await.properties.reply_to().clone().expect("reply-to")
}

#[tokio::test(flavor = "multi_thread")]
async fn drt_02_and_drt_04_replies_find_the_requester_from_any_node() {
    const CALLS: u32 = 200;
    let cluster = Cluster::start(3, Options::default()).await;
    let (_serving, server) = open_confirming(&cluster.amqp_uri(2)).await;
    declare_quorum(&server, "server").await;
    let mut requests = consume(&server, "server", true).await.expect("consume-ok");
    for id in 1..=3 {
        let (_asking, client) = open(&cluster.amqp_uri(id)).await;
        let mut replies = consume(&client, PSEUDO_QUEUE, true).await.expect("consume-ok");
        for call in 0..CALLS {
            ask(&client, &call.to_be_bytes()).await;
            let request = next(&mut requests).await;
            let name = request.properties.reply_to().clone().expect("reply-to");
            assert!(name.as_str().starts_with("amq.rabbitmq.reply-to."), "{name}");
            assert_eq!(answer(&server, &name, &call.to_le_bytes()).await, None);
            let reply = next(&mut replies).await;
            assert_eq!(reply.data, call.to_le_bytes(), "node {id}");
            assert_eq!((reply.exchange.as_str(), &reply.routing_key), ("", &name));
            assert_eq!(reply.delivery_tag, u64::from(call) + 1);
            assert_eq!(
                reply.properties.correlation_id().as_ref().map(ShortString::as_str),
                Some("7")
            );
        }
        // Several replies to one request come in order.
        ask(&client, b"several").await;
        let name = name_of(&mut requests).await;
        for number in 0..100_u8 {
            assert_eq!(answer(&server, &name, &[number]).await, None);
        }
        for number in 0..100_u8 {
            assert_eq!(next(&mut replies).await.data, [number]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drt_05_a_name_is_a_queue_while_its_channel_lives_and_cannot_be_bound() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_serving, server) = open_confirming(&cluster.amqp_uri(2)).await;
    declare_quorum(&server, "server").await;
    let mut requests = consume(&server, "server", true).await.expect("consume-ok");
    let (_asking, client) = open(&cluster.amqp_uri(1)).await;
    let replies = consume(&client, PSEUDO_QUEUE, true).await.expect("consume-ok");
    ask(&client, b"").await;
    let name = name_of(&mut requests).await;
    for id in 1..=3 {
        for options in [passive(), durable()] {
            let (_other, looker) = open(&cluster.amqp_uri(id)).await;
            let declared = looker.queue_declare(name.clone(), options, FieldTable::default()).await;
            let declared = declared.expect("declare-ok");
            assert_eq!((declared.message_count(), declared.consumer_count()), (0, 1), "node {id}");
        }
        let (_other, binder) = open(&cluster.amqp_uri(id)).await;
        let options = QueueBindOptions::default();
        let exchange = "amq.direct".into();
        let bound =
            binder.queue_bind(name.clone(), exchange, "k".into(), options, FieldTable::default());
        let refused = bound.await.expect_err("BND-01");
        assert_eq!(code(&refused), Some(403), "node {id}: {refused}");
    }
    // Who knows the way but not the key finds nobody.
    let guessed: ShortString =
        format!("{}AAAA", name.as_str().get(..name.as_str().len() - 4).expect("long")).into();
    let (_other, looker) = open(&cluster.amqp_uri(3)).await;
    let missing = looker.queue_declare(guessed, passive(), FieldTable::default()).await;
    assert_eq!(code(&missing.expect_err("DRT-05")), Some(404));
    // DRT-06: a cancel ends it, on every node; what comes then is routed and gone (DRT-04).
    client.basic_cancel(replies.tag(), BasicCancelOptions::default()).await.expect("cancel-ok");
    for id in 1..=3 {
        let (_other, looker) = open(&cluster.amqp_uri(id)).await;
        let missing = looker.queue_declare(name.clone(), passive(), FieldTable::default()).await;
        assert_eq!(code(&missing.expect_err("DRT-05")), Some(404), "node {id}");
    }
    assert_eq!(answer(&server, &name, b"late").await, None);
    let refused = client
        .basic_publish(
            "".into(),
            "server".into(),
            BasicPublishOptions::default(),
            b"",
            BasicProperties::default().with_reply_to(PSEUDO_QUEUE.into()),
        )
        .await;
    drop(refused);
    eventually("DRT-03 closes the channel", || async {
        hold(!client.status().connected(), || "it is open".to_owned())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drt_06_a_name_ends_with_its_channel_and_with_its_connection() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_serving, server) = open_confirming(&cluster.amqp_uri(2)).await;
    declare_quorum(&server, "server").await;
    let mut requests = consume(&server, "server", true).await.expect("consume-ok");
    let (connection, client) = open(&cluster.amqp_uri(3)).await;
    let gone = |name: ShortString| {
        let cluster = &cluster;
        async move {
            let (_other, looker) = open(&cluster.amqp_uri(1)).await;
            let missing = looker.queue_declare(name, passive(), FieldTable::default()).await;
            assert_eq!(code(&missing.expect_err("DRT-05")), Some(404));
        }
    };
    let _replies = consume(&client, PSEUDO_QUEUE, true).await.expect("consume-ok");
    ask(&client, b"").await;
    let name = name_of(&mut requests).await;
    client.close(200, "enough".into()).await.expect("close-ok");
    gone(name.clone()).await;
    assert_eq!(answer(&server, &name, b"late").await, None);
    // Its number is another channel now, which gets nothing that was meant for the one before.
    let next = connection.create_channel().await.expect("open-ok");
    let _replies = consume(&next, PSEUDO_QUEUE, true).await.expect("consume-ok");
    ask(&next, b"").await;
    let other = name_of(&mut requests).await;
    assert_ne!(name, other);
    gone(name).await;
    connection.close(200, "enough".into()).await.expect("close-ok");
    gone(other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drt_07_a_reply_is_shown_as_it_was_sent() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_serving, server) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&server, "server").await;
    let mut requests = consume(&server, "server", true).await.expect("consume-ok");
    for id in 1..=2 {
        let (_asking, client) = open(&cluster.amqp_uri(id)).await;
        let mut replies = consume(&client, PSEUDO_QUEUE, true).await.expect("consume-ok");
        ask(&client, b"").await;
        let name = name_of(&mut requests).await;
        // In a queue it would expire at once, have its history read, and be counted.
        let death = AMQPValue::FieldTable(arguments(&[("count", int(3)), ("queue", text("q"))]));
        let headers = arguments(&[
            ("x-acquired-count", int(8)),
            ("x-death", AMQPValue::FieldArray(vec![death].into())),
            ("x-delivery-count", int(7)),
        ]);
        let sent = BasicProperties::default().with_expiration("0".into()).with_headers(headers);
        for body in [b"first", b"again"] {
            let options = BasicPublishOptions::default();
            let publish =
                server.basic_publish("".into(), name.clone(), options, body, sent.clone());
            let confirm = in_time("a confirm", publish.await.expect("sent")).await;
            assert!(confirm.expect("a confirm").is_ack());
        }
        for body in [b"first", b"again"] {
            let reply = next(&mut replies).await;
            assert_eq!((reply.data.as_slice(), reply.redelivered), (&body[..], false));
            assert_eq!(reply.properties, sent, "node {id}");
        }
    }
}
