//! Closing who holds most of what is not finished, or not taken, where the memory for it is used up.
//!
//! An honest large message is complete within a second; one that is not is in the way of others for
//! as long as its client likes. So the connection that is closed first is the one with the largest
//! product of bytes and age. While this node's memory alarm is on, no publisher is read, so what is
//! unfinished cannot be completed. After 5 s of the alarm it is dropped, except for a quarter of
//! its share.

use crate::{
    client::Event,
    front::{clients::Clients, connection_state::ConnectionState},
    memory::Share,
};
use quorate_types::{Exception, ReplyCode};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// Who holds most is looked for no more often: those that were told to close need a moment.
const PAUSE: Duration = Duration::from_millis(20);

/// Who holds less is not closed: every publisher may be in the midst of a message or two.
const HOLDER_BYTES_MIN: u64 = 64 * 1024;
/// But who takes so long over its message is, ms: many of them together would hold as much.
const LASTING_MS: u64 = 10_000;

/// What has just come weighs as what is so old, ms: otherwise a little that is older would weigh more.
const NEW_MS: u64 = 100;

/// For whom something has waited for so long without a break is slow to take it.
const SLOW: Duration = Duration::from_secs(2);

/// Bytes of the share that may be taken from a connection, and for how long it has held some, ms.
fn holds(connection: &ConnectionState, share: Share) -> (u64, u64) {
    match share {
        Share::Deliveries => match connection.delivering.unwritten.waits() {
            (bytes, age) if age >= SLOW => (bytes, u64::try_from(age.as_millis()).unwrap_or(0)),
            _ => (0, 0),
        },
        Share::Contents
        | Share::Transactions
        | Share::InFlight
        | Share::Letters
        | Share::Replies => connection.unfinished.of(share),
    }
}

impl Clients {
    /// Closes the greatest holders of unfinished contents or transactions, or of deliveries that they
    /// are slow to take, until the others hold at most `bytes_max`.
    pub(crate) fn close_greatest(&self, share: Share, bytes_max: u64) {
        // One at a time is enough: whoever else finds the share used up looks again next turn.
        let Some(mut last) = self.relief.try_lock() else { return };
        let early = last.is_some_and(|last| last.elapsed() < PAUSE);
        if early || self.base.context.memory.share_held_bytes(share) <= bytes_max {
            return;
        }
        *last = Some(Instant::now());
        let mut held = self.base.context.memory.share_held_bytes(share);
        let mut holders = Vec::new();
        for connection in self.connections.all() {
            let (bytes, age_ms) = holds(&connection, share);
            if connection.unfinished.closing.load(Ordering::Relaxed) {
                held = held.saturating_sub(bytes);
            } else if bytes >= HOLDER_BYTES_MIN || (bytes > 0 && age_ms > LASTING_MS) {
                let weight = bytes.saturating_mul(age_ms + NEW_MS);
                holders.push((weight, bytes, connection));
            }
        }
        holders.sort_unstable_by_key(|(weight, _, _)| std::cmp::Reverse(*weight));
        for (_, bytes, connection) in holders {
            if held <= bytes_max {
                return;
            }
            held = held.saturating_sub(bytes);
            self.close_holder(share, bytes, &connection);
        }
    }

    fn close_holder(&self, share: Share, bytes: u64, connection: &Arc<ConnectionState>) {
        tracing::warn!(
            peer = %connection.info.peer, share = share.name(), bytes,
            "memory limit reached: closing the connection that holds most"
        );
        connection.unfinished.closing.store(true, Ordering::Relaxed);
        if share == Share::Deliveries {
            // A close would wait behind what the client does not take. Counted when it is lost.
            connection.delivering.unwritten.give_up();
            return;
        }
        self.base.context.memory.note_refused(share);
        let text = format!("the node's memory for {} is used up", share.name());
        let exception = Exception::new(ReplyCode::ResourceError, text);
        connection.mailbox.put(Event::Close(exception));
    }

    /// Where so much waits for slow clients that others get nothing, the slowest are dropped.
    pub(crate) fn drop_slow_clients(&self) {
        if self.base.context.memory.is_overdrawn(Share::Deliveries, false) {
            self.close_greatest(
                Share::Deliveries,
                self.base.context.memory.share_bytes_max(Share::Deliveries),
            );
        }
    }

    /// While memory is short, what is not finished does not keep it so: who publishes is not read
    /// then, so that nothing of it would be finished.
    pub(crate) fn drop_unfinished(&self) {
        for share in [Share::Contents, Share::Transactions] {
            self.close_greatest(share, self.base.context.memory.share_bytes_max(share) / 4);
        }
    }
}
