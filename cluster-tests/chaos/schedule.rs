//! The schedule of a run: which faults begin when, and how long each lasts. It follows from a seed and
//! is saved before the run, so that a run can be repeated from its file also when the code that made the
//! schedule has changed.

use super::fault::{
    ClockFault, Cut, DamagedFile, DiskCall, DiskFault, Fault, Kind, Leaving, LinkFault,
    MemberFault, ProcessFault, Victim, Victims, WrongData,
};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// From the start of the load to the first fault: leaders are known, and there is something to lose.
const QUIET_START: Duration = Duration::from_secs(5);
/// Between the end of one period's faults and the next period: the time in which the cluster recovers.
pub(crate) const RECOVERY: Duration = Duration::from_secs(6);
/// How long the faults of a period last, in milliseconds.
const FAULT_MS: std::ops::RangeInclusive<u64> = 2_000..=8_000;
/// How long a pause lasts that is shorter than an election, in milliseconds.
const SHORT_PAUSE_MS: std::ops::RangeInclusive<u64> = 50..=250;
/// Most faults of one period, unless a run says otherwise.
pub const TOGETHER_MAX: usize = 3;
/// How far wall clocks jump, in seconds: minutes and a day, ahead and back.
const JUMPS_S: [i32; 4] = [600, -600, 86_400, -86_400];
const WRONG_DATA: [WrongData; 4] =
    [WrongData::OldCopy, WrongData::FlippedBit, WrongData::Truncated, WrongData::Wiped];
const DISK_CALLS: [DiskCall; 3] = [DiskCall::Sync, DiskCall::Write, DiskCall::Read];
/// One period in this many has no faults.
const QUIET_PERIODS: usize = 4;

/// One fault's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it begins, in milliseconds since the start of the load.
    pub at_ms: u64,
    /// How long it lasts, in milliseconds.
    pub for_ms: u64,
    /// What kind of fault it counts as.
    pub counts_as: Kind,
    /// What is done.
    pub fault: Fault,
}

/// All that is done to a cluster in one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// What it was made from.
    pub seed: u64,
    /// How long the load lasts, in milliseconds.
    pub duration_ms: u64,
    /// In the order of their beginnings.
    pub events: Vec<Event>,
}

impl Schedule {
    /// The schedule of a seed: periods of one to `together_max` faults of these kinds, and of none in one
    /// of four. Every kind comes once before any comes twice.
    #[must_use]
    pub fn make(seed: u64, duration: Duration, kinds: &[Kind], together_max: usize) -> Self {
        let mut chance = Rng::with_seed(seed);
        let duration_ms = millis(duration);
        let mut events = Vec::new();
        let mut left: Vec<Kind> = Vec::new();
        let mut at_ms = millis(QUIET_START);
        let mut period = 0;
        while !kinds.is_empty() {
            let for_ms = chance.u64(FAULT_MS);
            if at_ms + for_ms + millis(RECOVERY) > duration_ms {
                break;
            }
            period += 1;
            if period % QUIET_PERIODS != 0 {
                let wanted = chance.usize(1..=together_max);
                for counts_as in together(&mut chance, &mut left, kinds, wanted) {
                    let fault = fault(&mut chance, counts_as);
                    let is_short = counts_as == Kind::PauseShort;
                    let for_ms = if is_short { chance.u64(SHORT_PAUSE_MS) } else { for_ms };
                    events.push(Event { at_ms, for_ms, counts_as, fault });
                }
            }
            at_ms += for_ms + millis(RECOVERY);
        }
        complete_last_upgrade(&mut events);
        Self { seed, duration_ms, events }
    }

    /// How long the load lasts.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_millis(self.duration_ms)
    }

    /// Reads a saved schedule.
    ///
    /// # Errors
    /// The file cannot be read, or is no schedule.
    pub fn read(path: &Path) -> Result<Self, String> {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read(path).map_err(|error| named(&error))?;
        serde_json::from_slice(&text).map_err(|error| named(&error))
    }

    /// Saves it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = serde_json::to_vec_pretty(self).map_err(|error| named(&error))?;
        std::fs::write(path, text).map_err(|error| named(&error))
    }
}

