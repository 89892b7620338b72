//! `/metrics`: names of rabbitmq_prometheus if it has the metric, so that dashboards continue to
//! work, otherwise names with `quorate_`.

mod dead_letters;
mod exposition;
#[cfg(test)]
mod tests;

use crate::facts::{NodeFacts, ProcessFacts};
use exposition::Page;
use quorate_broker::{
    ShareFigures,
    view::{Alarm, ClusterView, DeliveryCounters, MetricsView, Role},
};

/// The page of `/metrics`.
pub(crate) fn text(
    facts: &NodeFacts,
    process: ProcessFacts,
    cluster: &ClusterView,
    view: &MetricsView,
) -> String {
    let mut page = Page::default();
    identity(&mut page, facts, cluster);
    resources(&mut page, process, view);
    memory(&mut page, view);
    clients(&mut page, view);
    queues(&mut page, view);
    publishes(&mut page, view);
    deliveries(&mut page, view);
    dead_letters::show(&mut page, &view.dead_letters);
    groups(&mut page, view);
    flow(&mut page, view);
    histograms(&mut page, view);
    page.into_text()
}

fn identity(page: &mut Page, facts: &NodeFacts, cluster: &ClusterView) {
    page.head("rabbitmq_build_info", "untyped", "Product and version");
    let versions = [
        ("rabbitmq_version", facts.product_version.as_str()),
        ("product_name", facts.product.as_str()),
        ("product_version", facts.product_version.as_str()),
        ("quorate_version", facts.version.as_str()),
    ];
    page.sample("rabbitmq_build_info", &versions, 1);
    let id = cluster.cluster.map_or_else(String::new, |id| format!("{:016x}", id.0));
    page.head("rabbitmq_identity_info", "untyped", "Node and cluster identity");
    let identity = [
        ("rabbitmq_node", facts.name.as_str()),
        ("rabbitmq_cluster", id.as_str()),
        ("rabbitmq_cluster_permanent_id", id.as_str()),
    ];
    page.sample("rabbitmq_identity_info", &identity, 1);
    page.gauge("erlang_uptime_seconds", "Node uptime", facts.started.elapsed().as_secs());
}

fn resources(page: &mut Page, process: ProcessFacts, view: &MetricsView) {
    let node = &view.node;
    let alarm = |alarm| u64::from(node.alarms.contains(&alarm));
    let gauges = [
        ("rabbitmq_process_resident_memory_bytes", "Memory used in bytes", process.resident_bytes),
        (
            "rabbitmq_resident_memory_limit_bytes",
            "Memory high watermark in bytes",
            node.memory_limit_bytes,
        ),
        ("rabbitmq_process_open_fds", "Open file descriptors", process.fds_open),
        ("rabbitmq_process_max_fds", "Open file descriptors limit", process.fds_limit),
        (
            "rabbitmq_disk_space_available_bytes",
            "Disk space available in bytes",
            node.disk_free_bytes,
        ),
        (
            "rabbitmq_disk_space_available_limit_bytes",
            "Free disk space low watermark in bytes",
            node.disk_free_limit_bytes,
        ),
        (
            "rabbitmq_alarms_memory_used_watermark",
            "is 1 if memory watermark alarm is in effect",
            alarm(Alarm::Memory),
        ),
        (
            "rabbitmq_alarms_free_disk_space_watermark",
            "is 1 if free disk space watermark alarm is in effect",
            alarm(Alarm::Disk),
        ),
        (
            "quorate_run_cache_bytes",
            "Message bodies in the run cache in bytes",
            view.run_cache_bytes,
        ),
        (
            "quorate_in_flight_bytes",
            "Message bodies sent to queues and not yet answered, in bytes",
            view.in_flight_bytes,
        ),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help, value);
    }
}

/// Memory that the node holds for clients.
fn memory(page: &mut Page, view: &MetricsView) {
    let help = "Limit of the message bodies held for clients in bytes";
    page.gauge("quorate_memory_budget_bytes", help, view.memory_budget_bytes);
    type Pick = fn(&ShareFigures) -> u64;
    let families: [(&str, &str, &str, Pick); 3] = [
        ("quorate_memory_held_bytes", "gauge", "Message bodies held for clients in bytes", |of| {
            of.held_bytes
        }),
        (
            "quorate_memory_waits_total",
            "counter",
            "Total number of waits for memory for message bodies",
            |of| of.waited,
        ),
        (
            "quorate_memory_refusals_total",
            "counter",
            "Total number of messages refused and connections closed for lack of memory",
            |of| of.refused,
        ),
    ];
    for (name, kind, help, pick) in families {
        page.head(name, kind, help);
        for figures in &view.memory {
            page.sample(name, &[("share", figures.share.name())], pick(figures));
        }
    }
}

