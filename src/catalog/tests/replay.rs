//! Any sequence of commands: the records that the changes name are enough to restore the catalog,
//! equal logs give equal digests, and removed objects leave nothing behind.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use proptest::prelude::*;
use quorate_catalog::{
    AccessCommand as A, Binding, Catalog, CatalogCommand as C, CatalogKey, CatalogOutput,
    CatalogRecord, ClusterShape, Destination, ExchangeType, ParameterName, ParameterRecord,
    PasswordHash, PermissionRecord, PolicyKind, PolicyRecord, QueueEntry, TopicPermissionRecord,
    UserLimit, UserLimits, UserRecord, VhostLimits, VhostMetadata, VhostUpdate,
};
use quorate_types::{
    BootNumber, CatalogIndex, FieldValue, NodeId, QueueId, QueueType, ResourceName, ShortString,
    StartNumber,
};
use std::collections::BTreeMap;

const NAMES: [&str; 4] = ["a", "b", "c", "amq.topic"];

fn any_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(NAMES.to_vec())
}

fn any_id() -> impl Strategy<Value = QueueId> {
    prop_oneof![
        (1..6u64).prop_map(id),
        (1..3u16, 1..20u64, 1..3u64).prop_map(|(node, start, count)| bound_id(node, start, count)),
    ]
}

fn any_exchange() -> impl Strategy<Value = C> {
    let kinds =
        [ExchangeType::Direct, ExchangeType::Fanout, ExchangeType::Topic, ExchangeType::Headers];
    (any_vhost(), any_name(), prop::sample::select(kinds.to_vec()), any::<bool>()).prop_map(
        |(vhost, text, kind, auto_delete)| {
            let mut record = exchange(text, kind);
            record.name.vhost = vhost;
            record.auto_delete = auto_delete;
            C::DeclareExchange(record)
        },
    )
}

fn any_binding() -> impl Strategy<Value = Binding> {
    let to = prop_oneof![
        3 => (any_name(), any_id()).prop_map(|(text, id)| Destination::Queue { name: short(text), id }),
        1 => any_name().prop_map(|text| Destination::Exchange(short(text))),
    ];
    let keys = prop::sample::select(vec!["", "k", "k.*", "#", "k.#.l"]);
    (any_name(), to, keys, 0..3i32).prop_map(|(source, destination, key, argument)| {
        let fields: &[(&str, FieldValue)] =
            if argument == 0 { &[] } else { &[("n", FieldValue::I32(argument))] };
        Binding { source: name(source), destination, key: short(key), arguments: table(fields) }
    })
}

fn any_queue() -> impl Strategy<Value = QueueEntry> {
    (any_vhost(), any_name(), any_id(), any::<bool>(), 1..3u16, 1..20u64).prop_map(
        |(vhost, text, id, durable, node, start)| QueueEntry {
            name: ResourceName { vhost, name: short(text) },
            creator: session(node, start),
            durable,
            ..queue(text, id)
        },
    )
}

fn any_policy() -> impl Strategy<Value = PolicyRecord> {
    let kinds = prop::sample::select(vec![PolicyKind::User, PolicyKind::Operator]);
    (any_name(), kinds, prop::sample::select(vec!["", "a", "^b"]), 0..3i64, 0..9u64).prop_map(
        |(text, kind, pattern, priority, length)| {
            let definition = format!("{{\"max-length\":{length}}}");
            policy(text, kind, pattern, "all", priority, &definition)
        },
    )
}

fn any_parameter() -> impl Strategy<Value = ParameterRecord> {
    (any_name(), any::<bool>(), 0..3u8).prop_map(|(text, global, value)| {
        let name = short(text);
        let (vhost, component) = (short("v"), short("shovel"));
        let vhosts = ParameterName::Vhost { vhost, component, name: name.clone() };
        let name = if global { ParameterName::Global(name) } else { vhosts };
        ParameterRecord { name, value: value.to_string() }
    })
}

/// Virtual hosts; only the last one is ever deleted.
fn any_vhost() -> impl Strategy<Value = ShortString> {
    prop::sample::select(vec!["/", "missing", "v"]).prop_map(short)
}

fn any_user() -> impl Strategy<Value = ShortString> {
    prop::sample::select(vec!["ann", "ben"]).prop_map(short)
}

fn any_pattern() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", ".*", "^a", "{username}", "("]).prop_map(str::to_owned)
}

fn any_limit() -> impl Strategy<Value = Option<i64>> {
    prop::option::of(-1..3i64)
}

fn any_change_of_users() -> impl Strategy<Value = A> {
    let hash = |salt: u8| PasswordHash::of(Default::default(), [salt; 4], b"secret");
    let tags = || prop::collection::vec(any_user(), 0..3);
    prop_oneof![
        4 => (any_user(), 0..2u8, tags()).prop_map(move |(name, salt, tags)| {
            let limits = UserLimits::default();
            A::AddUser(UserRecord { name, password: hash(salt), tags, limits })
        }),
        1 => (any_user(), 0..2u8)
            .prop_map(move |(user, salt)| A::ChangePassword { user, password: hash(salt) }),
        1 => (any_user(), tags()).prop_map(|(user, tags)| A::SetUserTags { user, tags }),
        1 => any_user().prop_map(|user| A::DeleteUser { user }),
        1 => (any_user(), any_limit(), any_limit()).prop_map(|(user, connections_max, channels_max)| {
            A::SetUserLimits { user, limits: UserLimits { connections_max, channels_max } }
        }),
        1 => (any_user(), any::<bool>()).prop_map(|(user, all)| {
            let which = if all { UserLimit::All } else { UserLimit::Channels };
            A::ClearUserLimits { user, which }
        }),
    ]
}

