//! Users and permissions: who gets in, and what is checked where (ACL, CONN-13, CONN-20, CONN-29,
//! CONN-33), with `quorate ctl` called by its other name too.

#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions,
    QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    code, durable, exclusive, open, passive, publish_confirmed,
};
use quorate_cluster_tests::harness::ctl::text;
use quorate_cluster_tests::harness::wait::{eventually, in_time};
use quorate_cluster_tests::harness::wire::{self, PROTOCOL_HEADER, Wire};
use quorate_cluster_tests::harness::{Cluster, Options};

/// As another user, to another virtual host (percent-encoded).
fn uri(cluster: &Cluster, node: u64, user: &str, password: &str, vhost: &str) -> String {
    format!("amqp://{user}:{password}@{}/{vhost}", cluster.node(node).amqp_address())
}

async fn try_connect(uri: &str) -> lapin::Result<Connection> {
    let connecting = Connection::connect(uri, ConnectionProperties::default());
    in_time(&format!("an answer from {uri}"), connecting).await
}

/// The code and text with which the broker refused.
fn told(error: &lapin::Error) -> String {
    format!("{:?} {error}", code(error))
}

async fn done(cluster: &Cluster, args: &[&str]) {
    let output = cluster.ctl(1, args).await;
    output.succeeded().unwrap_or_else(|said| panic!("{args:?}: {said}"));
}

/// A cluster with user `u` (password `p`) who may what the patterns say in `/`.
async fn with_user(nodes: u64, patterns: [&str; 3]) -> Cluster {
    let cluster = Cluster::start(nodes, Options::default()).await;
    done(&cluster, &["add_user", "u", "p"]).await;
    let [configure, write, read] = patterns;
    done(&cluster, &["set_permissions", "u", configure, write, read]).await;
    cluster
}

/// A channel of user `u`; a new one for each refusal, which closes it.
async fn channel_of(connection: &Connection) -> Channel {
    let channel = in_time("a channel", connection.create_channel()).await;
    channel.expect("open-ok")
}

#[tokio::test(flavor = "multi_thread")]
async fn acl_01_conn_13_conn_20_who_gets_in_and_where() {
    let cluster = Cluster::start(3, Options::default()).await;
    done(&cluster, &["add_user", "u", "p"]).await;
    // Known on every node as soon as the command has ended.
    let refused = try_connect(&uri(&cluster, 3, "u", "p", "%2f")).await.expect_err("no row");
    let said = told(&refused);
    assert!(said.contains("access to vhost '/' refused for user 'u'"), "{said}");
    done(&cluster, &["set_permissions", "u", "", "", ""]).await;
    for node in 1..=3 {
        drop(try_connect(&uri(&cluster, node, "u", "p", "%2f")).await.expect("a row, if empty"));
    }
    for (user, password) in [("u", "wrong"), ("u", ""), ("nobody", "p")] {
        let refused = try_connect(&uri(&cluster, 2, user, password, "%2f")).await;
        assert!(refused.is_err(), "{user} with '{password}'");
    }
    let missing = try_connect(&uri(&cluster, 1, "u", "p", "missing")).await.expect_err("no vhost");
    assert!(told(&missing).contains("vhost missing not found"), "{}", told(&missing));
    // ACL-25: a changed password counts from now on, and open connections stay.
    let kept = try_connect(&uri(&cluster, 2, "u", "p", "%2f")).await.expect("in");
    done(&cluster, &["change_password", "u", "other"]).await;
    assert!(try_connect(&uri(&cluster, 2, "u", "p", "%2f")).await.is_err());
    drop(try_connect(&uri(&cluster, 2, "u", "other", "%2f")).await.expect("the new one"));
    channel_of(&kept).await;
}

