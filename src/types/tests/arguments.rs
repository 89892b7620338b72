//! Declare arguments with RabbitMQ's exact reasons (ARG-01 to ARG-16, Q-12, Q-13, Q-50).

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use proptest::prelude::*;
use quorate_types::{
    ArgumentError, DelayedRetryArguments, FieldTable, FieldValue, LeaderLocator, Overflow,
    QueueArguments, QueueType, ShortString,
};

const BOTH: [QueueType; 2] = [QueueType::Classic, QueueType::Quorum];

fn table(fields: &[(&str, FieldValue)]) -> FieldTable {
    let field =
        |(name, value): &(&str, FieldValue)| (ShortString::try_from(*name).unwrap(), value.clone());
    FieldTable(fields.iter().map(field).collect())
}

fn parse(
    queue_type: QueueType,
    fields: &[(&str, FieldValue)],
) -> Result<QueueArguments, ArgumentError> {
    QueueArguments::parse(&table(fields), queue_type)
}

/// The reason given for one argument.
fn reason(queue_type: QueueType, name: &str, value: FieldValue) -> String {
    match parse(queue_type, &[(name, value)]) {
        Err(ArgumentError::Invalid { name: told, reason }) if told == name => reason,
        other => panic!("{name}: {other:?}"),
    }
}

fn taken(queue_type: QueueType, name: &str, value: FieldValue) -> QueueArguments {
    parse(queue_type, &[(name, value)]).unwrap()
}

fn text(value: &str) -> FieldValue {
    FieldValue::text(value)
}

const fn int(value: i64) -> FieldValue {
    FieldValue::I64(value)
}

#[test]
fn arg_01_the_queue_type_is_classic_or_quorum() {
    for (name, queue_type) in [("classic", QueueType::Classic), ("quorum", QueueType::Quorum)] {
        let arguments = taken(QueueType::Classic, "x-queue-type", text(name));
        assert_eq!(arguments.queue_type, Some(queue_type));
        assert_eq!(queue_type.name(), name);
    }
    let told = |value| reason(QueueType::Classic, "x-queue-type", value);
    assert_eq!(told(text("foo")), "\"unsupported queue type 'foo'\"");
    assert_eq!(told(text("stream")), "\"unsupported queue type 'stream'\"", "Q-02");
    assert_eq!(told(FieldValue::I32(1)), "{unacceptable_type,signedint}");
}

#[test]
fn arg_03_arg_04_arg_05_arguments_of_another_type_are_refused() {
    let wrong = |queue_type, name: &'static str, value: FieldValue| {
        let told = parse(queue_type, &[(name, value)]);
        assert_eq!(told, Err(ArgumentError::WrongQueueType { name, queue_type }), "{queue_type:?}");
    };
    for (name, value) in [
        ("x-queue-mode", text("lazy")),
        ("x-queue-version", int(2)),
        ("x-queue-master-locator", text("min-masters")),
    ] {
        wrong(QueueType::Quorum, name, value.clone());
        taken(QueueType::Classic, name, value);
    }
    for (name, value) in [
        ("x-quorum-initial-group-size", int(3)),
        ("x-max-in-memory-length", int(3)),
        ("x-max-in-memory-bytes", int(3)),
        ("x-consumer-disconnected-timeout", int(3)),
        ("x-member-placement-tag", text("tag")),
    ] {
        wrong(QueueType::Classic, name, value.clone());
        taken(QueueType::Quorum, name, value);
    }
    for (name, value) in [
        ("x-max-age", text("1D")),
        ("x-stream-max-segment-size-bytes", int(3)),
        ("x-stream-filter-size-bytes", int(16)),
        ("x-initial-cluster-size", int(3)),
    ] {
        BOTH.iter().for_each(|queue_type| wrong(*queue_type, name, value.clone()));
    }
}

#[test]
fn arg_03_the_type_given_decides_not_the_default() {
    let fields = [("x-queue-mode", text("lazy")), ("x-queue-type", text("quorum"))];
    let told = parse(QueueType::Classic, &fields);
    let (name, queue_type) = ("x-queue-mode", QueueType::Quorum);
    assert_eq!(told, Err(ArgumentError::WrongQueueType { name, queue_type }));
}

