//! The verbs of `rabbitmq-queues` about replicas. A queue has those of its group, which the cluster
//! places by itself (MEM 6): what RabbitMQ's operators ask for is there already, or is refused.

mod manuals;

pub(crate) use manuals::MANUALS;

use super::Console;
use super::access::vhost_names;
use super::connect::Connected;
use super::exit::{Exit, Failure};
use super::format::{Sheet, render};
use super::job::{Job, refused};
use super::lists;
use super::names::Names;
use super::options::Formatter;
use super::value::Value;
use quorate_catalog::Pattern;
use quorate_management::wire;

/// A verb about replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaVerb {
    QuorumStatus,
    AddMember,
    DeleteMember,
    Grow,
    GrowToCount,
    Shrink,
    TransferLeadership,
    ForceCheckpoint,
    ReclaimMemory,
}

/// Why replicas are not moved by hand.
const PLACED: &str = "the cluster places the replicas of queues by itself, by the setting \
                      queue_replicas and the nodes that are members";

/// Carries out a verb.
pub(super) async fn run(
    verb: ReplicaVerb,
    job: &Job<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    use ReplicaVerb as V;
    check_words(verb, job)?;
    let mut connected = job.connect().await?;
    job.banner(console, banner(verb, job, &connected));
    match verb {
        V::QuorumStatus => {
            let queue = queue(job, &mut connected).await?;
            let sheet = status_of(&connected.cluster, group_of(&queue)?);
            show(job, &sheet, Formatter::Pretty, console);
            Ok(())
        }
        V::AddMember | V::DeleteMember => member(verb, job, &mut connected).await,
        V::TransferLeadership => transfer(job, &mut connected, console).await,
        V::ReclaimMemory => {
            queue(job, &mut connected).await?;
            notice(
                console,
                "nothing is done: a queue has no process whose memory could be reclaimed",
            );
            Ok(())
        }
        V::ForceCheckpoint => {
            // Named patterns are checked, as if something were done.
            chosen(job, &mut connected).await?;
            notice(console, "nothing is done: the node writes checkpoints by itself all the time");
            Ok(())
        }
        V::Grow | V::GrowToCount | V::Shrink => many(verb, job, &mut connected, console).await,
    }
}

fn notice(console: &mut Console<'_>, text: &str) {
    console.complain(&format!("Notice: {text}\n"));
}

fn bad(text: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Data, format!("Error:\n{text}\n"))
}

