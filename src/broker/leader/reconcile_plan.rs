//! What is inconsistent between names and queues: queues without a name, and names without a queue
//! (NAM 7, NAM 8).
//!
//! A queue counts as ended only if it is missing in a read of its home that begins after the names
//! were read. So the names are read first, and compared once the home has been read.

use quorate_catalog::Catalog;
use quorate_queue::{Machine, QueueView};
use quorate_types::{GroupId, Home, QueueId, SessionId, StartNumber};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::Instant;

/// Names and queues are compared this often, and when a leadership begins.
const COMPARE: Duration = Duration::from_secs(10);

/// The groups to be compared, and when.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// When all groups were last compared, or when this state was made.
    compared: Option<Instant>,
    /// Groups whose leadership has begun since then.
    begun: BTreeSet<GroupId>,
}

impl Schedule {
    /// Records that a leadership of the group has begun.
    pub(crate) fn begin(&mut self, group: GroupId) {
        self.begun.insert(group);
    }

    /// The groups to be compared now, of those that this node leads.
    pub(crate) fn due(&mut self, now: Instant, led: Vec<GroupId>) -> BTreeSet<GroupId> {
        let mut due = std::mem::take(&mut self.begun);
        let compared = *self.compared.get_or_insert(now);
        if now.saturating_duration_since(compared) > COMPARE {
            self.compared = Some(now);
            due.extend(led);
        }
        due
    }
}

/// The queues of a home that the catalog names.
#[derive(Clone, Debug)]
pub(crate) struct Named(Vec<QueueId>);

impl Named {
    /// All queues of a group.
    pub(crate) fn of_group(catalog: &Catalog, group: GroupId) -> Self {
        let entries = catalog.queues_of_home(Home::Group(group), None);
        Self(entries.map(|entry| entry.id).collect())
    }

    /// The connection-bound queues of one start of a node. Those of earlier starts ended when it
    /// began.
    pub(crate) fn of_run(catalog: &Catalog, SessionId { node, start }: SessionId) -> Self {
        let entries = catalog.queues_of_home(Home::Node(node), None);
        let ids = entries.map(|entry| entry.id);
        Self(ids.filter(|id| StartNumber(id.index) == start).collect())
    }

    /// Those of the queues that have ended. The home's state must have been read after the names.
    pub(crate) fn ended(self, machine: &Machine) -> Vec<QueueId> {
        self.0.into_iter().filter(|id| !machine.has_queue(*id)).collect()
    }
}

/// Queues of a group that have no name and will get none: their creator's session has been fenced,
/// or their virtual host is gone. A queue that its creator may still name is left alone.
pub(crate) fn nameless(catalog: &Catalog, machine: &Machine) -> Vec<QueueId> {
    let is_nameless = |id: &QueueId| {
        // Nearly all have one, and what a queue holds is not counted for nothing.
        if catalog.queue_by_id(*id).is_some() {
            return false;
        }
        let queue = machine.queue(*id);
        let creator = queue.as_ref().and_then(|queue| queue.creator);
        // A virtual host that was created after this copy's last entry must not count as gone.
        let homeless = |queue: QueueView| {
            let resolved_at = queue.config.resolved_at;
            resolved_at <= catalog.version()
                && catalog.is_of_former_vhost(&queue.name.vhost, resolved_at)
        };
        creator.is_none_or(|creator| catalog.is_fenced(creator)) || queue.is_some_and(homeless)
    };
    machine.queues().filter(is_nameless).collect()
}

#[cfg(test)]
mod tests;
