//! Nodes come and go: they join, are forgotten and replaced, and the groups move, under load (MEM 3,
//! MEM 10, MEM 11).

#![expect(clippy::expect_used, reason = "tests")]

use crate::browse::{GUEST, USER, api};
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, declare_with, open, open_confirming, publish_confirmed, text,
};
use quorate_cluster_tests::harness::members::Members;
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Node, Options, figure};
use quorate_cluster_tests::history::{ConsumerOptions, Homes, Load, Mix, PublisherOptions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;

const QUEUE: &str = "members";

/// Waits until these nodes are the members, and all groups are where they shall be.
pub(crate) async fn at_rest_on(cluster: &Cluster, nodes: &[u64]) {
    eventually(&format!("all groups rest on {nodes:?}"), || async {
        cluster.is_at_rest_on(1, nodes).await
    })
    .await;
}

/// Waits until the cluster has members.
pub(crate) async fn has_members(cluster: &Cluster) {
    eventually("machine version 2", || async {
        let members = Members::by(cluster, 1).await?;
        hold(members.machine >= 2, || format!("{members:?}"))
    })
    .await;
}

fn uris(cluster: &Cluster, nodes: &[u64]) -> Vec<String> {
    nodes.iter().map(|id| cluster.amqp_uri(*id)).collect()
}

/// Clients that begin at one of these nodes and go from node to node.
fn with_clients(load: Load, uris: &[String]) -> Load {
    let publisher = PublisherOptions {
        uris: uris.to_vec(),
        per_second: 300,
        reconnects: true,
        ..PublisherOptions::new(String::new(), QUEUE)
    };
    let consumer = ConsumerOptions {
        uris: uris.to_vec(),
        reconnects: true,
        ..ConsumerOptions::new(String::new(), QUEUE)
    };
    load.publish(publisher).consume(consumer)
}

/// Load on queues of every group and kind, through nodes 1 to 3.
pub(crate) async fn under_load(cluster: &Cluster) -> Load {
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    let mix = Mix::declare(cluster).await;
    let uris = uris(cluster, &[1, 2, 3]);
    let load = with_clients(Load::on(QUEUE), &uris);
    let load = mix.load(load, &Homes::new(uris, true));
    load.delivers(500).await;
    load
}

/// A node serves clients, whether it has a replica of their queue or not.
async fn serves(node: &Node) {
    let (connection, channel) = open_confirming(&node.amqp_uri()).await;
    declare_quorum(&channel, "served").await;
    publish_confirmed(&channel, "served", b"by any node").await;
    connection.close(200, "served".into()).await.expect("close-ok");
}

/// Waits until the log of a node has this text.
pub(crate) async fn says(node: &Node, text: &str) {
    eventually(&format!("node {} says {text:?}", node.id()), || async {
        hold(node.log().contains(text), || node.log())
    })
    .await;
}

/// Has node 1 forget a node, and waits until it is no member.
async fn forget(cluster: &Cluster, id: u64) {
    forget_with(cluster, id, &["--wait", "20"]).await;
}

/// Forgets a running node, which is drained first. The node asked may have to learn first that the others
/// are back.
async fn forget_drained(cluster: &Cluster, id: u64) {
    forget_with(cluster, id, &["--drain", "--wait", "45"]).await;
}

async fn forget_with(cluster: &Cluster, id: u64, options: &[&str]) {
    let node = id.to_string();
    let forget = [&["forget_cluster_node", node.as_str()], options].concat();
    eventually(&format!("node {id} is forgotten with {options:?}"), || async {
        cluster.ctl(1, &forget).await.succeeded().map(|_| ())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_03_and_11_three_nodes_become_five_and_three_again_under_load() {
    let cluster = Cluster::start(3, Options { guests: 2, ..Options::default() }).await;
    has_members(&cluster).await;
    let load = under_load(&cluster).await;
    let from = load.history().now();

    cluster.guests().iter().for_each(Node::spawn);
    for guest in cluster.guests() {
        guest.ready().await;
        serves(guest).await;
    }
    at_rest_on(&cluster, &[1, 2, 3, 4, 5]).await;
    let load = with_clients(load, &uris(&cluster, &[4, 5, 1]));
    let load = with_clients(load, &uris(&cluster, &[5, 4, 2]));
    load.delivers(500).await;
    cluster.ctl(4, &["rebalance", "quorum"]).await.succeeded().expect("leaders in their places");
    figure("three nodes become five: longest gaps", load.longest_gaps(from));

    let from = load.history().now();
    let refused = cluster.ctl(1, &["forget_cluster_node", "5"]).await;
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.stderr.contains("node 5 is running: stop it first"), "{refused:?}");
    for (id, rest) in [(5, &[1, 2, 3, 4][..]), (4, &[1, 2, 3][..])] {
        let (status, _) = cluster.node(id).sigterm().await;
        assert!(status.success(), "node {id}: {status}");
        forget(&cluster, id).await;
        at_rest_on(&cluster, rest).await;
        load.delivers(300).await;
    }
    figure("five nodes become three: longest gaps", load.longest_gaps(from));
    load.finish(&cluster).await;
}

/// Node 3 loses its data directory.
async fn lose_disk(cluster: &Cluster) {
    let node = cluster.node(3);
    node.kill9();
    fs::remove_dir_all(node.data_dir()).expect("the data directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_10_a_node_that_lost_its_disk_waits_until_it_is_replaced_by_name() {
    let cluster = Cluster::start(3, Options::default()).await;
    has_members(&cluster).await;
    let load = under_load(&cluster).await;
    let early = cluster.ctl(1, &["replace_cluster_node", "3"]).await;
    assert_eq!(early.code, 69, "{early:?}");

    lose_disk(&cluster).await;
    let node = cluster.node(3);
    node.spawn();
    says(node, "replace_cluster_node").await;
    load.confirms(300).await;
    assert!(node.runs(), "{}", node.log());
    let ready = node.get("/health/ready").await;
    assert!(ready.is_err() || ready.is_ok_and(|it| it.status == 503), "it serves unasked");

    eventually("node 3 is replaced", || async {
        cluster.ctl(1, &["replace_cluster_node", "3"]).await.succeeded().map(|_| ())
    })
    .await;
    node.ready().await;
    at_rest_on(&cluster, &[1, 2, 3]).await;
    serves(node).await;
    load.delivers(300).await;
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_10_a_node_that_lost_its_disk_replaces_itself_if_that_is_allowed() {
    let cluster = Cluster::start(3, Options::default().with("--replace-lost-disk", "true")).await;
    has_members(&cluster).await;
    let load = under_load(&cluster).await;
    lose_disk(&cluster).await;
    cluster.node(3).restart().await;
    at_rest_on(&cluster, &[1, 2, 3]).await;
    serves(cluster.node(3)).await;
    load.delivers(300).await;
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_11_a_forgotten_node_ends_and_joins_anew_with_an_empty_directory() {
    let cluster = Cluster::start(4, Options::default().with("--queue-replicas", "3")).await;
    has_members(&cluster).await;
    at_rest_on(&cluster, &[1, 2, 3, 4]).await;
    let node = cluster.node(4);
    // It is drained and forgotten as it runs.
    forget_drained(&cluster, 4).await;
    assert!(!node.ends().await.success());
    says(node, "forgotten").await;
    forget(&cluster, 4).await;
    at_rest_on(&cluster, &[1, 2, 3]).await;

    // Its directory never comes back.
    node.spawn();
    assert!(!node.ends().await.success());
    let aside = cluster.folder().join("set-aside");
    fs::rename(node.data_dir(), aside).expect("the directory set aside");
    node.spawn();
    node.ready().await;
    at_rest_on(&cluster, &[1, 2, 3, 4]).await;
    serves(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_11_no_node_is_forgotten_while_another_that_its_groups_need_is_away() {
    let cluster = Cluster::start(3, Options::default()).await;
    has_members(&cluster).await;
    at_rest_on(&cluster, &[1, 2, 3]).await;
    serves(cluster.node(1)).await;
    cluster.node(2).kill9();
    notices(&cluster, 2).await;
    let refused = cluster.ctl(1, &["forget_cluster_node", "3", "--drain"]).await;
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.stderr.contains("while node 2 does not answer"), "{refused:?}");
    // Two of three nodes are a majority still.
    serves(cluster.node(1)).await;
    cluster.node(3).ready().await;

    cluster.node(2).restart().await;
    forget_drained(&cluster, 3).await;
    assert!(!cluster.node(3).ends().await.success());
    at_rest_on(&cluster, &[1, 2]).await;
    serves(cluster.node(1)).await;
}

/// Waits until node 1 knows that another one has died.
async fn notices(cluster: &Cluster, dead: u64) {
    eventually(&format!("node 1 notices that node {dead} is away"), || async {
        let members = Members::by(cluster, 1).await?;
        hold(!members.runs(dead), || format!("{members:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_ready_though_a_group_has_lost_its_majority_for_long() {
    let cluster = Cluster::start(5, Options::default().with("--queue-replicas", "3")).await;
    has_members(&cluster).await;
    at_rest_on(&cluster, &[1, 2, 3, 4, 5]).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    let groups = Members::by(&cluster, 1).await.expect("placements").groups().clone();
    let balanced = [("x-queue-type", text("quorum")), ("x-queue-leader-locator", text("balanced"))];
    // Each group has some.
    for number in 0..4 * groups.len() {
        declare_with(&channel, &format!("spread-{number}"), &balanced).await;
    }
    let probe = json!({ "password": "p", "tags": "monitoring" }).to_string();
    assert_eq!(api(&cluster, 1, GUEST, ("PUT", "users/u"), &probe).await.0, 201);
    let has_node_1 = |nodes: &&BTreeSet<u64>| nodes.len() == 3 && nodes.contains(&1);
    let lost = groups.values().find(has_node_1).expect("a group of three with node 1");
    let lost: Vec<u64> = lost.iter().copied().filter(|node| *node != 1).collect();
    lost.iter().for_each(|node| cluster.node(*node).kill9());
    for node in &lost {
        notices(&cluster, *node).await;
    }
    let (first, second) = lost.first().zip(lost.get(1)).expect("two nodes are lost");
    let refused = cluster.ctl(1, &["forget_cluster_node", &first.to_string()]).await;
    assert_eq!(refused.code, 69, "{refused:?}");
    let awaited = format!("while node {second} does not answer");
    assert!(refused.stderr.contains(&awaited), "{refused:?}");

    let node = cluster.node(1);
    node.kill9();
    node.spawn();
    eventually("it waits for the leader of that group", || async {
        let ready = node.get("/health/ready").await?;
        hold(ready.body.contains("no leader in group"), || format!("{ready:?}"))
    })
    .await;
    node.ready().await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    for number in 0..groups.len() {
        declare_with(&channel, &format!("later-{number}"), &balanced).await;
    }
    // A user who sees no queue learns that some have no leader, and not which.
    let check = "health/checks/quorum-queues-without-elected-leaders/all-vhosts";
    let (status, answer) = api(&cluster, 1, USER, ("GET", check), "").await;
    assert_eq!((status, answer.get("queues")), (503, Some(&json!([]))), "{answer}");
    let (status, answer) = api(&cluster, 1, GUEST, ("GET", check), "").await;
    let named = answer.get("queues").and_then(Value::as_array).map_or(0, Vec::len);
    assert!(status == 503 && named > 0, "{status} {answer}");

    for node in &lost {
        cluster.node(*node).spawn();
    }
    cluster.ready().await;
    eventually("all queues have leaders", || async {
        let (status, answer) = api(&cluster, 1, USER, ("GET", check), "").await;
        hold(status == 200, || answer.to_string())
    })
    .await;
}
