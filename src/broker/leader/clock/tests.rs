//! A group's clock, in one process and in several that send it to each other.

#![expect(clippy::indexing_slicing, reason = "tests")]

use super::*;
use proptest::{collection::vec, prelude::*};

const HOUR: u64 = 3_600_000;
const STAMPS: (Timestamp, WallTime) = (Timestamp(5_000), WallTime(100 * HOUR));

#[test]
fn who_knows_the_clock_goes_by_no_wall_clock() {
    let ahead = (WallTime(101 * HOUR), Duration::from_secs(2));
    assert_eq!(begins_at(STAMPS, Some(Timestamp(7_000)), ahead), Timestamp(7_000));
    assert_eq!(begins_at(STAMPS, Some(Timestamp(4_000)), ahead), Timestamp(5_000));
}

#[test]
fn down_time_of_all_counts_and_never_backwards() {
    let later = (WallTime(101 * HOUR), Duration::from_secs(2));
    assert_eq!(begins_at(STAMPS, None, later), Timestamp(5_000 + HOUR + 2_000));
    let set_back = (WallTime(99 * HOUR), Duration::from_secs(2));
    assert_eq!(begins_at(STAMPS, None, set_back), Timestamp(7_000));
}

#[test]
fn a_group_without_a_stamp_begins_where_it_is() {
    let new = (Timestamp(0), WallTime(0));
    assert_eq!(begins_at(new, None, (WallTime(HOUR), Duration::from_secs(9))), Timestamp(0));
}

#[test]
fn a_clock_continues_from_the_time_that_it_received_and_never_goes_back() {
    let clock = GroupClock::default();
    assert_eq!(clock.now(), None);
    clock.learn(Timestamp(50_000), TimeOf::Other);
    clock.learn(Timestamp(40_000), TimeOf::Other);
    assert!(clock.now().is_some_and(|now| now >= Timestamp(50_000)));
    let far_ahead = ProcessStart { at: Instant::now(), wall: WallTime(999 * HOUR) };
    let (begins, _) = clock.lead(STAMPS.0, STAMPS.1, far_ahead);
    assert!(begins >= Timestamp(50_000) && begins < Timestamp(50_000 + HOUR), "{begins}");
    assert!(clock.now() >= Some(begins));
}

#[test]
fn the_leaders_time_counts_whatever_a_clock_shows_and_nothing_else_while_it_leads() {
    let clock = GroupClock::default();
    clock.learn(Timestamp(50_000), TimeOf::Other);
    clock.learn(Timestamp(90_000), TimeOf::Follower);
    assert!(clock.now().is_some_and(|now| now < Timestamp(90_000)));
    clock.learn(Timestamp(40_000), TimeOf::Leader);
    assert!(clock.now().is_some_and(|now| now < Timestamp(50_000)));
}

/// A message that was enqueued by the slower leader must not expire earlier for it.
#[test]
fn q_21_a_process_that_is_ahead_of_its_leader_goes_on_with_the_leaders_time() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let process = ProcessStart { at: start, wall: WallTime(HOUR) };
    let told = Timestamp(10_000);
    let (mut slower, mut faster) = (Some((told, at(100))), Some((told, at(0))));
    let begins = lead_at(&mut slower, STAMPS, process, at(200));
    assert_eq!(begins, Timestamp(10_100));
    follow_at(&mut faster, begins, at(200));
    let begins = lead_at(&mut faster, (begins, STAMPS.1), process, at(300));
    assert_eq!(begins, Timestamp(10_200), "100 ms later by both");
}

/// A process of a node of the group.
#[derive(Clone, Copy, Debug)]
struct Process {
    start: ProcessStart,
    known: Known,
    /// The last time that it showed.
    shown: Timestamp,
    /// How far its wall clock is ahead, ms.
    ahead_ms: u64,
}

/// A group of three nodes, and real time.
struct Group {
    begun: Instant,
    now: Instant,
    processes: [Process; 3],
    /// The leader, and the time at which its clock began.
    leader: Option<(usize, Timestamp, Instant)>,
    /// The last entry's stamps.
    stamps: (Timestamp, WallTime),
    /// Notices in flight: the receiver, and the time sent.
    notices: Vec<(usize, Timestamp)>,
    /// No clock may be ahead of real time.
    is_exact: bool,
}

const EPOCH_MS: u64 = 100 * HOUR;

