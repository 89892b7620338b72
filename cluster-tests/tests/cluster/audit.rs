//! `quorate ctl audit` finds replicas equal while they go on applying, not only when all stand still.

use quorate_cluster_tests::harness::amqp::{declare_quorum, open};
use quorate_cluster_tests::harness::ctl::CtlOutput;
use quorate_cluster_tests::harness::wait::{eventually, in_time};
use quorate_cluster_tests::harness::{Cluster, Options};
use quorate_cluster_tests::history::{History, Publisher, PublisherOptions};
use std::sync::Arc;

/// Queues published to at once, so that many groups are busy.
const QUEUES: usize = 12;

/// An audit that says the same of all replicas. One of a busy cluster may end without an answer of some
/// replica, and is repeated; that replicas differ it must never say.
async fn audit(cluster: &Cluster) -> CtlOutput {
    eventually("an audit", || async {
        let audit = cluster.ctl(2, &["-q", "audit"]).await;
        assert!(!audit.stdout.contains("DIFFERENT"), "{audit:?}");
        audit.succeeded()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_under_load_compares_every_group() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    let history = Arc::new(History::default());
    let mut publishers = Vec::new();
    for number in 0..QUEUES {
        let queue = format!("audited {number}");
        declare_quorum(&channel, &queue).await;
        let uri = cluster.amqp_uri(number as u64 % 3 + 1);
        let options =
            PublisherOptions { window: 200, per_second: 0, ..PublisherOptions::new(uri, &queue) };
        publishers.push(Publisher::start(Arc::clone(&history), options));
    }
    let audits = async {
        let mut under_load = 0;
        while under_load < 5 {
            let before = history.confirms();
            let audit = audit(&cluster).await;
            let lines = audit.lines();
            // Every queue group's, and the catalog's.
            assert_eq!(lines.len(), 12 + 1, "{audit:?}");
            for line in lines {
                assert!(
                    line.contains("\tsame\t") && line.contains("\t3 of 3 replicas"),
                    "{audit:?}"
                );
            }
            // An audit may be shorter than the time between two confirms; then it proves nothing.
            under_load += usize::from(history.confirms() > before);
        }
    };
    in_time("five audits while messages are confirmed", audits).await;
    for publisher in publishers {
        publisher.finish().await;
    }
}
