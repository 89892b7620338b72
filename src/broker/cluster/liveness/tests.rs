//! Conclusions about nodes, compared with the rules applied to a history of their processes.

#![expect(clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::testing_state::{CatalogLog, GROUP, GroupLog, started};
use proptest::{collection::vec, prelude::*};
use quorate_catalog::{CatalogCommand, CatalogReply, ClusterShape, MemberCommand};
use quorate_types::{ClusterId, Incarnation, MachineVersion};

const ME: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const BOOT: BootNumber = BootNumber(20);

fn down(SessionId { node, start }: SessionId) -> CatalogCommand {
    CatalogCommand::NodeDown { node, start }
}

fn accused(catalog: &Catalog) -> Accusations {
    let mut accusations = Accusations::default();
    assert!(accusations.add(catalog, TWO, BOOT));
    accusations
}

fn fence(accusations: &mut Accusations, log: &CatalogLog, lives: bool) -> Vec<u64> {
    let due = accusations.fences_due(&log.catalog, |_, _| lives);
    due.into_iter().map(|session| session.start.0).collect()
}

#[test]
fn ses_06_an_accusation_fences_one_start_of_a_process_and_no_later_one() {
    let mut log = CatalogLog::new();
    let mut accusations = accused(&log.catalog);
    assert!(fence(&mut accusations, &log, false).is_empty(), "its start is not known yet");
    let start = log.start(TWO, BOOT);
    assert_eq!(fence(&mut accusations, &log, false), [start.0]);
    log.apply(down(SessionId { node: TWO, start }));
    // It was alive after all, and announces another start before it is linked again.
    log.start(TWO, BOOT);
    assert!(fence(&mut accusations, &log, false).is_empty());
    assert!(accusations.all().is_empty());
}

#[test]
fn ses_06_a_process_that_is_met_again_or_replaced_is_accused_no_more() {
    let mut log = CatalogLog::new();
    let mut accusations = accused(&log.catalog);
    log.start(TWO, BOOT);
    assert!(fence(&mut accusations, &log, true).is_empty());
    assert!(fence(&mut accusations, &log, false).is_empty(), "that it was met ends the belief");
    let mut accusations = accused(&log.catalog);
    log.start(TWO, BootNumber(21));
    assert!(fence(&mut accusations, &log, false).is_empty());
    assert!(accusations.all().is_empty());
    // NAM 5: the later process may hold a lease, which the death of the earlier one does not end.
    assert!(!accusations.add(&log.catalog, TWO, BOOT), "a report that comes late");
    assert!(accusations.all().is_empty());
}

#[test]
fn dlv_05_a_member_that_was_never_met_is_unreachable_from_the_start() {
    let began = Instant::now();
    let absences = Absences::new(began, ME, &[ME, TWO]);
    let later = began + Duration::from_secs(7);
    assert_eq!(absences.time(later, TWO), Some(Duration::from_secs(7)));
    assert_eq!(absences.time(later, ME), None);
}

#[test]
fn dlv_05_the_end_of_a_former_process_does_not_make_its_successor_unreachable() {
    let now = Instant::now();
    let mut absences = Absences::default();
    absences.lost(now, (TWO, BOOT), Some(BootNumber(21)));
    assert_eq!(absences.time(now, TWO), None);
    absences.lost(now, (TWO, BootNumber(21)), Some(BootNumber(21)));
    assert_eq!(absences.time(now, TWO), Some(Duration::ZERO));
}

/// DLV 5: a leader is linked with itself. If its predecessor had suspected it, no other node would
/// propose that it is back, and its consumers would get nothing.
#[test]
fn dlv_05_a_leader_that_was_suspected_is_back() {
    let (mut log, mut group) = (CatalogLog::new(), GroupLog::new());
    let start = log.start(ME, BOOT);
    let queue = quorate_types::QueueId { home: GROUP, index: 1, position: 9 };
    group.ask(SessionId { node: ME, start }, Command::Inspect { queue, renew: false });
    group.lead(vec![Command::NodeSuspected { node: ME }]);
    let absences = Absences::new(Instant::now(), ME, &[ME, TWO]);
    let commands = outlook(&absences).commands(&log.catalog, &group.machine);
    assert_eq!(commands, [Command::NodeBack { node: ME }]);
    group.lead(commands);
    assert!(outlook(&absences).commands(&log.catalog, &group.machine).is_empty());
}

