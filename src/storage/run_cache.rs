//! Recent runs of all groups, in one byte budget (DESIGN §3): a message that is consumed at once is
//! never read from disk, and an unwritten run can always be read.
//!
//! Entries are kept and counted: the runs of an entry are slices of one buffer, which lives as long
//! as any of them. An entry is removed with its last run, or oldest first when the budget is
//! reached; never before it is written.

use crate::{
    LogEntry, Payload, RunBodies,
    batch::{Prepared, PreparedRun},
    codec::key::RunKey,
};
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_queue::RunHead;
use quorate_types::{GroupId, Level, LogIndex, QueueId, Term};
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Maximum of entries, so that the index of small ones cannot become larger than the budget.
const ENTRIES_MAX: usize = 65_536;

/// Approximate bytes of an entry and of one run in addition to their contents.
const OVERHEAD_BYTES: usize = 256;

/// Recent runs of all groups.
pub(crate) struct RunCache {
    bytes_max: usize,
    inner: Mutex<Inner>,
    /// Number of bodies that had to be read from disk.
    missed: AtomicU64,
}

#[derive(Default)]
struct Inner {
    /// Entries in the order of arrival; `None` once all runs of an entry are removed.
    entries: VecDeque<Option<Cached>>,
    /// Number of the first of `entries`.
    base: u64,
    bytes: usize,
    /// Runs of each queue and level, ascending.
    runs: HashMap<(GroupId, QueueId, Level), VecDeque<Slot>>,
    groups: HashMap<GroupId, Mark>,
}

struct Cached {
    group: GroupId,
    ticket: u64,
    entry: Arc<LogEntry>,
    runs: Arc<[PreparedRun]>,
    bytes: usize,
    /// Number of runs still in the cache.
    live: usize,
}

struct Slot {
    index: LogIndex,
    /// Number of the entry among all that have arrived.
    number: u64,
    /// Index of the run in the entry.
    place: usize,
    head: Arc<RunHead>,
}

/// State of a group.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// Appends up to this number are written.
    written: u64,
    /// Every run above this index is in the cache, unless it was settled or completely cut.
    complete_above: LogIndex,
}

/// The outcome of a look-up.
pub(crate) enum Found<T> {
    /// The cache has it.
    Here(T),
    /// The disk may have it.
    MayBeStored,
    /// Neither cache nor disk has it.
    Nowhere,
}

/// Settled runs that were removed from the cache.
pub(crate) struct Settled {
    pub(crate) runs: Vec<LogIndex>,
    pub(crate) messages: usize,
    /// The disk has no other run in that range.
    pub(crate) complete: bool,
}

