//! Routing against a simple model: it checks every binding, one after the other, with a matcher
//! that tries all ways.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod common;

use common::*;
use proptest::prelude::*;
use quorate_catalog::{Binding, CatalogCommand as C, Destination, ExchangeType};
use quorate_types::{FieldTable, FieldValue, QueueId};
use std::collections::BTreeSet;

const EXCHANGES: [(&str, ExchangeType); 6] = [
    ("d", ExchangeType::Direct),
    ("f", ExchangeType::Fanout),
    ("t", ExchangeType::Topic),
    ("h", ExchangeType::Headers),
    ("u", ExchangeType::Topic),
    ("e", ExchangeType::Direct),
];
const QUEUES: u64 = 6;

/// The alternate of each exchange, as its position in the list; one position beyond the list means
/// a missing exchange.
type Alternates = [Option<usize>; EXCHANGES.len()];

/// RTE-04, by trying all numbers of words for each `#`.
fn topic_fits(pattern: &[&str], words: &[&str]) -> bool {
    match pattern.split_first() {
        None => words.is_empty(),
        Some((&"#", rest)) => (0..=words.len()).any(|taken| topic_fits(rest, &words[taken..])),
        Some((first, rest)) => words.split_first().is_some_and(|(word, words)| {
            (first == word || *first == "*") && topic_fits(rest, words)
        }),
    }
}

fn split(text: &str) -> Vec<&str> {
    if text.is_empty() { Vec::new() } else { text.split('.').collect() }
}

/// RTE-05 to RTE-07, for integer values of one width and `Void`.
fn headers_fit(arguments: &FieldTable, headers: &FieldTable) -> bool {
    let mode = match arguments.get("x-match") {
        Some(FieldValue::LongString(mode)) => String::from_utf8(mode.to_vec()).unwrap(),
        _ => "all".to_owned(),
    };
    let results: Vec<bool> = arguments
        .0
        .iter()
        .map(|(name, value)| (name.as_str(), value))
        .filter(|(name, _)| {
            *name != "x-match" && (mode.ends_with("-with-x") || !name.starts_with("x-"))
        })
        .map(|(name, value)| match headers.get(name) {
            Some(present) => *value == FieldValue::Void || value == present,
            None => false,
        })
        .collect();
    if mode.starts_with("any") { results.contains(&true) } else { !results.contains(&false) }
}

fn fits(kind: ExchangeType, binding: &Binding, keys: &[String], headers: &FieldTable) -> bool {
    let key = binding.key.as_str();
    match kind {
        ExchangeType::Direct => keys.iter().any(|k| k == key),
        ExchangeType::Fanout => true,
        ExchangeType::Topic => keys.iter().any(|k| topic_fits(&split(key), &split(k))),
        ExchangeType::Headers => headers_fit(&binding.arguments, headers),
        ExchangeType::ConsistentHash
        | ExchangeType::ModulusHash
        | ExchangeType::Random
        | ExchangeType::LocalRandom
        | ExchangeType::Delayed => {
            unreachable!("not in this model")
        }
    }
}

fn model(
    bindings: &[Binding],
    alternates: &Alternates,
    exchange: &str,
    keys: &[String],
    headers: &FieldTable,
) -> Vec<QueueId> {
    let (mut seen, mut pending) = (BTreeSet::new(), vec![exchange.to_owned()]);
    let mut queues = BTreeSet::new();
    while let Some(name) = pending.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let at = EXCHANGES.iter().position(|(text, _)| *text == name).unwrap();
        let fitting = bindings.iter().filter(|b| b.source.name.as_str() == name);
        let fitting = fitting.filter(|b| fits(EXCHANGES[at].1, b, keys, headers));
        let destinations: BTreeSet<_> = fitting.map(|binding| &binding.destination).collect();
        if destinations.is_empty() {
            // AE-01, AE-03: the seventh exchange does not exist.
            let alternate = alternates[at].and_then(|at| EXCHANGES.get(at));
            pending.extend(alternate.map(|(text, _)| (*text).to_owned()));
        }
        for destination in destinations {
            match destination {
                Destination::Queue { id, .. } => drop(queues.insert(*id)),
                Destination::Exchange(next) => pending.push(next.as_str().to_owned()),
            }
        }
    }
    queues.into_iter().collect()
}

fn any_key() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "", "ab"]), 0..5)
        .prop_map(|words| words.join("."))
}

