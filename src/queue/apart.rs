//! Messages apart: dead letters that lie above their level's head, among fresh messages, since they
//! were refused as they came and never were ready (LEN-12). They count as living, and are passed over
//! by whoever looks for fresh messages. Not stored: a start derives them from the letters.

use quorate_types::LogIndex;
use std::collections::BTreeSet;

/// Places of such messages in one level.
#[derive(Debug, Default)]
pub(crate) struct Apart(BTreeSet<(LogIndex, u32)>);

impl Apart {
    pub(crate) fn insert(&mut self, place: (LogIndex, u32)) {
        self.0.insert(place);
    }

    pub(crate) fn contains(&self, place: (LogIndex, u32)) -> bool {
        self.0.contains(&place)
    }

    /// The letter has ended; tells whether its message was apart.
    pub(crate) fn remove(&mut self, place: (LogIndex, u32)) -> bool {
        self.0.remove(&place)
    }

    /// The head has come to that place: letters below it are as any other.
    #[inline]
    pub(crate) fn pass(&mut self, head: (LogIndex, u32)) {
        while self.0.first().is_some_and(|first| *first < head) {
            self.0.pop_first();
        }
    }

    /// Runs that have such messages, ascending.
    pub(crate) fn runs(&self) -> Vec<LogIndex> {
        let mut runs: Vec<LogIndex> = self.0.iter().map(|(run, _)| *run).collect();
        runs.dedup();
        runs
    }
}
