//! Long random runs: after every entry the store holds exactly the messages of the queues, and the
//! random commands reach every kind of outcome (a test of the tests).

use crate::{ops::entries, ops_entries::Known, world::World};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};
use quorate_queue::{Answer, Change, Command, Effect, Entry};
use std::collections::BTreeMap;

#[derive(Default)]
struct Seen(BTreeMap<String, u64>);

impl Seen {
    fn note(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }

    fn entry(&mut self, world: &World, entry: &Entry) {
        for command in entry.batches.iter().flat_map(|batch| &batch.commands) {
            self.note(first_word(&format!("{command:?}")));
        }
        for answer in &world.out.answers {
            self.note(first_word(&format!("{answer:?}")));
            if let Answer::Answered { other, .. } = answer {
                for (_, reply) in other {
                    self.note(first_word(&format!("{reply:?}")));
                }
            }
        }
        for change in &world.out.changes {
            self.note(match change {
                Change::Record(_) => "Record",
                Change::Removed { .. } => "Removed",
                Change::Cut { index, .. } if *index < world.index => "cut-later",
                Change::Cut { .. } => "Cut",
                Change::QueueRemoved { .. } => "QueueRemoved",
            });
        }
        for effect in &world.out.effects {
            self.note(match effect {
                Effect::Deliver(it) if it.counts.acquired > it.counts.returned => "uncounted",
                Effect::Deliver(it) if it.counts.acquired > 0 => "redelivered",
                other => first_word(&format!("{other:?}")).to_owned().leak(),
            });
        }
    }
}

fn first_word(text: &str) -> &str {
    text.split([' ', '(', '{']).next().unwrap()
}

fn run(counts: std::ops::Range<u32>, cases: u32) -> Seen {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let strategy = entries(counts, 120);
    let mut seen = Seen::default();
    for _ in 0..cases {
        let mut world = World::new();
        let mut known = Known::default();
        for ops in strategy.new_tree(&mut runner).unwrap().current() {
            let entry = known.entry(&world.machine, world.index.next(), &ops);
            world.apply(&entry);
            seen.entry(&world, &entry);
        }
        for _ in 0..world.store.reads.get() {
            seen.note("store-read");
        }
    }
    seen
}

const COMMANDS: &str = "CreateQueue EndQueue Configure Inspect Enqueue Attach Detach Ack Requeue \
    Discard Release Credit Get Purge SessionEnded NodeDown NodeSuspected NodeBack NodeTimedOut \
    Continue NewLife ExpireHead Routed";

const OUTCOMES: &str = "Answered Want Fenced Created Gone Alive Ended InUse NotEmpty \
    ExclusiveInUse Got Empty Purged Refused Removed Cut cut-later QueueRemoved Deliver redelivered uncounted \
    CancelConsumer QueueEnded WakeAt ConsumerTimedOut GetTimedOut store-read";

#[test]
fn random_commands_reach_every_outcome() {
    let small = run(1..60, 500);
    let large = run(1_000..4_000, 150);
    for what in COMMANDS.split_whitespace().chain(OUTCOMES.split_whitespace()) {
        let count = small.0.get(what).copied().unwrap_or(0);
        assert!(count >= 20, "{what} came only {count} times: {:?}", small.0);
    }
    let left_over = large.0.get("ContinueSoon").copied().unwrap_or(0);
    assert!(left_over >= 5, "work was left over only {left_over} times");
    // A command that is missing in the list above would stay untested.
    assert_eq!(COMMANDS.split_whitespace().count(), variants(&Command::Continue));
}

/// Number of commands; a new one does not compile here until it is counted above.
fn variants(command: &Command) -> usize {
    match command {
        Command::CreateQueue { .. }
        | Command::EndQueue { .. }
        | Command::Configure { .. }
        | Command::Inspect { .. }
        | Command::Enqueue { .. }
        | Command::Attach { .. }
        | Command::Detach { .. }
        | Command::Ack { .. }
        | Command::Requeue { .. }
        | Command::Discard { .. }
        | Command::Release { .. }
        | Command::Credit { .. }
        | Command::Get { .. }
        | Command::Purge { .. }
        | Command::SessionEnded { .. }
        | Command::NodeDown { .. }
        | Command::NodeSuspected { .. }
        | Command::NodeBack { .. }
        | Command::NodeTimedOut { .. }
        | Command::Continue
        | Command::NewLife { .. }
        | Command::ExpireHead { .. }
        | Command::Routed { .. } => 23,
        // The random tests of these commands are in `letters` and `tasks`.
        Command::Transfer { .. }
        | Command::DeadLettered { .. }
        | Command::Retry { .. }
        | Command::TaskStep(_)
        | Command::ForgetTask { .. }
        | Command::LastResort => 0,
    }
}
