//! What applications build of time to live and dead letters: retries, a parking queue, the delay
//! ladder of NServiceBus and Celery, cycles, dead letters by policy (DLX, DLM, Q-40 to Q-46).

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions,
    ExchangeBindOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Consumer, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    bind, consume, declare_exchange, declare_quorum, declare_with, headers, int, open,
    open_confirming, persistent, publish_confirmed, publish_with, text,
};
use quorate_cluster_tests::harness::dead_letters::{death, deaths};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Options, scale};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const DLX: &str = "x-dead-letter-exchange";
const DLX_KEY: &str = "x-dead-letter-routing-key";
const TTL: &str = "x-message-ttl";

/// A quorum queue with these arguments.
async fn declare(channel: &Channel, queue: &str, with: &[(&str, AMQPValue)]) {
    let with = [&[("x-queue-type", text("quorum"))], with].concat();
    declare_with(channel, queue, &with).await;
}

/// Dead letters go straight to this queue.
fn to_queue(queue: &str) -> [(&'static str, AMQPValue); 2] {
    [(DLX, text("")), (DLX_KEY, text(queue))]
}

async fn next(consumer: &mut Consumer) -> Delivery {
    let next = in_time("a delivery", consumer.next()).await;
    next.expect("the consumer goes on").expect("a delivery")
}

/// The first message of a queue, acked.
async fn first(channel: &Channel, queue: &str) -> Delivery {
    let mut consumer = consume(channel, queue).await;
    let delivery = next(&mut consumer).await;
    delivery.ack(BasicAckOptions::default()).await.expect("sent");
    let cancelled = channel.basic_cancel(consumer.tag(), BasicCancelOptions::default());
    in_time("a cancel", cancelled).await.expect("cancel-ok");
    delivery
}

async fn reject(delivery: &Delivery) {
    delivery.nack(BasicNackOptions::default()).await.expect("sent");
}

/// Waits until so many messages are in the queue, whatever state they are in.
async fn holds(cluster: &Cluster, queue: &str, count: u64) {
    eventually("the number of messages", || async {
        let [found] = cluster.counts(1, queue, ["messages"]).await?;
        hold(found == count, || format!("{queue} has {found}, not {count}"))
    })
    .await;
}

/// Reject, wait in a queue with a TTL, come back: for ever, since a rejection is no cycle (DLX-26).
#[tokio::test(flavor = "multi_thread")]
async fn dlx_27_dlx_29_a_rejected_message_comes_back_after_a_while_and_counts_its_rounds() {
    const PAUSE: Duration = Duration::from_millis(150);
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_exchange(&channel, "retries", ExchangeKind::Fanout).await;
    declare(&channel, "work", &[(DLX, text("retries"))]).await;
    let pause = (TTL, int(i64::try_from(PAUSE.as_millis()).expect("short")));
    declare(&channel, "retry", &[&[pause][..], &to_queue("work")].concat()).await;
    bind(&channel, "retry", "retries", "").await;
    publish_confirmed(&channel, "work", b"job").await;
    let (_other, elsewhere) = open(&cluster.amqp_uri(2)).await;
    let mut consumer = consume(&elsewhere, "work").await;
    let fresh = next(&mut consumer).await;
    assert_eq!(deaths(&fresh.properties), []);
    let mut rejected = Instant::now();
    reject(&fresh).await;
    for round in 1..=6 {
        let again = next(&mut consumer).await;
        let paused = rejected.elapsed();
        assert!(paused >= PAUSE, "round {round}: {paused:?}");
        let history = [death("retry", "expired", round), death("work", "rejected", round)];
        assert_eq!(deaths(&again.properties), history, "round {round}");
        assert_eq!((again.data.as_slice(), again.redelivered), (&b"job"[..], false), "Q-43");
        let headers = headers(&again.properties);
        assert_eq!(headers["x-first-death-reason"], text("rejected"), "DLX-32");
        assert_eq!(headers["x-last-death-reason"], text("expired"), "DLX-32");
        rejected = Instant::now();
        if round < 6 {
            reject(&again).await;
        } else {
            again.ack(BasicAckOptions::default()).await.expect("sent");
        }
    }
    for queue in ["work", "retry"] {
        holds(&cluster, queue, 0).await;
    }
    assert_replicas_equal(&cluster).await;
}

/// Growing pauses, one queue each: the consumer publishes to the next one, seeing by the last death
/// which that is, and to the parking queue after the last. What it publishes begins its history anew.
#[tokio::test(flavor = "multi_thread")]
async fn dlx_35_dlx_32_a_consumer_backs_off_and_parks_what_it_cannot_do() {
    const PAUSES: [(&str, u64); 3] = [("retry-1", 50), ("retry-2", 100), ("retry-3", 200)];
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "work").await;
    declare_quorum(&channel, "parking").await;
    for (queue, pause) in PAUSES {
        let pause = (TTL, int(i64::try_from(pause).expect("short")));
        declare(&channel, queue, &[&[pause][..], &to_queue("work")].concat()).await;
    }
    publish_confirmed(&channel, "work", b"job").await;
    let mut consumer = consume(&channel, "work").await;
    let mut delivery = next(&mut consumer).await;
    assert_eq!(deaths(&delivery.properties), []);
    for (queue, pause) in PAUSES {
        let begun = Instant::now();
        assert!(publish_with(&channel, queue, &delivery.data, delivery.properties.clone()).await);
        delivery.ack(BasicAckOptions::default()).await.expect("sent");
        delivery = next(&mut consumer).await;
        let paused = begun.elapsed();
        assert!(paused >= Duration::from_millis(pause), "{queue}: {paused:?}");
        assert_eq!(deaths(&delivery.properties), [death(queue, "expired", 1)]);
        assert_eq!(headers(&delivery.properties)["x-last-death-queue"], text(queue));
    }
    assert!(publish_with(&channel, "parking", &delivery.data, delivery.properties.clone()).await);
    delivery.ack(BasicAckOptions::default()).await.expect("sent");
    let parked = first(&channel, "parking").await;
    assert_eq!(parked.data, b"job");
    // As its publisher left it.
    assert_eq!(deaths(&parked.properties), [death("retry-3", "expired", 1)]);
    holds(&cluster, "work", 0).await;
}