fn clients(page: &mut Page, view: &MetricsView) {
    page.gauge("rabbitmq_connections", "Connections currently open", view.node.connections);
    page.gauge("rabbitmq_channels", "Channels currently open", view.channels);
    page.gauge("rabbitmq_consumers", "Consumers currently connected", view.consumers);
    let counters = [
        (
            "rabbitmq_connections_opened_total",
            "Total number of connections opened",
            view.connections_opened,
        ),
        (
            "rabbitmq_connections_closed_total",
            "Total number of connections closed or terminated",
            view.connections_closed,
        ),
        ("rabbitmq_channels_opened_total", "Total number of channels opened", view.channels_opened),
        ("rabbitmq_channels_closed_total", "Total number of channels closed", view.channels_closed),
    ];
    for (name, help, value) in counters {
        page.counter(name, help, &[], value);
    }
}

/// Each node counts the messages of the queues that it leads, so the sum over the nodes is the
/// cluster's number. Every node counts all queues, while in RabbitMQ only the nodes of their
/// leaders do: use the maximum.
fn queues(page: &mut Page, view: &MetricsView) {
    let ready = view.messages_ready;
    let unacknowledged = view.messages_unacknowledged;
    let waiting = view.dead_letters_waiting;
    let gauges = [
        ("rabbitmq_queues", "Queues available", view.node.queues),
        ("rabbitmq_queue_messages_ready", "Messages ready to be delivered to consumers", ready),
        (
            "rabbitmq_queue_messages_unacked",
            "Messages delivered to consumers but not yet acknowledged",
            unacknowledged,
        ),
        (
            "rabbitmq_queue_messages",
            "Sum of ready and unacknowledged messages - total queue depth",
            ready + unacknowledged + waiting,
        ),
        (
            "rabbitmq_queue_messages_ready_bytes",
            "Size in bytes of ready messages",
            view.messages_ready_bytes,
        ),
        (
            "quorate_dead_letters_waiting",
            "Dead letters that their targets have not accepted yet",
            waiting,
        ),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help, value);
    }
    let counters = [
        ("rabbitmq_queues_declared_total", "Total number of queues declared", view.queues_declared),
        ("rabbitmq_queues_created_total", "Total number of queues created", view.queues_created),
        ("rabbitmq_queues_deleted_total", "Total number of queues deleted", view.queues_deleted),
    ];
    for (name, help, value) in counters {
        page.counter(name, help, &[], value);
    }
}

const PROTOCOL: (&str, &str) = ("protocol", "amqp091");

fn publishes(page: &mut Page, view: &MetricsView) {
    let counters = [
        (
            "rabbitmq_global_messages_received_total",
            "Total number of messages received from publishers",
            view.received,
        ),
        (
            "rabbitmq_global_messages_received_confirm_total",
            "Total number of messages received from publishers expecting confirmations",
            view.received_confirm,
        ),
        (
            "rabbitmq_global_messages_routed_total",
            "Total number of messages routed to queues or streams",
            view.routed,
        ),
        (
            "rabbitmq_global_messages_unroutable_dropped_total",
            "Total number of messages published as non-mandatory into an exchange and dropped as unroutable",
            view.unroutable_dropped,
        ),
        (
            "rabbitmq_global_messages_unroutable_returned_total",
            "Total number of messages published as mandatory into an exchange and returned to the publisher as unroutable",
            view.unroutable_returned,
        ),
        (
            "rabbitmq_global_messages_confirmed_total",
            "Total number of messages confirmed to publishers",
            view.confirmed,
        ),
        (
            "quorate_messages_refused_total",
            "Total number of messages refused to publishers with basic.nack",
            view.refused,
        ),
    ];
    for (name, help, value) in counters {
        page.counter(name, help, &[PROTOCOL], value);
    }
    page.head("rabbitmq_global_publishers", "gauge", "Publishers currently connected");
    page.sample("rabbitmq_global_publishers", &[PROTOCOL], view.publishers);
    page.head("rabbitmq_global_consumers", "gauge", "Consumers currently connected");
    page.sample("rabbitmq_global_consumers", &[PROTOCOL], view.consumers);
}

