//! Virtual hosts: apart from each other, with limits and a default type, and gone with all that is
//! in them (EXC-01, QUE-02, QUE-11, CONN-20, CONN-33, CHN-03, VLM-01, VLM-02, NAM 4).

#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use quorate_cluster_tests::harness::amqp::{
    code, durable, get, open, open_confirming, passive, publish_confirmed,
};
use quorate_cluster_tests::harness::ctl::text;
use quorate_cluster_tests::harness::wait::{eventually, hold, in_time};
use quorate_cluster_tests::harness::{Cluster, Options};

async fn done(cluster: &Cluster, args: &[&str]) {
    let output = cluster.ctl(1, args).await;
    output.succeeded().unwrap_or_else(|said| panic!("{args:?}: {said}"));
}

fn uri(cluster: &Cluster, node: u64, vhost: &str) -> String {
    format!("amqp://guest:guest@{}/{vhost}", cluster.node(node).amqp_address())
}

async fn with_vhost(nodes: u64) -> Cluster {
    let cluster = Cluster::start(nodes, Options::default()).await;
    done(&cluster, &["add_vhost", "v"]).await;
    done(&cluster, &["set_permissions", "-p", "v", "guest", ".*", ".*", ".*"]).await;
    cluster
}

async fn refused(uri: &str) -> String {
    let connecting = Connection::connect(uri, ConnectionProperties::default());
    let refused = in_time("an answer", connecting).await;
    refused.expect_err("it is refused").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn exc_01_virtual_hosts_are_apart_and_go_with_all_that_is_in_them() {
    let cluster = with_vhost(3).await;
    let (in_v, of_v) = open_confirming(&uri(&cluster, 2, "v")).await;
    let (_kept, of_default) = open_confirming(&cluster.amqp_uri(3)).await;
    for channel in [&of_v, &of_default] {
        for queue in ["a", "b", "c"] {
            let declared = channel.queue_declare(queue.into(), durable(), FieldTable::default());
            declared.await.expect("declare-ok");
        }
        publish_confirmed(channel, "a", b"one of two").await;
        let bind = channel.queue_bind(
            "b".into(),
            "amq.topic".into(),
            "#".into(),
            <_>::default(),
            FieldTable::default(),
        );
        bind.await.expect("bind-ok");
    }
    assert_eq!(cluster.rows(1, &["list_queues", "-p", "v"]).await.expect("rows").len(), 3);
    done(&cluster, &["delete_vhost", "v"]).await;
    eventually("the connection has ended", || async {
        hold(!in_v.status().connected(), || "it is open".to_owned())
    })
    .await;
    assert!(refused(&uri(&cluster, 1, "v")).await.contains("vhost v not found"));
    assert_eq!(get(&of_default, "a").await.as_deref(), Some(&b"one of two"[..]));
    // NAM 4: no machine keeps what has no name. All queues of all groups are counted in metrics.
    eventually("the queues have ended in their groups", || async {
        let mut ready = 0.0;
        for node in cluster.nodes() {
            ready += node.metrics().await.sum("rabbitmq_queue_messages_ready").unwrap_or(0.0);
        }
        hold(ready == 0.0, || format!("{ready} messages are ready"))
    })
    .await;
    // One of the same name is another one, and empty.
    done(&cluster, &["add_vhost", "v"]).await;
    assert!(refused(&uri(&cluster, 3, "v")).await.contains("refused for user 'guest'"));
    done(&cluster, &["set_permissions", "-p", "v", "guest", ".*", ".*", ".*"]).await;
    let (_again, channel) = open(&uri(&cluster, 3, "v")).await;
    let gone = channel.queue_declare("a".into(), passive(), FieldTable::default()).await;
    assert_eq!(code(&gone.expect_err("it is gone")), Some(404));
    let rows = cluster.rows(2, &["list_bindings", "-p", "v"]).await.expect("rows");
    assert_eq!(rows.len(), 0, "{rows:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn que_02_ctl_07_a_virtual_host_has_a_default_queue_type() {
    let cluster = with_vhost(1).await;
    let update = ["update_vhost_metadata", "v", "--default-queue-type", "quorum"];
    done(&cluster, &update).await;
    done(&cluster, &["update_vhost_metadata", "v", "--description", "ours", "--tags", "a,b"]).await;
    let (_connection, channel) = open(&uri(&cluster, 1, "v")).await;
    channel.queue_declare("q".into(), durable(), FieldTable::default()).await.expect("q");
    let rows = cluster.rows(1, &["list_queues", "-p", "v", "name", "type"]).await.expect("rows");
    assert_eq!(rows.iter().map(|row| text(row, "type")).collect::<Vec<_>>(), ["quorum"]);
    let columns = ["list_vhosts", "-s", "name", "description", "tags", "default_queue_type"];
    let listed = cluster.ctl(1, &columns).await;
    assert_eq!(listed.stdout, "/\tDefault virtual host\t[]\t\nv\tours\t[a, b]\tquorum\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn que_11_vlm_01_queues_and_connections_of_a_virtual_host_are_limited() {
    let cluster = with_vhost(3).await;
    let limits = "{\"max-queues\":2,\"max-connections\":2}";
    done(&cluster, &["set_vhost_limits", "-p", "v", limits]).await;
    let listed = cluster.ctl(2, &["-q", "list_vhost_limits", "-p", "v"]).await;
    assert_eq!(listed.stdout, "{\"max-connections\":2,\"max-queues\":2}\n");
    let (one, channel) = open(&uri(&cluster, 1, "v")).await;
    for queue in ["a", "b"] {
        let declared = channel.queue_declare(queue.into(), durable(), FieldTable::default());
        declared.await.expect("declare-ok");
    }
    let third = channel.queue_declare("c".into(), durable(), FieldTable::default()).await;
    let said = third.expect_err("one too many").to_string();
    let words = "cannot declare queue 'c': queue limit in vhost 'v' (2) is reached";
    assert!(said.contains(words), "{said}");
    // Connections of all nodes are counted together (VLM-04: soon).
    let (_two, _) = open(&uri(&cluster, 2, "v")).await;
    eventually("a third is refused by the third node", || async {
        let uri = uri(&cluster, 3, "v");
        match Connection::connect(&uri, ConnectionProperties::default()).await {
            Ok(open) => {
                drop(open.close(200, "".into()).await);
                Err("it was let in".to_owned())
            }
            Err(error) => {
                let words = "access to vhost 'v' refused for user 'guest': \
                             connection limit (2) is reached";
                hold(error.to_string().contains(words), || error.to_string())
            }
        }
    })
    .await;
    one.close(200, "".into()).await.expect("closed");
    eventually("there is room again", || async {
        let uri = uri(&cluster, 3, "v");
        let opened = Connection::connect(&uri, ConnectionProperties::default());
        opened.await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    done(&cluster, &["clear_vhost_limits", "-p", "v"]).await;
    assert_eq!(cluster.ctl(1, &["-q", "list_vhost_limits", "-p", "v"]).await.stdout, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn chn_03_vlm_02_connections_and_channels_of_a_user_are_limited() {
    let cluster = Cluster::start(1, Options::default()).await;
    done(&cluster, &["set_user_limits", "guest", "{\"max-channels\":2}"]).await;
    let (connection, _first) = open(&cluster.amqp_uri(1)).await;
    let second = connection.create_channel().await.expect("a second");
    second.queue_declare("q".into(), durable(), FieldTable::default()).await.expect("it works");
    let third = in_time("an answer", connection.create_channel()).await;
    let said = third.expect_err("one too many").to_string();
    let words = "number of channels opened for user 'guest' has reached the maximum allowed user \
                 limit of (2)";
    assert!(said.contains(words), "{said}");
    done(&cluster, &["clear_user_limits", "guest", "max-channels"]).await;
    done(&cluster, &["set_user_limits", "guest", "{\"max-connections\":0}"]).await;
    let said = refused(&cluster.amqp_uri(1)).await;
    let words = "connection refused for user 'guest': user connection limit (0) is reached";
    assert!(said.contains(words), "{said}");
    let listed = cluster.ctl(1, &["-q", "list_user_limits", "--user", "guest"]).await;
    assert_eq!(listed.stdout, "{\"max-connections\":0}\n");
}
