//! This node's state in one group: the term, its leader, and whether effects may be performed (STO
//! 7). Updated by every vote that openraft saves and every entry that is applied, so that no change
//! is missed or late.

use crate::{metrics::GroupMetrics, replica_name::node_of, sink::GroupSink, type_config::Vote};
use parking_lot::Mutex;
use quorate_types::{GroupId, NodeId, Term};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio::sync::watch;
use tokio::time::Instant;

/// Who leads a group, as this node knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// Term of the leader.
    pub term: Term,
    /// The leader; `None` if there is none, it is not known, or it is known to be dead.
    pub leader: Option<NodeId>,
    /// This node leads and has applied the first entry of its own term: it performs effects (STO
    /// 7).
    pub leading: bool,
}

struct Present {
    vote: Option<Vote>,
    leaderless_since: Option<Instant>,
}

/// The standing of this node in one group.
pub(crate) struct Standing {
    group: GroupId,
    me: NodeId,
    sink: Arc<dyn GroupSink>,
    metrics: Arc<GroupMetrics>,
    /// Held while the sink is called, so that it gets the changes in order.
    present: Mutex<Present>,
    /// The term in which this process leads, once a majority has granted it; 0: none. Never taken
    /// from a stored vote: a restarted process leads nothing.
    own_term: AtomicU64,
    leading: AtomicBool,
    watch: watch::Sender<Leadership>,
}

impl Standing {
    /// The state of a process that has just started, with the stored vote.
    pub(crate) fn new(
        group: GroupId,
        me: NodeId,
        sink: Arc<dyn GroupSink>,
        stored: Option<Vote>,
        metrics: Arc<GroupMetrics>,
    ) -> Arc<Self> {
        let leadership = match &stored {
            Some(vote) => Leadership {
                term: Term(vote.leader_id.term),
                leader: leader_of(vote).filter(|leader| *leader != me),
                leading: false,
            },
            None => Leadership::default(),
        };
        Arc::new(Self {
            group,
            me,
            sink,
            metrics,
            present: Mutex::new(Present {
                vote: stored,
                leaderless_since: leadership.leader.is_none().then(Instant::now),
            }),
            own_term: AtomicU64::new(0),
            leading: AtomicBool::new(false),
            watch: watch::Sender::new(leadership),
        })
    }

    /// Records a vote that openraft saves: a term has begun, or its leader is known.
    pub(crate) fn vote_saved(&self, vote: &Vote) {
        let mut present = self.present.lock();
        let term = vote.leader_id.term;
        let leader = leader_of(vote);
        if let Some(before) = present.vote.map(|vote| vote.leader_id.term) {
            assert!(before <= term, "STO 7: a replica's terms ascend: {before}, {term}");
        }
        present.vote = Some(*vote);
        if leader == Some(self.me) {
            self.metrics.elections_won.add(1);
            self.own_term.store(term, Ordering::Release);
        } else {
            self.own_term.store(0, Ordering::Release);
            self.stop_leading();
        }
        self.report_leader(&mut present, Term(term), leader);
    }

    /// Records that an entry of that term was applied.
    pub(crate) fn applied(&self, term: u64) {
        if term == 0
            || self.own_term.load(Ordering::Acquire) != term
            || self.leading.load(Ordering::Acquire)
        {
            return;
        }
        let present = self.present.lock();
        // The leadership was lost again while the entry was applied.
        if self.own_term.load(Ordering::Acquire) != term {
            return;
        }
        let voted = present.vote.as_ref().and_then(leader_of);
        assert!(voted == Some(self.me), "STO 7: effects are its leader's in {term}: {voted:?}");
        self.leading.store(true, Ordering::Release);
        self.watch.send_modify(|leadership| leadership.leading = true);
        self.sink.became_leader(self.group, Term(term));
        drop(present);
    }

    /// Records that the process that led in this term is dead: there is no leader until another one
    /// is elected. Without effect in a later term, in which the node's next process may lead.
    pub(crate) fn leader_died(&self, node: NodeId, term: u64) {
        let mut present = self.present.lock();
        match &present.vote {
            Some(vote) if leader_of(vote) == Some(node) && vote.leader_id.term == term => {}
            Some(_) | None => return,
        }
        self.report_leader(&mut present, Term(term), None);
    }

    /// Records that a process that was believed dead lives: it still leads its groups, unless
    /// another leader was elected.
    pub(crate) fn leader_lives(&self, node: NodeId) {
        let mut present = self.present.lock();
        let term = match &present.vote {
            Some(vote) if leader_of(vote) == Some(node) => Term(vote.leader_id.term),
            Some(_) | None => return,
        };
        self.report_leader(&mut present, term, Some(node));
    }

    /// The replica was removed from this node: it leads nothing any more (MEM 9).
    pub(crate) fn end(&self) {
        let _present = self.present.lock();
        self.own_term.store(0, Ordering::Release);
        self.stop_leading();
    }

    /// Reports that a proposal was lost.
    pub(crate) fn proposal_lost(&self) {
        self.sink.proposal_lost(self.group);
    }

    fn stop_leading(&self) {
        if self.leading.swap(false, Ordering::AcqRel) {
            self.watch.send_modify(|leadership| leadership.leading = false);
            self.sink.lost_leadership(self.group);
        }
    }

