//! The delivery limit (DLM, Q-31) and the headers that count.

#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

use lapin::Channel;
use lapin::message::BasicGetMessage;
use lapin::options::{BasicGetOptions, BasicNackOptions, BasicRejectOptions};
use lapin::types::AMQPValue;
use quorate_cluster_tests::harness::amqp::{
    declare_with, int, open, open_confirming, publish_confirmed, text,
};
use quorate_cluster_tests::harness::wait::{eventually, in_time};
use quorate_cluster_tests::harness::{Cluster, Node, Options};

/// The message, once it is back.
async fn got(channel: &Channel, queue: &str) -> BasicGetMessage {
    eventually("the message", || async {
        let get = channel.basic_get(queue.into(), BasicGetOptions::default());
        in_time("get", get).await.expect("get").ok_or("nothing is ready".to_owned())
    })
    .await
}

/// (acquired, returned) as the headers say.
fn counts(message: &BasicGetMessage) -> (Option<i64>, Option<i64>) {
    let headers = message.delivery.properties.headers();
    let count = |name: &str| {
        let value = headers.as_ref()?.inner().get(name)?;
        let AMQPValue::LongLongInt(count) = value else { panic!("{name}: {value:?}") };
        Some(*count)
    };
    (count("x-acquired-count"), count("x-delivery-count"))
}

async fn nack(channel: &Channel, message: &BasicGetMessage) {
    let requeue = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
    channel.basic_nack(message.delivery.delivery_tag, requeue).await.expect("sent");
}

async fn reject(channel: &Channel, message: &BasicGetMessage) {
    let requeue = BasicRejectOptions { requeue: true };
    channel.basic_reject(message.delivery.delivery_tag, requeue).await.expect("sent");
}

async fn is_gone(channel: &Channel, queue: &str) {
    // Commands of one channel are carried out in their order.
    let get = channel.basic_get(queue.into(), BasicGetOptions { no_ack: true });
    assert!(in_time("get", get).await.expect("get").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn dlm_04_a_limit_of_two_allows_three_deliveries() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    // on a classic queue too.
    for queue_type in ["classic", "quorum"] {
        let queue = format!("limit-{queue_type}");
        let with = [("x-queue-type", text(queue_type)), ("x-delivery-limit", int(2))];
        declare_with(&channel, &queue, &with).await;
        publish_confirmed(&channel, &queue, b"1").await;
        // nack and reject count; Q-32: both headers, absent at 0.
        let message = got(&channel, &queue).await;
        assert_eq!(counts(&message), (None, None));
        nack(&channel, &message).await;
        let message = got(&channel, &queue).await;
        assert_eq!(counts(&message), (Some(1), Some(1)));
        assert!(message.delivery.redelivered);
        reject(&channel, &message).await;
        let message = got(&channel, &queue).await;
        assert_eq!(counts(&message), (Some(2), Some(2)));
        nack(&channel, &message).await;
        is_gone(&channel, &queue).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q_31_with_mode_failures_a_nack_is_free_and_counts_survive_a_failover() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let with = [
        ("x-queue-type", text("quorum")),
        ("x-delivery-limit", int(1)),
        ("x-delivery-count-mode", text("failures")),
    ];
    declare_with(&channel, "failures", &with).await;
    publish_confirmed(&channel, "failures", b"1").await;
    let leader = cluster.leader_of("failures").await;
    let others = cluster.others(leader);
    let other = others.first().copied().expect("another node");
    let (_connection, channel) = open(&cluster.amqp_uri(other)).await;
    for count in 1..=3 {
        let message = got(&channel, "failures").await;
        nack(&channel, &message).await;
        let again = got(&channel, "failures").await;
        assert_eq!(counts(&again), (Some(count * 2 - 1), None));
        nack(&channel, &again).await;
    }
    let message = got(&channel, "failures").await;
    reject(&channel, &message).await;
    let message = got(&channel, "failures").await;
    assert_eq!(counts(&message), (Some(7), Some(1)));
    nack(&channel, &message).await;
    let message = got(&channel, "failures").await;
    assert_eq!(counts(&message), (Some(8), Some(1)));
    nack(&channel, &message).await;
    // DUR-09: a get waits for the next leader.
    cluster.node(leader).kill9();
    let message = got(&channel, "failures").await;
    assert_eq!(counts(&message), (Some(9), Some(1)));
    reject(&channel, &message).await;
    is_gone(&channel, "failures").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn q_10_a_classic_queue_without_a_limit_counts_nothing() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_with(&channel, "none", &[]).await;
    publish_confirmed(&channel, "none", b"1").await;
    // DLM-08, CON-23: more often than a quorum queue's 20.
    for _ in 0..25 {
        let message = got(&channel, "none").await;
        assert_eq!(counts(&message), (None, None));
        nack(&channel, &message).await;
    }
    // DLM-01: 20 is a quorum queue's default, a negative limit is none.
    for (queue, limit) in [("twenty", None), ("endless", Some(-1))] {
        let mut with = vec![("x-queue-type", text("quorum"))];
        with.extend(limit.map(|limit| ("x-delivery-limit", int(limit))));
        declare_with(&channel, queue, &with).await;
        publish_confirmed(&channel, queue, b"1").await;
        for _ in 0..=20 {
            let message = got(&channel, queue).await;
            nack(&channel, &message).await;
        }
    }
    is_gone(&channel, "twenty").await;
    let message = got(&channel, "endless").await;
    assert_eq!(counts(&message), (Some(21), Some(21)));
}

#[tokio::test(flavor = "multi_thread")]
async fn con_24_counts_and_marks_are_exact_after_all_nodes_were_killed() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_with(&channel, "counted", &[("x-queue-type", text("quorum"))]).await;
    for body in [b"1", b"2"] {
        publish_confirmed(&channel, "counted", body).await;
    }
    for times in 0..6 {
        let message = got(&channel, "counted").await;
        let counted = Some(times).filter(|times| *times > 0);
        assert_eq!(counts(&message), (counted, counted));
        nack(&channel, &message).await;
    }
    // It is held when all die: one more return.
    got(&channel, "counted").await;
    cluster.nodes().iter().for_each(Node::kill9);
    cluster.nodes().iter().for_each(Node::spawn);
    cluster.ready().await;
    let (_connection, channel) = open(&cluster.amqp_uri(2)).await;
    let first = got(&channel, "counted").await;
    assert_eq!((first.delivery.redelivered, counts(&first)), (true, (Some(7), Some(7))));
    let second = got(&channel, "counted").await;
    assert_eq!(second.delivery.data, b"2");
    assert_eq!((second.delivery.redelivered, counts(&second)), (false, (None, None)));
}
