//! The replicas that each group shall have (MEM 5 to MEM 9).
//!
//! Raft's voters of a group are those of one of its candidates, or joint ones of two: the placement
//! that was reached last, and those since. A leader that goes is one more voter until it has handed over.
//! Each candidate always has a majority of replicas with their disks on members that do not leave: what
//! would end this is refused (MEM 10, MEM 11).

use crate::{
    denial::MemberDenial,
    machine::Catalog,
    member::MemberState,
    output::{CatalogEvent, CatalogOutput},
    record::CatalogKey,
};
use quorate_types::{GroupId, NodeId, ReplicaId, ReplicaNumber};
use std::{collections::BTreeSet, mem};

/// How many groups may move at once (MEM 6).
pub const MOVES_MAX: usize = 2;

/// How many members vote in the catalog's group (MEM 12).
pub const CATALOG_VOTERS_MAX: usize = 5;

/// The replicas that a group shall have (MEM 1); of the catalog's group, those that vote (MEM 12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementRecord {
    /// 1 for the placement of the founding, then one more with each placement.
    pub number: u64,
    /// The replicas.
    pub replicas: BTreeSet<ReplicaId>,
    /// Number of the last placement that was reached (MEM 7).
    pub reached: u64,
    /// The replicas of the last placement that was reached and of those since, without the present
    /// one; none if that is reached. It grows only when a member that was to get a replica leaves or
    /// is replaced before the placement is reached.
    pub before: Vec<BTreeSet<ReplicaId>>,
}

impl PlacementRecord {
    pub(crate) fn founded(replicas: BTreeSet<ReplicaId>) -> Self {
        Self { number: 1, replicas, reached: 1, before: Vec::new() }
    }

    /// False while the group moves (MEM 7).
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.reached == self.number
    }

    /// The nodes of the replicas.
    #[must_use]
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.replicas.iter().map(|replica| replica.node).collect()
    }

    /// All sets of replicas that may be the group's voters now, apart from a leader that goes.
    pub fn candidates(&self) -> impl Iterator<Item = &BTreeSet<ReplicaId>> {
        self.before.iter().chain([&self.replicas])
    }

    /// Each candidate with a leader that an earlier one has and that goes: it votes too until it has handed
    /// over (MEM 7).
    fn with_leaders(&self) -> impl Iterator<Item = BTreeSet<ReplicaId>> {
        self.candidates().enumerate().flat_map(|(place, candidate)| {
            // A replica that another one of its node stands in for is lost, and leads nothing.
            let goes = |leader: &&ReplicaId| candidate.iter().all(|it| it.node != leader.node);
            let with = |leader: &ReplicaId| candidate.iter().chain([leader]).copied().collect();
            self.candidates().take(place).flatten().filter(goes).map(with)
        })
    }
}

impl Catalog {
    /// The placements of all groups; none before machine version 2 (MEM 1).
    pub fn placements(&self) -> impl Iterator<Item = (GroupId, &PlacementRecord)> {
        self.membership.placements.iter().map(|(group, placement)| (*group, placement))
    }

    /// The placement of a group (MEM 1).
    #[must_use]
    pub fn placement(&self, group: GroupId) -> Option<&PlacementRecord> {
        self.membership.placements.get(&group)
    }

    /// The replicas of the catalog that do not vote: those of all other members (MEM 12).
    #[must_use]
    pub fn catalog_learners(&self) -> BTreeSet<ReplicaId> {
        let placement = self.placement(GroupId::CATALOG);
        let votes = |replica: &ReplicaId| placement.is_some_and(|it| it.replicas.contains(replica));
        let stay = self.members().filter(|(_, member)| member.state != MemberState::Leaving);
        let replicas = stay.map(|(node, member)| ReplicaId { node, number: member.first });
        replicas.filter(|replica| !votes(replica)).collect()
    }

    /// True if the replica's directory serves its node, and does not leave. Otherwise its disk is
    /// lost, or it shall go (MEM 10, MEM 11).
    #[must_use]
    pub fn can_act(&self, replica: ReplicaId) -> bool {
        self.member(replica.node).is_some_and(|member| {
            member.state != MemberState::Leaving && member.first <= replica.number
        })
    }

