//! One node's disk hangs, fills up, or fails: that is noticed and told in a clear line, nothing confirmed is
//! lost, and the others go on (DESIGN §8).

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use lapin::options::BasicPublishOptions;
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, get, open, open_confirming, persistent,
};
use quorate_cluster_tests::harness::ctl;
use quorate_cluster_tests::harness::disk::{CallFault, CallFaults, EIO, ENOSPC};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, GROUPS, Node, Options, figure};
use quorate_cluster_tests::history::{ConsumerOptions, Load, PublisherOptions};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const QUEUE: &str = "faulty";

/// A cluster whose disks obey.
async fn started(faults: &CallFaults) -> Cluster {
    let cluster = Cluster::start(3, faults.on(Options::default())).await;
    // A raise of the machine version writes to the disk while nothing else is applied.
    for node in [1, 2, 3] {
        says(cluster.node(node), &["the cluster's machine version is raised to=4"]).await;
    }
    cluster
}

/// A cluster whose disks obey, the queue's leader, and load on the two other nodes.
async fn under_load(faults: &CallFaults) -> (Cluster, u64, Load) {
    let cluster = started(faults).await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    let leader = cluster.leader_of(QUEUE).await;
    let others = cluster.others(leader);
    let load = Load::on(QUEUE)
        .publish(PublisherOptions::new(cluster.amqp_uri(others[0]), QUEUE))
        .consume(ConsumerOptions::new(cluster.amqp_uri(others[1]), QUEUE));
    load.delivers(500).await;
    (cluster, leader, load)
}

/// Waits for a line of a node's log that has all these words; gives it.
async fn says(node: &Node, words: &[&str]) -> String {
    let what = format!("node {} says {words:?}", node.id());
    eventually(&what, || async {
        let log = node.log();
        let line = log.lines().find(|line| words.iter().all(|word| line.contains(word)));
        line.map(str::to_owned).ok_or_else(|| "it does not".to_owned())
    })
    .await
}

/// A node ends by itself, with a failure and a line that has all these words.
async fn ends_saying(node: &Node, words: &[&str]) {
    let status = node.ends().await;
    assert_eq!(status.code().map(|code| code != 0), Some(true), "{status}");
    let line = says(node, words).await;
    figure("said", line);
    assert!(!node.log().contains("panicked"), "node {} panicked", node.id());
}

/// A leader whose disk does not answer is replaced, although it lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_syncs_hang_gives_up_its_leaderships() {
    let faults = CallFaults::prepare();
    let (cluster, leader, load) = under_load(&faults).await;
    let others = cluster.others(leader);
    let from = load.history().now();
    faults.set(leader, CallFault::SyncHangs, 1);
    says(cluster.node(leader), &["a disk sync does not finish", "giving up all leaderships"]).await;
    eventually("another node leads", || async {
        let rows = cluster.rows(others[0], &["list_queues", "name", "leader"]).await?;
        let leads = ctl::text(rows.first().ok_or("not listed")?, "leader");
        let named = others.iter().any(|node| leads.contains(&node.to_string()));
        hold(named, || format!("'{leads}' leads"))
    })
    .await;
    load.confirms(500).await;
    load.delivers(500).await;
    let history = load.history();
    figure("sync hangs: longest gap", history.longest_confirm_gap(QUEUE, from, history.now()));
    assert!(cluster.node(leader).runs(), "it lives");
    faults.set(leader, CallFault::SyncHangs, 0);
    says(cluster.node(leader), &["disk syncs finish again"]).await;
    load.finish(&cluster).await;
}

/// A cluster of three nodes under load through the third, whose disk hangs. It leads all groups, since the
/// others are drained.
async fn led_by_one_that_hangs() -> (CallFaults, Cluster, Load) {
    let faults = CallFaults::prepare();
    let cluster = started(&faults).await;
    let (connection, channel) = open(&cluster.amqp_uri(3)).await;
    declare_quorum(&channel, QUEUE).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    for node in [1, 2] {
        cluster.ctl(node, &["drain"]).await.succeeded().expect("drained");
    }
    let load = Load::on(QUEUE)
        .publish(PublisherOptions::new(cluster.amqp_uri(3), QUEUE))
        .consume(ConsumerOptions::new(cluster.amqp_uri(3), QUEUE));
    load.delivers(500).await;
    assert_eq!(cluster.leader_of(QUEUE).await, 3);
    faults.set(3, CallFault::SyncHangs, 1);
    says(cluster.node(3), &["a disk sync does not finish"]).await;
    (faults, cluster, load)
}

