//! Refused policies and their error texts (POL-06, POL-20 to POL-24, OPP-01). The nouns were
//! compared with RabbitMQ 4.0.5.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use quorate_catalog::{CatalogCommand as C, PolicyDefinition, PolicyKind, PolicyText};
use quorate_types::QueueType;

const USER: PolicyKind = PolicyKind::User;
const OPERATOR: PolicyKind = PolicyKind::Operator;

fn set(world: &mut World, text: &str, pattern: &str, apply_to: &str, priority: i64, json: &str) {
    world.done(C::SetPolicy(policy(text, USER, pattern, apply_to, priority, json)));
}

fn in_force(world: &World, queue: &str, queue_type: QueueType) -> Option<String> {
    let policies = world.catalog.queue_policies(&name(queue), queue_type);
    policies.policy.map(|policy| policy.name.to_string())
}

/// The error text for an invalid policy.
fn refused(kind: PolicyKind, pattern: &str, apply_to: &str, definition: &str) -> String {
    let (vhost, name) = (short("/"), short("p"));
    let text = PolicyText { kind, vhost: &vhost, name: &name, pattern, apply_to, priority: 0 };
    text.parse(definition).unwrap_err().to_string()
}

fn definition(kind: PolicyKind, json: &str) -> PolicyDefinition {
    if json == "{}" {
        return PolicyDefinition::default();
    }
    policy("p", kind, "", "all", 0, json).definition
}

