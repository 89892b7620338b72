//! Transactions over queues of several groups, seen from several nodes (TX).

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicPublishOptions, BasicRejectOptions, QueueBindOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Connection};
use quorate_cluster_tests::harness::amqp::{
    code, declare_quorum, declare_with, get, int, open, open_confirming, persistent,
    publish_confirmed, text,
};
use quorate_cluster_tests::harness::ctl;
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::time::Duration;

async fn open_transactional(uri: &str) -> (Connection, Channel) {
    let (connection, channel) = open(uri).await;
    in_time("tx.select", channel.tx_select()).await.expect("select-ok");
    (connection, channel)
}

async fn publish(channel: &Channel, exchange: &str, key: &str, body: &[u8]) {
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish(exchange.into(), key.into(), options, body, persistent());
    sent.await.expect("sent").await.expect("sent");
}

async fn commit(channel: &Channel) {
    in_time("tx.commit", channel.tx_commit()).await.expect("commit-ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn tx_05_messages_are_there_at_commit_ok_and_not_before() {
    const QUEUES: usize = 8;
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_transactional(&cluster.amqp_uri(1)).await;
    let (_other, elsewhere) = open(&cluster.amqp_uri(3)).await;
    let names: Vec<String> = (0..QUEUES).map(|number| format!("tx-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        // From different nodes, so that their groups are led by different ones.
        let (_declaring, declarer) = open(&cluster.amqp_uri(1 + number as u64 % 3)).await;
        declare_quorum(&declarer, name).await;
    }
    for round in 0..5_u8 {
        for name in &names {
            publish(&channel, "", name, &[round]).await;
            publish(&channel, "", name, &[round, round]).await;
        }
        for name in &names {
            assert_eq!(get(&elsewhere, name).await, None, "{name}: before the commit");
        }
        commit(&channel).await;
        for name in &names {
            assert_eq!(get(&elsewhere, name).await, Some(vec![round]), "{name}");
            assert_eq!(get(&elsewhere, name).await, Some(vec![round, round]), "{name}");
        }
    }
    // TX-09: what is open when the channel ends is gone.
    publish(&channel, "", &names[0], b"never").await;
    channel.close(200, "enough".into()).await.expect("close-ok");
    assert_eq!(get(&elsewhere, &names[0]).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn tx_03_a_publish_is_routed_when_it_is_published() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_transactional(&cluster.amqp_uri(1)).await;
    let (_other, binder) = open(&cluster.amqp_uri(2)).await;
    declare_quorum(&binder, "routed").await;
    let bind = || async {
        let options = QueueBindOptions::default();
        let arguments = FieldTable::default();
        let bound =
            binder.queue_bind("routed".into(), "amq.direct".into(), "k".into(), options, arguments);
        bound.await.expect("bind-ok");
    };
    publish(&channel, "amq.direct", "k", b"too early").await;
    bind().await;
    publish(&channel, "amq.direct", "k", b"in time").await;
    // Routed by the time that the broker has answered something behind it.
    channel.basic_qos(1, <_>::default()).await.expect("qos-ok");
    let unbound = binder.queue_unbind(
        "routed".into(),
        "amq.direct".into(),
        "k".into(),
        FieldTable::default(),
    );
    unbound.await.expect("unbind-ok");
    publish(&channel, "amq.direct", "k", b"too late").await;
    commit(&channel).await;
    assert_eq!(get(&binder, "routed").await.as_deref(), Some(&b"in time"[..]));
    assert_eq!(get(&binder, "routed").await, None);
    // A missing exchange is told at once: the commit comes too late.
    publish(&channel, "nowhere", "k", b"").await;
    let refused = in_time("tx.commit", channel.tx_commit()).await;
    refused.expect_err("the channel is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn tx_04_and_tx_08_acks_wait_for_the_commit_and_come_back_with_a_rollback() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_publishing, publisher) = open_confirming(&cluster.amqp_uri(2)).await;
    declare_quorum(&publisher, "acked").await;
    for number in 0..3_u8 {
        publish_confirmed(&publisher, "acked", &[number]).await;
    }
    let (connection, channel) = open_transactional(&cluster.amqp_uri(1)).await;
    let mut tags = Vec::new();
    for _ in 0..3 {
        let got = channel.basic_get("acked".into(), BasicGetOptions::default()).await;
        tags.push(got.expect("get").expect("a message").delivery.delivery_tag);
    }
    // Dropped, requeued, acked: all taken back.
    let reject = |tag, requeue| channel.basic_reject(tag, BasicRejectOptions { requeue });
    reject(tags[0], false).await.expect("sent");
    reject(tags[1], true).await.expect("sent");
    let ack = |tag, multiple| channel.basic_ack(tag, BasicAckOptions { multiple });
    ack(tags[2], false).await.expect("sent");
    channel.tx_rollback().await.expect("rollback-ok");
    assert_eq!(get(&publisher, "acked").await, None, "nothing has been requeued");
    // Once more, and for good.
    ack(tags[1], true).await.expect("sent");
    commit(&channel).await;
    // The third one was taken back, so it returns with its channel.
    connection.close(200, "enough".into()).await.expect("close-ok");
    let third = eventually("the third one is back", || async {
        get(&publisher, "acked").await.ok_or_else(|| "the queue is empty".to_owned())
    });
    assert_eq!(third.await, [2]);
    assert_eq!(get(&publisher, "acked").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn tx_05_without_a_majority_a_commit_waits_for_it() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_transactional(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "waits").await;
    publish(&channel, "", "waits", b"patient").await;
    channel.basic_qos(1, <_>::default()).await.expect("qos-ok");
    cluster.node(2).kill9();
    cluster.node(3).kill9();
    let committing = tokio::spawn(async move {
        commit(&channel).await;
        channel
    });
    // Nothing to wait for: the answer must not come.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!committing.is_finished(), "committed without a majority");
    cluster.node(2).restart().await;
    let channel = in_time("commit-ok", committing).await.expect("committed");
    assert_eq!(get(&channel, "waits").await.as_deref(), Some(&b"patient"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn tx_06_a_refused_message_fails_the_commit_and_the_rest_stays() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_other, elsewhere) = open_confirming(&cluster.amqp_uri(3)).await;
    for queue_type in ["classic", "quorum"] {
        let [full, free] = ["full", "free"].map(|role| format!("{role}-{queue_type}"));
        let of_type = ("x-queue-type", text(queue_type));
        let refusing =
            [of_type.clone(), ("x-max-length", int(1)), ("x-overflow", text("reject-publish"))];
        declare_with(&elsewhere, &full, &refusing).await;
        declare_with(&elsewhere, &free, &[of_type]).await;
        let (_connection, channel) = open_transactional(&cluster.amqp_uri(1)).await;
        publish(&channel, "", &full, b"fits").await;
        publish(&channel, "", &free, b"first").await;
        commit(&channel).await;
        // Nothing is refused before the commit.
        publish(&channel, "", &free, b"second").await;
        publish(&channel, "", &full, b"refused").await;
        publish(&channel, "", &free, b"third").await;
        channel.basic_qos(1, <_>::default()).await.expect("qos-ok");
        let refused = in_time("tx.commit", channel.tx_commit()).await;
        let refused = refused.expect_err("one was refused");
        assert_eq!(code(&refused), Some(406), "{refused}");
        assert!(refused.to_string().contains("partial tx completion"), "{refused}");
        for body in [&b"first"[..], b"second", b"third"] {
            assert_eq!(get(&elsewhere, &free).await.as_deref(), Some(body), "{queue_type}");
        }
        assert_eq!(get(&elsewhere, &full).await.as_deref(), Some(&b"fits"[..]));
        assert_eq!(get(&elsewhere, &full).await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tx_04_lists_show_what_waits_for_the_commit() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_transactional(&cluster.amqp_uri(2)).await;
    declare_quorum(&channel, "listed").await;
    for number in 0..3_u8 {
        publish(&channel, "", "listed", &[number]).await;
    }
    publish(&channel, "", "nowhere", b"").await;
    let columns = [
        "transactional",
        "confirm",
        "messages_uncommitted",
        "acks_uncommitted",
        "messages_unacknowledged",
    ];
    let shows = async |wanted: [&str; 5]| {
        eventually("the list follows", || async {
            let rows = cluster.rows(1, &[&["list_channels"], &columns[..]].concat()).await?;
            let shown = columns.map(|column| ctl::text(&rows[0], column));
            hold(shown == wanted, || format!("{shown:?}"))
        })
        .await;
    };
    // Also what no queue takes.
    shows(["true", "false", "4", "0", "0"]).await;
    commit(&channel).await;
    shows(["true", "false", "0", "0", "0"]).await;
    for acked in [true, true, false] {
        let got = channel.basic_get("listed".into(), BasicGetOptions::default()).await;
        let delivery = got.expect("get").expect("a message").delivery;
        if acked {
            delivery.ack(BasicAckOptions::default()).await.expect("sent");
        }
    }
    shows(["true", "false", "0", "2", "1"]).await;
    channel.tx_rollback().await.expect("rollback-ok");
    shows(["true", "false", "0", "0", "3"]).await;
    channel.close(200, "enough".into()).await.expect("close-ok");
    let (_other, _confirming) = open_confirming(&cluster.amqp_uri(3)).await;
    shows(["false", "true", "0", "0", "0"]).await;
}
