//! Definitions that are imported: passwords, and what an import changes.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod common;

use common::*;
use quorate_catalog::{
    CatalogCommand, Definitions, DefinitionsError, ExchangeType, HashAlgorithm, PasswordHash,
    PolicyKind,
};
use quorate_types::QueueType;
use serde_json::{Value, json};

/// An importer that draws this salt, and refuses one password.
fn read(world: &World, salt: u8, given: &Value) -> Result<Definitions, DefinitionsError> {
    let hash = move |plain: &[u8]| match plain {
        b"too long" => Err("a password has at most 7 bytes".to_owned()),
        _ => Ok(PasswordHash::of(HashAlgorithm::default(), [salt; 4], plain)),
    };
    let text = given.to_string();
    Definitions::read(&text, &world.catalog, session(99, 1), QueueType::Classic, &hash)
}

/// Imports, and gives what that has changed.
fn import(world: &mut World, salt: u8, given: &Value) -> Vec<String> {
    let definitions = read(world, salt, given).unwrap();
    definitions.steps.into_iter().for_each(|step| world.done(step.command));
    definitions.changed
}

fn users(users: Value) -> Value {
    json!({ "users": users })
}

#[test]
fn acl_26_a_password_is_hashed_by_the_importer_and_keeps_its_salt() {
    let mut world = World::new();
    let given = users(json!([{"name": "u", "password": "secret", "tags": ["management"]}]));
    assert_eq!(import(&mut world, 1, &given), ["user 'u'"]);
    let hash = PasswordHash::of(HashAlgorithm::Sha256, [1; 4], b"secret");
    assert_eq!(world.catalog.user(&short("u")).unwrap().password, hash);
    assert_eq!(import(&mut world, 2, &given), Vec::<String>::new());
    assert_eq!(world.catalog.user(&short("u")).unwrap().password, hash);
    let given = users(json!([{"name": "u", "password": "other", "tags": ["management"]}]));
    assert_eq!(import(&mut world, 3, &given), ["user 'u'"]);
    assert!(world.catalog.is_password(&short("u"), b"other"));
}

/// Two nodes read the same file before either of them has added the user.
#[test]
fn acl_26_the_second_of_two_importers_is_refused_and_then_finds_the_user() {
    let mut world = World::new();
    let given = users(json!([{"name": "u", "password": "secret", "tags": ""}]));
    let late = read(&world, 2, &given).unwrap();
    import(&mut world, 1, &given);
    let reply = world.one(late.steps[0].command.clone());
    let refused = late.steps[0].check(&reply).unwrap_err().to_string();
    assert!(refused.starts_with("user 'u': "), "{refused}");
    assert_eq!(import(&mut world, 2, &given), Vec::<String>::new());
}

#[test]
fn acl_26_a_user_without_password_and_hash_cannot_log_in() {
    let mut world = World::new();
    let given =
        users(json!([{"name": "guest", "tags": "administrator"}, {"name": "u", "tags": ""}]));
    assert_eq!(import(&mut world, 1, &given), ["user 'guest'", "user 'u'"]);
    for name in ["guest", "u"] {
        assert_eq!(world.catalog.user(&short(name)).unwrap().password, PasswordHash::default());
        assert!(!world.catalog.is_password(&short(name), b"guest"));
    }
}

#[test]
fn acl_26_what_is_no_password_is_refused_and_not_shown() {
    let world = World::new();
    for (user, reason) in [
        (
            json!({"name": "u", "password": "secret", "password_hash": ""}),
            "'password' and 'password_hash' exclude each other",
        ),
        (json!({"name": "u", "password": ["secret"]}), "'password' must be a string"),
        (json!({"name": "u", "password": null}), "'password' must be a string"),
        (json!({"name": "u", "password": "too long"}), "a password has at most 7 bytes"),
        (json!({"name": "u", "password": "secret"}), "'tags' is missing"),
    ] {
        let refused = read(&world, 1, &users(json!([user]))).unwrap_err().to_string();
        assert_eq!(refused, format!("user 'u': {reason}"));
    }
}

