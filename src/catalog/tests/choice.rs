//! Exchanges that hand each message to one destination (EXC-14, EXC-15).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod common;

use bytes::{BufMut, BytesMut};
use common::*;
use proptest::prelude::*;
use quorate_catalog::{Binding, CatalogCommand as C, Destination, ExchangeType, QueueEntry};
use quorate_types::{FieldTable, FieldValue, Properties, QueueId, QueueType};
use std::collections::BTreeMap;

const KEYS: u64 = 4_000;

/// A binding of exchange `x` to queue number `number` with that weight.
fn weighted(number: u64, weight: u32) -> Binding {
    to_queue("x", &weight.to_string(), &format!("q{number}"), id(number))
}

fn world(kind: ExchangeType, weights: &[u32]) -> World {
    let mut world = World::new();
    world.declare("x", kind);
    for (number, weight) in (1..).zip(weights) {
        world.add(&format!("q{number}"), number);
        world.bind(weighted(number, *weight));
    }
    world
}

/// The queue that each of many keys goes to; always exactly one.
fn places(world: &World) -> Vec<QueueId> {
    (0..KEYS)
        .map(|key| match world.route("x", &format!("key-{key}"))[..] {
            [queue] => queue,
            ref other => unreachable!("{other:?}"),
        })
        .collect()
}

fn counts(places: &[QueueId]) -> BTreeMap<QueueId, u64> {
    let mut counts = BTreeMap::new();
    places.iter().for_each(|queue| *counts.entry(*queue).or_default() += 1);
    counts
}

fn routed(world: &World, properties: &Properties, key: &str) -> QueueId {
    let found = world.route_with("x", &short(key), &[], properties).unwrap();
    assert_eq!(found.len(), 1);
    found[0]
}

fn hashing(argument: &str, value: &str) -> World {
    let mut world = World::new();
    let mut record = exchange("x", ExchangeType::ConsistentHash);
    record.arguments = table(&[(argument, text(value))]);
    world.done(C::DeclareExchange(record));
    for number in 1..=8 {
        world.add(&format!("q{number}"), number);
        world.bind(weighted(number, 1));
    }
    world
}

/// Properties with only a correlation id (bit 10), message id (bit 7), or timestamp (6).
fn property(bit: u16, bytes: &[u8]) -> Properties {
    let mut raw = BytesMut::new();
    raw.put_u16(1 << bit);
    if bit != 6 {
        raw.put_u8(u8::try_from(bytes.len()).unwrap());
    }
    raw.put_slice(bytes);
    Properties::parse(raw.freeze()).unwrap()
}

/// Number of queues that 200 messages go to, which differ only in what `message` makes of their
/// number.
fn spread(world: &World, message: impl Fn(u64) -> Properties) -> usize {
    let places: Vec<_> = (0..200).map(|n| routed(world, &message(n), "k")).collect();
    let again: Vec<_> = (0..200).map(|n| routed(world, &message(n), "other")).collect();
    assert_eq!(places, again, "the key plays no part");
    counts(&places).len()
}

#[test]
fn exc_14_a_binding_key_is_a_weight_from_1_to_10_000() {
    let mut world = world(ExchangeType::ConsistentHash, &[1]);
    let mut refusal = |key: &str| world.refusal(C::Bind(to_queue("x", key, "q1", id(1))));
    let told = |text: &str| format!("406 PRECONDITION_FAILED - {text}");
    for key in ["0", "-1", "-0", "000", "-99999999999999999999"] {
        assert_eq!(refusal(key), told("The binding key must be greater than 0"), "{key}");
    }
    for key in ["10001", "99999999999999999999"] {
        assert_eq!(refusal(key), told("The binding key must not exceed 10000"), "{key}");
    }
    for key in ["", "abc", "1.5", " 1", "+", "0x1"] {
        let text = format!("The binding key must be an integer: <<\"{key}\">>");
        assert_eq!(refusal(key), told(&text), "{key}");
    }
    for key in ["1", "+5", "007", "10000"] {
        world.bind(to_queue("x", key, "q1", id(1)));
    }
    // An unbind with an invalid weight has no effect either.
    world.done(C::Unbind(to_queue("x", "abc", "q1", id(1))));
    assert_eq!(world.route("x", "k"), [id(1)]);
    assert_eq!(world.catalog, world.reloaded());
}

