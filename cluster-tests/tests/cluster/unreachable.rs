//! Who is taken for dead or unreachable, and who is not (DESIGN §8, SES 6, DLV 5, Q-62).

#![expect(clippy::expect_used, reason = "tests")]

use lapin::options::{BasicGetOptions, BasicPublishOptions};
use lapin::types::FieldTable;
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, exclusive, get, open, open_confirming, persistent, publish_confirmed,
};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::time::Duration;

/// What lasts: a connection with an exclusive queue on node 3.
async fn client_of_node_3(cluster: &Cluster) -> (lapin::Connection, lapin::Channel, String) {
    let (connection, channel) = open(&cluster.amqp_uri(3)).await;
    let declared = channel.queue_declare("".into(), exclusive(), FieldTable::default()).await;
    let name = declared.expect("declare-ok").name().to_string();
    (connection, channel, name)
}

/// A port that refuses is a proof only of a process that shows no other sign of life.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_port_refuses_is_not_dead_while_it_speaks() {
    let cluster = Cluster::start(3, Options::proxied()).await;
    let (connection, channel, queue) = client_of_node_3(&cluster).await;
    cluster.links().refuse(1, 3);
    cluster.links().refuse(2, 3);
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.links().heal();
    // What the others have decided it hears of now.
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.node(3).ready().await;
    assert!(connection.status().connected(), "its client was let go: {}", cluster.node(3).log());
    assert_eq!(get(&channel, &queue).await, None, "and its queue is there");
}

/// A node that all others took for dead is one of them again when it is back, for good.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_taken_for_dead_is_fenced_once() {
    let cluster = Cluster::start(3, Options::proxied()).await;
    let (former, _channel, queue) = client_of_node_3(&cluster).await;
    let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(1)).await;
    for other in [1, 2] {
        cluster.links().refuse(other, 3);
        cluster.links().refuse(3, other);
    }
    // The queues of a dead process have ended (NAM 8): what is published to them comes back.
    eventually("node 3 is taken for dead", || async {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let key = queue.as_str().into();
        let sent = publisher.basic_publish("".into(), key, options, b"", persistent()).await;
        let confirm = sent.expect("sent").await.expect("a confirm");
        hold(confirm.take_message().is_some(), || "its queue is there".to_owned())
    })
    .await;
    cluster.links().heal();
    eventually("the former client is let go", || async {
        hold(!former.status().connected(), || "it is still connected".to_owned())
    })
    .await;
    cluster.node(3).ready().await;
    let (connection, channel, queue) = client_of_node_3(&cluster).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(connection.status().connected(), "fenced again: {}", cluster.node(3).log());
    assert_eq!(get(&channel, &queue).await, None);
    let fenced = cluster.node(3).log().matches("the cluster declared this node dead").count();
    assert_eq!(fenced, 1, "{}", cluster.node(3).log());
}

/// DLV 5, Q-62: after a power loss a node that nobody has met since holds nothing for ever.
#[tokio::test(flavor = "multi_thread")]
async fn dlv_05_what_a_node_holds_that_was_never_met_again_returns() {
    let options = Options::default().with("--unreachable-node-timeout-ms", "4000");
    let cluster = Cluster::start(3, options).await;
    let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&publisher, "held").await;
    publish_confirmed(&publisher, "held", b"message").await;
    let (_holding, holder) = open(&cluster.amqp_uri(3)).await;
    let held = holder.basic_get("held".into(), BasicGetOptions { no_ack: false }).await;
    assert!(held.expect("get-ok").is_some());
    cluster.nodes().iter().for_each(quorate_cluster_tests::harness::Node::kill9);
    cluster.node(1).spawn();
    cluster.node(2).spawn();
    cluster.node(1).ready().await;
    let (_taking, taker) = open(&cluster.amqp_uri(1)).await;
    eventually("the message is back", || async {
        let message = get(&taker, "held").await;
        hold(message.as_deref() == Some(&b"message"[..]), || format!("{message:?}"))
    })
    .await;
}
