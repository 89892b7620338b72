//! Replicas of queues: `/api/queues/quorum/…`. Which nodes replicate a queue is the task of the
//! cluster: the replicas of all queues of a group are where the catalog has placed them (MEM 6). So a
//! change is done if it is so already, and is else refused with what leads to it.

use crate::api::call::{Answer, Api, Call};
use crate::api::cluster::KnownQueue;
use crate::api::names::Names;
use crate::api::nodes;
use crate::api::refusal::{Refusal, bad_request};
use crate::wire;
use quorate_types::{ResourceName, VhostName};
use regex::{Regex, RegexBuilder};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Bytes of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 17;

/// A queue that is replicated, if the name is that of one.
async fn replicated(api: &Api, name: &ResourceName) -> Result<wire::Queue, Refusal> {
    let queue = api.cluster.queue(name).await.ok_or(Refusal::NoObject)?.queue;
    if queue.queue_type == "quorum" {
        return Ok(queue);
    }
    let reason =
        format!("queue {name} is of type {}: only quorum queues have replicas", queue.queue_type);
    bad_request(reason)
}

/// What each replica of a queue says of itself.
pub(crate) async fn status(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let name = call.resource(api, "queue")?;
    let (queue, nodes, names) =
        tokio::join!(replicated(api, &name), api.cluster.nodes(), Names::of(api));
    let group = queue?.id.map_or(0, |id| id.group);
    let own = nodes::own(api);
    let of_node = |node: &wire::Node| {
        let replica = node.groups.iter().find(|replica| replica.group == group)?;
        Some(shape(replica, node, &names))
    };
    let replicas: Vec<Value> = [&own].into_iter().chain(&nodes.items).filter_map(of_node).collect();
    Ok(Answer::object(Value::Array(replicas)).without(nodes.silent))
}

fn shape(replica: &wire::Group, node: &wire::Node, names: &Names) -> Value {
    json!({
        "Node Name": names.name(node.id),
        "Raft State": replica.role,
        "Membership": "voter",
        "Last Log Index": replica.last,
        "Last Written": replica.last,
        "Last Applied": replica.applied,
        "Commit Index": replica.applied,
        "Snapshot Index": replica.purged,
        "Term": replica.term,
        "Machine Version": node.machine_newest,
    })
}

/// The id of a node that the body names.
fn named_node(call: &Call, names: &Names) -> Result<u32, Refusal> {
    let fields = call.fields()?;
    let node = fields.text("node")?;
    names.id(node).ok_or_else(|| Refusal::BadRequest(format!("no node is called '{node}'")))
}

/// The refusal to make or remove a replica.
fn not_placed(what: &str, instead: &str) -> Refusal {
    Refusal::NotOffered(format!(
        "{what}: the cluster itself places the replicas of queues. {instead}"
    ))
}

/// Whether a node replicates a queue, which cannot be brought about.
pub(crate) async fn add(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let name = call.resource(api, "queue")?;
    let (queue, names) = tokio::join!(replicated(api, &name), Names::of(api));
    let (queue, node) = (queue?, named_node(call, &names)?);
    if queue.members.contains(&node) {
        return Ok(Answer::done());
    }
    let what = format!("queue {name} has no replica on node {}", names.name(node));
    Err(not_placed(&what, "A node that joins gets its share of them"))
}

/// Whether a node does not replicate a queue, which cannot be brought about.
pub(crate) async fn delete(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let name = call.resource(api, "queue")?;
    let (queue, names) = tokio::join!(replicated(api, &name), Names::of(api));
    let (queue, node) = (queue?, named_node(call, &names)?);
    if !queue.members.contains(&node) {
        return Ok(Answer::accepted());
    }
    let what = format!("queue {name} has a replica on node {}", names.name(node));
    Err(not_placed(&what, "They leave a node that is forgotten (forget_cluster_node)"))
}

/// The node of the path.
fn node_of_path(call: &Call, names: &Names) -> Result<u32, Refusal> {
    names.id(call.name("node").unwrap_or_default()).ok_or(Refusal::NoObject)
}

/// The replicated queues of all virtual hosts, of those whose names match.
async fn all_replicated(api: &Api, vhosts: &Regex, queues: &Regex) -> Vec<KnownQueue> {
    let matching = |name: &VhostName| vhosts.is_match(name.as_str());
    let names = api.broker.views().vhosts().into_iter().map(|record| record.name);
    let vhosts: BTreeSet<VhostName> = names.filter(matching).collect();
    let mut listed = api.cluster.queues(&vhosts).await.items;
    listed.retain(|known| known.queue.queue_type == "quorum" && queues.is_match(&known.queue.name));
    listed
}

/// Whether a node replicates all queues that are meant.
pub(crate) async fn grow(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let names = Names::of(api).await;
    let node = node_of_path(call, &names)?;
    let fields = call.fields()?;
    let strategy = fields.text("strategy")?;
    if !["all", "even"].contains(&strategy) {
        return bad_request(format!("strategy must be all or even, not '{strategy}'"));
    }
    let vhosts = pattern("vhost_pattern", fields.text("vhost_pattern")?)?;
    let queues = pattern("queue_pattern", fields.text("queue_pattern")?)?;
    let queues = all_replicated(api, &vhosts, &queues).await;
    let without = queues.iter().filter(|known| !known.queue.members.contains(&node)).count();
    if without == 0 {
        return Ok(Answer::done());
    }
    let what = format!("node {} has no replicas of {without} of these queues", names.name(node));
    Err(not_placed(&what, "A node that joins gets its share of them"))
}

/// Whether a node replicates no queue.
pub(crate) async fn shrink(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let names = Names::of(api).await;
    let node = node_of_path(call, &names)?;
    let any = pattern("any", "")?;
    let queues = all_replicated(api, &any, &any).await;
    let with = queues.iter().filter(|known| known.queue.members.contains(&node)).count();
    if with == 0 {
        return Ok(Answer::accepted());
    }
    let what = format!("node {} has replicas of {with} queues", names.name(node));
    Err(not_placed(&what, "They leave a node that is forgotten (forget_cluster_node)"))
}

/// A pattern of names, which is matched in time that is linear in the name.
fn pattern(what: &str, text: &str) -> Result<Regex, Refusal> {
    let mut builder = RegexBuilder::new(text);
    builder.size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
    builder.build().map_err(|error| {
        Refusal::BadRequest(format!("{what} is not a regular expression: {error}"))
    })
}
