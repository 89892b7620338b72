//! Clients that take what they are sent, but hardly: what waits for them is memory too, and others are
//! to get theirs all the same (security review, A2 and B10).

#![expect(clippy::expect_used, reason = "tests")]

use crate::attacks::{MIB, count, filled, full, lives_through, small};
use crate::browse::GUEST;
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, get, open, open_confirming, publish_confirmed,
};
use quorate_cluster_tests::harness::http;
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::wire::{self, Wire};
use quorate_cluster_tests::harness::{Node, figure};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Within this time a client that reads gets an answer, if the machine is not slow: those that hardly read are
/// dropped two to three seconds after they have begun to hold more than there is room for.
const ANSWER_BOUND: Duration = Duration::from_secs(10);

/// Shows the longest answer, and judges it where that says something of the node.
fn tells(what: &str, longest: Duration) {
    figure(what, longest);
    assert!(!full() || longest < ANSWER_BOUND, "{what}: {longest:?}");
}

/// Takes one frame a second, so that something has always moved.
async fn hardly_reads(node: &Node) {
    let mut wire = Wire::open_channel_narrow(&node.amqp_address()).await;
    // A prefetch of one: each has a message of its own.
    wire.method(1, 60, 10, &[0, 0, 0, 0, 0, 1, 0]).await;
    wire.method(1, 60, 20, &wire::basic_consume("unread", false)).await;
    while wire.within(ANSWER_BOUND).await.is_some() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a2_clients_that_hardly_read_leave_others_theirs() {
    lives_through("A2, clients that hardly read", small(), async |node| {
        filled(node, "unread", count(24, 80), &[]).await;
        filled(node, "read", 7, &[]).await;
        let (_connection, channel) = open(&node.amqp_uri()).await;
        assert!(get(&channel, "read").await.is_some());
        let honest = async {
            // The others have begun.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut longest = Duration::ZERO;
            for _ in 0..6 {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let asked = Instant::now();
                let got = in_time("a get", get(&channel, "read")).await;
                assert_eq!(got.expect("a message").len(), 8 * MIB);
                longest = longest.max(asked.elapsed());
            }
            tells("beside clients that hardly read, longest get", longest);
            eventually("who holds too much is dropped", || async {
                let metrics = node.metrics().await;
                let held = metrics.sum("quorate_memory_held_bytes");
                let dropped = metrics.sum("quorate_memory_refusals_total");
                figure(
                    "beside clients that hardly read, bytes held, clients dropped",
                    (held, dropped),
                );
                hold(dropped.is_some_and(|dropped| dropped > 0.0), || "nobody held too much".into())
            })
            .await;
        };
        let attack = futures::future::join_all((0..count(12, 40)).map(|_| hardly_reads(node)));
        // Those who are dropped do not come back; the one who reads gets everything.
        let mut honest = std::pin::pin!(honest);
        tokio::select! {
            () = &mut honest => {}
            _ = attack => honest.await,
        }
    })
    .await;
}

/// Asks for a page of messages, and reads nothing of it.
async fn reads_no_page(node: &Node) -> Option<TcpStream> {
    let mut socket = TcpStream::connect(node.http_address()).await.ok()?;
    let request = format!("GET {PAGE} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic {GUEST}\r\n\r\n");
    socket.write_all(request.as_bytes()).await.ok()?;
    Some(socket)
}

/// A page with a body that is six times as long in JSON.
const PAGE: &str = "/api/quorate/queues/%2F/controls/messages?truncate=4194304";

#[tokio::test(flavor = "multi_thread")]
async fn a2_pages_that_nobody_reads_leave_others_theirs() {
    lives_through("A2, pages that nobody reads", small(), async |node| {
        let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
        declare_quorum(&channel, "controls").await;
        publish_confirmed(&channel, "controls", &vec![1; 4 * MIB]).await;
        let mut unread = Vec::new();
        let mut longest = Duration::ZERO;
        for _ in 0..count(6, 12) {
            for _ in 0..4 {
                unread.push(reads_no_page(node).await);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            let asked = Instant::now();
            let address = node.http_address();
            let page = http::get_as_guest(&address, PAGE, "guest");
            let page = in_time("a page", page).await.expect("a page");
            assert_eq!(page.status, 200, "{}", page.body.chars().take(200).collect::<String>());
            longest = longest.max(asked.elapsed());
        }
        tells("beside pages that nobody reads, longest page", longest);
        unread
    })
    .await;
}
