//! The verbs of membership: forget, replace, join, rebalance, and whether a node may stop (CTL-17).

pub(super) mod critical;
mod forget;
mod manuals;

pub(crate) use manuals::MANUALS;

use super::connect::{self, Connected, Target, call_failure};
use super::exit::{Exit, Failure};
use super::format::{Sheet, render};
use super::lists::{self, Led};
use super::names::Names;
use super::node::operator;
use super::options::{Formatter, Invocation, refusal};
use super::progress::Progress;
use super::value::Value;
use super::{Console, word};
use quorate_management::wire;
use quorate_rpc::Connector;
use std::collections::BTreeMap;
use std::time::Duration;

/// A verb of membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberVerb {
    Forget,
    Replace,
    Join,
    Rebalance,
    CheckQuorumCritical,
}

/// The node to connect to, and how.
type Door<'a> = (&'a Target, &'a Connector);

/// Checks the command line of a verb; returns the time of `--wait`, if it is given.
pub(super) fn read(
    verb: MemberVerb,
    invocation: &Invocation,
    line: &[String],
    program: &str,
) -> Result<Option<Duration>, Failure> {
    let refuse = |why: String| refusal(&why, line, invocation.manual, program);
    let what = word(invocation);
    if verb == MemberVerb::Rebalance && !["all", "quorum", "stream"].contains(&what) {
        let why = format!("type {what} is not supported. Try one of all, quorum, stream.");
        return Err(refuse(why));
    }
    let Some(text) = invocation.options.value("wait") else { return Ok(None) };
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let wait = seconds.ok_or_else(|| refuse(format!("--wait is no number of seconds: {text}")))?;
    Ok(Some(wait))
}

/// Carries out a verb; `wait` is the time of `--wait`.
pub(super) async fn run(
    verb: MemberVerb,
    wait: Option<Duration>,
    invocation: &Invocation,
    door: Door<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    match verb {
        MemberVerb::Forget => forget::run(wait, invocation, door, console).await,
        MemberVerb::Replace => replace(invocation, door, console).await,
        MemberVerb::Join => join(invocation, door, console).await,
        MemberVerb::Rebalance => rebalance(invocation, door, console).await,
        MemberVerb::CheckQuorumCritical => check(invocation, door, console).await,
    }
}

fn banner(invocation: &Invocation, console: &mut Console<'_>, text: &str) {
    if invocation.options.banners() {
        console.say(text);
    }
}

fn refused(text: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Unavailable, format!("Error:\n{text}\n"))
}

/// The id of a node that was named, by its name or its id.
fn id_of(connected: &Connected, given: &str) -> Result<u32, Failure> {
    Names::of(&connected.cluster).id(given).ok_or_else(|| {
        let text = format!("Error:\nThe node selected is not in the cluster: '{given}'\n");
        Failure::new(Exit::Data, text)
    })
}

/// Lets the empty directory that asks to join under a node's id take the place of the lost one.
async fn replace(
    invocation: &Invocation,
    (target, connector): Door<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let given = word(invocation);
    banner(invocation, console, &format!("Replacing the data directory of node {given}\n"));
    let mut connected = connect::connect(target, connector).await?;
    let (node, caller) = (id_of(&connected, given)?, wire::caller());
    let request = wire::MemberRequest { caller, node, operator: operator(), running: false };
    connected.client.replace(request).await.map_err(|status| call_failure(&status))?;
    Ok(())
}

/// Whether the node is a member, of the same cluster as the one that is named: an empty node joins by
/// itself (MEM 3).
async fn join(
    invocation: &Invocation,
    (target, connector): Door<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let other = Some(word(invocation)).filter(|other| !other.is_empty());
    let with = other.map(|other| format!(" with {other}")).unwrap_or_default();
    banner(invocation, console, &format!("Clustering node {}{with}\n", target.text));
    let connected = connect::connect(target, connector).await?;
    let cluster = connected.cluster.cluster_id;
    let Some(member) = connected.asked().filter(|_| cluster != 0) else {
        return Err(refused(format!(
            "node {} belongs to no cluster yet. A node with an empty data directory joins by itself: \
             its setting cluster must name a member and itself, and its log says what it waits for",
            target.text
        )));
    };
    let name = &member.name;
    if let Some(other) = other.filter(|it| Names::of(&connected.cluster).id(it).is_none()) {
        let theirs = connect::connect(&Target::read(Some(other)), connector).await?;
        if theirs.cluster.cluster_id != cluster {
            return Err(refused(format!(
                "node {name} belongs to another cluster than {other}. To have it join that one, stop \
                 it, set its data directory aside, and start it with a setting cluster that names {other}"
            )));
        }
    }
    match member.state.as_str() {
        // Nothing: an earlier release, whose nodes are members.
        "member" | "draining" | "" => {
            console.say(&format!("Node {name} is a member of the cluster\n"));
            Ok(())
        }
        state => Err(refused(format!("node {name} is {state}, and not a member"))),
    }
}

