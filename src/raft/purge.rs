//! Purging the logs: by octets over all groups, never above what is checkpointed (STO 3). openraft
//! decides nothing of it (its issue 2116).

use crate::{group::Group, groups::Shared};
use openraft::async_runtime::WatchReceiver;
use std::{sync::Arc, time::Duration};

/// How often the logs are looked at.
const EVERY: Duration = Duration::from_millis(500);

/// Purges, for ever.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut due = tokio::time::interval(EVERY);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        let groups: Vec<_> = shared.all().collect();
        let sizes: Vec<u64> = groups.iter().map(|group| group.store().log_bytes() as u64).collect();
        let Some(keep) = keep(&sizes, shared.settings.log_keep_bytes) else { continue };
        for (group, size) in groups.into_iter().zip(sizes) {
            if size > keep {
                purge(group, keep).await;
            }
        }
    }
}

/// How much of each log may stay so that all together keep to the budget: the long ones give, the
/// short ones do not. `None`: all may stay as they are.
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

/// Asks openraft to purge. It goes no further than the last snapshot that it knows, and that one
/// no further than the last written checkpoint; so it is told of a newer one first, and purges
/// with the next turn.
async fn purge(group: &Group, keep: u64) {
    let Some(wanted) = group.tail().purge_index(keep) else { return };
    let known = group.raft().metrics().borrow_watched().snapshot;
    let through = known.map_or(0, |id| id.index).min(wanted);
    let trigger = group.raft().trigger();
    if through > 0 {
        // A group that has ended purges nothing.
        let _ = trigger.purge_log(through).await;
    }
    if through < wanted {
        let _ = trigger.snapshot().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_logs_give_way_first() {
        assert_eq!(keep(&[10, 20, 30], 60), None);
        assert_eq!(keep(&[10, 20, 100], 60), Some(30));
        assert_eq!(keep(&[0, 0, 100], 64), Some(64));
        assert_eq!(keep(&[50, 50, 50, 50], 100), Some(25));
        assert_eq!(keep(&[10, 60, 60], 100), Some(45));
    }
}
