//! Virtual hosts, users, permissions, limits: the effects of commands, and the decisions.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod common;

use common::*;
use proptest::prelude::*;
use quorate_catalog::{
    Access, AccessCommand as A, CatalogCommand as C, CatalogEvent, CatalogReply, Denial,
    ExchangeType, PasswordHash, Pattern, PermissionRecord, QueueEntry, Resource,
    TopicPermissionRecord, UserLimit, UserLimits, UserRecord, VhostLimits, VhostMetadata,
    VhostUpdate, Who, reached,
};
use quorate_types::{CatalogIndex, MachineVersion, QueueType, ResourceName, ShortString};

fn user(name: &str) -> UserRecord {
    UserRecord {
        name: short(name),
        password: PasswordHash::of(Default::default(), [1, 2, 3, 4], b"secret"),
        tags: Vec::new(),
        limits: UserLimits::default(),
    }
}

fn row(vhost: &str, user: &str, patterns: [&str; 3]) -> A {
    let [configure, write, read] = patterns.map(str::to_owned);
    A::SetPermissions(PermissionRecord {
        vhost: short(vhost),
        user: short(user),
        configure,
        write,
        read,
    })
}

fn topic_row(vhost: &str, user: &str, exchange: &str, write: &str, read: &str) -> A {
    A::SetTopicPermissions(TopicPermissionRecord {
        vhost: short(vhost),
        user: short(user),
        exchange: short(exchange),
        write: write.to_owned(),
        read: read.to_owned(),
    })
}

fn in_vhost(vhost: &str, text: &str) -> ResourceName {
    ResourceName { vhost: short(vhost), name: short(text) }
}

fn add_vhost(name: &str) -> A {
    A::AddVhost { vhost: short(name), metadata: VhostMetadata::default() }
}

/// A world with user `u`, who has no permissions, and virtual host `v`.
fn world() -> World {
    let mut world = World::new();
    world.access(A::AddUser(user("u")));
    world.access(add_vhost("v"));
    world
}

/// The text of the refusal that user `u` gets in virtual host `/`; empty if allowed.
fn told(world: &World, access: Access, resource: Resource<'_>) -> String {
    let (vhost, user) = (short("/"), short("u"));
    let who = Who { vhost: &vhost, user: &user };
    match world.catalog.check_access(who, access, resource) {
        Ok(()) => String::new(),
        Err(exception) => format!("{} {}", exception.code.number(), exception.reply_text()),
    }
}

fn topic_told(world: &World, access: Access, exchange: &str, key: &str) -> String {
    let (vhost, user) = (short("/"), short("u"));
    let who = Who { vhost: &vhost, user: &user };
    let checked = world.catalog.check_topic(who, access, &short(exchange), &short(key));
    checked.err().map(|exception| exception.reply_text()).unwrap_or_default()
}

#[test]
fn acl_01_without_a_row_nothing_is_allowed_and_an_empty_row_is_one() {
    let mut world = world();
    let (vhost, user) = (short("/"), short("u"));
    let who = Who { vhost: &vhost, user: &user };
    assert!(world.catalog.rights(who).is_none());
    let q = short("q");
    assert_eq!(
        told(&world, Access::Read, Resource::Queue(&q)),
        "403 ACCESS_REFUSED - read access to queue 'q' in vhost '/' refused for user 'u'"
    );
    world.access(row("/", "u", ["", "", ""]));
    assert!(world.catalog.rights(who).is_some());
    assert_ne!(told(&world, Access::Read, Resource::Queue(&q)), "");
    world.access(A::ClearPermissions { vhost: short("/"), user: short("u") });
    assert!(world.catalog.rights(who).is_none());
}

#[test]
fn acl_02_patterns_are_searched_and_the_empty_one_matches_the_empty_name_only() {
    for (pattern, name, expected) in [
        ("a", "bar", true),
        ("^a", "bar", false),
        ("", "", true),
        ("", "a", false),
        ("^$", "", true),
        (".*", "anything at all", true),
        (r"^(amq\.gen.*|amq\.default)$", "amq.default", true),
        (r"^(amq\.gen.*|amq\.default)$", "xamq.default", false),
        (r"^[\w.-]{1,3}$", "a.b", true),
        (r"^[\w.-]{1,3}$", "a.bc", false),
        ("{x}", "a{x}b", true),
        ("a{2,}", "caab", true),
        (r"\x{41}", "A", true),
        ("[é]", "caf\u{e9}", true),
    ] {
        let matched = Pattern::new(pattern).unwrap().matches(name.as_bytes());
        assert_eq!(matched, expected, "{pattern} in {name}");
    }
}

