//! What the groups report to the floor above: leaderships, and the outcome of applied entries.

use quorate_catalog::{CatalogEntry, CatalogOutput};
use quorate_queue::{Entry, Output};
use quorate_storage::EntryId;
use quorate_types::{GroupId, NodeId, Term};
use std::sync::Arc;

/// Leadership of a group. The methods are called from openraft's tasks, one at a time for each
/// group and in the order in which things happen: they must be short and must not block. They may
/// ask the group who leads, propose, and read its machine, but not ask for its digest.
pub trait GroupSink: Send + Sync + 'static {
    /// This node has applied the first entry of its own term: from now on effects are performed,
    /// beginning with what the state owes (STO 7).
    fn became_leader(&self, group: GroupId, term: Term);

    /// This node no longer leads: no effect is performed any more. Follows a `became_leader`.
    fn lost_leadership(&self, group: GroupId);

    /// The group has a new term, or the term's leader is known now, or known dead (`None`).
    fn leader_changed(&self, group: GroupId, term: Term, leader: Option<NodeId>);

    /// A proposal that [`crate::Group::propose`] has taken came to nothing: while no majority
    /// answered (this node may go on to lead in the same term), or with the leadership. Nobody
    /// will see it applied under this leadership; who counts proposals under way counts it out.
    fn proposal_lost(&self, group: GroupId) {
        let _ = group;
    }

    /// A snapshot has taken the place of the state: what was applied up to this entry was not
    /// handed out one by one.
    fn installed(&self, group: GroupId, applied: EntryId);
}

/// Takes what applying to the queue groups brings.
pub trait QueueSink: GroupSink {
    /// An entry has been applied. Answers go to their sessions from every replica that has them
    /// to tell; effects are performed only if `leading` (STO 7). Changes have been taken already.
    /// Called as [`GroupSink`]'s methods are.
    fn applied(&self, group: GroupId, id: EntryId, leading: bool, entry: &Entry, output: &Output);
}

/// Takes what applying to the catalog brings.
pub trait CatalogSink: GroupSink {
    /// An entry has been applied, on every node. Called as [`GroupSink`]'s methods are; the
    /// catalog's lock is not held.
    fn applied(&self, id: EntryId, leading: bool, entry: &CatalogEntry, output: &CatalogOutput);
}

/// Called once when a group can no longer go on: the process must end with a clear line. Says
/// which group, and why.
pub type FatalHook = Arc<dyn Fn(GroupId, &str) + Send + Sync>;
