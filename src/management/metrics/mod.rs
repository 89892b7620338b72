//! `/metrics`, `/metrics/per-object`, `/metrics/detailed` and `/metrics/memory-breakdown`: names of
//! rabbitmq_prometheus if it has the metric, so that dashboards continue to work, otherwise names with
//! `quorate_`.

mod dead_letters;
mod exposition;
mod families;
mod messages;
mod objects;
mod raft;
#[cfg(test)]
mod tests;

pub(crate) use families::Wanted;

use crate::facts::{NodeFacts, ProcessFacts};
use crate::memory_uses;
use crate::rates::Rates;
use crate::source::Source;
use exposition::Page;
use objects::PER_OBJECT;
use quorate_broker::{
    ShareFigures,
    view::{Alarm, ClusterView, Figures, HistogramView, MetricsView, QueueFigure, WAIT_BOUNDS_MS},
};

/// What a scrape is answered from.
#[derive(Debug)]
pub(crate) struct Scrape<'a> {
    pub(crate) facts: &'a NodeFacts,
    pub(crate) process: ProcessFacts,
    pub(crate) cluster: &'a ClusterView,
    /// The name of the cluster, if it has one.
    pub(crate) name: Option<&'a str>,
    pub(crate) view: &'a MetricsView,
    /// Empty for the page without objects.
    pub(crate) figures: &'a Figures,
    pub(crate) rates: &'a Rates,
    pub(crate) wanted: &'a Wanted,
}

impl Scrape<'_> {
    /// The led queues that are wanted.
    fn queues(&self) -> impl Iterator<Item = &QueueFigure> {
        self.figures.queues.iter().filter(|queue| {
            self.wanted.vhost(queue.name.vhost.as_str())
                && self.wanted.queue(queue.name.name.as_str())
        })
    }

    fn is_wanted_vhost(&self, name: &str) -> bool {
        self.wanted.vhost(name)
    }
}

/// The page of `/metrics`.
pub(crate) fn aggregated(scrape: &Scrape<'_>) -> String {
    let mut page = Page::default();
    let view = scrape.view;
    of_node(&mut page, scrape, "aggregated");
    clients(&mut page, PER_OBJECT, view);
    queues(&mut page, view);
    page.into_text()
}

/// The page of `/metrics/per-object`.
pub(crate) fn per_object(scrape: &Scrape<'_>) -> String {
    let mut page = Page::default();
    of_node(&mut page, scrape, "per-object");
    clients(&mut page, PER_OBJECT, scrape.view);
    let show = [
        objects::queue_coarse,
        objects::queue_consumers,
        objects::queue_metrics,
        objects::queue_delivery,
        objects::queue_published,
        objects::raft,
        objects::exchanges,
        objects::connection_bytes,
        objects::connection_packets,
        objects::channels,
        objects::channel_publishes,
        objects::channel_deliveries,
    ];
    for show in show {
        show(&mut page, PER_OBJECT, scrape);
    }
    page.into_text()
}

/// The page of `/metrics/detailed`.
pub(crate) fn detailed<S: Source>(scrape: &Scrape<'_>, source: &S) -> String {
    let mut page = Page::default();
    identity(&mut page, scrape, "detailed");
    families::show(&mut page, scrape, source);
    page.into_text()
}

/// The page of `/metrics/memory-breakdown`.
pub(crate) fn memory_breakdown(scrape: &Scrape<'_>) -> String {
    let mut page = Page::default();
    identity(&mut page, scrape, "memory-breakdown");
    let measured = memory_uses::measured(&scrape.view.node.memory);
    for (category, bytes) in memory_uses::all(scrape.process.resident_bytes, &measured) {
        if let Some(metric) = category.metric {
            page.gauge(&format!("rabbitmq_memory_{metric}_bytes"), category.help, bytes);
        }
    }
    page.into_text()
}

/// What has no object and is on both other pages.
fn of_node(page: &mut Page, scrape: &Scrape<'_>, endpoint: &str) {
    let view = scrape.view;
    identity(page, scrape, endpoint);
    resources(page, PER_OBJECT, scrape, |_| true);
    alarms(page, scrape);
    nodes(page, scrape);
    memory(page, view);
    logins(page, PER_OBJECT, view);
    queue_churn(page, PER_OBJECT, view);
    messages::publishes(page, view);
    messages::deliveries(page, view);
    dead_letters::show(page, view);
    raft::groups(page, view);
    raft::systems(page, view, scrape.rates);
    persister(page, PER_OBJECT, view);
    flow(page, view);
    histograms(page, view);
}

