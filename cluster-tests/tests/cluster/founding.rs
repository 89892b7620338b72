//! One cluster is formed, by a charter that all directories have taken (MEM 2). What happens when most of
//! them are lost later is in `refusals`.

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::{declare_quorum, open_confirming, publish_confirmed};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::fs;
use std::time::Duration;

/// The charter that a node has said that it has taken, by its founder and number, each time.
fn formed(cluster: &Cluster, id: u64) -> usize {
    let log = cluster.node(id).log();
    let taken = |line: &&str| line.contains("has taken a charter") && line.contains("is_formed=true");
    log.lines().filter(taken).count()
}

async fn serves(cluster: &Cluster) {
    for node in cluster.nodes() {
        let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
        declare_quorum(&channel, "served").await;
        publish_confirmed(&channel, "served", b"by all").await;
    }
}

/// The moments are spread over the whole founding, which takes less than a second.
#[tokio::test(flavor = "multi_thread")]
async fn mem_02_nodes_that_are_killed_while_they_found_form_one_cluster() {
    for milliseconds in [60, 150, 300, 450] {
        let cluster = Cluster::prepare(3, Options::default()).await;
        for id in 1..=3 {
            cluster.node(id).spawn();
        }
        for id in [1, 2, 3] {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            cluster.node(id).kill9();
            cluster.node(id).spawn();
        }
        cluster.ready().await;
        serves(&cluster).await;
        for id in 1..=3 {
            assert_eq!(formed(&cluster, id), 1, "node {id}: {}", cluster.node(id).log());
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
