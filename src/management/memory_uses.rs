//! What a node's memory is used for, by RabbitMQ's categories.
//!
//! Only some parts are measured: what clients make the node hold, what the database caches and
//! buffers, and bodies of connection-bound queues. The rest of the process is `other_system`: the
//! program, its threads, the catalog, the queues' indexes, and what the allocator keeps.

use crate::wire;
use quorate_broker::{Share, view::MemoryUse};
use std::collections::HashMap;

/// The category of everything that is not measured.
const REST: &str = "other_system";

/// A category of memory.
#[derive(Debug)]
pub(crate) struct Category {
    /// RabbitMQ's name of it.
    pub(crate) name: &'static str,
    /// The metric of it at `/metrics/memory-breakdown`, between `rabbitmq_memory_` and `_bytes`.
    pub(crate) metric: Option<&'static str>,
    /// What it is, as the metric's help.
    pub(crate) help: &'static str,
}

const fn category(name: &'static str, metric: &'static str, help: &'static str) -> Category {
    Category { name, metric: Some(metric), help }
}

/// All categories of RabbitMQ. Those that are nothing here are always 0.
pub(crate) const CATEGORIES: [Category; 27] = [
    category("connection_readers", "client_connection_reader", "Messages being received"),
    category(
        "connection_writers",
        "client_connection_writer",
        "Deliveries and replies until they are written",
    ),
    category(
        "connection_channels",
        "client_connection_channel",
        "Publishes in flight and in transactions",
    ),
    category("connection_other", "client_connection_other", "Not measured"),
    category("queue_procs", "classic_queue_erlang_process", "Bodies of connection-bound queues"),
    Category { name: "queue_slave_procs", metric: None, help: "" },
    category("quorum_queue_procs", "quorum_queue_erlang_process", "Not measured"),
    category(
        "quorum_queue_dlx_procs",
        "quorum_queue_dlx_erlang_process",
        "Dead letters being routed and sent",
    ),
    category("stream_queue_procs", "stream_erlang_process", "Not used"),
    category(
        "stream_queue_replica_reader_procs",
        "stream_replica_reader_erlang_process",
        "Not used",
    ),
    category("stream_queue_coordinator_procs", "stream_coordinator_erlang_process", "Not used"),
    category("plugins", "plugin", "Not used"),
    category("metadata_store", "modern_metadata_store", "Not measured"),
    category("other_proc", "other_erlang_process", "Not used"),
    category("metrics", "metrics", "Not measured"),
    category("mgmt_db", "management_stats_db", "Not measured"),
    category("mnesia", "classic_metadata_store", "Not used"),
    category("quorum_ets", "quorum_queue_ets_table", "The database's write buffers"),
    category("metadata_store_ets", "modern_metadata_store_ets_table", "Not used"),
    category("other_ets", "other_ets_table", "Not used"),
    category("binary", "binary_heap", "Message bodies in the run cache"),
    category("msg_index", "message_index", "The database's cache of blocks and its open files"),
    category("code", "code_module", "Not measured"),
    category("atom", "atom_table", "Not used"),
    category(REST, "other_system", "The rest of the process"),
    category("allocated_unused", "runtime_allocated_unused", "Not measured"),
    category("reserved_unallocated", "runtime_reserved_unallocated", "Not measured"),
];

/// The category of what a share of the clients' budget holds.
const fn of_share(share: Share) -> &'static str {
    match share {
        Share::Contents => "connection_readers",
        Share::Transactions | Share::InFlight => "connection_channels",
        Share::Deliveries | Share::Replies => "connection_writers",
        Share::Letters => "quorum_queue_dlx_procs",
    }
}

/// What is measured, by category, in bytes.
pub(crate) fn measured(memory: &MemoryUse) -> HashMap<String, u64> {
    let held = memory.shares.iter().map(|share| (of_share(share.share), share.held_bytes));
    let other = [
        ("queue_procs", memory.exclusive),
        ("binary", memory.database.run_cache),
        ("quorum_ets", memory.database.write_buffers),
        ("msg_index", memory.database.blocks),
    ];
    let mut uses = HashMap::new();
    for (name, bytes) in held.chain(other) {
        *uses.entry(name.to_owned()).or_insert(0) += bytes;
    }
    uses
}

/// The memory of a node by RabbitMQ's categories, in bytes; those that are nothing here are 0.
pub fn memory_by_category(node: &wire::Node) -> impl Iterator<Item = (&'static str, u64)> {
    let all = all(node.memory_bytes, &node.memory_uses);
    all.map(|(category, bytes)| (category.name, bytes))
}

/// The bytes of every category. `total` is the resident memory of the process. What is not measured
/// counts as [`REST`]. A body that two measured parts share counts in both, so the parts can add up to
/// more than `total`; then the rest is 0.
pub(crate) fn all(
    total: u64,
    measured: &HashMap<String, u64>,
) -> impl Iterator<Item = (&'static Category, u64)> {
    let rest = total.saturating_sub(measured.values().sum());
    CATEGORIES.iter().map(move |category| {
        let bytes = measured.get(category.name).copied();
        (category, if category.name == REST { rest } else { bytes.unwrap_or(0) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_broker::{ShareFigures, view::DatabaseMemory};

    #[test]
    fn what_is_measured_and_the_rest_are_the_whole() {
        let of = |share, held_bytes| ShareFigures { share, held_bytes, waited: 0, refused: 0 };
        let shares =
            Share::ALL.iter().zip([1, 2, 4, 8, 16, 32]).map(|(share, held)| of(*share, held));
        let memory = MemoryUse {
            shares: shares.collect(),
            exclusive: 64,
            database: DatabaseMemory { run_cache: 128, write_buffers: 256, blocks: 512 },
        };
        let shown: HashMap<_, _> = all(2_000, &measured(&memory))
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(category, bytes)| (category.name, bytes))
            .collect();
        let wanted = [
            ("connection_readers", 1),
            ("connection_channels", 2 + 4),
            ("connection_writers", 8 + 32),
            ("quorum_queue_dlx_procs", 16),
            ("queue_procs", 64),
            ("binary", 128),
            ("quorum_ets", 256),
            ("msg_index", 512),
            ("other_system", 2_000 - 1_023),
        ];
        assert_eq!(shown, wanted.into());
    }

    #[test]
    fn parts_that_are_more_than_the_whole_leave_no_rest() {
        let measured = HashMap::from([("msg_index".to_owned(), 9)]);
        let rest = all(5, &measured).find(|(category, _)| category.name == REST);
        assert_eq!(rest.map(|(_, bytes)| bytes), Some(0));
    }
}
