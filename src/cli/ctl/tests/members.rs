//! The verbs of membership (CTL-17).

use super::*;

#[test]
fn a_node_is_forgotten_by_another_one_when_it_is_stopped_or_drained_ctl_17() {
    let cluster = start(3);
    let lines = [
        "-n NODE forget_cluster_node rabbit2@127.0.0.1",
        "-n NODE -q forget_cluster_node 1 --drain",
        "-n NODE -q forget_cluster_node 7",
        "-n NODE -q forget_cluster_node rabbit7@nowhere --wait 5",
        "-n NODE -q forget_cluster_node 2 --wait 0",
        "-n NODE -q forget_cluster_node 2 --wait soon",
        "-n NODE -q forget_cluster_node 2 --offline",
        "-n NODE forget_cluster_node rabbit2@127.0.0.1 --drain --wait 30",
        "-n NODE -q forget_cluster_node 2 --wait 30",
    ];
    expect![[r#"
        $ -n NODE forget_cluster_node rabbit2@127.0.0.1
        Removing node rabbit2@127.0.0.1 from the cluster
        ! Error:
        ! node 2 is running: stop it first, or drain it and forget it as it runs, which is done by the option --drain
        = 69

        $ -n NODE -q forget_cluster_node 1 --drain
        ! Error:
        ! node 1 cannot forget itself: ask another node
        = 69

        $ -n NODE -q forget_cluster_node 7
        ! The node selected is not in the cluster: there is no node 7
        = 65

        $ -n NODE -q forget_cluster_node rabbit7@nowhere --wait 5
        ! Error:
        ! The node selected is not in the cluster: 'rabbit7@nowhere'
        = 65

        $ -n NODE -q forget_cluster_node 2 --wait 0
        ! Error:
        ! not done in time: node 2 is running: stop it first, or drain it and forget it as it runs, which is done by the option --drain
        = 75

        $ -n NODE -q forget_cluster_node 2 --wait soon
        ! Error (argument validation): --wait is no number of seconds: soon
        ! Arguments given:
        ! 	-n ADDRESS1 -q forget_cluster_node 2 --wait soon
        ! 
        ! Usage
        ! 
        ! rabbitmqctl [--node <node>] [--longnames] [--quiet] forget_cluster_node <existing_cluster_member_node> [--drain] [--wait <seconds>] [--timeout <timeout>]
        = 64

        $ -n NODE -q forget_cluster_node 2 --offline
        ! Error (argument validation): Invalid options for this command:
        ! --offline : true
        ! Arguments given:
        ! 	-n ADDRESS1 -q forget_cluster_node 2 --offline
        ! 
        ! Usage
        ! 
        ! rabbitmqctl [--node <node>] [--longnames] [--quiet] forget_cluster_node <existing_cluster_member_node> [--drain] [--wait <seconds>] [--timeout <timeout>]
        = 64

        $ -n NODE forget_cluster_node rabbit2@127.0.0.1 --drain --wait 30
        Removing node rabbit2@127.0.0.1 from the cluster
        = 0

        $ -n NODE -q forget_cluster_node 2 --wait 30
        = 0
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn a_node_is_replaced_by_name_ctl_17() {
    let cluster = start(2);
    let lines = [
        "-n NODE replace_cluster_node rabbit2@127.0.0.1",
        "-n NODE -q replace_cluster_node 7",
        "-n NODE -q replace_cluster_node",
    ];
    expect![[r#"
        $ -n NODE replace_cluster_node rabbit2@127.0.0.1
        Replacing the data directory of node rabbit2@127.0.0.1
        = 0

        $ -n NODE -q replace_cluster_node 7
        ! Error:
        ! node 7 is not a member of the cluster
        = 69

        $ -n NODE -q replace_cluster_node
        ! Error (argument validation): not enough arguments.
        ! Arguments given:
        ! 	-n ADDRESS1 -q replace_cluster_node
        ! 
        ! Usage
        ! 
        ! rabbitmqctl [--node <node>] [--longnames] [--quiet] replace_cluster_node <existing_cluster_member_node> [--timeout <timeout>]
        = 64
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn join_cluster_says_whether_a_node_is_a_member_ctl_17() {
    let cluster = start(2);
    let lines = [
        "-n NODE join_cluster",
        "-n NODE join_cluster rabbit2@127.0.0.1",
        "-n NODE -q join_cluster 127.0.0.1:1",
    ];
    let said = transcripts(&cluster, &lines);
    let (joined, absent) = said.split_at(said.find("$ -n NODE -q join").unwrap());
    expect![[r#"
        $ -n NODE join_cluster
        Clustering node ADDRESS1
        Node rabbit1@127.0.0.1 is a member of the cluster
        = 0

        $ -n NODE join_cluster rabbit2@127.0.0.1
        Clustering node ADDRESS1 with rabbit2@127.0.0.1
        Node rabbit1@127.0.0.1 is a member of the cluster
        = 0

    "#]]
    .assert_eq(joined);
    assert!(absent.contains("! attempted to contact: 127.0.0.1:1"), "{absent}");
    assert!(absent.ends_with("= 69\n"), "{absent}");
}

#[test]
fn leaders_are_rebalanced_and_what_stays_is_named_ctl_17() {
    let mut cluster = start(2);
    let lines = [
        "-n NODE rebalance quorum",
        "-n NODE -q rebalance all --formatter json",
        "-n NODE -q rebalance stream",
    ];
    expect![[r#"
        $ -n NODE rebalance quorum
        Re-balancing leaders of quorum queues...
        ┌───────────────────┬─────────────────────────┬─────────────────────────────────────┐
        │ Node name         │ Number of quorum queues │ Number of replicated classic queues │
        ├───────────────────┼─────────────────────────┼─────────────────────────────────────┤
        │ rabbit1@127.0.0.1 │ 1                       │ 0                                   │
        ├───────────────────┼─────────────────────────┼─────────────────────────────────────┤
        │ rabbit2@127.0.0.1 │ 1                       │ 0                                   │
        └───────────────────┴─────────────────────────┴─────────────────────────────────────┘
        = 0

        $ -n NODE -q rebalance all --formatter json
        [
        {"Node name":"rabbit1@127.0.0.1","Number of quorum queues":1,"Number of replicated classic queues":0}
        ,{"Node name":"rabbit2@127.0.0.1","Number of quorum queues":1,"Number of replicated classic queues":0}
        ]
        = 0

        $ -n NODE -q rebalance stream
        ┌───────────────────┬─────────────────────────┬─────────────────────────────────────┐
        │ Node name         │ Number of quorum queues │ Number of replicated classic queues │
        ├───────────────────┼─────────────────────────┼─────────────────────────────────────┤
        │ rabbit1@127.0.0.1 │ 1                       │ 0                                   │
        ├───────────────────┼─────────────────────────┼─────────────────────────────────────┤
        │ rabbit2@127.0.0.1 │ 1                       │ 0                                   │
        └───────────────────┴─────────────────────────┴─────────────────────────────────────┘
        = 0
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
    cluster.worlds[1].unready();
    let kept = transcript(&cluster, "-n NODE -q rebalance quorum");
    let why = "! group 2 stays on rabbit2@127.0.0.1, and not on rabbit1@127.0.0.1: \
               the other node does not take leaderships now\n= 69\n";
    assert!(kept.ends_with(why), "{kept}");
}

#[test]
fn a_node_that_groups_need_is_not_drained_to_be_forgotten_ctl_17() {
    let cluster = start(2);
    expect![[r#"
        $ -n NODE -q forget_cluster_node 2 --drain
        ! Error:
        ! node 2 cannot be forgotten: group 0 has no majority without it
        = 69
    "#]]
    .assert_eq(&transcript(&cluster, "-n NODE -q forget_cluster_node 2 --drain"));
    let status = transcript(&cluster, "-n OTHER status");
    assert!(status.contains("Is under maintenance?: false"), "{status}");
}

#[test]
fn a_node_that_groups_need_is_critical_ctl_17() {
    expect![[r#"
        $ -n NODE check_if_node_is_quorum_critical
        Checking if node rabbit1@127.0.0.1 is critical for quorum of any quorum queues ...
        Node rabbit1@127.0.0.1 seems to be the only one in a single node cluster, the check does not apply
        = 0
    "#]]
    .assert_eq(&transcript(&start(1), "-n NODE check_if_node_is_quorum_critical"));
    expect![[r#"
        $ -n NODE -q check_if_node_is_quorum_critical
        ! Error:
        ! Node rabbit1@127.0.0.1 reported components which would lose quorum if this node is shut down:
        ! group 0
        ! group 1
        ! group 2
        = 69
    "#]]
    .assert_eq(&transcript(&start(2), "-n NODE -q check_if_node_is_quorum_critical"));
    expect![[r#"
        $ -n NODE -q check_if_node_is_quorum_critical
        Node rabbit1@127.0.0.1 reported no quorum queues with minimum quorum
        = 0
    "#]]
    .assert_eq(&transcript(&start(3), "-n NODE -q check_if_node_is_quorum_critical"));
}