#[test]
fn q_12_arguments_that_rabbitmq_keeps_to_one_type_work_on_both() {
    for queue_type in BOTH {
        assert_eq!(taken(queue_type, "x-max-priority", int(9)).priority_max, Some(9));
        assert_eq!(taken(queue_type, "x-delivery-limit", int(3)).delivery_limit, Some(3));
        let strategy = taken(queue_type, "x-dead-letter-strategy", text("at-least-once"));
        assert_eq!(strategy.dead_letter_at_least_once, Some(true));
        let timeout = taken(queue_type, "x-consumer-timeout", int(3));
        assert_eq!(timeout.consumer_timeout_ms, Some(3));
        let mode = taken(queue_type, "x-delivery-count-mode", text("failures"));
        assert_eq!(mode.delivery_count_failures, Some(true));
        let overflow = taken(queue_type, "x-overflow", text("reject-publish-dlx"));
        assert_eq!(overflow.overflow, Some(Overflow::RejectPublishDlx));
    }
}

#[test]
fn arg_07_message_ttl_is_an_integer_from_0_to_ten_years() {
    for queue_type in BOTH {
        let ttl = |value| taken(queue_type, "x-message-ttl", value).message_ttl_ms;
        assert_eq!(ttl(int(0)), Some(0));
        assert_eq!(ttl(int(315_360_000_000)), Some(315_360_000_000));
        let told = |value| reason(queue_type, "x-message-ttl", value);
        assert_eq!(told(int(-1)), "{value_negative,-1}");
        assert_eq!(told(int(315_360_000_001)), "{value_too_large,315360000001}");
        assert_eq!(told(text("1")), "\"expected integer, got longstr\"");
        assert_eq!(told(FieldValue::Bool(true)), "\"expected integer, got bool\"");
    }
}

#[test]
fn arg_08_expires_is_at_least_1() {
    let told = |value| reason(QueueType::Quorum, "x-expires", value);
    assert_eq!(told(int(0)), "{value_zero,0}");
    assert_eq!(told(int(-1)), "{value_negative,-1}");
    assert_eq!(told(int(315_360_000_001)), "{value_too_large,315360000001}");
    assert_eq!(told(text("1")), "\"expected integer, got longstr\"");
    assert_eq!(taken(QueueType::Quorum, "x-expires", int(1)).expires_ms, Some(1));
}

#[test]
fn arg_09_lengths_and_timeouts_are_integers_from_0() {
    for name in [
        "x-max-length",
        "x-max-length-bytes",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-consumer-timeout",
        "x-consumer-disconnected-timeout",
    ] {
        taken(QueueType::Quorum, name, int(0));
        taken(QueueType::Quorum, name, int(i64::MAX));
        assert_eq!(reason(QueueType::Quorum, name, int(-1)), "{value_negative,-1}");
        let told = reason(QueueType::Quorum, name, text("9"));
        assert_eq!(told, "\"expected integer, got longstr\"");
    }
    let both =
        parse(QueueType::Classic, &[("x-max-length", int(1)), ("x-max-length-bytes", int(2))]);
    let both = both.unwrap();
    assert_eq!((both.length_max, both.length_bytes_max), (Some(1), Some(2)));
}

#[test]
fn arg_10_integers_of_every_width_and_nothing_else() {
    for value in [
        FieldValue::I8(7),
        FieldValue::U8(7),
        FieldValue::I16(7),
        FieldValue::U16(7),
        FieldValue::I32(7),
        FieldValue::U32(7),
        FieldValue::I64(7),
    ] {
        assert_eq!(taken(QueueType::Classic, "x-max-length", value).length_max, Some(7));
    }
    for (value, name) in [
        (FieldValue::Decimal { scale: 0, value: 7 }, "decimal"),
        (FieldValue::F32(7.0), "float"),
        (FieldValue::F64(7.0), "double"),
        (FieldValue::Timestamp(7), "timestamp"),
        (FieldValue::Void, "void"),
    ] {
        let told = reason(QueueType::Classic, "x-max-length", value);
        assert_eq!(told, format!("\"expected integer, got {name}\""));
    }
}

#[test]
fn arg_11_overflow_is_one_of_three() {
    for (name, overflow) in
        [("drop-head", Overflow::DropHead), ("reject-publish", Overflow::RejectPublish)]
    {
        assert_eq!(taken(QueueType::Quorum, "x-overflow", text(name)).overflow, Some(overflow));
    }
    let told = |value| reason(QueueType::Quorum, "x-overflow", value);
    assert_eq!(told(text("foo")), "invalid_overflow");
    assert_eq!(told(text(&"x".repeat(300))), "invalid_overflow");
    assert_eq!(told(FieldValue::LongString(vec![0xff].into())), "invalid_overflow");
    assert_eq!(told(FieldValue::I32(1)), "{unacceptable_type,signedint}");
}

