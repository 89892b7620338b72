//! Messages that are browsed and explained on any node: nothing changes by it, and what is said of them
//! is what then happens.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use lapin::options::{BasicGetOptions, BasicNackOptions, BasicPublishOptions};
use lapin::types::FieldTable;
use lapin::{Channel, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    bind, declare_exchange, declare_quorum, declare_with, exclusive, get, int, open,
    open_confirming, persistent, publish_confirmed, publish_with, text,
};
use quorate_cluster_tests::harness::dead_letters::reject_one;
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// `guest:guest`, and `u:p`, as basic authentication sends them.
pub(crate) const GUEST: &str = "Z3Vlc3Q6Z3Vlc3Q=";
pub(crate) const USER: &str = "dTpw";

/// A request of a user to what only Quorate has of the HTTP API of a node: status and JSON.
pub(crate) async fn http(
    cluster: &Cluster,
    id: u64,
    user: &str,
    (method, path): (&str, &str),
    body: &str,
) -> (u16, Value) {
    api(cluster, id, user, (method, &format!("quorate/{path}")), body).await
}

/// A request of a user to the HTTP API of a node: status and JSON.
pub(crate) async fn api(
    cluster: &Cluster,
    id: u64,
    user: &str,
    (method, path): (&str, &str),
    body: &str,
) -> (u16, Value) {
    let address = cluster.node(id).http_address();
    let mut socket = TcpStream::connect(&address).await.expect("an HTTP port");
    let request = format!(
        "{method} /api/{path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Basic {user}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await.expect("a request");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

/// What `ctl` says as JSON.
pub(crate) async fn ctl(cluster: &Cluster, id: u64, args: &[&str]) -> Value {
    let args = [args, &["--formatter", "json"]].concat();
    let output = cluster.ctl(id, &args).await.succeeded().expect("a command");
    serde_json::from_str(&output.stdout).expect("JSON")
}

/// The messages of a queue, one field each.
async fn field(cluster: &Cluster, id: u64, args: &[&str], field: &str) -> Vec<Value> {
    let page = ctl(cluster, id, args).await;
    let messages = page["messages"].as_array().expect("messages").clone();
    messages.iter().map(|message| message[field].clone()).collect()
}

/// Waits until node 1 shows these messages in a queue.
async fn comes_to_have(cluster: &Cluster, queue: &str, payloads: &[&str]) {
    eventually(&format!("'{queue}' has {payloads:?}"), || async {
        let left = field(cluster, 1, &["browse", queue], "payload").await;
        hold(left == payloads, || format!("{left:?}"))
    })
    .await;
}

async fn with_header(channel: &Channel, queue: &str, body: &[u8], tenant: &str) {
    let mut headers = FieldTable::default();
    headers.insert("tenant".into(), text(tenant));
    assert!(publish_with(channel, queue, body, persistent().with_headers(headers)).await);
}

/// Gets a message without settling it.
pub(crate) async fn hold_one(channel: &Channel, queue: &str) -> lapin::message::Delivery {
    let got = channel.basic_get(queue.into(), BasicGetOptions { no_ack: false }).await;
    got.expect("get-ok").expect("a message").delivery
}

/// Every node shows ready, returned and unacked messages in the order of the queue; and consumers
/// then get them as if nobody had looked.
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_browsed_on_every_node_and_stay_as_they_are() {
    let cluster = Cluster::start(3, Options::default()).await;
    cluster.leaders_rest().await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "q").await;
    for (body, tenant) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "y")] {
        with_header(&channel, "q", body.as_bytes(), tenant).await;
    }
    let back = hold_one(&channel, "q").await;
    back.nack(BasicNackOptions { requeue: true, multiple: false }).await.expect("sent");
    let again = hold_one(&channel, "q").await;
    again.nack(BasicNackOptions { requeue: true, multiple: false }).await.expect("sent");
    let held = hold_one(&channel, "q").await;
    assert_eq!(held.data, b"a");
    let counts = ["messages_ready", "messages_unacknowledged", "consumers"];
    let before = cluster.counts(1, "q", counts).await;
    assert_eq!(before, Ok([3, 1, 0]));
    let expected = [("a", "unacked", 2), ("b", "ready", 0), ("c", "ready", 0), ("d", "ready", 0)];
    for id in 1..=3 {
        for _ in 0..3 {
            let page = ctl(&cluster, id, &["browse", "q"]).await;
            assert_eq!(page["next"], Value::Null);
            let messages = page["messages"].as_array().expect("messages");
            let seen: Vec<_> = messages
                .iter()
                .map(|it| {
                    (it["payload"].as_str(), it["state"].as_str(), it["delivery_count"].as_u64())
                })
                .collect();
            let wanted =
                expected.map(|(body, state, count)| (Some(body), Some(state), Some(count)));
            assert_eq!(seen, wanted, "node {id}");
            assert_eq!(messages[0]["redelivered"], json!(true));
            assert_eq!(messages[1]["redelivered"], json!(false));
            assert_eq!(messages[1]["properties"]["headers"]["tenant"], json!("y"));
        }
        let filtered =
            field(&cluster, id, &["browse", "q", "--filter", "header=tenant=y"], "payload").await;
        assert_eq!(filtered, ["b", "d"]);
        let old = field(&cluster, id, &["browse", "q", "--filter", "min_age=1h"], "payload").await;
        assert_eq!(old, [Value::Null; 0]);
        let peeked = cluster.ctl(id, &["peek", "q", "2"]).await.succeeded().expect("a peek");
        // The second of the ready ones.
        assert!(peeked.stdout.contains("payload (max 64 bytes)  │ c"), "{}", peeked.stdout);
    }
    assert_eq!(cluster.counts(2, "q", counts).await, before);
    for body in ["b", "c", "d"] {
        let got = hold_one(&channel, "q").await;
        assert_eq!((got.data.as_slice(), got.redelivered), (body.as_bytes(), false));
        let headers = got.properties.headers().clone().unwrap_or_default();
        assert!(headers.inner().keys().all(|name| name.as_str() == "tenant"), "{headers:?}");
    }
}

