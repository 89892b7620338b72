//! The decisions of the dead-letter worker of one home, while its node leads that home: which
//! letters are routed and where they are sent, which transfers are sent again, which full targets
//! are tried again, and which command an answer becomes (LET 1 to 5). Its driver
//! (`broker/leader/dead_letter`) reads the catalog and the bodies, proposes and sends.
//!
//! A worker's memory contains only hints; its duties follow from the state (STO 7). Its time is the
//! duration since any fixed moment.

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

/// Maximum of letters of one queue that one command routes.
const ROUTE_MAX: usize = 512;

/// Maximum of transfers in one batch.
const SEND_MAX: usize = 256;

/// Letters of one queue that wait to be routed, and the settings in force for them.
#[derive(Clone, Debug)]
pub struct Unrouted {
    /// Queue in which the letters died.
    pub queue: QueueId,
    /// That queue's name.
    pub name: ResourceName,
    /// Its dead-letter settings.
    pub settings: Option<DeadLetter>,
    /// The letters, ascending.
    pub letters: Vec<LetterView>,
    /// True if the letters are kept as unroutable; they may have a route by now.
    pub kept: bool,
}

/// Where a letter is routed by a copy of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// These queues.
    Targets(Vec<QueueId>),
    /// No destination: no exchange, or no route.
    Nothing,
    /// A delayed exchange on the path has no queue yet (EXC-17).
    NotYet,
    /// The letter has died in all queues that it would be routed to (DLX-28, Q-44).
    Cycle,
}

impl Unrouted {
    /// The first letters of a queue from a number on: waiting ones, or with `kept` the kept ones.
    #[must_use]
    pub fn of(machine: &Machine, queue: QueueId, kept: bool, from: LetterNumber) -> Option<Self> {
        let (name, settings) = machine.letter_settings(queue)?;
        let letters = machine.unrouted(queue, kept, from, ROUTE_MAX);
        (!letters.is_empty()).then_some(Self { queue, name, settings, letters, kept })
    }

