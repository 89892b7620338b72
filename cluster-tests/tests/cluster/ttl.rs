//! Messages and queues that live for a time (TTL, EXP, Q-20 to Q-22), on every kind of queue and
//! over what happens to its leader.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use lapin::options::{BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel};
use quorate_cluster_tests::harness::amqp::{
    declare_with, get, int, open, open_confirming, publish_with, ready, text,
};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Node, Options, ctl, figure};
use std::time::{Duration, Instant};

const TTL: &str = "x-message-ttl";
const EXPIRES: &str = "x-expires";

fn expiring(ms: &str) -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2).with_expiration(ms.into())
}

fn plain() -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2)
}

/// Waits until so many messages are ready, by lists, which do not concern the queue: what has to
/// happen happens by itself. Tells when it was seen.
async fn becomes(cluster: &Cluster, queue: &str, count: u64) -> Instant {
    eventually("the number of ready messages", || async {
        let [found] = cluster.counts(running(cluster), queue, ["messages_ready"]).await?;
        hold(found == count, || format!("{found}, not {count}"))
    })
    .await;
    Instant::now()
}

fn running(cluster: &Cluster) -> u64 {
    cluster.nodes().iter().find(|node| node.runs()).expect("a node that runs").id()
}

/// Never earlier. How late it was seen says more of this machine than of the broker.
fn is_not_early(what: &str, begun: Instant, ended: Instant, after: Duration) {
    let took = ended.duration_since(begun);
    figure(what, took);
    assert!(took >= after, "{what}: {took:?}, not {after:?}");
}

/// The message of the first queue dies before the witness, a younger one of the same TTL in the
/// second: whatever happened to the first did not make it younger. `published` is when the witness
/// was; what is seen after its own time says nothing.
async fn dies_first(cluster: &Cluster, queues: [&str; 2], published: Instant, ttl: Duration) {
    let [first, witness] = queues;
    let left = eventually("the first message dies", || async {
        let rows =
            cluster.rows(running(cluster), &["list_queues", "name", "messages_ready"]).await?;
        let ready = |queue| {
            let row = rows.iter().find(|row| ctl::text(row, "name") == queue);
            ctl::count(row.ok_or("not listed")?, "messages_ready")
        };
        let witness = ready(witness)?;
        hold(ready(first)? == 0, || "it is there".to_owned()).map(|()| witness)
    })
    .await;
    assert!(left == 1 || published.elapsed() >= ttl, "the witness died with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_06_a_message_dies_at_its_moment_and_nobody_has_to_look() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for (queue, queue_type) in [("by-queue-c", "classic"), ("by-queue-q", "quorum")] {
        declare_with(&channel, queue, &[("x-queue-type", text(queue_type)), (TTL, int(400))]).await;
        let (begun, ttl) = (Instant::now(), Duration::from_millis(400));
        assert!(publish_with(&channel, queue, b"1", plain()).await);
        // Q-20: the lower of the two.
        assert!(publish_with(&channel, queue, b"2", expiring("60000")).await);
        let both = ready(&connection, queue).await;
        assert!(both == Ok(2) || begun.elapsed() >= ttl, "{both:?}");
        let ended = becomes(&cluster, queue, 0).await;
        is_not_early("a queue's TTL of 400 ms", begun, ended, Duration::from_millis(390));
    }
    // TTL-01, TTL-05: its own expiration, at the head only.
    declare_with(&channel, "own", &[]).await;
    let begun = Instant::now();
    assert!(publish_with(&channel, "own", b"1", expiring("300")).await);
    assert!(publish_with(&channel, "own", b"2", plain()).await);
    assert!(publish_with(&channel, "own", b"3", expiring("10")).await);
    let ended = becomes(&cluster, "own", 2).await;
    is_not_early("an expiration of 300 ms", begun, ended, Duration::from_millis(290));
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
    let ttl = Duration::from_millis(1_600);
    for queue in ["age", "witness"] {
        let with = [("x-queue-type", text("quorum")), (TTL, int(1_600))];
        declare_with(&channel, queue, &with).await;
    }
    let begun = Instant::now();
    assert!(publish_with(&channel, "age", b"1", plain()).await);
    let got = channel.basic_get("age".into(), BasicGetOptions::default()).await;
    let got = got.expect("get").expect("a message");
    tokio::time::sleep(ttl / 2).await;
    let requeue = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
    channel.basic_nack(got.delivery.delivery_tag, requeue).await.expect("sent");
    let (returned, witness) = (ready(&connection, "age").await, Instant::now());
    assert!(returned == Ok(1) || begun.elapsed() >= ttl, "it is back in its place: {returned:?}");
    assert!(publish_with(&channel, "witness", b"1", plain()).await);
    dies_first(&cluster, ["age", "witness"], witness, ttl).await;
    is_not_early("1.6 s over a return", begun, Instant::now(), Duration::from_millis(1_590));
    // While unacked it does not expire; returned by the channel's end after its moment it dies.
    eventually("one is got before it dies", || async {
        assert!(publish_with(&channel, "age", b"2", plain()).await);
        let got = channel.basic_get("age".into(), BasicGetOptions::default()).await;
        hold(got.expect("get").is_some(), || "it has died".to_owned())
    })
    .await;
    tokio::time::sleep(ttl + Duration::from_millis(100)).await;
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
    declare_with(&channel, "witness", &with).await;
    let leader = cluster.leader_of("over").await;
    let other = cluster.others(leader)[0];
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(other)).await;
    let begun = Instant::now();
    assert!(publish_with(&channel, "over", b"1", plain()).await);
    // A quiet group: its clock is not in any entry.
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.node(leader).kill9();
    cluster.leader_of("over").await;
    let witness = Instant::now();
    assert!(publish_with(&channel, "witness", b"1", plain()).await);
    dies_first(&cluster, ["over", "witness"], witness, Duration::from_secs(6)).await;
    is_not_early("6 s over a killed leader", begun, Instant::now(), Duration::from_millis(5_900));
}