/// Nodes without a replica of the queue ask one that has it; a queue of a connection is shown too.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_without_a_replica_show_the_same() {
    let cluster = Cluster::start(3, Options::default().with("--queue-replicas", "1")).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue in ["one", "two", "three", "four", "five"] {
        declare_quorum(&channel, queue).await;
        publish_confirmed(&channel, queue, queue.as_bytes()).await;
    }
    let (_owner, owner) = open(&cluster.amqp_uri(2)).await;
    let own = owner.queue_declare("".into(), exclusive(), FieldTable::default()).await;
    let own = own.expect("declare-ok").name().to_string();
    publish_confirmed(&channel, &own, b"bound").await;
    eventually("one replica each", || async {
        let rows = cluster.rows(1, &["list_queues", "name", "members"]).await?;
        let single = |row: &Value| row["members"].as_array().is_some_and(|it| it.len() == 1);
        hold(rows.iter().all(single), || format!("{rows:?}"))
    })
    .await;
    for id in 1..=3 {
        for queue in ["one", "two", "three", "four", "five"] {
            assert_eq!(field(&cluster, id, &["browse", queue], "payload").await, [queue]);
            let path = format!("queues/%2F/{queue}/messages");
            let (status, page) = http(&cluster, id, GUEST, ("GET", &path), "").await;
            assert_eq!((status, &page["messages"][0]["payload"]), (200, &json!(queue)));
            let position = page["messages"][0]["position"].as_str().expect("a position");
            let explained = cluster.ctl(id, &["explain", queue, position]).await;
            assert!(explained.stdout.contains("the next one to be delivered"), "{explained:?}");
        }
        assert_eq!(field(&cluster, id, &["browse", &own], "payload").await, ["bound"]);
    }
}

