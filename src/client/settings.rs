//! Settings of a node that its front ends keep to.

use quorate_types::{FieldTable, ShortString};

/// What a front end needs to know to present itself.
#[derive(Clone, Debug)]
pub struct FrontSettings {
    /// Largest body that is accepted, in bytes.
    pub max_message_size: u64,
    /// Consumers that one channel may have (CON-07); `None` for no limit.
    pub consumer_max_per_channel: Option<u32>,
    /// Prefetch of consumers whose channel has set none (QOS-02); 0 for no limit.
    pub default_consumer_prefetch: u16,
    /// Bytes of deliveries that may be taken from the broker and not yet written, for one connection.
    pub delivery_ahead_bytes: u64,
    /// Largest frame offered in `connection.tune`, in bytes.
    pub frame_max: u32,
    /// Highest channel number offered in `connection.tune`.
    pub channel_max: u16,
    /// Heartbeat offered in `connection.tune`, in seconds.
    pub amqp_heartbeat_s: u16,
    /// Longest time from the accept of a connection to `connection.open`, in ms (CONN-05).
    pub handshake_timeout_ms: u64,
    /// Most handshakes at the same time; beyond that, the oldest is dropped.
    pub handshake_max: u32,
    /// Receive buffer of a client's socket, bytes; 0 leaves it to the system.
    pub amqp_receive_buffer: usize,
    /// How long a client without a heartbeat may read nothing of what it is sent, in ms.
    pub write_timeout_ms: u64,
    /// User that the mechanism ANONYMOUS logs in; `None`: the mechanism is not offered.
    pub anonymous_user: Option<ShortString>,
    /// `server-properties`, capabilities included.
    pub server_properties: FieldTable,
}