/// Checks words that are the same for every cluster.
fn check_words(verb: ReplicaVerb, job: &Job<'_>) -> Result<(), Failure> {
    let strategy = job.word(1);
    if matches!(verb, ReplicaVerb::Grow | ReplicaVerb::GrowToCount)
        && !["all", "even"].contains(&strategy)
    {
        let text = format!("Error:\nstrategy '{strategy}' is not recognised.\n");
        return Err(Failure::new(Exit::Usage, text));
    }
    if verb == ReplicaVerb::GrowToCount && !job.word(0).parse::<u32>().is_ok_and(|count| count > 0)
    {
        let text = format!("Error:\nnode count '{}' must be greater than 0.\n", job.word(0));
        return Err(Failure::new(Exit::Usage, text));
    }
    let membership = job.invocation.options.value("membership").unwrap_or("promotable");
    if !["promotable", "non_voter", "voter"].contains(&membership) {
        let text = format!("Error:\nvoter status '{membership}' is not recognised.\n");
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(())
}

/// The line before the answer.
fn banner(verb: ReplicaVerb, job: &Job<'_>, connected: &Connected) -> String {
    use ReplicaVerb as V;
    let (first, second) = (job.word(0), job.word(1));
    match verb {
        V::QuorumStatus => {
            let node = super::job::asked_name(connected, job.target);
            format!("Status of quorum queue {first} on node {node} ...")
        }
        V::AddMember => format!("Adding a replica for queue {first} on node {second}..."),
        V::DeleteMember => format!("Removing a replica of queue {first} on node {second}..."),
        V::Grow => format!("Growing {second} quorum queues on {first}..."),
        V::GrowToCount => format!("Growing {second} quorum queues on {first} nodes..."),
        V::Shrink => format!("Shrinking quorum queues on {first}..."),
        V::TransferLeadership => {
            format!("Transferring leadership of quorum queue {first} to node {second}...")
        }
        V::ForceCheckpoint => "Forcing checkpoint for all matching quorum queues...".to_owned(),
        V::ReclaimMemory => format!("Will garbage collect quorum queue {first} ..."),
    }
}

fn show(job: &Job<'_>, sheet: &Sheet, usual: Formatter, console: &mut Console<'_>) {
    let options = &job.invocation.options;
    console.say(&render(sheet, options.formatter.unwrap_or(usual), options.headers()));
}

/// The queue that the first word names.
async fn queue(job: &Job<'_>, connected: &mut Connected) -> Result<wire::Queue, Failure> {
    let (name, vhost) = (job.word(0), job.invocation.options.vhost());
    let queues = lists::queues_of(vhost, connected).await?;
    queues.into_iter().find(|queue| queue.name == name).ok_or_else(|| {
        bad(format!(
            "Object of type queue with name {name} was not found in virtual host '{vhost}'"
        ))
    })
}

/// The group of a queue; one that is bound to a connection has none.
fn group_of(queue: &wire::Queue) -> Result<u32, Failure> {
    let group = queue.id.map(|id| id.group).filter(|group| *group != 0);
    group.ok_or_else(|| {
        refused(format!("queue '{}' is bound to a connection, and is not replicated", queue.name))
    })
}

/// The replicas of a group, in RabbitMQ's columns. A replica is written before it is acknowledged, so
/// the last index is that of what is written.
pub(super) fn status_of(cluster: &wire::Cluster, group: u32) -> Sheet {
    const COLUMNS: [&str; 10] = [
        "Node Name",
        "Raft State",
        "Membership",
        "Last Log Index",
        "Last Written",
        "Last Applied",
        "Commit Index",
        "Snapshot Index",
        "Term",
        "Machine Version",
    ];
    let placement = cluster.placement.iter().find(|placement| placement.group == group);
    let voters = placement.map(|placement| placement.nodes.as_slice()).unwrap_or_default();
    let row = |member: &wire::Member| {
        let replica = member.status.as_ref();
        let replica = replica.and_then(|node| node.groups.iter().find(|it| it.group == group));
        let is_voter = voters.contains(&member.id);
        if replica.is_none() && !is_voter {
            return None;
        }
        let name = Value::text(&member.name);
        let membership = Value::word(if is_voter { "voter" } else { "non_voter" });
        let Some(replica) = replica else {
            let state = Value::word(if member.running { "noproc" } else { "nodedown" });
            let unknown = std::iter::repeat_n(Value::Empty, COLUMNS.len() - 3);
            return Some([name, state, membership].into_iter().chain(unknown).collect());
        };
        let snapshot = match replica.purged {
            0 => Value::word("undefined"),
            index => Value::Number(index),
        };
        Some(vec![
            name,
            Value::word(&replica.role),
            membership,
            Value::Number(replica.last),
            Value::Number(replica.last),
            Value::Number(replica.applied),
            Value::Number(replica.applied),
            snapshot,
            Value::Number(replica.term),
            Value::Number(cluster.machine_version.into()),
        ])
    };
    let rows = cluster.members.iter().filter_map(row).collect();
    Sheet { columns: COLUMNS.map(str::to_owned).to_vec(), rows }
}

/// The running node that a word names; RabbitMQ's error for any other.
fn running(connected: &Connected, given: &str) -> Result<u32, Failure> {
    let id = Names::of(&connected.cluster).id(given);
    let members = connected.cluster.members.iter();
    let member = members.filter(|member| member.running).find(|member| Some(member.id) == id);
    member.map(|member| member.id).ok_or_else(|| refused("node_not_running"))
}

/// `add_member` and `delete_member`: done if it is so already.
async fn member(
    verb: ReplicaVerb,
    job: &Job<'_>,
    connected: &mut Connected,
) -> Result<(), Failure> {
    let queue = queue(job, connected).await?;
    let adds = verb == ReplicaVerb::AddMember;
    let given = job.word(1);
    let node = if adds {
        Some(running(connected, given)?)
    } else {
        Names::of(&connected.cluster).id(given)
    };
    if node.is_some_and(|node| queue.members.contains(&node)) == adds {
        return Ok(());
    }
    let hint = if adds {
        "a higher queue_replicas gives each queue more replicas".to_owned()
    } else {
        format!("`forget_cluster_node {given}` takes all replicas off the node")
    };
    Err(refused(format!("{PLACED}; {hint}")))
}

/// `transfer_leadership`: done if the node leads the queue. Else it is refused: a leadership is that of
/// a whole group, and nodes give it back to the preferred one within seconds.
async fn transfer(
    job: &Job<'_>,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let queue = queue(job, connected).await?;
    let node = running(connected, job.word(1))?;
    let name = Names::of(&connected.cluster).node(node);
    if queue.leader == node {
        console.say(&format!("{name}\n"));
        return Ok(());
    }
    if !queue.members.contains(&node) {
        return Err(refused(format!("node {name} has no replica of queue '{}'", queue.name)));
    }
    Err(refused(format!(
        "leaders of queues are spread over the nodes by the cluster itself: `rebalance` does that at \
         once, and `drain` moves all leaderships off a node; queue '{}' stays where it is",
        queue.name
    )))
}

/// The replicated queues that `--vhost-pattern` and `--queue-pattern` select.
async fn chosen(job: &Job<'_>, connected: &mut Connected) -> Result<Vec<wire::Queue>, Failure> {
    let options = &job.invocation.options;
    let pattern = |option: &str| {
        let text = options.value(option).unwrap_or(".*");
        Pattern::new(text).map_err(|denial| bad(format!("--{option}: {denial}")))
    };
    let (vhosts, queues) = (pattern("vhost-pattern")?, pattern("queue-pattern")?);
    let mut chosen = Vec::new();
    for vhost in vhost_names(connected).await? {
        if vhosts.matches(vhost.as_bytes()) {
            let of_vhost = lists::queues_of(&vhost, connected).await?;
            chosen.extend(
                of_vhost.into_iter().filter(|queue| {
                    group_of(queue).is_ok() && queues.matches(queue.name.as_bytes())
                }),
            );
        }
    }
    Ok(chosen)
}

/// `grow`, `grow_to_count` and `shrink`: the queues that would change, and why they do not.
async fn many(
    verb: ReplicaVerb,
    job: &Job<'_>,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let (grows, shrinks) = (verb == ReplicaVerb::Grow, verb == ReplicaVerb::Shrink);
    let node = if grows {
        Some(running(connected, job.word(0))?)
    } else {
        Names::of(&connected.cluster).id(job.word(0))
    };
    let count = job.word(0).parse().unwrap_or(0);
    let only_even = job.word(1) == "even";
    let changes = |queue: &wire::Queue| {
        let has = node.is_some_and(|node| queue.members.contains(&node));
        let is_chosen = !only_even || queue.members.len().is_multiple_of(2);
        if shrinks {
            has
        } else if grows {
            is_chosen && !has
        } else {
            is_chosen && queue.members.len() < count
        }
    };
    let queues: Vec<wire::Queue> =
        chosen(job, connected).await?.into_iter().filter(changes).collect();
    if queues.is_empty() {
        console.say("\n");
        return Ok(());
    }
    let result = if shrinks {
        format!("error: {PLACED}; `forget_cluster_node` takes them off a node")
    } else {
        format!("error: {PLACED}")
    };
    let row = |queue: &wire::Queue| {
        vec![
            Value::text(&queue.vhost),
            Value::text(&queue.name),
            Value::Number(queue.members.len() as u64),
            Value::text(&result),
        ]
    };
    let columns = ["vhost", "name", "size", "result"].map(str::to_owned).to_vec();
    let sheet = Sheet { columns, rows: queues.iter().map(row).collect() };
    show(job, &sheet, Formatter::Table, console);
    Err(refused(PLACED))
}

#[cfg(test)]
mod tests {
    use super::super::format::render;
    use super::*;

    #[test]
    fn a_replica_that_is_not_known_is_shown_with_why() {
        let group = wire::Group {
            group: 3,
            role: "leader".to_owned(),
            last: 14,
            applied: 13,
            term: 2,
            ..wire::Group::default()
        };
        let member = |id, running, groups: Vec<wire::Group>| wire::Member {
            id,
            name: format!("n{id}"),
            running,
            status: running.then(|| wire::Node { groups, ..wire::Node::default() }),
            ..wire::Member::default()
        };
        let other = wire::Group { group: 3, role: "learner".to_owned(), ..wire::Group::default() };
        let cluster = wire::Cluster {
            members: vec![
                member(1, true, vec![group]),
                member(2, true, Vec::new()),
                member(3, false, Vec::new()),
                member(4, true, vec![other]),
                member(5, true, Vec::new()),
            ],
            placement: vec![wire::Placement {
                group: 3,
                nodes: vec![1, 2, 3],
                ..wire::Placement::default()
            }],
            machine_version: 2,
            ..wire::Cluster::default()
        };
        let text = render(&status_of(&cluster, 3), Formatter::Table, false);
        let expected = "n1\tleader\tvoter\t14\t14\t13\t13\tundefined\t2\t2\n\
                        n2\tnoproc\tvoter\t\t\t\t\t\t\t\n\
                        n3\tnodedown\tvoter\t\t\t\t\t\t\t\n\
                        n4\tlearner\tnon_voter\t0\t0\t0\t0\tundefined\t0\t2\n";
        assert_eq!(text, expected);
    }
}
