//! Large bodies cost a node bounded memory, whoever waits for them, and one that a node cannot read
//! comes from another (DESIGN §6, DLV 1, LET 1).

#![expect(clippy::expect_used, reason = "tests")]

use futures::StreamExt;
use quorate_cluster_tests::harness::amqp::{
    consume, declare_quorum, declare_with, open, open_confirming, publish_confirmed, ready, text,
};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::wire::{self, Wire};
use quorate_cluster_tests::harness::{Cluster, Node, Options, figure, scale};
use std::cell::Cell;
use std::time::{Duration, Instant};

const BODY_BYTES: usize = 8 << 20;
const MIB: u64 = 1 << 20;

/// What one connection may cost: 4 MiB ahead, one message, the block cache, and what reading a
/// message takes for a moment.
const DEAF_BYTES_MAX: u64 = 72 * MIB;

/// What letters may cost a node: the cache of runs, the write buffers and a lane have 64 MiB each,
/// and 16 MiB of letters are under way and as many are being routed.
const LETTERS_BYTES_MAX: u64 = 224 * MIB;

/// What is held of the queue no longer changes.
async fn settled(cluster: &Cluster, queue: &str) {
    let last = Cell::new([u64::MAX; 2]);
    eventually("what is held no longer changes", || async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = cluster.counts(1, queue, ["messages_ready", "messages_unacknowledged"]).await?;
        let before = last.replace(now);
        hold(now == before && now[1] > 0, || format!("{before:?}, then {now:?}"))
    })
    .await;
}

fn assert_grown_by_at_most(node: &Node, before: u64, what: &str, max: u64) {
    let after = node.rss_bytes();
    figure(&format!("{what}: memory before and after, MiB"), (before / MIB, after / MIB));
    assert!(after < before + max, "{what}: memory went from {before} to {after} bytes");
}

