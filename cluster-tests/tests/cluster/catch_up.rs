//! A follower that was away for longer than the log is kept comes back by snapshot, while traffic
//! flows, and is then as good as the others (STO 6).

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use crate::members::{at_rest_on, has_members};
use lapin::Channel;
use lapin::options::BasicPublishOptions;
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, get, open, open_confirming, persistent,
};
use quorate_cluster_tests::harness::members::Members;
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, GROUPS, Options, figure};
use quorate_cluster_tests::history::{ConsumerOptions, Homes, Load, Mix, PublisherOptions};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use std::time::Instant;

const QUEUE: &str = "catch-up";
/// Filled before and while the follower is away, taken out at the end: what a snapshot carries.
const BACKLOG: &str = "backlog";
const BODY_BYTES: usize = 16 << 10;

/// As little log as can be, so that a few seconds of load purge what a follower needs.
fn purging() -> Options {
    Options::default().with("--log-tail-bytes", "0")
}

/// Snapshots that these nodes have begun to send since they were first started, as their logs say.
fn offered_by(cluster: &Cluster, nodes: &[u64]) -> usize {
    let logs = nodes.iter().map(|id| cluster.node(*id).log());
    logs.map(|log| log.matches("sending a snapshot").count()).sum()
}

async fn fill(channel: &Channel, count: u32) {
    let mut confirms = Vec::new();
    for number in 0..count {
        let mut body = vec![7; BODY_BYTES];
        body[..4].copy_from_slice(&number.to_be_bytes());
        let options = BasicPublishOptions::default();
        let sent = channel.basic_publish("".into(), BACKLOG.into(), options, &body, persistent());
        confirms.push(sent.await.expect("sent"));
    }
    for confirm in confirms {
        assert!(confirm.await.expect("a confirm").is_ack());
    }
}

