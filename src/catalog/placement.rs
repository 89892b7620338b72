//! The group in which a new queue is created (DESIGN §2, QUE-15).

use crate::machine::Catalog;
use quorate_types::{GroupId, LeaderLocator, NodeId};

impl Catalog {
    /// The group for a new queue. `client-local`: the group with the fewest queues among
    /// `preferred`, the groups that the declaring client's node leads. Without such a group, and
    /// for `balanced`: the group with the fewest queues of all. Groups that cannot be led while only nodes
    /// of which `runs` is true take part do not count, if others can. Of equal groups the lowest number
    /// wins. Group 1 while the cluster has no shape.
    #[must_use]
    pub fn place(
        &self,
        locator: LeaderLocator,
        preferred: &[GroupId],
        runs: impl Fn(NodeId) -> bool,
    ) -> GroupId {
        let groups = || self.shape.into_iter().flat_map(crate::ClusterShape::groups);
        let led = || groups().filter(|group| self.can_be_led(*group, &runs));
        let local = match locator {
            LeaderLocator::ClientLocal => {
                self.least_loaded(led().filter(|group| preferred.contains(group)))
            }
            LeaderLocator::Balanced => None,
        };
        let any = || self.least_loaded(led()).or_else(|| self.least_loaded(groups()));
        local.or_else(any).unwrap_or(GroupId(1))
    }

    /// Number of queues of the group that have an entry.
    #[must_use]
    pub fn queue_count_of(&self, group: GroupId) -> u64 {
        self.queue_counts.get(&group).copied().unwrap_or(0)
    }

    fn least_loaded(&self, groups: impl Iterator<Item = GroupId>) -> Option<GroupId> {
        groups.min_by_key(|group| (self.queue_count_of(*group), *group))
    }
}
