//! Queues that are surely in different groups.

use super::Cluster;
use super::amqp::{declare_with, open, text};
use super::wait::eventually;
use std::collections::BTreeSet;

/// At most this many queues are declared for each group that is wanted.
const TRIES: usize = 12;

/// Declares quorum queues through all nodes until `groups` groups have one, and gives their names, one
/// of each group: `NAME-1` and so on, not without gaps.
///
/// # Panics
/// When that does not work, or many queues are in fewer groups.
pub async fn declare_in_groups(cluster: &Cluster, name: &str, groups: usize) -> Vec<String> {
    let mut channels = Vec::new();
    for node in cluster.nodes().iter().filter(|node| node.runs()) {
        channels.push(open(&node.amqp_uri()).await);
    }
    let (mut queues, mut met) = (Vec::new(), BTreeSet::new());
    for number in 1..=groups * TRIES {
        if queues.len() == groups {
            break;
        }
        let (_, channel) = &channels[number % channels.len()];
        let queue = format!("{name}-{number}");
        declare_with(channel, &queue, &[("x-queue-type", text("quorum"))]).await;
        let [group] = cluster.counts(1, &queue, ["group"]).await.expect("its group");
        if met.insert(group) {
            queues.push(queue);
        }
    }
    assert_eq!(queues.len(), groups, "queues are in groups {met:?} only");
    for (connection, _) in channels {
        connection.close(200, "declared".into()).await.expect("close-ok");
    }
    queues
}

/// How many groups hold queues.
///
/// # Panics
/// When the replicas differ.
pub async fn queue_groups(cluster: &Cluster) -> usize {
    let audit = eventually("an audit of equal replicas", || async {
        cluster.ctl(1, &["-q", "audit"]).await.succeeded()
    })
    .await;
    // The catalog's holds none.
    audit.lines().len() - 1
}
