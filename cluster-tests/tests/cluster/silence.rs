//! A node that no longer hears a queue's leader shows its clients nothing new, and goes on when it is
//! heard again (Q-62, DLV 5).

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use lapin::options::BasicGetOptions;
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, open, open_confirming, persistent, publish_confirmed,
};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::wire::{self, Wire};
use quorate_cluster_tests::harness::{Cluster, Options, figure};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const QUEUE: &str = "silence";
const MESSAGES: u32 = 600;
const BODY_BYTES: usize = 64 << 10;
/// How long a node shows what its queue's leader sent without hearing it: half of Q-62's time.
const HEARING: Duration = Duration::from_secs(2);

/// What a client was shown.
#[derive(Default)]
struct Shown {
    /// How often each message came unmarked, and how often marked as redelivered.
    counts: BTreeMap<u32, [u32; 2]>,
    marked: bool,
}

impl Shown {
    fn take(&mut self, frame: &wire::Frame) {
        if frame.method() == Some((60, 60)) {
            let arguments = frame.arguments();
            // After the consumer tag and the delivery tag.
            self.marked = arguments[1 + usize::from(arguments[0]) + 8] != 0;
        } else if frame.kind == wire::BODY {
            let number = frame.payload[..4].try_into().map(u32::from_be_bytes).expect("four bytes");
            self.counts.entry(number).or_default()[usize::from(self.marked)] += 1;
        }
    }

    /// Takes what comes until nothing has come for that long.
    async fn read(&mut self, frames: &mut UnboundedReceiver<wire::Frame>, quiet: Duration) {
        while let Ok(Some(frame)) = tokio::time::timeout(quiet, frames.recv()).await {
            self.take(&frame);
        }
    }
}

/// Reads all that comes, from now on.
fn reading(mut client: Wire) -> UnboundedReceiver<wire::Frame> {
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(frame) = client.next().await {
            if sender.send(frame).is_err() {
                return;
            }
        }
    });
    receiver
}

#[tokio::test(flavor = "multi_thread")]
async fn dlv_5_nothing_new_is_shown_while_the_leader_is_not_heard() {
    let timeout_ms = (2 * HEARING).as_millis().to_string();
    let args = ["--unreachable-node-timeout-ms".to_owned(), timeout_ms];
    let cluster = Cluster::start(3, Options { args: args.into(), ..Options::default() }).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(2)).await;
    declare_quorum(&channel, QUEUE).await;
    for number in 0..MESSAGES {
        let mut body = vec![0; BODY_BYTES];
        body[..4].copy_from_slice(&number.to_be_bytes());
        let sent =
            channel.basic_publish("".into(), QUEUE.into(), <_>::default(), &body, persistent());
        assert!(sent.await.expect("sent").await.expect("a confirm").is_ack());
    }
    let mut client = Wire::open_channel(&cluster.node(1).amqp_address()).await;
    client.method(1, 60, 20, &wire::basic_consume(QUEUE, false)).await;
    client.expect(1, 60, 21).await;
    eventually("all is assigned", || async {
        let [ready] = cluster.counts(2, QUEUE, ["messages_ready"]).await?;
        hold(ready == 0, || format!("{ready} ready"))
    })
    .await;

    // Half of Q-62's time without a word, and as long again for what was under way; then the client
    // begins to read.
    cluster.node(2).pause();
    cluster.node(3).pause();
    tokio::time::sleep(2 * HEARING).await;
    let mut shown = Shown::default();
    let mut frames = reading(client);
    shown.read(&mut frames, Duration::from_millis(700)).await;
    let before = shown.counts.len();
    cluster.node(2).resume();
    cluster.node(3).resume();
    figure("shown while the leader was silent", before);
    assert!(before < MESSAGES as usize / 2, "{before} of {MESSAGES} were shown in the silence");

    let all = async {
        while shown.counts.len() < MESSAGES as usize {
            let frame = frames.recv().await.expect("the connection stays");
            shown.take(&frame);
        }
    };
    in_time("all messages come", all).await;
    for (number, [fresh, _]) in &shown.counts {
        assert!(*fresh <= 1, "message {number} came {fresh} times unmarked");
    }
}

/// A message that a get was given, and that has returned to its queue since, is another client's: the
/// answer, which comes late, is not shown.
#[tokio::test(flavor = "multi_thread")]
async fn dlv_5_the_answer_to_a_get_that_comes_too_late_is_not_shown() {
    let timeout_ms = (2 * HEARING).as_millis().to_string();
    let args = ["--unreachable-node-timeout-ms".to_owned(), timeout_ms];
    let cluster = Cluster::start(3, Options { args: args.into(), ..Options::proxied() }).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, QUEUE).await;
    publish_confirmed(&channel, QUEUE, b"one").await;
    let leader = cluster.leader_of(QUEUE).await;
    let [deaf, other] = cluster.others(leader).try_into().expect("two other nodes");
    let (_other, gets) = open(&cluster.amqp_uri(other)).await;
    let (_deaf, late) = open(&cluster.amqp_uri(deaf)).await;

    // The get comes to the leader, and its answer does not come back.
    cluster.links().cut_one_way(leader, deaf);
    cluster.links().cut_one_way(other, deaf);
    let late = tokio::spawn(async move {
        late.basic_get(QUEUE.into(), BasicGetOptions { no_ack: true }).await
    });
    eventually("the message is given to the get", || async {
        let [ready] = cluster.counts(other, QUEUE, ["messages_ready"]).await?;
        hold(ready == 0, || format!("{ready} ready"))
    })
    .await;
    eventually("the message returns", || async {
        // It is held, so that its body is still there.
        let got = gets.basic_get(QUEUE.into(), BasicGetOptions::default()).await;
        hold(matches!(got, Ok(Some(_))), || format!("{got:?}"))
    })
    .await;
    cluster.links().heal();
    let late = late.await.expect("the get");
    assert!(!matches!(late, Ok(Some(_))), "it was shown the message too: {late:?}");
}
