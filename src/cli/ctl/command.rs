//! The verbs of `quorate ctl` and their arguments, as usage lines show them.

use super::about::{self, AboutVerb};
use super::access::{self, AccessVerb};
use super::alarms::Resource;
use super::awaiting::{self, AwaitVerb};
use super::browse::{self, BrowseVerb};
use super::certificates;
use super::checks::{self, CheckVerb};
use super::columns::{self, Listing};
use super::features::{self, FeatureVerb};
use super::idle::{self, IdleVerb};
use super::members::{self, MemberVerb};
use super::node::{self, NodeVerb};
use super::plugins::{self, PluginVerb};
use super::policies;
use super::process::{self, ProcessVerb};
use super::replicas::{self, ReplicaVerb};
use super::tasks::{self, TaskVerb};
use quorate_catalog::PolicyKind;

/// A verb of `quorate ctl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Help,
    Version,
    ClusterStatus,
    Status,
    Report,
    Audit,
    List(Listing),
    DeleteQueue,
    PurgeQueue,
    Policies(PolicyVerb),
    ExportDefinitions,
    ImportDefinitions,
    Access(AccessVerb),
    GenerateCertificates,
    /// Sets the threshold of this resource's alarm.
    SetAlarm(Resource),
    Node(NodeVerb),
    Member(MemberVerb),
    Check(CheckVerb),
    About(AboutVerb),
    Replicas(ReplicaVerb),
    Await(AwaitVerb),
    Process(ProcessVerb),
    Feature(FeatureVerb),
    Plugins(PluginVerb),
    /// Does nothing, and says so.
    Idle(IdleVerb),
    Browse(BrowseVerb),
    Task(TaskVerb),
}

impl Verb {
    /// True if `--dry-run` shows what the verb would change.
    pub(super) fn has_dry_run(self) -> bool {
        matches!(
            self,
            Self::ImportDefinitions
                | Self::Policies(PolicyVerb::SetPolicy(_) | PolicyVerb::ClearPolicy(_))
                | Self::Task(TaskVerb::Redrive | TaskVerb::Move | TaskVerb::DeleteMessages)
        )
    }
}

/// Verbs of policies and runtime parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyVerb {
    SetPolicy(PolicyKind),
    ClearPolicy(PolicyKind),
    ListPolicies(PolicyKind),
    ListMatching,
    SetClusterName,
    SetParameter(ParameterScope),
    ClearParameter(ParameterScope),
    ListParameters(ParameterScope),
}

/// The scope of a runtime parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParameterScope {
    /// A component of one virtual host.
    VirtualHost,
    /// All virtual hosts.
    Global,
}

/// The help of a verb.
#[derive(Debug)]
pub(crate) struct Manual {
    pub(crate) verb: Verb,
    pub(crate) name: &'static str,
    pub(crate) section: &'static str,
    /// The text after the name in the usage line.
    pub(crate) arguments: &'static str,
    pub(crate) summary: &'static str,
    /// Minimum and maximum of positional arguments.
    pub(crate) positional: (usize, usize),
    /// Options in addition to the general ones, long names without dashes.
    pub(crate) switches: &'static [&'static str],
}

/// A verb with this maximum takes any number of arguments.
pub(crate) const NO_LIMIT: usize = 256;
const LIST: &str = "[--no-table-headers] [<column> ...] [--timeout <timeout>]";
const LIST_OF_VHOST: &str =
    "[--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>]";

const fn list(
    listing: Listing,
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    switches: &'static [&'static str],
) -> Manual {
    Manual {
        verb: Verb::List(listing),
        name,
        section: "Monitoring, observability and health checks",
        arguments,
        summary,
        positional: (0, NO_LIMIT),
        switches,
    }
}

/// The manual of a verb that prints no list.
pub(crate) const fn plain(
    verb: Verb,
    name: &'static str,
    section: &'static str,
    arguments: &'static str,
    summary: &'static str,
    positional: (usize, usize),
    switches: &'static [&'static str],
) -> Manual {
    Manual { verb, name, section, arguments, summary, positional, switches }
}