/// Reads until `count` frames of that method have come.
async fn read_all(wire: &mut Wire, (class, method): (u16, u16), count: usize) {
    let mut read = 0;
    while read < count {
        let frame = wire.next().await.expect("the connection stays");
        read += usize::from(frame.method() == Some((class, method)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_costs_one_message_and_misses_none() {
    const MESSAGES: u16 = 40;
    let cluster = Cluster::start(1, Options::default()).await;
    let node = cluster.node(1);
    let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
    declare_quorum(&channel, "unread").await;
    for _ in 0..MESSAGES {
        publish_confirmed(&channel, "unread", &vec![1; BODY_BYTES]).await;
    }

    let before = node.rss_bytes();
    let mut deaf = Wire::open_channel(&node.amqp_address()).await;
    deaf.method(1, 60, 20, &wire::basic_consume("unread", false)).await;
    deaf.expect(1, 60, 21).await;
    settled(&cluster, "unread").await;
    assert_grown_by_at_most(node, before, "a deaf consumer", DEAF_BYTES_MAX);
    read_all(&mut deaf, (60, 60), usize::from(MESSAGES)).await;
    drop(deaf);
    eventually("what it held is ready again", || async {
        let [unacked] = cluster.counts(1, "unread", ["messages_unacknowledged"]).await?;
        hold(unacked == 0, || format!("{unacked} unacked"))
    })
    .await;

    let before = node.rss_bytes();
    let mut deaf = Wire::open(&node.amqp_address()).await;
    for number in 1..=MESSAGES {
        deaf.method(number, 20, 10, &[0]).await;
        deaf.expect(number, 20, 11).await;
    }
    for number in 1..=MESSAGES {
        let get = [&[0, 0][..], &wire::short("unread"), &[0]].concat();
        deaf.method(number, 60, 70, &get).await;
    }
    settled(&cluster, "unread").await;
    assert_grown_by_at_most(node, before, "gets of all channels", DEAF_BYTES_MAX);
    read_all(&mut deaf, (60, 71), usize::from(MESSAGES)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_that_die_together_hold_nobody_up() {
    let messages = u32::try_from(scale::LARGE_DEAD.get()).expect("a number of messages");
    let cluster = Cluster::start(3, Options::alone()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "target").await;
    let dead = [
        ("x-queue-type", text("quorum")),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text("target")),
    ];
    declare_with(&channel, "source", &dead).await;
    let begun = Instant::now();
    for _ in 0..messages {
        publish_confirmed(&channel, "source", &vec![1; BODY_BYTES]).await;
    }
    figure(&format!("publishing {messages} messages of 8 MiB"), begun.elapsed());
    let before: Vec<u64> = cluster.nodes().iter().map(Node::rss_bytes).collect();
    let mut most = before.clone();
    let expire = ["set_policy", "expire", "^source$", r#"{"message-ttl":1}"#];
    assert_eq!(cluster.ctl(1, &expire).await.code, 0);

    let (begun, mut slowest) = (Instant::now(), Duration::ZERO);
    let arrival = async {
        loop {
            let asked = Instant::now();
            // It was refused, after ten seconds.
            let arrived = ready(&connection, "target").await.expect("it is answered");
            slowest = slowest.max(asked.elapsed());
            for (most, node) in most.iter_mut().zip(cluster.nodes()) {
                *most = node.rss_bytes().max(*most);
            }
            if arrived == messages {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    in_time("all letters arrive", arrival).await;
    let took = begun.elapsed();
    figure(&format!("{messages} dead letters of 8 MiB have arrived"), took);
    scale::BESIDE_LETTERS.upto("slowest passive declare", slowest);
    // On a slow machine all takes its time, but nobody waits for the whole of them.
    let bound = Duration::from_secs(5).max(took / 2);
    assert!(slowest < bound, "a passive declare took {slowest:?} of {took:?}");
    let grown: Vec<u64> = most.iter().zip(&before).map(|(most, before)| most - before).collect();
    figure("memory beyond what it was, MiB", grown.iter().map(|it| it / MIB).collect::<Vec<_>>());
    let leader = usize::try_from(cluster.leader_of("source").await).expect("small") - 1;
    assert!(
        grown.get(leader).is_some_and(|it| *it < LETTERS_BYTES_MAX),
        "{grown:?}, leader {leader}"
    );
}

/// The leader that the queue's group comes back to after a restart: leaderships move to where they
/// belong within seconds of a start.
async fn lasting_leader(cluster: &Cluster, queue: &str) -> u64 {
    let (mut leader, mut since) = (cluster.leader_of(queue).await, Instant::now());
    while since.elapsed() < Duration::from_secs(4) {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let now = cluster.leader_of(queue).await;
        if now != leader {
            (leader, since) = (now, Instant::now());
        }
    }
    leader
}

/// Flips a byte of what is stored of a body; how often it was found.
fn damage(node: &Node, marker: &[u8]) -> usize {
    let mut found = 0;
    for entry in std::fs::read_dir(node.data_dir().join("db")).expect("the database") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "sst") {
            continue;
        }
        let mut bytes = std::fs::read(&path).expect("a table");
        let at: Vec<_> = bytes
            .windows(marker.len())
            .enumerate()
            .filter(|(_, window)| *window == marker)
            .map(|(at, _)| at)
            .collect();
        for at in &at {
            *bytes.get_mut(*at).expect("it was found there") ^= 1;
        }
        if !at.is_empty() {
            std::fs::write(&path, bytes).expect("written");
        }
        found += at.len();
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn f_15_a_body_that_the_leader_cannot_read_comes_from_another_node() {
    const MESSAGES: usize = 6;
    const FILLERS: usize = 300;
    let cluster = Cluster::start(3, Options::default().with("--log-tail-bytes", "0")).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "damaged").await;
    let body = |number: usize| format!("body-{number};").repeat(8_000).into_bytes();
    for number in 0..MESSAGES {
        publish_confirmed(&channel, "damaged", &body(number)).await;
    }
    // A leader that cannot read its log for a follower ends; a body must be readable for longer.
    let sum = |name: &'static str| {
        let node = cluster.node(1);
        async move { node.metrics().await.sum(name).expect("a gauge of the groups") }
    };
    let applied = sum("quorate_group_applied_index").await;
    for _ in 0..FILLERS {
        publish_confirmed(&channel, "damaged", b"filler").await;
    }
    eventually("the log of the bodies is purged", || async {
        let purged = sum("quorate_group_purged_index").await;
        hold(purged > applied + FILLERS as f64 / 2.0, || format!("{purged}, it was {applied}"))
    })
    .await;
    cluster.leaders_rest().await;
    let id = lasting_leader(&cluster, "damaged").await;
    let leader = cluster.node(id);
    // A start brings what was in the write-ahead log into a table.
    leader.sigterm().await;
    leader.restart().await;
    leader.sigterm().await;
    assert!(damage(leader, &body(2)) > 0, "no table has the body");
    leader.restart().await;
    eventually("it leads again", || async {
        let now = cluster.leader_of("damaged").await;
        hold(now == id, || format!("{now} leads"))
    })
    .await;
    let (_connection, channel) = open(&cluster.amqp_uri(id)).await;
    let mut consumer = consume(&channel, "damaged").await;
    for number in 0..MESSAGES {
        let next = in_time("the next message", consumer.next()).await;
        let delivery = next.expect("a delivery").expect("the channel stays open");
        assert!(delivery.data == body(number), "body {number} is another one");
    }
    assert!(leader.log().contains("cannot be read"), "its log does not say so");
}
