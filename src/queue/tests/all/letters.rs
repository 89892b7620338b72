//! Dead letters between homes, against their one promise: whatever is lost, repeated, delayed,
//! restarted or ended in between, every letter gets into each of its targets exactly once, in the
//! order of routing (LET 1 to 4, Q-40, Q-41, Q-45).

use crate::{
    store::TestStore,
    world::{Step, World, heads, name, session},
};
use proptest::prelude::*;
use quorate_queue::{
    Answer, Batch, Command, DeadLetter, DeathReason, Effect, Entry, LETTERS_MAX, Machine,
    MessageHead, Origin, QueueConfig, Reply, RoutedLetters, Routes, Run, TransferAnswer, Via,
};
use quorate_types::{
    CatalogIndex, DeliveryNumber, GroupId, Holder, Home, LetterHome, LetterNumber, Level, Overflow,
    QueueId, QueueType, Sequence, ShortString, Stamp, Timestamp, WallTime,
};
use std::collections::{BTreeMap, BTreeSet};

/// Homes: 1 is where messages die, 2 and 3 take them; 1 too.
const HOMES: [u16; 3] = [1, 2, 3];

fn line(group: u16) -> LetterHome {
    LetterHome::Group(GroupId(group))
}

fn with_dlx() -> QueueConfig {
    let exchange = ShortString::from_static("dlx");
    let dead_letter = DeadLetter { exchange, routing_key: None, at_least_once: true };
    QueueConfig { dead_letter: Some(dead_letter), ..QueueConfig::plain(QueueType::Quorum) }
}

fn full_at(length: u64) -> QueueConfig {
    let overflow = Overflow::RejectPublish;
    let length_max = Some(length);
    QueueConfig { overflow, length_max, ..QueueConfig::plain(QueueType::Quorum) }
}

fn via() -> Via {
    Via { exchange: ShortString::from_static("dlx"), routing_key: None }
}

/// A batch of transfers on its way.
#[derive(Clone, Debug)]
struct Parcel {
    to: u16,
    first: Sequence,
    mark: Sequence,
    /// (target, octets, round)
    transfers: Vec<(QueueId, u32, u32)>,
}

struct Cluster {
    worlds: BTreeMap<u16, World>,
    source: QueueId,
    targets: Vec<QueueId>,
    /// Everything ever sent; any of it may arrive at any time, often.
    sent: Vec<Parcel>,
    answers: Vec<(u16, Answer)>,
    /// Room that was told of.
    told: BTreeMap<QueueId, u32>,
    published: u32,
    routed: BTreeMap<u32, Vec<QueueId>>,
    /// What clients took out of targets.
    taken: BTreeMap<QueueId, Vec<u32>>,
    ended: BTreeSet<QueueId>,
}

