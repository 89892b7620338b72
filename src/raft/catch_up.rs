//! Whether a replica has come, since the start of the process, as far as its group had come by then.
//!
//! A group that loses another replica before that commits nothing until this one has caught up. So a
//! node is not ready before, and nodes are restarted one after the other by that (MEM 13).

use crate::type_config::LogId;
use std::sync::atomic::{AtomicU64, Ordering};

/// No leader has said how far the group has come.
const UNKNOWN: u64 = u64::MAX;

/// The index that the replica has to reach.
#[derive(Debug)]
pub(crate) struct CatchUp(AtomicU64);

impl Default for CatchUp {
    fn default() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }
}

impl CatchUp {
    /// A leader has said what is committed. Only the first time counts: the replica of a busy group is
    /// always a little behind.
    pub(crate) fn heard(&self, committed: Option<LogId>) {
        let index = committed.map_or(0, |id| id.index);
        // Another append was first.
        let _ = self.0.compare_exchange(UNKNOWN, index, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// True if the replica has applied what was committed then.
    pub(crate) fn is_reached_by(&self, applied: u64) -> bool {
        let target = self.0.load(Ordering::Relaxed);
        target != UNKNOWN && applied >= target
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::type_config::log_id_of;

    fn at(index: u64) -> Option<LogId> {
        Some(log_id_of(1, index))
    }

    #[test]
    fn what_was_committed_at_first_is_to_be_reached() {
        let catch_up = CatchUp::default();
        assert!(!catch_up.is_reached_by(1_000), "no leader has said anything");
        catch_up.heard(at(70));
        catch_up.heard(at(90));
        assert!(!catch_up.is_reached_by(69));
        assert!(catch_up.is_reached_by(70));
    }
}
