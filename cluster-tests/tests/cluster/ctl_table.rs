//! Every verb of RabbitMQ's tools that operators and scripts use daily, against a real cluster: its exit
//! code, and a line that they look for (CTL-12).

#![expect(clippy::expect_used, reason = "tests")]

use quorate_cluster_tests::harness::amqp::publish_confirmed;
use quorate_cluster_tests::harness::amqp::{declare_quorum, open_confirming};
use quorate_cluster_tests::harness::ctl;
use quorate_cluster_tests::harness::{Cluster, Options};

const CTL: &str = "rabbitmqctl";
const DIAGNOSTICS: &str = "rabbitmq-diagnostics";
const QUEUES: &str = "rabbitmq-queues";
const UPGRADE: &str = "rabbitmq-upgrade";
const PLUGINS: &str = "rabbitmq-plugins";

/// A tool, its words, the exit code, and a part of what it says.
type Row = (&'static str, &'static str, i32, &'static str);

/// Runs the rows in their order against node 1. `AMQP` stands for the port of its clients.
async fn run(cluster: &Cluster, rows: &[Row]) {
    let node = cluster.node(1).rpc_address();
    let port = cluster.node(1).amqp_address();
    let port = port.rsplit_once(':').map_or("", |(_, port)| port);
    for (tool, words, code, part) in rows {
        let words: Vec<String> = words.split(' ').map(|word| word.replace("AMQP", port)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = ctl::run_tool(tool, cluster.binary(), &node, cluster.secret(), &words).await;
        assert_eq!(output.code, *code, "{tool} {words:?}: {output:?}");
        let said = format!("{}{}", output.stdout, output.stderr);
        assert!(said.contains(part), "{tool} {words:?} lacks {part:?}: {output:?}");
    }
}

async fn with_a_queue(nodes: u64) -> Cluster {
    let cluster = Cluster::start(nodes, Options::default()).await;
    cluster.leaders_rest().await;
    let (_connection, channel) = open_confirming(&cluster.amqp_uri(1)).await;
    declare_quorum(&channel, "orders").await;
    publish_confirmed(&channel, "orders", b"body").await;
    cluster
}

#[expect(clippy::too_many_lines, reason = "one step after the other, on one cluster")]
#[tokio::test(flavor = "multi_thread")]
async fn ctl_12_verbs_about_nodes_and_the_cluster_work_as_rabbitmqs() {
    let cluster = with_a_queue(3).await;
    let rows: &[Row] = &[
        (CTL, "status", 0, "Totals"),
        (CTL, "status --formatter json", 0, "\"virtual_host_count\""),
        (CTL, "set_cluster_name c1", 0, "Setting cluster name to c1 ..."),
        (CTL, "cluster_status", 0, "Cluster name: c1"),
        (CTL, "cluster_status --formatter json", 0, "\"feature_flags\""),
        (CTL, "await_startup", 0, ""),
        (CTL, "await_online_nodes 3", 0, "Will wait for at least 3 nodes"),
        (CTL, "await_online_nodes 4 -t 1", 70, "3 of 4 nodes run"),
        (CTL, "join_cluster", 0, "is a member of the cluster"),
        (CTL, "change_cluster_node_type disc", 0, ""),
        (CTL, "force_boot", 0, ""),
        (CTL, "force_reset", 64, "is not supported"),
        (CTL, "reset", 64, "is not supported"),
        (CTL, "list_feature_flags", 0, "quorum_queue\tenabled"),
        (CTL, "enable_feature_flag all", 0, ""),
        (CTL, "list_deprecated_features", 0, ""),
        (CTL, "set_log_level debug", 0, "Setting log level to \"debug\" ..."),
        (CTL, "set_log_level info", 0, ""),
        (CTL, "rotate_logs", 0, ""),
        (CTL, "set_vm_memory_high_watermark 0.9", 0, ""),
        (CTL, "set_disk_free_limit 1kB", 0, ""),
        (CTL, "environment", 0, "node_id = \"1\""),
        (CTL, "report", 0, "Listing queues for vhost / ..."),
        (CTL, "version", 0, "4."),
        (CTL, "help", 0, "Available commands"),
        (CTL, "eval 1.", 64, "is not supported"),
        (CTL, "encode x", 64, "is not supported"),
        (CTL, "node_health_check", 0, "Health check passed"),
        (CTL, "nosuchcmd", 64, "Command 'nosuchcmd' not found."),
        (CTL, "wait /no/such/file -t 0.2", 75, "/no/such/file"),
        (DIAGNOSTICS, "ping", 0, "Ping succeeded"),
        (DIAGNOSTICS, "check_running", 0, "is fully booted and running"),
        (DIAGNOSTICS, "is_running", 0, "is fully booted and running"),
        (DIAGNOSTICS, "is_booting", 0, "is fully booted (check with is_running)"),
        (DIAGNOSTICS, "check_local_alarms", 0, "reported no local alarms"),
        (DIAGNOSTICS, "check_alarms", 0, "reported no alarms, local or clusterwide"),
        (DIAGNOSTICS, "alarms", 0, "reported no alarms, local or clusterwide"),
        (DIAGNOSTICS, "check_port_listener AMQP", 0, "A listener for port"),
        (DIAGNOSTICS, "check_port_listener 1", 69, "No listener for port 1 is active"),
        (DIAGNOSTICS, "check_protocol_listener amqp", 0, "A listener for protocol amqp"),
        (DIAGNOSTICS, "check_protocol_listener mqtt", 69, "No listener for protocol mqtt"),
        (DIAGNOSTICS, "check_port_connectivity", 0, "Successfully connected to ports"),
        (DIAGNOSTICS, "listeners", 0, "protocol: amqp, purpose: AMQP 0-9-1"),
        (DIAGNOSTICS, "check_virtual_hosts", 0, "reported all vhosts as running"),
        (DIAGNOSTICS, "check_certificate_expiration --unit weeks --within 4", 0, "within 4 weeks."),
        (DIAGNOSTICS, "certificates", 0, "The node uses no certificates."),
        (DIAGNOSTICS, "tls_versions", 0, "tlsv1.3"),
        (DIAGNOSTICS, "cipher_suites", 0, "TLS_AES_256_GCM_SHA384"),
        (DIAGNOSTICS, "check_if_node_is_quorum_critical", 0, "with minimum quorum"),
        (DIAGNOSTICS, "check_if_cluster_has_classic_queue_mirroring_policy", 0, "no policies"),
        (DIAGNOSTICS, "memory_breakdown --unit mb", 0, "quorum_ets: "),
        (DIAGNOSTICS, "observer", 64, "is not supported"),
        (DIAGNOSTICS, "maybe_stuck", 0, "Found 0 suspicious threads."),
        (DIAGNOSTICS, "runtime_thread_stats --sample-interval 1", 0, "clients\t"),
        (DIAGNOSTICS, "server_version", 0, "4."),
        (DIAGNOSTICS, "erlang_version", 0, "Quorate"),
        (DIAGNOSTICS, "os_env", 0, ""),
        (DIAGNOSTICS, "command_line_arguments", 0, "server"),
        (DIAGNOSTICS, "log_location", 0, "<stderr>"),
        (DIAGNOSTICS, "log_tail -N 1000", 0, "node is ready: clients are served"),
        (DIAGNOSTICS, "log_tail_stream -d 0.2", 0, "Streaming logs from node"),
        (DIAGNOSTICS, "consume_event_stream -d 0.5", 0, "Streaming events from node"),
        (DIAGNOSTICS, "message_size_stats", 0, "between 100B and 1KB"),
        (DIAGNOSTICS, "discover_peers", 0, "rabbit2@"),
        (DIAGNOSTICS, "resolve_hostname localhost", 0, "127.0.0.1"),
        (DIAGNOSTICS, "resolver_info", 0, "Hosts file: /etc/hosts"),
        (DIAGNOSTICS, "list_network_interfaces", 0, "Interface lo"),
        (DIAGNOSTICS, "metadata_store_status", 0, "Raft State"),
        (UPGRADE, "await_online_quorum_plus_one -t 60", 0, "Will wait for a quorum + 1"),
        (UPGRADE, "has_reached_target_cluster_size", 0, "Target cluster size has been reached"),
        (UPGRADE, "post_upgrade", 0, "Executing post upgrade tasks..."),
        (PLUGINS, "list -e -m", 0, "rabbitmq_management\n"),
        (PLUGINS, "list", 0, "[E*] rabbitmq_prometheus"),
        (PLUGINS, "enable --offline rabbitmq_management", 0, "Plugin configuration unchanged."),
        (
            PLUGINS,
            "enable rabbitmq_nope",
            65,
            "The following plugins were not found: rabbitmq_nope",
        ),
        (PLUGINS, "is_enabled rabbitmq_management", 0, "is enabled on node"),
        (PLUGINS, "disable rabbitmq_management", 69, "cannot be disabled"),
        (PLUGINS, "set rabbitmq_management", 0, "Plugin configuration unchanged."),
        (PLUGINS, "directories", 0, "Plugin archives directory:"),
    ];
    run(&cluster, rows).await;
}

#[expect(clippy::too_many_lines, reason = "one step after the other, on one cluster")]
#[tokio::test(flavor = "multi_thread")]
async fn ctl_12_verbs_about_queues_users_and_policies_work_as_rabbitmqs() {
    let cluster = with_a_queue(3).await;
    let rows: &[Row] = &[
        (CTL, "list_queues name messages type", 0, "orders\t1\tquorum"),
        (CTL, "list_vhosts name tracing default_queue_type", 0, "tracing"),
        (CTL, "add_vhost v1 --description d --tags a,b", 0, "Adding vhost \"v1\" ..."),
        (CTL, "add_vhost v1", 0, ""),
        (CTL, "update_vhost_metadata v1 --description e", 0, ""),
        (CTL, "set_vhost_tags v1 a", 0, "Setting tags for virtual host \"v1\" to [a] ..."),
        (CTL, "restart_vhost -p v1", 0, "is already running"),
        (CTL, "add_user ann secret", 0, "Don't forget to grant"),
        (CTL, "add_user ann secret", 70, "User \"ann\" already exists"),
        (CTL, "set_user_tags ann monitoring", 0, "to [monitoring] ..."),
        (CTL, "change_password ann other", 0, ""),
        (CTL, "authenticate_user ann other", 0, "Success"),
        (CTL, "authenticate_user ann wrong", 65, "failed to authenticate user \"ann\""),
        (CTL, "clear_password ann", 0, ""),
        (CTL, "hash_password secret", 0, "Will hash provided password"),
        (CTL, "set_permissions_globally ann .* .* .*", 0, ""),
        (CTL, "list_user_permissions ann", 0, "v1\t.*\t.*\t.*"),
        (CTL, "list_permissions -p v1", 0, "ann\t.*"),
        (CTL, "clear_permissions -p v1 ann", 0, ""),
        (CTL, "set_topic_permissions ann amq.topic ^a .*", 0, ""),
        (CTL, "list_topic_permissions", 0, "ann\tamq.topic\t^a\t.*"),
        (CTL, "list_user_topic_permissions ann", 0, "amq.topic"),
        (CTL, "clear_topic_permissions ann", 0, ""),
        (CTL, "set_user_limits ann {\"max-connections\":5}", 0, ""),
        (CTL, "list_user_limits --user ann", 0, "{\"max-connections\":5}"),
        (CTL, "clear_user_limits ann all", 0, ""),
        (CTL, "set_vhost_limits -p v1 {\"max-queues\":9}", 0, ""),
        (CTL, "list_vhost_limits -p v1", 0, "{\"max-queues\":9}"),
        (CTL, "clear_vhost_limits -p v1", 0, ""),
        (CTL, "close_all_user_connections ann why", 0, "Closed 0 connections"),
        (
            CTL,
            "close_all_connections -p v1 --per-connection-delay 5 why",
            0,
            "Closed 0 connections",
        ),
        (CTL, "delete_user ann", 0, ""),
        (CTL, "delete_user ann", 67, "User \"ann\" does not exist"),
        (CTL, "trace_on -p v1", 0, "Trace enabled for vhost v1"),
        (CTL, "trace_off -p v1", 0, "Trace disabled for vhost v1"),
        (CTL, "delete_vhost v1", 0, ""),
        (CTL, "set_policy ttl ^orders {\"message-ttl\":60000} --priority 3", 0, ""),
        (CTL, "list_policies_that_match orders", 0, "ttl"),
        (CTL, "list_policies --formatter json", 0, "\"{\\\"message-ttl\\\":60000}\""),
        (CTL, "clear_policy ttl", 0, ""),
        (CTL, "set_operator_policy op ^q {\"max-length\":10}", 0, ""),
        (CTL, "list_operator_policies", 0, "op\t^q"),
        (CTL, "clear_operator_policy op", 0, ""),
        (CTL, "set_parameter shovel s1 {\"a\":1}", 0, ""),
        (CTL, "list_parameters", 0, "shovel\ts1\t{\"a\":1}"),
        (CTL, "clear_parameter shovel s1", 0, ""),
        (CTL, "set_global_parameter gp {\"a\":1}", 0, ""),
        (CTL, "list_global_parameters", 0, "gp\t{\"a\":1}"),
        (CTL, "clear_global_parameter gp", 0, ""),
        (CTL, "export_definitions -", 0, "\"orders\""),
        (QUEUES, "quorum_status orders", 0, "Machine Version"),
        (QUEUES, "quorum_status nothing", 65, "was not found"),
        (QUEUES, "add_member orders 1", 0, "Adding a replica for queue orders"),
        (QUEUES, "add_member orders rabbit@nope", 69, "node_not_running"),
        (QUEUES, "delete_member orders rabbit@nope", 0, "Removing a replica of queue orders"),
        (QUEUES, "delete_member orders 1", 69, "places the replicas of queues by itself"),
        (QUEUES, "grow 1 all", 0, "Growing all quorum queues on 1..."),
        (QUEUES, "grow_to_count 3 all", 0, ""),
        (QUEUES, "shrink rabbit@nope", 0, "Shrinking quorum queues on rabbit@nope..."),
        (QUEUES, "rebalance quorum", 0, "Number of quorum queues"),
        (QUEUES, "force_checkpoint", 0, ""),
        (QUEUES, "reclaim_quorum_memory orders", 0, ""),
        (QUEUES, "transfer_leadership orders rabbit@nope", 69, "node_not_running"),
        (QUEUES, "check_if_new_quorum_queue_replicas_have_finished_initial_sync", 0, "no queues"),
        (CTL, "purge_queue orders", 0, ""),
        (CTL, "delete_queue orders --force", 0, "deleted with 0 ready messages"),
    ];
    run(&cluster, rows).await;
    // Each change has a line in the audit log of the node that was asked, refused ones too; passwords
    // are not in it.
    let log = cluster.node(1).log();
    let audited = |verb: &str, object: &str, result: &str| {
        let parts = [
            format!("verb=\"{verb}\""),
            format!("object=\"{object}"),
            format!("result=\"{result}"),
        ];
        let is =
            |line: &&str| line.contains("over=\"ctl\"") && parts.iter().all(|it| line.contains(it));
        log.lines().any(|line| is(&line) && line.contains("from=\"127.0.0.1\""))
    };
    assert!(audited("add_user", "user 'ann'", "done"), "{log}");
    assert!(audited("add_user", "user 'ann'", "FailedPrecondition"), "{log}");
    assert!(audited("delete_queue", "'orders' in vhost '/'", "done"), "{log}");
    assert!(audited("set_policy", "'ttl' in vhost '/'", "done"), "{log}");
    assert!(!log.contains("secret\""), "no password");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctl_16_a_node_is_put_aside_and_stopped() {
    let cluster = with_a_queue(3).await;
    let rows: &[Row] = &[
        (CTL, "stop_app", 0, "Stopping rabbit application on node"),
        (CTL, "start_app", 0, "Starting node"),
        (UPGRADE, "drain", 0, "into maintenance mode"),
        (UPGRADE, "revive", 0, "back into regular operating mode"),
        (CTL, "shutdown --wait", 0, "successfully shut down"),
        (CTL, "stop --idempotent", 0, "is no longer running"),
        (DIAGNOSTICS, "check_running", 69, "unable to perform an operation on node"),
    ];
    run(&cluster, rows).await;
    let output = cluster.ctl(2, &["-q", "check_if_node_is_quorum_critical"]).await;
    assert_eq!(output.code, 69, "{output:?}");
    let ping = cluster.ctl(2, &["-q", "ping"]).await.succeeded().expect("the others go on");
    assert_eq!(ping.stdout, "Ping succeeded\n");
}
