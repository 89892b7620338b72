//! What a change would do, and where settings come from (POL-07, OPP-03).

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use proptest::prelude::*;
use quorate_catalog::{
    CatalogCommand as C, Definitions, ExchangeType, ParameterName, ParameterRecord, PolicyKind,
    PolicyName, QueueEntry, Setting, SettingSource,
};
use quorate_types::{FieldValue, MachineVersion, QueueType};
use serde_json::{Value, json};

const USER: PolicyKind = PolicyKind::User;
const OPERATOR: PolicyKind = PolicyKind::Operator;

fn add(world: &mut World, text: &str, index: u64, arguments: &[(&str, FieldValue)]) -> QueueEntry {
    let entry = QueueEntry {
        queue_type: QueueType::Quorum,
        arguments: table(arguments),
        ..queue(text, id(index))
    };
    world.done(C::AddQueue(entry.clone()));
    entry
}

fn setting(world: &World, entry: &QueueEntry, name: &str) -> (Value, SettingSource) {
    let all = world.catalog.settings_of(entry);
    let Setting { value, source, .. } = all.into_iter().find(|it| it.setting == name).unwrap();
    (value, source)
}

#[test]
fn pol_07_a_setting_comes_from_what_gives_it_the_value_in_force() {
    let mut world = World::new();
    let entry = add(
        &mut world,
        "q",
        1,
        &[
            ("x-max-length", FieldValue::I64(50)),
            ("x-message-ttl", FieldValue::I64(1_000)),
            ("x-overflow", text("reject-publish")),
            ("x-delivery-limit", FieldValue::I64(-1)),
        ],
    );
    let policy_json = r#"{"max-length":10,"message-ttl":5000,"overflow":"drop-head",
        "delivery-limit":5,"dead-letter-exchange":"d","dead-letter-strategy":"at-least-once"}"#;
    world.done(C::SetPolicy(policy("p", USER, "^q", "all", 0, policy_json)));
    world.done(C::SetPolicy(policy("o", OPERATOR, "^q", "all", 0, r#"{"max-length":7}"#)));
    let (p, o) = (short("p"), short("o"));
    for (name, value, source) in [
        ("max-length", json!(7), SettingSource::OperatorPolicy(o)),
        ("message-ttl", json!(1_000), SettingSource::Argument("x-message-ttl")),
        // For a quorum queue the policy wins.
        ("overflow", json!("drop-head"), SettingSource::Policy(p.clone())),
        // No limit gives way to one (DLM-01).
        ("delivery-limit", json!(5), SettingSource::Policy(p.clone())),
        ("dead-letter-exchange", json!("d"), SettingSource::Policy(p.clone())),
        ("dead-letter-strategy", json!("at-least-once"), SettingSource::Policy(p)),
        ("dead-letter-routing-key", Value::Null, SettingSource::Default),
        ("expires", Value::Null, SettingSource::Default),
        ("dead_letters_max", json!(1_000_000), SettingSource::Default),
    ] {
        assert_eq!(setting(&world, &entry, name), (value, source), "{name}");
    }
    let record =
        ParameterRecord::parse(ParameterName::Global(short("dead_letters_max")), "5").unwrap();
    world.done(C::SetParameter(record));
    let expected = (json!(5), SettingSource::GlobalParameter("dead_letters_max"));
    assert_eq!(setting(&world, &entry, "dead_letters_max"), expected);
    let unlimited = add(&mut world, "u", 2, &[("x-delivery-limit", FieldValue::I64(-1))]);
    let expected = (Value::Null, SettingSource::Argument("x-delivery-limit"));
    assert_eq!(setting(&world, &unlimited, "delivery-limit"), expected);
}

#[test]
fn rqu_07_pol_07_it_is_shown_where_delayed_retry_comes_from() {
    let mut world = World::founded(3, 2);
    let arguments =
        [("x-delayed-retry-min", FieldValue::I32(100)), ("x-delayed-retry-type", text("all"))];
    let entry = add(&mut world, "q", 1, &arguments);
    let off = (json!("disabled"), SettingSource::Default);
    assert_eq!(setting(&world, &entry, "delayed-retry-type"), off, "an earlier machine version");
    world.done(C::RaiseMachine(MachineVersion::RETRIES));
    let json = r#"{"delayed-retry-type":"failed","delayed-retry-max":900,"delayed-retry-min":50}"#;
    world.done(C::SetPolicy(policy("p", USER, "^q", "all", 0, json)));
    let of_policy = SettingSource::Policy(short("p"));
    for (name, value, source) in [
        ("delayed-retry-type", json!("failed"), of_policy.clone()),
        ("delayed-retry-min", json!(100), SettingSource::Argument("x-delayed-retry-min")),
        ("delayed-retry-max", json!(900), of_policy),
        ("delayed-retry-multiplier", Value::Null, SettingSource::Default),
    ] {
        assert_eq!(setting(&world, &entry, name), (value, source), "{name}");
    }
}

#[test]
fn a_policy_is_tried_out_on_a_copy() {
    let mut world = World::new();
    let entry = add(&mut world, "long", 1, &[]);
    add(&mut world, "other", 2, &[]);
    let set = C::SetPolicy(policy("p", USER, "^long", "all", 0, r#"{"max-length":3}"#));
    let before = world.catalog.clone();
    let after = world.catalog.with(set.clone()).unwrap();
    assert_eq!(world.catalog, before);
    let changed: Vec<_> = before.changed_queues(&after).collect();
    let [change] = changed.as_slice() else { unreachable!("{changed:?}") };
    assert_eq!((&change.entry, change.after.length_max), (&entry, Some(3)));
    let [it] = change.changes.as_slice() else { unreachable!("{change:?}") };
    assert_eq!((it.setting, &it.before, &it.after), ("max-length", &Value::Null, &json!(3)));
    assert_eq!(it.source, SettingSource::Policy(short("p")));
    world.done(set);
    let name = PolicyName { kind: USER, vhost: short("/"), name: short("p") };
    let after = world.catalog.with(C::ClearPolicy(name)).unwrap();
    assert_eq!(world.catalog.changed_queues(&after).count(), 1);
    let part = world.catalog.policies_of(&short("/"));
    let name = PolicyName { kind: USER, vhost: short("/"), name: short("p") };
    let (of_part, of_all) = (part.with(C::ClearPolicy(name)).unwrap(), after);
    let changes: Vec<_> = part.changed_queues(&of_part).map(|it| (it.entry, it.changes)).collect();
    let expected = world.catalog.changed_queues(&of_all).map(|it| (it.entry, it.changes));
    assert_eq!(changes, expected.collect::<Vec<_>>(), "a part of the catalog is enough");
    let none = world.catalog.policies_of(&short("none"));
    assert_eq!(none.queues().count(), 0);
    let mut refused = policy("p", USER, "", "all", 0, r#"{"max-length":3}"#);
    refused.vhost = short("none");
    for catalog in [&world.catalog, &none] {
        let refused = catalog.with(C::SetPolicy(refused.clone())).unwrap_err();
        assert!(refused.explanation.contains("none"), "{refused}");
    }
}

#[test]
fn definitions_make_and_change_what_they_name() {
    let mut world = World::new();
    add(&mut world, "there", 1, &[]);
    world.declare("e", ExchangeType::Direct);
    let text = json!({
        "policies": [{ "vhost": "/", "name": "p", "pattern": "^t", "definition": { "max-length": 2 } }],
        "exchanges": [{ "vhost": "/", "name": "e", "type": "direct", "durable": true,
            "auto_delete": false, "internal": false, "arguments": {} }],
        "queues": [{ "vhost": "/", "name": "new", "durable": true, "auto_delete": false,
            "arguments": {} }],
        "bindings": [{ "vhost": "/", "source": "e", "destination": "new", "destination_type": "queue",
            "routing_key": "k", "arguments": {} }],
        "vhosts": [{ "name": "/", "metadata": { "description": "changed" } }],
    });
    let no_hash = |_: &[u8]| Err("no passwords".to_owned());
    let definitions = Definitions::read(
        &text.to_string(),
        &world.catalog,
        session(1, 1),
        QueueType::Quorum,
        &no_hash,
    )
    .unwrap();
    let outcome = definitions.outcome(&world.catalog);
    assert_eq!(
        outcome.made,
        [
            "policy 'p' in vhost '/'",
            "queue 'new' in vhost '/'",
            "binding from 'e' to queue 'new' in vhost '/'",
        ]
    );
    assert_eq!(outcome.changed, ["vhost '/'"]);
    let mut both = [outcome.made, outcome.changed].concat();
    let mut known = definitions.changed.clone();
    both.sort();
    known.sort();
    assert_eq!(both, known);
    let changed: Vec<_> = world.catalog.changed_queues(&outcome.catalog).collect();
    assert_eq!(changed.len(), 1);
}

/// Every setting, with values that differ.
const PARTS: [&str; 12] = [
    r#""max-length":5"#,
    r#""max-length-bytes":5"#,
    r#""message-ttl":5"#,
    r#""expires":5"#,
    r#""overflow":"reject-publish""#,
    r#""delivery-limit":5"#,
    r#""delivery-count-mode":"failures""#,
    r#""dead-letter-exchange":"d""#,
    r#""dead-letter-exchange":"e","dead-letter-routing-key":"k""#,
    r#""dead-letter-exchange":"f","dead-letter-strategy":"at-least-once""#,
    r#""consumer-timeout":5"#,
    r#""max-length":4,"message-ttl":4"#,
];

proptest! {
    /// A queue is named exactly if its settings differ, and then with a setting that differs: so every
    /// setting that policies can change is shown.
    #[test]
    fn every_difference_is_named(first in 0..PARTS.len(), second in 0..PARTS.len(), operator in any::<bool>()) {
        let mut world = World::new();
        let entry = add(&mut world, "q", 1, &[("x-max-length", FieldValue::I64(4))]);
        let json = |part: usize| format!("{{{}}}", PARTS.get(part).unwrap());
        world.done(C::SetPolicy(policy("p", USER, "", "all", 0, &json(first))));
        // Operator policies cannot have every key.
        let (kind, set) = match operator {
            true => (OPERATOR, r#"{"max-length":3,"message-ttl":9}"#.to_owned()),
            false => (USER, json(second)),
        };
        let after = world.catalog.with(C::SetPolicy(policy("p", kind, "", "all", 0, &set))).unwrap();
        let differs = !world.catalog.config_of(&entry).agrees_with(&after.config_of(&entry));
        let changed: Vec<_> = world.catalog.changed_queues(&after).collect();
        prop_assert_eq!(changed.len(), usize::from(differs));
        for change in changed {
            prop_assert!(!change.changes.is_empty());
            for it in change.changes {
                prop_assert_ne!(it.before, it.after);
            }
        }
    }
}
