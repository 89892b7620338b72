//! Complete commands against a real admin service over TCP, with simulated views behind it.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
#![expect(clippy::too_many_lines, reason = "transcripts, one line after the other")]

mod about;
mod access;
mod audit;
mod checks;
mod facts;
mod failures;
mod members;
mod node;
mod others;
mod process;
mod replicas;
mod users;
mod world;

use super::*;
use expect_test::expect;
use world::{Cluster, start};

/// The command, its standard output, its standard error and its exit code.
fn transcript(cluster: &Cluster, line: &str) -> String {
    transcript_of("rabbitmqctl", cluster, line)
}

/// The same of another tool.
fn transcript_of(program: &str, cluster: &Cluster, line: &str) -> String {
    let other = cluster.addresses.last().unwrap();
    let line = line.replace("NODE", &cluster.addresses[0]).replace("OTHER", other);
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let secret = cluster.secret_file.path().display().to_string();
    let mut words_with_secret = vec!["--cluster-secret-file".to_owned(), secret.clone()];
    words_with_secret.extend(words);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console { out: &mut out, err: &mut err };
    let code = run(&words_with_secret, program, &mut console);
    let mut text = format!("$ {}\n", line.replace(&cluster.addresses[0], "NODE"));
    text.push_str(&masked(&String::from_utf8(out).unwrap()));
    for line in String::from_utf8(err).unwrap().lines() {
        text.push_str(&format!("! {line}\n"));
    }
    text.push_str(&format!("= {code}\n"));
    for (at, address) in cluster.addresses.iter().enumerate() {
        text = text.replace(address, &format!("ADDRESS{}", at + 1));
    }
    let own = format!("PID {}", std::process::id());
    text.replace(&format!("--cluster-secret-file {secret} "), "").replace(&own, "PID *")
}

/// The text without parts that differ from machine to machine.
fn masked(text: &str) -> String {
    let differs = [
        "OS PID: ",
        "Uptime (seconds): ",
        "Total memory used: ",
        "Total: ",
        "Total CPU cores available cluster-wide: ",
        "Node: rabbit1@127.0.0.1, available CPU cores: ",
        "Node: rabbit2@127.0.0.1, available CPU cores: ",
    ];
    text.lines()
        .map(|line| match differs.iter().find(|start| line.starts_with(**start)) {
            Some(start) => format!("{start}*\n"),
            None => format!("{line}\n"),
        })
        .collect()
}

fn transcripts(cluster: &Cluster, lines: &[&str]) -> String {
    let all: Vec<String> = lines.iter().map(|line| transcript(cluster, line)).collect();
    all.join("\n")
}

