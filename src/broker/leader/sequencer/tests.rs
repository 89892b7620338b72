//! A sequencer against a model of what waits in it and what is in flight. Its log takes entries,
//! refuses them for a while, or loses them; leaderships begin and end.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use quorate_queue::{Entry, MessageHead};
use quorate_storage::codec::batch::{ProposedRun, Sender};
use quorate_types::{
    GroupId, Home, Level, NodeId, QueueId, Sequence, SessionId, StartNumber, WallTime,
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

/// The sender of a batch, and its first number.
type Name = (SessionId, Sequence);

static ZEROS: [u8; 3 << 20] = [0; 3 << 20];

fn queue(index: u64) -> QueueId {
    QueueId { home: Home::Group(GroupId(1)), index, position: 0 }
}

/// A batch with one message of that size.
fn batch(node: u16, first: u64, bytes: usize) -> ProposedBatch {
    let session = SessionId { node: NodeId(node), start: StartNumber(1) };
    let heads = vec![MessageHead::default()];
    let messages = vec![Bytes::from_static(ZEROS.get(..bytes).unwrap())];
    ProposedBatch {
        sender: Sender::Session(session),
        first: Sequence(first),
        mark: Sequence(1),
        runs: vec![ProposedRun { queue: queue(1), level: Level(0), heads, messages }],
        commands: vec![Command::Enqueue { run: 0, first: 0, count: 1 }],
    }
}

/// The log's answer to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    Takes(usize),
    Loses,
}

/// The entries that the log was given, with their bytes and the log's answers.
type Handing = (CommandEntry, Log);

struct World {
    sequencer: Sequencer,
    log: Cell<Log>,
    handed: RefCell<Vec<Handing>>,
    leads: bool,
    next: [u64; 3],
    /// The batches that wait, with their bytes.
    waiting: VecDeque<(Name, usize)>,
    commands: VecDeque<u64>,
    stalled: Option<CommandEntry>,
    in_flight: usize,
    time: Timestamp,
    command: u64,
}

impl World {
    fn new() -> Self {
        Self {
            sequencer: Sequencer::new(WallClock(|| WallTime(7))),
            log: Cell::new(Log::Takes(usize::MAX)),
            handed: RefCell::default(),
            leads: false,
            next: [1; 3],
            waiting: VecDeque::new(),
            commands: VecDeque::new(),
            stalled: None,
            in_flight: 0,
            time: Timestamp(0),
            command: 0,
        }
    }

    /// Performs a step, and compares the entries that the log was given with the model.
    fn act(&mut self, act: impl FnOnce(&Sequencer, &dyn Fn(CommandEntry) -> Handed)) -> usize {
        let propose = |entry: CommandEntry| {
            let log = self.log.get();
            self.handed.borrow_mut().push((entry.clone(), log));
            match log {
                Log::Loses => Handed::Lost,
                Log::Takes(0) => Handed::Busy(entry),
                Log::Takes(room) => {
                    self.log.set(Log::Takes(room - 1));
                    Handed::Taken
                }
            }
        };
        act(&self.sequencer, &propose);
        let handed = std::mem::take(&mut *self.handed.borrow_mut());
        let count = handed.len();
        for (place, (entry, log)) in handed.into_iter().enumerate() {
            assert!(self.leads, "a node that does not lead proposes nothing");
            assert!(self.in_flight < IN_FLIGHT_MAX, "more entries in flight than may be");
            self.compare(&entry);
            let is_taken = matches!(log, Log::Takes(1..));
            assert!(is_taken || place + 1 == count, "nothing is handed past an entry not taken");
            match log {
                Log::Takes(0) => self.stalled = Some(entry),
                Log::Takes(_) => self.in_flight += 1,
                Log::Loses => {}
            }
        }
        assert_eq!(self.sequencer.is_waiting(), !self.is_empty());
        let bytes: usize = self.waiting.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(self.sequencer.state.lock().bytes, bytes);
        count
    }

    /// The entry is the one that the log refused before, or has what has waited longest.
    fn compare(&mut self, entry: &CommandEntry) {
        if let Some(stalled) = self.stalled.take() {
            assert_eq!(*entry, stalled, "the same entry is handed again");
            return;
        }
        let Entry { stamp, batches, .. } = queue_codec(entry);
        assert!(stamp.time >= self.time && stamp.wall == WallTime(7), "time goes on");
        self.time = stamp.time;
        let (mut bytes, mut sent) = (0, 0);
        for batch in batches {
            match batch.origin {
                Origin::Session { session, first, .. } => {
                    let (name, size) = self.waiting.pop_front().unwrap();
                    assert_eq!((session, first), name, "in their order, each once");
                    (bytes, sent) = (bytes + size, sent + 1);
                }
                Origin::Leader => {
                    assert!(batch.commands.len() <= LEADER_COMMANDS_MAX);
                    let expire = |number| Command::ExpireHead { queue: queue(number) };
                    let first: Vec<_> =
                        self.commands.drain(..batch.commands.len()).map(expire).collect();
                    assert_eq!(batch.commands, first);
                }
                Origin::Letters { .. } => unreachable!(),
            }
        }
        assert!(sent <= 1 || bytes <= 2 * ENTRY_BYTES, "{bytes} bytes in one entry");
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.commands.is_empty() && self.stalled.is_none()
    }

    fn push(&mut self, node: u16, first: u64, bytes: usize) {
        let batch = batch(node, first, bytes);
        let Sender::Session(session) = batch.sender else { unreachable!() };
        let name = (session, batch.first);
        let is_new = self.leads && self.waiting.iter().all(|(waiting, _)| *waiting != name);
        if is_new {
            self.waiting.push_back((name, bytes));
        }
        let is_idle = self.in_flight == 0;
        let handed = self.act(|sequencer, propose| sequencer.push(batch, propose));
        assert!(handed > 0 || !is_new || !is_idle, "nothing is waited for while none is in flight");
    }

