//! Leases against what they are for: whoever may route knows every name that a declare was answered
//! for, and no barrier waits for ever.

#![expect(clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::{
    cluster::liveness::Accusations,
    names::lease::LEASE,
    testing_state::{CatalogLog, started},
};
use proptest::{collection::vec, prelude::*};

const ONE: (NodeId, BootNumber) = (NodeId(1), BootNumber(10));
const TWO: (NodeId, BootNumber) = (NodeId(2), BootNumber(20));
const MEMBERS: [NodeId; 2] = [ONE.0, TWO.0];

struct Leader {
    grants: Grants,
    begun: Instant,
}

impl Leader {
    fn new() -> Self {
        let begun = Instant::now();
        Self { grants: Grants::lead(begun), begun }
    }

    fn at(&self, ms: u64) -> Instant {
        self.begun + Duration::from_millis(ms)
    }

    fn ask(
        &mut self,
        ms: u64,
        who: (NodeId, BootNumber),
        applied: u64,
        committed: u64,
    ) -> Granting {
        let now = self.at(ms);
        let (applied, committed) = (CatalogIndex(applied), CatalogIndex(committed));
        self.grants.ask(now, who, applied, committed).unwrap_or(Granting::NotYet(committed))
    }

    fn all(&mut self, ms: u64) -> Option<u64> {
        let now = self.at(ms);
        self.grants.all_applied(now, &MEMBERS).map(|index| index.0)
    }
}

fn not_yet(index: u64) -> Granting {
    Granting::NotYet(CatalogIndex(index))
}

#[test]
fn nam_05_a_node_that_was_counted_out_routes_when_it_knows_what_was_answered() {
    let mut leader = Leader::new();
    assert_eq!(leader.ask(0, ONE, 5, 5), Granting::Granted);
    assert_eq!(leader.ask(0, TWO, 5, 5), Granting::Granted);
    // Node 2 is silent; what node 1 declares waits for it, and then does not.
    assert_eq!(leader.ask(900, ONE, 8, 8), Granting::Granted);
    assert_eq!(leader.all(900), Some(5));
    assert_eq!(leader.all(1_001), Some(8));
    assert_eq!(leader.ask(1_100, TWO, 5, 8), not_yet(8));
    assert_eq!(leader.all(1_100), Some(8), "and holds nobody up meanwhile");
    assert_eq!(leader.ask(1_110, TWO, 8, 8), Granting::Granted);
    assert_eq!(leader.ask(1_110, ONE, 9, 9), Granting::Granted);
    assert_eq!(leader.all(1_110), Some(8));
}

/// What is committed was read before what was answered.
#[test]
fn nam_05_what_was_told_while_a_node_was_asking_is_what_it_must_have_reached() {
    let mut leader = Leader::new();
    assert_eq!(leader.ask(2_000, ONE, 9, 9), Granting::Granted);
    assert_eq!(leader.all(2_000), Some(9));
    assert_eq!(leader.ask(2_000, TWO, 8, 8), not_yet(9));
}

/// What it has to reach grows while it catches up; it gets there all the same.
#[test]
fn nam_05_a_node_that_comes_back_to_a_busy_catalog_is_let_in() {
    let mut leader = Leader::new();
    assert_eq!(leader.ask(0, TWO, 5, 5), Granting::Granted);
    for (ms, index) in [(500, 100), (1_000, 150), (1_500, 200), (2_400, 290)] {
        assert_eq!(leader.ask(ms, ONE, index, index), Granting::Granted);
    }
    assert_eq!(leader.ask(2_500, TWO, 5, 300), not_yet(300));
    leader.grants.applied(ONE.0, ONE.1, CatalogIndex(310));
    assert_eq!(leader.all(2_510), Some(310));
    // It is close now, so that nothing is answered without it any more.
    assert_eq!(leader.ask(2_520, TWO, 300, 312), not_yet(312));
    leader.grants.applied(ONE.0, ONE.1, CatalogIndex(320));
    assert_eq!(leader.all(2_530), Some(300));
    assert_eq!(leader.ask(2_540, TWO, 312, 320), Granting::Granted);
}

/// NAM 3: a node that asks but does not apply is counted out like a silent one.
#[test]
fn nam_03_a_node_that_does_not_keep_up_holds_nobody_up_for_longer_than_the_bound() {
    let mut leader = Leader::new();
    assert_eq!(leader.ask(0, TWO, 5, 5), Granting::Granted);
    assert_eq!(leader.ask(200, ONE, 9, 9), Granting::Granted);
    assert_eq!(leader.ask(200, TWO, 5, 9), Granting::Granted, "it had no time yet");
    assert_eq!(leader.ask(1_100, ONE, 9, 9), Granting::Granted);
    for ms in [400, 600, 800, 1_000] {
        assert_eq!(leader.ask(ms, TWO, 5, 9), not_yet(9));
        assert_eq!(leader.all(ms), Some(5));
    }
    assert_eq!(leader.all(1_201), Some(9));
}

