//! Linearizable reads, and confirmation of leadership (LET 5, NAM 5).
//!
//! openraft credits an answer to the newest request that it may belong to, so an answer that waited
//! in a socket while this process was stopped, or on a link that was cut, can make a deposed leader
//! believe that a majority still follows it. So leadership is confirmed by a separate question,
//! whose answers are known to belong to it.
//!
//! The question to a majority is "do you follow a later leader?", and only the answers to it count.
//! Reads and leases use it. One question serves all callers that wait when it is sent, and the
//! questions for lease renewals are sent with the heartbeats.

use crate::{
    codec::{decode_log_index, decode_transfer_answer, encode_vote},
    group::{Group, ReadError},
    replica_name::{for_replica, replica_of},
    service::Service,
    type_config::Vote,
};
use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use openraft::{LinearizerOption, ReadPolicy};
use quorate_rpc::Lane;
use quorate_types::{LogIndex, NodeId};
use std::{
    collections::BTreeSet,
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout, timeout_at},
};

/// Pause before a read that found no leader is tried again.
const READ_RETRY: Duration = Duration::from_millis(20);
/// Longest wait for a majority's answers to one question.
const ANSWERS_WAIT: Duration = Duration::from_millis(500);

/// Questions to a majority, one at a time; each serves all callers that wait when it is sent.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    begun: AtomicU64,
    /// The number of the last completed round, and its result.
    ended: Mutex<(u64, bool)>,
}

impl Rounds {
    /// The result of a round that begins after this call: this caller's, by `run`, or that of
    /// another waiting caller. Answers to earlier questions prove nothing.
    pub(crate) async fn next(&self, run: impl Future<Output = bool>) -> bool {
        let wanted = self.begun.load(Ordering::Acquire) + 1;
        let mut ended = self.ended.lock().await;
        let (number, confirmed) = *ended;
        if number >= wanted {
            return confirmed;
        }
        // Lets other tasks that were woken at the same moment join.
        tokio::task::yield_now().await;
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let confirmed = run.await;
        *ended = (number, confirmed);
        confirmed
    }
}

/// True if a node with this vote has not voted for a later leader than the one that asks.
pub(crate) fn follows(mine: Option<Vote>, leader: Vote) -> bool {
    mine.is_none_or(|mine| {
        let (mine, leader) = (mine.leader_id, leader.leader_id);
        mine.term < leader.term || mine == leader
    })
}

/// True if these replicas are a majority of each set of voters.
fn is_majority(configs: &[BTreeSet<u64>], replicas: &BTreeSet<u64>) -> bool {
    !configs.is_empty()
        && configs.iter().all(|voters| 2 * voters.intersection(replicas).count() > voters.len())
}

impl Group {
    /// A read barrier, from any node: when it returns, every entry committed anywhere before the
    /// call has been applied here. Asks a majority (DESIGN §8: no lease reads); one question may
    /// serve all reads that wait at that moment. Returns the index that was awaited.
    ///
    /// # Errors
    /// No majority in time.
    pub async fn linearizable(&self, deadline: Duration) -> Result<LogIndex, ReadError> {
        let end = Instant::now() + deadline;
        loop {
            let found = match self.leadership().leader {
                Some(leader) if leader == self.name().node => self.read_index().await.ok(),
                Some(leader) => self.ask_read_index(leader, end).await,
                None => None,
            };
            if let Some(index) = found {
                let left = end.saturating_duration_since(Instant::now());
                return self.wait_applied(index, left).await.map(|()| index);
            }
            if timeout_at(end, sleep(READ_RETRY)).await.is_err() {
                return Err(ReadError::Timeout);
            }
        }
    }

    /// On the leader: the index that a read must have applied. A majority has confirmed it since
    /// the call (NAM 5). It may not have been applied here yet.
    ///
    /// # Errors
    /// This node does not lead, or no majority answers within the lease.
    pub async fn read_index(&self) -> Result<LogIndex, ReadError> {
        let index = self.raft().get_read_log_id(ReadPolicy::ReadIndex);
        match tokio::join!(index, self.is_confirmed()) {
            (Ok((id, _)), true) => Ok(LogIndex(id.index())),
            (Ok(_), false) | (Err(_), _) => Err(ReadError::Timeout),
        }
    }

    /// On the leader: the committed index, confirmed by a majority that answers a question sent
    /// from now on: `at_once`, or else together with the next heartbeats. `None` if no majority
    /// answers.
    pub async fn committed_since_now(&self, at_once: bool, deadline: Duration) -> Option<LogIndex> {
        let answers = LinearizerOption::new(Some(Duration::ZERO), at_once);
        let index = self.raft().get_read_log_id(answers.with_wait_timeout(deadline));
        let confirmed = async {
            if !at_once {
                self.next_heartbeat().await;
            }
            self.is_confirmed().await
        };
        match tokio::join!(index, timeout(deadline, confirmed)) {
            (Ok((id, _)), Ok(true)) => Some(LogIndex(id.index())),
            (Ok(_) | Err(_), _) => None,
        }
    }

