//! A node that is cut off has an old copy of the catalog. It answers nothing by it, and what its clients have
//! published there does not outlive them (NAM 5, PRT-06, CONN-32).

#![expect(clippy::expect_used, reason = "tests")]

use crate::browse::{GUEST, api};
use lapin::options::{
    BasicGetOptions, ExchangeDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    bind, code, declare_exchange, declare_quorum, durable, get, of_type, open, open_confirming,
    passive, publish_confirmed, ready,
};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::wire::{self, Wire};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::future::Future;

/// The node that is cut off.
const CUT_OFF: u64 = 3;

async fn cluster() -> Cluster {
    Cluster::start(3, Options::proxied()).await
}

/// Cuts the node off, and waits until it knows: it has no routing lease any more.
async fn cut_off(cluster: &Cluster) {
    cluster.links().isolate(CUT_OFF);
    eventually("the node knows that it is cut off", || async {
        let ready = cluster.node(CUT_OFF).get("/health/ready").await?;
        hold(ready.status == 503, || format!("{ready:?}"))
    })
    .await;
}

async fn heal(cluster: &Cluster) {
    cluster.links().heal();
    eventually("the node is back", || async {
        let ready = cluster.node(CUT_OFF).get("/health/ready").await?;
        hold(ready.status == 200, || format!("{ready:?}"))
    })
    .await;
}

/// The cut-off node gives a request up with 541, on a connection of its own.
async fn given_up<T, R>(cluster: &Cluster, what: &str, request: impl FnOnce(Channel) -> R)
where
    T: std::fmt::Debug,
    R: Future<Output = lapin::Result<T>>,
{
    let (_connection, channel) = open(&cluster.amqp_uri(CUT_OFF)).await;
    let answer = in_time(what, request(channel)).await;
    let error = answer.expect_err(what);
    assert_eq!(code(&error), Some(541), "{what}: {error}");
}

/// PRT-06, NAM 5: what was declared elsewhere is not said to be missing, what was deleted elsewhere not said to
/// be there, and nothing counts as done that is not.
#[tokio::test(flavor = "multi_thread")]
async fn nam_05_a_node_that_is_cut_off_answers_nothing_by_its_old_catalog() {
    let cluster = cluster().await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_exchange(&channel, "old", ExchangeKind::Fanout).await;
    declare_quorum(&channel, "bound").await;
    cut_off(&cluster).await;
    declare_quorum(&channel, "new").await;
    publish_confirmed(&channel, "new", b"kept").await;
    bind(&channel, "bound", "amq.direct", "key").await;
    channel.exchange_delete("old".into(), <_>::default()).await.expect("delete-ok");

    let nothing = FieldTable::default;
    let exchange = ExchangeDeclareOptions { durable: true, ..<_>::default() };
    let passively = ExchangeDeclareOptions { passive: true, ..exchange };
    let fanout = ExchangeKind::Fanout;
    let (same, kind) = (fanout.clone(), fanout);
    futures::join!(
        given_up(&cluster, "queue.delete", |channel| async move {
            channel.queue_delete("new".into(), QueueDeleteOptions::default()).await
        }),
        given_up(&cluster, "queue.declare, passive", |channel| async move {
            channel.queue_declare("new".into(), passive(), nothing()).await
        }),
        given_up(&cluster, "queue.declare", |channel| async move {
            channel.queue_declare("new".into(), durable(), of_type("quorum")).await
        }),
        given_up(&cluster, "queue.purge", |channel| async move {
            channel.queue_purge("new".into(), QueuePurgeOptions::default()).await
        }),
        given_up(&cluster, "queue.unbind", |channel| async move {
            let (queue, direct, key) = ("new".into(), "amq.direct".into(), "key".into());
            channel.queue_unbind(queue, direct, key, nothing()).await
        }),
        given_up(&cluster, "basic.get", |channel| async move {
            channel.basic_get("new".into(), BasicGetOptions::default()).await
        }),
        given_up(&cluster, "basic.consume", |channel| async move {
            channel.basic_consume("new".into(), "c".into(), <_>::default(), nothing()).await
        }),
        given_up(&cluster, "exchange.declare", |channel| async move {
            channel.exchange_declare("old".into(), same, exchange, nothing()).await
        }),
        given_up(&cluster, "exchange.declare, passive", |channel| async move {
            channel.exchange_declare("old".into(), kind, passively, nothing()).await
        }),
    );

    http_refuses(&cluster).await;

    heal(&cluster).await;
    let (_back, channel) = open(&cluster.amqp_uri(CUT_OFF)).await;
    assert_eq!(get(&channel, "new").await.as_deref(), Some(&b"kept"[..]));
    let there = channel.exchange_declare("old".into(), ExchangeKind::Fanout, passively, nothing());
    let missing = there.await.expect_err("deleted");
    assert_eq!(code(&missing), Some(404), "{missing}");
}

/// HTTP on the cut-off node says neither that an object is there nor that it is missing; lists show what it knows.
async fn http_refuses(cluster: &Cluster) {
    for request in [
        ("GET", "queues/%2F/new"),
        ("DELETE", "queues/%2F/new"),
        ("GET", "exchanges/%2F/old"),
        ("PUT", "exchanges/%2F/old"),
        ("DELETE", "policies/%2F/missing"),
        ("GET", "users/missing"),
    ] {
        let (status, why) = api(cluster, CUT_OFF, GUEST, request, "{}").await;
        assert_eq!(status, 503, "{request:?}: {why}");
    }
    let (status, list) = api(cluster, CUT_OFF, GUEST, ("GET", "exchanges"), "").await;
    assert!(status == 200 && list.to_string().contains("\"old\""), "{status} {list}");
}

/// CONN-32: a publish that a cut-off node holds ends with its client. Its producer has sent the job again
/// elsewhere; routed later, it would enter a queue that was declared anew.
#[tokio::test(flavor = "multi_thread")]
async fn conn_32_what_a_lost_client_published_on_a_node_that_is_cut_off_is_dropped() {
    let cluster = cluster().await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "jobs").await;
    let mut client = Wire::open_channel(&cluster.node(CUT_OFF).amqp_address()).await;
    cut_off(&cluster).await;
    // In one write, so that the answer to the open shows that the publish was read.
    let mut bytes = wire::method_frame(1, 60, 40, &wire::basic_publish("jobs", false));
    bytes.extend(wire::frame(wire::HEADER, 1, &wire::content_header(60, 3, None)));
    bytes.extend(wire::frame(wire::BODY, 1, b"job"));
    bytes.extend(wire::method_frame(2, 20, 10, &wire::short("")));
    client.send(&bytes).await;
    client.expect(2, 20, 11).await;
    drop(client);
    eventually("the node knows that its client has gone", || async {
        let log = cluster.node(CUT_OFF).log();
        hold(log.contains("the client has gone"), || "no line in its log".to_owned())
    })
    .await;
    channel.queue_delete("jobs".into(), <_>::default()).await.expect("delete-ok");
    declare_quorum(&channel, "jobs").await;
    heal(&cluster).await;
    // Routed by the same node, hence after anything that it may have held.
    let (_back, after) = open_confirming(&cluster.amqp_uri(CUT_OFF)).await;
    publish_confirmed(&after, "jobs", b"after").await;
    assert_eq!(ready(&connection, "jobs").await, Ok(1));
    assert_eq!(get(&channel, "jobs").await.as_deref(), Some(&b"after"[..]));
}
