//! A node that must not start says why in one clear line and exits, and what runs goes on.

#![expect(clippy::expect_used, reason = "tests")]

use crate::members::has_members;
use quorate_cluster_tests::harness::amqp::{declare_quorum, open_confirming, publish_confirmed};
use quorate_cluster_tests::harness::process::{Launch, Process};
use quorate_cluster_tests::harness::wait::{eventually, hold};
use quorate_cluster_tests::harness::{Cluster, Options, Port, write_secret};
use std::fs;
use std::path::Path;

/// Starts `launch`, which must exit with a failure and a last word that has all of `words` in it.
async fn refused(mut launch: Launch, words: &[&str]) {
    launch.log = launch.log.with_file_name("refused.log");
    let _ = fs::remove_file(&launch.log);
    let status = Process::spawn(&launch).exit().await;
    let said = fs::read_to_string(&launch.log).unwrap_or_default();
    assert_eq!(status.code().map(|code| code != 0), Some(true), "{status}: {said}");
    let clear = said.lines().any(|line| {
        let line = line.to_lowercase();
        ["quorate: ", "error: "].iter().any(|start| line.starts_with(start))
            && words.iter().all(|word| line.contains(word))
    });
    assert!(clear, "no last word with {words:?} in:\n{said}");
    assert!(!said.contains("panicked"), "{said}");
}

/// Starts `launch`, which is not let in: it says so with all of `words`, and goes on asking (MEM 10).
async fn waits(mut launch: Launch, words: &[&str]) {
    launch.log = launch.log.with_file_name("waits.log");
    let _ = fs::remove_file(&launch.log);
    let mut process = Process::spawn(&launch);
    eventually("it says why it is not let in", || async {
        let said = fs::read_to_string(&launch.log).unwrap_or_default();
        hold(said.lines().any(|line| words.iter().all(|word| line.contains(word))), || said.clone())
    })
    .await;
    assert!(process.ended().is_none(), "it goes on asking");
    process.kill9();
}

/// A launch of node 1's kind on ports and in a folder of its own, with the ports.
fn stranger(cluster: &Cluster, id: u64) -> (Launch, [Port; 3]) {
    let mut launch = cluster.node(id).launch();
    let ports = [Port::reserve(), Port::reserve(), Port::reserve()];
    for (flag, port) in ["--amqp-listen", "--rpc-listen", "--http-listen"].iter().zip(&ports) {
        launch.set(flag, &port.address());
    }
    launch.set("--data-dir", &cluster.folder().join("stranger").display().to_string());
    (launch, ports)
}

