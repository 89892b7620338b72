//! Verbs that wait, that do nothing, and that are refused; those of other tools.

use super::*;

#[test]
fn verbs_that_wait_end_when_it_is_so_or_in_time_ctl_12() {
    let cluster = start(2);
    let lines = [
        "-n NODE await_online_nodes 2",
        "-n NODE await_online_nodes 3 --timeout 0.9",
        "-n NODE await_online_nodes many",
        "-n NODE await_startup",
        "-n NODE wait",
        "-n NODE wait --pid 1 /tmp/pid",
        "-n NODE wait --pid x",
        "-n NODE wait --pid 4194999",
    ];
    expect![[r#"
        $ -n NODE await_online_nodes 2
        Will wait for at least 2 nodes to join the cluster of ADDRESS1. Timeout: 300 seconds.
        = 0

        $ -n NODE await_online_nodes 3 --timeout 0.9
        Will wait for at least 3 nodes to join the cluster of ADDRESS1. Timeout: 0 seconds.
        ! Error:
        ! Error: timed out while waiting. Not enough nodes joined ADDRESS1's cluster: 2 of 3 nodes run
        = 70

        $ -n NODE await_online_nodes many
        ! Error:
        ! 'many' is no number of nodes above 0
        = 65

        $ -n NODE await_startup
        = 0

        $ -n NODE wait
        ! Error:
        ! No pid or pidfile specified
        = 64

        $ -n NODE wait --pid 1 /tmp/pid
        ! Error:
        ! Cannot specify both pid and pidfile
        = 64

        $ -n NODE wait --pid x
        ! Error:
        ! --pid is no number: x
        = 65

        $ -n NODE wait --pid 4194999
        Waiting for node ADDRESS1 while OS process '4194999' is running
        ! Error:
        ! Error: process is not running.
        = 70
    "#]].assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn a_single_node_waits_for_no_quorum_plus_one_ctl_12() {
    let cluster = start(1);
    let lines = [
        "-n NODE await_online_quorum_plus_one -t 5",
        "-n NODE check_if_cluster_has_classic_queue_mirroring_policy --dry-run",
    ];
    expect![[r#"
        $ -n NODE await_online_quorum_plus_one -t 5
        Will wait for a quorum + 1 of nodes to be online for all quorum queues for 5 seconds...
        Target node seems to be the only one in a single node cluster, the command does not apply
        = 0

        $ -n NODE check_if_cluster_has_classic_queue_mirroring_policy --dry-run
        = 0
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn flags_are_enabled_ctl_12() {
    let cluster = start(1);
    let lines = [
        "-n NODE list_feature_flags",
        "-n NODE -q list_feature_flags name stability --formatter csv",
        "-n NODE list_feature_flags shape",
        "-n NODE enable_feature_flag all",
        "-n NODE enable_feature_flag no_such_flag",
        "-n NODE list_deprecated_features",
    ];
    expect![[r#"
        $ -n NODE list_feature_flags
        Listing feature flags ...
        name	state
        classic_mirrored_queue_version	enabled
        detailed_queues_endpoint	enabled
        direct_exchange_routing_v2	enabled
        drop_unroutable_metric	enabled
        empty_basic_get_metric	enabled
        feature_flags_v2	enabled
        implicit_default_bindings	enabled
        khepri_db	enabled
        listener_records_in_ets	enabled
        maintenance_mode_status	enabled
        message_containers	enabled
        message_containers_deaths_v2	enabled
        quorum_queue	enabled
        rabbit_exchange_type_local_random	enabled
        rabbitmq_4.0.0	enabled
        rabbitmq_4.1.0	enabled
        rabbitmq_4.2.0	enabled
        rabbitmq_4.3.0	enabled
        stream_queue	enabled
        tracking_records_in_ets	enabled
        user_limits	enabled
        virtual_host_metadata	enabled
        = 0

        $ -n NODE -q list_feature_flags name stability --formatter csv
        "name","stability"
        "classic_mirrored_queue_version","stable"
        "detailed_queues_endpoint","stable"
        "direct_exchange_routing_v2","stable"
        "drop_unroutable_metric","stable"
        "empty_basic_get_metric","stable"
        "feature_flags_v2","stable"
        "implicit_default_bindings","stable"
        "khepri_db","stable"
        "listener_records_in_ets","stable"
        "maintenance_mode_status","stable"
        "message_containers","stable"
        "message_containers_deaths_v2","stable"
        "quorum_queue","stable"
        "rabbit_exchange_type_local_random","stable"
        "rabbitmq_4.0.0","stable"
        "rabbitmq_4.1.0","stable"
        "rabbitmq_4.2.0","stable"
        "rabbitmq_4.3.0","stable"
        "stream_queue","stable"
        "tracking_records_in_ets","stable"
        "user_limits","stable"
        "virtual_host_metadata","stable"
        = 0

        $ -n NODE list_feature_flags shape
        ! Error (argument validation): Info key(s) shape are not supported
        = 64

        $ -n NODE enable_feature_flag all
        Enabling all feature flags ...
        = 0

        $ -n NODE enable_feature_flag no_such_flag
        Enabling feature flag "no_such_flag" ...
        ! Error:
        ! This feature flag is not supported by node rabbit1@127.0.0.1
        = 64

        $ -n NODE list_deprecated_features
        Listing deprecated features ...
        = 0
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn what_has_no_meaning_does_nothing_or_is_refused_with_a_hint_ctl_12() {
    let cluster = start(1);
    let lines = [
        "force_boot",
        "-n NODE node_health_check",
        "rotate_logs",
        "change_cluster_node_type disc",
        "change_cluster_node_type ram",
        "-n NODE restart_vhost",
        "eval 1+1.",
        "reset",
        "help remote_shell",
        "-n NODE list_vhosts --erlang-cookie x",
        "-n NODE delete_queue orders --dry-run",
    ];
    expect![[r#"
        $ force_boot
        ! Notice: nothing is done: a node starts without waiting for other ones
        = 0

        $ -n NODE node_health_check
        Checking health of node ADDRESS1 ...
        Health check passed
        = 0

        $ rotate_logs
        ! Notice: nothing is done: nodes log to standard error
        = 0

        $ change_cluster_node_type disc
        Turning 127.0.0.1 into a disc node
        = 0

        $ change_cluster_node_type ram
        ! Error:
        ! The node type must be either disc or ram; every node is a disc node
        = 64

        $ -n NODE restart_vhost
        Trying to restart vhost '/' on node 'ADDRESS1' ...
        Vhost '/' is already running on node 'rabbit1@127.0.0.1'
        = 0

        $ eval 1+1.
        ! 
        ! Command 'eval' is not supported: nodes run no Erlang; settings are flags and variables of the node, and set_vm_memory_high_watermark and set_disk_free_limit raise alarms
        = 64

        $ reset
        ! 
        ! Command 'reset' is not supported: a node leaves the cluster by `forget_cluster_node` and begins anew with an empty data directory
        = 64

        $ help remote_shell
        ! 
        ! Command 'remote_shell' is not supported: nodes run no Erlang
        = 64

        $ -n NODE list_vhosts --erlang-cookie x
        Listing vhosts ...
        name
        /
        ! Notice: --erlang-cookie has no effect: nodes have a cluster secret
        = 0

        $ -n NODE delete_queue orders --dry-run
        = 0
    "#]].assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn a_process_is_stopped_ctl_12() {
    let cluster = start(1);
    let lines = [
        "-n NODE stop",
        "-n NODE stop /no/such/pidfile",
        "-n NODE shutdown --no-wait",
        "-n 127.0.0.1:1 stop --idempotent",
    ];
    expect![[r#"
        $ -n NODE stop
        Stopping and halting node ADDRESS1 ...
        = 0

        $ -n NODE stop /no/such/pidfile
        Stopping and halting node ADDRESS1 (will monitor pid file /no/such/pidfile) ...
        ! Error:
        ! could not read pid from file /no/such/pidfile. Error: No such file or directory (os error 2)
        = 69

        $ -n NODE shutdown --no-wait
        Shutting down RabbitMQ node rabbit1@127.0.0.1 running at PID *
        = 0

        $ -n 127.0.0.1:1 stop --idempotent
        Stopping and halting node 127.0.0.1:1 ...
        Node 127.0.0.1:1 is no longer running
        = 0
    "#]].assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn what_is_built_in_is_an_enabled_plugin_ctl_12() {
    let cluster = start(1);
    let lines = [
        "-n NODE list -e -m",
        "-n NODE list -E prometheus",
        "-n NODE list -s",
        "list --offline management$ --formatter json",
        "-n NODE enable rabbitmq_management",
        "enable --offline rabbitmq_nope",
        "-n NODE disable rabbitmq_management",
        "-n NODE is_enabled rabbitmq_management",
        "-n NODE is_enabled rabbitmq_stomp rabbitmq_mqtt",
        "-n NODE -q directories",
        "enable rabbitmq_prometheus",
        "-n 127.0.0.1:1 enable --online rabbitmq_prometheus",
        "-n NODE status",
    ];
    let all: Vec<String> =
        lines.iter().map(|line| transcript_of("rabbitmq-plugins", &cluster, line)).collect();
    expect![[r#"
        $ -n NODE list -e -m
        Listing plugins with pattern ".*" ...
        rabbitmq_auth_mechanism_ssl
        rabbitmq_consistent_hash_exchange
        rabbitmq_delayed_message_exchange
        rabbitmq_management
        rabbitmq_management_agent
        rabbitmq_prometheus
        rabbitmq_random_exchange
        rabbitmq_sharding
        rabbitmq_web_dispatch
        = 0

        $ -n NODE list -E prometheus
        Listing plugins with pattern "prometheus" ...
         Configured: E = explicitly enabled; e = implicitly enabled
         | Status: * = running on rabbit1@127.0.0.1
         |/
        [E*] rabbitmq_prometheus 4.3.5
        = 0

        $ -n NODE list -s
        [E*] rabbitmq_auth_mechanism_ssl       4.3.5
        [E*] rabbitmq_consistent_hash_exchange 4.3.5
        [E*] rabbitmq_delayed_message_exchange 4.3.5
        [E*] rabbitmq_management               4.3.5
        [e*] rabbitmq_management_agent         4.3.5
        [E*] rabbitmq_prometheus               4.3.5
        [E*] rabbitmq_random_exchange          4.3.5
        [E*] rabbitmq_sharding                 4.3.5
        [e*] rabbitmq_web_dispatch             4.3.5
        = 0

        $ list --offline management$ --formatter json
        {"plugins":[{"enabled":"enabled","name":"rabbitmq_management","running":true,"version":"4.3.5"}],"status":"running"}
        = 0

        $ -n NODE enable rabbitmq_management
        Enabling plugins on node rabbit1@127.0.0.1:
        rabbitmq_management
        The following plugins have been configured:
          rabbitmq_auth_mechanism_ssl
          rabbitmq_consistent_hash_exchange
          rabbitmq_delayed_message_exchange
          rabbitmq_management
          rabbitmq_management_agent
          rabbitmq_prometheus
          rabbitmq_random_exchange
          rabbitmq_sharding
          rabbitmq_web_dispatch
        Applying plugin configuration to rabbit1@127.0.0.1...
        Plugin configuration unchanged.
        = 0

        $ enable --offline rabbitmq_nope
        Enabling plugins on node 127.0.0.1:
        rabbitmq_nope
        ! Error:
        ! The following plugins were not found: rabbitmq_nope
        = 65

        $ -n NODE disable rabbitmq_management
        Disabling plugins on node rabbit1@127.0.0.1:
        rabbitmq_management
        ! Error:
        ! rabbitmq_management: built in, and cannot be disabled; the settings http_listen and http_tls_listen say where HTTP is served
        = 69

        $ -n NODE is_enabled rabbitmq_management
        Asking node rabbit1@127.0.0.1 if plugin rabbitmq_management is enabled...
        Plugin rabbitmq_management is enabled on node rabbit1@127.0.0.1
        = 0

        $ -n NODE is_enabled rabbitmq_stomp rabbitmq_mqtt
        Asking node rabbit1@127.0.0.1 if plugins rabbitmq_stomp, rabbitmq_mqtt are enabled...
        ! Error:
        ! Plugins rabbitmq_stomp, rabbitmq_mqtt are not enabled or not available on node rabbit1@127.0.0.1
        = 69

        $ -n NODE -q directories
        Plugin archives directory: (none: plugins are built in)
        Plugin expansion directory: (none: plugins are built in)
        Enabled plugins file: (none: plugins are built in)
        = 0

        $ enable rabbitmq_prometheus
        Enabling plugins on node 127.0.0.1:
        rabbitmq_prometheus
        The following plugins have been configured:
          rabbitmq_auth_mechanism_ssl
          rabbitmq_consistent_hash_exchange
          rabbitmq_delayed_message_exchange
          rabbitmq_management
          rabbitmq_management_agent
          rabbitmq_prometheus
          rabbitmq_random_exchange
          rabbitmq_sharding
          rabbitmq_web_dispatch
        Applying plugin configuration to 127.0.0.1...
        Plugin configuration unchanged.
        = 0

        $ -n 127.0.0.1:1 enable --online rabbitmq_prometheus
        ! Error: unable to perform an operation on node '127.0.0.1:1'. Please see diagnostics information and suggestions below.
        ! 
        ! Most common reasons for this are:
        ! 
        !  * Target node is unreachable (e.g. due to hostname resolution, TCP connection or firewall issues)
        !  * CLI tool fails to authenticate with the server (e.g. due to its cluster secret not matching that of the server)
        !  * Target node is not running
        ! 
        ! DIAGNOSTICS
        ! ===========
        ! 
        ! attempted to contact: 127.0.0.1:1
        ! cause: Connection refused (os error 111)
        = 69

        $ -n NODE status
        ! 
        ! Command 'status' not found. 
        = 64
    "#]].assert_eq(&all.join("\n"));
}
