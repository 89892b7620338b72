//! Links between nodes are cut, one at a time: a third node reaches both ends, so that clients notice a
//! pause and nothing else (PRT).

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::{declare_quorum, open};
use quorate_cluster_tests::harness::links::Links;
use quorate_cluster_tests::harness::{Cluster, Options, scale};
use quorate_cluster_tests::history::{ConsumerOptions, Load, PublisherOptions};
use std::time::Duration;

/// How long a link is cut before all clients must have gone on: longer than every lease.
const CUT: Duration = Duration::from_secs(6);

/// Where a queue is declared, and by that led; where it is published to; where it is consumed.
const QUEUES: [(&str, u64, u64, u64); 4] = [
    ("from-2-to-1", 1, 2, 2),
    ("from-1-to-2", 2, 1, 1),
    ("from-3-to-1", 1, 3, 2),
    ("own-2", 2, 2, 3),
];

/// Node 1 leads the catalog; its link with node 2 is cut.
async fn one_link_is_cut(what: &str, cut: impl FnOnce(&Links)) {
    let cluster = Cluster::start(3, Options { alone: true, ..Options::proxied() }).await;
    cluster.leaders_rest().await;
    let mut loads = Vec::new();
    for (queue, led_by, publisher, consumer) in QUEUES {
        let (connection, channel) = open(&cluster.amqp_uri(led_by)).await;
        declare_quorum(&channel, queue).await;
        connection.close(200, "declared".into()).await.expect("close-ok");
        assert_eq!(cluster.leader_of(queue).await, led_by, "{queue}");
        let publisher = PublisherOptions {
            per_second: 300,
            ..PublisherOptions::new(cluster.amqp_uri(publisher), queue)
        };
        let consumer = ConsumerOptions::new(cluster.amqp_uri(consumer), queue);
        loads.push((queue, Load::on(queue).publish(publisher).consume(consumer)));
    }
    for (_, load) in &loads {
        load.delivers(200).await;
    }
    let from: Vec<Duration> = loads.iter().map(|(_, load)| load.history().now()).collect();
    cut(cluster.links());
    tokio::time::sleep(CUT).await;
    // A client that is stopped waits for as long as the link is cut. More than its window has room for.
    for (_, load) in &loads {
        load.confirms(500).await;
        load.delivers(200).await;
    }
    for ((queue, load), from) in loads.iter().zip(from) {
        let gap = load.history().longest_confirm_gap(queue, from, load.history().now());
        scale::LINK_CUT.upto(&format!("{what}: {queue}: longest time without a confirm"), gap);
    }
    cluster.links().heal();
    for (_, load) in loads {
        load.delivers(300).await;
        load.finish(&cluster).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_with_the_catalogs_leader_that_is_cut_stops_nobody() {
    one_link_is_cut("cut both ways", |links| links.cut(1, 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_cut_one_way_stops_nobody() {
    one_link_is_cut("cut one way", |links| links.cut_one_way(1, 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_rejected_stops_nobody_and_fences_nobody() {
    one_link_is_cut("rejected", |links| {
        links.refuse(1, 2);
        links.refuse(2, 1);
    })
    .await;
}
