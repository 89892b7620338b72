//! What permissions reach and what they do not: beyond the operation itself nothing is checked, a right
//! that goes ends what comes after it, and topics are looked at last (ACL-09 to ACL-16, CONN-30, PRP-06).

#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

use futures::StreamExt;
use lapin::options::{
    BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions, ExchangeBindOptions,
    ExchangeDeclareOptions,
};
use lapin::types::{AMQPValue, FieldArray, FieldTable};
use lapin::{BasicProperties, Channel, Connection, Consumer, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    arguments, bind, code, declare_exchange, declare_quorum, exclusive, get, open, open_confirming,
    passive, persistent, publish_confirmed, publish_with, text,
};
use quorate_cluster_tests::harness::dead_letters::{arrives, reject_one};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Options};

async fn done(cluster: &Cluster, args: &[&str]) {
    let output = cluster.ctl(1, args).await;
    output.succeeded().unwrap_or_else(|said| panic!("{args:?}: {said}"));
}

/// Sets what user `u` may do in `/`.
async fn may(cluster: &Cluster, [configure, write, read]: [&str; 3]) {
    done(cluster, &["set_permissions", "u", configure, write, read]).await;
}

/// A cluster with user `u` (password `p`) who may what the patterns say in `/`.
async fn with_user(nodes: u64, patterns: [&str; 3]) -> Cluster {
    let cluster = Cluster::start(nodes, Options::default()).await;
    done(&cluster, &["add_user", "u", "p"]).await;
    may(&cluster, patterns).await;
    cluster
}

/// Where user `u` logs in.
fn uri(cluster: &Cluster, node: u64) -> String {
    format!("amqp://u:p@{}/%2f", cluster.node(node).amqp_address())
}

async fn channel_of(connection: &Connection) -> Channel {
    let channel = in_time("a channel", connection.create_channel()).await;
    channel.expect("open-ok")
}

/// Publishes on a channel of its own: what it is refused with.
async fn publish(
    connection: &Connection,
    exchange: &str,
    key: &str,
    properties: BasicProperties,
) -> Result<(), String> {
    let channel = channel_of(connection).await;
    channel.confirm_select(<_>::default()).await.expect("select-ok");
    let options = BasicPublishOptions::default();
    let body = key.as_bytes();
    let sent = channel.basic_publish(exchange.into(), key.into(), options, body, properties).await;
    let confirm = match sent {
        Ok(confirm) => in_time("a confirm", confirm).await,
        Err(error) => Err(error),
    };
    confirm.map(drop).map_err(|error| error.to_string())
}

fn is_refused(told: Result<(), String>, words: &str) {
    let told = told.expect_err(words);
    assert!(told.contains(words), "{told}\nwanted {words}");
}

