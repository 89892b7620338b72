//! What a node answers to a process with an empty data directory that asks to enter the cluster
//! (MEM 2, MEM 3, MEM 10), and the replacement of a node's directory by name.
//!
//! A node answers from a copy of the catalog that has just been read from the leader: by an older one
//! it might take a directory for a founder whose node has another one since. What it proposes is
//! harmless when repeated, so the process may ask again, and several nodes at once.

use crate::{cluster::Cluster, context::CallError, views::administration::Operator};
use quorate_catalog::{
    Catalog, CatalogCommand, CatalogReply, ClusterShape, Denial, MemberCommand, MemberDenial,
    MemberRecord, MemberState, Newcomer,
};
use quorate_raft::written;
use quorate_rpc::{ClusterCell, Links};
use quorate_storage::{Database, StorageError};
use quorate_types::{
    Epoch, GroupId, Incarnation, MachineVersion, NodeId, ReplicaNumber, StartNumber,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, timeout};

/// Longest wait for a majority: a process that asks waits no longer for an answer than a little more.
const READ_MAX: Duration = Duration::from_millis(1_500);

/// A process that asks to enter the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applicant {
    /// Its node and its directory.
    pub newcomer: Newcomer,
    /// The newest version of the replicated machine that it agrees to (MEM 15).
    pub machine_newest: MachineVersion,
    /// It may take the place of the node's former directory (MEM 10).
    pub replaces_lost_disk: bool,
    /// The nodes with which it would form a cluster, itself among them.
    pub nodes: BTreeSet<NodeId>,
}

/// How a process goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// The asked node knows no cluster yet.
    Forming,
    /// As a founder, whose replicas have the number 0.
    Founder,
    /// As a member that joins.
    Joined(Joined),
}

/// What a member that joins needs to begin its replica of the catalog (MEM 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Identity and number of queue groups of the cluster.
    pub shape: ClusterShape,
    /// The present version of the replicated machine.
    pub machine: MachineVersion,
    /// Number of the directory's replica of the catalog.
    pub first: ReplicaNumber,
    /// Addresses, `host:port`, of the other members that do not leave.
    pub peers: BTreeMap<NodeId, String>,
    /// The cluster's epoch (MEM 14).
    pub epoch: Epoch,
}

impl Joined {
    /// Makes an empty directory and its process parts of the cluster, before they have anything of it.
    /// The caller has raised the directory's machine mark, so that binaries that do not know the
    /// cluster's machine version refuse it (MEM 15). `has_address` says of which nodes the
    /// settings name the address.
    ///
    /// # Errors
    /// A write to the directory has failed: the process must end.
    pub async fn take_part(
        &self,
        database: &Database,
        (links, cluster): (&Links, &ClusterCell),
        has_address: impl Fn(NodeId) -> bool,
    ) -> Result<(), StorageError> {
        links.machine().raise(self.machine);
        written(|done| database.set_epoch(self.epoch, false, done)).await?;
        written(|done| database.set_cluster(self.shape.cluster, done)).await?;
        cluster.set_epoch(self.epoch);
        cluster.set(self.shape.cluster);
        let others = self.peers.iter().filter(|(node, _)| !has_address(**node));
        links.add_peers(&others.map(|(node, address)| (*node, address.clone())).collect());
        Ok(())
    }
}