#[test]
fn exc_14_the_arguments_of_a_consistent_hash_exchange_are_checked() {
    let mut world = World::new();
    let mut refusal = |fields: &[(&str, FieldValue)]| {
        let mut record = exchange("x", ExchangeType::ConsistentHash);
        record.arguments = table(fields);
        world.refusal(C::DeclareExchange(record))
    };
    let (header, property) = (("hash-header", text("h")), ("hash-property", text("message_id")));
    assert_eq!(
        refusal(&[header.clone(), property.clone()]),
        "406 PRECONDITION_FAILED - hash-header and hash-property are mutually exclusive"
    );
    assert_eq!(
        refusal(&[("hash-property", text("reply_to"))]),
        "406 PRECONDITION_FAILED - Unsupported property: reply_to"
    );
    assert_eq!(
        refusal(&[("hash-header", FieldValue::Bool(true))]),
        "406 PRECONDITION_FAILED - invalid type 'bool' for arg 'hash-header' in exchange 'x' in vhost '/'"
    );
    // Other types do not check these arguments (EXC-05).
    let mut record = exchange("d", ExchangeType::Direct);
    record.arguments = table(&[header, property]);
    world.done(C::DeclareExchange(record));
}

#[test]
fn exc_14_messages_are_shared_out_by_weight() {
    let weights = [1, 2, 3, 4];
    let world = world(ExchangeType::ConsistentHash, &weights);
    let counts = counts(&places(&world));
    for (number, weight) in (1..).zip(weights) {
        let expected = KEYS * u64::from(weight) / 10;
        let got = counts[&id(number)];
        assert!(got.abs_diff(expected) < KEYS / 25, "weight {weight}: {got} of {KEYS}");
    }
}

#[test]
fn exc_14_one_target_per_message_whatever_further_keys_say() {
    let world = world(ExchangeType::ConsistentHash, &[1, 1, 1, 1]);
    let found = world.route_by("x", &["a", "b", "c", "d", "e"], None).unwrap();
    assert_eq!(found.len(), 1);
}

#[test]
fn exc_14_a_header_or_a_property_is_hashed_instead_of_the_key() {
    let by_header = hashing("hash-header", "h");
    let numbered = |n: u64| with_headers(&table(&[("h", text(&n.to_string()))]));
    assert_eq!(spread(&by_header, numbered), 8);
    let integer = |value| with_headers(&table(&[("h", value)]));
    assert_eq!(
        routed(&by_header, &integer(FieldValue::I32(7)), "k"),
        routed(&by_header, &integer(FieldValue::I64(7)), "k")
    );
    assert_eq!(spread(&by_header, |_| Properties::default()), 1, "without it, all go one way");
    for (name, bit) in [("correlation_id", 10), ("message_id", 7)] {
        let world = hashing("hash-property", name);
        assert_eq!(spread(&world, |n| property(bit, n.to_string().as_bytes())), 8, "{name}");
        assert_eq!(spread(&world, numbered), 1, "{name}");
    }
    let world = hashing("hash-property", "timestamp");
    assert_eq!(spread(&world, |n| property(6, &n.to_be_bytes())), 8);
}

#[test]
fn exc_14_an_exchange_may_be_the_one_chosen_and_none_leads_to_the_alternate() {
    let mut world = World::new();
    let mut record = exchange("x", ExchangeType::ConsistentHash);
    record.arguments = table(&[("alternate-exchange", text("amq.fanout"))]);
    world.done(C::DeclareExchange(record));
    world.add("q1", 1);
    world.add("q2", 2);
    world.bind(to_queue("amq.fanout", "", "q1", id(1)));
    assert_eq!(world.route("x", "k"), [id(1)], "AE-01");
    world.bind(to_exchange("x", "1", "amq.direct"));
    world.bind(to_queue("amq.direct", "k", "q2", id(2)));
    assert_eq!(world.route("x", "k"), [id(2)]);
    assert_eq!(world.route("x", "l"), [], "a binding was its destination (AE-01)");
}

#[test]
fn exc_15_a_modulus_hash_exchange_shares_out_evenly() {
    let mut world = world(ExchangeType::ModulusHash, &[1, 1, 1, 1]);
    // The keys have no meaning here, and two bindings to a queue count as one destination.
    world.bind(to_queue("x", "anything", "q1", id(1)));
    let before = places(&world);
    for (queue, count) in counts(&before) {
        assert!(count.abs_diff(KEYS / 4) < KEYS / 25, "{queue}: {count} of {KEYS}");
    }
    world.done(C::Unbind(to_queue("x", "anything", "q1", id(1))));
    assert_eq!(places(&world), before);
    assert_eq!(world.catalog, world.reloaded());
}

#[test]
fn exc_15_a_random_exchange_chooses_by_chance() {
    let world = world(ExchangeType::Random, &[1, 1, 1, 1]);
    let places: Vec<_> = (0..KEYS).map(|_| world.route("x", "k")[0]).collect();
    for (queue, count) in counts(&places) {
        assert!(count.abs_diff(KEYS / 4) < KEYS / 25, "{queue}: {count} of {KEYS}");
    }
}