/// MEM 4: what a forgotten directory's process holds is given to others only after the time of DLV 5. Until
/// then it gets nothing more, though a process with another directory is linked under its id.
#[test]
fn mem_04_a_forgotten_directory_gets_nothing_more_though_another_one_is_linked() {
    let (mut log, mut group) = (CatalogLog::new(), GroupLog::new());
    let shape = ClusterShape { cluster: ClusterId(7), queue_groups: 1 };
    log.apply(CatalogCommand::Form(shape));
    let [_, start, _] = [ME, TWO, NodeId(3)].map(|node| log.start(node, BOOT));
    log.apply(CatalogCommand::RaiseMachine(MachineVersion::MEMBERS));
    let queue = quorate_types::QueueId { home: GROUP, index: 1, position: 9 };
    group.ask(SessionId { node: TWO, start }, Command::Inspect { queue, renew: false });
    let forget = MemberCommand::Forget { node: TWO, incarnation: Incarnation(u64::from(TWO.0)) };
    assert_eq!(log.apply(CatalogCommand::Members(forget)), CatalogReply::Done);

    // Linked, as whatever process.
    let absences = Absences::default();
    let commands = |seconds, log: &CatalogLog, group: &GroupLog| {
        let time = Duration::from_secs(seconds);
        let forgotten_for: &dyn Fn(NodeId) -> Option<Duration> = &|_| Some(time);
        let outlook = Outlook { led_for: time, forgotten_for, ..outlook(&absences) };
        outlook.commands(&log.catalog, &group.machine)
    };
    assert_eq!(commands(0, &log, &group), [Command::NodeSuspected { node: TWO }]);
    group.lead(commands(0, &log, &group));
    assert_eq!(commands(20, &log, &group), []);
    let [down, back] = [Command::NodeDown { node: TWO, start }, Command::NodeBack { node: TWO }];
    assert_eq!(commands(21, &log, &group), [down, back]);
}

/// Events of the processes of two nodes, and of their accusations.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A process replaces the node's former one.
    Boot(usize),
    /// The node's process announces itself, unless it has a start that has not been fenced.
    Announce(usize),
    /// This node takes the node's process for dead.
    Accuse(usize),
    /// The process is linked.
    Meet(usize),
    /// The due fences are proposed and committed.
    Fence,
    /// Another node has accused it.
    FencedByOthers(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let node = 0_usize..2;
    prop_oneof![
        1 => node.clone().prop_map(Event::Boot),
        3 => node.clone().prop_map(Event::Announce),
        3 => node.clone().prop_map(Event::Accuse),
        1 => node.clone().prop_map(Event::Meet),
        3 => Just(Event::Fence),
        1 => node.prop_map(Event::FencedByOthers),
    ]
}

/// A process: whether it is accused, and of which start.
#[derive(Clone, Copy, Debug)]
struct Process {
    boot: BootNumber,
    is_accused: bool,
    of: Option<SessionId>,
}

struct Court {
    log: CatalogLog,
    accusations: Accusations,
    /// The present process of each node.
    processes: [Process; 2],
}

impl Court {
    fn new() -> Self {
        let process = Process { boot: BootNumber(1), is_accused: false, of: None };
        let (log, accusations) = (CatalogLog::new(), Accusations::default());
        Self { log, accusations, processes: [process; 2] }
    }

    fn node(place: usize) -> NodeId {
        if place == 0 { NodeId(2) } else { NodeId(3) }
    }

    /// The start of a present process that the cluster has not fenced.
    fn live(&self, place: usize) -> Option<SessionId> {
        let boot = self.processes.get(place)?.boot;
        let session = self.log.catalog.session_of(Self::node(place), boot)?;
        (!self.log.catalog.is_fenced(session)).then_some(session)
    }

