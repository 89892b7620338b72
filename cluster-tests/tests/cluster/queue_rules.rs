//! Declaring queues: names, default types, redeclares that fail, and what others may do with an exclusive
//! queue (QUE-04, QUE-14, EQV-08, SAC-08, BND-05, NDF-08, QUE-05).

#![expect(clippy::expect_used, reason = "tests")]

use lapin::options::{QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection};
use quorate_cluster_tests::harness::amqp::{
    arguments, bind, code, declare_with, durable, exclusive, get, int, open, open_confirming,
    passive, publish_confirmed, ready, text,
};
use quorate_cluster_tests::harness::ctl;
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Options};
use serde_json::json;

const TYPES: [&str; 2] = ["classic", "quorum"];

async fn channel_of(connection: &Connection) -> Channel {
    let channel = in_time("a channel", connection.create_channel()).await;
    channel.expect("open-ok")
}

/// Declares on a channel of its own: what it is refused with.
async fn declare(
    connection: &Connection,
    queue: &str,
    options: QueueDeclareOptions,
    with: FieldTable,
) -> Result<(), String> {
    let channel = channel_of(connection).await;
    let declared = channel.queue_declare(queue.into(), options, with);
    let declared = in_time("an answer", declared).await;
    declared.map(drop).map_err(|error| error.to_string())
}

fn is_refused(told: Result<(), String>, words: &str) {
    let told = told.expect_err(words);
    assert!(told.contains(words), "{told}\nwanted {words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn que_04_the_default_type_does_not_look_at_arguments() {
    let quorum = Options::default().with("--default-queue-type", "quorum");
    let cluster = Cluster::start(1, quorum).await;
    let (connection, _channel) = open(&cluster.amqp_uri(1)).await;
    let lazy = || arguments(&[("x-queue-mode", text("lazy"))]);
    is_refused(
        declare(&connection, "lazy", durable(), lazy()).await,
        "PRECONDITION_FAILED - invalid arg 'x-queue-mode' for queue 'lazy' in vhost '/' of queue \
         type rabbit_quorum_queue",
    );
    is_refused(
        declare(&connection, "", durable(), FieldTable::default()).await,
        "Cannot declare a server-named queue for type rabbit_quorum_queue",
    );
    // QUE-03: what only a classic queue can be is one; Q-12: levels are no matter of the type.
    declare(&connection, "", exclusive(), lazy()).await.expect("a classic queue");
    let levels = arguments(&[("x-max-priority", int(3))]);
    declare(&connection, "levels", durable(), levels).await.expect("a quorum queue");
    let rows = cluster.rows(1, &["list_queues", "name", "type"]).await.expect("rows");
    let levels = rows.iter().find(|row| ctl::text(row, "name") == "levels").expect("the queue");
    assert_eq!(ctl::text(levels, "type"), "quorum");
}

#[tokio::test(flavor = "multi_thread")]
async fn que_14_a_name_is_any_255_bytes_of_utf_8() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let (_other, elsewhere) = open(&cluster.amqp_uri(3)).await;
    // 127 letters of two bytes and one of one; control characters, quotes, and wildcards.
    let longest = format!("{}x", "é".repeat(127));
    for queue in [longest.as_str(), "a \"b\" \\c/ {d}\t#*%2f", "🐇 ночь"] {
        declare_with(&channel, queue, &[("x-queue-type", text("quorum"))]).await;
        bind(&channel, queue, "amq.topic", queue).await;
        publish_confirmed(&channel, queue, queue.as_bytes()).await;
        assert_eq!(get(&elsewhere, queue).await.as_deref(), Some(queue.as_bytes()));
        let deleted = elsewhere.queue_delete(queue.into(), <_>::default()).await;
        deleted.expect("delete-ok");
    }
    assert!(cluster.rows(2, &["list_queues"]).await.expect("rows").is_empty());
}

