//! A few homes that send letters to each other, where anything that is sent may arrive late, twice
//! or never: the model on which the tests of letters act. The source's letters are handled by the
//! worker that the broker runs ([`LetterWorker`]); its driver, its catalog copy and the log are
//! modelled.

use crate::{
    store::TestStore,
    world::{Step, World, heads, name, session},
};
use quorate_queue::{
    Answer, Batch, Command, DeadLetter, DeathReason, Destination, Effect, Entry, LetterWorker,
    LiveLetters, Machine, MessageHead, Origin, QueueConfig, Record, RecordKey, Reply, Routes, Run,
    TargetState, TransferView, Unrouted, Via, Walk,
};
use quorate_types::{
    CatalogIndex, DeliveryNumber, GroupId, Holder, Home, LetterHome, LetterNumber, Level,
    MessageId, Overflow, QueueId, QueueType, Sequence, ShortString, Stamp, Timestamp, WallTime,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// Homes: messages die in 1; 1, 2 and 3 have targets.
pub const HOMES: [u16; 3] = [1, 2, 3];

pub fn stream(group: u16) -> LetterHome {
    LetterHome::Group(GroupId(group))
}

pub fn with_dlx() -> QueueConfig {
    let exchange = ShortString::from_static("dlx");
    let dead_letter = DeadLetter { exchange, routing_key: None, at_least_once: true };
    QueueConfig { dead_letter: Some(dead_letter), ..QueueConfig::plain(QueueType::Quorum) }
}

pub fn full_at(length: u64) -> QueueConfig {
    let overflow = Overflow::RejectPublish;
    let length_max = Some(length);
    QueueConfig { overflow, length_max, ..QueueConfig::plain(QueueType::Quorum) }
}

pub fn via() -> Via {
    Via { exchange: ShortString::from_static("dlx"), routing_key: None }
}

/// A batch of transfers that was sent.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub to: u16,
    pub first: Sequence,
    pub mark: Sequence,
    /// (target, bytes, attempt)
    pub transfers: Vec<(QueueId, u32, u32)>,
}

/// The contents of the catalog, or of a copy of it.
#[derive(Clone, Debug)]
struct Catalog {
    version: u64,
    /// Targets that the dead-letter exchange routes to, a bit for each.
    bound: u8,
    ended: BTreeSet<QueueId>,
}

pub struct Cluster {
    pub worlds: BTreeMap<u16, World>,
    worker: LetterWorker,
    now: Duration,
    catalog: Catalog,
    /// The worker's copy, which may be outdated.
    copy: Catalog,
    /// Commands that the worker has proposed and the log does not have yet.
    pub proposals: VecDeque<Command>,
    pub source: QueueId,
    pub targets: Vec<QueueId>,
    /// Every batch ever sent; any of them may arrive at any time, any number of times.
    pub sent: Vec<Parcel>,
    pub answers: Vec<(u16, Answer)>,
    /// Every notice of room; any of them may arrive at any time, any number of times.
    notices: Vec<(QueueId, u32)>,
    pub published: u32,
    pub routed: BTreeMap<u32, Vec<QueueId>>,
    /// Messages that clients have taken out of targets.
    pub taken: BTreeMap<QueueId, Vec<u32>>,
}

impl Cluster {
    pub fn new(lengths: &[u64]) -> Self {
        let world = |group: u16| (group, World::with(Machine::new(Home::Group(GroupId(group)))));
        let mut worlds: BTreeMap<u16, World> = HOMES.into_iter().map(world).collect();
        let mut create = |group: u16, config: QueueConfig| {
            let command = Command::CreateQueue { name: name("q"), config, bound: None };
            match worlds.get_mut(&group).unwrap().one(session(9, 1), command) {
                Reply::Created(id) => id,
                other => panic!("{other:?}"),
            }
        };
        let source = create(1, with_dlx());
        let homes = [2, 3, 1, 2];
        let targets =
            lengths.iter().zip(homes).map(|(length, home)| create(home, full_at(*length)));
        let targets = targets.collect();
        let catalog = Catalog { version: 1, bound: 0b1111, ended: BTreeSet::new() };
        Self {
            worlds,
            worker: LetterWorker::default(),
            now: Duration::ZERO,
            catalog: catalog.clone(),
            copy: catalog,
            proposals: VecDeque::new(),
            source,
            targets,
            sent: Vec::new(),
            answers: Vec::new(),
            notices: Vec::new(),
            published: 0,
            routed: BTreeMap::new(),
            taken: BTreeMap::new(),
        }
    }

    pub fn source(&mut self) -> &mut World {
        self.worlds.get_mut(&1).unwrap()
    }

