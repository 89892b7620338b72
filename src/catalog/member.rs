//! What the catalog holds of membership: members, forgotten directories, placements (MEM 1).

use crate::{
    digest::{Digest, Feed},
    machine::Catalog,
    record::{CatalogKey, CatalogRecord, CatalogRecordError, broken},
    replica_placement::PlacementRecord,
};
use quorate_types::{GroupId, Incarnation, MachineVersion, NodeId, ReplicaNumber, StartNumber};
use std::{collections::BTreeMap, fmt};

/// What a node is to the cluster (MEM 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// It receives the catalog, and replicates no queues yet (MEM 3).
    Joining,
    /// It may replicate every group, and lead it.
    Member,
    /// It keeps its replicas, gets no others, and leads nothing (MEM 13).
    Draining,
    /// Its directory was forgotten; its replicas are placed on other nodes (MEM 11).
    Leaving,
}

impl MemberState {
    /// Whether it takes part in the cluster's work: it may route, and it keeps its replicas.
    #[must_use]
    pub fn works(self) -> bool {
        match self {
            Self::Member | Self::Draining => true,
            Self::Joining | Self::Leaving => false,
        }
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Joining => "joining",
            Self::Member => "a member",
            Self::Draining => "draining",
            Self::Leaving => "leaving",
        })
    }
}

/// A node of the cluster, and the one directory that serves it (MEM 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Identity of its data directory.
    pub incarnation: Incarnation,
    /// Host and port of its rpc port.
    pub address: String,
    /// Name of its zone; a node of an empty name is in a zone of its own (MEM 6).
    pub zone: String,
    /// What it is to the cluster.
    pub state: MemberState,
    /// Number of the directory's replica of the catalog, which it has as long as it is a member
    /// (MEM 12). No other replica of the directory has a lower number: one that has was lost with an
    /// earlier directory of the node (MEM 10).
    pub first: ReplicaNumber,
}

/// A directory that was forgotten; kept for ever, so that it never comes back (MEM 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForgottenRecord {
    /// The node that it served.
    pub node: NodeId,
    /// The node's latest start at that time, which is fenced. To have been forgotten proves no death:
    /// what that start held is given to others only after the time of DLV 5 (MEM 4).
    pub start: StartNumber,
}

/// The part of the catalog that exists from machine version 2 on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Membership {
    pub(crate) members: BTreeMap<NodeId, MemberRecord>,
    pub(crate) forgotten: BTreeMap<Incarnation, ForgottenRecord>,
    pub(crate) placements: BTreeMap<GroupId, PlacementRecord>,
    /// The number that the next new replica gets; none was given to two (MEM 5).
    pub(crate) next_replica: ReplicaNumber,
}

impl Membership {
    /// The keys of all its records, in ascending order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = CatalogKey> {
        let members = self.members.keys().copied().map(CatalogKey::Member);
        let forgotten = self.forgotten.keys().copied().map(CatalogKey::Forgotten);
        let placements = self.placements.keys().copied().map(CatalogKey::Placement);
        members.chain(forgotten).chain(placements)
    }

    pub(crate) fn load(
        &mut self,
        key: CatalogKey,
        record: CatalogRecord,
    ) -> Result<(), CatalogRecordError> {
        match (key, record) {
            (CatalogKey::Member(node), CatalogRecord::Member(record)) => {
                self.members.insert(node, record);
            }
            (CatalogKey::Forgotten(incarnation), CatalogRecord::Forgotten(record)) => {
                self.forgotten.insert(incarnation, record);
            }
            (CatalogKey::Placement(group), CatalogRecord::Placement(record)) => {
                self.placements.insert(group, record);
            }
            (key, _) => return broken(format!("record of {key:?} is another one's")),
        }
        Ok(())
    }
}

impl Catalog {
    /// The members, in ascending order; none before machine version 2 (MEM 1).
    pub fn members(&self) -> impl Iterator<Item = (NodeId, &MemberRecord)> {
        self.membership.members.iter().map(|(node, member)| (*node, member))
    }

    /// The record of a member (MEM 1).
    #[must_use]
    pub fn member(&self, node: NodeId) -> Option<&MemberRecord> {
        self.membership.members.get(&node)
    }

    /// True if the directory was forgotten: it is refused for ever (MEM 11).
    #[must_use]
    pub fn is_forgotten(&self, incarnation: Incarnation) -> bool {
        self.forgotten(incarnation).is_some()
    }

    /// The record of a forgotten directory (MEM 11).
    #[must_use]
    pub fn forgotten(&self, incarnation: Incarnation) -> Option<&ForgottenRecord> {
        self.membership.forgotten.get(&incarnation)
    }

    /// All forgotten directories (MEM 11).
    pub fn all_forgotten(&self) -> impl Iterator<Item = (Incarnation, ForgottenRecord)> {
        self.membership.forgotten.iter().map(|(directory, record)| (*directory, *record))
    }

    /// Whether the directory serves a member that does not leave, so that its process may route and
    /// lead (MEM 3, MEM 4). Before machine version 2 the catalog does not say, and every process may.
    #[must_use]
    pub fn is_working(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.machine() < MachineVersion::MEMBERS
            || self
                .member(node)
                .is_some_and(|member| member.incarnation == incarnation && member.state.works())
    }

    /// The latest start of the node that was fenced because its directory was forgotten, which
    /// proves no death (MEM 4).
    #[must_use]
    pub fn forgotten_start(&self, node: NodeId) -> Option<StartNumber> {
        let records = self.membership.forgotten.values().filter(|record| record.node == node);
        records.map(|record| record.start).max()
    }
}

impl Feed for GroupId {
    fn feed(&self, digest: &mut Digest) {
        digest.word(u64::from(self.0));
    }
}

impl Feed for Incarnation {
    fn feed(&self, digest: &mut Digest) {
        digest.word(self.0);
    }
}

impl Feed for MemberRecord {
    fn feed(&self, digest: &mut Digest) {
        digest.word(self.incarnation.0);
        digest.bytes(self.address.as_bytes());
        digest.bytes(self.zone.as_bytes());
        digest.word(match self.state {
            MemberState::Joining => 0,
            MemberState::Member => 1,
            MemberState::Draining => 2,
            MemberState::Leaving => 3,
        });
        digest.word(u64::from(self.first.0));
    }
}

impl Feed for ForgottenRecord {
    fn feed(&self, digest: &mut Digest) {
        digest.word(u64::from(self.node.0));
        digest.word(self.start.0);
    }
}

impl Feed for PlacementRecord {
    fn feed(&self, digest: &mut Digest) {
        digest.word(self.number);
        digest.word(self.reached);
        digest.word(self.before.len() as u64);
        for replicas in self.candidates() {
            digest.word(replicas.len() as u64);
            for replica in replicas {
                digest.word(u64::from(replica.node.0));
                digest.word(u64::from(replica.number.0));
            }
        }
    }
}
