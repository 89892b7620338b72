//! Reads a queue's messages on this node's replica, part by part. The machine is locked only for
//! what it has in memory, a bounded number of messages at a time; run heads are read from the disk
//! without it.
//!
//! If a queue has more than [`HELD_AT_ONCE`] unacked messages, these are looked at in several steps,
//! and one that changes hands between two of them may be missed.

use crate::{
    base::Base,
    views::browse::place::{Cursor, Position},
};
use quorate_queue::{
    HeldPlace, Letter, LevelLook, LookedAt, Machine, MessagePlace, MessageStore as _,
    QueuedMessage, RankPlace, RunHead, Standing, merge,
};
use quorate_raft::Group;
use quorate_storage::ReplicaStore;
use quorate_types::{
    Counts, Holder, Home, LetterNumber, Level, LogIndex, MessageId, QueueId, Timestamp,
};
use std::{collections::BTreeMap, sync::Arc};

/// Unacked messages that are looked at while the machine is locked.
const HELD_AT_ONCE: usize = 5_000;
/// Run heads in one read of the disk.
const RUNS_AT_ONCE: usize = 16;
/// Letters that are looked at while the machine is locked, when one is searched.
const LETTERS_AT_ONCE: usize = 2_048;
/// Fresh messages that are counted at most to find a rank.
const RANKS_MAX: u64 = 200_000;
/// Places of refused letters that a count passes over at most.
const REFUSED_MAX: usize = 10_000;

/// Why a queue cannot be looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookError {
    /// This node has no replica of it.
    #[error("this node has no replica of the queue")]
    NoReplica,
    /// This node's replica has no such queue (any more).
    #[error("the queue does not exist on this node")]
    NoQueue,
    /// No message is at that position.
    #[error("no message at position {0}")]
    NoMessage(String),
    /// The rank is too high to be counted.
    #[error("rank {0} is too high to be counted: name the message by its position")]
    RankTooHigh(u64),
    /// Too many others look at messages.
    #[error("too many requests look at messages of this node at present")]
    Busy,
    /// A read of the disk failed.
    #[error("{0}")]
    Store(String),
}

/// Where a message is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// It waits to be delivered.
    Ready,
    /// It was returned, and waits for its retry (RQU-08).
    Delayed {
        /// Until when, by the group's clock.
        until: Timestamp,
    },
    /// A consumer or a get has it.
    Unacked {
        /// Who has it.
        holder: Holder,
        /// Since when, by the group's clock; 0 if that is not known.
        since: Timestamp,
    },
    /// It has died, and waits for its targets; or it is delayed by an exchange.
    Letter(LetterNumber, Box<Letter>),
}

/// A message as the machine knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) id: MessageId,
    pub(crate) state: MessageState,
    pub(crate) counts: Counts,
    pub(crate) expiration_ms: Option<u64>,
    pub(crate) body_bytes: u32,
    /// When it was enqueued; not known of letters.
    pub(crate) enqueued_at: Option<Timestamp>,
}

impl Item {
    fn queued(LookedAt { queued, standing }: LookedAt) -> Self {
        let since = queued.unacked_since;
        let state = match standing {
            Standing::Ready => MessageState::Ready,
            Standing::Delayed(until) => MessageState::Delayed { until },
            Standing::Held(holder) => MessageState::Unacked { holder, since },
        };
        Self {
            id: queued.message,
            state,
            counts: queued.counts,
            expiration_ms: queued.head.expiration_ms,
            body_bytes: queued.head.body_bytes,
            enqueued_at: Some(queued.enqueued_at),
        }
    }

    fn letter(number: LetterNumber, letter: Letter) -> Self {
        Self {
            id: letter.message,
            counts: Counts::default(),
            expiration_ms: None,
            body_bytes: letter.body_bytes,
            enqueued_at: None,
            state: MessageState::Letter(number, Box::new(letter)),
        }
    }

    /// The cursor at this message.
    pub(crate) fn cursor(&self) -> Cursor {
        match &self.state {
            MessageState::Ready | MessageState::Delayed { .. } | MessageState::Unacked { .. } => {
                Cursor::Message(self.id)
            }
            MessageState::Letter(number, _) => Cursor::Letter(*number),
        }
    }
}

/// Some messages, and where those behind them begin; `None`: these were the last ones.
#[derive(Debug, Default)]
pub(crate) struct Items {
    pub(crate) items: Vec<Item>,
    pub(crate) next: Option<Cursor>,
}

/// How many ready messages are delivered before one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The number.
    pub messages: u64,
    /// They are more: only so many were counted.
    pub more: bool,
}

/// One queue, as this node's replica has it.
#[derive(Debug)]
pub(crate) struct Looker<'a> {
    base: &'a Base,
    queue: QueueId,
    group: Option<Arc<Group>>,
}

