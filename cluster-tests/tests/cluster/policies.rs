//! Policies, operator policies and runtime parameters by `quorate ctl`: rabbitmqctl's syntax, texts and
//! exit codes, and in force everywhere when the command returns (POL, OPP, VLM-03, CTL-01 to CTL-03,
//! CTL-08).

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use lapin::types::FieldTable;
use quorate_cluster_tests::harness::amqp::{beside, declare_quorum, durable, exclusive, open};
use quorate_cluster_tests::harness::ctl::{count, text};
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Options, scale};
use quorate_cluster_tests::invariant::assert_replicas_equal;
use serde_json::{Value, json};
use std::time::Instant;

/// Declares under way at once.
const CHANNELS: usize = 20;

async fn ok(cluster: &Cluster, node: u64, args: &[&str]) -> String {
    let output = cluster.ctl(node, args).await;
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args:?}: {output:?}");
    output.stdout
}

/// Exit code and standard error.
async fn refused(cluster: &Cluster, args: &[&str]) -> (i32, String) {
    let output = cluster.ctl(1, args).await;
    (output.code, output.stderr)
}

/// What `list_queues` shows of one queue.
async fn shown(cluster: &Cluster, node: u64, queue: &str, columns: &[&str]) -> Vec<Value> {
    let args = [&["list_queues", "name"], columns].concat();
    let rows = cluster.rows(node, &args).await.expect("rows");
    let row = rows.into_iter().find(|row| text(row, "name") == queue).expect("the queue");
    columns.iter().map(|column| row[*column].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ctl_01_pol_11_the_documents_own_line_sets_a_policy_that_every_node_shows() {
    let cluster = Cluster::start(3, Options::default()).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "before").await;
    let said = ok(
        &cluster,
        2,
        &[
            "set_policy",
            "DLX",
            ".*",
            r#"{"dead-letter-exchange":"my-dlx"}"#,
            "--apply-to",
            "queues",
        ],
    )
    .await;
    assert_eq!(
        said,
        "Setting policy \"DLX\" for pattern \".*\" to \"{\"dead-letter-exchange\":\"my-dlx\"}\" with \
         priority \"0\" for vhost \"/\" ...\n"
    );
    declare_quorum(&channel, "after").await;
    let columns = ["policy", "operator_policy", "effective_policy_definition"];
    for (node, queue) in [(1, "before"), (2, "after"), (3, "before")] {
        let shown = shown(&cluster, node, queue, &columns).await;
        assert_eq!(shown, [json!("DLX"), json!(""), json!({"dead-letter-exchange": "my-dlx"})]);
    }
    assert_eq!(
        ok(&cluster, 3, &["list_policies"]).await,
        "Listing policies for vhost \"/\" ...\n\
         vhost\tname\tpattern\tapply-to\tdefinition\tpriority\n\
         /\tDLX\t.*\tqueues\t{\"dead-letter-exchange\":\"my-dlx\"}\t0\n"
    );
    let said = ok(&cluster, 1, &["clear_policy", "DLX"]).await;
    assert_eq!(said, "Clearing policy \"DLX\" on vhost \"/\" ...\n");
    let shown = shown(&cluster, 3, "before", &columns).await;
    assert_eq!(shown, [json!(""), json!(""), json!({})]);
    assert_eq!(
        refused(&cluster, &["clear_policy", "DLX"]).await,
        (69, "Error:\nParameter does not exist\n".to_owned())
    );
    assert_replicas_equal(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pol_04_opp_03_ctl_03_settings_reach_queues_of_every_kind_at_once() {
    let cluster = Cluster::start(3, Options::default()).await;
    cluster.leaders_rest().await;
    let (_connection, channel) = open(&cluster.amqp_uri(3)).await;
    declare_quorum(&channel, "quorum").await;
    for (queue, options) in [("classic", durable()), ("mine", exclusive())] {
        let declared = channel.queue_declare(queue.into(), options, FieldTable::default());
        in_time("a declare", declared).await.expect("declare-ok");
    }
    let declared = channel.queue_declare("".into(), exclusive(), FieldTable::default());
    let given = in_time("a declare", declared).await.expect("declare-ok");
    let given = given.name().as_str().to_owned();
    let set = ["set_policy", "--priority", "3", "p", ".", r#"{"max-length":9,"expires":600000}"#];
    ok(&cluster, 1, &set).await;
    let said = ok(
        &cluster,
        2,
        &["set_operator_policy", "o", "", r#"{"max-length":5}"#, "--apply-to=classic_queues"],
    )
    .await;
    assert!(
        said.starts_with("Setting operator policy override \"o\" for pattern \"\" to"),
        "{said}"
    );
    let columns = ["policy", "operator_policy", "effective_policy_definition"];
    let both = json!({"max-length": 5, "expires": 600_000});
    let alone = json!({"max-length": 9, "expires": 600_000});
    for (queue, operator, definition) in [
        ("quorum", "", &alone),
        ("classic", "o", &both),
        ("mine", "o", &both),
        (&given, "o", &both),
    ] {
        let shown = shown(&cluster, 2, queue, &columns).await;
        assert_eq!(shown, [json!("p"), json!(operator), definition.clone()], "{queue}");
    }
    // What the queues have is as new as the last change that concerned them.
    let at = |shown: Vec<Value>| shown[0].as_u64().expect("an index");
    let quorum = at(shown(&cluster, 1, "quorum", &["configured_at"]).await);
    for queue in ["classic", "mine", &given] {
        let later = at(shown(&cluster, 1, queue, &["configured_at"]).await);
        assert!(later > quorum, "{queue}: {later}, quorum: {quorum}");
    }
    assert_eq!(
        ok(&cluster, 3, &["-q", "list_operator_policies"]).await,
        "vhost\tname\tpattern\tapply-to\tdefinition\tpriority\n/\to\t\tclassic_queues\t{\"max-length\":5}\t0\n"
    );
    ok(&cluster, 3, &["clear_operator_policy", "o"]).await;
    assert_eq!(shown(&cluster, 1, "classic", &columns).await[2], alone);
    let exchanges = cluster.rows(2, &["list_exchanges", "name", "policy"]).await.expect("rows");
    let topic = exchanges.iter().find(|row| text(row, "name") == "amq.topic").expect("amq.topic");
    assert_eq!(text(topic, "policy"), "p");
    assert_replicas_equal(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pol_20_to_pol_25_what_is_wrong_is_told_and_nothing_is_set() {
    let cluster = Cluster::start(1, Options::default()).await;
    let wrong: [(&[&str], &str); 7] = [
        (
            &["set_policy", "p", ".", r#"{"foo":3}"#],
            "Validation failed\n\n[{<<\"foo\">>,3}] are not recognised policy settings",
        ),
        (
            &["set_policy", "p", ".", r#"{"message-ttl":-1}"#],
            "Validation failed\n\n-1 is not a valid message TTL",
        ),
        (
            &["set_policy", "p", "(", r#"{"expires":1}"#],
            "Validation failed\n\npattern should be regular expression but is invalid: {\"missing )\",1}",
        ),
        (
            &["set_policy", "p", ".", r#"{"expires":1}"#, "--apply-to", "foo"],
            "Validation failed\n\napply-to 'foo' unrecognised; should be one of: 'queues', \
             'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'",
        ),
        (
            &["set_policy", "p", ".", "junk"],
            "Could not parse JSON document: {error,{failed_to_decode_json,<<\"junk\">>}}",
        ),
        (
            &["set_operator_policy", "p", ".", r#"{"dead-letter-exchange":"x"}"#],
            "Validation failed\n\n[{<<\"dead-letter-exchange\">>,<<\"x\">>}] are not recognised policy settings",
        ),
        (&["clear_operator_policy", "p"], "Parameter does not exist"),
    ];
    for (args, told) in wrong {
        assert_eq!(refused(&cluster, args).await, (69, format!("Error:\n{told}\n")), "{args:?}");
    }
    assert_eq!(refused(&cluster, &["set_policy", "p", "."]).await.0, 64);
    assert_eq!(refused(&cluster, &["set_policy", "p", ".", "{}", "--priority", "x"]).await.0, 64);
    let (code, told) = refused(&cluster, &["list_policies", "-p", "none"]).await;
    assert_eq!((code, told.as_str()), (65, "Error:\nVirtual host 'none' does not exist\n"));
    assert_eq!(ok(&cluster, 1, &["-s", "list_policies"]).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctl_08_vlm_03_parameters_are_set_listed_and_cleared() {
    let cluster = Cluster::start(3, Options::default()).await;
    assert_eq!(
        ok(&cluster, 1, &["set_parameter", "shovel", "s", r#"{"a": [1]}"#]).await,
        "Setting runtime parameter \"s\" for component \"shovel\" to \"{\"a\": [1]}\" in vhost \"/\" ...\n"
    );
    ok(&cluster, 2, &["set_global_parameter", "g", "\"v\""]).await;
    let lists = [
        (
            "list_parameters",
            "Listing runtime parameters for vhost \"/\" ...\ncomponent\tname\tvalue\nshovel\ts\t{\"a\":[1]}\n",
        ),
        (
            "list_global_parameters",
            "Listing global runtime parameters ...\nname\tvalue\ng\t\"v\"\n",
        ),
    ];
    for (list, wanted) in lists {
        says(&cluster, 3, &[list], wanted).await;
    }
    let (code, told) = refused(&cluster, &["set_parameter", "policy", "p", "{}"]).await;
    assert_eq!((code, told.as_str()), (69, "Error:\npolicies may not be set using this method\n"));
    ok(&cluster, 3, &["clear_parameter", "shovel", "s"]).await;
    ok(&cluster, 1, &["clear_global_parameter", "g"]).await;
    let again = refused(&cluster, &["clear_global_parameter", "g"]).await;
    assert_eq!(again, (69, "Error:\nParameter does not exist\n".to_owned()));
    says(&cluster, 2, &["-s", "list_parameters"], "").await;
}

/// A node says so as soon as its copy of the catalog has it.
async fn says(cluster: &Cluster, node: u64, args: &[&str], wanted: &str) {
    eventually("the node says so", || async {
        let said = ok(cluster, node, args).await;
        hold(said == wanted, || said.clone())
    })
    .await;
}

/// Catalog indexes that the queues' settings were resolved at, lowest first. Only leaders tell them.
async fn configured(cluster: &Cluster, node: u64) -> Result<Vec<u64>, String> {
    let rows = cluster.rows(node, &["list_queues", "name", "configured_at"]).await?;
    let indexes = rows.iter().map(|row| count(row, "configured_at"));
    let mut indexes: Vec<u64> = indexes.collect::<Result<_, _>>()?;
    indexes.sort_unstable();
    Ok(indexes)
}

/// The same, once all groups have a leader.
async fn all_configured(cluster: &Cluster, node: u64) -> Vec<u64> {
    eventually("all leaders tell", || configured(cluster, node)).await
}

/// DESIGN §7: in force for all queues when the command returns, two seconds at most; and brought by a
/// new leader where the one that should have is gone.
#[tokio::test(flavor = "multi_thread")]
async fn pol_04_pol_10_many_queues_take_a_policy_change_in_one_go() {
    let cluster = Cluster::start(3, Options::default()).await;
    cluster.leaders_rest().await;
    let count = scale::POLICY_QUEUES.get() as usize;
    let lanes = (0..CHANNELS).map(|lane| {
        let cluster = &cluster;
        async move {
            let (_connection, channel) = open(&cluster.amqp_uri(lane as u64 % 3 + 1)).await;
            for number in (lane..count).step_by(CHANNELS) {
                declare_quorum(&channel, &format!("q-{number}")).await;
            }
        }
    });
    futures::future::join_all(lanes).await;
    let before = *all_configured(&cluster, 1).await.last().expect("queues");
    let set = ["set_policy", "p", "^q-", r#"{"max-length":7}"#];
    let begun = Instant::now();
    let (_, slowest) = beside(&cluster.amqp_uri(1), "q-0", ok(&cluster, 2, &set)).await;
    scale::POLICY_SET.upto("set_policy, ctl included", begun.elapsed());
    scale::BESIDE_POLICY.upto("longest publish beside it", slowest);
    let set = all_configured(&cluster, 3).await;
    assert_eq!(set.len(), count);
    assert!(
        set[0] > before,
        "the oldest settings are of {}, the policy came after {before}",
        set[0]
    );
    // Half of the leaders go while the change is made: their successors bring it.
    let clear = ["clear_policy", "p"];
    let (output, ()) = tokio::join!(cluster.ctl(2, &clear), async { cluster.node(3).kill9() });
    assert_eq!(output.code, 0, "{output:?}");
    cluster.node(3).spawn();
    cluster.ready().await;
    let last = *set.last().expect("queues");
    eventually("all queues have the settings of before", async || {
        let cleared = configured(&cluster, 1).await?;
        hold(cleared.first() > Some(&last), || format!("{:?} of {last}", cleared.first()))
    })
    .await;
    assert_replicas_equal(&cluster).await;
}
