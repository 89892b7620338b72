//! Tests of the table of routes.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::api::uri::segments;

const NOBODY: Standing = Standing {
    administrator: false,
    monitoring: false,
    policymaker: false,
    management: false,
    in_vhost: false,
    same_user: false,
};
const MANAGER: Standing = Standing { management: true, ..NOBODY };
const IN_VHOST: Standing = Standing { in_vhost: true, ..MANAGER };
const POLICYMAKER: Standing = Standing { policymaker: true, ..MANAGER };
const POLICYMAKER_IN_VHOST: Standing = Standing { policymaker: true, ..IN_VHOST };
const MONITOR: Standing = Standing { monitoring: true, ..MANAGER };
const ADMINISTRATOR: Standing =
    Standing { administrator: true, monitoring: true, policymaker: true, ..MANAGER };
const ITSELF: Standing = Standing { same_user: true, ..MANAGER };

/// The columns of the table, in this order.
const ROLES: [(&str, Standing); 8] = [
    ("a user without a tag", NOBODY),
    ("management", MANAGER),
    ("management, with permissions in the virtual host", IN_VHOST),
    ("policymaker", POLICYMAKER),
    ("policymaker, with permissions in the virtual host", POLICYMAKER_IN_VHOST),
    ("monitoring", MONITOR),
    ("administrator", ADMINISTRATOR),
    ("management, the user that the path names", ITSELF),
];

/// Whether a user may use a route that asks for this.
fn may(needs: Needs, who: Standing, path: &str) -> bool {
    // Where the path names none, there is nothing to have no permissions in.
    let in_vhost = who.in_vhost || !path.contains("{vhost}");
    let same_user = who.same_user && path.contains("{user}");
    needs.check(Standing { in_vhost, same_user, ..who }).is_ok()
}

/// Each method of each route, and who may use it. A test with real users asks a node for all of it.
#[test]
fn every_route_and_every_role() {
    let mut table = "# Who may use which route of the HTTP API. The columns:\n".to_owned();
    for (number, (role, _)) in (1..).zip(ROLES) {
        table += &format!("# {number}. {role}\n");
    }
    for route in ROUTES {
        for method in Method::ALL {
            let Some(needs) = route.of(method) else { continue };
            let marks = ROLES.map(|(_, who)| if may(needs, who, route.path) { "x " } else { "- " });
            table += &format!("{}{:6} {}\n", marks.concat(), method.name(), route.path);
            assert!(
                needs != Needs::Nobody || method == Method::Get,
                "{} changes without a user",
                route.path
            );
        }
    }
    expect_test::expect_file!["roles.txt"].assert_eq(&table);
}

#[test]
fn a_path_has_one_route() {
    for (path, endpoint) in [
        ("/api/queues", Endpoint::Queues),
        ("/api/queues/detailed", Endpoint::Queues),
        ("/api/queues/%2F/", Endpoint::Queues),
        ("/api//queues/%2F/a", Endpoint::Queue),
        ("/api/queues//", Endpoint::Queues),
        ("/api/exchanges/%2F//publish", Endpoint::Publish),
        ("/api/exchanges/%2F//bindings/source", Endpoint::BindingsFrom),
        ("/api/bindings/%2F/e//q/y", Endpoint::BindingsBetween),
        ("/api/exchanges/%2F/", Endpoint::Exchanges),
        ("/api/queues/quorum/%2F/a/status", Endpoint::QueueStatus),
        ("/api/queues/quorum/%2F/a/replicas/add", Endpoint::ReplicaAdd),
        ("/api/queues/quorum/replicas/on/n/grow", Endpoint::ReplicasGrow),
        ("/api/queues/quorum/q", Endpoint::Queue),
        ("/api/vhosts/%2F/deletion/protection", Endpoint::VhostProtection),
        ("/api/queues/%2F/a/bindings", Endpoint::BindingsOfQueue),
        ("/api/users/bulk-delete", Endpoint::UsersBulkDelete),
        ("/api/users/guest", Endpoint::User),
        ("/api/connections/username/guest", Endpoint::ConnectionsOfUser),
        ("/api/bindings/%2F/e/x/q/y/~", Endpoint::Binding),
        ("/api/exchanges/%2F/amq.default/publish", Endpoint::Publish),
        ("/api/health/checks/alarms", Endpoint::Health(Check::Alarms)),
    ] {
        let (route, _) = find(&segments(path).unwrap()).unwrap();
        assert_eq!(route.endpoint, endpoint, "{path}");
    }
    for path in
        ["/api", "/api/nothing", "/api/queues/%2F/a/b/c/d/e", "/api//", "/api/queues/%2F//contents"]
    {
        assert!(find(&segments(path).unwrap()).is_none(), "{path}");
    }
}

#[test]
fn names_are_taken_from_the_path() {
    let (_, names) = find(&segments("/api/bindings/%2F/e/a%2Fb/q/c/d%2Be").unwrap()).unwrap();
    let expected =
        [("vhost", "/"), ("source", "a/b"), ("kind", "q"), ("destination", "c"), ("props", "d+e")];
    let names: Vec<_> = names.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(names, expected);
}

#[test]
fn other_methods_are_refused_with_those_that_are_allowed() {
    let (route, _) = find(&segments("/api/overview").unwrap()).unwrap();
    assert_eq!(route.needs(Method::Get), Ok(Needs::Management));
    let refused = Refusal::Method("HEAD, GET, OPTIONS".to_owned());
    assert_eq!(route.needs(Method::Delete), Err(refused));
    let (route, _) = find(&segments("/api/users/u").unwrap()).unwrap();
    assert_eq!(route.allowed(), "HEAD, GET, PUT, DELETE, OPTIONS");
    assert_eq!(Method::parse("HEAD"), Some(Method::Get));
    assert_eq!(Method::parse("PATCH"), None);
}

/// The routes of tier 0 (management.md, section 2.5) are there, with their methods.
#[test]
fn tier_0_is_there() {
    for (method, path) in [
        ("GET", "overview"),
        ("GET", "cluster-name"),
        ("GET", "whoami"),
        ("GET", "nodes"),
        ("GET", "nodes/n"),
        ("GET", "nodes/n/memory"),
        ("GET", "vhosts/v"),
        ("GET", "users/u"),
        ("GET", "permissions/v/u"),
        ("GET", "queues/v/q"),
        ("POST", "queues/v/q/get"),
        ("DELETE", "queues/v/q/contents"),
        ("POST", "exchanges/v/e/publish"),
        ("GET", "exchanges/v/e/bindings/source"),
        ("POST", "bindings/v/e/s/q/d"),
        ("DELETE", "bindings/v/e/s/q/d/p"),
        ("DELETE", "connections/c"),
        ("GET", "channels"),
        ("GET", "consumers"),
        ("PUT", "policies/v/p"),
        ("POST", "definitions"),
        ("GET", "feature-flags"),
        ("GET", "aliveness-test/v"),
        ("GET", "health/checks/node-is-quorum-critical"),
    ] {
        let (route, _) = find(&segments(path).unwrap()).unwrap();
        assert!(route.needs(Method::parse(method).unwrap()).is_ok(), "{method} {path}");
    }
}
