//! A few homes with letters between them, where anything that is sent may come late, twice or never:
//! what the tests of letters act on.

use crate::{
    store::TestStore,
    world::{Step, World, heads, name, session},
};
use quorate_queue::{
    Answer, Batch, Command, DeadLetter, DeathReason, Effect, Entry, Machine, MessageHead, Origin,
    QueueConfig, Record, RecordKey, Reply, RoutedLetters, Routes, Run, Via,
};
use quorate_types::{
    CatalogIndex, DeliveryNumber, GroupId, Holder, Home, LetterHome, LetterNumber, Level, Overflow,
    QueueId, QueueType, Sequence, ShortString, Stamp, Timestamp, WallTime,
};
use std::collections::{BTreeMap, BTreeSet};

/// Homes: 1 is where messages die, 2 and 3 take them; 1 too.
pub const HOMES: [u16; 3] = [1, 2, 3];

pub fn line(group: u16) -> LetterHome {
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

/// A batch of transfers on its way.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub to: u16,
    pub first: Sequence,
    pub mark: Sequence,
    /// (target, bytes, round)
    pub transfers: Vec<(QueueId, u32, u32)>,
}

pub struct Cluster {
    pub worlds: BTreeMap<u16, World>,
    pub source: QueueId,
    pub targets: Vec<QueueId>,
    /// Everything ever sent; any of it may arrive at any time, often.
    pub sent: Vec<Parcel>,
    pub answers: Vec<(u16, Answer)>,
    /// Room that was told of.
    pub told: BTreeMap<QueueId, u32>,
    pub published: u32,
    pub routed: BTreeMap<u32, Vec<QueueId>>,
    /// What clients took out of targets.
    pub taken: BTreeMap<QueueId, Vec<u32>>,
    pub ended: BTreeSet<QueueId>,
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
        Self {
            worlds,
            source,
            targets,
            sent: Vec::new(),
            answers: Vec::new(),
            told: BTreeMap::new(),
            published: 0,
            routed: BTreeMap::new(),
            taken: BTreeMap::new(),
            ended: BTreeSet::new(),
        }
    }

    pub fn source(&mut self) -> &mut World {
        self.worlds.get_mut(&1).unwrap()
    }

    /// Publishes messages, each of a size of its own, and rejects them.
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

    /// Routes up to `limit` letters to the targets that `choice` picks, or keeps them.
    pub fn route(&mut self, limit: usize, choice: u8) {
        let queue = self.source;
        let alive: Vec<QueueId> = self.targets.clone();
        let picked: Vec<QueueId> = (0u8..)
            .zip(alive)
            .filter(|(bit, _)| choice & (1 << bit) != 0)
            .map(|(_, target)| target)
            .collect();
        let kept = choice & 16 != 0;
        let world = self.source();
        let letters = world.machine.unrouted(queue, kept, LetterNumber(0), limit);
        let mut routed = Vec::new();
        let mut sizes = Vec::new();
        for letter in letters {
            let id = letter.message;
            let head = world.store.message(queue, id.level, id.index, id.position).unwrap();
            sizes.push(head.body_bytes);
            let routes = if picked.is_empty() { Routes::Keep } else { Routes::To(picked.clone()) };
            routed.push(RoutedLetters { first: letter.number, last: letter.number, routes });
        }
        // Twice, as an old leader's might be: the second finds nothing to route.
        for _ in 0..2 {
            let letters = routed.clone();
            world.leader(Command::Routed { queue, at: CatalogIndex(1), via: via(), letters });
        }
        if !picked.is_empty() {
            // A letter may be routed again when all its targets had ended.
            self.routed.extend(sizes.into_iter().map(|size| (size, picked.clone())));
        }
    }

    /// Sends what is under way to a home, from its mark on.
    pub fn send(&mut self, to: u16, limit: usize) {
        let world = &self.worlds[&1];
        let mark = world.machine.line_mark(line(to));
        let all = world.machine.transfers(line(to), mark, limit);
        let mut parcel: Option<Parcel> = None;
        for transfer in all {
            let id = transfer.message;
            let head =
                world.store.message(transfer.queue, id.level, id.index, id.position).unwrap();
            assert_eq!(transfer.reason, DeathReason::Rejected);
            let one = (transfer.target, head.body_bytes, transfer.round);
            match &mut parcel {
                Some(open) if open.first.0 + open.transfers.len() as u64 == transfer.number.0 => {
                    open.transfers.push(one);
                }
                _ => {
                    self.sent.extend(parcel.take());
                    parcel =
                        Some(Parcel { to, first: transfer.number, mark, transfers: vec![one] });
                }
            }
        }
        self.sent.extend(parcel);
    }

    /// Something that was sent arrives; what comes of it is on its way back.
    pub fn arrive(&mut self, which: usize) {
        if self.sent.is_empty() {
            return;
        }
        let parcel = self.sent[which % self.sent.len()].clone();
        let mut entry =
            Entry { stamp: Stamp { time: Timestamp(1), wall: WallTime(1) }, ..Entry::default() };
        let mut commands = Vec::new();
        for (queue, octets, round) in &parcel.transfers {
            let head = MessageHead { body_bytes: *octets, expiration_ms: None };
            let place = entry.runs.iter().position(|run| run.queue == *queue);
            let place = place.unwrap_or_else(|| {
                entry.runs.push(Run { queue: *queue, level: Level(0), messages: Vec::new() });
                entry.runs.len() - 1
            });
            let first = entry.runs[place].messages.len() as u32;
            entry.runs[place].messages.push(head);
            commands.push(Command::Transfer { run: place as u32, first, round: *round });
        }
        let origin = Origin::Letters { from: line(1), first: parcel.first, mark: parcel.mark };
        entry.batches.push(Batch { origin, commands });
        let world = self.worlds.get_mut(&parcel.to).unwrap();
        world.apply(&entry);
        self.answers.extend(world.out.answers.iter().cloned().map(|answer| (parcel.to, answer)));
        self.hear(parcel.to);
    }

    /// What a home's last entry had to tell.
    pub fn hear(&mut self, group: u16) {
        let effects = self.worlds[&group].out.effects.clone();
        for effect in effects {
            if let Effect::Room { queue, to, messages } = effect {
                assert_eq!(to, line(1));
                self.told.insert(queue, messages);
            }
        }
    }

    /// An answer arrives at the source.
    pub fn answer(&mut self, which: usize) {
        if self.answers.is_empty() {
            return;
        }
        let (_, answer) = self.answers[which % self.answers.len()].clone();
        match answer {
            Answer::Transferred { from, by, first, last, other } => {
                assert_eq!(from, line(1));
                self.source().leader(Command::DeadLettered { line: by, first, last, other });
            }
            // The sender sends from its mark anyway.
            Answer::TransfersWanted { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    /// Tries full targets again that have told of room, or were not refused.
    pub fn retry(&mut self) {
        let targets: Vec<_> = self.source().machine.targets().collect();
        for target in targets {
            let told = self.told.get(&target.target).copied();
            let ended = self.ended.contains(&target.target);
            if target.waits > 0 && (!target.refused || told.is_some() || ended) {
                self.told.remove(&target.target);
                let count = if target.refused { told.unwrap_or(3) } else { 3 };
                self.source().leader(Command::Retry { target: target.target, count });
            }
        }
    }

    /// A client takes what is in a target, which makes room.
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
            let octets =
                world.store.message(queue, id.level, id.index, id.position).unwrap().body_bytes;
            let holder = Holder::Get(session(8, 1), number);
            let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
            world.one(session(8, 1), Command::Settle { holder, numbers });
            self.taken.entry(queue).or_default().push(octets);
            self.hear(group);
        }
    }

    /// A target ends with what is in it.
    pub fn end(&mut self, which: usize) {
        let queue = self.targets[which % self.targets.len()];
        if self.ended.insert(queue) {
            let Home::Group(GroupId(group)) = queue.home else { panic!("{queue:?}") };
            let world = self.worlds.get_mut(&group).unwrap();
            let end = Command::EndQueue { queue, if_unused: false, if_empty: false };
            world.leader(end);
        }
    }

    /// A home begins anew from its records, as after a crash; a new leader owes what the state owes.
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
        self.told.retain(|queue, _| queue.home != Home::Group(GroupId(group)));
        self.hear(group);
    }

    /// Goes on until nothing is left to do; targets that were not there any more end the letters
    /// that were for them alone.
    pub fn finish(&mut self) {
        for _ in 0..300 {
            // By then the catalog knows what has ended.
            let lives = |bit: &usize| !self.ended.contains(&self.targets[*bit]);
            let alive: u8 = (0..self.targets.len()).filter(lives).map(|bit| 1 << bit).sum();
            self.route(100, alive);
            self.route(100, 16 | alive);
            self.retry();
            self.sent.clear();
            self.answers.clear();
            HOMES.into_iter().for_each(|home| self.send(home, 50));
            (0..self.sent.len()).for_each(|which| self.arrive(which));
            (0..self.answers.len()).for_each(|which| self.answer(which));
            (0..self.targets.len()).for_each(|which| self.consume(which, 100));
            // What was told may have been lost: it is owed until a higher round comes (LET 3).
            for home in HOMES {
                let world = self.worlds.get_mut(&home).unwrap();
                world.out.effects.clear();
                world.machine.obligations(&mut world.out.effects);
                self.hear(home);
            }
            let all_gone = self.ended.len() == self.targets.len();
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
            assert_eq!(group.letters.rounds, BTreeMap::new(), "rounds of targets that took all");
        }
        for (queue, taken) in &self.taken {
            let once: BTreeSet<_> = taken.iter().collect();
            assert_eq!(once.len(), taken.len(), "{queue} has taken a letter twice");
        }
        for (size, targets) in &self.routed {
            for target in targets.iter().filter(|target| !self.ended.contains(target)) {
                let taken = self.taken.get(target).is_some_and(|taken| taken.contains(size));
                assert!(taken, "letter {size} has not come into {target}");
            }
        }
    }
}

pub fn check_store(store: &TestStore, machine: &Machine) {
    store.check(machine);
}
