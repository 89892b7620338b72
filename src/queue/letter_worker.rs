//! What the dead-letter worker of one home decides while its node leads that home: which letters are
//! routed and where they go, what is sent and sent again, which full targets are tried again, what
//! an answer is proposed as (LET 1 to 5). Its driver (`broker/leader/dead_letter`) reads the catalog and
//! the bodies, proposes and sends.
//!
//! Everything that a worker remembers is a hint; what is owed follows from the state (STO 7). Its
//! time is counted from any fixed moment.

use crate::{
    command::{Command, RoutedLetters, Routes, TransferAnswer},
    config::DeadLetter,
    letter::Via,
    letter_view::{LetterView, TargetView, TransferView},
    machine::Machine,
    outbox::RETRY_MAX,
    output::Answer,
};
use quorate_types::{
    CatalogIndex, Home, LetterHome, LetterNumber, QueueId, ResourceName, Sequence, ShortString,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// Letters of one queue that are routed by one command.
const ROUTE_MAX: usize = 512;

/// Transfers of one batch.
const SEND_MAX: usize = 256;

/// Letters of one queue that are to be routed, and what is in force for them.
#[derive(Clone, Debug)]
pub struct Unrouted {
    /// Queue that they died in.
    pub queue: QueueId,
    /// That queue's name.
    pub name: ResourceName,
    /// Its dead-letter settings.
    pub settings: Option<DeadLetter>,
    /// The letters, ascending.
    pub letters: Vec<LetterView>,
    /// They are kept as unroutable, and may have got a route since.
    pub kept: bool,
}

/// Where a letter goes by a copy of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// These queues take it.
    Targets(Vec<QueueId>),
    /// Nothing takes it: no exchange, no route.
    Nothing,
    /// A delayed exchange on the way has not got its queue yet (EXC-17).
    NotYet,
    /// All that would take it are queues that it has died in (DLX-28, Q-44).
    Cycle,
}

impl Unrouted {
    /// The first letters of a queue from a number on: those that wait, or with `kept` those kept.
    #[must_use]
    pub fn of(machine: &Machine, queue: QueueId, kept: bool, from: LetterNumber) -> Option<Self> {
        let (name, settings) = machine.letter_settings(queue)?;
        let letters = machine.unrouted(queue, kept, from, ROUTE_MAX);
        (!letters.is_empty()).then_some(Self { queue, name, settings, letters, kept })
    }

    /// Routes the letters by a copy of the catalog of that version. Gives the command that commits
    /// the routing, and the letters that nothing takes by that copy: they are to be routed by a
    /// `fresh` one, by which they are kept or dropped (LET 5).
    #[must_use]
    pub fn route(
        &self,
        version: CatalogIndex,
        fresh: bool,
        mut find: impl FnMut(&LetterView, &Via) -> Destination,
    ) -> (Option<Command>, Option<Self>) {
        let via = match &self.settings {
            Some(DeadLetter { exchange, routing_key, .. }) => {
                Via { exchange: exchange.clone(), routing_key: routing_key.clone() }
            }
            None if !fresh => return (None, Some(self.clone())),
            None => Via { exchange: ShortString::default(), routing_key: None },
        };
        let (mut letters, mut left) = (Vec::new(), None);
        // Those whose targets had ended wait until the copy knows of that (LET 4).
        let routable = self.letters.iter().take_while(|letter| letter.after < version);
        for (place, letter) in routable.enumerate() {
            let found = match self.settings {
                Some(_) => find(letter, &via),
                None => Destination::Nothing,
            };
            match self.fate(found, fresh) {
                Some(routes) => add(&mut letters, letter.number, routes),
                None if self.kept => {}
                None => {
                    // Order is kept: those behind it wait for the fresh copy too.
                    left = self.letters.get(place..).filter(|_| !fresh);
                    break;
                }
            }
        }
        let (queue, at) = (self.queue, version);
        let routed = (!letters.is_empty()).then_some(Command::Routed { queue, at, via, letters });
        let left = left.map(|letters| Self { letters: letters.to_vec(), ..self.clone() });
        (routed, left)
    }

    /// What becomes of a letter; `None`: it needs a fresh copy to be decided, or is kept on.
    fn fate(&self, found: Destination, fresh: bool) -> Option<Routes> {
        match found {
            Destination::Targets(targets) => Some(Routes::To(targets)),
            Destination::NotYet => None,
            Destination::Nothing | Destination::Cycle if !fresh => None,
            Destination::Cycle => Some(Routes::Cycle),
            Destination::Nothing => match &self.settings {
                Some(settings) if settings.at_least_once => Some(Routes::Keep),
                Some(_) | None => Some(Routes::Drop),
            },
        }
    }
}

/// Joins letters that are routed alike.
fn add(routed: &mut Vec<RoutedLetters>, number: LetterNumber, routes: Routes) {
    match routed.last_mut() {
        Some(last) if last.last.0 + 1 == number.0 && last.routes == routes => last.last = number,
        Some(_) | None => routed.push(RoutedLetters { first: number, last: number, routes }),
    }
}

