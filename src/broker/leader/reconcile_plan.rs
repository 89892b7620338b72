//! What of names and queues does not go together: queues that have no name, names that have no queue
//! (NAM 7, NAM 8).
//!
//! A queue counts as ended only if it is missing in a read of its home that begins after the names
//! were read. So names are read first, and asked for ended queues when the home has been read.

use quorate_catalog::Catalog;
use quorate_queue::{Machine, QueueView};
use quorate_types::{GroupId, Home, QueueId, SessionId, StartNumber};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::Instant;

/// Names and queues are compared this often, and when a leadership begins.
const COMPARE: Duration = Duration::from_secs(10);

/// Which groups are to be compared, and when.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// When all groups were compared, or since when they are looked after.
    compared: Option<Instant>,
    /// Groups whose leadership has begun since.
    begun: BTreeSet<GroupId>,
}

impl Schedule {
    /// A leadership of the group has begun.
    pub(crate) fn begin(&mut self, group: GroupId) {
        self.begun.insert(group);
    }

    /// The groups that are to be compared now, of a node that leads these.
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

/// Queues of a home that the catalog names.
#[derive(Clone, Debug)]
pub(crate) struct Named(Vec<QueueId>);

impl Named {
    /// All of a group.
    pub(crate) fn of_group(catalog: &Catalog, group: GroupId) -> Self {
        let entries = catalog.queues_of_home(Home::Group(group), None);
        Self(entries.map(|entry| entry.id).collect())
    }

    /// The connection-bound ones of a run of a node. Those of earlier runs went when it began.
    pub(crate) fn of_run(catalog: &Catalog, SessionId { node, start }: SessionId) -> Self {
        let entries = catalog.queues_of_home(Home::Node(node), None);
        let ids = entries.map(|entry| entry.id);
        Self(ids.filter(|id| StartNumber(id.index) == start).collect())
    }

    /// Those that have ended, as their home shows that was read after the names.
    pub(crate) fn ended(self, machine: &Machine) -> Vec<QueueId> {
        self.0.into_iter().filter(|id| !machine.has_queue(*id)).collect()
    }
}

/// Queues of a group that have no name and will get none: their creator can name nothing more, or
/// their virtual host is gone. What a creator may name still is left alone.
pub(crate) fn nameless(catalog: &Catalog, machine: &Machine) -> Vec<QueueId> {
    let is_nameless = |id: &QueueId| {
        let queue = machine.queue(*id);
        let creator = queue.as_ref().and_then(|queue| queue.creator);
        // A virtual host that was created since this copy's last entry is none that is gone.
        let homeless = |queue: QueueView| {
            let resolved_at = queue.config.resolved_at;
            resolved_at <= catalog.version()
                && catalog.is_of_former_vhost(&queue.name.vhost, resolved_at)
        };
        catalog.queue_by_id(*id).is_none()
            && (creator.is_none_or(|creator| catalog.is_fenced(creator))
                || queue.is_some_and(homeless))
    };
    machine.queues().filter(is_nameless).collect()
}

#[cfg(test)]
mod tests;
