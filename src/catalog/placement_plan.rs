//! What the catalog's leader proposes next, so that every group gets the replicas that it shall have
//! (MEM 6, MEM 11).

use crate::{
    machine::Catalog,
    member::MemberState,
    member_command::MemberCommand,
    replica_placement::{CATALOG_VOTERS_MAX, MOVES_MAX, PlacementRecord},
    replicas::{Host, Hosts, Replicas},
};
use quorate_types::{GroupId, NodeId, ReplicaId};
use std::collections::{BTreeMap, BTreeSet};

/// How many groups may move when one more begins to move without need. A node may run and never catch up,
/// for example because its disk is full: then a repair of another group can still begin.
const SPREADS_MAX: usize = MOVES_MAX - 1;

/// Whether a node runs, as far as the catalog's leader knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It can be reached.
    Here,
    /// It cannot be reached, but may be back soon.
    Away,
    /// It has been away for so long that it may never return.
    Gone,
}

impl Catalog {
    /// The next change of a placement, or else the removal of a node that leaves and has no replica
    /// left. `voters`: replicas that each queue group shall have. `None`: nothing is to be done, or
    /// groups must first reach their placements. `presence`: whether a node runs, so that it can take a
    /// replica; one that is away keeps those that it has.
    ///
    /// First come groups with replicas that are lost or on nodes that leave, and of these the ones
    /// that move already: they cannot reach what they were given. A group with a lost replica waits
    /// while the node's new directory is joining.
    ///
    /// The leader proposes `Remove` only when the node's last lease must have ended (MEM 4).
    #[must_use]
    pub fn next_step(
        &self,
        voters: usize,
        presence: &dyn Fn(NodeId) -> Presence,
    ) -> Option<MemberCommand> {
        let all = self.hosts();
        let mut hosts = all.clone();
        hosts.iter_mut().for_each(|(node, host)| host.takes &= presence(*node) == Presence::Here);
        let plan = Plan { catalog: self, hosts: &hosts, all: &all, voters, presence };
        plan.repair().or_else(|| plan.spread()).or_else(|| self.removal())
    }

    /// The members, as placement sees them (MEM 6, MEM 13).
    #[must_use]
    pub fn hosts(&self) -> BTreeMap<NodeId, Host> {
        let host = |state: MemberState, zone: &str| Host {
            zone: zone.to_owned(),
            takes: state == MemberState::Member,
            leaves: state == MemberState::Leaving,
        };
        self.members().map(|(node, member)| (node, host(member.state, &member.zone))).collect()
    }

    fn removal(&self) -> Option<MemberCommand> {
        let leaving = self.members().filter(|(_, member)| member.state == MemberState::Leaving);
        let mut leaving = leaving.map(|(node, _)| node);
        let node = leaving.find(|node| self.group_naming(*node).is_none())?;
        Some(MemberCommand::Remove { node })
    }
}

struct Plan<'a> {
    catalog: &'a Catalog,
    /// The members; only those that run take replicas.
    hosts: &'a BTreeMap<NodeId, Host>,
    /// As if all ran.
    all: &'a BTreeMap<NodeId, Host>,
    voters: usize,
    presence: &'a dyn Fn(NodeId) -> Presence,
}