/// EXC-15: only queues whose leader is local, at random; without one the message is unroutable or
/// goes to the alternate.
#[test]
fn exc_15_a_local_random_exchange_chooses_among_local_queues() {
    let mut world = World::new();
    world.declare("x", ExchangeType::LocalRandom);
    assert!(world.route("x", "k").is_empty());
    for number in 1..=4 {
        world.add(&format!("q{number}"), number);
        world.bind(to_queue("x", "", &format!("q{number}"), id(number)));
    }
    world.elsewhere = Elsewhere(vec![id(1), id(3)]);
    let shares = counts(&places(&world));
    assert_eq!(shares.keys().copied().collect::<Vec<_>>(), [id(2), id(4)]);
    for (queue, count) in shares {
        assert!(count.abs_diff(KEYS / 2) < KEYS / 25, "{queue}: {count} of {KEYS}");
    }
    world.elsewhere = Elsewhere((1..=4).map(id).collect());
    assert!(world.route("x", "").is_empty());
    world.declare("ae", ExchangeType::Fanout);
    world.bind(to_queue("ae", "", "q3", id(3)));
    let mut record = exchange("y", ExchangeType::LocalRandom);
    record.arguments = table(&[("alternate-exchange", text("ae"))]);
    world.done(C::DeclareExchange(record));
    world.bind(to_queue("y", "", "q1", id(1)));
    assert_eq!(world.route("y", "k"), [id(3)]);
    assert_eq!(world.catalog, world.reloaded());
}

/// EXC-15: the destinations that can be bound, and RabbitMQ's words for others.
#[test]
fn exc_15_a_local_random_exchange_takes_classic_queues_without_a_key() {
    let mut world = World::new();
    world.declare("x", ExchangeType::LocalRandom);
    world.declare("f", ExchangeType::Fanout);
    world.add("q", 1);
    let quorum = QueueEntry { queue_type: QueueType::Quorum, ..queue("quorum", id(2)) };
    world.done(C::AddQueue(quorum));
    let refused = |world: &mut World, binding| world.refusal(C::Bind(binding));
    let to_exchange = |key: &str| Binding {
        source: name("x"),
        destination: Destination::Exchange(short("f")),
        key: short(key),
        arguments: FieldTable::default(),
    };
    assert_eq!(
        refused(&mut world, to_queue("x", "k", "q", id(1))),
        "406 PRECONDITION_FAILED - Non empty binding 'k' key not permitted"
    );
    assert_eq!(
        refused(&mut world, to_exchange("k")),
        "406 PRECONDITION_FAILED - Non empty binding 'k' key not permitted"
    );
    assert_eq!(
        refused(&mut world, to_queue("x", "", "quorum", id(2))),
        "406 PRECONDITION_FAILED - Queue type rabbit_quorum_queue not valid for this exchange type"
    );
    assert_eq!(
        refused(&mut world, to_exchange("")),
        "406 PRECONDITION_FAILED - Destination not found"
    );
    world.done(C::Bind(to_queue("x", "", "q", id(1))));
    world.done(C::Unbind(to_queue("x", "k", "q", id(1))));
    assert_eq!(world.route("x", ""), [id(1)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// EXC-14: a new queue takes messages from others, a removed one leaves its messages to others,
    /// and no message moves between two queues that stay.
    #[test]
    fn exc_14_nothing_moves_between_queues_that_stay(
        weights in prop::collection::vec(1u32..=20, 2..12),
        at in any::<prop::sample::Index>(),
        permanent in any::<bool>(),
    ) {
        let mut world = world(ExchangeType::ConsistentHash, &weights);
        let with = places(&world);
        let number = at.index(weights.len()) as u64 + 1;
        world.done(C::Unbind(weighted(number, weights[at.index(weights.len())])));
        let without = places(&world);
        for (with, without) in with.iter().zip(&without) {
            prop_assert!(with == without || *with == id(number));
            prop_assert_ne!(*without, id(number));
        }
        let all: u32 = weights.iter().sum();
        let share = KEYS * u64::from(weights[at.index(weights.len())]) / u64::from(all);
        let moved = with.iter().filter(|queue| **queue == id(number)).count() as u64;
        prop_assert!(moved.abs_diff(share) < KEYS / 20, "{} moved, {} expected", moved, share);
        if permanent {
            // The queue is declared again, with another id: the same messages go to its name.
            world.done(C::RemoveQueue { queue: id(number) });
            let name = format!("q{number}");
            world.done(C::AddQueue(queue(&name, id(100))));
            let weight = weights[at.index(weights.len())].to_string();
            world.bind(to_queue("x", &weight, &name, id(100)));
            let renewed = with.iter().map(|one| if *one == id(number) { id(100) } else { *one });
            prop_assert_eq!(places(&world), renewed.collect::<Vec<_>>());
        }
        prop_assert_eq!(world.reloaded(), world.catalog);
    }
}
