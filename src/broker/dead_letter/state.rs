//! What the worker of one home remembers while this node leads it. Everything here is a hint: what
//! is owed follows from the state (STO 7).

use crate::memory::Held;
use bytes::Bytes;
use quorate_queue::{DeadLetter, LetterView, TargetView};
use quorate_storage::MessageRef;
use quorate_types::{
    CatalogIndex, LetterHome, LetterNumber, QueueId, ResourceName, Sequence, Term,
};
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

/// A proposal that has brought nothing for so long is made again.
const PROPOSAL_LOST: Duration = Duration::from_secs(1);

/// Transfers of a line that may be under way unanswered.
pub(crate) const LINE_MAX: u64 = 2_048;

/// Bytes of a line that may be under way unanswered: as many as a client's publishes may have. One
/// batch may always be.
const LINE_BYTES_MAX: usize = 16 << 20;

/// One home's.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) term: Term,
    /// Of each queue the first letter of the routing that was proposed last.
    proposed: BTreeMap<QueueId, (LetterNumber, CatalogIndex, Instant)>,
    /// By what kept letters were looked at last, and where to go on if not all could be looked at.
    kept: BTreeMap<QueueId, Look>,
    lines: BTreeMap<LetterHome, Line>,
    /// Room that targets have told of.
    told: BTreeMap<QueueId, u32>,
    retried: BTreeMap<QueueId, Instant>,
    /// A body that could not be read here, once it has come from elsewhere.
    fetched: Option<(MessageRef, Bytes)>,
    fetching: bool,
    /// What is under way, and what was fetched.
    held: Held,
}

/// A look at a queue's kept letters.
#[derive(Debug)]
struct Look {
    version: CatalogIndex,
    settings: Option<DeadLetter>,
    /// Those before this one have been looked at.
    next: LetterNumber,
}

/// How far a line has been sent.
#[derive(Debug)]
struct Line {
    through: Sequence,
    mark: Sequence,
    moved: Instant,
    /// Last number and bytes of each batch that is under way.
    batches: VecDeque<(Sequence, usize)>,
}

impl Line {
    fn bytes(&self) -> usize {
        self.batches.iter().map(|(_, bytes)| bytes).sum()
    }

    /// What was sent up to here has been answered.
    fn answered(&mut self, last: Sequence) {
        while self.batches.pop_front_if(|(through, _)| *through <= last).is_some() {}
    }
}

/// A queue with letters, and what is in force for them.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) queue: QueueId,
    pub(crate) name: ResourceName,
    pub(crate) settings: Option<DeadLetter>,
    pub(crate) letters: Vec<LetterView>,
    /// They are kept ones.
    pub(crate) kept: bool,
}

impl Worker {
    pub(crate) fn new(term: Term, held: Held) -> Self {
        Self {
            term,
            fetched: None,
            fetching: false,
            held,
            proposed: BTreeMap::new(),
            kept: BTreeMap::new(),
            lines: BTreeMap::new(),
            told: BTreeMap::new(),
            retried: BTreeMap::new(),
        }
    }

    /// Forgets queues without letters, and targets that letters are no longer for.
    pub(crate) fn forget_others(
        &mut self,
        has_letters: impl Fn(&QueueId) -> bool,
        is_target: impl Fn(&QueueId) -> bool,
    ) {
        self.proposed.retain(|queue, _| has_letters(queue));
        self.kept.retain(|queue, _| has_letters(queue));
        self.told.retain(|target, _| is_target(target));
        self.retried.retain(|target, _| is_target(target));
    }

    /// Whether the queue's first waiting letters may be routed now: one routing of a queue is
    /// under way at a time, so that order is kept (LET 6).
    pub(crate) fn may_route(&self, queue: QueueId, first: &LetterView, now: Instant) -> bool {
        self.proposed.get(&queue).is_none_or(|(number, after, at)| {
            (*number, *after) != (first.number, first.after)
                || now.duration_since(*at) > PROPOSAL_LOST
        })
    }

    pub(crate) fn routing_proposed(&mut self, queue: QueueId, first: &LetterView, now: Instant) {
        self.proposed.insert(queue, (first.number, first.after, now));
    }

    /// From where on a queue's kept letters are to be looked at: all, if something has changed since;
    /// otherwise those that have come since, which an older copy of the catalog may have kept.
    pub(crate) fn look_from(
        &self,
        queue: QueueId,
        version: CatalogIndex,
        settings: &Option<DeadLetter>,
    ) -> LetterNumber {
        match self.kept.get(&queue) {
            Some(look) if look.version == version && look.settings == *settings => look.next,
            Some(_) | None => LetterNumber(0),
        }
    }

