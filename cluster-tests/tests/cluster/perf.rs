//! `quorate perf` as a script would run it.

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::wait::in_time;
use quorate_cluster_tests::harness::{Cluster, Options};
use std::process::Output;

/// Runs it with this value of `QUORATE_URI`.
async fn perf(cluster: &Cluster, uri: &str, flags: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(cluster.binary());
    command.args(["perf", "--messages", "100", "--verify"]).args(flags);
    command.env("QUORATE_URI", uri).kill_on_drop(true);
    in_time("perf", command.output()).await.expect("perf starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_uri_may_come_from_the_environment_and_the_flag_wins() {
    let cluster = Cluster::start(1, Options::default()).await;
    let good = cluster.amqp_uri(1);
    let run = perf(&cluster, &good, &[]).await;
    assert!(run.status.success(), "{run:?}");
    let run = perf(&cluster, &format!("{good},{good}"), &[]).await;
    assert!(run.status.success(), "{run:?}");
    let wrong = "amqp://guest:secret@127.0.0.1:x";
    let run = perf(&cluster, wrong, &["--uri", &good]).await;
    assert!(run.status.success(), "{run:?}");
    let run = perf(&cluster, wrong, &[]).await;
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(
        said.contains("invalid AMQP URI for '--uri <URI>'") && !said.contains("secret"),
        "{said}"
    );
    assert_eq!(run.status.code(), Some(64));
    let help = perf(&cluster, &good, &["--help"]).await;
    let help = String::from_utf8_lossy(&help.stdout);
    assert!(help.contains("[env: QUORATE_URI]") && !help.contains(&good), "{help}");
}
