//! What users with few tags may do and see over HTTP, where Quorate has more than RabbitMQ, or a change has
//! effects beyond one virtual host.

#![expect(clippy::expect_used, reason = "tests")]

use crate::browse::{GUEST, USER, api};
use crate::redrive::knows_tasks;
use lapin::{Connection, ConnectionProperties};
use quorate_cluster_tests::harness::{Cluster, Options};
use serde_json::{Value, json};

/// A cluster of one node with a user `u`, who has that tag.
async fn with_user(tag: &str) -> Cluster {
    let cluster = Cluster::start(1, Options::default()).await;
    let user = json!({ "password": "p", "tags": tag }).to_string();
    assert_eq!(api(&cluster, 1, GUEST, ("PUT", "users/u"), &user).await.0, 201);
    cluster
}

/// The bound of waiting dead letters is a setting of all queues of the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn only_administrators_set_the_bound_of_dead_letters() {
    let cluster = with_user("policymaker").await;
    let bound = "global-parameters/dead_letters_max";
    let put = |user, path| {
        let cluster = &cluster;
        async move { api(cluster, 1, user, ("PUT", path), r#"{"value":5}"#).await.0 }
    };
    assert_eq!(put(USER, "global-parameters/other").await, 201);
    assert_eq!(put(USER, bound).await, 401);
    assert_eq!(put(GUEST, bound).await, 201);
    assert_eq!(api(&cluster, 1, USER, ("DELETE", bound), "").await.0, 401);
    assert_eq!(api(&cluster, 1, GUEST, ("DELETE", bound), "").await.0, 204);
}

/// RabbitMQ keeps the limits of a virtual host as a runtime parameter, and its clients set them as one (VLM-01).
#[tokio::test(flavor = "multi_thread")]
async fn limits_set_as_a_parameter_are_in_force_and_only_administrators_set_them() {
    let cluster = with_user("policymaker").await;
    let limits = "parameters/vhost-limits/%2F/limits";
    let ask = async |user, method, path: &str, body: &str| {
        api(&cluster, 1, user, (method, path), body).await
    };
    let none = r#"{"value":{"max-queues":0}}"#;
    assert_eq!(ask(USER, "PUT", limits, none).await.0, 401);
    assert_eq!(ask(GUEST, "PUT", limits, none).await.0, 201);
    assert_eq!(ask(GUEST, "PUT", limits, none).await.0, 204);
    let shown = json!({
        "vhost": "/", "component": "vhost-limits", "name": "limits", "value": { "max-queues": 0 },
    });
    assert_eq!(ask(GUEST, "GET", limits, "").await, (200, shown.clone()));
    assert_eq!(ask(GUEST, "GET", "parameters", "").await, (200, json!([shown])));
    let listed = json!([{ "vhost": "/", "value": { "max-queues": 0 } }]);
    assert_eq!(ask(GUEST, "GET", "vhost-limits", "").await, (200, listed));
    let (status, why) = ask(GUEST, "PUT", "queues/%2F/q", "{}").await;
    assert!(status == 400 && why.to_string().contains("queue limit in vhost"), "{status} {why}");
    for (path, value, told) in [
        (limits, r#"{"max-fun":1}"#, "have no 'max-fun'"),
        (limits, r#"{"max-queues":"1"}"#, "have an integer 'max-queues', not"),
        (limits, "5", "must be an object, not 5"),
        ("parameters/vhost-limits/%2F/other", "{}", "are the parameter 'limits', not 'other'"),
    ] {
        let (status, why) = ask(GUEST, "PUT", path, &format!(r#"{{"value":{value}}}"#)).await;
        assert!(status == 400 && why.to_string().contains(told), "{status} {why}");
    }
    assert_eq!(ask(USER, "DELETE", limits, "").await.0, 401);
    assert_eq!(ask(GUEST, "DELETE", limits, "").await.0, 204);
    assert_eq!(ask(GUEST, "DELETE", limits, "").await.0, 404);
    assert_eq!(ask(GUEST, "GET", "parameters", "").await, (200, json!([])));
    assert_eq!(ask(GUEST, "PUT", "queues/%2F/q", "{}").await.0, 201);
}

/// Who may only read a queue sees its tasks, and controls them only if it could have created them.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_another_user_is_only_seen_by_who_may_only_read() {
    let cluster = with_user("management").await;
    let ask = async |user, method, path: &str, body: &str| {
        api(&cluster, 1, user, (method, path), body).await
    };
    for queue in ["from", "to"] {
        let put = ask(GUEST, "PUT", &format!("queues/%2F/{queue}"), r#"{"durable":true}"#).await;
        assert_eq!(put.0, 201);
    }
    let rights = |write: &str| format!(r#"{{"configure":"","write":"{write}","read":"from"}}"#);
    assert_eq!(ask(GUEST, "PUT", "permissions/%2F/u", &rights("")).await.0, 201);
    let task = r#"{"kind":"move","vhost":"/","queue":"from","to":{"queue":"to"},"rate":1}"#;
    let message =
        r#"{"properties":{},"routing_key":"from","payload":"m","payload_encoding":"string"}"#;
    for _ in 0..5 {
        let published = ask(GUEST, "POST", "exchanges/%2F/amq.default/publish", message).await;
        assert_eq!(published.0, 200);
    }
    knows_tasks(&cluster).await;
    let (status, created) = ask(GUEST, "POST", "quorate/tasks", task).await;
    assert_eq!(status, 201, "{created}");
    let path = format!("quorate/tasks/{}", created.get("id").expect("an id"));
    let pause = format!("{path}/pause");
    assert_eq!(ask(USER, "GET", &path, "").await.0, 200);
    assert_eq!(ask(USER, "POST", &pause, "").await.0, 401);
    assert_eq!(ask(GUEST, "PUT", "permissions/%2F/u", &rights(".*")).await.0, 204);
    let (status, paused) = ask(USER, "POST", &pause, "").await;
    assert_eq!(status, 200, "{paused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_of_a_user_is_about_what_it_may_see() {
    let cluster = with_user("management").await;
    let properties = ConnectionProperties::default();
    let uri = format!("amqp://guest:guest@{}/%2f", cluster.node(1).amqp_address());
    let _connection = Connection::connect(&uri, properties).await.expect("a connection");
    let overview = async |user| api(&cluster, 1, user, ("GET", "overview"), "").await.1;
    let (own, all) = (overview(USER).await, overview(GUEST).await);
    let counted = |of: &Value| of.pointer("/object_totals/connections").cloned();
    assert_eq!((counted(&own), counted(&all)), (Some(json!(0)), Some(json!(1))));
    for of_monitors in ["node", "listeners", "contexts"] {
        assert!(own.get(of_monitors).is_none(), "{of_monitors}: {own}");
        assert!(all.get(of_monitors).is_some(), "{of_monitors}: {all}");
    }
    assert!(own.pointer("/message_stats/publish").is_some(), "{own}");
}

/// Of two patterns the second must not replace the first: a task would take more than was meant.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_filter_is_given_once() {
    let cluster = with_user("management").await;
    let twice = ["--filter", "routing_key=orders.#", "--filter", "routing_key=#.test"];
    let deleted = cluster.ctl(1, &[&["delete_messages", "q"][..], &twice].concat()).await;
    assert_ne!(deleted.code, 0, "{deleted:?}");
    assert!(deleted.stderr.contains("routing_key: is given more than once"), "{deleted:?}");
}
