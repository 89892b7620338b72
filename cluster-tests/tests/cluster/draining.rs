//! A node is put under maintenance and back: its leaderships and clients go elsewhere, nothing is lost
//! (MEM 13, CTL-16).

#![expect(clippy::expect_used, reason = "tests")]

use futures::future::join_all;
use quorate_cluster_tests::harness::amqp::{declare_quorum, open};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::wire::{Close, Wire};
use quorate_cluster_tests::harness::{Cluster, Node, Options, figure};
use quorate_cluster_tests::history::{ConsumerOptions, Load, PublisherOptions};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

const QUEUE: &str = "drained";

/// A cluster under light load, whose clients begin on node 1 and go from node to node.
async fn under_load() -> (Cluster, Load) {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    let uris: Vec<String> = cluster.nodes().iter().map(Node::amqp_uri).collect();
    let load = Load::on(QUEUE)
        .publish(PublisherOptions {
            uris: uris.clone(),
            per_second: 500,
            reconnects: true,
            ..PublisherOptions::new(String::new(), QUEUE)
        })
        .consume(ConsumerOptions {
            uris,
            reconnects: true,
            ..ConsumerOptions::new(String::new(), QUEUE)
        });
    load.delivers(500).await;
    (cluster, load)
}

/// The number of groups that a node leads.
async fn leads(node: &Node) -> f64 {
    node.metrics().await.sum("quorate_group_leader").expect("a gauge of the groups")
}

/// What `cluster_status` says of each node's maintenance, in the order of the nodes.
async fn maintenance(cluster: &Cluster, asked: u64) -> Vec<Value> {
    let status = cluster.ctl(asked, &["cluster_status", "-q", "--formatter", "json"]).await;
    let status = status.succeeded().expect("a status");
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    let nodes = status.get("maintenance_status").and_then(Value::as_object).expect("a status");
    nodes.values().cloned().collect()
}

/// The node is out of the way of clients and leaders, but not to be restarted.
async fn is_drained(node: &Node) {
    assert!(leads(node).await < 1.0, "node {} leads", node.id());
    let refused = TcpStream::connect(node.amqp_address()).await.err().map(|error| error.kind());
    assert_eq!(refused, Some(ErrorKind::ConnectionRefused), "node {}", node.id());
    let ready = node.get("/health/ready").await.expect("an answer");
    assert_eq!(ready.status, 503);
    assert!(ready.body.starts_with("the node is drained"), "{}", ready.body);
    assert_eq!(node.get("/health/live").await.expect("an answer").status, 200);
}

fn assert_forced(close: Option<Close>) {
    let close = close.expect("a close");
    assert_eq!(close.code, 320, "{close:?}");
    assert_eq!(close.text, "CONNECTION_FORCED - Node was put into maintenance mode");
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_13_a_drained_node_leads_and_serves_nothing_until_it_is_revived() {
    let (cluster, load) = under_load().await;
    let node = cluster.node(1);
    let from = load.history().now();
    let told = Wire::open(&node.amqp_address()).await;
    let (drained, told) = tokio::join!(cluster.ctl(1, &["drain"]), told.closed());
    drained.succeeded().expect("drained");
    assert_forced(told);
    is_drained(node).await;
    let [regular, marked] = [json!("not under maintenance"), json!("marked for maintenance")];
    assert_eq!(maintenance(&cluster, 2).await, [marked.clone(), regular.clone(), regular.clone()]);
    load.confirms(300).await;
    load.delivers(300).await;

    // Two of three may be drained, since both go on voting; the last one may not.
    cluster.ctl(2, &["drain"]).await.succeeded().expect("drained");
    is_drained(cluster.node(2)).await;
    is_drained(node).await;
    assert_eq!(maintenance(&cluster, 3).await, [marked.clone(), marked, regular.clone()]);
    let refused = cluster.ctl(3, &["drain"]).await;
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.stderr.contains("no other node takes leaderships now"), "{refused:?}");
    cluster.node(3).ready().await;
    load.confirms(300).await;
    load.delivers(300).await;
    figure("drained: longest gaps", load.longest_gaps(from));

    for id in [1, 2] {
        cluster.ctl(id, &["revive"]).await.succeeded().expect("revived");
        let node = cluster.node(id);
        node.ready().await;
        Wire::open(&node.amqp_address()).await;
        eventually("it leads again", || async {
            let leads = leads(node).await;
            hold(leads > 0.0, || format!("{leads} groups"))
        })
        .await;
    }
    assert_eq!(maintenance(&cluster, 3).await, [regular.clone(), regular.clone(), regular]);
    assert!(node.log().contains("verb=\"drain\""), "the audit log");
    load.finish(&cluster).await;
}

/// The other nodes get the clients of a drained one within seconds, but not all at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn mem_13_clients_of_a_drained_node_are_closed_little_by_little() {
    const CLIENTS: usize = 100;
    let cluster = Cluster::start(3, Options::default()).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Wire::open(&cluster.node(1).amqp_address()).await);
    }
    let told = clients.into_iter().map(|client| async {
        let close = client.closed().await;
        (close, Instant::now())
    });
    let (drained, told) = tokio::join!(cluster.ctl(1, &["drain"]), join_all(told));
    drained.succeeded().expect("drained");
    let mut moments = Vec::new();
    for (close, at) in told {
        assert_forced(close);
        moments.push(at);
    }
    let first = moments.iter().min().expect("a client");
    let spread = moments.iter().max().expect("a client").duration_since(*first);
    figure("time from the first close to the last", spread);
    // Two clients in each tenth of a second.
    assert!(spread >= Duration::from_secs(3), "{spread:?}");
}

/// A restart ends the maintenance.
#[tokio::test(flavor = "multi_thread")]
async fn mem_13_a_drained_node_that_is_restarted_serves_again() {
    let cluster = Cluster::start(3, Options::default()).await;
    let node = cluster.node(2);
    cluster.ctl(2, &["drain", "--timeout", "30"]).await.succeeded().expect("drained");
    let (status, took) = node.sigterm().await;
    assert!(status.success(), "{status}");
    figure("time to exit of a drained node", took);
    node.restart().await;
    Wire::open(&node.amqp_address()).await;
}

/// A node that nobody could take over from stays as it is.
#[tokio::test(flavor = "multi_thread")]
async fn mem_13_a_node_whose_others_hang_is_not_drained() {
    let cluster = Cluster::start(3, Options::default()).await;
    cluster.node(2).pause();
    cluster.node(3).pause();
    let refused = cluster.ctl(1, &["drain"]).await;
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.stderr.contains("no other node takes leaderships now"), "{refused:?}");
    cluster.node(2).resume();
    cluster.node(3).resume();
    cluster.ready().await;
    Wire::open(&cluster.node(1).amqp_address()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_one_node_is_not_drained_ctl_16() {
    let cluster = Cluster::start(1, Options::default()).await;
    let refused = cluster.ctl(1, &["drain"]).await;
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.stderr.contains("the cluster has one node"), "{refused:?}");
    cluster.node(1).ready().await;
    Wire::open(&cluster.node(1).amqp_address()).await;
    cluster.ctl(1, &["ping"]).await.succeeded().expect("it lives");
}
