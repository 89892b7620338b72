//! One priority level of a queue: its ready messages, in order. These are the requeued messages,
//! each at its old position, and the *fresh* range from the head on, whose messages were never
//! assigned.
//!
//! The fresh range is a cursor and two counts. A *window* holds the heads of its first messages. It
//! is a cache: not part of the state, never hashed, and without effect on the output. A queue that
//! is emptied as fast as it is filled is served from the window alone. Messages that do not fit are
//! counted, and read from the [`crate::MessageStore`] when they are due.

mod oldest;

use crate::{
    apply::Apply,
    command::MessageHead,
    record::{LevelRecord, QueuedMessage, RequeuedRecord},
    refused_letters::RefusedLetters,
    retries::Retries,
    store::{RunHead, StoreError},
    sweep::Living,
};
use quorate_types::{Level, LogIndex, MessageId, QueueId, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// Window size up to which a queue with consumers adds new runs to the window.
const WINDOW_SERVED: usize = 2_048;
/// The same for a queue without consumers: many such queues may have a backlog at the same time.
const WINDOW_IDLE: usize = 32;
/// Number of runs that the first read of a refill requests, and maximum of one read.
const RUNS_FIRST: usize = 16;
const RUNS_MAX: usize = 256;

/// The ready messages of one priority level, oldest first.
#[derive(Debug, Default)]
pub(crate) struct LevelState {
    pub(crate) record: LevelRecord,
    pub(crate) requeued: BTreeMap<(LogIndex, u32), QueuedMessage>,
    pub(crate) requeued_bytes: u64,
    /// Requeued messages with an `expiration` of their own.
    pub(crate) requeued_expiring: u64,
    pub(crate) requeued_changed: bool,
    /// Returned messages that wait (RQU-08).
    pub(crate) delayed: Retries,
    pub(crate) living: Living,
    pub(crate) refused_letters: RefusedLetters,
    /// Heads of the first fresh messages, whole runs, without gaps.
    window: VecDeque<QueuedMessage>,
    /// The first fresh message, while the window is empty; also a cache.
    first: Option<QueuedMessage>,
    /// Parts of this entry's run that were not added to the window.
    late: Vec<Part>,
    /// Position after the last message that this entry enqueued in this level; 0 if there is none.
    entry_end: u32,
    /// This entry has added messages to the window.
    appended: bool,
    /// When the fresh message before the head was enqueued, or after a start the one at the head; for lists
    /// only, and unknown if it could not be read.
    passed: Option<Timestamp>,
}

/// Part of a run of the entry being applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) run: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// A level's queue and number, for reads and errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) queue: QueueId,
    pub(crate) level: Level,
    /// The queue has consumers.
    pub(crate) served: bool,
}

impl LevelState {
    /// A level whose first message will have the log index `index`.
    pub(crate) fn starting_at(index: LogIndex) -> Self {
        Self { record: LevelRecord::starting_at(index), ..Self::default() }
    }

    /// A level from its record; `living` is counted from the requeued and unacked messages.
    pub(crate) fn stored(record: LevelRecord) -> Self {
        Self { record, ..Self::default() }
    }

    pub(crate) fn ready(&self) -> u64 {
        self.record.fresh + self.requeued.len() as u64
    }

    pub(crate) fn ready_bytes(&self) -> u64 {
        self.record.fresh_bytes + self.requeued_bytes
    }

    /// True if a ready message has an `expiration` of its own.
    pub(crate) fn has_expiring(&self) -> bool {
        self.record.fresh_expiring + self.requeued_expiring > 0
    }

    pub(crate) fn requeued_record(&self) -> Option<RequeuedRecord> {
        (!self.requeued.is_empty()).then(|| RequeuedRecord { messages: self.requeued.clone() })
    }

    /// Appends a part of this entry's run. Returns the number of bytes of its bodies.
    pub(crate) fn append(
        &mut self,
        place: Place,
        part: Part,
        messages: &[MessageHead],
        apply: &Apply<'_>,
    ) -> u64 {
        debug_assert!(part.first >= self.entry_end, "enqueues of a run out of order");
        let bytes = messages.iter().map(|head| u64::from(head.body_bytes)).sum();
        let expiring = messages.iter().filter(|head| head.expiration_ms.is_some()).count();
        if self.fits(place.served, apply.index) {
            self.put(place.level, apply.index, apply.stamped, part.first, messages);
            self.appended = true;
        } else {
            self.late.push(part);
        }
        self.entry_end = part.first + part.count;
        self.record.fresh += u64::from(part.count);
        self.record.fresh_bytes += bytes;
        self.record.fresh_expiring += expiring as u64;
        bytes
    }

