//! What a node asks another node, or itself, and the replies: one enum of each.

use super::message::ReplyTo;
use quorate_catalog::{CatalogCommand, CatalogReply};
use quorate_storage::{MessageRef, StoredMessage};
use quorate_types::{CatalogIndex, GroupId, Term};

/// A question to one node, which sends at most one reply.
#[derive(Clone, Debug)]
pub(crate) enum PeerRequest {
    /// The bodies of messages (STO 7). The leader of `term` also knows those of entries that it has
    /// not applied.
    Bodies { messages: Vec<MessageRef>, term: Option<Term> },
    /// Commands for the catalog's leader to propose (NAM 1).
    Catalog(Vec<CatalogCommand>),
    /// A routing lease for a sender that has applied the catalog up to `applied`; `renews` if the
    /// sender holds one (NAM 5).
    Lease { applied: CatalogIndex, renews: bool },
    /// The groups led by the receiver, once their queues have the settings of that catalog index
    /// (NAM 2).
    Settings(CatalogIndex),
    /// Whether a channel of the receiver waits for replies (DRT-04).
    Requester(ReplyTo),
}

/// The reply to the [`PeerRequest`] of the same name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PeerReply {
    /// One for each message asked for, in their order; fewer if the reply would become too large.
    Bodies(Vec<StoredMessage>),
    /// The index of the entry that has the commands, and a reply to each.
    Catalog { index: CatalogIndex, replies: Vec<CatalogReply> },
    /// The lease is granted, unless the sender has to apply the catalog up to `not_before` first.
    Lease { all_applied: CatalogIndex, not_before: Option<CatalogIndex> },
    /// Groups whose queues have the settings.
    Settings(Vec<GroupId>),
    /// Whether the channel is open and waits for replies.
    Requester(bool),
}