/// Why a process does not enter the cluster, or a node is not replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// The asked node belongs to a cluster that it cannot speak for yet.
    #[error("this node is starting")]
    Starting,
    /// With different lists of nodes, different clusters would be formed.
    #[error(
        "no cluster is formed yet, and the two nodes name different nodes for it (setting cluster)"
    )]
    OtherNodes,
    /// The catalog has no leader that answers.
    #[error("no majority of the nodes has answered in time")]
    NoMajority,
    /// The catalog has refused.
    #[error(transparent)]
    Denied(#[from] MemberDenial),
    /// The id is in use, and the cluster has no members yet that could be replaced (MEM 15).
    #[error(
        "the id of node {0} is already in use with another data directory (setting node_id or \
         data_dir), or the node has lost its data"
    )]
    OtherDirectory(NodeId),
    /// The cluster has no members yet that could be replaced, and the directory that the charter names
    /// has had no process since (MEM 2).
    #[error(
        "node {0} was to found the cluster with another data directory, which has not started since: bring \
         that back (setting data_dir); if it is lost for good, stop all nodes and make another one the \
         whole cluster (quorate recover-quorum), which this one and the others then join with empty \
         directories"
    )]
    LostFounder(NodeId),
    /// The process does not know the cluster's machine version (MEM 15).
    #[error(
        "node {node} knows machine versions up to {newest}, and the cluster has version {present}: \
         start a newer quorate there"
    )]
    TooOld {
        /// Id of the node.
        node: NodeId,
        /// The newest version that it agrees to.
        newest: MachineVersion,
        /// The cluster's present version.
        present: MachineVersion,
    },
    /// A lost disk is not replaced while the process with the former directory runs (MEM 10).
    #[error("the id of node {0} is in use: a process runs with its present data directory")]
    Lives(NodeId),
    /// One disk is replaced at a time (MEM 10).
    #[error(
        "a lost disk is replaced by itself only while no other node changes: node {node} is {state}"
    )]
    Changing {
        /// The other node.
        node: NodeId,
        /// Its state.
        state: MemberState,
    },
    /// A group moves (MEM 10).
    #[error("a lost disk is replaced by itself only while no replicas move: those of group {0} do")]
    Moving(GroupId),
    /// Another member may have replicas that are needed (MEM 10).
    #[error(
        "a lost disk is replaced by itself only while all other nodes answer: node {0} does not"
    )]
    Away(NodeId),
    /// Nobody is there to take the node's place.
    #[error(
        "no node with an empty data directory asks this one to join as node {0}: start it first, and \
         name this node in its setting cluster"
    )]
    NoApplicant(NodeId),
}

impl MemberError {
    /// True if the same answer will be given for ever.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::OtherDirectory(_) | Self::LostFounder(_) | Self::TooOld { .. } => true,
            Self::Denied(denial) => matches!(
                denial,
                MemberDenial::Forgotten { .. } | MemberDenial::DirectoryTaken { .. }
            ),
            Self::Starting
            | Self::OtherNodes
            | Self::NoMajority
            | Self::Lives(_)
            | Self::Changing { .. }
            | Self::Moving(_)
            | Self::Away(_)
            | Self::NoApplicant(_) => false,
        }
    }
}

/// What a member of a formed cluster does for a process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing: it goes on as a founder.
    Founder,
    /// Nothing: its node has been joined, and is known by this address and zone.
    Known,
    /// Makes it a member, or takes its new address and zone.
    Join,
    /// Its node is served by another directory, whose disk may be lost (MEM 10).
    Replace { old: Incarnation, state: MemberState },
}

/// The answer while this node's copy of the catalog belongs to no cluster. `is_known`: this node's
/// directory names a cluster, whose catalog it has not received yet.
fn unformed(
    founders: &[NodeId],
    applicant: &Applicant,
    is_known: bool,
) -> Result<Entrance, MemberError> {
    if is_known {
        return Err(MemberError::Starting);
    }
    if founders.iter().copied().collect::<BTreeSet<_>>() != applicant.nodes {
        return Err(MemberError::OtherNodes);
    }
    Ok(Entrance::Forming)
}

/// The step for a process by a catalog whose cluster is formed. `founders`: the nodes that the
/// settings name.
fn step(
    catalog: &Catalog,
    founders: &[NodeId],
    applicant: &Applicant,
) -> Result<Step, MemberError> {
    let Applicant { newcomer, machine_newest: newest, .. } = applicant;
    let (node, present) = (newcomer.node, catalog.machine());
    if *newest < present {
        return Err(MemberError::TooOld { node, newest: *newest, present });
    }
    if present < MachineVersion::MEMBERS {
        return before_members(catalog, founders, newcomer);
    }
    if let Some(record) = catalog.forgotten(newcomer.incarnation) {
        return Err(MemberDenial::Forgotten { node: record.node }.into());
    }
    let Some(member) = catalog.member(node) else { return Ok(Step::Join) };
    let (old, state) = (member.incarnation, member.state);
    if old != newcomer.incarnation {
        return match state {
            // The id is free when the node is gone (MEM 11).
            MemberState::Leaving => Err(MemberDenial::IdTaken { node, state }.into()),
            MemberState::Joining | MemberState::Member | MemberState::Draining => {
                Ok(Step::Replace { old, state })
            }
        };
    }
    let is_known = member.address == newcomer.address && member.zone == newcomer.zone;
    Ok(match (member.first, is_known) {
        (ReplicaNumber(0), _) => Step::Founder,
        (_, true) => Step::Known,
        (_, false) => Step::Join,
    })
}

