//! The verbs of `quorate ctl` and their arguments, as usage lines show them.

use super::access::{self, AccessVerb};
use super::alarms::Resource;
use super::browse::{self, BrowseVerb};
use super::certificates;
use super::columns::{self, Listing};
use super::members::{self, MemberVerb};
use super::node::{self, NodeVerb};
use quorate_catalog::PolicyKind;

/// A verb of `quorate ctl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Help,
    Version,
    AwaitStartup,
    ClusterStatus,
    Status,
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
    Browse(BrowseVerb),
}

/// Verbs of policies and runtime parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyVerb {
    SetPolicy(PolicyKind),
    ClearPolicy(PolicyKind),
    ListPolicies(PolicyKind),
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

const POLICY: &str = "[--vhost <vhost>] [--priority <priority>] [--apply-to <apply-to>] [--dry-run] <name> <pattern> <definition>";
const CLEAR_POLICY: &str = "[--vhost <vhost>] [--dry-run] <name>";

const fn policies(
    verb: PolicyVerb,
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    positional: usize,
) -> Manual {
    let section = match verb {
        PolicyVerb::SetPolicy(_) | PolicyVerb::ClearPolicy(_) | PolicyVerb::ListPolicies(_) => {
            "Policies"
        }
        PolicyVerb::SetParameter(_)
        | PolicyVerb::ClearParameter(_)
        | PolicyVerb::ListParameters(_) => "Runtime Parameters",
    };
    let switches: &[&str] = match verb {
        PolicyVerb::SetPolicy(_) => &["priority", "apply-to", "dry-run"],
        PolicyVerb::ClearPolicy(_) => &["dry-run"],
        PolicyVerb::ListPolicies(_) | PolicyVerb::ListParameters(_) => &["no-table-headers"],
        PolicyVerb::SetParameter(_) | PolicyVerb::ClearParameter(_) => &[],
    };
    let positional = (positional, positional);
    plain(Verb::Policies(verb), name, section, arguments, summary, positional, switches)
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
        Verb::AwaitStartup,
        "await_startup",
        "Nodes",
        "[--timeout <timeout>]",
        "Waits until the target node serves clients",
        (0, 0),
        &[],
    ),
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
        "[--vhost <vhost>] <queue_name> [--if-empty|-e] [--if-unused|-u] [--timeout <timeout>]",
        "Deletes a queue",
        (1, 1),
        &["if-empty", "if-unused"],
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
        "[<file_path | \"-\">] [--format json] [--dry-run]",
        "Imports definitions in JSON",
        (0, 1),
        &["format", "dry-run"],
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
    policies(
        PolicyVerb::ClearPolicy(PolicyKind::User),
        "clear_policy",
        CLEAR_POLICY,
        "Clears (removes) a policy",
        1,
    ),
    policies(
        PolicyVerb::ListPolicies(PolicyKind::User),
        "list_policies",
        "[--vhost <vhost>] [--no-table-headers]",
        "Lists all policies in a virtual host",
        0,
    ),
    policies(
        PolicyVerb::SetPolicy(PolicyKind::User),
        "set_policy",
        POLICY,
        "Sets or updates a policy",
        3,
    ),
    policies(
        PolicyVerb::ClearPolicy(PolicyKind::Operator),
        "clear_operator_policy",
        CLEAR_POLICY,
        "Clears an operator policy",
        1,
    ),
    policies(
        PolicyVerb::ListPolicies(PolicyKind::Operator),
        "list_operator_policies",
        "[--vhost <vhost>] [--no-table-headers]",
        "Lists operator policy overrides for a virtual host",
        0,
    ),
    policies(
        PolicyVerb::SetPolicy(PolicyKind::Operator),
        "set_operator_policy",
        POLICY,
        "Sets an operator policy that overrides a subset of arguments in user policies",
        3,
    ),
    policies(
        PolicyVerb::ClearParameter(ParameterScope::VirtualHost),
        "clear_parameter",
        "[--vhost <vhost>] <component_name> <name>",
        "Clears a runtime parameter",
        2,
    ),
    policies(
        PolicyVerb::ListParameters(ParameterScope::VirtualHost),
        "list_parameters",
        "[--vhost <vhost>] [--no-table-headers]",
        "Lists runtime parameters for a virtual host",
        0,
    ),
    policies(
        PolicyVerb::SetParameter(ParameterScope::VirtualHost),
        "set_parameter",
        "[--vhost <vhost>] <component_name> <name> <value>",
        "Sets a runtime parameter",
        3,
    ),
    policies(
        PolicyVerb::ClearParameter(ParameterScope::Global),
        "clear_global_parameter",
        "<name>",
        "Clears a global runtime parameter",
        1,
    ),
    policies(
        PolicyVerb::ListParameters(ParameterScope::Global),
        "list_global_parameters",
        "[--no-table-headers]",
        "Lists global runtime parameters",
        0,
    ),
    policies(
        PolicyVerb::SetParameter(ParameterScope::Global),
        "set_global_parameter",
        "<name> <value>",
        "Sets a global runtime parameter",
        2,
    ),
];

/// All verbs, in the order of the help.
pub(crate) fn manuals() -> impl Iterator<Item = &'static Manual> {
    let others = node::MANUALS.iter().chain(members::MANUALS).chain([&certificates::MANUAL]);
    let others = others.chain(browse::MANUALS);
    MANUALS.iter().chain(access::MANUALS).chain(others)
}

/// The manual of a verb.
pub(crate) fn find(name: &str) -> Option<&'static Manual> {
    manuals().find(|manual| manual.name == name)
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
    let mut sections: Vec<&str> = manuals().map(|manual| manual.section).collect();
    sections.sort_unstable();
    sections.dedup();
    for manual in
        sections.iter().flat_map(|name| manuals().filter(move |manual| manual.section == *name))
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
pub(crate) fn unknown(name: &str) -> String {
    let near = manuals()
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
            unknown("list_quues"),
            "\nCommand 'list_quues' not found. \nDid you mean 'list_queues'? \n"
        );
        assert_eq!(unknown("frobnicate"), "\nCommand 'frobnicate' not found. \n");
    }

    #[test]
    fn the_overview_names_every_verb_once() {
        let overview = overview("rabbitmqctl");
        for manual in manuals() {
            assert_eq!(overview.matches(&format!("   {} ", manual.name)).count(), 1);
        }
    }
}
