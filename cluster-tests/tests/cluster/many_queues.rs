//! Many queues: declared fast, idle for next to nothing, all there after a restart, and listed in pages.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use lapin::options::BasicPublishOptions;
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, get, open, open_confirming, passive, persistent,
};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Node, Options, figure, http, scale};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Declares under way at once, each on a channel of its own.
const CHANNELS: usize = 60;
/// The cluster is watched idling for this long.
const IDLE: Duration = Duration::from_secs(5);
/// How long a cluster may be busy with what many declares leave to do, where that is judged.
const SETTLED: Duration = Duration::from_secs(60);

/// Some of what queues are sorted by: what stands in the catalog, what leaders count, and rates.
const COLUMNS: [&str; 10] = [
    "name",
    "messages",
    "memory",
    "node",
    "policy",
    "online",
    "message_bytes",
    "message_stats.publish_details.rate",
    "messages_dlx",
    "oldest_message_age_seconds",
];

fn name(number: usize) -> String {
    format!("many-{number}")
}

async fn declare_all(cluster: &Cluster, count: usize) {
    let lanes = (0..CHANNELS).map(|lane| async move {
        let id = lane as u64 % 3 + 1;
        let (connection, channel) = open(&cluster.amqp_uri(id)).await;
        for number in (lane..count).step_by(CHANNELS) {
            declare_quorum(&channel, &name(number)).await;
        }
        connection.close(200, "done".into()).await.expect("close-ok");
    });
    futures::future::join_all(lanes).await;
}

/// One message into each, through one node.
async fn publish_to_all(cluster: &Cluster, count: usize) {
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(2)).await;
    let mut confirms = Vec::new();
    for number in 0..count {
        let queue = name(number);
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let body = queue.as_bytes();
        let sent =
            channel.basic_publish("".into(), queue.as_str().into(), options, body, persistent());
        confirms.push(sent.await.expect("sent"));
    }
    for (number, confirm) in confirms.into_iter().enumerate() {
        let confirm = confirm.await.expect("a confirm");
        assert!(confirm.is_ack(), "{number}: {confirm:?}");
        assert!(confirm.take_message().is_none(), "{number} was returned");
    }
}

/// Processor time that the whole cluster uses a second, of one core.
async fn idle_share(cluster: &Cluster) -> f64 {
    let before = cluster.cpu_time();
    tokio::time::sleep(IDLE).await;
    (cluster.cpu_time() - before).as_secs_f64() / IDLE.as_secs_f64()
}

/// The same, once the cluster has done what many declares leave to do. It is measured again and again until it
/// is within its bound, for [`SETTLED`] at most.
async fn at_idle(cluster: &Cluster) -> f64 {
    let begun = Instant::now();
    loop {
        let share = idle_share(cluster).await;
        if scale::IDLE_CORES.allows(share) || begun.elapsed() > SETTLED {
            return share;
        }
    }
}

/// Restarts every node at once; the time until all are ready again.
async fn restart_all(cluster: &Cluster) -> Duration {
    futures::future::join_all(cluster.nodes().iter().map(Node::sigterm)).await;
    let begun = Instant::now();
    cluster.nodes().iter().for_each(Node::spawn);
    cluster.ready().await;
    begun.elapsed()
}

