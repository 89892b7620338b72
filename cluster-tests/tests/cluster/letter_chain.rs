//! Dead letters through a chain of three queues, while the leaders of its queues are killed and its
//! bindings change: each arrives exactly once.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use futures::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicPublishOptions, BasicQosOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    bind, connect_in_time, declare_exchange, declare_with, open, open_confirming, persistent, text,
    while_connected,
};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Node, Options, figure, scale};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Letters of one round, and nodes killed: one in each.
const ROUND: u64 = 800;
const CHAIN: [&str; 3] = ["chain-1", "chain-2", "chain-3"];
/// The exchanges between them.
const STEPS: [&str; 2] = ["step-1", "step-2"];
const KEY: &str = "chain.letter";

/// Declares the chain. A queue's letters wait where they have no route.
async fn build(channel: &Channel) {
    for (number, queue) in CHAIN.iter().enumerate() {
        let mut with = vec![("x-queue-type", text("quorum"))];
        if let Some(step) = STEPS.get(number) {
            declare_exchange(channel, step, ExchangeKind::Topic).await;
            with.extend([
                ("x-dead-letter-exchange", text(step)),
                ("x-dead-letter-routing-key", text(KEY)),
                ("x-dead-letter-strategy", text("at-least-once")),
                ("x-overflow", text("reject-publish")),
            ]);
        }
        declare_with(channel, queue, &with).await;
    }
    // Gets a copy of what dies while it is bound.
    declare_with(channel, "witness", &[("x-queue-type", text("quorum"))]).await;
    for (step, queue) in STEPS.iter().zip(&CHAIN[1..]) {
        bind(channel, queue, step, KEY).await;
    }
}

/// Other bindings of the same effect, none at all for a moment, a further target for a while.
async fn change_bindings(channel: &Channel, round: u64) {
    let unbind = async |queue: &str, step: &str, key: &str| {
        let (queue, step, key) = (queue.into(), step.into(), key.into());
        let unbound = channel.queue_unbind(queue, step, key, FieldTable::default());
        in_time("an unbind", unbound).await.expect("unbind-ok");
    };
    let (old, new) = if round.is_multiple_of(2) { (KEY, "#") } else { ("#", KEY) };
    // A second binding leads no second copy there.
    bind(channel, CHAIN[1], STEPS[0], new).await;
    unbind(CHAIN[1], STEPS[0], old).await;
    // Letters that find nothing wait.
    unbind(CHAIN[2], STEPS[1], old).await;
    bind(channel, CHAIN[2], STEPS[1], new).await;
    bind(channel, "witness", STEPS[0], "chain.*").await;
    unbind("witness", STEPS[0], "chain.*").await;
}

