//! The driver half of a proposer: one for each home that this node sends commands to. All
//! commands of the node's front end to that home go through it (SES 2).
//!
//! A home treats a batch that arrives before an earlier one as a gap. So a batch that a full lane
//! refuses stays "to be sent", nothing is sent past it, and it is sent when the lane has room. A
//! lane that is not full takes a message of any size, so that a large batch needs no more room than
//! a small one.
//!
//! A batch or its answer can be lost without a notice: in a leader's full sequencer, or in a lane
//! that refuses the answer. So the *oldest* unanswered batch is sent again after 1 s, then after 2,
//! 4 and 8 s. A repeat is harmless (SES 3), and the answer to it reveals the gap behind it. The
//! leader drops a repeat of a batch that still waits in its sequencer.
//!
//! Settles cannot overtake batches in flight, so only few are in flight (ARCHITECTURE,
//! "Decisions"). This also made publishers without consumers a quarter faster: batches beyond one
//! round only waited. For the same reason a socket's receive buffer is bounded (setting
//! `amqp_receive_buffer`).

#[cfg(test)]
mod tests;

use crate::{
    front::batch::{Answered, Batches},
    memory::Held,
    peers::Sent,
};
use parking_lot::Mutex;
use quorate_queue::Reply;
use quorate_storage::codec::batch::ProposedBatch;
use quorate_types::{Home, NodeId, Sequence, SessionId, StartNumber, Term};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Batches in flight at the same time. More waiting publishes make larger batches, not more of
/// them.
const UNDER_WAY_MAX: usize = 4;
/// A round can take long, for example behind another group's large bodies. A further batch then
/// need not wait for its end: it is sent this long after the last batch, as long as fewer than
/// [`UNDER_WAY_COUNT`] commands and [`UNDER_WAY_SLOW_MAX`] batches are in flight.
const SLOW_ROUND: Duration = Duration::from_millis(5);
const UNDER_WAY_SLOW_MAX: usize = 16;
/// The oldest batch is sent again after this time without an answer; each further time after twice
/// as long, up to the maximum.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_MAX: Duration = Duration::from_secs(8);
/// Commands and messages of one queue in flight beyond which no more publishes follow, unless they
/// are small. Settles overtake what waits here, but not what is in flight, and a consumer gets one
/// window for each round.
const UNDER_WAY_COUNT: usize = 512;
/// The same while no consumer settles anything: there is nothing to be overtaken, and larger rounds
/// cost publishers less.
const UNDER_WAY_COUNT_ALONE: usize = 2_048;
/// Messages are small if they have at most this many bytes each, with their cost.
const UNDER_WAY_SMALL_BYTES: usize = 1 << 10;
/// All queues of a home together may have this many times as much in flight as one queue.
const QUEUES_MAX: usize = 4;
/// Further batches for commands that overtake publishes, while publishes use up the limit in
/// flight.
const AHEAD_MAX: usize = 4;

/// Sends batches to the leaders of their homes. It must not call back into the proposer.
pub(crate) trait Courier {
    /// Counts a batch that has just been cut, and how long its first command had waited.
    fn cut(&self, batch: &ProposedBatch, waited: Duration);

    /// Sends a batch for a home to node `to`.
    fn carry(&self, home: Home, to: NodeId, batch: &Arc<ProposedBatch>) -> Sent;

    /// Arranges that [`Proposer::has_room`] is called once the lane accepts batches again.
    fn wait_for_room(&self, home: Home, to: NodeId);

    /// The present time.
    fn now(&self) -> Instant;
}

/// The proposer of one home.
#[derive(Debug)]
pub(crate) struct Proposer {
    home: Home,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    batches: Batches,
    leader: Option<(NodeId, Term)>,
    /// For each batch that waits to be cut, when its first command came.
    arrivals: VecDeque<Instant>,
    /// The lane was full; [`Proposer::has_room`] will be called.
    waits_for_room: bool,
    /// When the wait for the oldest answer began: at its last sending, or at the answer before it.
    silent_since: Option<Instant>,
    patience: Duration,
    /// When the last batch that took what waited was cut.
    cut_at: Option<Instant>,
    /// Memory account of what waits or is in flight, updated once a call.
    held: Held,
}

impl State {
    /// Records that the home has answered, or has nothing to answer.
    fn note_progress(&mut self, now: Instant) {
        (self.silent_since, self.patience) = (Some(now), PATIENCE);
    }

    fn update_held(&mut self) {
        self.held.set_about(self.batches.memory_bytes() as u64);
    }
}

impl Proposer {
    /// A proposer without a known leader. What waits or is in flight is counted in `held`.
    pub(crate) fn new(home: Home, session: SessionId, held: Held) -> Self {
        let state = State {
            batches: Batches::new(session),
            leader: None,
            arrivals: VecDeque::new(),
            waits_for_room: false,
            silent_since: None,
            patience: PATIENCE,
            cut_at: None,
            held,
        };
        Self { home, state: Mutex::new(state) }
    }

    /// Lets `fill` add commands, and sends what can be sent.
    pub(crate) fn submit(&self, courier: &impl Courier, fill: impl FnOnce(&mut Batches)) {
        let mut state = self.state.lock();
        fill(&mut state.batches);
        let waiting = state.batches.waiting();
        if state.arrivals.len() < waiting {
            state.arrivals.resize(waiting, courier.now());
        }
        state.update_held();
        self.send(&mut state, courier);
    }