#[test]
fn ctl_14_an_import_names_what_it_changes_and_leaves_the_rest() {
    let mut world = World::new();
    world.declare("kept", ExchangeType::Fanout);
    world.add("kept", 7);
    let same = policy("same", PolicyKind::User, "^a", "all", 0, "{\"max-length\":1}");
    world.done(CatalogCommand::SetPolicy(same));
    let given = json!({
        "vhosts": [{"name": "/", "metadata": {"description": "Default virtual host"}}],
        "permissions": [
            {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
        ],
        "policies": [
            {"vhost": "/", "name": "same", "pattern": "^a", "definition": {"max-length": 1}},
            {"vhost": "/", "name": "new", "pattern": "^b", "definition": {"max-length": 2}},
        ],
        "exchanges": [{"vhost": "/", "name": "kept", "type": "topic", "durable": false}],
        "queues": [{"vhost": "/", "name": "kept", "durable": true}],
        "bindings": [
            {"vhost": "/", "source": "kept", "destination": "kept", "destination_type": "queue",
                "routing_key": "k"},
        ],
    });
    let changed = import(&mut world, 1, &given);
    let binding = "binding from 'kept' to queue 'kept' in vhost '/'";
    assert_eq!(changed, ["policy 'new' in vhost '/'", binding]);
    assert_eq!(world.catalog.exchange(&name("kept")).unwrap().kind, ExchangeType::Fanout);
}

#[test]
fn ctl_14_a_queue_has_a_name_and_a_cluster_has_a_text() {
    let world = World::new();
    let queues = json!({"queues": [{"vhost": "/", "name": "", "durable": true}]});
    let refused = read(&world, 1, &queues).unwrap_err().to_string();
    assert!(refused.contains("'name' is empty"), "{refused}");
    for name in [json!(5), json!(""), json!("a\nb"), json!("n".repeat(256))] {
        let given = json!({"global_parameters": [{"name": "cluster_name", "value": name}]});
        let refused = read(&world, 1, &given).unwrap_err().to_string();
        assert!(refused.contains("parameter 'cluster_name' must be a text"), "{refused}");
    }
    let given = json!({"global_parameters": [{"name": "cluster_name", "value": "prod-1"}]});
    assert!(read(&world, 1, &given).is_ok());
}

#[test]
fn ctl_15_a_byte_order_mark_is_skipped() {
    assert_eq!(Definitions::check_form("\u{feff}{\"queues\": []}"), Ok(()));
}

#[test]
fn ctl_15_the_form_of_a_document_is_checked_without_a_catalog() {
    let good = json!({"users": [{}], "bindings": [], "rabbit_version": "4.0.5"});
    assert_eq!(Definitions::check_form(&good.to_string()), Ok(()));
    for (text, told) in [
        ("", "EOF while parsing"),
        ("{", "EOF while parsing"),
        ("[]", "not a JSON object"),
        ("{\"policies\": {}}", "policies: not a list"),
        ("{\"topic_permissions\": [1]}", "topic_permissions: an element is not an object"),
    ] {
        let refused = Definitions::check_form(text).unwrap_err().to_string();
        assert!(refused.starts_with("definitions are not valid: "), "{refused}");
        assert!(refused.contains(told), "{refused}");
    }
}

/// RabbitMQ takes queues and exchanges of a file as durable unless it says otherwise.
#[test]
fn acl_23_what_does_not_say_whether_it_is_durable_is() {
    let world = World::new();
    let given = json!({
        "exchanges": [{ "name": "x", "vhost": "/", "type": "fanout" }],
        "queues": [
            { "name": "q", "vhost": "/" },
            { "name": "replicated", "vhost": "/", "arguments": { "x-queue-type": "quorum" } },
            { "name": "transient", "vhost": "/", "durable": false },
        ],
        "policies": [{
            "name": "p", "vhost": "/", "pattern": "^q$", "priority": 2.0,
            "definition": { "max-length": 5 },
        }],
    });
    let definitions = read(&world, 1, &given).unwrap();
    let durable: Vec<_> =
        definitions.queues.iter().map(|it| (it.name.name.as_str(), it.durable)).collect();
    assert_eq!(durable, [("q", true), ("replicated", true), ("transient", false)]);
    let is_durable = |command: &CatalogCommand| {
        let CatalogCommand::DeclareExchange(exchange) = command else { return None };
        Some(exchange.durable)
    };
    let exchanges: Vec<_> =
        definitions.steps.iter().filter_map(|step| is_durable(&step.command)).collect();
    assert_eq!(exchanges, [true]);
    let is_policy = |command: &CatalogCommand| matches!(command, CatalogCommand::SetPolicy(it) if it.priority == 2);
    assert!(definitions.steps.iter().any(|step| is_policy(&step.command)));
}

/// As in RabbitMQ, queues and exchanges with reserved names are left out with their bindings. The rest is imported.
#[test]
fn acl_23_reserved_names_are_left_out() {
    let world = World::new();
    let exchange = |name| json!({ "name": name, "vhost": "/", "type": "topic" });
    let binding = |from, to| {
        json!({
            "source": from, "vhost": "/", "destination": to, "destination_type": "queue",
            "routing_key": "k", "arguments": {},
        })
    };
    let given = json!({
        "exchanges": [exchange("amq.mine"), exchange(""), exchange("amq.topic"), exchange("x")],
        "queues": [{ "name": "amq.gen-x", "vhost": "/" }, { "name": "q", "vhost": "/" }],
        "bindings": [binding("x", "amq.gen-x"), binding("amq.mine", "q"), binding("amq.topic", "q")],
    });
    let definitions = read(&world, 1, &given).unwrap();
    assert_eq!(definitions.queues.len(), 1);
    assert_eq!(definitions.bindings.len(), 1);
    let left_out = definitions.left_out.join("; ");
    for object in [
        "exchange 'amq.mine' in vhost '/': its name is reserved",
        "exchange '' in vhost '/': its name is reserved",
        "queue 'amq.gen-x' in vhost '/': its name is reserved",
        "binding from 'x' to 'amq.gen-x' in vhost '/'",
        "binding from 'amq.mine' to 'q' in vhost '/'",
    ] {
        assert!(left_out.contains(object), "{object}: {left_out}");
    }
    assert_eq!(definitions.left_out.len(), 5, "{left_out}");
}