/// ACL-09, ACL-10: who may write to one exchange reaches all that it leads to, by further keys, exchange
/// bindings, the alternate and a policy's dead-letter exchange.
#[tokio::test(flavor = "multi_thread")]
async fn acl_09_acl_10_nothing_is_checked_behind_the_exchange_that_is_published_to() {
    let cluster = with_user(3, ["^$", "^in$", "^mine$"]).await;
    let (_guest, guest) = open(&cluster.amqp_uri(1)).await;
    let alternate = arguments(&[("alternate-exchange", text("secret-alternate"))]);
    let options = ExchangeDeclareOptions { durable: true, ..<_>::default() };
    let declared = guest.exchange_declare("in".into(), ExchangeKind::Direct, options, alternate);
    declared.await.expect("declare-ok");
    for exchange in ["secret-alternate", "secret-bound", "secret-dlx"] {
        declare_exchange(&guest, exchange, ExchangeKind::Fanout).await;
    }
    let (to, from, key) = ("secret-bound".into(), "in".into(), "bound".into());
    let led = guest.exchange_bind(to, from, key, ExchangeBindOptions::default(), <_>::default());
    led.await.expect("bind-ok");
    for (queue, exchange, key) in [
        ("mine", "in", "mine"),
        ("secret-copy", "in", "copy"),
        ("secret-bound", "secret-bound", ""),
        ("secret-alternate", "secret-alternate", ""),
        ("secret-dead", "secret-dlx", ""),
    ] {
        declare_quorum(&guest, queue).await;
        bind(&guest, queue, exchange, key).await;
    }
    done(&cluster, &["set_policy", "p", "^mine$", r#"{"dead-letter-exchange":"secret-dlx"}"#])
        .await;
    let (connection, channel) = open(&uri(&cluster, 2)).await;
    let copies = AMQPValue::FieldArray(FieldArray::from(vec![text("copy")]));
    let copied = persistent().with_headers(arguments(&[("CC", copies)]));
    publish(&connection, "in", "mine", copied).await.expect("allowed");
    assert_eq!(get(&guest, "secret-copy").await.as_deref(), Some(&b"mine"[..]));
    reject_one(&channel, "mine").await;
    assert_eq!(arrives(&guest, "secret-dead").await.data, b"mine");
    for (key, queue) in [("bound", "secret-bound"), ("nowhere", "secret-alternate")] {
        publish(&connection, "in", key, persistent()).await.expect("allowed");
        assert_eq!(get(&guest, queue).await.as_deref(), Some(key.as_bytes()));
    }
    for exchange in ["secret-alternate", "secret-bound", "secret-dlx"] {
        let refused = publish(&connection, exchange, "", persistent()).await;
        is_refused(refused, &format!("write access to exchange '{exchange}' in vhost '/' refused"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acl_11_who_may_not_is_told_before_whose_it_is() {
    let cluster = with_user(3, ["", "", ""]).await;
    let (_guest, owner) = open(&cluster.amqp_uri(1)).await;
    owner.queue_declare("owned".into(), exclusive(), <_>::default()).await.expect("declare-ok");
    let (connection, _channel) = open(&uri(&cluster, 2)).await;
    let told = async || {
        let mut codes = Vec::new();
        let (consume, purge) = (BasicConsumeOptions::default(), <_>::default());
        let channel = channel_of(&connection).await;
        let consumed = channel.basic_consume("owned".into(), "".into(), consume, <_>::default());
        codes.push(consumed.await.err().as_ref().and_then(code));
        let purged = channel_of(&connection).await.queue_purge("owned".into(), purge).await;
        codes.push(purged.err().as_ref().and_then(code));
        let channel = channel_of(&connection).await;
        let declared = channel.queue_declare("owned".into(), passive(), <_>::default()).await;
        codes.push(declared.err().as_ref().and_then(code));
        let deleted =
            channel_of(&connection).await.queue_delete("owned".into(), <_>::default()).await;
        codes.push(deleted.err().as_ref().and_then(code));
        codes
    };
    assert_eq!(told().await, [Some(403); 4]);
    may(&cluster, [".*", ".*", ".*"]).await;
    assert_eq!(told().await, [Some(405); 4]);
}

async fn consume(channel: &Channel, queue: &str) -> Consumer {
    let options = BasicConsumeOptions { no_ack: true, ..<_>::default() };
    let consumed = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
    in_time("a consume", consumed).await.expect("consume-ok")
}

async fn next(consumer: &mut Consumer) -> Option<Vec<u8>> {
    let next = in_time("a delivery, or the end", consumer.next()).await;
    next.map(|delivery| delivery.expect("a delivery").data)
}

/// ACL-12: who consumes already goes on without the right; CONN-30: until the secret is renewed.
#[tokio::test(flavor = "multi_thread")]
async fn acl_12_conn_30_consumers_without_the_right_to_read_end_with_a_new_secret() {
    let cluster = with_user(3, ["", "", ".*"]).await;
    let (_guest, guest) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue in ["kept", "lost"] {
        declare_quorum(&guest, queue).await;
    }
    let (connection, channel) = open(&uri(&cluster, 2)).await;
    let other = channel_of(&connection).await;
    let mut kept = consume(&channel, "kept").await;
    let mut lost = consume(&other, "lost").await;
    may(&cluster, ["", "", "^kept$"]).await;
    let refused = channel_of(&connection).await;
    let refused = refused.basic_consume("lost".into(), "".into(), <_>::default(), <_>::default());
    assert_eq!(code(&refused.await.expect_err("a new one")), Some(403));
    publish_confirmed(&guest, "lost", b"still").await;
    assert_eq!(next(&mut lost).await.as_deref(), Some(&b"still"[..]));
    let renewed = connection.update_secret("p".into(), "renewed".into());
    in_time("update-secret-ok", renewed).await.expect("update-secret-ok");
    assert_eq!(next(&mut lost).await, None, "it is cancelled");
    publish_confirmed(&guest, "kept", b"on").await;
    assert_eq!(next(&mut kept).await.as_deref(), Some(&b"on"[..]));
    // Its channel goes on; what comes to the queue stays there.
    let cancelled = other.basic_cancel(lost.tag(), BasicCancelOptions::default());
    in_time("cancel-ok", cancelled).await.expect("cancel-ok");
    publish_confirmed(&guest, "lost", b"waits").await;
    assert_eq!(get(&guest, "lost").await.as_deref(), Some(&b"waits"[..]));
    // Without a row in the virtual host the secret is refused, and the connection ends.
    done(&cluster, &["clear_permissions", "u"]).await;
    let refused = in_time("530", connection.update_secret("p".into(), "".into()));
    // The client library tells of the end to the one or to the other.
    if let Err(refused) = refused.await {
        let words = "New secret was refused by one of the backends";
        assert!(refused.to_string().contains(words), "{refused}");
    }
    eventually("the connection's end", || async {
        hold(!connection.status().connected(), || "it is open".to_owned())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acl_16_topics_come_after_the_exchange_and_both_are_needed() {
    let cluster = with_user(1, ["", "^$", ""]).await;
    done(&cluster, &["set_topic_permissions", "u", "amq.topic", "^mine", "^mine"]).await;
    let (connection, _channel) = open(&uri(&cluster, 1)).await;
    let exchange = "write access to exchange 'amq.topic' in vhost '/' refused for user 'u'";
    let topic = "write access to topic 'other' in exchange 'amq.topic' in vhost '/' refused";
    let publish = async |key: &str| publish(&connection, "amq.topic", key, persistent()).await;
    is_refused(publish("other").await, exchange);
    is_refused(publish("mine").await, exchange);
    may(&cluster, ["", "^amq.topic$", ""]).await;
    is_refused(publish("other").await, topic);
    publish("mine").await.expect("both are there");
    // Other exchanges have no row, so that their topics are free (ACL-14); other types have no topics.
    may(&cluster, ["", ".*", ""]).await;
    publish_anywhere(&connection).await;
}

async fn publish_anywhere(connection: &Connection) {
    for exchange in ["amq.direct", "amq.fanout", ""] {
        publish(connection, exchange, "other", persistent()).await.expect("no topic");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prp_06_the_user_a_message_names_is_the_one_who_publishes_it() {
    let cluster = with_user(1, ["", ".*", ""]).await;
    done(&cluster, &["set_user_tags", "u", "administrator"]).await;
    let (_guest, guest) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&guest, "q").await;
    let (connection, channel) = open_confirming(&uri(&cluster, 1)).await;
    let naming = |user: &str| persistent().with_user_id(user.into());
    for named in ["guest", "U", ""] {
        let words = format!(
            "PRECONDITION_FAILED - user_id property set to '{named}' but authenticated user was 'u'"
        );
        is_refused(publish(&connection, "", "q", naming(named)).await, &words);
        assert_eq!(get(&guest, "q").await, None);
    }
    assert!(publish_with(&channel, "q", b"own", naming("u")).await);
    assert!(publish_with(&channel, "q", b"none", persistent()).await);
    // ACL-20: as soon as the tag is there, and as long as it is.
    done(&cluster, &["set_user_tags", "u", "impersonator"]).await;
    assert!(publish_with(&channel, "q", b"other", naming("guest")).await);
    done(&cluster, &["set_user_tags", "u"]).await;
    is_refused(publish(&connection, "", "q", naming("guest")).await, "user_id property set to");
    for (body, named) in [(&b"own"[..], Some("u")), (b"none", None), (b"other", Some("guest"))] {
        let message = arrives(&guest, "q").await;
        let user_id = message.properties.user_id().as_ref().map(|user| user.as_str().to_owned());
        assert_eq!((message.data.as_slice(), user_id.as_deref()), (body, named));
    }
}
