//! Exclusive queues live on their connection's node, in memory up to a budget (DESIGN §2 and §6).

#![expect(clippy::expect_used, reason = "tests")]

use crate::members::has_members;
use lapin::options::{BasicGetOptions, BasicPublishOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Connection, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    bind, declare_exchange, declare_quorum, declare_with, exclusive, get, int, open,
    open_confirming, persistent, publish_confirmed, text,
};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Options, figure};

#[tokio::test(flavor = "multi_thread")]
async fn bodies_beyond_the_budget_are_on_disk_and_come_back_in_order() {
    const MESSAGES: u32 = 8_192;
    const BODY_BYTES: usize = 16 << 10;
    let args = ["--exclusive-memory-bytes".to_owned(), "1MiB".to_owned()];
    let cluster = Cluster::start(1, Options { args: args.into(), ..Options::default() }).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let queue = channel.queue_declare("".into(), exclusive(), FieldTable::default()).await;
    let queue = queue.expect("declare-ok").name().clone();
    let before = cluster.node(1).rss_bytes();
    for first in (0..MESSAGES).step_by(256) {
        let mut confirms = Vec::new();
        for number in first..first + 256 {
            let body: Vec<u8> = number.to_be_bytes().repeat(BODY_BYTES / 4);
            let properties = persistent();
            let sent =
                channel.basic_publish("".into(), queue.clone(), <_>::default(), &body, properties);
            confirms.push(sent.await.expect("sent"));
        }
        for confirm in confirms {
            assert!(confirm.await.expect("a confirm").is_ack());
        }
    }
    let grown = cluster.node(1).rss_bytes().saturating_sub(before);
    figure("128 MiB in an exclusive queue: memory grew by, MiB", grown >> 20);
    assert!(grown < 64 << 20, "memory grew by {grown} bytes");
    for number in 0..MESSAGES {
        let got = channel.basic_get(queue.clone(), BasicGetOptions { no_ack: true }).await;
        let got = got.expect("get").expect("a message");
        let body = &got.delivery.data;
        assert_eq!(*body, number.to_be_bytes().repeat(BODY_BYTES / 4), "message {number}");
    }
}

/// A queue that lasts as long as its connection.
async fn reply_queue(uri: &str) -> (Connection, Channel, ShortString) {
    let (connection, channel) = open(uri).await;
    let declared = channel.queue_declare("".into(), exclusive(), FieldTable::default()).await;
    let name = declared.expect("declare-ok").name().clone();
    (connection, channel, name)
}

/// NAM 8, SES 3: what other nodes publish reaches the queues of a node's later processes too.
#[tokio::test(flavor = "multi_thread")]
async fn nam_8_publishes_of_other_nodes_reach_the_queues_of_a_node_that_has_started_again() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(1)).await;
    for start in 1..=3 {
        let (_connection, channel, queue) = reply_queue(&cluster.amqp_uri(2)).await;
        for _ in 0..3 {
            publish_confirmed(&publisher, queue.as_str(), b"reply").await;
            assert!(get(&channel, queue.as_str()).await.is_some(), "start {start}");
        }
        cluster.node(2).kill9();
        cluster.node(2).restart().await;
    }
}

/// NAM 8: the queues of a dead process have ended, whether or not its node ever starts again.
#[tokio::test(flavor = "multi_thread")]
async fn nam_8_what_was_under_way_to_a_process_that_died_is_returned() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(1)).await;
    let (_connection, _channel, queue) = reply_queue(&cluster.amqp_uri(2)).await;
    publish_confirmed(&publisher, queue.as_str(), b"reply").await;
    cluster.node(2).pause();
    let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let sent = publisher.basic_publish("".into(), queue, mandatory, b"late", persistent()).await;
    let sent = sent.expect("sent");
    cluster.node(2).kill9();
    let confirm = in_time("a confirm", sent).await.expect("a confirm");
    assert!(confirm.take_message().is_some(), "returned, since its queue has ended");
}

/// NAM 8, MEM 3: the queues of a node that has joined get what the others publish, and the other way round.
#[tokio::test(flavor = "multi_thread")]
async fn nam_8_a_node_that_has_joined_has_queues_that_the_others_know() {
    let cluster = Cluster::start(3, Options { guests: 1, ..Options::default() }).await;
    has_members(&cluster).await;
    cluster.node(4).spawn();
    cluster.node(4).ready().await;
    for (here, there) in [(4, 1), (1, 4)] {
        let (_connection, channel, queue) = reply_queue(&cluster.amqp_uri(here)).await;
        let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(there)).await;
        publish_confirmed(&publisher, queue.as_str(), b"reply").await;
        let got = get(&channel, queue.as_str()).await;
        assert!(got.is_some(), "a queue of node {here}, published to on node {there}");
    }
}

/// LET 4: the end of such a queue changes no catalog. A dead letter for it does not wait for a change, and the
/// letters behind it go on.
#[tokio::test(flavor = "multi_thread")]
async fn let_4_a_dead_letter_for_an_ended_queue_without_an_entry_keeps_no_other_waiting() {
    let cluster = Cluster::start(3, Options::default()).await;
    has_members(&cluster).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "target").await;
    let dying = [
        ("x-queue-type", text("quorum")),
        ("x-dead-letter-exchange", text("")),
        ("x-message-ttl", int(1)),
    ];
    declare_with(&channel, "dying", &dying).await;
    declare_exchange(&channel, "all", ExchangeKind::Fanout).await;
    bind(&channel, "dying", "all", "").await;
    let (replying, _channel, ended) = reply_queue(&cluster.amqp_uri(2)).await;
    replying.close(200, "ended".into()).await.expect("close-ok");
    // The keys are those of the dead letters too.
    for key in [ended.as_str(), "target"] {
        let publish = channel.basic_publish(
            "all".into(),
            key.into(),
            <_>::default(),
            b"letter",
            persistent(),
        );
        assert!(publish.await.expect("sent").await.expect("a confirm").is_ack());
    }
    eventually("the second letter arrives", || async {
        hold(get(&channel, "target").await.is_some(), || "nothing".to_owned())
    })
    .await;
}