/// Rejects everything that comes into a queue, from any node that is there, until the task is dropped.
async fn reject_all(uris: Vec<String>, queue: &'static str) {
    for uri in uris.iter().cycle() {
        // A node that dies takes it with it; what it held comes again.
        let _ = reject_from(uri, queue).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn reject_from(uri: &str, queue: &str) -> lapin::Result<()> {
    let connection = connect_in_time(uri).await?;
    let consumer = async {
        let channel = connection.create_channel().await?;
        channel.basic_qos(500, BasicQosOptions::default()).await?;
        let options = BasicConsumeOptions::default();
        channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await
    };
    let mut consumer = while_connected(&connection, consumer).await?;
    while let Some(delivery) = consumer.next().await {
        let delivery = delivery?;
        let reject = BasicNackOptions { requeue: false, ..BasicNackOptions::default() };
        while_connected(&connection, delivery.nack(reject)).await?;
    }
    Ok(())
}

/// Who is killed next: in most rounds the leader of one of the queues, the one that has been killed
/// least; in every third the node that has been, whatever it leads.
async fn victim(cluster: &Cluster, round: u64, kills: &BTreeMap<u64, u32>) -> u64 {
    let mut candidates = Vec::new();
    if round % 3 == 2 {
        candidates.extend(cluster.nodes().iter().map(Node::id));
    } else {
        for queue in CHAIN {
            candidates.push(cluster.leader_of(queue).await);
        }
    }
    candidates.into_iter().min_by_key(|id| kills[id]).expect("candidates")
}

/// Publishes a round's letters through a node that lives on, kills another while they are on their way,
/// and changes bindings before it is back.
async fn round(cluster: &Cluster, victim: u64, round: u64, letters: std::ops::Range<u64>) {
    let home = cluster.others(victim)[0];
    let (connection, channel) = open_confirming(&cluster.amqp_uri(home)).await;
    let mut confirms = Vec::new();
    for number in letters {
        let (options, body) = (BasicPublishOptions::default(), number.to_be_bytes());
        let sent = channel.basic_publish("".into(), CHAIN[0].into(), options, &body, persistent());
        confirms.push(sent.await.expect("sent"));
    }
    cluster.node(victim).kill9();
    change_bindings(&channel, round).await;
    for confirm in confirms {
        let confirm = in_time("a confirm", confirm).await.expect("a confirm");
        assert!(confirm.is_ack(), "{confirm:?}");
    }
    cluster.node(victim).restart().await;
    connection.close(200, "done".into()).await.expect("close-ok");
}

/// Takes so many messages out of a queue: how often each body came.
async fn take(channel: &Channel, queue: &str, count: u64) -> BTreeMap<Vec<u8>, u32> {
    channel.basic_qos(500, BasicQosOptions::default()).await.expect("qos-ok");
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume(queue.into(), queue.into(), options, <_>::default());
    let mut consumer = consumer.await.expect("consume-ok");
    let mut seen = BTreeMap::new();
    for _ in 0..count {
        let delivery = in_time("a letter", consumer.next()).await;
        let delivery = delivery.expect("the consumer goes on").expect("a letter");
        delivery.ack(BasicAckOptions::default()).await.expect("ack");
        *seen.entry(delivery.data).or_default() += 1;
    }
    channel.basic_cancel(queue.into(), <_>::default()).await.expect("cancel-ok");
    seen
}

/// Waits until the queues of the chain hold so many; waiting letters and those under way count.
async fn hold_each(cluster: &Cluster, counts: [u64; 3]) {
    eventually("the chain comes to rest", || async {
        let mut found = [0; 3];
        for (found, queue) in found.iter_mut().zip(CHAIN) {
            [*found] = cluster.counts(1, queue, ["messages"]).await?;
        }
        hold(found == counts, || format!("{found:?}, not {counts:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn q_40_every_letter_of_a_chain_arrives_once_whatever_dies() {
    let cluster = Cluster::start(3, Options::alone()).await;
    let count = scale::LETTERS.get();
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    build(&channel).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    let uris: Vec<String> = cluster.nodes().iter().map(Node::amqp_uri).collect();
    let rejecting = CHAIN[..2].iter().map(|queue| tokio::spawn(reject_all(uris.clone(), queue)));
    let rejecting: Vec<_> = rejecting.collect();
    let begun = Instant::now();
    let mut kills: BTreeMap<u64, u32> = cluster.nodes().iter().map(|node| (node.id(), 0)).collect();
    // All three nodes die in six rounds at the latest.
    let rounds = (count / ROUND).max(6);
    for number in 0..rounds {
        let victim = victim(&cluster, number, &kills).await;
        let letters = number * count / rounds..(number + 1) * count / rounds;
        round(&cluster, victim, number, letters).await;
        *kills.entry(victim).or_default() += 1;
    }
    hold_each(&cluster, [0, 0, count]).await;
    let took = begun.elapsed();
    figure("letters through a chain of three, kills of each node", (count, &kills, took));
    assert_eq!(u64::from(kills.values().sum::<u32>()), rounds);
    assert!(kills.values().all(|times| *times > 0), "{kills:?}");
    rejecting.iter().for_each(tokio::task::JoinHandle::abort);
    let (_connection, channel) = open(&cluster.amqp_uri(2)).await;
    let seen = take(&channel, CHAIN[2], count).await;
    assert_eq!(seen.len() as u64, count, "letters were lost, and others doubled");
    // Nothing more was on its way.
    hold_each(&cluster, [0; 3]).await;
    let [witnessed] = cluster.counts(1, "witness", ["messages"]).await.expect("a count");
    let copies = take(&channel, "witness", witnessed).await;
    assert_eq!(copies.len() as u64, witnessed, "copies were doubled");
    assert_replicas_equal(&cluster).await;
    scale::held("a chain of three: letters that arrived once, nodes killed", (count, rounds));
}
