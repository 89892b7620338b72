//! What one client cannot do to the others, or to the cluster: reach queues of other virtual hosts,
//! declare or import what cannot be kept, guess passwords at speed, read files (NAM 8, CONN-13).

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use lapin::message::BasicReturnMessage;
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldArray, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    arguments, bind, code, declare_quorum, durable, exclusive, get, open, open_confirming,
    persistent, publish_confirmed,
};
use quorate_cluster_tests::harness::wait::in_time;
use quorate_cluster_tests::harness::{Cluster, Options};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

async fn done(cluster: &Cluster, args: &[&str]) {
    let output = cluster.ctl(1, args).await;
    output.succeeded().unwrap_or_else(|said| panic!("{args:?}: {said}"));
}

/// Publishes a mandatory message; what came back of it.
async fn returned(
    channel: &Channel,
    queue: &str,
    properties: BasicProperties,
) -> lapin::Result<Option<BasicReturnMessage>> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let publish = async {
        let sent = channel.basic_publish("".into(), queue.into(), options, b"x", properties);
        sent.await?.await
    };
    let confirmed = in_time("a confirm", publish).await?;
    assert!(confirmed.is_ack(), "{confirmed:?}");
    Ok(confirmed.take_message())
}

/// The name with the lowest bit of one of its characters changed.
fn changed(name: &str, place: usize) -> String {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut letters: Vec<char> = name.chars().collect();
    let at = ALPHABET.find(letters[place]).expect("URL-safe base64");
    letters[place] = ALPHABET.chars().nth(at ^ 1).expect("64 letters");
    letters.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nam_08_a_server_given_name_reaches_its_queue_from_its_virtual_host_only() {
    let cluster = Cluster::start(3, Options::default()).await;
    done(&cluster, &["add_vhost", "v"]).await;
    done(&cluster, &["set_permissions", "-p", "v", "guest", ".*", ".*", ".*"]).await;
    let (owning, owner) = open_confirming(&cluster.amqp_uri(2)).await;
    let queue = owner.queue_declare("".into(), exclusive(), FieldTable::default()).await;
    let name = queue.expect("declare-ok").name().to_string();
    for node in 1..=3 {
        let (_there, beside) = open_confirming(&cluster.amqp_uri(node)).await;
        let address = cluster.node(node).amqp_address();
        let uri = format!("amqp://guest:guest@{address}/v");
        let (_elsewhere, stranger) = open_confirming(&uri).await;
        let went = |channel, name: String| async move {
            let returned = returned(channel, &name, persistent()).await;
            returned.expect("a confirm").is_none()
        };
        assert!(went(&beside, name.clone()).await, "node {node} does not reach {name}");
        assert!(!went(&stranger, name.clone()).await, "{name} is reached from another vhost");
        // Characters 19 to 28 hold nothing but chance.
        for place in [19, 24, 28] {
            let name = changed(&name, place);
            assert!(!went(&beside, name.clone()).await, "{name} was guessed");
        }
    }
    for _ in 1..=3 {
        assert!(get(&owner, &name).await.is_some());
    }
    assert_eq!(get(&owner, &name).await, None);
    // One that has ended is unroutable too, also from other nodes.
    in_time("a close", owning.close(200, "".into())).await.expect("close-ok");
    for node in 1..=3 {
        let (_there, beside) = open_confirming(&cluster.amqp_uri(node)).await;
        let returned = returned(&beside, &name, persistent()).await;
        assert!(returned.expect("a confirm").is_some(), "{name} has ended");
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |value, _| json!([value]))
}

/// A binding, an exchange and a queue that could be stored and never be read again.
#[tokio::test(flavor = "multi_thread")]
async fn definitions_nested_too_deep_are_refused_and_the_cluster_lives() {
    let cluster = Cluster::start(3, Options::default()).await;
    let path = cluster.folder().join("deep.json");
    let exchange = |depth: usize| {
        json!({ "exchanges": [{ "name": format!("x{depth}"), "vhost": "/", "type": "direct",
            "durable": true, "auto_delete": false, "internal": false,
            "arguments": { "deep": nested(depth) } }] })
    };
    let queue = |depth: usize| {
        json!({ "queues": [{ "name": format!("q{depth}"), "vhost": "/", "durable": true,
            "auto_delete": false, "arguments": { "deep": nested(depth) } }] })
    };
    for (definitions, object) in
        [(exchange(16), "exchange 'x16'"), (queue(17), "queue 'q17'"), (queue(100), "queue 'q100'")]
    {
        fs::write(&path, definitions.to_string()).expect("written");
        for node in 1..=3 {
            let said =
                cluster.ctl(node, &["import_definitions", path.to_str().expect("UTF-8")]).await;
            assert_ne!(said.code, 0, "{said:?}");
            assert!(said.stderr.contains(object) && said.stderr.contains("deeper"), "{said:?}");
        }
    }
    for definitions in [exchange(15), queue(15)] {
        fs::write(&path, definitions.to_string()).expect("written");
        done(&cluster, &["import_definitions", path.to_str().expect("UTF-8")]).await;
    }
    cluster.node(2).kill9();
    cluster.node(2).restart().await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(2)).await;
    publish_confirmed(&channel, "q15", b"alive").await;
}

