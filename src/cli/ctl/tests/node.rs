//! The verbs about one node.

use super::*;

#[test]
fn a_node_is_drained_and_revived_and_says_what_is_left_ctl_16() {
    let cluster = start(2);
    let lines =
        ["-n NODE drain --timeout 0.5", "-n NODE -q drain", "-n NODE revive", "-n NODE drain now"];
    expect![[r#"
        $ -n NODE drain --timeout 0.5
        Will put node ADDRESS1 into maintenance mode. The node will no longer serve any client traffic!
        ! Error:
        ! the node is drained, but not done in time: it still leads group 0, 1; it still has 3 client connections
        = 75

        $ -n NODE -q drain
        = 0

        $ -n NODE revive
        Will put node ADDRESS1 back into regular operating mode. The node will again serve client traffic and host primary queue replicas.
        = 0

        $ -n NODE drain now
        ! Error (argument validation): too many arguments.
        ! Arguments given:
        ! 	-n ADDRESS1 drain now
        ! 
        ! Usage
        ! 
        ! rabbitmqctl [--node <node>] [--longnames] [--quiet] drain [--timeout <timeout>]
        = 64
    "#]].assert_eq(&transcripts(&cluster, &lines));
    transcript(&cluster, "-n NODE drain");
    let status = transcript(&cluster, "-n NODE cluster_status");
    assert!(
        status.contains("Node: rabbit1@127.0.0.1, status: marked for maintenance\n"),
        "{status}"
    );
    assert!(
        status.contains("Node: rabbit2@127.0.0.1, status: not under maintenance\n"),
        "{status}"
    );
    assert!(
        status.contains("Node: rabbit1@127.0.0.1, not ready: the node is drained\n"),
        "{status}"
    );
    let json = transcript(&cluster, "-n NODE cluster_status --formatter json");
    let json: serde_json::Value = serde_json::from_str(json.lines().nth(1).unwrap()).unwrap();
    let expected = serde_json::json!({
        "rabbit1@127.0.0.1": "marked for maintenance",
        "rabbit2@127.0.0.1": "not under maintenance",
    });
    assert_eq!(json["maintenance_status"], expected);
}

#[test]
fn a_node_alone_is_not_drained_ctl_16() {
    let cluster = start(1);
    expect![[r#"
        $ -n NODE drain
        Will put node ADDRESS1 into maintenance mode. The node will no longer serve any client traffic!
        ! Error:
        ! the cluster has one node, so no other one can take its leaderships and clients
        = 69
    "#]].assert_eq(&transcript(&cluster, "-n NODE drain"));
}

#[test]
fn a_ping_fails_when_the_disk_hangs_ctl_16() {
    let mut cluster = start(1);
    let healthy = transcript(&cluster, "-n NODE ping");
    cluster.worlds[0].hang_disk();
    let hung = transcript(&cluster, "-n NODE -q ping");
    expect![[r#"
        $ -n NODE ping
        Will ping ADDRESS1. Timeout: 60000 ms.
        Ping succeeded
        = 0

        $ -n NODE -q ping
        ! Error:
        ! a disk sync has not finished for 75 s
        = 69
    "#]]
    .assert_eq(&format!("{healthy}\n{hung}"));
}