#[test]
fn arg_12_dead_letter_arguments() {
    let exchange = ("x-dead-letter-exchange", text("dlx"));
    let key = ("x-dead-letter-routing-key", text("k"));
    // In either order.
    for fields in [[exchange.clone(), key.clone()], [key.clone(), exchange.clone()]] {
        let arguments = parse(QueueType::Quorum, &fields).unwrap();
        assert_eq!(arguments.dead_letter_exchange, Some(ShortString::from_static("dlx")));
        assert_eq!(arguments.dead_letter_routing_key, Some(ShortString::from_static("k")));
    }
    let default = taken(QueueType::Quorum, "x-dead-letter-exchange", text(""));
    assert_eq!(default.dead_letter_exchange, Some(ShortString::EMPTY));
    let wrong = parse(QueueType::Quorum, &[("x-dead-letter-exchange", FieldValue::I32(1))]);
    let name = "x-dead-letter-exchange";
    assert_eq!(wrong, Err(ArgumentError::WrongType { name, type_name: "signedint" }));
    let told = |name: &str, value| reason(QueueType::Quorum, name, value);
    assert_eq!(told("x-dead-letter-routing-key", text("k")), "routing_key_but_no_dlx_defined");
    assert_eq!(told("x-dead-letter-strategy", text("sometimes")), "invalid_dlx_strategy");
    assert_eq!(told("x-dead-letter-strategy", FieldValue::I32(1)), "invalid_dlx_strategy");
    let strategy = taken(QueueType::Quorum, "x-dead-letter-strategy", text("at-most-once"));
    assert_eq!(strategy.dead_letter_at_least_once, Some(false), "it needs no exchange");
    let fields = [exchange, ("x-dead-letter-routing-key", FieldValue::Bool(true))];
    let wrong = parse(QueueType::Quorum, &fields).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "invalid arg 'x-dead-letter-routing-key': {unacceptable_type,bool}"
    );
    // Nothing could have that name.
    let told = told("x-dead-letter-exchange", text(&"x".repeat(256)));
    assert_eq!(told, "\"short string of 256 octets is longer than 255\"");
}

#[test]
fn que_10_the_dead_letter_exchange_is_looked_at_before_other_arguments() {
    let fields = [
        ("x-message-ttl", text("no")),
        ("x-dead-letter-exchange", FieldValue::I32(1)),
        ("x-queue-type", text("foo")),
    ];
    let without_type = fields.get(..2).unwrap();
    let name = "x-dead-letter-exchange";
    assert_eq!(
        parse(QueueType::Classic, without_type),
        Err(ArgumentError::WrongType { name, type_name: "signedint" })
    );
    let told = parse(QueueType::Classic, &fields).unwrap_err().to_string();
    assert!(told.starts_with("invalid arg 'x-queue-type'"), "{told}");
}

#[test]
fn arg_13_single_active_consumer_group_size_and_locator() {
    let sac = taken(QueueType::Classic, "x-single-active-consumer", FieldValue::Bool(true));
    assert!(sac.single_active_consumer);
    let told = |name: &str, value| reason(QueueType::Quorum, name, value);
    assert_eq!(told("x-single-active-consumer", text("true")), "{unacceptable_type,longstr}");
    assert_eq!(told("x-quorum-initial-group-size", int(0)), "{value_zero,0}");
    assert_eq!(told("x-quorum-initial-group-size", int(-2)), "{value_negative,-2}");
    for (name, locator) in [
        ("client-local", LeaderLocator::ClientLocal),
        ("balanced", LeaderLocator::Balanced),
        ("random", LeaderLocator::Balanced),
        ("least-leaders", LeaderLocator::Balanced),
    ] {
        let arguments = taken(QueueType::Classic, "x-queue-leader-locator", text(name));
        assert_eq!(arguments.leader_locator, Some(locator));
    }
    assert_eq!(told("x-queue-leader-locator", text("here")), "invalid_queue_locator_arg");
}

