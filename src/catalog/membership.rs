//! How nodes become members, are drained, are replaced and leave (MEM 3, MEM 10, MEM 11, MEM 13).

use crate::{
    denial::MemberDenial,
    machine::Catalog,
    member::{ForgottenRecord, MemberRecord, MemberState},
    member_command::Newcomer,
    output::{CatalogEvent, CatalogOutput},
    record::{CatalogKey, NodeEntry},
    replica_placement::PlacementRecord,
};
use quorate_types::{GroupId, Incarnation, NodeId, ReplicaId, ReplicaNumber, StartNumber};

type Done = Result<(), MemberDenial>;

impl Catalog {
    /// True if machine version 2 has an effect: it makes members of the nodes that are known.
    pub(crate) fn can_have_members(&self) -> bool {
        self.shape.is_some() && !self.nodes.is_empty()
    }

    /// MEM 1: at the beginning of machine version 2 all nodes that the catalog knows are members,
    /// and replicate every group since the founding.
    pub(crate) fn found_members(&mut self, out: &mut CatalogOutput) {
        let member = |entry: &NodeEntry| MemberRecord {
            incarnation: entry.incarnation,
            address: entry.rpc_address.clone(),
            zone: String::new(),
            state: MemberState::Member,
            first: ReplicaNumber(0),
        };
        let members: Vec<_> = self.nodes().map(|(node, entry)| (node, member(entry))).collect();
        let founder = |(node, member): &(NodeId, MemberRecord)| ReplicaId {
            node: *node,
            number: member.first,
        };
        let founded = PlacementRecord::founded(members.iter().map(founder).collect());
        self.membership.next_replica = ReplicaNumber(1);
        members.into_iter().for_each(|(node, member)| self.set_member(node, member, out));
        let groups = self.shape.into_iter().flat_map(crate::ClusterShape::groups);
        for group in std::iter::once(GroupId::CATALOG).chain(groups) {
            self.set_placement(group, founded.clone(), out);
        }
    }

    /// MEM 1, MEM 11: only the directory that serves the node may start.
    pub(crate) fn check_start(&self, node: NodeId, incarnation: Incarnation) -> Done {
        self.check_not_forgotten(incarnation)?;
        self.served(node, incarnation).map(|_| ())
    }

    pub(crate) fn join(&mut self, newcomer: &Newcomer, out: &mut CatalogOutput) -> Done {
        let Newcomer { node, incarnation, address, zone } = newcomer;
        self.check_newcomer(newcomer)?;
        let (state, first) = if self.member(*node).is_some() {
            let known = self.served(*node, *incarnation)?;
            (known.state, known.first)
        } else {
            (MemberState::Joining, self.next_replica())
        };
        let (address, zone) = (address.clone(), zone.clone());
        let member = MemberRecord { incarnation: *incarnation, address, zone, state, first };
        self.set_member(*node, member, out);
        Ok(())
    }

    pub(crate) fn admit(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        out: &mut CatalogOutput,
    ) -> Done {
        self.served(node, incarnation)?;
        self.turn(node, MemberState::Joining, MemberState::Member, out)
    }

    pub(crate) fn drain(&mut self, node: NodeId, out: &mut CatalogOutput) -> Done {
        self.turn(node, MemberState::Member, MemberState::Draining, out)
    }

    pub(crate) fn revive(&mut self, node: NodeId, out: &mut CatalogOutput) -> Done {
        self.turn(node, MemberState::Draining, MemberState::Member, out)
    }

    /// MEM 11. A node that was removed meanwhile is forgotten too.
    pub(crate) fn forget(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        out: &mut CatalogOutput,
    ) -> Done {
        if self.forgotten(incarnation).is_some_and(|record| record.node == node) {
            return Ok(());
        }
        let member = self.served(node, incarnation)?.clone();
        if !self.members().any(|(other, member)| other != node && member.state.works()) {
            return Err(MemberDenial::LastMember { node });
        }
        self.check_majorities(node)?;
        self.forget_directory(node, incarnation, out);
        self.set_member(node, MemberRecord { state: MemberState::Leaving, ..member }, out);
        Ok(())
    }

