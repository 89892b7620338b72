//! Consumers beside publishers at full speed get what is published, and soon (DLV 6); so do queues of
//! dead letters.

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::wait::in_time;
use quorate_cluster_tests::harness::{Cluster, Options, scale};
use serde_json::Value;

/// Runs `quorate perf` against the first node; its summary.
async fn perf(cluster: &Cluster, flags: &[&str]) -> Value {
    let seconds = scale::BESIDE_SECONDS.get();
    let run = tokio::process::Command::new(cluster.binary())
        .args(["perf", "--json", "--uri", &cluster.amqp_uri(1), "--warmup", "3"])
        .args(["--duration", &seconds.to_string()])
        .args(flags)
        .kill_on_drop(true)
        .output();
    let output = in_time("perf ends", run).await.expect("perf runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("a summary")
}

fn number(summary: &Value, key: &str) -> f64 {
    summary.pointer(key).and_then(Value::as_f64).expect("a figure of the summary")
}

async fn keep_up(what: &str, flags: &[&str], share: scale::Bound<f64>) {
    let cluster = Cluster::start(3, Options::alone()).await;
    let summary = perf(&cluster, flags).await;
    let [published, received, p99] = ["/published_per_s", "/received_per_s", "/end_to_end_us/p99"]
        .map(|key| number(&summary, key));
    assert!(received > 0.0, "{what}: nothing is consumed: {summary}");
    share.at_least(what, 100.0 * received / published);
    scale::BESIDE_RATE.at_least(what, received);
    scale::BESIDE_P99.upto(what, p99 / 1e3);
}

/// The defaults of RabbitMQ's PerfTest: no confirms, no prefetch, each delivery acknowledged.
const FULL_SPEED: [&str; 6] = ["-c", "0", "-q", "0", "-A", "1"];

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_keeps_up_with_a_publisher() {
    keep_up("one of each", &FULL_SPEED, scale::BESIDE_SHARE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn six_consumers_keep_up_with_six_publishers() {
    let flags = [&FULL_SPEED[..], &["-x", "6", "-y", "6", "--queues", "6"]].concat();
    keep_up("six queues", &flags, scale::BESIDE_SHARE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_consumers_keep_up_with_five_publishers() {
    let flags = [&FULL_SPEED[..], &["-x", "5", "-y", "2"]].concat();
    keep_up("five publishers, two consumers", &flags, scale::BESIDE_SHARE_OF_TWO).await;
}

/// A dead letter of a large message costs about what its publish has cost: where each message is
/// published, rejected, and arrives as a dead letter, as many go through as where all are published.
#[tokio::test(flavor = "multi_thread")]
async fn large_dead_letters_go_at_the_speed_of_publishing() {
    const FEW: [&str; 6] = ["--size", "102400", "-q", "200", "-A", "20"];
    let cluster = Cluster::start(3, Options::alone()).await;
    let publish = [&FEW[..], &["-c", "100", "-y", "0", "--queue-name", "plain"]].concat();
    let publish = number(&perf(&cluster, &publish).await, "/published_per_s");
    let target = [&FEW[..], &["-x", "0", "--queue-name", "letters"]].concat();
    let source = ["-c", "100", "--nack", "--queue-name", "source"];
    let source = [&FEW[..], &source, &["--queue-arg", "x-dead-letter-exchange="]].concat();
    let source = [&source[..], &["--queue-arg", "x-dead-letter-routing-key=letters-1"]].concat();
    let (source, target) = tokio::join!(perf(&cluster, &source), perf(&cluster, &target));
    let letters = number(&target, "/received_per_s");
    assert!(letters > 0.0, "no letter arrives: {target}");
    let both = number(&source, "/received_per_s") + letters;
    scale::LARGE_LETTERS.at_least("100 KiB", 100.0 * both / publish);
}
