//! The last resort: a majority is lost for good, and one survivor goes on (MEM 14).

#![expect(clippy::expect_used, reason = "tests")]

use crate::members::{at_rest_on, has_members, says};
use quorate_cluster_tests::harness::amqp::{declare_quorum, open_confirming, publish_confirmed};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::fs;
use std::process::{Command, Output};

/// Messages of the survivor.
const MESSAGES: u64 = 200;

/// Runs `quorate recover-quorum` on the data directory of a node.
fn recover(cluster: &Cluster, id: u64, further: &[&str]) -> Output {
    let data_dir = cluster.node(id).data_dir();
    let mut command = Command::new(cluster.binary());
    command.arg("recover-quorum").arg("--data-dir").arg(data_dir).args(further);
    command.output().expect("the binary runs")
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// A queue whose leader is node 3, which so has all that is confirmed.
async fn queue_led_by_3(cluster: &Cluster) -> String {
    let (connection, channel) = open_confirming(&cluster.amqp_uri(3)).await;
    let queue = eventually("node 3 leads a queue", || async {
        for number in 0..24 {
            let queue = format!("kept-{number}");
            declare_quorum(&channel, &queue).await;
            if cluster.leader_of(&queue).await == 3 {
                return Ok(queue);
            }
        }
        Err("others lead them".to_owned())
    })
    .await;
    for _ in 0..MESSAGES {
        publish_confirmed(&channel, &queue, b"kept").await;
    }
    connection.close(200, "published".into()).await.expect("close-ok");
    queue
}

async fn has_messages(cluster: &Cluster, queue: &str, count: u64) {
    eventually(&format!("{queue} has {count} messages"), || async {
        let [messages] = cluster.counts(3, queue, ["messages"]).await?;
        hold(messages == count, || format!("{messages}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_14_one_survivor_of_three_goes_on_and_the_cluster_grows_again() {
    let cluster = Cluster::start(3, Options::default()).await;
    has_members(&cluster).await;
    let queue = queue_led_by_3(&cluster).await;
    let running = recover(&cluster, 3, &["--yes"]);
    assert!(!running.status.success() && text(&running).contains("in use"), "{}", text(&running));
    for id in 1..=3 {
        cluster.node(id).kill9();
    }

    let look = recover(&cluster, 3, &[]);
    let said = text(&look);
    assert!(look.status.success(), "{said}");
    for part in [
        "node 1 (",
        "node 2 (",
        "group 0: last entry",
        "group 12: last entry",
        "Nothing was changed",
    ] {
        assert!(said.contains(part), "no {part:?} in:\n{said}");
    }
    let again = text(&recover(&cluster, 3, &[]));
    let lines = |said: &str| {
        said.lines()
            .filter_map(|line| line.split(", last command").next().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(&said), lines(&again), "nothing was changed");
    let done = recover(&cluster, 3, &["--yes"]);
    assert!(done.status.success() && text(&done).contains("in epoch 1"), "{}", text(&done));
    let repeated = recover(&cluster, 3, &["--yes"]);
    let said = text(&repeated);
    assert!(repeated.status.success() && said.contains("Nothing to do"), "{said}");
    assert!(said.contains("in epoch 1"), "no other epoch: {said}");

    let survivor = cluster.node(3);
    survivor.restart().await;
    has_messages(&cluster, &queue, MESSAGES).await;
    let (connection, channel) = open_confirming(&survivor.amqp_uri()).await;
    publish_confirmed(&channel, &queue, b"after the last resort").await;
    declare_quorum(&channel, "made-afterwards").await;
    publish_confirmed(&channel, "made-afterwards", b"to a new queue").await;
    connection.close(200, "published".into()).await.expect("close-ok");

    // Both others come back, a majority of the former epoch.
    cluster.node(1).spawn();
    cluster.node(2).spawn();
    for id in [1, 2] {
        let node = cluster.node(id);
        assert!(!node.ends().await.success(), "node {id} goes on");
        says(node, "is of an older epoch").await;
        fs::remove_dir_all(node.data_dir()).expect("the data directory");
    }
    for id in [1, 2] {
        cluster.node(id).spawn();
    }
    cluster.ready().await;
    at_rest_on(&cluster, &[1, 2, 3]).await;
    has_messages(&cluster, &queue, MESSAGES + 1).await;

    // The survivor is needed no longer.
    survivor.kill9();
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    publish_confirmed(&channel, &queue, b"without the survivor").await;
}

/// Two survivors, and the last resort is used on each of them: two clusters, which never mix.
#[tokio::test(flavor = "multi_thread")]
async fn mem_14_two_survivors_that_each_go_on_alone_do_not_work_together() {
    let cluster = Cluster::start(3, Options::default()).await;
    has_members(&cluster).await;
    for id in 1..=3 {
        cluster.node(id).kill9();
    }
    for id in [2, 3] {
        let done = recover(&cluster, id, &["--yes"]);
        assert!(done.status.success(), "{}", text(&done));
    }
    for id in [2, 3] {
        cluster.node(id).restart().await;
    }
    for id in [2, 3] {
        let (_connection, channel) = open_confirming(&cluster.amqp_uri(id)).await;
        declare_quorum(&channel, "own").await;
        publish_confirmed(&channel, "own", b"its own").await;
        let rows = cluster.rows(id, &["list_queues", "name", "messages"]).await.expect("rows");
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert!(rows.iter().all(|row| row["messages"] == 1), "{rows:?}");
    }
}
