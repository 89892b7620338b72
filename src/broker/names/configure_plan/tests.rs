//! Settings of queues against the catalog's, while policies change and proposals are lost or late.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::testing_state::{CatalogLog, GROUP, GroupLog, queue_name};
use proptest::{collection::vec, prelude::*};
use quorate_catalog::{CatalogCommand, PolicyKind, PolicyName, PolicyText, QueueEntry};
use quorate_queue::{Command, Reply};
use quorate_types::{BootNumber, NodeId, QueueType, SessionId, ShortString};
use std::collections::VecDeque;

const VHOST: ShortString = ShortString::from_static("/");
const NAMES: [&str; 4] = ["a1", "a2", "b1", "b2"];
const PATTERNS: [&str; 3] = ["^a", "1$", ".*"];

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A queue of this name is created with the settings of this moment.
    Create(usize),
    /// Its name gets into the catalog.
    Name(usize),
    End(usize),
    SetPolicy(usize, u64),
    ClearPolicy(usize),
    /// The leader compares.
    Compare,
    /// The oldest proposal is applied.
    Apply,
    /// It is lost with its leader.
    Lose,
    /// It stays under way while later ones are applied.
    Overtake,
}

fn event() -> impl Strategy<Value = Event> {
    let name = 0..NAMES.len();
    let pattern = 0..PATTERNS.len();
    prop_oneof![
        3 => name.clone().prop_map(Event::Create),
        4 => name.clone().prop_map(Event::Name),
        1 => name.prop_map(Event::End),
        3 => (pattern.clone(), 1_u64..4).prop_map(|(pattern, ttl)| Event::SetPolicy(pattern, ttl)),
        2 => pattern.prop_map(Event::ClearPolicy),
        4 => Just(Event::Compare),
        4 => Just(Event::Apply),
        1 => Just(Event::Lose),
        1 => Just(Event::Overtake),
    ]
}

struct World {
    log: CatalogLog,
    group: GroupLog,
    session: SessionId,
    /// Queues whose names are not in the catalog yet.
    created: [Option<QueueEntry>; 4],
    under_way: VecDeque<Vec<Command>>,
}

impl World {
    fn new() -> Self {
        let mut log = CatalogLog::new();
        let node = NodeId(1);
        let start = log.start(node, BootNumber(1));
        let session = SessionId { node, start };
        let (group, under_way) = (GroupLog::new(), VecDeque::new());
        Self { log, group, session, created: Default::default(), under_way }
    }

    fn entry(&self, place: usize) -> QueueEntry {
        QueueEntry {
            name: queue_name("/", NAMES[place]),
            id: QueueId { home: GROUP, index: 0, position: 0 },
            creator: self.session,
            queue_type: QueueType::Classic,
            durable: true,
            auto_delete: false,
            owner: None,
            arguments: Default::default(),
        }
    }

    fn create(&mut self, place: usize) {
        let mut entry = self.entry(place);
        let config = self.log.catalog.config_of(&entry);
        let command = Command::CreateQueue { name: entry.name.clone(), config, bound: None };
        let reply = self.group.ask(self.session, command);
        let Some(Reply::Created(id)) = reply else { unreachable!("{reply:?}") };
        entry.id = id;
        self.created[place] = Some(entry);
    }

    fn policy(place: usize) -> ShortString {
        ShortString::from_static(PATTERNS[place])
    }

    fn set_policy(&mut self, place: usize, ttl: u64) {
        let (kind, name) = (PolicyKind::User, Self::policy(place));
        let text = PolicyText {
            kind,
            vhost: &VHOST,
            name: &name,
            pattern: PATTERNS[place],
            apply_to: "queues",
            priority: i64::try_from(place).unwrap(),
        };
        let policy = text.parse(&format!("{{\"message-ttl\":{ttl}}}")).unwrap();
        self.log.apply(CatalogCommand::SetPolicy(policy));
    }

    fn differing(&self) -> Vec<(QueueId, QueueConfig)> {
        let entries = self.log.catalog.queues_of_home(GROUP, None);
        let configs = entries.map(|entry| (entry.id, self.log.catalog.config_of(entry)));
        differing(configs.collect(), &self.group.machine)
    }

    fn compare(&mut self) -> Proposed {
        let (differing, mut proposed) = (self.differing(), Proposed::default());
        proposed.add(&differing);
        let configure = |(queue, config)| Command::Configure { queue, config };
        self.under_way.push_back(differing.into_iter().map(configure).collect());
        proposed
    }

