//! Starting: any order, one node alone, rejoining, and a whole cluster in one command.

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::{declare_quorum, get, open, open_confirming};
use quorate_cluster_tests::harness::amqp::{passive, publish_confirmed};
use quorate_cluster_tests::harness::process::{Launch, Process};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Node, Options, binary, http};
use rustix::process::Signal;
use std::net::TcpListener;

async fn lives(node: &Node) {
    eventually("a node that waits for its peers lives", || async {
        let answer = node.get("/health/live").await?;
        hold(answer.status == 200, || format!("{answer:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_started_in_any_order_form_one_cluster() {
    let cluster = Cluster::prepare(3, Options::default()).await;
    for id in [3, 1, 2] {
        cluster.node(id).spawn();
        lives(cluster.node(id)).await;
    }
    cluster.ready().await;
    let (_producing, producer) = open_confirming(&cluster.amqp_uri(3)).await;
    declare_quorum(&producer, "any-order").await;
    publish_confirmed(&producer, "any-order", b"one").await;
    let (_consuming, consumer) = open(&cluster.amqp_uri(1)).await;
    assert_eq!(get(&consumer, "any-order").await.as_deref(), Some(&b"one"[..]));
    for id in 1..=3 {
        let startup = cluster.ctl(id, &["await_startup"]).await;
        assert_eq!(startup.code, 0, "node {id}: {startup:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_alone_is_not_ready_until_it_has_a_majority() {
    let cluster = Cluster::start(3, Options::default()).await;
    cluster.nodes().iter().for_each(Node::kill9);
    cluster.node(2).spawn();
    lives(cluster.node(2)).await;
    let ready = cluster.node(2).get("/health/ready").await.expect("an answer");
    assert_eq!(ready.status, 503, "{ready:?}");
    cluster.node(1).spawn();
    cluster.node(1).ready().await;
    cluster.node(2).ready().await;
}

/// A new cluster is founded by all of its nodes, an old one goes on with a majority.
#[tokio::test(flavor = "multi_thread")]
async fn mem_02_two_nodes_of_three_found_nothing() {
    let cluster = Cluster::prepare(3, Options::default()).await;
    for id in [1, 2] {
        cluster.node(id).spawn();
        lives(cluster.node(id)).await;
    }
    eventually("node 1 says for whom it waits", || async {
        let log = cluster.node(1).log();
        let words = ["which may know of a cluster", "node=3", "waits for others too", "node=2"];
        hold(words.iter().all(|words| log.contains(words)), || log)
    })
    .await;
    let ready = cluster.node(1).get("/health/ready").await.expect("an answer");
    assert_eq!(ready.status, 503, "{ready:?}");
    cluster.node(3).spawn();
    cluster.ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_of_one_node_keeps_what_it_confirmed_over_a_crash() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "alone").await;
    for number in 0..100_u8 {
        publish_confirmed(&channel, "alone", &[number]).await;
    }
    cluster.node(1).kill9();
    drop(connection);
    cluster.node(1).restart().await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    for number in 0..100_u8 {
        assert_eq!(get(&channel, "alone").await, Some(vec![number]));
    }
    assert_eq!(get(&channel, "alone").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_rejoins_and_has_what_it_missed() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(3)).await;
    declare_quorum(&channel, "before").await;
    publish_confirmed(&channel, "before", b"before").await;
    let (status, _) = cluster.node(2).sigterm().await;
    assert!(status.success(), "{status}");
    declare_quorum(&channel, "meanwhile").await;
    publish_confirmed(&channel, "meanwhile", b"meanwhile").await;
    cluster.node(2).restart().await;
    // Now nothing is decided without node 2.
    cluster.node(1).kill9();
    let (_connection, channel) = open(&cluster.amqp_uri(2)).await;
    for queue in ["before", "meanwhile"] {
        let declared = channel.queue_declare(queue.into(), passive(), <_>::default()).await;
        assert_eq!(declared.expect("declared").message_count(), 1);
        assert_eq!(get(&channel, queue).await.as_deref(), Some(queue.as_bytes()));
    }
}

/// Publishes and gets over a node, which therefore is linked to a majority.
async fn works(node: &Node, queue: &str) {
    let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
    declare_quorum(&channel, queue).await;
    publish_confirmed(&channel, queue, b"works").await;
    assert_eq!(get(&channel, queue).await.as_deref(), Some(&b"works"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_predecessor_was_frozen_is_not_taken_for_a_stranger() {
    let cluster = Cluster::start(3, Options::default()).await;
    works(cluster.node(1), "before").await;
    for round in 0..3 {
        // The others still count on its connections when its successor dials.
        cluster.node(2).pause();
        if round > 0 {
            works(cluster.node(1), "meanwhile").await;
        }
        cluster.node(2).kill9();
        cluster.node(2).restart().await;
        works(cluster.node(2), "after").await;
    }
    // Now nothing is decided without node 2.
    cluster.node(3).kill9();
    works(cluster.node(1), "alone").await;
    works(cluster.node(2), "alone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hellos_of_dead_processes_that_come_late_shut_nobody_out() {
    let cluster = Cluster::start(3, Options::default()).await;
    works(cluster.node(1), "before").await;
    // What dials it meanwhile waits in its kernel, and all of it is met at once later.
    cluster.node(1).pause();
    for _ in 0..3 {
        cluster.node(2).kill9();
        cluster.node(2).restart().await;
        works(cluster.node(2), "meanwhile").await;
    }
    cluster.node(1).resume();
    cluster.node(1).ready().await;
    // Now nothing is decided unless nodes 1 and 2 are linked.
    cluster.node(3).kill9();
    works(cluster.node(1), "alone").await;
    works(cluster.node(2), "alone").await;
    assert!(cluster.node(2).runs(), "{}", cluster.node(2).log());
}

/// An offset at which all nine ports of `quorate dev` are free.
fn port_offset() -> u16 {
    let bases = [5672, 5673, 5674, 7672, 7673, 7674, 15672, 15673, 15674];
    let free = |offset: &u16| {
        bases.iter().all(|base| TcpListener::bind(("127.0.0.1", base + offset)).is_ok())
    };
    (6_000..10_000).step_by(3).find(free).expect("an offset with free ports")
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_runs_a_whole_cluster_and_stops_all_of_it_on_ctrl_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let offset = port_offset();
    let data = folder.path().join("data").display().to_string();
    let log = folder.path().join("log");
    let dev = Process::spawn(&Launch {
        binary: binary(),
        namespace: None,
        args: ["dev", "--port-offset", &offset.to_string(), "--data-dir", &data]
            .map(str::to_owned)
            .to_vec(),
        env: vec![("HOME".to_owned(), folder.path().display().to_string())],
        log: log.clone(),
    });
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let amqp = |node: u16| format!("127.0.0.1:{}", 5671 + node + offset);
    eventually("dev says where to connect", || async {
        let all = (1..=3).all(|node| said().contains(&(5671 + node + offset).to_string()));
        hold(all, said)
    })
    .await;
    for node in 1..=3 {
        let address = format!("127.0.0.1:{}", 15671 + node + offset);
        let ready = http::get(&address, "/health/ready").await.expect("an answer");
        assert_eq!(ready.status, 200, "it serves when it says where: {ready:?}");
    }
    let uri = |node| format!("amqp://guest:guest@{}/%2f", amqp(node));
    let (_producing, producer) = open_confirming(&uri(1)).await;
    declare_quorum(&producer, "dev").await;
    publish_confirmed(&producer, "dev", b"dev").await;
    let (_consuming, consumer) = open(&uri(3)).await;
    assert_eq!(get(&consumer, "dev").await.as_deref(), Some(&b"dev"[..]));
    dev.signal(Signal::INT);
    let status = dev.exit().await;
    assert!(status.success(), "{status}: {}", said());
    for node in 1..=3 {
        // A port that can be taken has no node behind it any more.
        TcpListener::bind(amqp(node)).expect("the node has ended with dev");
    }
}