impl Group {
    fn new(ahead_ms: [u64; 3]) -> Self {
        let begun = Instant::now();
        let process = |ahead_ms| Process {
            start: ProcessStart { at: begun, wall: WallTime(EPOCH_MS + ahead_ms) },
            known: None,
            shown: Timestamp(0),
            ahead_ms,
        };
        Self {
            begun,
            now: begun,
            processes: ahead_ms.map(process),
            leader: None,
            stamps: (Timestamp(0), WallTime(0)),
            notices: Vec::new(),
            is_exact: ahead_ms == [0; 3],
        }
    }

    fn elapsed_ms(&self) -> u64 {
        millis(self.now - self.begun)
    }

    fn wall(&self, of: usize) -> WallTime {
        WallTime(EPOCH_MS + self.elapsed_ms() + self.processes[of].ahead_ms)
    }

    fn lead(&mut self, new: usize) {
        let (stamps, now) = (self.stamps, self.now);
        let wall = self.wall(new);
        let process = &mut self.processes[new];
        let known = process.known.map(|known| shows(known, now));
        let begins = lead_at(&mut process.known, stamps, process.start, now);
        assert!(begins >= stamps.0, "{begins} before the last entry's {}", stamps.0);
        assert_eq!(process.known.map(|known| shows(known, now)), Some(begins));
        if let Some(known) = known {
            assert_eq!(
                begins,
                known.max(stamps.0),
                "a process with a known time ignores the wall clock"
            );
        } else if stamps.1 != WallTime(0) {
            let down = wall.0.saturating_sub(stamps.1.0);
            assert!(begins.0 >= stamps.0.0 + down, "all the time since counts");
        }
        // A process that has received no time counts its whole life, also before the last entry.
        let began = process.start.wall;
        self.is_exact &= known.is_some() || stamps.1 == WallTime(0) || stamps.1 <= began;
        let elapsed = self.elapsed_ms();
        assert!(!self.is_exact || begins.0 <= elapsed, "{begins} after {elapsed} ms");
        self.leader = Some((new, begins, now));
        self.notices.extend((0..3).map(|to| (to, begins)));
    }

    /// The leader proposes an entry.
    fn stamp(&mut self) {
        let Some((leader, base, since)) = self.leader else { return };
        let time = base.plus_ms(millis(self.now - since));
        assert!(time >= self.stamps.0, "a stamp before the last one");
        self.stamps = (time, self.wall(leader));
    }

    fn take(&mut self, at: usize) {
        if !self.notices.is_empty() {
            let (to, time) = self.notices.swap_remove(at % self.notices.len());
            learn_at(&mut self.processes[to].known, time, self.now);
        }
    }

    fn restart(&mut self, of: usize) {
        let wall = self.wall(of);
        let process = &mut self.processes[of];
        process.start = ProcessStart { at: self.now, wall };
        (process.known, process.shown) = (None, Timestamp(0));
        // A newly linked node sends it the time.
        let known = self.processes.iter().filter_map(|process| process.known);
        self.notices.extend(known.map(|known| (of, shows(known, self.now))));
        self.leader.take_if(|(leader, ..)| *leader == of);
    }

    /// No clock of a process goes back.
    fn look(&mut self) {
        for process in &mut self.processes {
            let Some(known) = process.known else { continue };
            let shown = shows(known, self.now);
            assert!(shown >= process.shown, "{shown} after {}", process.shown);
            process.shown = shown;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Stamp,
    Lead(usize),
    Take(usize),
    Restart(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..5_000_u64).prop_map(Step::Pass),
        4 => Just(Step::Stamp),
        2 => (0..3_usize).prop_map(Step::Lead),
        3 => any::<usize>().prop_map(Step::Take),
        1 => (0..3_usize).prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// a group's time never goes back, whichever node leads, receives the time late or
    /// restarts. With right wall clocks it does not run ahead either; wrong ones count only in
    /// processes that have received no time.
    #[test]
    fn q_21_a_groups_time_never_goes_back_whoever_leads(
        ahead in prop_oneof![Just([0; 3]), any::<[u32; 3]>().prop_map(|it| it.map(u64::from))],
        steps in vec(step(), 1..80),
    ) {
        let mut group = Group::new(ahead);
        for step in steps {
            match step {
                Step::Pass(ms) => group.now += Duration::from_millis(ms),
                Step::Stamp => group.stamp(),
                Step::Lead(new) => group.lead(new),
                Step::Take(at) => group.take(at),
                Step::Restart(of) => group.restart(of),
            }
            group.look();
        }
    }
}