    /// Keeps refused messages of this entry's run at their position for their letters; they are
    /// never ready (LEN-12).
    pub(crate) fn keep_refused(
        &mut self,
        level: Level,
        part: Part,
        messages: &[MessageHead],
        apply: &Apply<'_>,
    ) -> Vec<QueuedMessage> {
        debug_assert!(part.first >= self.entry_end, "enqueues of a run out of order");
        self.entry_end = part.first + part.count;
        let index = apply.index;
        let one = |(position, head): (u32, &MessageHead)| {
            self.refused_letters.insert((index, position));
            self.living.add(index);
            fresh(MessageId { level, index, position }, *head, apply.stamped)
        };
        (part.first..).zip(messages).map(one).collect()
    }

    /// True if the next part of the run at `index` is added to the window: only if the window has
    /// all messages before it, and all parts of one run are treated alike, since a window holds
    /// whole runs.
    fn fits(&self, served: bool, index: LogIndex) -> bool {
        let bound = if served { WINDOW_SERVED } else { WINDOW_IDLE };
        self.record.fresh == self.window.len() as u64
            && (self.window.len() < bound
                || self.window.back().is_some_and(|last| last.message.index == index))
    }

    fn put(
        &mut self,
        level: Level,
        index: LogIndex,
        enqueued_at: Timestamp,
        first: u32,
        messages: &[MessageHead],
    ) {
        self.window.extend((first..).zip(messages).map(|(position, head)| {
            let message = MessageId { level, index, position };
            fresh(message, *head, enqueued_at)
        }));
    }

    /// The first ready message; it stays in the level.
    pub(crate) fn first(
        &mut self,
        place: Place,
        apply: &Apply<'_>,
    ) -> Result<Option<QueuedMessage>, StoreError> {
        if let Some((_, queued)) = self.requeued.first_key_value() {
            return Ok(Some(*queued));
        }
        self.first_fresh(place, apply)
    }

    fn first_fresh(
        &mut self,
        place: Place,
        apply: &Apply<'_>,
    ) -> Result<Option<QueuedMessage>, StoreError> {
        if self.record.fresh == 0 {
            return Ok(None);
        }
        if self.window.is_empty() {
            if self.first.is_some() {
                return Ok(self.first);
            }
            self.refill(place, apply)?;
        }
        Ok(self.window.front().copied())
    }

    /// Takes the first ready message. Requeued messages were all taken from the head before, so
    /// they precede every fresh one.
    pub(crate) fn take(
        &mut self,
        place: Place,
        apply: &Apply<'_>,
    ) -> Result<Option<QueuedMessage>, StoreError> {
        if let Some((_, queued)) = self.requeued.pop_first() {
            self.count_requeued_out(&queued);
            return Ok(Some(queued));
        }
        self.take_fresh(place, apply)
    }

    fn count_requeued_out(&mut self, queued: &QueuedMessage) {
        self.requeued_bytes -= u64::from(queued.head.body_bytes);
        self.requeued_expiring -= u64::from(queued.head.expiration_ms.is_some());
        self.requeued_changed = true;
    }

    fn take_fresh(
        &mut self,
        place: Place,
        apply: &Apply<'_>,
    ) -> Result<Option<QueuedMessage>, StoreError> {
        if self.record.fresh == 0 {
            return Ok(None);
        }
        if self.window.is_empty() {
            self.refill(place, apply)?;
        }
        let Some(queued) = self.window.pop_front() else { return Ok(None) };
        self.count_fresh_out(&queued);
        self.passed = Some(queued.enqueued_at);
        self.advance_past(queued.message, apply.index);
        Ok(Some(queued))
    }

    fn count_fresh_out(&mut self, queued: &QueuedMessage) {
        self.record.fresh -= 1;
        self.record.fresh_bytes -= u64::from(queued.head.body_bytes);
        self.record.fresh_expiring -= u64::from(queued.head.expiration_ms.is_some());
        self.living.add(queued.message.index);
    }