/// The first machine version knows no members: only the nodes of the settings belong to the cluster,
/// each with the directory that it started with first.
fn before_members(
    catalog: &Catalog,
    founders: &[NodeId],
    newcomer: &Newcomer,
) -> Result<Step, MemberError> {
    if !founders.contains(&newcomer.node) {
        return Err(MemberDenial::TooEarly { machine: catalog.machine() }.into());
    }
    match catalog.node(newcomer.node) {
        Some(known) if known.incarnation != newcomer.incarnation => {
            Err(MemberError::OtherDirectory(newcomer.node))
        }
        Some(_) | None => Ok(Step::Founder),
    }
}

/// Before there are members, a process has the directory that its node is known by, if it is: another
/// one lacks what that one has acknowledged (MEM 2).
fn check_charter(
    catalog: &Catalog,
    newcomer: &Newcomer,
    known: Option<Incarnation>,
) -> Result<(), MemberError> {
    let node = newcomer.node;
    let is_other = known.is_some_and(|known| known != newcomer.incarnation);
    if !is_other || catalog.machine() >= MachineVersion::MEMBERS {
        return Ok(());
    }
    let has_started = catalog.node(node).is_some_and(|entry| entry.start > StartNumber(0));
    Err(if has_started {
        MemberError::OtherDirectory(node)
    } else {
        MemberError::LostFounder(node)
    })
}

/// MEM 10: a process may replace the lost directory of its node by itself only while nothing else is
/// missing or changing.
fn check_replacement(
    catalog: &Catalog,
    node: NodeId,
    is_reachable: impl Fn(NodeId) -> bool,
) -> Result<(), MemberError> {
    for (other, MemberRecord { state, .. }) in catalog.members().filter(|(it, _)| *it != node) {
        match state {
            MemberState::Joining | MemberState::Leaving => {
                return Err(MemberError::Changing { node: other, state: *state });
            }
            MemberState::Member | MemberState::Draining if !is_reachable(other) => {
                return Err(MemberError::Away(other));
            }
            MemberState::Member | MemberState::Draining => {}
        }
    }
    let moving = catalog.placements().find(|(_, placement)| !placement.is_reached());
    moving.map_or(Ok(()), |(group, _)| Err(MemberError::Moving(group)))
}

/// The answer to a process whose directory is a member's. An error if the node was forgotten since, or
/// given to another directory.
fn joined(catalog: &Catalog, newcomer: &Newcomer, epoch: Epoch) -> Result<Joined, MemberError> {
    let node = newcomer.node;
    let member = catalog.member(node).ok_or(MemberDenial::NoMember { node })?;
    if member.incarnation != newcomer.incarnation {
        return Err(MemberDenial::IdTaken { node, state: member.state }.into());
    }
    let stays = |member: &MemberRecord| member.state != MemberState::Leaving;
    let others = catalog.members().filter(|(other, member)| *other != node && stays(member));
    let peers = others.map(|(other, member)| (other, member.address.clone())).collect();
    let shape = catalog.shape().ok_or(MemberError::Starting)?;
    Ok(Joined { shape, machine: catalog.machine(), first: member.first, peers, epoch })
}

