//! Exchanges that lead to exchanges: bound, alternate, internal, auto-delete, and those that choose
//! one destination; what clients see, and what lists say (EXC, BND, AE).

#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

use lapin::options::{
    BasicPublishOptions, ExchangeBindOptions, ExchangeDeclareOptions, ExchangeDeleteOptions,
    ExchangeUnbindOptions, QueueBindOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    code, declare_quorum, declare_with, exclusive, get, open, open_confirming, persistent, text,
};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::collections::BTreeSet;

const INTERNAL: ExchangeDeclareOptions = ExchangeDeclareOptions { internal: true, ..PLAIN };
const AUTO_DELETE: ExchangeDeclareOptions = ExchangeDeclareOptions { auto_delete: true, ..PLAIN };
const PLAIN: ExchangeDeclareOptions = ExchangeDeclareOptions {
    passive: false,
    durable: true,
    auto_delete: false,
    internal: false,
    nowait: false,
};

fn texts(fields: &[(&str, &str)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in fields {
        table.insert((*name).into(), AMQPValue::LongString((*value).into()));
    }
    table
}

async fn declare(
    channel: &Channel,
    exchange: &str,
    kind: &str,
    options: ExchangeDeclareOptions,
    arguments: &[(&str, &str)],
) {
    let kind = ExchangeKind::Custom(kind.to_owned());
    let declared = channel.exchange_declare(exchange.into(), kind, options, texts(arguments));
    declared.await.unwrap_or_else(|error| panic!("declare '{exchange}': {error}"));
}

async fn bind(channel: &Channel, exchange: &str, key: &str, queue: &str) {
    let options = QueueBindOptions::default();
    let bound =
        channel.queue_bind(queue.into(), exchange.into(), key.into(), options, texts(&[])).await;
    bound.unwrap_or_else(|error| panic!("bind '{queue}' to '{exchange}': {error}"));
}

async fn lead(channel: &Channel, from: &str, key: &str, to: &str) {
    let options = ExchangeBindOptions::default();
    let bound = channel.exchange_bind(to.into(), from.into(), key.into(), options, texts(&[]));
    bound.await.unwrap_or_else(|error| panic!("bind '{to}' to '{from}': {error}"));
}

async fn unlead(channel: &Channel, from: &str, key: &str, to: &str) {
    let options = ExchangeUnbindOptions::default();
    let unbound = channel.exchange_unbind(to.into(), from.into(), key.into(), options, texts(&[]));
    unbound.await.unwrap_or_else(|error| panic!("unbind '{to}' from '{from}': {error}"));
}

/// Publishes mandatory and waits for the ack; true if the message was routed.
async fn routed(channel: &Channel, exchange: &str, key: &str, properties: BasicProperties) -> bool {
    let options = BasicPublishOptions { mandatory: true, ..Default::default() };
    let body = key.as_bytes();
    let sent = channel.basic_publish(exchange.into(), key.into(), options, body, properties).await;
    let confirm = sent.expect("sent").await.expect("a confirm");
    assert!(confirm.is_ack(), "'{exchange}' '{key}': {confirm:?}");
    confirm.take_message().is_none()
}

/// The code with which a publish to the exchange is refused.
async fn refused(uri: &str, exchange: &str, properties: BasicProperties) -> Option<u16> {
    let (_connection, channel) = open_confirming(uri).await;
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish(exchange.into(), "k".into(), options, b"", properties).await;
    let error = match sent {
        Ok(confirm) => confirm.await.err(),
        Err(error) => Some(error),
    };
    error.as_ref().and_then(code)
}

async fn exists(uri: &str, exchange: &str) -> bool {
    let (_connection, channel) = open(uri).await;
    let options = ExchangeDeclareOptions { passive: true, ..PLAIN };
    let kind = ExchangeKind::Direct;
    let found = channel.exchange_declare(exchange.into(), kind, options, texts(&[])).await;
    found.map_err(|error| assert_eq!(code(&error), Some(404), "{error}")).is_ok()
}

/// All that the queue has, oldest first, as text.
async fn all(channel: &Channel, queue: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    while let Some(body) = get(channel, queue).await {
        bodies.push(String::from_utf8(body).expect("text"));
    }
    bodies
}

#[tokio::test(flavor = "multi_thread")]
async fn bnd_07_and_bnd_08_exchanges_lead_to_exchanges_on_every_node() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_one, binder) = open(&cluster.amqp_uri(1)).await;
    let (_two, publisher) = open_confirming(&cluster.amqp_uri(2)).await;
    declare(&binder, "source", "topic", PLAIN, &[]).await;
    declare(&binder, "middle", "direct", INTERNAL, &[]).await;
    declare(&binder, "end", "fanout", PLAIN, &[]).await;
    declare_quorum(&binder, "q").await;
    lead(&binder, "source", "a.#", "middle").await;
    lead(&binder, "middle", "a.b", "end").await;
    // A circle, and two more ways to the same queue.
    lead(&binder, "end", "", "source").await;
    bind(&binder, "end", "", "q").await;
    bind(&binder, "source", "a.b", "q").await;
    assert!(routed(&publisher, "source", "a.b", persistent()).await);
    assert!(!routed(&publisher, "source", "b", persistent()).await, "PUB-04");
    assert!(!routed(&publisher, "source", "a.c", persistent()).await, "middle leads nowhere");
    assert!(routed(&publisher, "end", "b", persistent()).await);
    assert_eq!(all(&binder, "q").await, ["a.b", "b"], "one copy of each (RTE-10)");
    // EXC-10: bound to, but not published to.
    assert_eq!(refused(&cluster.amqp_uri(3), "middle", persistent()).await, Some(403));
    let listed = cluster.ctl(3, &["-q", "list_bindings"]).await.succeeded().expect("a list");
    for line in ["source\texchange\tmiddle\texchange\ta.#\t[]", "end\texchange\tq\tqueue\t\t[]"] {
        assert!(listed.lines().contains(&line), "{line:?} in {listed:?}");
    }
    unlead(&binder, "source", "a.#", "middle").await;
    unlead(&binder, "source", "nothing", "middle").await;
    assert!(routed(&publisher, "source", "a.b", persistent()).await);
    assert!(!routed(&publisher, "source", "a.c", persistent()).await);
    // PUB-08: no caching is visible.
    binder.exchange_delete("end".into(), ExchangeDeleteOptions::default()).await.expect("deleted");
    assert_eq!(refused(&cluster.amqp_uri(2), "end", persistent()).await, Some(404));
}