/// A cursor goes through all messages, each once and in order, though some are taken meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_goes_through_five_thousand_messages() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "many").await;
    let mut confirms = Vec::new();
    for number in 0..5_000 {
        let (body, options) = (format!("{number}"), BasicPublishOptions::default());
        let sent =
            channel.basic_publish("".into(), "many".into(), options, body.as_bytes(), persistent());
        confirms.push(sent.await.expect("sent"));
    }
    for confirm in confirms {
        assert!(confirm.await.expect("a confirm").is_ack());
    }
    let (mut next, mut seen, mut places) = (String::new(), Vec::new(), BTreeSet::new());
    let mut taken = Vec::new();
    for id in (1..=3).cycle() {
        let path = format!("queues/%2F/many/messages?count=333&from={next}");
        let (status, page) = http(&cluster, id, GUEST, ("GET", &path), "").await;
        assert_eq!(status, 200, "{page}");
        for message in page["messages"].as_array().expect("messages") {
            seen.push(
                message["payload"].as_str().expect("a text").parse::<u64>().expect("a number"),
            );
            places.insert(message["position"].as_str().expect("a position").to_owned());
        }
        // What is held and what is gone is behind or at the head of the next pages.
        taken.push(hold_one(&channel, "many").await);
        assert!(get(&channel, "many").await.is_some());
        match page["next"].as_str() {
            Some(cursor) => cursor.clone_into(&mut next),
            None => break,
        }
    }
    assert_eq!((seen.len(), places.len()), (5_000, 5_000));
    assert!(seen.is_sorted());
    // By a filter that few match, page by page.
    let found =
        field(&cluster, 3, &["browse", "many", "--filter", "routing_key=none"], "payload").await;
    assert_eq!(found, [Value::Null; 0]);
    // The last acknowledgement may still be on its way.
    eventually("what was got is gone", || async {
        let all = field(&cluster, 2, &["browse", "many", "--count", "6000"], "state").await;
        let unacked = all.iter().filter(|state| **state == json!("unacked")).count();
        let (found, expected) = ((all.len(), unacked), (5_000 - taken.len(), taken.len()));
        hold(found == expected, || format!("{found:?}, not {expected:?}"))
    })
    .await;
    let (_, last) =
        http(&cluster, 1, GUEST, ("GET", "queues/%2F/many/messages?from=4900&count=1"), "").await;
    let rank = taken.len() * 2 + 4_900 - 1;
    assert_eq!(last["messages"][0]["payload"], json!(rank.to_string()));
}

/// Letters that wait for a full target are shown with what they wait for, and are found by the death
/// that they have just died.
#[tokio::test(flavor = "multi_thread")]
async fn let_03_letters_that_wait_are_shown_with_their_targets() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let full = [("x-max-length", int(1)), ("x-overflow", text("reject-publish"))];
    let full = [&full[..], &[("x-queue-type", text("quorum"))]].concat();
    declare_with(&channel, "full", &full).await;
    let dies = [
        ("x-queue-type", text("quorum")),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text("full")),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
    ];
    declare_with(&channel, "source", &dies).await;
    for body in ["one", "two", "three", "lives"] {
        publish_confirmed(&channel, "source", body.as_bytes()).await;
    }
    for _ in 0..3 {
        reject_one(&channel, "source").await;
    }
    for id in 1..=3 {
        eventually("two letters wait", || async {
            let page = ctl(&cluster, id, &["browse", "source"]).await;
            let seen: Vec<_> = page["messages"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|it| (it["payload"].clone(), it["state"].clone()))
                .collect();
            let waits = |body: &str| (json!(body), json!("dead_letter"));
            let wanted = [(json!("lives"), json!("ready")), waits("two"), waits("three")];
            hold(seen == wanted, || format!("{seen:?}"))?;
            let letter = &page["messages"][1]["dead_letter"];
            let target = &letter["targets"][0];
            hold(target["queue"] == json!("full"), || format!("{letter}"))
        })
        .await;
        let by_reason = ["browse", "source", "--filter", "reason=rejected"];
        assert_eq!(field(&cluster, id, &by_reason, "payload").await, ["two", "three"]);
        let positions = field(&cluster, id, &by_reason, "position").await;
        let position = positions[0].as_str().expect("a position");
        let told = cluster.ctl(id, &["explain", "source", position]).await.stdout;
        assert!(told.contains("It died once in queue 'source'"), "{told}");
        assert!(told.contains("a client rejected it (rejected)"), "{told}");
        assert!(told.contains("leaves when these have accepted it: queue 'full'"), "{told}");
    }
    // The target has room: all arrive, and nobody has taken one by looking.
    for body in ["one", "two", "three"] {
        eventually("the next letter arrives", || async {
            let got = get(&channel, "full").await;
            hold(got.as_deref() == Some(body.as_bytes()), || format!("{got:?}"))
        })
        .await;
    }
    // The target has the last letter before the source's leader knows, and node 1 may follow it.
    comes_to_have(&cluster, "source", &["lives"]).await;
    // The ack of the last get may be on its way.
    comes_to_have(&cluster, "full", &[]).await;
}