    /// MEM 10: the names of the old directory's replicas end with it, since all replicas of the new
    /// one have higher numbers.
    pub(crate) fn replace(
        &mut self,
        old: Incarnation,
        by: &Newcomer,
        out: &mut CatalogOutput,
    ) -> Done {
        let Newcomer { node, incarnation, address, zone } = by;
        if self.member(*node).is_some_and(|member| member.incarnation == *incarnation) {
            return self.join(by, out);
        }
        self.check_newcomer(by)?;
        let state = self.served(*node, old)?.state;
        if state == MemberState::Leaving {
            return Err(MemberDenial::State { node: *node, state, wanted: MemberState::Member });
        }
        self.check_majorities(*node)?;
        self.forget_directory(*node, old, out);
        let member = MemberRecord {
            incarnation: *incarnation,
            address: address.clone(),
            zone: zone.clone(),
            state: MemberState::Joining,
            first: self.next_replica(),
        };
        self.set_member(*node, member, out);
        Ok(())
    }

    /// MEM 11. The node's [`NodeEntry`] stays, since its starts remain fenced for ever (SES 6).
    pub(crate) fn remove_member(&mut self, node: NodeId, out: &mut CatalogOutput) -> Done {
        let Some(member) = self.member(node) else { return Ok(()) };
        if member.state != MemberState::Leaving {
            let wanted = MemberState::Leaving;
            return Err(MemberDenial::State { node, state: member.state, wanted });
        }
        if let Some(group) = self.group_naming(node) {
            return Err(MemberDenial::StillPlaced { node, group });
        }
        self.membership.members.remove(&node);
        self.changed(CatalogKey::Member(node), out);
        out.events.push(CatalogEvent::MembersChanged);
        Ok(())
    }

    /// The record of a member.
    pub(crate) fn known(&self, node: NodeId) -> Result<&MemberRecord, MemberDenial> {
        self.member(node).ok_or(MemberDenial::NoMember { node })
    }

    /// The record of the member, if that directory serves it.
    fn served(
        &self,
        node: NodeId,
        incarnation: Incarnation,
    ) -> Result<&MemberRecord, MemberDenial> {
        let member = self.known(node)?;
        if member.incarnation == incarnation {
            Ok(member)
        } else {
            Err(MemberDenial::IdTaken { node, state: member.state })
        }
    }

    fn check_not_forgotten(&self, incarnation: Incarnation) -> Done {
        let denial = |record: &ForgottenRecord| MemberDenial::Forgotten { node: record.node };
        self.forgotten(incarnation).map_or(Ok(()), |record| Err(denial(record)))
    }

    /// MEM 1: a directory that was forgotten never comes back, and one serves one node.
    fn check_newcomer(&self, newcomer: &Newcomer) -> Done {
        self.check_not_forgotten(newcomer.incarnation)?;
        let other = self.members().find(|(node, member)| {
            *node != newcomer.node && member.incarnation == newcomer.incarnation
        });
        let node = newcomer.node;
        other.map_or(Ok(()), |(by, _)| Err(MemberDenial::DirectoryTaken { node, by }))
    }

    fn turn(
        &mut self,
        node: NodeId,
        from: MemberState,
        to: MemberState,
        out: &mut CatalogOutput,
    ) -> Done {
        let member = self.known(node)?.clone();
        if member.state != from && member.state != to {
            return Err(MemberDenial::State { node, state: member.state, wanted: from });
        }
        self.set_member(node, MemberRecord { state: to, ..member }, out);
        Ok(())
    }

    /// Fences all starts of the node (SES 6), and remembers the directory.
    pub(crate) fn forget_directory(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        out: &mut CatalogOutput,
    ) {
        let start = self.node(node).map_or(StartNumber(0), |entry| entry.start);
        self.membership.forgotten.insert(incarnation, ForgottenRecord { node, start });
        self.changed(CatalogKey::Forgotten(incarnation), out);
        self.node_down(node, start, out);
    }

    pub(crate) fn set_member(
        &mut self,
        node: NodeId,
        member: MemberRecord,
        out: &mut CatalogOutput,
    ) {
        if self.member(node) != Some(&member) {
            self.membership.members.insert(node, member);
            self.changed(CatalogKey::Member(node), out);
            out.events.push(CatalogEvent::MembersChanged);
        }
    }
}
