//! What the tests of several objects use, and tests of a request's path to its object.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::api::names::Names;
use bytes::Bytes;
use quorate_broker::view::{ClusterView, MemberView};
use quorate_catalog::MemberState;
use quorate_types::{MachineVersion, NodeId};
use std::collections::BTreeMap;

/// Two nodes, `rabbit1@a` and `rabbit2@b`.
pub(crate) fn names() -> Names {
    let member = |id, address: &str| MemberView {
        id: NodeId(id),
        state: MemberState::Member,
        zone: String::new(),
        rpc_address: address.to_owned(),
        amqp_address: String::new(),
        running: true,
        replicas: 0,
        leads: 0,
    };
    let view = ClusterView {
        cluster: None,
        catalog_leader: None,
        members: vec![member(1, "a:7672"), member(2, "b:7672")],
        machine: MachineVersion::FIRST,
        placement: Vec::new(),
    };
    Names::new(&facts(), &view, BTreeMap::new())
}

/// The facts of node 1.
pub(crate) fn facts() -> NodeFacts {
    NodeFacts { name: "rabbit1@a".to_owned(), ..crate::tests::facts() }
}

/// The user `me` with a tag.
pub(crate) fn caller(tag: &'static str) -> Caller {
    Caller::of_test("me", tag)
}

/// A request of the user `me`.
pub(crate) fn call(tag: &'static str) -> Call {
    Call {
        method: Method::Get,
        caller: caller(tag),
        query: Query::default(),
        body: Bytes::new(),
        reason: None,
        names: Vec::new(),
    }
}

/// The object has every key of RabbitMQ's reply (the first object of a list), but for those that are
/// left out.
pub(crate) fn assert_has_keys(shown: &Value, gold: &str, without: &[&str]) {
    let gold: Value = serde_json::from_str(gold).unwrap();
    let gold = gold.get(0).unwrap_or(&gold).as_object().unwrap();
    let shown = shown.as_object().unwrap();
    let is_asked = |key: &&String| !without.contains(&key.as_str()) && !key.ends_with("_details");
    let missing: Vec<_> =
        gold.keys().filter(is_asked).filter(|key| !shown.contains_key(*key)).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
}

fn parts(method: &str, uri: &str, headers: &[(&'static str, &'static str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap().into_parts().0
}

fn refused(method: &str, uri: &str, headers: &[(&'static str, &'static str)]) -> Option<Refusal> {
    let parts = parts(method, uri, headers);
    match target(parts.method.as_str(), parts.uri.path()) {
        Err(refusal) => Some(refusal),
        Ok(Err(_)) => None,
        Ok(Ok(target)) => check_type(&target, &parts).err(),
    }
}

#[test]
fn unknown_paths_and_methods_are_refused() {
    assert_eq!(refused("GET", "/api/nothing", &[]), Some(Refusal::NoObject));
    assert_eq!(refused("GET", "/api/queues/%ff", &[]), Some(Refusal::NoObject));
    assert!(matches!(refused("PATCH", "/api/queues", &[]), Some(Refusal::Method(_))));
    assert!(matches!(refused("DELETE", "/api/overview", &[]), Some(Refusal::Method(_))));
    assert_eq!(refused("HEAD", "/api/overview/", &[]), None);
    assert_eq!(refused("OPTIONS", "/api/overview", &[]), None);
}

/// As in the golden replies.
#[test]
fn definitions_and_limits_must_be_declared_as_json() {
    let json: &[_] = &[("content-type", "application/json; charset=utf-8")];
    let form: &[_] = &[("content-type", "application/x-www-form-urlencoded")];
    for (method, uri) in [
        ("POST", "/api/definitions"),
        ("POST", "/api/definitions/v"),
        ("PUT", "/api/vhost-limits/%2F/max-queues"),
        ("PUT", "/api/user-limits/u/max-channels"),
    ] {
        assert_eq!(refused(method, uri, json), None, "{uri}");
        assert_eq!(refused(method, uri, form), Some(Refusal::MediaType), "{uri}");
        assert_eq!(refused(method, uri, &[]), Some(Refusal::MediaType), "{uri}");
    }
    assert_eq!(refused("PUT", "/api/queues/%2F/q", form), None);
    assert_eq!(refused("DELETE", "/api/vhost-limits/%2F/max-queues", &[]), None);
}

#[tokio::test]
async fn an_answer_has_its_status_and_headers() {
    let listing = |query: &str| Listing::parse(&Query::parse(query).unwrap()).unwrap();
    let room = Room { answers: &Answers::new(0), recipient: Recipient::default() };
    let made = Answer::made_at("q/~".to_owned());
    let response = respond(made, Listing::default(), &room).await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    assert_eq!(response.headers().get(header::LOCATION).unwrap(), "q/~");
    let list = Answer::list(&["name"], || vec![serde_json::json!({ "name": "a", "b": 1 })]);
    let response = respond(list.without(vec![2, 3]), listing("columns=name"), &room).await.unwrap();
    assert_eq!(response.headers().get(SILENT_NODES).unwrap(), "2, 3");
    assert_eq!(response.headers().get(header::CACHE_CONTROL).unwrap(), "no-cache");
    let body = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
    assert_eq!(&body[..], br#"[{"name":"a"}]"#);
    assert_eq!(respond(Answer::put(false), Listing::default(), &room).await.unwrap().status(), 204);
}
