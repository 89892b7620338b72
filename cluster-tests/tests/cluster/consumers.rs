//! Who is served: single active consumers (SAC), consumer priorities (PRC), exclusive consumers
//! (CON-04, Q-12), and consumers that do not settle in time (CTO, Q-35).

#![expect(clippy::expect_used, reason = "tests")]

use crate::browse::{GUEST, api};
use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicQosOptions,
};
use lapin::types::AMQPValue;
use lapin::{Channel, Connection, Consumer};
use quorate_cluster_tests::harness::amqp::{
    arguments, code, declare_with, get, int, open, open_confirming, publish_confirmed, text,
};
use quorate_cluster_tests::harness::ctl;
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::wire::{self, Wire};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::collections::BTreeMap;
use std::time::Duration;

/// A consumer on a channel and a connection of its own.
struct Client {
    connection: Connection,
    channel: Channel,
    consumer: Consumer,
}

async fn attach(
    cluster: &Cluster,
    node: u64,
    queue: &str,
    prefetch: u16,
    with: &[(&str, AMQPValue)],
) -> Client {
    let (connection, channel) = open(&cluster.amqp_uri(node)).await;
    channel.basic_qos(prefetch, BasicQosOptions::default()).await.expect("qos-ok");
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume(queue.into(), "".into(), options, arguments(with)).await;
    Client { connection, channel, consumer: consumer.expect("consume-ok") }
}

impl Client {
    async fn next(&mut self) -> Delivery {
        let delivery = in_time("a delivery", self.consumer.next()).await;
        delivery.expect("the consumer goes on").expect("a delivery")
    }

    async fn bodies(&mut self, count: usize) -> String {
        let mut bodies = String::new();
        for _ in 0..count {
            bodies += &String::from_utf8_lossy(&self.next().await.data);
        }
        bodies
    }

    /// Nothing comes within a while.
    async fn gets_nothing(&mut self) {
        let waited = tokio::time::timeout(Duration::from_millis(300), self.consumer.next()).await;
        assert!(waited.is_err(), "{waited:?}");
    }
}