#[test]
fn nam_05_a_new_leader_counts_everyone_for_one_bound_but_the_dead() {
    let mut leader = Leader::new();
    assert_eq!(leader.ask(0, ONE, 7, 7), Granting::Granted);
    assert_eq!(leader.all(500), None, "node 2 may hold a lease of the former leader");
    // That it asks and gets nothing does not count it out.
    assert_eq!(leader.ask(500, TWO, 3, 7), not_yet(7));
    assert_eq!(leader.all(600), Some(3));
    assert_eq!(leader.ask(900, ONE, 7, 7), Granting::Granted);
    assert_eq!(leader.all(1_001), Some(7));
    let now = leader.at(0);
    leader.grants = Grants::lead(now);
    assert_eq!(leader.ask(0, ONE, 7, 7), Granting::Granted);
    leader.grants.dead(now, TWO.0, TWO.1);
    assert_eq!(leader.all(0), Some(7));
}

/// NAM 5: a lease is a process's. What comes late of the one before neither ends its successor's, nor
/// says what that has applied.
#[test]
fn nam_05_what_comes_late_of_a_former_process_changes_nothing_for_its_successor() {
    let mut leader = Leader::new();
    let next = (TWO.0, BootNumber(21));
    assert_eq!(leader.ask(2_000, ONE, 9, 9), Granting::Granted);
    assert_eq!(leader.ask(2_000, TWO, 9, 9), Granting::Granted);
    assert_eq!(leader.ask(2_100, next, 8, 9), not_yet(9), "its copy is an older one");
    assert_eq!(leader.ask(2_100, next, 9, 9), Granting::Granted);
    let now = leader.at(2_200);
    let late = leader.grants.ask(now, TWO, CatalogIndex(5), CatalogIndex(9));
    assert_eq!(late, None, "a question");
    leader.grants.applied(TWO.0, TWO.1, CatalogIndex(12));
    leader.grants.dead(now, TWO.0, TWO.1);
    leader.grants.applied(ONE.0, ONE.1, CatalogIndex(12));
    assert_eq!(leader.all(2_200), Some(9), "it may route by 9");
    // One that has lost its directory has lower boot numbers, and waits until the lease is over.
    assert_eq!(leader.ask(3_100, (TWO.0, BootNumber(3)), 12, 12), Granting::Granted);
}