    /// Publishes messages, each of a different size, and rejects them.
    pub fn kill(&mut self, count: u32) {
        let sizes: Vec<u32> = (1..=count).map(|more| self.published + more).collect();
        self.published += count;
        let queue = self.source;
        let messages = heads(&sizes);
        let world = self.source();
        world.run(session(9, 1), &[Step::Enqueue { queue, level: Level(0), messages }]);
        for _ in 0..count {
            let number = Sequence(world.next[&session(9, 1)]);
            let got = world.one(session(9, 1), Command::Get { queue, timeout_default_ms: None });
            assert!(matches!(got, Reply::Got(_)), "{got:?}");
            let holder = Holder::Get(session(9, 1), number);
            let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
            world.one(session(9, 1), Command::Discard { holder, numbers });
        }
    }

    /// Changes the catalog: the dead-letter exchange routes to these targets from now on.
    pub fn bind(&mut self, bound: u8) {
        self.catalog.version += 1;
        self.catalog.bound = bound;
    }

    /// Updates the worker's copy of the catalog.
    pub fn read_catalog(&mut self) {
        self.copy = self.catalog.clone();
    }

    pub fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Routes the letters that wait in the source, if the bodies of up to `limit` letters are
    /// available.
    pub fn route(&mut self, limit: usize) {
        let queue = self.source;
        let machine = &self.worlds[&1].machine;
        let waits = machine.queues_with_letters().any(|it| it == queue);
        let first = waits.then(|| Unrouted::of(machine, queue, false, LetterNumber(0)));
        let Some(unrouted) = first.flatten().filter(|it| self.worker.may_route(it, self.now))
        else {
            return;
        };
        if let Some(left) = self.route_by_copy(unrouted, limit, false) {
            self.read_catalog();
            assert!(self.route_by_copy(left, limit, true).is_none());
        }
    }

    /// Routes up to `limit` letters to these targets, or keeps them.
    pub fn route_to(&mut self, limit: usize, bound: u8) {
        self.bind(bound);
        self.read_catalog();
        self.route(limit);
        self.commit(1);
    }

    fn route_by_copy(
        &mut self,
        mut unrouted: Unrouted,
        limit: usize,
        fresh: bool,
    ) -> Option<Unrouted> {
        unrouted.letters.truncate(limit);
        let leads = |bit: &usize| self.copy.bound & (1 << bit) != 0;
        let targets = (0..self.targets.len()).filter(leads).map(|bit| self.targets[bit]);
        let targets: Vec<_> = targets.filter(|it| !self.copy.ended.contains(it)).collect();
        let (routed, left) = unrouted.route(CatalogIndex(self.copy.version), fresh, |_, by| {
            assert_eq!(*by, via());
            match targets.is_empty() {
                true => Destination::Nothing,
                false => Destination::Targets(targets.clone()),
            }
        });
        if routed.is_some() {
            self.worker.routing_proposed(&unrouted, self.now);
        }
        self.proposals.extend(routed);
        left
    }

    /// Checks whether letters kept as unroutable have a route by now, `limit` at a time.
    pub fn route_kept(&mut self, limit: usize) {
        let (queue, version) = (self.source, CatalogIndex(self.copy.version));
        let Some((_, settings)) = self.worlds[&1].machine.letter_settings(queue) else { return };
        let mut from = self.worker.check_from(queue, version, &settings);
        while let Some(mut kept) = Unrouted::of(&self.worlds[&1].machine, queue, true, from) {
            kept.letters.truncate(limit);
            from = LetterNumber(kept.letters.last().unwrap().number.0 + 1);
            self.route_by_copy(kept, limit, settings.is_none());
        }
        self.worker.checked(queue, version, settings, from);
    }

    /// Appends the first of the worker's proposals to the log.
    pub fn commit(&mut self, count: usize) {
        for _ in 0..count {
            let Some(command) = self.proposals.pop_front() else { return };
            if let Command::Routed { letters, .. } = &command {
                let mut unrouted = self.unrouted();
                for group in letters {
                    let Routes::To(targets) = &group.routes else { continue };
                    let numbers = group.first..=group.last;
                    // A letter is routed again if all its targets had ended.
                    for (number, size) in &mut unrouted {
                        if numbers.contains(number) {
                            self.routed.insert(*size, targets.clone());
                        }
                    }
                }
                // Twice, like the proposal of an old leader: the second one finds no letters to
                // route.
                self.source().leader(command.clone());
            }
            self.source().leader(command);
        }
    }

    /// Number and size of each letter that is waiting or kept.
    fn unrouted(&mut self) -> Vec<(LetterNumber, u32)> {
        let (queue, world) = (self.source, &self.worlds[&1]);
        let letters = |kept| world.machine.unrouted(queue, kept, LetterNumber(0), usize::MAX);
        let size = |id: MessageId| {
            world.store.message(queue, id.level, id.index, id.position).unwrap().body_bytes
        };
        let all = letters(false).into_iter().chain(letters(true));
        all.map(|it| (it.number, size(it.message))).collect()
    }