#[test]
fn pol_20_unknown_keys_and_empty_definitions_are_named() {
    let told = |json: &str| refused(USER, "", "all", json);
    let unknown =
        |what: &str| format!("Validation failed\n\n{what} are not recognised policy settings");
    assert_eq!(told(r#"{"foo":3}"#), unknown("[{<<\"foo\">>,3}]"));
    assert_eq!(
        told(r#"{"max-length":1,"z":[1,true,null],"a":{"k":"v"}}"#),
        unknown("[{<<\"a\">>,#{<<\"k\">> => <<\"v\">>}},{<<\"z\">>,[1,true,null]}]")
    );
    assert_eq!(told("{}"), "Validation failed\n\nno policy provided");
    assert_eq!(told("[]"), "Validation failed\n\ndefinition must be a dictionary: []");
}

#[test]
fn pol_06_what_a_queue_is_no_policy_says() {
    for key in ["queue-type", "single-active-consumer", "max-priority", "exclusive", "durable"] {
        let told = refused(USER, "", "all", &format!("{{\"{key}\":1}}"));
        assert!(told.ends_with("are not recognised policy settings"), "{key}: {told}");
    }
}

#[test]
fn pol_21_wrong_values_are_named() {
    let wrong = [
        (r#"{"message-ttl":-1}"#, "-1 is not a valid message TTL"),
        (r#"{"message-ttl":315360000001}"#, "315360000001 is not a valid message TTL"),
        (r#"{"message-ttl":"1"}"#, "<<\"1\">> is not a valid message TTL"),
        (r#"{"expires":0}"#, "0 is not a valid queue expiry"),
        (r#"{"max-length":-1}"#, "-1 is not a valid maximum length"),
        (r#"{"max-length":1.5}"#, "1.5 is not a valid maximum length"),
        (r#"{"max-length-bytes":true}"#, "true is not a valid maximum length in bytes"),
        (r#"{"delivery-limit":"x"}"#, "<<\"x\">> is not a valid delivery limit"),
        (r#"{"overflow":"foo"}"#, "<<\"foo\">> is not a valid overflow value"),
        (r#"{"dead-letter-exchange":1}"#, "1 is not a valid dead letter exchange name"),
        (r#"{"dead-letter-routing-key":1}"#, "1 is not a valid dead letter routing key"),
        (r#"{"dead-letter-strategy":"x"}"#, "<<\"x\">> is not a valid dead letter strategy"),
        (r#"{"alternate-exchange":[]}"#, "[] is not a valid alternate exchange name"),
        (r#"{"consumer-timeout":-5}"#, "-5 is not a valid consumer timeout"),
        (r#"{"queue-leader-locator":"x"}"#, "<<\"x\">> is not a valid queue leader locator value"),
        (r#"{"max-in-memory-length":-1}"#, "-1 is not a valid maximum memory in bytes"),
        (r#"{"max-in-memory-bytes":-1}"#, "-1 is not a valid maximum memory in bytes"),
        (r#"{"queue-mode":"x"}"#, "<<\"x\">> is not a valid queue-mode value"),
        (r#"{"queue-version":3}"#, "3 is not a valid queue-version value"),
        (r#"{"target-group-size":0}"#, "0 is not a valid qq target count value"),
        (r#"{"initial-cluster-size":-1}"#, "-1 is not a valid cluster size"),
        (r#"{"max-age":"7x"}"#, "<<\"7x\">> is not a valid max age"),
        (r#"{"stream-max-segment-size-bytes":1.0}"#, "1.0 is not a valid segment size"),
        (
            r#"{"stream-filter-size-bytes":256}"#,
            "256 is not a valid filter size. Valid range is 16-255",
        ),
        (
            r#"{"dead-letter-exchange":{"a":1}}"#,
            "#{<<\"a\">> => 1} is not a valid dead letter exchange name",
        ),
    ];
    for (json, told) in wrong {
        assert_eq!(refused(USER, "", "all", json), format!("Validation failed\n\n{told}"));
    }
    // Values are checked before unknown keys.
    let both = refused(USER, "", "all", r#"{"foo":1,"expires":0}"#);
    assert_eq!(both, "Validation failed\n\n0 is not a valid queue expiry");
}

#[test]
fn pol_22_apply_to_and_pattern_are_checked() {
    let fine = r#"{"max-length":1}"#;
    assert_eq!(
        refused(USER, "", "foo", fine),
        "Validation failed\n\napply-to 'foo' unrecognised; should be one of: 'queues', \
         'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'"
    );
    let pattern = |pattern: &str| refused(USER, pattern, "all", fine);
    let invalid = |what: &str| {
        format!("Validation failed\n\npattern should be regular expression but is invalid: {what}")
    };
    assert_eq!(pattern("("), invalid("{\"missing )\",1}"));
    assert_eq!(pattern("a)"), invalid("{\"unmatched parentheses\",1}"));
    assert_eq!(pattern("*"), invalid("{\"nothing to repeat\",0}"));
    assert_eq!(pattern("[a"), invalid("{\"missing terminating ] for character class\",2}"));
    let long = "x".repeat(1_025);
    assert_eq!(pattern(&long), "Validation failed\n\npattern must not exceed 1024 bytes");
    // All errors are reported together.
    let told = refused(USER, "(", "foo", "{}");
    let begins: Vec<_> = told.lines().skip(2).map(|line| line.split(' ').next()).collect();
    assert_eq!(begins, [Some("no"), Some("apply-to"), Some("pattern")]);
}

#[test]
fn pol_22_a_pattern_is_bounded_in_size_and_in_time() {
    let large = refused(USER, "(a{1000}){1000}", "all", r#"{"max-length":1}"#);
    assert!(large.contains("regular expression is too large"), "{large}");
    let deep = "(".repeat(500) + &")".repeat(500);
    assert!(refused(USER, &deep, "all", r#"{"max-length":1}"#).contains("is invalid"));
    let mut world = World::new();
    // With backtracking this pattern takes exponential time.
    set(&mut world, "p", "^(a+)+$", "all", 0, r#"{"max-length":1}"#);
    assert_eq!(in_force(&world, &("a".repeat(254) + "b"), QueueType::Classic), None);
}

#[test]
fn pol_23_what_is_not_json_is_told() {
    assert_eq!(
        refused(USER, "", "all", "junk"),
        "Could not parse JSON document: {error,{failed_to_decode_json,<<\"junk\">>}}"
    );
}

#[test]
fn pol_24_delayed_retries_need_a_minimum_below_the_maximum() {
    let told = |json: &str| refused(USER, "", "all", json);
    assert!(told(r#"{"delayed-retry-type":"all"}"#).contains("delayed-retry-min is required"));
    let crossed =
        told(r#"{"delayed-retry-type":"all","delayed-retry-min":5,"delayed-retry-max":4}"#);
    assert!(crossed.contains("delayed-retry-max 4 must not be less"), "{crossed}");
    definition(USER, r#"{"delayed-retry-type":"disabled"}"#);
}

#[test]
fn opp_01_operator_policies_have_fewer_keys() {
    assert_eq!(
        refused(OPERATOR, "", "all", r#"{"dead-letter-exchange":"x"}"#),
        "Validation failed\n\n[{<<\"dead-letter-exchange\">>,<<\"x\">>}] are not recognised policy settings"
    );
    let json = r#"{"delayed-retry-max":2,"delayed-retry-min":1,"delayed-retry-multiplier":2,"delayed-retry-type":"all","delivery-limit":1,"expires":1,"max-in-memory-bytes":1,"max-in-memory-length":1,"max-length":1,"max-length-bytes":1,"member-placement-tag":"t","message-ttl":1,"overflow":"drop-head","queue-version":2,"target-group-size":1}"#;
    assert_eq!(definition(OPERATOR, json).to_json().to_string(), json);
}
