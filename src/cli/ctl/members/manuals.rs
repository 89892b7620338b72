//! The help of the verbs of membership.

use super::super::command::{Manual, Verb, plain};
use super::MemberVerb;

pub(crate) const MANUALS: &[Manual] = &[
    plain(
        Verb::Member(MemberVerb::Forget),
        "forget_cluster_node",
        "Cluster",
        "<existing_cluster_member_node> [--drain] [--wait <seconds>] [--timeout <timeout>]",
        "Removes a node that is stopped, or that is drained first (--drain), from the cluster; with --wait also waits until its replicas are on other nodes",
        (1, 1),
        &["wait", "drain"],
    ),
    plain(
        Verb::Member(MemberVerb::Join),
        "join_cluster",
        "Cluster",
        "[<existing_cluster_member_node>] [--timeout <timeout>]",
        "Checks that the node is a member of the cluster that the specified node is in; a node with an empty data directory joins by itself",
        (0, 1),
        &[],
    ),
    plain(
        Verb::Member(MemberVerb::Replace),
        "replace_cluster_node",
        "Cluster",
        "<existing_cluster_member_node> [--timeout <timeout>]",
        "Forgets the lost data directory of a node, whose new and empty one asks to join",
        (1, 1),
        &[],
    ),
    plain(
        Verb::Member(MemberVerb::CheckQuorumCritical),
        "check_if_node_is_quorum_critical",
        "Monitoring, observability and health checks",
        "[--timeout <timeout>]",
        "Fails if there are groups that would lose their majority should the target node be shut down",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Member(MemberVerb::Rebalance),
        "rebalance",
        "Queues",
        "< all | quorum | stream > [--vhost-pattern <pattern>] [--queue-pattern <pattern>] [--timeout <timeout>]",
        "Rebalances leaders of queues across cluster members",
        (1, 1),
        &["vhost-pattern", "queue-pattern", "no-table-headers"],
    ),
];