#[tokio::test(flavor = "multi_thread")]
async fn ae_01_to_ae_04_what_has_no_destination_goes_to_the_alternate() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    // a → b → c → a, all direct; only c leads somewhere.
    for (name, alternate) in [("a", "b"), ("b", "c"), ("c", "a"), ("lonely", "missing")] {
        declare(&channel, name, "direct", PLAIN, &[("alternate-exchange", alternate)]).await;
    }
    for queue in ["of-a", "of-c", "further"] {
        declare_quorum(&channel, queue).await;
    }
    bind(&channel, "a", "here", "of-a").await;
    bind(&channel, "c", "there", "of-c").await;
    bind(&channel, "c", "further", "further").await;
    assert!(routed(&channel, "a", "here", persistent()).await);
    assert!(routed(&channel, "a", "there", persistent()).await, "AE-04: no return");
    assert!(!routed(&channel, "a", "nowhere", persistent()).await, "AE-02");
    assert!(!routed(&channel, "lonely", "here", persistent()).await, "AE-03");
    // RTE-09, AE-02: the alternate sees the further keys too, the headers are as they were.
    let further = AMQPValue::LongString("further".into());
    let mut headers = FieldTable::default();
    headers.insert("BCC".into(), AMQPValue::FieldArray(FieldArray::from(vec![further])));
    assert!(routed(&channel, "a", "nowhere", persistent().with_headers(headers)).await);
    assert_eq!(all(&channel, "of-a").await, ["here"]);
    assert_eq!(all(&channel, "of-c").await, ["there"]);
    assert_eq!(all(&channel, "further").await, ["nowhere"]);
    // AE-01: a binding to an exchange is a destination, even if that leads to no queue.
    declare(&channel, "blind", "fanout", PLAIN, &[]).await;
    lead(&channel, "a", "blind", "blind").await;
    assert!(!routed(&channel, "a", "blind", persistent()).await);
    // ARG-17, AE-03: one that comes later is used from then on.
    declare(&channel, "missing", "fanout", INTERNAL, &[]).await;
    bind(&channel, "missing", "", "of-c").await;
    assert!(routed(&channel, "lonely", "here", persistent()).await);
    let listed = cluster.ctl(1, &["-q", "list_exchanges", "name", "arguments"]).await;
    let listed = listed.succeeded().expect("a list");
    let shown =
        listed.lines().iter().any(|line| line.starts_with("lonely") && line.contains("missing"));
    assert!(shown, "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exc_09_and_exq_06_an_auto_delete_exchange_goes_with_its_last_binding() {
    let cluster = Cluster::start(1, Options::default()).await;
    let uri = cluster.amqp_uri(1);
    let (_connection, channel) = open(&uri).await;
    for name in ["outer", "inner", "never-bound"] {
        declare(&channel, name, "fanout", AUTO_DELETE, &[]).await;
    }
    lead(&channel, "outer", "", "inner").await;
    {
        let (owner, own) = open(&uri).await;
        let declared = own.queue_declare("".into(), exclusive(), FieldTable::default()).await;
        let queue = declared.expect("declare-ok").name().clone();
        bind(&own, "inner", "", queue.as_str()).await;
        assert!(exists(&uri, "inner").await);
        owner.close(200, "bye".into()).await.expect("close-ok");
    }
    // The queue went with its connection, and both exchanges with it.
    quorate_cluster_tests::harness::wait::eventually("both exchanges go", async || {
        match (exists(&uri, "inner").await, exists(&uri, "outer").await) {
            (false, false) => Ok(()),
            there => Err(format!("{there:?}")),
        }
    })
    .await;
    assert!(exists(&uri, "never-bound").await);
    declare_quorum(&channel, "q").await;
    bind(&channel, "never-bound", "", "q").await;
    channel.queue_delete("q".into(), QueueDeleteOptions::default()).await.expect("deleted");
    assert!(!exists(&uri, "never-bound").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn exc_14_a_key_leads_to_the_same_queue_from_every_node() {
    const KEYS: usize = 90;
    let cluster = Cluster::start(3, Options::default()).await;
    let (_one, channel) = open(&cluster.amqp_uri(1)).await;
    declare(&channel, "hashed", "x-consistent-hash", PLAIN, &[]).await;
    declare(&channel, "random", "x-random", PLAIN, &[]).await;
    let queues = ["q1", "q2", "q3"];
    for queue in queues {
        declare_quorum(&channel, queue).await;
        bind(&channel, "hashed", "10", queue).await;
        bind(&channel, "random", "", queue).await;
    }
    let (_two, other) = open_confirming(&cluster.amqp_uri(2)).await;
    let (_three, third) = open_confirming(&cluster.amqp_uri(3)).await;
    for key in 0..KEYS {
        for publisher in [&other, &third] {
            assert!(routed(publisher, "hashed", &key.to_string(), persistent()).await);
        }
    }
    let mut seen = BTreeSet::new();
    for queue in queues {
        let bodies = all(&channel, queue).await;
        let keys: BTreeSet<_> = bodies.iter().cloned().collect();
        assert_eq!(bodies.len(), 2 * keys.len(), "{queue}: each key twice");
        assert!(keys.len() > KEYS / 6, "{queue} has its share: {}", keys.len());
        seen.extend(keys);
    }
    assert_eq!(seen.len(), KEYS);
    for key in 0..KEYS {
        assert!(routed(&other, "random", &key.to_string(), persistent()).await);
    }
    let mut count = 0;
    for queue in queues {
        let bodies = all(&channel, queue).await;
        assert!(!bodies.is_empty(), "EXC-15: {queue} has some");
        count += bodies.len();
    }
    assert_eq!(count, KEYS, "EXC-15: one queue each");
    // The weight is checked when it is bound, with a text of its own.
    let options = QueueBindOptions::default();
    let bad =
        channel.queue_bind("q1".into(), "hashed".into(), "many".into(), options, texts(&[])).await;
    let bad = bad.expect_err("refused");
    assert_eq!(code(&bad), Some(406));
    assert!(bad.to_string().contains("The binding key must be an integer"), "{bad}");
    let listed = cluster.ctl(2, &["-q", "list_exchanges"]).await.succeeded().expect("a list");
    assert!(listed.lines().contains(&"hashed\tx-consistent-hash"), "{listed:?}");
}

/// EXC-15: a publish goes to one of the queues whose leader is on the publisher's node.
#[tokio::test(flavor = "multi_thread")]
async fn exc_15_a_local_random_exchange_stays_on_the_publishers_node() {
    const MESSAGES: usize = 40;
    let cluster = Cluster::start(3, Options::default()).await;
    cluster.leaders_rest().await;
    let (_one, channel) = open(&cluster.amqp_uri(1)).await;
    declare(&channel, "near", "x-local-random", PLAIN, &[]).await;
    // Each led by the node that it is declared on, as long as that leads a group.
    let mut queues = Vec::new();
    for node in [1, 1, 2] {
        let queue = format!("near-{}", queues.len());
        let (_connection, declaring) = open(&cluster.amqp_uri(node)).await;
        declare_with(&declaring, &queue, &[("x-queue-type", text("classic"))]).await;
        bind(&channel, "near", "", &queue).await;
        queues.push(queue);
    }
    let mut leaders = Vec::new();
    for queue in &queues {
        leaders.push(cluster.leader_of(queue).await);
    }
    for node in 1..=3 {
        let (_connection, publisher) = open_confirming(&cluster.amqp_uri(node)).await;
        let local = leaders.iter().filter(|leader| **leader == node).count();
        for key in 0..MESSAGES {
            let routed = routed(&publisher, "near", &key.to_string(), persistent()).await;
            assert_eq!(routed, local > 0, "node {node} of {leaders:?}");
        }
        for (queue, leader) in queues.iter().zip(&leaders) {
            let found = all(&channel, queue).await.len();
            let expected = if *leader != node {
                0..=0
            } else if local == 1 {
                MESSAGES..=MESSAGES
            } else {
                1..=MESSAGES - 1
            };
            assert!(expected.contains(&found), "{queue}: {found}, node {node} of {leaders:?}");
        }
    }
    declare_quorum(&channel, "quorum").await;
    let options = QueueBindOptions::default();
    let bad = channel.queue_bind("quorum".into(), "near".into(), "".into(), options, texts(&[]));
    let bad = bad.await.expect_err("refused");
    assert_eq!(code(&bad), Some(406));
    assert!(bad.to_string().contains("Queue type rabbit_quorum_queue not valid"), "{bad}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pub_01_the_exchange_comes_before_what_the_message_is_refused_for() {
    let cluster = Cluster::start(1, Options::default()).await;
    let uri = cluster.amqp_uri(1);
    let (_connection, channel) = open(&uri).await;
    declare(&channel, "inside", "fanout", INTERNAL, &[]).await;
    declare(&channel, "open", "fanout", PLAIN, &[]).await;
    let bad_expiration = || persistent().with_expiration(ShortString::from("abc"));
    let stranger = || persistent().with_user_id(ShortString::from("nobody"));
    let mut headers = FieldTable::default();
    headers.insert("CC".into(), AMQPValue::LongString("text".into()));
    let bad_keys = || persistent().with_headers(headers.clone());
    for properties in [persistent(), bad_expiration(), stranger(), bad_keys()] {
        assert_eq!(refused(&uri, "nothing", properties.clone()).await, Some(404));
        assert_eq!(refused(&uri, "inside", properties).await, Some(403), "EXC-10");
    }
    for properties in [bad_expiration(), stranger(), bad_keys()] {
        assert_eq!(refused(&uri, "open", properties.clone()).await, Some(406));
        assert_eq!(refused(&uri, "", properties).await, Some(406));
    }
}
