//! What is awaited in vain, refused, or wrong.

use super::*;

#[test]
fn a_start_is_awaited_and_a_late_one_reported() {
    let mut cluster = start(1);
    assert_eq!(transcript(&cluster, "-n NODE await_startup"), "$ -n NODE await_startup\n= 0\n");
    cluster.worlds[0].unready();
    expect![[r#"
        $ -n NODE await_startup --timeout 0.2
        ! Error:
        ! no routing lease from the catalog's leader; no leader in group 3, 4
        = 75
    "#]]
    .assert_eq(&transcript(&cluster, "-n NODE await_startup --timeout 0.2"));
}

#[test]
fn another_secret_is_refused_and_an_absent_node_is_69_ctl_12() {
    let cluster = start(1);
    let other = world::secret_file("another secret word");
    let line = format!("--cluster-secret-file {} -n NODE list_queues", other.path().display());
    let refused = transcript(&cluster, &line);
    assert!(refused.contains("! cause: the cluster secret does not match"), "{refused}");
    assert!(refused.ends_with("= 69\n"), "{refused}");
    // No process listens on port 1.
    let absent = transcript(&cluster, "-n 127.0.0.1:1 -q list_queues");
    assert!(absent.contains("! attempted to contact: 127.0.0.1:1"), "{absent}");
    assert!(absent.ends_with("= 69\n"), "{absent}");
    let nowhere = transcript(&cluster, "-n no.such.host.invalid -q status");
    assert!(nowhere.ends_with("= 68\n"), "{nowhere}");
}

#[test]
fn what_the_command_line_gets_wrong_is_64() {
    let cluster = start(1);
    for line in ["frobnicate", "", "list_queues --frob", "purge_queue", "help frobnicate"] {
        let text = transcript(&cluster, line);
        assert!(text.ends_with("= 64\n"), "{text}");
    }
    assert!(transcript(&cluster, "help list_queues").ends_with("= 0\n"));
    assert!(transcript(&cluster, "--help").ends_with("= 0\n"));
    assert_eq!(version(None), "4.3.5");
    assert_eq!(version(Some("quorate".to_owned())), env!("CARGO_PKG_VERSION"));
}
