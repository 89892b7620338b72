//! What clients make a node hold has bounds, and what is above them waits or is told so.

#![expect(clippy::expect_used, reason = "tests")]

use crate::attacks::{MIB, fan, publish, small};
use lapin::BasicProperties;
use quorate_cluster_tests::harness::Cluster;
use quorate_cluster_tests::harness::amqp::{declare_quorum, open_confirming, persistent};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::wire::{self, Wire};
use std::time::Duration;

/// What is not yet sent of a message to many queues waits while the node is low on disk, and is sent
/// when it no longer is.
#[tokio::test(flavor = "multi_thread")]
async fn a_fan_out_waits_while_an_alarm_is_on() {
    const QUEUES: usize = 80;
    let cluster = Cluster::start(1, small()).await;
    let node = cluster.node(1);
    let (_connection, channel) = fan(node, QUEUES).await;
    let body = vec![1; 8 * MIB];
    let sent = channel.basic_publish(
        "fan".into(),
        "".into(),
        <_>::default(),
        &body,
        BasicProperties::default(),
    );
    let confirm = sent.await.expect("sent");
    let limit = async |bytes: &str| {
        cluster.ctl(1, &["set_disk_free_limit", bytes]).await.succeeded().expect("a limit");
    };
    limit("1000000GB").await;
    let ready = async || {
        let rows = cluster.rows(1, &["list_queues", "messages"]).await.expect("a list");
        rows.iter().filter_map(|row| row["messages"].as_u64()).sum::<u64>()
    };
    // What was on its way when the alarm came on arrives; then nothing more does.
    let seen = std::cell::Cell::new(0);
    let before = eventually("no more arrive", async || {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (now, before) = (ready().await, seen.get());
        seen.set(now);
        hold(now == before, || format!("{before}, then {now}")).map(|()| now)
    });
    let before = before.await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(ready().await, before);
    let all = QUEUES as u64;
    assert!(before < all, "all {before} were sent before the alarm: it has shown nothing");
    limit("1MB").await;
    let confirm = in_time("the confirm", confirm).await.expect("a confirm");
    assert!(confirm.is_ack(), "{confirm:?}");
    assert_eq!(ready().await, all);
}

/// The counters of the memory: what is used up makes others wait, and closes who holds most, with 506.
#[tokio::test(flavor = "multi_thread")]
async fn who_holds_most_is_closed_with_506_and_that_is_counted() {
    let cluster = Cluster::start(1, small()).await;
    let node = cluster.node(1);
    let mut holder = Wire::open_channel(&node.amqp_address()).await;
    let announced = publish(1, &wire::content_header(60, 14 * MIB as u64, None));
    holder.send(&announced).await;
    let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
    declare_quorum(&channel, "waits").await;
    // There is room for 9 MiB, or for one that is larger. The other waits until the holder, who never finishes, is closed.
    let body = vec![1; 10 * MIB];
    let published = async {
        let sent =
            channel.basic_publish("".into(), "waits".into(), <_>::default(), &body, persistent());
        sent.await.expect("sent").await.expect("a confirm")
    };
    let confirm = in_time("a confirm", published).await;
    assert!(confirm.is_ack(), "{confirm:?}");
    let close = holder.closed().await.expect("connection.close");
    assert_eq!(close.code, 506, "{close:?}");
    let metrics = node.metrics().await;
    for name in ["quorate_memory_waits_total", "quorate_memory_refusals_total"] {
        assert!(metrics.sum(name).is_some_and(|count| count >= 1.0), "{name}");
    }
    assert_eq!(metrics.sum("quorate_memory_budget_bytes"), Some((36 * MIB) as f64));
}