#[tokio::test(flavor = "multi_thread")]
async fn q_20_time_in_the_queue_runs_on_while_all_are_down_and_a_lease_begins_anew() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let quorum = ("x-queue-type", text("quorum"));
    declare_with(&channel, "down", &[quorum.clone(), (TTL, int(4_000))]).await;
    declare_with(&channel, "leased", &[quorum, (EXPIRES, int(5_000))]).await;
    assert!(publish_with(&channel, "down", b"1", plain()).await);
    cluster.nodes().iter().for_each(Node::kill9);
    tokio::time::sleep(Duration::from_secs(6)).await;
    let begun = Instant::now();
    cluster.nodes().iter().for_each(Node::spawn);
    cluster.ready().await;
    let (_connection, channel) = open(&cluster.amqp_uri(2)).await;
    assert_eq!(get(&channel, "down").await, None);
    // Q-22: the lease was over when the nodes came back, had it gone on.
    let ended = ends(&cluster, "leased").await;
    is_not_early("a lease of 5 s after a stop", begun, ended, Duration::from_secs(5));
}

/// Waits until no such queue is listed.
async fn ends(cluster: &Cluster, queue: &str) -> Instant {
    eventually("the queue's end", || async {
        let rows = cluster.rows(running(cluster), &["list_queues", "name"]).await?;
        let there = rows.iter().any(|row| ctl::text(row, "name") == queue);
        hold(!there, || format!("{rows:?}"))
    })
    .await;
    Instant::now()
}

/// Uses a queue again and again for twice its lease: it must be there each time, unless this machine
/// took a whole lease between two uses. Tells when the last use began, and whether the machine did not.
async fn stays(lease: Duration, mut used: impl AsyncFnMut() -> bool) -> (Instant, bool) {
    let (begun, mut last, mut is_sure) = (Instant::now(), Instant::now(), true);
    while begun.elapsed() < 2 * lease {
        tokio::time::sleep(lease / 5).await;
        let now = Instant::now();
        let there = used().await;
        is_sure &= last.elapsed() < lease;
        assert!(there || !is_sure, "it ended in use");
        last = now;
    }
    (last, is_sure)
}

