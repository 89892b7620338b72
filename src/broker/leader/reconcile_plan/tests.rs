//! The reconciler while creators crash between the group and the catalog, virtual hosts are
//! deleted, its catalog copy lags, and its proposals are applied late.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::testing_state::{CatalogLog, GroupLog, queue_name};
use proptest::{collection::vec, prelude::*};
use quorate_catalog::{AccessCommand, CatalogCommand, CatalogReply, QueueEntry, VhostMetadata};
use quorate_queue::{Command, QueueConfig, Reply};
use quorate_types::{BootNumber, NodeId, QueueType, ShortString};

const VHOSTS: [&str; 2] = ["/", "v"];
const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A node creates a queue in its group: NAM 2's first step.
    Create(usize, usize, usize),
    /// The creator adds the name of one of the queues that it is creating: the second step.
    Name(usize),
    /// The creator forgets one queue, as if it had crashed.
    Abandon(usize),
    /// A client ends a queue; its entry stays for now.
    End(usize),
    /// The node's start is fenced, and it announces another.
    Fence(usize),
    DeleteVhost,
    AddVhost,
    /// The reconciler's catalog copy applies this many entries.
    Catch(usize),
    /// The reconciler performs a linearizable read of the catalog, and keeps the names.
    ReadNames,
    /// The reconciler performs a linearizable read of the group, and compares.
    Compare,
    /// The reconciler's proposals are applied.
    Apply,
}

fn event() -> impl Strategy<Value = Event> {
    let place = 0_usize..8;
    let create = (0_usize..2, 0..VHOSTS.len(), 0..NAMES.len());
    prop_oneof![
        6 => create.prop_map(|(node, vhost, name)| Event::Create(node, vhost, name)),
        6 => place.clone().prop_map(Event::Name),
        1 => place.clone().prop_map(Event::Abandon),
        2 => place.clone().prop_map(Event::End),
        2 => (0_usize..2).prop_map(Event::Fence),
        1 => Just(Event::DeleteVhost),
        1 => Just(Event::AddVhost),
        3 => place.prop_map(Event::Catch),
        3 => Just(Event::ReadNames),
        3 => Just(Event::Compare),
        3 => Just(Event::Apply),
    ]
}

struct World {
    log: CatalogLog,
    /// Entries of the catalog's log, and the reconciler's copy, which has applied some of them.
    entries: Vec<CatalogCommand>,
    copy: CatalogLog,
    group: GroupLog,
    sessions: [SessionId; 2],
    boots: u64,
    making: Vec<QueueEntry>,
    named: Option<Named>,
    /// The commands that the reconciler has proposed.
    to_end: Vec<QueueId>,
    to_remove: Vec<QueueId>,
    /// Queues that the reconciler ended because their creator had been fenced.
    condemned: BTreeSet<QueueId>,
}

impl World {
    fn new() -> Self {
        let session = SessionId { node: NodeId(0), start: StartNumber(0) };
        let mut world = Self {
            log: CatalogLog::new(),
            entries: Vec::new(),
            copy: CatalogLog::new(),
            group: GroupLog::new(),
            sessions: [session; 2],
            boots: 0,
            making: Vec::new(),
            named: None,
            to_end: Vec::new(),
            to_remove: Vec::new(),
            condemned: BTreeSet::new(),
        };
        (0..2).for_each(|place| world.begin(place));
        world.commit(Self::add_vhost());
        world
    }

    fn add_vhost() -> CatalogCommand {
        let vhost = ShortString::from_static(VHOSTS[1]);
        let metadata = VhostMetadata::default();
        CatalogCommand::Access(AccessCommand::AddVhost { vhost, metadata })
    }

    fn commit(&mut self, command: CatalogCommand) -> CatalogReply {
        self.entries.push(command.clone());
        self.log.apply(command)
    }

    fn catch_up(&mut self, count: usize) {
        let known = usize::try_from(self.copy.catalog.version().0).unwrap();
        let rest = &self.entries[known..];
        rest.iter().take(count).for_each(|entry| drop(self.copy.apply(entry.clone())));
    }

    fn begin(&mut self, place: usize) {
        self.boots += 1;
        let node = NodeId(u16::try_from(place + 1).unwrap());
        let started = crate::testing_state::started(node, BootNumber(self.boots));
        let CatalogReply::Started(start) = self.commit(started) else { unreachable!("begins") };
        self.sessions[place] = SessionId { node, start };
    }

