//! Health checks of `rabbitmq-diagnostics` (CTL-12): each says what it has found, and fails with 69 if
//! that is bad.

mod alarms;
mod listeners;
mod manuals;

pub(crate) use manuals::MANUALS;

use super::Console;
use super::access::vhost_names;
use super::connect::{Connected, call_failure};
use super::exit::{Exit, Failure};
use super::job::{Found, Job, asked_name};
use super::policies::of_vhost;
use quorate_catalog::PolicyKind;
use quorate_management::wire;
use serde_json::json;

/// A check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckVerb {
    IsRunning,
    CheckRunning,
    IsBooting,
    Alarms,
    CheckAlarms,
    CheckLocalAlarms,
    Listeners,
    PortListener,
    ProtocolListener,
    PortConnectivity,
    VirtualHosts,
    NoMirroring,
    InitialSync,
    TargetSize,
    Certificates,
    CertificateExpiration,
    MaybeStuck,
}

/// Carries out a check.
pub(super) async fn run(
    verb: CheckVerb,
    job: &Job<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    use CheckVerb as V;
    let mut connected = job.connect().await?;
    let name = asked_name(&connected, job.target).to_owned();
    job.banner(console, banner(verb, job, &name)?);
    let found = match verb {
        V::IsRunning | V::CheckRunning | V::IsBooting => booted(verb, own(&connected)?),
        V::Alarms | V::CheckAlarms | V::CheckLocalAlarms => {
            alarms::check(verb, &connected.cluster, &name)
        }
        V::Listeners => listeners::list(own(&connected)?),
        V::PortListener => listeners::port(own(&connected)?, job.word(0))?,
        V::ProtocolListener => listeners::protocol(own(&connected)?, job.word(0)),
        V::PortConnectivity => listeners::connect(own(&connected)?, job).await,
        V::VirtualHosts => {
            well(format!("Node {name} reported all vhosts as running"), json!({ "result": "ok" }))
        }
        V::NoMirroring => mirroring(&mut connected).await?,
        V::InitialSync => synced(&connected.cluster, &name),
        V::TargetSize => target_size(&mut connected, &name).await?,
        V::Certificates | V::CertificateExpiration => {
            super::expiry::check(verb, job, &mut connected).await?
        }
        V::MaybeStuck => stuck(own(&connected)?),
    };
    let may_be_silent = matches!(
        verb,
        V::CheckAlarms | V::VirtualHosts | V::NoMirroring | V::InitialSync | V::TargetSize
    );
    job.conclude(&found, may_be_silent, console)
}

/// The line before the answer.
fn banner(verb: CheckVerb, job: &Job<'_>, node: &str) -> Result<String, Failure> {
    use CheckVerb as V;
    let first = job.word(0);
    Ok(match verb {
        V::IsRunning => format!("Asking node {node} for its status ..."),
        V::CheckRunning => format!("Checking if RabbitMQ is running on node {node} ..."),
        V::IsBooting => format!("Asking node {node} for its boot status ..."),
        V::Alarms => format!("Asking node {node} to report any known resource alarms ..."),
        V::CheckAlarms | V::CheckLocalAlarms => {
            format!("Asking node {node} to report any local resource alarms ...")
        }
        V::Listeners => format!("Asking node {node} to report its protocol listeners ..."),
        V::PortListener => {
            format!("Asking node {node} if there's an active listener on port {first} ...")
        }
        V::ProtocolListener => {
            format!("Asking node {node} if there's an active listener for protocol {first} ...")
        }
        V::PortConnectivity => {
            format!("Testing TCP connections to all active listeners on node {node} ...")
        }
        V::VirtualHosts => format!("Checking if all vhosts are running on node {node} ..."),
        V::NoMirroring => {
            "Checking if cluster has any classic queue mirroring policy ...".to_owned()
        }
        V::InitialSync => {
            format!("Checking if node {node} runs promotable replicas of any queues ...")
        }
        V::TargetSize => {
            format!("Checking if target cluster size has been reached on node {node} ...")
        }
        V::Certificates => format!("Certificates of node {node} ..."),
        V::CertificateExpiration => {
            // Refused before anything is printed.
            super::expiry::period(job)?;
            format!("Checking certificate expiration on node {node} ...")
        }
        V::MaybeStuck => format!("Asking node {node} to detect potentially stuck threads ..."),
    })
}

/// A good finding.
fn well(text: impl Into<String>, json: serde_json::Value) -> Found {
    Found { is_well: true, text: text.into(), json }
}

/// A bad finding.
fn bad(text: impl Into<String>, json: serde_json::Value) -> Found {
    Found { is_well: false, text: text.into(), json }
}

/// The asked node's own status.
pub(super) fn own(connected: &Connected) -> Result<&wire::Node, Failure> {
    let node = connected.asked().and_then(|member| member.status.as_ref());
    let text = "Error:\nthe node did not report its own status\n";
    node.ok_or_else(|| Failure::new(Exit::Software, text))
}