    /// Bytes of messages that wait or are in flight.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().batches.bytes()
    }

    /// Session that the proposer numbers its commands in.
    pub(crate) fn session(&self) -> SessionId {
        self.state.lock().batches.session()
    }

    /// The known leader of the home, and its term.
    pub(crate) fn leader(&self) -> Option<(NodeId, Term)> {
        self.state.lock().leader
    }

    /// Handles an announcement of a leader, or a new stream to or from it: everything unanswered is
    /// sent again (SES 5). False if a later leader is known.
    pub(crate) fn announced(&self, courier: &impl Courier, leader: NodeId, term: Term) -> bool {
        let mut state = self.state.lock();
        if state.leader.is_some_and(|(_, known)| term < known) {
            return false;
        }
        state.leader = Some((leader, term));
        if matches!(self.home, Home::Node(_)) {
            // A later start of the node knows nothing of the session (NAM 8).
            state.batches.renew_marks();
        }
        state.batches.send_again(Sequence(0));
        assert!(state.batches.oldest_sent().is_none(), "SES 5: all unanswered is sent in {term}");
        state.note_progress(courier.now());
        self.send(&mut state, courier);
        true
    }

    /// Handles a home's request for everything from `want` on (SES 3).
    pub(crate) fn wanted(&self, courier: &impl Courier, session: SessionId, want: Sequence) {
        let mut state = self.state.lock();
        if state.batches.session() == session {
            match self.home {
                // Perhaps a later start of the node, which knows nothing of the session (NAM 8).
                Home::Node(_) => state.batches.begin_again(want),
                Home::Group(_) => state.batches.send_again(want),
            }
            self.send(&mut state, courier);
        }
    }

    /// The lane accepts batches again, or has closed: sends what waits for it.
    pub(crate) fn has_room(&self, courier: &impl Courier) {
        let mut state = self.state.lock();
        state.waits_for_room = false;
        self.send(&mut state, courier);
    }

    /// Called at intervals. A batch or its answer may have been lost without notice: the leader had
    /// no room for it, or a lane had none for the answer. The oldest batch is sent again. If it was
    /// not lost, its home treats it as a repeat; if later ones were lost, it asks for them (SES 3).
    pub(crate) fn send_overdue(&self, courier: &impl Courier) {
        let mut state = self.state.lock();
        let now = courier.now();
        let Some((leader, _)) = state.leader else { return };
        let silent = state.silent_since.map(|since| now.saturating_duration_since(since));
        if silent.is_none_or(|silent| silent < state.patience) {
            return;
        }
        if let Some(batch) = state.batches.oldest_sent() {
            courier.carry(self.home, leader, batch);
            state.silent_since = Some(now);
            state.patience = (state.patience * 2).min(PATIENCE_MAX);
        }
    }

    /// Handles answers, sends what they make room for, and returns the answered commands.
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
            if !answered.is_empty() {
                state.note_progress(courier.now());
            }
            state.update_held();
            self.send(&mut state, courier);
        }
        answered
    }

    /// Handles the end of a node's starts up to this one: its connection-bound queues have ended, so
    /// commands to them are answered with `Gone` (NAM 8). Nothing if there is a later start, which
    /// answers them: it has announced itself, or a message names one of its queues.
    pub(crate) fn ended(&self, courier: &impl Courier, start: StartNumber) -> Vec<Answered> {
        let mut answered = Vec::new();
        let mut state = self.state.lock();
        let is_last = state.leader.is_none_or(|(_, term)| term.0 <= start.0);
        if is_last && state.batches.end_all(start, &mut answered) {
            state.leader = None;
            state.arrivals.clear();
            state.note_progress(courier.now());
            state.update_held();
        }
        answered
    }

    /// Begins another session; commands of the old one are not answered (SES 6).
    pub(crate) fn restart(&self, session: SessionId) {
        let mut state = self.state.lock();
        let before = state.batches.session();
        assert!(before.start < session.start, "SES 1, 6: starts ascend: {before}, {session}");
        state.batches = Batches::new(session);
        state.update_held();
        state.arrivals.clear();
    }

    /// Sends everything that is to be sent, as far as the lane accepts it.
    fn send(&self, state: &mut State, courier: &impl Courier) {
        let Some((leader, _)) = state.leader else { return };
        loop {
            while let Some(batch) = state.batches.to_send() {
                match courier.carry(self.home, leader, batch) {
                    Sent::OnItsWay => state.batches.sent(),
                    Sent::Unreachable => return,
                    Sent::Full => {
                        if !std::mem::replace(&mut state.waits_for_room, true) {
                            courier.wait_for_room(self.home, leader);
                        }
                        return;
                    }
                }
            }
            let (now, (under_way, ahead)) = (courier.now(), state.batches.under_way());
            let load = state.batches.under_way_load();
            let count = match state.batches.has_settles() {
                true => UNDER_WAY_COUNT,
                false => UNDER_WAY_COUNT_ALONE,
            };
            let few = load.of_largest_queue().is_below(count, count * UNDER_WAY_SMALL_BYTES)
                && load.is_below(QUEUES_MAX * count, QUEUES_MAX * count * UNDER_WAY_SMALL_BYTES);
            let is_slow = state.cut_at.is_some_and(|at| now.duration_since(at) >= SLOW_ROUND);
            let may_follow = is_slow && load.count() < UNDER_WAY_COUNT;
            let most = if may_follow { UNDER_WAY_SLOW_MAX } else { UNDER_WAY_MAX };
            let has_room = under_way - ahead < most && few;
            let (batch, arrived) = if has_room && state.batches.waiting() > 0 {
                state.cut_at = Some(now);
                (state.batches.cut(), state.arrivals.pop_front())
            } else if ahead < AHEAD_MAX {
                (state.batches.cut_ahead(), None)
            } else {
                return;
            };
            let Some(batch) = batch else { return };
            courier.cut(batch, arrived.map(|it| now - it).unwrap_or_default());
            if under_way == 0 {
                state.note_progress(now);
            }
        }
    }
}
