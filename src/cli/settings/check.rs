//! Checks of settings against each other and against fixed bounds.

use super::{SettingError, Settings};
use crate::cli::tls;
use quorate_tls::ClientCertificates;
use quorate_types::MachineVersion;

/// The shortest `statistics_interval_ms`: a sample reads the figures of all queues.
const STATISTICS_MS_MIN: u64 = 100;

/// Most that `max_message_size` may be.
const MESSAGE_BYTES_MOST: u64 = 128 << 20;
/// Minimum of memory for messages of clients: with less, clients make no useful progress.
const CLIENT_BYTES_LEAST: u64 = 1 << 20;
/// Least frame size that a client can agree on (CONN-17).
const FRAME_BYTES_LEAST: u32 = 8192;
/// Maximum: a frame is held in memory as a whole.
const FRAME_BYTES_MOST: u32 = 16 << 20;
/// Maximum: a user should not wait for minutes to learn of a mistyped password.
const LOGIN_DELAY_MS_MOST: u64 = 10_000;
/// Minimum of the time of Q-62: leaders report contact twice a second, and a quarter of this time
/// may pass without a report.
const UNREACHABLE_MS_MIN: u64 = 4_000;
/// Most nodes that form a cluster: all are voters of every group (DESIGN §2).
const MEMBERS_MOST: usize = 5;
/// Longest name of a zone, bytes.
const ZONE_BYTES_MOST: usize = 255;
/// How many replicas a queue may have: an even number would survive no more failures.
const REPLICAS: [u16; 3] = [1, 3, 5];

/// Refuses settings that cannot work.
pub(super) fn check(settings: &Settings) -> Result<(), SettingError> {
    cluster(settings)?;
    replicas(settings)?;
    timing(settings)?;
    tls(settings)?;
    let refuse = |name, why: &str| Err(SettingError::Contradiction { name, why: why.to_owned() });
    if settings.max_message_size.0 == 0 || settings.max_message_size.0 > MESSAGE_BYTES_MOST {
        return refuse("max_message_size", "must be from 1 byte to 128MiB");
    }
    if !(FRAME_BYTES_LEAST..=FRAME_BYTES_MOST).contains(&settings.frame_max) {
        return refuse("frame_max", "must be from 8192 to 16777216 bytes");
    }
    if settings.login_failure_delay_ms > LOGIN_DELAY_MS_MOST {
        return refuse("login_failure_delay_ms", "must be at most 10000 ms");
    }
    if settings.client_memory.is_some_and(|limit| limit.bytes_of(u64::MAX) < CLIENT_BYTES_LEAST) {
        return refuse("client_memory", "must be at least 1MiB");
    }
    if settings.handshake_max == 0 {
        return refuse("handshake_max", "must be at least 1");
    }
    if settings.channel_max == 0 {
        return refuse("channel_max", "must be at least 1");
    }
    if settings.queue_groups == 0 || settings.queue_groups > 1024 {
        return refuse("queue_groups", "must be from 1 to 1024");
    }
    if settings.machine_version_max.is_some_and(|most| !MachineVersion(most).is_known()) {
        let (first, newest) = (MachineVersion::FIRST, MachineVersion::NEWEST);
        return refuse("machine_version_max", &format!("must be from {first} to {newest}"));
    }
    if tracing_subscriber::EnvFilter::try_new(&settings.log).is_err() {
        return refuse("log", "is not a log filter such as info or warn,quorate_raft=debug");
    }
    Ok(())
}

fn cluster(settings: &Settings) -> Result<(), SettingError> {
    let refuse = |why: String| Err(SettingError::Contradiction { name: "cluster", why });
    let members = &settings.cluster;
    if members.is_empty() {
        return Ok(());
    }
    if !members.contains_key(&settings.node_id) {
        return refuse(format!("does not name this node, whose node_id is {}", settings.node_id));
    }
    if members.len() > MEMBERS_MOST {
        return refuse(format!(
            "names {} nodes; at most {MEMBERS_MOST} are allowed",
            members.len()
        ));
    }
    Ok(())
}

fn replicas(settings: &Settings) -> Result<(), SettingError> {
    let refuse = |name, why: String| Err(SettingError::Contradiction { name, why });
    if settings.queue_replicas.is_some_and(|replicas| !REPLICAS.contains(&replicas)) {
        return refuse("queue_replicas", "must be 1, 3 or 5".to_owned());
    }
    if settings.zone.len() > ZONE_BYTES_MOST {
        return refuse("zone", format!("must be at most {ZONE_BYTES_MOST} bytes"));
    }
    Ok(())
}

fn tls(settings: &Settings) -> Result<(), SettingError> {
    let refuse = |name, why: String| Err(SettingError::Contradiction { name, why });
    let listens = [
        ("amqp_tls_listen", settings.amqp_tls_listen.is_some()),
        ("http_tls_listen", settings.http_tls_listen.is_some()),
    ];
    for (listen, _) in listens.into_iter().filter(|(_, is_set)| *is_set) {
        if let Err(missing) = tls::client_files(settings) {
            return refuse(missing, format!("must be set, since {listen} is set"));
        }
    }
    let asks = settings.tls_client_certificates != ClientCertificates::None;
    if asks && settings.tls_ca_file.is_none() {
        let why = "must be set, since tls_client_certificates is not none";
        return refuse("tls_ca_file", why.to_owned());
    }
    if settings.rpc_tls
        && let Err(missing) = tls::rpc_files(|name| settings.tls_file(name))
    {
        return refuse(missing, "must be set, since rpc_tls is true".to_owned());
    }
    Ok(())
}

fn timing(settings: &Settings) -> Result<(), SettingError> {
    let refuse = |name, why: &str| Err(SettingError::Contradiction { name, why: why.to_owned() });
    if settings.raft_heartbeat_ms == 0 {
        return refuse("raft_heartbeat_ms", "must be at least 1 ms");
    }
    if settings.election_min_ms <= 2 * settings.raft_heartbeat_ms {
        return refuse("election_min_ms", "must be more than twice raft_heartbeat_ms");
    }
    if settings.election_max_ms <= settings.election_min_ms {
        return refuse("election_max_ms", "must be more than election_min_ms");
    }
    if settings.statistics_interval_ms < STATISTICS_MS_MIN {
        return refuse("statistics_interval_ms", "must be at least 100 ms");
    }
    if settings.statistics_retention_ms < settings.statistics_interval_ms {
        return refuse("statistics_retention_ms", "must be at least statistics_interval_ms");
    }
    let times = [
        ("handshake_timeout_ms", settings.handshake_timeout_ms),
        ("write_timeout_ms", settings.write_timeout_ms),
        ("operation_timeout_ms", settings.operation_timeout_ms),
        ("watchdog_ms", settings.watchdog_ms),
        ("unreachable_node_timeout_ms", settings.unreachable_node_timeout_ms),
        ("consumer_timeout_ms", settings.consumer_timeout_ms),
        ("checkpoint_ms", settings.checkpoint_ms),
    ];
    if settings.unreachable_node_timeout_ms < UNREACHABLE_MS_MIN {
        return refuse("unreachable_node_timeout_ms", "must be at least 4000 ms");
    }
    match times.iter().find(|(_, time_ms)| *time_ms == 0) {
        Some((name, _)) => refuse(name, "must be at least 1 ms"),
        None => Ok(()),
    }
}
