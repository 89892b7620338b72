//! The power of all nodes' disks is cut while a client publishes: whatever was confirmed is there again
//! afterwards (DUR-01). `make powerloss` does it often. Needs root, loop devices and ext4; the directories
//! are on a file system of their own, whose unsynced bytes are lost with its power.

#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

use lapin::options::BasicPublishOptions;
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, get, open, open_confirming, persistent,
};
use quorate_cluster_tests::harness::disk::{CallFault, CallFaults, LoopDisk};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Node, Options, figure};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

const QUEUE: &str = "kept";

/// Publishes under way at a time.
const WINDOW: usize = 50;

/// Every so many cycles more is published, of larger messages, so that log files are flushed, taken away
/// and used again before the power is cut.
const LONG_EVERY: u32 = 5;
const LONG_CONFIRMS: usize = 5_000;
const LONG_BODY_BYTES: usize = 32 << 10;

/// How often power is cut.
fn cycles(default: u32) -> u32 {
    let asked = std::env::var("QUORATE_TEST_POWER_LOSSES").ok();
    asked.map_or(default, |text| text.parse().expect("QUORATE_TEST_POWER_LOSSES is a number"))
}

/// A disk; `None`, with the reason printed, where this machine has none to offer.
fn disk() -> Option<LoopDisk> {
    LoopDisk::make(4096).map_err(|why| eprintln!("SKIPPED, power cannot be cut here: {why}")).ok()
}

/// Numbers that a broker has confirmed.
#[derive(Clone, Default)]
struct Confirmed(Arc<Mutex<BTreeSet<u64>>>);

impl Confirmed {
    fn with<T>(&self, look: impl FnOnce(&mut BTreeSet<u64>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn count(&self) -> usize {
        self.with(|numbers| numbers.len())
    }
}

/// Publishes numbers from `first` on until the broker is gone; gives the next one.
async fn publish(uri: String, first: u64, bytes: usize, confirmed: Confirmed) -> u64 {
    let (_connection, channel) = open_confirming(&uri).await;
    let mut under_way = VecDeque::new();
    for number in first.. {
        let options = BasicPublishOptions::default();
        let mut body = number.to_be_bytes().to_vec();
        body.resize(bytes, 0);
        let sent = channel.basic_publish("".into(), QUEUE.into(), options, &body, persistent());
        let Ok(confirm) = sent.await else { return number + 1 };
        under_way.push_back((number, confirm));
        if under_way.len() < WINDOW {
            continue;
        }
        let Some((number, confirm)) = under_way.pop_front() else { continue };
        match confirm.await {
            Ok(confirm) if confirm.is_ack() => {
                confirmed.with(|all| all.insert(number));
            }
            Ok(_) | Err(_) => return number + WINDOW as u64 + 1,
        }
    }
    unreachable!("numbers do not end")
}

/// Publishes for a while, and cuts the power of all nodes; gives the next number.
async fn publish_until_the_power_is_cut(
    cluster: &Cluster,
    disk: &LoopDisk,
    first: u64,
    (further, bytes): (usize, usize),
    confirmed: &Confirmed,
) -> u64 {
    let goal = confirmed.count() + further;
    let publishing = tokio::spawn(publish(cluster.amqp_uri(1), first, bytes, confirmed.clone()));
    eventually("confirms come", || {
        let have = confirmed.count();
        std::future::ready(hold(have >= goal, || format!("{have} of {goal}")))
    })
    .await;
    cluster.nodes().iter().for_each(Node::kill9);
    let next = publishing.await.expect("the publisher ends");
    disk.cut_power();
    next
}

async fn started(cluster: &Cluster) {
    cluster.nodes().iter().for_each(Node::spawn);
    cluster.ready().await;
}

async fn of_nodes(nodes: u64, cycles: u32) {
    let Some(disk) = disk() else { return };
    let cluster = Cluster::prepare(nodes, Options::default()).await;
    cluster.nodes().iter().for_each(|node| disk.take(node));
    started(&cluster).await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    let confirmed = Confirmed::default();
    let mut next = 0;
    for cycle in 1..=cycles {
        let load = match cycle % LONG_EVERY {
            0 => (LONG_CONFIRMS, LONG_BODY_BYTES),
            _ => (200 + (next as usize * 37) % 300, 8),
        };
        next = publish_until_the_power_is_cut(&cluster, &disk, next, load, &confirmed).await;
        started(&cluster).await;
        // Which they are is looked at in the end.
        let wanted = confirmed.count() as u64;
        // A queue has no counts while its leadership moves to another node.
        let counts = || cluster.counts(1, QUEUE, ["messages"]);
        let [messages] = eventually("the queue has counts", counts).await;
        assert!(messages >= wanted, "cycle {cycle}: {messages} messages, {wanted} confirmed");
    }
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    let mut missing = confirmed.with(|all| all.clone());
    while let Some(body) = get(&channel, QUEUE).await {
        let number = body.first_chunk().expect("a number");
        missing.remove(&u64::from_be_bytes(*number));
    }
    assert!(missing.is_empty(), "confirmed and lost: {missing:?}");
    figure(&format!("{nodes} nodes: power losses, confirmed"), (cycles, confirmed.count()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_loses_nothing_confirmed() {
    of_nodes(1, cycles(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_that_lose_their_power_at_once_lose_nothing_confirmed() {
    of_nodes(3, cycles(1)).await;
}

/// That the test above can fail: with syncs that do nothing, confirmed messages are lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_does_not_sync_is_caught() {
    let Some(disk) = disk() else { return };
    let faults = CallFaults::prepare();
    let cluster = Cluster::prepare(1, faults.on(Options::default())).await;
    disk.take(cluster.node(1));
    started(&cluster).await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    connection.close(200, "declared".into()).await.expect("close-ok");
    faults.set(1, CallFault::SyncLies, 1);
    let confirmed = Confirmed::default();
    publish_until_the_power_is_cut(&cluster, &disk, 0, (200, 8), &confirmed).await;
    faults.set(1, CallFault::SyncLies, 0);
    cluster.node(1).spawn();
    let lost = eventually("it is ready, or refuses", || async {
        if !cluster.node(1).runs() {
            return Ok("refused".to_owned());
        }
        let ready = cluster.node(1).get("/health/ready").await?;
        hold(ready.status == 200, || "not ready".to_owned())?;
        let [messages] = cluster.counts(1, QUEUE, ["messages"]).await?;
        let wanted = confirmed.count() as u64;
        Ok(if messages < wanted { format!("{messages} of {wanted}") } else { String::new() })
    })
    .await;
    figure("without syncs", &lost);
    if lost.is_empty() {
        panic!("{} confirmed messages have survived without a sync", confirmed.count());
    }
}
