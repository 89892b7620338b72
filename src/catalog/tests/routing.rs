//! Routing (RTE-01 to RTE-10, PRP-08), rule by rule.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use quorate_catalog::{
    Binding, CatalogCommand as C, ExchangeType, RouteError, bound_position, server_given_name,
};
use quorate_types::{FieldTable, FieldValue, Properties, QueueId};

#[test]
fn rte_01_the_default_exchange_leads_to_the_queue_of_that_name() {
    let mut world = World::new();
    world.add("q", 1);
    world.add("r", 2);
    assert_eq!(world.route("", "q"), [id(1)]);
    assert_eq!(world.route("", "nothing"), []);
    assert_eq!(world.route_by("", &["q", "r", "nothing"], None), Ok(vec![id(1), id(2)]));
}

#[test]
fn nam_08_the_default_exchange_knows_server_given_names_until_their_run_is_over() {
    let mut world = World::new();
    world.started(3, 33);
    let queue = bound_id(3, 1, bound_position(&short("/"), 5));
    let text = server_given_name(session(3, 1), 5);
    assert_eq!(world.route("", text.as_str()), [queue]);
    // With a binding the queue has an entry too, and it is still one queue.
    world.done(C::AddQueue(common::queue(text.as_str(), queue)));
    assert_eq!(world.route_by("", &[text.as_str(), text.as_str()], None), Ok(vec![queue]));
    world.started(3, 34);
    assert_eq!(world.route("", text.as_str()), []);
    assert_eq!(world.catalog.queue_count(), 0);
}

#[test]
fn nam_08_a_made_up_name_of_a_node_that_is_no_member_is_nobodys() {
    let mut world = World::new();
    world.started(3, 33);
    let text = server_given_name(session(10, 1), 5);
    assert_eq!(world.route("", text.as_str()), []);
}

/// Starts are log indexes. This copy knows all up to its own, and may lack a few later ones.
#[test]
fn nam_08_a_made_up_name_of_a_start_that_cannot_be_is_nobodys() {
    let mut world = World::new();
    world.started(3, 33);
    world.add("q", 1);
    let here = world.catalog.version().0;
    let is_routed =
        |start| !world.route("", server_given_name(session(3, start), 5).as_str()).is_empty();
    assert!(is_routed(1) && is_routed(here + 1) && is_routed(here + 4_096));
    assert!(!is_routed(here) && !is_routed(here + 4_097) && !is_routed((1 << 48) - 1));
}

#[test]
fn rte_02_a_direct_exchange_compares_keys() {
    let mut world = World::new();
    world.add("q", 1);
    world.add("r", 2);
    world.bind(to_queue("amq.direct", "k", "q", id(1)));
    world.bind(to_queue("amq.direct", "k", "r", id(2)));
    world.bind(to_queue("amq.direct", "l", "r", id(2)));
    assert_eq!(world.route("amq.direct", "k"), [id(1), id(2)]);
    assert_eq!(world.route("amq.direct", "l"), [id(2)]);
    assert_eq!(world.route("amq.direct", "K"), []);
    assert_eq!(world.route("amq.direct", ""), []);
}

#[test]
fn rte_03_a_fanout_exchange_ignores_the_key() {
    let mut world = World::new();
    for number in 1..=100 {
        world.add(&format!("q{number}"), number);
        world.bind(to_queue("amq.fanout", &number.to_string(), &format!("q{number}"), id(number)));
    }
    world.done(C::RemoveQueue { queue: id(50) });
    let expected: Vec<QueueId> = (1..=100).filter(|n| *n != 50).map(id).collect();
    assert_eq!(world.route("amq.fanout", "whatever"), expected);
}

/// Patterns, keys, and whether they match.
const TOPICS: [(&str, &str, bool); 33] = [
    ("a.b", "a.b", true),
    ("a.b", "a.c", false),
    ("a.b", "a", false),
    ("a", "a.b", false),
    ("a.*", "a.b", true),
    ("a.*", "a", false),
    ("a.*", "a.b.c", false),
    ("a.#", "a", true),
    ("a.#", "a.b", true),
    ("a.#", "a.b.c", true),
    ("a.#", "b", false),
    ("#", "", true),
    ("#", "a.b.c", true),
    ("", "", true),
    ("", "a", false),
    ("*", "", false),
    ("*", "a", true),
    ("a..b", "a..b", true),
    ("a.*.b", "a..b", true),
    ("a.b", "a..b", false),
    (".", ".", true),
    ("*.*", ".", true),
    ("a*", "ab", false),
    ("a*", "a*", true),
    ("a#.b", "a#.b", true),
    ("a.#.z", "a.z", true),
    ("a.#.z", "a.b.c.z", true),
    ("a.#.z", "a.z.b", false),
    ("#.a.#", "x.a.y", true),
    ("#.a.#", "a", true),
    ("#.a.#", "x.y", false),
    ("#.#", "", true),
    ("*.#.*", "a", false),
];

