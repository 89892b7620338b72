//! Tasks that put dead letters back, move messages or delete them: each message once, whatever dies
//! meanwhile, and nothing but what was meant.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use crate::browse::{GUEST, ctl, http};
use futures::StreamExt as _;
use lapin::options::{BasicPublishOptions, QueueDeleteOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    beside, bind, consume, declare_exchange, declare_quorum, declare_with, open_confirming,
    persistent, publish_confirmed, publish_with, text,
};
use quorate_cluster_tests::harness::dead_letters::{arrives, death, deaths, reject_one};
use quorate_cluster_tests::harness::members::Members;
use quorate_cluster_tests::harness::wait::{HANGS, eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Options, figure, scale};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A leader is killed this often while dead letters are put back.
const KILL: Duration = Duration::from_secs(10);

/// A cluster of three whose machine knows tasks (MEM 15).
pub(crate) async fn cluster_of_three() -> Cluster {
    let cluster = Cluster::start(3, Options::default()).await;
    knows_tasks(&cluster).await;
    cluster
}

/// Waits until the cluster's machine knows tasks.
pub(crate) async fn knows_tasks(cluster: &Cluster) {
    eventually("machine version 3", || async {
        let members = Members::by(cluster, 1).await?;
        hold(members.machine >= 3, || format!("{members:?}"))
    })
    .await;
}

/// A kill and a restart may take that long, where it is judged how often nodes are killed.
const ROUND: Duration = Duration::from_secs(5);

async fn declare_work(channel: &Channel) {
    // In groups whose leaders are killed: not in one that the spared node keeps.
    let balanced = ("x-queue-leader-locator", text("balanced"));
    let parking = [("x-queue-type", text("quorum")), balanced.clone()];
    declare_with(channel, "parking", &parking).await;
    let dead = [
        balanced,
        ("x-queue-type", text("quorum")),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text("parking")),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
    ];
    declare_with(channel, "work", &dead).await;
}

/// Publishes numbered messages to `work` that die there at once, and waits until all are parked.
async fn park(cluster: &Cluster, channel: &Channel, count: u64) {
    let expiring: ShortString = "1".into();
    let mut confirms = std::collections::VecDeque::new();
    for number in 0..count {
        let properties = persistent().with_expiration(expiring.clone());
        let (body, options) = (number.to_string(), BasicPublishOptions::default());
        let sent =
            channel.basic_publish("".into(), "work".into(), options, body.as_bytes(), properties);
        confirms.push_back(sent.await.expect("sent"));
        if confirms.len() > 1_000 {
            let confirm = confirms.pop_front().expect("a confirm");
            assert!(confirm.await.expect("a confirm").is_ack());
        }
    }
    for confirm in confirms {
        assert!(confirm.await.expect("a confirm").is_ack());
    }
    // Of a million some are parked at any time.
    let mut parked = 0;
    while parked < count {
        parked = eventually("more messages are parked", || async {
            let [now] = cluster.counts(1, "parking", ["messages_ready"]).await?;
            hold(now > parked, || format!("{now} of {count}")).map(|()| now)
        })
        .await;
    }
    assert_eq!(parked, count);
}

/// A task, as a running node tells.
async fn task(cluster: &Cluster, id: &str) -> Result<Value, String> {
    let asked = cluster.nodes().iter().find(|node| node.runs()).ok_or("no node runs")?;
    let rows = cluster.rows(asked.id(), &["list_tasks", id]).await?;
    rows.into_iter().next().ok_or_else(|| format!("no task {id}"))
}

