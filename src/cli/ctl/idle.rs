//! RabbitMQ's verbs without a meaning here: some do nothing and say so, and the others are refused with
//! a hint (64).

use super::Console;
use super::command::{Manual, Verb, plain};
use super::exit::{Exit, Failure};
use super::job::Job;

/// A verb that does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleVerb {
    ForceBoot,
    ForceGc,
    NodeHealthCheck,
    RotateLogs,
    ChangeNodeType,
    RestartVhost,
}

pub(crate) const MANUALS: &[Manual] = &[
    plain(
        Verb::Idle(IdleVerb::ForceBoot),
        "force_boot",
        "Cluster",
        "",
        "Does nothing: a node starts without waiting for particular other ones",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Idle(IdleVerb::ForceGc),
        "force_gc",
        "Operations",
        "",
        "Does nothing: a node has no garbage collector",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Idle(IdleVerb::NodeHealthCheck),
        "node_health_check",
        "Deprecated",
        "",
        "Does nothing, as in RabbitMQ; see the checks of rabbitmq-diagnostics",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Idle(IdleVerb::RotateLogs),
        "rotate_logs",
        "Nodes",
        "",
        "Does nothing: a node logs to standard error",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Idle(IdleVerb::ChangeNodeType),
        "change_cluster_node_type",
        "Cluster",
        "<disc | ram>",
        "Does nothing: every node is a disc node",
        (1, 1),
        &[],
    ),
    plain(
        Verb::Idle(IdleVerb::RestartVhost),
        "restart_vhost",
        "Virtual hosts",
        "[--vhost <vhost>]",
        "Does nothing: a virtual host has no process that could have ended",
        (0, 0),
        &[],
    ),
];

/// Verbs of RabbitMQ that are refused, and what to do in their place.
const LACKING: &[(&str, &str)] = &[
    (
        "eval",
        "nodes run no Erlang; settings are flags and variables of the node, and \
              set_vm_memory_high_watermark and set_disk_free_limit raise alarms",
    ),
    ("eval_file", "nodes run no Erlang"),
    ("exec", "nodes run no Elixir"),
    ("rpc", "nodes run no Erlang"),
    ("remote_shell", "nodes run no Erlang"),
    ("observer", "nodes run no Erlang; /metrics and runtime_thread_stats show what a node does"),
    ("encode", "settings contain no secrets: they name files, which only their owner can read"),
    ("decode", "settings contain no secrets: they name files, which only their owner can read"),
    ("encrypt_conf_value", "settings contain no secrets: they name files"),
    ("decrypt_conf_value", "settings contain no secrets: they name files"),
    ("list_ciphers", "there are no encoding commands"),
    ("list_hashes", "there are no encoding commands"),
    (
        "reset",
        "a node leaves the cluster by `forget_cluster_node` and begins anew with an empty \
               data directory",
    ),
    (
        "force_reset",
        "a node leaves the cluster by `forget_cluster_node` and begins anew with an \
                     empty data directory",
    ),
    ("rename_cluster_node", "nodes are known by their ids; the setting node_name is what is shown"),
    ("update_cluster_nodes", "nodes learn the members from the cluster"),
    ("schema_info", "there are no Mnesia tables; see cluster_status and metadata_store_status"),
    ("sync_queue", "replicas are copied by themselves; see quorum_status"),
    ("cancel_sync_queue", "replicas are copied by themselves; see quorum_status"),
    ("hipe_compile", "nodes run no Erlang"),
    ("erlang_cookie_hash", "nodes have a cluster secret in place of a cookie"),
    ("erlang_cookie_sources", "nodes have a cluster secret in place of a cookie"),
    ("stream_status", "there are no streams"),
    ("list_stream_connections", "there are no streams"),
    ("list_stream_consumers", "there are no streams"),
    ("list_stream_publishers", "there are no streams"),
    ("shovel_status", "there are no shovels"),
    ("federation_status", "there is no federation"),
];

/// The refusal of a verb that has no meaning here; `None` for other names.
pub(super) fn lacking(name: &str) -> Option<Failure> {
    let (name, hint) = LACKING.iter().find(|(lacking, _)| *lacking == name)?;
    let text = format!("\nCommand '{name}' is not supported: {hint}\n");
    Some(Failure::new(Exit::Usage, text))
}

/// Carries out a verb, which is to say that nothing is done.
pub(super) async fn run(
    verb: IdleVerb,
    job: &Job<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let vhost = job.invocation.options.vhost();
    let node = &job.target.text;
    match verb {
        // The node need not run.
        IdleVerb::ForceBoot => notice(console, "a node starts without waiting for other ones"),
        IdleVerb::RotateLogs => notice(console, "nodes log to standard error"),
        IdleVerb::ForceGc => notice(console, "nodes have no garbage collector"),
        IdleVerb::NodeHealthCheck => {
            job.banner(console, format!("Checking health of node {node} ..."));
            console.say("Health check passed\n");
        }
        IdleVerb::ChangeNodeType if ["disc", "disk"].contains(&job.word(0)) => {
            job.banner(console, format!("Turning {node} into a disc node"));
        }
        IdleVerb::ChangeNodeType => {
            let text =
                "Error:\nThe node type must be either disc or ram; every node is a disc node\n";
            return Err(Failure::new(Exit::Usage, text));
        }
        IdleVerb::RestartVhost => {
            job.banner(console, format!("Trying to restart vhost '{vhost}' on node '{node}' ..."));
            let mut connected = job.connect().await?;
            let vhosts = super::access::vhost_names(&mut connected).await?;
            if !vhosts.iter().any(|name| name == vhost) {
                let text = format!("Virtual host '{vhost}' does not exist\n");
                return Err(Failure::new(Exit::Data, text));
            }
            let node = super::job::asked_name(&connected, job.target);
            console.say(&format!("Vhost '{vhost}' is already running on node '{node}'\n"));
        }
    }
    Ok(())
}

fn notice(console: &mut Console<'_>, text: &str) {
    console.complain(&format!("Notice: nothing is done: {text}\n"));
}