#[test]
fn rte_04_topic_patterns_match_words() {
    for (pattern, key, fits) in TOPICS {
        let mut world = World::new();
        world.add("q", 1);
        world.bind(to_queue("amq.topic", pattern, "q", id(1)));
        assert_eq!(world.route("amq.topic", key) == [id(1)], fits, "{pattern:?} {key:?}");
    }
}

#[test]
fn rte_04_patterns_that_share_words_do_not_disturb_each_other() {
    let mut world = World::new();
    for (number, (pattern, ..)) in (1..).zip(TOPICS) {
        world.add(&format!("q{number}"), number);
        world.bind(to_queue("amq.topic", pattern, &format!("q{number}"), id(number)));
    }
    for (_, key, _) in TOPICS {
        let found = world.route("amq.topic", key);
        for (number, (pattern, of_key, fits)) in (1..).zip(TOPICS) {
            if of_key == key {
                assert_eq!(found.contains(&id(number)), fits, "{pattern:?} {key:?}");
            }
        }
    }
}

/// A long key and patterns with two `#` must not make the search take exponential time (BND-09).
#[test]
fn rte_04_a_key_of_128_words_against_two_hashes_is_found_once() {
    let mut world = World::new();
    let key = ["a"; 128].join(".");
    world.add("q", 1);
    for pattern in ["#.a.#", "#.#", "#.*.#", "#.a.a.#", "#.a.#.b", "*.#.a.#.*"] {
        let pattern = pattern.to_owned();
        if pattern.matches('#').count() <= 2 {
            world.bind(to_queue("amq.topic", &pattern, "q", id(1)));
        }
    }
    assert_eq!(world.route("amq.topic", &key), [id(1)]);
}

fn headers_world(arguments: &[(&str, FieldValue)]) -> World {
    let mut world = World::new();
    world.add("q", 1);
    let mut binding = to_queue("amq.headers", "", "q", id(1));
    binding.arguments = table(arguments);
    world.bind(binding);
    world
}

fn fits(world: &World, headers: &[(&str, FieldValue)]) -> bool {
    world.route_by("amq.headers", &["k"], Some(&table(headers))) == Ok(vec![id(1)])
}

#[test]
fn rte_05_x_match_says_how_many_and_which_arguments_count() {
    let (a, b, x) = (("a", text("1")), ("b", text("2")), ("x-c", text("3")));
    let mode = |mode: &str| ("x-match", text(mode));
    let all = headers_world(&[a.clone(), b.clone(), x.clone()]);
    assert!(fits(&all, &[a.clone(), b.clone()]), "x- arguments are not compared");
    assert!(!fits(&all, std::slice::from_ref(&a)));
    let any = headers_world(&[mode("any"), a.clone(), b.clone(), x.clone()]);
    assert!(fits(&any, &[b.clone(), ("c", text("9"))]));
    assert!(!fits(&any, std::slice::from_ref(&x)));
    let all_with_x = headers_world(&[mode("all-with-x"), a.clone(), x.clone()]);
    assert!(fits(&all_with_x, &[x.clone(), a.clone()]));
    assert!(!fits(&all_with_x, std::slice::from_ref(&a)));
    let any_with_x = headers_world(&[mode("any-with-x"), a.clone(), x.clone()]);
    assert!(fits(&any_with_x, std::slice::from_ref(&x)));
    assert!(!fits(&any_with_x, &[mode("any-with-x")]), "x-match itself is never compared");
}

#[test]
fn rte_06_void_asks_for_presence_and_values_compare_across_types() {
    let void = headers_world(&[("a", FieldValue::Void)]);
    assert!(fits(&void, &[("a", text("anything"))]));
    assert!(fits(&void, &[("a", FieldValue::Void)]));
    assert!(!fits(&void, &[("b", text("a"))]));
    let one = headers_world(&[("a", FieldValue::I32(1))]);
    assert!(fits(&one, &[("a", FieldValue::I64(1))]));
    assert!(fits(&one, &[("a", FieldValue::U8(1))]));
    assert!(fits(&one, &[("a", FieldValue::F64(1.0))]));
    assert!(!fits(&one, &[("a", FieldValue::F64(1.5))]));
    assert!(!fits(&one, &[("a", text("1"))]));
    assert!(!fits(&one, &[("a", FieldValue::Bool(true))]));
    assert!(!fits(&one, &[("a", FieldValue::Void)]));
    let text_one = headers_world(&[("a", text("1"))]);
    assert!(!fits(&text_one, &[("a", FieldValue::I32(1))]));
    assert!(fits(&text_one, &[("a", FieldValue::ByteArray("1".into()))]));
    let list = headers_world(&[("a", FieldValue::Array(vec![text("1")]))]);
    assert!(fits(&list, &[("a", FieldValue::Array(vec![text("1")]))]));
    assert!(!fits(&list, &[("a", FieldValue::Array(vec![]))]));
}

