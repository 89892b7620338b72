//! Wall clocks that are wrong: they move no expiry (DESIGN §4, *Time*).

use quorate_cluster_tests::harness::amqp::{
    declare_with, int, open_confirming, publish_confirmed, text,
};
use quorate_cluster_tests::harness::wait::eventually;
use quorate_cluster_tests::harness::{Cluster, Options, wall_clock};

const QUEUES: usize = 12;
const MESSAGES: usize = 20;
const TTL_MS: i64 = 300_000;
const AHEAD_S: u32 = 600;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_restarts_with_its_clock_ahead_expires_nothing() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let queues: Vec<String> = (0..QUEUES).map(|number| format!("kept-{number}")).collect();
    let arguments = [
        ("x-queue-type", text("quorum")),
        ("x-queue-leader-locator", text("balanced")),
        ("x-message-ttl", int(TTL_MS)),
    ];
    for queue in &queues {
        declare_with(&channel, queue, &arguments).await;
        for _ in 0..MESSAGES {
            publish_confirmed(&channel, queue, b"kept").await;
        }
    }
    let node = cluster.node(3);
    let ahead = wall_clock::ahead(node.launch(), AHEAD_S, cluster.folder());
    let Some(launch) = ahead else {
        eprintln!("no C compiler: the wall clock cannot be moved");
        return;
    };
    node.kill9();
    node.spawn_as(&launch);
    node.ready().await;
    // Its leaderships come back to it.
    let leads = || async {
        let led = node.metrics().await.sum("quorate_group_leader").unwrap_or_default();
        if led >= 2.0 { Ok(()) } else { Err(format!("{led}")) }
    };
    eventually("the restarted node leads groups", leads).await;
    let mut led = 0;
    for queue in &queues {
        led += usize::from(cluster.leader_of(queue).await == 3);
        // Stamped by the present leader's clock: what has expired by it is gone before the confirm.
        publish_confirmed(&channel, queue, b"kept").await;
        // A queue has no counts while its leadership moves to another node.
        let counts = || cluster.counts(1, queue, ["messages_ready"]);
        let [ready] = eventually("the queue has counts", counts).await;
        assert_eq!(ready, MESSAGES as u64 + 1, "messages of '{queue}' have expired");
    }
    assert!(led > 0, "the node whose clock is ahead led nothing");
}
