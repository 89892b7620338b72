//! A queue's leader goes, by a crash, a clean stop or a freeze, while clients on the other nodes
//! publish and consume: they notice a pause and nothing else (DUR-01 to DUR-08).

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use quorate_cluster_tests::harness::amqp::{declare_quorum, open};
use quorate_cluster_tests::harness::{Cluster, Node, Options, figure, scale};
use quorate_cluster_tests::history::{ConsumerOptions, Homes, Load, Mix, PublisherOptions};
use std::time::Duration;

const QUEUE: &str = "failover";

/// A cluster, its queue's leader, and load on the two other nodes.
async fn under_load() -> (Cluster, u64, Load) {
    under_load_with(Options::alone()).await
}

async fn under_load_with(options: Options) -> (Cluster, u64, Load) {
    let cluster = Cluster::start(3, options).await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    let mix = Mix::declare(&cluster).await;
    let leader = cluster.leader_of(QUEUE).await;
    let others = cluster.others(leader);
    let load = Load::on(QUEUE)
        .publish(PublisherOptions::new(cluster.amqp_uri(others[0]), QUEUE))
        .publish(PublisherOptions::new(cluster.amqp_uri(others[1]), QUEUE))
        .consume(ConsumerOptions::new(cluster.amqp_uri(others[1]), QUEUE))
        .consume(ConsumerOptions {
            returns_every: 10,
            ..ConsumerOptions::new(cluster.amqp_uri(others[0]), QUEUE)
        });
    let uris = others.iter().map(|id| cluster.amqp_uri(*id)).collect();
    let load = mix.load(load, &Homes::new(uris, false));
    load.delivers(2_000).await;
    (cluster, leader, load)
}

/// Waits until the load flows again; tells how long it did not since `from`.
async fn flows_again(load: &Load, from: Duration, bound: scale::Bound<Duration>) {
    load.confirms(2_000).await;
    load.delivers(2_000).await;
    let [confirms, deliveries] = load.longest_gaps(from);
    bound.upto("longest time without a confirm", confirms);
    bound.upto("longest time without a delivery", deliveries);
}

/// DUR-01, DUR-03 to DUR-08, ACK-08: nothing is lost, doubled or out of order, and what was settled stays so.
/// NDF-06: that the node comes back is not seen either.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_costs_a_pause_and_nothing_else() {
    let (cluster, leader, load) = under_load().await;
    let from = load.history().now();
    cluster.node(leader).kill9();
    flows_again(&load, from, scale::LEADER_KILLED).await;
    assert_ne!(cluster.leader_of(QUEUE).await, leader, "a dead node leads");
    cluster.node(leader).restart().await;
    load.delivers(500).await;
    let summary = load.finish(&cluster).await;
    figure("leader killed", summary);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_asked_to_stop_hands_over_first() {
    let (cluster, leader, load) = under_load().await;
    let from = load.history().now();
    let (status, took) = cluster.node(leader).sigterm().await;
    assert!(status.success(), "{status}");
    figure("leader stopped: time to exit", took);
    flows_again(&load, from, scale::LEADER_STOPPED).await;
    cluster.node(leader).restart().await;
    load.delivers(500).await;
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_leader_is_replaced_and_comes_back_harmless() {
    let (cluster, leader, load) = under_load().await;
    let from = load.history().now();
    cluster.node(leader).pause();
    flows_again(&load, from, scale::LEADER_FROZEN).await;
    cluster.node(leader).resume();
    load.delivers(2_000).await;
    load.finish(&cluster).await;
}

/// The others agree on a successor as soon as the lease of a silent leader has run out. Random timeouts would
/// take at least twice as long as the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_leader_is_replaced_right_after_its_lease() {
    // Longer than others take to notice, and shorter than the time after which a silent link is closed (4 s).
    let options = Options::alone();
    let options = options.with("--election-min-ms", "2999").with("--election-max-ms", "3000");
    let (cluster, leader, load) = under_load_with(options).await;
    let from = load.history().now();
    cluster.node(leader).pause();
    load.confirms(2_000).await;
    let [confirms, _] = load.longest_gaps(from);
    scale::LEASE_ENDED.upto("without confirms", confirms);
    cluster.node(leader).resume();
    load.finish(&cluster).await;
}

/// A paused machine under all nodes: everything runs out at once, leases among it (NAM 5).
#[tokio::test(flavor = "multi_thread")]
async fn nam_05_a_pause_of_all_nodes_ends_with_it() {
    let (cluster, _, load) = under_load().await;
    for _ in 0..4 {
        let from = load.history().now();
        cluster.nodes().iter().for_each(Node::pause);
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        cluster.nodes().iter().for_each(Node::resume);
        flows_again(&load, from, scale::ALL_PAUSED).await;
    }
    load.finish(&cluster).await;
}