/// The page of a hundred queues that is sorted by that column; how long its answer takes.
async fn page(cluster: &Cluster, count: usize, column: &str) -> Duration {
    let path = format!("/api/queues?page=3&page_size=100&sort={column}&sort_reverse=true");
    let mut times = Vec::new();
    for round in 0..5 {
        let node = cluster.node(round % 3 + 1);
        let (answer, took) = eventually("an answer with the queues of all nodes", || async {
            let begun = Instant::now();
            let answer = http::get_as_guest(&node.http_address(), &path, "guest").await;
            let took = begun.elapsed();
            let answer = answer.expect("an answer");
            assert_eq!(answer.status, 200, "{}", answer.body);
            // A node that does not answer within a second is named, so that one asks again.
            let names = answer.headers.contains("silent-nodes");
            assert!(!names || !scale::acceptance(), "{}", answer.headers);
            hold(!names, || answer.headers.clone()).map(|()| (answer, took))
        })
        .await;
        times.push(took);
        let page: Value = serde_json::from_str(&answer.body).expect("a page");
        assert_eq!(page["total_count"], count, "sorted by {column}");
        let items = page["items"].as_array().expect("items");
        assert_eq!(items.len(), 100);
        assert!(items.iter().all(|queue| queue["messages"] == 1), "sorted by {column}");
    }
    times.sort();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn many_queues_are_declared_idle_and_survive_a_restart() {
    let count = scale::QUEUES.get() as usize;
    let cluster = Cluster::start(3, Options::alone()).await;
    let begun = Instant::now();
    declare_all(&cluster, count).await;
    let a_second = count as f64 / begun.elapsed().as_secs_f64();
    scale::DECLARE_RATE.at_least("declared a second", a_second);
    scale::IDLE_CORES.upto("cores at idle", at_idle(&cluster).await);
    let rss: Vec<u64> = cluster.nodes().iter().map(|node| node.rss_bytes() >> 20).collect();
    figure(&format!("{count} queues: memory of each node, MiB"), rss);
    publish_to_all(&cluster, count).await;
    scale::RESTART.upto("restart of all nodes", restart_all(&cluster).await);
    cluster.leaders_rest().await;
    let listed = cluster.rows(3, &["list_queues", "name", "messages"]).await.expect("a list");
    assert_eq!(listed.len(), count);
    let (_connection, channel) = open(&cluster.amqp_uri(3)).await;
    for number in (0..count).step_by(count / 100) {
        let declared = channel.queue_declare(name(number).into(), passive(), <_>::default()).await;
        assert_eq!(declared.expect("declared").message_count(), 1, "{number}");
        assert_eq!(get(&channel, &name(number)).await, Some(name(number).into_bytes()));
    }
    assert_replicas_equal(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_queues_are_listed_in_pages() {
    let count = scale::QUEUES.get() as usize;
    let cluster = Cluster::start(3, Options::alone()).await;
    declare_all(&cluster, count).await;
    publish_to_all(&cluster, count).await;
    cluster.leaders_rest().await;
    for column in COLUMNS {
        scale::QUEUE_PAGE.upto(&format!("sorted by {column}"), page(&cluster, count, column).await);
    }
}

/// Entries that all groups have applied together, as `quorate ctl audit` tells their indexes.
async fn applied(cluster: &Cluster) -> u64 {
    let audit = cluster.ctl(1, &["-q", "audit"]).await.succeeded().expect("equal replicas");
    let index = |line: &&str| {
        let field = line.split('\t').find_map(|field| field.strip_prefix("index "))?;
        field.parse::<u64>().ok()
    };
    let lines = audit.lines();
    let indexes: Vec<u64> = lines.iter().filter_map(index).collect();
    assert_eq!(indexes.len(), lines.len(), "an index for every group: {audit:?}");
    indexes.iter().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_named_exclusive_queue_costs_no_raft_write() {
    use lapin::types::FieldTable;
    use quorate_cluster_tests::harness::amqp::exclusive;
    let cluster = Cluster::start(3, Options::alone()).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    // What the cluster does by itself, a second.
    let (quiet, begun) = (applied(&cluster).await, Instant::now());
    tokio::time::sleep(IDLE).await;
    let before = applied(&cluster).await;
    let by_itself = (before - quiet) as f64 / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..2_000 {
        let queue = channel.queue_declare("".into(), exclusive(), FieldTable::default()).await;
        names.insert(queue.expect("declare-ok").name().to_string());
    }
    let took = begun.elapsed();
    figure("a server-named exclusive queue", took / 2_000);
    assert_eq!(names.len(), 2_000);
    let entries = (applied(&cluster).await - before) as f64;
    // Nothing of the queues.
    let by_itself = 200.0 + 2.0 * by_itself * took.as_secs_f64();
    assert!(entries < by_itself, "{entries} log entries for 2,000 queues in {took:?}");
}