    fn report_leader(&self, present: &mut Present, term: Term, leader: Option<NodeId>) {
        if leader.is_none() {
            present.leaderless_since.get_or_insert_with(Instant::now);
        } else if let Some(since) = present.leaderless_since.take() {
            self.metrics.election.add(since.elapsed());
        }
        let changed = self.watch.send_if_modified(|leadership| {
            let changed = (leadership.term, leadership.leader) != (term, leader);
            (leadership.term, leadership.leader) = (term, leader);
            changed
        });
        if changed {
            self.sink.leader_changed(self.group, term, leader);
        }
    }

    /// True if effects may be performed now (STO 7).
    pub(crate) fn is_leading(&self) -> bool {
        self.leading.load(Ordering::Acquire)
    }

    /// True if this process was elected and not deposed, whether or not it has applied the first
    /// entry of its term.
    pub(crate) fn is_elected(&self) -> bool {
        self.own_term.load(Ordering::Acquire) != 0
    }

    /// The vote saved last.
    pub(crate) fn vote(&self) -> Option<Vote> {
        self.present.lock().vote
    }

    /// The leader and its term, as known now.
    pub(crate) fn leadership(&self) -> Leadership {
        *self.watch.borrow()
    }

    /// A watch of the leadership.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Leadership> {
        self.watch.subscribe()
    }
}

/// The leader that a vote names, if a majority has granted it.
fn leader_of(vote: &Vote) -> Option<NodeId> {
    vote.committed.then(|| node_of(vote.leader_id.voted_for))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::type_config::vote;
    use quorate_storage::EntryId;

    #[derive(Debug, PartialEq, Eq)]
    enum Notice {
        Became(u64),
        Lost,
        Leader(u64, Option<u16>),
    }

    #[derive(Default)]
    struct Recorder(Mutex<Vec<Notice>>);

    impl GroupSink for Recorder {
        fn became_leader(&self, _: GroupId, term: Term) {
            self.0.lock().push(Notice::Became(term.0));
        }
        fn lost_leadership(&self, _: GroupId) {
            self.0.lock().push(Notice::Lost);
        }
        fn leader_changed(&self, _: GroupId, term: Term, leader: Option<NodeId>) {
            self.0.lock().push(Notice::Leader(term.0, leader.map(|node| node.0)));
        }
        fn installed(&self, _: GroupId, _: EntryId) {}
    }

    fn standing(stored: Option<Vote>) -> (Arc<Recorder>, Arc<Standing>) {
        let recorder = Arc::new(Recorder::default());
        let sink = Arc::clone(&recorder) as Arc<dyn GroupSink>;
        (recorder, Standing::new(GroupId(1), NodeId(1), sink, stored, Arc::default()))
    }

    fn notices(recorder: &Recorder) -> Vec<Notice> {
        std::mem::take(&mut recorder.0.lock())
    }

    #[test]
    fn effects_begin_with_the_first_entry_of_the_own_term() {
        let (recorder, standing) = standing(None);
        standing.vote_saved(&vote(3, 1, false));
        assert_eq!(notices(&recorder), [Notice::Leader(3, None)]);
        standing.vote_saved(&vote(3, 1, true));
        assert_eq!(notices(&recorder), [Notice::Leader(3, Some(1))]);
        standing.applied(2);
        assert!(!standing.is_leading(), "an entry of an older term gives no effect");
        standing.applied(3);
        assert_eq!(notices(&recorder), [Notice::Became(3)]);
        standing.applied(3);
        assert_eq!(notices(&recorder), []);
        assert!(standing.is_leading());
        standing.vote_saved(&vote(4, 2, false));
        assert!(!standing.is_leading());
        standing.vote_saved(&vote(4, 2, true));
        standing.applied(3);
        assert_eq!(
            notices(&recorder),
            [Notice::Lost, Notice::Leader(4, None), Notice::Leader(4, Some(2))]
        );
        let expected = Leadership { term: Term(4), leader: Some(NodeId(2)), leading: false };
        assert_eq!(standing.leadership(), expected);
    }

    #[test]
    fn a_restarted_process_leads_nothing() {
        let (recorder, standing) = standing(Some(vote(3, 1, true)));
        standing.applied(3);
        assert!(!standing.is_leading() && !standing.is_elected());
        assert_eq!(standing.leadership().leader, None);
        assert_eq!(notices(&recorder), []);
    }

    #[test]
    fn a_dead_leader_is_none() {
        let (recorder, standing) = standing(Some(vote(3, 2, true)));
        assert_eq!(standing.leadership().leader, Some(NodeId(2)));
        standing.leader_died(NodeId(3), 3);
        standing.leader_died(NodeId(2), 2);
        standing.leader_died(NodeId(2), 3);
        standing.leader_died(NodeId(2), 3);
        assert_eq!(notices(&recorder), [Notice::Leader(3, None)]);
        // A new link to the same process shows that it was not dead.
        standing.leader_lives(NodeId(3));
        standing.leader_lives(NodeId(2));
        assert_eq!(notices(&recorder), [Notice::Leader(3, Some(2))]);
        standing.leader_died(NodeId(2), 3);
        assert_eq!(notices(&recorder), [Notice::Leader(3, None)]);
        standing.vote_saved(&vote(4, 1, false));
        standing.leader_lives(NodeId(2));
        assert_eq!(notices(&recorder), [Notice::Leader(4, None)], "another election has begun");
        standing.vote_saved(&vote(4, 2, true));
        assert_eq!(notices(&recorder), [Notice::Leader(4, Some(2))]);
    }
}