/// A node whose disk hangs offers its leaderships again and again: one that comes back takes them.
#[tokio::test(flavor = "multi_thread")]
async fn mem_13_a_node_that_is_revived_takes_over_from_one_whose_disk_hangs() {
    let (faults, cluster, load) = led_by_one_that_hangs().await;
    cluster.ctl(1, &["revive"]).await.succeeded().expect("revived");
    eventually("the revived node leads", || async {
        let leader = cluster.leader_of(QUEUE).await;
        hold(leader == 1, || format!("node {leader} leads"))
    })
    .await;
    // Clients of the node whose disk hangs wait from now on: it cannot follow the catalog, so its routing
    // lease runs out (NAM 5). Those of the others do not.
    let load = load
        .publish(PublisherOptions::new(cluster.amqp_uri(1), QUEUE))
        .consume(ConsumerOptions::new(cluster.amqp_uri(1), QUEUE));
    load.confirms(500).await;
    load.delivers(500).await;
    faults.set(3, CallFault::SyncHangs, 0);
    says(cluster.node(3), &["disk syncs finish again"]).await;
    load.finish(&cluster).await;
}

/// The drained nodes decline the leaderships of one whose disk hangs. It keeps them, and goes on when its
/// disk does.
#[tokio::test(flavor = "multi_thread")]
async fn mem_13_a_disk_that_hangs_on_the_only_node_that_is_not_drained_ends_no_group() {
    let (faults, cluster, load) = led_by_one_that_hangs().await;
    faults.set(3, CallFault::SyncHangs, 0);
    says(cluster.node(3), &["disk syncs finish again"]).await;
    load.confirms(500).await;
    load.delivers(500).await;
    load.finish(&cluster).await;
}

/// A node whose disk does not answer for a minute should be restarted; one that waits for others, or
/// whose disk hangs for a shorter time, should not.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_disk_hangs_for_a_minute_is_not_live_ctl_16() {
    let faults = CallFaults::prepare();
    let cluster = Cluster::start(1, faults.on(Options::default())).await;
    let (node, begun) = (cluster.node(1), Instant::now());
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    faults.set(1, CallFault::SyncHangs, 1);
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish("".into(), QUEUE.into(), options, b"stuck", persistent());
    sent.await.expect("sent");
    let answer = eventually("it is not live", || async {
        let answer = node.get("/health/live").await?;
        hold(answer.status != 200, || "it is live".to_owned()).map(|()| answer)
    })
    .await;
    assert!(begun.elapsed() >= Duration::from_secs(60), "after {:?}", begun.elapsed());
    assert_eq!(answer.status, 503);
    let lasts = answer.body.strip_prefix("a disk sync has not finished for ");
    let seconds = lasts.and_then(|lasts| lasts.split(|it: char| !it.is_ascii_digit()).next());
    let seconds = seconds.and_then(|seconds| seconds.parse::<u64>().ok());
    assert!(seconds >= Some(60), "{}", answer.body);
    let pinged = cluster.ctl(1, &["ping"]).await;
    assert_eq!(pinged.code, 69, "{pinged:?}");
    assert!(pinged.stderr.contains("a disk sync has not finished"), "{pinged:?}");
    faults.set(1, CallFault::SyncHangs, 0);
    eventually("it is live again", || async {
        let answer = node.get("/health/live").await?;
        hold(answer.status == 200, || answer.body)
    })
    .await;
    cluster.ctl(1, &["ping"]).await.succeeded().expect("it lives");
}

