//! Removals of settled runs that wait for a checkpoint. They are merged, and written at most once a
//! second or every 16,000 messages for one queue (DESIGN §3), since each costs a range deletion
//! that every later read must skip.

use crate::{RunRange, batch::RunChanges, codec::key::RunKey, run_cache::Settled};
use quorate_types::{Level, LogIndex, QueueId};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Longest that a removal waits.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Number of messages of one queue and level at which their removal does not wait.
const MESSAGES_MAX: usize = 16_000;

/// Up to this number of runs, known ones are deleted one by one; more are deleted as a range. A
/// queue with little traffic then leaves no range deletion behind.
const SINGLE_RUNS_MAX: usize = 32;

/// Removals that wait, by queue and level.
#[derive(Default)]
pub(crate) struct Removals {
    waiting: BTreeMap<(QueueId, Level), Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Disjoint and not adjacent, ascending.
    ranges: Vec<(LogIndex, LogIndex)>,
    messages: usize,
    /// When a checkpoint first saw the removal.
    since: Option<Instant>,
    /// All runs in the ranges; `None` if there may be others.
    runs: Option<Vec<LogIndex>>,
}

impl Removals {
    /// Records that all runs from `first` to `last` are settled; `settled` contains those known to
    /// the cache.
    pub(crate) fn add(
        &mut self,
        (queue, level): (QueueId, Level),
        (first, last): (LogIndex, LogIndex),
        settled: Settled,
    ) {
        let waiting = self
            .waiting
            .entry((queue, level))
            .or_insert_with(|| Waiting { runs: Some(Vec::new()), ..Waiting::default() });
        waiting.messages = waiting.messages.saturating_add(match settled.complete {
            true => settled.messages,
            // The number of messages of an old run is unknown; one for each index is a low
            // estimate.
            false => usize::try_from(last.0 - first.0).unwrap_or(usize::MAX).max(settled.messages),
        });
        waiting.join(first, last);
        waiting.runs = match waiting.runs.take() {
            Some(mut runs)
                if settled.complete && runs.len() + settled.runs.len() <= SINGLE_RUNS_MAX =>
            {
                runs.extend(settled.runs);
                Some(runs)
            }
            Some(_) | None => None,
        };
    }

    /// Forgets a queue that has ended; its runs are removed differently.
    pub(crate) fn forget(&mut self, queue: QueueId) {
        self.waiting.retain(|(of, _), _| *of != queue);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Moves removals that have waited long enough, or are large enough, to `out`.
    pub(crate) fn take_due(&mut self, now: Instant, out: &mut RunChanges) {
        self.waiting.retain(|(queue, level), waiting| {
            let since = *waiting.since.get_or_insert(now);
            let due = waiting.messages >= MESSAGES_MAX || now.duration_since(since) >= WAIT_MAX;
            if due {
                waiting.write(*queue, *level, out);
            }
            !due
        });
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }
}

impl Waiting {
    fn join(&mut self, mut first: LogIndex, mut last: LogIndex) {
        // Nearly always it follows the last range; otherwise all ranges that it touches are merged.
        let touches =
            |range: &(LogIndex, LogIndex)| range.0 <= last.next() && first <= range.1.next();
        let start = self.ranges.partition_point(|range| range.1.next() < first);
        let count = self.ranges.iter().skip(start).take_while(|range| touches(range)).count();
        for range in self.ranges.drain(start..start + count) {
            first = first.min(range.0);
            last = last.max(range.1);
        }
        self.ranges.insert(start, (first, last));
    }

    fn write(&mut self, queue: QueueId, level: Level, out: &mut RunChanges) {
        match self.runs.take() {
            Some(runs) => {
                out.runs.extend(runs.into_iter().map(|index| RunKey { queue, level, index }));
            }
            None => out.ranges.extend(self.ranges.iter().map(|&(first, last)| RunRange {
                queue,
                level,
                first,
                last,
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use quorate_types::{GroupId, Home};

    const QUEUE: QueueId = QueueId { home: Home::Group(GroupId(1)), index: 5, position: 0 };
    const PLACE: (QueueId, Level) = (QUEUE, Level(0));

    fn unknown() -> Settled {
        Settled { runs: Vec::new(), messages: 0, complete: false }
    }

    fn ranges(removals: &mut Removals, later: Duration) -> Vec<(u64, u64)> {
        let mut out = RunChanges::default();
        let now = Instant::now();
        removals.take_due(now, &mut out);
        assert!(out.ranges.is_empty() && out.runs.is_empty(), "nothing is due at once");
        removals.take_due(now + later, &mut out);
        out.ranges.iter().map(|range| (range.first.0, range.last.0)).collect()
    }

    #[test]
    fn touching_ranges_become_one() {
        let mut removals = Removals::default();
        for (first, last) in [(10, 19), (40, 49), (20, 25), (30, 32), (26, 29), (33, 60)] {
            removals.add(PLACE, (LogIndex(first), LogIndex(last)), unknown());
        }
        assert_eq!(ranges(&mut removals, WAIT_MAX), [(10, 60)]);
        assert!(removals.is_empty());
    }

    #[test]
    fn a_removal_waits_a_second_or_16000_messages() {
        let mut removals = Removals::default();
        removals.add(PLACE, (LogIndex(1), LogIndex(5)), unknown());
        assert_eq!(ranges(&mut removals, WAIT_MAX - Duration::from_millis(1)), []);
        let settled = Settled { runs: vec![LogIndex(6)], messages: 16_000, complete: true };
        removals.add(PLACE, (LogIndex(6), LogIndex(6)), settled);
        let mut out = RunChanges::default();
        removals.take_due(Instant::now(), &mut out);
        assert_eq!(out.ranges.first().unwrap().last, LogIndex(6));
    }

    #[test]
    fn few_known_runs_go_one_by_one() {
        let mut removals = Removals::default();
        let settled = Settled { runs: vec![LogIndex(3), LogIndex(7)], messages: 2, complete: true };
        removals.add(PLACE, (LogIndex(1), LogIndex(9)), settled);
        let mut out = RunChanges::default();
        let now = Instant::now();
        removals.take_due(now, &mut out);
        removals.take_due(now + WAIT_MAX, &mut out);
        let indexes: Vec<u64> = out.runs.iter().map(|run| run.index.0).collect();
        assert_eq!(indexes, [3, 7]);
        assert!(out.ranges.is_empty());
    }
}