#[expect(clippy::too_many_lines, reason = "one call for each operation of the table")]
#[tokio::test(flavor = "multi_thread")]
async fn acl_04_05_06_every_operation_is_checked_before_it_is_looked_at() {
    let cluster = with_user(3, ["^own", "^own", "^own"]).await;
    let connection = try_connect(&uri(&cluster, 2, "u", "p", "%2f")).await.expect("in");
    let nothing = FieldTable::default;
    let own = channel_of(&connection).await;
    own.queue_declare("own-q".into(), durable(), nothing()).await.expect("own queue");
    let kind = ExchangeKind::Direct;
    own.exchange_declare("own-x".into(), kind, <_>::default(), nothing()).await.expect("own");
    let bound =
        own.queue_bind("own-q".into(), "own-x".into(), "k".into(), <_>::default(), nothing());
    bound.await.expect("own binding");
    let refused = |access: &str, what: &str| {
        format!("ACCESS_REFUSED - {access} access to {what} in vhost '/' refused for user 'u'")
    };
    macro_rules! refuses {
        ($expected:expr, $call:expr) => {{
            let channel = channel_of(&connection).await;
            let error = in_time("a refusal", $call(channel)).await;
            let error = error.expect_err("it is refused");
            assert_eq!(code(&error), Some(403), "{error}");
            assert!(error.to_string().contains(&$expected), "{error}\nwanted {}", $expected);
        }};
    }
    // ACL-05: on what is not there too.
    refuses!(refused("configure", "queue 'q'"), async |c: Channel| c
        .queue_declare("q".into(), durable(), nothing())
        .await);
    refuses!(refused("configure", "queue 'q'"), async |c: Channel| c
        .queue_declare("q".into(), passive(), nothing())
        .await);
    refuses!(refused("configure", "queue 'q'"), async |c: Channel| c
        .queue_delete("q".into(), QueueDeleteOptions::default())
        .await);
    refuses!(refused("read", "queue 'q'"), async |c: Channel| c
        .queue_purge("q".into(), QueuePurgeOptions::default())
        .await);
    refuses!(refused("read", "queue 'q'"), async |c: Channel| c
        .basic_get("q".into(), <_>::default())
        .await);
    refuses!(refused("read", "queue 'q'"), async |c: Channel| c
        .basic_consume("q".into(), "t".into(), <_>::default(), nothing())
        .await);
    refuses!(refused("configure", "exchange 'x'"), async |c: Channel| c
        .exchange_declare("x".into(), ExchangeKind::Direct, <_>::default(), nothing())
        .await);
    refuses!(refused("configure", "exchange 'x'"), async |c: Channel| c
        .exchange_delete("x".into(), <_>::default())
        .await);
    // Both sides of a binding.
    refuses!(refused("write", "queue 'q'"), async |c: Channel| c
        .queue_bind("q".into(), "own-x".into(), "k".into(), QueueBindOptions::default(), nothing())
        .await);
    refuses!(refused("read", "exchange 'x'"), async |c: Channel| c
        .queue_bind("own-q".into(), "x".into(), "k".into(), QueueBindOptions::default(), nothing())
        .await);
    refuses!(refused("write", "exchange 'x'"), async |c: Channel| c
        .exchange_bind("x".into(), "own-x".into(), "k".into(), <_>::default(), nothing())
        .await);
    refuses!(refused("read", "exchange 'x'"), async |c: Channel| c
        .exchange_bind("own-x".into(), "x".into(), "k".into(), <_>::default(), nothing())
        .await);
    // ACL-06: reserved names come before permissions where a queue is declared, after them where
    // an exchange is.
    refuses!("reserved prefix 'amq.*'".to_owned(), async |c: Channel| c
        .queue_declare("amq.q".into(), durable(), nothing())
        .await);
    refuses!(refused("configure", "exchange 'amq.x'"), async |c: Channel| c
        .exchange_declare("amq.x".into(), ExchangeKind::Direct, <_>::default(), nothing())
        .await);
    // ACL-07.
    refuses!("configure access to queue 'amq.gen-".to_owned(), async |c: Channel| c
        .queue_declare("".into(), exclusive(), nothing())
        .await);
    // DLX-05, EXC-03: only when it is new (ACL-08).
    let mut dead = nothing();
    dead.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("x".into()));
    let declared = dead.clone();
    refuses!(refused("write", "exchange 'x'"), async |c: Channel| c
        .queue_declare("own-dead".into(), durable(), declared)
        .await);
    let mut alternate = nothing();
    alternate.insert("alternate-exchange".into(), AMQPValue::LongString("x".into()));
    refuses!(refused("write", "exchange 'x'"), async |c: Channel| c
        .exchange_declare("own-ae".into(), ExchangeKind::Direct, <_>::default(), alternate)
        .await);
    let (_guest, all) = open(&cluster.amqp_uri(1)).await;
    all.queue_declare("own-dead".into(), durable(), dead.clone()).await.expect("by guest");
    let again = channel_of(&connection).await;
    again.queue_declare("own-dead".into(), durable(), dead).await.expect("an equal redeclare");
}