#[test]
fn acl_03_the_default_exchange_is_checked_as_amq_default() {
    let mut world = world();
    world.access(row("/", "u", ["", r"^amq\.default$", ""]));
    let nothing = ShortString::EMPTY;
    assert_eq!(told(&world, Access::Write, Resource::Exchange(&nothing)), "");
    world.access(row("/", "u", ["", "^other$", ""]));
    assert_eq!(
        told(&world, Access::Write, Resource::Exchange(&nothing)),
        "403 ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'u'"
    );
}

#[test]
fn acl_04_a_passive_declare_wants_any_of_the_three_and_names_configure() {
    let mut world = world();
    let (vhost, user, q) = (short("/"), short("u"), short("q"));
    let who = Who { vhost: &vhost, user: &user };
    for patterns in [["q", "", ""], ["", "q", ""], ["", "", "q"]] {
        world.access(row("/", "u", patterns));
        assert_eq!(world.catalog.check_passive(who, Resource::Queue(&q)), Ok(()));
    }
    world.access(row("/", "u", ["x", "x", "x"]));
    let refused = world.catalog.check_passive(who, Resource::Queue(&q)).unwrap_err();
    assert_eq!(
        refused.explanation,
        "configure access to queue 'q' in vhost '/' refused for user 'u'"
    );
}

#[test]
fn acl_14_15_topic_permissions_are_for_topic_exchanges_with_a_row() {
    let mut world = world();
    world.declare("t", ExchangeType::Topic);
    world.declare("d", ExchangeType::Direct);
    assert_eq!(topic_told(&world, Access::Write, "t", "k"), "");
    world.access(topic_row("/", "u", "t", r"^{username}\.{vhost}\.{other}", "^r"));
    world.access(topic_row("/", "u", "d", "^x", "^x"));
    assert_eq!(topic_told(&world, Access::Write, "d", "k"), "");
    assert_eq!(topic_told(&world, Access::Write, "t", "u./.{other}"), "");
    assert_eq!(
        topic_told(&world, Access::Write, "t", "k"),
        "ACCESS_REFUSED - write access to topic 'k' in exchange 't' in vhost '/' refused for user 'u'"
    );
    assert_eq!(topic_told(&world, Access::Read, "t", "r.s"), "");
    assert_eq!(
        topic_told(&world, Access::Read, "t", "k"),
        "ACCESS_REFUSED - read access to topic 'k' in exchange 't' in vhost '/' refused for user 'u'"
    );
    world.access(A::ClearTopicPermissions {
        vhost: short("/"),
        user: short("u"),
        exchange: Some(short("t")),
    });
    assert_eq!(topic_told(&world, Access::Write, "t", "k"), "");
    assert_eq!(world.catalog.topic_permissions().count(), 1);
    world.access(A::ClearTopicPermissions { vhost: short("/"), user: short("u"), exchange: None });
    assert_eq!(world.catalog.topic_permissions().count(), 0);
}

/// A user's name in a topic pattern is quoted: its characters have no meaning as a pattern.
#[test]
fn acl_15_a_users_name_is_no_pattern() {
    let mut world = World::new();
    world.access(A::AddUser(user("a.c")));
    world.access(topic_row("/", "a.c", "amq.topic", "^{username}$", ""));
    let (vhost, user) = (short("/"), short("a.c"));
    let who = Who { vhost: &vhost, user: &user };
    let check =
        |key: &str| world.catalog.check_topic(who, Access::Write, &short("amq.topic"), &short(key));
    assert!(check("a.c").is_ok() && check("abc").is_err());
    // The row is stored as it was written.
    assert_eq!(world.catalog.topic_permissions().next().unwrap().write, "^{username}$");
}

#[test]
fn ctl_13_a_bad_expression_is_refused_before_anything_else() {
    let mut world = world();
    for (pattern, reason, at) in [
        ("(", "missing )", 1),
        ("a)", "unmatched parentheses", 1),
        ("*a", "nothing to repeat", 0),
        ("[a", "missing terminating ] for character class", 2),
        ("(?!a)", "look-around is not supported", 0),
    ] {
        let denial = world.denial(row("/", "nobody", [pattern, "", ""]));
        let (pattern, reason) = (pattern.to_owned(), reason.to_owned());
        assert_eq!(denial, Denial::InvalidPattern { pattern, reason, at });
    }
    let too_large = format!("{}{}", "(a{1,999}){1,999}", "x");
    let too_long = "a".repeat(5_000);
    for pattern in [too_large.as_str(), too_long.as_str()] {
        let denial = world.denial(row("/", "u", ["", pattern, ""]));
        assert!(matches!(denial, Denial::InvalidPattern { .. }), "{denial}");
    }
    assert_eq!(world.denial(row("/", "nobody", ["", "", ""])), Denial::NoSuchUser(short("nobody")));
    assert_eq!(world.denial(row("w", "u", ["", "", ""])), Denial::NoSuchVhost(short("w")));
    assert_eq!(world.catalog.permissions().count(), 1);
}