/// The verbs on queues and the cluster.
const MANUALS: &[Manual] = &[
    plain(
        Verb::Help,
        "help",
        "Help",
        "[<command>]",
        "Displays usage information for a command",
        (0, 1),
        &[],
    ),
    plain(Verb::Version, "version", "Help", "", "Displays the version", (0, 0), &[]),
    plain(
        Verb::ClusterStatus,
        "cluster_status",
        "Cluster",
        "[--timeout <timeout>]",
        "Displays all the nodes in the cluster, together with the currently running nodes",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Audit,
        "audit",
        "Cluster",
        "[--timeout <timeout>]",
        "Compares the state of all replicas of every group",
        (0, 0),
        &[],
    ),
    list(
        Listing::Bindings,
        "list_bindings",
        LIST_OF_VHOST,
        "Lists all bindings on a vhost",
        &["no-table-headers"],
    ),
    list(
        Listing::Channels,
        "list_channels",
        LIST,
        "Lists all channels of the cluster",
        &["no-table-headers"],
    ),
    list(
        Listing::Connections,
        "list_connections",
        LIST,
        "Lists AMQP 0.9.1 connections of the cluster",
        &["no-table-headers"],
    ),
    list(
        Listing::Consumers,
        "list_consumers",
        LIST_OF_VHOST,
        "Lists all consumers for a vhost",
        &["no-table-headers"],
    ),
    list(
        Listing::Exchanges,
        "list_exchanges",
        LIST_OF_VHOST,
        "Lists exchanges",
        &["no-table-headers"],
    ),
    list(
        Listing::Queues,
        "list_queues",
        "[--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, ...] [--timeout <timeout>]",
        "Lists queues and their properties",
        &["no-table-headers", "online", "offline", "local"],
    ),
    plain(
        Verb::Report,
        "report",
        "Monitoring, observability and health checks",
        "[--timeout <timeout>]",
        "Displays everything that helps to find out what is wrong with a cluster",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Status,
        "status",
        "Monitoring, observability and health checks",
        "[--timeout <timeout>]",
        "Displays status of a node",
        (0, 0),
        &[],
    ),
    plain(
        Verb::DeleteQueue,
        "delete_queue",
        "Queues",
        "[--vhost <vhost>] <queue_name> [--if-empty|-e] [--if-unused|-u] [--force] [--timeout <timeout>]",
        "Deletes a queue",
        (1, 1),
        &["if-empty", "if-unused", "force"],
    ),
    plain(
        Verb::PurgeQueue,
        "purge_queue",
        "Queues",
        "[--vhost <vhost>] <queue> [--timeout <timeout>]",
        "Purges a queue (removes all messages in it)",
        (1, 1),
        &[],
    ),
    plain(
        Verb::ExportDefinitions,
        "export_definitions",
        "Definitions",
        "<file_path | \"-\"> [--format json]",
        "Exports definitions in JSON",
        (1, 1),
        &["format"],
    ),
    plain(
        Verb::ImportDefinitions,
        "import_definitions",
        "Definitions",
        "[<file_path | \"-\">] [--format json] [--skip-if-unchanged] [--dry-run]",
        "Imports definitions in JSON; what is so already is not changed",
        (0, 1),
        &["format", "skip-if-unchanged"],
    ),
    plain(
        Verb::SetAlarm(Resource::Disk),
        "set_disk_free_limit",
        "Configuration and Environment",
        "<disk_limit> | mem_relative <fraction>",
        "Sets the free disk space below which the node raises its disk alarm",
        (0, NO_LIMIT),
        &[],
    ),
    plain(
        Verb::SetAlarm(Resource::Memory),
        "set_vm_memory_high_watermark",
        "Configuration and Environment",
        "<fraction> | absolute <value>",
        "Sets the memory use above which the node raises its memory alarm",
        (0, NO_LIMIT),
        &[],
    ),
];

/// The tool that has verbs of its own, and only these.
pub(crate) const PLUGINS_TOOL: &str = "rabbitmq-plugins";
/// The verbs that every tool has.
const EVERYWHERE: [&str; 2] = ["help", "version"];

/// All verbs of a tool, in the order of the help. All tools but `rabbitmq-plugins` have the same.
pub(crate) fn manuals(program: &str) -> impl Iterator<Item = &'static Manual> {
    let others = node::MANUALS.iter().chain(members::MANUALS).chain([&certificates::MANUAL]);
    let others = others.chain(browse::MANUALS).chain(tasks::MANUALS);
    let checks = checks::MANUALS.iter().chain(about::MANUALS).chain(replicas::MANUALS);
    let more = awaiting::MANUALS.iter().chain(process::MANUALS).chain(features::MANUALS);
    let more = more.chain(idle::MANUALS);
    let all = MANUALS
        .iter()
        .chain(policies::MANUALS)
        .chain(access::MANUALS)
        .chain(others)
        .chain(checks)
        .chain(more);
    let is_plugins = program == PLUGINS_TOOL;
    let all = all.filter(move |manual| !is_plugins || EVERYWHERE.contains(&manual.name));
    all.chain(plugins::MANUALS.iter().filter(move |_| is_plugins))
}

