//! Purging of logs: by bytes over all groups, never beyond the last checkpoint (STO 3). openraft
//! does not decide about it (its issue 2116).
//!
//! The length of a log and the part that a purge keeps are measured in the same way: bytes of the
//! log's own records, without bodies (`GroupStore::log_index_keeping`). Entries that a linked
//! follower needs, or will need after the snapshot that is being sent to it, are kept up to eight
//! times a log's share.

use crate::{group::Group, replica_name::replica_of, shared::Shared, type_config::LogId};
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;
use quorate_types::ReplicaId;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How often the logs are checked.
const EVERY: Duration = Duration::from_millis(500);

/// How many times longer than its share a log may become while a linked follower needs it. Without
/// this, a follower that has received a snapshot would need the next one, as long as there is
/// traffic.
const HELD_MAX: u64 = 8;

/// Purges until it is aborted.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut due = tokio::time::interval(EVERY);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        let groups: Vec<_> = shared.all().collect();
        let sizes: Vec<u64> = groups.iter().map(|group| group.store().log_bytes() as u64).collect();
        let Some(keep) = keep(&sizes, shared.settings.log_tail_bytes) else { continue };
        for (group, size) in groups.into_iter().zip(sizes) {
            if size > keep {
                purge(&group, size, keep).await;
            }
        }
    }
}

/// Bytes of each log that may stay so that all together keep to the budget: only long logs are
/// shortened. `None`: all logs may stay as they are.
fn keep(sizes: &[u64], budget: u64) -> Option<u64> {
    if sizes.iter().sum::<u64>() <= budget {
        return None;
    }
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let mut left = budget;
    let mut count = sorted.len() as u64;
    for size in sorted {
        let share = left / count;
        if size > share {
            return Some(share);
        }
        left -= size;
        count -= 1;
    }
    None
}

/// Snapshots of a group that are being sent: the receiver, and the index from which it will need
/// the log. A node may have a new replica while the membership still names its former one (MEM 5).
#[derive(Debug, Default)]
pub(crate) struct Sending(Mutex<BTreeMap<ReplicaId, u64>>);

impl Sending {
    /// Registers a snapshot at that index as being sent, until the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>, to: ReplicaId, at: u64) -> Sent {
        self.0.lock().insert(to, at);
        Sent { sending: Arc::clone(self), to, at }
    }

    fn at(&self, to: ReplicaId) -> Option<u64> {
        self.0.lock().get(&to).copied()
    }
}

/// The registration of a snapshot that is being sent.
pub(crate) struct Sent {
    sending: Arc<Sending>,
    to: ReplicaId,
    at: u64,
}

impl Drop for Sent {
    fn drop(&mut self) {
        let mut sending = self.sending.0.lock();
        // A later snapshot to the same replica may have replaced this one.
        if sending.get(&self.to) == Some(&self.at) {
            sending.remove(&self.to);
        }
    }
}

/// Positions of a linked follower: the index up to which its log matches, and that of a snapshot
/// that is being sent to it.
type Follower = (Option<u64>, Option<u64>);

/// The index after which followers still need the log. A follower behind the purged part needs a
/// snapshot in any case.
fn needed(purged: u64, followers: impl Iterator<Item = Follower>) -> Option<u64> {
    let needs = |(matching, sent): Follower| sent.or(matching.filter(|at| *at >= purged));
    followers.filter_map(needs).min()
}

/// The index up to which a log of `size` bytes is purged, of which `keep` are to stay: not beyond
/// what followers need, unless the log has become too long.
fn through(wanted: u64, needed: Option<u64>, size: u64, keep: u64) -> u64 {
    match needed {
        Some(needed) if size <= keep.saturating_mul(HELD_MAX) => wanted.min(needed),
        Some(_) | None => wanted,
    }
}

/// The positions of the linked followers of a group that this node leads.
fn followers(group: &Group) -> Vec<Follower> {
    let linked: Vec<_> = group.links().all_connected().iter().map(|peer| peer.node).collect();
    let data = group.raft().data_metrics();
    let data = data.borrow_watched();
    let others = data.replication.iter().flatten().map(|(id, at)| (replica_of(*id), at));
    let others = others.filter(|(replica, _)| linked.contains(&replica.node));
    let stands = |(replica, at): (ReplicaId, &Option<LogId>)| {
        (at.as_ref().map(|id| id.index), group.sending().at(replica))
    };
    others.map(stands).collect()
}

/// Asks openraft to purge. openraft purges up to the last snapshot that it knows, which lies at the
/// last written checkpoint or before. So openraft is informed of a newer snapshot first, and purges
/// in the next turn.
async fn purge(group: &Group, size: u64, keep: u64) {
    let budget = usize::try_from(keep).unwrap_or(usize::MAX);
    let Some(wanted) = group.store().log_index_keeping(budget) else { return };
    let purged = group.store().log_state().last_purged.map_or(0, |id| id.index.0);
    let needed = needed(purged, followers(group).into_iter());
    let wanted = through(wanted.0, needed, size, keep);
    let known = group.raft().metrics().borrow_watched().snapshot;
    let through = known.map_or(0, |id| id.index).min(wanted);
    let trigger = group.raft().trigger();
    if through > purged {
        // A group that has ended ignores the request.
        let _ = trigger.purge_log(through).await;
    }
    if through < wanted {
        let _ = trigger.snapshot().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{NodeId, ReplicaNumber};

    #[test]
    fn long_logs_give_way_first() {
        assert_eq!(keep(&[10, 20, 30], 60), None);
        assert_eq!(keep(&[10, 20, 100], 60), Some(30));
        assert_eq!(keep(&[0, 0, 100], 64), Some(64));
        assert_eq!(keep(&[50, 50, 50, 50], 100), Some(25));
        assert_eq!(keep(&[10, 60, 60], 100), Some(45));
    }

    #[test]
    fn what_a_linked_follower_needs_stays() {
        assert_eq!(needed(100, [].into_iter()), None);
        assert_eq!(needed(100, [(Some(170), None), (Some(150), None)].into_iter()), Some(150));
        let lagging = (Some(40), None);
        assert_eq!(needed(100, [(Some(170), None), lagging].into_iter()), Some(170));
        let downloading = (Some(40), Some(120));
        assert_eq!(needed(100, [(Some(170), None), downloading].into_iter()), Some(120));
        assert_eq!(needed(100, [(None, None)].into_iter()), None);
    }

    #[test]
    fn but_not_for_ever() {
        assert_eq!(through(500, None, 70, 10), 500);
        assert_eq!(through(500, Some(120), 70, 10), 120);
        assert_eq!(through(500, Some(900), 70, 10), 500);
        assert_eq!(through(500, Some(120), 80, 10), 120);
        assert_eq!(through(500, Some(120), 81, 10), 500);
    }

    #[test]
    fn a_later_snapshot_takes_the_place_of_an_earlier_one_of_the_same_replica() {
        let sending = Arc::new(Sending::default());
        let former = ReplicaId { node: NodeId(2), number: ReplicaNumber(0) };
        let present = ReplicaId { number: ReplicaNumber(7), ..former };
        let first = sending.begin(present, 10);
        let second = sending.begin(present, 30);
        drop(first);
        assert_eq!(sending.at(present), Some(30));
        // The former one refuses what it is offered.
        drop(sending.begin(former, 30));
        assert_eq!(sending.at(present), Some(30));
        drop(second);
        assert_eq!(sending.at(present), None);
    }
}