/// The consumer reads the count and publishes to the parking queue instead of rejecting once more.
#[tokio::test(flavor = "multi_thread")]
async fn dlx_30_a_consumer_parks_by_the_count_in_x_death() {
    const TRIES: i64 = 3;
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare(&channel, "work", &to_queue("retry")).await;
    declare(&channel, "retry", &[&[(TTL, int(50))][..], &to_queue("work")].concat()).await;
    declare_quorum(&channel, "parking").await;
    for job in ["good", "bad", "worse"] {
        publish_confirmed(&channel, "work", job.as_bytes()).await;
    }
    let mut consumer = consume(&channel, "work").await;
    let mut tries = BTreeMap::<String, i64>::new();
    let mut parked = Vec::new();
    while parked.len() < 2 || !tries.contains_key("good") {
        let delivery = next(&mut consumer).await;
        let job = String::from_utf8(delivery.data.clone()).expect("text");
        *tries.entry(job.clone()).or_default() += 1;
        let rejections =
            deaths(&delivery.properties).into_iter().find(|(_, reason, _)| reason == "rejected");
        let rejections = rejections.map_or(0, |(_, _, count)| count);
        if job != "good" && rejections < TRIES {
            reject(&delivery).await;
            continue;
        }
        if job != "good" {
            publish_confirmed(&channel, "parking", &delivery.data).await;
            parked.push(job);
        }
        delivery.ack(BasicAckOptions::default()).await.expect("sent");
    }
    let expected = [("bad", TRIES + 1), ("good", 1), ("worse", TRIES + 1)];
    assert_eq!(tries, expected.map(|(job, tries)| (job.to_owned(), tries)).into());
    for (queue, count) in [("parking", 2), ("work", 0), ("retry", 0)] {
        holds(&cluster, queue, count).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dlm_05_dlm_07_what_is_given_up_is_parked() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let limited = [&[("x-delivery-limit", int(3))][..], &to_queue("parking")].concat();
    declare(&channel, "work", &limited).await;
    declare_quorum(&channel, "parking").await;
    publish_confirmed(&channel, "work", b"job").await;
    // DLM-04: four deliveries; two of them returned, two lost with their channel.
    for delivery in 1..=4 {
        let (_other, elsewhere) = open(&cluster.amqp_uri(delivery % 3 + 1)).await;
        let mut consumer = consume(&elsewhere, "work").await;
        let got = next(&mut consumer).await;
        assert_eq!(deaths(&got.properties), []);
        if delivery % 2 == 0 {
            // Cancelled first: otherwise the message that it returns would be delivered to it again.
            elsewhere.basic_cancel(consumer.tag(), <_>::default()).await.expect("cancel-ok");
            let requeue = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
            got.nack(requeue).await.expect("sent");
        }
        in_time("a close", elsewhere.close(200, "".into())).await.expect("close-ok");
    }
    let parked = first(&channel, "parking").await;
    assert_eq!(deaths(&parked.properties), [death("work", "delivery_limit", 1)]);
    assert_eq!((parked.data.as_slice(), parked.redelivered), (&b"job"[..], false), "Q-43");
    holds(&cluster, "work", 0).await;
}

/// The lowest levels of the delay ladder, of which each sum is waited for.
const WAITED: usize = 6;
const UNIT: Duration = Duration::from_millis(50);

/// All of its levels; NServiceBus and Celery have 28.
fn levels() -> usize {
    usize::try_from(scale::LEVELS.get()).expect("few")
}

fn level(level: usize) -> String {
    format!("delay-{level}")
}

/// A message waits at each level whose bit in its key is 1, and skips the others: highest level first,
/// then to exchange `due` with the rest of the key.
async fn build_ladder(channel: &Channel) {
    declare_exchange(channel, "due", ExchangeKind::Topic).await;
    for number in 0..levels() {
        let name = level(number);
        let below = number.checked_sub(1).map_or("due".to_owned(), level);
        declare_exchange(channel, &name, ExchangeKind::Topic).await;
        let pause = i64::try_from(UNIT.as_millis()).expect("short") << number;
        let with = [
            (TTL, int(pause)),
            (DLX, text(&below)),
            ("x-dead-letter-strategy", text("at-least-once")),
            ("x-overflow", text("reject-publish")),
        ];
        declare(channel, &name, &with).await;
        let bits = "*.".repeat(levels() - 1 - number);
        bind(channel, &name, &name, &format!("{bits}1.#")).await;
        let key = format!("{bits}0.#");
        let options = ExchangeBindOptions::default();
        let (to, from) = (below.as_str().into(), name.as_str().into());
        let led = channel.exchange_bind(to, from, key.into(), options, FieldTable::default());
        led.await.expect("bind-ok");
    }
}

/// Publishes to be due in so many units; when that was.
async fn delay(channel: &Channel, units: usize) -> Instant {
    let bits: String = (0..levels()).rev().map(|bit| format!("{}.", (units >> bit) & 1)).collect();
    let (top, key) = (level(levels() - 1), format!("{bits}task"));
    let begun = Instant::now();
    let body = units.to_string();
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let (top, key) = (top.as_str().into(), key.as_str().into());
    let sent = channel.basic_publish(top, key, options, body.as_bytes(), persistent());
    let confirm = sent.await.expect("sent");
    let confirm = in_time("a confirm", confirm).await.expect("a confirm");
    assert!(confirm.is_ack() && confirm.take_message().is_none(), "{units}: not routed");
    begun
}

/// Publishes one of each sum of levels; when each was.
async fn delay_all(channel: &Channel) -> BTreeMap<String, Instant> {
    let mut begun = BTreeMap::new();
    for units in 0..1 << WAITED {
        begun.insert(units.to_string(), delay(channel, units).await);
    }
    begun
}

/// Takes all as they become due: each once, none before its time, with one death for each level it
/// waited at. The longest that one was late.
async fn come_true(consumer: &mut Consumer, mut begun: BTreeMap<String, Instant>) -> Duration {
    let mut latest = Duration::ZERO;
    while !begun.is_empty() {
        let delivery = next(consumer).await;
        let units = String::from_utf8(delivery.data.clone()).expect("text");
        let begun = begun.remove(&units).expect("one that was published, and not twice");
        let (took, units) = (begun.elapsed(), units.parse::<u32>().expect("a number"));
        assert!(took >= UNIT * units, "a delay of {units} units: {took:?}");
        latest = latest.max(took - UNIT * units);
        // The lowest level was the last.
        let waited = (0..WAITED).filter(|bit| units & (1 << bit) != 0);
        let history: Vec<_> = waited.map(|bit| death(&level(bit), "expired", 1)).collect();
        assert_eq!(deaths(&delivery.properties), history, "DLX-29");
        delivery.ack(BasicAckOptions::default()).await.expect("sent");
    }
    latest
}

#[tokio::test(flavor = "multi_thread")]
async fn q_40_dlx_07_the_delay_ladder_keeps_any_sum_of_its_levels() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    build_ladder(&channel).await;
    declare_quorum(&channel, "tasks").await;
    bind(&channel, "tasks", "due", "#.task").await;
    let (_other, elsewhere) = open(&cluster.amqp_uri(2)).await;
    let mut consumer = consume(&elsewhere, "tasks").await;
    let delayed = delay_all(&channel).await;
    let latest = come_true(&mut consumer, delayed).await;
    scale::LADDER_LATE.upto("64 delays, the latest was late by", latest);
    // A node that has neither client dies while they wait: late then, but neither lost nor doubled.
    let delayed = delay_all(&channel).await;
    cluster.node(3).kill9();
    cluster.node(3).restart().await;
    come_true(&mut consumer, delayed).await;
    for number in 0..levels() {
        holds(&cluster, &level(number), 0).await;
    }
    holds(&cluster, "tasks", 0).await;
    // The longest delay of all waits at the top.
    let top = levels() - 1;
    if top >= WAITED {
        delay(&channel, 1 << top).await;
        holds(&cluster, &level(top), 1).await;
    }
    assert_replicas_equal(&cluster).await;
}