#[test]
fn queues_are_listed_from_their_leaders_wherever_they_are_ctl_09() {
    let cluster = start(2);
    let lines = [
        "-n NODE list_queues",
        "-n NODE -q list_queues name messages messages_ready type leader members state arguments",
        "-n NODE -s list_queues -p other",
        "-n NODE list_queues name,messages consumers --formatter json",
        "-n NODE list_queues --local name",
        "-n NODE list_queues --offline name",
        "-n NODE list_queues nme foo",
    ];
    expect![[r#"
        $ -n NODE list_queues
        Timeout: 60.0 seconds ...
        Listing queues for vhost / ...
        name	messages
        billing	9
        lost	
        orders	7
        = 0

        $ -n NODE -q list_queues name messages messages_ready type leader members state arguments
        name	messages	messages_ready	type	leader	members	state	arguments
        billing	9	7	quorum	rabbit2@127.0.0.1	[rabbit1@127.0.0.1, rabbit2@127.0.0.1]	running	[{"x-max-length",10},{"x-queue-type","quorum"}]
        lost			quorum	node3	[rabbit1@127.0.0.1, rabbit2@127.0.0.1]	down	[{"x-max-length",10},{"x-queue-type","quorum"}]
        orders	7	5	quorum	rabbit1@127.0.0.1	[rabbit1@127.0.0.1, rabbit2@127.0.0.1]	running	[{"x-max-length",10},{"x-queue-type","quorum"}]
        = 0

        $ -n NODE -s list_queues -p other
        = 0

        $ -n NODE list_queues name,messages consumers --formatter json
        [
        {"name":"billing","messages":9,"consumers":1}
        ,{"name":"lost","messages":"","consumers":""}
        ,{"name":"orders","messages":7,"consumers":1}
        ]
        = 0

        $ -n NODE list_queues --local name
        Timeout: 60.0 seconds ...
        Listing queues for vhost / ...
        name
        orders
        = 0

        $ -n NODE list_queues --offline name
        Timeout: 60.0 seconds ...
        Listing queues for vhost / ...
        name
        lost
        = 0

        $ -n NODE list_queues nme foo
        ! Error (argument validation): Info key(s) nme,foo are not supported
        ! Arguments given:
        ! 	-n ADDRESS1 list_queues nme foo
        ! 
        ! Usage
        ! 
        ! rabbitmqctl [--node <node>] [--longnames] [--quiet] list_queues [--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, ...] [--timeout <timeout>]
        = 64
    "#]].assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn bindings_begin_with_the_default_exchanges_ctl_10() {
    let cluster = start(1);
    let lines = ["-n NODE list_bindings", "-n NODE list_exchanges name type durable arguments"];
    expect![[r#"
        $ -n NODE list_bindings
        Listing bindings for vhost /...
        source_name	source_kind	destination_name	destination_kind	routing_key	arguments
        	exchange	billing	queue	billing	[]
        	exchange	lost	queue	lost	[]
        	exchange	orders	queue	orders	[]
        x	exchange	orders	queue	a.#	[{"k",1}]
        = 0

        $ -n NODE list_exchanges name type durable arguments
        Listing exchanges for vhost / ...
        name	type	durable	arguments
        	direct	true	[]
        x	topic	true	[]
        = 0
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn clients_of_all_nodes_are_listed() {
    let cluster = start(2);
    let lines = [
        "-n NODE list_connections",
        "-n NODE -q list_connections pid name node channels protocol client_properties",
        "-n NODE list_channels",
        "-n NODE -q list_channels confirm transactional messages_uncommitted acks_uncommitted",
        "-n NODE list_consumers",
        "-n NODE -q list_consumers consumer_tag active activity_status",
    ];
    expect![[r#"
        $ -n NODE list_connections
        Listing connections ...
        user	peer_host	peer_port	state
        guest	127.0.0.1	40318	running
        guest	127.0.0.1	40318	running
        = 0

        $ -n NODE -q list_connections pid name node channels protocol client_properties
        pid	name	node	channels	protocol	client_properties
        <rabbit1@127.0.0.1.40.3.0>	127.0.0.1:40318 -> 127.0.0.1:5672	rabbit1@127.0.0.1	1	{0,9,1}	[{"product","lapin"}]
        <rabbit2@127.0.0.1.40.3.0>	127.0.0.1:40318 -> 127.0.0.1:5672	rabbit2@127.0.0.1	1	{0,9,1}	[{"product","lapin"}]
        = 0

        $ -n NODE list_channels
        Listing channels ...
        pid	user	consumer_count	messages_unacknowledged
        <rabbit1@127.0.0.1.40.3.1>	guest	1	2
        <rabbit2@127.0.0.1.40.3.1>	guest	1	2
        = 0

        $ -n NODE -q list_channels confirm transactional messages_uncommitted acks_uncommitted
        confirm	transactional	messages_uncommitted	acks_uncommitted
        true	false	3	4
        true	false	3	4
        = 0

        $ -n NODE list_consumers
        Listing consumers in vhost / ...
        queue_name	channel_pid	consumer_tag	ack_required	prefetch_count	active	arguments
        orders	<rabbit1@127.0.0.1.40.3.1>	tag-1	true	10	false	[]
        orders	<rabbit2@127.0.0.1.40.3.1>	tag-2	true	10	true	[]
        = 0

        $ -n NODE -q list_consumers consumer_tag active activity_status
        consumer_tag	active	activity_status
        tag-1	false	waiting
        tag-2	true	single_active
        = 0
    "#]].assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn queues_are_deleted_and_purged_ctl_11() {
    let cluster = start(1);
    let lines = [
        "-n NODE delete_queue nosuch",
        "-n NODE delete_queue busy --if-unused --if-empty",
        "-n NODE delete_queue orders -e",
        "-n NODE -q delete_queue orders",
        "-n NODE purge_queue nosuch",
        "-n NODE purge_queue orders",
    ];
    expect![[r#"
        $ -n NODE delete_queue nosuch
        Deleting queue 'nosuch' on vhost '/' ...
        ! Error:
        ! Queue not found
        = 64

        $ -n NODE delete_queue busy --if-unused --if-empty
        Deleting queue 'busy' on vhost '/' if queue is empty and if queue is unused ...
        ! Error:
        ! {:amqp_error, :precondition_failed, ~c"queue 'busy' in vhost '/' in use", :none}
        = 69

        $ -n NODE delete_queue orders -e
        Deleting queue 'orders' on vhost '/' if queue is empty ...
        ! Error:
        ! {:amqp_error, :precondition_failed, ~c"queue 'orders' in vhost '/' not empty", :none}
        = 69

        $ -n NODE -q delete_queue orders
        Queue was successfully deleted with 5 ready messages
        = 0

        $ -n NODE purge_queue nosuch
        Purging queue 'nosuch' in vhost '/' ...
        ! Error:
        ! not_found
        = 69

        $ -n NODE purge_queue orders
        Purging queue 'orders' in vhost '/' ...
        = 0
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn the_cluster_is_described() {
    let cluster = start(2);
    expect![[r#"
        $ -n NODE cluster_status
        Cluster status of node rabbit1@127.0.0.1 ...
        Basics

        Cluster name: 00000000000000c1
        Catalog leader: rabbit1@127.0.0.1
        Total CPU cores available cluster-wide: *
        Machine version: 4

        Disk Nodes

        rabbit1@127.0.0.1
        rabbit2@127.0.0.1

        Running Nodes

        rabbit1@127.0.0.1
        rabbit2@127.0.0.1

        Versions

        rabbit1@127.0.0.1: RabbitMQ 4.3.5 (Quorate 0.1.0)
        rabbit2@127.0.0.1: RabbitMQ 4.3.5 (Quorate 0.1.0)

        CPU Cores

        Node: rabbit1@127.0.0.1, available CPU cores: *
        Node: rabbit2@127.0.0.1, available CPU cores: *

        Maintenance status

        Node: rabbit1@127.0.0.1, status: not under maintenance
        Node: rabbit2@127.0.0.1, status: not under maintenance

        Readiness

        Node: rabbit1@127.0.0.1, ready
        Node: rabbit2@127.0.0.1, ready

        Alarms

        Free disk space alarm on node rabbit2@127.0.0.1

        Network Partitions

        (none)

        Listeners

        Node: rabbit1@127.0.0.1, interface: 127.0.0.1, port: 5672, protocol: amqp, purpose: AMQP 0-9-1
        Node: rabbit2@127.0.0.1, interface: 127.0.0.1, port: 5673, protocol: amqp, purpose: AMQP 0-9-1

        Feature flags

        Flag: classic_mirrored_queue_version, state: enabled
        Flag: detailed_queues_endpoint, state: enabled
        Flag: direct_exchange_routing_v2, state: enabled
        Flag: drop_unroutable_metric, state: enabled
        Flag: empty_basic_get_metric, state: enabled
        Flag: feature_flags_v2, state: enabled
        Flag: implicit_default_bindings, state: enabled
        Flag: khepri_db, state: enabled
        Flag: listener_records_in_ets, state: enabled
        Flag: maintenance_mode_status, state: enabled
        Flag: message_containers, state: enabled
        Flag: message_containers_deaths_v2, state: enabled
        Flag: quorum_queue, state: enabled
        Flag: rabbit_exchange_type_local_random, state: enabled
        Flag: rabbitmq_4.0.0, state: enabled
        Flag: rabbitmq_4.1.0, state: enabled
        Flag: rabbitmq_4.2.0, state: enabled
        Flag: rabbitmq_4.3.0, state: enabled
        Flag: stream_queue, state: enabled
        Flag: tracking_records_in_ets, state: enabled
        Flag: user_limits, state: enabled
        Flag: virtual_host_metadata, state: enabled

        Groups

        Node: rabbit1@127.0.0.1, replicas: 3, leads: 0 1
        Node: rabbit2@127.0.0.1, replicas: 3, leads: 2

        Members

        Node: rabbit1@127.0.0.1, id: 1, state: member, zone: north, rpc address: ADDRESS1, replicas: 3, leads: 2
        Node: rabbit2@127.0.0.1, id: 2, state: member, zone: none, rpc address: ADDRESS2, replicas: 3, leads: 1

        Placement

        Group: 0 (catalog, voters), nodes: rabbit1@127.0.0.1, rabbit2@127.0.0.1
        Group: 1, nodes: rabbit1@127.0.0.1, rabbit2@127.0.0.1
        Group: 2, nodes: rabbit1@127.0.0.1, rabbit2@127.0.0.1
        = 0
    "#]].assert_eq(&transcript(&cluster, "-n NODE cluster_status"));
}

#[test]
fn the_cluster_is_described_for_programs() {
    let cluster = start(2);
    let json = transcript(&cluster, "-n NODE cluster_status --formatter json");
    let json: serde_json::Value = serde_json::from_str(json.lines().nth(1).unwrap()).unwrap();
    assert_eq!(
        json["running_nodes"],
        serde_json::json!(["rabbit1@127.0.0.1", "rabbit2@127.0.0.1"])
    );
    let member = serde_json::json!({
        "node": "rabbit2@127.0.0.1",
        "id": 2,
        "state": "member",
        "zone": "",
        "rpc_address": "ADDRESS2",
        "amqp_address": "127.0.0.1:5672",
        "running": true,
        "replicas": 3,
        "leads": 1,
    });
    assert_eq!(json["members"][1], member);
    let placement = serde_json::json!({"group": 1, "nodes": [1, 2], "moves": false, "former": []});
    assert_eq!(json["placement"][1], placement);
}

#[test]
fn a_node_is_described() {
    let cluster = start(1);
    expect![[r#"
        $ -n NODE status
        Status of node rabbit1@127.0.0.1 ...
        Runtime

        OS PID: *
        OS: Linux
        Uptime (seconds): *
        Is under maintenance?: false
        RabbitMQ version: 4.3.5
        Quorate version: 0.1.0
        Node name: rabbit1@127.0.0.1
        Node id: 1
        Ready: yes

        Plugins

         * rabbitmq_auth_mechanism_ssl
         * rabbitmq_consistent_hash_exchange
         * rabbitmq_delayed_message_exchange
         * rabbitmq_management
         * rabbitmq_management_agent
         * rabbitmq_prometheus
         * rabbitmq_random_exchange
         * rabbitmq_sharding
         * rabbitmq_web_dispatch

        Data directory

        Node data directory: /data

        Config files

         * /etc/quorate.toml

        Log file(s)

         * <stderr>

        Alarms

        (none)

        Memory

        Total memory used: *
        Calculation strategy: rss
        Memory high watermark setting: 4.0000 gb

        File Descriptors

        Total: *

        Free Disk Space

        Low free disk space watermark: 1.0000 gb
        Free disk space: 78.9926 gb

        Totals

        Connection count: 1
        Queue count: 3
        Virtual host count: 1

        Groups

        Group: 0, leader, term 2, applied 19 of 20, purged to 5, log 4096 bytes
        Group: 1, leader, term 2, applied 19 of 20, purged to 5, log 4096 bytes
        Group: 2, follower, term 2, applied 19 of 20, purged to 5, log 4096 bytes

        Listeners

        Interface: 127.0.0.1, port: 5672, protocol: amqp, purpose: AMQP 0-9-1
        = 0
    "#]]
    .assert_eq(&transcript(&cluster, "-n NODE status"));
}

#[test]
fn a_node_is_found_by_its_name_behind_another() {
    let cluster = start(2);
    let port = cluster.addresses[0].rsplit_once(':').unwrap().1;
    let line = format!("-n rabbit2@127.0.0.1:{port} -q status");
    let status = transcript(&cluster, &line);
    assert!(status.contains("Node name: rabbit2@127.0.0.1\n"), "{status}");
    // A name that no node has, such as RabbitMQ's default in scripts, means the node at the
    // address.
    let line = format!("-n rabbit@127.0.0.1:{port} -q status");
    let status = transcript(&cluster, &line);
    assert!(status.contains("Node name: rabbit1@127.0.0.1\n"), "{status}");
}
