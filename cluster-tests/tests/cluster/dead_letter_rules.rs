//! Dead letters rule by rule: every way to die, what ends without a death, what a letter keeps of its
//! message, and how a target takes it (DLX, TTL-08, TTL-11, DEL-05, Q-40 to Q-45).

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions, QueueDeleteOptions,
    QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldArray, FieldTable};
use lapin::{BasicProperties, ExchangeKind};
use quorate_cluster_tests::harness::amqp::{
    arguments, bind, declare_exchange, declare_quorum, declare_with, get, headers, int, open,
    open_confirming, persistent, publish_confirmed, publish_with, ready, text,
};
use quorate_cluster_tests::harness::dead_letters::{arrives, death, deaths, reject_one};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options, ctl};
use std::time::Duration;

const DLX: &str = "x-dead-letter-exchange";
const DLX_KEY: &str = "x-dead-letter-routing-key";
const STRATEGY: &str = "x-dead-letter-strategy";
const LENGTH: &str = "x-max-length";
const OVERFLOW: &str = "x-overflow";
const TTL: &str = "x-message-ttl";
const TYPES: [&str; 2] = ["classic", "quorum"];

/// Arguments by which dead letters go straight to this queue, and further ones.
fn leading_to(queue: &str, with: &[(&'static str, AMQPValue)]) -> Vec<(&'static str, AMQPValue)> {
    [&[(DLX, text("")), (DLX_KEY, text(queue))], with].concat()
}

fn of_type(queue_type: &str) -> (&'static str, AMQPValue) {
    ("x-queue-type", text(queue_type))
}

async fn ctl(cluster: &Cluster, args: &[&str]) {
    let output = cluster.ctl(1, args).await;
    assert_eq!(output.code, 0, "{args:?}: {output:?}");
}

/// Waits until the queue has so many messages in all.
async fn holds(cluster: &Cluster, queue: &str, count: u64) {
    eventually(&format!("'{queue}' has {count} messages"), || async {
        let [found] = cluster.counts(1, queue, ["messages"]).await?;
        hold(found == count, || format!("{found}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dlx_01_ttl_08_every_way_to_die_has_its_reason() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue_type in TYPES {
        let dead = format!("dead-{queue_type}");
        declare_quorum(&channel, &dead).await;
        for (reason, with) in [
            ("rejected", vec![]),
            ("expired", vec![(TTL, int(50))]),
            ("maxlen", vec![(LENGTH, int(0))]),
            ("delivery_limit", vec![("x-delivery-limit", int(0))]),
        ] {
            let queue = format!("{reason}-{queue_type}");
            let with = [&leading_to(&dead, &with)[..], &[of_type(queue_type)]].concat();
            declare_with(&channel, &queue, &with).await;
            publish_confirmed(&channel, &queue, reason.as_bytes()).await;
            match reason {
                "rejected" => reject_one(&channel, &queue).await,
                "delivery_limit" => {
                    let got = channel.basic_get(queue.as_str().into(), BasicGetOptions::default());
                    let got = got.await.expect("get-ok").expect("a message");
                    let requeue = BasicNackOptions { requeue: true, ..<_>::default() };
                    got.delivery.nack(requeue).await.expect("sent");
                }
                // These die by themselves.
                _ => {}
            }
            let letter = arrives(&channel, &dead).await;
            assert_eq!(letter.data, reason.as_bytes());
            assert_eq!(deaths(&letter.properties), [death(&queue, reason, 1)]);
            for header in ["x-first-death-reason", "x-last-death-reason"] {
                assert_eq!(headers(&letter.properties)[header], text(reason));
            }
            assert!(!letter.redelivered, "DLX-38, Q-43");
        }
    }
}

/// Messages that have died, of whatever reason.
async fn deaths_counted(cluster: &Cluster) -> f64 {
    let mut died = 0.0;
    for node in cluster.nodes() {
        let counts = node.metrics().await.counts();
        for (key, count) in counts {
            let reason = key.strip_prefix("rabbitmq_global_messages_dead_lettered_");
            if reason.is_some_and(|reason| !reason.starts_with("confirmed")) {
                died += count;
            }
        }
    }
    died
}

/// DLX-02: what is purged, deleted, expired with its queue, refused, unroutable or acked is gone. Letters
/// of one queue come in the order of death (Q-40), so one that died last comes first; those of another
/// might still be under way, and are counted.
#[tokio::test(flavor = "multi_thread")]
async fn dlx_02_del_05_del_09_what_ends_otherwise_is_no_dead_letter() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "dead").await;
    for queue_type in TYPES {
        let before = deaths_counted(&cluster).await;
        let kind = of_type(queue_type);
        let refusing = [(LENGTH, int(1)), (OVERFLOW, text("reject-publish")), kind.clone()];
        let declare = async || declare_with(&channel, "ends", &leading_to("dead", &refusing)).await;
        declare().await;
        publish_confirmed(&channel, "ends", b"purged").await;
        assert!(!publish_with(&channel, "ends", b"refused", persistent()).await);
        // DEL-09: and its publishers may go on.
        let purged = channel.queue_purge("ends".into(), QueuePurgeOptions::default()).await;
        assert_eq!(purged.expect("purge-ok"), 1);
        publish_confirmed(&channel, "ends", b"acked").await;
        let got = channel.basic_get("ends".into(), BasicGetOptions::default()).await;
        let got = got.expect("get-ok").expect("a message");
        got.delivery.ack(BasicAckOptions::default()).await.expect("sent");
        assert_eq!(ready(&connection, "ends").await, Ok(0));
        // Deleted with one ready and one held.
        publish_confirmed(&channel, "ends", b"held").await;
        let (_other, holder) = open(&cluster.amqp_uri(2)).await;
        let held = holder.basic_get("ends".into(), BasicGetOptions::default()).await;
        held.expect("get-ok").expect("a message");
        publish_confirmed(&channel, "ends", b"deleted").await;
        let deleted = channel.queue_delete("ends".into(), QueueDeleteOptions::default()).await;
        assert_eq!(deleted.expect("delete-ok"), 1);
        // Expired as a queue.
        let with = leading_to("dead", &[("x-expires", int(200)), kind]);
        declare_with(&channel, "lapses", &with).await;
        publish_confirmed(&channel, "lapses", b"lapsed").await;
        eventually("the queue lapses", || async {
            // By a list: a passive declare renews a classic queue's lease (Q-22).
            let rows = cluster.rows(1, &["list_queues", "name"]).await?;
            let there = rows.iter().any(|row| ctl::text(row, "name") == "lapses");
            hold(!there, || format!("{rows:?}"))
        })
        .await;
        assert_eq!(deaths_counted(&cluster).await, before, "nothing has died so far");
        declare().await;
        publish_confirmed(&channel, "ends", b"rejected").await;
        reject_one(&channel, "ends").await;
        assert_eq!(arrives(&channel, "dead").await.data, b"rejected");
        assert_eq!(get(&channel, "dead").await, None);
        // A page of metrics may be shown again for up to a second.
        eventually("the death is counted", || async {
            let counted = deaths_counted(&cluster).await;
            hold(counted == before + 1.0, || format!("{counted}, not one more than {before}"))
        })
        .await;
        channel.queue_delete("ends".into(), QueueDeleteOptions::default()).await.expect("gone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dlx_04_where_letters_go_without_a_key_and_without_an_exchange() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue in ["q", "dead"] {
        declare_quorum(&channel, queue).await;
    }
    // A key alone dead-letters nothing; as an argument it is refused (ARG-12).
    ctl(&cluster, &["set_policy", "p", "^q$", r#"{"dead-letter-routing-key":"dead"}"#]).await;
    publish_confirmed(&channel, "q", b"dropped").await;
    reject_one(&channel, "q").await;
    holds(&cluster, "q", 0).await;
    // The default exchange, without a key: the queue named by the message's own key.
    ctl(&cluster, &["set_policy", "p", "^q$", r#"{"dead-letter-exchange":""}"#]).await;
    publish_confirmed(&channel, "q", b"round").await;
    reject_one(&channel, "q").await;
    let again = arrives(&channel, "q").await;
    assert_eq!(
        (again.data.as_slice(), deaths(&again.properties)),
        (&b"round"[..], vec![death("q", "rejected", 1)])
    );
    let both = r#"{"dead-letter-exchange":"","dead-letter-routing-key":"dead"}"#;
    ctl(&cluster, &["set_policy", "p", "^q$", both]).await;
    publish_confirmed(&channel, "q", b"kept").await;
    reject_one(&channel, "q").await;
    assert_eq!(arrives(&channel, "dead").await.data, b"kept");
    assert_eq!(get(&channel, "dead").await, None);
}

/// DLX-06: the exchange is looked up at each death; DLX-11: what cannot be routed then is dropped, and
/// DLX-08: its publisher, who has its confirm, is told nothing.
#[tokio::test(flavor = "multi_thread")]
async fn dlx_06_dlx_08_dlx_11_an_exchange_that_comes_later_counts_from_then_on() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "dead").await;
    declare_with(&channel, "q", &[(DLX, text("later"))]).await;
    let publish = async |body: &[u8]| {
        let options = BasicPublishOptions { mandatory: true, ..<_>::default() };
        let sent = channel.basic_publish("".into(), "q".into(), options, body, persistent()).await;
        let confirm = sent.expect("sent").await.expect("a confirm");
        assert!(confirm.is_ack() && confirm.take_message().is_none());
        reject_one(&channel, "q").await;
        holds(&cluster, "q", 0).await;
    };
    publish(b"no exchange").await;
    declare_exchange(&channel, "later", ExchangeKind::Direct).await;
    publish(b"no binding").await;
    bind(&channel, "dead", "later", "q").await;
    publish(b"routed").await;
    assert_eq!(arrives(&channel, "dead").await.data, b"routed");
    assert_eq!(get(&channel, "dead").await, None);
    let returned = channel.wait_for_confirms().await.expect("all are confirmed");
    assert!(returned.is_empty(), "{returned:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dlx_13_letters_come_in_the_order_of_death() {
    const MESSAGES: u8 = 40;
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue_type in TYPES {
        let [source, dead] = ["source", "dead"].map(|role| format!("{role}-{queue_type}"));
        declare_quorum(&channel, &dead).await;
        let with = leading_to(&dead, &[of_type(queue_type)]);
        declare_with(&channel, &source, &with).await;
        for number in 0..MESSAGES {
            publish_confirmed(&channel, &source, &[number]).await;
        }
        let mut got = Vec::new();
        for _ in 0..MESSAGES {
            let one = channel.basic_get(source.as_str().into(), BasicGetOptions::default()).await;
            got.push(one.expect("get-ok").expect("a message").delivery);
        }
        // The second half one by one, last first; then the first half in one go, in its order (ACK-07).
        let half = got.len() / 2;
        for delivery in got[half..].iter().rev() {
            delivery.nack(BasicNackOptions::default()).await.expect("sent");
        }
        let multiple = BasicNackOptions { multiple: true, requeue: false };
        got[half - 1].nack(multiple).await.expect("sent");
        let half = u8::try_from(half).expect("few");
        for number in (half..MESSAGES).rev().chain(0..half) {
            assert_eq!(arrives(&channel, &dead).await.data, [number], "{queue_type}");
        }
    }
}

/// DLX-20: letters that wait survive a restart, in their order; DLX-22: and do not expire.
#[tokio::test(flavor = "multi_thread")]
async fn dlx_20_dlx_22_letters_that_wait_do_not_expire_and_survive_a_restart() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let with = [
        of_type("quorum"),
        (DLX, text("later")),
        (STRATEGY, text("at-least-once")),
        (TTL, int(100)),
    ];
    declare_with(&channel, "keeps", &with).await;
    let bodies = [b"first", b"other", b"third"];
    for body in bodies {
        publish_confirmed(&channel, "keeps", body).await;
    }
    eventually("all have expired, and wait", || async {
        let columns = ["messages", "messages_ready", "messages_dead_letters_waiting"];
        let found = cluster.counts(1, "keeps", columns).await?;
        hold(found == [3, 0, 3], || format!("{found:?}"))
    })
    .await;
    // Longer than their time to live once more.
    tokio::time::sleep(Duration::from_millis(250)).await;
    cluster.node(1).kill9();
    cluster.node(1).restart().await;
    holds(&cluster, "keeps", 3).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "dead").await;
    declare_exchange(&channel, "later", ExchangeKind::Fanout).await;
    bind(&channel, "dead", "later", "").await;
    for body in bodies {
        let letter = arrives(&channel, "dead").await;
        assert_eq!(letter.data, body);
        assert_eq!(deaths(&letter.properties), [death("keeps", "expired", 1)]);
    }
    holds(&cluster, "keeps", 0).await;
}

fn keys(keys: &[&str]) -> AMQPValue {
    AMQPValue::FieldArray(FieldArray::from(keys.iter().map(|key| text(key)).collect::<Vec<_>>()))
}

#[tokio::test(flavor = "multi_thread")]
async fn dlx_33_dlx_25_pri_04_everything_else_is_kept() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_exchange(&channel, "dlx", ExchangeKind::Direct).await;
    declare_with(&channel, "q", &[(DLX, text("dlx"))]).await;
    // Without a key in force all keys of the publish route, CC and BCC too (Q-42, DLX-23).
    for (queue, key) in [("by-key", "q"), ("by-cc", "copy"), ("by-bcc", "blind")] {
        declare_quorum(&channel, queue).await;
        bind(&channel, queue, "dlx", key).await;
    }
    let table = [("mine", int(7)), ("CC", keys(&["copy"])), ("BCC", keys(&["blind"]))];
    let sent = BasicProperties::default()
        .with_content_type("text/plain".into())
        .with_content_encoding("identity".into())
        .with_headers(arguments(&table))
        .with_delivery_mode(1)
        // PRI-04: larger than any level, and kept.
        .with_priority(200)
        .with_correlation_id("correlation".into())
        .with_reply_to("reply".into())
        .with_message_id("message".into())
        .with_timestamp(1_234_567_890)
        .with_type("type".into())
        .with_user_id("guest".into())
        .with_app_id("app".into())
        .with_cluster_id("cluster".into());
    assert!(publish_with(&channel, "q", b"body", sent.clone()).await);
    reject_one(&channel, "q").await;
    for queue in ["by-key", "by-cc", "by-bcc"] {
        let letter = arrives(&channel, queue).await;
        assert_eq!(letter.data, b"body");
        assert_eq!(letter.routing_key.as_str(), "q", "DLX-24");
        let headers = headers(&letter.properties);
        assert_eq!((&headers["mine"], &headers["CC"]), (&int(7), &keys(&["copy"])), "DLX-25");
        assert!(!headers.contains_key("BCC"), "BCC is seen by nobody");
        let without_headers =
            |properties: &BasicProperties| properties.clone().with_headers(FieldTable::default());
        assert_eq!(without_headers(&letter.properties), without_headers(&sent), "{queue}");
    }
    // PRP-11: nothing is added either: one without a timestamp comes without.
    publish_confirmed(&channel, "q", b"bare").await;
    reject_one(&channel, "q").await;
    let bare = arrives(&channel, "by-key").await.properties;
    assert_eq!((bare.timestamp(), bare.message_id()), (&None, &None));
}

#[tokio::test(flavor = "multi_thread")]
async fn dlx_34_prp_10_a_history_that_a_client_made_up_is_replaced_at_the_first_death() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "dead").await;
    declare_with(&channel, "q", &leading_to("dead", &[])).await;
    let made_up = [("queue", text("dead")), ("reason", text("expired")), ("count", int(9))];
    let made_up = AMQPValue::FieldTable(arguments(&made_up));
    let table = [
        ("x-death", AMQPValue::FieldArray(FieldArray::from(vec![made_up]))),
        ("x-first-death-queue", text("made up")),
        ("x-last-death-reason", text("made up")),
        ("x-delivery-count", int(77)),
    ];
    let properties = persistent().with_headers(arguments(&table));
    assert!(publish_with(&channel, "q", b"m", properties.clone()).await);
    let got = channel.basic_get("q".into(), BasicGetOptions::default()).await;
    let got = got.expect("get-ok").expect("a message").delivery;
    assert_eq!(got.properties, properties, "as published until then");
    got.nack(BasicNackOptions::default()).await.expect("sent");
    // And it makes no cycle: the letter goes to a queue that the made-up history names.
    let letter = arrives(&channel, "dead").await;
    assert_eq!(deaths(&letter.properties), [death("q", "rejected", 1)]);
    let headers = headers(&letter.properties);
    assert_eq!(headers["x-first-death-queue"], text("q"));
    assert_eq!(headers["x-last-death-reason"], text("rejected"));
}

/// DLX-39: its own time to live, length and levels, from arrival on, on both types; TTL-11: a time to live
/// of the message's own is gone.
#[tokio::test(flavor = "multi_thread")]
async fn dlx_39_ttl_11_a_target_takes_a_letter_as_a_new_message() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let expiring = |ms: &str| persistent().with_expiration(ms.into());
    for queue_type in TYPES {
        let of = |role: &str| format!("{role}-{queue_type}");
        let kind = of_type(queue_type);
        let plain = [kind.clone()];
        // Its own expiration has done its work: where it is now it stays.
        declare_with(&channel, &of("stays"), &plain).await;
        declare_with(&channel, &of("to-stays"), &leading_to(&of("stays"), &plain)).await;
        assert!(publish_with(&channel, &of("to-stays"), b"stays", expiring("100")).await);
        holds(&cluster, &of("stays"), 1).await;
        // The target's time counts from the arrival.
        declare_with(&channel, &of("end"), &plain).await;
        let lapsing = leading_to(&of("end"), &[kind.clone(), (TTL, int(150))]);
        declare_with(&channel, &of("lapses"), &lapsing).await;
        declare_with(&channel, &of("to-lapses"), &leading_to(&of("lapses"), &plain)).await;
        assert!(publish_with(&channel, &of("to-lapses"), b"lapses", expiring("60000")).await);
        reject_one(&channel, &of("to-lapses")).await;
        let letter = arrives(&channel, &of("end")).await;
        let history = [death(&of("lapses"), "expired", 1), death(&of("to-lapses"), "rejected", 1)];
        assert_eq!(deaths(&letter.properties), history);
        assert_eq!(letter.properties.expiration(), &None, "DLX-31");
        let stayed = arrives(&channel, &of("stays")).await;
        assert_eq!(stayed.properties.expiration(), &None);
        // Its length and its levels.
        let short = [kind.clone(), (LENGTH, int(2)), ("x-max-priority", int(5))];
        declare_with(&channel, &of("short"), &short).await;
        declare_with(&channel, &of("to-short"), &leading_to(&of("short"), &plain)).await;
        for (body, priority) in [(b"a", 1), (b"b", 5), (b"c", 3)] {
            let properties = persistent().with_priority(priority);
            assert!(publish_with(&channel, &of("to-short"), body, properties).await);
            reject_one(&channel, &of("to-short")).await;
            holds(&cluster, &of("to-short"), 0).await;
        }
        // The third one was too many: the head made way (PRI-08).
        for body in [b"c", b"a"] {
            assert_eq!(arrives(&channel, &of("short")).await.data, body, "{queue_type}");
        }
    }
}

/// Q-41: under either strategy a letter waits for a target that is full, and the others have theirs.
#[tokio::test(flavor = "multi_thread")]
async fn q_41_a_letter_waits_for_a_full_target_and_holds_up_no_other() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for strategy in ["at-most-once", "at-least-once"] {
        let [source, spread, full, free] =
            ["source", "spread", "full", "free"].map(|role| format!("{role}-{strategy}"));
        declare_exchange(&channel, &spread, ExchangeKind::Fanout).await;
        declare_with(&channel, &source, &[(DLX, text(&spread)), (STRATEGY, text(strategy))]).await;
        declare_with(&channel, &full, &[(LENGTH, int(1)), (OVERFLOW, text("reject-publish"))])
            .await;
        declare_quorum(&channel, &free).await;
        for target in [&full, &free] {
            bind(&channel, target, &spread, "").await;
        }
        publish_confirmed(&channel, &full, b"there first").await;
        for body in [b"1", b"2"] {
            publish_confirmed(&channel, &source, body).await;
            reject_one(&channel, &source).await;
        }
        for body in [b"1", b"2"] {
            assert_eq!(arrives(&channel, &free).await.data, body);
        }
        eventually("LEN-13", || async {
            let counts = cluster.counts(1, &full, ["messages"]).await?;
            hold(counts == [1], || format!("{counts:?}"))
        })
        .await;
        for body in [&b"there first"[..], b"1", b"2"] {
            assert_eq!(arrives(&channel, &full).await.data, body, "{strategy}");
        }
        holds(&cluster, &source, 0).await;
    }
}
