//! Prefetch is exact, whichever nodes the consumers and the queue's leader are on (QOS).

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions};
use lapin::{Channel, Connection, Consumer};
use quorate_cluster_tests::harness::amqp::{
    consume, declare_quorum, declare_with, open, open_confirming, persistent, publish_confirmed,
    text,
};
use quorate_cluster_tests::harness::wait::{HANGS, eventually, hold, in_time};
use quorate_cluster_tests::harness::wire::{self, Wire};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::time::Duration;

/// A consumer on a channel and a connection of its own.
struct Client {
    _connection: Connection,
    channel: Channel,
    consumer: Consumer,
}

async fn attach(cluster: &Cluster, node: u64, queue: &str, prefetch: u16) -> Client {
    let (connection, channel) = open(&cluster.amqp_uri(node)).await;
    channel.basic_qos(prefetch, BasicQosOptions::default()).await.expect("qos-ok");
    let consumer = consume(&channel, queue).await;
    Client { _connection: connection, channel, consumer }
}

async fn take(consumer: &mut Consumer, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    for _ in 0..count {
        let delivery = in_time("a delivery", consumer.next()).await;
        taken.push(delivery.expect("the consumer goes on").expect("a delivery"));
    }
    taken
}

/// A while in which a broker would send what it may not send.
const A_WHILE: Duration = Duration::from_millis(100);

/// Deliveries that nobody has taken yet, after a while.
async fn already_there(consumer: &mut Consumer) -> usize {
    let mut count = 0;
    while let Ok(Some(_)) = tokio::time::timeout(A_WHILE, consumer.next()).await {
        count += 1;
    }
    count
}

/// A client that takes everything as soon as it comes: what it has not acked is all that the broker
/// has sent beyond what it may have heard to be settled.
struct Eager {
    wire: Wire,
    limit: u64,
    received: u64,
    acked: u64,
}

impl Eager {
    async fn attach(
        cluster: &Cluster,
        node: u64,
        queues: &[&str],
        limit: u16,
        global: bool,
    ) -> Self {
        let mut wire = Wire::open_channel(&cluster.node(node).amqp_address()).await;
        let [high, low] = limit.to_be_bytes();
        wire.method(1, 60, 10, &[0, 0, 0, 0, high, low, u8::from(global)]).await;
        wire.expect(1, 60, 11).await;
        let mut client = Self { wire, limit: limit.into(), received: 0, acked: 0 };
        for queue in queues {
            client.wire.method(1, 60, 20, &wire::basic_consume(queue, false)).await;
            // Deliveries of the one before may come first.
            while client.next(HANGS).await.expect("consume-ok") != (60, 21) {}
        }
        client
    }

