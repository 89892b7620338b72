//! Refused letters: dead letters above their level's head, among fresh messages, since they were
//! refused on arrival and never were ready (LEN-12). They count as living, and are skipped where
//! fresh messages are taken. Not stored: derived from the letters at a start.

use quorate_types::LogIndex;
use std::collections::BTreeSet;

/// Positions of such messages in one level.
#[derive(Debug, Default)]
pub(crate) struct RefusedLetters {
    places: BTreeSet<(LogIndex, u32)>,
    /// Positions whose letter ended in this entry: the store shows their messages until its end.
    ended: Vec<(LogIndex, u32)>,
}

impl RefusedLetters {
    pub(crate) fn insert(&mut self, place: (LogIndex, u32)) {
        self.places.insert(place);
    }

    pub(crate) fn contains(&self, place: (LogIndex, u32)) -> bool {
        self.places.contains(&place)
    }

    /// Places from there on, ascending.
    pub(crate) fn from(
        &self,
        place: (LogIndex, u32),
    ) -> impl Iterator<Item = (LogIndex, u32)> + '_ {
        self.places.range(place..).copied()
    }

    /// The message at a position is fresh again; true if it is one of these.
    pub(crate) fn remove(&mut self, place: (LogIndex, u32)) -> bool {
        self.places.remove(&place)
    }

    /// Ends the letter at a position; true if its message is a refused one.
    pub(crate) fn end(&mut self, place: (LogIndex, u32)) -> bool {
        let refused = self.contains(place);
        if refused {
            self.ended.push(place);
        }
        refused
    }

    /// After the entry the store shows the run without the cut messages.
    pub(crate) fn end_entry(&mut self) {
        for place in self.ended.drain(..) {
            self.places.remove(&place);
        }
    }

    /// The head has moved to that position: letters below it are not special any more.
    #[inline]
    pub(crate) fn pass(&mut self, head: (LogIndex, u32)) {
        while self.places.first().is_some_and(|first| *first < head) {
            self.places.pop_first();
        }
    }

    /// Runs with such messages, ascending.
    pub(crate) fn runs(&self) -> Vec<LogIndex> {
        let mut runs: Vec<LogIndex> = self.places.iter().map(|(run, _)| *run).collect();
        runs.dedup();
        runs
    }
}