/// Nodes of the modelled cluster, by place.
const NODES: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Event {
    Pass(u64),
    Commit,
    /// The node's copy applies so many entries.
    Apply(usize, u64),
    /// The node asks and is answered at once.
    Renew(usize),
    /// The node asks; the question stays under way.
    Ask(usize),
    /// The leader that was asked finds that it has a majority.
    Confirm(usize),
    /// What was confirmed is answered, also by one that leads no more.
    Answer(usize),
    /// Who leads, or believes so, tells what all have applied.
    Tell(usize),
    Elect(usize),
    /// The node's process is killed, and another one begins, whose copy is older by so much.
    Restart(usize, u64),
    /// The leader hears of the death of the node's process before the present one.
    Accuse(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let node = 0..NODES;
    prop_oneof![
        6 => (1_u64..400).prop_map(Event::Pass),
        3 => Just(Event::Commit),
        4 => (node.clone(), 1_u64..5).prop_map(|(node, count)| Event::Apply(node, count)),
        8 => node.clone().prop_map(Event::Renew),
        3 => node.clone().prop_map(Event::Ask),
        3 => (0_usize..4).prop_map(Event::Confirm),
        3 => (0_usize..4).prop_map(Event::Answer),
        6 => node.clone().prop_map(Event::Tell),
        1 => node.clone().prop_map(Event::Elect),
        1 => (node.clone(), 0_u64..4).prop_map(|(node, lost)| Event::Restart(node, lost)),
        2 => node.prop_map(Event::Accuse),
    ]
}

/// A question for a lease.
#[derive(Clone, Copy, Debug)]
struct Question {
    from: usize,
    boot: BootNumber,
    asked: u64,
    applied: u64,
    /// Who was asked, in which of its leaderships.
    leader: (usize, u64),
    /// What was committed when it had confirmed that it leads.
    committed: Option<u64>,
}

struct Member {
    boot: BootNumber,
    applied: u64,
    lease_until: u64,
    /// While the process leads, or has not noticed that it leads no more; and which leadership it is.
    grants: Option<(Grants, u64)>,
}

struct Cluster {
    began: Instant,
    now: u64,
    log: CatalogLog,
    members: Vec<Member>,
    present: Option<usize>,
    leaderships: u64,
    questions: Vec<Question>,
    accusations: Accusations,
    /// The highest index that a barrier was answered with: declares up to it are answered.
    answered: u64,
}

impl Cluster {
    fn new() -> Self {
        let member = || Member { boot: BootNumber(1), applied: 0, lease_until: 0, grants: None };
        let mut cluster = Self {
            began: Instant::now(),
            now: 0,
            log: CatalogLog::new(),
            members: (0..NODES).map(|_| member()).collect(),
            present: None,
            leaderships: 0,
            questions: Vec::new(),
            accusations: Accusations::default(),
            answered: 0,
        };
        cluster.elect(0);
        (0..NODES).for_each(|place| cluster.announce(place));
        cluster
    }

    fn at(&self) -> Instant {
        self.began + Duration::from_millis(self.now)
    }

    fn node(place: usize) -> NodeId {
        NodeId(u16::try_from(place + 1).unwrap_or_default())
    }

    fn committed(&self) -> u64 {
        self.log.catalog.version().0
    }

    /// A process begins to ask when it has applied its own start (SES 1).
    fn announce(&mut self, place: usize) {
        if self.present.is_some() {
            self.log.apply(started(Self::node(place), self.members[place].boot));
            self.members[place].applied = self.committed();
        }
    }

    fn elect(&mut self, place: usize) {
        // The first entry of its term, which it applies before it leads.
        self.log.apply_all(Vec::new());
        self.leaderships += 1;
        let mut grants = Grants::lead(self.at());
        // One that is met only later is accused still.
        let due = self.accusations.fences_due(&self.log.catalog, |_, _| false);
        for (node, boot) in self.accusations.all() {
            grants.dead(self.at(), node, boot);
        }
        drop(due);
        self.members[place].grants = Some((grants, self.leaderships));
        self.members[place].applied = self.committed();
        self.present = Some(place);
    }

    fn apply(&mut self, place: usize, count: u64) {
        let applied = self.committed().min(self.members[place].applied + count);
        self.members[place].applied = applied;
        let (node, boot) = (Self::node(place), self.members[place].boot);
        if let Some((grants, _)) =
            self.present.and_then(|present| self.members[present].grants.as_mut())
        {
            grants.applied(node, boot, CatalogIndex(applied));
        }
    }

    fn ask(&mut self, place: usize) -> Option<usize> {
        let present = self.present?;
        let (member, (_, term)) = (&self.members[place], self.members[present].grants.as_ref()?);
        // Without a session a node does not ask.
        self.log.catalog.session_of(Self::node(place), member.boot)?;
        self.questions.push(Question {
            from: place,
            boot: member.boot,
            asked: self.now,
            applied: member.applied,
            leader: (present, *term),
            committed: None,
        });
        Some(self.questions.len() - 1)
    }

    /// A majority has answered the leader since it was asked, so no other one had been elected.
    fn confirm(&mut self, place: usize) {
        let committed = self.committed();
        let Some(question) = self.questions.get_mut(place) else { return };
        if self.present == Some(question.leader.0) && question.leader.1 == self.leaderships {
            question.committed = Some(committed);
        }
    }

    fn answer(&mut self, place: usize) -> Option<Granting> {
        let question = *self.questions.get(place)?;
        let committed = CatalogIndex(question.committed?);
        self.questions.swap_remove(place);
        let now = self.at();
        let (grants, term) = self.members[question.leader.0].grants.as_mut()?;
        if *term != question.leader.1 {
            return None;
        }
        let who = (Self::node(question.from), question.boot);
        let granting = grants.ask(now, who, CatalogIndex(question.applied), committed)?;
        let member = &mut self.members[question.from];
        if granting == Granting::Granted && member.boot == question.boot {
            let until = question.asked + u64::try_from(LEASE.as_millis()).unwrap_or_default();
            member.lease_until = member.lease_until.max(until);
        }
        Some(granting)
    }

    fn renew(&mut self, place: usize) -> Option<Granting> {
        let question = self.ask(place)?;
        self.confirm(question);
        self.answer(question)
    }

    fn tell(&mut self, place: usize) {
        let (now, members) = (self.at(), [0, 1, 2].map(Self::node));
        let Some((grants, _)) = self.members[place].grants.as_mut() else { return };
        let all = grants.all_applied(now, &members).unwrap_or_default();
        self.answered = self.answered.max(all.0);
    }

    fn restart(&mut self, place: usize, lost: u64) {
        let member = &mut self.members[place];
        let (boot, applied) = (BootNumber(member.boot.0 + 1), member.applied.saturating_sub(lost));
        *member = Member { boot, applied, lease_until: 0, grants: None };
        if self.present == Some(place) {
            self.present = None;
        }
        self.announce(place);
    }

    fn accuse(&mut self, place: usize) {
        let (node, boot) = (Self::node(place), BootNumber(self.members[place].boot.0 - 1));
        let is_dead = self.accusations.add(&self.log.catalog, node, boot);
        let now = self.at();
        let grants = self.present.and_then(|present| self.members[present].grants.as_mut());
        if let Some((grants, _)) = grants.filter(|_| is_dead) {
            grants.dead(now, node, boot);
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Pass(ms) => self.now += ms,
            Event::Commit if self.present.is_some() => drop(self.log.apply_all(Vec::new())),
            Event::Commit => {}
            Event::Apply(place, count) => self.apply(place, count),
            Event::Renew(place) => drop(self.renew(place)),
            Event::Ask(place) => drop(self.ask(place)),
            Event::Confirm(place) => self.confirm(place),
            Event::Answer(place) => drop(self.answer(place)),
            Event::Tell(place) => self.tell(place),
            Event::Elect(place) => self.elect(place),
            Event::Restart(place, lost) => self.restart(place, lost),
            Event::Accuse(place) => self.accuse(place),
        }
    }

    /// NAM 3, NAM 5: who may route knows what has been answered.
    fn check(&self) -> Result<(), TestCaseError> {
        for (place, member) in self.members.iter().enumerate() {
            if self.now < member.lease_until {
                prop_assert!(
                    member.applied >= self.answered,
                    "node {} routes by {}, but a barrier was answered with {}",
                    place + 1,
                    member.applied,
                    self.answered
                );
            }
        }
        prop_assert!(self.answered <= self.committed());
        Ok(())
    }
}

fn cluster_after(events: Vec<Event>) -> Result<Cluster, TestCaseError> {
    let mut cluster = Cluster::new();
    for event in events {
        cluster.step(event);
        cluster.check()?;
    }
    Ok(cluster)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// NAM 3, NAM 5: over restarts, changes of leaders, and answers that come late, no node holds a
    /// lease whose copy is older than what has been answered.
    #[test]
    fn nam_05_who_may_route_knows_what_was_answered(events in vec(event(), 1..120)) {
        cluster_after(events)?;
    }

    /// NAM 3, NAM 5: whatever has been, and whatever the others do, what is committed is answered as
    /// applied by all within the bound, if the leader keeps up.
    #[test]
    fn nam_03_a_barrier_is_always_answered(
        events in vec(event(), 0..60),
        others in vec((any::<bool>(), 0_u64..3), 24),
    ) {
        let mut cluster = cluster_after(events)?;
        cluster.elect(0);
        cluster.announce(0);
        let committed = cluster.committed();
        for (round, (asks, count)) in others.into_iter().enumerate() {
            cluster.now += 100;
            cluster.apply(0, u64::MAX / 2);
            prop_assert_eq!(cluster.renew(0), Some(Granting::Granted));
            let other = 1 + round % 2;
            cluster.apply(other, count);
            if asks {
                cluster.renew(other);
            }
            cluster.tell(0);
            cluster.check()?;
        }
        prop_assert!(cluster.answered >= committed, "{} of {committed}", cluster.answered);
    }

    /// NAM 5: a node that applies what it is sent to reach gets a lease, however busy the catalog is.
    #[test]
    fn nam_05_a_node_that_does_as_it_is_told_gets_a_lease(
        events in vec(event(), 0..60),
        busy in vec(0_u64..50, 3),
    ) {
        let mut cluster = cluster_after(events)?;
        cluster.elect(0);
        cluster.announce(2);
        let mut answer = None;
        for count in busy {
            (0..count).for_each(|_| drop(cluster.log.apply_all(Vec::new())));
            answer = cluster.renew(2);
            let Some(Granting::NotYet(reach)) = answer else { break };
            cluster.now += 100;
            let missing = reach.0 - cluster.members[2].applied;
            cluster.apply(2, missing);
            cluster.check()?;
        }
        prop_assert_eq!(answer, Some(Granting::Granted));
    }

    /// NAM 5: a process that is known dead holds nobody up, not even for the bound.
    #[test]
    fn nam_05_a_dead_process_is_left_out_at_once(events in vec(event(), 0..40)) {
        let mut cluster = cluster_after(events)?;
        cluster.elect(0);
        cluster.announce(0);
        cluster.apply(0, u64::MAX / 2);
        cluster.renew(0);
        let now = cluster.at();
        let boots = [1, 2].map(|place| (Cluster::node(place), cluster.members[place].boot));
        if let Some((grants, _)) = cluster.members[0].grants.as_mut() {
            boots.iter().for_each(|(node, boot)| grants.dead(now, *node, *boot));
            let all = grants.all_applied(now, &[0, 1, 2].map(Cluster::node));
            prop_assert_eq!(all, Some(CatalogIndex(cluster.log.catalog.version().0)));
        }
    }
}
