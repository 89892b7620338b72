//! Each attack of the review against a node with the memory of a small container, beside a client that
//! only wants its messages confirmed: the node lives and stays within its memory, and (`make attacks`,
//! with the release binary) the other client hardly notices.
//!
//! With `QUORATE_TEST_ATTACKS=full` the attacks have the review's sizes and the other client's latency
//! is asserted; in CI they are smaller, and that is only shown.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, declare_with, int, open_confirming, publish_confirmed, text,
};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::wire::{self, Wire, frame};
use quorate_cluster_tests::harness::{Cluster, Node, Options, figure};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const MIB: usize = 1 << 20;
/// Memory of the container that the node is to fit into.
const MEMORY: u64 = 512 << 20;
/// What the other client's confirms may take, of a hundred all but the slowest one, ms.
const LATENCY_BOUND_MS: f64 = 250.0;
/// How long the other client publishes; attacks go on meanwhile.
const SECONDS: u64 = 8;

/// The sizes of the review, and the other client's latency counts.
pub(crate) fn full() -> bool {
    std::env::var("QUORATE_TEST_ATTACKS").is_ok_and(|text| text == "full")
}

/// How many of something an attack has.
pub(crate) fn count(in_ci: usize, in_full: usize) -> usize {
    if full() { in_full } else { in_ci }
}

/// A memory cgroup with a hard limit, where the system lets us make one: a process that needs more is
/// killed.
struct Cage(Option<PathBuf>);

