//! Held publishes are released in order, and no settle overtakes an earlier publish.

use super::*;
use crate::{
    client::{ChannelId, Settlement},
    memory::{MemoryBudget, Share},
    testing::SESSION,
};
use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use quorate_queue::Detach;
use quorate_types::{ConsumerId, DeliveryNumber, Holder, Home, NodeId, Properties, ShortString};
use std::sync::Arc;

fn publish(number: u64, bytes: usize) -> Publish {
    Publish {
        channel: ChannelId { number: 1, opened: 0 },
        confirm: Some(number),
        exchange: ShortString::EMPTY,
        routing_key: ShortString::EMPTY,
        properties: Properties::default(),
        body: Bytes::from(vec![0; bytes]),
        mandatory: false,
    }
}

fn settle(consumer: u64, number: u64) -> Settle {
    let holder = Holder::Consumer(ConsumerId { session: SESSION, number: consumer });
    let number = DeliveryNumber(number);
    Settle {
        holder: HolderRef { home: Home::Node(NodeId(1)), holder },
        numbers: vec![(number, number)],
        settlement: Settlement::Ack,
    }
}

fn ack(Settle { holder, numbers, .. }: &Settle) -> (Home, Command) {
    (holder.home, Command::Ack { holder: holder.holder, numbers: numbers.clone() })
}

fn detach(consumer: u64) -> (Home, Command) {
    let consumer = ConsumerId { session: SESSION, number: consumer };
    let how = Detach::ChannelEnd;
    (Home::Node(NodeId(1)), Command::Detach { consumer, shown: DeliveryNumber(0), how })
}

#[derive(Clone, Debug)]
enum Step {
    Hold(Vec<usize>),
    Settle(u64),
    /// A channel ends.
    End(u64),
    /// The routing task takes the held publishes, or finds none left.
    Work,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => vec(0..40_000_usize, 1..4).prop_map(Step::Hold),
        4 => (0..3_u64).prop_map(Step::Settle),
        1 => (0..3_u64).prop_map(Step::End),
        3 => Just(Step::Work),
    ]
}

/// Held publishes as their connection uses them, and what has been released.
struct World {
    held: HeldPublishes,
    memory: Arc<MemoryBudget>,
    /// Settles, each with the number of publishes that had to be routed before it.
    waiting: Vec<(Settle, u64)>,
    published: u64,
    routed: u64,
    bytes: usize,
    settled: u64,
    /// Commands of channels that have ended, which wait.
    ending: usize,
}

impl World {
    fn new() -> Self {
        let memory = MemoryBudget::new(1 << 30);
        let held = HeldPublishes::new(memory.account(Share::InFlight));
        Self {
            held,
            memory,
            waiting: Vec::new(),
            published: 0,
            routed: 0,
            bytes: 0,
            settled: 0,
            ending: 0,
        }
    }

    fn hold(&mut self, sizes: &[usize]) {
        let first = self.published;
        self.published += sizes.len() as u64;
        self.bytes += sizes.iter().sum::<usize>();
        self.held.hold((first..).zip(sizes).map(|(number, bytes)| publish(number, *bytes)));
        self.held.busy = true;
    }

    fn settle(&mut self, consumer: u64) {
        let settle = settle(consumer, self.settled);
        self.settled += 1;
        self.waiting.push((settle.clone(), self.published));
        let given = self.held.hold_settles(vec![settle]);
        self.take_out(given);
    }

    /// These settles are performed now: the first ones that waited, in order, each after its
    /// publishes.
    fn take_out(&mut self, given: Vec<Settle>) {
        for settle in given {
            let (expected, behind) = self.waiting.remove(0);
            assert_eq!(settle, expected);
            assert!(behind <= self.routed, "settled before {behind} publishes were routed");
        }
    }

    fn end(&mut self, consumer: u64) {
        let is_of = |holder: HolderRef| holder == settle(consumer, 0).holder;
        let taken = self.held.take_settles(is_of);
        let expected: Vec<_> =
            self.waiting.extract_if(.., |(settle, _)| is_of(settle.holder)).collect();
        assert_eq!(taken, expected.iter().map(|(settle, _)| settle.clone()).collect::<Vec<_>>());
        let settled = taken.iter().map(ack).collect();
        // What has not waited need not wait now.
        self.ending += if expected.is_empty() { 0 } else { taken.len() + 1 };
        let given = self.held.hold_end(settled, vec![detach(consumer)]);
        if !expected.is_empty() {
            self.take_ended(given);
        }
    }

    /// What ended channels had settled, and their ends: all or nothing.
    fn take_ended(&mut self, given: Vec<(Home, Command)>) {
        assert!(given.is_empty() || given.len() == self.ending, "{given:?}");
        assert!(given.is_empty() || self.routed == self.published, "before what was published");
        self.ending -= given.len();
    }

    fn work(&mut self) {
        for publish in self.held.take() {
            assert_eq!(publish.confirm, Some(self.routed), "in their order, each once");
            self.routed += 1;
            self.bytes -= publish.body.len();
        }
        self.held.busy = false;
        let given = self.held.hold_settles(Vec::new());
        self.take_out(given);
        let ended = self.held.take_ended();
        self.take_ended(ended);
        assert_eq!(self.ending, 0);
        assert!(self.waiting.is_empty() && self.routed == self.published);
    }
}

proptest! {
    /// NAM 5: held publishes are released in order. Later settles wait with them, and so does the end of
    /// their channel; and held publishes are counted as memory.
    #[test]
    fn nam_5_what_is_settled_behind_held_publishes_waits_with_them(steps in vec(step(), 1..40)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Hold(sizes) => world.hold(&sizes),
                Step::Settle(consumer) => world.settle(consumer),
                Step::End(consumer) => world.end(consumer),
                Step::Work => world.work(),
            }
            let held = world.memory.held_bytes();
            let bytes = world.bytes as u64;
            prop_assert!(held <= bytes && bytes < held + (16 << 10), "{} of {}", held, bytes);
        }
        world.work();
        prop_assert_eq!(world.memory.held_bytes(), 0);
    }
}
