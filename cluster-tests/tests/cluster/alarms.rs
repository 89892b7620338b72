//! A node that is low on disk or memory stops publishers, on every node, and nobody else (ALM).

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::{declare_quorum, get, open};
use quorate_cluster_tests::harness::ctl;
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::wire::{self, Frame, Wire, frame};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::time::Duration;

const ACK: (u16, u16) = (60, 80);
const BLOCKED: (u16, u16) = (10, 60);
const UNBLOCKED: (u16, u16) = (10, 61);

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

/// Messages in the queue stay as many for a while.
async fn stays_at(cluster: &Cluster, count: u64) {
    for _ in 0..10 {
        assert_eq!(cluster.counts(1, "alarmed", ["messages"]).await, Ok([count]));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A client that understands `connection.blocked` and is told of every message that is taken.
struct Confirmed {
    wire: Wire,
    sent: u64,
}

impl Confirmed {
    async fn open(address: &str) -> Self {
        let mut wire = aware(address).await;
        wire.method(1, 85, 10, &[0]).await;
        wire.expect(1, 85, 11).await;
        Self { wire, sent: 0 }
    }

    async fn publish(&mut self) {
        self.sent += 1;
        self.wire.send(&publish("alarmed")).await;
    }

    /// The next frame that is no confirm of a message before the last one.
    async fn next(&mut self) -> Frame {
        loop {
            let frame = self.wire.next().await.expect("the connection stays");
            let is_last = frame.arguments().first_chunk() == Some(&self.sent.to_be_bytes());
            if frame.method() != Some(ACK) || is_last {
                return frame;
            }
        }
    }

    /// Publishes until it is blocked: the reason, a short string, and how many were taken before the one
    /// that waits. An alarm reaches the other nodes after a moment; until then publishes are taken.
    async fn blocked(&mut self) -> (Vec<u8>, u64) {
        let before = self.sent;
        let blocked = async {
            loop {
                self.publish().await;
                let frame = self.next().await;
                if frame.method() == Some(BLOCKED) {
                    return (frame.arguments().to_vec(), self.sent - before - 1);
                }
                assert_eq!(frame.method(), Some(ACK), "{frame:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        in_time("another node's alarm blocks", blocked).await
    }

    /// Waits until it may go on. What waited may be confirmed before.
    async fn goes_on(&mut self) {
        while self.wire.next().await.expect("the connection stays").method() != Some(UNBLOCKED) {}
    }
}

async fn becomes(cluster: &Cluster, count: u64) {
    eventually("what waited is in the queue", || async {
        let [messages] = cluster.counts(1, "alarmed", ["messages"]).await?;
        hold(messages == count, || format!("{messages} of {count}"))
    })
    .await;
}

/// `raise` is the command of `quorate ctl` that ends the alarm.
async fn blocks(options: Options, reason: &str, raise: &[&str]) {
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
    // ALM-01: who does not publish goes on. ALM-02: a message that is published waits, as does the one
    // that brought the block about; none is lost.
    assert_eq!(get(&other, "alarmed").await, None);
    for _ in 0..5 {
        publisher.send(&publish("alarmed")).await;
    }
    stays_at(&cluster, 0).await;
    cluster.ctl(1, raise).await.succeeded().expect("set");
    publisher.expect(0, 10, 61).await;
    becomes(&cluster, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn low_on_disk() {
    blocks(
        Options::default().with("--disk-free-limit", "1000000GiB"),
        "low on disk",
        &["set_disk_free_limit", "1kB"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn low_on_memory() {
    blocks(
        Options::default().with("--memory-high-watermark", "1MiB"),
        "low on memory",
        &["set_vm_memory_high_watermark", "1.0"],
    )
    .await;
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
    // The queue may be in a group that goes back to node 3, and has no counts while it does.
    cluster.leaders_rest().await;
    let mut publisher = Confirmed::open(&cluster.node(1).amqp_address()).await;
    let (reason, passed) = publisher.blocked().await;
    assert_eq!(reason, wire::short("low on disk"));
    becomes(&cluster, passed).await;
    for _ in 0..5 {
        publisher.publish().await;
    }
    stays_at(&cluster, passed).await;
    node.sigterm().await;
    node.restart().await;
    publisher.goes_on().await;
    becomes(&cluster, passed + 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alm_01_an_operator_sets_where_a_nodes_alarms_begin() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "alarmed").await;
    let mut elsewhere = Confirmed::open(&cluster.node(1).amqp_address()).await;
    let mut there = aware(&cluster.node(3).amqp_address()).await;
    let memory = "set_vm_memory_high_watermark";
    let disk = "set_disk_free_limit";
    let rounds = [
        (vec![memory, "absolute", "1MiB"], "low on memory", vec![memory, "1.0"]),
        (vec![disk, "1000000GiB"], "low on disk", vec![disk, "1kB"]),
        (vec![memory, "0.0"], "low on memory", vec![memory, "absolute", "1000000GB"]),
        (vec![disk, "mem_relative", "1e9"], "low on disk", vec![disk, "mem_relative", "0.0"]),
    ];
    for (lower, reason, raise) in rounds {
        cluster.ctl(3, &lower).await.succeeded().expect("set");
        // On the node asked it is on when the command returns.
        there.send(&publish("alarmed")).await;
        assert_eq!(there.expect(0, 10, 60).await.arguments(), wire::short(reason), "{lower:?}");
        assert_eq!(elsewhere.blocked().await.0, wire::short(reason), "{lower:?}");
        cluster.ctl(3, &raise).await.succeeded().expect("set");
        there.expect(0, 10, 61).await;
        elsewhere.goes_on().await;
    }
    let status = cluster.ctl(3, &["status", "--formatter", "json"]).await.succeeded();
    let status = serde_json::from_str(&status.expect("status").stdout).expect("JSON");
    let limits = ["vm_memory_high_watermark_limit", "disk_free_limit"];
    let shown = limits.map(|limit| ctl::count(&status, limit));
    assert_eq!(shown, [Ok(1_000_000_000_000_000), Ok(0)]);
    for wrong in [vec![memory, "1.5"], vec![memory, "absolute", "1 apple"], vec![disk, "much"]] {
        let refused = cluster.ctl(3, &wrong).await;
        assert_eq!(refused.code, 65, "{refused:?}");
        assert!(refused.stderr.contains("Bad argument"), "{refused:?}");
    }
}