impl Operator<'_> {
    /// Lets a process with an empty data directory enter the cluster, if it may. `is_known`: this
    /// node's own directory names a cluster.
    ///
    /// # Errors
    /// Why it may not, or not yet ([`MemberError::is_final`]).
    pub async fn enter(
        &self,
        applicant: &Applicant,
        is_known: bool,
    ) -> Result<Entrance, MemberError> {
        self.0.cluster.enter(applicant, is_known).await
    }

    /// Gives a node to the process with an empty data directory that asks for it, and forgets the
    /// node's former directory, whose disk is lost (MEM 10).
    ///
    /// # Errors
    /// Nobody asks, the former directory is in use, the catalog refuses, or has no majority.
    pub async fn replace_member(&self, node: NodeId) -> Result<(), MemberError> {
        self.0.cluster.replace_member(node).await
    }
}

impl Cluster {
    async fn enter(&self, applicant: &Applicant, is_known: bool) -> Result<Entrance, MemberError> {
        let founders = &self.base.context.settings.members;
        if self.base.catalog.read().shape().is_none() {
            return unformed(founders, applicant, is_known);
        }
        if !matches!(timeout(READ_MAX, self.base.catalog_client.read()).await, Ok(true)) {
            return Err(MemberError::NoMajority);
        }
        let newcomer = &applicant.newcomer;
        let links = self.base.context.peers.links();
        let known = links.and_then(|links| links.directory(newcomer.node));
        check_charter(&self.base.catalog.read(), newcomer, known)?;
        let step = step(&self.base.catalog.read(), founders, applicant)?;
        match step {
            Step::Founder => return Ok(Entrance::Founder),
            Step::Known => {}
            Step::Join => self.propose(MemberCommand::Join(newcomer.clone())).await?,
            Step::Replace { old, state } => self.replace_lost_disk(old, state, applicant).await?,
        }
        let epoch = self.base.context.peers.links().map(Links::epoch).unwrap_or_default();
        joined(&self.base.catalog.read(), newcomer, epoch).map(Entrance::Joined)
    }

    /// The automatic replacement (MEM 10). An applicant that may not do it waits until it is
    /// replaced by name.
    async fn replace_lost_disk(
        &self,
        old: Incarnation,
        state: MemberState,
        applicant: &Applicant,
    ) -> Result<(), MemberError> {
        let (node, by) = (applicant.newcomer.node, applicant.newcomer.clone());
        self.applicants.note(&by, Instant::now());
        let is_reachable = |node| self.base.context.is_reachable(node);
        if self.base.context.seems_to_live(node) {
            return Err(MemberError::Lives(node));
        }
        if !applicant.replaces_lost_disk {
            return Err(MemberDenial::IdTaken { node, state }.into());
        }
        check_replacement(&self.base.catalog.read(), node, is_reachable)?;
        tracing::warn!(
            %node, "the node replaces its data directory, which is lost (setting replace_lost_disk)"
        );
        self.propose(MemberCommand::Replace { old, by }).await
    }

    async fn replace_member(&self, node: NodeId) -> Result<(), MemberError> {
        let by = self.applicants.of(node, Instant::now()).ok_or(MemberError::NoApplicant(node))?;
        if self.base.context.seems_to_live(node) {
            return Err(MemberError::Lives(node));
        }
        if !self.base.catalog_client.read().await {
            return Err(MemberError::NoMajority);
        }
        let old = self.base.catalog.read().member(node).map(|member| member.incarnation);
        let old = old.ok_or(MemberDenial::NoMember { node })?;
        self.propose(MemberCommand::Replace { old, by }).await
    }

    /// Proposes a change of members, and waits until this node has applied it.
    pub(super) async fn propose(&self, command: MemberCommand) -> Result<(), MemberError> {
        let client = Arc::clone(&self.base.catalog_client);
        match client.propose(CatalogCommand::Members(command)).await {
            Ok((_, CatalogReply::Done)) => Ok(()),
            Ok((_, CatalogReply::Denied(Denial::Member(denial)))) => Err(denial.into()),
            Ok((_, other)) => {
                tracing::error!(?other, "unexpected reply of the catalog");
                Err(MemberError::NoMajority)
            }
            Err(CallError::TimedOut | CallError::SessionEnded) => Err(MemberError::NoMajority),
        }
    }
}

#[cfg(test)]
mod tests;