/// The disk of a queue's leader fails once and for all; it comes back with a good one.
async fn ends_and_comes_back(fault: CallFault, error: u32, words: &[&str]) {
    let faults = CallFaults::prepare();
    let (cluster, leader, load) = under_load(&faults).await;
    faults.set(leader, fault, error);
    ends_saying(cluster.node(leader), words).await;
    load.confirms(500).await;
    load.delivers(500).await;
    faults.set(leader, fault, 0);
    cluster.node(leader).restart().await;
    load.delivers(500).await;
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_the_node_and_nothing_else() {
    let words = ["storage: cannot write", "No space left on device"];
    ends_and_comes_back(CallFault::WriteFails, ENOSPC, &words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_fails_ends_the_node_and_nothing_else() {
    let words = ["storage: cannot write", "Input/output error"];
    ends_and_comes_back(CallFault::SyncFails, EIO, &words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_cannot_be_read_is_refused_at_the_start() {
    let faults = CallFaults::prepare();
    let (cluster, leader, load) = under_load(&faults).await;
    cluster.node(leader).kill9();
    faults.set(leader, CallFault::ReadFails, EIO);
    cluster.node(leader).spawn();
    ends_saying(cluster.node(leader), &["data_dir", "Input/output error"]).await;
    faults.set(leader, CallFault::ReadFails, 0);
    cluster.node(leader).restart().await;
    load.finish(&cluster).await;
}

/// The newest file of a node's write-ahead log.
fn newest_log(data_dir: &Path) -> PathBuf {
    let entries = fs::read_dir(data_dir.join("db")).expect("a database").flatten();
    let logs = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.max().expect("a write-ahead log")
}

/// A node that has lost the middle of what it had synced neither votes nor acknowledges.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_with_a_hole_is_refused_with_the_files_name() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    fill(&channel, 100).await;
    assert_replicas_equal(&cluster).await;
    // Written behind the hole: a last write alone may be torn.
    fill(&channel, 10).await;
    assert_replicas_equal(&cluster).await;
    let node = cluster.node(3);
    node.kill9();
    let log = newest_log(node.data_dir());
    let whole = fs::read(&log).expect("the log");
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, bytes).expect("spoilt");
    for _ in 0..2 {
        node.spawn();
        ends_saying(node, &[&log.display().to_string(), "write-ahead log is damaged"]).await;
    }
    fill(&channel, 10).await;
    fs::write(&log, whole).expect("as it was");
    node.restart().await;
    assert_replicas_equal(&cluster).await;
    cluster.node(2).kill9();
    take_all(&cluster, 3, 120).await;
}

/// Publishes, and waits for the confirms.
async fn fill(channel: &lapin::Channel, count: usize) {
    let mut confirms = Vec::new();
    for _ in 0..count {
        let options = BasicPublishOptions::default();
        let body = [7; 16 << 10];
        let sent = channel.basic_publish("".into(), QUEUE.into(), options, &body, persistent());
        confirms.push(sent.await.expect("sent"));
    }
    for confirm in confirms {
        assert!(confirm.await.expect("a confirm").is_ack());
    }
}

async fn take_all(cluster: &Cluster, from: u64, count: usize) {
    let (_connection, channel) = open(&cluster.amqp_uri(from)).await;
    for number in 0..count {
        assert!(get(&channel, QUEUE).await.is_some(), "{number} of {count} messages are left");
    }
    assert_eq!(get(&channel, QUEUE).await, None);
}

/// A follower without room for a snapshot is held back, goes on, and catches up when it has room.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_does_not_fit_is_not_received() {
    let faults = CallFaults::prepare();
    let options =
        Options::default().with("--log-tail-bytes", "0").with("--disk-free-limit", "1GiB");
    let cluster = Cluster::start(3, faults.on(options)).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    let node = cluster.node(3);
    let index = |of: u64, name: &'static str| {
        let cluster = &cluster;
        async move { cluster.node(of).metrics().await.sum(name).expect("a gauge of the groups") }
    };
    let known = index(3, "quorate_group_applied_index").await;
    node.kill9();
    for _ in 0..4 {
        fill(&channel, 500).await;
    }
    for other in [1, 2] {
        eventually("what the follower needs is purged", || async {
            let purged = index(other, "quorate_group_purged_index").await;
            hold(purged > known + 20.0, || format!("{purged}, it knows {known}"))
        })
        .await;
    }
    // More than the limit of the alarm, less than what a snapshot takes beside it.
    faults.set(3, CallFault::FreeMib, 1024 + 4);
    let begun = Instant::now();
    node.spawn();
    says(node, &["snapshot refused", "disk_free_limit"]).await;
    let first = Instant::now();
    while first.elapsed() < Duration::from_secs(3) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(node.runs(), "it has ended");
    }
    // Each group tries once in ten seconds.
    let refusals = node.log().matches("snapshot refused").count() as f64;
    let took = begun.elapsed();
    let bound = GROUPS * (2.0 + took.as_secs_f64() / 10.0);
    assert!(refusals <= bound, "{refusals} refusals in {took:?}");
    faults.set(3, CallFault::FreeMib, 0);
    node.ready().await;
    assert_replicas_equal(&cluster).await;
    cluster.node(2).kill9();
    take_all(&cluster, 3, 2_000).await;
}