impl<'a> Looker<'a> {
    pub(crate) fn new(base: &'a Base, queue: QueueId) -> Result<Self, LookError> {
        let group = match queue.home {
            Home::Node(node) if node != base.context.me => return Err(LookError::NoReplica),
            Home::Node(_) => None,
            Home::Group(group) => Some(base.context.group(group).ok_or(LookError::NoReplica)?),
        };
        Ok(Self { base, queue, group })
    }

    pub(crate) fn machine<T>(&self, read: impl FnOnce(&Machine) -> T) -> Result<T, LookError> {
        let read = |machine: &Machine| machine.has_queue(self.queue).then(|| read(machine));
        self.base.led.with_machine(self.queue.home, read).flatten().ok_or(LookError::NoQueue)
    }

    /// The last entry that has been applied here. Read before the machine, which then has that entry.
    fn through(&self) -> LogIndex {
        match &self.group {
            Some(group) => group.applied().unwrap_or_default(),
            None => self.base.led.local.applied(),
        }
    }

    fn runs(
        &self,
        level: Level,
        (from, through): (LogIndex, LogIndex),
        limit: usize,
    ) -> Result<Vec<RunHead>, LookError> {
        if from > through {
            return Ok(Vec::new());
        }
        let read = match &self.group {
            Some(group) => {
                let store = ReplicaStore::new(group.store().clone());
                store.runs(self.queue, level, from, through, limit)
            }
            None => self.base.led.local.runs(self.queue, level, (from, through), limit),
        };
        read.map_err(|error| LookError::Store(error.to_string()))
    }

    /// The next messages from a cursor on, about `limit`.
    pub(crate) fn items(&self, from: Cursor, limit: usize) -> Result<Items, LookError> {
        match from {
            Cursor::Message(from) => self.level(from, limit),
            Cursor::Letter(from) => self.letters(from, limit),
        }
    }

    fn letters(&self, from: LetterNumber, limit: usize) -> Result<Items, LookError> {
        let letters = self.machine(|machine| machine.letters_from(self.queue, from, limit))?;
        let next = letters.last().filter(|_| letters.len() == limit);
        let next = next.map(|(last, _)| Cursor::Letter(LetterNumber(last.0.saturating_add(1))));
        let items = letters.into_iter().map(|(number, letter)| Item::letter(number, letter));
        Ok(Items { items: items.collect(), next })
    }

    fn level(&self, from: MessageId, limit: usize) -> Result<Items, LookError> {
        let through = self.through();
        let first = self.machine(|machine| {
            let look = machine.look(self.queue, from, limit)?;
            Some((look, machine.held(self.queue, None, HELD_AT_ONCE)))
        })?;
        let Some((look, held)) = first else {
            return Ok(Items { items: Vec::new(), next: Some(Cursor::Letter(LetterNumber(0))) });
        };
        let start =
            if look.level == from.level { (from.index, from.position) } else { (LogIndex(0), 0) };
        let mut nearest = Nearest::new((look.level, start), limit);
        self.hold(&mut nearest, held)?;
        let (held, held_to) = nearest.into_parts();
        let (fresh, fresh_to) = self.fresh(&look, through, limit)?;
        let part = merge(&look, (&held, held_to), (&fresh, fresh_to), limit);
        let items = part.messages.into_iter().map(Item::queued);
        let next = Some(Cursor::behind(look.level, part.next));
        Ok(Items { items: items.collect(), next })
    }

    /// Adds the unacked messages, of which the first ones have been read.
    fn hold(
        &self,
        nearest: &mut Nearest,
        mut held: Vec<(HeldPlace, QueuedMessage)>,
    ) -> Result<(), LookError> {
        loop {
            let last = held.last().map(|(place, _)| *place);
            let is_last = held.len() < HELD_AT_ONCE;
            held.into_iter().for_each(|(place, queued)| nearest.add(place, queued));
            if is_last {
                return Ok(());
            }
            held = self.machine(|machine| machine.held(self.queue, last, HELD_AT_ONCE))?;
        }
    }

    /// Fresh messages of a level, `limit` or a few more; and the place up to which they are complete,
    /// unless they are all.
    fn fresh(
        &self,
        look: &LevelLook,
        through: LogIndex,
        limit: usize,
    ) -> Result<(Vec<QueuedMessage>, Option<MessagePlace>), LookError> {
        let mut found = Vec::new();
        let Some((mut from, _)) = look.fresh_from else { return Ok((found, None)) };
        loop {
            let runs = self.runs(look.level, (from, through), RUNS_AT_ONCE)?;
            found.extend(runs.iter().flat_map(|run| look.fresh(run)));
            let Some(last) = runs.last().filter(|_| runs.len() == RUNS_AT_ONCE) else {
                return Ok((found, None));
            };
            from = last.index.next();
            if found.len() >= limit {
                return Ok((found, Some((last.index, u32::MAX))));
            }
        }
    }

    /// The message that a position names.
    pub(crate) fn find(&self, position: Position) -> Result<Item, LookError> {
        let none = |text: String| LookError::NoMessage(text);
        let at = self.cursor(position)?;
        let first = self.items(at, 1)?.items.into_iter().next();
        if let Some(first) = first.filter(|it| it.cursor() == at) {
            return Ok(first);
        }
        match at {
            Cursor::Letter(_) => Err(none(at.to_string())),
            Cursor::Message(id) => self.find_letter(id)?.ok_or_else(|| none(at.to_string())),
        }
    }