    /// Takes the ready message at a position of an earlier entry; `None` if none is ready there. A
    /// fresh one that is not the first leaves a gap among the fresh ones, like a letter that was
    /// refused on arrival (LEN-12). `run` keeps the run that was read last.
    pub(crate) fn take_at(
        &mut self,
        place: Place,
        at: (LogIndex, u32),
        run: &mut Option<RunHead>,
        apply: &Apply<'_>,
    ) -> Result<Option<QueuedMessage>, StoreError> {
        if let Some(queued) = self.requeued.remove(&at) {
            self.count_requeued_out(&queued);
            return Ok(Some(queued));
        }
        if at.0 >= apply.index || !self.is_ahead(at) {
            return Ok(None);
        }
        let Some(first) = self.first_fresh(place, apply)? else { return Ok(None) };
        if place_of(&first) >= at {
            let is_first = place_of(&first) == at;
            return if is_first { self.take_fresh(place, apply) } else { Ok(None) };
        }
        let queued = match self.window.back() {
            // The window has whole runs.
            Some(last) if at.0 <= last.message.index => {
                let found = self.window.binary_search_by_key(&at, place_of);
                found.ok().and_then(|found| self.window.remove(found))
            }
            Some(_) | None => stored_message(place, at, run, apply)?,
        };
        if let Some(queued) = &queued {
            self.count_fresh_out(queued);
            self.refused_letters.insert(at);
        }
        Ok(queued)
    }

    /// Puts back a message that [`LevelState::take_at`] has taken: as a fresh one if the head has
    /// not passed it.
    pub(crate) fn give_back(&mut self, queued: QueuedMessage) {
        let at = place_of(&queued);
        if !self.refused_letters.remove(at) {
            return self.requeue(queued);
        }
        self.living.subtract(at.0, 1);
        self.record.fresh += 1;
        self.record.fresh_bytes += u64::from(queued.head.body_bytes);
        self.record.fresh_expiring += u64::from(queued.head.expiration_ms.is_some());
        match self.window.back() {
            Some(last) if at.0 <= last.message.index => {
                let behind = self.window.partition_point(|it| place_of(it) < at);
                self.window.insert(behind, queued);
            }
            Some(_) => {}
            None => {
                let precedes = self.first.as_ref().is_some_and(|first| at < place_of(first));
                if precedes {
                    self.first = Some(queued);
                }
            }
        }
    }

    /// Moves the head past a message. Past the last message of a run the head moves to the next
    /// index, so that the run lies below it. This entry's own run may still grow, so there the head
    /// stays in the run.
    fn advance_past(&mut self, message: MessageId, current: LogIndex) {
        let more = self.window.front().is_some_and(|next| next.message.index == message.index);
        if more || message.index == current {
            self.move_head(message.index, message.position + 1);
        } else {
            self.move_head(message.index.next(), 0);
        }
    }

    fn move_head(&mut self, index: LogIndex, position: u32) {
        self.record.head_index = index;
        self.record.head_position = position;
        self.refused_letters.pass((index, position));
    }

    /// Puts a message back at its old position.
    pub(crate) fn requeue(&mut self, mut queued: QueuedMessage) {
        queued.unacked_since = Timestamp(0);
        self.requeued_bytes += u64::from(queued.head.body_bytes);
        self.requeued_expiring += u64::from(queued.head.expiration_ms.is_some());
        self.requeued_changed = true;
        let replaced =
            self.requeued.insert((queued.message.index, queued.message.position), queued);
        debug_assert!(replaced.is_none(), "a message was requeued twice");
    }

    /// Drops all ready messages (DEL-07): the head jumps to the tail. Returns their number.
    pub(crate) fn purge(&mut self, current: LogIndex) -> u64 {
        let purged = self.ready();
        for (index, _) in std::mem::take(&mut self.requeued).into_keys() {
            self.living.subtract(index, 1);
            self.requeued_changed = true;
        }
        self.requeued_bytes = 0;
        self.requeued_expiring = 0;
        if self.record.fresh > 0 {
            self.living.jump(self.record.head_index);
            // Runs with messages of letters divide the range of dead runs.
            self.refused_letters.runs().into_iter().for_each(|run| self.living.jump(run));
            let removed_below = self.record.removed_below;
            self.record = LevelRecord::starting_at(current);
            self.record.removed_below = removed_below;
            self.move_head(current, self.entry_end);
            self.window.clear();
            self.first = None;
            self.late.clear();
        }
        purged
    }

    /// Ends the entry: a head behind the last message of this entry's run moves on. If the queue
    /// has no consumers, most messages that this entry added to the window are removed from it
    /// again; `shorten` means that the last consumer has left.
    pub(crate) fn end_entry(&mut self, current: LogIndex, served: bool, shorten: bool) {
        if self.entry_end > 0 && self.record.fresh == 0 {
            self.move_head(current.next(), 0);
        }
        self.entry_end = 0;
        self.refused_letters.end_entry();
        self.late.clear();
        if shorten || (std::mem::take(&mut self.appended) && !served) {
            self.shorten_window();
        }
    }

