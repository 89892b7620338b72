//! How long a look-up takes. Run in release mode:
//! `cargo test --release -p quorate-catalog --test timing -- --ignored --nocapture`.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a clock is what it is about"
)]

mod common;

use common::*;
use quorate_catalog::{CatalogCommand as C, RouteRequest};
use quorate_types::{Properties, ShortString};
use std::time::Instant;

const QUEUES: u64 = 10_000;
const ROUNDS: u64 = 2_000_000;

/// Nanoseconds for each of `ROUNDS` calls, one key after the other.
fn route_ns(world: &World, exchange: &str, keys: &[ShortString], expected: usize) -> f64 {
    let (vhost, exchange) = (short("/"), short(exchange));
    let mut targets = Vec::with_capacity(16);
    let rounds = ROUNDS / (1 + expected as u64);
    let begun = Instant::now();
    for (_, key) in (0..rounds).zip(keys.iter().cycle()) {
        targets.clear();
        let request = RouteRequest {
            vhost: &vhost,
            exchange: &exchange,
            routing_key: key,
            further_keys: &[],
            properties: &Properties::default(),
            chance: in_turn,
            locality: &Elsewhere::default(),
            by_broker: false,
        };
        world.catalog.route(&request, &mut targets).unwrap();
        assert_eq!(targets.len(), expected);
    }
    begun.elapsed().as_nanos() as f64 / rounds as f64
}

fn keys(shape: impl Fn(u64) -> String) -> Vec<ShortString> {
    // An order that does not follow the layout in memory.
    (0..QUEUES).map(|n| short(&shape(n.wrapping_mul(7_919) % QUEUES))).collect()
}

#[test]
#[ignore = "a measurement"]
fn route_declare_and_remove_with_10_000_queues() {
    let mut world = World::new();
    let begun = Instant::now();
    for number in 0..QUEUES {
        let text = format!("queue-{number}");
        world.add(&text, number + 1);
        world.bind(to_queue("amq.direct", &text, &text, id(number + 1)));
        world.bind(to_queue("amq.topic", &format!("orders.*.{number}.#"), &text, id(number + 1)));
        world.bind(to_queue("amq.fanout", "", &text, id(number + 1)));
    }
    let per = |begun: Instant, steps: u64| begun.elapsed().as_nanos() as f64 / steps as f64;
    println!("add or bind: {:.0} ns a command (4 a queue)", per(begun, 4 * QUEUES));
    let names = keys(|number| format!("queue-{number}"));
    println!("default: {:.0} ns", route_ns(&world, "", &names, 1));
    println!("default, always the same: {:.0} ns", route_ns(&world, "", &names[..1], 1));
    println!("direct: {:.0} ns", route_ns(&world, "amq.direct", &names, 1));
    let topics = keys(|number| format!("orders.eu.{number}.paid"));
    println!("topic: {:.0} ns", route_ns(&world, "amq.topic", &topics, 1));
    println!("unroutable: {:.0} ns", route_ns(&world, "amq.direct", &topics, 0));
    let fanout = route_ns(&world, "amq.fanout", &names, 10_000);
    println!("fanout to 10,000: {fanout:.0} ns, {:.1} ns a queue", fanout / 10_000.0);
    let begun = Instant::now();
    for number in 0..QUEUES {
        world.done(C::RemoveQueue { queue: id(number + 1) });
    }
    println!("remove: {:.0} ns a queue with its 3 bindings", per(begun, QUEUES));
    assert_eq!(world.catalog.bindings().count(), 0);
}