async fn take_all(channel: &Channel, count: u32) {
    for number in 0..count {
        let body = get(channel, BACKLOG).await;
        let body = body.unwrap_or_else(|| panic!("{number} of {count} messages are left"));
        assert_eq!(body.first_chunk(), Some(&number.to_be_bytes()), "out of order");
        assert_eq!(body.len(), BODY_BYTES);
        assert!(body.iter().skip(4).all(|byte| *byte == 7), "message {number} is damaged");
    }
    assert_eq!(get(channel, BACKLOG).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_comes_back_after_the_log_was_purged() {
    let cluster = Cluster::start(3, purging()).await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    declare_quorum(&channel, BACKLOG).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    let mix = Mix::declare(&cluster).await;
    let absent = cluster.others(cluster.leader_of(QUEUE).await)[1];
    let present = cluster.others(absent);
    let load = Load::on(QUEUE)
        .publish(PublisherOptions::new(cluster.amqp_uri(present[0]), QUEUE))
        .consume(ConsumerOptions::new(cluster.amqp_uri(present[1]), QUEUE));
    let uris = present.iter().map(|id| cluster.amqp_uri(*id)).collect();
    let load = mix.load(load, &Homes::new(uris, false));
    load.delivers(500).await;
    cluster.node(absent).kill9();
    for id in &present {
        eventually(&format!("node {id} notices"), || async {
            let members = Members::by(&cluster, *id).await?;
            hold(!members.runs(absent), || format!("{members:?}"))
        })
        .await;
    }
    let before = offered_by(&cluster, &present);
    let (_filling, filler) = open_confirming(&cluster.amqp_uri(present[0])).await;
    fill(&filler, 500).await;
    load.delivers(6_000).await;
    // At most one for each group, that was on its way when it was noticed that the node is dead.
    let while_away = offered_by(&cluster, &present) - before;
    assert!(
        while_away as f64 <= GROUPS,
        "{while_away} snapshots were read for a node that was away"
    );
    cluster.node(absent).restart().await;
    load.delivers(1_000).await;
    figure("came back by snapshot", load.finish(&cluster).await);
    let installed = cluster.node(absent).metrics().await.sum("quorate_snapshots_installed_total");
    assert!(installed >= Some(1.0), "the log it needed was still there: {installed:?} snapshots");
    // With another node gone, nothing is decided without the one that was away.
    cluster.node(present[0]).kill9();
    let (_taking, taker) = open(&cluster.amqp_uri(absent)).await;
    take_all(&taker, 500).await;
}

/// Until a group has moved, it has a replica that was lost with the disk, on a node that is connected and
/// refuses what is sent to that replica (MEM 10).
#[tokio::test(flavor = "multi_thread")]
async fn mem_10_a_replaced_node_is_offered_few_snapshots_for_the_replicas_that_it_has_lost() {
    let cluster = Cluster::start(3, purging()).await;
    has_members(&cluster).await;
    cluster.leaders_rest().await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    let mix = Mix::declare(&cluster).await;
    let load = Load::on(QUEUE)
        .publish(PublisherOptions::new(cluster.amqp_uri(1), QUEUE))
        .consume(ConsumerOptions::new(cluster.amqp_uri(2), QUEUE));
    let uris = [1, 2].map(|id| cluster.amqp_uri(id)).to_vec();
    let load = mix.load(load, &Homes::new(uris, false));
    let node = cluster.node(3);
    node.kill9();
    std::fs::remove_dir_all(node.data_dir()).expect("the data directory");
    load.delivers(6_000).await;
    let (before, begun) = (offered_by(&cluster, &[1, 2]), Instant::now());
    node.spawn();
    eventually("node 3 is replaced", || async {
        cluster.ctl(1, &["replace_cluster_node", "3"]).await.succeeded().map(|_| ())
    })
    .await;
    at_rest_on(&cluster, &[1, 2, 3]).await;
    let (offered, took) = (offered_by(&cluster, &[1, 2]) - before, begun.elapsed());
    figure("a replaced node was offered snapshots", (offered, took));
    // Six within the first three seconds, then one every two seconds; and those that it takes.
    let bound = GROUPS * (10.0 + took.as_secs_f64() / 2.0);
    assert!((offered as f64) < bound, "{offered} snapshots were read in {took:?}");
    load.delivers(1_000).await;
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_dies_while_it_catches_up_still_gets_there() {
    let cluster = Cluster::start(3, purging()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, BACKLOG).await;
    cluster.node(3).kill9();
    fill(&channel, 2_000).await;
    for _ in 0..3 {
        let started = Instant::now();
        cluster.node(3).spawn();
        // As soon as it answers at all it is in the middle of something.
        let live = || async { cluster.node(3).get("/health/live").await };
        eventually("the follower answers", live).await;
        cluster.node(3).kill9();
        figure("killed while catching up, after", started.elapsed());
    }
    cluster.node(3).restart().await;
    assert_replicas_equal(&cluster).await;
    cluster.node(2).kill9();
    let (_taking, taker) = open(&cluster.amqp_uri(3)).await;
    take_all(&taker, 2_000).await;
}

/// Sum of the indexes of a node's groups.
async fn indexes(cluster: &Cluster, node: u64, of: &str) -> f64 {
    let sum = cluster.node(node).metrics().await.sum(&format!("quorate_group_{of}_index"));
    sum.expect("a gauge of the groups")
}

/// A rolling restart stops the next node when this one is ready: with a majority that has to catch up
/// first, nothing would be confirmed meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn mem_13_a_node_is_ready_when_its_replicas_have_caught_up() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, BACKLOG).await;
    cluster.node(3).kill9();
    for _ in 0..16 {
        fill(&channel, 500).await;
    }
    let committed = indexes(&cluster, cluster.leader_of(BACKLOG).await, "applied").await;
    let begun = Instant::now();
    cluster.node(3).restart().await;
    let applied = indexes(&cluster, 3, "applied").await;
    assert!(applied >= committed, "ready at {applied} of {committed}");
    figure("ready with 125 MiB to catch up", format_args!("after {:.1?}", begun.elapsed()));
}
