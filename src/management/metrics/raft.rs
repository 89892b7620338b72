//! The Raft groups of the node.

use super::exposition::{Page, seconds};
use crate::rates::Rates;
use quorate_broker::view::{GroupView, MetricsView, Role};
use quorate_types::GroupId;

/// Roles, terms and indexes of each replica.
pub(super) fn groups(page: &mut Page, view: &MetricsView) {
    type Pick = fn(&GroupView) -> u64;
    let families: [(&str, &str, Pick); 6] = [
        ("quorate_group_leader", "is 1 on the node that leads the group", |group| {
            u64::from(group.role == Role::Leader)
        }),
        ("quorate_group_term", "Raft term", |group| group.term.0),
        ("quorate_group_last_index", "Index of the last log entry", |group| group.last.0),
        ("quorate_group_applied_index", "Index of the last applied log entry", |group| {
            group.applied.0
        }),
        ("quorate_group_purged_index", "Index of the last purged log entry", |group| {
            group.purged.0
        }),
        ("quorate_group_log_bytes", "Size of the Raft log in bytes", |group| group.log_bytes),
    ];
    for (name, help, pick) in families {
        page.head(name, "gauge", help);
        for group in &view.node.groups {
            page.sample(name, &[("group", &group.group.to_string())], pick(group));
        }
    }
    follower_lags(page, view);
}

/// How far followers are behind, by their leader: indexes of several nodes are of different moments.
fn follower_lags(page: &mut Page, view: &MetricsView) {
    let name = "quorate_group_follower_lag";
    page.head(name, "gauge", "Log entries of this leader that the follower has not acknowledged");
    for lag in &view.follower_lags {
        let (group, follower) = (lag.group.to_string(), lag.follower.to_string());
        page.sample(name, &[("group", &group), ("follower", &follower)], lag.entries);
    }
}

/// RabbitMQ's two Ra systems: that of the queue groups, and that of the catalog. All groups write to one
/// log, whose bytes count with the queues; segments and memory tables of a log for each queue there are
/// none.
pub(super) fn systems(page: &mut Page, view: &MetricsView, rates: &Rates) {
    let of = |is_catalog: bool| {
        let groups = view.node.groups.iter();
        groups.filter(move |group| (group.group == GroupId::CATALOG) == is_catalog)
    };
    let systems = [("quorum_queues", false), ("coordination", true)];
    let name = "rabbitmq_raft_entries";
    page.head(name, "gauge", "Number of entries in the Raft logs");
    for (system, is_catalog) in systems {
        let entries = of(is_catalog).map(|group| group.last.0.saturating_sub(group.purged.0));
        page.sample(name, &[("ra_system", system)], entries.sum());
    }
    let name = "rabbitmq_raft_max_commit_latency_seconds";
    page.head(name, "gauge", "Highest time taken for a log entry to be committed");
    for (system, is_catalog) in systems {
        let latencies = of(is_catalog).filter_map(|group| rates.commit_us(group.group));
        let text = seconds(latencies.max().unwrap_or_default());
        page.sample_text(name, &[("ra_system", system)], &text);
    }
    let files = view.log_files;
    let rows = [
        ("rabbitmq_raft_bytes_written", "Number of bytes written to the log", view.sync_bytes.sum),
        ("rabbitmq_raft_wal_files", "Number of write-ahead log files", files.wal),
        ("rabbitmq_raft_mem_tables", "Number of in-memory tables", files.mem_tables),
        ("rabbitmq_raft_segments", "Number of files of the log", files.tables),
        ("rabbitmq_raft_max_num_segments", "Number of files of the log", files.tables),
    ];
    for (name, help, value) in rows {
        page.head(name, "gauge", help);
        page.sample(name, &[("ra_system", "quorum_queues")], value);
    }
}
