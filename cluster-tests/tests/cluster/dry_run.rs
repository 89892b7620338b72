//! Dry runs of policies and definitions, and where settings come from: nothing changes by a dry run, and
//! what it says is what then happens.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use crate::browse::{GUEST, ctl, http};
use lapin::Channel;
use lapin::types::AMQPValue;
use quorate_cluster_tests::harness::amqp::{
    declare_quorum, declare_with, int, open_confirming, publish_confirmed, ready, text,
};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options};
use serde_json::{Value, json};

/// The only change of a dry run, as setting, before, after and source.
fn change(run: &Value) -> [Value; 4] {
    let change = &run["queues"][0]["changes"][0];
    ["setting", "before", "after", "source"].map(|name| change[name].clone())
}

async fn fill(channel: &Channel, queue: &str, count: u8) {
    for body in 0..count {
        publish_confirmed(channel, queue, &[b'0' + body]).await;
    }
}

/// A dry run changes nothing, and says what the policy then does.
#[expect(clippy::too_many_lines, reason = "one step after the other, on one cluster")]
#[tokio::test(flavor = "multi_thread")]
async fn dry_runs_of_policies_say_what_then_happens() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue in ["long", "old", "other"] {
        declare_quorum(&channel, queue).await;
        fill(&channel, queue, 9).await;
    }
    declare_quorum(&channel, "dead").await;
    let length = r#"{"max-length":3}"#;
    let run = ctl(&cluster, 2, &["set_policy", "p", "^long", length, "--dry-run"]).await;
    assert_eq!(change(&run), [json!("max-length"), Value::Null, json!(3), json!("policy")]);
    let lost = |run: &Value| {
        let queue = &run["queues"][0];
        (run["queue_count"].clone(), queue["dropped"].clone(), queue["dead_lettered"].clone())
    };
    assert_eq!(lost(&run), (json!(1), json!(6), json!(0)));
    assert_eq!(ready(&connection, "long").await, Ok(9));
    assert_eq!(cluster.rows(1, &["list_policies"]).await, Ok(Vec::new()));
    cluster.ctl(2, &["set_policy", "p", "^long", length]).await.succeeded().expect("a policy");
    assert_eq!(ready(&connection, "long").await, Ok(3));
    let cleared = ctl(&cluster, 3, &["clear_policy", "p", "--dry-run"]).await;
    assert_eq!(change(&cleared), [json!("max-length"), json!(3), Value::Null, json!("default")]);
    // Messages that are older than a new TTL go where the same policy says.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let ttl =
        json!({ "message-ttl": 20, "dead-letter-exchange": "", "dead-letter-routing-key": "dead" });
    let body = json!({ "pattern": "^old", "definition": ttl, "apply-to": "queues" }).to_string();
    let (status, run) = http(&cluster, 3, GUEST, ("POST", "dry-run/policies/%2F/t"), &body).await;
    assert_eq!((status, lost(&run)), (200, (json!(1), json!(0), json!(9))), "{run}");
    assert_eq!(ready(&connection, "old").await, Ok(9));
    let set = ["set_policy", "t", "^old", &ttl.to_string()];
    cluster.ctl(1, &set).await.succeeded().expect("a policy");
    eventually("all arrive", || async {
        let counts = (ready(&connection, "old").await, ready(&connection, "dead").await);
        hold(counts == (Ok(0), Ok(9)), || format!("{counts:?}"))
    })
    .await;
    // An operator policy below the policy, and a queue that would end.
    let run = ctl(
        &cluster,
        1,
        &["set_operator_policy", "o", "^long", r#"{"max-length":1}"#, "--dry-run"],
    )
    .await;
    assert_eq!(change(&run), [json!("max-length"), json!(3), json!(1), json!("operator_policy")]);
    assert_eq!(lost(&run).1, json!(2));
    let run =
        ctl(&cluster, 1, &["set_policy", "e", "^other", r#"{"expires":1}"#, "--dry-run"]).await;
    assert_eq!((&run["queues"][0]["deleted"], lost(&run).1), (&json!(true), json!(9)));
    cluster
        .ctl(1, &["set_policy", "e", "^other", r#"{"expires":1}"#])
        .await
        .succeeded()
        .expect("a policy");
    eventually("the queue ends", || async {
        let left = ready(&connection, "other").await;
        hold(left == Err(Some(404)), || format!("{left:?}"))
    })
    .await;
    // What the real command refuses the dry run refuses alike.
    for args in [
        &["set_policy", "p", "^x", r#"{"max-length":"a"}"#][..],
        &["set_policy", "p", "(", r#"{"max-length":1}"#],
        &["clear_policy", "none"],
        &["set_policy", "p", "x", "{", "-p", "none"],
    ] {
        let real = cluster.ctl(1, args).await;
        let dry = cluster.ctl(1, &[args, &["--dry-run"]].concat()).await;
        assert_ne!(real.code, 0, "{real:?}");
        assert_eq!((dry.code, dry.stderr), (real.code, real.stderr), "{args:?}");
    }
}

/// A dry run of definitions names what would be made and changed, and which queues that changes.
#[tokio::test(flavor = "multi_thread")]
async fn dry_runs_of_definitions_say_what_then_happens() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "there").await;
    fill(&channel, "there", 5).await;
    let definitions = json!({
        "policies": [{ "vhost": "/", "name": "p", "pattern": "^t", "apply-to": "all",
            "priority": 0, "definition": { "max-length": 2 } }],
        "queues": [
            { "vhost": "/", "name": "there", "durable": true, "auto_delete": false, "arguments": {} },
            { "vhost": "/", "name": "new", "durable": true, "auto_delete": false, "arguments": {} },
        ],
        "users": [{ "name": "guest", "password": "guest", "tags": ["administrator", "x"] }],
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("definitions.json");
    std::fs::write(&file, definitions.to_string()).expect("a file");
    let file = file.to_str().expect("a name");
    let run = ctl(&cluster, 2, &["import_definitions", file, "--dry-run"]).await;
    let texts = |list: &str| run[list].to_string();
    assert!(texts("made").contains("queue 'new' in vhost '/'"), "{run}");
    assert!(texts("made").contains("policy 'p' in vhost '/'"), "{run}");
    assert!(texts("changed").contains("user 'guest'"), "{run}");
    assert!(!texts("made").contains("'there'") && !texts("changed").contains("'there'"), "{run}");
    assert_eq!(change(&run), [json!("max-length"), Value::Null, json!(2), json!("policy")]);
    assert_eq!(run["queues"][0]["dropped"], json!(3));
    assert_eq!(ready(&connection, "new").await, Err(Some(404)));
    assert_eq!(ready(&connection, "there").await, Ok(5));
    let (status, over_http) =
        http(&cluster, 3, GUEST, ("POST", "dry-run/definitions"), &definitions.to_string()).await;
    assert_eq!((status, &over_http["queues"]), (200, &run["queues"]));
    cluster.ctl(1, &["import_definitions", file]).await.succeeded().expect("an import");
    assert_eq!(
        (ready(&connection, "new").await, ready(&connection, "there").await),
        (Ok(0), Ok(2))
    );
    // Now nothing is left to do, but for the password, whose hash has a new salt each time.
    let run = ctl(&cluster, 2, &["import_definitions", file, "--dry-run"]).await;
    assert_eq!((&run["queues"], &run["made"]), (&json!([]), &json!([])));
    let wrong = json!({ "policies": [{ "vhost": "/", "name": "p", "pattern": "(", "definition": { "max-length": 2 } }] });
    let (status, refused) =
        http(&cluster, 3, GUEST, ("POST", "dry-run/definitions"), &wrong.to_string()).await;
    assert_eq!(status, 400);
    assert!(refused["reason"].as_str().is_some_and(|it| it.contains("policy 'p'")), "{refused}");
}

/// Each setting names the argument or policy that it comes from.
#[tokio::test(flavor = "multi_thread")]
async fn pol_07_settings_name_where_they_come_from() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    let with: [(&str, AMQPValue); 3] = [
        ("x-queue-type", text("quorum")),
        ("x-max-length", int(50)),
        ("x-message-ttl", int(1_000)),
    ];
    declare_with(&channel, "q", &with).await;
    for args in [
        &[
            "set_policy",
            "p",
            "^q",
            r#"{"max-length":10,"message-ttl":5000,"dead-letter-exchange":"d"}"#,
        ][..],
        &["set_operator_policy", "o", "^q", r#"{"max-length":7}"#],
    ] {
        cluster.ctl(1, args).await.succeeded().expect("a policy");
    }
    for id in 1..=3 {
        let (status, all) = http(&cluster, id, GUEST, ("GET", "queues/%2F/q/settings"), "").await;
        assert_eq!(status, 200);
        let setting = |name: &str| {
            let found =
                all.as_array().into_iter().flatten().find(|it| it["setting"] == json!(name));
            let found = found.expect("the setting");
            ["value", "source", "name"].map(|field| found[field].clone())
        };
        assert_eq!(setting("max-length"), [json!(7), json!("operator_policy"), json!("o")]);
        assert_eq!(
            setting("message-ttl"),
            [json!(1_000), json!("argument"), json!("x-message-ttl")]
        );
        assert_eq!(setting("dead-letter-exchange"), [json!("d"), json!("policy"), json!("p")]);
        assert_eq!(setting("delivery-limit"), [json!(20), json!("default"), Value::Null]);
        assert_eq!(setting("expires"), [Value::Null, json!("default"), Value::Null]);
    }
    let listed = cluster.ctl(2, &["-q", "explain_settings", "q"]).await.stdout;
    assert!(listed.contains("max-length\t7\toperator_policy\to\n"), "{listed}");
}
