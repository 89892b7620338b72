//! Bodies of every size, over many frames and all nodes (PUB-01, Q-05).

#![expect(clippy::expect_used, reason = "tests")]

use crate::attacks::{fan, small};
use lapin::options::BasicGetOptions;
use quorate_cluster_tests::harness::amqp::{
    code, declare_quorum, get, open, open_confirming, persistent, publish_confirmed,
};
use quorate_cluster_tests::harness::wait::in_time;
use quorate_cluster_tests::harness::wire::{self, Wire, frame};
use quorate_cluster_tests::harness::{Cluster, Options, figure, scale};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

const MIB: usize = 1 << 20;

fn body(bytes: usize) -> Vec<u8> {
    // Of a period that no frame or chunk has, so that pieces out of place show.
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_from_none_to_the_largest_go_through_all_nodes() {
    let mib = scale::BODY_MIB.get();
    let largest = MIB * usize::try_from(mib).expect("the size of a body");
    let args = ["--max-message-size".to_owned(), format!("{mib}MiB")];
    let cluster = Cluster::start(3, Options { args: args.into(), ..Options::alone() }).await;
    let (_one, declarer) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&declarer, "large").await;
    let (_two, publisher) = open_confirming(&cluster.amqp_uri(2)).await;
    let (_three, consumer) = open(&cluster.amqp_uri(3)).await;
    // A frame of 131,072 bytes has 131,064 of content.
    for bytes in [0, 1, 131_063, 131_064, 131_065, MIB, largest] {
        let sent = body(bytes);
        let begun = Instant::now();
        publish_confirmed(&publisher, "large", &sent).await;
        let published = begun.elapsed();
        let got = consumer.basic_get("large".into(), BasicGetOptions { no_ack: true }).await;
        let got = got.expect("get").expect("a message");
        assert!(got.delivery.data == sent, "a body of {bytes} bytes has changed");
        if bytes == largest {
            figure("a large body: MiB, confirmed, got", (bytes >> 20, published, begun.elapsed()));
        }
    }
    // One more than allowed: the channel is closed, and nothing else happens.
    let larger = body(largest + 1);
    let sent =
        publisher.basic_publish("".into(), "large".into(), <_>::default(), &larger, persistent());
    let refused = match sent.await {
        Ok(confirm) => confirm.await.expect_err("too large"),
        Err(error) => error,
    };
    assert_eq!(code(&refused), Some(406), "{refused}");
    publish_confirmed(&declarer, "large", b"served").await;
}

/// Twelve large publishes at once, to queues that another node leads: more than the link between
/// the two takes. What it refuses is sent when it has room (SES 2, 5).
///
/// Whether the link is full at once depends on how fast the other node takes from it, so this goes
/// on until it was.
#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_link_takes_at_once_is_confirmed_all_the_same() {
    const PUBLISHERS: usize = 12;
    let cluster = Cluster::start(3, Options::alone()).await;
    cluster.leaders_rest().await;
    let (_declaring, declarer) = open_confirming(&cluster.amqp_uri(1)).await;
    let queues: Vec<String> = (0..PUBLISHERS).map(|number| format!("large-{number}")).collect();
    for queue in &queues {
        declare_quorum(&declarer, queue).await;
    }
    let sent = Arc::new(body(15 * MIB));
    let (_taking, taker) = open(&cluster.amqp_uri(1)).await;
    let rounds = async {
        loop {
            publish_to_each_at_once(&cluster.amqp_uri(2), &queues, &sent).await;
            for queue in &queues {
                assert!(get(&taker, queue).await.is_some_and(|got| got == *sent), "'{queue}'");
                assert!(get(&taker, queue).await.is_none(), "'{queue}' has it twice");
            }
            let refused = cluster.node(2).metrics().await.sum("quorate_batches_refused_total");
            if refused.expect("a counter of refused batches") > 0.0 {
                break;
            }
        }
    };
    in_time("the link is full", rounds).await;
}

/// Each queue gets the body from a connection of its own; returns when all are confirmed.
async fn publish_to_each_at_once(uri: &str, queues: &[String], sent: &Arc<Vec<u8>>) {
    let mut publishers = JoinSet::new();
    for queue in queues.iter().cloned() {
        let (uri, sent) = (uri.to_owned(), Arc::clone(sent));
        publishers.spawn(async move {
            let (_connection, publisher) = open_confirming(&uri).await;
            let options = <_>::default();
            let publish = async {
                let sent =
                    publisher.basic_publish("".into(), queue.into(), options, &sent, persistent());
                sent.await?.await
            };
            let confirmed = in_time("a confirm", publish).await;
            assert!(confirmed.is_ok_and(|confirm| confirm.is_ack()));
        });
    }
    while let Some(published) = publishers.join_next().await {
        published.expect("every publish is confirmed");
    }
}

/// A publish of a body of `bytes` bytes: the frames but for the last, and the last.
fn in_frames(channel: u16, exchange: &str, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    const PIECE: usize = 100_000;
    let to = [&[0, 0][..], &wire::short(exchange), &wire::short("behind"), &[0]].concat();
    let publish = [&60_u16.to_be_bytes()[..], &40_u16.to_be_bytes(), &to].concat();
    let header = wire::content_header(60, bytes as u64, None);
    let mut frames =
        [frame(wire::METHOD, channel, &publish), frame(wire::HEADER, channel, &header)].concat();
    let last = bytes % PIECE;
    assert!(last > 0, "there is a last piece");
    frames.extend(frame(wire::BODY, channel, &vec![1; PIECE]).repeat(bytes / PIECE));
    (frames, frame(wire::BODY, channel, &vec![1; last]))
}

/// What waits behind a message to many queues fills the memory for publishes in flight. That must not
/// hold back the message that it waits for.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_many_queues_goes_before_a_large_one_that_waits_behind_it() {
    let cluster = Cluster::start(1, small()).await;
    let node = cluster.node(1);
    let (_declaring, channel) = fan(node, 2).await;
    declare_quorum(&channel, "behind").await;
    let mut wire = Wire::open_channel(&node.amqp_address()).await;
    wire.method(2, 20, 10, &[0]).await;
    wire.expect(2, 20, 11).await;
    for channel in 1..=2 {
        wire.method(channel, 85, 10, &[0]).await;
        wire.expect(channel, 85, 11).await;
    }
    // Of 36 MiB for clients, 9 are for publishes in flight.
    let (head, last) = in_frames(2, "", 89 * MIB / 10);
    wire.send(&head).await;
    let (copied, end) = in_frames(1, "fan", 13 * MIB / 10);
    wire.send(&[copied, end, last].concat()).await;
    let confirmed = async {
        let mut confirmed = Vec::new();
        while confirmed.len() < 2 {
            let frame = wire.next().await.expect("the connection stays open");
            if frame.method() == Some((60, 80)) {
                confirmed.push(frame.channel);
            }
        }
        confirmed
    };
    assert_eq!(in_time("both confirms", confirmed).await, [1, 2]);
}