impl Cluster {
    fn new(lengths: &[u64]) -> Self {
        let world = |group: u16| (group, World::with(Machine::new(Home::Group(GroupId(group)))));
        let mut worlds: BTreeMap<u16, World> = HOMES.into_iter().map(world).collect();
        let mut create = |group: u16, config: QueueConfig| {
            let command = Command::CreateQueue { name: name("q"), config };
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

    fn source(&mut self) -> &mut World {
        self.worlds.get_mut(&1).unwrap()
    }

    /// Publishes messages, each of a size of its own, and rejects them.
    fn kill(&mut self, count: u32) {
        let sizes: Vec<u32> = (1..=count).map(|more| self.published + more).collect();
        self.published += count;
        let queue = self.source;
        let messages = heads(&sizes);
        let world = self.source();
        world.run(session(9, 1), &[Step::Enqueue { queue, level: Level(0), messages }]);
        for _ in 0..count {
            let number = Sequence(world.next[&session(9, 1)]);
            let got = world.one(session(9, 1), Command::Get { queue });
            assert!(matches!(got, Reply::Got(_)), "{got:?}");
            let holder = Holder::Get(session(9, 1), number);
            let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
            world.one(session(9, 1), Command::Discard { holder, numbers });
        }
    }

    /// Routes up to `limit` letters to the targets that `choice` picks, or keeps them.
    fn route(&mut self, limit: usize, choice: u8) {
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
    fn send(&mut self, to: u16, limit: usize) {
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
    fn arrive(&mut self, which: usize) {
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
    fn hear(&mut self, group: u16) {
        let effects = self.worlds[&group].out.effects.clone();
        for effect in effects {
            if let Effect::Room { queue, to, messages } = effect {
                assert_eq!(to, line(1));
                self.told.insert(queue, messages);
            }
        }
    }

    /// An answer arrives at the source.
    fn answer(&mut self, which: usize) {
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
    fn retry(&mut self) {
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
    fn consume(&mut self, which: usize, limit: usize) {
        let queue = self.targets[which % self.targets.len()];
        let Home::Group(GroupId(group)) = queue.home else { panic!("{queue:?}") };
        for _ in 0..limit {
            let world = self.worlds.get_mut(&group).unwrap();
            let number = Sequence(*world.next.get(&session(8, 1)).unwrap_or(&1));
            let Reply::Got(got) = world.one(session(8, 1), Command::Get { queue }) else { return };
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
    fn end(&mut self, which: usize) {
        let queue = self.targets[which % self.targets.len()];
        if self.ended.insert(queue) {
            let Home::Group(GroupId(group)) = queue.home else { panic!("{queue:?}") };
            let world = self.worlds.get_mut(&group).unwrap();
            let end = Command::EndQueue { queue, if_unused: false, if_empty: false };
            world.leader(end);
        }
    }

    /// A home begins anew from its records, as after a crash; a new leader owes what the state owes.
    fn restart(&mut self, group: u16) {
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
    fn finish(&mut self) {
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

    fn check(&mut self) {
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

fn check_store(store: &TestStore, machine: &Machine) {
    store.check(machine);
}

#[derive(Clone, Debug)]
enum Act {
    Kill(u32),
    Route(usize, u8),
    Send(u16, usize),
    Arrive(usize),
    Answer(usize),
    Retry,
    Consume(usize, usize),
    End(usize),
    EndSource,
    Restart(u16),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1u32..6).prop_map(Act::Kill),
        4 => (1usize..6, 0u8..32).prop_map(|(limit, choice)| Act::Route(limit, choice)),
        6 => (1u16..4, 1usize..6).prop_map(|(to, limit)| Act::Send(to, limit)),
        8 => any::<usize>().prop_map(Act::Arrive),
        8 => any::<usize>().prop_map(Act::Answer),
        4 => Just(Act::Retry),
        4 => (any::<usize>(), 1usize..5).prop_map(|(which, limit)| Act::Consume(which, limit)),
        1 => (any::<usize>()).prop_map(Act::End),
        1 => Just(Act::EndSource),
        2 => (1u16..4).prop_map(Act::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn q_40_every_letter_gets_into_each_target_once(
        lengths in prop::collection::vec(1u64..5, 4),
        acts in prop::collection::vec(act(), 1..120),
        ends in any::<bool>(),
    ) {
        let mut cluster = Cluster::new(&lengths);
        let mut source_lives = true;
        for act in acts {
            match act {
                Act::Kill(count) if source_lives => cluster.kill(count),
                Act::Kill(_) => {}
                Act::Route(limit, choice) => cluster.route(limit, choice),
                Act::Send(to, limit) => cluster.send(to, limit),
                Act::Arrive(which) => cluster.arrive(which),
                Act::Answer(which) => cluster.answer(which),
                Act::Retry => cluster.retry(),
                Act::Consume(which, limit) => cluster.consume(which, limit),
                Act::End(which) if ends => cluster.end(which),
                Act::End(_) => {}
                Act::EndSource if ends && source_lives => {
                    // letters outlive their queue.
                    source_lives = false;
                    let queue = cluster.source;
                    let end = Command::EndQueue { queue, if_unused: false, if_empty: false };
                    cluster.source().leader(end);
                }
                Act::EndSource => {}
                Act::Restart(group) => cluster.restart(group),
            }
        }
        cluster.finish();
        cluster.check();
    }

    #[test]
    fn let_6_order_into_one_target_is_the_order_of_routing(
        length in 1u64..4,
        acts in prop::collection::vec(act(), 1..120),
    ) {
        let mut cluster = Cluster::new(&[length]);
        for act in acts {
            match act {
                Act::Kill(count) => cluster.kill(count),
                Act::Route(limit, _) => cluster.route(limit, 1),
                Act::Send(to, limit) => cluster.send(to, limit),
                Act::Arrive(which) => cluster.arrive(which),
                Act::Answer(which) => cluster.answer(which),
                Act::Retry => cluster.retry(),
                Act::Consume(which, limit) => cluster.consume(which, limit),
                Act::End(_) | Act::EndSource => {}
                Act::Restart(group) => cluster.restart(group),
            }
        }
        cluster.finish();
        let taken = cluster.taken.values().next().cloned().unwrap_or_default();
        let all: Vec<u32> = (1..=cluster.published).collect();
        prop_assert_eq!(taken, all);
    }
}

#[test]
fn q_46_a_purge_takes_the_letters_kept_as_unroutable_and_no_others() {
    let mut cluster = Cluster::new(&[9]);
    cluster.kill(5);
    cluster.route(2, 0);
    cluster.route(1, 1);
    let queue = cluster.source;
    let purged = cluster.source().one(session(9, 1), Command::Purge { queue });
    assert_eq!(purged, Reply::Purged { messages: 2 });
    assert_eq!(cluster.source().machine.letter_counts(), (3, 0));
}

#[test]
fn let_1_without_a_dlx_the_same_command_drops() {
    let mut cluster = Cluster::new(&[9]);
    let queue = cluster.source;
    let config =
        QueueConfig { resolved_at: CatalogIndex(5), ..QueueConfig::plain(QueueType::Quorum) };
    cluster.source().leader(Command::Configure { queue, config });
    cluster.kill(4);
    assert_eq!(cluster.source().machine.letter_counts(), (0, 0));
}

#[test]
fn let_2_an_answer_given_twice_counts_once() {
    let mut cluster = Cluster::new(&[9, 9]);
    cluster.kill(1);
    cluster.route(1, 0b11);
    let taken = || Command::DeadLettered {
        line: line(2),
        first: Sequence(1),
        last: Sequence(1),
        other: vec![],
    };
    cluster.source().leader(taken());
    cluster.source().leader(taken());
    assert_eq!(cluster.source().machine.letter_counts(), (1, 0), "one target has not answered");
    let gone = vec![(Sequence(1), TransferAnswer::Gone)];
    let (first, last) = (Sequence(1), Sequence(1));
    cluster.source().leader(Command::DeadLettered { line: line(3), first, last, other: gone });
    assert_eq!(cluster.source().machine.letter_counts(), (0, 0));
}

#[test]
fn q_45_a_queue_with_too_many_letters_takes_no_more_messages() {
    let mut world = World::new();
    let config = QueueConfig { message_ttl_ms: Some(5), ..with_dlx() };
    let create = Command::CreateQueue { name: name("q"), config };
    let Reply::Created(queue) = world.one(session(9, 1), create) else { panic!("not created") };
    let enqueue = |world: &mut World, count: usize| {
        let messages = heads(&vec![1; count]);
        let steps = [Step::Enqueue { queue, level: Level(0), messages }];
        let first = world.number(session(9, 1), 1);
        let mut builder = crate::world::EntryBuilder::default();
        let origin = Origin::Session { session: session(9, 1), first, mark: first };
        builder.batch(origin, &steps);
        world.apply_unchecked(&builder.build(world.time));
        world.out.answers.clone()
    };
    let refused = |answers: &[Answer]| {
        let [Answer::Answered { other, .. }] = answers else { panic!("{answers:?}") };
        other.first().map(|(_, reply)| reply.clone())
    };
    assert_eq!(refused(&enqueue(&mut world, LETTERS_MAX as usize)), None);
    world.time += 10;
    let leads = |world: &mut World, command: Command| {
        let mut builder = crate::world::EntryBuilder::default();
        builder.batch(Origin::Leader, &[Step::Other(command)]);
        world.apply_unchecked(&builder.build(world.time));
    };
    leads(&mut world, Command::ExpireHead { queue });
    while world.machine.letter_counts().0 < LETTERS_MAX {
        leads(&mut world, Command::Continue);
    }
    assert_eq!(refused(&enqueue(&mut world, 2)), Some(Reply::Refused(vec![(0, 1)])));
    let drop =
        RoutedLetters { first: LetterNumber(1), last: LetterNumber(3), routes: Routes::Drop };
    let letters = vec![drop];
    leads(&mut world, Command::Routed { queue, at: CatalogIndex(1), via: via(), letters });
    assert_eq!(refused(&enqueue(&mut world, 2)), None, "there is room again");
}