/// Whether the node has begun to serve. A node gets its start number when it does.
fn booted(verb: CheckVerb, node: &wire::Node) -> Found {
    let (is_running, name) = (node.start != 0, &node.name);
    let says_booting = verb == CheckVerb::IsBooting;
    let text = match (says_booting, is_running) {
        (false, true) => format!("RabbitMQ on node {name} is fully booted and running"),
        (false, false) => format!(
            "RabbitMQ on node {name} is not running or has not fully booted yet (check with is_booting)"
        ),
        (true, false) => format!("RabbitMQ on node {name} is booting"),
        (true, true) => format!(
            "RabbitMQ on node {name} is fully booted (check with is_running), stopped or has not \
             started booting yet"
        ),
    };
    let result = is_running != says_booting;
    let json = json!({ "result": result, "message": text });
    // The questions are answered, and only the check fails.
    Found { is_well: is_running || verb != CheckVerb::CheckRunning, text, json }
}

/// Policies of classic mirroring, which nothing here obeys.
async fn mirroring(connected: &mut Connected) -> Result<Found, Failure> {
    let mut lines = Vec::new();
    for vhost in vhost_names(connected).await? {
        for (kind, what) in
            [(PolicyKind::User, "Policy"), (PolicyKind::Operator, "Operator policy")]
        {
            let policies = of_vhost(kind, &vhost, &mut connected.policies).await?;
            let mirrors =
                policies.iter().filter(|policy| policy.definition.contains("\"ha-mode\""));
            let line = |policy: &wire::Policy| {
                format!("{what} {} enables classic queue mirroring", policy.name)
            };
            lines.extend(mirrors.map(line));
        }
    }
    if lines.is_empty() {
        let text = "Cluster reported no policies that enable classic queue mirroring";
        return Ok(well(text, json!({ "result": "ok" })));
    }
    let json = json!({
        "result": "error",
        "policies": lines,
        "message": "Cluster reported policies enabling classic queue mirroring",
    });
    Ok(bad(lines.join("\n"), json))
}

/// Whether replicas on this node are still being filled: its groups that move (MEM 6).
fn synced(cluster: &wire::Cluster, name: &str) -> Found {
    let asked = cluster.asked;
    let arrives = |it: &&wire::Placement| {
        it.nodes.contains(&asked) && !it.former.is_empty() && !it.former.contains(&asked)
    };
    let groups: Vec<u32> =
        cluster.placement.iter().filter(arrives).map(|placement| placement.group).collect();
    if groups.is_empty() {
        let text = format!("Node {name} reported no queues with promotable replicas");
        return well(text, json!({ "result": "ok" }));
    }
    let line = |group: &u32| format!("group {group} is being copied to node {name}");
    let message = format!("Node {name} reported local queues promotable replicas");
    let json = json!({ "result": "error", "groups": groups, "message": message });
    bad(groups.iter().map(line).collect::<Vec<_>>().join("\n"), json)
}

/// Whether as many nodes run as the setting `cluster` names.
async fn target_size(connected: &mut Connected, name: &str) -> Result<Found, Failure> {
    let request = wire::NodeRequest { caller: wire::caller() };
    let process = connected.process.describe(request).await;
    let process = process.map_err(|status| call_failure(&status))?.into_inner();
    let target = process.nodes.len().max(1);
    let online = connected.cluster.members.iter().filter(|member| member.running).count();
    if online >= target {
        let text = format!("Target cluster size has been reached on node {name}");
        return Ok(well(text, json!({ "result": "ok" })));
    }
    let text = format!(
        "Target cluster size on node {name} has not been reached: {online} of {target} nodes are online"
    );
    let json = json!({ "result": "error", "message": text, "online": online, "target": target });
    Ok(bad(format!("Error:\n{text}"), json))
}

/// Whether threads of the process, or its disk, make no progress.
fn stuck(node: &wire::Node) -> Found {
    if node.not_live.is_empty() {
        let text = "Found 0 suspicious threads.";
        return well(text, json!({ "result": "ok", "message": text }));
    }
    bad(node.not_live.as_str(), json!({ "result": "error", "message": node.not_live }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(placement: &[(&[u32], &[u32])]) -> wire::Cluster {
        let placement = (0..).zip(placement).map(|(group, (nodes, former))| wire::Placement {
            group,
            nodes: nodes.to_vec(),
            former: former.to_vec(),
            ..wire::Placement::default()
        });
        wire::Cluster { asked: 3, placement: placement.collect(), ..wire::Cluster::default() }
    }

    #[test]
    fn mem_06_replicas_that_arrive_are_not_synced() {
        let here: &[(&[u32], &[u32])] = &[(&[1, 2, 3], &[]), (&[2, 3, 4], &[1, 2, 3])];
        assert!(synced(&cluster(here), "n").is_well, "it was one of the former ones");
        let arrives: &[(&[u32], &[u32])] = &[(&[1, 2, 3], &[1, 2, 4])];
        let found = synced(&cluster(arrives), "n");
        assert!(!found.is_well);
        assert_eq!(found.text, "group 0 is being copied to node n");
    }

    #[test]
    fn a_node_is_booted_when_it_serves() {
        let mut node = wire::Node { name: "n".to_owned(), ..wire::Node::default() };
        assert!(!booted(CheckVerb::CheckRunning, &node).is_well);
        assert!(booted(CheckVerb::IsRunning, &node).is_well, "a question that is answered");
        assert!(booted(CheckVerb::IsBooting, &node).text.ends_with("is booting"));
        node.start = 7;
        assert!(booted(CheckVerb::CheckRunning, &node).is_well);
        assert_eq!(booted(CheckVerb::IsBooting, &node).json.get("result"), Some(&json!(false)));
    }
}
