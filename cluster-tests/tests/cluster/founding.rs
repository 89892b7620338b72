//! One cluster is formed, by a charter that all directories have taken (MEM 2). What happens when most of
//! them are lost later is in `refusals`.

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::{declare_quorum, open_confirming, publish_confirmed};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::fs;

/// Waits until a node has said that it has taken a charter, which is formed or not yet.
async fn has_taken(cluster: &Cluster, id: u64, is_formed: bool) {
    let field = format!("is_formed={is_formed}");
    let says = |line: &str| line.contains("has taken a charter") && line.contains(&field);
    eventually(&format!("node {id} has taken a charter, {field}"), || async {
        let log = cluster.node(id).log();
        hold(log.lines().any(says), || log.clone())
    })
    .await;
}

/// The identity of a node's cluster.
async fn identity(cluster: &Cluster, id: u64) -> String {
    let status = cluster.ctl(id, &["cluster_status"]).await.stdout;
    let line = status.lines().find(|line| line.starts_with("Cluster name: "));
    line.expect("a line with the name of the cluster").to_owned()
}

async fn serves(cluster: &Cluster) {
    for node in cluster.nodes() {
        let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
        declare_quorum(&channel, "served").await;
        publish_confirmed(&channel, "served", b"by all").await;
    }
}

/// Each node is killed once: when it has taken the charter, or when it knows that all have.
#[tokio::test(flavor = "multi_thread")]
async fn mem_02_nodes_that_are_killed_while_they_found_form_one_cluster() {
    for formed in [[false; 3], [true, false, false], [false, true, true], [true; 3]] {
        let cluster = Cluster::prepare(3, Options::default()).await;
        for id in 1..=3 {
            cluster.node(id).spawn();
        }
        for (id, is_formed) in (1..).zip(formed) {
            has_taken(&cluster, id, is_formed).await;
            cluster.node(id).kill9();
            cluster.node(id).spawn();
        }
        cluster.ready().await;
        serves(&cluster).await;
        let first = identity(&cluster, 1).await;
        for id in 2..=3 {
            assert_eq!(identity(&cluster, id).await, first, "{}", cluster.node(id).log());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_02_a_directory_that_is_lost_before_all_are_there_changes_nothing() {
    let cluster = Cluster::prepare(3, Options::default()).await;
    cluster.node(1).spawn();
    cluster.node(2).spawn();
    crate::members::says(cluster.node(1), "nodes 3 are missing").await;
    cluster.node(2).kill9();
    fs::remove_dir_all(cluster.node(2).data_dir()).expect("the data directory");
    cluster.node(2).spawn();
    cluster.node(3).spawn();
    cluster.ready().await;
    serves(&cluster).await;
}