#[test]
fn acl_22_a_new_cluster_has_guest_who_may_everything() {
    let world = World::new();
    let rows: Vec<PermissionRecord> = world.catalog.permissions().collect();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].user.as_str(), rows[0].vhost.as_str()), ("guest", "/"));
    assert_eq!([&rows[0].configure, &rows[0].write, &rows[0].read], [".*", ".*", ".*"]);
    assert!(world.catalog.is_password(&short("guest"), b"guest"));
    assert!(!world.catalog.is_password(&short("guest"), b""));
    assert!(!world.catalog.is_password(&short("nobody"), b"guest"));
    let guest = world.catalog.user(&short("guest")).unwrap();
    assert_eq!(guest.tags, vec![short("administrator")]);
}

#[test]
fn acl_20_users_have_tags_and_passwords_that_change() {
    let mut world = world();
    assert_eq!(
        world.denial(A::AddUser(UserRecord { tags: vec![short("t")], ..user("u") })),
        Denial::UserExists(short("u"))
    );
    world.access(A::SetUserTags { user: short("u"), tags: vec![short("monitoring"), short("x")] });
    assert_eq!(world.catalog.user(&short("u")).unwrap().tags.len(), 2);
    let tags = vec![short("t"); 65];
    assert!(matches!(
        world.denial(A::SetUserTags { user: short("u"), tags }),
        Denial::TooManyTags { .. }
    ));
    let password = PasswordHash::of(Default::default(), [0; 4], b"other");
    world.access(A::ChangePassword { user: short("u"), password: password.clone() });
    assert!(world.catalog.is_password(&short("u"), b"other"));
    let nobody = A::ChangePassword { user: short("nobody"), password };
    assert_eq!(world.denial(nobody), Denial::NoSuchUser(short("nobody")));
}

/// CONN-33: brokers get an event by which they close connections; the user's rows are removed.
#[test]
fn conn_33_a_user_goes_with_its_permissions() {
    let mut world = world();
    world.access(row("/", "u", [".*", ".*", ".*"]));
    world.access(topic_row("v", "u", "amq.topic", ".*", ".*"));
    world.access(A::DeleteUser { user: short("u") });
    assert_eq!(world.events(), [CatalogEvent::UserDeleted { user: short("u") }]);
    assert_eq!(world.catalog.permissions().count(), 1);
    assert_eq!(world.catalog.topic_permissions().count(), 0);
    world.access(A::DeleteUser { user: short("u") });
    assert_eq!(world.events(), []);
}

#[test]
fn exc_01_every_virtual_host_has_its_own_exchanges_and_they_go_with_it() {
    let mut world = world();
    let of_v = |world: &World| {
        world.catalog.exchanges().filter(|one| one.name.vhost == short("v")).count()
    };
    assert_eq!(of_v(&world), 6);
    let mut declared = exchange("x", ExchangeType::Topic);
    declared.name = in_vhost("v", "x");
    world.done(C::DeclareExchange(declared));
    let entry = QueueEntry { name: in_vhost("v", "q"), ..queue("q", id(7)) };
    world.done(C::AddQueue(entry.clone()));
    let mut bound = to_queue("x", "k", "q", id(7));
    bound.source = in_vhost("v", "x");
    world.bind(bound);
    world.add("q", 8);
    world.access(row("v", "u", [".*", ".*", ".*"]));
    let created = world.catalog.vhost(&short("v")).unwrap().created;
    world.access(A::DeleteVhost { vhost: short("v") });
    let deleted = CatalogEvent::VhostDeleted { vhost: short("v"), queues: vec![id(7)] };
    assert!(world.events().contains(&deleted));
    assert_eq!(
        (of_v(&world), world.catalog.bindings().count(), world.catalog.queue_count()),
        (0, 0, 1)
    );
    assert_eq!(world.catalog.permissions().count(), 1);
    assert_eq!(world.refusal(C::AddQueue(entry)), "530 NOT_ALLOWED - vhost v not found");
    // NAM 4: a later virtual host of the same name is a different one.
    assert!(world.catalog.is_of_former_vhost(&short("v"), CatalogIndex(100)));
    world.access(add_vhost("v"));
    assert!(world.catalog.is_of_former_vhost(&short("v"), created));
    assert!(!world.catalog.is_of_former_vhost(&short("v"), CatalogIndex(100)));
    assert_eq!(world.reloaded(), world.catalog);
}

