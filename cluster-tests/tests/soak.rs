//! Full speed for a long time, with the log purged as eagerly as settings allow: the mix that makes
//! openraft panic where a purge overtakes an apply (its issue 2116). `make soak` runs it.

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::{Cluster, Node, Options, figure};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use std::time::Duration;

/// No node's memory may ever be more.
const MEMORY_BOUND: u64 = 600 << 20;

fn seconds() -> u64 {
    let asked = std::env::var("QUORATE_TEST_SOAK_SECONDS").ok();
    asked.map_or(1_200, |text| text.parse().expect("QUORATE_TEST_SOAK_SECONDS is a number"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes twenty minutes: make soak"]
async fn full_speed_with_the_eagerest_purge_loses_nothing() {
    let options = Options::alone().with("--log-tail-bytes", "0").with("--checkpoint-ms", "10");
    let cluster = Cluster::start(3, options).await;
    let uris: Vec<String> = cluster.nodes().iter().map(Node::amqp_uri).collect();
    let seconds = seconds();
    let duration = seconds.to_string();
    let perf = tokio::process::Command::new(cluster.binary())
        .args(["perf", "--verify", "--uri", &uris.join(","), "--duration", &duration])
        .args(["--publishers", "6", "--consumers", "6", "--queues", "6", "--drain", "30"])
        .kill_on_drop(true)
        .status();
    let watch = async {
        let mut most = 0;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            for node in cluster.nodes() {
                assert!(node.runs(), "node {} has ended", node.id());
                most = most.max(node.rss_bytes());
                assert!(most < MEMORY_BOUND, "node {} uses {most} bytes", node.id());
            }
        }
    };
    let bound = Duration::from_secs(seconds + 120);
    let status = tokio::select! {
        status = tokio::time::timeout(bound, perf) => status.expect("perf ends").expect("perf runs"),
        () = watch => unreachable!("it watches for ever"),
    };
    assert!(status.success(), "perf found something lost, doubled or out of order: {status}");
    let memory: Vec<u64> = cluster.nodes().iter().map(|node| node.rss_bytes() >> 20).collect();
    figure("soak: memory of each node at the end, MiB", memory);
    assert_replicas_equal(&cluster).await;
}
