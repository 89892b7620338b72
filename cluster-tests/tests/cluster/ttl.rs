//! Messages and queues that live for a time (TTL, EXP, Q-20 to Q-22), on every kind of queue and
//! over what happens to its leader.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use lapin::options::{BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection};
use quorate_cluster_tests::harness::amqp::{
    declare_with, get, int, open, open_confirming, publish_with, ready, text,
};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, LIFECYCLE_BOUND, Node, Options, figure};
use std::time::{Duration, Instant};

/// Q-21 says 100 ms; the rest is for looking, on a machine that is busy with other tests.
const LATE: Duration = Duration::from_millis(1_500);
const TTL: &str = "x-message-ttl";
const EXPIRES: &str = "x-expires";

fn expiring(ms: &str) -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2).with_expiration(ms.into())
}

fn plain() -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2)
}

/// Waits until so many messages are ready; tells when that was.
async fn becomes(connection: &Connection, queue: &str, count: u32) -> Instant {
    eventually("the number of ready messages", LIFECYCLE_BOUND, || async {
        let found = ready(connection, queue).await;
        hold(found == Ok(count), || format!("{found:?}, not {count}"))
    })
    .await;
    Instant::now()
}

fn is_in_time(what: &str, begun: Instant, ended: Instant, after: Duration) {
    let took = ended.duration_since(begun);
    figure(what, took);
    assert!(took >= after && took < after + LATE, "{what}: {took:?}, not {after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_06_a_message_dies_at_its_moment_and_nobody_has_to_look() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for (queue, queue_type) in [("by-queue-c", "classic"), ("by-queue-q", "quorum")] {
        declare_with(&channel, queue, &[("x-queue-type", text(queue_type)), (TTL, int(400))]).await;
        let begun = Instant::now();
        assert!(publish_with(&channel, queue, b"1", plain()).await);
        // the lower of the two.
        assert!(publish_with(&channel, queue, b"2", expiring("60000")).await);
        assert_eq!(ready(&connection, queue).await, Ok(2));
        let ended = becomes(&connection, queue, 0).await;
        is_in_time("a queue's TTL of 400 ms", begun, ended, Duration::from_millis(390));
    }
    // TTL-01, TTL-05: its own expiration, at the head only.
    declare_with(&channel, "own", &[]).await;
    let begun = Instant::now();
    assert!(publish_with(&channel, "own", b"1", expiring("300")).await);
    assert!(publish_with(&channel, "own", b"2", plain()).await);
    assert!(publish_with(&channel, "own", b"3", expiring("10")).await);
    let ended = becomes(&connection, "own", 2).await;
    is_in_time("an expiration of 300 ms", begun, ended, Duration::from_millis(290));
    // TTL-03: the one behind is not shown either.
    assert_eq!(get(&channel, "own").await, Some(b"2".to_vec()));
    assert_eq!(get(&channel, "own").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_07_with_zero_a_message_is_delivered_now_or_dead() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for (queue, queue_type) in [("zero-c", "classic"), ("zero-q", "quorum")] {
        declare_with(&channel, queue, &[("x-queue-type", text(queue_type)), (TTL, int(0))]).await;
        // CNF-08: it is confirmed all the same.
        assert!(publish_with(&channel, queue, b"nobody", plain()).await);
        assert_eq!(ready(&connection, queue).await, Ok(0));
        let mut consumer = consume(&channel, queue, 10).await;
        for body in 0..5u8 {
            assert!(publish_with(&channel, queue, &[body], plain()).await);
            assert_eq!(next(&mut consumer).await.data, [body]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_04_place_and_age_survive_a_return() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(2)).await;
    declare_with(&channel, "age", &[("x-queue-type", text("quorum")), (TTL, int(800))]).await;
    let begun = Instant::now();
    assert!(publish_with(&channel, "age", b"1", plain()).await);
    let got = channel.basic_get("age".into(), BasicGetOptions::default()).await;
    let got = got.expect("get").expect("a message");
    let requeue = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
    channel.basic_nack(got.delivery.delivery_tag, requeue).await.expect("sent");
    becomes(&connection, "age", 1).await;
    let ended = becomes(&connection, "age", 0).await;
    is_in_time("800 ms over a return", begun, ended, Duration::from_millis(790));
    // While unacked it does not expire; returned by the channel's end after its moment it dies.
    assert!(publish_with(&channel, "age", b"2", plain()).await);
    let got = channel.basic_get("age".into(), BasicGetOptions::default()).await;
    got.expect("get").expect("a message");
    tokio::time::sleep(Duration::from_millis(900)).await;
    channel.close(200, "done".into()).await.expect("close-ok");
    let (_connection, channel) = open(&cluster.amqp_uri(3)).await;
    assert_eq!(get(&channel, "age").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn q_20_time_in_the_queue_runs_on_over_failovers() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let with = [("x-queue-type", text("quorum")), (TTL, int(6_000))];
    declare_with(&channel, "over", &with).await;
    let leader = cluster.leader_of("over").await;
    let other = cluster.others(leader)[0];
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(other)).await;
    let begun = Instant::now();
    assert!(publish_with(&channel, "over", b"1", plain()).await);
    // A quiet group: its clock is not in any entry.
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.node(leader).kill9();
    cluster.leader_of("over").await;
    let (connection, _channel) = open(&cluster.amqp_uri(other)).await;
    let ended = becomes(&connection, "over", 0).await;
    let took = ended.duration_since(begun);
    figure("6 s over a killed leader", took);
    assert!(took > Duration::from_millis(5_900), "it died after {took:?}");
    assert!(took < Duration::from_millis(8_500), "it died after {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn q_20_time_in_the_queue_runs_on_while_all_are_down_and_a_lease_begins_anew() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let quorum = ("x-queue-type", text("quorum"));
    declare_with(&channel, "down", &[quorum.clone(), (TTL, int(4_000))]).await;
    declare_with(&channel, "leased", &[quorum, (EXPIRES, int(6_000))]).await;
    let begun = Instant::now();
    assert!(publish_with(&channel, "down", b"1", plain()).await);
    cluster.nodes().iter().for_each(Node::kill9);
    tokio::time::sleep(Duration::from_secs(5)).await;
    cluster.nodes().iter().for_each(Node::spawn);
    cluster.ready().await;
    let (connection, channel) = open(&cluster.amqp_uri(2)).await;
    assert_eq!(get(&channel, "down").await, None, "after {:?}", begun.elapsed());
    // the lease would be over soon, or is, if it had gone on.
    assert_eq!(ready(&connection, "leased").await, Ok(0), "after {:?}", begun.elapsed());
    ends(&connection, "leased").await;
}

/// Waits until there is no such queue.
async fn ends(connection: &Connection, queue: &str) -> Instant {
    eventually("the queue's end", LIFECYCLE_BOUND, || async {
        let found = ready(connection, queue).await;
        hold(found == Err(Some(404)), || format!("{found:?}"))
    })
    .await;
    Instant::now()
}

#[tokio::test(flavor = "multi_thread")]
async fn q_22_an_unused_queue_ends_and_use_renews_its_lease() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for (queue, queue_type) in [("lease-c", "classic"), ("lease-q", "quorum")] {
        let with = [("x-queue-type", text(queue_type)), (EXPIRES, int(1_500))];
        declare_with(&channel, queue, &with).await;
        assert!(publish_with(&channel, queue, b"1", plain()).await);
        tokio::time::sleep(Duration::from_millis(900)).await;
        // EXP-02, EXP-04: a get, then a redeclare.
        assert_eq!(get(&channel, queue).await, Some(b"1".to_vec()));
        tokio::time::sleep(Duration::from_millis(900)).await;
        declare_with(&channel, queue, &with).await;
        let renewed = Instant::now();
        // EXP-01: what is in it does not keep it; passive declares and publishes do not either.
        assert!(publish_with(&channel, queue, b"2", plain()).await);
        let ended = ends(&connection, queue).await;
        is_in_time("a lease of 1.5 s", renewed, ended, Duration::from_millis(1_450));
    }
    // A consumer keeps it; after its cancel the lease runs. EXP-05: never earlier.
    declare_with(&channel, "consumed", &[(EXPIRES, int(800))]).await;
    let consumer = consume(&channel, "consumed", 1).await;
    tokio::time::sleep(Duration::from_millis(1_600)).await;
    assert_eq!(ready(&connection, "consumed").await, Ok(0));
    channel.basic_cancel(consumer.tag(), <_>::default()).await.expect("cancel-ok");
    let left = Instant::now();
    let ended = ends(&connection, "consumed").await;
    is_in_time("800 ms after a cancel", left, ended, Duration::from_millis(750));
}

/// a backlog that expires together is gone soon, and other queues do not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn q_21_many_that_expire_together_hold_nobody_up() {
    const MANY: u32 = 60_000;
    let cluster = Cluster::start(3, Options::default().with("--queue-groups", "1")).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let quorum: (&str, AMQPValue) = ("x-queue-type", text("quorum"));
    declare_with(&channel, "many", &[quorum.clone(), (TTL, int(8_000))]).await;
    declare_with(&channel, "other", &[quorum]).await;
    let (_publishing, publisher) = open(&cluster.amqp_uri(2)).await;
    for number in 0..MANY {
        let options = <_>::default();
        let body = number.to_be_bytes();
        let sent = publisher.basic_publish("".into(), "many".into(), options, &body, plain());
        sent.await.expect("sent");
    }
    becomes(&connection, "many", MANY).await;
    let mut slowest = Duration::ZERO;
    while ready(&connection, "many").await != Ok(0) {
        let begun = Instant::now();
        assert!(publish_with(&channel, "other", b"1", plain()).await);
        slowest = slowest.max(begun.elapsed());
    }
    figure("slowest publish beside 60,000 that expire", slowest);
    assert!(slowest < Duration::from_secs(2), "a publish took {slowest:?}");
}

async fn consume(channel: &Channel, queue: &str, prefetch: u16) -> lapin::Consumer {
    channel.basic_qos(prefetch, BasicQosOptions::default()).await.expect("qos-ok");
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
    consumer.await.expect("consume-ok")
}

async fn next(consumer: &mut lapin::Consumer) -> lapin::message::Delivery {
    use futures::StreamExt;
    let bound = quorate_cluster_tests::harness::amqp::REQUEST_BOUND;
    let delivery =
        quorate_cluster_tests::harness::wait::in_time("a delivery", bound, consumer.next()).await;
    delivery.expect("the consumer goes on").expect("a delivery")
}
