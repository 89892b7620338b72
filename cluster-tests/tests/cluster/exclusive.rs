//! Exclusive queues live on their connection's node, in memory up to a budget (DESIGN §2 and §6).

#![expect(clippy::expect_used, reason = "tests")]

use lapin::options::BasicGetOptions;
use lapin::types::FieldTable;
use quorate_cluster_tests::harness::amqp::{exclusive, open_confirming, persistent};
use quorate_cluster_tests::harness::{Cluster, Options, figure};

#[tokio::test(flavor = "multi_thread")]
async fn bodies_beyond_the_budget_are_on_disk_and_come_back_in_order() {
    const MESSAGES: u32 = 8_192;
    const BODY_BYTES: usize = 16 << 10;
    let args = ["--exclusive-memory-bytes".to_owned(), "1MiB".to_owned()];
    let cluster = Cluster::start(1, Options { args: args.into(), ..Options::default() }).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let queue = channel.queue_declare("".into(), exclusive(), FieldTable::default()).await;
    let queue = queue.expect("declare-ok").name().clone();
    let before = cluster.node(1).rss_bytes();
    for first in (0..MESSAGES).step_by(256) {
        let mut confirms = Vec::new();
        for number in first..first + 256 {
            let body: Vec<u8> = number.to_be_bytes().repeat(BODY_BYTES / 4);
            let properties = persistent();
            let sent =
                channel.basic_publish("".into(), queue.clone(), <_>::default(), &body, properties);
            confirms.push(sent.await.expect("sent"));
        }
        for confirm in confirms {
            assert!(confirm.await.expect("a confirm").is_ack());
        }
    }
    let grown = cluster.node(1).rss_bytes().saturating_sub(before);
    figure("128 MiB in an exclusive queue: memory grew by, MiB", grown >> 20);
    assert!(grown < 64 << 20, "memory grew by {grown} bytes");
    for number in 0..MESSAGES {
        let got = channel.basic_get(queue.clone(), BasicGetOptions { no_ack: true }).await;
        let got = got.expect("get").expect("a message");
        let body = &got.delivery.data;
        assert_eq!(*body, number.to_be_bytes().repeat(BODY_BYTES / 4), "message {number}");
    }
}
