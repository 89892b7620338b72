//! The options of all verbs, by name.

/// An option, by its effect and its value.
pub(super) enum Option_ {
    Node,
    Vhost,
    Timeout,
    Formatter,
    SecretFile,
    /// A setting of TLS.
    Tls(&'static str),
    Quiet,
    Silent,
    Help,
    /// Long node names: accepted without effect.
    Ignored,
    /// Accepted without effect, with its value.
    IgnoredValue,
    /// Erlang's cookie, with its value.
    Cookie,
    DryRun,
    Switch(&'static str),
    Priority,
    ApplyTo,
    Format,
    /// An option of some verbs, with a value.
    Valued(&'static str),
}

/// The options of `rabbitmq-plugins` that other tools have for something else.
pub(super) fn plugins_option(name: &str) -> Option<Option_> {
    Some(Option_::Switch(match name {
        "-e" => "implicitly-enabled",
        "-E" => "enabled",
        "-m" => "minimal",
        "-v" => "verbose",
        _ => return None,
    }))
}

/// Options without a value that some verbs have, and their names.
const SWITCHES: &[(&str, &str)] = &[
    ("--no-table-headers", "no-table-headers"),
    ("--online", "online"),
    ("--offline", "offline"),
    ("--local", "local"),
    ("-e", "if-empty"),
    ("--if-empty", "if-empty"),
    ("-u", "if-unused"),
    ("--if-unused", "if-unused"),
    ("--pre-hashed-password", "pre-hashed-password"),
    ("--global", "global"),
    ("--force", "force"),
    ("--skip-if-unchanged", "skip-if-unchanged"),
    ("--idempotent", "idempotent"),
    ("--no-wait", "no-wait"),
    ("--opt-in", "opt-in"),
    ("--experimental", "opt-in"),
    ("--used", "used"),
    ("-a", "all"),
    ("--all", "all"),
    ("--details", "details"),
    ("--errors-only", "errors-only"),
    ("--verbose", "verbose"),
    ("--minimal", "minimal"),
    ("--enabled", "enabled"),
    ("--implicitly-enabled", "implicitly-enabled"),
    ("--drain", "drain"),
    ("--full", "full"),
];

/// Options with a value that some verbs have, and their names.
const VALUED: &[(&str, &str)] = &[
    ("--description", "description"),
    ("--tags", "tags"),
    ("--default-queue-type", "default-queue-type"),
    ("--within", "within"),
    ("--unit", "unit"),
    ("--address", "address"),
    ("--address-family", "address-family"),
    ("-N", "number"),
    ("--number", "number"),
    ("-d", "duration"),
    ("--duration", "duration"),
    ("-P", "pid"),
    ("--pid", "pid"),
    ("--sample-interval", "sample-interval"),
    ("--membership", "membership"),
    ("--vhost-pattern", "vhost-pattern"),
    ("--queue-pattern", "queue-pattern"),
    ("--object-type", "object-type"),
    ("--per-connection-delay", "per-connection-delay"),
    ("--user", "user"),
    ("--host", "host"),
    ("--limit", "limit"),
    ("--wait", "wait"),
    ("--from", "from"),
    ("--count", "count"),
    ("--filter", "filter"),
    ("--to", "to"),
    ("--rate", "rate"),
    ("--max", "max"),
];

/// Options of RabbitMQ's tools about files of RabbitMQ.
const WITHOUT_EFFECT: [&str; 6] = [
    "--script-name",
    "--rabbitmq-home",
    "--mnesia-dir",
    "--plugins-dir",
    "--enabled-plugins-file",
    "--aliases-file",
];

/// The option of that name.
pub(super) fn option(name: &str) -> Option<Option_> {
    let named = |table: &[(&str, &'static str)]| {
        table.iter().find(|(option, _)| *option == name).map(|(_, name)| *name)
    };
    Some(match name {
        "-n" | "--node" => Option_::Node,
        "-p" | "--vhost" => Option_::Vhost,
        "-t" | "--timeout" => Option_::Timeout,
        "--formatter" => Option_::Formatter,
        "--cluster-secret-file" => Option_::SecretFile,
        "--rpc-tls" => Option_::Tls("rpc_tls"),
        "--rpc-tls-certificate-file" => Option_::Tls("rpc_tls_certificate_file"),
        "--rpc-tls-key-file" => Option_::Tls("rpc_tls_key_file"),
        "--rpc-tls-ca-file" => Option_::Tls("rpc_tls_ca_file"),
        "-q" | "--quiet" => Option_::Quiet,
        "-s" | "--silent" => Option_::Silent,
        "-?" | "--help" => Option_::Help,
        "-l" | "--longnames" => Option_::Ignored,
        "--erlang-cookie" => Option_::Cookie,
        "--dry-run" => Option_::DryRun,
        "--priority" => Option_::Priority,
        "--format" => Option_::Format,
        "--apply-to" => Option_::ApplyTo,
        _ if WITHOUT_EFFECT.contains(&name) => Option_::IgnoredValue,
        _ => match named(SWITCHES) {
            Some(switch) => Option_::Switch(switch),
            None => Option_::Valued(named(VALUED)?),
        },
    })
}
