//! `ping`, `drain`, `revive` and their kin: whether a node makes progress, and its maintenance (CTL-16,
//! MEM 13).

use super::Console;
use super::command::{Manual, Verb, plain};
use super::connect::{self, Target, call_failure};
use super::exit::{Exit, Failure};
use super::options::Invocation;
use super::progress::{Progress, beside};
use quorate_management::wire;
use quorate_rpc::Connector;
use std::cell::RefCell;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A verb about one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeVerb {
    Ping,
    Drain,
    Revive,
    /// RabbitMQ's stop of the application: the node takes no part but keeps its replicas.
    StopApp,
    StartApp,
    PostUpgrade,
}

/// How long a revival is tried again: the node may just be restarted.
const REVIVE_MAX: Duration = Duration::from_secs(10);
/// Pause between attempts and questions.
const PAUSE: Duration = Duration::from_millis(500);
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
    plain(
        Verb::Node(NodeVerb::StopApp),
        "stop_app",
        "Nodes",
        "[--timeout <timeout>]",
        "Puts the node in maintenance mode as drain does, leaving its process running",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Node(NodeVerb::StartApp),
        "start_app",
        "Nodes",
        "[--timeout <timeout>]",
        "Puts the node out of maintenance mode as revive does",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Node(NodeVerb::PostUpgrade),
        "post_upgrade",
        "Upgrade",
        "[--timeout <timeout>]",
        "Moves leaderships to their preferred nodes, which is all that is to be done after an upgrade",
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
        NodeVerb::StopApp => format!("Stopping rabbit application on node {node} ...\n"),
        NodeVerb::StartApp => format!("Starting node {node} ...\n"),
        NodeVerb::PostUpgrade => {
            "Executing post upgrade tasks...\nRebalancing queue masters...\n".to_owned()
        }
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
    let mut progress = Progress::of(&invocation.options);
    match verb {
        NodeVerb::Ping => {
            // Only this node is asked, so that no other one makes it seem dead.
            let (_, node) = connect::connect_to_node(target, connector).await?;
            if !node.not_live.is_empty() {
                let text = format!("Error:\n{}\n", node.not_live);
                return Err(Failure::new(Exit::Unavailable, text));
            }
            console.say("Ping succeeded\n");
            Ok(())
        }
        NodeVerb::Drain | NodeVerb::StopApp => {
            drain(limit, (target, connector), (&mut progress, console)).await
        }
        NodeVerb::Revive | NodeVerb::StartApp => {
            let text = |elapsed: Duration| format!("{} s: asking the node", elapsed.as_secs());
            let limit = limit.min(REVIVE_MAX);
            progress.during(console, revive(limit, target, connector), text).await
        }
        NodeVerb::PostUpgrade => {
            let mut client = connect::connect(target, connector).await?.client;
            let (caller, scope) = (wire::caller(), wire::Scope::Cluster.into());
            let request = wire::RebalanceRequest { caller, scope, operator: operator() };
            let text =
                |elapsed: Duration| format!("moving leaderships for {} s", elapsed.as_secs());
            let reply = progress.during(console, client.rebalance(request), text).await;
            // What stays is moved by the nodes themselves later.
            reply.map(drop).map_err(|status| call_failure(&status))
        }
    }
}

/// Drains the node, and shows meanwhile what it still has.
async fn drain(
    limit: Duration,
    (target, connector): (&Target, &Connector),
    (progress, console): (&mut Progress, &mut Console<'_>),
) -> Result<(), Failure> {
    let (mut client, _) = connect::connect_to_node(target, connector).await?;
    let mut watching = client.clone();
    let timeout_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let request = wire::DrainRequest { caller: wire::caller(), timeout_ms, operator: operator() };
    let has = RefCell::new(String::new());
    let watch = async {
        loop {
            sleep(PAUSE).await;
            let request = wire::NodeRequest { caller: wire::caller() };
            if let Ok(node) = watching.get_node(request).await {
                has.replace(still(&node.into_inner()));
            }
        }
    };
    let text = |elapsed: Duration| {
        let (elapsed, limit) = (elapsed.as_secs(), limit.as_secs());
        format!("draining for {elapsed} s of {limit} s{}", has.borrow())
    };
    let work = beside(client.drain(request), watch);
    let reply = progress.during(console, work, text).await;
    match left(&reply.map_err(|status| call_failure(&status))?.into_inner()) {
        None => Ok(()),
        Some(left) => {
            let text = format!("Error:\nthe node is drained, but not done in time: {left}\n");
            Err(Failure::new(Exit::TimedOut, text))
        }
    }
}

/// What a node that is being drained still has.
fn still(node: &wire::Node) -> String {
    let led = node.groups.iter().filter(|group| group.role == "leader").count();
    format!(": it leads {led} groups and has {} client connections", node.connections)
}

/// Revives the node; tried again while it cannot be reached, since a revival may be repeated.
pub(super) async fn revive(
    limit: Duration,
    target: &Target,
    connector: &Connector,
) -> Result<(), Failure> {
    let until = Instant::now() + limit;
    loop {
        let attempt = async {
            let (mut client, _) = connect::connect_to_node(target, connector).await?;
            let request = wire::ReviveRequest { caller: wire::caller(), operator: operator() };
            let reply = client.revive(request).await;
            reply.map(drop).map_err(|status| call_failure(&status))
        };
        match attempt.await {
            Err(failure) if failure.exit == Exit::Unavailable && Instant::now() < until => {
                sleep(PAUSE).await;
            }
            done => return done,
        }
    }
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