fn any_change_of_vhosts() -> impl Strategy<Value = A> {
    prop_oneof![
        4 => Just(A::AddVhost { vhost: short("v"), metadata: VhostMetadata::default() }),
        1 => (any_vhost(), prop::option::of(any_pattern())).prop_map(|(vhost, description)| {
            let default_queue_type = description.as_ref().map(|_| QueueType::Quorum);
            let tags = description.as_ref().map(|_| vec![short("t")]);
            A::UpdateVhost { vhost, update: VhostUpdate { description, tags, default_queue_type } }
        }),
        1 => Just(A::DeleteVhost { vhost: short("v") }),
        1 => (any_vhost(), any_limit(), any_limit()).prop_map(|(vhost, connections_max, queues_max)| {
            A::SetVhostLimits { vhost, limits: VhostLimits { connections_max, queues_max } }
        }),
        1 => (any_vhost(), any::<bool>())
            .prop_map(|(vhost, tracing)| A::SetTracing { vhost, tracing }),
        1 => (any_vhost(), any::<bool>())
            .prop_map(|(vhost, protected)| A::SetProtection { vhost, protected }),
    ]
}

fn any_change_of_permissions() -> impl Strategy<Value = A> {
    prop_oneof![
        4 => (any_vhost(), any_user(), any_pattern(), any_pattern()).prop_map(
            |(vhost, user, configure, read)| A::SetPermissions(PermissionRecord {
                vhost, user, write: read.clone(), configure, read,
            })
        ),
        1 => (any_vhost(), any_user())
            .prop_map(|(vhost, user)| A::ClearPermissions { vhost, user }),
        4 => (any_vhost(), any_user(), any_name(), any_pattern(), any_pattern()).prop_map(
            |(vhost, user, exchange, write, read)| A::SetTopicPermissions(TopicPermissionRecord {
                vhost, user, exchange: short(exchange), write, read,
            })
        ),
        1 => (any_vhost(), any_user(), prop::option::of(any_name())).prop_map(
            |(vhost, user, exchange)| A::ClearTopicPermissions {
                vhost, user, exchange: exchange.map(short),
            }
        ),
    ]
}

fn any_command() -> impl Strategy<Value = C> {
    prop_oneof![
        3 => any_exchange(),
        2 => (any_name(), any::<bool>())
            .prop_map(|(text, if_unused)| C::DeleteExchange { exchange: name(text), if_unused }),
        10 => any_binding().prop_map(C::Bind),
        4 => any_binding().prop_map(C::Unbind),
        8 => any_queue().prop_map(C::AddQueue),
        3 => any_id().prop_map(|queue| C::RemoveQueue { queue }),
        1 => (1..3u16, 1..5u64).prop_map(|(node, boot)| started(node, boot)),
        1 => (1..3u16, 1..20u64)
            .prop_map(|(node, start)| C::NodeDown { node: NodeId(node), start: StartNumber(start) }),
        1 => (1..3u64).prop_map(|boot| C::NewLife { boot: BootNumber(boot) }),
        3 => any_policy().prop_map(C::SetPolicy),
        2 => any_policy().prop_map(|policy| C::ClearPolicy(policy.full_name())),
        1 => any_parameter().prop_map(C::SetParameter),
        1 => any_parameter().prop_map(|parameter| C::ClearParameter(parameter.name)),
        5 => any_change_of_users().prop_map(C::Access),
        3 => any_change_of_vhosts().prop_map(C::Access),
        5 => any_change_of_permissions().prop_map(C::Access),
        1 => (1..9u16).prop_map(|queue_groups| C::Form(ClusterShape { cluster: quorate_types::ClusterId(1), queue_groups })),
    ]
}

fn any_log() -> impl Strategy<Value = Vec<Vec<C>>> {
    prop::collection::vec(prop::collection::vec(any_command(), 0..5), 1..40)
}

/// What a checkpoint after each entry writes to disk.
fn write(disk: &mut BTreeMap<CatalogKey, CatalogRecord>, catalog: &Catalog, out: &CatalogOutput) {
    for key in &out.changes {
        match catalog.record(key) {
            Some(record) => drop(disk.insert(key.clone(), record)),
            None => drop(disk.remove(key)),
        }
    }
}

