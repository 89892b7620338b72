//! Figures of connections and channels, for lists.

/// Figures of one channel, for lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelReport {
    /// Whether the channel is in confirm mode.
    pub confirm: bool,
    /// Number of publishes that are not confirmed.
    pub unconfirmed: u64,
    /// Whether the channel is in transaction mode.
    pub transactional: bool,
    /// Number of publishes of its open transaction.
    pub messages_uncommitted: u64,
    /// Number of settles of its open transaction.
    pub acks_uncommitted: u64,
    /// Number of messages that were delivered or got and are not settled.
    pub unacknowledged: u64,
    /// Limit of unsettled deliveries of its consumers, 0 for none.
    pub prefetch: u16,
    /// Messages that have passed through it so far.
    pub traffic: ChannelTraffic,
}

/// Numbers of messages that have passed through a channel since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelTraffic {
    /// Publishes received.
    pub published: u64,
    /// Publishes confirmed by `basic.ack`.
    pub confirmed: u64,
    /// Unroutable publishes that were returned.
    pub returned: u64,
    /// Unroutable publishes that were dropped.
    pub dropped: u64,
    /// Deliveries to consumers that acknowledge.
    pub delivered: u64,
    /// Deliveries to consumers that do not acknowledge.
    pub delivered_no_ack: u64,
    /// Messages got that are to be acknowledged.
    pub got: u64,
    /// Messages got without acknowledgement.
    pub got_no_ack: u64,
    /// Uses of `basic.get` that found no message.
    pub got_empty: u64,
    /// Deliveries and gets that were marked as redelivered.
    pub redelivered: u64,
    /// Deliveries and gets that were acknowledged.
    pub acknowledged: u64,
}

/// What lists show of a connection's TLS, in RabbitMQ's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsReport {
    /// Such as `tlsv1.3`.
    pub protocol: &'static str,
    /// Such as `ecdhe_rsa`; `any` with TLS 1.3.
    pub key_exchange: String,
    /// Such as `aes_256_gcm`.
    pub cipher: String,
    /// Subject of the client's certificate. This and what follows is empty if it has shown none.
    pub peer_subject: String,
    /// Issuer of the client's certificate.
    pub peer_issuer: String,
    /// First and last second in which the client's certificate is valid.
    pub peer_validity: String,
}

/// Figures of a connection's socket, for lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketReport {
    /// Bytes read so far.
    pub received_bytes: u64,
    /// Bytes written so far.
    pub sent_bytes: u64,
    /// Number of reads of the socket so far.
    pub reads: u64,
    /// Number of writes to the socket so far.
    pub writes: u64,
    /// Bytes that wait to be written.
    pub pending_bytes: u64,
}