fn identity(page: &mut Page, scrape: &Scrape<'_>, endpoint: &str) {
    let facts = scrape.facts;
    page.head("rabbitmq_build_info", "untyped", "RabbitMQ & Erlang/OTP version info");
    let version = facts.product_version.as_str();
    let versions = [
        ("rabbitmq_version", version),
        ("prometheus_plugin_version", version),
        ("prometheus_client_version", facts.version.as_str()),
        ("erlang_version", facts.version.as_str()),
        ("product_name", facts.product.as_str()),
        ("product_version", version),
        ("quorate_version", facts.version.as_str()),
    ];
    page.sample("rabbitmq_build_info", &versions, 1);
    let id = scrape.cluster.cluster.map_or_else(String::new, |id| format!("{:016x}", id.0));
    page.head("rabbitmq_identity_info", "untyped", "RabbitMQ node & cluster identity info");
    let identity = [
        ("rabbitmq_node", facts.name.as_str()),
        ("rabbitmq_cluster", scrape.name.unwrap_or(&id)),
        ("rabbitmq_cluster_permanent_id", id.as_str()),
        ("rabbitmq_endpoint", endpoint),
    ];
    page.sample("rabbitmq_identity_info", &identity, 1);
}

/// Resources of the process and their limits, as far as they are wanted.
fn resources(page: &mut Page, prefix: &str, scrape: &Scrape<'_>, wanted: impl Fn(bool) -> bool) {
    let (node, process) = (&scrape.view.node, scrape.process);
    let gauges = [
        (false, "process_resident_memory_bytes", "Memory used in bytes", process.resident_bytes),
        (
            true,
            "resident_memory_limit_bytes",
            "Memory high watermark in bytes",
            node.memory_limit_bytes,
        ),
        (false, "process_open_fds", "Open file descriptors", process.fds_open),
        (true, "process_max_fds", "Open file descriptors limit", process.fds_limit),
        (
            false,
            "disk_space_available_bytes",
            "Disk space available in bytes",
            node.disk_free_bytes,
        ),
        (
            true,
            "disk_space_available_limit_bytes",
            "Free disk space low watermark in bytes",
            node.disk_free_limit_bytes,
        ),
        (true, "erlang_uptime_seconds", "Node uptime", scrape.facts.started.elapsed().as_secs()),
    ];
    for (is_limit, stem, help, value) in gauges {
        if wanted(is_limit) {
            page.gauge(&format!("{prefix}{stem}"), help, value);
        }
    }
}