    /// The nodes whose replicas of the group may vote, but are lost or shall go (MEM 10, MEM 11). A node
    /// stays one of them until the group has reached a placement without such a replica.
    #[must_use]
    pub fn lost_replicas(&self, group: GroupId) -> BTreeSet<NodeId> {
        let candidates = self.placement(group).into_iter().flat_map(PlacementRecord::candidates);
        let lost = candidates.flatten().filter(|replica| !self.can_act(**replica));
        lost.map(|replica| replica.node).collect()
    }

    /// True if a node may delete the replica: a placement that is newer than the replica and lacks
    /// it is reached (MEM 9). False on a copy that is older than the placement that brought the
    /// replica. A member's replica of the catalog is never deleted.
    #[must_use]
    pub fn is_replica_over(&self, group: GroupId, replica: ReplicaId) -> bool {
        let is_named =
            |placement: &PlacementRecord| placement.candidates().any(|it| it.contains(&replica));
        group != GroupId::CATALOG
            && replica.number < self.membership.next_replica
            && self.placement(group).is_some_and(|placement| !is_named(placement))
    }

    pub(crate) fn place_group(
        &mut self,
        group: GroupId,
        number: u64,
        nodes: &BTreeSet<NodeId>,
        out: &mut CatalogOutput,
    ) -> Result<(), MemberDenial> {
        let mut placement = self.placed(group)?.clone();
        let acts = placement.replicas.iter().all(|replica| self.can_act(*replica));
        if acts && placement.nodes() == *nodes {
            return Ok(());
        }
        if number != placement.number + 1 {
            return Err(MemberDenial::OtherPlacement { group, present: placement.number, number });
        }
        let is_catalog = group == GroupId::CATALOG;
        if nodes.is_empty() || is_catalog && nodes.len() > CATALOG_VOTERS_MAX {
            return Err(MemberDenial::Count { group, count: nodes.len() as u64 });
        }
        if placement.is_reached() && self.moving().count() >= MOVES_MAX {
            return Err(MemberDenial::OthersMove { group });
        }
        let names = nodes.iter().map(|node| self.standing(group, &placement, *node));
        let names: Vec<Option<ReplicaId>> = names.collect::<Result<_, _>>()?;
        let named = nodes.iter().zip(names).map(|(node, name)| {
            name.unwrap_or_else(|| ReplicaId { node: *node, number: self.next_replica() })
        });
        let replicas = named.collect();
        placement.before.push(mem::replace(&mut placement.replicas, replicas));
        placement.number = number;
        self.set_placement(group, placement, out);
        Ok(())
    }

    /// Only the present placement can be reported (MEM 7).
    pub(crate) fn reached(
        &mut self,
        group: GroupId,
        number: u64,
        out: &mut CatalogOutput,
    ) -> Result<(), MemberDenial> {
        let placement = self.placed(group)?;
        if number != placement.number {
            return Err(MemberDenial::OtherPlacement { group, present: placement.number, number });
        }
        if !placement.is_reached() {
            let replicas = placement.replicas.clone();
            let reached = PlacementRecord { number, replicas, reached: number, before: Vec::new() };
            self.set_placement(group, reached, out);
        }
        Ok(())
    }

    /// The groups that move (MEM 6).
    pub(crate) fn moving(&self) -> impl Iterator<Item = GroupId> {
        self.placements().filter(|(_, placement)| !placement.is_reached()).map(|(group, _)| group)
    }

    /// MEM 10, MEM 11: no group would be left without a majority if the node's replicas were gone.
    pub(crate) fn check_majorities(&self, node: NodeId) -> Result<(), MemberDenial> {
        let stays = |it: NodeId| it != node;
        let lacks = |it: &BTreeSet<ReplicaId>| !self.has_majority(it, stays);
        let without = self.placements().find(|(_, it)| it.candidates().any(lacks));
        without.map_or(Ok(()), |(group, _)| Err(MemberDenial::NoMajority { node, group }))
    }

