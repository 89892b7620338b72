//! Exchanges (EXC-01 to EXC-11): declares, refusals and their texts, deletions.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use quorate_catalog::{CatalogCommand as C, CatalogKey, ExchangeType};
use quorate_types::{FieldValue, ShortString};

fn declare(world: &mut World, change: impl FnOnce(&mut quorate_catalog::ExchangeRecord)) -> String {
    let mut record = exchange("x", ExchangeType::Direct);
    change(&mut record);
    world.refusal(C::DeclareExchange(record))
}

fn delete(text: &str, if_unused: bool) -> C {
    C::DeleteExchange { exchange: name(text), if_unused }
}

fn names(world: &World) -> Vec<ShortString> {
    world.catalog.exchanges().map(|exchange| exchange.name.name.clone()).collect()
}

#[test]
fn exc_01_every_virtual_host_has_its_exchanges() {
    let mut world = World::new();
    let listed: Vec<_> = world
        .catalog
        .exchanges()
        .map(|e| (e.name.to_string(), e.kind.name(), e.durable, e.internal, e.auto_delete))
        .collect();
    let expected = [
        ("'amq.direct' in vhost '/'", "direct", true, false, false),
        ("'amq.fanout' in vhost '/'", "fanout", true, false, false),
        ("'amq.headers' in vhost '/'", "headers", true, false, false),
        ("'amq.match' in vhost '/'", "headers", true, false, false),
        ("'amq.rabbitmq.trace' in vhost '/'", "topic", true, true, false),
        ("'amq.topic' in vhost '/'", "topic", true, false, false),
    ];
    let expected = expected.map(|(name, a, b, c, d)| (name.to_owned(), a, b, c, d));
    assert_eq!(listed, expected);
    for (exchange, ..) in ["amq.direct", "amq.match", "amq.rabbitmq.trace"].map(|e| (e, 0)) {
        assert_eq!(
            world.refusal(delete(exchange, false)),
            format!(
                "403 ACCESS_REFUSED - deletion of system exchange '{exchange}' in vhost '/' not allowed"
            )
        );
    }
}

#[test]
fn exc_02_an_unknown_type_and_the_default_exchange_are_refused() {
    let unknown = ExchangeType::parse("x-foo").map_err(|refused| refused.reply_text());
    assert_eq!(unknown, Err("PRECONDITION_FAILED - unknown exchange type 'x-foo'".to_owned()));
    for kind in
        [ExchangeType::Direct, ExchangeType::Fanout, ExchangeType::Topic, ExchangeType::Headers]
    {
        assert_eq!(ExchangeType::parse(kind.name()), Ok(kind));
    }
    let mut world = World::new();
    assert_eq!(
        declare(&mut world, |record| record.name = name("")),
        "403 ACCESS_REFUSED - operation not permitted on the default exchange"
    );
}

#[test]
fn exc_03_a_new_exchange_may_not_take_a_reserved_name_or_a_bad_alternate() {
    let mut world = World::new();
    assert_eq!(
        declare(&mut world, |record| record.name = name("amq.x")),
        "403 ACCESS_REFUSED - exchange name 'amq.x' contains reserved prefix 'amq.*'"
    );
    let alternate = table(&[("alternate-exchange", FieldValue::I32(3))]);
    assert_eq!(
        declare(&mut world, |record| record.arguments = alternate),
        "406 PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
    );
    assert!(world.catalog.exchange(&name("x")).is_none());
}

#[test]
fn exc_04_a_redeclare_must_be_equal_in_type_properties_and_alternate() {
    let mut world = World::new();
    world.declare("x", ExchangeType::Direct);
    world.declare("x", ExchangeType::Direct);
    world.declare("amq.topic", ExchangeType::Topic);
    let inequivalent = |what: &str| format!("406 PRECONDITION_FAILED - inequivalent arg {what}");
    assert_eq!(
        declare(&mut world, |record| {
            record.kind = ExchangeType::Fanout;
            record.durable = false;
        }),
        inequivalent(
            "'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'"
        )
    );
    assert_eq!(
        declare(&mut world, |record| record.durable = false),
        inequivalent(
            "'durable' for exchange 'x' in vhost '/': received 'false' but current is 'true'"
        )
    );
    assert_eq!(
        declare(&mut world, |record| record.auto_delete = true),
        inequivalent(
            "'auto_delete' for exchange 'x' in vhost '/': received 'true' but current is 'false'"
        )
    );
    assert_eq!(
        declare(&mut world, |record| record.internal = true),
        inequivalent(
            "'internal' for exchange 'x' in vhost '/': received 'true' but current is 'false'"
        )
    );
    assert_eq!(
        declare(&mut world, |record| record.arguments =
            table(&[("alternate-exchange", text("ae"))])),
        inequivalent(
            "'alternate-exchange' for exchange 'x' in vhost '/': received the value 'ae' of type 'longstr' but current is none"
        )
    );
}

#[test]
fn exc_04_the_alternate_exchange_is_the_one_argument_compared() {
    let mut world = World::new();
    let mut with_alternate = exchange("y", ExchangeType::Fanout);
    with_alternate.arguments = table(&[("alternate-exchange", text("ae"))]);
    world.done(C::DeclareExchange(with_alternate.clone()));
    world.done(C::DeclareExchange(with_alternate));
    assert_eq!(
        world.refusal(C::DeclareExchange(exchange("y", ExchangeType::Fanout))),
        format!(
            "406 PRECONDITION_FAILED - inequivalent arg {}",
            "'alternate-exchange' for exchange 'y' in vhost '/': received none but current is the value 'ae' of type 'longstr'"
        )
    );
}

