//! What may be delivered, compared with what leaders propose at the same time: once a message
//! returns because its consumer's node cannot be reached, the consumer must not get it any more.

#![expect(clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::{
    cluster::liveness::{Absences, Outlook},
    testing_state::{CatalogLog, GROUP, GroupLog},
};
use proptest::{collection::vec, prelude::*};
use quorate_queue::Command;
use quorate_types::{BootNumber, NodeId, QueueId, SessionId};

#[test]
fn dlv_5_nothing_is_delivered_without_leader_contact() {
    let leader_contact = LeaderContact::new([GROUP].into_iter(), 100);
    let at = |ms| leader_contact.began + Duration::from_millis(ms);
    assert!(
        leader_contact.may_deliver_at(Home::Node(NodeId(1)), at(0)),
        "its own are never silent"
    );
    assert!(!leader_contact.may_deliver_at(GROUP, at(0)), "no contact so far");
    assert!(leader_contact.note_contact(GROUP, at(10)), "a delivery was withheld");
    assert!(!leader_contact.note_contact(GROUP, at(20)));
    assert!(leader_contact.may_deliver_at(GROUP, at(69)));
    assert!(!leader_contact.may_deliver_at(GROUP, at(70)));
    assert!(leader_contact.note_contact(GROUP, at(80)));
    assert!(leader_contact.may_deliver_at(GROUP, at(80)));
    assert!(!leader_contact.note_contact(GROUP, at(200)), "no delivery was withheld");
    assert!(!leader_contact.note_contact(Home::Group(quorate_types::GroupId(9)), at(200)));
}

/// A client that read nothing during a silence is not delivered what its consumer held before.
#[test]
fn dlv_05_what_was_held_during_a_silence_is_dropped_before_the_contact_counts() {
    let leader_contact = LeaderContact::new([GROUP].into_iter(), 100);
    let at = |ms| leader_contact.began + Duration::from_millis(ms);
    leader_contact.note_contact(GROUP, at(10));
    assert!(!leader_contact.was_silent_at(GROUP, at(59)));
    assert!(leader_contact.was_silent_at(GROUP, at(60)));
    assert!(!leader_contact.was_silent_at(Home::Node(NodeId(1)), at(60)));
}

/// A get's message may have returned by then, and be another client's.
#[test]
fn dlv_5_the_answer_to_an_old_get_is_not_shown() {
    let leader_contact = LeaderContact::new([GROUP].into_iter(), 100);
    let at = |ms| leader_contact.began + Duration::from_millis(ms);
    assert!(leader_contact.is_timely_at(GROUP, at(5), at(54)));
    assert!(!leader_contact.is_timely_at(GROUP, at(5), at(55)));
    assert!(leader_contact.is_timely_at(Home::Node(NodeId(1)), at(5), at(500)));
}

/// Nodes that may lead the group; the consumer is on another one.
const LEADERS: u16 = 3;
const FRONT: NodeId = NodeId(9);
const BOOT: BootNumber = BootNumber(1);
/// Duration of each step, ms.
const STEP: u64 = 100;
/// How often leaders check nodes and send notices of their majorities, ms.
const CHECK_INTERVAL: u64 = 500;
/// A leader sends a notice if a majority has answered it within this time, ms.
const MAJORITY_RECENT: u64 = 2 * CHECK_INTERVAL;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A majority elects this node. The previous leader may not notice that its leadership has
    /// ended.
    Elect(usize),
    /// The link between this node and the front end's opens or closes.
    Link(usize, bool),
    /// This many steps pass.
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let leader = 0..usize::from(LEADERS);
    prop_oneof![
        2 => leader.clone().prop_map(Event::Elect),
        3 => (leader, any::<bool>()).prop_map(|(leader, open)| Event::Link(leader, open)),
        4 => (1_u64..60).prop_map(Event::Pass),
    ]
}

/// A node that leads, or that led and has not noticed the end.
struct Leader {
    absences: Absences,
    is_linked: bool,
    term: u64,
    led_since: Option<u64>,
    /// When another node was elected.
    deposed: Option<u64>,
}

struct World {
    began: Instant,
    now: u64,
    timeout: u64,
    /// How long a notice is in flight, ms.
    delay: u64,
    log: CatalogLog,
    group: GroupLog,
    leader_contact: LeaderContact,
    leaders: Vec<Leader>,
    present: Option<usize>,
    /// Notices in flight: sender, term, and time of arrival.
    notices: Vec<(usize, u64, u64)>,
    /// The leader and term that the front end knows.
    known: Option<(usize, u64)>,
    term: u64,
    /// The front end's messages have returned, and it has not re-attached since.
    timed_out: bool,
    /// Since when the front end should have been in contact with the present leader.
    audible_since: Option<u64>,
}

