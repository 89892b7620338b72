//! Queue entries (NAM 2, 4, 8), settings, equivalence, placement.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use quorate_catalog::{
    CatalogCommand as C, CatalogEvent, CatalogKey, CatalogReply, ClusterShape, CommonSettings,
    PolicyDefinition, QueueEntry, Redeclared, check_owner, check_queue_properties, effective,
    equivalent, refusal, resolve_queue_type,
};
use quorate_types::{
    ArgumentError, BootNumber, CatalogIndex, FieldTable, FieldValue, GroupId, Home, LeaderLocator,
    NodeId, Overflow, QueueArguments, QueueId, QueueType, StartNumber,
};

#[test]
fn nam_02_of_two_entries_for_one_name_the_first_wins() {
    let mut world = World::new();
    world.add("q", 1);
    let second = queue("q", id(2));
    assert_eq!(world.one(C::AddQueue(second)), CatalogReply::NameTaken { by: id(1) });
    assert_eq!(world.events(), []);
    assert_eq!(world.catalog.queue_by_name(&name("q")).map(|entry| entry.id), Some(id(1)));
    assert_eq!(world.catalog.queue_by_id(id(2)), None);
}

#[test]
fn nam_02_a_repeated_entry_is_done() {
    let mut world = World::new();
    world.add("q", 1);
    world.add("q", 1);
    assert_eq!(world.events(), []);
    assert_eq!(world.catalog.queue_count_of(GroupId(1)), 1);
    assert_eq!(world.one(C::AddQueue(queue("r", id(1)))), CatalogReply::NameTaken { by: id(1) });
}

#[test]
fn nam_02_a_fenced_creator_adds_nothing() {
    let mut world = World::new();
    world.started(1, 11);
    world.started(1, 12);
    let mut entry = queue("q", id(5));
    entry.creator = session(1, 1);
    assert_eq!(world.one(C::AddQueue(entry.clone())), CatalogReply::Fenced);
    entry.creator = session(1, 2);
    world.done(C::AddQueue(entry.clone()));
    world.done(C::NodeDown { node: NodeId(1), start: StartNumber(2) });
    assert_eq!(world.one(C::AddQueue(entry)), CatalogReply::Fenced);
    assert!(world.catalog.queue_by_id(id(5)).is_some(), "a replicated queue outlives its creator");
}

#[test]
fn nam_04_an_entry_is_removed_by_id() {
    let mut world = World::new();
    world.add("q", 1);
    world.done(C::RemoveQueue { queue: id(1) });
    assert_eq!(world.events(), [CatalogEvent::QueueRemoved { id: id(1), name: name("q") }]);
    world.add("q", 2);
    world.done(C::RemoveQueue { queue: id(1) });
    assert_eq!(world.events(), []);
    assert_eq!(world.catalog.queue_by_name(&name("q")).map(|entry| entry.id), Some(id(2)));
    assert_eq!(world.catalog, world.reloaded());
}

fn bound(text: &str, node: u16, start: u64, count: u64) -> QueueEntry {
    QueueEntry {
        creator: session(node, start),
        durable: false,
        owner: Some(connection(node, start, 1)),
        ..queue(text, bound_id(node, start, count))
    }
}

#[test]
fn nam_08_connection_bound_entries_go_with_the_run_of_their_node() {
    let mut world = World::new();
    assert_eq!(world.started(1, 11), CatalogReply::Started(StartNumber(1)));
    assert_eq!(world.started(2, 21), CatalogReply::Started(StartNumber(2)));
    for (text, node, start, count) in [("a", 1, 1, 1), ("b", 1, 1, 2), ("c", 2, 2, 1)] {
        world.done(C::AddQueue(bound(text, node, start, count)));
        world.bind(to_queue("amq.direct", "k", text, bound_id(node, start, count)));
    }
    world.done(C::NodeDown { node: NodeId(1), start: StartNumber(1) });
    assert_eq!(
        world.events(),
        [
            CatalogEvent::NodeDowned { node: NodeId(1), start: StartNumber(1) },
            CatalogEvent::QueueRemoved { id: bound_id(1, 1, 1), name: name("a") },
            CatalogEvent::QueueRemoved { id: bound_id(1, 1, 2), name: name("b") },
        ]
    );
    assert_eq!(world.route("amq.direct", "k"), [bound_id(2, 2, 1)]);
    assert!(world.catalog.is_over(bound_id(1, 1, 1)));
    assert!(!world.catalog.is_over(bound_id(2, 2, 1)));
    // An entry of a fenced start that comes late is refused, whoever proposes it.
    assert_eq!(world.one(C::AddQueue(queue("a", bound_id(1, 1, 1)))), CatalogReply::Fenced);
    assert_eq!(world.one(C::AddQueue(bound("a", 1, 1, 1))), CatalogReply::Fenced);
    assert_eq!(world.catalog, world.reloaded());
}

