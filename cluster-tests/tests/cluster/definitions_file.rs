//! Setting `definitions_file`: imported by every node at every start, and waited for by readiness.

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::{self, get, open_confirming, publish_confirmed};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Node, Options};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

/// A file of definitions, and options that name it.
fn file(text: &str) -> (TempDir, Options) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("definitions.json");
    std::fs::write(&path, text).expect("written");
    let options = Options::default().with("--definitions-file", path.to_str().expect("UTF-8"));
    (folder, options)
}

/// Virtual host `orders`, with an exchange, a queue, and users who log in with passwords. So many users
/// that nodes which import them at once get in each other's way.
fn definitions() -> Value {
    let names: Vec<String> = (0..50).map(|number| format!("user-{number}")).collect();
    let user = |name: &String| json!({"name": name, "password": format!("of {name}"), "tags": []});
    let permission = |name: &String| json!({"user": name, "vhost": "orders", "configure": ".*", "write": ".*", "read": ".*"});
    json!({
        "users": names.iter().map(user).collect::<Vec<_>>(),
        "vhosts": [{"name": "orders"}],
        "permissions": names.iter().map(permission).collect::<Vec<_>>(),
        "policies": [{"vhost": "orders", "name": "short", "pattern": ".*", "apply-to": "queues",
            "definition": {"max-length": 5}, "priority": 0}],
        "exchanges": [{"name": "in", "vhost": "orders", "type": "fanout", "durable": true}],
        "queues": [{"name": "new", "vhost": "orders", "durable": true,
            "arguments": {"x-queue-type": "quorum"}}],
        "bindings": [{"source": "in", "vhost": "orders", "destination": "new",
            "destination_type": "queue", "routing_key": ""}],
    })
}

/// What the last import of a node has changed, as its log says.
fn last_import(node: &Node) -> String {
    let log = node.log();
    let last = log.lines().rfind(|line| line.contains("definitions are imported"));
    last.expect("an import").to_owned()
}

async fn ctl(cluster: &Cluster, node: u64, args: &[&str]) -> String {
    cluster.ctl(node, args).await.succeeded().expect("ctl").stdout
}

async fn is_password(cluster: &Cluster, node: u64, user: &str, password: &str) -> bool {
    cluster.ctl(node, &["authenticate_user", user, password]).await.code == 0
}

async fn restart(node: &Node) {
    let (status, _) = node.sigterm().await;
    assert!(status.success(), "{status}");
    node.restart().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctl_15_acl_26_nodes_that_start_together_import_the_same_file() {
    let (_folder, options) = file(&definitions().to_string());
    let cluster = Cluster::start(3, options).await;
    for node in cluster.nodes() {
        last_import(node);
        assert!(is_password(&cluster, node.id(), "user-49", "of user-49").await);
        assert!(!is_password(&cluster, node.id(), "user-49", "of user-48").await);
    }
    let at = cluster.node(2).amqp_address();
    let (_user, channel) = open_confirming(&format!("amqp://user-7:of%20user-7@{at}/orders")).await;
    publish_confirmed(&channel, "new", b"one").await;
    assert_eq!(get(&channel, "new").await.as_deref(), Some(&b"one"[..]));
    let before = ctl(&cluster, 1, &["export_definitions", "-"]).await;
    assert!(!before.contains("of user-7"), "{before}");
    assert_replicas_equal(&cluster).await;
    // Every start imports, and changes nothing where nothing differs.
    for node in cluster.nodes() {
        restart(node).await;
        assert!(last_import(node).contains("nothing"), "{}", last_import(node));
    }
    assert_eq!(ctl(&cluster, 1, &["export_definitions", "-"]).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctl_15_every_start_sets_what_the_file_names_and_leaves_the_rest() {
    let (_folder, options) = file(&definitions().to_string());
    let cluster = Cluster::start(1, options).await;
    ctl(&cluster, 1, &["change_password", "user-1", "another"]).await;
    ctl(&cluster, 1, &["add_user", "own", "password"]).await;
    ctl(&cluster, 1, &["delete_queue", "-p", "orders", "new"]).await;
    restart(cluster.node(1)).await;
    assert!(is_password(&cluster, 1, "user-1", "of user-1").await);
    assert!(is_password(&cluster, 1, "own", "password").await);
    let at = cluster.node(1).amqp_address();
    let (_user, channel) = open_confirming(&format!("amqp://user-7:of%20user-7@{at}/orders")).await;
    let declared = channel.queue_declare("new".into(), amqp::passive(), <_>::default()).await;
    assert_eq!(declared.expect("made again").message_count(), 0);
    let told = last_import(cluster.node(1));
    for object in ["user 'user-1'", "queue 'new' in vhost 'orders'", "binding from 'in'"] {
        assert!(told.contains(object), "{told}");
    }
    assert!(!told.contains("user-2") && !told.contains("policy"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctl_15_a_file_that_is_no_document_ends_the_node_before_it_listens() {
    for (text, told) in [
        ("{\"users\": [", "definitions are not valid: EOF while parsing"),
        ("{\"users\": 7}", "definitions are not valid: users: not a list"),
    ] {
        let (folder, options) = file(text);
        let cluster = Cluster::prepare(1, options).await;
        cluster.node(1).spawn();
        assert!(!cluster.node(1).ends().await.success());
        let path = folder.path().join("definitions.json");
        let told = format!("quorate: setting definitions_file: {}: {told}", path.display());
        assert!(cluster.node(1).log().contains(&told), "{}", cluster.node(1).log());
        assert!(!Path::exists(cluster.node(1).data_dir()), "nothing was opened");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ctl_15_a_node_is_not_ready_until_its_import_succeeds() {
    let permissions = json!([{"user": "guest", "vhost": "later", "configure": "", "write": "",
        "read": ""}]);
    let (_folder, options) = file(&json!({ "permissions": permissions }).to_string());
    let cluster = Cluster::prepare(1, options).await;
    let node = cluster.node(1);
    node.spawn();
    eventually("the reason is given", || async {
        let ready = node.get("/health/ready").await?;
        let told = "definitions.json: permissions of user 'guest' in vhost 'later': ";
        hold(ready.status == 503 && ready.body.contains(told), || format!("{ready:?}"))
    })
    .await;
    assert!(node.log().contains("definitions were not imported"), "{}", node.log());
    ctl(&cluster, 1, &["add_vhost", "later"]).await;
    node.ready().await;
    assert!(last_import(node).contains("permissions of user 'guest'"), "{}", last_import(node));
}