impl Cage {
    fn close_around(&mut self, node: &Node) {
        let folder = PathBuf::from(format!("/sys/fs/cgroup/memory/quorate-attack-{}", node.pid()));
        let made = std::fs::create_dir(&folder)
            .and_then(|()| std::fs::write(folder.join("memory.limit_in_bytes"), MEMORY.to_string()))
            .and_then(|()| std::fs::write(folder.join("cgroup.procs"), node.pid().to_string()));
        self.0 = made.is_ok().then_some(folder);
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            // It is empty, since the node has ended.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// A node of three as it would set itself up in such a container (`cli/memory`); its memory is the
/// machine's here.
pub(crate) fn small() -> Options {
    Options::default()
        .with("--memory-high-watermark", "307MiB")
        .with("--client-memory", "36MiB")
        .with("--run-cache-bytes", "16MiB")
        .with("--write-buffer-bytes", "32MiB")
        .with("--block-cache-bytes", "16MiB")
        .with("--exclusive-memory-bytes", "16MiB")
        .with("--lane-bytes", "16MiB")
}

/// The other client: its p99 of confirms, ms.
async fn beside(node: &Node, cluster: &Cluster) -> f64 {
    let seconds = SECONDS.to_string();
    let output = tokio::process::Command::new(cluster.binary())
        .args(["perf", "--json", "--uri", &node.amqp_uri(), "--queue-name", "beside"])
        .args(["--rate", &count(200, 2_000).to_string(), "--duration", &seconds])
        .args(["--warmup", "1", "-c", "1000", "--pids", &node.pid().to_string()])
        .kill_on_drop(true)
        .output()
        .await
        .expect("perf runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let summary: Value = serde_json::from_str(&said).expect("a summary");
    summary["confirm_us"]["p99"].as_f64().unwrap_or(f64::INFINITY) / 1e3
}

/// Runs an attack for as long as the other client publishes, and looks what became of the node.
pub(crate) async fn lives_through<A>(
    what: &str,
    options: Options,
    attack: impl AsyncFnOnce(&Node) -> A,
) {
    // Declared first, so that it goes last.
    let mut cage = Cage(None);
    let cluster = Cluster::start(1, options).await;
    let node = cluster.node(1);
    cage.close_around(node);
    let most = std::cell::Cell::new(0);
    let watch = async {
        loop {
            assert!(node.runs(), "{what}: the node has ended");
            most.set(node.rss_bytes().max(most.get()));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let both = async {
        let attack = async {
            eventually("the other client is there", || async {
                let [consumers] = cluster.counts(1, "beside-1", ["consumers"]).await?;
                hold(consumers > 0, || "it has no consumer".to_owned())
            })
            .await;
            attack(node).await
        };
        let (kept, p99_ms) = futures::join!(attack, beside(node, &cluster));
        // What the attack holds open is let go only now.
        drop(kept);
        p99_ms
    };
    let p99_ms = tokio::select! {
        p99_ms = both => p99_ms,
        () = watch => unreachable!("it watches for ever"),
    };
    figure(&format!("{what}: MiB at most, others' p99 in ms"), (most.get() >> 20, p99_ms));
    assert!(most.get() < MEMORY, "{what}: {} bytes", most.get());
    // It still does what it is there for.
    let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
    declare_quorum(&channel, "after").await;
    publish_confirmed(&channel, "after", b"served").await;
    if full() {
        assert!(p99_ms < LATENCY_BOUND_MS, "{what}: the others' p99 is {p99_ms} ms");
    }
}

/// A queue with so many messages of 8 MiB, published one by one.
pub(crate) async fn filled(
    node: &Node,
    queue: &str,
    messages: usize,
    arguments: &[(&str, AMQPValue)],
) {
    let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
    declare_with(&channel, queue, arguments).await;
    let body = vec![7; 8 * MIB];
    for _ in 0..messages {
        publish_confirmed(&channel, queue, &body).await;
    }
}

/// Method frame of a class and method.
fn method(channel: u16, class: u16, method: u16, arguments: &[u8]) -> Vec<u8> {
    let payload = [&class.to_be_bytes()[..], &method.to_be_bytes(), arguments].concat();
    frame(wire::METHOD, channel, &payload)
}

pub(crate) fn publish(channel: u16, header: &[u8]) -> Vec<u8> {
    let publish = method(channel, 60, 40, &wire::basic_publish("nowhere", false));
    [publish, frame(wire::HEADER, channel, header)].concat()
}

/// A connection with channels 1 to `channels` open.
async fn with_channels(node: &Node, channels: u16) -> Wire {
    let mut wire = Wire::open(&node.amqp_address()).await;
    let open: Vec<u8> = (1..=channels).flat_map(|number| method(number, 20, 10, &[0])).collect();
    wire.send(&open).await;
    for number in 1..=channels {
        wire.expect(number, 20, 11).await;
    }
    wire
}

/// Sends what the broker may not take: that ends with an error, or not within a few seconds.
async fn try_to_send(wire: &mut Wire, bytes: &[u8]) {
    let _ = tokio::time::timeout(Duration::from_secs(5), wire.try_send(bytes)).await;
}

/// A table's content: so many fields without a value.
fn voids(fields: usize) -> Vec<u8> {
    (0..fields).flat_map(|at| [wire::short(&format!("{at:x}")), vec![b'V']].concat()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_large_messages_that_expire_together() {
    lives_through("A1, letters", small(), async |node| {
        let arguments = [
            ("x-message-ttl", int(4_000)),
            ("x-dead-letter-exchange", text("")),
            ("x-dead-letter-routing-key", text("graves")),
        ];
        let (connection, channel) = open_confirming(&node.amqp_uri()).await;
        declare_quorum(&channel, "graves").await;
        filled(node, "dying", count(16, 150), &arguments).await;
        connection
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a2_consumers_that_do_not_read() {
    lives_through("A2, deaf consumers", small(), async |node| {
        filled(node, "unread", count(24, 150), &[]).await;
        let mut deaf = Vec::new();
        for at in 0..count(8, 50) {
            let mut wire = Wire::open_channel(&node.amqp_address()).await;
            wire.method(1, 60, 20, &wire::basic_consume("unread", at % 2 == 0)).await;
            deaf.push(wire);
        }
        deaf
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_2047_gets_that_are_not_read() {
    lives_through("A3, 2047 gets", small(), async |node| {
        filled(node, "unread", count(24, 150), &[]).await;
        let mut wire = with_channels(node, 2047).await;
        let get = [&[0, 0][..], &wire::short("unread"), &[0]].concat();
        let gets: Vec<u8> = (1..=2047).flat_map(|number| method(number, 60, 70, &get)).collect();
        try_to_send(&mut wire, &gets).await;
        wire
    })
    .await;
}

/// Declares and binds with tables as large as a frame: arguments that are compared with headers.
#[tokio::test(flavor = "multi_thread")]
async fn a4_headers_that_fit_nothing() {
    lives_through("A4, header matching", small(), async |node| {
        let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
        declare_quorum(&channel, "fits").await;
        let kind = ExchangeKind::Headers;
        let declared =
            channel.exchange_declare("heads".into(), kind, <_>::default(), <_>::default());
        declared.await.expect("declare-ok");
        let mut attackers = Vec::new();
        for at in 0..count(4, 100) {
            let mut wire = Wire::open_channel(&node.amqp_address()).await;
            let any = [wire::short("x-match"), vec![b'S'], wire::long(b"any")].concat();
            let table = [any, voids(20_000)].concat();
            let names = [wire::short("fits"), wire::short("heads"), wire::short(&at.to_string())];
            let bind = [&[0, 0][..], &names.concat(), &[0], &wire::long(&table)].concat();
            try_to_send(&mut wire, &method(1, 50, 20, &bind)).await;
            let headers = wire::content_header(60, 0, Some(&voids(10_000)));
            let to = [&[0, 0][..], &wire::short("heads"), &wire::short(""), &[0]].concat();
            let publish = [method(1, 60, 40, &to), frame(wire::HEADER, 1, &headers)].concat();
            try_to_send(&mut wire, &publish).await;
            attackers.push(wire);
        }
        attackers
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a5_copies_times_bindings() {
    lives_through("A5, CC and bindings", small(), async |node| {
        let (connection, channel) = open_confirming(&node.amqp_uri()).await;
        let kind = ExchangeKind::Topic;
        let declared =
            channel.exchange_declare("topics".into(), kind, <_>::default(), <_>::default());
        declared.await.expect("declare-ok");
        for at in 0..count(20, 200) {
            let queue = format!("topic-{at}");
            declare_quorum(&channel, &queue).await;
            for pattern in ["#", "#.#", "*", "#.*", "*.#"] {
                bind(&channel, &queue, "topics", pattern).await;
            }
        }
        let keys = (0..18_000).flat_map(|_| [vec![b'S'], wire::long(b"")].concat());
        let keys: Vec<u8> = keys.collect();
        let cc = [wire::short("CC"), vec![b'A'], wire::long(&keys)].concat();
        let to = [&[0, 0][..], &wire::short("topics"), &wire::short("a"), &[0]].concat();
        let header = wire::content_header(60, 0, Some(&cc));
        let publish = [method(1, 60, 40, &to), frame(wire::HEADER, 1, &header)].concat();
        let mut wire = Wire::open_channel(&node.amqp_address()).await;
        for _ in 0..count(5, 50) {
            try_to_send(&mut wire, &publish).await;
        }
        (connection, wire)
    })
    .await;
}

async fn bind(channel: &Channel, queue: &str, exchange: &str, key: &str) {
    let options = QueueBindOptions::default();
    let bound =
        channel.queue_bind(queue.into(), exchange.into(), key.into(), options, <_>::default());
    in_time("bind-ok", bound).await.expect("bind-ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_declares_with_large_tables() {
    lives_through("A8, large tables", small(), async |node| {
        let mut wires = Vec::new();
        for at in 0..count(50, 2_000) {
            let field = [wire::short("x"), vec![b'A'], wire::long(&vec![b'V'; 120_000])].concat();
            let declare = wire::queue_declare(&format!("large-{at}"), &field);
            let mut wire = Wire::open_channel(&node.amqp_address()).await;
            try_to_send(&mut wire, &method(1, 50, 10, &declare)).await;
            // One that the broker answers has been taken in or refused.
            let _ = wire.next().await;
            if at % 100 == 0 {
                wires.push(wire);
            }
        }
        wires
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_contents_that_are_never_finished() {
    lives_through("B1, half contents", small(), async |node| {
        let mut attackers = Vec::new();
        for _ in 0..count(12, 60) {
            let mut wire = with_channels(node, 40).await;
            for number in 1..=40 {
                let half = [
                    publish(number, &wire::content_header(60, 16 * MIB as u64, None)),
                    frame(wire::BODY, number, &vec![1; 100_000]),
                ];
                try_to_send(&mut wire, &half.concat()).await;
            }
            attackers.push(wire);
        }
        attackers
    })
    .await;
}

/// Bodies small enough to be taken without asking for room, and headers as large as a frame.
#[tokio::test(flavor = "multi_thread")]
async fn b1_many_small_contents_that_are_never_finished() {
    lives_through("B1, half contents, small", small(), async |node| {
        let mut attackers = Vec::new();
        for at in 0..count(16, 100) {
            let mut wire = with_channels(node, 200).await;
            for number in 1..=200 {
                let headers = if at % 2 == 0 { None } else { Some(voids(20_000)) };
                let header = wire::content_header(60, 120_000, headers.as_deref());
                let half = [publish(number, &header), frame(wire::BODY, number, &vec![1; 100_000])];
                try_to_send(&mut wire, &half.concat()).await;
            }
            attackers.push(wire);
        }
        attackers
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_transactions_that_are_never_committed() {
    lives_through("B1, transactions", small(), async |node| {
        let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
        declare_quorum(&channel, "nowhere").await;
        let mut attackers = Vec::new();
        for _ in 0..count(12, 60) {
            let mut wire = Wire::open_channel(&node.amqp_address()).await;
            wire.method(1, 90, 10, &[]).await;
            wire.expect(1, 90, 11).await;
            for _ in 0..300 {
                let whole = [
                    publish(1, &wire::content_header(60, 100_000, None)),
                    frame(wire::BODY, 1, &vec![1; 100_000]),
                ];
                try_to_send(&mut wire, &whole.concat()).await;
            }
            attackers.push(wire);
        }
        attackers
    })
    .await;
}

/// A connection with a message to many queues; the exchange is deleted with it.
pub(crate) async fn fan(node: &Node, queues: usize) -> (Connection, Channel) {
    let (connection, channel) = open_confirming(&node.amqp_uri()).await;
    let options = ExchangeDeclareOptions::default();
    let declared = channel.exchange_declare(
        "fan".into(),
        ExchangeKind::Fanout,
        options,
        FieldTable::default(),
    );
    declared.await.expect("declare-ok");
    for at in 0..queues {
        let queue = format!("fan-{at}");
        declare_quorum(&channel, &queue).await;
        bind(&channel, &queue, "fan", "").await;
    }
    (connection, channel)
}

#[tokio::test(flavor = "multi_thread")]
async fn b6_large_messages_to_many_queues() {
    lives_through("B6, fan-out", small(), async |node| {
        let fan = fan(node, count(40, 1_000)).await;
        let mut wires = Vec::new();
        for _ in 0..count(1, 4) {
            let mut wire = Wire::open_channel(&node.amqp_address()).await;
            let to = [&[0, 0][..], &wire::short("fan"), &wire::short(""), &[0]].concat();
            let head = [
                method(1, 60, 40, &to),
                frame(wire::HEADER, 1, &wire::content_header(60, 8 * MIB as u64, None)),
            ];
            let pieces = frame(wire::BODY, 1, &vec![1; 128 << 10]).repeat(64);
            try_to_send(&mut wire, &[head.concat(), pieces].concat()).await;
            wires.push(wire);
        }
        (fan, wires)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_a_client_that_does_not_read_is_dropped() {
    let options = small().with("--write-timeout-ms", "3000");
    lives_through("B10, deaf for ever", options, async |node| {
        let mut deaf = Vec::new();
        for _ in 0..count(8, 50) {
            let mut wire = Wire::open_channel(&node.amqp_address()).await;
            // Mandatory and unroutable: each comes back whole.
            let to = method(1, 60, 40, &wire::basic_publish("nowhere", true));
            let header = frame(wire::HEADER, 1, &wire::content_header(60, 100_000, None));
            let body = frame(wire::BODY, 1, &vec![1; 100_000]);
            try_to_send(&mut wire, &[to, header, body].concat().repeat(300)).await;
            deaf.push(wire);
        }
        eventually("they are dropped", || async {
            let open = node.metrics().await.sum("rabbitmq_connections");
            // The other client's two.
            hold(open.is_some_and(|open| open <= 2.0), || format!("{open:?} connections"))
        })
        .await;
        deaf
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_half_handshakes() {
    // Time drops nobody here.
    let options = small().with("--handshake-max", "100").with("--handshake-timeout-ms", "3600000");
    lives_through("B11, half handshakes", options, async |node| {
        let mut halves = Vec::new();
        for _ in 0..count(400, 900) {
            let mut wire = Wire::connect(&node.amqp_address()).await;
            let half = frame(wire::METHOD, 0, &vec![0; 8_000]);
            try_to_send(&mut wire, &[wire::PROTOCOL_HEADER, &half[..4_000]].concat()).await;
            halves.push(wire);
        }
        // Who logs in is let in all the same.
        let address = node.amqp_address();
        let open = Wire::open(&address);
        halves.push(in_time("a login", open).await);
        // The oldest were dropped.
        let first = halves.swap_remove(0);
        first.rest().await;
        halves
    })
    .await;
}

/// Publishers that do not wait for confirms, and come again on new connections.
#[tokio::test(flavor = "multi_thread")]
async fn b1_large_publishes_from_ever_new_connections() {
    lives_through("B1, new connections", small(), async |node| {
        let (connection, channel) = open_confirming(&node.amqp_uri()).await;
        declare_quorum(&channel, "nowhere").await;
        let head = publish(1, &wire::content_header(60, 8 * MIB as u64, None));
        let whole = [head, frame(wire::BODY, 1, &vec![1; 128 << 10]).repeat(64)].concat();
        for _ in 0..count(3, 20) {
            let wires = (0..8).map(|_| async {
                let mut wire = Wire::open_channel(&node.amqp_address()).await;
                try_to_send(&mut wire, &whole).await;
            });
            futures::future::join_all(wires).await;
        }
        connection
    })
    .await;
}
