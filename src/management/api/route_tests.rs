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

/// Who may do what, one line a need: without a tag, with the tag management, the same with
/// permissions in the virtual host, a policymaker, the same with permissions, monitoring,
/// administrator, the user of the path.
const MAY: [(Needs, [bool; 8]); 9] = [
    (Needs::Nobody, [true, true, true, true, true, true, true, true]),
    (Needs::Management, [false, true, true, true, true, true, true, true]),
    (Needs::Monitoring, [false, false, false, false, false, true, true, false]),
    (Needs::Vhost, [false, false, true, false, true, false, true, false]),
    (Needs::VisibleVhost, [false, false, true, false, true, true, true, false]),
    (Needs::VhostPolicies, [false, false, false, false, true, false, true, false]),
    (Needs::GlobalPolicies, [false, false, false, true, true, false, true, false]),
    (Needs::SameUser, [false, false, false, false, false, true, true, true]),
    (Needs::Administrator, [false, false, false, false, false, false, true, false]),
];

#[test]
fn every_need_and_every_role() {
    let roles = [
        NOBODY,
        MANAGER,
        IN_VHOST,
        POLICYMAKER,
        POLICYMAKER_IN_VHOST,
        MONITOR,
        ADMINISTRATOR,
        ITSELF,
    ];
    for (needs, may) in MAY {
        for (role, may) in roles.into_iter().zip(may) {
            assert_eq!(needs.check(role).is_ok(), may, "{needs:?} {role:?}");
        }
    }
}

/// Every user that may do nothing else may do nothing on any route that asks for a password, and an
/// administrator may do everything.
#[test]
fn every_route_asks_for_a_role() {
    for route in ROUTES {
        for method in Method::ALL {
            let Some(needs) = route.of(method) else { continue };
            assert!(needs.check(ADMINISTRATOR).is_ok(), "{} {method:?}", route.path);
            assert_eq!(needs.check(NOBODY).is_ok(), needs == Needs::Nobody, "{}", route.path);
            assert!(
                needs != Needs::Nobody || method == Method::Get,
                "{} changes without a user",
                route.path
            );
        }
    }
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
