//! How soon messages die once it is time, one by one and a great many together (Q-21).

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::{
    beside, declare_quorum, declare_with, int, open, open_confirming, persistent,
    publish_confirmed, publish_with, ready, text,
};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options, scale};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "says nothing on a machine that others use: make acceptance"]
async fn q_21_a_message_dies_within_a_tenth_of_a_second_of_its_moment() {
    const TTL_MS: u64 = 700;
    let cluster = Cluster::start(3, Options::alone()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let mut latest = Duration::ZERO;
    for queue_type in ["quorum", "classic"] {
        let ttl = ("x-message-ttl", int(TTL_MS as i64));
        declare_with(&channel, queue_type, &[("x-queue-type", text(queue_type)), ttl]).await;
        for round in 0..20 {
            let begun = Instant::now();
            assert!(publish_with(&channel, queue_type, b"short-lived", persistent()).await);
            while ready(&connection, queue_type).await == Ok(1) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let late = begun.elapsed().checked_sub(Duration::from_millis(TTL_MS));
            assert!(late.is_some(), "{queue_type}, round {round}: too early");
            latest = latest.max(late.unwrap_or_default());
        }
    }
    scale::EXPIRES_LATE.upto("the latest of 40 messages", latest);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a million messages: make acceptance"]
async fn q_21_a_million_that_expire_together_hold_nobody_up() {
    let count = scale::EXPIRING.get();
    let cluster = Cluster::start(3, Options::alone().with("--queue-groups", "1")).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    let fill = tokio::process::Command::new(cluster.binary())
        .args(["perf", "--uri", &cluster.amqp_uri(2), "--queue-name", "many", "--size", "20"])
        .args(["--keep", "--consumers", "0", "--messages", &count.to_string()])
        .kill_on_drop(true)
        .output();
    let filled = fill.await.expect("perf runs");
    assert!(filled.status.success(), "{filled:?}");
    declare_quorum(&channel, "other").await;
    let ready = || async {
        let [ready] = cluster.counts(1, "many-1", ["messages_ready"]).await?;
        Ok::<u64, String>(ready)
    };
    assert_eq!(ready().await, Ok(count));
    // Q-20: a TTL by policy acts on what is there, and all of it is older.
    let expire = async {
        let set = ["set_policy", "ttl", "^many", r#"{"message-ttl":1}"#];
        cluster.ctl(3, &set).await.succeeded().expect("set");
        let begun = Instant::now();
        eventually("all have expired", || async {
            let left = ready().await?;
            hold(left == 0, || format!("{left} of {count} are left"))
        })
        .await;
        begun.elapsed()
    };
    let (took, slowest) = beside(&cluster.amqp_uri(1), "other", expire).await;
    scale::held("many expire together: how many, and in what time", (count, took));
    scale::BESIDE_EXPIRY.upto("longest publish beside them", slowest);
    let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(3)).await;
    publish_confirmed(&publisher, "other", b"after").await;
}
