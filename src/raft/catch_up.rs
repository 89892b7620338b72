//! What a replica has heard from the leaders of its group since the start of the process: whether it has
//! come as far as the group had come by then, and how long ago a leader spoke.
//!
//! A group that loses another replica before this one has caught up commits nothing until then. So a
//! node is not ready before, and nodes are restarted one after the other by that (MEM 13).

use crate::type_config::{LogId, Vote};
use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// What leaders have said.
#[derive(Debug, Default)]
pub(crate) struct CatchUp(Mutex<Option<Heard>>);

#[derive(Clone, Copy, Debug)]
struct Heard {
    /// The newest term whose leader has spoken.
    term: u64,
    /// What it said at first that is committed, of its own term: the index that the replica has to reach.
    target: Option<u64>,
    /// When it spoke last.
    at: Instant,
}

impl CatchUp {
    /// A leader has said how far the group has come. Only the first time of each term counts, since the
    /// replica of a busy group is always a little behind; a leader that was deposed meanwhile counts not
    /// at all. Before a new leader has committed an entry of its own term, it does not know what is
    /// committed (Raft paper, section 5.4.2): openraft then says what the same node had committed when it
    /// led the group before, or nothing.
    pub(crate) fn heard(&self, vote: &Vote, committed: Option<LogId>) {
        let (term, at) = (vote.leader_id.term, Instant::now());
        let mut heard = self.0.lock();
        if heard.is_some_and(|heard| heard.term > term) {
            return;
        }
        let before = heard.filter(|heard| heard.term == term).and_then(|heard| heard.target);
        let own = committed.filter(|id| id.leader_id.term == term).map(|id| id.index);
        *heard = Some(Heard { term, target: before.or(own), at });
    }

    /// True if the replica has applied what was committed then.
    pub(crate) fn is_reached_by(&self, applied: u64) -> bool {
        let target = self.0.lock().and_then(|heard| heard.target);
        target.is_some_and(|target| applied >= target)
    }

    /// True if a leader has spoken within this time.
    pub(crate) fn has_heard_within(&self, time: Duration) -> bool {
        self.0.lock().is_some_and(|heard| heard.at.elapsed() < time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::type_config::{log_id_of, vote};

    fn at(term: u64, index: u64) -> Option<LogId> {
        Some(log_id_of(term, index))
    }

    #[test]
    fn what_was_committed_at_first_is_to_be_reached() {
        let catch_up = CatchUp::default();
        assert!(!catch_up.is_reached_by(1_000), "no leader has said anything");
        catch_up.heard(&vote(5, 1, true), at(5, 70));
        catch_up.heard(&vote(5, 1, true), at(5, 90));
        assert!(!catch_up.is_reached_by(69));
        assert!(catch_up.is_reached_by(70));
    }

    #[test]
    fn a_deposed_leader_does_not_know_how_far_its_group_has_come() {
        let catch_up = CatchUp::default();
        catch_up.heard(&vote(5, 1, true), at(5, 70));
        catch_up.heard(&vote(6, 2, true), at(6, 90));
        catch_up.heard(&vote(5, 1, true), at(5, 71));
        assert!(!catch_up.is_reached_by(89));
        assert!(catch_up.is_reached_by(90));
    }

    #[test]
    fn a_new_leader_does_not_know_how_far_its_group_has_come_before_it_has_committed_something() {
        let catch_up = CatchUp::default();
        catch_up.heard(&vote(5, 1, true), at(5, 70));
        assert!(catch_up.is_reached_by(70));
        // What it committed when it led before, or nothing.
        for known in [None, at(4, 60)] {
            catch_up.heard(&vote(6, 2, true), known);
            assert!(!catch_up.is_reached_by(1_000));
        }
        catch_up.heard(&vote(6, 2, true), at(6, 90));
        assert!(!catch_up.is_reached_by(89));
        assert!(catch_up.is_reached_by(90));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_says_nothing_more_is_not_heard() {
        let catch_up = CatchUp::default();
        let second = Duration::from_secs(1);
        assert!(!catch_up.has_heard_within(second));
        catch_up.heard(&vote(5, 1, true), None);
        tokio::time::advance(second / 2).await;
        assert!(catch_up.has_heard_within(second));
        catch_up.heard(&vote(4, 3, true), None);
        tokio::time::advance(second / 2).await;
        assert!(!catch_up.has_heard_within(second));
    }
}
