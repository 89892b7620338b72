//! Removal: finds runs without living messages (DESIGN §3, STO 3). A run below a level's head is
//! dead once none of its messages is unacked, requeued, delayed or a letter; dead runs are removed as ranges
//! between living ones.

use crate::{level::LevelState, output::Change};
use quorate_types::{Level, LogIndex, QueueId};
use std::collections::BTreeMap;

/// Number of messages of each run that are unacked, requeued, delayed or letters. Not stored: counted again
/// at a start.
#[derive(Debug, Default)]
pub(crate) struct Living {
    runs: BTreeMap<LogIndex, u32>,
    /// Runs that may have died in this entry.
    died: Vec<LogIndex>,
}

impl Living {
    /// Counts one more living message of the run.
    #[inline]
    pub(crate) fn add(&mut self, index: LogIndex) {
        if let Some(mut newest) = self.runs.last_entry()
            && *newest.key() == index
        {
            *newest.get_mut() += 1;
        } else {
            *self.runs.entry(index).or_default() += 1;
        }
    }

    /// Subtracts messages that were settled from the run's count.
    pub(crate) fn subtract(&mut self, index: LogIndex, count: u32) {
        let Some(left) = self.runs.get_mut(&index) else {
            debug_assert!(false, "a message of run {index} died that was not out");
            return;
        };
        debug_assert!(*left >= count, "more messages of run {index} died than were out");
        *left = left.saturating_sub(count);
        if *left == 0 {
            self.runs.remove(&index);
            self.died.push(index);
        }
    }

    /// The head jumps from this run on: it and the following runs may be dead.
    pub(crate) fn jump(&mut self, from: LogIndex) {
        self.died.push(from);
        self.died.push(from.next());
    }

    /// The dead ranges that contain a run that died in this entry, from `from` up to the next
    /// living run or `head`, ascending, each once.
    fn take_gaps(&mut self, from: LogIndex, head: LogIndex) -> Vec<(LogIndex, LogIndex)> {
        let mut gaps = Vec::new();
        self.died.sort_unstable();
        let mut done_below = from;
        for died in self.died.drain(..) {
            if died < done_below || died >= head || self.runs.contains_key(&died) {
                continue;
            }
            let below = self.runs.range(..died).next_back();
            let first = below.map_or(from, |(living, _)| living.next());
            let above = self.runs.range(died..).next().map_or(head, |(living, _)| *living);
            done_below = above.min(head);
            gaps.push((first, LogIndex(done_below.0 - 1)));
        }
        gaps
    }
}

impl LevelState {
    /// Appends the removals of runs that died in this entry. `removed_below` rises to the lowest
    /// living run.
    pub(crate) fn sweep(&mut self, queue: QueueId, level: Level, changes: &mut Vec<Change>) {
        if self.living.died.is_empty() {
            return;
        }
        let head = self.record.head_index;
        let from = self.record.removed_below;
        for (first, last) in self.living.take_gaps(from, head) {
            changes.push(Change::Removed { queue, level, first, last });
        }
        let lowest = self.living.runs.keys().next().map_or(head, |living| (*living).min(head));
        self.record.removed_below = from.max(lowest);
    }

    /// Every dead range below the head, from the first index on. A start removes them again, since
    /// the state's record may have been written before the removals (STO 3).
    pub(crate) fn dead_ranges(&self, queue: QueueId, level: Level, changes: &mut Vec<Change>) {
        let mut first = LogIndex(0);
        let head = self.record.head_index;
        for living in self.living.runs.keys().copied().filter(|run| *run < head).chain([head]) {
            if living > first {
                let last = LogIndex(living.0 - 1);
                changes.push(Change::Removed { queue, level, first, last });
            }
            first = living.next();
        }
    }
}