    /// The next method, if one comes within a while. A delivery must not be one too many.
    async fn next(&mut self, within: Duration) -> Option<(u16, u16)> {
        loop {
            let frame = self.wire.within(within).await?;
            if let Some(method) = frame.method() {
                if method == (60, 60) {
                    self.received += 1;
                    let held = self.received - self.acked;
                    assert!(held <= self.limit, "{held} of {} are held", self.limit);
                }
                return Some(method);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.received - self.acked == self.limit
    }

    /// Acks that many more, in one go.
    async fn ack(&mut self, more: u64) {
        self.acked += more;
        let arguments = [&self.acked.to_be_bytes()[..], &[1]].concat();
        self.wire.method(1, 60, 80, &arguments).await;
    }

    /// Takes until the limit, and a while more.
    async fn fill_up(&mut self) {
        while !self.is_full() {
            self.next(HANGS).await.expect("a delivery");
        }
        assert_eq!(self.next(A_WHILE).await, None, "at the limit");
    }
}

async fn fill(cluster: &Cluster, queue: &str, count: u32) {
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, queue).await;
    for number in 0..count {
        publish_confirmed(&channel, queue, &number.to_be_bytes()).await;
    }
}

async fn counts_are(cluster: &Cluster, queue: &str, ready: u64, unacked: u64) {
    let columns = ["messages_ready", "messages_unacknowledged"];
    eventually("the queue's counts", || async {
        let counts = cluster.counts(1, queue, columns).await?;
        hold(counts == [ready, unacked], || format!("{counts:?}, not {ready} and {unacked}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_consumer_gets_exactly_its_prefetch() {
    let cluster = Cluster::start(3, Options::default()).await;
    fill(&cluster, "exact", 100).await;
    let prefetches = [7, 1, 20];
    let mut clients = Vec::new();
    let mut held = Vec::new();
    for (node, prefetch) in (1..).zip(prefetches) {
        let mut client = attach(&cluster, node, "exact", prefetch).await;
        held.push(take(&mut client.consumer, usize::from(prefetch)).await);
        clients.push(client);
    }
    counts_are(&cluster, "exact", 72, 28).await;
    for (client, deliveries) in clients.iter_mut().zip(&held) {
        // QOS-09: a settled message frees its place, and only its place.
        deliveries[0].ack(BasicAckOptions::default()).await.expect("ack");
        take(&mut client.consumer, 1).await;
    }
    counts_are(&cluster, "exact", 69, 28).await;
    for (client, deliveries) in clients.iter_mut().zip(&held).filter(|(_, held)| held.len() > 1) {
        deliveries[deliveries.len() - 1]
            .ack(BasicAckOptions { multiple: true })
            .await
            .expect("ack");
        take(&mut client.consumer, deliveries.len() - 1).await;
    }
    counts_are(&cluster, "exact", 44, 28).await;
    for client in &mut clients {
        assert_eq!(already_there(&mut client.consumer).await, 0, "deliveries beyond the prefetch");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prefetch_is_never_exceeded_while_acks_flow() {
    const PREFETCH: u16 = 10;
    let cluster = Cluster::start(3, Options::default()).await;
    fill(&cluster, "flow", 1_500).await;
    let workers = (1..=3).map(|node| {
        let cluster = &cluster;
        async move {
            let mut client = Eager::attach(cluster, node, &["flow"], PREFETCH, false).await;
            // Acks of one, of some and of all, at the limit; then below it, where they and deliveries
            // cross.
            for more in [1, 3, 10].into_iter().cycle().take(30) {
                client.fill_up().await;
                client.ack(more).await;
            }
            while client.received < 400 {
                client.next(HANGS).await.expect("a delivery");
                if client.is_full() || client.received.is_multiple_of(3) {
                    client.ack(1).await;
                }
            }
            client.acked
        }
    });
    let acked: u64 = futures::future::join_all(workers).await.into_iter().sum();
    // What was held is back: the sockets are closed.
    counts_are(&cluster, "flow", 1_500 - acked, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_wide_limit_covers_consumers_of_queues_everywhere() {
    let cluster = Cluster::start(3, Options::default()).await;
    fill(&cluster, "left", 50).await;
    fill(&cluster, "right", 50).await;
    // QOS-06, Q-12: on quorum queues too.
    let mut client = Eager::attach(&cluster, 2, &["left", "right"], 9, true).await;
    for more in [1, 4, 9].into_iter().cycle().take(12) {
        client.fill_up().await;
        client.ack(more).await;
    }
    client.fill_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prefetch_survives_a_failover_of_the_queue() {
    let cluster = Cluster::start(3, Options::default()).await;
    fill(&cluster, "failover", 100).await;
    let leader = cluster.leader_of("failover").await;
    let home = cluster.others(leader)[0];
    let mut client = attach(&cluster, home, "failover", 15).await;
    let held = take(&mut client.consumer, 15).await;
    cluster.node(leader).kill9();
    assert_ne!(cluster.leader_of("failover").await, leader);
    cluster.node(leader).restart().await;
    counts_are(&cluster, "failover", 85, 15).await;
    assert_eq!(already_there(&mut client.consumer).await, 0, "deliveries beyond the prefetch");
    held[14].ack(BasicAckOptions { multiple: true }).await.expect("ack");
    let next = take(&mut client.consumer, 15).await;
    for (number, delivery) in (15_u32..).zip(&next) {
        assert_eq!(delivery.data, number.to_be_bytes());
        assert!(!delivery.redelivered);
    }
    counts_are(&cluster, "failover", 70, 15).await;
}

async fn fill_at_once(cluster: &Cluster, queue: &str, queue_type: &str, count: u32) {
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_with(&channel, queue, &[("x-queue-type", text(queue_type))]).await;
    let mut confirms = Vec::new();
    for number in 0..count {
        let options = BasicPublishOptions::default();
        let body = number.to_be_bytes();
        let sent = channel.basic_publish("".into(), queue.into(), options, &body, persistent());
        confirms.push(sent.await.expect("sent"));
    }
    for confirm in confirms {
        in_time("a confirm", confirm).await.expect("a confirm");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn qos_04_without_a_prefetch_a_quorum_queues_consumer_holds_2000() {
    let cluster = Cluster::start(3, Options::default()).await;
    for queue_type in ["quorum", "classic"] {
        fill_at_once(&cluster, queue_type, queue_type, 2_100).await;
    }
    let mut capped = attach(&cluster, 2, "quorum", 0).await;
    counts_are(&cluster, "quorum", 100, 2_000).await;
    let held = take(&mut capped.consumer, 2_000).await;
    assert_eq!(held[1_999].data, 1_999_u32.to_be_bytes());
    let ack = BasicAckOptions { multiple: true };
    capped.channel.basic_ack(held[29].delivery_tag, ack).await.expect("sent");
    counts_are(&cluster, "quorum", 70, 2_000).await;
    assert_eq!(take(&mut capped.consumer, 30).await[0].data, 2_000_u32.to_be_bytes());
    // PRC-04: who does not acknowledge is never full; nor is a classic queue's consumer.
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let other = capped.channel.basic_consume("quorum".into(), "n".into(), options, <_>::default());
    take(&mut other.await.expect("consume-ok"), 70).await;
    let _all = attach(&cluster, 3, "classic", 0).await;
    counts_are(&cluster, "classic", 0, 2_100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qos_08_basic_qos_is_always_taken() {
    let cluster = Cluster::start(1, Options::default()).await;
    fill(&cluster, "qos", 3).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    let set_all = async || {
        for (prefetch, global) in [(1, false), (0, false), (u16::MAX, false), (5, true), (0, true)]
        {
            let set = channel.basic_qos(prefetch, BasicQosOptions { global });
            let set = in_time("qos-ok", set).await;
            set.unwrap_or_else(|error| panic!("{prefetch}, global={global}: {error}"));
        }
    };
    set_all().await;
    let mut consumer = consume(&channel, "qos").await;
    let held = take(&mut consumer, 3).await;
    set_all().await;
    held[2].ack(BasicAckOptions { multiple: true }).await.expect("sent");
    counts_are(&cluster, "qos", 0, 0).await;
}
