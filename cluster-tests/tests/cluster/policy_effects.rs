//! What policies do to what clients see: the lower of several limits, an operator's hand on a queue, the
//! alternate exchange (LEN-01, OPP-04, AE-05, POL-07, CTL-02).

#![expect(clippy::expect_used, reason = "tests")]

use lapin::options::{BasicPublishOptions, ExchangeDeclareOptions};
use lapin::types::AMQPValue;
use lapin::{Channel, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    arguments, bind, code, declare_exchange, declare_quorum, declare_with, durable, get, int, open,
    open_confirming, persistent, publish_confirmed, publish_with, ready, text,
};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options};

const LENGTH: &str = "x-max-length";
const TYPES: [&str; 2] = ["classic", "quorum"];

async fn ctl(cluster: &Cluster, args: &[&str]) -> String {
    let output = cluster.ctl(2, args).await;
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args:?}: {output:?}");
    output.stdout
}

async fn all(channel: &Channel, queue: &str) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while let Some(body) = get(channel, queue).await {
        bodies.push(body);
    }
    bodies
}

/// LEN-01: the smallest of argument, policy and operator policy; 0 lets nothing stay.
#[tokio::test(flavor = "multi_thread")]
async fn len_01_the_smallest_of_all_limits_counts() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let declare = async |queue: &str, queue_type: &str, with: &[(&str, AMQPValue)]| {
        let with = [&[("x-queue-type", text(queue_type))], with].concat();
        declare_with(&channel, queue, &with).await;
    };
    for queue_type in TYPES {
        let queue = format!("limited-{queue_type}");
        declare(&queue, queue_type, &[(LENGTH, int(4))]).await;
        let fill = async || {
            for body in 0..6_u8 {
                publish_confirmed(&channel, &queue, &[body]).await;
            }
            ready(&connection, &queue).await.expect("it is there")
        };
        assert_eq!(fill().await, 4);
        // Each at once, on what is there (POL-09).
        let policy = ["set_policy", "p", "^limited", r#"{"max-length":3}"#];
        ctl(&cluster, &policy).await;
        assert_eq!(ready(&connection, &queue).await, Ok(3));
        let operators = r#"{"max-length":2,"max-length-bytes":1000}"#;
        ctl(&cluster, &["set_operator_policy", "o", "^limited", operators]).await;
        assert_eq!(ready(&connection, &queue).await, Ok(2));
        ctl(&cluster, &["set_policy", "p", "^limited", r#"{"max-length":9}"#]).await;
        assert_eq!(fill().await, 2);
        // Either of the two limits triggers.
        ctl(&cluster, &["set_operator_policy", "o", "^limited", r#"{"max-length-bytes":1}"#]).await;
        assert_eq!(all(&channel, &queue).await, [[5]]);
        ctl(&cluster, &["clear_operator_policy", "o"]).await;
        assert_eq!(fill().await, 4, "the argument's again");
        ctl(&cluster, &["clear_policy", "p"]).await;
        for limit in [LENGTH, "x-max-length-bytes"] {
            let none = format!("none-{limit}-{queue_type}");
            declare(&none, queue_type, &[(limit, int(0))]).await;
            publish_confirmed(&channel, &none, b"1").await;
            assert_eq!(ready(&connection, &none).await, Ok(0), "{none}");
        }
    }
}

/// OPP-04: it behaves as the operator wants, and is declared as its arguments say.
#[tokio::test(flavor = "multi_thread")]
async fn opp_04_an_operator_policy_is_felt_and_not_compared() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let operators = r#"{"max-length":2,"overflow":"reject-publish","delivery-limit":0}"#;
    ctl(&cluster, &["set_operator_policy", "o", "^q$", operators]).await;
    let with = [("x-queue-type", text("quorum")), (LENGTH, int(100))];
    declare_with(&channel, "q", &with).await;
    for taken in [true, true, false] {
        assert_eq!(publish_with(&channel, "q", b"m", persistent()).await, taken);
    }
    declare_with(&channel, "q", &with).await;
    let other = connection.create_channel().await.expect("open-ok");
    let as_the_operator = [("x-queue-type", text("quorum")), (LENGTH, int(2))];
    let declared = other.queue_declare("q".into(), durable(), arguments(&as_the_operator)).await;
    assert_eq!(code(&declared.expect_err("the argument is 100")), Some(406));
    // Its limit of deliveries: the first return is one too many.
    let (_other, returning) = open(&cluster.amqp_uri(3)).await;
    let got = returning.basic_get("q".into(), <_>::default()).await.expect("get-ok");
    let requeue = lapin::options::BasicNackOptions { requeue: true, ..<_>::default() };
    got.expect("a message").delivery.nack(requeue).await.expect("sent");
    eventually("it is given up", || async {
        let [messages] = cluster.counts(1, "q", ["messages"]).await?;
        hold(messages == 1, || format!("{messages} messages"))
    })
    .await;
}

/// Whether a mandatory publish is routed.
async fn routed(channel: &Channel, exchange: &str, body: &[u8]) -> bool {
    let options = BasicPublishOptions { mandatory: true, ..<_>::default() };
    let sent = channel.basic_publish(exchange.into(), "k".into(), options, body, persistent());
    let confirm = sent.await.expect("sent").await.expect("a confirm");
    assert!(confirm.is_ack(), "{confirm:?}");
    confirm.take_message().is_none()
}

/// AE-05: a policy names the alternate exchange, of exchanges that are there already too, until it is
/// cleared; an argument wins over it, and the default exchange has none.
#[tokio::test(flavor = "multi_thread")]
async fn ae_05_an_alternate_exchange_by_policy_routes() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let (_other, elsewhere) = open_confirming(&cluster.amqp_uri(3)).await;
    for (alternate, queue) in [("by-policy", "of-policy"), ("by-argument", "of-argument")] {
        declare_exchange(&channel, alternate, ExchangeKind::Fanout).await;
        declare_quorum(&channel, queue).await;
        bind(&channel, queue, alternate, "").await;
    }
    declare_exchange(&channel, "orders", ExchangeKind::Direct).await;
    let kind = ExchangeKind::Direct;
    let with = arguments(&[("alternate-exchange", text("by-argument"))]);
    let options = ExchangeDeclareOptions { durable: true, ..<_>::default() };
    let declared = channel.exchange_declare("orders-own".into(), kind, options, with);
    declared.await.expect("declare-ok");
    assert!(!routed(&channel, "orders", b"before").await);
    let definition = r#"{"alternate-exchange":"by-policy"}"#;
    let set = ["set_policy", "ae", "^(orders|$)", definition, "--apply-to", "exchanges"];
    ctl(&cluster, &set).await;
    for publisher in [&channel, &elsewhere] {
        assert!(routed(publisher, "orders", b"policy").await);
        assert!(routed(publisher, "orders-own", b"argument").await);
        assert!(!routed(publisher, "", b"default").await);
    }
    // CTL-02.
    let listed = ctl(&cluster, &["list_policies"]).await;
    let (banner, row) = ("Listing policies for vhost \"/\" ...", "/\tae\t^(orders|$)\texchanges\t");
    assert!(listed.starts_with(banner) && listed.contains(row), "{listed}");
    let cleared = ctl(&cluster, &["clear_policy", "ae"]).await;
    assert_eq!(cleared, "Clearing policy \"ae\" on vhost \"/\" ...\n");
    for publisher in [&channel, &elsewhere] {
        assert!(!routed(publisher, "orders", b"after").await);
        assert!(routed(publisher, "orders-own", b"argument").await);
    }
    assert_eq!(all(&channel, "of-policy").await, [b"policy"; 2]);
    assert_eq!(all(&channel, "of-argument").await, [b"argument"; 4]);
}
