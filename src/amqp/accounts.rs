//! The memory that one connection holds for its client, reported once a turn.

use crate::connection::held::Unfinished;
use quorate_client::{
    Connection,
    memory::{Held, MemoryBudget, Share},
};
use std::sync::Arc;

/// Largest reads, in bytes: the first while the memory for contents or for publishes in flight is
/// more than half used, the second otherwise.
const READ_BYTES: (usize, usize) = (16 * 1024, 256 * 1024);

/// Bytes of unfinished contents that any publisher has that sends one message after the other.
const LITTLE_BYTES: usize = 64 * 1024;

/// How long a large content waits for room before the connections that hold most are closed, ms.
const PATIENCE_MS: u64 = 1_000;

/// The accounts of one connection.
#[derive(Debug)]
pub(crate) struct Accounts {
    memory: Arc<MemoryBudget>,
    contents: Held,
    transactions: Held,
    deliveries: Held,
    /// Since when there have been more unfinished contents than a message or two.
    held_since_ms: Option<u64>,
    /// Set while a large content waits for room: the time at which the greatest holders are closed.
    relief_at_ms: Option<u64>,
}

impl Accounts {
    pub(crate) fn new(memory: &Arc<MemoryBudget>) -> Self {
        Self {
            memory: Arc::clone(memory),
            contents: memory.account(Share::Contents),
            transactions: memory.account(Share::Transactions),
            deliveries: memory.account(Share::Deliveries),
            held_since_ms: None,
            relief_at_ms: None,
        }
    }

    /// Reports what the connection holds between two turns: incomplete contents, the read buffer, and
    /// transactions. `partial_bytes` of the read buffer belong to a frame that is not complete yet. If
    /// a share is used up, the connections that hold most of it are closed.
    pub(crate) fn report(
        &mut self,
        connection: &impl Connection,
        now_ms: u64,
        unfinished: Unfinished,
        (input_capacity, partial_bytes): (usize, usize),
    ) {
        let Unfinished { content_bytes, since_ms, transaction_bytes } = unfinished;
        let (contents, transactions) = (content_bytes as u64, transaction_bytes as u64);
        // A content as large as the share must not wait for the buffer that its own bytes wait in.
        let input = if self.relief_at_ms.is_some() { 0 } else { input_capacity as u64 };
        self.contents.set_about(contents + input);
        self.transactions.set_about(transactions);
        if content_bytes + partial_bytes > LITTLE_BYTES {
            self.held_since_ms.get_or_insert(now_ms);
        } else {
            self.held_since_ms = None;
        }
        let since_ms = since_ms.or(self.held_since_ms);
        let age_ms = since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
        connection.report_unfinished(contents + partial_bytes as u64, age_ms, transactions);
        // The second content of a connection does not wait for room: they may hold twice the share.
        if contents > 0 && self.memory.is_overdrawn(Share::Contents, true) {
            connection.relieve(Share::Contents, 2 * self.memory.share_bytes_max(Share::Contents));
        }
        if transactions > 0 && self.memory.room_bytes(Share::Transactions) == 0 {
            let max = self.memory.share_bytes_max(Share::Transactions);
            connection.relieve(Share::Transactions, max);
        }
    }

    /// From now on only bytes that wait to be written are held. The broker, which has counted them
    /// so far, no longer does.
    pub(crate) fn end(&mut self, output_bytes: usize) {
        self.contents.set(0);
        self.transactions.set(0);
        self.deliveries.set(output_bytes as u64);
    }

    /// Maximum of bytes to be read at once.
    pub(crate) fn read_bytes_max(&self) -> usize {
        let is_free =
            |share| self.memory.room_bytes(share) > self.memory.share_bytes_max(share) / 2;
        let free = is_free(Share::Contents) && is_free(Share::InFlight);
        if free { READ_BYTES.1 } else { READ_BYTES.0 }
    }

    /// The client was disconnected because it does not read.
    pub(crate) fn note_lost(&self) {
        self.memory.note_refused(Share::Deliveries);
    }

    /// Takes room for a large content that was announced. The second content of a connection does
    /// not wait, since the first one could never complete. False: the caller must await
    /// [`Accounts::granted`].
    pub(crate) fn take(&mut self, bytes: usize, is_first: bool, now_ms: u64) -> bool {
        let bytes = bytes as u64;
        if !is_first {
            self.contents.set(self.contents.bytes() + bytes);
        } else if !self.take_first(bytes) {
            if self.relief_at_ms.is_none() {
                self.memory.note_waited(Share::Contents);
                self.relief_at_ms = Some(now_ms + PATIENCE_MS);
            }
            return false;
        }
        self.relief_at_ms = None;
        true
    }

    /// Releases what was reported at the end of the last turn; the end of the next turn reports again.
    fn take_first(&mut self, bytes: u64) -> bool {
        self.contents.set(0);
        self.contents.try_grow_content(bytes)
    }

    /// Waits until there is room for a content of `bytes` bytes, and takes it. Cancel-safe.
    pub(crate) async fn granted(&mut self, bytes: usize) {
        self.contents.grow_content(bytes as u64).await;
        self.relief_at_ms = None;
    }

    /// When [`Accounts::relieve`] is due.
    pub(crate) fn relief_at_ms(&self) -> Option<u64> {
        self.relief_at_ms
    }

    /// A large content has waited for long: makes room for it.
    pub(crate) fn relieve(&mut self, connection: &impl Connection, bytes: usize, now_ms: u64) {
        if self.relief_at_ms.is_some_and(|at_ms| now_ms >= at_ms) {
            self.relief_at_ms = Some(now_ms + PATIENCE_MS);
            // If the content waits only for publishes in flight, it waits for the disk, and no
            // connection is to blame.
            let (bytes, max) = (bytes as u64, self.memory.share_bytes_max(Share::Contents));
            let takes = |share| self.memory.takes_body(&[share], bytes);
            if takes(Share::InFlight) || (bytes <= max && !takes(Share::Contents)) {
                connection.relieve(Share::Contents, max.saturating_sub(bytes).max(max / 4));
            }
        }
    }
}