    fn create(&mut self, place: usize, vhost: usize, name: usize) {
        let (creator, name) = (self.sessions[place], queue_name(VHOSTS[vhost], NAMES[name]));
        // A front end asks its own copy, which has the virtual host.
        if !self.log.catalog.has_vhost(&name.vhost) {
            return;
        }
        let plain = QueueConfig::plain(QueueType::Classic);
        let config = QueueConfig { resolved_at: self.log.catalog.version(), ..plain };
        let create = Command::CreateQueue { name: name.clone(), config, bound: None };
        if let Some(Reply::Created(id)) = self.group.ask(creator, create) {
            self.making.push(QueueEntry {
                name,
                id,
                creator,
                queue_type: QueueType::Classic,
                durable: true,
                auto_delete: false,
                owner: None,
                arguments: Default::default(),
            });
        }
    }

    fn end(&mut self, queue: QueueId) {
        self.group.lead(vec![Command::EndQueue { queue, if_unused: false, if_empty: false }]);
    }

    /// NAM 2: of two entries for one name the first wins, and the other queue is ended by its id.
    fn name(&mut self, place: usize) -> Result<(), TestCaseError> {
        if self.making.is_empty() {
            return Ok(());
        }
        let entry = self.making.swap_remove(place % self.making.len());
        let id = entry.id;
        match self.commit(CatalogCommand::AddQueue(entry)) {
            CatalogReply::Done => {
                prop_assert!(!self.condemned.contains(&id), "{id} was ended and gets a name");
            }
            // A fenced process does nothing any more.
            CatalogReply::Fenced => {}
            CatalogReply::NameTaken { .. } | CatalogReply::Refused(_) => self.end(id),
            other @ (CatalogReply::Started(_) | CatalogReply::Denied(_)) => {
                prop_assert!(false, "{other:?}");
            }
        }
        Ok(())
    }

    fn compare(&mut self) -> Result<(), TestCaseError> {
        let Some(named) = self.named.take() else { return Ok(()) };
        for id in nameless(&self.copy.catalog, &self.group.machine) {
            let (truth, view) = (&self.log.catalog, self.group.machine.queue(id).unwrap());
            let is_former = truth.is_of_former_vhost(&view.name.vhost, view.config.resolved_at);
            let is_fenced = view.creator.is_some_and(|creator| truth.is_fenced(creator));
            prop_assert!(is_fenced || is_former, "the creator of {id} may name it still");
            // A queue that was created in a deleted virtual host and named in its successor of the
            // same name ends too: its creator checks whether it still exists (NAM 2).
            prop_assert!(is_former || truth.queue_by_id(id).is_none(), "{id} has a name");
            if is_fenced {
                self.condemned.insert(id);
            }
            self.to_end.push(id);
        }
        for id in named.ended(&self.group.machine) {
            prop_assert!(self.group.machine.queue(id).is_none(), "{id} lives");
            self.to_remove.push(id);
        }
        Ok(())
    }

    fn apply_proposals(&mut self) {
        std::mem::take(&mut self.to_end).into_iter().for_each(|queue| self.end(queue));
        for queue in std::mem::take(&mut self.to_remove) {
            self.commit(CatalogCommand::RemoveQueue { queue });
        }
    }

