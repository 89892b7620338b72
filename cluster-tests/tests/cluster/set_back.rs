//! A data directory that was set back, as by the restore of a copy, is refused: it lacks votes and entries
//! that its node has given and acknowledged (DESIGN §8).

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::{declare_quorum, open_confirming, publish_confirmed};
use quorate_cluster_tests::harness::{Cluster, Node, Options};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use std::fs;
use std::path::Path;
use std::process::Command;

const QUEUES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

async fn filled(cluster: &Cluster, node: u64) {
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(node)).await;
    for queue in QUEUES {
        declare_quorum(&channel, queue).await;
        for _ in 0..20 {
            publish_confirmed(&channel, queue, b"kept").await;
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(status.expect("cp").success());
}

fn restore(copy: &Path, node: &Node) {
    fs::remove_dir_all(node.data_dir()).expect("the data directory");
    fs::rename(copy, node.data_dir()).expect("the copy in its place");
}

/// The node ends by itself and says that its directory was set back, however often it is started.
async fn is_refused(node: &Node) {
    for _ in 0..3 {
        let said = node.log().len();
        node.spawn();
        let status = node.ends().await;
        let log = node.log();
        let said = log.get(said..).unwrap_or_default();
        assert_eq!(status.code().map(|code| code != 0), Some(true), "{status}: {said}");
        let clear = |line: &str| line.contains("older copy") && line.contains("data_dir");
        assert!(said.lines().any(clear), "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

/// A copy made while the node did not run, restored after a later run.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_before_the_last_start_is_refused() {
    let cluster = Cluster::start(3, Options::default()).await;
    filled(&cluster, 1).await;
    let node = cluster.node(3);
    node.sigterm().await;
    let former = cluster.folder().join("former");
    copy(node.data_dir(), &former);
    node.restart().await;
    filled(&cluster, 1).await;
    node.sigterm().await;
    let right = cluster.folder().join("right");
    copy(node.data_dir(), &right);
    // What the others know of it they know from the catalog, not from having met it.
    for other in [1, 2] {
        cluster.node(other).sigterm().await;
        cluster.node(other).restart().await;
    }
    restore(&former, node);
    is_refused(node).await;
    filled(&cluster, 2).await;
    restore(&right, node);
    node.restart().await;
    assert_replicas_equal(&cluster).await;
}

/// A copy made while the node ran: its leaders know what it has acknowledged since.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_last_run_is_refused_by_those_that_it_has_acknowledged_to() {
    let cluster = Cluster::start(3, Options::default()).await;
    filled(&cluster, 1).await;
    let node = cluster.node(3);
    node.pause();
    let former = cluster.folder().join("former");
    copy(node.data_dir(), &former);
    node.resume();
    filled(&cluster, 1).await;
    assert_replicas_equal(&cluster).await;
    node.kill9();
    restore(&former, node);
    is_refused(node).await;
    filled(&cluster, 2).await;
}
