//! The times without confirms that faults caused, by the kind of the fault.

use super::fault::Kind;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The time without confirms of the measured queue that a fault caused.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// The kind of the fault.
    pub kind: Kind,
    /// The longest time between two confirms, from its begin until it was undone.
    pub during: Duration,
    /// From when it was undone to the next confirm.
    pub after: Duration,
}

/// A table in Markdown: for each kind the number of its faults, the median and the longest time without
/// confirms while they lasted, and the longest time from their end to the next confirm, in milliseconds.
#[must_use]
pub fn table(gaps: &[Gap]) -> String {
    let mut by_kind: BTreeMap<Kind, Vec<Gap>> = BTreeMap::new();
    for gap in gaps {
        by_kind.entry(gap.kind).or_default().push(*gap);
    }
    let mut table = String::from(
        "| fault | times | without confirms: median, ms | longest, ms | after its end: longest, ms |\n\
         |---|---|---|---|---|\n",
    );
    for (kind, gaps) in by_kind {
        let during = sorted(gaps.iter().map(|gap| gap.during));
        let after = sorted(gaps.iter().map(|gap| gap.after));
        let [median, longest] = [during.get((during.len() - 1) / 2), during.last()].map(ms);
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "| {kind} | {} | {median} | {longest} | {} |",
            during.len(),
            ms(after.last())
        );
    }
    table
}

fn sorted(times: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times
}

fn ms(time: Option<&Duration>) -> u128 {
    time.map_or(0, Duration::as_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_kind_has_the_median_and_the_longest() {
        let gap = |kind, during, after| Gap {
            kind,
            during: Duration::from_millis(during),
            after: Duration::from_millis(after),
        };
        let gaps = [
            gap(Kind::KillLeader, 300, 9),
            gap(Kind::Reset, 20, 1),
            gap(Kind::KillLeader, 100, 2),
            gap(Kind::KillLeader, 200, 3),
        ];
        let table = table(&gaps);
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(lines, ["| kill-leader | 3 | 200 | 300 | 9 |", "| reset | 1 | 20 | 20 | 1 |"]);
    }
}
