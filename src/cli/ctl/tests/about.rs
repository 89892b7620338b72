//! Questions about a node.

use super::*;

#[test]
fn a_node_tells_its_version_and_settings_ctl_12() {
    let cluster = start(1);
    let lines = [
        "-n NODE server_version",
        "-n NODE -q server_version --formatter json",
        "-n NODE -q erlang_version",
        "-n NODE environment",
        "-n NODE -q environment --formatter json",
        "-n NODE os_env",
        "-n NODE command_line_arguments",
        "-n NODE log_location",
        "-n NODE discover_peers",
        "-n NODE tls_versions",
        "-n NODE -q cipher_suites",
        "-n NODE list_network_interfaces",
        "-n NODE resolver_info",
    ];
    expect![[r#"
        $ -n NODE server_version
        Asking node rabbit1@127.0.0.1 for its RabbitMQ version...
        4.3.5
        = 0

        $ -n NODE -q server_version --formatter json
        {"result":"ok","value":"4.3.5"}
        = 0

        $ -n NODE -q erlang_version
        Quorate 0.1.0, without Erlang/OTP
        = 0

        $ -n NODE environment
        Settings of node rabbit1@127.0.0.1 ...
        node_id = "1" (from --node-id)
        zone = "" (default)
        = 0

        $ -n NODE -q environment --formatter json
        {"node_id":"1","zone":""}
        = 0

        $ -n NODE os_env
        Listing RabbitMQ-specific environment variables defined on node rabbit1@127.0.0.1...
        QUORATE_CLUSTER_SECRET=[hidden]
        = 0

        $ -n NODE command_line_arguments
        Command line arguments of node rabbit1@127.0.0.1 ...
        quorate
        server
        = 0

        $ -n NODE log_location
        Log file location(s) on node rabbit1@127.0.0.1 ...
        <stderr>
        = 0

        $ -n NODE discover_peers
        Discovering peers nodes ...
        rabbit1@127.0.0.1
        node2
        node3
        = 0

        $ -n NODE tls_versions
        Listing all TLS versions supported by the runtime...
        tlsv1.3
        tlsv1.2
        = 0

        $ -n NODE -q cipher_suites
        TLS_AES_256_GCM_SHA384
        = 0

        $ -n NODE list_network_interfaces
        Asking node rabbit1@127.0.0.1 to report its network interfaces ...
        Interface lo
        addresses: 127.0.0.1
        = 0

        $ -n NODE resolver_info
        Asking node rabbit1@127.0.0.1 for its effective hostname resolver configuration...
        Lookup order: native
        Hosts file: /etc/hosts
        Resolver conf file: /etc/resolv.conf
        Cache size: 0
        = 0
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn the_log_is_read_from_its_end_ctl_12() {
    let cluster = start(1);
    let lines = [
        "-n NODE log_tail",
        "-n NODE -q log_tail -N 1",
        "-n NODE log_tail -N none",
        "-n NODE -q log_tail_stream -d 0.3",
        "-n NODE log_tail_stream -d soon",
        "-n NODE consume_event_stream -d 0.3",
        "-n NODE message_size_stats --formatter csv",
        "-n NODE set_log_level debug",
        "-n NODE set_log_level warning",
        "-n NODE set_log_level loud",
    ];
    expect![[r#"
        $ -n NODE log_tail
        Last 50 log lines on node rabbit1@127.0.0.1 ...
        one
        two
        = 0

        $ -n NODE -q log_tail -N 1
        two
        = 0

        $ -n NODE log_tail -N none
        ! Error:
        ! --number is not a number of lines above 0
        = 65

        $ -n NODE -q log_tail_stream -d 0.3
        three
        = 0

        $ -n NODE log_tail_stream -d soon
        ! Error:
        ! --duration is no number of seconds: soon
        = 65

        $ -n NODE consume_event_stream -d 0.3
        Streaming events from node rabbit1@127.0.0.1 ...
        = 0

        $ -n NODE message_size_stats --formatter csv
        "Message Size","Count","Percentage"
        "below 100B","6","75.00"
        "between 100B and 1KB","1","12.50"
        "between 1KB and 10KB","1","12.50"
        "between 10KB and 100KB","0","0.00"
        "between 100KB and 1MB","0","0.00"
        "between 1MB and 10MB","0","0.00"
        "between 10MB and 50MB","0","0.00"
        "between 50MB and 100MB","0","0.00"
        "above 100MB","0","0.00"
        = 0

        $ -n NODE set_log_level debug
        Setting log level to "debug" ...
        = 0

        $ -n NODE set_log_level warning
        Setting log level to "warning" ...
        ! Error:
        ! there is no log level 'warn'
        = 65

        $ -n NODE set_log_level loud
        ! Error:
        ! level loud is not supported. Try one of debug, info, warning, error, critical, none
        = 64
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn hosts_are_resolved_as_the_node_does_ctl_12() {
    let cluster = start(1);
    let lines = [
        "-n NODE resolve_hostname 127.0.0.1",
        "-n NODE resolve_hostname 127.0.0.1 --address-family ipv6",
        "-n NODE resolve_hostname 127.0.0.1 --address-family ipx",
        "-n NODE -q resolve_hostname 127.0.0.1 --formatter json",
    ];
    expect![[r#"
        $ -n NODE resolve_hostname 127.0.0.1
        Asking node rabbit1@127.0.0.1 to resolve hostname 127.0.0.1 to IPv4 addresses...
        127.0.0.1
        = 0

        $ -n NODE resolve_hostname 127.0.0.1 --address-family ipv6
        Asking node rabbit1@127.0.0.1 to resolve hostname 127.0.0.1 to IPv6 addresses...
        ! Error:
        ! Hostname does not resolve (resolution failed with an nxdomain)
        = 65

        $ -n NODE resolve_hostname 127.0.0.1 --address-family ipx
        ! Error:
        ! unsupported IP address family ipx. Valid values are: ipv4, ipv6
        = 65

        $ -n NODE -q resolve_hostname 127.0.0.1 --formatter json
        {"address_family":"IPv4","addresses":["127.0.0.1"],"hostname":"127.0.0.1","node":"rabbit1@127.0.0.1","result":"ok"}
        = 0
    "#]].assert_eq(&transcripts(&cluster, &lines));
}
