//! `ping`, `drain` and `revive`: whether a node makes progress, and its maintenance (CTL-16, MEM 13).

use super::Console;
use super::command::{Manual, Verb, plain};
use super::connect::{self, Target, call_failure};
use super::exit::{Exit, Failure};
use super::options::Invocation;
use quorate_management::wire;
use quorate_rpc::Connector;
use std::time::Duration;

/// A verb about one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeVerb {
    Ping,
    Drain,
    Revive,
}

/// Time that a command has beyond the one that the node waits: for connecting, and for the answer.
pub(super) const MARGIN: Duration = Duration::from_secs(10);

pub(crate) const MANUALS: &[Manual] = &[
    plain(
        Verb::Node(NodeVerb::Ping),
        "ping",
        "Nodes",
        "[--timeout <timeout>]",
        "Checks that the node process runs and makes progress, as does its disk",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Node(NodeVerb::Drain),
        "drain",
        "Upgrade",
        "[--timeout <timeout>]",
        "Puts the node in maintenance mode: it hands its leaderships over, closes its clients and takes no new ones",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Node(NodeVerb::Revive),
        "revive",
        "Upgrade",
        "[--timeout <timeout>]",
        "Puts the node out of maintenance and into regular operating mode, as does a restart",
        (0, 0),
        &[],
    ),
];

fn banner(verb: NodeVerb, target: &Target, limit: Duration) -> String {
    let node = &target.text;
    match verb {
        NodeVerb::Ping => format!("Will ping {node}. Timeout: {} ms.\n", limit.as_millis()),
        NodeVerb::Drain => format!(
            "Will put node {node} into maintenance mode. The node will no longer serve any client traffic!\n"
        ),
        NodeVerb::Revive => format!(
            "Will put node {node} back into regular operating mode. The node will again serve client traffic and host primary queue replicas.\n"
        ),
    }
}

/// Carries out a verb; `limit` is how long the node may wait for a drain.
pub(super) async fn run(
    verb: NodeVerb,
    limit: Duration,
    invocation: &Invocation,
    (target, connector): (&Target, &Connector),
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    if invocation.options.banners() {
        console.say(&banner(verb, target, limit));
    }
    let mut connected = connect::connect(target, connector).await?;
    let (caller, operator) = (wire::caller(), operator());
    match verb {
        NodeVerb::Ping => {
            let node = connected.asked().and_then(|member| member.status.as_ref());
            match node.map_or("", |node| node.not_live.as_str()) {
                "" => console.say("Ping succeeded\n"),
                why => return Err(Failure::new(Exit::Unavailable, format!("Error:\n{why}\n"))),
            }
        }
        NodeVerb::Drain => {
            let timeout_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            let request = wire::DrainRequest { caller, timeout_ms, operator };
            let reply = connected.client.drain(request).await;
            let left = left(&reply.map_err(|status| call_failure(&status))?.into_inner());
            if let Some(left) = left {
                let text = format!("Error:\nthe node is drained, but not done in time: {left}\n");
                return Err(Failure::new(Exit::TimedOut, text));
            }
        }
        NodeVerb::Revive => {
            let request = wire::ReviveRequest { caller, operator };
            let reply = connected.client.revive(request).await;
            reply.map_err(|status| call_failure(&status))?;
        }
    }
    Ok(())
}

/// What a drained node still has, as text; `None`: nothing.
fn left(reply: &wire::DrainReply) -> Option<String> {
    let groups: Vec<String> = reply.groups.iter().map(u32::to_string).collect();
    let groups =
        (!groups.is_empty()).then(|| format!("it still leads group {}", groups.join(", ")));
    let connections = (reply.connections > 0)
        .then(|| format!("it still has {} client connections", reply.connections));
    let left: Vec<String> = groups.into_iter().chain(connections).collect();
    (!left.is_empty()).then(|| left.join("; "))
}

/// Who calls, for the log of the node.
pub(super) fn operator() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    // What is not known is left out.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}@{}", user.unwrap_or_default(), host.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_named() {
        let reply = |groups: &[u32], connections| {
            left(&wire::DrainReply { groups: groups.to_vec(), connections })
        };
        assert_eq!(reply(&[], 0), None);
        assert_eq!(reply(&[0, 3], 0).as_deref(), Some("it still leads group 0, 3"));
        let both = "it still leads group 0; it still has 2 client connections";
        assert_eq!(reply(&[0], 2).as_deref(), Some(both));
    }
}