fn any_pattern() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec!["a", "b", "*", "#", "a", "", "#", "*"]);
    prop::collection::vec(words, 0..5)
        .prop_map(|words| words.join("."))
        .prop_filter("BND-09", |pattern| pattern.matches('#').count() <= 2)
}

fn any_value() -> impl Strategy<Value = FieldValue> {
    prop_oneof![(0..3i32).prop_map(FieldValue::I32), Just(FieldValue::Void)]
}

fn any_table(names: &'static [&'static str]) -> impl Strategy<Value = FieldTable> {
    prop::collection::btree_map(prop::sample::select(names), any_value(), 0..4).prop_map(|fields| {
        FieldTable(fields.into_iter().map(|(name, value)| (short(name), value)).collect())
    })
}

fn any_arguments() -> impl Strategy<Value = FieldTable> {
    let modes = prop::sample::select(vec!["all", "any", "all-with-x", "any-with-x"]);
    (prop::option::of(modes), any_table(&["a", "b", "x-c"])).prop_map(|(mode, mut table)| {
        table.0.extend(mode.map(|mode| (short("x-match"), text(mode))));
        table
    })
}

fn any_binding() -> impl Strategy<Value = Binding> {
    let to = prop_oneof![
        4 => (1..=QUEUES).prop_map(|number| Destination::Queue {
            name: short(&format!("q{number}")),
            id: id(number),
        }),
        1 => (0..EXCHANGES.len()).prop_map(|at| Destination::Exchange(short(EXCHANGES[at].0))),
    ];
    (0..EXCHANGES.len(), to, any_pattern(), any_arguments()).prop_map(
        |(at, destination, key, arguments)| Binding {
            source: name(EXCHANGES[at].0),
            destination,
            key: short(&key),
            arguments,
        },
    )
}

fn any_alternates() -> impl Strategy<Value = Alternates> {
    prop::array::uniform6(prop::option::of(0..=EXCHANGES.len()))
}

fn world(alternates: &Alternates) -> World {
    let mut world = World::new();
    for ((text, kind), alternate) in EXCHANGES.into_iter().zip(alternates) {
        let mut record = exchange(text, kind);
        let named = alternate.map(|at| EXCHANGES.get(at).map_or("missing", |(text, _)| *text));
        let field = named.map(|name| (short("alternate-exchange"), FieldValue::text(name)));
        record.arguments = FieldTable(field.into_iter().collect());
        world.done(C::DeclareExchange(record));
    }
    (1..=QUEUES).for_each(|number| world.add(&format!("q{number}"), number));
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// RTE-01 to RTE-10, BND-08, AE-01 to AE-03: the routing tables agree with a scan of the
    /// bindings, over graphs of bound and alternate exchanges with all their cycles, also after
    /// some bindings were removed.
    #[test]
    fn routing_agrees_with_a_scan_of_all_bindings(
        alternates in any_alternates(),
        bindings in prop::collection::vec((any_binding(), prop::bool::weighted(0.3)), 0..40),
        messages in prop::collection::vec(
            (0..EXCHANGES.len(), prop::collection::vec(any_key(), 1..3), any_table(&["a", "b", "x-c"])),
            1..20,
        ),
    ) {
        let mut world = world(&alternates);
        for (binding, _) in &bindings {
            world.bind(binding.clone());
        }
        for (binding, unbound) in &bindings {
            if *unbound {
                world.done(C::Unbind(binding.clone()));
            }
        }
        let left: Vec<Binding> = world.catalog.bindings().cloned().collect();
        for (at, keys, headers) in messages {
            let exchange = EXCHANGES[at].0;
            let words: Vec<&str> = keys.iter().map(String::as_str).collect();
            let found = world.route_by(exchange, &words, Some(&headers)).unwrap();
            let expected = model(&left, &alternates, exchange, &keys, &headers);
            prop_assert_eq!(found, expected, "{} {:?}", exchange, keys);
        }
        prop_assert_eq!(world.reloaded(), world.catalog);
    }

    /// RTE-04: single patterns against single keys, longer than above.
    #[test]
    fn a_topic_pattern_agrees_with_trying_all_ways(
        pattern in any_pattern(),
        key in prop::collection::vec(prop::sample::select(vec!["a", "b", ""]), 0..9),
    ) {
        let key = key.join(".");
        let mut world = world(&[None; EXCHANGES.len()]);
        world.bind(to_queue("t", &pattern, "q1", id(1)));
        let expected = topic_fits(&split(&pattern), &split(&key));
        prop_assert_eq!(!world.route("t", &key).is_empty(), expected, "{:?} {:?}", pattern, key);
    }
}
