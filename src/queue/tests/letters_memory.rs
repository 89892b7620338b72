//! A million waiting dead letters cost a node less than 100 MiB, whatever they wait for.
//! This is a separate program, since it measures the memory of the process.

#![expect(clippy::disallowed_methods, reason = "a test looks at its own memory")]

use quorate_queue::{
    Batch, Command, DeadLetter, Entry, Machine, MessageHead, MessageStore, Origin, Output,
    QueueConfig, RoutedLetters, Routes, Run, RunHead, StoreError, TransferAnswer, Via,
};
use quorate_types::{
    CatalogIndex, GroupId, Home, LetterHome, LetterNumber, Level, LogIndex, QueueId, QueueType,
    ResourceName, Sequence, ShortString, Stamp, Timestamp, WallTime,
};

const LETTERS: u64 = 1_000_000;
const RUN: u64 = 1_000;
const BYTES_MAX: u64 = 100 << 20;
const EXCHANGE: ShortString = ShortString::from_static("dlx");

/// A store of runs of `RUN` messages each from the second entry on; they are computed, not stored.
struct Runs;

impl MessageStore for Runs {
    fn runs(
        &self,
        _: QueueId,
        _: Level,
        from: LogIndex,
        through: LogIndex,
        limit: usize,
    ) -> Result<Vec<RunHead>, StoreError> {
        let last = through.0.min(LETTERS / RUN + 1);
        let run = |index| RunHead {
            index: LogIndex(index),
            time: Timestamp(index),
            messages: vec![Some(message()); RUN as usize],
        };
        Ok((from.0.max(2)..=last).take(limit).map(run).collect())
    }
}

fn message() -> MessageHead {
    MessageHead { body_bytes: 1024, expiration_ms: None }
}

struct World {
    machine: Machine,
    queue: QueueId,
    index: u64,
    out: Output,
}

impl World {
    /// A queue with a message TTL, a dead-letter exchange and `LETTERS` messages.
    fn new() -> Self {
        let home = Home::Group(GroupId(1));
        let queue = QueueId { home, index: 1, position: 0 };
        let mut world =
            Self { machine: Machine::new(home), queue, index: 0, out: Output::default() };
        let dead_letter = DeadLetter { exchange: EXCHANGE, routing_key: None, at_least_once: true };
        let config = QueueConfig {
            message_ttl_ms: Some(10_000),
            dead_letter: Some(dead_letter),
            letters_max: 2 * LETTERS,
            ..QueueConfig::plain(QueueType::Quorum)
        };
        let (vhost, name) = (ShortString::from_static("/"), ShortString::from_static("letters"));
        let name = ResourceName { vhost, name };
        world.apply(1, Vec::new(), Command::CreateQueue { name, config, bound: None });
        for time in 2..LETTERS / RUN + 2 {
            let messages = vec![message(); RUN as usize];
            let run = Run { queue, level: Level(4), messages };
            let enqueue = Command::Enqueue { run: 0, first: 0, count: RUN as u32 };
            world.apply(time, vec![run], enqueue);
        }
        world
    }

    fn apply(&mut self, time: u64, runs: Vec<Run>, command: Command) {
        self.index += 1;
        let stamp = Stamp { time: Timestamp(time), wall: WallTime(1_700_000_000_000 + time) };
        let batches = vec![Batch { origin: Origin::Leader, commands: vec![command] }];
        let entry = Entry { stamp, runs, batches };
        self.out.clear();
        let applied = self.machine.apply(LogIndex(self.index), &entry, &Runs, &mut self.out);
        assert!(applied.is_ok(), "{applied:?}");
    }

    /// All messages expire together.
    fn expire(&mut self) {
        self.apply(100_000, Vec::new(), Command::ExpireHead { queue: self.queue });
        while self.machine.letter_counts().0 < LETTERS {
            self.apply(100_000, Vec::new(), Command::Continue);
        }
    }

    /// All letters are routed to a target in another group, which answers that it is full.
    fn route_to_full(&mut self) {
        let target = QueueId { home: Home::Group(GroupId(2)), index: 7, position: 0 };
        let via = Via { exchange: EXCHANGE, routing_key: None };
        for first in (1..=LETTERS).step_by(RUN as usize) {
            let (first, last) = (LetterNumber(first), LetterNumber(first + RUN - 1));
            let letters = vec![RoutedLetters { first, last, routes: Routes::To(vec![target]) }];
            let (queue, at, via) = (self.queue, CatalogIndex(9), via.clone());
            self.apply(100_001, Vec::new(), Command::Routed { queue, at, via, letters });
            if first.0 == 1 {
                let stream = LetterHome::Group(GroupId(2));
                let full = |number| (Sequence(number), TransferAnswer::Full);
                let other = (1..=RUN).map(full).collect();
                let (first, last) = (Sequence(1), Sequence(RUN));
                let answer = Command::DeadLettered { stream, first, last, other };
                self.apply(100_002, Vec::new(), answer);
            }
        }
        assert_eq!(self.machine.targets().map(|target| target.waits).sum::<u64>(), LETTERS);
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

#[test]
fn q_45_a_million_letters_that_wait_cost_less_than_100_mib() {
    let mut world = World::new();
    let before = resident_bytes();
    let grown = || resident_bytes().saturating_sub(before);
    world.expire();
    let waiting = grown();
    println!("{LETTERS} that wait to be routed: {waiting} bytes");
    assert!(waiting > 0 && waiting < BYTES_MAX, "{waiting} bytes");
    world.route_to_full();
    let full = grown();
    println!("{LETTERS} that wait for a full target: {full} bytes");
    assert!(full < BYTES_MAX, "{full} bytes");
}
