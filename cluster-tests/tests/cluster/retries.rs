//! Delayed retry on real nodes: a returned message waits its time at its place, is counted and shown
//! meanwhile, and comes back once, also when its leader dies.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use crate::browse::{ctl, hold_one};
use crate::redrive::cluster_of_three;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use quorate_cluster_tests::harness::Cluster;
use quorate_cluster_tests::harness::amqp::{
    declare_with, int, open_confirming, publish_confirmed, text,
};
use quorate_cluster_tests::harness::dead_letters::arrives;
use quorate_cluster_tests::harness::wait::{eventually, hold};
use std::time::{Duration, Instant};

/// Longer than all takes that is looked at before it is over.
const WAIT_MS: i64 = 40_000;
/// The group's clock may be so much ahead of this one's.
const CLOCK: Duration = Duration::from_millis(200);

/// Payloads and states of the messages, as a node shows them.
async fn states(cluster: &Cluster, id: u64) -> Vec<(String, String)> {
    let page = ctl(cluster, id, &["browse", "q"]).await;
    let messages = page["messages"].as_array().expect("messages");
    let word = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    messages.iter().map(|it| (word(&it["payload"]), word(&it["state"]))).collect()
}

fn all_of(states: [(&str, &str); 3]) -> Vec<(String, String)> {
    states.map(|(payload, state)| (payload.to_owned(), state.to_owned())).to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn rqu_07_rqu_08_a_returned_message_waits_its_time_though_its_leader_dies() {
    let cluster = cluster_of_three().await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let retried = [
        ("x-queue-type", text("quorum")),
        ("x-delayed-retry-type", text("all")),
        ("x-delayed-retry-min", int(WAIT_MS)),
        ("x-delayed-retry-max", int(WAIT_MS)),
    ];
    declare_with(&channel, "q", &retried).await;
    for body in ["a", "b", "c"] {
        publish_confirmed(&channel, "q", body.as_bytes()).await;
    }
    // The client's node stays.
    let leader = cluster.leader_of("q").await;
    let spared = if leader == 1 { 2 } else { 1 };
    let (_other, other) = open_confirming(&cluster.amqp_uri(spared)).await;
    let first = hold_one(&other, "q").await;
    assert_eq!(first.data, b"a");
    let returned = Instant::now();
    first.nack(BasicNackOptions { requeue: true, multiple: false }).await.expect("sent");
    let columns = ["messages", "messages_ready", "messages_unacknowledged", "messages_delayed"];
    eventually("one message waits", || async {
        let counts = cluster.counts(spared, "q", columns).await?;
        hold(counts == [3, 2, 0, 1], || format!("{counts:?}"))
    })
    .await;
    let waiting = all_of([("a", "delayed"), ("b", "ready"), ("c", "ready")]);
    for id in 1..=3 {
        assert_eq!(states(&cluster, id).await, waiting, "node {id}");
    }
    let position = ctl(&cluster, spared, &["browse", "q"]).await;
    let position = position["messages"][0]["position"].as_str().expect("a position");
    let explained = cluster.ctl(spared, &["explain", "q", position]).await;
    assert!(explained.stdout.contains("It was returned, and is ready again at"), "{explained:?}");
    cluster.node(leader).kill9();
    for body in [b"b", b"c"] {
        let got = hold_one(&other, "q").await;
        assert_eq!(got.data, body);
        got.ack(BasicAckOptions::default()).await.expect("sent");
    }
    let back = arrives(&other, "q").await;
    assert_eq!((back.data.as_slice(), back.redelivered), (b"a".as_slice(), true));
    let waited = returned.elapsed() + CLOCK;
    assert!(waited >= Duration::from_millis(WAIT_MS.unsigned_abs()), "{waited:?}");
    eventually("nothing is left", || async {
        let counts = cluster.counts(spared, "q", columns).await?;
        hold(counts == [0, 0, 0, 0], || format!("{counts:?}"))
    })
    .await;
}
