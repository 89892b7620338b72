//! What a client held when it went goes back to its place in the queue, marked (CONN-32, CHN-05,
//! NDF-01, Q-30).

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, BasicGetOptions, BasicQosOptions, BasicRecoverOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection};
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, open, open_confirming, publish_confirmed,
};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::wire::{self, Wire};
use quorate_cluster_tests::harness::{Cluster, Options};

const QUEUE: &str = "requeue";
const MESSAGES: u32 = 20;
/// How many of them the client that goes has been shown.
const SHOWN: u32 = 10;

async fn filled() -> Cluster {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    for number in 0..MESSAGES {
        publish_confirmed(&channel, QUEUE, &number.to_be_bytes()).await;
    }
    cluster
}

/// A client on a node that holds the first messages.
async fn holder(cluster: &Cluster, node: u64) -> (Connection, Channel, Vec<Delivery>) {
    use futures::StreamExt;
    let (connection, channel) = open(&cluster.amqp_uri(node)).await;
    channel.basic_qos(SHOWN as u16, BasicQosOptions::default()).await.expect("qos-ok");
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume(QUEUE.into(), "".into(), options, FieldTable::default());
    let mut consumer = consumer.await.expect("consume-ok");
    let mut held = Vec::new();
    for number in 0..SHOWN {
        let delivery = in_time("a delivery", consumer.next()).await;
        let delivery = delivery.expect("the consumer goes on").expect("a delivery");
        assert_eq!(delivery.data, number.to_be_bytes());
        assert!(!delivery.redelivered);
        held.push(delivery);
    }
    (connection, channel, held)
}

/// Takes all messages through a node: in order, the shown ones marked.
async fn all_there_and_marked(cluster: &Cluster, node: u64) {
    eventually("all messages are ready again", || async {
        let [ready] = cluster.counts(node, QUEUE, ["messages_ready"]).await?;
        hold(ready == u64::from(MESSAGES), || format!("{ready} ready"))
    })
    .await;
    let (_connection, channel) = open(&cluster.amqp_uri(node)).await;
    for number in 0..MESSAGES {
        let got = channel.basic_get(QUEUE.into(), BasicGetOptions { no_ack: true }).await;
        let got = got.expect("get").unwrap_or_else(|| panic!("message {number} is there"));
        assert_eq!(got.delivery.data, number.to_be_bytes(), "out of place");
        assert_eq!(got.delivery.redelivered, number < SHOWN, "message {number}");
    }
    let got = channel.basic_get(QUEUE.into(), BasicGetOptions { no_ack: true }).await;
    assert!(got.expect("get").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_connection_is_closed() {
    let cluster = filled().await;
    let (connection, _channel, _held) = holder(&cluster, 2).await;
    connection.close(200, "done".into()).await.expect("close-ok");
    all_there_and_marked(&cluster, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_channel_is_closed() {
    let cluster = filled().await;
    let (_connection, channel, _held) = holder(&cluster, 3).await;
    channel.close(200, "done".into()).await.expect("close-ok");
    all_there_and_marked(&cluster, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_channel_died_from_its_own_error() {
    let cluster = filled().await;
    let (_connection, channel, _held) = holder(&cluster, 1).await;
    // ACK-04: an unknown tag.
    channel.basic_ack(1_000, <_>::default()).await.expect("sent");
    all_there_and_marked(&cluster, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_connection_is_lost() {
    let cluster = filled().await;
    for node in 1..=3 {
        let mut wire = Wire::open_channel(&cluster.node(node).amqp_address()).await;
        let qos = [&[0; 4][..], &(SHOWN as u16).to_be_bytes(), &[0]].concat();
        wire.method(1, 60, 10, &qos).await;
        wire.expect(1, 60, 11).await;
        wire.method(1, 60, 20, &wire::basic_consume(QUEUE, false)).await;
        wire.expect(1, 60, 21).await;
        for _ in 0..SHOWN {
            wire.expect(1, 60, 60).await;
            // The content: a header and one body frame.
            wire.next().await.expect("a header");
            wire.next().await.expect("a body");
        }
        // No close of any kind.
        drop(wire);
        eventually("all messages are ready again", || async {
            let [ready] = cluster.counts(node, QUEUE, ["messages_ready"]).await?;
            hold(ready == u64::from(MESSAGES), || format!("{ready} ready"))
        })
        .await;
    }
    all_there_and_marked(&cluster, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_clients_node_was_killed() {
    let cluster = filled().await;
    let home = cluster.others(cluster.leader_of(QUEUE).await)[0];
    let (_connection, _channel, _held) = holder(&cluster, home).await;
    cluster.node(home).kill9();
    let other = cluster.others(home)[0];
    all_there_and_marked(&cluster, other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_node_of_client_and_leader_was_killed() {
    let cluster = filled().await;
    let leader = cluster.leader_of(QUEUE).await;
    let (_connection, _channel, _held) = holder(&cluster, leader).await;
    cluster.node(leader).kill9();
    let other = cluster.others(leader)[0];
    all_there_and_marked(&cluster, other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_all_nodes_were_killed() {
    let cluster = filled().await;
    let (_connection, _channel, _held) = holder(&cluster, 2).await;
    cluster.nodes().iter().for_each(quorate_cluster_tests::harness::Node::kill9);
    cluster.nodes().iter().for_each(quorate_cluster_tests::harness::Node::spawn);
    cluster.ready().await;
    all_there_and_marked(&cluster, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recover_gives_all_of_a_channel_back() {
    let cluster = filled().await;
    let (_connection, channel) = open(&cluster.amqp_uri(2)).await;
    for number in 0..SHOWN {
        let got = channel.basic_get(QUEUE.into(), BasicGetOptions::default()).await;
        let got = got.expect("get").expect("a message");
        assert_eq!(got.delivery.data, number.to_be_bytes());
    }
    // ACK-09.
    let recovered = channel.basic_recover(BasicRecoverOptions { requeue: true }).await;
    recovered.expect("recover-ok");
    all_there_and_marked(&cluster, 3).await;
}
