//! Length limits (LEN, Q-33) and priorities (PRI, Q-34), as clients see them.

#![expect(clippy::expect_used, reason = "tests")]

use lapin::BasicProperties;
use lapin::options::BasicGetOptions;
use quorate_cluster_tests::harness::amqp::{
    declare_with, get, headers, int, open_confirming, publish_with, ready, text,
};
use quorate_cluster_tests::harness::wait::eventually;
use quorate_cluster_tests::harness::wire::{self, Wire};
use quorate_cluster_tests::harness::{Cluster, Options};
use quorate_cluster_tests::invariant::assert_replicas_equal;

const LENGTH: &str = "x-max-length";
const BYTES: &str = "x-max-length-bytes";
const OVERFLOW: &str = "x-overflow";

fn plain() -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2)
}

fn with_priority(priority: u8) -> BasicProperties {
    plain().with_priority(priority)
}

fn no_ack() -> BasicGetOptions {
    BasicGetOptions { no_ack: true }
}

async fn all(channel: &lapin::Channel, queue: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    while let Some(body) = get(channel, queue).await {
        bodies.push(String::from_utf8_lossy(&body).into_owned());
    }
    bodies
}

#[tokio::test(flavor = "multi_thread")]
async fn len_04_the_head_makes_way() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue_type in ["classic", "quorum"] {
        let of_type = ("x-queue-type", text(queue_type));
        let queue = format!("drop-{queue_type}");
        declare_with(&channel, &queue, &[of_type.clone(), (LENGTH, int(3))]).await;
        for body in ["a", "b", "c", "d", "e"] {
            assert!(publish_with(&channel, &queue, body.as_bytes(), plain()).await);
        }
        assert_eq!(ready(&connection, &queue).await, Ok(3));
        assert_eq!(all(&channel, &queue).await, ["c", "d", "e"]);
        // LEN-14: what is larger than the limit drops everything, itself too.
        let queue = format!("bytes-{queue_type}");
        declare_with(&channel, &queue, &[of_type, (BYTES, int(10))]).await;
        for body in ["four", "more", "xyz"] {
            assert!(publish_with(&channel, &queue, body.as_bytes(), plain()).await);
        }
        assert_eq!(ready(&connection, &queue).await, Ok(2));
        assert!(publish_with(&channel, &queue, b"much too large", plain()).await);
        assert_eq!(all(&channel, &queue).await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q_33_reject_publish_is_exact_and_answers_with_a_nack() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue_type in ["classic", "quorum"] {
        let queue = format!("reject-{queue_type}");
        let with = [
            ("x-queue-type", text(queue_type)),
            (LENGTH, int(2)),
            (OVERFLOW, text("reject-publish")),
        ];
        declare_with(&channel, &queue, &with).await;
        // LEN-07: ack, ack, nack.
        for (body, taken) in [("a", true), ("b", true), ("c", false), ("d", false)] {
            assert_eq!(publish_with(&channel, &queue, body.as_bytes(), plain()).await, taken);
        }
        assert_eq!(get(&channel, &queue).await, Some(b"a".to_vec()));
        assert!(publish_with(&channel, &queue, b"e", plain()).await, "there is room for one");
        assert!(!publish_with(&channel, &queue, b"f", plain()).await);
        assert_eq!(ready(&connection, &queue).await, Ok(2));
        // LEN-11: the other target of a fan-out keeps its copy.
        let (exchange, other) = (format!("fan-{queue_type}"), format!("other-{queue_type}"));
        declare_with(&channel, &other, &[]).await;
        let fanout = lapin::ExchangeKind::Fanout;
        let (options, none) = (lapin::options::ExchangeDeclareOptions::default(), <_>::default());
        let declared = channel.exchange_declare(exchange.as_str().into(), fanout, options, none);
        declared.await.expect("declare-ok");
        for target in [&queue, &other] {
            let (target, source) = (target.as_str().into(), exchange.as_str().into());
            let bound =
                channel.queue_bind(target, source, "".into(), <_>::default(), <_>::default());
            bound.await.expect("bind-ok");
        }
        let options = lapin::options::BasicPublishOptions::default();
        let sent =
            channel.basic_publish(exchange.as_str().into(), "".into(), options, b"g", plain());
        let confirm = sent.await.expect("sent").await.expect("a confirm");
        assert!(confirm.is_nack(), "{confirm:?}");
        assert_eq!(all(&channel, &other).await, ["g"]);
        assert_eq!(all(&channel, &queue).await, ["b", "e"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn len_12_what_is_refused_is_a_dead_letter_too() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue_type in ["classic", "quorum"] {
        let (queue, dead) = (format!("full-{queue_type}"), format!("refused-{queue_type}"));
        let with = [
            ("x-queue-type", text(queue_type)),
            (LENGTH, int(2)),
            (OVERFLOW, text("reject-publish-dlx")),
            ("x-dead-letter-exchange", text("")),
            ("x-dead-letter-routing-key", text(&dead)),
        ];
        declare_with(&channel, &queue, &with).await;
        declare_with(&channel, &dead, &[]).await;
        for (body, taken) in [("a", true), ("b", true), ("c", false), ("d", false)] {
            assert_eq!(publish_with(&channel, &queue, body.as_bytes(), plain()).await, taken);
        }
        for body in ["c", "d"] {
            let letter = eventually("the refused one arrives", || async {
                let got = channel.basic_get(dead.as_str().into(), no_ack()).await;
                got.expect("get").ok_or_else(|| format!("{dead} is empty"))
            });
            let letter = letter.await;
            assert_eq!(String::from_utf8_lossy(&letter.delivery.data), body);
            let headers = headers(&letter.delivery.properties);
            assert_eq!(headers.get("x-first-death-reason"), Some(&text("maxlen")));
            assert_eq!(headers.get("x-first-death-queue"), Some(&text(&queue)));
        }
        // What was refused among them is in nobody's way.
        assert_eq!(ready(&connection, &queue).await, Ok(2));
        assert_eq!(get(&channel, &queue).await, Some(b"a".to_vec()));
        assert!(publish_with(&channel, &queue, b"e", plain()).await, "there is room for one");
        assert_eq!(all(&channel, &queue).await, ["b", "e"]);
        assert_eq!(get(&channel, &dead).await, None, "each once");
    }
    assert_replicas_equal(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn len_10_without_confirms_what_is_refused_vanishes() {
    let cluster = Cluster::start(3, Options::default()).await;
    let with = [(LENGTH, int(1)), (OVERFLOW, text("reject-publish"))];
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_with(&channel, "full", &with).await;
    // The harness's own client sees whatever is sent.
    let mut publisher = Wire::open_channel(&cluster.node(2).amqp_address()).await;
    for (key, body) in [("full", b"a"), ("full", b"b"), ("nobody", b"c")] {
        publisher.method(1, 60, 40, &wire::basic_publish(key, true)).await;
        publisher.send(&wire::frame(wire::HEADER, 1, &wire::content_header(60, 1, None))).await;
        publisher.send(&wire::frame(wire::BODY, 1, body)).await;
    }
    // All that comes is about what no queue takes, in three frames.
    let returned = publisher.expect(1, 60, 50).await;
    assert!(returned.arguments().ends_with(b"\x06nobody"), "{returned:?}");
    for _ in 0..2 {
        assert!(publisher.next().await.is_some());
    }
    // Asked behind the refused publish, by the same way, the queue answers, and nothing is between.
    let passive = [&[0, 0], wire::short("full").as_slice(), &[1], &wire::long(&[])].concat();
    publisher.method(1, 50, 10, &passive).await;
    publisher.expect(1, 50, 11).await;
    assert_eq!(all(&channel, "full").await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn len_07_what_was_refused_is_gone_after_a_failover_too() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let with =
        [("x-queue-type", text("quorum")), (LENGTH, int(2)), (OVERFLOW, text("reject-publish"))];
    declare_with(&channel, "kept", &with).await;
    for (body, taken) in [("a", true), ("b", true), ("c", false)] {
        assert_eq!(publish_with(&channel, "kept", body.as_bytes(), plain()).await, taken);
    }
    let leader = cluster.leader_of("kept").await;
    cluster.node(leader).kill9();
    let others = cluster.others(leader);
    let other = others.first().copied().expect("another node");
    cluster.leader_of("kept").await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(other)).await;
    assert_eq!(all(&channel, "kept").await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn q_34_levels_are_strict_on_both_types() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(2)).await;
    let publish = async |queue: &str| {
        assert!(publish_with(&channel, queue, b"none", plain()).await);
        for priority in [0, 3, 4, 5, 31, 200] {
            let body = priority.to_string();
            let with = with_priority(priority);
            assert!(publish_with(&channel, queue, body.as_bytes(), with).await);
        }
    };
    // PRI-01: absent is 4, larger than 31 is 31.
    declare_with(&channel, "levels", &[("x-queue-type", text("quorum"))]).await;
    publish("levels").await;
    assert_eq!(all(&channel, "levels").await, ["31", "200", "5", "none", "4", "3", "0"]);
    // PRI-05 and Q-12: with x-max-priority absent is 0, larger is the largest.
    for queue_type in ["classic", "quorum"] {
        let queue = format!("max-{queue_type}");
        let with = [("x-queue-type", text(queue_type)), ("x-max-priority", int(4))];
        declare_with(&channel, &queue, &with).await;
        publish(&queue).await;
        assert_eq!(all(&channel, &queue).await, ["4", "5", "31", "200", "3", "none", "0"]);
    }
    // A classic queue without it has one level.
    declare_with(&channel, "one", &[]).await;
    publish("one").await;
    assert_eq!(all(&channel, "one").await, ["none", "0", "3", "4", "5", "31", "200"]);
    // PRI-08: drop-head takes the highest first.
    let with = [("x-queue-type", text("quorum")), (LENGTH, int(3))];
    declare_with(&channel, "drops", &with).await;
    publish("drops").await;
    assert_eq!(all(&channel, "drops").await, ["4", "3", "0"]);
}