#[test]
fn ctl_07_metadata_of_a_virtual_host_changes_in_parts() {
    let mut world = world();
    let update = |description: Option<&str>, default_queue_type| A::UpdateVhost {
        vhost: short("v"),
        update: VhostUpdate {
            description: description.map(str::to_owned),
            tags: None,
            default_queue_type,
        },
    };
    world.access(update(Some("text"), None));
    world.access(update(None, Some(QueueType::Quorum)));
    let metadata = world.catalog.vhost(&short("v")).unwrap().metadata.clone();
    assert_eq!(
        (metadata.description.as_str(), metadata.default_queue_type),
        ("text", Some(QueueType::Quorum))
    );
    // A second `add_vhost` leaves it as it is.
    world.access(add_vhost("v"));
    assert_eq!(world.catalog.vhost(&short("v")).unwrap().metadata, metadata);
}

#[test]
fn que_11_vlm_01_a_virtual_host_has_at_most_max_queues() {
    let mut world = world();
    let limit = |queues_max| A::SetVhostLimits {
        vhost: short("/"),
        limits: VhostLimits { queues_max, connections_max: None },
    };
    world.access(limit(Some(1)));
    world.add("a", 1);
    assert_eq!(
        world.refusal(C::AddQueue(queue("b", id(2)))),
        "406 PRECONDITION_FAILED - cannot declare queue 'b': queue limit in vhost '/' (1) is reached"
    );
    // The same queue again is not counted as a new one.
    world.add("a", 1);
    assert!(world.catalog.check_queue_limit(&name("b"), 0).is_err());
    world.access(limit(Some(2)));
    assert!(world.catalog.check_queue_limit(&name("b"), 0).is_ok());
    assert!(world.catalog.check_queue_limit(&name("b"), 1).is_err());
    world.access(limit(Some(-1)));
    world.add("b", 2);
    world.access(limit(Some(0)));
    assert!(world.catalog.check_queue_limit(&name("c"), 0).is_err());
    world.access(limit(None));
    world.add("c", 3);
    assert_eq!(world.catalog.vhost_limits(&short("v")), VhostLimits::default());
}

#[test]
fn vlm_01_vlm_02_negative_is_no_limit_and_0_allows_nothing() {
    assert_eq!(reached(None, 1_000), None);
    assert_eq!(reached(Some(-1), 1_000), None);
    assert_eq!(reached(Some(0), 0), Some(0));
    assert_eq!(reached(Some(2), 1), None);
    assert_eq!(reached(Some(2), 2), Some(2));
}

#[test]
fn vlm_02_a_users_limits_are_set_and_cleared_one_by_one() {
    let mut world = world();
    let set = |connections_max, channels_max| A::SetUserLimits {
        user: short("u"),
        limits: UserLimits { connections_max, channels_max },
    };
    let limits = |world: &World| {
        let limits = world.catalog.user_limits(&short("u"));
        (limits.connections_max, limits.channels_max)
    };
    world.access(set(Some(3), None));
    world.access(set(None, Some(2)));
    assert_eq!(limits(&world), (Some(3), Some(2)));
    world.access(A::ClearUserLimits { user: short("u"), which: UserLimit::Channels });
    assert_eq!(limits(&world), (Some(3), None));
    world.access(set(None, Some(2)));
    world.access(A::ClearUserLimits { user: short("u"), which: UserLimit::All });
    assert_eq!(limits(&world), (None, None));
}

/// ACL-13: the broker's cached decisions are valid until this version grows.
#[test]
fn acl_13_the_access_version_grows_with_what_decides() {
    let mut world = world();
    let before = world.catalog.access_version();
    world.add("q", 1);
    assert_eq!(world.catalog.access_version(), before);
    world.access(row("/", "u", [".*", "", ""]));
    assert!(world.catalog.access_version() > before);
    let before = world.catalog.access_version();
    world.access(row("/", "u", [".*", "", ""]));
    assert_eq!(world.catalog.access_version(), before);
}