    fn step(&mut self, event: Event) -> Result<(), TestCaseError> {
        let mut met = None;
        match event {
            Event::Boot(place) => {
                let boot = BootNumber(self.processes[place].boot.0 + 1);
                self.processes[place] = Process { boot, is_accused: false, of: None };
            }
            Event::Announce(place) => {
                let boot = self.processes[place].boot;
                self.log.apply(started(Self::node(place), boot));
            }
            Event::Accuse(place) => {
                let (node, boot) = (Self::node(place), self.processes[place].boot);
                prop_assert!(self.accusations.add(&self.log.catalog, node, boot));
                self.processes[place].is_accused = true;
            }
            Event::Meet(place) => met = Some((Self::node(place), self.processes[place].boot)),
            Event::Fence => {}
            Event::FencedByOthers(place) => {
                self.live(place).into_iter().for_each(|live| drop(self.log.apply(down(live))));
            }
        }
        self.judge(met, matches!(event, Event::Fence))
    }

    /// One check: exactly the starts of accused processes are due.
    fn judge(
        &mut self,
        met: Option<(NodeId, BootNumber)>,
        fences: bool,
    ) -> Result<(), TestCaseError> {
        let mut expected = Vec::new();
        for place in 0..2 {
            let catalog = &self.log.catalog;
            let process = &mut self.processes[place];
            let latest = catalog.session_of(Self::node(place), process.boot);
            let is_met = met == Some((Self::node(place), process.boot));
            process.of = process.of.or(latest.filter(|_| process.is_accused));
            if is_met || process.of.is_some_and(|of| catalog.is_fenced(of)) {
                (process.is_accused, process.of) = (false, None);
            }
            expected.extend(process.of);
        }
        let lives = |node, boot| met == Some((node, boot));
        let due = self.accusations.fences_due(&self.log.catalog, lives);
        // Former processes without a successor in the catalog may still be due.
        let present = |due: &&SessionId| expected.contains(due);
        prop_assert_eq!(due.iter().filter(present).count(), expected.len(), "{:?}", &due);
        for due in due.iter().filter(|due| !expected.contains(due)) {
            let innocent = (0..2).any(|place| self.live(place) == Some(*due));
            prop_assert!(!innocent, "{due} is of a present process that is not accused");
        }
        if fences {
            due.iter().for_each(|due| drop(self.log.apply(down(*due))));
            prop_assert!(due.iter().all(|due| self.log.catalog.is_fenced(*due)));
        }
        Ok(())
    }
}

proptest! {
    /// SES 6: an accusation fences the present start of the process, or else its next one. It ends
    /// when that start is fenced, or when the process is linked.
    #[test]
    fn ses_06_what_is_fenced_is_what_stands_accused(events in vec(event(), 1..60)) {
        let mut court = Court::new();
        for event in events {
            court.step(event)?;
        }
    }

    /// SES 6: an accusation ends, and a fenced start stays fenced.
    #[test]
    fn ses_06_accusations_end(events in vec(event(), 1..40)) {
        let mut court = Court::new();
        for event in events {
            court.step(event)?;
        }
        for place in 0..2 {
            court.step(Event::Announce(place))?;
        }
        court.step(Event::Fence)?;
        court.step(Event::Fence)?;
        prop_assert!(court.accusations.all().is_empty(), "{:?}", court.accusations);
    }

    /// SES 6, Q-11: a group ends what fenced starts held, leaves other starts alone, applies the
    /// cluster's present life, and then needs no further command.
    #[test]
    fn ses_06_a_group_agrees_with_the_catalog_about_starts_and_lives(
        starts in vec((2_u16..6, any::<bool>(), any::<bool>(), any::<bool>()), 1..20),
        lives in 0_u64..3,
    ) {
        let (mut log, mut group, mut live) = (CatalogLog::new(), GroupLog::new(), BTreeSet::new());
        for (boot, (node, speaks, falls, told)) in (1..).zip(starts) {
            let node = NodeId(node);
            let reply = log.apply(started(node, BootNumber(boot)));
            let CatalogReply::Started(start) = reply else { continue };
            let session = SessionId { node, start };
            live.retain(|other: &SessionId| other.node != node);
            if speaks {
                let queue = quorate_types::QueueId { home: GROUP, index: 1, position: 9 };
                group.ask(session, Command::Inspect { queue, renew: false });
                live.insert(session);
            }
            if falls {
                log.apply(down(session));
                live.remove(&session);
            }
            if told {
                group.lead(outlook(&Absences::default()).commands(&log.catalog, &group.machine));
            }
        }
        for life in 1..=lives {
            log.apply(CatalogCommand::NewLife { boot: BootNumber(1_000 + life) });
        }
        let absences = Absences::default();
        group.lead(outlook(&absences).commands(&log.catalog, &group.machine));
        let sessions: BTreeSet<_> = group.machine.sessions().collect();
        prop_assert_eq!(sessions, live);
        prop_assert_eq!(group.machine.life(), lives);
        let more = outlook(&absences).commands(&log.catalog, &group.machine);
        prop_assert!(more.is_empty(), "{:?}", more);
    }
}

