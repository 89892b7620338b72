//! One publish, several queues: each deals with its own copy, by its own rules, and its publisher is told
//! about routing only (TTL-09, TTL-10, PUB-06, CNF-08).

#![expect(clippy::expect_used, reason = "tests")]

use lapin::options::{BasicGetOptions, BasicPublishOptions};
use lapin::{BasicProperties, Channel, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    bind, declare_exchange, declare_with, int, open_confirming, persistent, ready, text,
};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options};

const TTL: &str = "x-message-ttl";
const LENGTH: &str = "x-max-length";
const TYPES: [&str; 2] = ["classic", "quorum"];

fn expiring(ms: &str) -> BasicProperties {
    persistent().with_expiration(ms.into())
}

/// The expiration with which the next message comes.
async fn expiration(channel: &Channel, queue: &str) -> Option<String> {
    let got = channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await;
    let got = got.expect("get-ok").expect("a message");
    got.delivery.properties.expiration().as_ref().map(ToString::to_string)
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_09_ttl_10_each_queue_applies_its_own_time_to_its_copy() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_exchange(&channel, "spread", ExchangeKind::Fanout).await;
    for queue_type in TYPES {
        let of_type = ("x-queue-type", text(queue_type));
        for (queue, ttl) in [("soon", Some(150)), ("late", Some(600_000)), ("never", None)] {
            let queue = format!("{queue}-{queue_type}");
            let ttl = ttl.map(|ms| (TTL, int(ms)));
            let with: Vec<_> = ttl.into_iter().chain([of_type.clone()]).collect();
            declare_with(&channel, &queue, &with).await;
            bind(&channel, &queue, "spread", "").await;
        }
    }
    let publish = async |properties: BasicProperties| {
        let options = BasicPublishOptions::default();
        let sent = channel.basic_publish("spread".into(), "".into(), options, b"m", properties);
        assert!(sent.await.expect("sent").await.expect("a confirm").is_ack());
    };
    publish(expiring("300000")).await;
    publish(persistent()).await;
    for queue_type in TYPES {
        let soon = format!("soon-{queue_type}");
        eventually("its copies die", || async {
            let found = ready(&connection, &soon).await;
            hold(found == Ok(0), || format!("{found:?}"))
        })
        .await;
        for queue in [format!("late-{queue_type}"), format!("never-{queue_type}")] {
            // TTL-09: not what is left of it, though some time has passed.
            assert_eq!(expiration(&channel, &queue).await.as_deref(), Some("300000"), "{queue}");
            assert_eq!(expiration(&channel, &queue).await, None, "{queue}");
        }
    }
}

/// PUB-06: routed is routed, whatever the queue makes of it.
#[tokio::test(flavor = "multi_thread")]
async fn pub_06_what_a_queue_drops_or_refuses_is_not_returned() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue_type in TYPES {
        let of_type = ("x-queue-type", text(queue_type));
        for (queue, with, taken) in [
            ("expires", vec![(TTL, int(0))], true),
            ("drops", vec![(LENGTH, int(0))], true),
            ("refuses", vec![(LENGTH, int(0)), ("x-overflow", text("reject-publish"))], false),
        ] {
            let queue = format!("{queue}-{queue_type}");
            declare_with(&channel, &queue, &[&with[..], std::slice::from_ref(&of_type)].concat())
                .await;
            let options = BasicPublishOptions { mandatory: true, ..<_>::default() };
            let key = queue.as_str().into();
            let sent = channel.basic_publish("".into(), key, options, b"m", persistent()).await;
            let confirm = sent.expect("sent").await.expect("a confirm");
            assert_eq!((confirm.is_ack(), confirm.is_nack()), (taken, !taken), "{queue}");
            assert!(confirm.take_message().is_none(), "{queue}: it was returned");
            assert_eq!(ready(&connection, &queue).await, Ok(0));
        }
    }
    let returned = channel.wait_for_confirms().await.expect("all are confirmed");
    assert!(returned.is_empty(), "{returned:?}");
}