#[test]
fn arg_14_priorities_modes_and_versions() {
    let level = |value| taken(QueueType::Classic, "x-max-priority", int(value)).priority_max;
    assert_eq!((level(0), level(1), level(255)), (None, Some(1), Some(255)));
    let told = |name: &str, value| reason(QueueType::Classic, name, value);
    assert_eq!(told("x-max-priority", int(256)), "{max_value_exceeded,256}");
    assert_eq!(told("x-max-priority", int(-1)), "{value_negative,-1}");
    taken(QueueType::Classic, "x-queue-mode", text("default"));
    assert_eq!(told("x-queue-mode", text("foo")), "\"unsupported queue mode 'foo'\"");
    taken(QueueType::Classic, "x-queue-version", int(2));
    assert_eq!(told("x-queue-version", int(3)), "\"unsupported queue version '3'\"");
    assert_eq!(told("x-queue-version", int(1)), "\"unsupported queue version '1'\"");
    assert_eq!(told("x-queue-version", text("2")), "\"expected integer, got longstr\"");
}

#[test]
fn arg_15_the_delivery_limit_is_not_validated() {
    let limit = |value| taken(QueueType::Quorum, "x-delivery-limit", value).delivery_limit;
    assert_eq!(limit(int(-1)), Some(-1));
    assert_eq!(limit(int(0)), Some(0));
    assert_eq!(limit(text("many")), None);
    assert_eq!(limit(FieldValue::Void), None);
}

#[test]
fn q_50_arg_16_reserved_arguments_are_checked_for_their_type_alone() {
    for queue_type in BOTH {
        for (name, good, bad) in [
            ("x-delayed-retry-type", text("all"), int(1)),
            ("x-delayed-retry-min", int(1), text("1")),
            ("x-delayed-retry-max", int(1), text("1")),
            ("x-message-deduplication", FieldValue::Bool(true), text("true")),
            ("x-cache-size", int(1), text("1")),
            ("x-cache-ttl", int(1), FieldValue::Bool(true)),
        ] {
            // What they mean is tested with the effective settings (RQU-07).
            let delayed_retry = DelayedRetryArguments::default();
            let other = QueueArguments { delayed_retry, ..taken(queue_type, name, good) };
            assert_eq!(other, QueueArguments::default());
            reason(queue_type, name, bad);
        }
        // Queues that earlier releases declared may have any value here (ARG-16).
        for value in [int(-1), text("2"), FieldValue::F64(1.5)] {
            let taken = taken(queue_type, "x-delayed-retry-multiplier", value);
            assert_eq!(taken.delayed_retry.multiplier, None);
        }
    }
}

#[test]
fn q_13_que_18_unknown_arguments_are_left_alone() {
    let fields = [("x-foo", int(-1)), ("bar", FieldValue::Void), ("", text(""))];
    assert_eq!(parse(QueueType::Quorum, &fields), Ok(QueueArguments::default()));
}

#[test]
fn the_first_of_two_arguments_of_one_name_counts() {
    let fields = [("x-max-length", int(1)), ("x-max-length", int(2)), ("x-max-length", text("x"))];
    assert_eq!(parse(QueueType::Classic, &fields).unwrap().length_max, Some(1));
}

fn any_value() -> impl Strategy<Value = FieldValue> {
    prop_oneof![
        any::<i64>().prop_map(FieldValue::I64),
        any::<bool>().prop_map(FieldValue::Bool),
        prop::collection::vec(any::<u8>(), 0..300)
            .prop_map(|bytes| FieldValue::LongString(bytes.into())),
        Just(FieldValue::Void),
        Just(FieldValue::Array(vec![])),
        Just(FieldValue::Table(FieldTable::default())),
    ]
}

proptest! {
    /// Whatever a client declares, the answer is settings or a reason that names the argument.
    #[test]
    fn any_arguments_are_taken_or_refused_by_name(
        name in prop::sample::select(vec![
            "x-queue-type", "x-message-ttl", "x-expires", "x-max-length", "x-overflow",
            "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy",
            "x-delivery-limit", "x-delivery-count-mode", "x-max-priority", "x-queue-mode",
            "x-single-active-consumer", "x-queue-leader-locator", "x-queue-version", "x-max-age",
        ]),
        value in any_value(),
        quorum: bool,
    ) {
        let queue_type = if quorum { QueueType::Quorum } else { QueueType::Classic };
        if let Err(refused) = parse(queue_type, &[(name, value)]) {
            prop_assert!(refused.to_string().contains(name), "{}", refused);
        }
    }
}