/// The outlook of a leader that has just begun.
fn outlook(absences: &Absences) -> Outlook<'_> {
    let (led_for, unreachable_node_timeout) = (Duration::ZERO, Duration::from_secs(20));
    let forgotten_for = &|_| None;
    Outlook { now: Instant::now(), absences, led_for, unreachable_node_timeout, forgotten_for }
}

/// Events between a leader and another node, in hundreds of milliseconds.
#[derive(Clone, Copy, Debug)]
enum Link {
    Linked,
    Lost,
    /// Another leadership of this process begins.
    Leads,
    Passes(u64),
}

fn link() -> impl Strategy<Value = Link> {
    prop_oneof![
        1 => Just(Link::Linked),
        2 => Just(Link::Lost),
        1 => Just(Link::Leads),
        6 => (1_u64..80).prop_map(Link::Passes),
    ]
}

proptest! {
    /// DLV 5, Q-62: a node that has been unreachable for more than a second of this leadership is
    /// suspected, after more than the time of Q-62 timed out, and back as soon as it is linked.
    #[test]
    fn dlv_05_a_node_is_suspected_and_timed_out_by_its_silence(events in vec(link(), 1..60)) {
        let (mut log, mut group) = (CatalogLog::new(), GroupLog::new());
        let queue = quorate_types::QueueId { home: GROUP, index: 1, position: 9 };
        for node in [ME, TWO] {
            let start = log.start(node, BOOT);
            let session = SessionId { node, start };
            group.ask(session, Command::Inspect { queue, renew: false });
        }
        // It has no session in the group, so no command names it.
        log.start(NodeId(3), BOOT);
        let began = Instant::now();
        let at = |time: u64| began + Duration::from_millis(100 * time);
        let mut absences = Absences::new(began, ME, &[ME, TWO, NodeId(3)]);
        let (mut time, mut led_since, mut silent_since) = (0, 0, Some(0));
        for event in events {
            match event {
                Link::Linked => {
                    absences.linked(TWO);
                    silent_since = None;
                }
                Link::Lost => {
                    absences.lost(at(time), (TWO, BOOT), None);
                    silent_since = silent_since.or(Some(time));
                }
                Link::Leads => led_since = time,
                Link::Passes(passed) => time += passed,
            }
            let silent_for = silent_since.map(|since| time - led_since.max(since));
            let was_suspected = group.machine.suspected().next().is_some();
            let outlook = Outlook {
                now: at(time),
                absences: &absences,
                led_for: at(time) - at(led_since),
                unreachable_node_timeout: Duration::from_secs(20),
                forgotten_for: &|_| None,
            };
            let commands = outlook.commands(&log.catalog, &group.machine);
            let timed_out = was_suspected && silent_for.is_some_and(|time| time > 200);
            let back = was_suspected && silent_for.is_none();
            let suspected = !was_suspected && silent_for.is_some_and(|time| time > 10);
            let expected = [
                timed_out.then_some(Command::NodeTimedOut { node: TWO }),
                back.then_some(Command::NodeBack { node: TWO }),
                suspected.then_some(Command::NodeSuspected { node: TWO }),
            ];
            let expected: Vec<_> = expected.into_iter().flatten().collect();
            prop_assert_eq!(&commands, &expected);
            group.lead(commands);
        }
    }
}