    fn push_next(&mut self, node: u16, bytes: usize) {
        let next = self.next.get_mut(usize::from(node)).unwrap();
        *next += 1;
        let first = *next - 1;
        self.push(node, first, bytes);
    }

    fn propose(&mut self, count: u64) {
        let numbers: Vec<_> = (self.command..self.command + count).collect();
        self.command += count;
        let expire = |number: &u64| Command::ExpireHead { queue: queue(*number) };
        let commands: Vec<_> = numbers.iter().map(expire).collect();
        if self.leads {
            self.commands.extend(numbers);
        }
        self.act(|sequencer, propose| sequencer.commands(commands, propose));
    }

    /// After a pace, everything has been proposed, unless the limit in flight or the log prevents
    /// it.
    fn pace(&mut self, is_applied: bool) {
        if is_applied {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        let pace = |sequencer: &Sequencer, propose: &dyn Fn(CommandEntry) -> Handed| {
            if is_applied { sequencer.applied(propose) } else { sequencer.pace(propose) }
        };
        self.act(pace);
        let log_takes = matches!(self.log.get(), Log::Takes(1..));
        assert!(self.is_empty() || self.in_flight == IN_FLIGHT_MAX || !log_takes);
    }

    fn lead(&mut self, leads: bool) {
        self.leads = leads;
        self.waiting.clear();
        self.commands.clear();
        (self.stalled, self.in_flight) = (None, 0);
        let time = self.time.plus_ms(1_000);
        let change = |sequencer: &Sequencer, _: &dyn Fn(CommandEntry) -> Handed| {
            if leads { sequencer.lead(time, Instant::now()) } else { sequencer.stop() }
        };
        self.act(change);
        if leads {
            self.time = time;
            assert!(self.sequencer.moment(time.plus_ms(5)) > self.sequencer.moment(time));
        } else {
            assert_eq!(self.sequencer.moment(time), None);
        }
    }
}

fn queue_codec(entry: &CommandEntry) -> Entry {
    queue::decode_entry(&entry.command).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Push(u16, usize),
    Repeat(u16, u64, usize),
    Propose(u64),
    Pace,
    Applied,
    Lost,
    Log(Log),
    Lead(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes =
        || prop_oneof![8 => 0..2_000_usize, 2 => 400_000..1_300_000_usize, 1 => Just(3 << 20)];
    prop_oneof![
        10 => (0..3_u16, bytes()).prop_map(|(node, bytes)| Step::Push(node, bytes)),
        2 => (0..3_u16, 1..4_u64, bytes())
            .prop_map(|(node, back, bytes)| Step::Repeat(node, back, bytes)),
        2 => prop_oneof![1..5_u64, 990..2_100_u64].prop_map(Step::Propose),
        3 => Just(Step::Pace),
        5 => Just(Step::Applied),
        1 => Just(Step::Lost),
        2 => (0..4_usize).prop_map(|room| Step::Log(Log::Takes(room))),
        3 => Just(Step::Log(Log::Takes(usize::MAX))),
        1 => Just(Step::Log(Log::Loses)),
        1 => prop::bool::weighted(0.8).prop_map(Step::Lead),
    ]
}

impl World {
    fn run(&mut self, step: Step) {
        match step {
            Step::Push(node, bytes) => self.push_next(node, bytes),
            Step::Repeat(node, back, bytes) => {
                let next = *self.next.get(usize::from(node)).unwrap();
                self.push(node, next.saturating_sub(back).max(1), bytes);
            }
            Step::Propose(count) => self.propose(count),
            Step::Pace => self.pace(false),
            Step::Applied => self.pace(true),
            Step::Lost => {
                self.in_flight = self.in_flight.saturating_sub(1);
                self.sequencer.lost();
            }
            Step::Log(log) => self.log.set(log),
            Step::Lead(leads) => self.lead(leads),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// SES 2, 3: the batches that a leadership takes become entries in order of arrival, each whole
    /// and once; a repeat of a waiting batch is dropped. At most eight entries are in flight; an
    /// entry that the log refuses is given to it again before any other; time never goes back.
    #[test]
    fn ses_2_and_3_batches_become_entries_whole_in_order_and_once(steps in vec(step(), 1..120)) {
        let mut world = World::new();
        world.lead(true);
        steps.into_iter().for_each(|step| world.run(step));
        world.log.set(Log::Takes(usize::MAX));
        for _ in 0..1_000 {
            world.pace(true);
        }
        prop_assert!(world.is_empty());
    }
}

/// Without a majority nothing is applied: waiting batches are bounded, and accepted again once
/// there is room.
#[test]
fn what_waits_is_bounded() {
    let mut world = World::new();
    world.lead(true);
    world.log.set(Log::Takes(0));
    let count = || WAITING_BYTES_MAX / (3 << 20) + 10;
    for first in 0..count() as u64 {
        world.sequencer.push(batch(1, first, 3 << 20), Handed::Busy);
    }
    let bytes = world.sequencer.state.lock().bytes;
    assert!(bytes > WAITING_BYTES_MAX && bytes <= WAITING_BYTES_MAX + (3 << 20), "{bytes}");
    for _ in 0..count() {
        world.sequencer.applied(|_| Handed::Taken);
    }
    world.sequencer.push(batch(1, 1_000, 100), Handed::Busy);
    assert!(!world.sequencer.state.lock().batches.is_empty() || world.sequencer.is_waiting());
}
