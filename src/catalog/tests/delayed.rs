//! Delayed exchanges: the messages that they keep, those that they route at once, and their queue
//! (EXC-17).

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use proptest::prelude::*;
use quorate_catalog::{
    CatalogCommand as C, CatalogEvent, ExchangeRecord, ExchangeType, RouteError, after_delay,
    delay_of, delays_for,
};
use quorate_types::{FieldTable, FieldValue};

fn delayed(name: &str, for_type: &str) -> ExchangeRecord {
    let mut record = exchange(name, ExchangeType::Delayed);
    record.arguments = table(&[("x-delayed-type", text(for_type))]);
    record
}

/// Exchange `x` delays for topics to queue 1; its own queue is number 9.
fn world() -> World {
    let mut world = World::new();
    world.add("amq.delayed.x", 9);
    world.done(C::DeclareExchange(delayed("x", "topic")));
    world.add("q", 1);
    world.bind(to_queue("x", "a.*", "q", id(1)));
    world
}

fn with_delay(delay: i64) -> FieldTable {
    table(&[("x-delay", FieldValue::I64(delay))])
}

#[test]
fn exc_17_a_positive_delay_goes_to_the_exchanges_queue_and_nothing_else_does() {
    let mut world = world();
    let route = |world: &World, exchange: &str, delay: Option<i64>| {
        let headers = delay.map(with_delay);
        world.route_by(exchange, &["a.b"], headers.as_ref()).unwrap()
    };
    assert_eq!(route(&world, "x", Some(5)), [id(9)]);
    for delay in [None, Some(0), Some(-5)] {
        assert_eq!(route(&world, "x", delay), [id(1)], "{delay:?}");
    }
    // The delay also applies if another exchange routes to it; the other destinations of that one
    // get the message at once.
    world.declare("f", ExchangeType::Fanout);
    world.add("other", 2);
    world.bind(to_exchange("f", "", "x"));
    world.bind(to_queue("f", "", "other", id(2)));
    assert_eq!(route(&world, "f", Some(5)), [id(2), id(9)]);
    assert_eq!(route(&world, "f", None), [id(1), id(2)]);
    // Nobody else publishes to its queue: that would need no permission for the exchange.
    assert_eq!(world.route_by("", &["amq.delayed.x"], None), Ok(vec![]));
    // The exchange keeps a message without a route too: it is routed after the delay.
    assert_eq!(world.route_by("x", &["b"], Some(&with_delay(5))), Ok(vec![id(9)]));
}

#[test]
fn exc_17_without_its_queue_it_says_so() {
    let mut world = World::new();
    world.done(C::DeclareExchange(delayed("x", "direct")));
    assert_eq!(world.route_by("x", &["a"], Some(&with_delay(5))), Err(RouteError::NoDelayQueue));
    assert_eq!(
        RouteError::NoDelayQueue.exception(&name("x")).reply_text(),
        "INTERNAL_ERROR - exchange 'x' in vhost '/' cannot delay messages now: its queue is missing"
    );
    assert_eq!(world.catalog.delayed_exchanges_without_queue().count(), 1);
    world.add("amq.delayed.x", 9);
    assert_eq!(world.catalog.delayed_exchanges_without_queue().count(), 0);
}

#[test]
fn exc_17_arguments_are_checked_and_compared() {
    let mut world = World::new();
    let mut refused = |record: ExchangeRecord| world.refusal(C::DeclareExchange(record));
    let wrong = "406 PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing \
                 exchange type";
    let mut without = delayed("x", "topic");
    without.arguments = FieldTable::default();
    assert_eq!(refused(without), wrong);
    assert_eq!(refused(delayed("x", "x-delayed-message")), wrong);
    let unknown = refused(delayed("x", "x-foo"));
    assert_eq!(unknown, "406 PRECONDITION_FAILED - unknown exchange type 'x-foo'", "EXC-02");
    let mut number = delayed("x", "topic");
    number.arguments = table(&[("x-delayed-type", FieldValue::I64(1))]);
    assert_eq!(refused(number), wrong);
    let long = "x".repeat(250);
    let told = refused(delayed(&long, "topic"));
    let wanted = "406 PRECONDITION_FAILED - a delayed exchange's name may have at most 243 bytes";
    assert!(told.starts_with(wanted) && told.contains("'xxx"), "{told}");
    world.done(C::DeclareExchange(delayed("x", "topic")));
    world.done(C::DeclareExchange(delayed("x", "topic")));
    assert_eq!(
        world.refusal(C::DeclareExchange(delayed("x", "fanout"))),
        "406 PRECONDITION_FAILED - inequivalent arg 'x-delayed-type' for exchange 'x' in vhost '/': \
         received 'fanout' but current is 'topic'"
    );
    // Bindings are checked like those of the type given by `x-delayed-type`.
    let mut hashed = delayed("h", "x-consistent-hash");
    hashed.arguments.0.push((short("hash-header"), text("k")));
    world.done(C::DeclareExchange(hashed));
    world.add("q", 1);
    let unweighted = C::Bind(to_queue("h", "nine", "q", id(1)));
    assert!(world.refusal(unweighted).contains("must be an integer"));
}

#[test]
fn exc_17_the_queue_goes_with_its_exchange() {
    let mut world = world();
    world.done(C::DeleteExchange { exchange: name("x"), if_unused: false });
    assert!(world.out.events.contains(&CatalogEvent::DelayQueueRemoved { queue: id(9) }));
    assert_eq!(world.catalog.queue_by_name(&name("amq.delayed.x")), None);
    assert!(world.catalog.queue_by_name(&name("q")).is_some());
}

#[test]
fn exc_17_no_policy_is_for_the_queue_of_an_exchange() {
    let mut world = world();
    let entry = world.catalog.queue_by_name(&name("amq.delayed.x")).cloned().unwrap();
    let config = world.catalog.config_of(&entry);
    assert!(config.delays);
    assert_eq!(config.dead_letter.map(|it| it.exchange), Some(short("x")));
    let all =
        policy("all", quorate_catalog::PolicyKind::User, ".*", "all", 0, r#"{"message-ttl":1}"#);
    world.done(C::SetPolicy(all));
    let config = world.catalog.config_of(&entry);
    assert_eq!((config.message_ttl_ms, config.delays), (None, true));
    assert_eq!(delays_for(&short("amq.delayed.x")), Some(short("x")));
    assert_eq!(delays_for(&short("q")), None);
}

proptest! {
    /// A message that was delayed once is not delayed again.
    #[test]
    fn exc_17_after_its_delay_a_message_has_none(delay in any::<i64>(), other in any::<i64>()) {
        prop_assume!(delay != i64::MIN);
        let headers = table(&[("x-delay", FieldValue::I64(delay)), ("mine", FieldValue::I64(other))]);
        let wanted = u64::try_from(delay).ok().filter(|delay| *delay > 0);
        prop_assert_eq!(delay_of(&with_headers(&headers)), wanted);
        let after = after_delay(headers);
        prop_assert_eq!(delay_of(&with_headers(&after)), None);
        prop_assert_eq!(after.get("x-delay"), Some(&FieldValue::I64(-delay.abs())));
        prop_assert_eq!(after.get("mine"), Some(&FieldValue::I64(other)));
    }

    /// Any bytes as a message's headers are handled without a panic.
    #[test]
    fn exc_17_any_header_is_no_panic(text in "x-delay|y", value in any::<Vec<u8>>()) {
        let headers = FieldTable(vec![(short(&text), FieldValue::LongString(value.into()))]);
        prop_assert_eq!(delay_of(&with_headers(&headers)), None);
    }
}
