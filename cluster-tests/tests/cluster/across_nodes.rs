//! Any client on any node: what one node is told, every other does at once.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, ExchangeDeclareOptions,
    QueueBindOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Consumer, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    code, declare_quorum, durable, exclusive, get, of_type, open, open_confirming, persistent,
    publish_confirmed,
};
use quorate_cluster_tests::harness::wait::in_time;
use quorate_cluster_tests::harness::{Cluster, Options};

async fn consume(channel: &Channel, queue: &str, no_ack: bool) -> Consumer {
    let options = BasicConsumeOptions { no_ack, ..BasicConsumeOptions::default() };
    let consumer = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
    in_time("consume-ok", consumer).await.expect("consume-ok")
}

async fn next(consumer: &mut Consumer) -> Delivery {
    let delivery = in_time("a delivery", consumer.next()).await;
    delivery.expect("the consumer goes on").expect("a delivery")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_there_for_every_node_once_declare_ok_is_sent() {
    let cluster = Cluster::start(3, Options::default()).await;
    let mut channels = Vec::new();
    for id in 1..=3 {
        channels.push(open_confirming(&cluster.amqp_uri(id)).await);
    }
    for round in 0..30_usize {
        let [declarer, publisher, taker] = [0, 1, 2].map(|place| &channels[(round + place) % 3].1);
        let queue = format!("round-{round}");
        declare_quorum(declarer, &queue).await;
        let body = round.to_be_bytes();
        publish_confirmed(publisher, &queue, &body).await;
        let mut consumer = consume(taker, &queue, false).await;
        let delivery = next(&mut consumer).await;
        assert_eq!(delivery.data, body);
        assert!(!delivery.redelivered);
        delivery.ack(BasicAckOptions::default()).await.expect("ack");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_routes_on_every_node_once_bind_ok_is_sent() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_one, binder) = open(&cluster.amqp_uri(1)).await;
    let (_two, publisher) = open_confirming(&cluster.amqp_uri(2)).await;
    let (_three, taker) = open(&cluster.amqp_uri(3)).await;
    for kind in [ExchangeKind::Direct, ExchangeKind::Topic, ExchangeKind::Fanout] {
        let name = ShortString::from(format!("{kind:?}").to_lowercase());
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let declared = binder.exchange_declare(name.clone(), kind, options, FieldTable::default());
        declared.await.expect("exchange declare-ok");
        declare_quorum(&binder, name.as_str()).await;
        let bind = QueueBindOptions::default();
        let bound = binder.queue_bind(
            name.clone(),
            name.clone(),
            "a.key".into(),
            bind,
            FieldTable::default(),
        );
        bound.await.expect("bind-ok");
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let sent =
            publisher.basic_publish(name.clone(), "a.key".into(), options, b"routed", persistent());
        let confirm = sent.await.expect("sent").await.expect("a confirm");
        assert!(confirm.is_ack(), "{name}: {confirm:?}");
        let returned = confirm.take_message();
        assert!(returned.is_none(), "{name}: {returned:?}");
        assert_eq!(get(&taker, name.as_str()).await.as_deref(), Some(&b"routed"[..]), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_from_another_node_reach_an_exclusive_queue() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_serving, server) = open(&cluster.amqp_uri(2)).await;
    declare_quorum(&server, "rpc").await;
    let mut requests = consume(&server, "rpc", false).await;
    let serving = tokio::spawn(async move {
        while let Some(Ok(request)) = requests.next().await {
            let to = request.properties.reply_to().clone().expect("reply-to");
            let id = request.properties.correlation_id().clone().expect("correlation-id");
            let properties = BasicProperties::default().with_correlation_id(id);
            let options = BasicPublishOptions::default();
            let body = request.data.iter().rev().copied().collect::<Vec<u8>>();
            server.basic_publish("".into(), to, options, &body, properties).await.expect("a reply");
            request.ack(BasicAckOptions::default()).await.expect("ack");
        }
    });
    for id in [1, 3] {
        let (connection, client) = open(&cluster.amqp_uri(id)).await;
        let declared = client.queue_declare("".into(), exclusive(), FieldTable::default()).await;
        let name = declared.expect("an exclusive queue").name().clone();
        assert!(name.as_str().starts_with("amq.gen-"), "{name}");
        let mut replies = consume(&client, name.as_str(), true).await;
        for call in 0..50_u32 {
            let number = ShortString::from(call.to_string());
            let properties = BasicProperties::default()
                .with_reply_to(name.clone())
                .with_correlation_id(number.clone());
            let options = BasicPublishOptions::default();
            let body = call.to_be_bytes();
            client
                .basic_publish("".into(), "rpc".into(), options, &body, properties)
                .await
                .expect("a request");
            let reply = next(&mut replies).await;
            assert_eq!(reply.properties.correlation_id().as_ref(), Some(&number));
            assert_eq!(reply.data, call.to_le_bytes());
        }
        connection.close(200, "done".into()).await.expect("close-ok");
    }
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_queue_is_locked_on_every_node_and_goes_with_its_connection() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (owning, owner) = open(&cluster.amqp_uri(1)).await;
    let declare = |channel: Channel, options| async move {
        channel.queue_declare("mine".into(), options, FieldTable::default()).await
    };
    declare(owner.clone(), exclusive()).await.expect("declare-ok");
    for id in 1..=3 {
        let (_other, stranger) = open(&cluster.amqp_uri(id)).await;
        let refused = declare(stranger, exclusive()).await.expect_err("locked");
        // EXQ-02.
        assert_eq!(code(&refused), Some(405), "node {id}: {refused}");
    }
    owning.close(200, "done".into()).await.expect("close-ok");
    // CONN-27: at once, and on any node.
    let (_next, successor) = open(&cluster.amqp_uri(3)).await;
    declare(successor, exclusive()).await.expect("the name is free after close-ok");
}

fn every_property() -> BasicProperties {
    let mut inner = FieldTable::default();
    inner.insert("nested".into(), AMQPValue::LongLongInt(i64::MIN));
    let mut headers = FieldTable::default();
    headers.insert("text".into(), AMQPValue::LongString("täxt".into()));
    headers.insert("table".into(), AMQPValue::FieldTable(inner));
    headers.insert("flag".into(), AMQPValue::Boolean(true));
    headers.insert("bytes".into(), AMQPValue::ByteArray(vec![0, 255].into()));
    headers.insert("double".into(), AMQPValue::Double(0.1));
    headers.insert("void".into(), AMQPValue::Void);
    BasicProperties::default()
        .with_content_type("application/x".into())
        .with_content_encoding("none".into())
        .with_headers(headers)
        .with_delivery_mode(2)
        .with_correlation_id("correlation".into())
        .with_reply_to("somewhere".into())
        .with_message_id("message".into())
        .with_timestamp(u64::from(u32::MAX) + 1)
        .with_type("type".into())
        .with_app_id("app".into())
        .with_cluster_id("cluster".into())
}

#[tokio::test(flavor = "multi_thread")]
async fn properties_and_bodies_of_every_size_arrive_unchanged() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_one, publisher) = open_confirming(&cluster.amqp_uri(1)).await;
    let (_three, taker) = open(&cluster.amqp_uri(3)).await;
    declare_quorum(&publisher, "sizes").await;
    let mut consumer = consume(&taker, "sizes", false).await;
    // Around a frame's payload, around an inter-node frame, and the largest allowed.
    let frame = 131_072 - 8;
    let sizes = [0, 1, frame - 1, frame, frame + 1, 256 << 10, (256 << 10) + 1, 5 << 20, 16 << 20];
    for size in sizes {
        let body: Vec<u8> = (0..size).map(|at: usize| (at ^ (at >> 8)) as u8).collect();
        let options = BasicPublishOptions::default();
        let properties = every_property();
        let sent = publisher.basic_publish("".into(), "sizes".into(), options, &body, properties);
        let confirm = in_time("a confirm", async { sent.await?.await }).await;
        assert!(confirm.expect("a confirm").is_ack(), "{size} bytes");
        let delivery = next(&mut consumer).await;
        assert_eq!(delivery.properties, every_property(), "{size} bytes");
        assert_eq!(delivery.data.len(), size);
        assert!(delivery.data == body, "a body of {size} bytes arrived changed");
        delivery.ack(BasicAckOptions::default()).await.expect("ack");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redeclare_on_another_node_is_compared_with_what_is_there() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_one, declarer) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&declarer, "compared").await;
    let (_two, other) = open(&cluster.amqp_uri(2)).await;
    declare_quorum(&other, "compared").await;
    let refused = other.queue_declare("compared".into(), durable(), of_type("classic")).await;
    assert_eq!(code(&refused.expect_err("another type")), Some(406));
}