impl World {
    fn new(timeout: u64, delay: u64) -> Self {
        let (mut log, mut group) = (CatalogLog::new(), GroupLog::new());
        let start = log.start(FRONT, BOOT);
        let queue = QueueId { home: GROUP, index: 1, position: 9 };
        group.ask(SessionId { node: FRONT, start }, Command::Inspect { queue, renew: false });
        let leader_contact = LeaderContact::new([GROUP].into_iter(), timeout);
        let began = leader_contact.began;
        let leaders = (1..=LEADERS).map(|node| Leader {
            absences: Absences::new(began, NodeId(node), &[FRONT]),
            is_linked: false,
            term: 0,
            led_since: None,
            deposed: None,
        });
        Self {
            began,
            now: 0,
            timeout,
            delay,
            log,
            group,
            leader_contact,
            leaders: leaders.collect(),
            present: None,
            notices: Vec::new(),
            known: None,
            term: 0,
            timed_out: false,
            audible_since: None,
        }
    }

    fn at(&self, time: u64) -> Instant {
        self.began + Duration::from_millis(time)
    }

    fn step(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Elect(leader) if self.present != Some(leader) => {
                if let Some(former) = self.present.replace(leader) {
                    self.leaders[former].deposed = Some(self.now);
                }
                self.term += 1;
                let Leader { term, led_since, deposed, .. } = &mut self.leaders[leader];
                (*term, *led_since, *deposed) = (self.term, Some(self.now), None);
                self.meet(leader);
            }
            Event::Elect(_) => {}
            Event::Link(leader, is_open) => {
                let now = self.at(self.now);
                let absences = &mut self.leaders[leader].absences;
                match is_open {
                    true => absences.linked(FRONT),
                    false => absences.lost(now, (FRONT, BOOT), None),
                }
                self.leaders[leader].is_linked = is_open;
                self.meet(leader);
            }
            Event::Pass(steps) => {
                for _ in 0..steps {
                    self.pass()?;
                }
            }
        }
        Ok(())
    }

    /// A node that leads, or believes so, announces itself to a linked front end. Unless the front
    /// end knows of a later leader, its consumers re-attach, and then hold their deliveries (SES 5,
    /// DLV 2).
    fn meet(&mut self, leader: usize) {
        let Leader { is_linked, term, led_since, .. } = self.leaders[leader];
        let is_later = self.known.is_none_or(|(_, known)| term >= known);
        if is_linked && led_since.is_some() && is_later {
            self.known = Some((leader, term));
            self.timed_out = false;
        }
        let is_audible = self.present.is_some_and(|present| self.leaders[present].is_linked);
        self.audible_since = is_audible.then_some(self.now);
    }

    fn pass(&mut self) -> Result<(), TestCaseError> {
        self.now += STEP;
        if self.now.is_multiple_of(CHECK_INTERVAL) {
            self.send_notices();
            self.reconcile();
        }
        let now = self.at(self.now);
        for (leader, term, _) in self.notices.extract_if(.., |(.., at)| *at <= self.now) {
            if self.known == Some((leader, term)) {
                self.leader_contact.note_contact(GROUP, now);
            }
        }
        let may_deliver = self.leader_contact.may_deliver_at(GROUP, now);
        prop_assert!(!(self.timed_out && may_deliver), "its messages are another consumer's");
        let is_audible = |since| self.now >= since + 2 * CHECK_INTERVAL + self.delay;
        let is_in_contact = self.audible_since.is_some_and(is_audible);
        prop_assert!(may_deliver || !is_in_contact, "a leader with a majority was in contact");
        Ok(())
    }

    /// Leaders with a majority send notices to the front end.
    fn send_notices(&mut self) {
        for (place, leader) in
            self.leaders.iter().enumerate().filter(|(_, leader)| leader.is_linked)
        {
            let answered_at = leader.led_since.map(|_| leader.deposed.unwrap_or(self.now));
            if answered_at.is_some_and(|at| self.now - at < MAJORITY_RECENT) {
                self.notices.push((place, leader.term, self.now + self.delay));
            }
        }
    }

    /// The present leader reconciles the nodes. Proposals of a former leader are never committed.
    fn reconcile(&mut self) {
        let Some(present) = self.present else { return };
        let (leader, now) = (&self.leaders[present], self.at(self.now));
        let outlook = Outlook {
            now,
            absences: &leader.absences,
            led_for: now - self.at(leader.led_since.unwrap_or_default()),
            unreachable_node_timeout: Duration::from_millis(self.timeout),
            forgotten_for: &|_| None,
        };
        let commands = outlook.commands(&self.log.catalog, &self.group.machine);
        self.timed_out |= commands.contains(&Command::NodeTimedOut { node: FRONT });
        self.group.lead(commands);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// DLV 5: from when a node's messages return until the node has re-attached, its consumers are
    /// delivered nothing, whichever node leads or is cut off. A front end is in contact with a
    /// linked leader.
    #[test]
    fn dlv_5_what_has_returned_is_not_shown_to_the_first_consumer(
        timeout in prop::sample::select(vec![4_000_u64, 10_000, 20_000]),
        delay in 0_u64..10,
        events in vec(event(), 1..60),
    ) {
        // A notice that is in flight for longer would count as a new one.
        let most = timeout / 2 - MAJORITY_RECENT;
        let mut world = World::new(timeout, most * delay / 10);
        for event in events {
            world.step(event)?;
        }
    }
}
