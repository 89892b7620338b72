//! The times without confirms that faults caused, by the kind of the fault; and what was stuck although
//! nothing hindered it.

use super::fault::Kind;
use super::injector::{Effect, Injected};
use super::stalls::{self, Span};
use super::workload::MEASURED;
use crate::history::{History, Log};
use crate::invariant::Violation;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// How long a run waits before it calls something stuck.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long confirms may pause, and a publish may go without an answer, while a majority of nodes can reach
    /// each other and its disks work.
    pub stuck: Duration,
    /// How long after the end of faults confirms flow again at the latest.
    pub healed: Duration,
}

/// That of `make chaos`.
pub const PATIENCE: Patience =
    Patience { stuck: Duration::from_secs(10), healed: Duration::from_secs(2) };
/// What a crash of a leader may cost.
const CRASH: Duration = Duration::from_millis(300);
/// What a leader may cost that hangs, whose disk hangs, or that is cut off from a majority.
const HANG: Duration = Duration::from_secs(1);
/// What any fault of a follower may cost.
const FOLLOWER: Duration = Duration::from_millis(200);

/// The time without confirms of the measured queue that a fault caused.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// The kind of the fault.
    pub kind: Kind,
    /// Whether it hit the leader of the measured queue.
    pub hit_leader: bool,
    /// The longest time between two confirms, from its begin until it was undone.
    pub during: Duration,
    /// The same without the times in which the machine stood still ([`stalls`]).
    pub without_stalls: Duration,
    /// From when it was undone to the next confirm.
    pub after: Duration,
}

impl Gap {
    /// The longest time without confirms that a fault of this kind alone may cause, where there is a bound.
    #[must_use]
    pub fn bound(&self) -> Option<Duration> {
        match self.kind {
            Kind::KillNode
            | Kind::KillLeader
            | Kind::OutOfMemory
            | Kind::PowerLossNode
            | Kind::BrokenDisk
            | Kind::FullDisk
            | Kind::WrongData => Some(if self.hit_leader { CRASH } else { FOLLOWER }),
            Kind::PauseShort
            | Kind::PauseLong
            | Kind::IsolateNode
            | Kind::IsolateLeader
            | Kind::CutLink
            | Kind::CutOneWay
            | Kind::Reject
            | Kind::StuckDisk => Some(if self.hit_leader { HANG } else { FOLLOWER }),
            // Groups change their members, and leaderships move.
            Kind::RollingRestart
            | Kind::RollingUpgrade
            | Kind::ScaleUp
            | Kind::ScaleDown
            | Kind::LostDisk
            | Kind::Drain
            | Kind::NewAddress => Some(HANG),
            // No majority, or every node is hit or one again and again, or it is up to the fault's rate.
            Kind::KillMajority
            | Kind::KillAll
            | Kind::Ring
            | Kind::CutAll
            | Kind::Flapping
            | Kind::Reset
            | Kind::Delay
            | Kind::Reorder
            | Kind::Loss
            | Kind::Duplicate
            | Kind::Throttle
            | Kind::ThrottledSnapshot
            | Kind::SlowDisk
            | Kind::PowerLossMajority
            | Kind::PowerLossAll
            | Kind::DamagedData
            | Kind::StarvedProcessor
            | Kind::ClockJump
            | Kind::ClockDrift
            | Kind::ClientsReset => None,
        }
    }
}

/// The gaps of the faults that took effect.
#[must_use]
pub fn gaps(
    history: &History,
    begun: Duration,
    injected: &[Injected],
    stalls: &[Span],
) -> Vec<Gap> {
    let took_effect = |one: &&Injected| matches!(one.effect, Effect::Seen(_));
    let gap = |one: &Injected| {
        let (from, to) = (begun + one.began, begun + one.ended);
        // The faults of one period hinder each other's recovery.
        let period = injected.iter().filter(|other| other.event.at_ms == one.event.at_ms);
        let healed = begun + period.map(|other| other.ended).max().unwrap_or(one.ended);
        let next = history.first_confirm_since(MEASURED, healed).unwrap_or_else(|| history.now());
        let gaps = history.confirm_gaps(MEASURED, from, to);
        let longest = |stalls| gaps.iter().map(|gap| stalls::without(stalls, *gap)).max();
        Gap {
            kind: one.event.counts_as,
            hit_leader: one.leader.is_none_or(|leader| one.nodes.contains(&leader)),
            during: longest(&[]).unwrap_or_default(),
            without_stalls: longest(stalls).unwrap_or_default(),
            after: next.saturating_sub(healed),
        }
    };
    injected.iter().filter(took_effect).map(gap).collect()
}

/// Confirms that stopped for too long although a majority was left, or did not flow again in time after the end
/// of faults; and publishes that waited too long for an answer while there was no fault.
#[must_use]
pub fn stuck(
    gaps: &[Gap],
    patience: Patience,
    log: &Log,
    begun: Duration,
    injected: &[Injected],
) -> Vec<Violation> {
    let Patience { stuck, healed } = patience;
    let is_stuck =
        |gap: &&Gap| gap.after > healed || gap.kind.leaves_majority() && gap.during > stuck;
    let gaps = gaps.iter().filter(is_stuck).map(|gap| Violation::Stuck(format!("{gap:?}")));
    let mut faults: Vec<_> =
        injected.iter().map(|one| [begun + one.began, begun + one.ended]).collect();
    faults.sort_unstable();
    let waited = |at, answered: Option<Duration>| quiet(&faults, stuck, at, answered.unwrap_or(at));
    let publishes = log.published.iter().filter_map(|(number, published)| {
        let waited = waited(published.at, published.answered_at);
        let story = || format!("{number:?} had no answer for {waited:?} without a fault");
        (waited > stuck).then(|| Violation::Stuck(story()))
    });
    gaps.chain(publishes).collect()
}