#[test]
fn q_11_a_new_life_ends_shared_queues_that_are_not_durable() {
    let mut world = World::new();
    world.started(1, 11);
    world.add("durable", 1);
    let transient = QueueEntry { durable: false, ..queue("transient", id(2)) };
    world.done(C::AddQueue(transient));
    world.done(C::AddQueue(bound("bound", 1, 1, 1)));
    world.done(C::NewLife { boot: BootNumber(77) });
    assert_eq!(world.catalog.life(), 1);
    assert_eq!(
        world.events(),
        [
            CatalogEvent::LifeBegan { life: 1 },
            CatalogEvent::QueueRemoved { id: id(2), name: name("transient") },
        ]
    );
    // A repeat does not begin a new life; another process does.
    world.done(C::NewLife { boot: BootNumber(77) });
    assert_eq!(world.catalog.life(), 1);
    world.done(C::NewLife { boot: BootNumber(78) });
    assert_eq!(world.catalog.life(), 2);
    assert!(world.catalog.queue_by_name(&name("durable")).is_some());
    assert_eq!(world.catalog, world.reloaded());
}

#[test]
fn que_12_exq_02_del_02_words_for_queues() {
    let q = name("q");
    let told = |exception: quorate_types::Exception| {
        format!("{} {}", exception.code.number(), exception.reply_text())
    };
    assert_eq!(told(refusal::no_queue(&q)), "404 NOT_FOUND - no queue 'q' in vhost '/'");
    assert_eq!(
        told(refusal::exclusive_queue(&q)),
        "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. \
         It could be originally declared on another connection or the exclusive property value \
         does not match that of the original declaration."
    );
    assert_eq!(
        told(refusal::reserved_queue_name(&name("amq.x"))),
        "403 ACCESS_REFUSED - queue name 'amq.x' contains reserved prefix 'amq.*'"
    );
    assert_eq!(
        told(refusal::server_named_quorum_queue()),
        "406 PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue"
    );
    assert_eq!(
        told(refusal::queue_in_use(&q)),
        "406 PRECONDITION_FAILED - queue 'q' in vhost '/' in use"
    );
    assert_eq!(
        told(refusal::queue_not_empty(&q)),
        "406 PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"
    );
}

#[test]
fn arg_02_arg_03_arg_12_words_for_arguments() {
    let told = |error: ArgumentError| refusal::invalid_argument(&error, &name("q")).reply_text();
    assert_eq!(
        told(ArgumentError::Invalid { name: "x-expires", reason: "{value_zero,0}".to_owned() }),
        "PRECONDITION_FAILED - invalid arg 'x-expires' for queue 'q' in vhost '/': {value_zero,0}"
    );
    assert_eq!(
        told(ArgumentError::WrongQueueType { name: "x-queue-mode", queue_type: QueueType::Quorum }),
        "PRECONDITION_FAILED - invalid arg 'x-queue-mode' for queue 'q' in vhost '/' of queue type rabbit_quorum_queue"
    );
    assert_eq!(
        told(ArgumentError::WrongType { name: "x-dead-letter-exchange", type_name: "signedint" }),
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"
    );
}

#[test]
fn que_02_que_03_the_default_type_gives_way_to_the_properties() {
    use QueueType::{Classic, Quorum};
    let resolve = |given, default, (durable, exclusive, auto_delete)| {
        resolve_queue_type(given, default, durable, exclusive, auto_delete)
    };
    let plain = (true, false, false);
    assert_eq!(resolve(None, Classic, plain), Classic);
    assert_eq!(resolve(None, Quorum, plain), Quorum);
    for odd in [(false, false, false), (true, true, false), (true, false, true)] {
        assert_eq!(resolve(None, Quorum, odd), Classic);
        assert_eq!(resolve(Some(Quorum), Classic, odd), Quorum);
    }
}

