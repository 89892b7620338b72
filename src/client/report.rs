//! What a front end reports of its connections, for lists.

/// What a front end says of one of its channels, for lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelReport {
    /// In confirm mode.
    pub confirm: bool,
    /// Published, not confirmed.
    pub unconfirmed: u64,
    /// In transaction mode.
    pub transactional: bool,
    /// Published in its open transaction.
    pub messages_uncommitted: u64,
    /// Settled in its open transaction.
    pub acks_uncommitted: u64,
    /// Delivered or got, not settled.
    pub unacknowledged: u64,
    /// Limit of unsettled deliveries of its consumers, 0 for none.
    pub prefetch: u16,
    /// It has published at least once.
    pub has_published: bool,
}

/// What a front end says of its connection's socket, for lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketReport {
    /// Bytes read so far.
    pub received_bytes: u64,
    /// Bytes written so far.
    pub sent_bytes: u64,
    /// In how many reads.
    pub reads: u64,
    /// In how many writes.
    pub writes: u64,
    /// Bytes that wait to be written.
    pub pending_bytes: u64,
}
