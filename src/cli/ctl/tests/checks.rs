//! The health checks: what they say, and their exit codes.

use super::*;

#[test]
fn checks_say_what_is_well_ctl_12() {
    let cluster = start(1);
    let lines = [
        "-n NODE check_running",
        "-n NODE is_running",
        "-n NODE is_booting",
        "-n NODE check_local_alarms",
        "-n NODE check_alarms",
        "-n NODE alarms",
        "-n NODE check_virtual_hosts",
        "-n NODE check_if_node_is_quorum_critical",
        "-n NODE check_if_new_quorum_queue_replicas_have_finished_initial_sync",
        "-n NODE check_certificate_expiration --unit weeks --within 4",
        "-n NODE maybe_stuck",
        "-n NODE -q check_running",
        "-n NODE -s check_running --formatter json",
    ];
    expect![[r#"
        $ -n NODE check_running
        Checking if RabbitMQ is running on node rabbit1@127.0.0.1 ...
        RabbitMQ on node rabbit1@127.0.0.1 is fully booted and running
        = 0

        $ -n NODE is_running
        Asking node rabbit1@127.0.0.1 for its status ...
        RabbitMQ on node rabbit1@127.0.0.1 is fully booted and running
        = 0

        $ -n NODE is_booting
        Asking node rabbit1@127.0.0.1 for its boot status ...
        RabbitMQ on node rabbit1@127.0.0.1 is fully booted (check with is_running), stopped or has not started booting yet
        = 0

        $ -n NODE check_local_alarms
        Asking node rabbit1@127.0.0.1 to report any local resource alarms ...
        Node rabbit1@127.0.0.1 reported no local alarms
        = 0

        $ -n NODE check_alarms
        Asking node rabbit1@127.0.0.1 to report any local resource alarms ...
        Node rabbit1@127.0.0.1 reported no alarms, local or clusterwide
        = 0

        $ -n NODE alarms
        Asking node rabbit1@127.0.0.1 to report any known resource alarms ...
        Node rabbit1@127.0.0.1 reported no alarms, local or clusterwide
        = 0

        $ -n NODE check_virtual_hosts
        Checking if all vhosts are running on node rabbit1@127.0.0.1 ...
        Node rabbit1@127.0.0.1 reported all vhosts as running
        = 0

        $ -n NODE check_if_node_is_quorum_critical
        Checking if node rabbit1@127.0.0.1 is critical for quorum of any quorum queues ...
        Node rabbit1@127.0.0.1 seems to be the only one in a single node cluster, the check does not apply
        = 0

        $ -n NODE check_if_new_quorum_queue_replicas_have_finished_initial_sync
        Checking if node rabbit1@127.0.0.1 runs promotable replicas of any queues ...
        Node rabbit1@127.0.0.1 reported no queues with promotable replicas
        = 0

        $ -n NODE check_certificate_expiration --unit weeks --within 4
        Checking certificate expiration on node rabbit1@127.0.0.1 ...
        No certificates are expiring within 4 weeks.
        = 0

        $ -n NODE maybe_stuck
        Asking node rabbit1@127.0.0.1 to detect potentially stuck threads ...
        Found 0 suspicious threads.
        = 0

        $ -n NODE -q check_running
        RabbitMQ on node rabbit1@127.0.0.1 is fully booted and running
        = 0

        $ -n NODE -s check_running --formatter json
        {"message":"RabbitMQ on node rabbit1@127.0.0.1 is fully booted and running","result":true}
        = 0
    "#]].assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn alarms_of_another_node_are_reported_alm_01() {
    let cluster = start(2);
    let lines = [
        "-n NODE check_local_alarms",
        "-n NODE check_alarms",
        "-n NODE alarms",
        "-n NODE -q check_alarms --formatter json",
        "-n NODE -s check_alarms",
    ];
    expect![[r#"
        $ -n NODE check_local_alarms
        Asking node rabbit1@127.0.0.1 to report any local resource alarms ...
        Node rabbit1@127.0.0.1 reported no local alarms
        = 0

        $ -n NODE check_alarms
        Asking node rabbit1@127.0.0.1 to report any local resource alarms ...
        ! Free disk space alarm on node rabbit2@127.0.0.1
        = 69

        $ -n NODE alarms
        Asking node rabbit1@127.0.0.1 to report any known resource alarms ...
        Free disk space alarm on node rabbit2@127.0.0.1
        = 0

        $ -n NODE -q check_alarms --formatter json
        ! {"global":["Free disk space alarm on node rabbit2@127.0.0.1"],"local":[],"message":"Node rabbit1@127.0.0.1 reported alarms","result":"error"}
        = 69

        $ -n NODE -s check_alarms
        = 69
    "#]].assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn listeners_are_found_by_port_and_protocol_ctl_12() {
    let cluster = start(1);
    let lines = [
        "-n NODE listeners",
        "-n NODE -s listeners",
        "-n NODE check_port_listener 5672",
        "-n NODE check_port_listener 1",
        "-n NODE check_port_listener amqp",
        "-n NODE check_port_listener",
        "-n NODE check_protocol_listener amqp091",
        "-n NODE check_protocol_listener mqtt",
        "-n NODE -q check_port_listener 1 --formatter json",
    ];
    expect![[r#"
        $ -n NODE listeners
        Asking node rabbit1@127.0.0.1 to report its protocol listeners ...
        Interface: 127.0.0.1, port: 5672, protocol: amqp, purpose: AMQP 0-9-1
        = 0

        $ -n NODE -s listeners
        Interface: 127.0.0.1, port: 5672, protocol: amqp, purpose: AMQP 0-9-1
        = 0

        $ -n NODE check_port_listener 5672
        Asking node rabbit1@127.0.0.1 if there's an active listener on port 5672 ...
        A listener for port 5672 is running on node rabbit1@127.0.0.1.
        = 0

        $ -n NODE check_port_listener 1
        Asking node rabbit1@127.0.0.1 if there's an active listener on port 1 ...
        ! No listener for port 1 is active on node rabbit1@127.0.0.1. Found listeners that use the following ports: 5672
        = 69

        $ -n NODE check_port_listener amqp
        Asking node rabbit1@127.0.0.1 if there's an active listener on port amqp ...
        ! Error:
        ! 'amqp' is no port: it must be from 1 to 65535
        = 65

        $ -n NODE check_port_listener
        ! Error (argument validation): not enough arguments.
        ! Arguments given:
        ! 	-n ADDRESS1 check_port_listener
        ! 
        ! Usage
        ! 
        ! rabbitmqctl [--node <node>] [--longnames] [--quiet] check_port_listener <port>
        = 64

        $ -n NODE check_protocol_listener amqp091
        Asking node rabbit1@127.0.0.1 if there's an active listener for protocol amqp091 ...
        A listener for protocol amqp is running on node rabbit1@127.0.0.1.
        = 0

        $ -n NODE check_protocol_listener mqtt
        Asking node rabbit1@127.0.0.1 if there's an active listener for protocol mqtt ...
        ! Error:
        ! No listener for protocol mqtt is active on node rabbit1@127.0.0.1. Found listeners for the following protocols: amqp
        = 69

        $ -n NODE -q check_port_listener 1 --formatter json
        ! {"listeners":[{"interface":"127.0.0.1","node":"rabbit1@127.0.0.1","port":5672,"protocol":"amqp","purpose":"AMQP 0-9-1"}],"missing":1,"ports":[5672],"result":"error"}
        = 69
    "#]].assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn what_is_wrong_fails_with_69_ctl_12() {
    let mut cluster = start(2);
    cluster.worlds[0].hang_disk();
    let lines = [
        "-n NODE maybe_stuck",
        "-n NODE has_reached_target_cluster_size",
        "-n OTHER certificates",
        "-n OTHER -q check_certificate_expiration",
        "-n NODE check_certificate_expiration --unit fortnights",
        "-n NODE check_certificate_expiration --within soon",
    ];
    expect![[r#"
        $ -n NODE maybe_stuck
        Asking node rabbit1@127.0.0.1 to detect potentially stuck threads ...
        ! a disk sync has not finished for 75 s
        = 69

        $ -n NODE has_reached_target_cluster_size
        Checking if target cluster size has been reached on node rabbit1@127.0.0.1 ...
        ! Error:
        ! Target cluster size on node rabbit1@127.0.0.1 has not been reached: 2 of 3 nodes are online
        = 69

        $ -n ADDRESS2 certificates
        Certificates of node rabbit2@127.0.0.1 ...
        setting tls_certificate_file: /node.pem: subject CN=node, issuer CN=ca, valid from 1970-01-01 until 1970-01-02
        = 0

        $ -n ADDRESS2 -q check_certificate_expiration
        ! setting tls_certificate_file: /node.pem: subject CN=node, issuer CN=ca, valid from 1970-01-01 until 1970-01-02
        = 69

        $ -n NODE check_certificate_expiration --unit fortnights
        ! Error:
        ! unit 'fortnights' is not supported. Please use one of: days, weeks, months, years
        = 65

        $ -n NODE check_certificate_expiration --within soon
        ! Error:
        ! --within is not a number
        = 65
    "#]].assert_eq(&transcripts(&cluster, &lines));
}
