//! Carries out what the catalog places on this node, and what it places in the groups that this node
//! leads (MEM 7, MEM 8, MEM 9).
//!
//! Every node looks at the placements again and again: it begins the replicas that it is given, and
//! removes those that are over. The leader of a group changes the group's membership step by step
//! (`placing`) and reports when it is what the placement names.

use crate::{
    aligned_runtime::every,
    group::Group,
    groups::Groups,
    leadership,
    placing::{Step, Wanted, next_step},
    replica_name::{raft_id, replica_of},
    start_error::StartError,
    type_config::Membership,
};
use openraft::{ChangeMembers, async_runtime::WatchReceiver};
use quorate_catalog::{Catalog, MemberState};
use quorate_types::{GroupId, MachineVersion, ReplicaId, Term};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::{Instant, timeout};

/// How often the placements are looked at.
const EVERY: Duration = Duration::from_millis(100);
/// Longest time for one change of a membership, and for the reads before and after it.
const STEP_MAX: Duration = Duration::from_secs(5);
/// Longest wait for a handover to a node that stays in the group.
const HANDOVER: Duration = Duration::from_secs(1);

/// The placement of a group, as this node's copy of the catalog has it.
struct Placed {
    group: GroupId,
    number: u64,
    is_reached: bool,
    wanted: Wanted,
    /// Those of the wanted replicas whose disks are lost, or that shall go.
    lost: BTreeSet<u64>,
    /// The replica that this node shall have.
    mine: Option<ReplicaId>,
    /// This node's replica may be removed.
    is_over: bool,
}

/// Looks at the placements until the groups stop.
pub(crate) async fn run(groups: Groups) {
    let mut due = every(EVERY);
    let mut read_in = BTreeMap::new();
    loop {
        due.tick().await;
        for placed in placed(&groups) {
            if let Err(error) = settle(&groups, &placed).await {
                groups.shared().fail(placed.group, &error.to_string());
                return;
            }
            let Some(group) = groups.group(placed.group) else { continue };
            if group.is_leading() {
                lead(&groups, &group, &placed, &mut read_in).await;
            }
        }
    }
}

fn placed(groups: &Groups) -> Vec<Placed> {
    let catalog = groups.catalog();
    if catalog.machine() < MachineVersion::MEMBERS {
        return Vec::new();
    }
    let me = groups.shared().settings.me;
    let of_group = |(group, placement): (GroupId, &quorate_catalog::PlacementRecord)| {
        let learners = match group {
            GroupId::CATALOG => catalog.catalog_learners(),
            _ => BTreeSet::new(),
        };
        let ids = |replicas: &BTreeSet<ReplicaId>| replicas.iter().copied().map(raft_id).collect();
        let lost = placement.replicas.iter().filter(|replica| !catalog.can_act(**replica));
        let have = groups.group(group).map(|group| group.name());
        Placed {
            group,
            number: placement.number,
            is_reached: placement.is_reached(),
            wanted: Wanted { voters: ids(&placement.replicas), learners: ids(&learners) },
            lost: lost.copied().map(raft_id).collect(),
            mine: mine(&catalog, group, me),
            is_over: have.is_some_and(|replica| catalog.is_replica_over(group, replica)),
        }
    };
    catalog.placements().map(of_group).collect()
}

/// The replica that a node shall have of a group, unless its directory was forgotten or replaced.
fn mine(catalog: &Catalog, group: GroupId, me: quorate_types::NodeId) -> Option<ReplicaId> {
    let member = catalog.member(me).filter(|member| member.state != MemberState::Leaving)?;
    if group == GroupId::CATALOG {
        return Some(ReplicaId { node: me, number: member.first });
    }
    let mut mine = catalog.placement(group)?.replicas.iter().filter(|replica| replica.node == me);
    mine.find(|replica| catalog.can_act(**replica)).copied()
}

/// Begins the replica that this node is given, or removes one that is over.
async fn settle(groups: &Groups, placed: &Placed) -> Result<(), StartError> {
    if placed.is_over {
        return groups.remove_replica(placed.group).await;
    }
    match (groups.group(placed.group), placed.mine) {
        (None, Some(mine)) if groups.may_begin(mine, placed.group)? => {
            groups.add_replica(placed.group, mine.number).await
        }
        (Some(_) | None, _) => Ok(()),
    }
}

/// Takes the next step of a group that this node leads.
async fn lead(
    groups: &Groups,
    group: &Group,
    placed: &Placed,
    read_in: &mut BTreeMap<GroupId, Term>,
) {
    let term = group.leadership().term;
    if read_in.get(&placed.group) != Some(&term) {
        // A leader acts on what it has read in its own term: the copy may be older (MEM 7).
        let Some(catalog) = groups.catalog_group() else { return };
        if catalog.linearizable(STEP_MAX).await.is_ok() {
            read_in.insert(placed.group, term);
        }
        return;
    }
    let (membership, is_committed) = membership(group);
    let reached = groups.shared().reach().reached(Instant::now());
    // What a lost replica acknowledged is lost with it, also when its node is back with an empty disk.
    let acts = |id| reached.contains_key(&replica_of(id).node) && !placed.lost.contains(&id);
    let lag = |id| group.lag(id).filter(|_| acts(id));
    match next_step(group.me(), &membership, is_committed, &placed.wanted, lag) {
        Step::Wait => {}
        Step::Add(replica) => change(group, ChangeMembers::AddNodes([(replica, ())].into())).await,
        Step::SetVoters(voters) => change(group, ChangeMembers::ReplaceAllVoters(voters)).await,
        Step::Remove(learners) => change(group, ChangeMembers::RemoveNodes(learners)).await,
        Step::HandOver => hand_over(groups, group, &placed.wanted).await,
        Step::Reached if placed.is_reached => {}
        // A majority has followed this leader since it read the placement (MEM 7).
        Step::Reached => {
            if matches!(timeout(STEP_MAX, group.read_index()).await, Ok(Ok(_))) {
                groups.placement_reached(placed.group, placed.number);
            }
        }
    }
}

fn membership(group: &Group) -> (Membership, bool) {
    let metrics = group.raft().metrics();
    let metrics = metrics.borrow_watched();
    let stored = metrics.membership_config.clone();
    let committed = group.raft().data_metrics().borrow_watched().last_applied;
    (stored.membership().clone(), stored.log_id().as_ref() <= committed.as_ref())
}

async fn change(group: &Group, change: ChangeMembers<u64, ()>) {
    let text = format!("{change:?}");
    // All members receive the catalog, whether they vote or not (MEM 12).
    let keeps_learners = group.id() == GroupId::CATALOG;
    match timeout(STEP_MAX, group.raft().change_membership(change, keeps_learners)).await {
        Ok(Ok(_)) => tracing::info!(group = %group.id(), change = text, "membership changed"),
        Ok(Err(error)) => {
            tracing::info!(group = %group.id(), change = text, "membership not changed: {error}");
        }
        // It goes on; the next look finds it done or not committed.
        Err(_) => tracing::info!(group = %group.id(), change = text, "the change takes long"),
    }
}

/// Hands the leadership over to a node that stays in the group (MEM 8).
async fn hand_over(groups: &Groups, group: &Group, wanted: &Wanted) {
    let me = groups.shared().settings.me;
    let stays =
        |node: &quorate_types::NodeId| wanted.voters.iter().any(|id| replica_of(*id).node == *node);
    for node in leadership::order(group).into_iter().filter(stays).filter(|node| *node != me) {
        if leadership::transfer(groups.shared(), group, node, HANDOVER).await.is_ok() {
            return;
        }
    }
}