#[test]
fn que_08_a_quorum_queue_names_the_first_wrong_property() {
    let told = |queue_type, durable, exclusive, auto_delete| {
        check_queue_properties(&name("q"), queue_type, durable, exclusive, auto_delete)
            .map_err(|refused| refused.reply_text())
    };
    let wrong = |property: &str| {
        Err(format!(
            "PRECONDITION_FAILED - invalid property '{property}' for queue 'q' in vhost '/'"
        ))
    };
    assert_eq!(told(QueueType::Quorum, false, true, true), wrong("auto-delete"));
    assert_eq!(told(QueueType::Quorum, false, true, false), wrong("exclusive-owner"));
    assert_eq!(told(QueueType::Quorum, false, false, false), wrong("non-durable"));
    assert_eq!(told(QueueType::Quorum, true, false, false), Ok(()));
    assert_eq!(told(QueueType::Classic, false, true, true), Ok(()));
}

fn redeclare(
    entry: &QueueEntry,
    change: impl FnOnce(&mut Redeclared<'_>),
    arguments: &FieldTable,
) -> Result<(), String> {
    let mut declared = Redeclared {
        queue_type: entry.queue_type,
        durable: entry.durable,
        auto_delete: entry.auto_delete,
        arguments,
        relaxed_redeclaration: false,
    };
    change(&mut declared);
    equivalent(entry, &declared).map_err(|refused| {
        let told = refused.reply_text();
        told.strip_prefix("PRECONDITION_FAILED - inequivalent arg ").unwrap_or(&told).to_owned()
    })
}

#[test]
fn eqv_01_durable_then_auto_delete_then_arguments() {
    let entry = queue("q", id(1));
    let ttl = table(&[("x-message-ttl", FieldValue::I32(1))]);
    assert_eq!(
        redeclare(&entry, |d| (d.durable, d.auto_delete) = (false, true), &ttl),
        Err("'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'".into())
    );
    assert_eq!(
        redeclare(&entry, |d| d.auto_delete = true, &ttl),
        Err("'auto_delete' for queue 'q' in vhost '/': received 'true' but current is 'false'"
            .into())
    );
    assert_eq!(redeclare(&entry, |_| {}, &FieldTable::default()), Ok(()));
}

#[test]
fn eqv_02_que_18_only_arguments_that_the_type_has_are_compared() {
    let mut entry = queue("q", id(1));
    entry.arguments = table(&[("x-foo", FieldValue::I32(1))]);
    let other = table(&[("x-foo", FieldValue::I32(2)), ("bar", text("baz"))]);
    assert_eq!(redeclare(&entry, |_| {}, &other), Ok(()));
    // Q-12: a classic queue has a delivery limit, so it is compared; a quorum queue has no mode.
    let limit = table(&[("x-delivery-limit", FieldValue::I32(2))]);
    assert!(redeclare(&entry, |_| {}, &limit).is_err());
    entry.queue_type = QueueType::Quorum;
    let mode = table(&[("x-queue-mode", text("lazy"))]);
    assert_eq!(redeclare(&entry, |_| {}, &mode), Ok(()));
    let size = table(&[("x-quorum-initial-group-size", FieldValue::I32(3))]);
    assert!(redeclare(&entry, |_| {}, &size).is_err());
}

#[test]
fn eqv_03_eqv_04_values_and_their_absence_are_named() {
    let mut entry = queue("q", id(1));
    entry.arguments = table(&[("x-message-ttl", FieldValue::I32(60_000))]);
    let ttl = |value| table(&[("x-message-ttl", value)]);
    assert_eq!(
        redeclare(&entry, |_| {}, &ttl(FieldValue::I32(1_000))),
        Err("'x-message-ttl' for queue 'q' in vhost '/': received '1000' but current is '60000'"
            .into())
    );
    assert_eq!(
        redeclare(&entry, |_| {}, &FieldTable::default()),
        Err("'x-message-ttl' for queue 'q' in vhost '/': received none but current is the value '60000' of type 'signedint'".into())
    );
    let mut more = ttl(FieldValue::I32(60_000));
    more.0.push((short("x-max-length"), FieldValue::I64(10_000)));
    assert_eq!(
        redeclare(&entry, |_| {}, &more),
        Err("'x-max-length' for queue 'q' in vhost '/': received the value '10000' of type 'long' but current is none".into())
    );
    let sac = table(&[("x-single-active-consumer", FieldValue::Bool(true))]);
    let plain = queue("q", id(1));
    assert_eq!(
        redeclare(&plain, |_| {}, &sac),
        Err("'x-single-active-consumer' for queue 'q' in vhost '/': received the value 'true' of type 'bool' but current is none".into())
    );
    let overflow = table(&[("x-overflow", text("drop-head"))]);
    assert_eq!(
        redeclare(&plain, |_| {}, &overflow),
        Err("'x-overflow' for queue 'q' in vhost '/': received the value 'drop-head' of type 'longstr' but current is none".into())
    );
}

#[test]
fn eqv_05_integers_are_equal_across_widths() {
    let mut entry = queue("q", id(1));
    entry.arguments = table(&[("x-max-length", FieldValue::I32(5))]);
    for value in [FieldValue::I64(5), FieldValue::U8(5), FieldValue::I16(5)] {
        assert_eq!(redeclare(&entry, |_| {}, &table(&[("x-max-length", value)])), Ok(()));
    }
    assert!(redeclare(&entry, |_| {}, &table(&[("x-max-length", FieldValue::I64(6))])).is_err());
    assert!(redeclare(&entry, |_| {}, &table(&[("x-max-length", text("5"))])).is_err());
}

#[test]
fn eqv_06_the_type_is_compared_as_resolved() {
    let mut entry = queue("q", id(1));
    entry.queue_type = QueueType::Quorum;
    entry.arguments = table(&[("x-queue-type", text("quorum"))]);
    assert_eq!(redeclare(&entry, |_| {}, &FieldTable::default()), Ok(()));
    assert_eq!(
        redeclare(&entry, |d| d.queue_type = QueueType::Classic, &FieldTable::default()),
        Err(
            "'x-queue-type' for queue 'q' in vhost '/': received 'classic' but current is 'quorum'"
                .into()
        )
    );
}

#[test]
fn eqv_07_relaxed_checks_compare_seven_arguments_and_no_property() {
    let mut entry = queue("q", id(1));
    entry.queue_type = QueueType::Quorum;
    entry.arguments = table(&[("x-delivery-limit", FieldValue::I32(5))]);
    let relaxed = |d: &mut Redeclared<'_>| {
        d.queue_type = QueueType::Classic;
        d.durable = false;
        d.relaxed_redeclaration = true;
    };
    assert_eq!(redeclare(&entry, relaxed, &FieldTable::default()), Ok(()));
    let ttl = table(&[("x-message-ttl", FieldValue::I32(1))]);
    assert!(redeclare(&entry, relaxed, &ttl).is_err());
}

