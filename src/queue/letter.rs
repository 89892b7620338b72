//! Dead letters: messages that died in a queue whose settings name a dead-letter exchange, from
//! their death until all their targets have accepted them (LET 1, Q-40, Q-45). Messages are never
//! rewritten: a letter refers to a message of its queue, and keeps that message's run alive.
//!
//! 256 letters of a queue make one record (`RecordKey::Letters`), so that letters that come and go
//! between two checkpoints do not cost one record each. The streams, and the letters that wait for
//! a full target, are derived from the letters at a start.

use crate::{
    death_reason::DeathReason,
    letter_block::{BLOCK_BITS, Block, PackedBlock, block_of},
    number_set::NumberSet,
};
use quorate_types::{
    CatalogIndex, Counts, LetterNumber, MessageId, QueueId, Sequence, ShortString, TaskId,
    Timestamp, WallTime,
};
use std::collections::{BTreeMap, BTreeSet};

/// Number of letters at which a queue accepts no more messages, unless its settings name another: a
/// queue whose letters find no target slows its publishers down instead of growing without bound
///
pub const LETTERS_MAX: u64 = 1_000_000;

/// Letters whose numbers differ only in this many lowest bits make one record.
const PAGE_BITS: u32 = 8;

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Message that died.
    pub message: MessageId,
    /// Bytes of its body.
    pub body_bytes: u32,
    /// Why it died.
    pub reason: DeathReason,
    /// When it died.
    pub died_at: WallTime,
    /// Its progress.
    pub stage: Stage,
}

/// The progress of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The letter waits to be routed, by a catalog copy of a version above `after`.
    Waiting {
        /// Version of the copy by which the last routing failed because all targets had ended (LET
        /// 4); 0: any.
        after: CatalogIndex,
    },
    /// No queue accepts the letter; it waits until one does (at-least-once, Q-40).
    Kept,
    /// The letter was routed once and is being sent (LET 1).
    Routed(Box<Routing>),
    /// The letter is delayed until a moment (EXC-17).
    Delayed {
        /// When it is to be routed.
        until: Timestamp,
    },
}

/// One routing of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routing {
    /// The dead-letter settings by which it was routed.
    pub via: Via,
    /// Version of the catalog copy by which it was routed.
    pub at: CatalogIndex,
    /// Number among all routings of the home, from 1: letters are sent to each target in this order
    /// (LET 6).
    pub order: u64,
    /// A target has accepted the letter.
    pub taken: bool,
    /// Targets that have not yet answered.
    pub transfers: BTreeMap<QueueId, Transfer>,
    /// The task that has taken the message out of its queue; `None` if the message has died.
    pub task: Option<Taken>,
}

/// A message that a task has taken out of its queue. It goes back if all its targets have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The task.
    pub task: TaskId,
    /// How often the message was acquired and returned before.
    pub counts: Counts,
}

/// The dead-letter exchange and key that were in force when a letter was routed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    /// Exchange that the message was published to.
    pub exchange: ShortString,
    /// Routing key that replaces the message's own.
    pub routing_key: Option<ShortString>,
}

/// The sending of a letter to one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The transfer has a number, and is sent until it is answered.
    UnderWay {
        /// Number in the stream to the target's home.
        number: Sequence,
        /// Number of the attempt to send to this target (LET 3).
        attempt: u32,
    },
    /// The target is full; the transfer gets no number until the target is tried again.
    Waits,
}

/// Letters of one queue. The message of each letter counts as living in its run.
#[derive(Debug, Default)]
pub(crate) struct Letters {
    packed: BTreeMap<u64, PackedBlock>,
    /// Unpacked blocks that the present entry uses; packed again when it ends.
    open: BTreeMap<u64, Block>,
    count: u64,
    /// Number of the last letter.
    last: LetterNumber,
    /// Numbers of the letters that wait to be routed, and of the kept ones. Derived.
    waiting: NumberSet,
    kept: NumberSet,
    /// Delayed letters by time. Derived.
    delayed: BTreeSet<(Timestamp, LetterNumber)>,
    /// Pages that the present entry has changed.
    changed: BTreeSet<u64>,
}

impl Letters {
    /// No letters yet; the next one gets the number after `last`.
    pub(crate) fn after(last: LetterNumber) -> Self {
        Self { last, ..Self::default() }
    }

    pub(crate) fn last(&self) -> LetterNumber {
        self.last
    }

    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a letter that has just died.
    pub(crate) fn push(&mut self, letter: Letter) -> LetterNumber {
        self.last.0 += 1;
        self.insert(self.last, letter);
        self.last
    }

    /// Inserts a letter, new or from a record.
    pub(crate) fn insert(&mut self, number: LetterNumber, letter: Letter) {
        self.note(number, &letter.stage);
        if self.block_mut(number).insert(number, letter).is_none() {
            self.count += 1;
        }
        self.changed.insert(page(number));
    }

    /// The block of a letter, for a change.
    fn block_mut(&mut self, number: LetterNumber) -> &mut Block {
        let block = block_of(number);
        let packed = self.packed.remove(&block);
        self.open
            .entry(block)
            .or_insert_with(|| packed.map(|block| block.unpack()).unwrap_or_default())
    }

    /// Removes a letter from the waiting or kept ones, for a routing. False if it is neither.
    pub(crate) fn take_unrouted(&mut self, number: LetterNumber) -> bool {
        let found = self.waiting.remove(number) || self.kept.remove(number);
        if found {
            self.changed.insert(page(number));
        }
        found
    }

