//! `quorate ctl` behaves as rabbitmqctl does: shapes of output, flags, exit codes (CTL-09 to CTL-12;
//! what those leave open was asked of RabbitMQ 4.0.5).

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use futures::StreamExt;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, QueueBindOptions};
use lapin::types::FieldTable;
use quorate_cluster_tests::harness::amqp::publish_confirmed;
use quorate_cluster_tests::harness::amqp::{declare_quorum, open, open_confirming};
use quorate_cluster_tests::harness::ctl::{self, text};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options, Port};

async fn with_two_queues(nodes: u64) -> Cluster {
    let cluster = Cluster::start(nodes, Options::default()).await;
    cluster.leaders_rest().await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    for queue in ["one", "two"] {
        declare_quorum(&channel, queue).await;
        publish_confirmed(&channel, queue, b"body").await;
    }
    publish_confirmed(&channel, "two", b"body").await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn list_queues_has_rabbitmqctls_shape() {
    let cluster = with_two_queues(1).await;
    let listed = async |args: &[&str]| {
        let output = cluster.ctl(1, &[&["list_queues"], args].concat()).await;
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args:?}: {output:?}");
        let mut lines: Vec<String> = output.lines().iter().map(|&line| line.to_owned()).collect();
        lines.sort();
        lines
    };
    let (timeout, banner) = ("Timeout: 60.0 seconds ...", "Listing queues for vhost / ...");
    assert_eq!(listed(&[]).await, [banner, timeout, "name\tmessages", "one\t1", "two\t2"]);
    for quiet in ["-q", "--quiet"] {
        assert_eq!(listed(&[quiet]).await, ["name\tmessages", "one\t1", "two\t2"]);
    }
    for silent in ["-s", "--silent"] {
        assert_eq!(listed(&[silent]).await, ["one\t1", "two\t2"]);
    }
    assert_eq!(listed(&["-s", "messages", "name"]).await, ["1\tone", "2\ttwo"]);
    assert_eq!(
        listed(&["-q", "name", "type", "--formatter", "csv"]).await,
        ["\"name\",\"type\"", "\"one\",\"quorum\"", "\"two\",\"quorum\""]
    );
    assert_eq!(listed(&["-s", "-p", "/", "name"]).await, ["one", "two"]);
    assert_eq!(listed(&["-s", "-p", "no such host"]).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_an_array_of_rows_without_banners() {
    let cluster = with_two_queues(3).await;
    let columns = [
        "name",
        "messages",
        "messages_ready",
        "messages_unacknowledged",
        "consumers",
        "memory",
        "type",
        "leader",
        "members",
    ];
    // Without -q: rabbitmqctl says nothing but JSON then.
    let args = [&["list_queues", "--formatter=json"], &columns[..]].concat();
    let rows = cluster.ctl(2, &args).await.rows().expect("JSON");
    assert_eq!(rows.len(), 2);
    let row = rows.iter().find(|row| text(row, "name") == "two").expect("the queue 'two'");
    let keys: Vec<&String> = row.as_object().expect("an object").keys().collect();
    assert_eq!(keys.len(), columns.len(), "{row}");
    assert_eq!(text(row, "type"), "quorum");
    for (column, count) in
        [("messages", 2), ("messages_ready", 2), ("messages_unacknowledged", 0), ("consumers", 0)]
    {
        assert_eq!(ctl::count(row, column), Ok(count), "{row}");
    }
    ctl::count(row, "memory").expect("bytes");
    let members = row.get("members").and_then(|members| members.as_array()).expect("members");
    assert_eq!(members.len(), 3, "{row}");
    assert!(members.contains(&row["leader"]), "{row}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_are_rabbitmqctls() {
    let cluster = with_two_queues(1).await;
    for (args, code) in [
        (&["await_startup"][..], 0),
        (&["status"], 0),
        (&["cluster_status"], 0),
        (&["list_connections"], 0),
        (&["list_channels"], 0),
        (&["list_consumers"], 0),
        (&["list_exchanges"], 0),
        (&["list_bindings"], 0),
        (&["audit"], 0),
        (&["no_such_command"], 64),
        (&["list_queues", "no_such_column"], 64),
        (&["list_queues", "--no-such-flag"], 64),
        (&["delete_queue"], 64),
        (&["delete_queue", "no such queue"], 64),
        (&["purge_queue", "no such queue"], 69),
    ] {
        let output = cluster.ctl(1, args).await;
        assert_eq!(output.code, code, "{args:?}: {output:?}");
        assert_eq!(output.stderr.is_empty(), code == 0, "{args:?}: {output:?}");
    }
    // CTL-12: nobody there.
    let nobody = Port::reserve();
    let address = nobody.address();
    let output = ctl::run(cluster.binary(), &address, cluster.secret(), &["status"]).await;
    assert!([68, 69].contains(&output.code), "{output:?}");
    assert!(output.stderr.contains(&address), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_and_delete_do_what_they_say() {
    let cluster = with_two_queues(3).await;
    let purge = cluster.ctl(2, &["purge_queue", "two"]).await.succeeded().expect("purge");
    assert!(purge.stdout.contains("Purging queue 'two' in vhost '/' ..."), "{purge:?}");
    assert_eq!(cluster.counts(3, "two", ["messages"]).await, Ok([0]));
    let not_empty = cluster.ctl(3, &["delete_queue", "one", "--if-empty"]).await;
    assert_ne!(not_empty.code, 0, "{not_empty:?}");
    assert_eq!(cluster.counts(1, "one", ["messages"]).await, Ok([1]));
    for queue in ["one", "two"] {
        let delete = cluster.ctl(3, &["delete_queue", queue]).await.succeeded().expect("delete");
        let banner = format!("Deleting queue '{queue}' on vhost '/' ...");
        assert!(delete.stdout.contains(&banner), "{delete:?}");
    }
    for id in 1..=3 {
        let left = cluster.rows(id, &["list_queues"]).await.expect("a list");
        assert!(left.is_empty(), "{left:?}");
    }
}

/// What `list_channels` shows, asked of node 1.
async fn channels(cluster: &Cluster) -> Vec<[u64; 5]> {
    let columns = [
        "consumer_count",
        "messages_unacknowledged",
        "messages_unconfirmed",
        "prefetch_count",
        "number",
    ];
    let args = [&["list_channels"], &columns[..]].concat();
    let rows = cluster.rows(1, &args).await.expect("channels");
    let counts = |row| columns.map(|column| ctl::count(row, column).expect("a number"));
    let mut rows: Vec<_> = rows.iter().map(counts).collect();
    rows.sort_unstable();
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_is_listed_once_it_is_open_with_counts_that_are_hardly_old() {
    let cluster = with_two_queues(3).await;
    eventually("the first connection is gone", || async {
        let left = channels(&cluster).await;
        hold(left.is_empty(), || format!("{left:?}"))
    })
    .await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(3)).await;
    assert_eq!(channels(&cluster).await, [[0, 0, 0, 0, 1]], "open-ok came first");
    let second = connection.create_channel().await.expect("open-ok");
    assert_eq!(channels(&cluster).await, [[0, 0, 0, 0, 1], [0, 0, 0, 0, 2]]);
    second.close(200, "done".into()).await.expect("close-ok");
    assert_eq!(channels(&cluster).await, [[0, 0, 0, 0, 1]], "close-ok came first");
    channel.basic_qos(7, <_>::default()).await.expect("qos-ok");
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume("two".into(), "seen".into(), options, <_>::default());
    let mut consumer = consumer.await.expect("consume-ok");
    publish_confirmed(&channel, "one", b"body").await;
    let shown = async |what: &str, expected: [u64; 5]| {
        eventually(what, || async {
            let now = channels(&cluster).await;
            hold(now == [expected], || format!("{now:?}, not {expected:?}"))
        })
        .await;
    };
    shown("two are unacknowledged, none unconfirmed", [1, 2, 0, 7, 1]).await;
    let delivery = consumer.next().await.expect("a consumer").expect("a delivery");
    delivery.ack(BasicAckOptions::default()).await.expect("ack");
    shown("one is unacknowledged", [1, 1, 0, 7, 1]).await;
    channel.basic_cancel("seen".into(), <_>::default()).await.expect("cancel-ok");
    shown("it is still to be acknowledged, of no consumer", [0, 1, 0, 7, 1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_listed_while_they_are_there() {
    let cluster = with_two_queues(3).await;
    let (connection, channel) = open(&cluster.amqp_uri(3)).await;
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume("one".into(), "seen".into(), options, <_>::default());
    let _consumer = consumer.await.expect("consume-ok");
    // Asked of another node than the client's.
    let connections = cluster.ctl(1, &["-s", "list_connections"]).await;
    let connections = connections.succeeded().expect("connections");
    let own = connections
        .lines()
        .iter()
        .any(|line| line.starts_with("guest\t127.0.0.1\t") && line.ends_with("\trunning"));
    assert!(own, "{connections:?}");
    let channels = cluster.rows(1, &["list_channels"]).await.expect("channels");
    assert!(!channels.is_empty());
    let consumers = cluster.rows(1, &["list_consumers"]).await.expect("consumers");
    let own = consumers.iter().find(|row| text(row, "consumer_tag") == "seen");
    let own = own.unwrap_or_else(|| panic!("{consumers:?}"));
    assert_eq!(text(own, "queue_name"), "one");
    assert_eq!(cluster.counts(2, "one", ["consumers"]).await, Ok([1]));
    connection.close(200, "done".into()).await.expect("close-ok");
    eventually("nobody is listed", || async {
        let rows = cluster.rows(1, &["list_consumers"]).await?;
        hold(rows.is_empty(), || format!("{rows:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exchanges_and_bindings_are_listed_with_the_standard_ones() {
    let cluster = with_two_queues(1).await;
    let (_connection, channel) = open(&cluster.amqp_uri(1)).await;
    let bind = QueueBindOptions::default();
    let arguments = FieldTable::default();
    let bound = channel.queue_bind("one".into(), "amq.topic".into(), "a.#".into(), bind, arguments);
    bound.await.expect("bind-ok");
    let exchanges = cluster.ctl(1, &["-s", "list_exchanges"]).await.succeeded().expect("a list");
    let mut lines = exchanges.lines();
    lines.sort_unstable();
    let standard = [
        // EXC-01.
        "\tdirect",
        "amq.direct\tdirect",
        "amq.fanout\tfanout",
        "amq.headers\theaders",
        "amq.match\theaders",
        "amq.rabbitmq.trace\ttopic",
        "amq.topic\ttopic",
    ];
    assert_eq!(lines, standard);
    let bindings = cluster.ctl(1, &["-q", "list_bindings"]).await.succeeded().expect("a list");
    let mut lines = bindings.lines();
    let columns =
        "source_name\tsource_kind\tdestination_name\tdestination_kind\trouting_key\targuments";
    assert_eq!(lines.remove(0), columns);
    lines.sort_unstable();
    // CTL-10: the default exchange's are among them.
    let expected = [
        "\texchange\tone\tqueue\tone\t[]",
        "\texchange\ttwo\tqueue\ttwo\t[]",
        "amq.topic\texchange\tone\tqueue\ta.#\t[]",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_status_tells_who_runs() {
    let cluster = with_two_queues(3).await;
    let count = async || {
        let output = cluster.ctl(1, &["cluster_status", "-q", "--formatter", "json"]).await;
        let status: serde_json::Value =
            serde_json::from_str(&output.succeeded()?.stdout).map_err(|e| e.to_string())?;
        let running = status["running_nodes"].as_array().map(Vec::len);
        let disk = status["disk_nodes"].as_array().map(Vec::len);
        running.zip(disk).ok_or_else(|| format!("{status}"))
    };
    assert_eq!(count().await, Ok((3, 3)));
    cluster.node(3).kill9();
    eventually("the dead node is missed", || async {
        let counts = count().await?;
        hold(counts == (2, 3), || format!("{counts:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_named_rabbitmqctl_is_quorate_ctl() {
    let cluster = with_two_queues(1).await;
    let link = cluster.folder().join("rabbitmqctl");
    std::os::unix::fs::symlink(cluster.binary(), &link).expect("a link");
    let rpc = cluster.node(1).rpc_address();
    for node in [rpc.clone(), format!("rabbit@{rpc}")] {
        let output = tokio::process::Command::new(&link)
            .args(["-n", &node, "-s", "list_queues", "name"])
            .env("QUORATE_CLUSTER_SECRET", cluster.secret())
            .output()
            .await
            .expect("it starts");
        let mut lines: Vec<&[u8]> = output.stdout.split(|byte| *byte == b'\n').collect();
        lines.sort_unstable();
        assert_eq!(lines, [&b""[..], b"one", b"two"], "{node}: {output:?}");
    }
}