/// The words of an explanation, but for ages, which grow, and times of day, which each node works out from ages.
fn lasting_words(text: &str) -> Vec<String> {
    let is_time =
        |word: &str| word.contains(':') && word.starts_with(|it: char| it.is_ascii_digit());
    let words = text.split_whitespace();
    words.filter(|word| word.parse::<u64>().is_err() && !is_time(word)).map(str::to_owned).collect()
}

/// An explanation names origin, history, place and future of a message.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_explained_by_the_settings_and_routes_of_now() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_exchange(&channel, "dlx", ExchangeKind::Topic).await;
    declare_with(
        &channel,
        "work",
        &[("x-queue-type", text("quorum")), ("x-dead-letter-exchange", text("dlx"))],
    )
    .await;
    declare_quorum(&channel, "dead").await;
    publish_confirmed(&channel, "work", b"one").await;
    let expiring = persistent().with_expiration("600000".into()).with_timestamp(1_700_000_000);
    assert!(publish_with(&channel, "work", b"two", expiring).await);
    let explain = async |position: &str| {
        let output = cluster.ctl(2, &["explain", "work", position]).await;
        output.succeeded().expect("an explanation").stdout
    };
    let first = explain("1").await;
    assert!(first.contains("published to the default exchange with routing key 'work'"), "{first}");
    assert!(first.contains("the next one to be delivered"), "{first}");
    assert!(first.contains("0 counted returns; with more than 20 it dies"), "{first}");
    assert!(
        first.contains("exchange 'dlx' with routing key 'work', which leads to no queue"),
        "{first}"
    );
    bind(&channel, "dead", "dlx", "#").await;
    let second = explain("2").await;
    assert!(second.contains("gave it the time 2023-11-14 22:13:20 UTC"), "{second}");
    assert!(second.contains("1 message is delivered before it"), "{second}");
    assert!(second.contains("by its own expiration of 600000 ms"), "{second}");
    assert!(second.contains("which leads to queue 'dead'"), "{second}");
    // What it says happens.
    reject_one(&channel, "work").await;
    eventually("the letter arrives", || async {
        let there = field(&cluster, 3, &["browse", "dead"], "payload").await;
        hold(there == ["one"], || format!("{there:?}"))
    })
    .await;
    let told = cluster.ctl(3, &["explain", "dead", "1"]).await.stdout;
    assert!(told.contains("It was first published to the default exchange."), "{told}");
    assert!(told.contains("It died once in queue 'work'"), "{told}");
    assert!(told.contains("dead-lettered to exchange 'dlx' with routing key 'work'"), "{told}");
    assert!(told.contains("it is dropped: its queue names no dead-letter exchange"), "{told}");
    let path = "queues/%2F/dead/messages/1/explain";
    let (status, json) = http(&cluster, 1, GUEST, ("GET", path), "").await;
    assert_eq!(status, 200);
    assert_eq!(json["text"].as_str().map(lasting_words), Some(lasting_words(&told)));
    assert_eq!(json["ahead"], json!({ "messages": 0, "more": false }));
    // From `dead` back to `work` by a rule would be a cycle, unless a client rejects it.
    let policy = [
        "set_policy",
        "back",
        "^dead$",
        r#"{"dead-letter-exchange":"","dead-letter-routing-key":"work","message-ttl":600000}"#,
    ];
    cluster.ctl(1, &policy).await.succeeded().expect("a policy");
    let told = cluster.ctl(1, &["explain", "dead", "1"]).await.stdout;
    assert!(told.contains("which leads to queue 'work'"), "{told}");
}

