//! The driver half of a proposer: one for each home that this node sends commands to. All
//! commands of the node's front end to that home go through it (SES 2).

use crate::batch::{Answered, Batches};
use parking_lot::Mutex;
use quorate_queue::Reply;
use quorate_storage::codec::batch::ProposedBatch;
use quorate_types::{Home, NodeId, Sequence, SessionId, Term};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Batches under way at once. More waiting publishes make larger batches, not more of them.
const UNDER_WAY_MAX: usize = 4;
/// Octets under way at once: what a round of the disk takes. More would only make settles and
/// deliveries wait behind it.
const UNDER_WAY_BYTES_MAX: usize = 2 << 20;
/// Further batches for commands that overtake publishes, while publishes fill what may be under way.
const AHEAD_MAX: usize = 4;

/// Takes a batch to whoever leads its home. A batch that does not arrive is sent again after the
/// next announcement (SES 5).
pub(crate) trait Courier {
    /// Counts a batch that has just been cut, and how long its first command had waited. Must not
    /// call back into the proposer.
    fn cut(&self, batch: &ProposedBatch, waited: Duration);

    /// Sends; must not call back into the proposer.
    fn carry(&self, home: Home, to: NodeId, batch: &ProposedBatch);
}

/// One proposer.
#[derive(Debug)]
pub(crate) struct Proposer {
    home: Home,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    batches: Batches,
    leader: Option<(NodeId, Term)>,
    /// When the first command came of each batch that waits to be cut.
    arrivals: VecDeque<Instant>,
}

impl Proposer {
    /// A proposer that knows no leader yet.
    pub(crate) fn new(home: Home, session: SessionId) -> Self {
        let (batches, arrivals) = (Batches::new(session), VecDeque::new());
        Self { home, state: Mutex::new(State { batches, leader: None, arrivals }) }
    }

    /// Adds what `fill` adds, and sends what can be sent.
    pub(crate) fn submit(&self, courier: &impl Courier, fill: impl FnOnce(&mut Batches)) {
        let mut state = self.state.lock();
        fill(&mut state.batches);
        let waiting = state.batches.waiting();
        if state.arrivals.len() < waiting {
            state.arrivals.resize(waiting, Instant::now());
        }
        self.send(&mut state, courier);
    }

    /// Octets of messages that wait or are under way.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().batches.bytes()
    }

    /// Leader that the proposer sends to, and its term.
    pub(crate) fn leader(&self) -> Option<(NodeId, Term)> {
        self.state.lock().leader
    }

    /// A leader has announced itself, or a stream to or from it is new: everything unanswered is
    /// sent again (SES 5). False if the announcement is an old one.
    pub(crate) fn announced(&self, courier: &impl Courier, leader: NodeId, term: Term) -> bool {
        let mut state = self.state.lock();
        if state.leader.is_some_and(|(_, known)| term < known) {
            return false;
        }
        state.leader = Some((leader, term));
        for batch in state.batches.unanswered(Sequence(0)) {
            courier.carry(self.home, leader, batch);
        }
        self.send(&mut state, courier);
        true
    }

    /// The home wants everything from `want` on again (SES 3).
    pub(crate) fn wanted(&self, courier: &impl Courier, session: SessionId, want: Sequence) {
        let state = self.state.lock();
        if let Some((leader, _)) = state.leader
            && state.batches.session() == session
        {
            for batch in state.batches.unanswered(want) {
                courier.carry(self.home, leader, batch);
            }
        }
    }

    /// Takes answers and sends what they make room for; returns what was answered.
    pub(crate) fn answered(
        &self,
        courier: &impl Courier,
        session: SessionId,
        first: Sequence,
        last: Sequence,
        other: Vec<(Sequence, Reply)>,
    ) -> Vec<Answered> {
        let mut answered = Vec::new();
        let mut state = self.state.lock();
        if state.batches.session() == session {
            state.batches.answered(first, last, other, &mut answered);
            self.send(&mut state, courier);
        }
        answered
    }

    /// Begins anew in another session; nothing of the old one is answered (SES 6).
    pub(crate) fn restart(&self, session: SessionId) {
        let mut state = self.state.lock();
        state.batches.abandon(session);
        state.arrivals.clear();
    }

    fn send(&self, state: &mut State, courier: &impl Courier) {
        let Some((leader, _)) = state.leader else { return };
        loop {
            let batches = &mut state.batches;
            let under_way = batches.under_way();
            let has_room =
                under_way < UNDER_WAY_MAX && batches.under_way_bytes() < UNDER_WAY_BYTES_MAX;
            let (batch, arrived) = if has_room && batches.waiting() > 0 {
                (batches.cut(), state.arrivals.pop_front())
            } else if under_way < UNDER_WAY_MAX + AHEAD_MAX {
                (batches.cut_ahead(), None)
            } else {
                return;
            };
            let Some(batch) = batch else { return };
            courier.cut(batch, arrived.map(|arrived| arrived.elapsed()).unwrap_or_default());
            courier.carry(self.home, leader, batch);
        }
    }
}
