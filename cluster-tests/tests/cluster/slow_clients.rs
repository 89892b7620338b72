//! Clients that do not finish, or do not read: they cost bounded time and bounded memory
//! (CONN-05, DESIGN §6).

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::{declare_quorum, open_confirming, persistent};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::wire::{self, Wire, frame};
use quorate_cluster_tests::harness::{Cluster, Options, figure};
use std::time::{Duration, Instant};

/// 10 s, less what the clock may be read too late; on a busy machine later.
const DROPPED: Duration = Duration::from_millis(9_500);

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_is_not_finished_in_10_s_is_dropped() {
    // No other rule ends a connection meanwhile.
    let hour = "3600000";
    let options =
        Options::default().with("--amqp-heartbeat-s", "0").with("--write-timeout-ms", hour);
    let cluster = Cluster::start(1, options.with("--operation-timeout-ms", hour)).await;
    let address = cluster.node(1).amqp_address();
    let dropped = |bytes: &'static [u8], and_start_ok: bool| {
        let address = address.clone();
        async move {
            let begun = Instant::now();
            let mut wire = Wire::connect(&address).await;
            wire.send(bytes).await;
            if and_start_ok {
                wire.expect(0, 10, 10).await;
                wire.method(0, 10, 11, &wire::start_ok(&[])).await;
            }
            wire.rest().await;
            begun.elapsed()
        }
    };
    let (silent, half, started, tuned) = futures::join!(
        dropped(b"", false),
        dropped(b"AMQP", false),
        dropped(wire::PROTOCOL_HEADER, false),
        dropped(wire::PROTOCOL_HEADER, true),
    );
    for (what, took) in [("silent", silent), ("half", half), ("started", started), ("tuned", tuned)]
    {
        figure(&format!("{what}: dropped after"), took);
        assert!(took > DROPPED, "{what}: dropped after {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_that_stop_reading_cost_bounded_memory() {
    const BODY_BYTES: usize = 64 << 10;
    const MESSAGES: usize = 4_096;
    let cluster = Cluster::start(1, Options::default()).await;
    let node = cluster.node(1);
    let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
    declare_quorum(&channel, "unread").await;
    let body = vec![1; BODY_BYTES];
    for _ in 0..MESSAGES / 256 {
        let mut confirms = Vec::new();
        for _ in 0..256 {
            let sent = channel.basic_publish(
                "".into(),
                "unread".into(),
                <_>::default(),
                &body,
                persistent(),
            );
            confirms.push(sent.await.expect("sent"));
        }
        for confirm in confirms {
            assert!(confirm.await.expect("a confirm").is_ack());
        }
    }
    let before = node.rss_bytes();
    let mut deaf = Vec::new();
    for no_ack in [true, true, false, false] {
        let mut wire = Wire::open_channel(&node.amqp_address()).await;
        wire.method(1, 60, 20, &wire::basic_consume("unread", no_ack)).await;
        wire.expect(1, 60, 21).await;
        deaf.push(wire);
    }
    // Settled: the counts no longer move.
    let last = std::cell::Cell::new([0; 2]);
    eventually("the deaf consumers have what they are given", || async {
        let columns = ["messages_ready", "messages_unacknowledged"];
        let now = cluster.counts(1, "unread", columns).await?;
        let before = last.replace(now);
        hold(now == before && now[1] > 0, || format!("{before:?}, then {now:?}"))
    })
    .await;
    let after = node.rss_bytes();
    figure("deaf consumers: memory before and after, MiB", (before >> 20, after >> 20));
    // 256 MiB were theirs to take. 4 MiB a connection are read ahead; the rest is the block cache's.
    assert!(after < before + (96 << 20), "memory went from {before} to {after} bytes");
    // Others are served meanwhile.
    declare_quorum(&channel, "other").await;
    quorate_cluster_tests::harness::amqp::publish_confirmed(&channel, "other", b"served").await;
    drop(deaf);
    eventually("what they held is ready again", || async {
        let [unacked] = cluster.counts(1, "unread", ["messages_unacknowledged"]).await?;
        hold(unacked == 0, || format!("{unacked} unacked"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_reads_no_returns_is_not_read_either() {
    let cluster = Cluster::start(1, Options::default()).await;
    let node = cluster.node(1);
    let mut wire = Wire::open_channel(&node.amqp_address()).await;
    let before = node.rss_bytes();
    // Mandatory and unroutable: each comes back whole.
    let payload = [&[0, 60, 0, 40][..], &wire::basic_publish("nowhere", true)].concat();
    let body = vec![1; 32 << 10];
    let publish = [
        frame(wire::METHOD, 1, &payload),
        frame(wire::HEADER, 1, &wire::content_header(60, body.len() as u64, None)),
        frame(wire::BODY, 1, &body),
    ]
    .concat();
    // 256 MiB do not fit anywhere: the broker must stop reading, which shows as a write that waits.
    let mut refused = false;
    for _ in 0..8_192 {
        let sent = tokio::time::timeout(Duration::from_secs(3), wire.try_send(&publish)).await;
        match sent {
            Ok(sent) => sent.expect("the connection stays"),
            Err(_) => refused = true,
        }
        if refused {
            break;
        }
    }
    assert!(refused, "the broker took 256 MiB of publishes whose returns nobody reads");
    let after = node.rss_bytes();
    figure("deaf publisher: memory before and after, MiB", (before >> 20, after >> 20));
    assert!(after < before + (64 << 20), "memory went from {before} to {after} bytes");
}
