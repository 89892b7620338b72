//! Definitions in RabbitMQ's format: what the peer exports imports, what Quorate exports imports again, and
//! what is wrong changes nothing (CTL, POL-01, OPP-01, ACL-23, VLM-01).

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use lapin::{Connection, ConnectionProperties};
use quorate_cluster_tests::harness::amqp::{
    self, arguments, connect, get, open_confirming, persistent, publish_confirmed,
};
use quorate_cluster_tests::harness::ctl::text;
use quorate_cluster_tests::harness::wait::in_time;
use quorate_cluster_tests::harness::{Cluster, Options};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use serde_json::{Value, json};
use std::path::PathBuf;

/// In the shape of `rabbitmqctl export_definitions` of RabbitMQ 4.0.5; `alice`'s password is `guest`.
const PEER: &str = include_str!("definitions_of_the_peer.json");

/// What definitions list.
const LISTS: [&str; 10] = [
    "users",
    "vhosts",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "queues",
    "exchanges",
    "bindings",
];

/// What RabbitMQ 4.0.5 itself exported, of every kind of object: by `rabbitmqctl export_definitions`, which
/// leaves internal exchanges out and writes some objects as lists of pairs, and by `GET /api/definitions`.
const BY_RABBITMQCTL: &str = include_str!("definitions_exported_by_rabbitmqctl.json");
const OVER_HTTP: &str = include_str!("definitions_exported_over_http.json");

fn file(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.folder().join(name)
}

async fn export(cluster: &Cluster, node: u64) -> Value {
    let output = cluster.ctl(node, &["export_definitions", "-"]).await;
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    serde_json::from_str(&output.stdout).expect("JSON")
}

async fn import(cluster: &Cluster, node: u64, definitions: &str) -> (i32, String, String) {
    let path = file(cluster, "definitions.json");
    std::fs::write(&path, definitions).expect("written");
    let path = path.to_str().expect("a path");
    let output = cluster.ctl(node, &["import_definitions", path]).await;
    (output.code, output.stdout, output.stderr)
}