#[test]
fn rte_07_all_of_nothing_matches_and_any_of_nothing_does_not() {
    let all = headers_world(&[("x-other", text("1"))]);
    assert_eq!(all.route_by("amq.headers", &[""], None), Ok(vec![id(1)]));
    assert!(fits(&all, &[("h", text("v"))]));
    let any = headers_world(&[("x-match", text("any"))]);
    assert_eq!(any.route_by("amq.headers", &[""], None), Ok(vec![]));
    assert!(!fits(&any, &[("h", text("v"))]));
}

#[test]
fn rte_09_further_keys_route_direct_topic_and_default_but_not_fanout_or_headers() {
    let mut world = World::new();
    for (number, text) in [(1, "q"), (2, "r"), (3, "s")] {
        world.add(text, number);
        world.bind(to_queue("amq.direct", text, text, id(number)));
        world.bind(to_queue("amq.topic", &format!("{text}.#"), text, id(number)));
    }
    let expected = Ok(vec![id(1), id(3)]);
    for (exchange, keys) in
        [("", ["q", "s"]), ("amq.direct", ["q", "s"]), ("amq.topic", ["q.x", "s"])]
    {
        assert_eq!(world.route_by(exchange, &keys, None), expected, "{exchange}");
    }
    world.bind(to_queue("amq.fanout", "", "q", id(1)));
    assert_eq!(world.route_by("amq.fanout", &["q", "s"], None), Ok(vec![id(1)]));
}

#[test]
fn rte_10_prp_08_a_queue_gets_one_copy_by_whatever_keys_and_bindings() {
    let mut world = World::new();
    world.add("c", 1);
    assert_eq!(world.route_by("", &["c", "c", "c"], None), Ok(vec![id(1)]));
    for key in ["a", "b", "#", "*", "a.#", "#.b"] {
        world.bind(to_queue("amq.topic", key, "c", id(1)));
        world.bind(to_queue("amq.direct", key, "c", id(1)));
    }
    assert_eq!(world.route_by("amq.topic", &["a", "b", "a.b"], None), Ok(vec![id(1)]));
    assert_eq!(world.route_by("amq.direct", &["a", "b", "a.b"], None), Ok(vec![id(1)]));
    // Earlier items of the list stay as they are, and do not take part.
    let request_into = |mut targets: Vec<QueueId>| {
        let (vhost, exchange, key) = (short("/"), short("amq.topic"), short("a"));
        let request = quorate_catalog::RouteRequest {
            vhost: &vhost,
            exchange: &exchange,
            routing_key: &key,
            further_keys: &[],
            properties: &Properties::default(),
            chance: in_turn,
            locality: &Elsewhere::default(),
            by_broker: false,
        };
        world.catalog.route(&request, &mut targets).unwrap();
        targets
    };
    assert_eq!(request_into(vec![id(9), id(1)]), [id(9), id(1), id(1)]);
}

/// The result stays in proportion to the number of bindings, however many keys match each of them.
#[test]
fn many_keys_take_no_more_than_there_are_bindings() {
    let mut world = World::new();
    let patterns = ["#", "*", "#.#", "*.#", "#.*"];
    for number in 1..=100 {
        let queue = format!("q{number}");
        world.add(&queue, number);
        for pattern in patterns {
            world.bind(to_queue("amq.topic", pattern, &queue, id(number)));
        }
    }
    let (vhost, exchange, key) = (short("/"), short("amq.topic"), short("k"));
    let further_keys: Vec<_> = (0..1_000).map(|key| short(&key.to_string())).collect();
    let request = quorate_catalog::RouteRequest {
        vhost: &vhost,
        exchange: &exchange,
        routing_key: &key,
        further_keys: &further_keys,
        properties: &Properties::default(),
        chance: in_turn,
        locality: &Elsewhere::default(),
        by_broker: false,
    };
    let mut targets = Vec::new();
    world.catalog.route(&request, &mut targets).unwrap();
    assert_eq!(targets.len(), 100);
    assert!(targets.capacity() <= 2 * 100 * patterns.len(), "{}", targets.capacity());
}

/// As many headers as fit into a frame, against a binding with as many other names: eight times as many take about
/// eight times as long. If each were compared with each, they would take 64 times as long.
/// The machine may stand still for a moment: the fastest attempt of several counts.
#[test]
fn headers_are_matched_by_look_up() {
    let fastest = |count| (0..5).map(|_| match_many_headers(count)).min().unwrap();
    let (few, many) = (fastest(2_500), fastest(20_000));
    assert!(many < few * 30, "{few:?}, then {many:?}");
}

