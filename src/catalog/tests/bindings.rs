//! Bindings (BND-01 to BND-09): identity, source and destination, words, removal without remains.

#![expect(clippy::indexing_slicing, reason = "tests")]

mod common;

use common::*;
use quorate_catalog::{CatalogCommand as C, Destination, ExchangeType};
use quorate_types::FieldValue;

const DEFAULT: &str = "403 ACCESS_REFUSED - operation not permitted on the default exchange";

#[test]
fn bnd_01_the_default_exchange_cannot_be_bound() {
    let mut world = World::new();
    world.add("q", 1);
    assert_eq!(world.refusal(C::Bind(to_queue("", "k", "q", id(1)))), DEFAULT);
    // This refusal comes before that of a missing queue.
    assert_eq!(world.refusal(C::Bind(to_queue("", "k", "nothing", id(9)))), DEFAULT);
}

#[test]
fn bnd_02_a_missing_source_is_told_before_a_missing_destination() {
    let mut world = World::new();
    assert_eq!(
        world.refusal(C::Bind(to_queue("x", "k", "q", id(1)))),
        "404 NOT_FOUND - no exchange 'x' in vhost '/'"
    );
    assert_eq!(
        world.refusal(C::Bind(to_queue("amq.direct", "k", "q", id(1)))),
        "404 NOT_FOUND - no queue 'q' in vhost '/'"
    );
    assert_eq!(
        world.refusal(C::Bind(to_exchange("amq.direct", "k", "x"))),
        "404 NOT_FOUND - no exchange 'x' in vhost '/'"
    );
}

#[test]
fn nam_04_a_bind_that_means_an_earlier_queue_of_that_name_is_refused() {
    let mut world = World::new();
    world.add("q", 1);
    world.done(C::RemoveQueue { queue: id(1) });
    world.add("q", 2);
    assert_eq!(
        world.refusal(C::Bind(to_queue("amq.direct", "k", "q", id(1)))),
        "404 NOT_FOUND - no queue 'q' in vhost '/'"
    );
    world.add("r", 3);
    assert_eq!(
        world.refusal(C::Bind(to_queue("amq.direct", "k", "r", id(2)))),
        "404 NOT_FOUND - no queue 'r' in vhost '/'"
    );
    world.bind(to_queue("amq.direct", "k", "q", id(2)));
    // An unbind of the earlier queue, by its id, has no effect.
    world.done(C::Unbind(to_queue("amq.direct", "k", "q", id(1))));
    assert_eq!(world.route("amq.direct", "k"), [id(2)]);
}

#[test]
fn bnd_03_a_binding_is_its_source_destination_key_and_arguments() {
    let mut world = World::new();
    world.add("q", 1);
    let plain = to_queue("amq.direct", "k", "q", id(1));
    let mut first = plain.clone();
    first.arguments = table(&[("a", FieldValue::I32(1)), ("b", text("2"))]);
    let mut same = plain.clone();
    same.arguments = table(&[("b", text("2")), ("a", FieldValue::I32(1))]);
    let mut other = plain.clone();
    other.arguments = table(&[("a", FieldValue::I32(2)), ("b", text("2"))]);
    for binding in [&plain, &first, &same, &plain, &other, &first] {
        world.bind(binding.clone());
    }
    assert_eq!(world.catalog.bindings().count(), 3);
    assert!(world.catalog.is_bound(&same));
    assert_eq!(world.route("amq.direct", "k"), [id(1)], "one copy however many bindings");
    for (binding, left) in [(&same, 2), (&plain, 1), (&plain, 1)] {
        world.done(C::Unbind(binding.clone()));
        assert_eq!(world.catalog.bindings().count(), left);
        assert_eq!(world.route("amq.direct", "k"), [id(1)]);
    }
    world.done(C::Unbind(other));
    assert_eq!(world.route("amq.direct", "k"), []);
    assert_eq!(world.catalog, world.reloaded());
}

#[test]
fn bnd_04_unbinding_what_is_not_there_is_done() {
    let mut world = World::new();
    world.add("q", 1);
    world.bind(to_queue("amq.topic", "k", "q", id(1)));
    let digest = world.catalog.digest();
    for binding in [
        to_queue("nothing", "k", "q", id(1)),
        to_queue("amq.topic", "k", "nothing", id(7)),
        to_queue("amq.topic", "other", "q", id(1)),
        to_exchange("amq.topic", "k", "nothing"),
    ] {
        world.done(C::Unbind(binding));
        assert!(world.out.changes.iter().all(|key| *key == quorate_catalog::CatalogKey::State));
    }
    let mut with_arguments = to_queue("amq.topic", "k", "q", id(1));
    with_arguments.arguments = table(&[("a", text("b"))]);
    world.done(C::Unbind(with_arguments));
    assert_eq!(world.catalog.bindings().count(), 1);
    assert_ne!(world.catalog.digest(), digest, "the index goes in");
    assert_eq!(world.refusal(C::Unbind(to_queue("", "k", "q", id(1)))), DEFAULT);
    assert_eq!(world.refusal(C::Unbind(to_exchange("amq.topic", "k", ""))), DEFAULT);
}