fn alarms(page: &mut Page, scrape: &Scrape<'_>) {
    let (view, process) = (scrape.view, scrape.process);
    let alarm = |alarm| u64::from(view.node.alarms.contains(&alarm));
    let gauges = [
        (
            "rabbitmq_alarms_memory_used_watermark",
            "is 1 if VM memory watermark alarm is in effect",
            alarm(Alarm::Memory),
        ),
        (
            "rabbitmq_alarms_free_disk_space_watermark",
            "is 1 if free disk space watermark alarm is in effect",
            alarm(Alarm::Disk),
        ),
        (
            "rabbitmq_alarms_file_descriptor_limit",
            "is 1 if file descriptor limit alarm is in effect",
            u64::from(process.fds_limit > 0 && process.fds_open >= process.fds_limit),
        ),
        (
            "quorate_run_cache_bytes",
            "Message bodies in the run cache in bytes",
            view.node.memory.database.run_cache,
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

/// The other nodes, in the states of Erlang's distribution: 3 is connected, 1 is down.
fn nodes(page: &mut Page, scrape: &Scrape<'_>) {
    let name = "erlang_vm_dist_node_state";
    page.head(name, "gauge", "The current state of the distribution link");
    let others = scrape.cluster.members.iter().filter(|member| member.id != scrape.facts.id);
    for member in others {
        let peer = scrape.facts.naming.name(member.id, &member.rpc_address);
        page.sample(name, &[("peer", &peer)], if member.running { 3 } else { 1 });
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
        for figures in &view.node.memory.shares {
            page.sample(name, &[("share", figures.share.name())], pick(figures));
        }
    }
}

fn clients(page: &mut Page, prefix: &str, view: &MetricsView) {
    let gauges = [
        ("connections", "Connections currently open", view.node.connections),
        ("channels", "Channels currently open", view.channels),
        ("consumers", "Consumers currently connected", view.consumers),
    ];
    for (stem, help, value) in gauges {
        page.gauge(&format!("{prefix}{stem}"), help, value);
    }
    let counters = [
        ("connections_opened_total", "Total number of connections opened", view.connections_opened),
        (
            "connections_closed_total",
            "Total number of connections closed or terminated",
            view.connections_closed,
        ),
        ("channels_opened_total", "Total number of channels opened", view.channels_opened),
        ("channels_closed_total", "Total number of channels closed", view.channels_closed),
    ];
    for (stem, help, value) in counters {
        page.counter(&format!("{prefix}{stem}"), help, &[], value);
    }
}

/// Each node counts the messages of the queues that it leads, so the sum over the nodes is the
/// cluster's number.
fn queues(page: &mut Page, view: &MetricsView) {
    let ready = view.messages_ready;
    let unacknowledged = view.messages_unacknowledged;
    let waiting = view.messages_delayed + view.dead_letters_waiting;
    let gauges = [
        ("rabbitmq_queue_messages_ready", "Messages ready to be delivered to consumers", ready),
        (
            "rabbitmq_queue_messages_unacked",
            "Messages delivered to consumers but not yet acknowledged",
            unacknowledged,
        ),
        (
            "rabbitmq_queue_messages",
            "Sum of all messages: ready, unacknowledged, delayed, and dead letters that wait - total queue depth",
            ready + unacknowledged + waiting,
        ),
        (
            "rabbitmq_queue_messages_delayed",
            "Returned messages that wait for their retry",
            view.messages_delayed,
        ),
        (
            "rabbitmq_queue_messages_ready_bytes",
            "Size in bytes of ready messages",
            view.messages_ready_bytes,
        ),
        (
            "rabbitmq_queue_messages_unacked_bytes",
            "Size in bytes of all unacknowledged messages",
            view.messages_unacknowledged_bytes,
        ),
        (
            "rabbitmq_queue_messages_bytes",
            "Size in bytes of ready and unacknowledged messages",
            view.messages_ready_bytes + view.messages_unacknowledged_bytes,
        ),
        (
            "rabbitmq_queue_process_memory_bytes",
            "Memory in bytes that the queues use, about",
            view.queues_memory_bytes,
        ),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help, value);
    }
}

/// Queues, declares, and queues made and deleted. Every node counts all queues, while in RabbitMQ only
/// the nodes of their leaders do: use the maximum.
fn queue_churn(page: &mut Page, prefix: &str, view: &MetricsView) {
    page.gauge(&format!("{prefix}queues"), "Queues available", view.node.queues);
    let counters = [
        ("queues_declared_total", "Total number of queues declared", view.queues_declared),
        ("queues_created_total", "Total number of queues created", view.queues_created),
        ("queues_deleted_total", "Total number of queues deleted", view.queues_deleted),
    ];
    for (stem, help, value) in counters {
        page.counter(&format!("{prefix}{stem}"), help, &[], value);
    }
}

/// Logins by protocol.
fn logins(page: &mut Page, prefix: &str, view: &MetricsView) {
    type Pick = fn(&quorate_broker::view::Attempts) -> u64;
    let rows: [(&str, &str, Pick); 3] = [
        ("auth_attempts_total", "Total number of authentication attempts", |it| {
            it.succeeded + it.failed
        }),
        (
            "auth_attempts_succeeded_total",
            "Total number of successful authentication attempts",
            |it| it.succeeded,
        ),
        ("auth_attempts_failed_total", "Total number of failed authentication attempts", |it| {
            it.failed
        }),
    ];
    for (stem, help, pick) in rows {
        let name = format!("{prefix}{stem}");
        page.head(&name, "counter", help);
        for attempts in &view.logins {
            page.sample(&name, &[("protocol", attempts.protocol.name())], pick(attempts));
        }
    }
}

/// Writes of the disk.
fn persister(page: &mut Page, prefix: &str, view: &MetricsView) {
    let syncs: u64 = view.sync.counts.iter().sum();
    let counters = [
        ("io_sync_ops_total", "Total number of I/O sync operations", syncs),
        ("io_write_bytes_total", "Total number of I/O bytes written", view.sync_bytes.sum),
        ("msg_store_read_total", "Total number of Message Store read operations", view.bodies_read),
    ];
    for (stem, help, value) in counters {
        page.counter(&format!("{prefix}{stem}"), help, &[], value);
    }
    let name = format!("{prefix}io_sync_time_seconds_total");
    page.head(&name, "counter", "Total I/O sync time");
    page.sample_text(&name, &[], &exposition::seconds(view.sync.sum));
}

fn flow(page: &mut Page, view: &MetricsView) {
    let counters = [
        ("quorate_entries_total", "Log entries proposed by this node as leader", view.entries),
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
        ("rabbitmq_raft_fsync_seconds", "Duration of a sync of the log writer", &view.sync),
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
    let name = "rabbitmq_message_size_bytes";
    let help = "Size of messages received from publishers";
    page.labelled_sizes(name, help, &[messages::PROTOCOL], &view.message_bytes);
    let waits = HistogramView {
        bounds: WAIT_BOUNDS_MS.to_vec(),
        counts: view.waits.counts.to_vec(),
        sum: view.waits.sum_ms,
    };
    let help = "Time from the arrival of a message in its queue to its first delivery";
    page.milliseconds("rabbitmq_queue_time_in_queue_seconds", help, &waits);
}
