//! Stopping cleanly: nobody waits for what cannot come, nobody new is let in, nothing is lost.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use futures::future::join_all;
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, get, open, open_confirming, publish_confirmed,
};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::wire::Wire;
use quorate_cluster_tests::harness::{Cluster, Node, Options, figure};
use std::io::ErrorKind;
use tokio::net::TcpStream;

/// What a node says when it has waited for something in vain, as long as it may.
const IN_VAIN: [&str; 2] = [
    "leaderships were not taken over in time",
    "clients did not confirm the close of their connections in time",
];

const MESSAGES: u8 = 50;

async fn fill(node: &Node) -> lapin::Connection {
    let (connection, channel) = open_confirming(&node.amqp_uri()).await;
    declare_quorum(&channel, "kept").await;
    for number in 0..MESSAGES {
        publish_confirmed(&channel, "kept", &[number]).await;
    }
    connection
}

async fn has_all(node: &Node) {
    let (_connection, channel) = open(&node.amqp_uri()).await;
    for number in 0..MESSAGES {
        assert_eq!(get(&channel, "kept").await, Some(vec![number]));
    }
    assert_eq!(get(&channel, "kept").await, None);
}

/// Stops these nodes at the same moment; none may wait for what does not come. How long it took says
/// as much of this machine as of them.
async fn stop(nodes: &[Node]) {
    for (status, took) in join_all(nodes.iter().map(Node::sigterm)).await {
        assert!(status.success(), "{status}");
        figure("time to exit", took);
    }
    for node in nodes {
        let log = node.log();
        let waited = log.lines().find(|line| IN_VAIN.iter().any(|said| line.contains(said)));
        assert_eq!(waited, None, "node {}", node.id());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_that_stop_together_do_not_wait_for_each_other() {
    let cluster = Cluster::start(3, Options::default()).await;
    let _connection = fill(cluster.node(1)).await;
    // Clients on every node, to be told.
    let mut clients = Vec::new();
    for node in cluster.nodes() {
        clients.push(Wire::open(&node.amqp_address()).await);
    }
    let told = join_all(clients.into_iter().map(Wire::closed));
    let ((), told) = tokio::join!(stop(cluster.nodes()), told);
    for close in told {
        assert_eq!(close.map(|close| close.code), Some(320));
    }
    cluster.nodes().iter().for_each(Node::spawn);
    cluster.ready().await;
    has_all(cluster.node(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_node_does_not_wait_for_those_that_are_gone() {
    let cluster = Cluster::start(3, Options::default()).await;
    let _connection = fill(cluster.node(1)).await;
    cluster.node(2).kill9();
    cluster.node(3).kill9();
    stop(&cluster.nodes()[..1]).await;
    cluster.nodes().iter().for_each(Node::spawn);
    cluster.ready().await;
    has_all(cluster.node(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_alone_stops_at_once() {
    let cluster = Cluster::start(1, Options::default()).await;
    let connection = fill(cluster.node(1)).await;
    stop(cluster.nodes()).await;
    drop(connection);
    cluster.node(1).restart().await;
    has_all(cluster.node(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_hands_over_lets_nobody_in_and_its_clients_go_last() {
    let cluster = Cluster::start(3, Options::default()).await;
    let node = cluster.node(1);
    let mut client = Wire::open_channel(&node.amqp_address()).await;
    eventually("it leads something", || async {
        let leads = node.metrics().await.sum("quorate_group_leader");
        hold(leads.is_some_and(|leads| leads > 0.0), || format!("{leads:?}"))
    })
    .await;
    // They are linked, but take nothing: the hand-over lasts.
    cluster.node(2).pause();
    cluster.node(3).pause();
    let refused = eventually("new clients are refused", || async {
        let connected = TcpStream::connect(node.amqp_address()).await;
        let kind = connected.err().map(|error| error.kind());
        hold(kind == Some(ErrorKind::ConnectionRefused), || format!("{kind:?}"))
    });
    let asked = async {
        refused.await;
        // Who was there before is served meanwhile: a channel is opened.
        client.method(2, 20, 10, &[0]).await;
        client.expect(2, 20, 11).await;
        client.closed().await
    };
    let ((status, took), close) = tokio::join!(node.sigterm(), asked);
    assert!(status.success(), "{status}");
    figure("time to exit", took);
    let close = close.expect("a close");
    assert_eq!(close.code, 320, "{close:?}");
}