#[tokio::test(flavor = "multi_thread")]
async fn acl_03_acl_13_pub_01_publishing_is_checked_and_rights_that_change_count_at_once() {
    let cluster = with_user(3, [".*", "^x$", ".*"]).await;
    let (_guest, all) = open(&cluster.amqp_uri(1)).await;
    let (kind, nothing) = (ExchangeKind::Fanout, FieldTable::default);
    let options = ExchangeDeclareOptions::default();
    all.exchange_declare("x".into(), kind, options, nothing()).await.expect("x");
    let connection = try_connect(&uri(&cluster, 3, "u", "p", "%2f")).await.expect("in");
    let publish = async |exchange: &str| {
        let channel = channel_of(&connection).await;
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("select-ok");
        let options = BasicPublishOptions::default();
        let properties = <_>::default();
        let sent = channel.basic_publish(exchange.into(), "k".into(), options, b"m", properties);
        match sent.await {
            Ok(confirm) => confirm.await.map(drop),
            Err(error) => Err(error),
        }
    };
    let refused = async |exchange: &str, words: &str| {
        let error = in_time("a refusal", publish(exchange)).await;
        let error = error.expect_err("it is refused").to_string();
        assert!(error.contains(words), "{error}\nwanted {words}");
    };
    publish("x").await.expect("allowed");
    refused("", "write access to exchange 'amq.default' in vhost '/' refused for user 'u'").await;
    // Permission comes before existence (ACL-05).
    refused("missing", "write access to exchange 'missing'").await;
    done(&cluster, &["set_permissions", "u", ".*", "missing", ".*"]).await;
    refused("x", "write access to exchange 'x' in vhost '/' refused for user 'u'").await;
    refused("missing", "no exchange 'missing' in vhost '/'").await;
    done(&cluster, &["set_permissions", "u", ".*", ".*", ".*"]).await;
    publish("x").await.expect("allowed again");
    // The connection is kept when there is no row any more (CONN-33), and may do nothing.
    done(&cluster, &["clear_permissions", "u"]).await;
    refused("x", "write access to exchange 'x'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acl_14_15_topics_are_checked_where_they_are_published_and_bound() {
    let cluster = with_user(1, [".*", ".*", ".*"]).await;
    let topic = ["set_topic_permissions", "u", "amq.topic", "^{username}-", "^r"];
    done(&cluster, &topic).await;
    let connection = try_connect(&uri(&cluster, 1, "u", "p", "%2f")).await.expect("in");
    let channel = channel_of(&connection).await;
    let nothing = FieldTable::default;
    channel.queue_declare("q".into(), durable(), nothing()).await.expect("q");
    let bind = async |channel: &Channel, key: &str| {
        let options = QueueBindOptions::default();
        channel.queue_bind("q".into(), "amq.topic".into(), key.into(), options, nothing()).await
    };
    bind(&channel, "r.#").await.expect("a topic that may be read");
    let error = bind(&channel_of(&connection).await, "s.#").await.expect_err("refused").to_string();
    let words =
        "read access to topic 's.#' in exchange 'amq.topic' in vhost '/' refused for user 'u'";
    assert!(error.contains(words), "{error}");
    let publish = async |key: &str| {
        let channel = channel_of(&connection).await;
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("select-ok");
        let options = BasicPublishOptions::default();
        let properties = <_>::default();
        let sent = channel.basic_publish("amq.topic".into(), key.into(), options, b"m", properties);
        match sent.await {
            Ok(confirm) => confirm.await.map(drop),
            Err(error) => Err(error),
        }
    };
    publish("u-topic").await.expect("a topic that may be written");
    let error = publish("other").await.expect_err("refused").to_string();
    let words =
        "write access to topic 'other' in exchange 'amq.topic' in vhost '/' refused for user 'u'";
    assert!(error.contains(words), "{error}");
    done(&cluster, &["clear_topic_permissions", "u"]).await;
    publish("other").await.expect("without a row all topics are allowed");
}

/// CONN-33, on every node; and CONN-29.
#[tokio::test(flavor = "multi_thread")]
async fn conn_29_conn_33_connections_are_closed_with_a_reason() {
    let cluster = with_user(3, [".*", ".*", ".*"]).await;
    let connected = async |node: u64, user: &str, password: &str| {
        let (connection, channel) = open(&uri(&cluster, node, user, password, "%2f")).await;
        (connection, channel)
    };
    let ended = async |connection: &Connection| {
        eventually("the connection has ended", || async {
            if connection.status().connected() { Err("it is open".to_owned()) } else { Ok(()) }
        })
        .await;
    };
    let (of_user, _channel) = connected(3, "u", "p").await;
    let (of_guest, on_guest) = connected(3, "guest", "guest").await;
    done(&cluster, &["delete_user", "u"]).await;
    ended(&of_user).await;
    on_guest.queue_declare("kept".into(), durable(), FieldTable::default()).await.expect("kept");
    assert!(try_connect(&uri(&cluster, 2, "u", "p", "%2f")).await.is_err());
    // One, by its pid, asked of another node.
    let rows = cluster.rows(2, &["list_connections", "pid", "user"]).await.expect("rows");
    let pid = rows.iter().map(|row| text(row, "pid")).next().expect("guest's connection");
    done(&cluster, &["close_connection", &pid, "no reason"]).await;
    ended(&of_guest).await;
    let (first, _one) = connected(1, "guest", "guest").await;
    let (second, _two) = connected(2, "guest", "guest").await;
    let closed = cluster.ctl(3, &["close_all_connections", "-q", "-p", "/", "enough"]).await;
    assert_eq!(closed.stdout, "Closed 2 connections\n", "{closed:?}");
    ended(&first).await;
    ended(&second).await;
}

/// CTL-12, CTL-13: what scripts depend on; by the name rabbitmqctl too.
#[tokio::test(flavor = "multi_thread")]
async fn ctl_05_06_13_verbs_speak_as_rabbitmqctl_does() {
    let cluster = Cluster::start(1, Options::default()).await;
    let link = cluster.folder().join("rabbitmqctl");
    std::os::unix::fs::symlink(cluster.binary(), &link).expect("a symlink");
    let rpc = cluster.node(1).rpc_address();
    let called = async |args: &[&str]| {
        let mut command = tokio::process::Command::new(&link);
        command.args(["-n", &rpc]).args(args).env("QUORATE_CLUSTER_SECRET", cluster.secret());
        let output = in_time("rabbitmqctl", command.output()).await.expect("runs");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), said(&output.stdout), said(&output.stderr))
    };
    let (status, out, _) = called(&["add_user", "ann", "secret"]).await;
    assert_eq!(status, Some(0));
    assert!(out.starts_with("Adding user \"ann\" ...\nDone. Don't forget to grant"), "{out}");
    let (status, _, err) = called(&["add_user", "ann", "secret"]).await;
    assert_eq!((status, err.as_str()), (Some(70), "Error:\nUser \"ann\" already exists\n"));
    called(&["set_user_tags", "ann", "administrator", "x"]).await;
    called(&["set_permissions", "-p", "/", "ann", "^a", "", ".*"]).await;
    let (_, out, _) = called(&["-q", "list_permissions", "-p", "/"]).await;
    assert_eq!(out, "user\tconfigure\twrite\tread\nann\t^a\t\t.*\nguest\t.*\t.*\t.*\n");
    let (_, out, _) = called(&["-q", "list_users"]).await;
    assert_eq!(out, "user\ttags\nann\t[administrator, x]\nguest\t[administrator]\n");
    let (status, _, err) = called(&["set_permissions", "nobody", "", "", ""]).await;
    assert_eq!((status, err.as_str()), (Some(67), "Error:\nUser nobody does not exist\n"));
    let (status, _, err) = called(&["set_permissions", "ann", "(", "", ""]).await;
    let words = "Error:\n{:invalid_regexp, ~c\"(\", {~c\"missing )\", 1}}\n";
    assert_eq!((status, err.as_str()), (Some(69), words));
    let (status, out, _) = called(&["authenticate_user", "ann", "secret"]).await;
    assert_eq!((status, out.as_str()), (Some(0), "Authenticating user \"ann\" ...\nSuccess\n"));
    assert_eq!(called(&["authenticate_user", "ann", "wrong"]).await.0, Some(65));
    assert_eq!(called(&["delete_user", "nobody"]).await.0, Some(67));
    assert_eq!(called(&["set_permissions", "ann"]).await.0, Some(64));
    // It is in the catalog: a restart keeps it.
    cluster.node(1).kill9();
    cluster.node(1).restart().await;
    let (_, out, _) = called(&["-q", "list_users"]).await;
    assert!(out.contains("ann\t[administrator, x]"), "{out}");
    publish_after_restart(&cluster).await;
}