/// The manual of a verb of a tool.
pub(crate) fn find(name: &str, program: &str) -> Option<&'static Manual> {
    manuals(program).find(|manual| manual.name == name)
}

/// The usage line of a verb.
pub(crate) fn usage(manual: &Manual, program: &str) -> String {
    let line = format!(
        "{program} [--node <node>] [--longnames] [--quiet] {} {}",
        manual.name, manual.arguments
    );
    format!("Usage\n\n{}", line.trim_end())
}

/// The help of a verb.
pub(crate) fn help(manual: &Manual, program: &str) -> String {
    let mut text = format!("\n{}\n\n{}.\n", usage(manual, program), manual.summary);
    if let Verb::List(listing) = manual.verb {
        let columns = columns::names(listing).join(", ");
        text.push_str(&format!("\n<column>\n\tmust be one of {columns}\n"));
    }
    text.push_str(GENERAL);
    text
}

const GENERAL: &str = "
General Options

-? --help              displays command help
-n --node <node>       rpc address: HOST:PORT, HOST or NAME@HOST (default 127.0.0.1:7672)
-t --timeout <n>       operation timeout in seconds
-q --quiet             suppress informational messages
-s --silent            suppress informational messages and table header row
-p --vhost <vhost>     virtual host to use
   --formatter <name>  json, pretty_table, table, csv or erlang
   --dry-run           checks the command line, and does nothing else; of policies and definitions: shows what would change
   --cluster-secret-file <path>
                       file with the cluster secret (default ~/.quorate/secret); the variable
                       QUORATE_CLUSTER_SECRET takes precedence
   --rpc-tls true --rpc-tls-certificate-file <path> --rpc-tls-key-file <path> --rpc-tls-ca-file <path>
                       TLS, as the settings of the node; also the variables QUORATE_RPC_TLS, ...
";

/// The list of all verbs.
pub(crate) fn overview(program: &str) -> String {
    let mut text = format!(
        "\nUsage\n\n{program} [--node <node>] [--timeout <timeout>] [--longnames] [--quiet] <command> [<command options>]\n\nAvailable commands:\n"
    );
    let mut section = "";
    let mut sections: Vec<&str> = manuals(program).map(|manual| manual.section).collect();
    sections.sort_unstable();
    sections.dedup();
    for manual in sections
        .iter()
        .flat_map(|name| manuals(program).filter(move |manual| manual.section == *name))
    {
        if manual.section != section {
            section = manual.section;
            text.push_str(&format!("\n{section}:\n\n"));
        }
        text.push_str(&format!("   {:<20} {}\n", manual.name, manual.summary));
    }
    text.push_str(&format!(
        "\nUse '{program} help <command>' to learn more about a specific command\n"
    ));
    text
}

/// The error text for an unknown verb, with the most similar one.
pub(crate) fn unknown(name: &str, program: &str) -> String {
    let near = manuals(program)
        .map(|manual| (distance(name, manual.name), manual.name))
        .filter(|(distance, _)| *distance <= 3)
        .min();
    match near {
        Some((_, near)) => {
            format!("\nCommand '{name}' not found. \nDid you mean '{near}'? \n")
        }
        None => format!("\nCommand '{name}' not found. \n"),
    }
}

/// Levenshtein distance, in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, left) in a.bytes().enumerate() {
        let mut diagonal = at;
        let mut before = at + 1;
        let mut next = vec![before];
        for (right, above) in b.bytes().zip(row.iter().skip(1).copied()) {
            let cost = diagonal + usize::from(left != right);
            before = cost.min(above + 1).min(before + 1);
            next.push(before);
            diagonal = above;
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_verb_is_suggested() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(
            unknown("list_quues", "rabbitmqctl"),
            "\nCommand 'list_quues' not found. \nDid you mean 'list_queues'? \n"
        );
        assert_eq!(unknown("frobnicate", "rabbitmqctl"), "\nCommand 'frobnicate' not found. \n");
    }

    #[test]
    fn the_overview_names_every_verb_once() {
        for program in ["rabbitmqctl", PLUGINS_TOOL] {
            let overview = overview(program);
            for manual in manuals(program) {
                let entry = format!("   {} ", manual.name);
                assert_eq!(overview.matches(&entry).count(), 1, "{}", manual.name);
            }
        }
        assert!(find("list", PLUGINS_TOOL).is_some() && find("list", "rabbitmqctl").is_none());
        assert!(find("status", PLUGINS_TOOL).is_none());
    }
}
