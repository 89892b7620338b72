//! `cluster_status` and `status`, in rabbitmqctl's layout.

use super::names::Names;
use super::plugins::PLUGINS;
use quorate_management::FEATURE_FLAGS;
use quorate_management::wire::{Cluster, Member, Node, Placement};
use serde_json::{Value, json};

/// Sections with a title and lines.
#[derive(Default)]
struct Report {
    text: String,
}

impl Report {
    fn section(&mut self, title: &str, lines: impl IntoIterator<Item = String>) {
        let lines: Vec<String> = lines.into_iter().collect();
        let body = if lines.is_empty() { "(none)".to_owned() } else { lines.join("\n") };
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&format!("{title}\n\n{body}\n"));
    }
}

fn statuses(cluster: &Cluster) -> impl Iterator<Item = (&Member, &Node)> {
    cluster.members.iter().filter_map(|member| member.status.as_ref().map(|node| (member, node)))
}

/// The name that was set, or else the id of the cluster.
fn cluster_name(cluster: &Cluster, set: Option<&str>) -> String {
    if let Some(name) = set {
        return name.to_owned();
    }
    match cluster.cluster_id {
        0 => "(not formed yet)".to_owned(),
        id => format!("{id:016x}"),
    }
}

pub(super) fn alarm_line(node: &Node, alarm: &str) -> String {
    match alarm {
        "memory" => format!("Memory alarm on node {}", node.name),
        "disk" => format!("Free disk space alarm on node {}", node.name),
        other => format!("{other} alarm on node {}", node.name),
    }
}

fn listener_line(listener: &quorate_management::wire::Listener) -> String {
    format!(
        "interface: {}, port: {}, protocol: {}, purpose: {}",
        listener.interface, listener.port, listener.protocol, listener.purpose
    )
}

fn version(node: &Node) -> String {
    let shown = format!("{} {}", node.product, node.product_version);
    if node.product == "Quorate" { shown } else { format!("{shown} (Quorate {})", node.version) }
}

/// The version of the replicated machine, and why it is not the newest one (MEM 15).
fn machine_line(cluster: &Cluster) -> String {
    let present = cluster.machine_version;
    let newest = statuses(cluster).map(|(_, node)| node.machine_newest).max().unwrap_or(present);
    if newest <= present {
        return format!("Machine version: {present}");
    }
    let knows =
        |member: &&Member| member.status.as_ref().is_some_and(|node| node.machine_newest > present);
    let lacking = cluster.members.iter().filter(|member| !knows(member));
    let names: Vec<_> = lacking.map(|member| member.name.as_str()).collect();
    format!("Machine version: {present} ({newest} when these agree: {})", names.join(", "))
}

/// The report of `cluster_status`.
pub(crate) fn cluster_status(cluster: &Cluster, name: Option<&str>) -> String {
    let mut report = Report::default();
    let cores: u32 = statuses(cluster).map(|(_, node)| node.cores).sum();
    let leader = cluster.members.iter().find(|member| member.id == cluster.catalog_leader);
    let basics = [
        format!("Cluster name: {}", cluster_name(cluster, name)),
        format!("Catalog leader: {}", leader.map_or("(none)", |leader| leader.name.as_str())),
        format!("Total CPU cores available cluster-wide: {cores}"),
        machine_line(cluster),
    ];
    report.section("Basics", basics);
    report.section("Disk Nodes", cluster.members.iter().map(|member| member.name.clone()));
    let running = cluster.members.iter().filter(|member| member.running);
    report.section("Running Nodes", running.map(|member| member.name.clone()));
    let each = |line: fn(&Member, &Node) -> String| {
        statuses(cluster).map(move |(member, node)| line(member, node))
    };
    report.section("Versions", each(|member, node| format!("{}: {}", member.name, version(node))));
    report.section(
        "CPU Cores",
        each(|member, node| format!("Node: {}, available CPU cores: {}", member.name, node.cores)),
    );
    report.section(
        "Maintenance status",
        each(|member, node| format!("Node: {}, status: {}", member.name, maintenance(node))),
    );
    report.section(
        "Readiness",
        each(|member, node| match node.ready {
            true => format!("Node: {}, ready", member.name),
            false => format!("Node: {}, not ready: {}", member.name, node.not_ready),
        }),
    );
    let alarms = statuses(cluster)
        .flat_map(|(_, node)| node.alarms.iter().map(|alarm| alarm_line(node, alarm)));
    report.section("Alarms", alarms);
    report.section("Network Partitions", []);
    let listeners = statuses(cluster).flat_map(|(member, node)| {
        node.listeners
            .iter()
            .map(|listener| format!("Node: {}, {}", member.name, listener_line(listener)))
    });
    report.section("Listeners", listeners);
    let flags = FEATURE_FLAGS.iter().map(|(name, _)| format!("Flag: {name}, state: enabled"));
    report.section("Feature flags", flags);
    report.section("Groups", group_lines(cluster));
    report.section("Members", cluster.members.iter().map(member_line));
    let names = Names::of(cluster);
    report.section("Placement", cluster.placement.iter().map(|it| placement_line(it, &names)));
    report.text
}