    /// Routes the letters by a copy of the catalog of that version. Returns the command that
    /// commits the routing, and the letters without a route by that copy: they must be routed again
    /// by a `fresh` copy, which decides whether they are kept or dropped (LET 5).
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
        for (place, letter) in self.letters.iter().enumerate() {
            let found = match self.settings {
                Some(_) => find(letter, &via),
                None => Destination::Nothing,
            };
            // A letter whose targets had ended waits until the copy contains those ends (LET 4). Ends of
            // queues without an entry are in no copy: without other targets it does not wait.
            if letter.after >= version && found != Destination::Nothing {
                break;
            }
            match self.fate(found, fresh) {
                Some(routes) => add(&mut letters, letter.number, routes),
                None if self.kept => {}
                None => {
                    // The order is preserved: the letters behind wait for the fresh copy too.
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

    /// The result for a letter; `None`: a fresh copy must decide, or the letter stays kept.
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

/// Appends a letter; joins consecutive letters with equal routes.
fn add(routed: &mut Vec<RoutedLetters>, number: LetterNumber, routes: Routes) {
    match routed.last_mut() {
        Some(last) if last.last.0 + 1 == number.0 && last.routes == routes => last.last = number,
        Some(_) | None => routed.push(RoutedLetters { first: number, last: number, routes }),
    }
}

/// The queues, targets and streams that the letters of a home refer to at present.
#[derive(Clone, Debug, Default)]
pub struct LiveLetters {
    /// Queues with waiting or kept letters.
    pub queues: BTreeSet<QueueId>,
    /// Targets of letters.
    pub targets: BTreeSet<QueueId>,
    /// Streams with transfers in flight.
    pub streams: BTreeSet<LetterHome>,
}

impl LiveLetters {
    /// Collects them from the machine, and adds the queues that have kept letters.
    #[must_use]
    pub fn of(machine: &Machine, kept: impl IntoIterator<Item = QueueId>) -> Self {
        Self {
            queues: machine.queues_with_letters().chain(kept).collect(),
            targets: machine.targets().map(|target| target.target).collect(),
            streams: machine.streams().collect(),
        }
    }
}

/// Whether the target of letters has ended (LET 3, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// It has an entry in the catalog.
    Lives,
    /// Only its node knows: a queue with a server-given name has no entry (NAM 8).
    Unknown,
    /// It has ended.
    Ended,
}

/// The memory of the worker of one home.
#[derive(Debug, Default)]
pub struct LetterWorker {
    /// For each queue the first letter of its last proposed routing.
    proposed: BTreeMap<QueueId, (LetterNumber, CatalogIndex, Duration)>,
    kept: BTreeMap<QueueId, LastCheck>,
    streams: BTreeMap<LetterHome, Stream>,
    /// Room that targets have reported.
    room: BTreeMap<QueueId, u32>,
    retried: BTreeMap<QueueId, Duration>,
    /// When targets that may have ended were asked last.
    asked: BTreeMap<QueueId, Duration>,
}

/// The last check of a queue's kept letters.
#[derive(Debug)]
struct LastCheck {
    version: CatalogIndex,
    settings: Option<DeadLetter>,
    /// The letters before this one have been checked.
    next: LetterNumber,
}

/// The progress of a stream.
#[derive(Debug)]
struct Stream {
    through: Sequence,
    mark: Sequence,
    moved: Duration,
    /// Last number and bytes of each batch in flight.
    batches: VecDeque<(Sequence, usize)>,
}

impl Stream {
    fn bytes(&self) -> usize {
        self.batches.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Removes the batches that are answered up to `last`.
    fn answered(&mut self, last: Sequence) {
        while self.batches.pop_front_if(|(through, _)| *through <= last).is_some() {}
    }
}

impl LetterWorker {
    /// A proposal without an effect within this time is repeated.
    pub const PROPOSAL_LOST: Duration = Duration::from_secs(1);
    /// How often a full target is asked that may have ended.
    pub const ASK_AGAIN: Duration = Duration::from_secs(5);
    /// Maximum of unanswered transfers of a stream.
    pub const STREAM_MAX: u64 = 2_048;
    /// Maximum of bytes of unanswered transfers of a stream, the same as for a client's publishes.
    /// One batch is always allowed.
    pub const STREAM_BYTES_MAX: usize = 16 << 20;

    /// Forgets queues without letters, former targets, and streams without transfers in flight.
    pub fn forget_done(&mut self, live: &LiveLetters) {
        self.proposed.retain(|queue, _| live.queues.contains(queue));
        self.kept.retain(|queue, _| live.queues.contains(queue));
        self.streams.retain(|stream, _| live.streams.contains(stream));
        self.room.retain(|target, _| live.targets.contains(target));
        self.retried.retain(|target, _| live.targets.contains(target));
        self.asked.retain(|target, _| live.targets.contains(target));
    }

    /// True if the letters may be routed now: a queue has one routing of waiting letters in flight
    /// at a time, so that the order is preserved (LET 6).
    #[must_use]
    pub fn may_route(&self, unrouted: &Unrouted, now: Duration) -> bool {
        let Some(first) = unrouted.letters.first() else { return false };
        self.proposed.get(&unrouted.queue).is_none_or(|(number, after, at)| {
            (*number, *after) != (first.number, first.after)
                || now.saturating_sub(*at) > Self::PROPOSAL_LOST
        })
    }

    /// Records that a routing of these letters was proposed.
    pub fn routing_proposed(&mut self, unrouted: &Unrouted, now: Duration) {
        if let Some(first) = unrouted.letters.first().filter(|_| !unrouted.kept) {
            self.proposed.insert(unrouted.queue, (first.number, first.after, now));
        }
    }

    /// The kept letter of a queue from which the next check begins: the first, if catalog or
    /// settings have changed since the last check; otherwise the first that was kept since, perhaps
    /// by an older copy of the catalog.
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

    /// Records that the kept letters before `next` have been checked.
    pub fn checked(
        &mut self,
        queue: QueueId,
        version: CatalogIndex,
        settings: Option<DeadLetter>,
        next: LetterNumber,
    ) {
        self.kept.insert(queue, LastCheck { version, settings, next });
    }

    /// The number from which a stream is to be sent, if it has room. While the node's budget has no
    /// room, only one batch at a time is in flight.
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
            // No transfer was answered for a long time: those that were sent are taken for lost.
            *state = begun();
        }
        let from = Sequence(state.through.0.max(mark.0 - 1) + 1);
        let has_room = has_room && state.bytes() < Self::STREAM_BYTES_MAX;
        let fits = state.batches.is_empty() || has_room;
        (fits && from.0 - mark.0 < Self::STREAM_MAX).then_some(from)
    }

    /// The transfers of a stream with consecutive numbers from `from` on, as many as one batch
    /// takes.
    #[must_use]
    pub fn batch(machine: &Machine, stream: LetterHome, from: Sequence) -> Vec<TransferView> {
        let mut transfers = machine.transfers(stream, from, SEND_MAX);
        if let Some(first) = transfers.first().map(|it| it.number.0) {
            let neighbours = transfers.iter().zip(first..).take_while(|(it, n)| it.number.0 == *n);
            transfers.truncate(neighbours.count());
        }
        transfers
    }

    /// Records that a batch up to the transfer `through` was sent.
    pub fn sent(&mut self, stream: LetterHome, through: Sequence, bytes: usize) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.through = through;
            state.batches.push_back((through, bytes));
        }
    }