/// A copy that would come back to a queue it expired in is left out; other targets get theirs.
#[tokio::test(flavor = "multi_thread")]
async fn dlx_26_dlx_27_a_message_that_expires_in_a_circle_is_dropped() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for (queue, queue_type, strategy) in [
        ("itself-c", "classic", "at-most-once"),
        ("itself-q", "quorum", "at-most-once"),
        ("itself-kept", "quorum", "at-least-once"),
    ] {
        let [again, seen] = ["again", "seen"].map(|role| format!("{role}-{queue}"));
        declare_exchange(&channel, &again, ExchangeKind::Fanout).await;
        let with = [
            ("x-queue-type", text(queue_type)),
            (TTL, int(100)),
            (DLX, text(&again)),
            // Q-44: dropped under either strategy.
            ("x-dead-letter-strategy", text(strategy)),
        ];
        declare_with(&channel, queue, &with).await;
        declare_quorum(&channel, &seen).await;
        for target in [queue, &seen] {
            bind(&channel, target, &again, "").await;
        }
        publish_confirmed(&channel, queue, b"round").await;
        let seen_once = first(&channel, &seen).await;
        assert_eq!(deaths(&seen_once.properties), [death(queue, "expired", 1)]);
        holds(&cluster, queue, 0).await;
        holds(&cluster, &seen, 0).await;
    }
    // Two that lead to each other: one pass each.
    let pair = [("there", "back"), ("back", "there")];
    for (queue, _) in pair {
        let [from, seen] = ["from", "seen"].map(|role| format!("{role}-{queue}"));
        declare(&channel, queue, &[(TTL, int(100)), (DLX, text(&from))]).await;
        declare_exchange(&channel, &from, ExchangeKind::Fanout).await;
        declare_quorum(&channel, &seen).await;
        bind(&channel, &seen, &from, "").await;
    }
    for (queue, other) in pair {
        bind(&channel, other, &format!("from-{queue}"), "").await;
    }
    publish_confirmed(&channel, "there", b"round").await;
    let history = [death("back", "expired", 1), death("there", "expired", 1)];
    assert_eq!(deaths(&first(&channel, "seen-back").await.properties), history);
    assert_eq!(deaths(&first(&channel, "seen-there").await.properties), history[1..]);
    for queue in ["there", "back", "seen-there", "seen-back"] {
        holds(&cluster, queue, 0).await;
    }
    assert_replicas_equal(&cluster).await;
}

