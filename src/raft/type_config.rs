//! openraft's types as this project uses them. The crates above do not see them.

use crate::aligned_runtime::AlignedRuntime;
use openraft::{
    OptionalSend, RaftTypeConfig,
    impls::{BoxedErrorSource, InlineBatch, leader_id_std},
    raft::{ClientWriteResult, responder::Responder},
    vote::RaftLeaderId,
};
use quorate_storage::{CommandEntry, EntryId};
use quorate_types::{LogIndex, NodeId, Term};
use std::fmt;

/// The type configuration of openraft. Leader ids are the standard ones, at most one leader for
/// each term: a term identifies its leader (SES 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeConfig;

impl RaftTypeConfig for TypeConfig {
    type D = Proposal;
    type R = ();
    type NodeId = u64;
    type Node = ();
    type Term = u64;
    type LeaderId = leader_id_std::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Proposal, u64, ()>;
    type Entry = openraft::Entry<CommittedLeaderId, Self::Payload>;
    type AsyncRuntime = AlignedRuntime;
    type Responder<T>
        = Ticket<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

pub(crate) type CommittedLeaderId = openraft::alias::CommittedLeaderIdOf<TypeConfig>;
pub(crate) type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type Entry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, ()>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type WriteResult = ClientWriteResult<TypeConfig>;

/// The commands of an entry, as openraft carries them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposal(pub(crate) CommandEntry);

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of commands", self.0.bytes())
    }
}

/// The callback by which openraft reports the end of a proposal.
pub(crate) struct Ticket<T>(Box<dyn FnOnce(T) + Send>);

impl<T> Ticket<T> {
    pub(crate) fn new(complete: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(complete))
    }
}

impl<T: OptionalSend + 'static> Responder<TypeConfig, T> for Ticket<T> {
    fn on_complete(self, result: T) {
        (self.0)(result);
    }
}

/// The entry id for openraft's log id. A standard leader id keeps only the term of a leader, so the
/// leader's node is not known here and not stored: it is always 0.
pub(crate) fn entry_id(id: &LogId) -> EntryId {
    EntryId { term: Term(id.leader_id.term), leader: NodeId(0), index: LogIndex(id.index) }
}

/// The log id for an entry id.
pub(crate) fn log_id(id: EntryId) -> LogId {
    log_id_of(id.term.0, id.index.0)
}

/// The log id of that term and index.
pub(crate) fn log_id_of(term: u64, index: u64) -> LogId {
    let leader = leader_id_std::LeaderId { term, voted_for: 0 };
    LogId { leader_id: leader.to_committed(), index }
}

/// A vote's parts: term, node, and whether a majority has granted it.
pub(crate) fn vote(term: u64, node: u64, committed: bool) -> Vote {
    Vote { leader_id: leader_id_std::LeaderId { term, voted_for: node }, committed }
}