    /// Those before `next` have been looked at.
    pub(crate) fn looked(
        &mut self,
        queue: QueueId,
        version: CatalogIndex,
        settings: Option<DeadLetter>,
        next: LetterNumber,
    ) {
        self.kept.insert(queue, Look { version, settings, next });
    }

    /// The number from which on a line is to be sent, if there is room in it. While the node's
    /// budget has no room, one batch at a time is under way in it.
    pub(crate) fn send_from(
        &mut self,
        line: LetterHome,
        mark: Sequence,
        has_room: bool,
        now: Instant,
    ) -> Option<Sequence> {
        let through = Sequence(mark.0 - 1);
        let begun = || Line { through, mark, moved: now, batches: VecDeque::new() };
        let state = self.lines.entry(line).or_insert_with(begun);
        if state.mark != mark {
            (state.mark, state.moved) = (mark, now);
            state.answered(through);
        } else if now.duration_since(state.moved) > PROPOSAL_LOST * 3 {
            // Nothing has been answered for long: what was sent is lost.
            *state = begun();
        }
        let from = Sequence(state.through.0.max(mark.0 - 1) + 1);
        let fits = state.batches.is_empty() || has_room && state.bytes() < LINE_BYTES_MAX;
        self.account();
        (fits && from.0 - mark.0 < LINE_MAX).then_some(from)
    }

    pub(crate) fn sent(&mut self, line: LetterHome, through: Sequence, bytes: usize) {
        if let Some(state) = self.lines.get_mut(&line) {
            state.through = through;
            state.batches.push_back((through, bytes));
            self.account();
        }
    }

    /// Transfers up to `last` have been answered: others may follow.
    pub(crate) fn answered(&mut self, line: LetterHome, last: Sequence) {
        if let Some(state) = self.lines.get_mut(&line) {
            state.answered(last);
            self.account();
        }
    }

    /// The line is sent again from there on (SES 5).
    pub(crate) fn send_again(&mut self, line: LetterHome, from: Sequence) {
        if let Some(state) = self.lines.get_mut(&line) {
            state.through = Sequence(state.through.0.min(from.0.saturating_sub(1)));
            state.batches.retain(|(through, _)| *through < from);
            self.account();
        }
    }

    /// A body is to be fetched; false while another one is.
    pub(crate) fn begin_fetch(&mut self) -> bool {
        !std::mem::replace(&mut self.fetching, true)
    }

    /// It has been fetched, or cannot be had, by the worker of that term.
    pub(crate) fn fetched(&mut self, term: Term, wanted: MessageRef, body: Option<Bytes>) {
        if self.term == term {
            self.fetching = false;
            self.fetched = body.map(|body| (wanted, body));
            self.account();
        }
    }

    /// The body that was fetched last, if it is this one. It stays: the letter may be looked at by a
    /// fresh copy of the catalog next, and is sent after that.
    pub(crate) fn body_fetched(&self, wanted: MessageRef) -> Option<Bytes> {
        self.fetched.as_ref().filter(|(of, _)| *of == wanted).map(|(_, body)| body.clone())
    }

    fn account(&mut self) {
        let under_way: usize = self.lines.values().map(Line::bytes).sum();
        let fetched = self.fetched.as_ref().map_or(0, |(_, body)| body.len());
        self.held.set((under_way + fetched) as u64);
    }

    /// Every line to this home is sent again.
    pub(crate) fn send_all_again(&mut self, home: quorate_types::Home) {
        self.lines.retain(|line, _| line.home() != home);
        self.account();
    }

    /// A target has told of room (LET 3).
    pub(crate) fn told(&mut self, target: QueueId, messages: u32) {
        self.told.insert(target, messages);
    }

    /// How many of what waits for a target are to be sent again now, if any.
    pub(crate) fn retry(&mut self, target: &TargetView, ended: bool, now: Instant) -> Option<u32> {
        if target.under_way > 0 || target.waits == 0 {
            self.retried.remove(&target.target);
            return None;
        }
        let just = self.retried.get(&target.target);
        if just.is_some_and(|at| now.duration_since(*at) < PROPOSAL_LOST) {
            return None;
        }
        let count = match self.told.remove(&target.target) {
            _ if ended || !target.refused => quorate_queue::RETRY_MAX,
            Some(messages) => messages.min(quorate_queue::RETRY_MAX),
            None => return None,
        };
        self.retried.insert(target.target, now);
        Some(count)
    }
}

#[cfg(test)]
mod tests;