/// Requests that cannot be answered say why, and nobody reads what it may not.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_by_name() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "q").await;
    publish_confirmed(&channel, "q", b"body").await;
    for args in [
        &["add_user", "u", "p"][..],
        &["set_user_tags", "u", "management"],
        &["set_permissions", "u", ".*", ".*", "^other"],
    ] {
        cluster.ctl(1, args).await.succeeded().expect("a change");
    }
    for (path, status, reason) in [
        ("queues/%2F/none/messages", 404, "no queue 'none'"),
        ("queues/%2F/q/messages?count=0", 400, "count must be from 1 to 1000, not 0"),
        ("queues/%2F/q/messages?count=x", 400, "count must be a number"),
        ("queues/%2F/q/messages?from=x", 400, "'x' is not a position"),
        ("queues/%2F/q/messages?from=2", 404, "no message at position 2"),
        ("queues/%2F/q/messages?reason=old", 400, "filter reason: expected"),
        ("queues/%2F/q/messages?header=x", 400, "filter header: expected NAME=VALUE"),
        ("queues/%2F/q/messages?min_age=soon", 400, "filter min_age: expected"),
        ("queues/%2F/q/messages/4.1.0/explain", 404, "no message at position 4.1.0"),
        ("queues/%2F/none/settings", 404, "no queue 'none'"),
    ] {
        for id in [1, 2] {
            let (found, answer) = http(&cluster, id, GUEST, ("GET", path), "").await;
            assert_eq!(found, status, "{path}: {answer}");
            let said = answer["reason"].as_str().unwrap_or_default();
            assert!(said.contains(reason), "{path}: {answer}");
        }
    }
    for path in ["queues/%2F/q/messages", "queues/%2F/q/messages/1/explain"] {
        let (status, answer) = http(&cluster, 1, USER, ("GET", path), "").await;
        assert_eq!(status, 401, "{answer}");
        assert!(
            answer["reason"].as_str().is_some_and(|it| it.contains("read access to queue 'q'"))
        );
    }
    let (status, _) = http(&cluster, 1, USER, ("POST", "dry-run/policies/%2F/p"), "{}").await;
    assert_eq!(status, 401);
    for (args, code) in [
        (&["browse", "none"][..], 65),
        (&["browse", "q", "--filter", "reason=old"], 65),
        (&["browse", "q", "--count", "0"], 64),
        (&["browse", "q", "--filter", "red"], 64),
        (&["peek", "q", "7"], 65),
        (&["explain", "q", "x"], 65),
        (&["explain_settings", "none"], 65),
    ] {
        let output = cluster.ctl(2, args).await;
        assert_eq!((output.code, output.stderr.is_empty()), (code, false), "{args:?}: {output:?}");
    }
}

/// Q-31: an operator may look as often as it likes.
#[tokio::test(flavor = "multi_thread")]
async fn q_31_looking_into_a_queue_over_http_uses_no_message_up() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let limited = [("x-queue-type", text("quorum")), ("x-delivery-limit", int(3))];
    declare_with(&channel, "looked-at", &limited).await;
    publish_confirmed(&channel, "looked-at", b"kept").await;
    for mode in ["ack_requeue_true", "reject_requeue_true"].repeat(6) {
        let body = json!({ "count": 1, "ackmode": mode, "encoding": "auto" }).to_string();
        let request = ("POST", "queues/%2F/looked-at/get");
        let got = eventually("the message is back", || async {
            let (status, got) = api(&cluster, 2, GUEST, request, &body).await;
            hold(status == 200 && got != json!([]), || format!("{status} {got}")).map(|()| got)
        })
        .await;
        assert_eq!(got.pointer("/0/payload"), Some(&json!("kept")), "{got}");
        assert_eq!(got.pointer("/0/redelivered"), Some(&json!(false)), "{got}");
    }
    // The last look gives it back after its answer.
    eventually("the message is back", || async {
        let got = get(&channel, "looked-at").await;
        hold(got.as_deref() == Some(&b"kept"[..]), || format!("{got:?}"))
    })
    .await;
}
