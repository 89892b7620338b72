//! A long backlog costs disk, not memory; drained, it costs nothing.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Node, Options, figure, scale};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

const QUEUE: &str = "backlog-1";

/// Bytes of all files under a folder. Files come and go while one looks.
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
    let output = in_time("perf ends", run).await.expect("perf runs");
    assert!(output.status.success(), "{output:?}");
    begun.elapsed()
}

/// Messages in the queue, once nobody holds any.
async fn waiting(cluster: &Cluster) -> u64 {
    eventually("all messages are ready", || async {
        let columns = ["messages", "messages_unacknowledged"];
        let [messages, unacked] = cluster.counts(3, QUEUE, columns).await?;
        hold(unacked == 0, || format!("{unacked} are held"))?;
        Ok(messages)
    })
    .await
}

/// Watches the memory of all nodes while something goes on: what that gives, and the most MiB that any
/// node had.
async fn most_memory<T>(cluster: &Cluster, goes_on: impl Future<Output = T>) -> (T, u64) {
    let mut most = 0;
    let mut look = tokio::time::interval(Duration::from_millis(100));
    tokio::pin!(goes_on);
    loop {
        tokio::select! {
            done = &mut goes_on => return (done, most),
            _ = look.tick() => {
                let now = cluster.nodes().iter().map(Node::rss_bytes).max();
                most = most.max(now.unwrap_or_default() >> 20);
            }
        }
    }
}

/// Drains the queue in four parts; how many a second in each.
async fn drain(cluster: &Cluster) -> Vec<f64> {
    let mut rates = Vec::new();
    for quarter in 1..=4 {
        let before = waiting(cluster).await;
        // perf takes some thousands more than it is asked for. Parts of what is left are about as large
        // as each other, so that the time in which perf starts counts alike in all.
        let part = before / (5 - quarter);
        let took = perf(cluster, &["--publishers", "0", "--messages", &part.to_string()]).await;
        rates.push((before - waiting(cluster).await) as f64 / took.as_secs_f64());
    }
    rates
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_costs_no_memory_and_drains_at_an_even_rate() {
    let count = scale::BACKLOG.get();
    let cluster = Cluster::start(3, Options::alone()).await;
    let all = count.to_string();
    let flags = ["--consumers", "0", "--messages", &all];
    let fill = perf(&cluster, &flags);
    let (filled, memory) = most_memory(&cluster, fill).await;
    assert_eq!(cluster.counts(2, QUEUE, ["messages_ready"]).await, Ok([count]));
    figure(&format!("{count} waiting: time to fill"), filled);
    figure(&format!("{count} waiting: disk of all nodes, MiB"), size(cluster.folder()) >> 20);
    scale::BACKLOG_MEMORY.upto("most MiB of a node while it fills", memory);
    let (rates, memory) = most_memory(&cluster, drain(&cluster)).await;
    figure(&format!("{count} waiting: drained a second, by quarters"), &rates);
    scale::BACKLOG_MEMORY.upto("most MiB of a node while it is drained", memory);
    scale::BACKLOG_EVEN.at_least("rate of the slowest quarter by the first", slowest(&rates));
    assert_eq!(waiting(&cluster).await, 0);
    assert_replicas_equal(&cluster).await;
    let disk = eventually("the disk is given back", || async {
        let disk = size(cluster.folder()) >> 20;
        hold(scale::BACKLOG_DISK.allows(disk), || format!("{disk} MiB on three nodes"))?;
        Ok(disk)
    });
    scale::BACKLOG_DISK.upto("MiB of disk on all nodes when it is drained", disk.await);
}

/// The lowest rate, as a part of the first.
fn slowest(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(f64::INFINITY, f64::min) / rates[0]
}
