//! The version of the replicated machine (MEM 15): raised when all nodes agree, never lowered; nodes
//! of two releases work together until then.

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::{declare_quorum, open};
use quorate_cluster_tests::harness::process::Launch;
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Node, Options, figure};
use quorate_cluster_tests::history::{ConsumerOptions, Homes, Load, Mix, PublisherOptions};
use std::fs;

const QUEUE: &str = "versions";

/// Names the binary of a release that knows machine version 1 only.
const OLD: &str = "QUORATE_BIN_BEFORE";

fn mark(node: &Node) -> String {
    fs::read_to_string(node.data_dir().join("QUORATE")).expect("the mark of a data directory")
}

/// Waits until `cluster_status` shows this version, as node 1 knows it.
async fn shows_version(cluster: &Cluster, line: &str) {
    eventually(&format!("cluster_status shows {line:?}"), || async {
        let status = cluster.ctl(1, &["cluster_status"]).await;
        let shown = status.stdout.lines().any(|shown| shown == line);
        hold(shown, || format!("{status:?}"))
    })
    .await;
}

async fn under_load(cluster: &Cluster) -> Load {
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    let mix = Mix::declare(cluster).await;
    let uris: Vec<String> = cluster.nodes().iter().map(Node::amqp_uri).collect();
    let publisher = PublisherOptions {
        uris: uris.clone(),
        per_second: 500,
        reconnects: true,
        ..PublisherOptions::new(String::new(), QUEUE)
    };
    let consumer = ConsumerOptions {
        uris: uris.clone(),
        reconnects: true,
        ..ConsumerOptions::new(String::new(), QUEUE)
    };
    let load = Load::on(QUEUE).publish(publisher).consume(consumer);
    let load = mix.load(load, &Homes::new(uris, true));
    load.delivers(500).await;
    load
}

/// Stops a node, starts it as told, and waits until the load has gone on with it.
async fn restarted_as(cluster: &Cluster, load: &Load, id: u64, launch: &Launch) {
    let node = cluster.node(id);
    let (status, _) = node.sigterm().await;
    assert!(status.success(), "node {id}: {status}");
    load.confirms(100).await;
    node.spawn_as(launch);
    node.ready().await;
    load.delivers(300).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_15_the_version_is_raised_when_the_last_node_agrees() {
    let cluster = Cluster::prepare(3, Options::default()).await;
    let hesitant = |id: u64| {
        let mut launch = cluster.node(id).launch();
        launch.set("--machine-version-max", "1");
        launch
    };
    cluster.node(1).spawn();
    cluster.node(2).spawn();
    cluster.node(3).spawn_as(&hesitant(3));
    cluster.ready().await;
    let load = under_load(&cluster).await;
    let third = cluster.ctl(3, &["cluster_status"]).await.stdout;
    let name = third.lines().find_map(|line| line.strip_prefix("Cluster status of node "));
    let name = name.expect("the name of node 3").trim_end_matches(" ...");
    shows_version(&cluster, &format!("Machine version: 1 (4 when these agree: {name})")).await;
    assert!(cluster.nodes().iter().all(|node| mark(node).starts_with("quorate format 2 ")));

    restarted_as(&cluster, &load, 3, &cluster.node(3).launch()).await;
    shows_version(&cluster, "Machine version: 4").await;
    for node in cluster.nodes() {
        let wanted = format!("quorate format 3 node {} machine 4\n", node.id());
        eventually("the mark names the version", || async {
            hold(mark(node) == wanted, || mark(node))
        })
        .await;
    }
    // It is not lowered by a node that would no longer agree.
    restarted_as(&cluster, &load, 1, &hesitant(1)).await;
    shows_version(&cluster, "Machine version: 4").await;
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_15_data_of_an_unknown_version_is_refused_and_left_alone() {
    let cluster = Cluster::start(1, Options::default()).await;
    shows_version(&cluster, "Machine version: 4").await;
    let node = cluster.node(1);
    node.sigterm().await;
    let (path, later) = (node.data_dir().join("QUORATE"), "quorate format 3 node 1 machine 99\n");
    fs::write(&path, later).expect("a mark");
    node.spawn();
    assert!(!node.ends().await.success());
    let said = "has machine version 99, this version of quorate knows versions up to 4";
    assert!(node.log().contains(said), "{}", node.log());
    assert_eq!(mark(node), later);
}

/// A rolling upgrade from the release before MEM 15 that is undone half-way, and one that is
/// completed; then the old release refuses the data. `make upgrade` builds it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the binary of an earlier release: make upgrade"]
async fn mem_15_a_rolling_upgrade_under_load_and_its_roll_back() {
    let before = std::env::var(OLD).expect("QUORATE_BIN_BEFORE is set, as make upgrade does");
    let cluster = Cluster::prepare(3, Options::alone()).await;
    let old = |id: u64| Launch { binary: before.clone().into(), ..cluster.node(id).launch() };
    let new = |id: u64| cluster.node(id).launch();
    for node in cluster.nodes() {
        node.spawn_as(&old(node.id()));
    }
    cluster.ready().await;
    let load = under_load(&cluster).await;
    for (id, launch) in [(1, new(1)), (2, new(2)), (2, old(2)), (1, old(1))] {
        restarted_as(&cluster, &load, id, &launch).await;
        assert!(cluster.nodes().iter().all(|node| mark(node).starts_with("quorate format 2 ")));
    }
    for id in 1..=3 {
        restarted_as(&cluster, &load, id, &new(id)).await;
    }
    shows_version(&cluster, "Machine version: 4").await;
    for id in 1..=3 {
        restarted_as(&cluster, &load, id, &new(id)).await;
    }
    let node = cluster.node(3);
    node.sigterm().await;
    let kept = mark(node);
    node.spawn_as(&old(3));
    assert!(!node.ends().await.success());
    let log = node.log();
    // It expects fewer words in the file QUORATE than there are since MEM 15.
    assert!(log.contains("node-3 is not empty and was not made by quorate"), "{log}");
    assert_eq!(mark(node), kept);
    node.restart().await;
    figure("upgrade under load", load.finish(&cluster).await);
}
