//! Policies: which is in force, and how it is merged with an operator policy and with arguments
//! (POL, OPP, DLM-01, Q-12, VLM-03).

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use proptest::prelude::*;
use quorate_catalog::{
    CatalogCommand as C, CatalogEvent, CommonSettings, ExchangeType, ParameterName,
    ParameterRecord, PolicyDefinition, PolicyKey, PolicyKind, PolicyRecord, QueueEntry, effective,
    leader_locator, smaller_limit,
};
use quorate_queue::QueueConfig;
use quorate_types::{
    CatalogIndex, FieldTable, FieldValue, LeaderLocator, Overflow, QueueArguments, QueueType,
};

const USER: PolicyKind = PolicyKind::User;
const OPERATOR: PolicyKind = PolicyKind::Operator;
const TYPES: [QueueType; 2] = [QueueType::Classic, QueueType::Quorum];

fn set(world: &mut World, text: &str, pattern: &str, apply_to: &str, priority: i64, json: &str) {
    world.done(C::SetPolicy(policy(text, USER, pattern, apply_to, priority, json)));
}

fn in_force(world: &World, queue: &str, queue_type: QueueType) -> Option<String> {
    let policies = world.catalog.queue_policies(&name(queue), queue_type);
    policies.policy.map(|policy| policy.name.to_string())
}

fn definition(kind: PolicyKind, json: &str) -> PolicyDefinition {
    if json == "{}" {
        return PolicyDefinition::default();
    }
    policy("p", kind, "", "all", 0, json).definition
}

fn resolved(arguments: &[(&str, FieldValue)], json: &str, queue_type: QueueType) -> QueueConfig {
    let arguments = QueueArguments::parse(&table(arguments), queue_type).unwrap();
    let kind = (queue_type, true, false);
    let common = CommonSettings { letters_max: 1_000_000, delays_returns: true };
    effective(&arguments, &definition(USER, json), kind, common, CatalogIndex(1))
}

