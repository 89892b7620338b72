//! Dead letters: the messages that died in a queue whose settings name a dead-letter exchange, from
//! their death until all their targets have taken them (LET 1, Q-40, Q-45). They are never
//! rewritten: a letter names a message of its queue, and keeps that message's run alive.
//!
//! 256 letters of a queue make one record (`RecordKey::Letters`), so that letters that come and go
//! between two checkpoints do not cost one record each. The streams, and what waits for a full
//! target, are derived from the letters at a start.

use crate::{
    death_reason::DeathReason,
    letter_block::{BLOCK_BITS, Block, PackedBlock, block_of},
    number_set::NumberSet,
};
use quorate_types::{
    CatalogIndex, LetterNumber, MessageId, QueueId, Sequence, ShortString, Timestamp, WallTime,
};
use std::collections::{BTreeMap, BTreeSet};

/// Letters of a queue from which on it takes no messages, unless its settings say otherwise: a queue
/// whose letters find nobody pushes back on its publishers instead of growing for ever.
pub const LETTERS_MAX: u64 = 1_000_000;

/// Letters of one record: those whose numbers differ in the lowest bits alone.
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
    /// How far it is.
    pub stage: Stage,
}

/// How far a letter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is to be routed, by a catalog copy of a version above this one.
    Waiting {
        /// Version of the copy whose routing failed since all targets had ended (LET 4); 0: any.
        after: CatalogIndex,
    },
    /// Nothing takes it, and it waits until something does (at-least-once, Q-40).
    Kept,
    /// It is on its way, as it was routed once (LET 1).
    Routed(Box<Routing>),
    /// It is delayed until then (EXC-17).
    Delayed {
        /// When it is to be routed.
        until: Timestamp,
    },
}

/// One routing of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routing {
    /// By what it was routed.
    pub via: Via,
    /// Version of the catalog copy.
    pub at: CatalogIndex,
    /// Place among all routings of the home, from 1: the order into each target (LET 6).
    pub order: u64,
    /// A target has taken it.
    pub taken: bool,
    /// Targets that have not yet answered.
    pub transfers: BTreeMap<QueueId, Transfer>,
}

/// The dead-letter exchange and key that were in force when a letter was routed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    /// Exchange that the message was published to.
    pub exchange: ShortString,
    /// Key in place of the message's own.
    pub routing_key: Option<ShortString>,
}

/// A letter's way into one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// It has a number, and is sent until that is answered.
    UnderWay {
        /// Number in the stream to the target's home.
        number: Sequence,
        /// Attempt of the target's (LET 3).
        attempt: u32,
    },
    /// The target is full; it has no number until the target is tried again.
    Waits,
}

/// Letters of one queue. The message of each counts among its run's living ones.
#[derive(Debug, Default)]
pub(crate) struct Letters {
    packed: BTreeMap<u64, PackedBlock>,
    /// Blocks that the present entry looks at; packed again when it ends.
    open: BTreeMap<u64, Block>,
    count: u64,
    /// Number of the last one.
    last: LetterNumber,
    /// Those that are to be routed, and those kept. Derived.
    waiting: NumberSet,
    kept: NumberSet,
    /// Those delayed. Derived.
    delayed: BTreeSet<(Timestamp, LetterNumber)>,
    /// Pages that the present entry has changed.
    changed: BTreeSet<u64>,
}

impl Letters {
    /// None yet; the next one has the number after `last`.
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

    /// Puts a letter in place, new or from a record.
    pub(crate) fn insert(&mut self, number: LetterNumber, letter: Letter) {
        self.note(number, &letter.stage);
        if self.block_mut(number).insert(number, letter).is_none() {
            self.count += 1;
        }
        self.changed.insert(page(number));
    }

    /// The block of a letter, to be changed.
    fn block_mut(&mut self, number: LetterNumber) -> &mut Block {
        let block = block_of(number);
        let packed = self.packed.remove(&block);
        self.open
            .entry(block)
            .or_insert_with(|| packed.map(|block| block.unpack()).unwrap_or_default())
    }

    /// Takes a letter that is waiting or kept out of those, for a routing. False if it is neither.
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

    /// The routing of a letter that is under way, to be changed.
    pub(crate) fn routing_mut(&mut self, number: LetterNumber) -> Option<&mut Routing> {
        self.changed.insert(page(number));
        match &mut self.block_mut(number).get_mut(&number)?.stage {
            Stage::Routed(routing) => Some(routing),
            Stage::Waiting { .. } | Stage::Kept | Stage::Delayed { .. } => None,
        }
    }

    /// The letter is done with.
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

    /// When the first of those delayed is to be routed.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.delayed.first().map(|(until, _)| *until)
    }

    /// Takes out the first of those delayed.
    pub(crate) fn take_due(&mut self) -> Option<Letter> {
        let (_, number) = *self.delayed.first()?;
        self.remove(number)
    }

    /// Numbers of those delayed.
    pub(crate) fn delayed(&self) -> Vec<LetterNumber> {
        self.delayed.iter().map(|(_, number)| *number).collect()
    }

    /// All that there is is delayed.
    pub(crate) fn are_all_delayed(&self) -> bool {
        self.delayed.len() as u64 == self.count
    }

    /// Takes out those kept as unroutable.
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

    /// Those that are to be routed (or those kept) from a number on.
    pub(crate) fn unrouted(
        &self,
        kept: bool,
        from: LetterNumber,
    ) -> impl Iterator<Item = (LetterNumber, Letter)> + '_ {
        let numbers = if kept { &self.kept } else { &self.waiting };
        let mut reader = LetterReader::new(self);
        numbers.range(from).filter_map(move |number| Some((number, reader.get(number)?.clone())))
    }

    /// The present entry has ended: packs what it has looked at, and tells the pages that it has
    /// changed.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<u64> {
        for (number, block) in std::mem::take(&mut self.open) {
            if !block.is_empty() {
                self.packed.insert(number, PackedBlock::pack(&block));
            }
        }
        std::mem::take(&mut self.changed)
    }

    /// Every page that is written, or may be.
    pub(crate) fn pages(&self) -> BTreeSet<u64> {
        let blocks = self.packed.keys().chain(self.open.keys());
        let pages = blocks.map(|block| block >> (PAGE_BITS - BLOCK_BITS));
        pages.chain(self.changed.iter().copied()).collect()
    }

    /// What a page holds; `None` if nothing.
    pub(crate) fn page(&self, page: u64) -> Option<BTreeMap<LetterNumber, Letter>> {
        let first = page << (PAGE_BITS - BLOCK_BITS);
        let blocks = first..first + (1 << (PAGE_BITS - BLOCK_BITS));
        let letters: BTreeMap<_, _> =
            blocks.filter_map(|block| self.block(block)).flatten().collect();
        Some(letters).filter(|letters| !letters.is_empty())
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

/// Looks letters up, neighbours cheaply: it keeps the block that it has unpacked last.
pub(crate) struct LetterReader<'a> {
    letters: &'a Letters,
    block: Option<(u64, Block)>,
}

impl<'a> LetterReader<'a> {
    pub(crate) fn new(letters: &'a Letters) -> Self {
        Self { letters, block: None }
    }

    /// The letter of this number, if it waits here.
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
