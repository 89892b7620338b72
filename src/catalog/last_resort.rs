//! The last resort: one node goes on alone, when a majority of the nodes is lost for good (MEM 14).
//!
//! The command is not proposed by a leader. It is appended to the log of the one node that goes on,
//! which is the only voter from the entry before it on. The same entry raises the machine version to
//! [`MachineVersion::LAST_RESORT`] first.

use crate::{
    denial::MemberDenial,
    machine::Catalog,
    member::{MemberRecord, MemberState},
    output::{CatalogEvent, CatalogOutput},
    record::CatalogKey,
    replica_placement::PlacementRecord,
};
use quorate_types::{GroupId, Incarnation, MachineVersion, NodeId, ReplicaId, ReplicaNumber};
use std::collections::BTreeMap;

impl Catalog {
    /// The number that the next new replica gets (MEM 5).
    #[must_use]
    pub fn next_replica_number(&self) -> ReplicaNumber {
        self.membership.next_replica
    }

    /// MEM 14: the node is the only member, and its replicas are the only ones. The directories of all
    /// others are forgotten (MEM 11), and their starts fenced (SES 6).
    pub(crate) fn last_resort(
        &mut self,
        node: NodeId,
        replicas: &BTreeMap<GroupId, ReplicaNumber>,
        out: &mut CatalogOutput,
    ) -> Result<(), MemberDenial> {
        let machine = self.machine();
        if machine < MachineVersion::LAST_RESORT {
            return Err(MemberDenial::TooEarly { machine });
        }
        let member = self.known(node)?.clone();
        if self.is_forgotten(member.incarnation) {
            return Err(MemberDenial::Forgotten { node });
        }
        let without = self.placements().find(|(group, _)| !replicas.contains_key(group));
        if let Some((group, _)) = without {
            return Err(MemberDenial::NoGroup { group });
        }
        let others: Vec<(NodeId, Incarnation)> = self
            .members()
            .filter(|(other, _)| *other != node)
            .map(|(other, member)| (other, member.incarnation))
            .collect();
        for (other, incarnation) in others {
            if !self.is_forgotten(incarnation) {
                self.forget_directory(other, incarnation, out);
            }
            self.membership.members.remove(&other);
            self.changed(CatalogKey::Member(other), out);
            out.events.push(CatalogEvent::MembersChanged);
        }
        self.set_member(node, MemberRecord { state: MemberState::Member, ..member }, out);
        let placed: Vec<(GroupId, u64)> =
            self.placements().map(|(group, placement)| (group, placement.number + 1)).collect();
        for (group, number) in placed {
            let replica = replicas.get(&group).map(|replica| ReplicaId { node, number: *replica });
            let replicas = replica.into_iter().collect();
            let placement =
                PlacementRecord { number, replicas, reached: number, before: Vec::new() };
            self.set_placement(group, placement, out);
        }
        let highest = replicas.values().max().map_or(0, |number| number.0.saturating_add(1));
        self.membership.next_replica = self.next_replica_number().max(ReplicaNumber(highest));
        Ok(())
    }
}