fn voids(count: usize) -> AMQPValue {
    let mut array = FieldArray::default();
    (0..count).for_each(|_| array.push(AMQPValue::Void));
    AMQPValue::FieldArray(array)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_declared_or_sent_with_too_much_in_it_is_refused_with_406() {
    let cluster = Cluster::start(1, Options::default().with("--cluster-binding-limit", "2")).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "q").await;
    for key in ["a", "b", "b"] {
        bind(&channel, "q", "amq.direct", key).await;
    }
    let channel_of = || async { connection.create_channel().await.expect("open-ok") };
    let refused = |refused: lapin::Result<()>, words: &str| {
        let error = refused.expect_err(words);
        assert_eq!(code(&error), Some(406), "{error}");
        assert!(error.to_string().contains(words), "{error}\nwanted {words}");
    };
    let (nothing, much) = (FieldTable::default, || arguments(&[("x-mine", voids(2_000))]));
    let on = channel_of().await;
    let declared = on.queue_declare("r".into(), durable(), much()).await.map(drop);
    refused(declared, "arguments of queue 'r' in vhost '/' have 2001 values");
    let (on, kind) = (channel_of().await, ExchangeKind::Direct);
    let declared = on.exchange_declare("e".into(), kind, <_>::default(), much()).await;
    refused(declared, "arguments of exchange 'e' in vhost '/' have 2001 values");
    let queue_bind = async |exchange: &str, with: FieldTable| {
        let on = channel_of().await;
        on.queue_bind("q".into(), exchange.into(), "c".into(), <_>::default(), with).await
    };
    let bound = queue_bind("amq.headers", much()).await;
    refused(bound, "to queue 'q' in vhost '/' have 2001 values");
    let bound = queue_bind("amq.direct", nothing()).await;
    refused(bound, "binding limit in cluster (2) is reached");
    let keys = |count: usize| {
        let mut keys = FieldArray::default();
        (0..count)
            .for_each(|key| keys.push(AMQPValue::LongString(LongString::from(key.to_string()))));
        persistent().with_headers(arguments(&[("CC", AMQPValue::FieldArray(keys))]))
    };
    assert!(returned(&channel, "q", keys(1_024)).await.expect("a confirm").is_none());
    let sent = returned(&channel, "q", keys(1_025)).await.map(drop);
    refused(sent, "CC and BCC name 1025 routing keys, more than the limit of 1024");
}

/// Many keys, many patterns that fit all of them, one queue: it is named once for each key and
/// pattern, and gets one message.
#[tokio::test(flavor = "multi_thread")]
async fn many_keys_and_many_patterns_cost_what_is_bound() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "q").await;
    for pattern in ["#", "*", "#.#", "*.#", "#.*"] {
        bind(&channel, "q", "amq.topic", pattern).await;
    }
    let mut keys = FieldArray::default();
    (0..1_000).for_each(|key| keys.push(AMQPValue::LongString(LongString::from(key.to_string()))));
    let headers = arguments(&[("CC", AMQPValue::FieldArray(keys))]);
    let properties = persistent().with_headers(headers);
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish("amq.topic".into(), "k".into(), options, b"x", properties);
    let confirmed = sent.await.expect("sent").await.expect("a confirm");
    assert!(confirmed.is_ack(), "{confirmed:?}");
    assert!(get(&channel, "q").await.is_some());
    assert_eq!(get(&channel, "q").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn conn_13_a_login_that_fails_is_answered_late_and_a_good_one_is_not() {
    let cluster = Cluster::start(1, Options::default()).await;
    let address = cluster.node(1).amqp_address();
    let failed =
        || async { cluster.node(1).metrics().await.sum("rabbitmq_auth_attempts_failed_total") };
    assert_eq!(failed().await, Some(0.0));
    let long = "p".repeat(2_000);
    for (user, password) in [("guest", "wrong"), ("nobody", "guest"), ("guest", long.as_str())] {
        let began = Instant::now();
        let uri = format!("amqp://{user}:{password}@{address}/%2f");
        let connecting = Connection::connect(&uri, ConnectionProperties::default());
        let refused = in_time("an answer", connecting).await;
        assert!(refused.is_err(), "{user} is let in");
        assert!(began.elapsed() >= Duration::from_secs(1), "{user}: {:?}", began.elapsed());
    }
    assert_eq!(failed().await, Some(3.0));
    // With the longest delay that can be set: a good login that began after a bad one is answered before it.
    cluster.node(1).kill9();
    cluster.node(1).spawn_with(&[("--login-failure-delay-ms", "10000")]);
    cluster.node(1).ready().await;
    let uri = format!("amqp://guest:wrong@{address}/%2f");
    let bad = tokio::spawn(async move {
        Connection::connect(&uri, ConnectionProperties::default()).await.map(drop)
    });
    // If both were delayed, the good one would end so much later.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let _connection = open(&cluster.amqp_uri(1)).await;
    assert!(!bad.is_finished(), "a good login is answered as late as a bad one");
    let refused = in_time("an answer", bad).await.expect("an attempt");
    assert!(refused.is_err(), "a wrong password lets in");
}

/// What anybody but the owner may do with each file and folder below `path`.
fn open_to_others(path: &Path, found: &mut Vec<String>) {
    // The node may remove a file meanwhile.
    let Ok(metadata) = fs::metadata(path) else { return };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        found.push(format!("{} {mode:o}", path.display()));
    }
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a folder") {
            open_to_others(&entry.expect("an entry").path(), found);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_their_owners_alone() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "q").await;
    publish_confirmed(&channel, "q", b"secret").await;
    let export = cluster.folder().join("definitions.json");
    done(&cluster, &["export_definitions", export.to_str().expect("UTF-8")]).await;
    let mut found = Vec::new();
    // The folder itself was there before the node.
    for entry in fs::read_dir(cluster.node(1).data_dir()).expect("a folder") {
        open_to_others(&entry.expect("an entry").path(), &mut found);
    }
    open_to_others(&export, &mut found);
    assert_eq!(found, Vec::<String>::new());
}
