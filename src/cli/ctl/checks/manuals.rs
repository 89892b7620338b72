//! The help of the health checks.

use super::super::command::{Manual, Verb, plain};
use super::CheckVerb;

const SECTION: &str = "Monitoring, observability and health checks";

const fn check(
    verb: CheckVerb,
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    words: usize,
    switches: &'static [&'static str],
) -> Manual {
    plain(Verb::Check(verb), name, SECTION, arguments, summary, (words, words), switches)
}

pub(crate) const MANUALS: &[Manual] = &[
    check(
        CheckVerb::Alarms,
        "alarms",
        "",
        "Lists resource alarms (local or cluster-wide) in effect on the target node",
        0,
        &[],
    ),
    check(
        CheckVerb::Certificates,
        "certificates",
        "",
        "Displays the certificates in the files that the target node uses",
        0,
        &[],
    ),
    check(
        CheckVerb::CheckAlarms,
        "check_alarms",
        "",
        "Fails if there is an alarm on any node",
        0,
        &[],
    ),
    check(
        CheckVerb::CertificateExpiration,
        "check_certificate_expiration",
        "[--within <period>] [--unit <days | weeks | months | years>]",
        "Fails if a certificate of the target node expires within the period (4 weeks)",
        0,
        &["within", "unit"],
    ),
    check(
        CheckVerb::NoMirroring,
        "check_if_cluster_has_classic_queue_mirroring_policy",
        "",
        "Fails if there are policies that enable classic queue mirroring",
        0,
        &[],
    ),
    check(
        CheckVerb::InitialSync,
        "check_if_new_quorum_queue_replicas_have_finished_initial_sync",
        "",
        "Fails if replicas are still being copied to the target node",
        0,
        &[],
    ),
    check(
        CheckVerb::CheckLocalAlarms,
        "check_local_alarms",
        "",
        "Fails if there is an alarm on the target node",
        0,
        &[],
    ),
    check(
        CheckVerb::PortConnectivity,
        "check_port_connectivity",
        "[--address <target address>]",
        "Fails if a port of the target node cannot be connected to",
        0,
        &["address"],
    ),
    check(
        CheckVerb::PortListener,
        "check_port_listener",
        "<port>",
        "Fails if the target node does not listen on the port",
        1,
        &[],
    ),
    check(
        CheckVerb::ProtocolListener,
        "check_protocol_listener",
        "<protocol>",
        "Fails if the target node does not serve the protocol",
        1,
        &[],
    ),
    check(
        CheckVerb::CheckRunning,
        "check_running",
        "",
        "Fails if the target node does not serve yet",
        0,
        &[],
    ),
    check(
        CheckVerb::VirtualHosts,
        "check_virtual_hosts",
        "",
        "Fails if a virtual host does not run on the target node",
        0,
        &[],
    ),
    check(
        CheckVerb::TargetSize,
        "has_reached_target_cluster_size",
        "",
        "Fails if fewer nodes run than the target node's setting cluster names",
        0,
        &[],
    ),
    check(
        CheckVerb::IsBooting,
        "is_booting",
        "",
        "Tells whether the target node is still starting",
        0,
        &[],
    ),
    check(CheckVerb::IsRunning, "is_running", "", "Tells whether the target node serves", 0, &[]),
    check(
        CheckVerb::Listeners,
        "listeners",
        "",
        "Lists the ports that the target node listens on, and their protocols",
        0,
        &[],
    ),
    check(
        CheckVerb::MaybeStuck,
        "maybe_stuck",
        "",
        "Fails if threads of the target node, or its disk, make no progress",
        0,
        &[],
    ),
];
