//! Every setting of `quorate server`: name, type, default, meaning.

use super::value::{
    ByteCount, HostPort, Identity, LogFormat, Members, MemoryLimit, SettingValue, UserNames,
};
use super::{Layers, SettingError};
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
    /// Meaning.
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
    /// Id of this node in the cluster, 1 to 65535. Never give an id to two nodes.
    node_id: NodeId = "1";
    /// Directory of this node's data; made if there is none.
    data_dir: PathBuf = "quorate-data";
    /// Address that AMQP clients connect to.
    amqp_listen: HostPort = "0.0.0.0:5672";
    /// Address that other nodes and `quorate ctl` connect to. Guarded by the cluster secret.
    rpc_listen: HostPort = "0.0.0.0:7672";
    /// Address of health, metrics and management over HTTP.
    http_listen: HostPort = "0.0.0.0:15672";
    /// The rpc addresses of all nodes of the cluster, the same on every node. Empty: a broker of one node.
    cluster: Members = "";
    /// Address at which the other nodes reach this one's rpc port. Empty: its address in `cluster`, or else `rpc_listen`.
    rpc_advertise: Option<HostPort> = "";
    /// Address of this node's AMQP port, for lists. Empty: `amqp_listen`, with the host's name in the place of 0.0.0.0.
    amqp_advertise: Option<HostPort> = "";
    /// Name of this node in lists. Empty: rabbitID@HOST, or quorateID@HOST when `identify_as` is quorate.
    node_name: Option<String> = "";
    /// File of the cluster secret, the same on every node. Made with mode 600 if there is none. QUORATE_CLUSTER_SECRET, if set, is used in its place. Empty: ~/.quorate/secret.
    cluster_secret_file: Option<PathBuf> = "";
    /// Queue groups; fixed when the cluster is formed, and of no effect after.
    queue_groups: u16 = "12";
    /// Product that the node passes for towards clients.
    identify_as: Identity = "rabbitmq";
    /// Users that may log in from loopback addresses only, separated by commas; `none` for no such user.
    loopback_users: UserNames = "guest";
    /// User that clients are let in as by the mechanism ANONYMOUS, without a password. Empty: it is not offered.
    anonymous_user: Option<ShortString> = "";
    /// Type of queues that are declared without x-queue-type.
    default_queue_type: QueueType = "classic";
    /// Largest message body, at most 128MiB.
    max_message_size: ByteCount = "16MiB";
    /// Largest AMQP frame offered to clients, bytes, from 8192 to 16777216.
    frame_max: u32 = "131072";
    /// Channels a connection offered to clients, at most 65535.
    channel_max: u16 = "2047";
    /// Connections that this node may have. Empty: as many as open files allow, at most 65536.
    connection_max: Option<u32> = "";
    /// Channels that all connections of this node together may have. Empty: as many as they like.
    channel_max_per_node: Option<u32> = "500000";
    /// Exchanges that the cluster may have, the predeclared ones among them. Empty: no limit.
    cluster_exchange_limit: Option<u64> = "200000";
    /// Queues that the cluster may have. Empty: no limit.
    cluster_queue_limit: Option<u64> = "1000000";
    /// Bindings that the cluster may have. Empty: no limit.
    cluster_binding_limit: Option<u64> = "4000000";
    /// Values that the arguments of a queue, exchange, binding or consumer may have, nested ones included. Empty: no limit.
    argument_max: Option<u32> = "1024";
    /// Memory that such arguments may take. Empty: no limit.
    argument_max_bytes: Option<ByteCount> = "64KiB";
    /// Values that the headers of a message may have, nested ones included. Empty: no limit.
    header_max: Option<u32> = "4096";
    /// Routing keys that the headers CC and BCC of a message may name together. Empty: no limit.
    cc_max: Option<u32> = "1024";
    /// Prefetch of consumers on channels that have not set one; 0 for no limit.
    default_consumer_prefetch: u16 = "0";
    /// A declare as a classic queue finds a quorum queue of that name equal if its TTLs, limits, dead-lettering and single active consumer are.
    relaxed_redeclaration: bool = "false";
    /// Consumers that a channel may have. Empty: as many as its client likes.
    consumer_max_per_channel: Option<u32> = "";
    /// Consumers that a connection may have. Empty: as many as its client likes.
    consumer_max_per_connection: Option<u32> = "50000";
    /// AMQP heartbeat offered to clients, seconds; 0 for none.
    amqp_heartbeat_s: u16 = "60";
    /// A connection not open this many milliseconds after it was accepted is dropped.
    handshake_timeout_ms: u64 = "10000";
    /// The answer to a login that fails is held back for this many milliseconds, and up to five times as long where many fail; 0 for not at all.
    login_failure_delay_ms: u64 = "1000";
    /// Connections that may be between their acceptance and connection.open-ok at once; above, the one that has taken longest is dropped.
    handshake_max: u32 = "1024";
    /// What the system may hold of what a client sends before it is read; twice as much with its own records. What waits here adds to the end-to-end latency. 0 leaves it to the system.
    amqp_receive_buffer: ByteCount = "512KiB";
    /// A client that takes nothing of what it is sent for this many milliseconds is dropped, if it has no heartbeat; with one, after twice the heartbeat.
    write_timeout_ms: u64 = "60000";
    /// An operation that a group does not answer for this many milliseconds fails, as without a majority.
    operation_timeout_ms: u64 = "10000";
    /// Time from one Raft heartbeat to the next, milliseconds.
    raft_heartbeat_ms: u64 = "125";
    /// Shortest time without a leader before an election, milliseconds; more than twice `raft_heartbeat_ms`.
    election_min_ms: u64 = "300";
    /// Longest time without a leader before an election, milliseconds; more than `election_min_ms`.
    election_max_ms: u64 = "450";
    /// A node whose disk takes longer than this many milliseconds for a sync gives its leaderships up.
    watchdog_ms: u64 = "1000";
    /// Deliveries held by a node that cannot be reached return after this many milliseconds.
    unreachable_node_timeout_ms: u64 = "20000";
    /// A delivery that a consumer has not settled after this many milliseconds goes back to its queue.
    consumer_timeout_ms: u64 = "1800000";
    /// Raft log kept for followers that lag, of all groups together; one that lags more gets a snapshot.
    log_tail_bytes: ByteCount = "32MiB";
    /// Recent messages kept in memory, of all queues, so that what is consumed at once is never read from disk. Empty: 64MiB, at most a 16th of the machine's memory.
    run_cache_bytes: Option<ByteCount> = "";
    /// Memory of RocksDB's write buffers. Empty: 64MiB, at most a 16th of the machine's memory.
    write_buffer_bytes: Option<ByteCount> = "";
    /// Memory of RocksDB's block cache. Empty: 32MiB, at most a 32nd of the machine's memory.
    block_cache_bytes: Option<ByteCount> = "";
    /// Longest time between two checkpoints of changed state, milliseconds.
    checkpoint_ms: u64 = "100";
    /// Changed state that brings the next checkpoint forward.
    checkpoint_bytes: ByteCount = "4MiB";
    /// Bodies that clients may make the node hold, in all: messages being received, transactions, publishes not yet answered, deliveries not yet read. Bytes, or a fraction (with a point) of the machine's memory. When a part of it is used up, what would add to it waits, or its greatest holder is closed. Empty: two fifths of what the other shares leave below `memory_high_watermark`, at least an 8th of the machine's memory.
    client_memory: Option<MemoryLimit> = "";
    /// Publishes of a connection that are not yet answered, each queue that they go to counted; when reached, its socket is not read, and the rest of a publish to many queues waits. Of messages of less than 64 KiB as many count as full that are 256 of them and 2 MiB. Empty: 16MiB, at most an 8th of `client_memory`.
    connection_in_flight_bytes: Option<ByteCount> = "";
    /// Publishes of a node to one group that are not yet answered; when reached, sockets that have some of them are not read. Empty: 64MiB, at most a 4th of `client_memory`.
    group_in_flight_bytes: Option<ByteCount> = "";
    /// Bodies read for a connection beyond what is written to it. Empty: 4MiB, at most a 32nd of `client_memory`.
    delivery_ahead_bytes: Option<ByteCount> = "";
    /// Bodies of exclusive queues kept in memory; beyond, they go to disk. Empty: 64MiB, at most a 16th of the machine's memory.
    exclusive_memory_bytes: Option<ByteCount> = "";
    /// Entries and bodies that wait to be sent to another node, for each of them; a quarter as much for votes and answers. Empty: 64MiB, at most a 32nd of the machine's memory.
    lane_bytes: Option<ByteCount> = "";
    /// Memory above which publishers are blocked: bytes, or a fraction (with a point) of the machine's memory. The machine's memory is its cgroup's wherever that has less.
    memory_high_watermark: MemoryLimit = "0.6";
    /// Free disk below which publishers are blocked, and which a snapshot that is received must leave.
    disk_free_limit: ByteCount = "1GiB";
    /// Threads that serve clients, and as many again that run everything else; 0 for one a core.
    worker_threads: u16 = "0";
    /// What is logged, as in RUST_LOG: `info`, `warn,quorate_raft=debug`, ...
    log: String = "info,openraft=warn";
    /// How log lines, which go to standard error, are written.
    log_format: LogFormat = "text";
}