#[test]
fn exc_05_other_arguments_are_kept_and_not_compared() {
    let mut world = World::new();
    let mut record = exchange("x", ExchangeType::Direct);
    record.arguments = table(&[("x-foo", FieldValue::I64(1)), ("bar", text("baz"))]);
    world.done(C::DeclareExchange(record.clone()));
    world.declare("x", ExchangeType::Direct);
    assert_eq!(world.catalog.exchange(&name("x")), Some(&record));
}

#[test]
fn exc_06_passive_declare_is_a_read() {
    let mut world = World::new();
    world.declare("x", ExchangeType::Direct);
    let told = |text: &str| {
        world.catalog.declared_exchange(&name(text)).map(|_| ()).map_err(|e| e.reply_text())
    };
    assert_eq!(told("x"), Ok(()));
    assert_eq!(told("y"), Err("NOT_FOUND - no exchange 'y' in vhost '/'".to_owned()));
    assert_eq!(
        told(""),
        Err("ACCESS_REFUSED - operation not permitted on the default exchange".to_owned())
    );
}

#[test]
fn exc_07_deleting_what_is_not_there_is_done_and_what_may_not_be_is_told() {
    let mut world = World::new();
    world.done(delete("nothing", false));
    world.done(delete("nothing", true));
    assert_eq!(
        world.refusal(delete("", false)),
        "403 ACCESS_REFUSED - operation not permitted on the default exchange"
    );
    assert_eq!(
        world.refusal(delete("amq.nothing", true)),
        "403 ACCESS_REFUSED - deletion of system exchange 'amq.nothing' in vhost '/' not allowed"
    );
}

#[test]
fn exc_08_if_unused_looks_at_bindings_as_a_source_and_deleting_takes_all_bindings() {
    let mut world = World::new();
    world.declare("x", ExchangeType::Direct);
    world.declare("y", ExchangeType::Fanout);
    world.add("q", 1);
    world.bind(to_queue("x", "k", "q", id(1)));
    world.bind(to_exchange("y", "", "x"));
    assert_eq!(
        world.refusal(delete("x", true)),
        "406 PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"
    );
    world.done(delete("x", false));
    assert_eq!(world.catalog.bindings().count(), 0);
    assert_eq!(world.catalog.exchange(&name("x")), None);
    assert!(world.out.changes.contains(&CatalogKey::Exchange(name("x"))));
    // An exchange that is only a destination is not in use.
    world.declare("x", ExchangeType::Direct);
    world.bind(to_exchange("y", "", "x"));
    world.done(delete("x", true));
    assert_eq!(world.catalog, world.reloaded());
}

#[test]
fn exc_09_an_auto_delete_exchange_goes_with_its_last_binding_as_a_source() {
    let mut world = World::new();
    for text in ["a", "b", "c"] {
        let mut record = exchange(text, ExchangeType::Fanout);
        record.auto_delete = true;
        world.done(C::DeclareExchange(record));
    }
    world.add("q", 1);
    world.add("r", 2);
    // c is only a destination, so it stays; a → b → q is removed from its end.
    world.bind(to_queue("b", "", "q", id(1)));
    world.bind(to_queue("b", "", "r", id(2)));
    world.bind(to_exchange("a", "", "b"));
    world.done(C::Unbind(to_queue("b", "", "r", id(2))));
    assert!(world.catalog.exchange(&name("b")).is_some());
    world.done(C::RemoveQueue { queue: id(1) });
    let own: Vec<_> = names(&world).into_iter().filter(|n| n.len() == 1).collect();
    assert_eq!(own, [short("c")]);
    assert_eq!(world.catalog, world.reloaded());
}

#[test]
fn exc_09_deleting_an_exchange_takes_the_auto_delete_ones_that_lead_only_there() {
    let mut world = World::new();
    world.declare("x", ExchangeType::Fanout);
    let mut record = exchange("a", ExchangeType::Topic);
    record.auto_delete = true;
    world.done(C::DeclareExchange(record));
    world.bind(to_exchange("a", "#", "x"));
    world.bind(to_exchange("a", "#", "a"));
    world.done(delete("x", true));
    assert!(world.catalog.exchange(&name("a")).is_some(), "it is bound to itself still");
    world.done(C::Unbind(to_exchange("a", "#", "a")));
    assert!(world.catalog.exchange(&name("a")).is_none());
    assert_eq!(world.catalog, world.reloaded());
}

#[test]
fn exc_10_an_internal_exchange_is_bound_to_but_not_published_to() {
    let mut world = World::new();
    let mut record = exchange("i", ExchangeType::Fanout);
    record.internal = true;
    world.done(C::DeclareExchange(record));
    world.declare("x", ExchangeType::Fanout);
    world.add("q", 1);
    world.bind(to_exchange("x", "", "i"));
    world.bind(to_queue("i", "", "q", id(1)));
    assert_eq!(world.route("x", ""), [id(1)]);
    let refused = world.route_by("i", &[""], None).unwrap_err();
    assert_eq!(
        refused.exception(&name("i")).reply_text(),
        "ACCESS_REFUSED - cannot publish to internal exchange 'i' in vhost '/'"
    );
}

#[test]
fn exc_11_a_transient_exchange_survives_a_new_life() {
    let mut world = World::new();
    let mut record = exchange("t", ExchangeType::Direct);
    record.durable = false;
    world.done(C::DeclareExchange(record.clone()));
    world.done(C::NewLife { boot: quorate_types::BootNumber(7) });
    assert_eq!(world.catalog.exchange(&name("t")), Some(&record));
}

#[test]
fn an_unknown_virtual_host_is_refused() {
    let mut world = World::new();
    let mut record = exchange("x", ExchangeType::Direct);
    record.name.vhost = short("other");
    assert_eq!(
        world.refusal(C::DeclareExchange(record)),
        "530 NOT_ALLOWED - vhost other not found"
    );
}
