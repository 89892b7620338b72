//! The verbs about one node.

use super::*;

#[test]
fn a_node_is_drained_and_revived_and_says_what_is_left_ctl_14() {
    let cluster = start(2);
    let lines =
        ["-n NODE drain --timeout 0.5", "-n NODE -q drain", "-n NODE revive", "-n NODE drain now"];
    expect![[r#""#]].assert_eq(&transcripts(&cluster, &lines));
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
fn a_node_alone_is_not_drained_ctl_14() {
    let cluster = start(1);
    expect![[r#""#]].assert_eq(&transcript(&cluster, "-n NODE drain"));
}

#[test]
fn a_ping_fails_when_the_disk_hangs_ctl_14() {
    let mut cluster = start(1);
    let healthy = transcript(&cluster, "-n NODE ping");
    cluster.worlds[0].hang_disk();
    let hung = transcript(&cluster, "-n NODE -q ping");
    expect![[r#""#]].assert_eq(&format!("{healthy}\n{hung}"));
}
