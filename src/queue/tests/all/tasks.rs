//! Tasks that take messages out of a queue, among random commands: every message is in exactly one
//! place (the store checks that after each entry), a replica that is restarted goes on the same, and
//! the counts of a task are those of its letters.

use crate::{
    letter_model::with_dlx,
    ops::{Op, entries},
    ops_entries::Known,
    replay::{replay_by, restarts},
    world::{Step, World, heads, name, session},
};
use proptest::prelude::*;
use quorate_queue::{
    Batch, Command, Entry, Machine, Origin, QueueConfig, Record, RecordKey, Reply, Stage, Take,
    TakeTo, TaskCounts, TaskProgress, TaskStep, TransferAnswer, Via, Walk,
};
use quorate_types::{
    CatalogIndex, Counts, DeliveryNumber, GroupId, Holder, Home, LetterHome, Level, LogIndex,
    MessageId, QueueId, QueueType, RequeueCause, Sequence, ShortString, TaskId,
};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Act {
    /// Takes some of the ready messages.
    Take {
        queue: usize,
        task: u64,
        picks: Vec<usize>,
        deletes: bool,
        targets: u8,
        last: bool,
    },
    Forget {
        queue: usize,
        task: u64,
    },
    /// Answers the first transfers of a stream.
    Answer {
        group: u16,
        count: u64,
        answers: Vec<u8>,
    },
    Retry {
        target: u64,
        count: u32,
    },
    Nothing,
}

fn act() -> impl Strategy<Value = Act> {
    let picks = prop::collection::vec(any::<usize>(), 1..12);
    prop_oneof![
        6 => (0usize..3, 0u64..3, picks, (0u8..5, 1u8..8, 0u8..8)).prop_map(
            |(queue, task, picks, (deletes, targets, last))| Act::Take {
                queue,
                task,
                picks,
                deletes: deletes == 0,
                targets,
                last: last == 0,
            }
        ),
        1 => (0usize..3, 0u64..3).prop_map(|(queue, task)| Act::Forget { queue, task }),
        6 => (1u16..4, 0u64..9, prop::collection::vec(1u8..4, 9))
            .prop_map(|(group, count, answers)| Act::Answer { group, count, answers }),
        2 => (0u64..3, 0u32..9).prop_map(|(target, count)| Act::Retry { target, count }),
        4 => Just(Act::Nothing),
    ]
}

fn target(number: u64) -> QueueId {
    QueueId { home: Home::Group(GroupId(number as u16 + 1)), index: 999_999, position: number }
}

fn via() -> Via {
    Via { exchange: ShortString::EMPTY, routing_key: None }
}

/// The ready messages of a queue.
fn ready(world: &World, queue: QueueId) -> Vec<MessageId> {
    let fresh = world.store.fresh(&world.machine, queue).into_iter();
    let mut ready: Vec<_> =
        fresh.map(|(level, index, position, _)| MessageId { level, index, position }).collect();
    for key in world.machine.keys() {
        if let (RecordKey::Requeued(of, _), Some(Record::Requeued(it))) =
            (key, world.machine.record(key))
            && of == queue
        {
            ready.extend(it.messages.values().map(|it| it.message));
        }
    }
    ready.sort_by_key(|it| (std::cmp::Reverse(it.level), it.index, it.position));
    ready
}

impl Act {
    /// A step that takes some ready messages; `targets` are bits.
    fn take(
        world: &World,
        queue: QueueId,
        task: TaskId,
        picks: &[usize],
        (targets, deletes): (u8, bool),
        last: bool,
    ) -> Option<Command> {
        let ready = ready(world, queue);
        let mut messages: Vec<MessageId> = picks
            .iter()
            .filter_map(|pick| ready.get(pick.checked_rem(ready.len())?).copied())
            .collect();
        // One that nobody has.
        messages.push(MessageId { level: Level(1), index: world.index, position: 77 });
        messages.dedup();
        let bits = (0..3).filter(|bit| targets & (1 << bit) != 0);
        let to = TakeTo::Queues { via: via(), targets: bits.map(target).collect() };
        let to = if deletes { TakeTo::Nowhere } else { to };
        let progress = world.machine.task(queue, task);
        let from = progress.map_or(Some(TaskProgress::START), |it| it.next)?;
        let next = MessageId { level: Level(0), index: world.index.next(), position: 0 };
        Some(Command::TaskStep(Box::new(TaskStep {
            queue,
            task,
            until: world.index,
            at: CatalogIndex(1),
            from,
            next: (!last).then_some(next),
            skipped: 1,
            no_target: 0,
            matched: 0,
            takes: vec![Take { to, messages }],
        })))
    }