/// A list of the definitions, its objects in an order that does not depend on who made them.
fn sorted(definitions: &Value, list: &str) -> Vec<String> {
    let objects = definitions[list].as_array().expect("a list");
    let mut texts: Vec<String> = objects.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

#[tokio::test(flavor = "multi_thread")]
async fn ctl_definitions_of_the_peer_import_and_go_round() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (code, out, err) = import(&cluster, 2, PEER).await;
    let path = file(&cluster, "definitions.json");
    let banner = format!("Importing definitions in JSON from a file at \"{}\" ...", path.display());
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, format!("{banner}\nSuccessfully imported definitions\n"));
    // Queues have their types, arguments and policies.
    let columns =
        ["name", "type", "arguments", "policy", "operator_policy", "effective_policy_definition"];
    let args = [&["list_queues", "-p", "orders"], columns.as_slice()].concat();
    let rows = cluster.rows(3, &args).await.expect("rows");
    let new = rows.iter().find(|row| text(row, "name") == "new").expect("the queue");
    assert_eq!(text(new, "type"), "quorum");
    let effective =
        json!({"dead-letter-exchange": "dead", "max-length": 1000, "message-ttl": 60_000});
    assert_eq!(new["effective_policy_definition"], effective);
    assert_eq!((text(new, "policy"), text(new, "operator_policy")), ("dlx".into(), "cap".into()));
    let limit = json!(["x-delivery-limit", "long", 5]);
    assert!(new["arguments"].as_array().expect("arguments").contains(&limit), "{new}");
    // Bindings route, also by the alternate exchange.
    let (_guest, channel) =
        open_confirming(&format!("{}/orders", cluster.amqp_uri(1).trim_end_matches("/%2f"))).await;
    publish_confirmed(&channel, "parked", b"by name").await;
    assert_eq!(get(&channel, "parked").await.as_deref(), Some(&b"by name"[..]));
    // ACL-23: the imported hash is the password's.
    let alice = cluster.amqp_uri(3).replace("guest:guest", "alice:guest");
    drop(connect(&format!("{}/orders", alice.trim_end_matches("/%2f"))).await);
    // What is exported is what was imported, and imports into another cluster as it is.
    let exported = export(&cluster, 1).await;
    let given: Value = serde_json::from_str(PEER).expect("JSON");
    for list in [
        "permissions",
        "topic_permissions",
        "policies",
        "exchanges",
        "bindings",
        "global_parameters",
    ] {
        assert_eq!(sorted(&exported, list), sorted(&given, list), "{list}");
    }
    let other = Cluster::start(1, Options::default()).await;
    assert_eq!(import(&other, 1, &exported.to_string()).await.0, 0);
    let again = export(&other, 1).await;
    for list in LISTS {
        assert_eq!(sorted(&again, list), sorted(&exported, list), "{list}");
    }
    // Once more changes nothing.
    assert_eq!(import(&cluster, 3, &exported.to_string()).await.0, 0);
    assert_eq!(export(&cluster, 2).await, exported);
    assert_replicas_equal(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctl_definitions_that_are_wrong_change_nothing_and_name_the_object() {
    let cluster = Cluster::start(1, Options::default()).await;
    let before = export(&cluster, 1).await;
    let broken = |path: &str, value: Value| {
        let mut definitions: Value = serde_json::from_str(PEER).expect("JSON");
        *definitions.pointer_mut(path).expect("there") = value;
        definitions.to_string()
    };
    let wrong = [
        (
            broken("/bindings/2/destination", json!("none")),
            "binding from 'events' to exchange 'none' in vhost 'orders': no exchange",
        ),
        (
            broken("/queues/1/arguments/x-max-priority", json!(-1)),
            "queue 'parked' in vhost 'orders': invalid arg 'x-max-priority'",
        ),
        (broken("/queues/2/vhost", json!("none")), "queue 'plain' in vhost 'none': "),
        (
            broken("/exchanges/1/type", json!("odd")),
            "exchange 'dead' in vhost 'orders': unknown exchange type 'odd'",
        ),
        (
            broken("/policies/0/definition", json!({"foo": 1})),
            "policy 'dlx' in vhost 'orders': Validation failed",
        ),
        (
            broken("/policies/0/pattern", json!("(")),
            "policy 'dlx' in vhost 'orders': Validation failed",
        ),
        (
            broken("/permissions/2/user", json!("bob")),
            "permissions of user 'bob' in vhost 'orders': User bob does not exist",
        ),
        (
            broken("/users/1/password_hash", json!("***")),
            "user 'alice': password_hash is not base64",
        ),
        (broken("/users", json!(7)), "definitions are not valid: users: not a list"),
        ("junk".to_owned(), "definitions are not valid: "),
    ];
    for (definitions, told) in &wrong {
        let (code, _, err) = import(&cluster, 1, definitions).await;
        assert_eq!(code, 65, "{told}: {err}");
        assert!(
            err.starts_with(&format!("Error:\nFailed to import definitions: {told}")),
            "{told}: {err}"
        );
        assert_eq!(export(&cluster, 1).await, before, "{told}");
    }
    let missing = cluster.ctl(1, &["import_definitions", "/no/such/file"]).await;
    assert_eq!(
        (missing.code, missing.stderr.as_str()),
        (65, "Error:\nFile /no/such/file does not exist\n")
    );
}

/// The hash is made once, before the command is replicated: all replicas have the same one.
#[tokio::test(flavor = "multi_thread")]
async fn acl_26_ctl_14_passwords_in_definitions_are_hashed() {
    let cluster = Cluster::start(3, Options::default()).await;
    let users = |user: Value| json!({ "users": [user] }).to_string();
    let before = export(&cluster, 1).await;
    let both = json!({"name": "alice", "password": "sesame", "password_hash": "", "tags": []});
    let (code, _, err) = import(&cluster, 1, &users(both)).await;
    let told = "Error:\nFailed to import definitions: user 'alice': 'password' and 'password_hash' \
                exclude each other\n";
    assert_eq!((code, err.as_str()), (65, told));
    assert_eq!(export(&cluster, 1).await, before);
    let plain = users(json!({"name": "alice", "password": "sesame", "tags": []}));
    assert_eq!(import(&cluster, 2, &plain).await.0, 0);
    let exported = export(&cluster, 3).await;
    assert!(!exported.to_string().contains("sesame"), "{exported}");
    for (node, password, is_right) in [(1, "sesame", true), (2, "sesame", true), (3, "x", false)] {
        let output = cluster.ctl(node, &["authenticate_user", "alice", password]).await;
        assert_eq!(output.code == 0, is_right, "{output:?}");
    }
    // Once more changes nothing, the salt neither.
    assert_eq!(import(&cluster, 1, &plain).await.0, 0);
    assert_eq!(export(&cluster, 3).await, exported);
    assert_replicas_equal(&cluster).await;
    // With neither, nobody logs in any more.
    assert_eq!(import(&cluster, 1, &users(json!({"name": "alice", "tags": []}))).await.0, 0);
    assert_ne!(cluster.ctl(2, &["authenticate_user", "alice", "sesame"]).await.code, 0);
}

/// The objects of a list, without what is said twice or only in one of RabbitMQ's two ways to export: a
/// virtual host is what its metadata say, a queue's type is in its arguments, pairs are an object.
fn comparable(definitions: &Value, list: &str) -> Vec<String> {
    let mut definitions = definitions.clone();
    for object in definitions[list].as_array_mut().expect("a list") {
        let fields = object.as_object_mut().expect("an object");
        match list {
            "vhosts" => fields.retain(|field, _| ["name", "metadata"].contains(&field.as_str())),
            "queues" => fields.retain(|field, _| field != "type"),
            "exchanges" => {
                fields.entry("internal").or_insert(Value::Bool(false));
            }
            _ => {}
        }
        if let Some(Value::Array(pairs)) = object.pointer("/value/definition") {
            let pairs = pairs.iter();
            let pairs = pairs.map(|pair| (pair[0].as_str().expect("a key"), pair[1].clone()));
            object["value"]["definition"] = pairs.collect();
        }
    }
    sorted(&definitions, list)
}

/// What a login comes to: nothing, or the text of its refusal.
async fn login(cluster: &Cluster, user: &str, password: &str, vhost: &str) -> Option<String> {
    let uri = format!("amqp://{user}:{password}@{}/{vhost}", cluster.node(2).amqp_address());
    let connecting = Connection::connect(&uri, ConnectionProperties::default());
    let connected = in_time("an answer", connecting).await;
    connected.err().map(|error| error.to_string())
}

/// ACL-23: hashes of all three kinds are the passwords' still; a user without one cannot log in.
async fn users_log_in_as_before(cluster: &Cluster) {
    for (user, password, vhost) in [
        ("guest", "guest", "%2Fr%C3%A4ume%2F%C3%A4%20b"),
        ("alice", "sesame%20%C3%A4%20%E2%82%AC", "orders"),
        ("carol", "carols", "orders"),
        ("carol", "carols", "%2f"),
        ("dave", "daves", "orders"),
    ] {
        assert_eq!(login(cluster, user, password, vhost).await, None, "{user} in {vhost}");
        assert!(login(cluster, user, "wrong", vhost).await.is_some(), "{user} in {vhost}");
    }
    // Who has a password and no permissions is told so; the others are told nothing (CONN-13).
    let refused = login(cluster, "erin%40example.com", "x", "orders").await.expect("no row");
    assert!(refused.contains("access to vhost 'orders' refused for user"), "{refused}");
    for password in ["", "x"] {
        let refused = login(cluster, "bob", password, "orders").await.expect("no password");
        assert!(!refused.contains("access to vhost"), "{refused}");
    }
}

/// Limits hold: two of three queues are there.
async fn limits_hold(cluster: &Cluster) {
    let limited = format!("amqp://guest:guest@{}/limited", cluster.node(1).amqp_address());
    let (_guest, channel) = open_confirming(&limited).await;
    amqp::declare_with(&channel, "third", &[]).await;
    let fourth = channel.queue_declare("fourth".into(), amqp::durable(), <_>::default()).await;
    let fourth = fourth.expect_err("one too many").to_string();
    assert!(fourth.contains("queue limit in vhost 'limited' (3) is reached"), "{fourth}");
}

/// A message finds its way through exchanges that lead to exchanges, and policies are in force.
async fn what_was_in_force_is_again(cluster: &Cluster) {
    let orders = format!("amqp://guest:guest@{}/orders", cluster.node(2).amqp_address());
    let (_guest, channel) = open_confirming(&orders).await;
    let properties = persistent().with_headers(arguments(&[("x-k", amqp::text("v"))]));
    let (exchange, key) = ("events".into(), "int.a".into());
    let sent = channel.basic_publish(exchange, key, <_>::default(), b"routed", properties);
    assert!(sent.await.expect("sent").await.expect("a confirm").is_ack());
    assert_eq!(get(&channel, "by default").await.as_deref(), Some(&b"routed"[..]));
    let columns = ["list_queues", "-p", "orders", "name", "policy", "operator_policy"];
    let rows = cluster.rows(3, &columns).await.expect("rows");
    for (queue, policy, operators) in
        [("new", "dlx", "cap"), ("parked", "classic", ""), ("by default", "", "")]
    {
        let row = rows.iter().find(|row| text(row, "name") == queue).expect("the queue");
        let shown = (text(row, "policy"), text(row, "operator_policy"));
        assert_eq!(shown, (policy.to_owned(), operators.to_owned()), "{queue}");
    }
}

/// What the files have of a server-named queue, which RabbitMQ does not import either.
const SKIPPED: &str = "Warning: skipped queue 'amq.gen-IzygEPrTUL-2wo-c5QOoMQ' in vhost '/': its name is reserved\n\
     Warning: skipped binding from 'amq.direct' to 'amq.gen-IzygEPrTUL-2wo-c5QOoMQ' in vhost '/': \
     its name is reserved\n";

/// The definitions without server-named queues.
fn without_server_named(definitions: &str) -> Value {
    let mut given: Value = serde_json::from_str(definitions).expect("JSON");
    for (list, field) in [("queues", "name"), ("bindings", "destination")] {
        let objects = given[list].as_array_mut().expect("a list");
        objects.retain(|it| !it[field].as_str().is_some_and(|name| name.starts_with("amq.gen-")));
    }
    given
}

async fn imports_with_nothing_lost(definitions: &str) {
    let cluster = Cluster::start(3, Options::default()).await;
    let (code, _, err) = import(&cluster, 1, definitions).await;
    assert_eq!((code, err.as_str()), (0, SKIPPED));
    let given = without_server_named(definitions);
    let exported = export(&cluster, 3).await;
    for list in LISTS {
        assert_eq!(comparable(&exported, list), comparable(&given, list), "{list}");
    }
    users_log_in_as_before(&cluster).await;
    what_was_in_force_is_again(&cluster).await;
    limits_hold(&cluster).await;
    assert_replicas_equal(&cluster).await;
    // Into another cluster, and from there: nothing changes any more.
    let other = Cluster::start(1, Options::default()).await;
    assert_eq!(import(&other, 1, &exported.to_string()).await.0, 0);
    assert_eq!(export(&other, 1).await, exported);
}

#[tokio::test(flavor = "multi_thread")]
async fn acl_23_what_rabbitmqctl_exported_imports_with_nothing_lost() {
    imports_with_nothing_lost(BY_RABBITMQCTL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acl_23_what_rabbitmq_exported_over_http_imports_with_nothing_lost() {
    imports_with_nothing_lost(OVER_HTTP).await;
}

/// `rabbitmqctl export_definitions` leaves internal exchanges out and keeps their bindings: all else of
/// such a file is imported, and what is not is told.
#[tokio::test(flavor = "multi_thread")]
async fn ctl_bindings_of_exchanges_that_rabbitmqctl_left_out_are_passed_over_and_named() {
    let cluster = Cluster::start(1, Options::default()).await;
    let mut given: Value = serde_json::from_str(BY_RABBITMQCTL).expect("JSON");
    let mut bind = |source: &str, to: &str, kind: &str| {
        let binding = json!({"source": source, "destination": to, "destination_type": kind,
            "vhost": "orders", "routing_key": "", "arguments": {}});
        given["bindings"].as_array_mut().expect("bindings").push(binding);
    };
    bind("hidden", "new", "queue");
    bind("events", "hidden", "exchange");
    let (code, _, err) = import(&cluster, 1, &given.to_string()).await;
    let told = "Warning: skipped binding from 'hidden' to 'new' in vhost 'orders': \
                no exchange 'hidden' in vhost 'orders'\n\
                Warning: skipped binding from 'events' to 'hidden' in vhost 'orders': \
                no exchange 'hidden' in vhost 'orders'\n";
    assert_eq!((code, err), (0, format!("{SKIPPED}{told}")));
    let exported = export(&cluster, 1).await;
    let original = without_server_named(BY_RABBITMQCTL);
    for list in LISTS {
        assert_eq!(comparable(&exported, list), comparable(&original, list), "{list}");
    }
}

/// there are no streams, so a file that has one is refused as a whole, by its name.
#[tokio::test(flavor = "multi_thread")]
async fn q_02_definitions_with_a_stream_are_refused_by_its_name() {
    let cluster = Cluster::start(1, Options::default()).await;
    let before = export(&cluster, 1).await;
    let mut given: Value = serde_json::from_str(OVER_HTTP).expect("JSON");
    let stream = json!({"name": "log", "vhost": "orders", "durable": true, "auto_delete": false,
        "arguments": {"x-queue-type": "stream"}});
    given["queues"].as_array_mut().expect("queues").push(stream);
    let (code, _, err) = import(&cluster, 1, &given.to_string()).await;
    assert_eq!(code, 65);
    let told = "Failed to import definitions: queue 'log' in vhost 'orders': invalid arg \
                'x-queue-type'";
    assert!(err.contains(told), "{err}");
    assert_eq!(export(&cluster, 1).await, before);
}