impl Plan<'_> {
    /// A new placement for a group with replicas that cannot act.
    fn repair(&self) -> Option<MemberCommand> {
        let can_move = self.catalog.moving().count() < MOVES_MAX;
        let placements = || self.catalog.placements();
        let moving = placements().filter(|(_, placement)| !placement.is_reached());
        let others = placements().filter(|(_, placement)| placement.is_reached() && can_move);
        let found = moving.chain(others).find(|(_, placement)| self.needs_repair(placement));
        match found {
            Some((group, placement)) => {
                Some(place(group, placement, self.repaired(group, placement)))
            }
            None => self.give_way(),
        }
    }

    /// A step towards groups that are complete, and evenly spread over zones and nodes.
    fn spread(&self) -> Option<MemberCommand> {
        if self.catalog.moving().count() >= SPREADS_MAX {
            return None;
        }
        let rests =
            |placement: &PlacementRecord| placement.is_reached() && self.is_sound(placement);
        let placements = self.catalog.placements();
        let busy: BTreeSet<GroupId> =
            placements.filter(|(_, it)| !rests(it)).map(|(group, _)| group).collect();
        let mut kinds = [true, false].into_iter();
        kinds.find_map(|of_catalog| {
            let present = self.present(of_catalog);
            let (group, nodes) = self.planner(self.hosts, of_catalog).next_step(&present, &busy)?;
            Some(place(group, self.catalog.placement(group)?, nodes))
        })
    }

    /// The group's nodes without those that leave, others in their places if there are any. Nodes
    /// whose replicas are lost are among them, and get new ones. A group waits for a node that is away
    /// rather than go on with fewer replicas.
    fn repaired(&self, group: GroupId, placement: &PlacementRecord) -> BTreeSet<NodeId> {
        let now = self.repaired_on(self.hosts, group, placement);
        let later = self.repaired_on(self.all, group, placement);
        if later.len() > now.len() { later } else { now }
    }

    fn repaired_on(
        &self,
        hosts: &BTreeMap<NodeId, Host>,
        group: GroupId,
        placement: &PlacementRecord,
    ) -> BTreeSet<NodeId> {
        let of_catalog = group == GroupId::CATALOG;
        let mut present = self.present(of_catalog);
        let others: BTreeSet<GroupId> =
            present.keys().copied().filter(|other| *other != group).collect();
        let mut nodes = placement.nodes();
        let leaves = |node: &NodeId| hosts.get(node).is_none_or(|host| host.leaves);
        while nodes.iter().any(leaves) {
            let step = self.planner(hosts, of_catalog).next_step(&present, &others);
            let Some((_, next)) = step else { break };
            nodes.clone_from(&next);
            present.insert(group, next);
        }
        nodes
    }

    fn planner<'b>(&self, hosts: &'b BTreeMap<NodeId, Host>, of_catalog: bool) -> Hosts<'b> {
        Hosts::new(hosts, if of_catalog { CATALOG_VOTERS_MAX } else { self.voters })
    }

    /// The placements of the catalog's group alone, or of all queue groups: each kind has its own
    /// number of voters.
    fn present(&self, of_catalog: bool) -> Replicas {
        let kind = |group: GroupId| (group == GroupId::CATALOG) == of_catalog;
        let placements = self.catalog.placements().filter(|(group, _)| kind(*group));
        placements.map(|(group, placement)| (group, placement.nodes())).collect()
    }

    /// A group that moves to a node that is gone goes back to the nodes where it was, if others wait for a
    /// repair, or if one of those nodes is gone too: while the group moves from one to the other, neither
    /// can be forgotten (MEM 11). If one of those nodes leaves, the group goes to a node that runs. What a
    /// node that is away already had stays there: the move can be reached without it.
    fn give_way(&self) -> Option<MemberCommand> {
        let waits_for_repair =
            |placement: &PlacementRecord| placement.is_reached() && self.needs_repair(placement);
        let do_others_wait = || self.catalog.placements().any(|(_, it)| waits_for_repair(it));
        let mut moving = self.catalog.placements().filter(|(_, placement)| !placement.is_reached());
        moving.find_map(|(group, placement)| {
            let former: BTreeSet<NodeId> =
                placement.before.first()?.iter().map(|replica| replica.node).collect();
            let is_gone = |node: &NodeId| (self.presence)(*node) == Presence::Gone;
            let new = placement.nodes().into_iter().filter(|node| !former.contains(node));
            let gone: BTreeSet<NodeId> = new.filter(is_gone).collect();
            let do_all_stay = former.iter().all(|node| self.stays(*node));
            let has_cause = || former.iter().any(is_gone) || do_others_wait();
            if gone.is_empty() || do_all_stay && !has_cause() {
                return None;
            }
            if do_all_stay {
                return Some(place(group, placement, former));
            }
            let nodes = self.repaired_on(&self.hosts_without(&gone), group, placement);
            let works =
                |node: &NodeId| former.contains(node) || (self.presence)(*node) == Presence::Here;
            let is_complete = nodes.len() >= former.len()
                && nodes.iter().all(|node| self.stays(*node) && works(node));
            is_complete.then(|| place(group, placement, nodes))
        })
    }

    /// The members, as if these left.
    fn hosts_without(&self, gone: &BTreeSet<NodeId>) -> BTreeMap<NodeId, Host> {
        let mut hosts = self.hosts.clone();
        hosts.iter_mut().for_each(|(node, host)| host.leaves |= gone.contains(node));
        hosts
    }

    /// The node may have replicas.
    fn stays(&self, node: NodeId) -> bool {
        let member = self.catalog.member(node);
        member.is_some_and(|it| matches!(it.state, MemberState::Member | MemberState::Draining))
    }

    /// A replica cannot act, and no new directory of its node is about to take its place.
    fn needs_repair(&self, placement: &PlacementRecord) -> bool {
        !self.is_sound(placement) && !self.waits(placement)
    }

    fn is_sound(&self, placement: &PlacementRecord) -> bool {
        placement.replicas.iter().all(|replica| self.catalog.can_act(*replica))
    }

    /// The new directory of a node whose replica is lost is not a member yet.
    fn waits(&self, placement: &PlacementRecord) -> bool {
        let joins = |replica: &ReplicaId| {
            let member = self.catalog.member(replica.node);
            member.is_some_and(|member| member.state == MemberState::Joining)
        };
        placement.replicas.iter().any(joins)
    }
}

fn place(group: GroupId, placement: &PlacementRecord, nodes: BTreeSet<NodeId>) -> MemberCommand {
    MemberCommand::Place { group, number: placement.number + 1, nodes }
}
