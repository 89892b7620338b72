//! Every setting of `quorate server`: name, type, default, meaning.

use super::value::{
    ByteCount, HostPort, Identity, LogFormat, Members, MemoryLimit, SettingValue, UserNames,
};
use super::{Layers, SettingError};
use quorate_tls::{ClientCertificates, LoginFrom};
use quorate_types::{NodeId, QueueType, ShortString};
use std::path::PathBuf;

/// A setting, as `--help` lists it.
pub(crate) struct Spec {
    /// Name in the TOML file; `--name-with-hyphens` as a flag, `QUORATE_NAME` in the environment.
    pub name: &'static str,
    /// What stands for the value, with its unit.
    pub shape: &'static str,
    /// Default, as one would write it; empty: see the meaning.
    pub default: &'static str,
    /// What the setting means, for `--help`.
    pub help: &'static str,
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:literal;)*) => {
        /// What `quorate server` runs with.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $name: $type,)*
        }

        /// All settings, in the order of `--help`.
        pub(crate) const SPECS: &[Spec] = &[$(Spec {
            name: stringify!($name),
            shape: <$type as SettingValue>::SHAPE,
            default: $default,
            help: concat!($($doc),+),
        },)*];

        impl Settings {
            /// Takes every setting from the highest layer that has it, each one by itself.
            pub(super) fn take(layers: &Layers) -> Result<Self, SettingError> {
                Ok(Self { $($name: layers.take(stringify!($name), $default)?,)* })
            }
        }
    };
}

