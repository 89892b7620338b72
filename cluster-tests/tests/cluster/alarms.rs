//! A node that is low on disk or memory stops publishers, on every node, and nobody else (ALM).

use quorate_cluster_tests::harness::amqp::{declare_quorum, get, open};
use quorate_cluster_tests::harness::wire::{self, Wire, frame};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::time::Duration;

/// A client that understands `connection.blocked`.
async fn aware(address: &str) -> Wire {
    let capability = [wire::short("connection.blocked"), vec![b't', 1]].concat();
    let properties = [wire::short("capabilities"), vec![b'F'], wire::long(&capability)].concat();
    let mut wire = Wire::open_as(address, &properties).await;
    wire.method(1, 20, 10, &[0]).await;
    wire.expect(1, 20, 11).await;
    wire
}

fn publish(queue: &str) -> Vec<u8> {
    let payload = [&[0, 60, 0, 40][..], &wire::basic_publish(queue, false)].concat();
    [
        frame(wire::METHOD, 1, &payload),
        frame(wire::HEADER, 1, &wire::content_header(60, 4, None)),
        frame(wire::BODY, 1, b"body"),
    ]
    .concat()
}

async fn blocks(options: Options, reason: &str) {
    let cluster = Cluster::start(1, options).await;
    let address = cluster.node(1).amqp_address();
    let (_connection, other) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&other, "alarmed").await;
    // CONN-22: an alarm that is on already keeps nobody from opening.
    let mut publisher = aware(&address).await;
    publisher.send(&publish("alarmed")).await;
    let blocked = publisher.expect(0, 10, 60).await;
    // ALM-04.
    assert_eq!(blocked.arguments(), wire::short(reason));
    // ALM-01: who does not publish goes on. What brought the block about may be in the queue.
    let got = get(&other, "alarmed").await;
    assert!(got.is_none_or(|body| body == b"body"));
}

#[tokio::test(flavor = "multi_thread")]
async fn low_on_disk() {
    blocks(Options::default().with("--disk-free-limit", "1000000GiB"), "low on disk").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn low_on_memory() {
    blocks(Options::default().with("--memory-high-watermark", "1MiB"), "low on memory").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_on_one_node_blocks_publishers_on_all_and_ends_with_it() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "alarmed").await;
    let node = cluster.node(3);
    node.sigterm().await;
    node.spawn_with(&[("--disk-free-limit", "1000000GiB")]);
    node.ready().await;
    let mut publisher = aware(&cluster.node(1).amqp_address()).await;
    let mut blocked = false;
    for _ in 0..150 {
        publisher.send(&publish("alarmed")).await;
        // The alarm reaches the other nodes soon; until then publishes pass.
        let next = tokio::time::timeout(Duration::from_millis(200), publisher.next());
        if let Ok(Some(frame)) = next.await {
            assert_eq!(frame.method(), Some((10, 60)), "{frame:?}");
            blocked = true;
            break;
        }
    }
    assert!(blocked, "node 3 is low on disk, and publishes on node 1 go on");
    node.sigterm().await;
    node.restart().await;
    publisher.expect(0, 10, 61).await;
}