proptest! {
    /// Any text given as an expression is compiled or refused, in bounded time, without a panic;
    /// and a compiled one can be matched against any name.
    #[test]
    fn any_pattern_is_taken_or_refused(pattern in r"[a-c.*+?(){}|^$0-9,\[\]\\xpé-]{0,30}", name in "[a-cé{}]{0,20}") {
        if let Ok(compiled) = Pattern::new(&pattern) {
            let _ = compiled.matches(name.as_bytes());
            prop_assert_eq!(compiled.text(), pattern);
        }
    }

    /// ACL-02 against a simple model, for patterns that are plain words.
    #[test]
    fn acl_02_a_plain_word_is_searched(word in "[a-c]{1,3}", name in "[a-c]{0,8}") {
        let pattern = Pattern::new(&word).unwrap();
        prop_assert_eq!(pattern.matches(name.as_bytes()), name.contains(&word));
    }
}

#[test]
fn tracing_is_a_property_of_one_virtual_host() {
    let mut world = world();
    let traced =
        |world: &World| ["/", "v", "missing"].map(|it| world.catalog.is_traced(&short(it)));
    assert_eq!(traced(&world), [false; 3]);
    world.access(A::SetTracing { vhost: short("v"), tracing: true });
    assert_eq!(traced(&world), [false, true, false]);
    // A change of other properties does not switch tracing off.
    world.access(A::UpdateVhost { vhost: short("v"), update: VhostUpdate::default() });
    world.access(add_vhost("v"));
    assert_eq!(traced(&world), [false, true, false]);
    world.access(A::SetTracing { vhost: short("v"), tracing: false });
    assert_eq!(traced(&world), [false; 3]);
    // A new virtual host of the same name is not traced.
    world.access(A::SetTracing { vhost: short("v"), tracing: true });
    world.access(A::DeleteVhost { vhost: short("v") });
    world.access(add_vhost("v"));
    assert_eq!(traced(&world), [false; 3]);
}

/// MEM 15: binaries of earlier machine versions know no protection.
#[test]
fn mem_15_a_protected_virtual_host_is_not_deleted() {
    let mut world = World::formed(1, 0);
    world.access(add_vhost("v"));
    let set = |protected| A::SetProtection { vhost: short("v"), protected };
    let delete = || C::Access(A::DeleteVhost { vhost: short("v") });
    let early = Denial::ProtectionTooEarly { machine: MachineVersion::FIRST };
    assert_eq!(world.catalog.refusal_of(&set(true)), Some(early.clone()));
    assert_eq!(world.one(C::Access(set(true))), CatalogReply::Denied(early));
    for version in [MachineVersion::MEMBERS, MachineVersion::RETRIES] {
        world.done(C::RaiseMachine(version));
    }
    assert_eq!(world.catalog.refusal_of(&set(true)), None);
    world.access(set(true));
    let denied = CatalogReply::Denied(Denial::VhostProtected(short("v")));
    assert_eq!(world.one(delete()), denied);
    assert!(world.catalog.has_vhost(&short("v")));
    // A change of other properties does not lift it.
    world.access(A::UpdateVhost { vhost: short("v"), update: VhostUpdate::default() });
    assert_eq!(world.one(delete()), denied);
    world.access(set(false));
    assert_eq!(world.one(delete()), CatalogReply::Done);
    assert!(!world.catalog.has_vhost(&short("v")));
    let missing = CatalogReply::Denied(Denial::NoSuchVhost(short("v")));
    assert_eq!(world.one(C::Access(set(true))), missing);
}

/// A denied command changes nothing.
#[test]
fn a_denied_command_changes_nothing() {
    let mut world = world();
    // All records except the catalog's own, which counts every command.
    let records = |world: &World| {
        let keys = world.catalog.keys().into_iter();
        let records = keys.map(|key| (world.catalog.record(&key), key));
        records.collect::<Vec<_>>()
    };
    let before = records(&world);
    assert!(before.len() > 10);
    let denied = [
        row("/", "u", ["(", "", ""]),
        topic_row("missing", "u", "x", "", ""),
        A::ClearPermissions { vhost: short("missing"), user: short("u") },
        A::SetVhostLimits { vhost: short("missing"), limits: VhostLimits::default() },
        A::SetUserLimits { user: short("nobody"), limits: UserLimits::default() },
        A::UpdateVhost { vhost: short("missing"), update: VhostUpdate::default() },
        A::SetTracing { vhost: short("missing"), tracing: true },
    ];
    for command in denied {
        let reply = world.one(C::Access(command));
        assert!(matches!(reply, CatalogReply::Denied(_)));
        assert_eq!(world.out.changes.len(), 1);
        assert_eq!(records(&world), before);
    }
}
