//! How much there is of something that comes and goes, and the most of it within a time.

use std::time::Duration;

/// The sum of weights over time.
pub(super) struct Level {
    /// The times of all changes, sorted.
    times: Vec<Duration>,
    /// A segment tree of maxima: the second half holds the level before the first change and after each.
    most: Vec<u64>,
}

impl Level {
    /// The level of these spans with their weights. Both ends belong to a span.
    pub fn new(spans: impl IntoIterator<Item = (Duration, Duration, u64)>) -> Self {
        // Of changes at the same time those that add come first.
        let mut changes: Vec<(Duration, bool, u64)> = Vec::new();
        for (from, to, weight) in spans {
            changes.extend([(from, false, weight), (to.max(from), true, weight)]);
        }
        changes.sort_unstable();
        let (count, mut level) = (changes.len() + 1, 0_u64);
        let mut most = vec![0; count * 2];
        for (place, (_, ends, weight)) in changes.iter().enumerate() {
            level = if *ends { level.saturating_sub(*weight) } else { level + weight };
            most[count + place + 1] = level;
        }
        for place in (1..count).rev() {
            most[place] = most[place * 2].max(most[place * 2 + 1]);
        }
        Self { times: changes.into_iter().map(|(at, _, _)| at).collect(), most }
    }

    /// The highest level from one time to another, both included.
    pub fn most(&self, from: Duration, to: Duration) -> u64 {
        let count = self.times.len() + 1;
        let mut low = count + self.times.partition_point(|at| *at < from);
        let mut high = count + self.times.partition_point(|at| *at <= to) + 1;
        let mut most = 0;
        while low < high {
            if low % 2 == 1 {
                most = most.max(self.most[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                most = most.max(self.most[high]);
            }
            (low, high) = (low / 2, high / 2);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_any_time_is_that_of_its_moments() {
        let ms = Duration::from_millis;
        let spans: Vec<(u64, u64, u64)> = (0..40)
            .map(|_| (fastrand::u64(..30), fastrand::u64(..30), fastrand::u64(1..4)))
            .map(|(one, other, weight)| (one.min(other), one.max(other), weight))
            .collect();
        let level =
            Level::new(spans.iter().map(|(from, to, weight)| (ms(*from), ms(*to), *weight)));
        let at = |moment: u64| -> u64 {
            let during = spans.iter().filter(|(from, to, _)| (*from..=*to).contains(&moment));
            during.map(|(_, _, weight)| weight).sum()
        };
        for from in 0..30 {
            for to in from..31 {
                let most = (from..=to).map(at).max();
                assert_eq!(Some(level.most(ms(from), ms(to))), most, "{from} to {to} of {spans:?}");
            }
        }
        assert_eq!(Level::new([]).most(ms(1), ms(2)), 0);
    }
}