/// What a member is to the cluster, and what it has of the groups (MEM 1).
fn member_line(member: &Member) -> String {
    // A node of an earlier release does not say.
    let state = Some(member.state.as_str()).filter(|state| !state.is_empty());
    let zone = Some(member.zone.as_str()).filter(|zone| !zone.is_empty());
    format!(
        "Node: {}, id: {}, state: {}, zone: {}, rpc address: {}, replicas: {}, leads: {}",
        member.name,
        member.id,
        state.unwrap_or("unknown"),
        zone.unwrap_or("none"),
        member.rpc_address,
        member.replicas,
        member.leads
    )
}

/// The nodes that replicate a group, and those that did if it moves; of the catalog's group, which
/// every member replicates, those that vote (MEM 12).
fn placement_line(placement: &Placement, names: &Names) -> String {
    let what = if placement.group == 0 { " (catalog, voters)" } else { "" };
    let nodes = names.nodes(&placement.nodes).join(", ");
    let former = names.nodes(&placement.former).join(", ");
    let moves = if former.is_empty() { String::new() } else { format!("; moves from: {former}") };
    format!("Group: {}{what}, nodes: {nodes}{moves}", placement.group)
}

/// Whether a node is drained, in RabbitMQ's words.
fn maintenance(node: &Node) -> &'static str {
    if node.drained { "marked for maintenance" } else { "not under maintenance" }
}

/// The groups that each node leads.
fn group_lines(cluster: &Cluster) -> Vec<String> {
    statuses(cluster)
        .map(|(member, node)| {
            let led: Vec<String> = node
                .groups
                .iter()
                .filter(|group| group.role == "leader")
                .map(|group| group.group.to_string())
                .collect();
            let replicas = node.groups.len();
            format!("Node: {}, replicas: {replicas}, leads: {}", member.name, led.join(" "))
        })
        .collect()
}

/// `cluster_status --formatter json`, with rabbitmqctl's keys.
pub(crate) fn cluster_status_json(cluster: &Cluster, name: Option<&str>) -> Value {
    let by_node = |value: fn(&Node) -> Value| -> Value {
        let pairs = statuses(cluster).map(|(member, node)| (member.name.clone(), value(node)));
        Value::Object(pairs.collect())
    };
    let names = |members: Vec<&Member>| -> Value {
        members.iter().map(|member| member.name.clone()).collect()
    };
    let alarms: Vec<Value> = statuses(cluster)
        .flat_map(|(member, node)| {
            node.alarms.iter().map(|alarm| json!({"node": member.name, "resource": alarm}))
        })
        .collect();
    json!({
        "alarms": alarms,
        "cluster_name": cluster_name(cluster, name),
        "cluster_tags": [],
        "cpu_cores": by_node(|node| json!(node.cores)),
        "feature_flags": FEATURE_FLAGS.iter().map(flag_json).collect::<Value>(),
        "disk_nodes": names(cluster.members.iter().collect()),
        "ram_nodes": [],
        "running_nodes": names(cluster.members.iter().filter(|member| member.running).collect()),
        "partitions": {},
        "maintenance_status": by_node(|node| json!(maintenance(node))),
        "listeners": by_node(|node| {
            node.listeners
                .iter()
                .map(|listener| json!({
                    "node": node.name,
                    "interface": listener.interface,
                    "port": listener.port,
                    "protocol": listener.protocol,
                    "purpose": listener.purpose,
                }))
                .collect()
        }),
        "versions": by_node(|node| json!({
            "rabbitmq_name": node.product,
            "rabbitmq_version": node.product_version,
            "quorate_version": node.version,
        })),
        "groups": by_node(groups_json),
        "machine_version": cluster.machine_version,
        "members": cluster.members.iter().map(member_json).collect::<Value>(),
        "placement": cluster.placement.iter().map(placement_json).collect::<Value>(),
    })
}

fn flag_json((name, description): &(&str, &str)) -> Value {
    json!({
        "name": name,
        "desc": description,
        "doc_url": "",
        "provided_by": "rabbit",
        "stability": "stable",
        "state": "enabled",
    })
}

fn member_json(member: &Member) -> Value {
    json!({
        "node": member.name,
        "id": member.id,
        "state": member.state,
        "zone": member.zone,
        "rpc_address": member.rpc_address,
        "amqp_address": member.amqp_address,
        "running": member.running,
        "replicas": member.replicas,
        "leads": member.leads,
    })
}