impl RunCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, inner: Mutex::default(), missed: AtomicU64::new(0) }
    }

    /// Counts bodies that were not in the cache and were found on disk.
    pub(crate) fn count_missed(&self, bodies: usize) {
        self.missed.fetch_add(bodies as u64, Ordering::Relaxed);
    }

    /// Number of such bodies.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Opens a group, or records an installed snapshot: runs up to `index` are on disk.
    pub(crate) fn open_group(&self, group: GroupId, index: LogIndex) {
        let mut inner = self.inner.lock();
        let mark = inner.groups.entry(group).or_default();
        mark.complete_above = mark.complete_above.max(index);
    }

    /// Adds the runs of an entry that is about to be written.
    pub(crate) fn insert(&self, group: GroupId, ticket: u64, prepared: &Prepared) {
        if prepared.runs.is_empty() {
            return;
        }
        let mut inner = self.inner.lock();
        let number = inner.base + inner.entries.len() as u64;
        let Prepared { entry, runs } = prepared.clone();
        for (place, run) in runs.iter().enumerate() {
            let slots = inner.runs.entry((group, run.key.queue, run.key.level)).or_default();
            slots.push_back(Slot { index: run.key.index, number, place, head: run.head.clone() });
        }
        let bytes = bytes_of(&entry, &runs);
        inner.bytes += bytes;
        let live = runs.len();
        inner.entries.push_back(Some(Cached { group, ticket, entry, runs, bytes, live }));
        inner.evict(self.bytes_max);
    }

    /// Records that the group's appends up to `ticket` are written, so that they can be evicted.
    pub(crate) fn written(&self, group: GroupId, ticket: u64) {
        let mut inner = self.inner.lock();
        inner.groups.entry(group).or_default().written = ticket;
        inner.evict(self.bytes_max);
    }

    /// Heads of runs of that queue and level from `from` to `through`, at most `limit`; and the
    /// index up to which the disk may have others.
    pub(crate) fn heads(
        &self,
        group: GroupId,
        (queue, level): (QueueId, Level),
        (from, through): (LogIndex, LogIndex),
        limit: usize,
    ) -> (Vec<Arc<RunHead>>, LogIndex) {
        let inner = self.inner.lock();
        let stored_up_to = inner.complete_above(group);
        let Some(slots) = inner.runs.get(&(group, queue, level)) else {
            return (Vec::new(), stored_up_to);
        };
        let first = slots.partition_point(|slot| slot.index < from);
        let heads = slots.range(first..).take_while(|slot| slot.index <= through).take(limit);
        (heads.map(|slot| slot.head.clone()).collect(), stored_up_to)
    }

    /// Replaces a run's head, because messages of it were cut (STO 4).
    pub(crate) fn replace_head(&self, group: GroupId, run: RunKey, head: Arc<RunHead>) {
        let mut inner = self.inner.lock();
        if let Some(slot) = inner.slot_mut(group, run) {
            slot.head = head;
        }
    }

    /// One message, with the term of its entry.
    pub(crate) fn message(
        &self,
        group: GroupId,
        run: RunKey,
        position: u32,
    ) -> Found<(Term, Option<Bytes>)> {
        self.with_bodies(group, run, |term, bodies| {
            (term, bodies.messages.get(position as usize).cloned().flatten())
        })
    }

    /// All messages of a run.
    pub(crate) fn bodies(&self, group: GroupId, run: RunKey) -> Found<RunBodies> {
        self.with_bodies(group, run, |_, bodies| bodies.clone())
    }

    fn with_bodies<T>(
        &self,
        group: GroupId,
        run: RunKey,
        read: impl FnOnce(Term, &RunBodies) -> T,
    ) -> Found<T> {
        let inner = self.inner.lock();
        let bodies = inner.slot(group, run).and_then(|slot| {
            let offset = usize::try_from(slot.number - inner.base).ok()?;
            let cached = inner.entries.get(offset)?.as_ref()?;
            let Payload::Commands(commands) = &cached.entry.payload else { return None };
            Some((cached.entry.id.term, commands.bodies.get(slot.place)?))
        });
        match bodies {
            Some((term, bodies)) => Found::Here(read(term, bodies)),
            None if run.index <= inner.complete_above(group) => Found::MayBeStored,
            None => Found::Nowhere,
        }
    }

    /// Removes runs whose messages are all settled.
    pub(crate) fn settle(
        &self,
        group: GroupId,
        (queue, level): (QueueId, Level),
        (first, last): (LogIndex, LogIndex),
    ) -> Settled {
        let mut inner = self.inner.lock();
        let complete = first > inner.complete_above(group);
        let mut settled = Settled { runs: Vec::new(), messages: 0, complete };
        let key = (group, queue, level);
        let Some(slots) = inner.runs.get_mut(&key) else { return settled };
        let start = slots.partition_point(|slot| slot.index < first);
        let end = slots.partition_point(|slot| slot.index <= last);
        let gone: Vec<Slot> = slots.drain(start..end).collect();
        if slots.is_empty() {
            inner.runs.remove(&key);
        }
        for slot in gone {
            settled.runs.push(slot.index);
            settled.messages += slot.head.messages.len();
            inner.let_go(slot.number);
        }
        inner.drop_gone();
        settled
    }

    /// Levels of a queue that have runs in the cache.
    pub(crate) fn levels(&self, group: GroupId, queue: QueueId) -> BTreeSet<Level> {
        let inner = self.inner.lock();
        (0..=u8::MAX)
            .map(Level)
            .filter(|level| inner.runs.contains_key(&(group, queue, *level)))
            .collect()
    }

    /// Truncates the group's runs at `from` (STO 5).
    pub(crate) fn truncate(&self, group: GroupId, from: LogIndex) {
        let mut inner = self.inner.lock();
        inner.retain(group, |index| index < from);
        // Runs from here on are new, and stay in the cache until they are written.
        let mark = inner.groups.entry(group).or_default();
        mark.complete_above = mark.complete_above.min(LogIndex(from.0.saturating_sub(1)));
    }

    /// Removes runs up to `index`, which a snapshot replaces (STO 6).
    pub(crate) fn install(&self, group: GroupId, index: LogIndex) {
        self.inner.lock().retain(group, |other| other > index);
        self.open_group(group, index);
    }

    /// Bytes that the cache keeps.
    pub(crate) fn bytes(&self) -> usize {
        self.inner.lock().bytes
    }
}

