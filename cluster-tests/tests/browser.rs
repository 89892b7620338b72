//! The web page in a real browser against a cluster of three nodes. A Chromium must be installed first:
//! `make browser` does that, and runs this.

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::{Cluster, Options, figure, package_dir};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a browser must be installed: make browser"]
async fn the_page_works_in_a_browser() {
    let cluster = Cluster::start(3, Options::default()).await;
    let node = cluster.node(1);
    let script = package_dir().join("browser").join("run.sh");
    let output = tokio::process::Command::new(script)
        .args([node.http_address(), node.amqp_address()])
        .kill_on_drop(true)
        .output()
        .await
        .expect("run.sh starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    figure("browser", said.lines().last().unwrap_or_default());
}
