//! Names of queues: they lead to what lives, wherever a publish comes in, and go with what has ended
//! (NAM 3, 5, 7, 8).

#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

use lapin::options::{BasicPublishOptions, ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Confirmation, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    bind, code, connect, declare_exchange, declare_quorum, exclusive, open, open_confirming,
    passive, persistent, publish_confirmed, ready,
};
use quorate_cluster_tests::harness::wait::{eventually, in_time};
use quorate_cluster_tests::harness::wire::{self, Wire};
use quorate_cluster_tests::harness::{Cluster, Options, figure};
use std::time::{Duration, Instant};

/// CONN-27, NAM 3: what ended with a connection is gone on every node at close-ok, and its names are free there.
#[tokio::test(flavor = "multi_thread")]
async fn conn_27_what_ended_with_a_connection_is_free_on_the_next_node() {
    const ROUNDS: u64 = 60;
    let cluster = Cluster::start(3, Options::default()).await;
    let kinds = [ExchangeKind::Fanout, ExchangeKind::Direct];
    for (round, kind) in (0..ROUNDS).zip(kinds.into_iter().cycle()) {
        let (connection, channel) = open(&cluster.amqp_uri(1 + round % 3)).await;
        let options = ExchangeDeclareOptions { auto_delete: true, ..Default::default() };
        let nothing = FieldTable::default;
        let declared = channel.exchange_declare("goes".into(), kind, options, nothing()).await;
        declared.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let declared = channel.queue_declare("mine".into(), exclusive(), nothing()).await;
        declared.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let (queue, exchange) = ("mine".into(), "goes".into());
        let bound = channel.queue_bind(queue, exchange, "".into(), Default::default(), nothing());
        bound.await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        connection.close(200, "done".into()).await.expect("close-ok");
    }
}

/// NAM 7: a leader that was cut off compares names with queues when it is back, and its copy of the
/// catalog is newer than its replica, which has more to catch up with.
#[tokio::test(flavor = "multi_thread")]
async fn nam_07_a_healed_leader_removes_no_name_of_a_live_queue() {
    const FILLERS: usize = 12;
    const QUEUES: usize = 36;
    let cluster = Cluster::start(3, Options::proxied()).await;
    // Node 1 leads the catalog, node 2 a third of the queue groups.
    cluster.links().isolate(2);
    let begun = Instant::now();
    let (_one, one) = open_confirming(&cluster.amqp_uri(1)).await;
    let (_three, three) = open_confirming(&cluster.amqp_uri(3)).await;
    let names: Vec<String> = (0..QUEUES).map(|number| format!("live-{number}")).collect();
    let channels = [&one, &three];
    for (number, channel) in (0..2 * FILLERS).zip(channels.into_iter().cycle()) {
        let filler = format!("filler-{number}");
        declare_quorum(channel, &filler).await;
        let body = vec![7; 256 << 10];
        let publishes = (0..12).map(|_| publish_confirmed(channel, &filler, &body));
        futures::future::join_all(publishes).await;
    }
    for (name, channel) in names.iter().zip(channels.into_iter().cycle()) {
        declare_quorum(channel, name).await;
    }
    // By then it waits for a majority of the catalog, to compare.
    tokio::time::sleep(Duration::from_secs(12).saturating_sub(begun.elapsed())).await;
    figure("cut off for", begun.elapsed());
    cluster.links().heal();
    cluster.node(2).ready().await;
    // What it has found it has taken away by then.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let connection = connect(&cluster.amqp_uri(1)).await;
    let mut gone = Vec::new();
    for name in names {
        if ready(&connection, &name).await.is_err() {
            gone.push(name);
        }
    }
    assert!(gone.is_empty(), "{} of {QUEUES} names are gone: {gone:?}", gone.len());
}

async fn publish_mandatory(
    channel: &Channel,
    exchange: &str,
    key: &str,
) -> lapin::Result<Confirmation> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let sent = channel.basic_publish(exchange.into(), key.into(), options, b"routed", persistent());
    sent.await?.await
}