async fn still_serves(cluster: &Cluster) {
    for node in cluster.nodes().iter().filter(|node| node.runs()) {
        let (_connection, channel) = open_confirming(&node.amqp_uri()).await;
        declare_quorum(&channel, "served").await;
        publish_confirmed(&channel, "served", b"on").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_secret() {
    let cluster = Cluster::start(3, Options::default()).await;
    cluster.node(3).sigterm().await;
    let wrong = cluster.folder().join("wrong-secret");
    write_secret(&wrong, "this is not the secret of that cluster".replace(' ', "-").as_str());
    let mut launch = cluster.node(3).launch();
    launch.set("--cluster-secret-file", &wrong.display().to_string());
    refused(launch, &["its cluster secret differs from theirs"]).await;
    still_serves(&cluster).await;
    // Not for `quorate ctl` either, and nobody waits.
    let rpc = cluster.node(1).rpc_address();
    let secret = "another-wrong-secret-of-the-right-length";
    let ctl =
        quorate_cluster_tests::harness::ctl::run(cluster.binary(), &rpc, secret, &["list_queues"]);
    let ctl = ctl.await;
    assert_ne!(ctl.code, 0, "{ctl:?}");
    assert!(ctl.stderr.to_lowercase().contains("secret"), "{ctl:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_others_may_read() {
    use std::os::unix::fs::PermissionsExt;
    let cluster = Cluster::prepare(1, Options::default()).await;
    let open = cluster.folder().join("open-secret");
    write_secret(&open, "a-secret-that-everybody-can-read");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).expect("mode");
    let mut launch = cluster.node(1).launch();
    launch.set("--cluster-secret-file", &open.display().to_string());
    refused(launch, &["only its owner may write it"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_data_directory() {
    let cluster = Cluster::prepare(1, Options::default()).await;
    let foreign = cluster.folder().join("foreign");
    fs::create_dir(&foreign).expect("a folder");
    fs::write(foreign.join("letters.txt"), "not a node's").expect("a file");
    let mut launch = cluster.node(1).launch();
    launch.set("--data-dir", &foreign.display().to_string());
    refused(launch, &["is not empty and was not made by quorate"]).await;
    let kept = fs::read_to_string(foreign.join("letters.txt")).expect("still there");
    assert_eq!(kept, "not a node's");
    assert_eq!(fs::read_dir(&foreign).expect("a folder").count(), 1, "nothing was added to it");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_nodes_data_directory() {
    let cluster = Cluster::start(3, Options::default()).await;
    cluster.node(2).sigterm().await;
    cluster.node(3).kill9();
    let mut launch = cluster.node(2).launch();
    launch.set("--data-dir", &cluster.node(3).data_dir().display().to_string());
    refused(launch, &["belongs to node 3, this is node 2"]).await;
    cluster.node(2).restart().await;
    cluster.node(3).restart().await;
    still_serves(&cluster).await;
}

/// Overwrites the middle of every file that `which` names, under `folder`.
fn spoil(folder: &Path, which: impl Fn(&str) -> bool + Copy) -> usize {
    let mut spoilt = 0;
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            spoilt += spoil(&path, which);
        } else if which(&name) {
            let mut bytes = fs::read(&path).expect("a file");
            let from = bytes.len() / 4;
            bytes.iter_mut().skip(from).for_each(|byte| *byte = !*byte);
            fs::write(&path, bytes).expect("spoil it");
            spoilt += 1;
        }
    }
    spoilt
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_data_directory() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "q").await;
    publish_confirmed(&channel, "q", b"kept").await;
    drop(connection);
    cluster.node(1).sigterm().await;
    let spoilt = spoil(cluster.node(1).data_dir(), |name| name.starts_with("MANIFEST"));
    assert!(spoilt > 0, "there was a manifest to spoil");
    refused(cluster.node(1).launch(), &["corrupt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_in_use() {
    let cluster = Cluster::start(1, Options::default()).await;
    let (mut launch, _ports) = stranger(&cluster, 1);
    launch.set("--data-dir", &cluster.node(1).data_dir().display().to_string());
    refused(launch, &["data directory", "is in use by another process"]).await;
    still_serves(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use() {
    let cluster = Cluster::prepare(1, Options::default()).await;
    for flag in ["--amqp-listen", "--rpc-listen", "--http-listen"] {
        let taken = Port::reserve();
        let listener = std::net::TcpListener::bind(taken.address()).expect("bind");
        let mut launch = cluster.node(1).launch();
        launch.set(flag, &taken.address());
        refused(launch, &[&taken.number().to_string(), "is in use by another process"]).await;
        drop(listener);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_with_one_id() {
    let cluster = Cluster::start(3, Options::default()).await;
    has_members(&cluster).await;
    let (launch, _ports) = stranger(&cluster, 2);
    waits(launch, &["the id of node 2 is in use"]).await;
    still_serves(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_cluster() {
    let cluster = Cluster::start(3, Options::default()).await;
    let other = Cluster::start(3, Options::default()).await;
    other.node(1).sigterm().await;
    cluster.node(1).sigterm().await;
    // Same id, same secret, same addresses: only its data says that it belongs elsewhere.
    let mut launch = cluster.node(1).launch();
    launch.set("--data-dir", &other.node(1).data_dir().display().to_string());
    refused(launch, &["its data directory belongs to another cluster"]).await;
    still_serves(&cluster).await;
    cluster.node(1).restart().await;
    still_serves(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_10_a_node_that_has_lost_its_data_is_not_let_in() {
    let cluster = Cluster::start(3, Options::default()).await;
    has_members(&cluster).await;
    still_serves(&cluster).await;
    cluster.node(3).sigterm().await;
    // What the others know of it they know from the catalog, not from having met it.
    for node in [1, 2] {
        cluster.node(node).sigterm().await;
        cluster.node(node).restart().await;
    }
    fs::remove_dir_all(cluster.node(3).data_dir()).expect("the data directory");
    waits(cluster.node(3).launch(), &["node id 3 belongs to another data directory"]).await;
    still_serves(&cluster).await;
}

/// Nodes 1 and 2 lose their data and are started again, beside node 3 or before it: they found
/// nothing, and wait.
async fn two_that_lost_their_data(cluster: &Cluster, survivor_runs: bool) {
    has_members(cluster).await;
    still_serves(cluster).await;
    for id in [1, 2] {
        cluster.node(id).kill9();
        fs::remove_dir_all(cluster.node(id).data_dir()).expect("the data directory");
    }
    if !survivor_runs {
        cluster.node(3).kill9();
    }
    cluster.node(1).spawn();
    cluster.node(2).spawn();
    if !survivor_runs {
        // A majority, of nodes that know nothing: nothing comes of it.
        for id in [1, 2] {
            eventually("a node waits for node 3", || async {
                let log = cluster.node(id).log();
                let line =
                    |line: &str| line.contains("may know of a cluster") && line.contains("node=3");
                hold(log.lines().any(line), || log.clone())
            })
            .await;
        }
        cluster.node(3).spawn();
    }
    for id in [1, 2] {
        eventually("node 3 cannot let a node in alone", || async {
            let log = cluster.node(id).log();
            hold(log.contains("no majority of the nodes has answered"), || log.clone())
        })
        .await;
        let ready = cluster.node(id).get("/health/ready").await.expect("an answer");
        assert_eq!(ready.status, 503, "node {id}: {ready:?}");
        assert!(cluster.node(id).runs(), "it asks until it is replaced by name");
    }
    assert!(cluster.node(3).runs(), "who has the data goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_02_two_nodes_that_lost_their_data_found_nothing_beside_the_one_that_has_it() {
    let cluster = Cluster::start(3, Options::default()).await;
    two_that_lost_their_data(&cluster, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mem_02_two_nodes_that_lost_their_data_found_nothing_while_the_one_that_has_it_is_down() {
    let cluster = Cluster::start(3, Options::default()).await;
    two_that_lost_their_data(&cluster, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_of_one_node_does_not_become_three() {
    let cluster = Cluster::prepare(3, Options::default()).await;
    let alone = Cluster::start(1, Options::default()).await;
    alone.node(1).sigterm().await;
    let mut launch = cluster.node(1).launch();
    launch.set("--data-dir", &alone.node(1).data_dir().display().to_string());
    refused(launch, &["formed of nodes"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_value_names_its_setting() {
    let cluster = Cluster::prepare(3, Options::default()).await;
    for (flag, value) in [
        ("--node-id", "three"),
        ("--node-id", "0"),
        ("--amqp-listen", "nowhere"),
        ("--cluster", "1=here"),
        ("--log-tail-bytes", "many"),
        ("--log-format", "xml"),
    ] {
        let mut launch = cluster.node(1).launch();
        launch.set(flag, value);
        let setting = flag.trim_start_matches('-').replace('-', "_");
        refused(launch, &[&format!("setting {setting} ")]).await;
    }
    let mut launch = cluster.node(1).launch();
    launch.set("--node-id", "9");
    refused(launch, &["setting cluster", "whose node_id is 9"]).await;
    let mut launch = cluster.node(1).launch();
    launch.unset("--node-id");
    launch.env.push(("QUORATE_NODE_ID".to_owned(), "three".to_owned()));
    refused(launch, &["setting node_id "]).await;
    let mut launch = cluster.node(1).launch();
    launch.args.push("--no-such-flag".to_owned());
    refused(launch, &["no-such-flag"]).await;
}
