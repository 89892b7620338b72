//! A long backlog costs disk, not memory; drained, it costs nothing. 300,000 messages, or
//! `QUORATE_TEST_BACKLOG`; at 5,000,000 or more the figures of the release build are required.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, LIFECYCLE_BOUND, Node, Options, figure};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use std::path::Path;
use std::time::{Duration, Instant};

const QUEUE: &str = "backlog-1";
/// For each node, however long the queue.
const MEMORY_BOUND: u64 = 300 << 20;

/// No run of perf takes longer.
const PERF_BOUND: Duration = Duration::from_secs(600);

fn messages() -> u64 {
    let asked = std::env::var("QUORATE_TEST_BACKLOG").ok();
    asked.map_or(300_000, |text| text.parse().expect("QUORATE_TEST_BACKLOG is a number"))
}

/// Octets of all files under a folder. Files come and go while one looks.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Runs `quorate perf` on 100-byte messages; the time it took.
async fn perf(cluster: &Cluster, flags: &[&str]) -> Duration {
    let begun = Instant::now();
    let run = tokio::process::Command::new(cluster.binary())
        .args(["perf", "--uri", &cluster.amqp_uri(1), "--queue-name", "backlog", "--size", "100"])
        .args(["--keep", "--no-purge"])
        .args(flags)
        .kill_on_drop(true)
        .output();
    let output = in_time("perf ends", PERF_BOUND, run).await.expect("perf runs");
    assert!(output.status.success(), "{output:?}");
    begun.elapsed()
}

/// Messages in the queue, once nobody holds any.
async fn waiting(cluster: &Cluster) -> u64 {
    eventually("all messages are ready", LIFECYCLE_BOUND, || async {
        let columns = ["messages", "messages_unacknowledged"];
        let [messages, unacked] = cluster.counts(3, QUEUE, columns).await?;
        hold(unacked == 0, || format!("{unacked} are held"))?;
        Ok(messages)
    })
    .await
}

fn most_memory(cluster: &Cluster) -> u64 {
    cluster.nodes().iter().map(Node::rss_bytes).max().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_costs_no_memory_and_drains_at_an_even_rate() {
    let count = messages();
    let strict = count >= 5_000_000;
    let cluster = Cluster::start(3, Options::alone()).await;
    let all = count.to_string();
    let filled = perf(&cluster, &["--consumers", "0", "--messages", &all]).await;
    assert_eq!(cluster.counts(2, QUEUE, ["messages_ready"]).await, Ok([count]));
    let (memory, disk) = (most_memory(&cluster), size(cluster.folder()));
    figure(&format!("{count} waiting: time to fill"), filled);
    figure(&format!("{count} waiting: largest memory, MiB"), memory >> 20);
    figure(&format!("{count} waiting: disk of all nodes, MiB"), disk >> 20);
    assert!(memory < MEMORY_BOUND, "{memory} octets with {count} messages waiting");
    // In four parts, of which the last must not be slower than the first by much.
    let mut rates = Vec::new();
    for quarter in 1..=4 {
        let before = waiting(&cluster).await;
        // perf may take some more than it is asked for; the last one is asked for the rest.
        let part = if quarter == 4 { before } else { count / 4 };
        let took = perf(&cluster, &["--publishers", "0", "--messages", &part.to_string()]).await;
        rates.push((before - waiting(&cluster).await) as f64 / took.as_secs_f64());
    }
    figure(&format!("{count} waiting: drained a second, by quarters"), &rates);
    assert!(rates[3] > rates[0] / 3.0, "draining slows down: {rates:?}");
    let memory = most_memory(&cluster);
    assert!(memory < MEMORY_BOUND, "{memory} octets after draining");
    assert_eq!(waiting(&cluster).await, 0);
    assert_replicas_equal(&cluster).await;
    if strict {
        eventually("the disk is given back", Duration::from_secs(180), || async {
            let disk = size(cluster.folder()) >> 20;
            hold(disk < 300, || format!("{disk} MiB on three nodes"))
        })
        .await;
    }
    figure("drained: disk of all nodes, MiB", size(cluster.folder()) >> 20);
}