async fn publish(channel: &Channel, queue: &str, bodies: &str) {
    for body in bodies.chars() {
        publish_confirmed(channel, queue, body.to_string().as_bytes()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sac_01_one_is_active_the_next_follows_with_what_it_returned() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue_type in ["classic", "quorum"] {
        let queue = format!("sac-{queue_type}");
        let single = ("x-single-active-consumer", AMQPValue::Boolean(true));
        declare_with(&channel, &queue, &[("x-queue-type", text(queue_type)), single]).await;
        let mut first = attach(&cluster, 1, &queue, 2, &[]).await;
        let mut second = attach(&cluster, 2, &queue, 5, &[]).await;
        let mut third = attach(&cluster, 3, &queue, 5, &[]).await;
        publish(&channel, &queue, "abc").await;
        assert_eq!(first.bodies(2).await, "ab");
        second.gets_nothing().await;
        // SAC-03: returned first, then the next gets them, marked.
        first.connection.close(200, "done".into()).await.expect("close-ok");
        let again = second.next().await;
        assert_eq!((again.data.as_slice(), again.redelivered), (b"a".as_slice(), true));
        assert_eq!(second.bodies(2).await, "bc");
        // SAC-04: on a cancel the next at once; what is held stays.
        let tag = second.consumer.tag();
        second.channel.basic_cancel(tag, <_>::default()).await.expect("cancel-ok");
        publish(&channel, &queue, "d").await;
        assert_eq!(third.bodies(1).await, "d");
        second.channel.basic_ack(again.delivery_tag, <_>::default()).await.expect("sent");
        third.gets_nothing().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sac_05_higher_priority_takes_over_on_quorum_queues_only() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for (queue_type, takes_over) in [("quorum", true), ("classic", false)] {
        let queue = format!("prio-{queue_type}");
        let single = ("x-single-active-consumer", AMQPValue::Boolean(true));
        declare_with(&channel, &queue, &[("x-queue-type", text(queue_type)), single]).await;
        let mut low = attach(&cluster, 1, &queue, 5, &[]).await;
        publish(&channel, &queue, "a").await;
        let held = low.next().await;
        let mut high = attach(&cluster, 2, &queue, 5, &[("x-priority", int(5))]).await;
        publish(&channel, &queue, "b").await;
        if takes_over {
            low.gets_nothing().await;
            high.gets_nothing().await;
            held.ack(BasicAckOptions::default()).await.expect("sent");
            assert_eq!(high.bodies(1).await, "b");
        } else {
            assert_eq!(low.bodies(1).await, "b", "SAC-06");
        }
        for client in [low, high] {
            client.connection.close(200, "done".into()).await.expect("close-ok");
        }
    }
    // SAC-07.
    let options = BasicGetOptions::default();
    let refused = channel.basic_get("prio-quorum".into(), options).await.expect_err("a get");
    assert_eq!(code(&refused), Some(405), "{refused}");
    assert!(refused.to_string().contains("single active consumer"), "{refused}");
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    // On a classic queue it works, and finds what the clients that have gone held.
    for body in ["a", "b"] {
        assert_eq!(get(&channel, "prio-classic").await.as_deref(), Some(body.as_bytes()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prc_01_the_highest_that_can_take_more_is_served() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_with(&channel, "prc", &[("x-queue-type", text("quorum"))]).await;
    let mut low = attach(&cluster, 1, "prc", 10, &[("x-priority", int(-1))]).await;
    let mut high = attach(&cluster, 2, "prc", 2, &[("x-priority", int(3))]).await;
    let mut middle = attach(&cluster, 3, "prc", 1, &[]).await;
    publish(&channel, "prc", "abcde").await;
    assert_eq!(high.bodies(2).await, "ab");
    assert_eq!(middle.bodies(1).await, "c");
    assert_eq!(low.bodies(2).await, "de");
}

#[tokio::test(flavor = "multi_thread")]
async fn con_04_an_exclusive_consumer_is_alone_on_every_type() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let refused = async |queue: &str, exclusive: bool| {
        let other = connection.create_channel().await.expect("open-ok");
        let options = BasicConsumeOptions { exclusive, ..BasicConsumeOptions::default() };
        let consume = other.basic_consume(queue.into(), "".into(), options, <_>::default());
        code(&consume.await.expect_err("a second consumer")) == Some(403)
    };
    for queue_type in ["classic", "quorum"] {
        let queue = format!("exclusive-{queue_type}");
        declare_with(&channel, &queue, &[("x-queue-type", text(queue_type))]).await;
        let first = attach(&cluster, 2, &queue, 1, &[]).await;
        assert!(refused(&queue, true).await);
        first.connection.close(200, "done".into()).await.expect("close-ok");
        eventually("no consumer", || async {
            let [consumers] = cluster.counts(1, &queue, ["consumers"]).await?;
            hold(consumers == 0, || format!("{consumers} consumers"))
        })
        .await;
        let options = BasicConsumeOptions { exclusive: true, ..BasicConsumeOptions::default() };
        let alone =
            channel.basic_consume(queue.as_str().into(), "".into(), options, <_>::default());
        let _alone = alone.await.expect("consume-ok");
        assert!(refused(&queue, false).await);
        // Also on a queue with a single active consumer.
        let single = format!("single-{queue_type}");
        let with = ("x-single-active-consumer", AMQPValue::Boolean(true));
        declare_with(&channel, &single, &[("x-queue-type", text(queue_type)), with]).await;
        assert!(refused(&single, true).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cto_05_a_delivery_not_settled_in_time_goes_to_another() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue_type in ["classic", "quorum"] {
        let queue = format!("timeout-{queue_type}");
        let with = [("x-queue-type", text(queue_type)), ("x-consumer-timeout", int(1_000))];
        declare_with(&channel, &queue, &with).await;
        let mut slow = attach(&cluster, 2, &queue, 1, &[]).await;
        // CTO-04: the consumer's own time wins.
        let patient = [("x-consumer-timeout", int(600_000)), ("x-priority", int(-1))];
        publish(&channel, &queue, "a").await;
        slow.next().await;
        let mut other = attach(&cluster, 3, &queue, 1, &patient).await;
        let again = other.next().await;
        assert_eq!((again.data.as_slice(), again.redelivered), (b"a".as_slice(), true));
        // lapin says that it can be told: it gets basic.cancel, and its channel stays open.
        let end = in_time("the consumer's end", slow.consumer.next()).await;
        assert!(end.is_none(), "{end:?}");
        declare_with(&slow.channel, &queue, &with).await;
        again.nack(BasicNackOptions { requeue: true, ..<_>::default() }).await.expect("sent");
        assert_eq!(other.bodies(1).await, "a");
    }
}

/// Client-properties of a client that can be told of its consumer's end.
fn can_be_told() -> Vec<u8> {
    let capabilities = [wire::short("consumer_cancel_notify").as_slice(), b"t\x01"].concat();
    [wire::short("capabilities").as_slice(), b"F", &wire::long(&capabilities)].concat()
}

/// The next thing that comes is a delivery: its tag, and whether it is a redelivery of that body.
async fn delivery(wire: &mut Wire, body: &[u8]) -> (u64, bool) {
    let method = wire.expect(1, 60, 60).await;
    let (tag, rest) = method.arguments().split_first().expect("a consumer tag");
    let rest = rest.get(usize::from(*tag)..).expect("a consumer tag");
    let (number, rest) = rest.split_first_chunk().expect("a delivery tag");
    wire.next().await.expect("a header");
    assert_eq!(wire.next().await.expect("a body").payload, body);
    (u64::from_be_bytes(*number), rest.first() == Some(&1))
}

/// Messages and consumers of a queue, in the order of what the channel has sent before.
async fn declared(wire: &mut Wire, queue: &str) -> (u32, u32) {
    let passive = [&[0, 0], wire::short(queue).as_slice(), &[1], &wire::long(&[])].concat();
    wire.method(1, 50, 10, &passive).await;
    let ok = wire.expect(1, 50, 11).await;
    let counts: &[u8; 8] = ok.arguments().last_chunk().expect("counts");
    let [m0, m1, m2, m3, c0, c1, c2, c3] = *counts;
    (u32::from_be_bytes([m0, m1, m2, m3]), u32::from_be_bytes([c0, c1, c2, c3]))
}

async fn acknowledge(wire: &mut Wire, tag: u64) {
    wire.method(1, 60, 80, &[tag.to_be_bytes().as_slice(), &[0]].concat()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cto_06_who_timed_out_is_served_again_once_it_has_settled_all_that_did() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue_type in ["classic", "quorum"] {
        let queue = format!("late-{queue_type}");
        let with = [("x-queue-type", text(queue_type)), ("x-consumer-timeout", int(4_000))];
        declare_with(&channel, &queue, &with).await;
        publish(&channel, &queue, "ab").await;
        let address = cluster.node(2).amqp_address();
        let mut slow = Wire::open_as(&address, &can_be_told()).await;
        slow.method(1, 20, 10, &[0]).await;
        slow.expect(1, 20, 11).await;
        slow.method(1, 60, 20, &wire::basic_consume(&queue, false)).await;
        let consuming = slow.expect(1, 60, 21).await;
        let (first, _) = delivery(&mut slow, b"a").await;
        let (second, _) = delivery(&mut slow, b"b").await;
        slow.expect(1, 60, 30).await;
        // CTO-05: they are there for others.
        assert_eq!(get(&channel, &queue).await, Some(b"a".to_vec()));
        publish(&channel, &queue, "c").await;
        // One is settled late, which is accepted; nothing comes, since there is another.
        acknowledge(&mut slow, first).await;
        assert_eq!(declared(&mut slow, &queue).await, (2, 1));
        // With the last one it is served again. Its settling has had no effect on the messages.
        acknowledge(&mut slow, second).await;
        let (second, redelivered) = delivery(&mut slow, b"b").await;
        assert!(redelivered);
        let (third, redelivered) = delivery(&mut slow, b"c").await;
        assert!(!redelivered);
        acknowledge(&mut slow, second).await;
        slow.expect(1, 60, 30).await;
        // A client that takes the notification for its consumer's end has ended it.
        slow.method(1, 60, 31, consuming.arguments()).await;
        acknowledge(&mut slow, third).await;
        eventually("the consumer's end", || async {
            let [messages, consumers] =
                cluster.counts(1, &queue, ["messages", "consumers"]).await?;
            hold((messages, consumers) == (1, 0), || format!("{messages}, {consumers}"))
        })
        .await;
        assert_eq!(get(&channel, &queue).await, Some(b"c".to_vec()));
    }
}

/// CTO-02 for the text.
#[tokio::test(flavor = "multi_thread")]
async fn cto_05_who_cannot_be_told_has_its_channel_closed() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let with = [("x-queue-type", text("quorum")), ("x-consumer-timeout", int(500))];
    declare_with(&channel, "closing", &with).await;
    publish(&channel, "closing", "ab").await;
    // The harness's own client has no capabilities.
    let mut consuming = Wire::open_channel(&cluster.node(3).amqp_address()).await;
    consuming.method(1, 60, 10, &[0, 0, 0, 0, 0, 1, 0]).await;
    consuming.expect(1, 60, 11).await;
    consuming.method(1, 60, 20, &wire::basic_consume("closing", false)).await;
    let close = consuming.channel_close(1).await.expect("a close");
    let text = close.text;
    assert_eq!(close.code, 406, "{text}");
    assert!(text.contains("delivery acknowledgement on channel 1 timed out"), "{text}");
    assert!(text.contains("Timeout value used: -1 ms"), "{text}");
    // A get's message too; lapin's channel closes for that.
    let (_connection, getting) = open(&cluster.amqp_uri(2)).await;
    let got = getting.basic_get("closing".into(), BasicGetOptions::default()).await;
    got.expect("get").expect("a message");
    eventually("the channel's end", || async {
        hold(!getting.status().connected(), || "it is open".to_owned())
    })
    .await;
    // SAC or not, limits or not: both are there, marked.
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    for body in ["a", "b"] {
        assert_eq!(get(&channel, "closing").await, Some(body.as_bytes().to_vec()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cto_01_cto_04_a_get_has_the_nodes_time_where_its_queue_says_nothing() {
    let options = Options::default().with("--consumer-timeout-ms", "500");
    let cluster = Cluster::start(1, options).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let quorum = ("x-queue-type", text("quorum"));
    let long = ("x-consumer-timeout", int(60_000));
    declare_with(&channel, "silent", std::slice::from_ref(&quorum)).await;
    declare_with(&channel, "patient", &[quorum, long]).await;
    publish(&channel, "patient", "a").await;
    publish(&channel, "silent", "a").await;
    let (_patient, patient) = get_and_keep(&cluster, "patient").await;
    let (_silent, silent) = get_and_keep(&cluster, "silent").await;
    eventually("the channel's end", || async {
        hold(!silent.status().connected(), || "it is open".to_owned())
    })
    .await;
    assert_eq!(get(&channel, "silent").await.as_deref(), Some(&b"a"[..]));
    assert!(patient.status().connected(), "its queue gives it a minute");
}

/// By the consumer's argument, its queue's, a policy, or the setting.
#[tokio::test(flavor = "multi_thread")]
async fn cto_04_lists_of_consumers_show_the_time_in_force() {
    let options = Options::default().with("--consumer-timeout-ms", "70000");
    let cluster = Cluster::start(1, options).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    let quorum = ("x-queue-type", text("quorum"));
    let timeout = |ms| ("x-consumer-timeout", int(ms));
    let policy = ["set_policy", "patient", "^by-policy$", r#"{"consumer-timeout":20000}"#];
    cluster.ctl(1, &policy).await.succeeded().expect("a policy");
    for name in ["by-setting", "by-policy"] {
        declare_with(&channel, name, std::slice::from_ref(&quorum)).await;
    }
    for name in ["by-queue", "by-consumer"] {
        declare_with(&channel, name, &[quorum.clone(), timeout(60_000)]).await;
    }
    let own = timeout(50_000);
    let mut clients = vec![attach(&cluster, 1, "by-consumer", 1, &[own]).await];
    for name in ["by-setting", "by-policy", "by-queue"] {
        clients.push(attach(&cluster, 1, name, 1, &[]).await);
    }
    let (status, list) = api(&cluster, 1, GUEST, ("GET", "consumers"), "").await;
    assert_eq!(status, 200, "{list}");
    let list = list.as_array().cloned().unwrap_or_default();
    let shown: BTreeMap<String, u64> = list
        .iter()
        .filter_map(|it| {
            let queue = it.pointer("/queue/name")?.as_str()?;
            Some((queue.to_owned(), it.get("consumer_timeout")?.as_u64()?))
        })
        .collect();
    let expected = [
        ("by-setting", 70_000),
        ("by-policy", 20_000),
        ("by-queue", 60_000),
        ("by-consumer", 50_000),
    ];
    assert_eq!(shown, expected.map(|(name, ms)| (name.to_owned(), ms)).into());
}

/// A client that has got a message and does not settle it.
async fn get_and_keep(cluster: &Cluster, queue: &str) -> (Connection, Channel) {
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    let got = channel.basic_get(queue.into(), BasicGetOptions::default()).await;
    got.expect("get").expect("a message");
    (connection, channel)
}

/// Tag, active and status of each consumer of a queue, in the order of the tags.
async fn shown(cluster: &Cluster, node: u64, queue: &str) -> Vec<[String; 3]> {
    let columns = ["queue_name", "consumer_tag", "active", "activity_status"];
    let rows = cluster.rows(node, &[&["list_consumers"], &columns[..]].concat()).await;
    let rows = rows.expect("rows").into_iter().filter(|row| ctl::text(row, "queue_name") == queue);
    rows.map(|row| ["consumer_tag", "active", "activity_status"].map(|it| ctl::text(&row, it)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sac_02_lists_show_on_every_node_who_is_active() {
    let cluster = Cluster::start(3, Options::default()).await;
    cluster.leaders_rest().await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    let single = ("x-single-active-consumer", AMQPValue::Boolean(true));
    declare_with(&channel, "shown", &[("x-queue-type", text("quorum")), single]).await;
    declare_with(&channel, "plain", &[]).await;
    let (mut clients, mut consumers) = (Vec::new(), Vec::new());
    for (node, tag) in [(2, "b"), (3, "c"), (1, "a")] {
        let (connection, channel) = open(&cluster.amqp_uri(node)).await;
        for queue in ["shown", "plain"] {
            let (tag, options) = (format!("{tag}-{queue}"), BasicConsumeOptions::default());
            let consume = channel.basic_consume(queue.into(), tag.into(), options, <_>::default());
            consumers.push(consume.await.expect("consume-ok"));
        }
        clients.push((connection, channel));
    }
    let row = |tag: &str, active: &str, status: &str| [tag, active, status].map(str::to_owned);
    let waiting = |tag: &str| row(tag, "false", "waiting");
    let first = row("b-shown", "true", "single_active");
    for node in 1..=3 {
        let wanted = [waiting("a-shown"), first.clone(), waiting("c-shown")];
        assert_eq!(shown(&cluster, node, "shown").await, wanted, "node {node}");
        let plain = ["a-plain", "b-plain", "c-plain"].map(|tag| row(tag, "true", "up"));
        assert_eq!(shown(&cluster, node, "plain").await, plain, "node {node}");
    }
    let cancelled =
        clients.first().expect("three").1.basic_cancel("b-shown".into(), <_>::default());
    cancelled.await.expect("cancel-ok");
    let wanted = [waiting("a-shown"), row("c-shown", "true", "single_active")];
    assert_eq!(shown(&cluster, 1, "shown").await, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn con_07_a_channel_has_no_more_consumers_than_the_setting_says() {
    let options = Options::default().with("--consumer-max-per-channel", "2");
    let cluster = Cluster::start(1, options).await;
    let (connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_with(&channel, "few", &[]).await;
    let consume = async |channel: &Channel, tag: &str| {
        let options = BasicConsumeOptions::default();
        channel.basic_consume("few".into(), tag.into(), options, <_>::default()).await
    };
    // One that is dropped is cancelled.
    let _first = consume(&channel, "a").await.expect("consume-ok");
    let _second = consume(&channel, "b").await.expect("consume-ok");
    channel.basic_cancel("a".into(), <_>::default()).await.expect("cancel-ok");
    let _again = consume(&channel, "a").await.expect("one has been cancelled");
    // Channels are counted apart.
    let other = connection.create_channel().await.expect("open-ok");
    let _apart = consume(&other, "c").await.expect("consume-ok");
    let refused = consume(&channel, "d").await.expect_err("a third one");
    assert_eq!(code(&refused), Some(530), "{refused}");
    let text = "NOT_ALLOWED - reached maximum (2) of consumers per channel";
    assert!(refused.to_string().contains(text), "{refused}");
    eventually("the connection has ended", || async {
        hold(!connection.status().connected(), || "it is open".to_owned())
    })
    .await;
}