    /// Fills the empty window: with stored runs, then with the messages of this entry.
    fn refill(&mut self, place: Place, apply: &Apply<'_>) -> Result<(), StoreError> {
        self.first = None;
        let enough = if place.served { WINDOW_SERVED / 2 } else { WINDOW_IDLE };
        let through = LogIndex(apply.index.0.saturating_sub(1));
        let mut from = self.record.head_index;
        let mut limit = RUNS_FIRST;
        let exhausted = loop {
            let runs = if from <= through {
                apply.store.runs(place.queue, place.level, from, through, limit)?
            } else {
                Vec::new()
            };
            for run in &runs {
                self.put_stored(place.level, run);
            }
            let last = runs.last().map_or(from, |run| run.index);
            if runs.len() < limit {
                self.put_late(place.level, apply);
                break true;
            }
            if self.window.len() >= enough {
                break false;
            }
            from = last.next();
            limit = (limit * 2).min(RUNS_MAX);
        };
        self.check_window(place, exhausted)
    }

    fn put_stored(&mut self, level: Level, run: &RunHead) {
        for (position, message) in (0u32..).zip(&run.messages) {
            if let Some(message) = message
                && self.is_ahead((run.index, position))
            {
                let id = MessageId { level, index: run.index, position };
                self.window.push_back(fresh(id, *message, run.time));
            }
        }
    }

    /// Whether a place is not before the head and not a gap: the message there, if it is stored and
    /// not cut, is fresh.
    fn is_ahead(&self, at: (LogIndex, u32)) -> bool {
        at >= (self.record.head_index, self.record.head_position)
            && !self.refused_letters.contains(at)
    }

    fn put_late(&mut self, level: Level, apply: &Apply<'_>) {
        for part in std::mem::take(&mut self.late) {
            let messages = apply.messages(part);
            self.put(level, apply.index, apply.stamped, part.first, messages);
        }
    }

    /// Checks that the store shows as many messages as the state counts. A missing or surplus run
    /// is a fault of the disk or of this program, and to continue would lose or duplicate messages
    /// (STO).
    fn check_window(&self, place: Place, exhausted: bool) -> Result<(), StoreError> {
        let window = self.window.len() as u64;
        let fresh = self.record.fresh;
        if window == fresh || (!exhausted && window < fresh) {
            return Ok(());
        }
        Err(StoreError(format!(
            "queue {} level {} has {} fresh messages from run {} position {} on, \
             but the stored runs show {window}",
            place.queue, place.level, fresh, self.record.head_index, self.record.head_position,
        )))
    }

    /// Shortens the window to its first whole runs; empties it if the first run is long.
    fn shorten_window(&mut self) {
        if self.window.len() > WINDOW_IDLE * 2 {
            let index = |at: usize| self.window.get(at).map(|queued| queued.message.index);
            let starts_run = |at: &usize| index(at - 1) != index(*at);
            let cut = (WINDOW_IDLE..self.window.len()).find(starts_run).unwrap_or(0);
            self.first = self.window.front().copied().filter(|_| cut == 0);
            self.window.truncate(cut);
            self.window.shrink_to_fit();
        }
    }

    /// Releases memory that an earlier burst used.
    pub(crate) fn trim(&mut self) {
        if self.window.capacity() > 64 && self.window.capacity() > self.window.len() * 4 {
            self.window.shrink_to(self.window.len() * 2);
        }
        self.late.shrink_to(4);
    }
}

fn place_of(queued: &QueuedMessage) -> (LogIndex, u32) {
    (queued.message.index, queued.message.position)
}

/// The message at a position of an earlier entry, as the store has it; `None` if it was cut. `run`
/// keeps the run that was read last.
pub(crate) fn stored_message(
    place: Place,
    (index, position): (LogIndex, u32),
    run: &mut Option<RunHead>,
    apply: &Apply<'_>,
) -> Result<Option<QueuedMessage>, StoreError> {
    if run.as_ref().is_none_or(|run| run.index != index) {
        *run = apply.store.runs(place.queue, place.level, index, index, 1)?.pop();
    }
    let Some(run) = run else { return Ok(None) };
    let head = usize::try_from(position).ok().and_then(|it| run.messages.get(it)).copied();
    let message = MessageId { level: place.level, index, position };
    Ok(head.flatten().map(|head| fresh(message, head, run.time)))
}

/// A message that was never assigned.
pub(crate) fn fresh(
    message: MessageId,
    head: MessageHead,
    enqueued_at: Timestamp,
) -> QueuedMessage {
    let (counts, unacked_since) = (crate::command::Counts::default(), Timestamp(0));
    QueuedMessage { message, counts, head, enqueued_at, unacked_since }
}
