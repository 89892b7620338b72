//! Replicas are spread over zones, and are five by setting (MEM 6), under load.

use crate::members::{has_members, under_load};
use quorate_cluster_tests::harness::members::Members;
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options};
use std::collections::BTreeSet;

const NODES: [u64; 5] = [1, 2, 3, 4, 5];

fn zone(node: u64) -> &'static str {
    match node {
        1 | 2 => "a",
        3 => "b",
        _ => "c",
    }
}

/// Waits until all five nodes are members, no group is moving, and each queue group has this number of
/// replicas, at least one in each of the three zones.
async fn spread(cluster: &Cluster, replicas: usize) {
    let what = format!("{replicas} replicas of each group in all zones");
    eventually(&what, || async {
        let members = Members::by(cluster, 1).await?;
        let zones = |of: &BTreeSet<u64>| of.iter().map(|node| zone(*node)).collect::<BTreeSet<_>>();
        let in_all_zones = members.queue_groups().all(|of| zones(of).len() == 3);
        hold(members.is_complete_on(&NODES, replicas) && in_all_zones, || format!("{members:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_06_groups_are_spread_over_zones_and_outlive_two_of_five_replicas() {
    let cluster = Cluster::prepare(3, Options { guests: 2, ..Options::default() }).await;
    let spawn = |node: u64, replicas| {
        let flags = [("--zone", zone(node)), ("--queue-replicas", replicas)];
        cluster.node(node).spawn_with(&flags);
    };
    (1..=3).for_each(|node| spawn(node, "3"));
    cluster.ready().await;
    has_members(&cluster).await;
    let load = under_load(&cluster).await;
    (4..=5).for_each(|node| spawn(node, "3"));
    spread(&cluster, 3).await;

    for node in NODES {
        let (status, _) = cluster.node(node).sigterm().await;
        assert!(status.success(), "node {node}: {status}");
        spawn(node, "5");
        cluster.node(node).ready().await;
    }
    spread(&cluster, 5).await;
    load.delivers(300).await;
    cluster.node(4).kill9();
    cluster.node(2).kill9();
    load.confirms(500).await;
    for node in [2, 4] {
        spawn(node, "5");
        cluster.node(node).ready().await;
    }
    load.finish(&cluster).await;
}
