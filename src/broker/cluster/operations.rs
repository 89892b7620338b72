//! What operators change of the membership: forgetting nodes, and moving leaderships to the nodes that
//! should have them (MEM 11, CTL-17).

use crate::{cluster::entrance::MemberError, views::administration::Operator};
use quorate_catalog::{MemberCommand, MemberDenial};
use quorate_raft::TransferError;
use quorate_types::{GroupId, Incarnation, MachineVersion, NodeId};
use std::{sync::Arc, time::Duration};

/// Longest wait until the preferred node of a group has taken its leadership: a transfer takes
/// milliseconds, or fails.
const TRANSFER_MAX: Duration = Duration::from_secs(2);

/// Why a node is not forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// The node is not a member.
    #[error("The node selected is not in the cluster: there is no node {0}")]
    NotMember(NodeId),
    /// The node that was asked is the one to be forgotten.
    #[error("node {0} cannot forget itself: ask another node")]
    Itself(NodeId),
    /// The node's process runs.
    #[error(
        "node {0} is running: stop it first, or drain it and forget it as it runs, which is done by \
         the option --drain"
    )]
    Runs(NodeId),
    /// A group has its majority by this node's replica while another node is away (MEM 11).
    #[error(
        "node {node} cannot be forgotten now: group {group} needs its replica while node {away} does \
         not answer or has no replica yet; start node {away}, or replace it if its disk is lost"
    )]
    Needed {
        /// The node that was to be forgotten.
        node: NodeId,
        /// The group that would have no majority.
        group: GroupId,
        /// A node with another replica of the group, or that is to get one.
        away: NodeId,
    },
    /// The catalog refuses it.
    #[error(transparent)]
    Denied(#[from] MemberDenial),
    /// The catalog has no majority that answered in time.
    #[error("the operation timed out")]
    TimedOut,
}

/// A leadership that stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The group, which this node leads.
    pub group: GroupId,
    /// The node that should lead it.
    pub preferred: NodeId,
    /// Why that node does not.
    pub why: TransferError,
}

/// What became of the leaderships of this node that other nodes should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebalanced {
    /// Groups that their preferred nodes have taken.
    pub moved: Vec<GroupId>,
    /// Groups that this node still leads.
    pub kept: Vec<Kept>,
}

impl Operator<'_> {
    /// Forgets a node (MEM 11): from now on its directory is refused, and its replicas are placed on
    /// other nodes. It is a member, one that leaves, until that is done. A process that runs is
    /// refused, unless `running` is true: it then ends by itself.
    ///
    /// The node's replicas vote no more from now on. So the groups must have majorities without them, of
    /// replicas on nodes that this one reaches: that a node is a member does not say that it ever returns.
    ///
    /// # Errors
    /// It cannot be forgotten, or there is no majority.
    pub async fn forget_member(&self, node: NodeId, running: bool) -> Result<(), ForgetError> {
        let base = &self.0.base;
        if node == base.context.me {
            return Err(ForgetError::Itself(node));
        }
        let _one_at_a_time = self.0.cluster.forgetting.lock().await;
        // A node that has just become a member must be found.
        if !base.catalog_client.read().await {
            return Err(ForgetError::TimedOut);
        }
        let incarnation = self.directory_of(node)?;
        if !running && base.context.seems_to_live(node) {
            return Err(ForgetError::Runs(node));
        }
        let needs = base.catalog.read().needs(node, |it| base.context.is_reachable(it));
        if let Some((group, away)) = needs {
            return Err(ForgetError::Needed { node, group, away });
        }
        let forgotten = self.0.cluster.propose(MemberCommand::Forget { node, incarnation }).await;
        forgotten.map_err(|error| {
            if let MemberError::Denied(denial) = error {
                ForgetError::Denied(denial)
            } else {
                ForgetError::TimedOut
            }
        })
    }

    /// The directory that serves a member, by this node's copy of the catalog.
    fn directory_of(&self, node: NodeId) -> Result<Incarnation, ForgetError> {
        let catalog = self.0.base.catalog.read();
        let machine = catalog.machine();
        if machine < MachineVersion::MEMBERS {
            return Err(MemberDenial::TooEarly { machine }.into());
        }
        let member = catalog.member(node).ok_or(ForgetError::NotMember(node))?;
        Ok(member.incarnation)
    }

    /// Hands the leaderships of this node that other nodes should have to these nodes, at once. Nodes
    /// do the same by themselves, but wait some seconds after each change.
    pub async fn rebalance(&self) -> Rebalanced {
        let context = &self.0.base.context;
        let Some(groups) = context.groups() else { return Rebalanced::default() };
        let elsewhere = |group: GroupId| {
            let preferred = groups.preferred_leader(group)?;
            (preferred != context.me).then_some((group, preferred))
        };
        let moves = groups.led().into_iter().filter_map(elsewhere);
        let moves: Vec<_> = moves
            .map(|(group, preferred)| {
                let groups = Arc::clone(groups);
                let transfer = async move { groups.transfer(group, preferred, TRANSFER_MAX).await };
                (group, preferred, context.spawn(transfer))
            })
            .collect();
        let mut rebalanced = Rebalanced::default();
        for (group, preferred, transferred) in moves {
            match transferred.await {
                Ok(Ok(())) => rebalanced.moved.push(group),
                // The node has lost it meanwhile, or its process ends.
                Ok(Err(TransferError::NotLeader)) | Err(_) => {}
                Ok(Err(why)) => rebalanced.kept.push(Kept { group, preferred, why }),
            }
        }
        rebalanced
    }
}