/// After a complete upgrade there is no way back, so that only the last one of a run is complete.
fn complete_last_upgrade(events: &mut [Event]) {
    for event in events.iter_mut().rev() {
        if let Fault::Process(ProcessFault::RollingUpgrade { back }) = &mut event.fault {
            *back = false;
            return;
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Kinds whose faults can last at the same time: at most one for each resource, and at most one that
/// leaves no majority by itself.
fn together(chance: &mut Rng, left: &mut Vec<Kind>, kinds: &[Kind], wanted: usize) -> Vec<Kind> {
    let mut chosen: Vec<Kind> = Vec::new();
    for _ in 0..wanted {
        if left.is_empty() {
            left.extend_from_slice(kinds);
            chance.shuffle(left);
        }
        let taken: Vec<_> = chosen.iter().flat_map(|other| other.occupies()).collect();
        let fits = |kind: &Kind| kind.occupies().iter().all(|one| !taken.contains(&one));
        let Some(place) = left.iter().position(fits) else { break };
        chosen.push(left.remove(place));
    }
    chosen
}

/// A seed that no earlier run has had: the seconds since 1970.
#[must_use]
pub fn new_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs())
}

/// One node, or all of them.
fn one_or_all(chance: &mut Rng, one: Victim) -> Victims {
    if chance.bool() { Victims::One(one) } else { Victims::All }
}

fn fault(chance: &mut Rng, kind: Kind) -> Fault {
    let any = Victim::Node(chance.u64(1..=3));
    let further = chance.u64(1..=2);
    let kill = |victims| Fault::Process(ProcessFault::Kill { victims });
    let power = |victims| Fault::Disk(DiskFault::PowerLoss { victims });
    let cut = |cut| Fault::Link(LinkFault::Partition { cut });
    match kind {
        Kind::KillNode => kill(Victims::One(any)),
        Kind::KillLeader => kill(Victims::One(Victim::Leader)),
        Kind::KillMajority => kill(Victims::Majority),
        Kind::KillAll => kill(Victims::All),
        Kind::PauseShort | Kind::PauseLong => {
            Fault::Process(ProcessFault::Pause { victims: Victims::One(Victim::Leader) })
        }
        Kind::RollingRestart => Fault::Process(ProcessFault::RollingRestart),
        Kind::RollingUpgrade => Fault::Process(ProcessFault::RollingUpgrade { back: true }),
        Kind::StarvedProcessor => Fault::Process(starved(chance, any)),
        Kind::OutOfMemory => Fault::Process(ProcessFault::OutOfMemory { victim: any }),
        Kind::IsolateNode => cut(Cut::Isolated(any)),
        Kind::IsolateLeader => cut(Cut::Isolated(Victim::Leader)),
        Kind::CutLink => cut(Cut::Link { from: any, further }),
        Kind::CutOneWay => cut(Cut::OneWay { from: any, further }),
        Kind::Ring => cut(Cut::Ring),
        Kind::CutAll => cut(Cut::All),
        Kind::Flapping => Fault::Link(flapping(chance, any, further)),
        Kind::Reject => Fault::Link(LinkFault::Reject { victim: any }),
        Kind::Reset => Fault::Link(LinkFault::Reset),
        Kind::Delay => Fault::Link(delay(chance)),
        Kind::Reorder => Fault::Link(LinkFault::Reorder { jitter_ms: chance.u64(5..=100) }),
        Kind::Loss => Fault::Link(LinkFault::Loss { percent: chance.u8(1..=30) }),
        Kind::Duplicate => Fault::Link(LinkFault::Duplicate { percent: chance.u8(1..=30) }),
        Kind::Throttle => Fault::Link(throttle(chance, any)),
        Kind::ThrottledSnapshot => {
            let bytes_per_s = chance.u64(1_000_000..=4_000_000);
            Fault::Link(LinkFault::ThrottledSnapshot { victim: any, bytes_per_s })
        }
        Kind::SlowDisk => {
            Fault::Disk(DiskFault::Slow { victim: any, sync_ms: chance.u32(20..=200) })
        }
        Kind::StuckDisk => Fault::Disk(DiskFault::Stuck { victim: any }),
        Kind::BrokenDisk => Fault::Disk(broken(chance, any)),
        Kind::FullDisk => Fault::Disk(DiskFault::Full { victim: any }),
        Kind::PowerLossNode => power(Victims::One(any)),
        Kind::PowerLossMajority => power(Victims::Majority),
        Kind::PowerLossAll => power(Victims::All),
        Kind::WrongData => Fault::Disk(wrong_data(chance, any)),
        Kind::DamagedData => Fault::Disk(damaged(chance, any)),
        Kind::ClockJump => Fault::Clock(jump(chance, any)),
        Kind::ClockDrift => Fault::Clock(drift(chance, any)),
        Kind::ClientsReset => Fault::ClientsReset,
        Kind::ScaleUp => Fault::Member(scale_up(chance)),
        Kind::ScaleDown => {
            Fault::Member(MemberFault::ScaleDown { victim: any_or_leader(chance, any) })
        }
        Kind::LostDisk => Fault::Member(lost_disk(chance, any)),
        Kind::Drain => Fault::Member(MemberFault::Drain { victim: any_or_leader(chance, any) }),
        Kind::NewAddress => Fault::Member(MemberFault::NewAddress),
    }
}

fn starved(chance: &mut Rng, victim: Victim) -> ProcessFault {
    ProcessFault::StarvedProcessor { victim, percent: chance.u32(3..=20) }
}

fn flapping(chance: &mut Rng, from: Victim, further: u64) -> LinkFault {
    let cut = if chance.bool() { Cut::Isolated(from) } else { Cut::Link { from, further } };
    LinkFault::Flapping { cut, period_ms: chance.u64(200..=2_000) }
}

fn delay(chance: &mut Rng) -> LinkFault {
    LinkFault::Delay { delay_ms: chance.u64(5..=100), jitter_ms: chance.u64(0..=100) }
}

fn throttle(chance: &mut Rng, victim: Victim) -> LinkFault {
    LinkFault::Throttle { victim, bytes_per_s: chance.u64(100_000..=1_000_000) }
}

fn broken(chance: &mut Rng, victim: Victim) -> DiskFault {
    let call = *chance.choice(&DISK_CALLS).unwrap_or(&DiskCall::Sync);
    DiskFault::Broken { victim, call }
}

fn wrong_data(chance: &mut Rng, victim: Victim) -> DiskFault {
    let wrong = *chance.choice(&WRONG_DATA).unwrap_or(&WrongData::Wiped);
    DiskFault::WrongData { victim, wrong }
}

fn damaged(chance: &mut Rng, victim: Victim) -> DiskFault {
    let file = if chance.bool() { DamagedFile::Table } else { DamagedFile::Log };
    DiskFault::Damaged { victim, file, place: chance.u32(..) }
}

/// The node, or the leader of the measured queue, whose loss is felt most.
fn any_or_leader(chance: &mut Rng, any: Victim) -> Victim {
    if chance.bool() { any } else { Victim::Leader }
}

fn lost_disk(chance: &mut Rng, any: Victim) -> MemberFault {
    MemberFault::LostDisk { victim: any_or_leader(chance, any), by_itself: chance.bool() }
}

fn scale_up(chance: &mut Rng) -> MemberFault {
    let leaving = if chance.bool() { Leaving::Stopped } else { Leaving::Running };
    MemberFault::ScaleUp { nodes: chance.usize(1..=2), leaving }
}

fn jump(chance: &mut Rng, one: Victim) -> ClockFault {
    let seconds = *chance.choice(&JUMPS_S).unwrap_or(&0);
    ClockFault::Jump { victims: one_or_all(chance, one), seconds }
}

fn drift(chance: &mut Rng, one: Victim) -> ClockFault {
    let percent = if chance.bool() { 50 } else { -50 };
    ClockFault::Drift { victims: one_or_all(chance, one), percent }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_seed_makes_one_schedule_and_another_seed_another() {
        let of = |seed| Schedule::make(seed, HOUR, &Kind::ALL, TOGETHER_MAX);
        assert_eq!(of(7), of(7));
        assert_ne!(of(7).events, of(8).events);
    }

    #[test]
    fn every_kind_comes_and_none_long_before_the_others() {
        for seed in 0..50 {
            let events = Schedule::make(seed, HOUR, &Kind::ALL, TOGETHER_MAX).events;
            let count = |kind| events.iter().filter(|event| event.counts_as == kind).count();
            let counts: Vec<usize> = Kind::ALL.into_iter().map(count).collect();
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(*least > 5 && most - least <= 3, "seed {seed}: {counts:?}");
        }
    }

    #[test]
    fn faults_at_the_same_time_do_not_share_a_resource_and_end_before_the_next_begin() {
        for seed in 0..50 {
            let events = Schedule::make(seed, HOUR, &Kind::ALL, TOGETHER_MAX).events;
            for period in events.chunk_by(|a, b| a.at_ms == b.at_ms) {
                let occupied = || period.iter().flat_map(|event| event.counts_as.occupies());
                let resources: BTreeSet<_> = occupied().collect();
                assert_eq!(resources.len(), occupied().count(), "seed {seed}: {period:?}");
            }
            for pair in events.windows(2).filter(|pair| pair[0].at_ms != pair[1].at_ms) {
                assert!(pair[0].at_ms + pair[0].for_ms < pair[1].at_ms, "seed {seed}: {pair:?}");
            }
            let end = events.last().map(|event| event.at_ms + event.for_ms);
            assert!(end.is_some_and(|end| end < millis(HOUR)), "seed {seed}");
        }
    }

    #[test]
    fn only_the_last_upgrade_is_complete() {
        let events = Schedule::make(5, HOUR, &[Kind::RollingUpgrade], 1).events;
        let is_back = |event: &Event| {
            event.fault == Fault::Process(ProcessFault::RollingUpgrade { back: true })
        };
        let back: Vec<bool> = events.iter().map(is_back).collect();
        let (last, others) = back.split_last().unwrap();
        assert!(others.len() > 10 && others.iter().all(|back| *back) && !last);
    }

    #[test]
    fn each_fault_has_a_period_of_its_own_if_that_is_asked_for() {
        let events = Schedule::make(5, HOUR, &Kind::ALL, 1).events;
        assert!(events.len() > 100);
        assert!(events.windows(2).all(|pair| pair[0].at_ms + pair[0].for_ms < pair[1].at_ms));
    }

    #[test]
    fn a_saved_schedule_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schedule.json");
        let schedule = Schedule::make(3, HOUR, &Kind::ALL, TOGETHER_MAX);
        schedule.save(&path).unwrap();
        assert_eq!(Schedule::read(&path), Ok(schedule));
        std::fs::write(&path, "{}").unwrap();
        assert!(Schedule::read(&path).unwrap_err().contains("schedule.json"));
    }
}