fn policies(catalog: &Catalog) -> Vec<PolicyRecord> {
    let of = |kind| catalog.policies(kind, &short("/"));
    of(PolicyKind::User).into_iter().chain(of(PolicyKind::Operator)).cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The changes are complete: a catalog loaded from the records that they wrote is equal, with
    /// all indexes and its digest, and behaves alike afterwards. Equality of the indexes also shows
    /// that removed objects left nothing in them.
    #[test]
    fn records_written_by_changes_make_the_same_catalog(log in any_log(), tail in any_log(), at in 0..40usize) {
        let mut world = World::new();
        let mut disk = BTreeMap::new();
        for (place, commands) in log.into_iter().enumerate() {
            let commands_given = commands.len();
            let replies = world.apply(commands);
            prop_assert_eq!(replies.len(), commands_given);
            write(&mut disk, &world.catalog, &world.out);
            if place == at {
                prop_assert_eq!(&Catalog::load(disk.clone()).unwrap(), &world.catalog);
            }
        }
        let mut other = World { catalog: Catalog::load(disk).unwrap(), index: world.index, ..World::new() };
        prop_assert_eq!(&other.catalog, &world.catalog);
        for commands in tail {
            prop_assert_eq!(other.apply(commands.clone()), world.apply(commands));
            prop_assert_eq!(&other.out.changes, &world.out.changes);
            prop_assert_eq!(&other.out.events, &world.out.events);
        }
        prop_assert_eq!(other.catalog, world.catalog);
    }

    /// Equal logs give equal digests; a different log gives another digest.
    #[test]
    fn the_digest_follows_what_was_done(log in any_log(), extra in any_queue()) {
        let (mut left, mut right) = (World::new(), World::new());
        for commands in &log {
            left.apply(commands.clone());
            right.apply(commands.clone());
        }
        prop_assert_eq!(left.catalog.digest(), right.catalog.digest());
        for world in [&mut left, &mut right] {
            world.access(A::SetVhostLimits { vhost: short("/"), limits: VhostLimits::default() });
        }
        left.apply(vec![C::AddQueue(QueueEntry { creator: session(50, 1), name: name("new"), id: id(999), ..extra })]);
        right.apply(vec![]);
        prop_assert_ne!(left.catalog.digest(), right.catalog.digest());
    }

    /// A repeat of any command directly after it is harmless: the state is the same as after the
    /// first time, except for the index of the log (SES 3; a proposer that lost the answer sends
    /// again).
    #[test]
    fn a_repeated_command_changes_nothing(log in any_log(), command in any_command()) {
        let mut world = World::new();
        log.into_iter().for_each(|commands| drop(world.apply(commands)));
        let first = world.one(command.clone());
        let second = world.one(command.clone());
        let changes: Vec<_> = world.out.changes.clone();
        let again = matches!(command, C::NodeStarted { .. } | C::AddQueue(_)) || first == second;
        prop_assert!(again, "{:?}: {:?}, then {:?}", command, first, second);
        let refused_before = !matches!(command, C::NodeStarted { .. });
        if refused_before {
            prop_assert_eq!(changes, vec![CatalogKey::State], "{:?}", command);
        }
    }

    /// After everything has been deleted, a catalog equals one in which nothing ever existed,
    /// except for its version, digest and counters.
    #[test]
    fn what_is_removed_leaves_nothing_behind(log in any_log()) {
        let mut world = World::new();
        log.into_iter().for_each(|commands| drop(world.apply(commands)));
        let queues: Vec<QueueId> = world.catalog.queues().map(|queue| queue.id).collect();
        queues.into_iter().for_each(|queue| world.done(C::RemoveQueue { queue }));
        let bindings: Vec<Binding> = world.catalog.bindings().cloned().collect();
        bindings.into_iter().for_each(|binding| world.done(C::Unbind(binding)));
        world.access(A::DeleteVhost { vhost: short("v") });
        for user in ["ann", "ben"] {
            world.access(A::DeleteUser { user: short(user) });
        }
        for text in ["a", "b", "c"] {
            world.done(C::DeleteExchange { exchange: name(text), if_unused: false });
        }
        for policy in policies(&world.catalog) {
            world.done(C::ClearPolicy(policy.full_name()));
        }
        let parameters: Vec<_> = world.catalog.parameters().collect();
        parameters.into_iter().for_each(|one| world.done(C::ClearParameter(one.name)));
        prop_assert_eq!(world.catalog.bindings().count(), 0);
        let mut records: Vec<_> = world.catalog.keys();
        records.retain(|key| !matches!(key, CatalogKey::Node(_)));
        prop_assert_eq!(records, Catalog::new().keys());
        prop_assert_eq!(world.reloaded(), world.catalog);
    }
}

/// The digest of one fixed log, so that a change of its input is noticed: with such a change the
/// replicas of two releases would differ.
#[test]
fn the_digest_of_a_fixed_log_is_fixed() {
    let mut world = World::new();
    world.started(1, 11);
    world.declare("x", ExchangeType::Topic);
    world.add("q", 1);
    world.bind(to_queue("x", "a.#", "q", id(1)));
    world.done(C::RemoveQueue { queue: id(1) });
    world.done(C::NewLife { boot: BootNumber(3) });
    assert_eq!(world.catalog.version(), CatalogIndex(6));
    assert_eq!(world.catalog.digest(), 8_597_336_600_580_455_855);
}
