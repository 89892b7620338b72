//! The samples of one object: rows of values at ascending times, the oldest dropped first. Pure.

use std::collections::VecDeque;

/// Rows of samples. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    rows: VecDeque<(u64, Box<[u64]>)>,
}

impl History {
    /// Adds a row, and drops the oldest ones above `rows_max`. A row of a time that is there already,
    /// or that precedes the last one (the clock was set back), replaces the last.
    pub(crate) fn push(&mut self, time_ms: u64, values: &[u64], rows_max: usize) {
        if self.rows.back().is_some_and(|(last, _)| *last >= time_ms) {
            self.rows.pop_back();
        }
        self.rows.push_back((time_ms, values.into()));
        while self.rows.len() > rows_max.max(1) {
            self.rows.pop_front();
        }
    }

    /// The newest row.
    pub(crate) fn last(&self) -> Option<&[u64]> {
        self.rows.back().map(|(_, values)| values.as_ref())
    }

    /// What a value has risen by a second, between the last two rows. A counter that has begun anew has
    /// no rate until the next row.
    pub(crate) fn rate(&self, at: usize) -> f64 {
        let mut newest = self.rows.iter().rev();
        let (Some((now, last)), Some((then, before))) = (newest.next(), newest.next()) else {
            return 0.0;
        };
        let value = |row: &[u64]| row.get(at).copied().unwrap_or_default();
        per_second(value(last).saturating_sub(value(before)), now - then)
    }

    /// What a value has changed by a second between the last two rows; negative if it falls.
    pub(crate) fn slope(&self, at: usize) -> f64 {
        let mut newest = self.rows.iter().rev();
        let (Some((now, last)), Some((then, before))) = (newest.next(), newest.next()) else {
            return 0.0;
        };
        let value = |row: &[u64]| row.get(at).copied().unwrap_or_default();
        let (last, before) = (value(last), value(before));
        per_second(last.saturating_sub(before), now - then)
            - per_second(before.saturating_sub(last), now - then)
    }

    /// The values at `end_ms` and every `step_ms` before it down to `age_ms` before it, newest first;
    /// it ends where the rows begin.
    pub(crate) fn samples(&self, at: usize, end_ms: u64, age_ms: u64, step_ms: u64) -> Vec<u64> {
        let mut rows = self.rows.iter().rev().peekable();
        let mut samples = Vec::new();
        let mut back_ms = 0;
        while back_ms <= age_ms && step_ms > 0 {
            let Some(time) = end_ms.checked_sub(back_ms) else { break };
            while rows.next_if(|(of, _)| *of > time).is_some() {}
            let Some((_, values)) = rows.peek() else { break };
            samples.push(values.get(at).copied().unwrap_or_default());
            back_ms += step_ms;
        }
        samples
    }

    /// True if no value has changed over all rows, of which there are at least two.
    pub(crate) fn is_still(&self) -> bool {
        let mut rows = self.rows.iter();
        let first = rows.next();
        self.rows.len() > 1 && rows.all(|(_, row)| first.is_some_and(|(_, first)| first == row))
    }

    /// Time between the first row and the last, ms.
    pub(crate) fn span_ms(&self) -> u64 {
        let time = |row: Option<&(u64, Box<[u64]>)>| row.map_or(0, |(time, _)| *time);
        time(self.rows.back()) - time(self.rows.front())
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Forgets all rows but the last.
    pub(crate) fn shorten(&mut self) {
        let last = self.rows.pop_back();
        self.rows = last.into_iter().collect();
    }
}

/// A number in some milliseconds, by the second.
#[expect(clippy::cast_precision_loss, reason = "a rate for people and scalers")]
fn per_second(count: u64, ms: u64) -> f64 {
    if ms == 0 { 0.0 } else { count as f64 * 1_000.0 / ms as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        let mut history = History::default();
        for (time, value) in [(0, 0), (5_000, 10), (10_000, 40), (15_000, 20)] {
            history.push(time, &[value], 4);
        }
        history
    }

    #[test]
    fn rates_are_those_of_the_last_two_samples() {
        let mut history = history();
        assert_eq!((history.rate(0), history.slope(0)), (0.0, -4.0));
        history.push(20_000, &[70], 4);
        assert_eq!((history.rate(0), history.rate(7)), (10.0, 0.0));
        assert_eq!(history.len(), 4);
        history.push(20_000, &[30], 4);
        assert_eq!((history.rate(0), history.last()), (2.0, Some(&[30][..])));
    }

    #[test]
    fn samples_are_the_values_of_their_times_newest_first() {
        let history = history();
        assert_eq!(history.samples(0, 15_000, 10_000, 5_000), [20, 40, 10]);
        assert_eq!(history.samples(0, 17_000, 60_000, 10_000), [20, 10]);
        assert_eq!(history.samples(0, 9_000, 0, 1_000), [10]);
        assert!(history.samples(0, 9_000, 1_000, 0).is_empty());
    }

    #[test]
    fn a_still_history_is_shortened_to_its_last_row() {
        let mut history = History::default();
        assert!(!history.is_still());
        history.push(1, &[4, 4], 9);
        history.push(2, &[4, 4], 9);
        assert!(history.is_still());
        history.shorten();
        assert_eq!((history.len(), history.is_still()), (1, false));
    }
}
