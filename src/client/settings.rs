//! Settings of a node that its front ends keep to.

use quorate_types::{FieldTable, ShortString};

/// What a front end needs to know to present itself.
#[derive(Clone, Debug)]
pub struct FrontSettings {
    /// Largest body taken, bytes.
    pub max_message_size: u64,
    /// Consumers that one channel may have (CON-07); `None` for no limit.
    pub consumer_max_per_channel: Option<u32>,
    /// Prefetch of consumers whose channel has set none (QOS-02); 0 for no limit.
    pub default_consumer_prefetch: u16,
    /// Bytes of deliveries that may be taken from the broker and not yet written, for one connection.
    pub delivery_ahead_bytes: u64,
    /// Offered in connection.tune.
    pub frame_max: u32,
    /// Offered in connection.tune.
    pub channel_max: u16,
    /// Offered in connection.tune, seconds.
    pub amqp_heartbeat_s: u16,
    /// From accept to open, ms (CONN-05).
    pub handshake_timeout_ms: u64,
    /// Handshakes at once; above, the oldest is dropped.
    pub handshake_max: u32,
    /// Receive buffer of a client's socket, bytes; 0 leaves it to the system.
    pub amqp_receive_buffer: usize,
    /// How long a client without a heartbeat may take nothing of what it is sent, ms.
    pub write_timeout_ms: u64,
    /// Whom the mechanism ANONYMOUS stands for; `None`: it is not offered.
    pub anonymous_user: Option<ShortString>,
    /// `server-properties`, capabilities included.
    pub server_properties: FieldTable,
}
