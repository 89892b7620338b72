//! How far followers are behind a leader, by what they have acknowledged.

use crate::{
    group::Group,
    replica_name::{node_of, raft_id},
};
use openraft::async_runtime::WatchReceiver;
use quorate_types::{NodeId, ReplicaId};

impl Group {
    /// Entries that a follower of this leader lacks; `None` if this node does not lead, or the follower
    /// has acknowledged nothing yet.
    pub(crate) fn lag(&self, replica: u64) -> Option<u64> {
        let data = self.raft().data_metrics();
        let data = data.borrow_watched();
        let last = data.last_log.map_or(0, |id| id.index);
        let matching = (*data.replication.as_ref()?.get(&replica)?)?;
        Some(last.saturating_sub(matching.index))
    }

    /// Entries that a replica lacks of what this leader has; `None` if this node does not lead, or the
    /// replica has acknowledged nothing yet (MEM 3).
    #[must_use]
    pub fn replica_lag(&self, replica: ReplicaId) -> Option<u64> {
        self.lag(raft_id(replica))
    }

    /// The nodes with followers of this leader, and how many of its entries each lacks: all, if it has
    /// acknowledged nothing yet. Empty if this node does not lead.
    #[must_use]
    pub fn follower_lags(&self) -> Vec<(NodeId, u64)> {
        let data = self.raft().data_metrics();
        let data = data.borrow_watched();
        let last = data.last_log.map_or(0, |id| id.index);
        let followers = data.replication.iter().flatten().map(|(id, at)| {
            let acknowledged = at.as_ref().map_or(0, |id| id.index);
            (node_of(*id), last.saturating_sub(acknowledged))
        });
        followers.filter(|(node, _)| *node != self.name().node).collect()
    }
}