#[tokio::test(flavor = "multi_thread")]
async fn q_22_an_unused_queue_ends_and_use_renews_its_lease() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let lease = Duration::from_millis(1_500);
    for (queue, queue_type) in [("lease-c", "classic"), ("lease-q", "quorum")] {
        let with = [("x-queue-type", text(queue_type)), (EXPIRES, int(1_500))];
        declare_with(&channel, queue, &with).await;
        // EXP-02: a get, also of nothing. It tells of an end with a close of its channel.
        stays(lease, async || {
            let channel = connection.create_channel().await.expect("a channel");
            channel.basic_get(queue.into(), <_>::default()).await.is_ok()
        })
        .await;
        // EXP-04: a redeclare. A queue that it made anew would be empty.
        declare_with(&channel, queue, &with).await;
        assert!(publish_with(&channel, queue, b"1", plain()).await);
        let (mut renewed, is_sure) = stays(lease, async || {
            declare_with(&channel, queue, &with).await;
            true
        })
        .await;
        let kept = ready(&connection, queue).await;
        assert!(kept == Ok(1) || !is_sure || renewed.elapsed() >= lease, "{kept:?}");
        // Q-22: a passive declare counts for a classic queue only.
        if queue_type == "classic" {
            let used = async || ready(&connection, queue).await == kept;
            (renewed, _) = stays(lease, used).await;
        }
        // EXP-01: what is in it does not keep it; publishes do not either, nor passive declares
        // of a quorum queue.
        eventually("the queue's end", || async {
            publish_with(&channel, queue, b"2", plain()).await;
            if queue_type == "quorum" {
                let found = ready(&connection, queue).await;
                return hold(found == Err(Some(404)), || format!("{found:?}"));
            }
            let rows = cluster.rows(1, &["list_queues", "name"]).await?;
            let there = rows.iter().any(|row| ctl::text(row, "name") == queue);
            hold(!there, || format!("{rows:?}"))
        })
        .await;
        is_not_early("a lease of 1.5 s", renewed, Instant::now(), lease);
    }
    // A consumer keeps it; after its cancel the lease runs. EXP-05: never earlier.
    declare_with(&channel, "consumed", &[]).await;
    let consumer = consume(&channel, "consumed", 1).await;
    let set = ["set_policy", "lease", "^consumed$", r#"{"expires":800}"#];
    cluster.ctl(1, &set).await.succeeded().expect("a policy");
    tokio::time::sleep(Duration::from_millis(1_600)).await;
    assert_eq!(cluster.counts(1, "consumed", ["consumers"]).await, Ok([1]));
    let left = Instant::now();
    channel.basic_cancel(consumer.tag(), <_>::default()).await.expect("cancel-ok");
    let ended = ends(&cluster, "consumed").await;
    is_not_early("800 ms after a cancel", left, ended, Duration::from_millis(800));
}

/// Q-21: a backlog that expires together is gone soon, and other queues do not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn q_21_many_that_expire_together_hold_nobody_up() {
    const MANY: u32 = 60_000;
    let cluster = Cluster::start(3, Options::default().with("--queue-groups", "1")).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let quorum: (&str, AMQPValue) = ("x-queue-type", text("quorum"));
    declare_with(&channel, "many", std::slice::from_ref(&quorum)).await;
    declare_with(&channel, "other", &[quorum]).await;
    let (_publishing, publisher) = open(&cluster.amqp_uri(2)).await;
    for number in 0..MANY {
        let options = <_>::default();
        let body = number.to_be_bytes();
        let sent = publisher.basic_publish("".into(), "many".into(), options, &body, plain());
        sent.await.expect("sent");
    }
    becomes(&cluster, "many", u64::from(MANY)).await;
    // Q-20: a TTL set later counts for what is there.
    let set = ["set_policy", "ttl", "^many$", r#"{"message-ttl":0}"#];
    let expiring = Instant::now();
    cluster.ctl(1, &set).await.succeeded().expect("a policy");
    let mut slowest = Duration::ZERO;
    while ready(&connection, "many").await != Ok(0) {
        let begun = Instant::now();
        assert!(publish_with(&channel, "other", b"1", plain()).await);
        slowest = slowest.max(begun.elapsed());
    }
    let took = expiring.elapsed();
    figure("60,000 expire in, and the slowest publish beside them takes", (took, slowest));
    // On a slow machine all takes its time, but nobody waits for the whole of them.
    let bound = Duration::from_secs(5).max(took / 2);
    assert!(slowest < bound, "a publish took {slowest:?} of {took:?}");
}

async fn consume(channel: &Channel, queue: &str, prefetch: u16) -> lapin::Consumer {
    channel.basic_qos(prefetch, BasicQosOptions::default()).await.expect("qos-ok");
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
    consumer.await.expect("consume-ok")
}

async fn next(consumer: &mut lapin::Consumer) -> lapin::message::Delivery {
    use futures::StreamExt;
    let delivery =
        quorate_cluster_tests::harness::wait::in_time("a delivery", consumer.next()).await;
    delivery.expect("the consumer goes on").expect("a delivery")
}