settings! {
    /// Id of this node in the cluster, from 1 to 65535. Each node needs an id of its own.
    node_id: NodeId = "1";
    /// Data directory of this node. It is created if it does not exist.
    data_dir: PathBuf = "quorate-data";
    /// Address on which the node accepts AMQP clients.
    amqp_listen: HostPort = "0.0.0.0:5672";
    /// Address on which the node accepts other nodes and `quorate ctl`. Only peers that know the
    /// cluster secret can connect.
    rpc_listen: HostPort = "0.0.0.0:7672";
    /// Address on which the node serves the web page, the HTTP API, health checks and metrics.
    http_listen: HostPort = "0.0.0.0:15672";
    /// Address on which the node accepts AMQP clients over TLS, conventionally port 5671. Empty:
    /// none.
    amqp_tls_listen: Option<HostPort> = "";
    /// Address on which the node serves the web page, the HTTP API, health checks and metrics over HTTPS. Empty: none.
    http_tls_listen: Option<HostPort> = "";
    /// Further address on which the node serves metrics only, without TLS, conventionally port 15692. Empty: none.
    metrics_listen: Option<HostPort> = "";
    /// PEM file with the certificate that the node shows to clients, and the certificates between
    /// it and its authority. Files of TLS are loaded again within seconds when they change.
    tls_certificate_file: Option<PathBuf> = "";
    /// PEM file with the private key of `tls_certificate_file`.
    tls_key_file: Option<PathBuf> = "";
    /// PEM file with the certificates of the authorities that sign the certificates of clients.
    tls_ca_file: Option<PathBuf> = "";
    /// Certificates of AMQP clients. `request`: a client may show one, which `tls_ca_file` must
    /// have signed. `require`: a client without one is refused.
    tls_client_certificates: ClientCertificates = "none";
    /// Part of a client's certificate that is its user with the mechanism EXTERNAL: the common
    /// name, the first DNS name, or the whole subject in the form of RFC 4514.
    tls_login_from: LoginFrom = "common_name";
    /// Whether nodes and `quorate ctl` connect over TLS, each with a certificate that
    /// `rpc_tls_ca_file` has signed. The certificate of a node must name its host in `cluster`. The
    /// value must be the same on every node.
    rpc_tls: bool = "false";
    /// PEM file with the certificate that the node shows to other nodes and `quorate ctl`. Empty:
    /// `tls_certificate_file`.
    rpc_tls_certificate_file: Option<PathBuf> = "";
    /// PEM file with the private key of `rpc_tls_certificate_file`. Empty: `tls_key_file`.
    rpc_tls_key_file: Option<PathBuf> = "";
    /// PEM file with the certificates of the authorities that sign the certificates of nodes and of
    /// `quorate ctl`. Empty: `tls_ca_file`.
    rpc_tls_ca_file: Option<PathBuf> = "";
    /// Ids and rpc addresses of the nodes of the cluster, this one among them. When a cluster is
    /// formed, the value must be the same on every node. A node with an empty data directory asks all
    /// nodes that the value names whether there is a cluster, and joins it. This node reaches the nodes
    /// that the value names at these addresses, and others at those that they advertise. Empty: a
    /// cluster of this node alone.
    cluster: Members = "";
    /// Address at which other nodes reach the rpc port of this node. Empty: the address of this
    /// node in `cluster`; without `cluster`, `rpc_listen`.
    rpc_advertise: Option<HostPort> = "";
    /// Address of the AMQP port of this node, as `quorate ctl` shows it. Empty: `amqp_listen`, with
    /// the host name instead of 0.0.0.0.
    amqp_advertise: Option<HostPort> = "";
    /// Name of this node, as `quorate ctl` shows it. Empty: rabbitID@HOST, or quorateID@HOST if
    /// `identify_as` is quorate.
    node_name: Option<String> = "";
    /// Name of the zone of this node, such as a data centre or a rack, at most 255 bytes. The replicas
    /// of a queue are spread over the zones. Empty: the node is in a zone of its own.
    zone: String = "";
    /// Whether this node, when its data directory is empty, may take the place of the directory that
    /// its id had before, whose disk is lost. It does so only while all other nodes run and no
    /// replicas move. false: the node waits until an operator replaces it.
    replace_lost_disk: bool = "false";
    /// File with the cluster secret, which must be the same on every node. A missing file is
    /// created with a new secret and mode 600. Nobody but its owner may write the file, nobody but
    /// its owner and a group of the process may read it. The variable QUORATE_CLUSTER_SECRET takes
    /// precedence over the file. Empty: ~/.quorate/secret.
    cluster_secret_file: Option<PathBuf> = "";
    /// JSON file with definitions in RabbitMQ's format (users, virtual hosts, policies, ...), which
    /// the node imports at every start, once it serves clients. An import makes or changes what the
    /// file names, passwords too, and leaves the rest. Until it is done the node is not ready.
    /// Empty: none.
    definitions_file: Option<PathBuf> = "";
    /// Number of Raft groups that queues are spread over, from 1 to 1024. It is fixed when the
    /// cluster is formed; the value must not change after that.
    queue_groups: u16 = "12";
    /// Number of nodes that replicate each queue, 1, 3 or 5, as far as there are so many. The value
    /// must be the same on every node. Empty: as many as the cluster was formed with, at least 3.
    queue_replicas: Option<u16> = "";
    /// Newest machine version, as `quorate ctl cluster_status` shows it, that this node agrees to. The
    /// cluster raises its version as soon as all nodes agree, and never lowers it: an older release
    /// of quorate may refuse the data after that. Set it to the present version before an upgrade
    /// that you may want to undo. Empty: the newest one that this release knows.
    machine_version_max: Option<u32> = "";
    /// Product name that the node reports to AMQP clients.
    identify_as: Identity = "rabbitmq";
    /// Users that may log in from loopback addresses only, separated by commas. `none`: no user is
    /// restricted.
    loopback_users: UserNames = "guest";
    /// User of clients that log in with the mechanism ANONYMOUS, without a password. Empty: the
    /// node does not offer this mechanism.
    anonymous_user: Option<ShortString> = "";
    /// Type of queues that are declared without x-queue-type.
    default_queue_type: QueueType = "classic";
    /// Largest message body, at most 128MiB. A larger message is refused and its channel is closed.
    max_message_size: ByteCount = "16MiB";
    /// Largest AMQP frame that the node offers to clients, in bytes, from 8192 to 16777216.
    frame_max: u32 = "131072";
    /// Channels per connection that the node offers to clients, from 1 to 65535.
    channel_max: u16 = "2047";
    /// Connections of this node. At this limit, new connections are refused. Empty: as many as the
    /// limit of open files allows, at most 65536; further connections wait.
    connection_max: Option<u32> = "";
    /// Channels of all connections of this node together. At this limit, new channels are refused.
    /// Empty: no limit.
    channel_max_per_node: Option<u32> = "500000";
    /// Exchanges of the cluster, including the predeclared ones. At this limit, new exchanges are
    /// refused. Empty: no limit.
    cluster_exchange_limit: Option<u64> = "200000";
    /// Queues of the cluster. At this limit, new queues are refused. Empty: no limit.
    cluster_queue_limit: Option<u64> = "1000000";
    /// Bindings of the cluster. At this limit, new bindings are refused. Empty: no limit.
    cluster_binding_limit: Option<u64> = "4000000";
    /// Values in the arguments of a queue, exchange, binding or consumer, including nested values.
    /// Arguments with more values are refused. Empty: no limit.
    argument_max: Option<u32> = "1024";
    /// Memory that the arguments of a queue, exchange, binding or consumer take, in bytes. Larger
    /// arguments are refused. Empty: no limit.
    argument_max_bytes: Option<ByteCount> = "64KiB";
    /// Values in the headers of a message, including nested values. Messages with more values are
    /// refused. Empty: no limit.
    header_max: Option<u32> = "4096";
    /// Routing keys in the headers CC and BCC of a message together. Messages with more keys are
    /// refused. Empty: no limit.
    cc_max: Option<u32> = "1024";
    /// Prefetch limit of consumers whose channel has not set one, in messages. 0: no limit.
    default_consumer_prefetch: u16 = "0";
    /// Whether a client may redeclare a quorum queue as a classic queue. The node then compares
    /// only the message TTL, the expiry, the length limits, the dead-letter arguments and the
    /// single active consumer.
    relaxed_redeclaration: bool = "false";
    /// Consumers per channel. At this limit, new consumers are refused. Empty: no limit.
    consumer_max_per_channel: Option<u32> = "";
    /// Consumers per connection. At this limit, new consumers are refused. Empty: no limit.
    consumer_max_per_connection: Option<u32> = "50000";
    /// AMQP heartbeat interval that the node offers to clients, in seconds. 0: no heartbeat.
    amqp_heartbeat_s: u16 = "60";
    /// Longest time from the acceptance of a connection to connection.open-ok, in milliseconds. A
    /// slower client is disconnected.
    handshake_timeout_ms: u64 = "10000";
    /// Delay of the answer to a failed login, in milliseconds, at most 10000. Repeated failures
    /// from one address increase the delay to at most five times this value. 0: no delay.
    login_failure_delay_ms: u64 = "1000";
    /// Connections that are logging in at the same time. At this limit, a new connection replaces
    /// the oldest one of the address with the most connections that are logging in.
    handshake_max: u32 = "1024";
    /// Bytes from a client that the operating system buffers before the node reads them; the system
    /// allocates up to twice this value. A larger buffer can add to the end-to-end latency. 0: the
    /// default of the system.
    amqp_receive_buffer: ByteCount = "256KiB";
    /// Longest time that a client without a heartbeat may read nothing of what it is sent, in
    /// milliseconds. After that the client is disconnected. For a client with a heartbeat the limit
    /// is two heartbeat intervals.
    write_timeout_ms: u64 = "60000";
    /// Longest time that an operation waits for an answer of its Raft group, in milliseconds. After
    /// that the operation fails; the usual cause is a group without a majority.
    operation_timeout_ms: u64 = "10000";
    /// Interval between two heartbeats of a Raft leader, in milliseconds.
    raft_heartbeat_ms: u64 = "125";
    /// Shortest election timeout: the time without a leader before an election starts, in
    /// milliseconds. Must be more than twice `raft_heartbeat_ms`.
    election_min_ms: u64 = "300";
    /// Longest election timeout, in milliseconds. Must be more than `election_min_ms`.
    election_max_ms: u64 = "450";
    /// Longest disk sync, in milliseconds. If a sync takes longer, the node gives up its
    /// leaderships and leads nothing until the sync ends. A large write may take longer.
    watchdog_ms: u64 = "1000";
    /// Longest time without contact to a node, in milliseconds, at least 4000. After that, the
    /// unacknowledged messages of the consumers on that node are requeued.
    unreachable_node_timeout_ms: u64 = "20000";
    /// Longest time until a consumer acknowledges a delivery, in milliseconds. After that the
    /// message is requeued and the consumer gets no further messages. The argument
    /// x-consumer-timeout and the policy key consumer-timeout take precedence.
    consumer_timeout_ms: u64 = "1800000";
    /// Raft log entries that the node keeps for slow followers, all groups together. A follower
    /// that needs older entries gets a snapshot.
    log_tail_bytes: ByteCount = "32MiB";
    /// Cache of recent messages of all queues. Messages that are consumed while they are in the
    /// cache are not read from disk. Empty: 64MiB, at most a 32nd of the machine's memory.
    run_cache_bytes: Option<ByteCount> = "";
    /// Memory of RocksDB's write buffers. Empty: 64MiB, at most a 16th of the machine's memory.
    write_buffer_bytes: Option<ByteCount> = "";
    /// Memory of RocksDB's block cache. Empty: 32MiB, at most a 32nd of the machine's memory.
    block_cache_bytes: Option<ByteCount> = "";
    /// Longest time between two checkpoints of changed state, in milliseconds.
    checkpoint_ms: u64 = "100";
    /// Amount of changed state that triggers a checkpoint before `checkpoint_ms` has passed.
    checkpoint_bytes: ByteCount = "4MiB";
    /// Message bodies that the node holds for clients: messages being received, open transactions,
    /// publishes without an answer from their queues, and deliveries that clients have not read.
    /// Bytes, or a fraction (with a decimal point) of the machine's memory. Each kind has a fixed
    /// part of this limit. If a part is used up, further messages of that kind wait, or the node
    /// closes the connection that holds most. Empty: two fifths of what the other limits leave
    /// below `memory_high_watermark` in a cluster of three nodes, more in a smaller and less in a
    /// larger one; at least a 16th of the machine's memory.
    client_memory: Option<MemoryLimit> = "";
    /// Message bodies that a connection has published and that their queues have not answered. A
    /// message counts once for each queue. Above this limit the node does not read from the
    /// connection, and a message to many queues waits. For messages smaller than 64KiB the limit is
    /// lower: 256 messages, but at least 1536KiB. Empty: 16MiB, at most an 8th of `client_memory`.
    connection_in_flight_bytes: Option<ByteCount> = "";
    /// Message bodies that this node has sent to one Raft group and that the group has not
    /// answered. Above this limit the node does not read from the connections that published them.
    /// Empty: 64MiB, at most a 4th of `client_memory`.
    group_in_flight_bytes: Option<ByteCount> = "";
    /// Message bodies that the node reads for a connection before they are written to its socket.
    /// At this limit, further deliveries wait. Empty: 4MiB, at most a 32nd of `client_memory`.
    delivery_ahead_bytes: Option<ByteCount> = "";
    /// Message bodies of exclusive queues that the node keeps in memory. Further bodies are written
    /// to disk. Empty: 64MiB, at most a 32nd of the machine's memory.
    exclusive_memory_bytes: Option<ByteCount> = "";
    /// Log entries and message bodies that wait to be sent to another node, for each node. At this
    /// limit, further messages wait. Votes and answers have a separate limit of a quarter of this
    /// value. Empty: 64MiB, at most a 32nd of the machine's memory.
    lane_bytes: Option<ByteCount> = "";
    /// Memory use above which publishers are blocked (memory alarm). Bytes, or a fraction (with a
    /// decimal point) of the machine's memory; inside a cgroup with a lower limit, of that limit.
    memory_high_watermark: MemoryLimit = "0.6";
    /// Free disk space below which publishers are blocked (disk alarm). A snapshot from another
    /// node is refused if it would leave less.
    disk_free_limit: ByteCount = "1GiB";
    /// Threads that serve clients; the node runs as many threads again for everything else. 0: one
    /// per processor core.
    worker_threads: u16 = "0";
    /// Time between two samples of what passes through queues, exchanges, connections and channels, in
    /// milliseconds. The rates that the HTTP API shows are those between the last two samples.
    statistics_interval_ms: u64 = "5000";
    /// How long samples are kept, in milliseconds; at most 720 of them. Only 500 queues with traffic, and as many
    /// exchanges, connections and channels, have more than the last two.
    statistics_retention_ms: u64 = "600000";
    /// Log filter, in the syntax of RUST_LOG: `info`, `warn,quorate_raft=debug`, ... What openraft
    /// cannot go on with, the node says itself when it exits.
    log: String = "info,openraft=off";
    /// Format of the log lines, which are written to standard error.
    log_format: LogFormat = "text";
}
