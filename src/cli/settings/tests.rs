//! Settings: the order of precedence, refused values, and the text of the refusals.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use expect_test::expect;
use std::io::Write;

fn layer(pairs: &[(&str, &str)]) -> Layer {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// The refusal, with the file's random name replaced.
fn refusal(flags: &[(&str, &str)], variables: &[(&str, &str)], text: Option<&str>) -> String {
    let file = text.map(file);
    let mut flags = layer(flags);
    if let Some(file) = &file {
        flags.insert("config".to_owned(), file.path().display().to_string());
    }
    let error = load(flags, environment(variables)).unwrap_err().to_string();
    match file {
        Some(file) => error.replace(&file.path().display().to_string(), "FILE"),
        None => error,
    }
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let text =
        "node_id = 2\nwatchdog_ms = 2000\nraft_heartbeat_ms = 50\nrelaxed_redeclaration = true\n";
    let file = file(text);
    let loaded = load(
        layer(&[("config", &file.path().display().to_string()), ("node_id", "4")]),
        environment(&[("QUORATE_NODE_ID", "3"), ("QUORATE_WATCHDOG_MS", "3000"), ("PATH", "/x")]),
    )
    .unwrap();
    assert_eq!(loaded.settings.node_id.0, 4);
    assert_eq!(loaded.settings.watchdog_ms, 3000);
    assert_eq!(loaded.settings.raft_heartbeat_ms, 50);
    assert_eq!(loaded.settings.election_min_ms, 300);
    assert!(loaded.settings.relaxed_redeclaration);
    assert!(loaded.warnings.is_empty());
}

#[test]
fn the_environment_names_the_file_when_no_flag_does() {
    let file = file("node_id = 2");
    let path = file.path().display().to_string();
    let loaded = load(Layer::new(), environment(&[("QUORATE_CONFIG", &path)])).unwrap();
    assert_eq!(loaded.settings.node_id.0, 2);
    assert_eq!(loaded.file, Some(file.path().to_owned()));
}

#[test]
fn every_default_is_taken_and_they_agree_with_each_other() {
    let loaded = load(Layer::new(), Vec::new()).unwrap();
    assert_eq!(loaded.settings.max_message_size, ByteCount(16 << 20));
    assert_eq!(loaded.settings.memory_high_watermark, MemoryLimit::Fraction(0.6));
    assert_eq!(loaded.settings.cluster, Members::default());
    assert_eq!(loaded.settings.node_name, None);
    assert_eq!((loaded.settings.zone.as_str(), loaded.settings.queue_replicas), ("", None));
    assert!(!loaded.settings.replace_lost_disk);
    assert_eq!(loaded.settings.consumer_timeout_ms, 1_800_000, "CTO-01");
}

#[test]
fn the_cluster_may_be_a_table_in_the_file() {
    let file = file("node_id = 2\n[cluster]\n1 = \"a:7672\"\n2 = \"[::1]:7673\"\n");
    let loaded =
        load(layer(&[("config", &file.path().display().to_string())]), Vec::new()).unwrap();
    let members: Vec<String> =
        loaded.settings.cluster.iter().map(|(id, at)| format!("{id} at {at}")).collect();
    assert_eq!(members, ["1 at a:7672", "2 at [::1]:7673"]);
}

/// As in the chart, where all nodes get one text that ends with their own id and address.
#[test]
fn the_cluster_may_name_a_node_twice_with_the_same_address() {
    let loaded = load(layer(&[("cluster", "1=a:1,2=b:1,1=a:1")]), Vec::new()).unwrap();
    let members: Vec<String> =
        loaded.settings.cluster.iter().map(|(id, at)| format!("{id} at {at}")).collect();
    assert_eq!(members, ["1 at a:1", "2 at b:1"]);
}

#[test]
fn a_number_beyond_its_bounds_is_refused_with_them() {
    let lines = [
        refusal(&[("frame_max", "8191")], &[], None),
        refusal(&[("frame_max", "4294967295")], &[], None),
        refusal(&[("login_failure_delay_ms", "60000")], &[], None),
        refusal(&[("client_memory", "1023KiB")], &[], None),
        refusal(&[("handshake_max", "0")], &[], None),
        refusal(&[("write_timeout_ms", "0")], &[], None),
        refusal(&[("queue_replicas", "2")], &[], None),
        refusal(&[("zone", &"z".repeat(256))], &[], None),
    ];
    expect![[r#"
        setting frame_max: must be from 8192 to 16777216 bytes
        setting frame_max: must be from 8192 to 16777216 bytes
        setting login_failure_delay_ms: must be at most 10000 ms
        setting client_memory: must be at least 1MiB
        setting handshake_max: must be at least 1
        setting write_timeout_ms: must be at least 1 ms
        setting queue_replicas: must be 1, 3 or 5
        setting zone: must be at most 255 bytes
    "#]]
    .assert_eq(&format!("{}\n", lines.join("\n")));
}

#[test]
fn a_refusal_is_one_line_that_names_the_setting_and_where_it_was_given() {
    let lines = [
        refusal(&[("node_id", "0")], &[], None),
        refusal(&[], &[("QUORATE_AMQP_LISTEN", "5672")], None),
        refusal(&[], &[], Some("max_message_size = \"1 apple\"")),
        refusal(&[], &[], Some("max_message_size = [1]")),
        refusal(&[], &[], Some("max_mesage_size = 1")),
        refusal(&[], &[], Some("node_id = 1\nnode_id =\n")),
        refusal(&[("config", "/nowhere/x.toml")], &[], None),
        refusal(&[("max_message_size", "1GiB")], &[], None),
        refusal(&[("cluster", "2=a:1")], &[], None),
        refusal(&[("cluster", "1=a:1,1=b:1")], &[], None),
        refusal(&[("cluster", "1=a:1,2=a:1")], &[], None),
        refusal(&[("cluster", "1=a:1,2")], &[], None),
        refusal(&[("cluster", "x=a:1")], &[], None),
        refusal(&[("cluster", "1=a:99999")], &[], None),
        refusal(&[("memory_high_watermark", "1.5")], &[], None),
        refusal(&[("identify_as", "kafka")], &[], None),
        refusal(&[("default_queue_type", "stream")], &[], None),
        refusal(&[("election_max_ms", "300")], &[], None),
        refusal(&[("raft_heartbeat_ms", "150")], &[], None),
        refusal(&[("operation_timeout_ms", "0")], &[], None),
        refusal(&[("log", "quorate=loud")], &[], None),
        refusal(&[("queue_groups", "70000")], &[], None),
        refusal(&[], &[], Some("relaxed_redeclaration = \"yes\"")),
    ];
    expect![[r#"
        setting node_id (from --node-id): '0' is not a whole number from 1 to 65535
        setting amqp_listen (from QUORATE_AMQP_LISTEN): '5672' is not HOST:PORT
        setting max_message_size (in FILE): '1 apple' is not a number of bytes such as 4194304 or 4MiB
        setting max_message_size (in FILE): 'a value of type array' cannot be the value of a setting
        setting max_mesage_size (in FILE): there is no such setting
        setting config: file FILE: line 2: string values must be quoted, expected literal string
        setting config: file /nowhere/x.toml: No such file or directory (os error 2)
        setting max_message_size: must be from 1 byte to 128MiB
        setting cluster: does not name this node, whose node_id is 1
        setting cluster (from --cluster): '1=a:1,1=b:1' names node 1 twice
        setting cluster (from --cluster): '1=a:1,2=a:1' gives the address a:1 to two nodes
        setting cluster (from --cluster): '1=a:1,2' contains '2', which is not ID=HOST:PORT
        setting cluster (from --cluster): 'x=a:1' contains the id 'x', which is not a whole number from 1 to 65535
        setting cluster (from --cluster): '1=a:99999' contains the address 'a:99999', which is not HOST:PORT
        setting memory_high_watermark (from --memory-high-watermark): '1.5' is not a fraction above 0.0 and at most 1.0
        setting identify_as (from --identify-as): 'kafka' is not one of rabbitmq, quorate
        setting default_queue_type (from --default-queue-type): 'stream' is not one of classic, quorum
        setting election_max_ms: must be more than election_min_ms
        setting election_min_ms: must be more than twice raft_heartbeat_ms
        setting operation_timeout_ms: must be at least 1 ms
        setting log: is not a log filter such as info or warn,quorate_raft=debug
        setting queue_groups (from --queue-groups): '70000' is not a whole number from 0 to 65535
        setting relaxed_redeclaration (in FILE): 'yes' is neither true nor false
    "#]]
    .assert_eq(&format!("{}\n", lines.join("\n")));
}

#[test]
fn tls_that_cannot_work_is_refused() {
    let (certificate, key) = (("tls_certificate_file", "c"), ("tls_key_file", "k"));
    let lines = [
        refusal(&[("amqp_tls_listen", "0.0.0.0:5671")], &[], None),
        refusal(&[("http_tls_listen", "0.0.0.0:15671"), certificate], &[], None),
        refusal(&[certificate, key, ("tls_client_certificates", "require")], &[], None),
        refusal(&[certificate, key, ("rpc_tls", "true")], &[], None),
        refusal(&[("tls_login_from", "nickname")], &[], None),
    ];
    expect![[r#"
        setting tls_certificate_file: must be set, since amqp_tls_listen is set
        setting tls_key_file: must be set, since http_tls_listen is set
        setting tls_ca_file: must be set, since tls_client_certificates is not none
        setting rpc_tls_ca_file: must be set, since rpc_tls is true
        setting tls_login_from (from --tls-login-from): 'nickname' is not one of common_name, subject_alternative_name, distinguished_name
    "#]]
    .assert_eq(&format!("{}\n", lines.join("\n")));
    let settings = settings_of(&[certificate, key, ("tls_ca_file", "a"), ("rpc_tls", "true")]);
    assert!(settings.unwrap().rpc_tls, "the files of clients do for nodes too");
}

#[test]
fn a_variable_that_is_no_setting_is_worth_a_warning() {
    let loaded = load(
        Layer::new(),
        environment(&[
            ("QUORATE_CLUSTR", "x"),
            ("QUORATE_CLUSTER_SECRET", "s"),
            ("QUORATE_URI", "amqp://h"),
        ]),
    )
    .unwrap();
    assert_eq!(loaded.warnings, ["QUORATE_CLUSTR is set, but there is no setting clustr"]);
}

#[test]
fn a_fraction_of_the_memory_is_of_what_the_machine_has() {
    assert_eq!(MemoryLimit::Fraction(0.5).bytes_of(1000), 500);
    assert_eq!(MemoryLimit::Bytes(ByteCount(7)).bytes_of(1000), 7);
}

#[test]
fn help_lists_every_setting_with_its_unit_default_and_variable() {
    let help = command().render_long_help().to_string();
    for spec in SPECS {
        assert!(help.contains(&format!("--{} <{}>", spec.name.replace('_', "-"), spec.shape)));
        assert!(help.contains(&format!("[env: QUORATE_{}]", spec.name.to_uppercase())));
    }
    let parsed = command().try_get_matches_from(["server", "--node-id", "7"]).unwrap();
    assert_eq!(flags_of(&parsed), layer(&[("node_id", "7")]));
}