impl Inner {
    fn complete_above(&self, group: GroupId) -> LogIndex {
        self.groups.get(&group).copied().unwrap_or_default().complete_above
    }

    fn slot(&self, group: GroupId, run: RunKey) -> Option<&Slot> {
        let slots = self.runs.get(&(group, run.queue, run.level))?;
        let place = slots.binary_search_by_key(&run.index, |slot| slot.index).ok()?;
        slots.get(place)
    }

    fn slot_mut(&mut self, group: GroupId, run: RunKey) -> Option<&mut Slot> {
        let slots = self.runs.get_mut(&(group, run.queue, run.level))?;
        let place = slots.binary_search_by_key(&run.index, |slot| slot.index).ok()?;
        slots.get_mut(place)
    }

    /// Removes one run of that entry; with the last one the entry is removed.
    fn let_go(&mut self, number: u64) {
        let Some(offset) = number.checked_sub(self.base) else { return };
        let Some(place) = usize::try_from(offset).ok().and_then(|at| self.entries.get_mut(at))
        else {
            return;
        };
        let Some(cached) = place else { return };
        cached.live -= 1;
        if cached.live == 0 {
            self.bytes -= cached.bytes;
            *place = None;
        }
    }

    fn drop_gone(&mut self) {
        while self.entries.pop_front_if(|entry| entry.is_none()).is_some() {
            self.base += 1;
        }
    }

    /// Removes the oldest entries while there are too many, as far as they are written.
    fn evict(&mut self, bytes_max: usize) {
        loop {
            self.drop_gone();
            if self.bytes <= bytes_max && self.entries.len() <= ENTRIES_MAX {
                return;
            }
            let groups = &self.groups;
            let may_go = |cached: &Cached| {
                groups.get(&cached.group).is_some_and(|mark| cached.ticket <= mark.written)
            };
            let oldest =
                self.entries.pop_front_if(|entry| entry.as_ref().is_some_and(may_go)).flatten();
            let Some(oldest) = oldest else { return };
            self.base += 1;
            self.bytes -= oldest.bytes;
            self.forget(&oldest);
        }
    }

    /// Removes the remaining runs of an entry that is evicted.
    fn forget(&mut self, oldest: &Cached) {
        let index = oldest.entry.id.index;
        let mark = self.groups.entry(oldest.group).or_default();
        mark.complete_above = mark.complete_above.max(index);
        for run in oldest.runs.iter() {
            let key = (oldest.group, run.key.queue, run.key.level);
            if let Some(slots) = self.runs.get_mut(&key) {
                if let Ok(place) = slots.binary_search_by_key(&index, |slot| slot.index) {
                    slots.remove(place);
                }
                if slots.is_empty() {
                    self.runs.remove(&key);
                }
            }
        }
    }

    /// Keeps only the group's runs whose index `keep` accepts. Rare: it visits all queues.
    fn retain(&mut self, group: GroupId, keep: impl Fn(LogIndex) -> bool) {
        let mut gone = Vec::new();
        self.runs.retain(|(of, _, _), slots| {
            if *of == group {
                slots.retain(|slot| {
                    let stays = keep(slot.index);
                    if !stays {
                        gone.push(slot.number);
                    }
                    stays
                });
            }
            !slots.is_empty()
        });
        for number in gone {
            self.let_go(number);
        }
        self.drop_gone();
    }
}

fn bytes_of(entry: &LogEntry, runs: &[PreparedRun]) -> usize {
    let content = match &entry.payload {
        Payload::Blank => 0,
        Payload::Membership(membership) => membership.len(),
        Payload::Commands(commands) => commands.bytes(),
    };
    let heads: usize = runs.iter().map(|run| OVERHEAD_BYTES + 24 * run.head.messages.len()).sum();
    OVERHEAD_BYTES + content + heads
}
