//! Clients lose their nodes and come back on others, while nodes restart one by one, all at once, or
//! die in turn: nothing confirmed is lost, nothing comes twice unmarked (DUR-01, DUR-06, NDF-01).

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::{declare_quorum, open};
use quorate_cluster_tests::harness::{Cluster, Node, Options, figure};
use quorate_cluster_tests::history::{ConsumerOptions, Homes, Load, Mix, PublisherOptions};

const QUEUE: &str = "reconnect";

/// A cluster, and two publishers and two consumers that go from node to node.
async fn under_load() -> (Cluster, Load) {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    let mix = Mix::declare(&cluster).await;
    let uris = |first: usize| -> Vec<String> {
        let all = cluster.nodes().iter().map(Node::amqp_uri);
        all.cycle().skip(first).take(3).collect()
    };
    let publisher = |first| PublisherOptions {
        uris: uris(first),
        per_second: 1_000,
        reconnects: true,
        ..PublisherOptions::new(String::new(), QUEUE)
    };
    let consumer = |first| ConsumerOptions {
        uris: uris(first),
        reconnects: true,
        ..ConsumerOptions::new(String::new(), QUEUE)
    };
    let load = Load::on(QUEUE)
        .publish(publisher(0))
        .publish(publisher(1))
        .consume(consumer(1))
        .consume(consumer(2));
    let load = mix.load(load, &Homes::new(uris(0), true));
    load.delivers(1_000).await;
    (cluster, load)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_restarted_one_by_one_under_load() {
    let (cluster, load) = under_load().await;
    for node in cluster.nodes() {
        let (status, _) = node.sigterm().await;
        assert!(status.success(), "node {}: {status}", node.id());
        load.confirms(200).await;
        node.restart().await;
        load.delivers(500).await;
    }
    figure("restarted one by one", load.finish(&cluster).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_killed_at_once_under_load() {
    let (cluster, load) = under_load().await;
    for _ in 0..2 {
        cluster.nodes().iter().for_each(Node::kill9);
        cluster.nodes().iter().for_each(Node::spawn);
        cluster.ready().await;
        load.confirms(500).await;
        load.delivers(500).await;
    }
    figure("killed at once", load.finish(&cluster).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_stopped_cleanly_and_started_again_under_load() {
    let (cluster, load) = under_load().await;
    // At once, so that the last ones have nobody to hand over to.
    let stops = cluster.nodes().iter().map(Node::sigterm);
    for (status, _) in futures::future::join_all(stops).await {
        assert!(status.success(), "{status}");
    }
    cluster.nodes().iter().for_each(Node::spawn);
    cluster.ready().await;
    load.delivers(1_000).await;
    figure("stopped and started", load.finish(&cluster).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_killed_in_turn_with_their_clients() {
    let (cluster, load) = under_load().await;
    for _ in 0..4 {
        let leader = cluster.leader_of(QUEUE).await;
        cluster.node(leader).kill9();
        load.confirms(500).await;
        cluster.node(leader).restart().await;
        load.delivers(500).await;
    }
    figure("killed in turn", load.finish(&cluster).await);
}
