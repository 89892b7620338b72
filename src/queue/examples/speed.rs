//! Measures the cost of a message in the machine: enqueued in entries of 100, assigned to one
//! consumer of prefetch 1,000, settled in ranges of 100. `cargo run --release -p quorate-queue
//! --example speed`.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a measurement"
)]
#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    reason = "an example that fails loudly"
)]

use quorate_queue::{
    Answer, Batch, Command, ConsumerTerms, Entry, Machine, MessageHead, MessageStore, Origin,
    Output, QueueConfig, Reply, Run, RunHead, StoreError,
};
use quorate_types::{
    ConsumerId, DeliveryNumber, GroupId, Holder, Home, Level, LogIndex, NodeId, QueueId, QueueType,
    ResourceName, Sequence, SessionId, ShortString, Stamp, StartNumber, Timestamp, WallTime,
};
use std::time::Instant;

/// A store without messages: a queue that is emptied as fast as it is filled never reads its store.
struct Unread;

impl MessageStore for Unread {
    fn runs(
        &self,
        queue: QueueId,
        _: Level,
        from: LogIndex,
        through: LogIndex,
        _: usize,
    ) -> Result<Vec<RunHead>, StoreError> {
        Err(StoreError(format!("queue {queue} was read from {from} to {through}")))
    }
}

struct Load {
    machine: Machine,
    index: u64,
    next: u64,
    out: Output,
    apply_ns: u128,
}

const SESSION: SessionId = SessionId { node: NodeId(1), start: StartNumber(1) };

impl Load {
    fn apply(&mut self, runs: Vec<Run>, commands: Vec<Command>) {
        self.index += 1;
        let first = Sequence(self.next);
        self.next += commands.len() as u64;
        let origin = Origin::Session { session: SESSION, first, mark: first };
        let stamp = Stamp { time: Timestamp(self.index), wall: WallTime(0) };
        let entry = Entry { stamp, runs, batches: vec![Batch { origin, commands }] };
        self.out.clear();
        let start = Instant::now();
        self.machine.apply(LogIndex(self.index), &entry, &Unread, &mut self.out).unwrap();
        self.apply_ns += start.elapsed().as_nanos();
    }

    fn created(&self) -> QueueId {
        let found = self.out.answers.iter().find_map(|answer| match answer {
            Answer::Answered { other, .. } => other.iter().find_map(|(_, reply)| match reply {
                Reply::Created(id) => Some(*id),
                _ => None,
            }),
            _ => None,
        });
        found.unwrap()
    }
}

fn run(consumers: u64, per_entry: u32, per_run_commands: u32, queues: u32, entries: u64) -> f64 {
    let load = fill(consumers, per_entry, per_run_commands, queues, entries);
    load.apply_ns as f64 / (entries * u64::from(per_entry)) as f64
}

fn fill(consumers: u64, per_entry: u32, per_run_commands: u32, queues: u32, entries: u64) -> Load {
    let machine = Machine::new(Home::Group(GroupId(1)));
    let mut load = Load { machine, index: 0, next: 1, out: Output::default(), apply_ns: 0 };
    let mut ids = Vec::new();
    let name = |n| ShortString::try_from(format!("q{n}")).unwrap();
    for n in 0..queues {
        let name = ResourceName { vhost: ShortString::from_static("/"), name: name(n) };
        let config = QueueConfig::plain(QueueType::Quorum);
        load.apply(Vec::new(), vec![Command::CreateQueue { name, config, bound: None }]);
        ids.push(load.created());
    }
    let terms = ConsumerTerms {
        prefetch: Some(1000),
        up_to: DeliveryNumber(u64::MAX),
        exclusive: false,
        priority: 0,
        tag: ShortString::EMPTY,
        no_ack: false,
        timeout_ms: None,
        timeout_default_ms: Some(1_800_000),
    };
    for (n, queue) in (0u64..).zip(&ids) {
        for c in 0..consumers {
            let consumer = ConsumerId { session: SESSION, number: n * consumers + c + 1 };
            load.apply(
                Vec::new(),
                vec![Command::Attach { queue: *queue, consumer, terms: terms.clone() }],
            );
        }
    }
    load.apply_ns = 0;
    let mut settled = vec![0u64; (u64::from(queues) * consumers) as usize];
    for entry in 0..entries {
        let at = (entry % u64::from(queues)) as usize;
        let queue = *ids.get(at).unwrap();
        let messages =
            vec![MessageHead { body_bytes: 1024, expiration_ms: None }; per_entry as usize];
        let part = per_entry / per_run_commands;
        let mut commands: Vec<Command> = (0..per_run_commands)
            .map(|n| Command::Enqueue { run: 0, first: n * part, count: part })
            .collect();
        for c in 0..consumers {
            let slot = at * consumers as usize + c as usize;
            let settled = settled.get_mut(slot).unwrap();
            let consumer = ConsumerId { session: SESSION, number: slot as u64 + 1 };
            let share = u64::from(per_entry) / consumers;
            if entry >= u64::from(queues) * 5 {
                let range = (DeliveryNumber(*settled + 1), DeliveryNumber(*settled + share));
                *settled += share;
                commands.push(Command::Ack {
                    holder: Holder::Consumer(consumer),
                    numbers: vec![range],
                });
            }
        }
        load.apply(vec![Run { queue, level: Level(4), messages }], commands);
        assert_eq!(load.out.effects.len(), per_entry as usize);
    }
    load
}

/// Resident memory of the process, bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Memory of a queue: only declared, or with consumers after some messages.
fn memory(consumers: u64, entries: u64) -> usize {
    let queues = 100_000;
    let before = resident();
    let load = fill(consumers, 10, 1, queues, entries);
    let used = resident() - before;
    assert_eq!(load.machine.queues().count(), queues as usize);
    used / queues as usize
}

fn main() {
    println!("a queue: {} bytes", memory(0, 0));
    println!("a queue with a consumer, after 20 messages: {} bytes", memory(1, 200_000));
    for (what, consumers, per_entry, parts, queues) in [
        ("1 consumer, entries of 100", 1, 100, 1, 1),
        ("1 consumer, entries of 100, 1 message a command", 1, 100, 100, 1),
        ("1 consumer, entries of 1", 1, 1, 1, 1),
        ("10 consumers, entries of 100", 10, 100, 1, 1),
        ("1 consumer each, entries of 100, 10,000 queues in turn", 1, 100, 1, 10_000),
    ] {
        let mut best = f64::MAX;
        for _ in 0..5 {
            best = best.min(run(
                consumers,
                per_entry,
                parts,
                queues,
                2_000_000 / u64::from(per_entry),
            ));
        }
        println!("{what}: {best:.0} ns/message");
    }
}