/// What the letters of a home are of, for, and under way in.
#[derive(Clone, Debug, Default)]
pub struct LiveLetters {
    /// Queues with letters that wait or are kept.
    pub queues: BTreeSet<QueueId>,
    /// Targets that letters are for.
    pub targets: BTreeSet<QueueId>,
    /// Streams with transfers under way.
    pub streams: BTreeSet<LetterHome>,
}

impl LiveLetters {
    /// The present ones.
    #[must_use]
    pub fn of(machine: &Machine) -> Self {
        Self {
            queues: machine.queues_with_letters().chain(machine.queues_with_kept()).collect(),
            targets: machine.targets().map(|target| target.target).collect(),
            streams: machine.streams().collect(),
        }
    }
}

/// What the worker of one home remembers.
#[derive(Debug, Default)]
pub struct LetterWorker {
    /// Of each queue the first letter of the routing that was proposed last.
    proposed: BTreeMap<QueueId, (LetterNumber, CatalogIndex, Duration)>,
    kept: BTreeMap<QueueId, LastCheck>,
    streams: BTreeMap<LetterHome, Stream>,
    /// Room that targets have told of.
    room: BTreeMap<QueueId, u32>,
    retried: BTreeMap<QueueId, Duration>,
}

/// The last look at a queue's kept letters.
#[derive(Debug)]
struct LastCheck {
    version: CatalogIndex,
    settings: Option<DeadLetter>,
    /// Those before this one have been looked at.
    next: LetterNumber,
}

/// How far a stream has been sent.
#[derive(Debug)]
struct Stream {
    through: Sequence,
    mark: Sequence,
    moved: Duration,
    /// Last number and bytes of each batch that is under way.
    batches: VecDeque<(Sequence, usize)>,
}

impl Stream {
    fn bytes(&self) -> usize {
        self.batches.iter().map(|(_, bytes)| bytes).sum()
    }

    /// What was sent up to here has been answered.
    fn answered(&mut self, last: Sequence) {
        while self.batches.pop_front_if(|(through, _)| *through <= last).is_some() {}
    }
}

impl LetterWorker {
    /// A proposal that has brought nothing for so long is made again.
    pub const PROPOSAL_LOST: Duration = Duration::from_secs(1);
    /// Transfers of a stream that may be under way unanswered.
    pub const STREAM_MAX: u64 = 2_048;
    /// Bytes of a stream that may be under way unanswered: as many as a client's publishes may have.
    /// One batch may always be.
    pub const STREAM_BYTES_MAX: usize = 16 << 20;

    /// Forgets queues without letters, targets that letters are no longer for, and streams with nothing
    /// under way.
    pub fn forget_done(&mut self, live: &LiveLetters) {
        self.proposed.retain(|queue, _| live.queues.contains(queue));
        self.kept.retain(|queue, _| live.queues.contains(queue));
        self.streams.retain(|stream, _| live.streams.contains(stream));
        self.room.retain(|target, _| live.targets.contains(target));
        self.retried.retain(|target, _| live.targets.contains(target));
    }

    /// Whether the letters may be routed now: one routing of a queue's waiting letters is under way
    /// at a time, so that order is kept (LET 6).
    #[must_use]
    pub fn may_route(&self, unrouted: &Unrouted, now: Duration) -> bool {
        let Some(first) = unrouted.letters.first() else { return false };
        self.proposed.get(&unrouted.queue).is_none_or(|(number, after, at)| {
            (*number, *after) != (first.number, first.after)
                || now.saturating_sub(*at) > Self::PROPOSAL_LOST
        })
    }

    /// A routing of these letters has been proposed.
    pub fn routing_proposed(&mut self, unrouted: &Unrouted, now: Duration) {
        if let Some(first) = unrouted.letters.first().filter(|_| !unrouted.kept) {
            self.proposed.insert(unrouted.queue, (first.number, first.after, now));
        }
    }

    /// From where on a queue's kept letters are to be looked at: all, if something has changed since;
    /// otherwise those that have come since, which an older copy of the catalog may have kept.
    #[must_use]
    pub fn check_from(
        &self,
        queue: QueueId,
        version: CatalogIndex,
        settings: &Option<DeadLetter>,
    ) -> LetterNumber {
        match self.kept.get(&queue) {
            Some(last) if last.version == version && last.settings == *settings => last.next,
            Some(_) | None => LetterNumber(0),
        }
    }

    /// Those before `next` have been looked at.
    pub fn checked(
        &mut self,
        queue: QueueId,
        version: CatalogIndex,
        settings: Option<DeadLetter>,
        next: LetterNumber,
    ) {
        self.kept.insert(queue, LastCheck { version, settings, next });
    }

