//! Clients and tools that nobody here wrote, and the commands of the documentation, each running against
//! a cluster of three nodes. They must be installed first: `make interop` does that, and runs these.

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::{Cluster, Node, Options, binary, figure, package_dir};
use tokio::process::Command;

async fn runs_through(client: &str) {
    let cluster = Cluster::start(3, Options::default()).await;
    let http: Vec<String> = cluster.nodes().iter().map(Node::http_address).collect();
    let mut command = run_sh();
    command.args(["--http", &http.join(","), "--only", client]);
    command.args(cluster.nodes().iter().map(Node::amqp_address));
    succeeds(client, command).await;
}

fn run_sh() -> Command {
    Command::new(package_dir().join("interop").join("run.sh"))
}

/// Runs it; its last line is the figure.
async fn succeeds(name: &str, mut command: Command) {
    let output = command.kill_on_drop(true).output().await.expect("run.sh starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{said}\n{errors}", output.status);
    figure(name, said.lines().last().unwrap_or_default());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the client must be installed: make interop"]
async fn pika() {
    runs_through("pika").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the client must be installed: make interop"]
async fn aio_pika() {
    runs_through("aio_pika").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the client must be installed: make interop"]
async fn amqplib() {
    runs_through("amqplib").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the client must be installed: make interop"]
async fn amqp091() {
    runs_through("amqp091").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the client must be installed: make interop"]
async fn celery() {
    runs_through("celery").await;
}

/// KEDA, Flower, probes, Terraform, rabbitmqadmin version 1: what they ask of the HTTP API.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the tool must be installed: make interop"]
async fn management() {
    runs_through("management").await;
}

/// Prometheus, and what the chart's dashboard and those of RabbitMQ ask it for.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the tool must be installed: make interop"]
async fn dashboard() {
    runs_through("dashboard").await;
}

/// The tests of `rabbitmq_http_client`, as its crate has them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the tool must be installed: make interop"]
async fn http_client() {
    runs_through("http_client").await;
}

/// The tests of rabbitmqadmin version 2, as its crate has them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the tool must be installed: make interop"]
async fn rabbitmqadmin() {
    runs_through("rabbitmqadmin").await;
}

/// The commands and programs of README and of the pages below docs. Each page has a cluster of its own.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "pika must be installed: make interop"]
async fn docs() {
    let mut command = run_sh();
    command.arg("docs").arg(binary());
    succeeds("docs", command).await;
}
