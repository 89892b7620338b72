//! The verbs about replicas and the catalog.

use super::*;

#[test]
fn the_replicas_of_a_queue_are_shown_ctl_12() {
    let cluster = start(2);
    let lines = [
        "-n NODE quorum_status orders",
        "-n NODE quorum_status orders --formatter json",
        "-n NODE quorum_status nothing",
        "-n NODE -q metadata_store_status --formatter table",
    ];
    expect![[r#"
        $ -n NODE quorum_status orders
        Status of quorum queue orders on node rabbit1@127.0.0.1 ...
        ┌───────────────────┬────────────┬────────────┬────────────────┬──────────────┬──────────────┬──────────────┬────────────────┬──────┬─────────────────┐
        │ Node Name         │ Raft State │ Membership │ Last Log Index │ Last Written │ Last Applied │ Commit Index │ Snapshot Index │ Term │ Machine Version │
        ├───────────────────┼────────────┼────────────┼────────────────┼──────────────┼──────────────┼──────────────┼────────────────┼──────┼─────────────────┤
        │ rabbit1@127.0.0.1 │ leader     │ voter      │ 20             │ 20           │ 19           │ 19           │ 5              │ 2    │ 4               │
        ├───────────────────┼────────────┼────────────┼────────────────┼──────────────┼──────────────┼──────────────┼────────────────┼──────┼─────────────────┤
        │ rabbit2@127.0.0.1 │ follower   │ voter      │ 20             │ 20           │ 19           │ 19           │ 5              │ 2    │ 4               │
        └───────────────────┴────────────┴────────────┴────────────────┴──────────────┴──────────────┴──────────────┴────────────────┴──────┴─────────────────┘
        = 0

        $ -n NODE quorum_status orders --formatter json
        [
        {"Node Name":"rabbit1@127.0.0.1","Raft State":"leader","Membership":"voter","Last Log Index":20,"Last Written":20,"Last Applied":19,"Commit Index":19,"Snapshot Index":5,"Term":2,"Machine Version":4}
        ,{"Node Name":"rabbit2@127.0.0.1","Raft State":"follower","Membership":"voter","Last Log Index":20,"Last Written":20,"Last Applied":19,"Commit Index":19,"Snapshot Index":5,"Term":2,"Machine Version":4}
        ]
        = 0

        $ -n NODE quorum_status nothing
        Status of quorum queue nothing on node rabbit1@127.0.0.1 ...
        ! Error:
        ! Object of type queue with name nothing was not found in virtual host '/'
        = 65

        $ -n NODE -q metadata_store_status --formatter table
        Node Name	Raft State	Membership	Last Log Index	Last Written	Last Applied	Commit Index	Snapshot Index	Term	Machine Version
        rabbit1@127.0.0.1	leader	voter	20	20	19	19	5	2	4
        rabbit2@127.0.0.1	follower	voter	20	20	19	19	5	2	4
        = 0
    "#]].assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn replicas_are_placed_by_the_cluster_mem_06() {
    let cluster = start(2);
    let lines = [
        "-n NODE add_member orders rabbit2@127.0.0.1",
        "-n NODE add_member orders rabbit@nope",
        "-n NODE add_member orders 1 --membership king",
        "-n NODE delete_member orders rabbit@nope",
        "-n NODE delete_member orders rabbit2@127.0.0.1",
        "-n NODE grow rabbit2@127.0.0.1 all",
        "-n NODE grow rabbit@nope all",
        "-n NODE grow rabbit2@127.0.0.1 odd",
        "-n NODE grow_to_count 2 all",
        "-n NODE grow_to_count 3 all --queue-pattern ^o",
        "-n NODE grow_to_count 0 all",
        "-n NODE shrink rabbit@nope",
        "-n NODE -q shrink rabbit2@127.0.0.1 --formatter json",
    ];
    expect![[r#"
        $ -n NODE add_member orders rabbit2@127.0.0.1
        Adding a replica for queue orders on node rabbit2@127.0.0.1...
        = 0

        $ -n NODE add_member orders rabbit@nope
        Adding a replica for queue orders on node rabbit@nope...
        ! Error:
        ! node_not_running
        = 69

        $ -n NODE add_member orders 1 --membership king
        ! Error:
        ! voter status 'king' is not recognised.
        = 64

        $ -n NODE delete_member orders rabbit@nope
        Removing a replica of queue orders on node rabbit@nope...
        = 0

        $ -n NODE delete_member orders rabbit2@127.0.0.1
        Removing a replica of queue orders on node rabbit2@127.0.0.1...
        ! Error:
        ! the cluster places the replicas of queues by itself, by the setting queue_replicas and the nodes that are members; `forget_cluster_node rabbit2@127.0.0.1` takes all replicas off the node
        = 69

        $ -n NODE grow rabbit2@127.0.0.1 all
        Growing all quorum queues on rabbit2@127.0.0.1...

        = 0

        $ -n NODE grow rabbit@nope all
        Growing all quorum queues on rabbit@nope...
        ! Error:
        ! node_not_running
        = 69

        $ -n NODE grow rabbit2@127.0.0.1 odd
        ! Error:
        ! strategy 'odd' is not recognised.
        = 64

        $ -n NODE grow_to_count 2 all
        Growing all quorum queues on 2 nodes...

        = 0

        $ -n NODE grow_to_count 3 all --queue-pattern ^o
        Growing all quorum queues on 3 nodes...
        vhost	name	size	result
        /	orders	2	error: the cluster places the replicas of queues by itself, by the setting queue_replicas and the nodes that are members
        ! Error:
        ! the cluster places the replicas of queues by itself, by the setting queue_replicas and the nodes that are members
        = 69

        $ -n NODE grow_to_count 0 all
        ! Error:
        ! node count '0' must be greater than 0.
        = 64

        $ -n NODE shrink rabbit@nope
        Shrinking quorum queues on rabbit@nope...

        = 0

        $ -n NODE -q shrink rabbit2@127.0.0.1 --formatter json
        [
        {"vhost":"/","name":"billing","size":2,"result":"error: the cluster places the replicas of queues by itself, by the setting queue_replicas and the nodes that are members; `forget_cluster_node` takes them off a node"}
        ,{"vhost":"/","name":"lost","size":2,"result":"error: the cluster places the replicas of queues by itself, by the setting queue_replicas and the nodes that are members; `forget_cluster_node` takes them off a node"}
        ,{"vhost":"/","name":"orders","size":2,"result":"error: the cluster places the replicas of queues by itself, by the setting queue_replicas and the nodes that are members; `forget_cluster_node` takes them off a node"}
        ]
        ! Error:
        ! the cluster places the replicas of queues by itself, by the setting queue_replicas and the nodes that are members
        = 69
    "#]].assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn leaders_are_spread_by_the_cluster_ctl_17() {
    let cluster = start(2);
    let lines = [
        "-n NODE transfer_leadership orders rabbit1@127.0.0.1",
        "-n NODE transfer_leadership orders rabbit2@127.0.0.1",
        "-n NODE reclaim_quorum_memory orders",
        "-n NODE reclaim_quorum_memory nothing",
        "-n NODE force_checkpoint --queue-pattern ^o",
        "-n NODE force_checkpoint --queue-pattern (",
        "-n NODE post_upgrade",
    ];
    expect![[r#"
        $ -n NODE transfer_leadership orders rabbit1@127.0.0.1
        Transferring leadership of quorum queue orders to node rabbit1@127.0.0.1...
        rabbit1@127.0.0.1
        = 0

        $ -n NODE transfer_leadership orders rabbit2@127.0.0.1
        Transferring leadership of quorum queue orders to node rabbit2@127.0.0.1...
        ! Error:
        ! leaders of queues are spread over the nodes by the cluster itself: `rebalance` does that at once, and `drain` moves all leaderships off a node; queue 'orders' stays where it is
        = 69

        $ -n NODE reclaim_quorum_memory orders
        Will garbage collect quorum queue orders ...
        ! Notice: nothing is done: a queue has no process whose memory could be reclaimed
        = 0

        $ -n NODE reclaim_quorum_memory nothing
        Will garbage collect quorum queue nothing ...
        ! Error:
        ! Object of type queue with name nothing was not found in virtual host '/'
        = 65

        $ -n NODE force_checkpoint --queue-pattern ^o
        Forcing checkpoint for all matching quorum queues...
        ! Notice: nothing is done: the node writes checkpoints by itself all the time
        = 0

        $ -n NODE force_checkpoint --queue-pattern (
        Forcing checkpoint for all matching quorum queues...
        ! Error:
        ! --queue-pattern: invalid regular expression '(': missing ) at 1
        = 65

        $ -n NODE post_upgrade
        Executing post upgrade tasks...
        Rebalancing queue masters...
        = 0
    "#]].assert_eq(&transcripts(&cluster, &lines));
}
