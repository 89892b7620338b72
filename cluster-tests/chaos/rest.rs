//! What a cluster is like at rest: after a run, when clients have left and queues are empty, nodes hold
//! nothing more for clients, and their memory, open files and disks are back.

use crate::harness::wait::HANGS;
use crate::harness::{Cluster, Node, ctl};
use crate::invariant::Violation;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// What resident memory may have grown by since before the load: caches and write buffers that are full now
/// (ARCHITECTURE, "Where memory goes": some 290 MiB of a large machine), and what the allocator keeps of them.
const GROWN_MEMORY_BYTES: u64 = 448 << 20;
/// How many more files may be open than before the load: RocksDB's tables and logs.
const GROWN_FILES: usize = 100;
/// What the data directory may take: logs of Raft and of RocksDB, and tables that are not compacted yet.
const DISK_BYTES: u64 = 1 << 30;
/// What nodes hold for clients, by the names of the metrics: nothing, at rest.
const HELD: [&str; 7] = [
    "rabbitmq_connections",
    "rabbitmq_channels",
    "rabbitmq_consumers",
    "rabbitmq_queue_messages",
    "quorate_dead_letters_waiting",
    "quorate_memory_held_bytes",
    "quorate_in_flight_bytes",
];

/// What a node's process uses.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// The node.
    pub node: u64,
    /// Resident memory, bytes.
    pub memory_bytes: u64,
    /// Number of open files and sockets.
    pub files: usize,
    /// Bytes of the files in the data directory.
    pub disk_bytes: u64,
}

impl Usage {
    fn of(node: &Node) -> Self {
        let files = std::fs::read_dir(format!("/proc/{}/fd", node.pid()));
        Self {
            node: node.id(),
            memory_bytes: node.rss_bytes(),
            files: files.map_or(0, Iterator::count),
            disk_bytes: bytes_of(node.data_dir()),
        }
    }

    /// What has grown too much since `before`.
    fn excess(self, before: Self) -> Option<String> {
        let excess = self.memory_bytes > before.memory_bytes + GROWN_MEMORY_BYTES
            || self.files > before.files + GROWN_FILES
            || self.disk_bytes > DISK_BYTES;
        excess.then(|| format!("at rest {self:?}, before the load {before:?}"))
    }
}

/// What the processes of all nodes use now. All must run.
#[must_use]
pub fn usage(cluster: &Cluster) -> Vec<Usage> {
    cluster.nodes().iter().map(Usage::of).collect()
}

/// What does not come back after the end of the load. RocksDB removes files of data that was deleted when it
/// compacts them. All nodes must run.
pub async fn left(cluster: &Cluster, before: &[Usage]) -> Vec<Violation> {
    let end = Instant::now() + HANGS;
    loop {
        let mut left: Vec<String> = usage(cluster)
            .into_iter()
            .zip(before)
            .filter_map(|(now, before)| now.excess(*before))
            .collect();
        for node in cluster.nodes() {
            left.extend(held(cluster, node).await);
        }
        if left.is_empty() || Instant::now() > end {
            return left.into_iter().map(Violation::NotBack).collect();
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What a node still holds for clients, and which queues of the cluster have messages.
async fn held(cluster: &Cluster, node: &Node) -> Option<String> {
    let metrics = node.metrics().await;
    let held = HELD.map(|name| (name, metrics.sum(name).unwrap_or_default()));
    let held: Vec<_> = held.into_iter().filter(|(_, value)| *value != 0.0).collect();
    if held.is_empty() {
        return None;
    }
    let queues = filled(cluster, node).await;
    Some(format!("node {} still has {held:?}; queues with messages: {queues:?}", node.id()))
}

/// The queues that have messages, with their number, as a node lists them.
async fn filled(cluster: &Cluster, node: &Node) -> Result<Vec<(String, u64)>, String> {
    let rows = cluster.rows(node.id(), &["list_queues", "name", "messages"]).await?;
    let count = |row| Ok((ctl::text(row, "name"), ctl::count(row, "messages")?));
    let counts: Result<Vec<_>, String> = rows.iter().map(count).collect();
    Ok(counts?.into_iter().filter(|(_, messages)| *messages > 0).collect())
}

fn bytes_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_of(&entry.path()),
        Ok(found) => found.len(),
        // A file that was removed meanwhile.
        Err(_) => 0,
    });
    bytes.sum()
}