type Pick = fn(&DeliveryCounters) -> u64;

const DELIVERIES: [(&str, &str, Pick); 8] = [
    (
        "rabbitmq_global_messages_delivered_total",
        "Total number of messages delivered to consumers",
        |of| of.consume_manual_ack + of.consume_auto_ack + of.get_manual_ack + of.get_auto_ack,
    ),
    (
        "rabbitmq_global_messages_delivered_consume_manual_ack_total",
        "Total number of messages delivered to consumers using basic.consume with manual acknowledgment",
        |of| of.consume_manual_ack,
    ),
    (
        "rabbitmq_global_messages_delivered_consume_auto_ack_total",
        "Total number of messages delivered to consumers using basic.consume with automatic acknowledgment",
        |of| of.consume_auto_ack,
    ),
    (
        "rabbitmq_global_messages_delivered_get_manual_ack_total",
        "Total number of messages delivered to consumers using basic.get with manual acknowledgment",
        |of| of.get_manual_ack,
    ),
    (
        "rabbitmq_global_messages_delivered_get_auto_ack_total",
        "Total number of messages delivered to consumers using basic.get with automatic acknowledgment",
        |of| of.get_auto_ack,
    ),
    (
        "rabbitmq_global_messages_get_empty_total",
        "Total number of times basic.get operations fetched no message",
        |of| of.get_empty,
    ),
    (
        "rabbitmq_global_messages_redelivered_total",
        "Total number of messages redelivered to consumers",
        |of| of.redelivered,
    ),
    (
        "rabbitmq_global_messages_acknowledged_total",
        "Total number of messages acknowledged by consumers",
        |of| of.acknowledged,
    ),
];

fn deliveries(page: &mut Page, view: &MetricsView) {
    for (name, help, pick) in DELIVERIES {
        page.head(name, "counter", help);
        let classic = [PROTOCOL, ("queue_type", "rabbit_classic_queue")];
        page.sample(name, &classic, pick(&view.classic));
        let quorum = [PROTOCOL, ("queue_type", "rabbit_quorum_queue")];
        page.sample(name, &quorum, pick(&view.quorum));
    }
}

fn groups(page: &mut Page, view: &MetricsView) {
    type Pick = fn(&quorate_broker::view::GroupView) -> u64;
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
}

fn flow(page: &mut Page, view: &MetricsView) {
    let counters = [
        ("quorate_synced_bytes_total", "Bytes written and synced to disk", view.sync_bytes.sum),
        ("quorate_entries_total", "Log entries proposed by this node as leader", view.entries),
        (
            "quorate_bodies_read_total",
            "Message bodies read from disk instead of the run cache",
            view.bodies_read,
        ),
        (
            "quorate_snapshots_installed_total",
            "Total number of snapshots installed",
            view.snapshots_installed,
        ),
        (
            "quorate_batches_refused_total",
            "Batches that were delayed because the send queue to another node was full",
            view.batches_refused,
        ),
    ];
    for (name, help, value) in counters {
        page.counter(name, help, &[], value);
    }
}

fn histograms(page: &mut Page, view: &MetricsView) {
    let sizes = [
        (
            "quorate_batch_commands",
            "Number of commands in a batch sent by this node",
            &view.batch_commands,
        ),
        ("quorate_sync_bytes", "Bytes per sync of the log writer", &view.sync_bytes),
    ];
    for (name, help, histogram) in sizes {
        page.sizes(name, help, histogram);
    }
    let times = [
        ("quorate_sync_seconds", "Duration of a sync of the log writer", &view.sync),
        ("quorate_checkpoint_seconds", "Duration of writing a checkpoint", &view.checkpoint),
        ("quorate_batch_seconds", "Time from the arrival of a command to its batch", &view.batch),
        ("quorate_round_seconds", "Time from a batch to its commit, on the leader", &view.round),
        (
            "quorate_election_seconds",
            "Time from the loss of a leader to the next leader",
            &view.election,
        ),
    ];
    for (name, help, histogram) in times {
        page.times(name, help, histogram);
    }
}