/// Kills a leader every `every`, until the task has ended; returns how often a node was killed, and how
/// often it was a leader. It is that of the parking
/// queue, or that of the queue that the letters go back to; the spared node has the clients, so a third
/// node is killed if it leads both.
async fn kill_leaders(cluster: &Cluster, id: &str, every: Duration, spared: u64) -> (u32, u32) {
    let (mut kills, mut of_leaders) = (0, 0);
    let mut next = Instant::now() + every;
    let (mut seen, mut since) = (None, Instant::now());
    loop {
        let state = task(cluster, id).await;
        if state.as_ref().is_ok_and(|task| task["state"] == json!("done")) {
            return (kills, of_leaders);
        }
        let moved = state.as_ref().ok().map(|task| task["moved"].clone());
        if moved.is_some() && moved != seen {
            (seen, since) = (moved, Instant::now());
        }
        assert!(since.elapsed() < HANGS, "it moves no more: {state:?}");
        if Instant::now() >= next {
            next = Instant::now() + every;
            let leaders = [cluster.leader_of("parking").await, cluster.leader_of("work").await];
            let killed = leaders.into_iter().find(|leader| *leader != spared).unwrap_or(2);
            cluster.node(killed).kill9();
            kills += 1;
            of_leaders += u32::from(leaders.contains(&killed));
            cluster.node(killed).restart().await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Takes all messages out of `work`: the numbers of those that were parked, in ascending order.
async fn drain(channel: &Channel, count: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut consumer = consume(channel, "work").await;
    while (numbers.len() as u64) < count {
        let got = in_time("a message", consumer.next()).await;
        let got = got.expect("a message").expect("a delivery");
        let number = std::str::from_utf8(&got.data).expect("text").parse().expect("a number");
        numbers.push(number);
        if number == 0 {
            // As it came the first time, with its history, in which the task ends the chain.
            assert_eq!((got.exchange.as_str(), got.routing_key.as_str()), ("", "work"));
            let expected = [death("parking", "redriven", 1), death("work", "expired", 1)];
            assert_eq!(deaths(&got.properties), expected);
        }
        got.acker.ack(<_>::default()).await.expect("sent");
    }
    numbers.sort_unstable();
    numbers
}

async fn redrive_under_kills(count: u64, rate: &[&str], every: Duration) {
    let cluster = cluster_of_three().await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_work(&channel).await;
    declare_quorum(&channel, "other").await;
    park(&cluster, &channel, count).await;
    let begun = Instant::now();
    let created = ctl(&cluster, 2, &[&["redrive", "parking", "--no-wait"], rate].concat()).await;
    let id = created["id"].to_string();
    // Clients go on meanwhile; theirs is the node that is spared.
    let kills = kill_leaders(&cluster, &id, every, 1);
    let ((kills, of_leaders), _) = beside(&cluster.amqp_uri(1), "other", kills).await;
    let took = begun.elapsed();
    // A killed node comes back before the next is killed.
    let rounds = took.as_secs_f64() / (2.0 * every.max(ROUND).as_secs_f64());
    let least = if scale::acceptance() { rounds.max(1.0) as u32 } else { 1 };
    assert!(kills >= least, "{kills} nodes were killed in {took:?}, not {least}");
    assert!(of_leaders > 0, "none of the {kills} killed nodes led");
    figure(
        "redriven",
        format_args!("{count} in {took:.1?}, {kills} nodes killed, {of_leaders} of them leaders"),
    );
    let ended = task(&cluster, &id).await.expect("the task");
    let counts = ["taken", "moved", "skipped", "no_target", "under_way"].map(|it| &ended[it]);
    let expected = [json!(count), json!(count), json!(0), json!(0), json!(0)];
    assert_eq!(counts, expected.each_ref());
    eventually("the parking queue is empty", || async {
        let [parked] = cluster.counts(1, "parking", ["messages"]).await?;
        let [back] = cluster.counts(1, "work", ["messages_ready"]).await?;
        hold((parked, back) == (0, count), || format!("{parked} parked, {back} back"))
    })
    .await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let numbers = drain(&channel, count).await;
    assert!(numbers.into_iter().eq(0..count), "each once");
    assert_replicas_equal(&cluster).await;
}

/// The task survives its leader, and puts each message back once.
#[tokio::test(flavor = "multi_thread")]
async fn let_01_dead_letters_are_put_back_once_while_leaders_die() {
    redrive_under_kills(8_000, &["--rate", "1000"], Duration::from_secs(2)).await;
}

/// The same with a million, as fast as it goes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long: make redrive"]
async fn let_01_a_million_dead_letters_are_put_back_once_while_leaders_die() {
    redrive_under_kills(scale::REDRIVEN.get(), &[], KILL).await;
}

async fn published(channel: &Channel, queue: &str, body: &str, tenant: &str) {
    let mut headers = FieldTable::default();
    headers.insert("tenant".into(), text(tenant));
    let properties: BasicProperties = persistent().with_headers(headers);
    assert!(publish_with(channel, queue, body.as_bytes(), properties).await);
}

async fn post(cluster: &Cluster, path: &str, body: &Value) -> (u16, Value) {
    http(cluster, 3, GUEST, ("POST", path), &body.to_string()).await
}

/// Waits until a task has that state.
async fn reaches(cluster: &Cluster, id: &Value, state: &str) -> Value {
    eventually(&format!("task {id} is {state}"), || async {
        let task = task(cluster, &id.to_string()).await?;
        hold(task["state"] == json!(state), || task.to_string())?;
        Ok(task)
    })
    .await
}

/// A task for the queue of parked messages.
fn about(kind: &str, to: Value, filter: Value, dry_run: bool) -> Value {
    json!({ "kind": kind, "vhost": "/", "queue": "parking", "to": to, "filter": filter,
        "dry_run": dry_run })
}

/// Each is answered with what is wrong in it.
async fn wrong_requests_are_refused(cluster: &Cluster) {
    let to_none = json!({ "queue": "none" });
    for (body, word) in [
        (about("redrive", json!("there"), json!({}), false), "to"),
        (about("delete", Value::Null, json!({}), false), "filter"),
        (about("move", json!({ "queue": "others" }), json!({ "reason": "age" }), false), "reason"),
        (about("move", to_none, json!({}), false), "none"),
    ] {
        let (status, refused) = post(cluster, "tasks", &body).await;
        assert!(matches!(status, 400 | 404), "{status} {refused}");
        assert!(refused["reason"].as_str().is_some_and(|it| it.contains(word)), "{refused}");
    }
}

/// Only what matches is taken, and in its order; a dry run says the same before.
#[tokio::test(flavor = "multi_thread")]
async fn let_01_only_what_matches_is_moved_or_deleted() {
    let cluster = cluster_of_three().await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_work(&channel).await;
    declare_quorum(&channel, "others").await;
    declare_exchange(&channel, "topics", ExchangeKind::Topic).await;
    declare_quorum(&channel, "by-topic").await;
    bind(&channel, "by-topic", "topics", "work").await;
    for (body, tenant) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "z"), ("e", "y")] {
        published(&channel, "work", body, tenant).await;
        reject_one(&channel, "work").await;
    }
    // It has not died, so it is not put back.
    publish_confirmed(&channel, "parking", b"alive").await;
    eventually("all are parked", || async {
        let [parked] = cluster.counts(1, "parking", ["messages_ready"]).await?;
        hold(parked == 6, || format!("{parked}"))
    })
    .await;
    let original = json!("original");
    let (status, counted) =
        post(&cluster, "tasks", &about("redrive", original.clone(), json!({}), true)).await;
    let expected = json!({ "matched": 5, "skipped": 1, "no_target": 0, "complete": true });
    assert_eq!((status, counted), (200, expected));
    // To an exchange, by the key that it was published with.
    let topics = json!({ "exchange": "topics" });
    let of_y = json!({ "header": { "tenant": "y" } });
    let (status, created) = post(&cluster, "tasks", &about("redrive", topics, of_y, false)).await;
    assert_eq!(status, 201, "{created}");
    reaches(&cluster, &created["id"], "done").await;
    for body in ["b", "e"] {
        let got = arrives(&channel, "by-topic").await;
        assert_eq!(got.data, body.as_bytes());
        assert_eq!((got.exchange.as_str(), got.routing_key.as_str()), ("topics", "work"));
    }
    let of_z = json!({ "header": "tenant=z", "reason": "rejected" });
    let (status, created) =
        post(&cluster, "tasks", &about("delete", Value::Null, of_z, false)).await;
    assert_eq!(status, 201, "{created}");
    let deleted = reaches(&cluster, &created["id"], "done").await;
    assert_eq!((&deleted["moved"], &deleted["skipped"]), (&json!(1), &json!(3)));
    let moved = cluster.ctl(2, &["move", "parking", "--to", "queue:others", "--max", "1"]).await;
    assert!(moved.succeeded().expect("moved").stdout.contains("1 taken, 1 moved"));
    assert_eq!(arrives(&channel, "others").await.data, b"a");
    let back = cluster.ctl(2, &["redrive", "parking"]).await.succeeded().expect("put back");
    assert!(back.stdout.contains("1 taken, 1 moved, 0 under way, 1 skipped"), "{}", back.stdout);
    assert_eq!(arrives(&channel, "work").await.data, b"c");
    assert_eq!(arrives(&channel, "parking").await.data, b"alive");
    wrong_requests_are_refused(&cluster).await;
    assert_replicas_equal(&cluster).await;
}

/// A message without a target stays, and a task can be stopped and goes on.
#[tokio::test(flavor = "multi_thread")]
async fn let_04_a_message_without_a_target_stays_and_tasks_are_paused_and_cancelled() {
    let cluster = cluster_of_three().await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_work(&channel).await;
    park(&cluster, &channel, 200).await;
    let begun = ctl(&cluster, 1, &["redrive", "parking", "--no-wait", "--rate", "5"]).await;
    let id = &begun["id"];
    let (status, paused) = post(&cluster, &format!("tasks/{id}/pause"), &Value::Null).await;
    assert_eq!((status, &paused["state"]), (200, &json!("paused")));
    let left = eventually("it takes no more", || async {
        let [before] = cluster.counts(1, "parking", ["messages"]).await?;
        tokio::time::sleep(Duration::from_millis(600)).await;
        let [after] = cluster.counts(1, "parking", ["messages"]).await?;
        hold(before == after, || format!("{before}, then {after}"))?;
        Ok(after)
    })
    .await;
    assert!(left > 100, "{left} are left");
    let resumed = cluster.ctl(2, &["resume_task", &id.to_string()]).await;
    assert!(resumed.succeeded().expect("resumed").stdout.contains("is running"));
    eventually("it goes on", || async {
        let [now] = cluster.counts(1, "parking", ["messages"]).await?;
        hold(now < left, || format!("{now} of {left}"))
    })
    .await;
    cluster.ctl(3, &["cancel_task", &id.to_string()]).await.succeeded().expect("cancelled");
    let again = cluster.ctl(3, &["resume_task", &id.to_string()]).await;
    assert!(again.stderr.contains("has ended: it is cancelled"), "{again:?}");
    channel.queue_delete("work".into(), QueueDeleteOptions::default()).await.expect("deleted");
    let [left] = eventually("nothing is under way", || async {
        let task = task(&cluster, &id.to_string()).await?;
        hold(task["under_way"] == json!(0), || task.to_string())?;
        cluster.counts(1, "parking", ["messages_ready"]).await
    })
    .await;
    let all = ctl(&cluster, 2, &["redrive", "parking"]).await;
    let counts = (&all["state"], &all["taken"], &all["no_target"]);
    assert_eq!(counts, (&json!("done"), &json!(0), &json!(left)));
    assert_eq!(cluster.counts(2, "parking", ["messages_ready"]).await, Ok([left]));
    // A queue's tasks end with it.
    let last = ctl(&cluster, 1, &["redrive", "parking", "--no-wait", "--rate", "1"]).await;
    channel.queue_delete("parking".into(), QueueDeleteOptions::default()).await.expect("deleted");
    reaches(&cluster, &last["id"], "queue_deleted").await;
    assert_replicas_equal(&cluster).await;
}
