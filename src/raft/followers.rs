//! Facts that the leader of a group records about its followers in addition to openraft: the last
//! entry that each has acknowledged, and which of them take no snapshot now.
//!
//! A follower whose directory was set back lacks entries that it has acknowledged. openraft would
//! send entries after the acknowledged one for ever. Here the leader informs such a follower, which
//! then exits. The leader continues to lead, since another leader would not have these records.

use crate::{
    group::Group,
    type_config::{LogId, Vote, entry_id},
};
use parking_lot::Mutex;
use quorate_types::{LogIndex, ReplicaId};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// How long a follower without room is not offered a snapshot.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(10);
/// How long a follower is not offered one that has refused one; twice as long after each further refusal, up
/// to the maximum. A node refuses until its replica is there, which takes a moment, and for ever if the
/// replica was lost with the node's disk (MEM 10).
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The records about the followers of one group.
#[derive(Debug, Default)]
pub(crate) struct Followers(Mutex<BTreeMap<ReplicaId, Follower>>);

#[derive(Debug, Default)]
struct Follower {
    /// The leader's vote, and the last entry that the follower has acknowledged to it.
    acknowledged: Option<(Vote, LogId)>,
    /// It has been logged that the follower lacks that entry.
    logged: bool,
    /// Until when it is not offered a snapshot, and why.
    held_back: Option<(Instant, &'static str)>,
    /// The pause after its last refusal, while it refuses snapshots.
    refused: Option<Duration>,
}

impl Followers {
    /// Records that a follower has acknowledged entries up to this one, to the leader with that
    /// vote.
    pub(crate) fn acknowledged(&self, replica: ReplicaId, vote: Vote, last: LogId) {
        let mut followers = self.0.lock();
        let follower = followers.entry(replica).or_default();
        let before = follower.acknowledged.filter(|(before, _)| *before == vote);
        if before.is_none_or(|(_, before)| before.index < last.index) {
            follower.acknowledged = Some((vote, last));
        }
    }

    /// The entry that a follower has acknowledged and lost, if it reports that it lacks the entry
    /// `lacking`.
    pub(crate) fn lost(&self, replica: ReplicaId, vote: Vote, lacking: LogId) -> Option<LogId> {
        let mut followers = self.0.lock();
        let follower = followers.get_mut(&replica)?;
        let (_, last) = follower
            .acknowledged
            .filter(|(to, last)| *to == vote && lacking.index <= last.index)?;
        if !std::mem::replace(&mut follower.logged, true) {
            let entry = entry_id(&last).index;
            tracing::error!(
                node = %replica.node, %entry,
                "a follower lacks a log entry that it has acknowledged: its data directory is an \
                 older copy, or has lost synced data; the follower is asked to exit"
            );
        }
        Some(last)
    }

    /// Records that a follower has no room for a snapshot.
    pub(crate) fn no_room(&self, replica: ReplicaId) {
        let until = Instant::now() + NO_ROOM_PAUSE;
        let held_back = Some((until, "the node had no disk space for a snapshot"));
        self.0.lock().entry(replica).or_default().held_back = held_back;
    }

    /// Records that a follower has refused a snapshot.
    pub(crate) fn refused(&self, replica: ReplicaId) {
        let mut followers = self.0.lock();
        let follower = followers.entry(replica).or_default();
        let pause = follower.refused.map_or(REFUSED_PAUSE, |pause| pause * 2);
        let pause = pause.min(REFUSED_PAUSE_MAX);
        follower.refused = Some(pause);
        follower.held_back = Some((Instant::now() + pause, "the node has refused a snapshot"));
    }

    /// Records that a follower has begun to take a snapshot.
    pub(crate) fn takes(&self, replica: ReplicaId) {
        if let Some(follower) = self.0.lock().get_mut(&replica) {
            follower.refused = None;
        }
    }

