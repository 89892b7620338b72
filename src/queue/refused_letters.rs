//! Refused letters: dead letters that lie above their level's head, among fresh messages, since they
//! were refused as they came and never were ready (LEN-12). They count as living, and are passed over
//! by whoever looks for fresh messages. Not stored: a start derives them from the letters.

use quorate_types::LogIndex;
use std::collections::BTreeSet;

/// Places of such messages in one level.
#[derive(Debug, Default)]
pub(crate) struct RefusedLetters {
    places: BTreeSet<(LogIndex, u32)>,
    /// Those whose letter ended in this entry: the store shows their messages till its end.
    ended: Vec<(LogIndex, u32)>,
}

impl RefusedLetters {
    pub(crate) fn insert(&mut self, place: (LogIndex, u32)) {
        self.places.insert(place);
    }

    pub(crate) fn contains(&self, place: (LogIndex, u32)) -> bool {
        self.places.contains(&place)
    }

    /// The letter has ended; tells whether its message is a refused one.
    pub(crate) fn end(&mut self, place: (LogIndex, u32)) -> bool {
        let refused = self.contains(place);
        if refused {
            self.ended.push(place);
        }
        refused
    }

    /// From now on the store shows what was cut as cut.
    pub(crate) fn end_entry(&mut self) {
        for place in self.ended.drain(..) {
            self.places.remove(&place);
        }
    }

    /// The head has come to that place: letters below it are as any other.
    #[inline]
    pub(crate) fn pass(&mut self, head: (LogIndex, u32)) {
        while self.places.first().is_some_and(|first| *first < head) {
            self.places.pop_first();
        }
    }

    /// Runs that have such messages, ascending.
    pub(crate) fn runs(&self) -> Vec<LogIndex> {
        let mut runs: Vec<LogIndex> = self.places.iter().map(|(run, _)| *run).collect();
        runs.dedup();
        runs
    }
}
