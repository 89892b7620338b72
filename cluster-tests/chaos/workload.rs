//! What clients do during a run: a measured queue, and the mix of queues of every kind and group.

use crate::harness::Cluster;
use crate::harness::amqp::{declare_quorum, open};
use crate::history::{ConsumerOptions, Homes, Load, Mix, PublisherOptions};
use lapin::options::QueuePurgeOptions;

/// The queue whose confirms are measured, and whose leader is meant where a fault hits the leader.
pub const MEASURED: &str = "chaos-measured";
/// Publishes to it a second, from each node.
const PER_SECOND: u32 = 100;

/// Declares the queues and starts the clients. Each connects again when its connection is lost: the
/// publishers to the measured queue to their node, the others to the next node.
///
/// # Panics
/// When a queue cannot be declared.
pub async fn start(cluster: &Cluster) -> Load {
    let uris = cluster.nodes().iter().map(|node| cluster.amqp_uri(node.id())).collect();
    let mix = Mix::declare(cluster).await;
    load(uris, &mix).await
}

/// The same at a broker that somebody else runs, with nodes at these addresses. Queues of these names that
/// are there already are purged.
///
/// # Panics
/// When a queue cannot be declared.
pub async fn start_at(uris: Vec<String>) -> Load {
    let mix = Mix::declare_at(uris.first().map_or("", String::as_str)).await;
    load(uris, &mix).await
}

async fn load(uris: Vec<String>, mix: &Mix) -> Load {
    let (connection, channel) = open(uris.first().map_or("", String::as_str)).await;
    declare_quorum(&channel, MEASURED).await;
    let purged = channel.queue_purge(MEASURED.into(), QueuePurgeOptions::default()).await;
    purged.unwrap_or_else(|error| panic!("purge '{MEASURED}': {error}"));
    connection.close(200, "declared".into()).await.expect("close-ok");
    let mut load = Load::on(MEASURED);
    // Each stays with its node. If all had moved to one, its isolation would stop all confirms, though the
    // other nodes serve.
    for uri in &uris {
        load = load.publish(PublisherOptions {
            uris: vec![uri.clone()],
            per_second: PER_SECOND,
            reconnects: true,
            ..PublisherOptions::new(String::new(), MEASURED)
        });
    }
    load = load.consume(ConsumerOptions {
        uris: uris.clone(),
        reconnects: true,
        ..ConsumerOptions::new(String::new(), MEASURED)
    });
    mix.load(load, &Homes { uris, reconnects: true, divisor: 1 })
}