    /// Until when a follower is not offered a snapshot, if that is in the future, and why.
    pub(crate) fn held_back(&self, replica: ReplicaId) -> Option<(Instant, &'static str)> {
        let held_back = self.0.lock().get(&replica)?.held_back;
        held_back.filter(|(until, _)| *until > Instant::now())
    }
}

/// On a follower: whether this node lacks an entry that it has acknowledged to the present leader.
/// In the leader's own term an acknowledged entry is never truncated.
pub(crate) fn lacks(group: &Group, vote: &Vote, acknowledged: &LogId) -> bool {
    if group.standing().vote().as_ref() != Some(vote) {
        return false;
    }
    let state = group.store().log_state();
    let index = LogIndex(acknowledged.index);
    if state.last_purged.is_some_and(|purged| purged.index >= index) {
        return false;
    }
    if state.last.is_none_or(|last| last.index < index) {
        return true;
    }
    let found = group.store().read_shared(index, index.next(), 0);
    found.is_ok_and(|found| {
        found.first().is_none_or(|found| found.id.term != entry_id(acknowledged).term)
    })
}

/// The error with which a node that lacks such an entry exits.
pub(crate) fn lacking(acknowledged: &LogId) -> String {
    format!(
        "log entry {} is missing although this node has acknowledged it: the data directory is an \
         older copy, or has lost synced data (setting data_dir)",
        acknowledged.index
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::type_config::{log_id_of, vote};
    use quorate_types::{NodeId, ReplicaNumber};

    const FOLLOWER: ReplicaId = ReplicaId { node: NodeId(3), number: ReplicaNumber(0) };
    /// A new one on the same node: what the earlier one has acknowledged does not concern it (MEM 5).
    const NEW: ReplicaId = ReplicaId { number: ReplicaNumber(1), ..FOLLOWER };

    #[test]
    fn what_was_acknowledged_in_the_same_term_cannot_be_lacking() {
        let followers = Followers::default();
        let (mine, former) = (vote(5, 1, true), vote(4, 1, true));
        assert_eq!(followers.lost(FOLLOWER, mine, log_id_of(4, 10)), None, "nothing is known yet");
        followers.acknowledged(FOLLOWER, mine, log_id_of(5, 20));
        followers.acknowledged(FOLLOWER, mine, log_id_of(5, 12));
        assert_eq!(followers.lost(FOLLOWER, mine, log_id_of(5, 21)), None, "it was never there");
        assert_eq!(followers.lost(FOLLOWER, mine, log_id_of(5, 20)), Some(log_id_of(5, 20)));
        assert_eq!(followers.lost(FOLLOWER, mine, log_id_of(4, 10)), Some(log_id_of(5, 20)));
        assert_eq!(followers.lost(FOLLOWER, former, log_id_of(4, 10)), None);
        assert_eq!(followers.lost(NEW, mine, log_id_of(4, 10)), None);
        followers.acknowledged(FOLLOWER, vote(6, 1, true), log_id_of(5, 11));
        assert_eq!(followers.lost(FOLLOWER, vote(6, 1, true), log_id_of(5, 12)), None);
    }

    #[test]
    fn a_follower_without_room_is_left_alone_for_a_while() {
        let followers = Followers::default();
        assert_eq!(followers.held_back(FOLLOWER), None);
        let before = Instant::now();
        followers.no_room(FOLLOWER);
        let until = followers.held_back(FOLLOWER);
        assert!(until.is_some_and(|(until, _)| until >= before + NO_ROOM_PAUSE), "{until:?}");
        assert_eq!(followers.held_back(NEW), None);
    }

    #[test]
    fn mem_10_a_lost_replica_is_offered_snapshots_ever_more_seldom() {
        let followers = Followers::default();
        let pause = || {
            let begun = Instant::now();
            followers.refused(FOLLOWER);
            let held_back = followers.held_back(FOLLOWER).map(|(until, _)| until - begun);
            held_back.unwrap_or_default()
        };
        let pauses: Vec<Duration> = (0..8).map(|_| pause()).collect();
        let least = [50, 100, 200, 400, 800, 1_600, 2_000, 2_000].map(Duration::from_millis);
        assert!(pauses.iter().zip(least).all(|(pause, least)| *pause >= least), "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause < 2 * REFUSED_PAUSE_MAX), "{pauses:?}");
        followers.takes(FOLLOWER);
        assert!(pause() < REFUSED_PAUSE_MAX, "it has taken one");
        assert_eq!(followers.held_back(NEW), None);
    }
}
