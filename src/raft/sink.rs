//! Reports of the groups to the crates above: leaderships, and the outcome of applied entries.

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
    /// first those that the state owes (STO 7).
    fn became_leader(&self, group: GroupId, term: Term);

    /// This node no longer leads: no effect is performed any more. Follows a `became_leader`.
    fn lost_leadership(&self, group: GroupId);

    /// The group has a new term, or the term's leader is known now, or known to be dead (`None`).
    fn leader_changed(&self, group: GroupId, term: Term, leader: Option<NodeId>);

    /// A proposal accepted by [`crate::Group::propose`] was lost: because no majority answered
    /// (this node may continue to lead in the same term), or with the leadership. It will not be
    /// applied under this leadership, so in-flight counts are decremented.
    fn proposal_lost(&self, group: GroupId) {
        let _ = group;
    }

    /// A snapshot has replaced the state: the entries up to this one were not reported one by one.
    fn installed(&self, group: GroupId, applied: EntryId);
}

/// Receives the outcome of entries applied in queue groups.
pub trait QueueSink: GroupSink {
    /// An entry has been applied. Every replica sends the answers that belong to its own sessions;
    /// effects are performed only if `leading` (STO 7). The changes were taken already. Called
    /// under the rules of [`GroupSink`]'s methods.
    fn applied(&self, group: GroupId, id: EntryId, leading: bool, entry: &Entry, output: &Output);
}

/// Receives the outcome of entries applied in the catalog group.
pub trait CatalogSink: GroupSink {
    /// An entry has been applied, on every node. Called under the rules of [`GroupSink`]'s methods;
    /// the catalog's lock is not held.
    fn applied(&self, id: EntryId, leading: bool, entry: &CatalogEntry, output: &CatalogOutput);

    /// The membership of a group that this node leads is what the placement with that number names
    /// (MEM 7). Called again until the catalog knows.
    fn placement_reached(&self, group: GroupId, number: u64) {
        let _ = (group, number);
    }
}

/// Called once when a group cannot continue: the process must end with a log line. The arguments
/// are the group and the reason.
pub type FatalHook = Arc<dyn Fn(GroupId, &str) + Send + Sync>;