    fn command(self, world: &World, known: &Known) -> Option<Command> {
        let queue = |at: usize| known.queues.iter().rev().nth(at).copied();
        Some(match self {
            Self::Take { queue: at, task, picks, deletes, targets, last } => {
                let to = (targets, deletes);
                Self::take(world, queue(at)?, TaskId(task), &picks, to, last)?
            }
            Self::Forget { queue: at, task } => {
                Command::ForgetTask { queue: queue(at)?, task: TaskId(task) }
            }
            Self::Answer { group, count, answers } => {
                let stream = LetterHome::Group(GroupId(group));
                let first = world.machine.stream_mark(stream);
                let answer = |kind| match kind {
                    1 => None,
                    2 => Some(TransferAnswer::Full),
                    _ => Some(TransferAnswer::Gone),
                };
                let other = (first.0..).zip(answers).take(count as usize + 1);
                let other = other.filter_map(|(number, it)| Some((Sequence(number), answer(it)?)));
                let last = Sequence(first.0 + count);
                Command::DeadLettered { stream, first, last, other: other.collect() }
            }
            Self::Retry { target: number, count } => {
                Command::Retry { target: target(number), count }
            }
            Self::Nothing => return None,
        })
    }
}

/// Letters under way, by their task.
fn under_way(machine: &Machine, queue: QueueId) -> BTreeMap<TaskId, u64> {
    let mut found: BTreeMap<TaskId, u64> = BTreeMap::new();
    for key in machine.keys() {
        let (RecordKey::Letters(of, _), Some(Record::Letters(page))) = (key, machine.record(key))
        else {
            continue;
        };
        for letter in page.values().filter(|_| of == queue) {
            if let Stage::Routed(routing) = &letter.stage
                && let Some(taken) = routing.task
            {
                *found.entry(taken.task).or_default() += 1;
            }
        }
    }
    found
}

/// What is not counted any more belongs to forgotten tasks.
fn check_counts(world: &World, forgotten: &mut BTreeMap<(QueueId, TaskId), u64>) {
    let known: BTreeMap<(QueueId, TaskId), TaskCounts> = world
        .machine
        .tasks(&mut Walk::default())
        .into_iter()
        .filter_map(|(queue, task)| Some(((queue, task), world.machine.task(queue, task)?.counts)))
        .collect();
    for queue in world.machine.queues() {
        let letters = under_way(&world.machine, queue);
        for ((_, task), counts) in known.range((queue, TaskId(0))..=(queue, TaskId(u64::MAX))) {
            let TaskCounts { taken, moved, no_target, under_way, .. } = *counts;
            assert_eq!(taken, moved + no_target + under_way, "{queue} {task}");
            let left = letters.get(task).copied().unwrap_or(0);
            let of_former = forgotten.get(&(queue, *task)).copied().unwrap_or(0);
            assert!(left >= under_way && left - under_way <= of_former, "{queue} {task}");
        }
        for (task, count) in letters {
            if !known.contains_key(&(queue, task)) {
                forgotten.insert((queue, task), count);
            }
        }
    }
}