/// The longest time within a span that is in none of the faults, which are sorted; none, if the span is too short
/// to be stuck.
fn quiet(faults: &[[Duration; 2]], stuck: Duration, from: Duration, to: Duration) -> Duration {
    if to.saturating_sub(from) <= stuck {
        return Duration::ZERO;
    }
    let (mut longest, mut since) = (Duration::ZERO, from);
    for [began, ended] in faults {
        longest = longest.max((*began).min(to).saturating_sub(since));
        since = since.max(*ended);
    }
    longest.max(to.saturating_sub(since))
}

/// The kinds whose faults, each alone, stopped confirms for longer than they may, in words. A bound holds for
/// 99 of 100 faults. The short ones leave out the times in which the machine stood still.
#[must_use]
pub fn beyond_bounds(gaps: &[Gap]) -> Vec<String> {
    let mut by_kind: BTreeMap<(Kind, bool), Vec<Gap>> = BTreeMap::new();
    for gap in gaps {
        by_kind.entry((gap.kind, gap.hit_leader)).or_default().push(*gap);
    }
    let beyond = by_kind.into_iter().filter_map(|((kind, hit_leader), gaps)| {
        let bound = gaps.first()?.bound()?;
        // A stall is no excuse for the time that a lease takes.
        let measured = |gap: &Gap| if bound < HANG { gap.without_stalls } else { gap.during };
        let during = sorted(gaps.iter().map(measured));
        let p99 = *during.get((during.len() * 99).div_ceil(100) - 1)?;
        let of = if hit_leader { "the leader" } else { "a follower" };
        let story = || format!("{kind} of {of}: {p99:?} of {} faults, not {bound:?}", gaps.len());
        (p99 > bound).then(story)
    });
    beyond.collect()
}

/// A table in Markdown: for each kind the number of its faults, the median and the longest time without
/// confirms while they lasted, the longest without the machine's stalls, and the longest time from their end
/// to the next confirm, in milliseconds.
#[must_use]
pub fn table(gaps: &[Gap]) -> String {
    let mut by_kind: BTreeMap<Kind, Vec<Gap>> = BTreeMap::new();
    for gap in gaps {
        by_kind.entry(gap.kind).or_default().push(*gap);
    }
    let mut table = String::from(
        "| fault | times | without confirms: median, ms | longest, ms | without stalls of the machine, ms \
         | after its end: longest, ms |\n|---|---|---|---|---|---|\n",
    );
    for (kind, gaps) in by_kind {
        let during = sorted(gaps.iter().map(|gap| gap.during));
        let after = sorted(gaps.iter().map(|gap| gap.after));
        let without_stalls = gaps.iter().map(|gap| gap.without_stalls).max();
        let [median, longest] = [during.get((during.len() - 1) / 2), during.last()].map(ms);
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "| {kind} | {} | {median} | {longest} | {} | {} |",
            during.len(),
            ms(without_stalls.as_ref()),
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
            hit_leader: true,
            during: Duration::from_millis(during),
            without_stalls: Duration::from_millis(during - 1),
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
        assert_eq!(
            lines,
            ["| kill-leader | 3 | 200 | 300 | 299 | 9 |", "| reset | 1 | 20 | 20 | 19 | 1 |"]
        );
    }

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_time_without_faults_is_found_between_before_and_after_them() {
        let faults = [[S(10), S(20)], [S(12), S(14)], [S(40), S(50)]];
        assert_eq!(quiet(&faults, S(10), S(0), S(11)), S(10));
        assert_eq!(quiet(&faults, S(10), S(15), S(45)), S(20));
        assert_eq!(quiet(&faults, S(10), S(45), S(80)), S(30));
        assert_eq!(quiet(&[], S(10), S(0), S(80)), S(80));
        assert_eq!(quiet(&faults, S(10), S(21), S(25)), S(0), "too short to be stuck");
    }

    #[test]
    fn of_a_hundred_faults_one_may_take_longer_than_the_bound() {
        let gap = |hit_leader, ms| Gap {
            kind: Kind::KillNode,
            hit_leader,
            during: Duration::from_secs(2),
            without_stalls: Duration::from_millis(ms),
            after: Duration::ZERO,
        };
        let mut gaps = vec![gap(true, 290); 99];
        gaps.push(gap(true, 900));
        assert_eq!(beyond_bounds(&gaps), Vec::<String>::new());
        gaps.push(gap(true, 301));
        assert_eq!(beyond_bounds(&gaps).len(), 1);
        assert_eq!(beyond_bounds(&[gap(false, 250)]).len(), 1);
        let hang = Gap { kind: Kind::PauseLong, ..gap(true, 20) };
        assert_eq!(beyond_bounds(&[hang]).len(), 1, "a lease is no stall");
    }
}
