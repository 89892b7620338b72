//! Which queues' settings differ from the catalog's, whether those proposed have been applied, and
//! which groups have not said yet that theirs are in force (NAM 2, NAM 7).

use quorate_queue::{Machine, QueueConfig};
use quorate_types::{CatalogIndex, GroupId, QueueId};
use std::{collections::BTreeSet, time::Duration};

/// Queues compared while the catalog or the home's machine is held, well below a millisecond.
pub(crate) const COMPARED_AT_ONCE: usize = 256;
/// How long a change of policies waits at most until all queues have it (DESIGN §7).
pub(crate) const IN_FORCE_MOST: Duration = Duration::from_secs(2);
/// Between two questions to a node that has not answered.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Of these settings of the catalog's those that their queues do not have.
pub(crate) fn differing(
    configs: Vec<(QueueId, QueueConfig)>,
    machine: &Machine,
) -> Vec<(QueueId, QueueConfig)> {
    let differs = |(queue, config): &(QueueId, QueueConfig)| {
        machine.queue(*queue).is_some_and(|queue| !queue.config.agrees_with(config))
    };
    configs.into_iter().filter(differs).collect()
}

/// Settings that have been proposed, and may not have been applied.
#[derive(Debug, Default)]
pub(crate) struct Proposed(Vec<(QueueId, CatalogIndex)>);

impl Proposed {
    /// These settings are proposed too.
    pub(crate) fn add(&mut self, configs: &[(QueueId, QueueConfig)]) {
        self.0.extend(configs.iter().map(|(queue, config)| (*queue, config.resolved_at)));
    }

    /// How many queues are waited for.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Queues that have the settings of their index or later ones, or have ended, are no longer waited
    /// for. Returns how many they are, of the next few: with 0 the rest is to be waited for.
    pub(crate) fn settle(&mut self, machine: &Machine) -> usize {
        let is_applied = |&mut (queue, index): &mut (QueueId, CatalogIndex)| {
            machine.queue(queue).is_none_or(|view| view.config.resolved_at >= index)
        };
        let next = std::iter::from_fn(|| self.0.pop_if(is_applied));
        next.take(COMPARED_AT_ONCE).count()
    }
}

/// Groups that nobody has said of that their queues have the settings of an index.
#[derive(Debug)]
pub(crate) struct Unconfirmed {
    groups: BTreeSet<GroupId>,
    /// A node has not answered this time.
    has_failed: bool,
}

impl Unconfirmed {
    /// Of all groups.
    pub(crate) fn new(groups: impl IntoIterator<Item = GroupId>) -> Self {
        Self { groups: groups.into_iter().collect(), has_failed: false }
    }

    /// A node's answer: the groups that it leads and whose queues have the settings. `None`: it has
    /// not answered.
    pub(crate) fn answered(&mut self, groups: Option<Vec<GroupId>>) {
        self.has_failed |= groups.is_none();
        let groups = groups.unwrap_or_default();
        self.groups.retain(|group| !groups.contains(group));
    }

    /// When all nodes have been asked: `None` if the settings are in force, otherwise how long to wait
    /// at most before all are asked again. The leader of a group that nobody has answered for says so
    /// when it leads; a node that has not answered at all may never say anything.
    pub(crate) fn ask_again_after(&mut self) -> Option<Duration> {
        let has_failed = std::mem::take(&mut self.has_failed);
        match (self.groups.is_empty(), has_failed) {
            (true, _) => None,
            (false, true) => Some(ASK_AGAIN),
            (false, false) => Some(IN_FORCE_MOST),
        }
    }
}

#[cfg(test)]
mod tests;