    fn step(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Create(place, vhost, name) => self.create(place, vhost, name),
            Event::Name(place) => self.name(place)?,
            Event::Abandon(place) if !self.making.is_empty() => {
                self.making.swap_remove(place % self.making.len());
            }
            Event::Abandon(_) => {}
            Event::End(place) => {
                let queues: Vec<_> = self.log.catalog.queues().map(|entry| entry.id).collect();
                if let Some(queue) = queues.get(place % queues.len().max(1)) {
                    self.end(*queue);
                }
            }
            Event::Fence(place) => {
                let SessionId { node, start } = self.sessions[place];
                self.commit(CatalogCommand::NodeDown { node, start });
                self.begin(place);
            }
            Event::DeleteVhost => {
                let vhost = ShortString::from_static(VHOSTS[1]);
                self.commit(CatalogCommand::Access(AccessCommand::DeleteVhost { vhost }));
            }
            Event::AddVhost => drop(self.commit(Self::add_vhost())),
            Event::Catch(count) => self.catch_up(count),
            Event::ReadNames => self.read_names(),
            Event::Compare => self.compare()?,
            Event::Apply => self.apply_proposals(),
        }
        Ok(())
    }

    fn read_names(&mut self) {
        self.catch_up(usize::MAX);
        self.named = Some(Named::of_group(&self.copy.catalog, GroupId(1)));
    }

    fn reconcile(&mut self) -> Result<(), TestCaseError> {
        self.read_names();
        self.compare()?;
        self.apply_proposals();
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// NAM 7: the reconciler ends no queue that has a name or may still get one, and removes no
    /// name of an existing queue. When the creators have finished, names and queues agree.
    #[test]
    fn nam_07_names_and_queues_agree_and_nothing_else_goes(events in vec(event(), 1..80)) {
        let mut world = World::new();
        for event in events {
            world.step(event)?;
        }
        // Live creators finish what they began (NAM 2); the others are fenced.
        world.apply_proposals();
        while !world.making.is_empty() {
            world.name(0)?;
        }
        let live: Vec<_> = world.log.catalog.queues().map(|entry| entry.id).collect();
        let live: BTreeSet<_> =
            live.into_iter().filter(|id| world.group.machine.has_queue(*id)).collect();
        (0..2).try_for_each(|place| world.step(Event::Fence(place)))?;
        world.reconcile()?;
        let named: BTreeSet<_> = world.log.catalog.queues().map(|entry| entry.id).collect();
        let queues: BTreeSet<_> = world.group.machine.queues().collect();
        prop_assert_eq!(&named, &queues);
        prop_assert_eq!(&named, &live, "a queue with a name was taken away");
    }

    /// NAM 4, 7: the content of a deleted virtual host is removed although its creator lives, also
    /// if a virtual host of the same name exists again.
    #[test]
    fn nam_04_queues_of_a_former_virtual_host_end(
        events in vec(event(), 1..60),
        is_there_again in any::<bool>(),
    ) {
        let mut world = World::new();
        for event in events {
            world.step(event)?;
        }
        world.step(Event::DeleteVhost)?;
        if is_there_again {
            world.step(Event::AddVhost)?;
        }
        world.reconcile()?;
        let vhost = ShortString::from_static(VHOSTS[1]);
        let left = world.group.machine.queues().filter_map(|id| world.group.machine.queue(id));
        let left: Vec<_> = left.filter(|queue| queue.name.vhost == vhost).collect();
        prop_assert!(left.is_empty(), "{left:?}");
    }

    /// NAM 8: a node removes the names of queues of its present start that it does not hold, and no
    /// other names.
    #[test]
    fn nam_08_a_node_takes_away_the_names_of_its_own_ended_queues(
        queues in vec((any::<bool>(), any::<bool>(), 0_u64..1_000), 0..20),
    ) {
        let mut log = CatalogLog::new();
        let sessions = [1, 2].map(|node| {
            let start = log.start(NodeId(node), BootNumber(1));
            SessionId { node: NodeId(node), start }
        });
        let own = sessions[0];
        let mut local = GroupLog::with(Machine::new_local(own.node, own.start));
        let mut expected = BTreeSet::new();
        for (is_own, lives, position) in queues {
            let creator = sessions[usize::from(!is_own)];
            let id = QueueId { home: Home::Node(creator.node), index: creator.start.0, position };
            let name = ShortString::try_from(format!("{id}")).unwrap();
            let name = quorate_types::ResourceName { name, vhost: ShortString::from_static("/") };
            let config = QueueConfig::plain(QueueType::Classic);
            if is_own && lives {
                let bound = Some(position);
                local.ask(own, Command::CreateQueue { name: name.clone(), config, bound });
            }
            log.apply(CatalogCommand::AddQueue(QueueEntry {
                name,
                id,
                creator,
                queue_type: QueueType::Classic,
                durable: false,
                auto_delete: false,
                owner: None,
                arguments: Default::default(),
            }));
            if is_own {
                expected.insert(id);
            }
        }
        expected.retain(|id| !local.machine.has_queue(*id));
        let ended: BTreeSet<_> =
            Named::of_run(&log.catalog, own).ended(&local.machine).into_iter().collect();
        prop_assert_eq!(ended, expected);
        let next = SessionId { start: StartNumber(own.start.0 + 1), ..own };
        let of_next = Named::of_run(&log.catalog, next).ended(&local.machine);
        prop_assert!(of_next.is_empty(), "a run that begins has none");
    }

    /// NAM 7: each group is compared once when its leadership begins, and all led groups every 10
    /// s.
    #[test]
    fn nam_07_groups_are_compared_when_led_and_every_ten_seconds(
        looks in vec((1_u64..40, vec(1_u16..6, 0..3)), 1..80),
    ) {
        let began = Instant::now();
        let (mut schedule, mut time, mut last) = (Schedule::default(), 0, None);
        for (passed, begun) in looks {
            time += passed * 100;
            let begun: BTreeSet<_> = begun.into_iter().map(GroupId).collect();
            begun.iter().for_each(|group| schedule.begin(*group));
            let due = schedule.due(began + Duration::from_millis(time), vec![GroupId(7), GroupId(8)]);
            let is_time = time - *last.get_or_insert(time) > 10_000;
            if is_time {
                last = Some(time);
            }
            let led = [GroupId(7), GroupId(8)].into_iter().filter(|_| is_time);
            prop_assert_eq!(due, begun.into_iter().chain(led).collect::<BTreeSet<_>>());
        }
    }
}