    /// The number from which on a stream is to be sent, if there is room in it. While the node's
    /// budget has no room, one batch at a time is under way in it.
    #[must_use]
    pub fn send_from(
        &mut self,
        stream: LetterHome,
        mark: Sequence,
        has_room: bool,
        now: Duration,
    ) -> Option<Sequence> {
        let through = Sequence(mark.0 - 1);
        let begun = || Stream { through, mark, moved: now, batches: VecDeque::new() };
        let state = self.streams.entry(stream).or_insert_with(begun);
        if state.mark != mark {
            (state.mark, state.moved) = (mark, now);
            state.answered(through);
        } else if now.saturating_sub(state.moved) > Self::PROPOSAL_LOST * 3 {
            // Nothing has been answered for long: what was sent is lost.
            *state = begun();
        }
        let from = Sequence(state.through.0.max(mark.0 - 1) + 1);
        let has_room = has_room && state.bytes() < Self::STREAM_BYTES_MAX;
        let fits = state.batches.is_empty() || has_room;
        (fits && from.0 - mark.0 < Self::STREAM_MAX).then_some(from)
    }

    /// The transfers of a stream with neighbouring numbers from `from` on: the most that one batch takes.
    #[must_use]
    pub fn batch(machine: &Machine, stream: LetterHome, from: Sequence) -> Vec<TransferView> {
        let mut transfers = machine.transfers(stream, from, SEND_MAX);
        if let Some(first) = transfers.first().map(|it| it.number.0) {
            let neighbours = transfers.iter().zip(first..).take_while(|(it, n)| it.number.0 == *n);
            transfers.truncate(neighbours.count());
        }
        transfers
    }

    /// A batch has been sent that ends with the transfer `through`.
    pub fn sent(&mut self, stream: LetterHome, through: Sequence, bytes: usize) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.through = through;
            state.batches.push_back((through, bytes));
        }
    }

    /// The stream is sent again from there on (SES 5).
    pub fn send_again(&mut self, stream: LetterHome, from: Sequence) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.through = Sequence(state.through.0.min(from.0.saturating_sub(1)));
            state.batches.retain(|(through, _)| *through < from);
        }
    }

    /// Every stream to this home is sent again.
    pub fn send_all_again(&mut self, home: Home) {
        self.streams.retain(|stream, _| stream.home() != home);
    }

    /// A target's home has answered: more transfers may follow those that are answered, and those
    /// that it lacks are sent again.
    pub fn answered(&mut self, answer: &Answer) {
        if let Answer::Transferred { by, last, .. } = answer {
            if let Some(state) = self.streams.get_mut(by) {
                state.answered(*last);
            }
        } else if let Answer::TransfersWanted { by, want, .. } = answer {
            self.send_again(*by, *want);
        }
    }

    /// The command that commits answers to transfers (LET 2).
    #[must_use]
    pub fn commit(answer: Answer) -> Option<Command> {
        match answer {
            Answer::Transferred { by, first, last, other, .. } => {
                Some(Command::DeadLettered { stream: by, first, last, other })
            }
            Answer::Answered { .. }
            | Answer::Want { .. }
            | Answer::Fenced { .. }
            | Answer::TransfersWanted { .. } => None,
        }
    }

    /// The start at the end of the stream is over, and its queues have ended: the command that answers
    /// all that is under way there (LET 4).
    #[must_use]
    pub fn end_stream(machine: &Machine, stream: LetterHome) -> Option<Command> {
        let first = machine.stream_mark(stream);
        let limit = usize::try_from(Self::STREAM_MAX).unwrap_or(usize::MAX);
        let transfers = machine.transfers(stream, first, limit);
        let gone = |it: &TransferView| (it.number, TransferAnswer::Gone);
        let other: Vec<_> = transfers.iter().map(gone).collect();
        let (last, _) = *other.last()?;
        Some(Command::DeadLettered { stream, first, last, other })
    }

    /// Bytes of all that is under way.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.streams.values().map(Stream::bytes).sum()
    }

    /// A target has told of room (LET 3).
    pub fn room_reported(&mut self, target: QueueId, messages: u32) {
        self.room.insert(target, messages);
    }

    /// The command that sends again what waits for a target, if it is to be tried now: it has told of
    /// room, or was not refused, or has `ended` (LET 3, 4).
    #[must_use]
    pub fn retry(&mut self, view: &TargetView, ended: bool, now: Duration) -> Option<Command> {
        let target = view.target;
        if view.under_way > 0 || view.waits == 0 {
            self.retried.remove(&target);
            return None;
        }
        let just = self.retried.get(&target);
        if just.is_some_and(|at| now.saturating_sub(*at) < Self::PROPOSAL_LOST) {
            return None;
        }
        let count = match self.room.remove(&target) {
            _ if ended || !view.refused => RETRY_MAX,
            Some(messages) => messages.min(RETRY_MAX),
            None => return None,
        };
        self.retried.insert(target, now);
        Some(Command::Retry { target, count })
    }
}
