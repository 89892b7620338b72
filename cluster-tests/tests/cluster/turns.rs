//! A limit of a whole channel's unsettled deliveries: each of its queues and consumers gets its turn, and
//! what does not fit goes to others (QOS-06, Q-12, Q-36).

#![expect(clippy::expect_used, reason = "tests")]

use futures::StreamExt;
use futures::stream::select_all;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::{Channel, Consumer};
use quorate_cluster_tests::harness::amqp::{
    consume, declare_quorum, open, open_confirming, publish_confirmed,
};
use quorate_cluster_tests::harness::wait::in_time;
use quorate_cluster_tests::harness::{Cluster, Options};
use std::collections::BTreeMap;
use std::time::Duration;

async fn limit(channel: &Channel, deliveries: u16) {
    let options = BasicQosOptions { global: true };
    channel.basic_qos(deliveries, options).await.expect("qos-ok");
}

async fn fill(cluster: &Cluster, node: u64, queue: &str, count: u8) {
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(node)).await;
    declare_quorum(&channel, queue).await;
    for number in 0..count {
        publish_confirmed(&channel, queue, &[number]).await;
    }
}

async fn next(consumer: &mut (impl StreamExt<Item = lapin::Result<Delivery>> + Unpin)) -> Delivery {
    let delivery = in_time("a delivery", consumer.next()).await;
    delivery.expect("it goes on").expect("a delivery")
}

/// How many of so many deliveries, each settled before the next, each of the consumers gets.
async fn shares(consumers: Vec<Consumer>, count: u8) -> BTreeMap<usize, u8> {
    let numbered = consumers.into_iter().enumerate();
    let mut all = select_all(numbered.map(|(number, consumer)| {
        consumer.map(move |delivery| (number, delivery.expect("a delivery"))).boxed()
    }));
    let mut shares = BTreeMap::new();
    for _ in 0..count {
        let delivery = in_time("a delivery", all.next()).await;
        let (number, delivery) = delivery.expect("they go on");
        *shares.entry(number).or_default() += 1;
        delivery.ack(BasicAckOptions::default()).await.expect("sent");
    }
    shares
}

#[tokio::test(flavor = "multi_thread")]
async fn qos_06_each_queue_of_a_limited_channel_gets_its_turn() {
    let cluster = Cluster::start(3, Options::default()).await;
    for deliveries in [1, 3] {
        let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
        limit(&channel, deliveries).await;
        let mut consumers = Vec::new();
        for node in 1..=3 {
            // Each with a leader of its own, one of them the clients' node.
            let queue = format!("turn-{deliveries}-{node}");
            fill(&cluster, node, &queue, 60).await;
            consumers.push(consume(&channel, &queue).await);
        }
        let shares = shares(consumers, 60).await;
        let least = shares.values().min().copied();
        assert!(shares.len() == 3 && least >= Some(10), "limit {deliveries}: {shares:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn qos_06_each_consumer_of_a_limited_channel_gets_its_turn() {
    let cluster = Cluster::start(3, Options::default()).await;
    fill(&cluster, 2, "shared", 120).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    limit(&channel, 1).await;
    let consumers = [consume(&channel, "shared").await, consume(&channel, "shared").await];
    let shares = shares(consumers.into(), 60).await;
    let least = shares.values().min().copied();
    assert!(shares.len() == 2 && least >= Some(15), "{shares:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn q_36_what_a_full_channel_cannot_take_goes_to_others_and_waits_for_nobody() {
    let cluster = Cluster::start(3, Options::default()).await;
    fill(&cluster, 1, "first", 2).await;
    fill(&cluster, 2, "second", 5).await;
    fill(&cluster, 3, "third", 5).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    limit(&channel, 1).await;
    let mut first = consume(&channel, "first").await;
    let held = next(&mut first).await;
    let mut second = consume(&channel, "second").await;
    let no_ack = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let third = channel.basic_consume("third".into(), "".into(), no_ack, <_>::default());
    let mut third = third.await.expect("consume-ok");
    // Who does not acknowledge gets nothing either while the channel is at its limit.
    for consumer in [&mut first, &mut second, &mut third] {
        let none = tokio::time::timeout(Duration::from_millis(500), consumer.next()).await;
        assert!(none.is_err(), "{none:?}");
    }
    let (_other, other) = open(&cluster.amqp_uri(2)).await;
    let mut others = consume(&other, "second").await;
    for number in 0..5 {
        assert_eq!(next(&mut others).await.data, [number], "in order, none stuck");
    }
    // Room: for all that need none, and for one of those that do.
    held.ack(BasicAckOptions::default()).await.expect("sent");
    for number in 0..5 {
        assert_eq!(next(&mut third).await.data, [number]);
    }
    assert_eq!(next(&mut first).await.data, [1]);
}
