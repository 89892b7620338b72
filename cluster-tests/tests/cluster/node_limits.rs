//! What settings of a node allow: connections, channels, exchanges, queues, prefetch, redeclares
//! (CONN-20, CHN-03, EXC-12, QUE-11, QOS-02, EQV-07).

#![expect(clippy::expect_used, reason = "tests")]

use futures::StreamExt;
use lapin::options::{BasicQosOptions, ExchangeDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    arguments, consume, declare_exchange, declare_quorum, durable, exclusive, int, open,
    open_confirming, publish_confirmed, text,
};
use quorate_cluster_tests::harness::ctl;
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Options};

async fn with(flag: &str, value: &str) -> Cluster {
    Cluster::start(1, Options::default().with(flag, value)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn conn_20_a_node_takes_no_more_connections_than_it_may_have() {
    let cluster = with("--connection-max", "1").await;
    let (first, _channel) = open(&cluster.amqp_uri(1)).await;
    let uri = cluster.amqp_uri(1);
    let connect = || Connection::connect(&uri, ConnectionProperties::default());
    let refused = in_time("an answer", connect()).await.expect_err("one too many");
    let words = "NOT_ALLOWED - connection refused: node connection limit (1) is reached";
    assert!(refused.to_string().contains(words), "{refused}");
    in_time("a close", first.close(200, "".into())).await.expect("close-ok");
    eventually("room again", || async {
        connect().await.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chn_03_a_nodes_channels_are_limited_over_all_connections() {
    let cluster = with("--channel-max-per-node", "2").await;
    let (_one, _first) = open(&cluster.amqp_uri(1)).await;
    let (other, _second) = open(&cluster.amqp_uri(1)).await;
    let third = in_time("an answer", other.create_channel()).await;
    let said = third.expect_err("one too many").to_string();
    let words = "NOT_ALLOWED - number of channels opened on node '";
    assert!(said.contains(words), "{said}");
    assert!(said.contains("' has reached the maximum allowed limit of 2"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exc_12_a_cluster_has_no_more_exchanges_than_it_may_have() {
    let probe = Cluster::start(1, Options::default()).await;
    let there = probe.rows(1, &["list_exchanges", "name"]).await.expect("rows").len();
    let cluster = with("--cluster-exchange-limit", &(there + 1).to_string()).await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_exchange(&channel, "a", ExchangeKind::Fanout).await;
    declare_exchange(&channel, "a", ExchangeKind::Fanout).await;
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let (name, none) = ("b".into(), FieldTable::default());
    let refused = channel.exchange_declare(name, ExchangeKind::Fanout, options, none).await;
    let said = refused.expect_err("one too many").to_string();
    let words = format!(
        "PRECONDITION_FAILED - cannot declare exchange 'b' in vhost '/': exchange limit of {} is \
         reached",
        there + 1
    );
    assert!(said.contains(&words), "{said}");
    drop(connection);
}

#[tokio::test(flavor = "multi_thread")]
async fn que_11_a_cluster_has_no_more_queues_than_it_may_have() {
    let cluster = with("--cluster-queue-limit", "2").await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "a").await;
    // One that only this node knows is counted too.
    let own = channel.queue_declare("".into(), exclusive(), FieldTable::default()).await;
    own.expect("a queue of its own");
    declare_quorum(&channel, "a").await;
    let refused = channel.queue_declare("b".into(), durable(), FieldTable::default()).await;
    let said = refused.expect_err("one too many").to_string();
    let words =
        "PRECONDITION_FAILED - cannot declare queue 'b': queue limit in cluster (2) is reached";
    assert!(said.contains(words), "{said}");
    drop(connection);
}

#[tokio::test(flavor = "multi_thread")]
async fn qos_02_consumers_of_a_channel_without_a_prefetch_have_the_nodes() {
    let cluster = with("--default-consumer-prefetch", "2").await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "q").await;
    for body in 0..5_u8 {
        publish_confirmed(&channel, "q", &[body]).await;
    }
    let mut by_default = consume(&channel, "q").await;
    for body in 0..2_u8 {
        let delivery = in_time("a delivery", by_default.next()).await;
        assert_eq!(delivery.expect("it goes on").expect("a delivery").data, [body]);
    }
    eventually("two of five assigned", || async {
        let columns = ["list_queues", "messages_ready", "messages_unacknowledged"];
        let rows = cluster.rows(1, &columns).await?;
        let counts = rows.first().map(|row| columns[1..].iter().map(|&it| ctl::text(row, it)));
        let counts: Vec<_> = counts.into_iter().flatten().collect();
        hold(counts == ["3", "2"], || format!("{counts:?}"))
    })
    .await;
    // Its own word goes before that.
    channel.basic_qos(0, BasicQosOptions::default()).await.expect("qos-ok");
    let mut unlimited = consume(&channel, "q").await;
    for body in 2..5_u8 {
        let delivery = in_time("a delivery", unlimited.next()).await;
        assert_eq!(delivery.expect("it goes on").expect("a delivery").data, [body]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eqv_07_a_classic_redeclare_of_a_quorum_queue_may_be_relaxed() {
    let cluster = with("--relaxed-redeclaration", "true").await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    let of_type = |name| ("x-queue-type", text(name));
    let length = |length| ("x-max-length", int(length));
    let quorum = arguments(&[of_type("quorum"), length(5)]);
    channel.queue_declare("q".into(), durable(), quorum).await.expect("declared");
    // Neither type nor properties, nor arguments that are not named, are compared.
    let classic =
        arguments(&[of_type("classic"), length(5), ("x-overflow", text("reject-publish"))]);
    let fleeting = lapin::options::QueueDeclareOptions::default();
    channel.queue_declare("q".into(), fleeting, classic).await.expect("equal enough");
    let other = arguments(&[length(6)]);
    let refused = channel.queue_declare("q".into(), durable(), other).await;
    let said = refused.expect_err("another length").to_string();
    assert!(said.contains("inequivalent arg 'x-max-length' for queue 'q' in vhost '/'"), "{said}");
}