/// Moves leaderships to their preferred nodes, and shows how many queues each node leads.
async fn rebalance(
    invocation: &Invocation,
    (target, connector): Door<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let what = match word(invocation) {
        "all" => "replicated queues",
        "stream" => "streams",
        _ => "quorum queues",
    };
    banner(invocation, console, &format!("Re-balancing leaders of {what}...\n"));
    let options = &invocation.options;
    if ["vhost-pattern", "queue-pattern"].iter().any(|pattern| options.value(pattern).is_some()) {
        console.complain("Notice: leaders are those of groups, so patterns select nothing\n");
    }
    let mut connected = connect::connect(target, connector).await?;
    let (caller, scope) = (wire::caller(), wire::Scope::Cluster.into());
    let request = wire::RebalanceRequest { caller, scope, operator: operator() };
    let mut progress = Progress::of(options);
    let text = |elapsed: Duration| format!("moving leaderships for {} s", elapsed.as_secs());
    let reply = progress.during(console, connected.client.rebalance(request), text).await;
    let reply = reply.map_err(|status| call_failure(&status))?.into_inner();
    let led = lists::queues_led(&mut connected).await?;
    let formatter = options.formatter.unwrap_or(Formatter::Pretty);
    console.say(&render(&led_sheet(&connected.cluster, &led), formatter, options.headers()));
    match stays(&reply, &Names::of(&connected.cluster)) {
        Some(stays) => Err(refused(stays)),
        None => Ok(()),
    }
}

/// The number of replicated queues that each node leads, in RabbitMQ's columns.
fn led_sheet(cluster: &wire::Cluster, led: &BTreeMap<u32, Led>) -> Sheet {
    let columns = ["Node name", "Number of quorum queues", "Number of replicated classic queues"];
    let rows = cluster.members.iter().map(|member| {
        let Led { quorum, classic } = led.get(&member.id).copied().unwrap_or_default();
        vec![Value::word(member.name.as_str()), Value::Number(quorum), Value::Number(classic)]
    });
    Sheet { columns: columns.map(str::to_owned).to_vec(), rows: rows.collect() }
}

/// The leaderships that are not where they should be, as text; `None`: all are.
fn stays(reply: &wire::RebalanceReply, names: &Names) -> Option<String> {
    let kept = reply.kept.iter().map(|kept| {
        let (leader, preferred) = (names.node(kept.leader), names.node(kept.preferred));
        format!("group {} stays on {leader}, and not on {preferred}: {}", kept.group, kept.why)
    });
    let silent = reply.silent.iter().map(|node| format!("{} did not answer", names.node(*node)));
    let lines: Vec<String> = kept.chain(silent).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Fails if a group would lose its majority when the node that is asked stops.
async fn check(
    invocation: &Invocation,
    (target, connector): Door<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let connected = connect::connect(target, connector).await?;
    let cluster = &connected.cluster;
    let node = connected.asked().map_or(target.text.as_str(), |member| member.name.as_str());
    let begun =
        format!("Checking if node {node} is critical for quorum of any quorum queues ...\n");
    banner(invocation, console, &begun);
    let critical = critical::groups(cluster, cluster.asked);
    if cluster.members.len() == 1 {
        console.say(&format!(
            "Node {node} seems to be the only one in a single node cluster, the check does not apply\n"
        ));
    } else if cluster.placement.is_empty() {
        return Err(refused(format!("node {node} does not say which nodes replicate which group")));
    } else if critical.is_empty() {
        console.say(&format!("Node {node} reported no quorum queues with minimum quorum\n"));
    } else {
        let groups: Vec<String> = critical.iter().map(|group| format!("group {group}")).collect();
        return Err(refused(format!(
            "Node {node} reported components which would lose quorum if this node is shut down:\n{}",
            groups.join("\n")
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaderships_that_stay_are_named() {
        let kept = wire::Kept { group: 3, leader: 1, preferred: 2, why: "it is busy".to_owned() };
        let reply = wire::RebalanceReply { moved: vec![1], kept: vec![kept], silent: vec![4] };
        let text = "group 3 stays on node1, and not on node2: it is busy\nnode4 did not answer";
        assert_eq!(stays(&reply, &Names::default()).as_deref(), Some(text));
        let moved = wire::RebalanceReply { moved: vec![1], ..wire::RebalanceReply::default() };
        assert_eq!(stays(&moved, &Names::default()), None);
    }
}