    /// Changes a letter's stage.
    pub(crate) fn set_stage(&mut self, number: LetterNumber, stage: Stage) {
        self.note(number, &stage);
        if let Some(letter) = self.block_mut(number).get_mut(&number) {
            letter.stage = stage;
            self.changed.insert(page(number));
        }
    }

    /// The routing of a letter that was routed, for a change.
    pub(crate) fn routing_mut(&mut self, number: LetterNumber) -> Option<&mut Routing> {
        self.changed.insert(page(number));
        match &mut self.block_mut(number).get_mut(&number)?.stage {
            Stage::Routed(routing) => Some(routing),
            Stage::Waiting { .. } | Stage::Kept | Stage::Delayed { .. } => None,
        }
    }

    /// Removes the letter.
    pub(crate) fn remove(&mut self, number: LetterNumber) -> Option<Letter> {
        self.waiting.remove(number);
        self.kept.remove(number);
        self.changed.insert(page(number));
        let letter = self.block_mut(number).remove(&number)?;
        self.count -= 1;
        if let Stage::Delayed { until } = letter.stage {
            self.delayed.remove(&(until, number));
        }
        Some(letter)
    }

    /// The time at which the first delayed letter is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.delayed.first().map(|(until, _)| *until)
    }

    /// Removes the first delayed letter from the delayed ones.
    pub(crate) fn take_due(&mut self) -> Option<Letter> {
        let (_, number) = *self.delayed.first()?;
        self.remove(number)
    }

    /// Numbers of the delayed letters.
    pub(crate) fn delayed(&self) -> Vec<LetterNumber> {
        self.delayed.iter().map(|(_, number)| *number).collect()
    }

    /// True if all letters are delayed.
    pub(crate) fn are_all_delayed(&self) -> bool {
        self.delayed.len() as u64 == self.count
    }

    /// Removes the letters kept as unroutable from the kept ones.
    pub(crate) fn take_kept(&mut self) -> Vec<Letter> {
        let kept: Vec<_> = self.kept.range(LetterNumber(0)).collect();
        kept.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The letters that wait to be routed (or with `kept` the kept ones), from a number on.
    pub(crate) fn unrouted(
        &self,
        kept: bool,
        from: LetterNumber,
    ) -> impl Iterator<Item = (LetterNumber, Letter)> + '_ {
        let numbers = if kept { &self.kept } else { &self.waiting };
        let mut reader = LetterReader::new(self);
        numbers.range(from).filter_map(move |number| Some((number, reader.get(number)?.clone())))
    }

    /// Ends the present entry: packs the unpacked blocks, and returns the pages that have changed.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<u64> {
        for (number, block) in std::mem::take(&mut self.open) {
            if !block.is_empty() {
                self.packed.insert(number, PackedBlock::pack(&block));
            }
        }
        std::mem::take(&mut self.changed)
    }

    /// Every page that was written, or may have been.
    pub(crate) fn pages(&self) -> BTreeSet<u64> {
        let blocks = self.packed.keys().chain(self.open.keys());
        let pages = blocks.map(|block| block >> (PAGE_BITS - BLOCK_BITS));
        pages.chain(self.changed.iter().copied()).collect()
    }

    /// The letters of a page; `None` if there are none.
    pub(crate) fn page(&self, page: u64) -> Option<BTreeMap<LetterNumber, Letter>> {
        let first = page << (PAGE_BITS - BLOCK_BITS);
        let blocks = first..first + (1 << (PAGE_BITS - BLOCK_BITS));
        let letters: BTreeMap<_, _> =
            blocks.filter_map(|block| self.block(block)).flatten().collect();
        Some(letters).filter(|letters| !letters.is_empty())
    }

    /// Letters from a number on, at most `limit`, ascending. Not for use within an entry, which keeps
    /// some blocks unpacked.
    pub(crate) fn from(&self, from: LetterNumber, limit: usize) -> Vec<(LetterNumber, Letter)> {
        debug_assert!(self.open.is_empty(), "letters are looked at within an entry");
        let blocks = self.packed.range(block_of(from)..).flat_map(|(_, block)| block.unpack());
        blocks.filter(|(number, _)| *number >= from).take(limit).collect()
    }

    fn block(&self, block: u64) -> Option<Block> {
        let open = self.open.get(&block).cloned();
        open.or_else(|| self.packed.get(&block).map(PackedBlock::unpack))
    }

    fn note(&mut self, number: LetterNumber, stage: &Stage) {
        match stage {
            Stage::Waiting { .. } => self.waiting.insert(number),
            Stage::Kept => self.kept.insert(number),
            Stage::Delayed { until } => {
                self.delayed.insert((*until, number));
            }
            Stage::Routed(_) => {}
        }
    }
}

/// A look-up of letters that is cheap for consecutive ones: it keeps the last unpacked block.
pub(crate) struct LetterReader<'a> {
    letters: &'a Letters,
    block: Option<(u64, Block)>,
}

impl<'a> LetterReader<'a> {
    pub(crate) fn new(letters: &'a Letters) -> Self {
        Self { letters, block: None }
    }

    /// The letter of this number, if the queue has it.
    pub(crate) fn get(&mut self, number: LetterNumber) -> Option<&Letter> {
        let wanted = block_of(number);
        if self.block.as_ref().is_none_or(|(block, _)| *block != wanted) {
            self.block = self.letters.block(wanted).map(|block| (wanted, block));
        }
        self.block.as_ref()?.1.get(&number)
    }
}

fn page(number: LetterNumber) -> u64 {
    number.0 >> PAGE_BITS
}