/// NAM 5: what waits at a node that was stopped for longer than a lease is routed by what has been
/// declared meanwhile, never by what the node knew before.
#[tokio::test(flavor = "multi_thread")]
async fn nam_05_a_node_that_was_stopped_routes_nothing_by_what_it_knew_before() {
    const ROUNDS: usize = 12;
    let cluster = Cluster::start(3, Options::default()).await;
    let (_declaring, declaring) = open(&cluster.amqp_uri(1)).await;
    declare_exchange(&declaring, "ex", ExchangeKind::Direct).await;
    let mut unroutable = Vec::new();
    for round in 0..ROUNDS {
        let stopped = if round % 2 == 0 { 2 } else { 3 };
        let (_publishing, publishing) = open_confirming(&cluster.amqp_uri(stopped)).await;
        let queue = format!("bound-{round}");
        cluster.node(stopped).pause();
        let begun = Instant::now();
        declare_quorum(&declaring, &queue).await;
        bind(&declaring, &queue, "ex", &queue).await;
        tokio::time::sleep(Duration::from_millis(1_700).saturating_sub(begun.elapsed())).await;
        let publish =
            tokio::spawn(async move { publish_mandatory(&publishing, "ex", &queue).await });
        // It is in the socket by then, in all likelihood; the node reads it when it goes on.
        tokio::time::sleep(Duration::from_millis(50)).await;
        cluster.node(stopped).resume();
        let confirmed = in_time("a confirm", publish).await.expect("a publisher");
        if let Confirmation::Ack(Some(_)) = confirmed.expect("a confirm") {
            unroutable.push(round);
        }
    }
    assert!(unroutable.is_empty(), "unroutable in rounds {unroutable:?} of {ROUNDS}");
}

/// Arguments of `queue.declare` of an exclusive queue.
fn declare_exclusive(queue: &str) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(wire::short(queue));
    bytes.push(0b0000_0100);
    bytes.extend(wire::long(&[]));
    bytes
}

/// NAM 8, EXQ-01: the declare of an exclusive queue does not outlive its client, wherever it is at
/// that moment.
#[tokio::test(flavor = "multi_thread")]
async fn nam_08_an_exclusive_name_whose_client_went_away_midway_is_free_again() {
    const NAMES: usize = 150;
    let cluster = Cluster::start(3, Options::default()).await;
    for number in 0..NAMES {
        let node = cluster.node(1 + number as u64 % 3);
        let mut client = Wire::open_channel(&node.amqp_address()).await;
        client.method(1, 50, 10, &declare_exclusive(&format!("mine-{number}"))).await;
        // The socket closes at different moments of the declare.
        tokio::time::sleep(Duration::from_micros(200 * (number as u64 % 25))).await;
        drop(client);
    }
    let connection = connect(&cluster.amqp_uri(1)).await;
    let begun = Instant::now();
    for number in 0..NAMES {
        let name = format!("mine-{number}");
        eventually("the name is free", || async {
            let channel = connection.create_channel().await.map_err(|error| error.to_string())?;
            let declared = channel
                .queue_declare(name.as_str().into(), exclusive(), FieldTable::default())
                .await;
            declared.map(drop).map_err(|error| format!("{name}: {error}"))
        })
        .await;
    }
    figure("all names were free after", begun.elapsed());
}

/// QUE-12, EXQ-02: what a name that the server has given leads to is asked where it was given.
#[tokio::test(flavor = "multi_thread")]
async fn que_12_a_server_given_name_is_unknown_everywhere_when_its_connection_has_ended() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (owning, owner) = open(&cluster.amqp_uri(2)).await;
    let declared = owner.queue_declare("".into(), exclusive(), FieldTable::default()).await;
    let name = declared.expect("declare-ok").name().to_string();
    let look = |node: u64| {
        let (uri, name) = (cluster.amqp_uri(node), name.clone());
        async move {
            let (_connection, channel) = open(&uri).await;
            let options = QueueDeclareOptions { exclusive: true, ..passive() };
            let found = channel.queue_declare(name.into(), options, FieldTable::default()).await;
            found.map_err(|error| code(&error)).map(drop)
        }
    };
    for node in 1..=3 {
        assert_eq!(look(node).await, Err(Some(405)), "node {node}: it lives");
    }
    // Another node does not take it for deleted already (EXQ-02, DEL-01).
    let (_stranger, channel) = open(&cluster.amqp_uri(1)).await;
    let deleted = channel.queue_delete(name.as_str().into(), Default::default()).await;
    assert_eq!(deleted.map_err(|error| code(&error)), Err(Some(405)));
    owning.close(200, "done".into()).await.expect("close-ok");
    for node in 1..=3 {
        assert_eq!(look(node).await, Err(Some(404)), "node {node}: it has ended");
    }
}