/// EQV-08: a redeclare that fails changes nothing and closes its channel only; SAC-08: one cannot switch
/// single active consumers on or off.
#[tokio::test(flavor = "multi_thread")]
async fn eqv_08_sac_08_a_failed_redeclare_changes_nothing() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue_type in TYPES {
        for single in [true, false] {
            let queue = format!("{queue_type}-{single}");
            let single = ("x-single-active-consumer", AMQPValue::Boolean(single));
            let with = [("x-queue-type", text(queue_type)), single, ("x-max-length", int(5))];
            declare_with(&channel, &queue, &with).await;
            publish_confirmed(&channel, &queue, b"kept").await;
            let switched = AMQPValue::Boolean(with[1].1 == AMQPValue::Boolean(false));
            let mut changes = vec![
                ("x-single-active-consumer", [&with[..1], &with[2..]].concat()),
                ("x-max-length", [&with[..2], &[("x-max-length", int(6))]].concat()),
            ];
            let switched = ("x-single-active-consumer", switched);
            changes.push((switched.0, [&with[..1], &[switched], &with[2..]].concat()));
            for (argument, with) in changes {
                let told = declare(&connection, &queue, durable(), arguments(&with)).await;
                is_refused(
                    told,
                    &format!("inequivalent arg '{argument}' for queue '{queue}' in vhost '/'"),
                );
            }
            let transient = declare(&connection, &queue, <_>::default(), arguments(&with)).await;
            is_refused(transient, "inequivalent arg 'durable'");
            // On the channel that was there all along.
            declare_with(&channel, &queue, &with).await;
            assert_eq!(ready(&connection, &queue).await, Ok(1));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bnd_05_only_its_owner_binds_and_unbinds_an_exclusive_queue() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_owner, own) = open(&cluster.amqp_uri(1)).await;
    own.queue_declare("mine".into(), exclusive(), <_>::default()).await.expect("declare-ok");
    bind(&own, "mine", "amq.direct", "there").await;
    for node in [1, 2] {
        let (other, _channel) = open(&cluster.amqp_uri(node)).await;
        let words = "cannot obtain exclusive access to locked queue 'mine' in vhost '/'";
        let channel = channel_of(&other).await;
        let (options, nothing) = (QueueBindOptions::default(), FieldTable::default);
        let (queue, exchange) = ("mine".into(), "amq.direct".into());
        let bound = channel.queue_bind(queue, exchange, "new".into(), options, nothing()).await;
        let bound = bound.expect_err("405");
        assert_eq!(code(&bound), Some(405), "{bound}");
        assert!(bound.to_string().contains(words), "{bound}");
        let unbind = async |key: &str| {
            let channel = channel_of(&other).await;
            let (queue, exchange) = ("mine".into(), "amq.direct".into());
            channel.queue_unbind(queue, exchange, key.into(), nothing()).await
        };
        let unbound = unbind("there").await.expect_err("405");
        assert_eq!(code(&unbound), Some(405), "{unbound}");
        // EXQ-02: where there is no such binding nothing is locked (BND-04).
        unbind("none").await.expect("unbind-ok");
    }
    own.queue_unbind("mine".into(), "amq.direct".into(), "there".into(), FieldTable::default())
        .await
        .expect("its owner may");
}

#[tokio::test(flavor = "multi_thread")]
async fn ndf_08_an_exclusive_queue_dies_with_its_node() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_owner, own) = open(&cluster.amqp_uri(3)).await;
    own.queue_declare("mine".into(), exclusive(), <_>::default()).await.expect("declare-ok");
    bind(&own, "mine", "amq.fanout", "").await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    assert_eq!(ready(&connection, "mine").await, Err(Some(405)));
    cluster.node(3).kill9();
    eventually("it is gone for the others", || async {
        let found = ready(&connection, "mine").await;
        hold(found == Err(Some(404)), || format!("{found:?}"))
    })
    .await;
    eventually("its bindings are gone", || async {
        let rows = cluster.rows(2, &["list_bindings"]).await?;
        let gone = rows.iter().all(|row| ctl::text(row, "destination_name") != "mine");
        hold(gone, || format!("{rows:?}"))
    })
    .await;
    // Its name is free at once.
    channel.queue_declare("mine".into(), exclusive(), <_>::default()).await.expect("declare-ok");
    let seen = channel_of(&connection).await;
    seen.queue_declare("mine".into(), passive(), <_>::default()).await.expect("it is there");
    cluster.node(3).restart().await;
}

/// QUE-05: so it is listed, and so it is redeclared.
#[tokio::test(flavor = "multi_thread")]
async fn que_05_a_durable_exclusive_queue_is_kept_as_not_durable() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    for durable in [true, false] {
        let options = QueueDeclareOptions { durable, ..exclusive() };
        channel.queue_declare("mine".into(), options, <_>::default()).await.expect("declare-ok");
        let rows = cluster.rows(1, &["list_queues", "name", "durable", "exclusive"]).await;
        let rows = rows.expect("rows");
        let shown: Vec<_> = rows.iter().map(|row| (&row["durable"], &row["exclusive"])).collect();
        assert_eq!(shown, [(&json!(false), &json!(true))], "declared with durable={durable}");
    }
}