    /// Loses a proposal.
    pub fn lose(&mut self) {
        self.proposals.pop_front();
    }

    /// Sends the transfers that the worker would send to a home, in batches of up to `limit`; with
    /// `full`, a lane refuses the first one.
    pub fn send(&mut self, to: u16, limit: usize, has_room: bool, full: bool) {
        let Self { worlds, worker, sent, now, .. } = self;
        let world = &worlds[&1];
        if !world.machine.streams().any(|it| it == stream(to)) {
            return;
        }
        let mark = world.machine.stream_mark(stream(to));
        while let Some(from) = worker.send_from(stream(to), mark, has_room, *now) {
            let mut batch = LetterWorker::batch(&world.machine, stream(to), from);
            batch.truncate(limit);
            let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return };
            let (first, last) = (first.number, last.number);
            let transfer = |(number, it): (u64, &TransferView)| {
                let id = it.message;
                let head = world.store.message(it.queue, id.level, id.index, id.position).unwrap();
                assert_eq!(it.number.0, number);
                assert!(matches!(it.reason, DeathReason::Rejected | DeathReason::Redriven));
                (it.target, head.body_bytes, it.attempt)
            };
            let transfers: Vec<_> = (first.0..).zip(&batch).map(transfer).collect();
            worker.sent(stream(to), last, 100 * transfers.len());
            if full {
                worker.send_again(stream(to), first);
                return;
            }
            sent.push(Parcel { to, first, mark, transfers });
        }
    }

    /// A home's leader announces itself.
    pub fn announce(&mut self, group: u16) {
        self.worker.send_all_again(Home::Group(GroupId(group)));
    }

    /// Something that was sent arrives; the answers are sent back.
    pub fn arrive(&mut self, which: usize) {
        if self.sent.is_empty() {
            return;
        }
        let parcel = self.sent[which % self.sent.len()].clone();
        let mut entry =
            Entry { stamp: Stamp { time: Timestamp(1), wall: WallTime(1) }, ..Entry::default() };
        let mut commands = Vec::new();
        for (queue, bytes, attempt) in &parcel.transfers {
            let head = MessageHead { body_bytes: *bytes, expiration_ms: None };
            let place = entry.runs.iter().position(|run| run.queue == *queue);
            let place = place.unwrap_or_else(|| {
                entry.runs.push(Run { queue: *queue, level: Level(0), messages: Vec::new() });
                entry.runs.len() - 1
            });
            let first = entry.runs[place].messages.len() as u32;
            entry.runs[place].messages.push(head);
            commands.push(Command::Transfer { run: place as u32, first, attempt: *attempt });
        }
        let origin = Origin::Letters { from: stream(1), first: parcel.first, mark: parcel.mark };
        entry.batches.push(Batch { origin, commands });
        let world = self.worlds.get_mut(&parcel.to).unwrap();
        world.apply(&entry);
        self.answers.extend(world.out.answers.iter().cloned().map(|answer| (parcel.to, answer)));
        self.take_answers(parcel.to);
    }

    /// Sends the answers and effects of a home's last entry.
    pub fn take_answers(&mut self, group: u16) {
        let effects = self.worlds[&group].out.effects.clone();
        for effect in effects {
            if let Effect::Room { queue, to, messages } = effect {
                assert_eq!(to, stream(1));
                self.notices.push((queue, messages));
            }
        }
    }

    /// A notice of room arrives at the source.
    pub fn notice(&mut self, which: usize) {
        if !self.notices.is_empty() {
            let (queue, messages) = self.notices[which % self.notices.len()];
            self.worker.room_reported(queue, messages);
        }
    }

    /// An answer arrives at the source.
    pub fn answer(&mut self, which: usize) {
        if !self.answers.is_empty() {
            let (_, answer) = self.answers[which % self.answers.len()].clone();
            self.worker.answered(&answer);
            self.proposals.extend(LetterWorker::commit(answer));
        }
    }

    /// Tries full targets again, and forgets ended ones.
    pub fn retry(&mut self) {
        let machine = &self.worlds[&1].machine;
        for target in machine.targets() {
            let ended = self.copy.ended.contains(&target.target);
            let state = if ended { TargetState::Ended } else { TargetState::Lives };
            self.proposals.extend(self.worker.retry(&target, state, self.now));
        }
        let kept = Walk::through(|walk| Some(machine.queues_with_kept(walk)));
        self.worker
            .forget_done(&LiveLetters::of(machine, kept.into_iter().map(|(queue, _)| queue)));
    }

    /// A client takes messages out of a target, which makes room.
    pub fn consume(&mut self, which: usize, limit: usize) {
        let queue = self.targets[which % self.targets.len()];
        let Home::Group(GroupId(group)) = queue.home else { panic!("{queue:?}") };
        for _ in 0..limit {
            let world = self.worlds.get_mut(&group).unwrap();
            let number = Sequence(*world.next.get(&session(8, 1)).unwrap_or(&1));
            let Reply::Got(got) =
                world.one(session(8, 1), Command::Get { queue, timeout_default_ms: None })
            else {
                return;
            };
            let id = got.message;
            let bytes =
                world.store.message(queue, id.level, id.index, id.position).unwrap().body_bytes;
            let holder = Holder::Get(session(8, 1), number);
            let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
            world.one(session(8, 1), Command::Ack { holder, numbers });
            self.taken.entry(queue).or_default().push(bytes);
            self.take_answers(group);
        }
    }

    /// Ends a target with its messages.
    pub fn end(&mut self, which: usize) {
        let queue = self.targets[which % self.targets.len()];
        if self.catalog.ended.insert(queue) {
            self.catalog.version += 1;
            let Home::Group(GroupId(group)) = queue.home else { panic!("{queue:?}") };
            let world = self.worlds.get_mut(&group).unwrap();
            let end = Command::EndQueue { queue, if_unused: false, if_empty: false };
            world.leader(end);
        }
    }

    /// Restarts a home from its records, as after a crash; a new leader performs the effects that
    /// the state owes, and a new worker has an empty memory.
    pub fn restart(&mut self, group: u16) {
        let world = self.worlds.get_mut(&group).unwrap();
        let records: Vec<_> = world
            .machine
            .keys()
            .into_iter()
            .map(|key| (key, world.machine.record(key).unwrap()))
            .collect();
        let before = world.machine.digest();
        world.machine = Machine::load(Home::Group(GroupId(group)), records).unwrap();
        assert_eq!(world.machine.digest(), before);
        world.out.effects.clear();
        let mut owed = Vec::new();
        world.machine.obligations(&mut owed);
        world.out.effects = owed;
        check_store(&world.store, &world.machine);
        if group == 1 {
            self.worker = LetterWorker::default();
        }
        self.take_answers(group);
    }

    /// Continues until no work is left, while all existing targets accept letters.
    pub fn finish(&mut self) {
        self.commit(usize::MAX);
        self.bind(0b1111);
        for _ in 0..300 {
            // By then every earlier proposal or batch counts as lost.
            self.wait(4_000);
            self.read_catalog();
            self.route(100);
            self.route_kept(100);
            self.retry();
            self.commit(usize::MAX);
            self.sent.clear();
            self.answers.clear();
            HOMES.into_iter().for_each(|home| self.send(home, 50, true, false));
            (0..self.sent.len()).for_each(|which| self.arrive(which));
            (0..self.answers.len()).for_each(|which| self.answer(which));
            self.commit(usize::MAX);
            (0..self.targets.len()).for_each(|which| self.consume(which, 100));
            // Notices may have been lost: they are owed until a higher attempt arrives (LET 3).
            self.notices.clear();
            for home in HOMES {
                let world = self.worlds.get_mut(&home).unwrap();
                world.out.effects = Walk::through(|walk| Some(world.machine.owed_room(walk)));
                self.take_answers(home);
            }
            (0..self.notices.len()).for_each(|which| self.notice(which));
            let all_gone = self.catalog.ended.len() == self.targets.len();
            if all_gone || self.source().machine.letter_counts().0 == 0 {
                return;
            }
        }
        panic!("letters are left: {:?}", self.source().machine.letter_counts());
    }

    pub fn check(&mut self) {
        let group = self.source().machine.record(RecordKey::Group);
        if let Some(Record::Group(group)) = group
            && self.source().machine.letter_counts().0 == 0
        {
            assert_eq!(
                group.letters.attempts,
                BTreeMap::new(),
                "attempts of targets that took all"
            );
        }
        for (queue, taken) in &self.taken {
            let once: BTreeSet<_> = taken.iter().collect();
            assert_eq!(once.len(), taken.len(), "{queue} has taken a letter twice");
        }
        let ready: BTreeSet<_> = self.ready_sizes().into_iter().collect();
        for (size, targets) in &self.routed {
            // A message that has come back from ended targets is in no target.
            if ready.contains(size) {
                let lives = |target: &QueueId| !self.catalog.ended.contains(target);
                let is_in = |(of, taken): (&QueueId, &Vec<u32>)| lives(of) && taken.contains(size);
                assert!(!self.taken.iter().any(is_in), "letter {size} is in two places");
                continue;
            }
            for target in targets.iter().filter(|target| !self.catalog.ended.contains(target)) {
                let taken = self.taken.get(target).is_some_and(|taken| taken.contains(size));
                assert!(taken, "letter {size} has not come into {target}");
            }
        }
    }
}

pub fn check_store(store: &TestStore, machine: &Machine) {
    store.check(machine);
}