async fn ctl(cluster: &Cluster, args: &[&str]) {
    let output = cluster.ctl(2, args).await;
    assert_eq!(output.code, 0, "{args:?}: {output:?}");
}

/// Rejects the first message of a queue.
async fn reject_first(channel: &Channel, queue: &str) {
    let options = BasicGetOptions::default();
    let got = in_time("a get", channel.basic_get(queue.into(), options)).await;
    reject(&got.expect("get-ok").expect("a message").delivery).await;
}

/// DLX-09: what counts is the policy at the moment of death, not of publishing; DLX-03: arguments win.
#[tokio::test(flavor = "multi_thread")]
async fn dlx_09_dlx_03_a_policy_makes_dead_letters_of_what_is_there_already() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_exchange(&channel, "my-dlx", ExchangeKind::Direct).await;
    for queue in ["dead", "dead-too", "own-dead"] {
        declare_quorum(&channel, queue).await;
    }
    for (key, queue) in [("jobs", "dead"), ("other", "dead-too")] {
        bind(&channel, queue, "my-dlx", key).await;
    }
    declare(&channel, "jobs", &[]).await;
    declare(&channel, "jobs-own", &to_queue("own-dead")).await;
    for number in 1..=5_u8 {
        publish_confirmed(&channel, "jobs", &[number]).await;
    }
    publish_confirmed(&channel, "jobs-own", &[1]).await;
    // No policy yet: dropped.
    reject_first(&channel, "jobs").await;
    let set = async |definition: &str| {
        let args = ["set_policy", "DLX", "^jobs", definition, "--apply-to", "queues"];
        ctl(&cluster, &args).await;
    };
    set(r#"{"dead-letter-exchange":"my-dlx"}"#).await;
    reject_first(&channel, "jobs").await;
    reject_first(&channel, "jobs-own").await;
    let dead = first(&channel, "dead").await;
    assert_eq!(
        (dead.data.as_slice(), deaths(&dead.properties)),
        (&[2][..], vec![death("jobs", "rejected", 1)])
    );
    assert_eq!(first(&channel, "own-dead").await.data, [1]);
    set(r#"{"dead-letter-exchange":"my-dlx","dead-letter-routing-key":"other"}"#).await;
    reject_first(&channel, "jobs").await;
    assert_eq!(first(&channel, "dead-too").await.data, [3]);
    ctl(&cluster, &["clear_policy", "DLX"]).await;
    reject_first(&channel, "jobs").await;
    // Q-20: a TTL by policy acts on what is there as well.
    set(r#"{"dead-letter-exchange":"my-dlx","message-ttl":100}"#).await;
    let dead = first(&channel, "dead").await;
    assert_eq!(
        (dead.data.as_slice(), deaths(&dead.properties)),
        (&[5][..], vec![death("jobs", "expired", 1)])
    );
    for queue in ["jobs", "jobs-own", "dead", "dead-too", "own-dead"] {
        holds(&cluster, queue, 0).await;
    }
}