#[test]
fn exq_02_exq_03_an_exclusive_queue_is_its_owners_and_declared_as_such() {
    let entry = bound("q", 1, 1, 1);
    let (own, other) = (connection(1, 1, 1), connection(1, 1, 2));
    let code = |entry: &QueueEntry, connection, exclusive| {
        check_owner(entry, connection, exclusive).map_err(|refused| refused.code.number())
    };
    assert_eq!(code(&entry, own, None), Ok(()));
    assert_eq!(code(&entry, own, Some(true)), Ok(()));
    assert_eq!(code(&entry, own, Some(false)), Err(405));
    assert_eq!(code(&entry, other, None), Err(405));
    assert_eq!(code(&entry, other, Some(true)), Err(405));
    let shared = queue("s", id(1));
    assert_eq!(code(&shared, other, None), Ok(()));
    assert_eq!(code(&shared, other, Some(false)), Ok(()));
    assert_eq!(code(&shared, other, Some(true)), Err(405));
}

fn settings(queue_type: QueueType, fields: &[(&str, FieldValue)]) -> quorate_queue::QueueConfig {
    let arguments = QueueArguments::parse(&table(fields), queue_type).unwrap();
    let kind = (queue_type, true, false);
    let common = CommonSettings { letters_max: quorate_queue::LETTERS_MAX, delays_returns: true };
    effective(&arguments, &PolicyDefinition::default(), kind, common, CatalogIndex(7))
}

#[test]
fn dlm_01_q_10_arg_15_the_delivery_limit_follows_type_and_argument() {
    let limit = |queue_type, value: Option<FieldValue>| {
        let fields: Vec<_> = value.into_iter().map(|value| ("x-delivery-limit", value)).collect();
        settings(queue_type, &fields).delivery_limit
    };
    assert_eq!(limit(QueueType::Quorum, None), Some(20));
    assert_eq!(limit(QueueType::Classic, None), None);
    assert_eq!(limit(QueueType::Quorum, Some(FieldValue::I32(-1))), None);
    assert_eq!(limit(QueueType::Quorum, Some(FieldValue::I32(0))), Some(0));
    assert_eq!(limit(QueueType::Quorum, Some(text("many"))), Some(20));
    assert_eq!(limit(QueueType::Classic, Some(FieldValue::I64(5))), Some(5));
    assert_eq!(limit(QueueType::Classic, Some(text("many"))), None);
    assert_eq!(limit(QueueType::Classic, Some(FieldValue::I64(i64::MAX))), Some(u32::MAX));
}