/// Time for two look-ups.
#[expect(clippy::disallowed_methods, reason = "a clock is what it is about")]
fn match_many_headers(count: u32) -> std::time::Duration {
    let mut world = World::new();
    world.add("q", 1);
    let fields = |letter: char| {
        let field = move |number: u32| (short(&format!("{letter}{number:05}")), FieldValue::Void);
        (0..count).map(field)
    };
    let mut arguments = FieldTable(fields('b').collect());
    arguments.0.push((short("x-match"), text("any")));
    world.bind(Binding { arguments, ..to_queue("amq.headers", "", "q", id(1)) });
    let mut headers = FieldTable(fields('h').rev().collect());
    let begun = std::time::Instant::now();
    assert_eq!(world.route_by("amq.headers", &[""], Some(&headers)), Ok(vec![]));
    headers.0.push((short("b00007"), FieldValue::Bool(true)));
    assert_eq!(world.route_by("amq.headers", &[""], Some(&headers)), Ok(vec![id(1)]));
    begun.elapsed()
}

#[test]
fn pub_01_an_exchange_that_is_not_there_is_told() {
    let world = World::new();
    let refused = world.route_by("x", &["k"], None);
    assert_eq!(refused, Err(RouteError::NoExchange));
    assert_eq!(
        RouteError::NoExchange.exception(&name("x")).reply_text(),
        "NOT_FOUND - no exchange 'x' in vhost '/'"
    );
    assert_eq!(world.route_by("amq.rabbitmq.trace", &["k"], None), Err(RouteError::Internal));
}

#[test]
fn dlx_07_the_broker_itself_routes_through_internal_exchanges() {
    let mut world = World::new();
    world.add("q", 1);
    world.bind(to_queue("amq.rabbitmq.trace", "#", "q", id(1)));
    let (vhost, exchange, key) = (short("/"), short("amq.rabbitmq.trace"), short("k"));
    let request = quorate_catalog::RouteRequest {
        vhost: &vhost,
        exchange: &exchange,
        routing_key: &key,
        further_keys: &[],
        properties: &Properties::default(),
        chance: in_turn,
        locality: &Elsewhere::default(),
        by_broker: true,
    };
    let mut targets = Vec::new();
    world.catalog.route(&request, &mut targets).unwrap();
    assert_eq!(targets, [id(1)]);
}

#[test]
fn headers_that_cannot_be_read_count_as_none() {
    let mut world = headers_world(&[("a", FieldValue::Void)]);
    world.declare("f", ExchangeType::Headers);
    world.bind(to_queue("f", "", "q", id(1)));
    let broken = bytes::Bytes::from_static(b"\x05abc");
    let (vhost, exchange, key) = (short("/"), short("f"), short("k"));
    let request = quorate_catalog::RouteRequest {
        vhost: &vhost,
        exchange: &exchange,
        routing_key: &key,
        further_keys: &[],
        properties: &Properties { headers: Some(broken), ..Properties::default() },
        chance: in_turn,
        locality: &Elsewhere::default(),
        by_broker: false,
    };
    let mut targets = Vec::new();
    world.catalog.route(&request, &mut targets).unwrap();
    assert_eq!(targets, [id(1)]);
}

#[test]
fn ae_01_to_03_an_exchange_without_a_destination_leads_to_its_alternate() {
    let mut world = World::new();
    let with_alternate = |text: &str, alternate: &str| {
        let mut record = exchange(text, ExchangeType::Direct);
        let value = FieldValue::text(alternate);
        record.arguments = FieldTable(vec![(short("alternate-exchange"), value)]);
        C::DeclareExchange(record)
    };
    world.done(with_alternate("a", "b"));
    world.done(with_alternate("b", "c"));
    // A cycle ends (AE-02).
    world.done(with_alternate("c", "a"));
    world.done(with_alternate("lonely", "missing"));
    world.add("q", 1);
    world.add("r", 2);
    world.bind(to_queue("a", "k", "q", id(1)));
    world.bind(to_queue("c", "other", "r", id(2)));
    assert_eq!(world.route("a", "k"), [id(1)]);
    assert_eq!(world.route("a", "other"), [id(2)]);
    assert_eq!(world.route("a", "nothing"), []);
    assert_eq!(world.route("lonely", "k"), []);
    // AE-03, AE-05: the alternates that the operator is warned of.
    assert_eq!(world.catalog.alternate_of(&name("a")), Some(short("b")));
    assert_eq!(world.catalog.alternate_of(&name("amq.direct")), None);
    assert_eq!(world.catalog.alternate_of(&name("")), None);
    assert_eq!(world.catalog.missing_alternate(&name("lonely")), Some(name("missing")));
    assert_eq!(world.catalog.missing_alternate(&name("a")), None);
}