#[test]
fn pol_01_a_pattern_is_found_anywhere_in_the_name_and_the_same_name_replaces() {
    let mut world = World::new();
    set(&mut world, "p", "ab", "all", 0, r#"{"max-length":1}"#);
    assert_eq!(world.events(), [CatalogEvent::PoliciesChanged]);
    assert_eq!(in_force(&world, "xaby", QueueType::Classic).as_deref(), Some("p"));
    assert_eq!(in_force(&world, "xAby", QueueType::Classic), None);
    set(&mut world, "p", "^ab$", "all", 0, r#"{"max-length":2}"#);
    assert_eq!(in_force(&world, "xaby", QueueType::Classic), None);
    assert_eq!(in_force(&world, "ab", QueueType::Classic).as_deref(), Some("p"));
    assert_eq!(world.catalog.policies(USER, &short("/")).len(), 1);
    // Setting an equal policy again changes nothing, and no queue is reconfigured.
    set(&mut world, "p", "^ab$", "all", 0, r#"{"max-length":2}"#);
    assert_eq!(world.events(), []);
}

#[test]
fn pol_01_a_look_ahead_at_the_beginning_keeps_names_out() {
    let mut world = World::new();
    set(&mut world, "p", r"^(?!amq\.).*", "all", 0, r#"{"max-length":1}"#);
    assert_eq!(in_force(&world, "jobs", QueueType::Classic).as_deref(), Some("p"));
    assert_eq!(in_force(&world, "amq.gen-x", QueueType::Classic), None);
    set(&mut world, "p", r"^(?!a(b|[)]))x?a", "all", 0, r#"{"max-length":1}"#);
    assert_eq!(in_force(&world, "xa", QueueType::Classic).as_deref(), Some("p"));
    assert_eq!(in_force(&world, "ab", QueueType::Classic), None);
    assert_eq!(in_force(&world, "a)", QueueType::Classic), None);
    assert_eq!(in_force(&world, "bxa", QueueType::Classic), None);
}

#[test]
fn pol_02_apply_to_chooses_kinds_and_types() {
    let expected = [
        ("all", [true, true, true]),
        ("queues", [true, true, false]),
        ("classic_queues", [true, false, false]),
        ("quorum_queues", [false, true, false]),
        ("streams", [false, false, false]),
        ("exchanges", [false, false, true]),
    ];
    for (apply_to, taken) in expected {
        let mut world = World::new();
        set(&mut world, "p", "", apply_to, 0, r#"{"alternate-exchange":"x"}"#);
        let [classic, quorum] = TYPES.map(|queue_type| in_force(&world, "q", queue_type).is_some());
        let exchange = world.catalog.exchange_policies(&name("e")).policy.is_some();
        assert_eq!([classic, quorum, exchange], taken, "{apply_to}");
    }
}

#[test]
fn pol_03_the_highest_priority_that_matches_is_alone_in_force() {
    let mut world = World::new();
    set(&mut world, "low", "", "all", -1, r#"{"message-ttl":1}"#);
    set(&mut world, "high", "q", "all", 7, r#"{"max-length":1}"#);
    set(&mut world, "middle", "", "all", 3, r#"{"expires":1}"#);
    assert_eq!(in_force(&world, "q", QueueType::Classic).as_deref(), Some("high"));
    assert_eq!(in_force(&world, "x", QueueType::Classic).as_deref(), Some("middle"));
    let effective = world.catalog.queue_policies(&name("q"), QueueType::Classic).definition();
    assert_eq!(effective.to_json().to_string(), r#"{"max-length":1}"#);
    world.done(C::ClearPolicy(policy("high", USER, "", "all", 0, r#"{"expires":1}"#).full_name()));
    assert_eq!(in_force(&world, "q", QueueType::Classic).as_deref(), Some("middle"));
}

#[test]
fn pol_04_pol_10_settings_follow_the_policy_and_come_back_when_it_is_cleared() {
    let mut world = World::new();
    let arguments = table(&[("x-max-length", FieldValue::I32(5))]);
    let entry = QueueEntry { arguments, ..queue("q", id(1)) };
    world.done(C::AddQueue(entry.clone()));
    let before = world.catalog.config_of(&entry);
    set(&mut world, "p", "q", "queues", 0, r#"{"max-length":3,"message-ttl":9}"#);
    let config = world.catalog.config_of(&entry);
    assert_eq!((config.length_max, config.message_ttl_ms), (Some(3), Some(9)));
    assert_eq!(config.resolved_at, CatalogIndex(world.index));
    assert!(!config.agrees_with(&before));
    assert_eq!(world.reloaded().config_of(&entry), config);
    world.done(C::ClearPolicy(policy("p", USER, "", "all", 0, r#"{"expires":1}"#).full_name()));
    assert!(world.catalog.config_of(&entry).agrees_with(&before));
}

#[test]
fn pol_05_every_key_is_taken_and_shown() {
    let json = r#"{"alternate-exchange":"ae","consumer-disconnected-timeout":1,"consumer-timeout":1,"dead-letter-exchange":"","dead-letter-routing-key":"k","dead-letter-strategy":"at-least-once","delayed-retry-max":2,"delayed-retry-min":1,"delayed-retry-multiplier":2,"delayed-retry-type":"all","delivery-count-mode":"failures","delivery-limit":-1,"expires":1,"initial-cluster-size":3,"max-age":"7D","max-in-memory-bytes":0,"max-in-memory-length":0,"max-length":0,"max-length-bytes":0,"member-placement-tag":"t","message-ttl":0,"overflow":"reject-publish-dlx","queue-leader-locator":"balanced","queue-mode":"lazy","queue-version":2,"stream-filter-size-bytes":16,"stream-max-segment-size-bytes":1,"target-group-size":3}"#;
    let definition = definition(USER, json);
    assert_eq!(definition.to_json().to_string(), json);
    assert!(definition.0.keys().eq(PolicyKey::ALL), "a key is not in this test");
    let names = PolicyKey::ALL.iter().map(|key| key.name());
    assert!(names.is_sorted(), "records have the keys in this order");
}

#[test]
fn pol_07_arguments_and_policy_meet_by_the_type_s_rules() {
    let arguments = [
        ("x-message-ttl", FieldValue::I32(10)),
        ("x-expires", FieldValue::I32(10)),
        ("x-max-length", FieldValue::I32(10)),
        ("x-max-length-bytes", FieldValue::I32(10)),
        ("x-consumer-timeout", FieldValue::I32(10)),
        ("x-overflow", text("drop-head")),
        ("x-dead-letter-exchange", text("mine")),
        ("x-delivery-count-mode", text("returns")),
    ];
    let json = r#"{"message-ttl":5,"expires":20,"max-length":5,"max-length-bytes":20,"consumer-timeout":5,"overflow":"reject-publish","dead-letter-exchange":"theirs","dead-letter-routing-key":"k","dead-letter-strategy":"at-least-once","delivery-count-mode":"failures"}"#;
    for queue_type in TYPES {
        let config = resolved(&arguments, json, queue_type);
        assert_eq!(config.message_ttl_ms, Some(5));
        assert_eq!(config.expires_ms, Some(10));
        assert_eq!((config.length_max, config.length_bytes_max), (Some(5), Some(10)));
        assert_eq!(config.consumer_timeout_ms, Some(5));
        let dead_letter = config.dead_letter.unwrap();
        assert_eq!(dead_letter.exchange, short("mine"));
        assert_eq!(dead_letter.routing_key, Some(short("k")));
        assert!(dead_letter.at_least_once);
        assert!(!config.delivery_count_failures);
        let policy_s = queue_type == QueueType::Quorum;
        assert_eq!(config.overflow == Overflow::RejectPublish, policy_s);
    }
    // A value on one side only is in force, for every type (Q-12).
    for queue_type in TYPES {
        let config = resolved(&[], json, queue_type);
        assert_eq!(config.overflow, Overflow::RejectPublish);
        assert_eq!(config.dead_letter.unwrap().exchange, short("theirs"));
        assert!(config.delivery_count_failures);
        let alone = resolved(&[], r#"{"dead-letter-routing-key":"k"}"#, queue_type);
        assert_eq!(alone.dead_letter, None);
    }
}

#[test]
fn pol_08_q_12_a_key_that_the_type_has_not_keeps_a_policy_from_matching() {
    let unsupported = [
        (r#"{"queue-mode":"lazy"}"#, QueueType::Quorum),
        (r#"{"max-age":"1h"}"#, QueueType::Quorum),
        (r#"{"max-age":"1h"}"#, QueueType::Classic),
        (r#"{"initial-cluster-size":1}"#, QueueType::Quorum),
        (r#"{"stream-max-segment-size-bytes":1}"#, QueueType::Classic),
        (r#"{"max-in-memory-length":1}"#, QueueType::Classic),
        (r#"{"max-in-memory-bytes":1}"#, QueueType::Classic),
        (r#"{"target-group-size":3,"max-length":1}"#, QueueType::Classic),
    ];
    for (json, queue_type) in unsupported {
        let mut world = World::new();
        set(&mut world, "low", "", "all", 0, r#"{"max-length":1}"#);
        set(&mut world, "high", "", "all", 1, json);
        assert_eq!(in_force(&world, "q", queue_type).as_deref(), Some("low"), "{json}");
    }
    // Q-12: these keys work on classic queues too.
    for json in [
        r#"{"delivery-limit":3}"#,
        r#"{"dead-letter-strategy":"at-least-once"}"#,
        r#"{"consumer-timeout":3}"#,
        r#"{"delivery-count-mode":"failures"}"#,
    ] {
        let mut world = World::new();
        set(&mut world, "high", "", "all", 1, json);
        assert!(in_force(&world, "q", QueueType::Classic).is_some(), "{json}");
    }
}

#[test]
fn dlm_01_of_two_delivery_limits_the_smaller_but_none_gives_way() {
    let cases = [(3, 5, 3), (5, 3, 3), (-1, 5, 5), (5, -1, 5), (-1, -2, -1), (0, 5, 0)];
    for (left, right, expected) in cases {
        assert_eq!(smaller_limit(left, right), expected);
        let argument = [("x-delivery-limit", FieldValue::I64(left))];
        let json = format!(r#"{{"delivery-limit":{right}}}"#);
        for queue_type in TYPES {
            let limit = resolved(&argument, &json, queue_type).delivery_limit;
            assert_eq!(limit, u32::try_from(expected).ok());
        }
    }
    assert_eq!(resolved(&[], r#"{"delivery-limit":-1}"#, QueueType::Quorum).delivery_limit, None);
    assert_eq!(resolved(&[], "{}", QueueType::Quorum).delivery_limit, Some(20));
    assert_eq!(resolved(&[], "{}", QueueType::Classic).delivery_limit, None);
}

#[test]
fn arg_13_the_leader_locator_is_the_argument_s_else_the_policy_s() {
    let locator = |arguments: &[(&str, FieldValue)], json: &str| {
        let arguments = QueueArguments::parse(&table(arguments), QueueType::Quorum).unwrap();
        leader_locator(&arguments, &definition(USER, json))
    };
    let local = [("x-queue-leader-locator", text("client-local"))];
    let balanced = r#"{"queue-leader-locator":"balanced"}"#;
    assert_eq!(locator(&[], "{}"), LeaderLocator::ClientLocal);
    assert_eq!(locator(&[], balanced), LeaderLocator::Balanced);
    assert_eq!(locator(&local, balanced), LeaderLocator::ClientLocal);
}

#[test]
fn ae_05_an_argument_beats_a_policy_s_alternate_exchange() {
    let mut world = World::new();
    world.declare("plain", ExchangeType::Fanout);
    let mut given = exchange("given", ExchangeType::Fanout);
    given.arguments = table(&[("alternate-exchange", text("a"))]);
    world.done(C::DeclareExchange(given));
    let alternate = |world: &World, of: &str| world.catalog.alternate_of(&name(of));
    assert_eq!(alternate(&world, "plain"), None);
    set(&mut world, "p", "", "all", 0, r#"{"alternate-exchange":"b"}"#);
    assert_eq!(alternate(&world, "plain"), Some(short("b")));
    assert_eq!(alternate(&world, "amq.topic"), Some(short("b")));
    assert_eq!(alternate(&world, "given"), Some(short("a")));
    assert_eq!(alternate(&world, ""), None);
    assert_eq!(alternate(&world, "missing"), None);
}

#[test]
fn opp_02_opp_03_an_operator_policy_is_chosen_apart_and_merged_key_by_key() {
    let mut world = World::new();
    let users = r#"{"message-ttl":5,"max-length":50,"overflow":"drop-head","delivery-limit":-1,"target-group-size":3,"delayed-retry-type":"all","delayed-retry-min":1,"delayed-retry-max":9,"dead-letter-exchange":"d"}"#;
    let operators = r#"{"message-ttl":50,"max-length":5,"overflow":"reject-publish","delivery-limit":7,"target-group-size":5,"delayed-retry-type":"failed","delayed-retry-min":2,"delayed-retry-max":8,"expires":4}"#;
    set(&mut world, "p", "q", "all", 0, users);
    world.done(C::SetPolicy(policy("p", OPERATOR, "", "queues", 0, operators)));
    let merged = world.catalog.queue_policies(&name("q"), QueueType::Quorum).definition();
    assert_eq!(
        merged.to_json().to_string(),
        r#"{"dead-letter-exchange":"d","delayed-retry-max":8,"delayed-retry-min":2,"delayed-retry-type":"failed","delivery-limit":7,"expires":4,"max-length":5,"message-ttl":5,"overflow":"reject-publish","target-group-size":5}"#
    );
    // It limits a queue that no policy matches, and the queue's own arguments (OPP-03, POL-07).
    let arguments = FieldTable(vec![(short("x-max-length"), FieldValue::I32(100))]);
    let queue_type = QueueType::Quorum;
    let other = QueueEntry { arguments, queue_type, ..queue("other", id(3)) };
    assert_eq!(world.catalog.config_of(&other).length_max, Some(5));
}

#[test]
fn vlm_03_parameters_are_kept_by_scope_component_and_name() {
    let mut world = World::new();
    let global = ParameterName::Global(short("n"));
    let (vhost, component) = (short("/"), short("shovel"));
    let of_vhost = ParameterName::Vhost { vhost, component: component.clone(), name: short("n") };
    let record = |name: &ParameterName, value: &str| {
        C::SetParameter(ParameterRecord::parse(name.clone(), value).unwrap())
    };
    world.done(record(&global, r#"{ "a" : 1 }"#));
    world.done(record(&of_vhost, "[1]"));
    world.done(record(&of_vhost, "2"));
    let shown: Vec<_> = world.catalog.parameters().map(|parameter| parameter.value).collect();
    assert_eq!(shown, [r#"{"a":1}"#, "2"]);
    assert_eq!(world.reloaded(), world.catalog);
    let elsewhere = ParameterName::Vhost { vhost: short("v"), component, name: short("n") };
    let told = world.refusal(record(&elsewhere, "1"));
    assert_eq!(told, "404 NOT_FOUND - Virtual host 'v' does not exist");
    let junk = ParameterRecord::parse(global.clone(), "{").unwrap_err().to_string();
    assert_eq!(junk, "JSON decoding error. Reason: {error,{failed_to_decode_json,<<\"{\">>}}");
    world.done(C::ClearParameter(global));
    world.done(C::ClearParameter(of_vhost));
    assert_eq!(world.catalog.parameters().count(), 0);
}

#[derive(Clone, Debug)]
struct Given {
    kind: PolicyKind,
    name: u8,
    /// A prefix that names must have.
    prefix: &'static str,
    apply_to: &'static str,
    priority: i64,
    length: Option<u64>,
    quorum_only: bool,
}

fn any_given() -> impl Strategy<Value = Given> {
    let kinds = prop::sample::select(vec![USER, OPERATOR]);
    let prefixes = prop::sample::select(vec!["", "a", "ab", "b"]);
    let apply = vec!["all", "queues", "classic_queues", "quorum_queues", "exchanges", "streams"];
    let apply = prop::sample::select(apply);
    let lengths = prop::option::of(0..5u64);
    (kinds, 0..4u8, prefixes, apply, -2..3i64, lengths, any::<bool>()).prop_map(
        |(kind, name, prefix, apply_to, priority, length, quorum_only)| Given {
            kind,
            name,
            prefix,
            apply_to,
            priority,
            length,
            quorum_only,
        },
    )
}

impl Given {
    fn record(&self) -> PolicyRecord {
        let mut json = serde_json::Map::new();
        json.insert("message-ttl".to_owned(), serde_json::Value::from(u64::from(self.name)));
        if let Some(length) = self.length {
            json.insert("max-length".to_owned(), serde_json::Value::from(length));
        }
        if self.quorum_only {
            json.insert("max-in-memory-length".to_owned(), serde_json::Value::from(1));
        }
        let json = serde_json::Value::Object(json).to_string();
        let (name, pattern) = (self.name.to_string(), format!("^{}", self.prefix));
        policy(&name, self.kind, &pattern, self.apply_to, self.priority, &json)
    }

    fn matches(&self, name: &str, queue_type: QueueType) -> bool {
        let quorum = queue_type == QueueType::Quorum;
        let applies = match self.apply_to {
            "all" | "queues" => true,
            "classic_queues" => !quorum,
            "quorum_queues" => quorum,
            _ => false,
        };
        name.starts_with(self.prefix) && applies && (quorum || !self.quorum_only)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Compares with a linear search of the list.
    #[test]
    fn pol_03_opp_03_the_same_policies_are_in_force_as_in_a_plain_list(
        given in prop::collection::vec(any_given(), 0..12),
        name_text in prop::sample::select(vec!["a", "ab", "abc", "b", "c"]),
        quorum in any::<bool>(),
        argument in prop::option::of(0..5u64),
    ) {
        let queue_type = if quorum { QueueType::Quorum } else { QueueType::Classic };
        let mut world = World::new();
        let mut list: Vec<Given> = Vec::new();
        for one in given {
            list.retain(|other| (other.kind, other.name) != (one.kind, one.name));
            world.done(C::SetPolicy(one.record()));
            list.push(one);
        }
        let best = |kind: PolicyKind| {
            let matching = list.iter().filter(|one| one.kind == kind && one.matches(name_text, queue_type));
            matching.min_by_key(|one| (-one.priority, one.name))
        };
        let (user, operator) = (best(USER), best(OPERATOR));
        let found = world.catalog.queue_policies(&name(name_text), queue_type);
        prop_assert_eq!(found.policy.cloned(), user.map(Given::record));
        prop_assert_eq!(found.operator.cloned(), operator.map(Given::record));
        let fields = argument.map(|length| ("x-max-length", FieldValue::I64(length as i64)));
        let arguments = table(fields.as_slice());
        let entry = QueueEntry { arguments, queue_type, ..queue(name_text, id(1)) };
        let both = [user, operator].into_iter().flatten();
        let lengths = both.clone().filter_map(|one| one.length).chain(argument);
        let config = world.catalog.config_of(&entry);
        prop_assert_eq!(config.length_max, lengths.min());
        prop_assert_eq!(config.message_ttl_ms, both.map(|one| u64::from(one.name)).min());
    }
}

#[test]
fn rqu_07_arg_16_pol_07_how_returned_messages_wait_comes_from_arguments_and_policy() {
    let retry = |arguments: &[(&str, FieldValue)], json| {
        let retry = resolved(arguments, json, QueueType::Quorum).delayed_retry?;
        Some((retry.after.name(), retry.min_ms, retry.max_ms, retry.multiplier))
    };
    let of = |which: &str| ("x-delayed-retry-type", text(which));
    let min = ("x-delayed-retry-min", FieldValue::I32(100));
    let max = ("x-delayed-retry-max", FieldValue::I32(900));
    let double = ("x-delayed-retry-multiplier", FieldValue::I32(2));
    let given = [of("failed"), min.clone(), max.clone(), double];
    assert_eq!(retry(&given, "{}"), Some(("failed", 100, 900, Some(2))));
    assert_eq!(retry(&[of("all"), min.clone()], "{}"), Some(("all", 100, 100, None)));
    assert_eq!(retry(&[of("all")], "{}"), None, "no minimum");
    assert_eq!(retry(&[of("disabled"), min.clone()], "{}"), None);
    assert_eq!(retry(&[of("sometimes"), min.clone()], "{}"), None);
    assert_eq!(retry(&[min.clone(), max.clone()], "{}"), None, "no type");
    let policy = r#"{"delayed-retry-type":"returned","delayed-retry-min":200,"delayed-retry-max":800,"delayed-retry-multiplier":3}"#;
    assert_eq!(retry(&given, policy), Some(("returned", 200, 800, Some(3))));
}