#[test]
fn effective_settings_come_from_the_arguments() {
    let config = settings(
        QueueType::Classic,
        &[
            ("x-message-ttl", FieldValue::I32(1)),
            ("x-expires", FieldValue::I32(2)),
            ("x-max-length", FieldValue::I32(3)),
            ("x-max-length-bytes", FieldValue::I32(4)),
            ("x-overflow", text("reject-publish-dlx")),
            ("x-dead-letter-exchange", text("")),
            ("x-dead-letter-routing-key", text("k")),
            ("x-dead-letter-strategy", text("at-least-once")),
            ("x-max-priority", FieldValue::I32(9)),
            ("x-single-active-consumer", FieldValue::Bool(true)),
            ("x-consumer-timeout", FieldValue::I32(6)),
            ("x-delivery-count-mode", text("failures")),
        ],
    );
    assert_eq!(config.resolved_at, CatalogIndex(7));
    assert_eq!((config.message_ttl_ms, config.expires_ms), (Some(1), Some(2)));
    assert_eq!((config.length_max, config.length_bytes_max), (Some(3), Some(4)));
    assert_eq!(config.overflow, Overflow::RejectPublishDlx);
    assert_eq!((config.priority_max, config.consumer_timeout_ms), (Some(9), Some(6)));
    assert!(config.single_active_consumer && config.delivery_count_failures);
    let dead_letter = config.dead_letter.unwrap();
    assert_eq!((dead_letter.exchange, dead_letter.routing_key), (short(""), Some(short("k"))));
    assert!(dead_letter.at_least_once);
    let plain = settings(QueueType::Quorum, &[]);
    let mut expected = quorate_queue::QueueConfig::plain(QueueType::Quorum);
    expected.resolved_at = CatalogIndex(7);
    assert_eq!(plain, expected);
}

#[test]
fn config_of_resolves_at_the_version_of_the_copy() {
    let mut world = World::new();
    let mut entry = queue("q", id(1));
    entry.arguments = table(&[("x-max-length", FieldValue::I32(3))]);
    world.done(C::AddQueue(entry.clone()));
    world.catalog.advance(CatalogIndex(9));
    let config = world.catalog.config_of(&entry);
    assert_eq!((config.resolved_at, config.length_max), (CatalogIndex(9), Some(3)));
}

#[test]
fn que_15_a_queue_is_placed_in_the_least_loaded_group() {
    let mut world = World::new();
    let place = |world: &World, locator, preferred: &[u16]| {
        let preferred: Vec<GroupId> = preferred.iter().map(|group| GroupId(*group)).collect();
        world.catalog.place(locator, &preferred, |_| true)
    };
    let (local, balanced) = (LeaderLocator::ClientLocal, LeaderLocator::Balanced);
    assert_eq!(place(&world, local, &[3]), GroupId(1), "no shape yet");
    world.done(C::Form(ClusterShape { cluster: quorate_types::ClusterId(1), queue_groups: 4 }));
    assert_eq!(
        world.events(),
        [CatalogEvent::Formed(ClusterShape {
            cluster: quorate_types::ClusterId(1),
            queue_groups: 4
        })]
    );
    world.done(C::Form(ClusterShape { cluster: quorate_types::ClusterId(1), queue_groups: 9 }));
    assert_eq!(
        world.catalog.shape(),
        Some(ClusterShape { cluster: quorate_types::ClusterId(1), queue_groups: 4 })
    );
    assert_eq!(world.events(), []);
    assert_eq!(place(&world, local, &[4, 3]), GroupId(3), "the lowest number between equals");
    assert_eq!(place(&world, local, &[]), GroupId(1));
    assert_eq!(place(&world, local, &[17]), GroupId(1), "a group that is none");
    for (number, group) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3)] {
        let id = QueueId { home: Home::Group(GroupId(group)), index: number, position: 0 };
        world.done(C::AddQueue(queue(&format!("q{number}"), id)));
    }
    assert_eq!(place(&world, balanced, &[1]), GroupId(4));
    assert_eq!(place(&world, local, &[1, 2, 3]), GroupId(2));
    let in_group = |world: &World, group| {
        world.catalog.queues_of_home(Home::Group(GroupId(group)), None).count()
    };
    assert_eq!([1, 2, 3, 4].map(|group| in_group(&world, group)), [2, 1, 2, 0]);
    let first = QueueId { home: Home::Group(GroupId(1)), index: 1, position: 0 };
    world.done(C::RemoveQueue { queue: first });
    assert_eq!(world.catalog.queue_count_of(GroupId(1)), 1);
    assert!(world.out.changes.contains(&CatalogKey::Queue(first)));
}