    /// The letter of a message. Letters are not indexed by it.
    fn find_letter(&self, id: MessageId) -> Result<Option<Item>, LookError> {
        let mut from = LetterNumber(0);
        loop {
            let Items { items, next } = self.letters(from, LETTERS_AT_ONCE)?;
            if let Some(found) = items.into_iter().find(|it| it.id == id) {
                return Ok(Some(found));
            }
            let Some(Cursor::Letter(next)) = next else { return Ok(None) };
            from = next;
        }
    }

    /// The cursor at a position.
    pub(crate) fn cursor(&self, position: Position) -> Result<Cursor, LookError> {
        let rank = match position {
            Position::At(cursor) => return Ok(cursor),
            Position::Rank(rank) => rank,
        };
        let through = self.through();
        let none = || LookError::NoMessage(rank.to_string());
        let found = self.machine(|machine| {
            let place = machine.rank_place(self.queue, rank)?;
            let RankPlace::Fresh { level, .. } = place else { return Some((place, None)) };
            Some((place, machine.look(self.queue, first_of(level), REFUSED_MAX)))
        })?;
        match found {
            None => Err(none()),
            Some((RankPlace::At(id), _)) => Ok(Cursor::Message(id)),
            Some((RankPlace::Fresh { .. }, None)) => Err(none()),
            Some((RankPlace::Fresh { before, .. }, Some(_))) if before >= RANKS_MAX => {
                Err(LookError::RankTooHigh(rank))
            }
            Some((RankPlace::Fresh { before, .. }, Some(look))) => {
                let mut left = before;
                let mut found = None;
                self.each_fresh(&look, through, |queued| {
                    let is_it = left == 0;
                    left = left.saturating_sub(1);
                    found = is_it.then_some(queued.message);
                    !is_it
                })?;
                found.map(Cursor::Message).ok_or_else(none)
            }
        }
    }

    /// The ready messages that are delivered before a ready one.
    pub(crate) fn ahead_of(&self, id: MessageId) -> Result<Ahead, LookError> {
        let through = self.through();
        let (before, look) = self.machine(|machine| {
            let before = machine.ready_before(self.queue, id);
            (before, machine.look(self.queue, first_of(id.level), REFUSED_MAX))
        })?;
        let (mut ahead, mut more) = (before, false);
        if let Some(look) = look.filter(|look| look.level == id.level) {
            let mut counted = 0;
            self.each_fresh(&look, through, |queued| {
                let goes_on = queued.message < id && counted < RANKS_MAX;
                more = counted == RANKS_MAX;
                counted += u64::from(goes_on);
                goes_on
            })?;
            ahead += counted;
        }
        Ok(Ahead { messages: ahead, more })
    }

    /// Calls `each` for fresh messages of a level, in order, until it returns false.
    fn each_fresh(
        &self,
        look: &LevelLook,
        through: LogIndex,
        mut each: impl FnMut(QueuedMessage) -> bool,
    ) -> Result<(), LookError> {
        let Some((mut from, _)) = look.fresh_from else { return Ok(()) };
        loop {
            let runs = self.runs(look.level, (from, through), RUNS_AT_ONCE)?;
            for queued in runs.iter().flat_map(|run| look.fresh(run)) {
                if !each(queued) {
                    return Ok(());
                }
            }
            let Some(last) = runs.last().filter(|_| runs.len() == RUNS_AT_ONCE) else {
                return Ok(());
            };
            from = last.index.next();
        }
    }
}

/// Before all messages of a level.
fn first_of(level: Level) -> MessageId {
    MessageId { level, index: LogIndex(0), position: 0 }
}

/// Unacked messages of one level from a place on: the nearest ones.
struct Nearest {
    level: Level,
    from: MessagePlace,
    limit: usize,
    found: BTreeMap<MessagePlace, (HeldPlace, QueuedMessage)>,
    is_cut: bool,
}

impl Nearest {
    fn new((level, from): (Level, MessagePlace), limit: usize) -> Self {
        Self { level, from, limit, found: BTreeMap::new(), is_cut: false }
    }

    fn add(&mut self, holder: HeldPlace, queued: QueuedMessage) {
        let place = (queued.message.index, queued.message.position);
        if queued.message.level != self.level || place < self.from {
            return;
        }
        self.found.insert(place, (holder, queued));
        if self.found.len() > self.limit {
            self.found.pop_last();
            self.is_cut = true;
        }
    }

    /// The messages, ascending, and the place up to which they are complete, unless they are all.
    fn into_parts(self) -> (Vec<(HeldPlace, QueuedMessage)>, Option<MessagePlace>) {
        let last = self.found.last_key_value().map(|(place, _)| *place);
        (self.found.into_values().collect(), last.filter(|_| self.is_cut))
    }
}