    /// A group that has its majority by the node's replica while nodes of which `runs` is false are away,
    /// and one of these; or while a replica is lost, if the node's is a leader that goes and votes until
    /// then. `None` if the node can be taken from all groups now, or the catalog refuses it (MEM 11).
    #[must_use]
    pub fn needs(&self, node: NodeId, runs: impl Fn(NodeId) -> bool) -> Option<(GroupId, NodeId)> {
        let stays = |it: NodeId| it != node && runs(it);
        self.placements().find_map(|(group, placement)| {
            let acting = || placement.candidates().flatten().filter(|it| self.can_act(**it));
            if self.can_be_led(group, stays) || !acting().any(|it| it.node == node) {
                return None;
            }
            let away = acting().find(|it| it.node != node && !runs(it.node));
            // What is lost or shall go does not come back: a candidate that needs the node is refused
            // by the catalog, which does not know which replica leads.
            let named = || placement.candidates().flatten();
            let is_refused =
                placement.candidates().any(|it| !self.has_majority(it, |at| at != node));
            let lost = || named().find(|it| !is_refused && !self.can_act(**it));
            Some((group, away.or_else(lost)?.node))
        })
    }

    /// Whether the group can have a leader while only nodes of which `runs` is true take part; true for a
    /// group without a placement.
    #[must_use]
    pub fn can_be_led(&self, group: GroupId, runs: impl Fn(NodeId) -> bool) -> bool {
        self.placement(group).is_none_or(|placement| {
            placement.candidates().all(|it| self.has_majority(it, &runs))
                && placement.with_leaders().all(|it| self.has_majority(&it, &runs))
        })
    }

    /// Whether voters have a majority of replicas that can act, on nodes that count.
    fn has_majority(&self, voters: &BTreeSet<ReplicaId>, counts: impl Fn(NodeId) -> bool) -> bool {
        let acts = |replica: &&ReplicaId| counts(replica.node) && self.can_act(**replica);
        voters.iter().filter(acts).count() * 2 > voters.len()
    }

    /// A group with a candidate that names the node.
    pub(crate) fn group_naming(&self, node: NodeId) -> Option<GroupId> {
        let names = |placement: &PlacementRecord| {
            placement.candidates().flatten().any(|replica| replica.node == node)
        };
        self.placements().find(|(_, placement)| names(placement)).map(|(group, _)| group)
    }

    /// The number of a new replica (MEM 5).
    pub(crate) fn next_replica(&mut self) -> ReplicaNumber {
        let number = self.membership.next_replica;
        self.membership.next_replica.0 += 1;
        number
    }

    pub(crate) fn set_placement(
        &mut self,
        group: GroupId,
        placement: PlacementRecord,
        out: &mut CatalogOutput,
    ) {
        self.membership.placements.insert(group, placement);
        self.changed(CatalogKey::Placement(group), out);
        out.events.push(CatalogEvent::PlacementChanged { group });
    }

    fn placed(&self, group: GroupId) -> Result<&PlacementRecord, MemberDenial> {
        self.placement(group).ok_or(MemberDenial::NoGroup { group })
    }

    /// The name that the node's replica has already. A replica keeps it also when a move away from
    /// it is called off: it was not deleted (MEM 9), and the node has no room for another one. `None`
    /// if the node gets a new replica (MEM 5); that of the catalog is the one that the node has.
    fn standing(
        &self,
        group: GroupId,
        placement: &PlacementRecord,
        node: NodeId,
    ) -> Result<Option<ReplicaId>, MemberDenial> {
        let member = self.known(node)?;
        let mut named = placement.candidates().flatten().filter(|it| it.node == node).peekable();
        let stays = named.peek().is_some();
        if member.state != MemberState::Member && !(stays && member.state == MemberState::Draining)
        {
            let wanted = MemberState::Member;
            return Err(MemberDenial::State { node, state: member.state, wanted });
        }
        let of_catalog = ReplicaId { node, number: member.first };
        let kept = named.find(|it| it.number >= member.first).copied();
        Ok(kept.or((group == GroupId::CATALOG).then_some(of_catalog)))
    }
}