fn placement_json(placement: &Placement) -> Value {
    json!({
        "group": placement.group,
        "nodes": placement.nodes,
        "moves": !placement.former.is_empty(),
        "former": placement.former,
    })
}

fn groups_json(node: &Node) -> Value {
    node.groups
        .iter()
        .map(|group| {
            json!({
                "group": group.group,
                "role": group.role,
                "leader": group.leader,
                "term": group.term,
                "last": group.last,
                "applied": group.applied,
                "purged": group.purged,
                "log_bytes": group.log_bytes,
            })
        })
        .collect()
}

/// A number of bytes in units of 10^9, with four decimal places, as in rabbitmqctl.
pub(super) fn gigabytes(bytes: u64) -> String {
    let parts = bytes / 100_000;
    format!("{}.{:04} gb", parts / 10_000, parts % 10_000)
}

/// The report of `status`.
pub(crate) fn status(node: &Node) -> String {
    let mut report = Report::default();
    let runtime = [
        format!("OS PID: {}", node.os_pid),
        "OS: Linux".to_owned(),
        format!("Uptime (seconds): {}", node.uptime_s),
        format!("Is under maintenance?: {}", node.drained),
        format!("{} version: {}", node.product, node.product_version),
        format!("Quorate version: {}", node.version),
        format!("Node name: {}", node.name),
        format!("Node id: {}", node.id),
        format!("Ready: {}", if node.ready { "yes" } else { node.not_ready.as_str() }),
    ];
    report.section("Runtime", runtime);
    let plugins = PLUGINS.iter().map(|(name, _)| format!(" * {name}"));
    report.section("Plugins", plugins);
    report.section("Data directory", [format!("Node data directory: {}", node.data_dir)]);
    let files = Some(&node.config_file).filter(|file| !file.is_empty());
    report.section("Config files", files.map(|file| format!(" * {file}")));
    report.section("Log file(s)", [" * <stderr>".to_owned()]);
    report.section("Alarms", node.alarms.iter().map(|alarm| alarm_line(node, alarm)));
    let memory = [
        format!("Total memory used: {}", gigabytes(node.memory_bytes)),
        "Calculation strategy: rss".to_owned(),
        format!("Memory high watermark setting: {}", gigabytes(node.memory_limit_bytes)),
    ];
    report.section("Memory", memory);
    let files = [format!("Total: {}, limit: {}", node.fds_open, node.fds_limit)];
    report.section("File Descriptors", files);
    let disk = [
        format!("Low free disk space watermark: {}", gigabytes(node.disk_free_limit_bytes)),
        format!("Free disk space: {}", gigabytes(node.disk_free_bytes)),
    ];
    report.section("Free Disk Space", disk);
    let totals = [
        format!("Connection count: {}", node.connections),
        format!("Queue count: {}", node.queues),
        format!("Virtual host count: {}", node.vhosts),
    ];
    report.section("Totals", totals);
    let groups = node.groups.iter().map(|group| {
        format!(
            "Group: {}, {}, term {}, applied {} of {}, purged to {}, log {} bytes",
            group.group,
            group.role,
            group.term,
            group.applied,
            group.last,
            group.purged,
            group.log_bytes
        )
    });
    report.section("Groups", groups);
    report.section("Listeners", node.listeners.iter().map(capitalised_listener));
    report.text
}

pub(super) fn capitalised_listener(listener: &quorate_management::wire::Listener) -> String {
    listener_line(listener).replacen("interface", "Interface", 1)
}

/// `status --formatter json`.
pub(crate) fn status_json(node: &Node) -> Value {
    json!({
        "pid": node.os_pid,
        "os": "Linux",
        "uptime": node.uptime_s,
        "rabbitmq_version": node.product_version,
        "product_name": node.product,
        "quorate_version": node.version,
        "node_name": node.name,
        "node_id": node.id,
        "is_under_maintenance": node.drained,
        "active_plugins": PLUGINS.iter().map(|(name, _)| json!(name)).collect::<Value>(),
        "log_files": ["<stderr>"],
        "is_ready": node.ready,
        "not_ready": node.not_ready,
        "data_directory": node.data_dir,
        "config_files": Some(&node.config_file).filter(|file| !file.is_empty()),
        "alarms": node.alarms,
        "memory": {"total": {"rss": node.memory_bytes}},
        "vm_memory_high_watermark_limit": node.memory_limit_bytes,
        "disk_free": node.disk_free_bytes,
        "disk_free_limit": node.disk_free_limit_bytes,
        "file_descriptors": {"total_used": node.fds_open, "total_limit": node.fds_limit},
        "totals": {
            "connection_count": node.connections,
            "queue_count": node.queues,
            "virtual_host_count": node.vhosts,
        },
        "groups": groups_json(node),
    })
}