    fn apply_next(&mut self) {
        if let Some(commands) = self.under_way.pop_front() {
            self.group.lead(commands);
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Create(place) => self.create(place),
            Event::Name(place) => {
                let entry = self.created[place].take();
                entry.into_iter().for_each(|entry| {
                    self.log.apply(CatalogCommand::AddQueue(entry));
                });
            }
            Event::End(place) => {
                let entry = self.log.catalog.queue_by_name(&queue_name("/", NAMES[place]));
                let Some(queue) = entry.map(|entry| entry.id) else { return };
                let end = Command::EndQueue { queue, if_unused: false, if_empty: false };
                self.group.lead(vec![end]);
            }
            Event::SetPolicy(place, ttl) => self.set_policy(place, ttl),
            Event::ClearPolicy(place) => {
                let (kind, vhost, name) = (PolicyKind::User, VHOST, Self::policy(place));
                self.log.apply(CatalogCommand::ClearPolicy(PolicyName { kind, vhost, name }));
            }
            Event::Compare => drop(self.compare()),
            Event::Apply => self.apply_next(),
            Event::Lose => drop(self.under_way.pop_front()),
            Event::Overtake => {
                let first = self.under_way.pop_front();
                self.apply_next();
                self.under_way.extend(first);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// NAM 7: whatever was lost or came late, one comparison finds every named queue that differs from
    /// the catalog and no other, and when it has been applied there is nothing left to propose.
    #[test]
    fn nam_07_a_comparison_brings_every_queue_the_catalogs_settings(
        events in vec(event(), 1..80),
    ) {
        let mut world = World::new();
        for event in events {
            world.step(event);
        }
        while !world.under_way.is_empty() {
            world.apply_next();
        }
        let mut proposed = world.compare();
        world.apply_next();
        while proposed.settle(&world.group.machine) > 0 {}
        prop_assert_eq!(proposed.len(), 0);
        for entry in world.log.catalog.queues_of_home(GROUP, None) {
            let wanted = world.log.catalog.config_of(entry);
            if let Some(view) = world.group.machine.queue(entry.id) {
                prop_assert_eq!(view.config.message_ttl_ms, wanted.message_ttl_ms);
                prop_assert!(view.config.agrees_with(&wanted));
            }
        }
        // The same settings, as of a later entry.
        world.log.apply_all(Vec::new());
        prop_assert!(world.differing().is_empty(), "settings that agree are proposed again");
    }

    /// NAM 2, 7: settings are waited for until each queue has them, or later ones, or has ended; and
    /// what was resolved earlier does not come back.
    #[test]
    fn nam_02_settings_are_applied_when_every_queue_has_them_or_later_ones(
        before in vec(event(), 1..40),
        ttl in 10_u64..20,
        after in vec(event(), 0..40),
    ) {
        let mut world = World::new();
        for event in before {
            world.step(event);
        }
        world.set_policy(2, ttl);
        let index = world.log.catalog.version();
        let waited_for: Vec<QueueId> =
            world.differing().into_iter().map(|(queue, _)| queue).collect();
        let mut proposed = world.compare();
        for event in after {
            while proposed.settle(&world.group.machine) > 0 {}
            let lacks = |queue: &&QueueId| {
                world.group.machine.queue(**queue).is_some_and(|view| view.config.resolved_at < index)
            };
            let last_lacking = waited_for.iter().rposition(|queue| lacks(&queue));
            let expected = last_lacking.map_or(0, |place| place + 1);
            prop_assert!(proposed.len() <= expected.max(waited_for.len().min(expected)));
            prop_assert_eq!(proposed.len() == 0, expected == 0, "{:?}", proposed);
            world.step(event);
        }
    }

    /// A change of policies is in force when each group's leader has said so, however often nodes do not
    /// answer; and a node that did not answer is asked again soon.
    #[test]
    fn nam_07_a_change_is_in_force_when_each_group_has_a_leader_that_says_so(
        rounds in vec(vec(prop::option::of(vec(1_u16..5, 0..4)), 1..4), 1..8),
    ) {
        let mut unconfirmed = Unconfirmed::new((1..5).map(GroupId));
        let mut said = BTreeSet::new();
        for answers in rounds {
            for answer in &answers {
                said.extend(answer.iter().flatten().copied());
                let groups = answer.as_ref().map(|groups| groups.iter().copied().map(GroupId));
                unconfirmed.answered(groups.map(Iterator::collect));
            }
            let expected = match (said.len() == 4, answers.contains(&None)) {
                (true, _) => None,
                (false, true) => Some(ASK_AGAIN),
                (false, false) => Some(IN_FORCE_MOST),
            };
            prop_assert_eq!(unconfirmed.ask_again_after(), expected);
            if expected.is_none() {
                return Ok(());
            }
        }
    }
}

#[test]
fn settings_are_looked_for_a_few_at_a_time() {
    let queue = |index| QueueId { home: GROUP, index, position: 0 };
    let ended = (1..=600).map(|index| (queue(index), QueueConfig::plain(QueueType::Classic)));
    let mut proposed = Proposed::default();
    proposed.add(&ended.collect::<Vec<_>>());
    let machine = GroupLog::new().machine;
    let settled: Vec<_> = (0..4).map(|_| proposed.settle(&machine)).collect();
    assert_eq!(settled, [256, 256, 88, 0]);
}