    /// Makes the stream be sent again from a number on (SES 5).
    pub fn send_again(&mut self, stream: LetterHome, from: Sequence) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.through = Sequence(state.through.0.min(from.0.saturating_sub(1)));
            state.batches.retain(|(through, _)| *through < from);
        }
    }

    /// Makes every stream to this home be sent again.
    pub fn send_all_again(&mut self, home: Home) {
        self.streams.retain(|stream, _| stream.home() != home);
    }

    /// A target's home has answered: transfers may follow the answered ones, and those that the
    /// home lacks are sent again.
    pub fn answered(&mut self, answer: &Answer) {
        if let Answer::Transferred { by, last, .. } = answer {
            if let Some(state) = self.streams.get_mut(by) {
                state.answered(*last);
            }
        } else if let Answer::TransfersWanted { by, want, .. } = answer {
            self.send_again(*by, *want);
        }
    }

    /// The command that commits an answer to transfers (LET 2).
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

    /// The start at the other end of the stream is fenced, and its queues have ended: the command
    /// that answers all transfers in flight to it (LET 4).
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

    /// Bytes of all transfers in flight.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.streams.values().map(Stream::bytes).sum()
    }

    /// A target has reported room (LET 3).
    pub fn room_reported(&mut self, target: QueueId, messages: u32) {
        self.room.insert(target, messages);
    }

    /// The command that sends again the transfers that wait for a target, if it is to be tried now:
    /// the target has reported room, or has not refused the attempt, or has ended (LET 3, 4). One that may
    /// have ended without a report is sent one letter from time to time.
    #[must_use]
    pub fn retry(
        &mut self,
        view: &TargetView,
        state: TargetState,
        now: Duration,
    ) -> Option<Command> {
        let target = view.target;
        if view.under_way > 0 || view.waits == 0 {
            self.retried.remove(&target);
            return None;
        }
        let passed =
            |since: Option<&Duration>, time| since.is_none_or(|at| now.saturating_sub(*at) >= time);
        if !passed(self.retried.get(&target), Self::PROPOSAL_LOST) {
            return None;
        }
        let count = match (self.room.remove(&target), state) {
            (_, TargetState::Ended) => RETRY_MAX,
            _ if !view.refused => RETRY_MAX,
            (Some(messages), _) => messages.min(RETRY_MAX),
            (None, TargetState::Unknown) if passed(self.asked.get(&target), Self::ASK_AGAIN) => 1,
            (None, TargetState::Unknown | TargetState::Lives) => return None,
        };
        if state == TargetState::Unknown {
            self.asked.insert(target, now);
        }
        self.retried.insert(target, now);
        Some(Command::Retry { target, count })
    }
}
