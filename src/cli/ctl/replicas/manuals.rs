//! The help of the verbs about replicas.

use super::super::command::{Manual, Verb, plain};
use super::ReplicaVerb;

const SECTION: &str = "Replication";

const fn replicas(
    verb: ReplicaVerb,
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    words: usize,
    switches: &'static [&'static str],
) -> Manual {
    plain(Verb::Replicas(verb), name, SECTION, arguments, summary, (words, words), switches)
}

pub(crate) const MANUALS: &[Manual] = &[
    replicas(
        ReplicaVerb::AddMember,
        "add_member",
        "[--vhost <vhost>] <queue> <node> [--membership <promotable|voter>]",
        "Checks that a queue has a replica on the node; the cluster places replicas by itself",
        2,
        &["membership"],
    ),
    replicas(
        ReplicaVerb::DeleteMember,
        "delete_member",
        "[--vhost <vhost>] <queue> <node>",
        "Checks that a queue has no replica on the node; the cluster places replicas by itself",
        2,
        &[],
    ),
    replicas(
        ReplicaVerb::ForceCheckpoint,
        "force_checkpoint",
        "[--vhost-pattern <pattern>] [--queue-pattern <pattern>]",
        "Does nothing: nodes write checkpoints by themselves",
        0,
        &["vhost-pattern", "queue-pattern", "errors-only"],
    ),
    replicas(
        ReplicaVerb::Grow,
        "grow",
        "<node> <all | even> [--vhost-pattern <pattern>] [--queue-pattern <pattern>] [--membership <promotable|voter>]",
        "Lists matching queues without a replica on the node; the cluster places replicas by itself",
        2,
        &["vhost-pattern", "queue-pattern", "membership", "errors-only", "no-table-headers"],
    ),
    replicas(
        ReplicaVerb::GrowToCount,
        "grow_to_count",
        "<node_count> <all | even> [--vhost-pattern <pattern>] [--queue-pattern <pattern>] [--membership <promotable|voter>]",
        "Lists matching queues with fewer replicas; the cluster places replicas by itself",
        2,
        &["vhost-pattern", "queue-pattern", "membership", "errors-only", "no-table-headers"],
    ),
    replicas(
        ReplicaVerb::QuorumStatus,
        "quorum_status",
        "[--vhost <vhost>] <queue>",
        "Displays the replicas of a queue's group",
        1,
        &["no-table-headers"],
    ),
    replicas(
        ReplicaVerb::ReclaimMemory,
        "reclaim_quorum_memory",
        "[--vhost <vhost>] <queue>",
        "Does nothing: a queue has no process of its own",
        1,
        &[],
    ),
    replicas(
        ReplicaVerb::Shrink,
        "shrink",
        "<node> [--errors-only]",
        "Lists queues with a replica on the node; forget_cluster_node takes them off a member",
        1,
        &["errors-only", "no-table-headers"],
    ),
    replicas(
        ReplicaVerb::TransferLeadership,
        "transfer_leadership",
        "[--vhost <vhost>] <queue> <node>",
        "Checks that the node leads the queue; the cluster spreads leaders by itself",
        2,
        &[],
    ),
];