    async fn is_confirmed(&self) -> bool {
        self.rounds().next(self.ask_majority()).await
    }

    /// Asks all voters whether they follow a later leader; true if a majority does not.
    async fn ask_majority(&self) -> bool {
        let leads = || {
            let vote = self.standing().vote()?;
            (self.standing().is_leading() && vote.leader_id.voted_for == self.me()).then_some(vote)
        };
        let Some(vote) = leads() else { return false };
        // While voters are being changed, a majority of the former and one of the later ones.
        let configs = self.voter_sets();
        let mut follow = BTreeSet::from([self.me()]);
        let others: BTreeSet<u64> =
            configs.iter().flatten().copied().filter(|voter| *voter != self.me()).collect();
        let mut answers: FuturesUnordered<_> =
            others.into_iter().map(|voter| self.ask_follower(voter, &vote)).collect();
        while !is_majority(&configs, &follow) {
            let Some((voter, follows)) = answers.next().await else { return false };
            if follows {
                follow.insert(voter);
            }
        }
        leads() == Some(vote)
    }

    /// The voter, and whether it follows the leader with that vote.
    async fn ask_follower(&self, voter: u64, vote: &Vote) -> (u64, bool) {
        let (number, target) = (Service::Follows.number(), replica_of(voter));
        let payload = for_replica(target.number, encode_vote(vote));
        let links = self.links();
        let asked =
            links.call(target.node, Lane::Control, number, self.id(), payload, ANSWERS_WAIT);
        let answer = asked.await.ok().and_then(|answer| decode_transfer_answer(&answer).ok());
        (voter, answer.unwrap_or(false))
    }

    async fn ask_read_index(&self, leader: NodeId, end: Instant) -> Option<LogIndex> {
        let left = end.saturating_duration_since(Instant::now());
        let number = Service::ReadIndex.number();
        let asked = self.links().call(leader, Lane::Control, number, self.id(), Bytes::new(), left);
        decode_log_index(&asked.await.ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::type_config::vote;
    use std::sync::Arc;
    use tokio::{sync::oneshot, task::JoinHandle};

    #[test]
    fn who_has_promised_anything_to_a_later_leader_does_not_follow() {
        let leader = vote(5, 1, true);
        assert!(follows(None, leader));
        assert!(follows(Some(vote(4, 2, true)), leader));
        assert!(follows(Some(vote(5, 1, false)), leader));
        assert!(follows(Some(leader), leader));
        assert!(!follows(Some(vote(5, 2, false)), leader), "of the same term, to another");
        assert!(!follows(Some(vote(6, 2, false)), leader), "promised, not yet elected");
    }

    #[test]
    fn mem_07_a_joint_membership_needs_both_majorities() {
        let of = |voters: &[u64]| -> BTreeSet<u64> { voters.iter().copied().collect() };
        let joint = [of(&[1, 2, 3]), of(&[1, 2, 4])];
        assert!(is_majority(&joint, &of(&[1, 2])));
        assert!(!is_majority(&joint, &of(&[1, 3])), "one of the later voters only");
        assert!(!is_majority(&joint, &of(&[1])));
        assert!(is_majority(&joint[..1], &of(&[1, 3])));
        assert!(!is_majority(&[], &of(&[1])));
    }

    fn asks(
        rounds: &Arc<Rounds>,
        run: impl Future<Output = bool> + Send + 'static,
    ) -> JoinHandle<bool> {
        let rounds = Arc::clone(rounds);
        tokio::spawn(async move { rounds.next(run).await })
    }

    #[tokio::test]
    async fn an_answer_to_an_earlier_question_serves_nobody_later() {
        let rounds = Arc::new(Rounds::default());
        let (answer, answered) = oneshot::channel();
        let earlier = asks(&rounds, async { answered.await.unwrap_or(false) });
        while rounds.begun.load(Ordering::Acquire) == 0 {
            tokio::task::yield_now().await;
        }
        // Called while the first question is in flight: both are served by one question of their
        // own.
        let later = [asks(&rounds, async { false }), asks(&rounds, async { false })];
        tokio::task::yield_now().await;
        assert_eq!(answer.send(true), Ok(()));
        assert!(earlier.await.is_ok_and(|confirmed| confirmed));
        for later in later {
            assert!(later.await.is_ok_and(|confirmed| !confirmed), "served by the earlier answer");
        }
        assert_eq!(rounds.begun.load(Ordering::Acquire), 2, "one round serves both");
    }
}