fn next_entry(known: &mut Known, world: &World, ops: &[Op], act: Act) -> Entry {
    let command = act.command(world, known);
    let mut entry = known.entry(&world.machine, world.index.next(), ops);
    let commands: Vec<_> = command.into_iter().collect();
    entry.batches.push(Batch { origin: Origin::Leader, commands: commands.clone() });
    // A repeat, like the proposal of a former leader, has no effect.
    let steps = commands.into_iter().filter(|it| matches!(it, Command::TaskStep(_)));
    entry.batches.push(Batch { origin: Origin::Leader, commands: steps.collect() });
    entry
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn let_01_every_message_is_in_one_place_while_tasks_take_some(
        ops in entries(1u32..40, 100),
        acts in prop::collection::vec(act(), 100),
        restarts in restarts(),
    ) {
        let (mut known, mut forgotten) = (Known::default(), BTreeMap::new());
        let mut all = ops.iter().zip(acts);
        replay_by(&restarts, |world| {
            check_counts(world, &mut forgotten);
            let (ops, act) = all.next()?;
            Some(next_entry(&mut known, world, ops, act))
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, max_shrink_iters: 300, ..ProptestConfig::default() })]

    /// Enough messages that windows overflow, so that messages behind them are taken.
    #[test]
    fn let_01_also_far_behind_the_head(
        ops in entries(500u32..2_000, 40),
        acts in prop::collection::vec(act(), 40),
        restarts in restarts(),
    ) {
        let mut known = Known::default();
        let mut all = ops.iter().zip(acts);
        replay_by(&restarts, |world| {
            let (ops, act) = all.next()?;
            Some(next_entry(&mut known, world, ops, act))
        });
    }
}

struct Queue {
    world: World,
    id: QueueId,
}

impl Queue {
    /// A queue with messages of 1 to `count` bytes, one entry each.
    fn with(count: u32) -> Self {
        let mut world = World::new();
        let config = QueueConfig { ..QueueConfig::plain(QueueType::Quorum) };
        let create = Command::CreateQueue { name: name("q"), config, bound: None };
        let Reply::Created(id) = world.one(session(1, 1), create) else { panic!("no queue") };
        for size in 1..=count {
            let step = Step::Enqueue { queue: id, level: Level(0), messages: heads(&[size]) };
            world.run(session(1, 1), &[step]);
        }
        Self { world, id }
    }

    fn message(&self, size: u32) -> MessageId {
        let all = ready(&self.world, self.id).into_iter();
        let mut found = all.filter(|id| {
            let head = self.world.store.message(self.id, id.level, id.index, id.position);
            head.unwrap().body_bytes == size
        });
        found.next().unwrap()
    }

    fn take(&mut self, sizes: &[u32], to: TakeTo) {
        let from = self.progress().map_or(TaskProgress::START, |it| it.next.unwrap());
        let messages = sizes.iter().map(|size| self.message(*size)).collect();
        let next = MessageId { level: Level(0), index: self.world.index.next(), position: 0 };
        let step = TaskStep {
            queue: self.id,
            task: TaskId(4),
            until: LogIndex(1_000),
            at: CatalogIndex(1),
            from,
            next: Some(next),
            skipped: 0,
            no_target: 0,
            matched: 0,
            takes: vec![Take { to, messages }],
        };
        self.world.leader(Command::TaskStep(Box::new(step)));
    }

    fn progress(&self) -> Option<TaskProgress> {
        self.world.machine.task(self.id, TaskId(4))
    }

    fn answer(&mut self, answer: TransferAnswer) {
        let stream = LetterHome::Group(GroupId(1));
        let first = self.world.machine.stream_mark(stream);
        let last = Sequence(first.0 + 20);
        let other = (first.0..=last.0).map(|number| (Sequence(number), answer)).collect();
        self.world.leader(Command::DeadLettered { stream, first, last, other });
    }

    /// Gets a message: its size, and how often it was held before.
    fn get(&mut self) -> Option<(u32, Counts, Sequence)> {
        let by = session(1, 1);
        let number = Sequence(self.world.next[&by]);
        let get = Command::Get { queue: self.id, timeout_default_ms: None };
        let Reply::Got(got) = self.world.one(by, get) else { return None };
        let id = got.message;
        let head = self.world.store.message(self.id, id.level, id.index, id.position).unwrap();
        Some((head.body_bytes, got.counts, number))
    }

    fn requeue(&mut self, number: Sequence) {
        let holder = Holder::Get(session(1, 1), number);
        let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
        let cause = RequeueCause::Reject;
        self.world.one(session(1, 1), Command::Requeue { holder, numbers, cause });
    }

    fn sizes_left(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.get().map(|(size, _, _)| size)).collect()
    }
}

fn to(target_of: u64) -> TakeTo {
    TakeTo::Queues { via: via(), targets: vec![target(target_of)] }
}