async fn publish_after_restart(cluster: &Cluster) {
    let (_connection, channel) =
        quorate_cluster_tests::harness::amqp::open_confirming(&cluster.amqp_uri(1)).await;
    channel.queue_declare("q".into(), durable(), FieldTable::default()).await.expect("q");
    publish_confirmed(&channel, "q", b"on").await;
}

/// A client that logs in by ANONYMOUS, up to the mechanisms that it is offered.
async fn anonymous(cluster: &Cluster) -> (Wire, String) {
    let mut wire = Wire::connect(&cluster.node(1).amqp_address()).await;
    wire.send(PROTOCOL_HEADER).await;
    let start = wire.expect(0, 10, 10).await;
    let offered = String::from_utf8_lossy(start.arguments()).into_owned();
    wire.method(0, 10, 11, &wire::start_ok_with(&[], "ANONYMOUS", b"")).await;
    (wire, offered)
}

#[tokio::test(flavor = "multi_thread")]
async fn q_06_anonymous_is_offered_only_when_a_setting_names_the_user() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (wire, offered) = anonymous(&cluster).await;
    assert!(offered.contains("PLAIN AMQPLAIN") && !offered.contains("ANONYMOUS"), "{offered}");
    assert!(wire.rest().await.is_empty(), "CONN-12");

    let cluster = Cluster::start(1, Options::default().with("--anonymous-user", "visitor")).await;
    let (wire, offered) = anonymous(&cluster).await;
    assert!(offered.contains("PLAIN AMQPLAIN ANONYMOUS"), "{offered}");
    assert!(wire.rest().await.is_empty(), "there is no such user yet");
    done(&cluster, &["add_user", "visitor", "secret"]).await;
    done(&cluster, &["set_permissions", "visitor", "", "", ""]).await;
    let (mut wire, _) = anonymous(&cluster).await;
    let tune = wire.expect(0, 10, 30).await;
    wire.method(0, 10, 31, tune.arguments()).await;
    wire.method(0, 10, 40, &[1, b'/', 0, 0]).await;
    wire.expect(0, 10, 41).await;
    let rows = cluster.rows(1, &["list_connections", "user"]).await.expect("rows");
    assert_eq!(rows.iter().map(|row| text(row, "user")).collect::<Vec<_>>(), ["visitor"]);
    // Whoever it is may do no more than that user may.
    wire.method(1, 20, 10, &[0]).await;
    wire.expect(1, 20, 11).await;
    wire.method(1, 50, 10, &wire::queue_declare("mine", &[])).await;
    assert_eq!(wire.channel_close(1).await.map(|close| close.code), Some(403));
}
