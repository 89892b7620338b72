//! A leader's first commands, against a history of processes that stop and start.

#![expect(clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::testing_state::{CatalogLog, started};
use proptest::{collection::vec, prelude::*};
use quorate_types::ClusterId;

const SHAPE: ClusterShape = ClusterShape { cluster: ClusterId(7), queue_groups: 2 };

/// a life that ends too early ends all transient queues.
#[test]
fn a_new_life_begins_only_when_a_majority_is_known_to_have_been_stopped() {
    assert_eq!(has_been_stopped(&[], 3), None, "its links are down at the moment");
    assert_eq!(has_been_stopped(&[false], 3), Some(true));
    assert_eq!(has_been_stopped(&[false, true], 3), Some(false), "a rolling restart");
    assert_eq!(has_been_stopped(&[false], 5), None);
    assert_eq!(has_been_stopped(&[], 1), Some(true));
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Stop(usize),
    Run(usize),
    /// The process leads, linked with those of the mask, and proposes the start of the other one.
    Propose(usize, u8, usize),
}

fn event() -> impl Strategy<Value = Event> {
    let place = 0_usize..5;
    let proposal = (place.clone(), any::<u8>(), place.clone());
    prop_oneof![
        2 => place.clone().prop_map(Event::Stop),
        3 => place.prop_map(Event::Run),
        4 => proposal.prop_map(|(leader, mask, who)| Event::Propose(leader, mask, who)),
    ]
}

struct Cluster {
    log: CatalogLog,
    /// Of each member: its process's boot number, and whether it runs.
    processes: Vec<(BootNumber, bool)>,
    /// Who began the present life.
    begun_by: Option<(NodeId, BootNumber)>,
    /// That process and all whose starts the catalog knows have stopped since the last life began.
    is_life_due: bool,
}

impl Cluster {
    fn new(members: usize) -> Self {
        let processes = (1..=members as u64).map(|boot| (BootNumber(boot), true)).collect();
        Self { log: CatalogLog::new(), processes, begun_by: None, is_life_due: true }
    }

    fn process(&self, place: usize) -> (NodeId, BootNumber) {
        (NodeId(u16::try_from(place + 1).unwrap_or_default()), self.processes[place].0)
    }

    fn is_known(&self, place: usize) -> bool {
        let (node, boot) = self.process(place);
        self.log.catalog.session_of(node, boot).is_some()
    }

    fn running(&self) -> Vec<usize> {
        (0..self.processes.len()).filter(|place| self.processes[*place].1).collect()
    }

    fn stop(&mut self, place: usize) {
        self.processes[place].1 = false;
        let is_of_life = |place| self.is_known(place) || self.begun_by == Some(self.process(place));
        self.is_life_due |= !self.running().into_iter().any(is_of_life);
    }

    fn run(&mut self, place: usize) {
        let (boot, runs) = self.processes[place];
        if !runs {
            self.processes[place] = (BootNumber(boot.0 + 10), true);
        }
    }

    fn propose(&mut self, leader: usize, mask: u8, who: usize) -> Result<(), TestCaseError> {
        let running = self.running();
        if !running.contains(&leader) || !running.contains(&who) {
            return Ok(());
        }
        let is_linked = |place: &usize| *place != leader && mask & (1 << *place) != 0;
        let linked: Vec<usize> = running.into_iter().filter(is_linked).collect();
        let processes: Vec<_> = linked.iter().map(|place| self.process(*place)).collect();
        let members = self.processes.len();
        let me = self.process(leader);
        let first = formation(&self.log.catalog, me, &processes, SHAPE, members);
        let Some(mut commands) = first else {
            prop_assert!((linked.len() + 1) * 2 <= members, "with a majority it can tell");
            return Ok(());
        };
        let forms = commands.contains(&CatalogCommand::Form(SHAPE));
        prop_assert_eq!(forms, self.log.catalog.shape().is_none());
        let (life, boot) = (self.log.catalog.life(), self.processes[leader].0);
        if commands.contains(&CatalogCommand::NewLife { boot }) {
            let is_new = |place: &usize| !self.is_known(*place);
            let new = linked.iter().chain([&leader]).filter(|place| is_new(place)).count();
            prop_assert!(new * 2 > members, "only {new} of {members} were started anew");
            prop_assert_eq!(new, linked.len() + 1, "one that it is linked with was not stopped");
        }
        let (node, boot) = self.process(who);
        commands.push(started(node, boot));
        self.log.apply_all(commands);
        if self.log.catalog.life() > life {
            (self.begun_by, self.is_life_due) = (Some(me), false);
        }
        prop_assert!(!self.is_life_due, "a start before the new life");
        prop_assert_eq!(self.log.catalog.shape(), Some(SHAPE));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// SES 1, Q-11: the shape and, after a stop of all nodes, a new life come before the first start;
    /// no life begins beside a process that the leader is linked with and that was not stopped.
    #[test]
    fn ses_01_a_new_life_comes_before_the_starts_after_a_stop_of_all(
        members in prop::sample::select(vec![1_usize, 3, 5]),
        events in vec(event(), 1..60),
    ) {
        let mut cluster = Cluster::new(members);
        for event in events {
            match event {
                Event::Stop(place) => cluster.stop(place % members),
                Event::Run(place) => cluster.run(place % members),
                Event::Propose(leader, mask, who) => {
                    cluster.propose(leader % members, mask, who % members)?;
                }
            }
        }
    }

    /// while nodes are restarted one after the other, the life goes on.
    #[test]
    fn q_11_a_rolling_restart_begins_no_new_life(order in vec((0_usize..5, 0_usize..5), 1..30)) {
        let mut cluster = Cluster::new(5);
        for place in 0..5 {
            cluster.propose(0, u8::MAX, place)?;
        }
        for (place, leader) in order {
            cluster.stop(place);
            cluster.run(place);
            cluster.propose(leader, u8::MAX, place)?;
            prop_assert!(cluster.is_known(place));
            prop_assert_eq!(cluster.log.catalog.life(), 1);
        }
    }
}