#[test]
fn let_04_what_finds_no_target_goes_back_to_its_place_with_its_counts() {
    let mut queue = Queue::with(6);
    let (size, _, number) = queue.get().unwrap();
    assert_eq!(size, 1);
    queue.requeue(number);
    queue.take(&[1, 3, 5], to(0));
    let counts = queue.progress().unwrap().counts;
    assert_eq!((counts.taken, counts.under_way), (3, 3));
    assert_eq!(ready(&queue.world, queue.id).len(), 3);
    queue.answer(TransferAnswer::Gone);
    let counts = queue.progress().unwrap().counts;
    assert_eq!((counts.taken, counts.no_target, counts.under_way), (3, 3, 0));
    let (size, counts, _) = queue.get().unwrap();
    assert_eq!((size, counts), (1, Counts { acquired: 1, returned: 1 }));
    assert_eq!(queue.sizes_left(), [2, 3, 4, 5, 6]);
}

#[test]
fn let_04_also_if_the_head_has_passed_it_meanwhile() {
    let mut queue = Queue::with(4);
    queue.take(&[2, 3], to(0));
    let (size, _, first) = queue.get().unwrap();
    let (last, _, _) = queue.get().unwrap();
    assert_eq!((size, last, queue.get()), (1, 4, None));
    queue.answer(TransferAnswer::Gone);
    queue.requeue(first);
    assert_eq!(queue.sizes_left(), [1, 2, 3]);
}

#[test]
fn let_03_what_waits_for_a_full_target_is_under_way() {
    let mut queue = Queue::with(3);
    queue.take(&[2], to(0));
    queue.answer(TransferAnswer::Full);
    assert_eq!(queue.progress().unwrap().counts.under_way, 1);
    queue.world.leader(Command::Retry { target: target(0), count: 9 });
    queue.answer(TransferAnswer::Taken);
    let counts = queue.progress().unwrap().counts;
    assert_eq!((counts.moved, counts.under_way), (1, 0));
    assert_eq!(queue.sizes_left(), [1, 3]);
}

#[test]
fn a_task_deletes_and_its_repeat_or_what_is_not_ready_has_no_effect() {
    let mut queue = Queue::with(5);
    let (_, _, held) = queue.get().unwrap();
    queue.take(&[2, 4], TakeTo::Nowhere);
    let counts = queue.progress().unwrap().counts;
    assert_eq!((counts.taken, counts.moved, counts.under_way), (2, 2, 0));
    // From a place where the task is not.
    let step = TaskStep {
        queue: queue.id,
        task: TaskId(4),
        until: LogIndex(1_000),
        at: CatalogIndex(1),
        from: TaskProgress::START,
        next: None,
        skipped: 5,
        no_target: 0,
        matched: 0,
        takes: vec![Take { to: TakeTo::Nowhere, messages: vec![queue.message(3)] }],
    };
    let before = queue.progress();
    queue.world.leader(Command::TaskStep(Box::new(step)));
    assert_eq!(queue.progress(), before);
    queue.requeue(held);
    assert_eq!(queue.sizes_left(), [1, 3, 5]);
    queue.world.leader(Command::ForgetTask { queue: queue.id, task: TaskId(4) });
    assert_eq!(queue.progress(), None);
}

#[test]
fn q_45_a_queue_that_ends_while_messages_are_under_way_keeps_them_until_they_arrive() {
    let mut queue = Queue::with(3);
    queue.take(&[1, 2], to(0));
    let end = Command::EndQueue { queue: queue.id, if_unused: false, if_empty: false };
    queue.world.leader(end);
    assert_eq!(queue.world.machine.letter_counts(), (2, 2));
    queue.answer(TransferAnswer::Gone);
    assert_eq!(queue.world.machine.letter_counts(), (0, 0));
}

#[test]
fn metrics_do_not_count_what_a_task_moves_as_dead() {
    let mut queue = Queue::with(2);
    let configure = Command::Configure { queue: queue.id, config: with_dlx() };
    queue.world.one(session(1, 1), configure);
    queue.take(&[1], to(0));
    queue.answer(TransferAnswer::Taken);
    let counted = |effect: &quorate_queue::Effect| {
        matches!(effect, quorate_queue::Effect::DeadLettersCounted { .. })
    };
    assert!(!queue.world.out.effects.iter().any(counted));
}