#[test]
fn bnd_06_a_binding_goes_with_either_of_its_ends() {
    let mut world = World::new();
    world.declare("x", ExchangeType::Topic);
    world.declare("y", ExchangeType::Headers);
    world.add("q", 1);
    world.add("r", 2);
    world.bind(to_queue("x", "a.#", "q", id(1)));
    world.bind(to_queue("x", "a.#", "r", id(2)));
    world.bind(to_queue("y", "", "q", id(1)));
    world.bind(to_exchange("x", "*", "y"));
    world.bind(to_exchange("y", "*", "x"));
    world.done(C::RemoveQueue { queue: id(1) });
    assert_eq!(world.catalog.bindings().count(), 3);
    assert_eq!(world.catalog.bindings_of_queue(id(1)).count(), 0);
    assert_eq!(world.catalog.bindings_of_queue(id(2)).count(), 1);
    assert_eq!(world.catalog.bindings_from(&name("x")).count(), 2);
    assert_eq!(world.catalog.bindings_to(&name("x")).count(), 1);
    world.done(C::DeleteExchange { exchange: name("y"), if_unused: false });
    assert_eq!(world.catalog.bindings().count(), 1);
    assert_eq!(world.route("x", "a.b"), [id(2)]);
    assert_eq!(world.catalog, world.reloaded());
}

#[test]
fn bnd_07_neither_end_of_an_exchange_binding_is_the_default_exchange() {
    let mut world = World::new();
    assert_eq!(world.refusal(C::Bind(to_exchange("", "k", "amq.direct"))), DEFAULT);
    assert_eq!(world.refusal(C::Bind(to_exchange("amq.direct", "k", ""))), DEFAULT);
    world.add("q", 1);
    world.bind(to_exchange("amq.fanout", "", "amq.direct"));
    world.bind(to_queue("amq.direct", "k", "q", id(1)));
    assert_eq!(world.route("amq.fanout", "k"), [id(1)]);
    assert_eq!(world.route("amq.fanout", "l"), []);
}

#[test]
fn bnd_08_cycles_end_and_a_queue_gets_one_copy_however_many_paths() {
    let mut world = World::new();
    for text in ["a", "b", "c"] {
        world.declare(text, ExchangeType::Fanout);
    }
    world.add("q", 1);
    for (from, to) in [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c"), ("a", "a")] {
        world.bind(to_exchange(from, "", to));
    }
    for from in ["a", "b", "c"] {
        world.bind(to_queue(from, "", "q", id(1)));
    }
    for from in ["a", "b", "c"] {
        assert_eq!(world.route(from, "k"), [id(1)]);
    }
}

#[test]
fn bnd_09_a_topic_key_has_at_most_two_hashes() {
    let mut world = World::new();
    world.add("q", 1);
    assert_eq!(
        world.refusal(C::Bind(to_queue("amq.topic", "#.a.#.b.#", "q", id(1)))),
        "406 PRECONDITION_FAILED - Topic binding key '#.a.#.b.#' uses 3 '#' wildcards, at most 2 are allowed"
    );
    world.bind(to_queue("amq.topic", "#.a.#", "q", id(1)));
    world.bind(to_queue("amq.direct", "#.#.#", "q", id(1)));
    world.bind(to_queue("amq.topic", "a#.b#.c#", "q", id(1)));
    world.done(C::Unbind(to_queue("amq.topic", "#.a.#.b.#", "q", id(1))));
}

#[test]
fn rte_08_a_bad_x_match_is_refused_at_bind() {
    let mut world = World::new();
    world.add("q", 1);
    let mut binding = to_queue("amq.headers", "", "q", id(1));
    binding.arguments = table(&[("x-match", text("x"))]);
    assert_eq!(
        world.refusal(C::Bind(binding.clone())),
        "406 PRECONDITION_FAILED - Invalid x-match field value <<\"x\">>; expected all, any, all-with-x, or any-with-x"
    );
    binding.arguments = table(&[("x-match", FieldValue::I32(5))]);
    assert_eq!(
        world.refusal(C::Bind(binding.clone())),
        "406 PRECONDITION_FAILED - Invalid x-match field type signedint (value 5); expected longstr"
    );
    // Exchanges of other types do not check the key.
    binding.source = name("amq.direct");
    world.bind(binding);
}

#[test]
fn default_bindings_list_every_queue_by_its_name() {
    let mut world = World::new();
    world.add("q", 1);
    world.add("r", 2);
    let listed: Vec<_> = world.catalog.default_bindings().collect();
    assert_eq!(listed, [to_queue("", "q", "q", id(1)), to_queue("", "r", "r", id(2))]);
    assert_eq!(listed[0].destination, Destination::Queue { name: short("q"), id: id(1) });
}

/// Bindings that share one identity hash are distinguished: 3,000 on one exchange and queue.
#[test]
fn many_bindings_of_one_queue_are_found_one_by_one() {
    let mut world = World::new();
    world.add("q", 1);
    for number in 0..3_000 {
        world.bind(to_queue("amq.topic", &format!("a.{number}.#"), "q", id(1)));
    }
    assert_eq!(world.catalog.bindings_of_queue(id(1)).count(), 3_000);
    assert_eq!(world.route("amq.topic", "a.2999.b"), [id(1)]);
    for number in (0..3_000).rev() {
        world.done(C::Unbind(to_queue("amq.topic", &format!("a.{number}.#"), "q", id(1))));
    }
    assert_eq!(world.route("amq.topic", "a.2999.b"), []);
    assert_eq!(world.catalog, world.reloaded());
}
