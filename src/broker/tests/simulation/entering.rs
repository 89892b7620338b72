//! How a process with an empty data directory enters the cluster, as `quorate` does it: it asks the nodes
//! that it knows, and again until one lets it in (MEM 2, MEM 3, MEM 10).

use crate::{
    membership::Request,
    world::{NODES, World},
};
use futures::future::pending;
use quorate_broker::{Applicant, Broker, Entrance, Joined, MemberError};
use quorate_catalog::Newcomer;
use quorate_rpc::{ClusterCell, Links, chance};
use quorate_storage::{Database, StorageError};
use quorate_types::{GroupId, NodeId, ReplicaNumber};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Between two rounds of questions.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest time for handing leaderships over before a stop.
const HAND_OVER: Duration = Duration::from_secs(5);

/// Answers those who ask a node, as long as its process runs.
pub async fn answer(world: Arc<World>, me: NodeId, broker: Broker, cluster: ClusterCell) {
    let mut requests = world.membership.opens(me);
    while let Some(request) = requests.recv().await {
        tokio::spawn(carry_out(Arc::clone(&world), me, broker.clone(), cluster.clone(), request));
    }
}

async fn carry_out(
    world: Arc<World>,
    me: NodeId,
    broker: Broker,
    cluster: ClusterCell,
    request: Request,
) {
    let operator = broker.operator();
    match request {
        Request::Enter(applicant, sender) => {
            let answer = operator.enter(&applicant, cluster.get().is_some()).await;
            // It may have waited for long enough.
            let _ = sender.send(answer);
        }
        Request::Replace(node) => {
            let replaced = operator.replace_member(node).await;
            world.trace.note(&format!("node {me} is to replace node {node}: {replaced:?}"));
        }
        Request::Drain => {
            let drained = operator.drain().await;
            world.trace.note(&format!("node {me} is to be drained: {drained:?}"));
            world.membership.set_drained(me, drained.is_ok());
        }
        Request::Revive => {
            operator.revive().await;
            world.membership.set_drained(me, false);
        }
        Request::Stop => stop(&world, me).await,
        Request::Forget { node, running } => {
            let forgotten = operator.forget_member(node, running).await;
            world.trace.note(&format!("node {me} is to forget node {node}: {forgotten:?}"));
        }
    }
}

/// Stops a node, as `quorate` does it.
async fn stop(world: &World, me: NodeId) {
    let groups = world.running.lock().get(&me).map(|(_, groups)| Arc::clone(groups));
    if let Some(groups) = groups {
        let kept = groups.hand_over_all(HAND_OVER).await;
        world.trace.note(&format!("node {me} stops, and leads {kept:?}"));
        groups.stop().await;
    }
    world.membership.has_stopped(me);
}

/// Enters the cluster with a directory that has nothing of the catalog, unless it is one that is to found
/// the cluster. Returns the number of the replica of the catalog with which the node joins.
pub async fn enter(
    world: &Arc<World>,
    me: NodeId,
    database: &Database,
    links: &Links,
    cluster: &ClusterCell,
) -> Result<Option<ReplicaNumber>, StorageError> {
    let Some(replaces_lost_disk) = world.membership.replaces(me) else { return Ok(None) };
    if database.group(GroupId::CATALOG)?.log_state().last.is_some() {
        return Ok(None);
    }
    let (identity, launch) = (database.identity(), world.membership.launch(me));
    let newcomer = Newcomer {
        node: me,
        incarnation: identity.incarnation,
        address: launch.address(me),
        zone: String::new(),
    };
    let applicant = Applicant {
        newcomer,
        machine_newest: launch.version,
        replaces_lost_disk,
        nodes: NODES.into_iter().chain([me]).collect(),
    };
    let joined = ask_all(world, &applicant).await;
    // A simulated directory has no file with a mark.
    database.machine_mark().raise(joined.machine).unwrap();
    joined.take_part(database, (links, cluster), |node| NODES.contains(&node)).await?;
    let first = joined.first;
    world.trace.note(&format!("node {me} joins the cluster as replica {first}"));
    Ok(Some(first))
}

/// Asks until a node lets the applicant in.
async fn ask_all(world: &Arc<World>, applicant: &Applicant) -> Joined {
    let me = applicant.newcomer.node;
    loop {
        let mut answers = Vec::new();
        for asked in NODES.into_iter().filter(|node| *node != me) {
            answers.extend(ask(world, asked, applicant).await);
        }
        for answer in answers {
            match answer {
                Ok(Entrance::Joined(joined)) => return joined,
                // The cluster was formed long ago.
                Ok(entrance @ (Entrance::Forming | Entrance::Founder)) => {
                    let violation = format!("node {me} has a new disk, and is told {entrance:?}");
                    world.history.lock().violation(violation);
                }
                Err(error) if error.is_final() => return refused(world, me, error).await,
                Err(error) => world.trace.note(&format!("node {me} is not let in yet: {error}")),
            }
        }
        sleep(PAUSE).await;
    }
}

/// Asks one node, if messages come through; `None` if it does not answer.
async fn ask(
    world: &World,
    asked: NodeId,
    applicant: &Applicant,
) -> Option<Result<Entrance, MemberError>> {
    let me = applicant.newcomer.node;
    sleep(Duration::from_millis(chance::in_range(1..=8))).await;
    let (sender, answer) = oneshot::channel();
    if world.is_cut(me, asked)
        || !world.membership.ask(asked, Request::Enter(applicant.clone(), sender))
    {
        return None;
    }
    let answer = timeout(ANSWER, answer).await.ok()?.ok()?;
    (!world.is_cut(me, asked)).then_some(answer)
}

/// The process ends.
async fn refused(world: &World, me: NodeId, error: MemberError) -> Joined {
    if world.membership.may_be_forgotten(me) {
        world.trace.note(&format!("node {me} is refused: {error}"));
        world.membership.has_gone(me);
    } else {
        world.history.lock().violation(format!("node {me} is refused for good: {error}"));
    }
    pending().await
}
