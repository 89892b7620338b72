//! The help of the verbs of policies and runtime parameters.

use super::super::command::{Manual, ParameterScope, PolicyVerb, Verb, plain};
use quorate_catalog::PolicyKind;

const POLICY: &str = "[--vhost <vhost>] [--priority <priority>] [--apply-to <apply-to>] [--dry-run] <name> <pattern> <definition>";

const fn policies(
    verb: PolicyVerb,
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    positional: usize,
) -> Manual {
    let section = match verb {
        PolicyVerb::SetPolicy(_)
        | PolicyVerb::ClearPolicy(_)
        | PolicyVerb::ListPolicies(_)
        | PolicyVerb::ListMatching => "Policies",
        PolicyVerb::SetClusterName => "Configuration and Environment",
        PolicyVerb::SetParameter(_)
        | PolicyVerb::ClearParameter(_)
        | PolicyVerb::ListParameters(_) => "Runtime Parameters",
    };
    let switches: &[&str] = match verb {
        PolicyVerb::SetPolicy(_) => &["priority", "apply-to"],
        PolicyVerb::ListPolicies(_) | PolicyVerb::ListParameters(_) => &["no-table-headers"],
        PolicyVerb::ListMatching => &["object-type", "no-table-headers"],
        PolicyVerb::ClearPolicy(_)
        | PolicyVerb::SetClusterName
        | PolicyVerb::SetParameter(_)
        | PolicyVerb::ClearParameter(_) => &[],
    };
    let positional = (positional, positional);
    plain(Verb::Policies(verb), name, section, arguments, summary, positional, switches)
}

pub(crate) const MANUALS: &[Manual] = &[
    policies(
        PolicyVerb::ClearPolicy(PolicyKind::User),
        "clear_policy",
        "[--vhost <vhost>] [--dry-run] <name>",
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
        PolicyVerb::ListMatching,
        "list_policies_that_match",
        "[--vhost <vhost>] [--object-type <queue | exchange>] <name>",
        "Lists all policies that match a queue or an exchange; the first one is in force",
        1,
    ),
    policies(PolicyVerb::SetClusterName, "set_cluster_name", "<name>", "Sets the cluster name", 1),
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
        "[--vhost <vhost>] [--dry-run] <name>",
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
